"""One task with more rows than can be held at once: slices and two rounds give what one piece gives."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from gleangp import EntropySelector, ResidualSelector, SparseGPClassifier, SparseGPRegressor
from gleangp.estimators._training_rows import LocalRows
from gleangp.inference import projected, sliced_projection
from gleangp.inference.block import Block
from gleangp.learning import shared_kernel
from gleangp.noise import Gaussian, NullCategory, Ordered, Probit
from gleangp.selection import two_rounds
from gleangp.selection.two_rounds import needs_two_rounds, part_of_row, select_in_two_rounds


def make_rows(n, p=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, np.sin(2.0 * X[:, 0]) + X[:, 1] ** 2 / 2.0 + 0.1 * rng.normal(size=n)


@pytest.mark.parametrize(
    "noise",
    [Gaussian(0.02), Gaussian(np.linspace(0.01, 0.1, 300)), Probit(0.2), Ordered(0.2, [0.7], 0.1)],
    ids=["one", "rows", "probit", "ordered"],
)
@pytest.mark.parametrize("kernel", [1.5 * RBF(0.8), 1.5 * RBF(0.8) + WhiteKernel(0.1)], ids=str)
def test_slices_give_the_projection_of_one_piece(monkeypatch, noise, kernel):
    """Posterior, evidence and sites are the same to rounding, whatever the size of the slices."""
    X, y = make_rows(300)
    coded = {Gaussian: y, Probit: np.where(y > 0, 1.0, -1.0), Ordered: np.digitize(y, [-0.2, 0.6])}
    block = Block(X, coded[type(noise)].astype(float), noise)
    whole, evidence, sites = projected.fit_projection(kernel, block, X[:20])
    nats = projected.unexplained_nats(kernel, block, X[:20]) if isinstance(noise, Gaussian) else None
    monkeypatch.setattr(sliced_projection, "AT_ONCE", 70 * 20 * 4)
    assert len(list(sliced_projection.slices_of(300, 20))) == 5
    monkeypatch.setattr(projected, "needs_slices", lambda n, d: True)
    sliced, again, sites_again = projected.fit_projection(kernel, block, X[:20])
    assert_allclose(again, evidence, rtol=1e-9)
    assert_allclose(sliced.weights, whole.weights, rtol=1e-5, atol=1e-7)
    assert_allclose(sliced.inner, whole.inner, rtol=1e-6, atol=1e-8)
    assert_allclose(sites_again.shift, sites.shift, rtol=1e-6, atol=1e-8)
    if nats is not None:
        assert_allclose(projected.unexplained_nats(kernel, block, X[:20]), nats, rtol=1e-9)


def test_slices_start_from_given_sites_and_count_silent_rows(monkeypatch):
    """With noise that is not log-concave, slices follow one piece from the same start to the same end."""
    X, y = make_rows(300)
    some = np.where(np.arange(300) % 10 == 0, np.sign(y), 0.0)
    kernel, block = 1.5 * RBF(0.8), Block(X, some, NullCategory(variance=0.1))
    start = projected.project(kernel, X, X[:20]).labelled_first(block)
    whole, evidence, sites = projected.fit_projection(kernel, block, X[:20], start)
    monkeypatch.setattr(sliced_projection, "AT_ONCE", 70 * 20 * 4)
    monkeypatch.setattr(projected, "needs_slices", lambda n, d: True)
    sliced, again, sites_again = projected.fit_projection(kernel, block, X[:20], start)
    assert np.isfinite(evidence)
    assert_allclose(again, evidence, rtol=1e-9)
    assert_allclose(sliced.weights, whole.weights, rtol=1e-5, atol=1e-7)
    assert_allclose(sites_again.precision, sites.precision, rtol=1e-6, atol=1e-8)
    assert sites_again.n_silent == sites.n_silent > 0


def test_parts_of_rows_are_even_and_do_not_depend_on_who_asks():
    """About as many rows in each part; the part of a row is a function of its number alone."""
    part = part_of_row(np.arange(10_000), 7)
    assert_allclose(np.bincount(part, minlength=7), 10_000 / 7, rtol=0.08)
    assert_array_equal(part[5000:5100], part_of_row(np.arange(5000, 5100), 7))
    assert needs_two_rounds(1_000_000, 500)
    assert not needs_two_rounds(10_000, 1000)


def in_both_ways(monkeypatch, selector, block, kernel):
    """40 points chosen at once, and in two rounds from eight parts."""
    rng = np.random.default_rng(1)
    at_once = selector.select(kernel, [block], 40, rng=rng)
    monkeypatch.setattr(two_rounds, "MOST_ENTRIES", len(block) * 40 // 8)
    twice = select_in_two_rounds(selector, kernel, block, 40, rng=rng)
    assert len(np.unique(twice.active[0])) == len(twice.gain) == 40
    return at_once, twice


def test_two_greedy_rounds_lose_little_entropy(monkeypatch):
    """The entropy that two rounds remove is within one percent of what the exact order removes."""
    X, y = make_rows(2000)
    block = Block(X, y, Gaussian(0.01))
    at_once, twice = in_both_ways(monkeypatch, EntropySelector(), block, ConstantKernel(1.0) * RBF(0.7))
    assert twice.gain.sum() > 0.99 * at_once.gain.sum()


def test_two_sampling_rounds_explain_as_much(monkeypatch):
    """What residual sampling leaves unexplained in two rounds is less than what uniform points leave."""
    X, y = make_rows(2000)
    kernel, block = ConstantKernel(1.0) * RBF(0.7), Block(X, y, Gaussian(0.01))
    at_once, twice = in_both_ways(monkeypatch, ResidualSelector(), block, kernel)
    one, two = (projected.unexplained_nats(kernel, block, X[c.active[0]]) for c in (at_once, twice))
    assert two < 1.2 * one
    assert two < 0.9 * projected.unexplained_nats(kernel, block, X[:40])


def test_a_large_task_is_learnt_on_a_part(monkeypatch):
    """Parameters from a part of very many rows are near those of all, and all rows speak."""
    X, y = make_rows(3000)
    whole = SparseGPRegressor(n_active=100, posterior="projected", random_state=0).fit(X, y)
    monkeypatch.setattr(shared_kernel, "MOST_LEARNT_ON", 2000)
    monkeypatch.setattr(shared_kernel, "_LARGE_PART", 1000)
    monkeypatch.setattr(two_rounds, "MOST_ENTRIES", 100_000)
    monkeypatch.setattr(sliced_projection, "AT_ONCE", 100_000)
    large = SparseGPRegressor(n_active=100, posterior="projected", random_state=0).fit(X, y)
    assert_allclose(large.kernel_.theta[1:], whole.kernel_.theta[1:], atol=0.25)  # the length scales
    assert_allclose(large.noise_.variance, whole.noise_.variance, rtol=0.1)
    X_new, y_new = make_rows(500, seed=1)
    errors = [np.sqrt(np.mean((m.predict(X_new) - y_new) ** 2)) for m in (whole, large)]
    assert errors[1] < 1.05 * errors[0]
    assert large.active_.max() > 1500  # not of the first rows alone


def test_a_memory_map_is_read_in_slices(monkeypatch, tmp_path):
    """Inputs on disk give the same bits as inputs in memory, and are not copied as a whole."""
    X, y = make_rows(2000)
    path = tmp_path / "X.npy"
    np.save(path, X)
    monkeypatch.setattr(shared_kernel, "MOST_LEARNT_ON", 1000)
    monkeypatch.setattr(shared_kernel, "_LARGE_PART", 500)
    monkeypatch.setattr(two_rounds, "MOST_ENTRIES", 40_000)
    monkeypatch.setattr(sliced_projection, "AT_ONCE", 40_000)
    on_disk = np.load(path, mmap_mode="r")
    longest = []
    at = LocalRows._at
    monkeypatch.setattr(LocalRows, "_at", lambda self, rows: longest.append(at(self, rows)) or longest[-1])
    model, twin = (
        SparseGPRegressor(n_active=40, n_rounds=1, posterior="projected", random_state=0) for _ in range(2)
    )
    model.fit(on_disk, y)
    assert np.shares_memory(longest[0], on_disk)
    twin.fit(X, y)
    assert_array_equal(model.active_, twin.active_)
    assert_array_equal(model.predict(X[:50]), twin.predict(X[:50]))


def make_large(monkeypatch, n_rows=1000):
    """A thousand rows count as very many, selections and projections as too large for one piece."""
    monkeypatch.setattr(shared_kernel, "MOST_LEARNT_ON", n_rows)
    monkeypatch.setattr(shared_kernel, "_LARGE_PART", 500)
    monkeypatch.setattr(two_rounds, "MOST_ENTRIES", 40_000)
    monkeypatch.setattr(sliced_projection, "AT_ONCE", 40_000)


@pytest.mark.parametrize("estimator", [SparseGPRegressor, SparseGPClassifier])
@pytest.mark.parametrize("in_slices", [True, False], ids=["slices", "whole"])
def test_float32_rows_are_stored_and_not_calculated_with(monkeypatch, tmp_path, estimator, in_slices):
    """Rows stored in float32 give, bit for bit, what the same numbers in float64 give; none copies them all.

    The step from the numbers before they were rounded changes predictions by less than 1e-4 of the spread.
    """
    exact, y = make_rows(2000)
    target = y if estimator is SparseGPRegressor else y > 0
    path = tmp_path / "X.npy"
    np.save(path, exact.astype(np.float32))
    stored = np.load(path, mmap_mode="r")
    make_large(monkeypatch)
    if not in_slices:
        monkeypatch.setattr(two_rounds, "MOST_ENTRIES", 10**9)
        monkeypatch.setattr(sliced_projection, "AT_ONCE", 10**9)
    seen, at = [], LocalRows._at
    monkeypatch.setattr(LocalRows, "_at", lambda self, rows: seen.append(at(self, rows)) or seen[-1])
    new = exact[:50].astype(np.float32)

    def fitted(X):
        model = estimator(n_active=40, n_rounds=1, posterior="projected", random_state=0).fit(X, target)
        return model, model.predict(new) if estimator is SparseGPRegressor else model.predict_proba(new)[:, 1]

    model, predicted = fitted(stored)
    assert seen[0].dtype == np.float32
    assert np.shares_memory(seen[0], stored)
    twin, same = fitted(stored.astype(np.float64))
    assert_array_equal(model.active_, twin.active_)
    assert_array_equal(predicted, same)
    assert model._model.posteriors[0].X.dtype == np.float64 if estimator is SparseGPRegressor else True
    assert np.max(np.abs(predicted - fitted(exact)[1])) < 1e-4 * np.std(y)


def test_few_float32_rows_and_several_tasks_become_float64(monkeypatch):
    """Only very many rows of one task, with the posterior that reads them in slices, stay as they are."""
    X, y = make_rows(300)
    X = X.astype(np.float32)
    seen, at = [], LocalRows._at
    monkeypatch.setattr(LocalRows, "_at", lambda self, rows: seen.append(at(self, rows)) or seen[-1])
    SparseGPRegressor(optimizer=None, posterior="projected").fit(X, y)
    make_large(monkeypatch, 200)
    SparseGPRegressor(optimizer=None, posterior="projected").fit(X, y, tasks=np.arange(300) % 2)
    SparseGPRegressor(optimizer=None, posterior="active", n_active=20).fit(X, y)
    some = np.where(np.arange(300) % 3 == 0, np.nan, y)  # rows without a target are left out
    SparseGPRegressor(optimizer=None, posterior="projected", n_active=20).fit(X, some)
    assert {rows.dtype for rows in seen} == {np.dtype(np.float64)}
