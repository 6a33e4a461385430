"""Very many rows: selection in two rounds."""

from dataclasses import replace

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from gleangp import EntropySelector, ResidualSelector, SparseGPRegressor
from gleangp.inference.block import Block
from gleangp.inference.prior import Basis
from gleangp.models.active import learn
from gleangp.noise import Gaussian
from gleangp.selection.base import select_in_two_rounds


def make_rows(n, p=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, np.sin(2.0 * X[:, 0]) + X[:, 1] ** 2 / 2.0 + 0.1 * rng.normal(size=n)


def test_a_huge_task_is_chosen_from_in_two_rounds(monkeypatch):
    """With more rows x points than may be held, no selection sees all rows; the model has its points."""
    X, y = make_rows(1500)
    seen, select = [], EntropySelector.select

    def watched(self, kernel, blocks, *arguments, **options):
        seen.append(len(blocks[0]))
        return select(self, kernel, blocks, *arguments, **options)

    monkeypatch.setattr(EntropySelector, "select", watched)
    monkeypatch.setattr(learn, "ACTIVE", replace(learn.ACTIVE, most_entries=1500 * 40 // 3))
    model = SparseGPRegressor(RBF(), selector="entropy", n_active=40, posterior="active", optimizer=None)
    assert len(np.unique(model.fit(X, y).active_)) == 40
    assert seen == [500, 500, 500, 120]


def in_both_ways(selector, block, kernel):
    """40 points chosen at once, and in two rounds from eight parts."""
    rng = np.random.default_rng(1)
    at_once = selector.select(kernel, [block], 40, rng=rng)
    twice = select_in_two_rounds(selector, kernel, block, 40, len(block) * 40 // 8, rng)
    assert len(np.unique(twice.active[0])) == len(twice.gain) == 40
    return at_once, twice


def test_two_greedy_rounds_lose_little_entropy():
    """The entropy that two rounds remove is within one percent of what the exact order removes."""
    X, y = make_rows(2000)
    block = Block(X, y, Gaussian(0.01))
    at_once, twice = in_both_ways(EntropySelector(), block, ConstantKernel(1.0) * RBF(0.7))
    assert twice.gain.sum() > 0.99 * at_once.gain.sum()


def test_two_sampling_rounds_explain_as_much():
    """What residual sampling leaves unexplained in two rounds is less than what uniform points leave."""
    X, y = make_rows(2000)
    kernel, block = ConstantKernel(1.0) * RBF(0.7), Block(X, y, Gaussian(0.01))
    at_once, twice = in_both_ways(ResidualSelector(), block, kernel)

    def unexplained(Z):
        return np.sum(kernel.diag(X)) - np.sum(Basis(kernel, Z).features(X)[1] ** 2)

    one, two = (unexplained(X[chosen.active[0]]) for chosen in (at_once, twice))
    assert two < 1.2 * one
    assert two < 0.9 * unexplained(X[:40])
