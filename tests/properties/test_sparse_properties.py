"""What must not matter: the order and names of tasks, repetition, units, names of classes.

The order of rows and how arrays are stored: tests/endurance/test_invariances.py, for all estimators.
"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from gleangp import SparseGPClassifier, SparseGPRegressor
from gleangp.inference.block import Block
from gleangp.noise import Gaussian, Probit
from gleangp.selection.runs import GreedyRun, entropy_reduction

KERNEL = ConstantKernel(1.2) * RBF([0.8, 1.5])
X_NEW = np.random.default_rng(1).normal(size=(6, 2))
few = settings(max_examples=15, deadline=None)
seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(2, 25)


def problem(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=n)
    labels = y > 0
    labels[:2] = True, False  # both classes, always
    return X, y, labels, rng


def fixed(Model, **more):
    if Model is SparseGPRegressor:
        more = {"noise_variance": 0.1, **more}
    return Model(KERNEL, optimizer=None, **more)


def outputs(model, X, *tasks):
    """What the model says about rows: mean and deviation, or probabilities."""
    if isinstance(model, SparseGPRegressor):
        return np.column_stack(model.predict(X, *tasks, return_std=True))
    return model.predict_proba(X, *tasks)


def both_targets(y, labels):
    return ((SparseGPRegressor, y), (SparseGPClassifier, labels))


@few
@given(st.integers(6, 25), seeds)
def test_order_and_names_of_tasks(n, seed):
    """Tasks may be called anything and come in any order."""
    X, y, labels, rng = problem(n, seed)
    codes = np.append([0, 0, 1, 1, 2, 2], rng.integers(3, size=n - 6))
    names = rng.permutation(["oak", "elm", "ash"])
    where = np.arange(len(X_NEW)) % 3
    for Model, target in both_targets(y, labels):
        one = fixed(Model).fit(X, target, codes)
        two = fixed(Model).fit(X, target, names[codes])
        assert_allclose(outputs(two, X_NEW, names[where]), outputs(one, X_NEW, where), rtol=1e-7, atol=1e-8)
        assert_allclose(two.log_evidence_, one.log_evidence_, rtol=1e-7)


@few
@given(sizes, seeds, st.integers(2, 4))
def test_repeated_rows_are_a_smaller_noise(n, seed, times):
    """Gaussian noise: a row seen k times is a row seen once with a k-th of the noise variance."""
    X, y, _, _ = problem(n, seed)
    repeated = fixed(SparseGPRegressor, normalize_y=False, noise_variance=0.3).fit(
        np.repeat(X, times, axis=0), np.repeat(y, times)
    )
    once = fixed(SparseGPRegressor, normalize_y=False, noise_variance=0.3 / times).fit(X, y)
    assert_allclose(outputs(repeated, X_NEW), outputs(once, X_NEW), rtol=1e-6, atol=1e-8)


@few
@given(sizes, seeds, st.floats(-8, 8), st.floats(-50, 50))
def test_units_of_the_target(n, seed, log_scale, shift):
    """Targets in other units give predictions in those units."""
    X, y, _, _ = problem(n, seed)
    scale = 10.0**log_scale
    plain = fixed(SparseGPRegressor).fit(X, y)
    other = fixed(SparseGPRegressor).fit(X, scale * (y + shift))
    mean, std = plain.predict(X_NEW, return_std=True)
    other_mean, other_std = other.predict(X_NEW, return_std=True)
    assert_allclose(other_mean / scale - shift, mean, rtol=1e-6, atol=1e-6)
    assert_allclose(other_std / scale, std, rtol=1e-6)


@few
@given(sizes, seeds)
def test_class_names(n, seed):
    """Classes may be called anything; swapping them swaps the probabilities."""
    X, _, labels, _ = problem(n, seed)
    one = fixed(SparseGPClassifier, learn_noise=False).fit(X, labels)
    two = fixed(SparseGPClassifier, learn_noise=False).fit(X, np.where(labels, "a", "b"))
    assert_allclose(two.predict_proba(X_NEW)[:, ::-1], one.predict_proba(X_NEW), rtol=1e-3, atol=1e-4)


@few
@given(sizes, seeds, st.sampled_from(["gaussian", "probit"]), st.booleans())
def test_filtered_covariance_stays_positive(n, seed, noise, white):
    """However rows are repeated, variances stay above zero and gains above zero."""
    X, y, labels, rng = problem(n, seed)
    rows = rng.integers(n, size=2 * n)
    model = Gaussian(1e-4) if noise == "gaussian" else Probit()
    target = y if noise == "gaussian" else np.where(labels, 1.0, -1.0)
    kernel = KERNEL + WhiteKernel(0.01) if white else KERNEL
    block = Block(X[rows], target[rows], model)
    run = GreedyRun(kernel, block, entropy_reduction).extend(2 * n)
    assert sorted(run.picks) == list(range(2 * n))
    assert np.all(np.array(run.gains) > 0)
    assert run.filter.var.min() > -1e-9
    if noise == "gaussian":
        assert np.all(np.diff(run.gains) < 1e-7)  # information has diminishing returns
