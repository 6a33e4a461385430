"""Limits in which a sparse Gaussian process is one that is known exactly."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)

from gleangp import SparseGPClassifier, SparseGPRegressor
from tests.two_fits import assert_same_answers

KERNELS = {
    "rbf": ConstantKernel(1.7) * RBF(0.8),
    "ard": ConstantKernel(0.6) * RBF([0.7, 1.9]) + ConstantKernel(0.3),
    "matern": ConstantKernel(2.0) * Matern(1.2, nu=1.5),
    "rational quadratic and line": RationalQuadratic(1.1, 0.7) + ConstantKernel(0.2) * DotProduct(0.5),
}
TOL = {"rtol": 0.0, "atol": 1e-8}


def problem(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.sin(2 * X[:, 0]) + 0.4 * X[:, 1] + 0.1 * rng.normal(size=n) + 3.0
    return X, y, rng.normal(size=(25, 2))


def keep_all(kernel, **more):
    return SparseGPRegressor(kernel, optimizer=None, normalize_y=False, n_active=1.0, **more)


def assert_same_process(sparse, exact, X_new):
    """Mean, deviation and joint covariance agree to 1e-8."""
    mean, std = exact.predict(X_new, return_std=True)
    ours_mean, ours_std = sparse.predict(X_new, return_std=True)
    assert_allclose(ours_mean, mean, **TOL)
    assert_allclose(ours_std, std, **TOL)
    _, cov = exact.predict(X_new, return_cov=True)
    assert_allclose(sparse.predict(X_new, return_cov=True)[1], cov, **TOL)
    assert_allclose(sparse.log_evidence_, exact.log_marginal_likelihood_value_, rtol=1e-9)


@pytest.mark.parametrize("posterior", ["local", "active"])
@pytest.mark.parametrize("name", KERNELS)
def test_noise_variance(name, posterior):
    """All rows active: scikit-learn's exact GP with alpha = noise_variance."""
    X, y, X_new = problem()
    exact = GaussianProcessRegressor(KERNELS[name], alpha=0.05, optimizer=None).fit(X, y)
    sparse = keep_all(KERNELS[name], noise_variance=0.05, posterior=posterior).fit(X, y)
    assert_same_process(sparse, exact, X_new)


@pytest.mark.parametrize("posterior", ["local", "active"])
@pytest.mark.parametrize("name", KERNELS)
def test_white_kernel(name, posterior):
    """The same with the noise in a WhiteKernel, whose variance is in the predictive deviation."""
    X, y, X_new = problem()
    kernel = KERNELS[name] + WhiteKernel(0.05)
    exact = GaussianProcessRegressor(kernel, optimizer=None).fit(X, y)
    assert_same_process(keep_all(kernel, posterior=posterior).fit(X, y), exact, X_new)


@pytest.mark.parametrize("posterior", ["local", "active"])
def test_noise_variance_per_row(posterior):
    """The same with a known noise variance for every row."""
    X, y, X_new = problem()
    variance = np.random.default_rng(1).uniform(0.01, 2.0, len(y))
    exact = GaussianProcessRegressor(KERNELS["ard"], alpha=variance, optimizer=None).fit(X, y)
    sparse = keep_all(KERNELS["ard"], noise_variance=variance, posterior=posterior).fit(X, y)
    assert_same_process(sparse, exact, X_new)
    assert_allclose(sparse.site_precision_, 1.0 / variance[sparse.active_], rtol=1e-12)


def test_normalized_targets():
    """normalize_y standardises as scikit-learn does: the same process in the user's units."""
    X, y, X_new = problem()
    kernel = KERNELS["rbf"]
    exact = GaussianProcessRegressor(kernel, alpha=0.05, optimizer=None, normalize_y=True).fit(X, y)
    sparse = SparseGPRegressor(kernel, noise_variance=0.05, optimizer=None).fit(X, y)
    mean, std = sparse.predict(X_new, return_std=True)
    assert_allclose(mean, exact.predict(X_new), rtol=1e-9)
    assert_allclose(std, exact.predict(X_new, return_std=True)[1], rtol=1e-8)


def test_unlabeled_rows_are_left_out():
    """Rows whose target is NaN change nothing but the numbering of the active rows."""
    X, y, X_new = problem()
    y = np.where(np.arange(len(y)) % 3 == 0, np.nan, y)
    known = ~np.isnan(y)
    exact = GaussianProcessRegressor(KERNELS["rbf"], alpha=0.05, optimizer=None)
    sparse = keep_all(KERNELS["rbf"], noise_variance=0.05).fit(X, y)
    assert_same_process(sparse, exact.fit(X[known], y[known]), X_new)
    assert_array_equal(np.sort(sparse.active_), np.flatnonzero(known))
    normal = SparseGPRegressor(KERNELS["rbf"], noise_variance=0.05, optimizer=None)
    again = SparseGPRegressor(KERNELS["rbf"], noise_variance=0.05, optimizer=None)
    assert_allclose(normal.fit(X, y).predict(X_new), again.fit(X[known], y[known]).predict(X_new), rtol=1e-12)


@pytest.mark.parametrize("posterior", ["local", "active"])
def test_learning_reaches_the_exact_optimum(posterior):
    """With all rows active, learning maximises the exact evidence: scikit-learn's optimum, or better."""
    X, y, _ = problem()
    start = ConstantKernel(1.0) * RBF([1.0, 1.0]) + WhiteKernel(0.1)
    exact = GaussianProcessRegressor(start, normalize_y=True).fit(X, y)
    sparse = SparseGPRegressor(start, posterior=posterior, priors={}).fit(X, y)
    assert sparse.log_evidence_ >= exact.log_marginal_likelihood_value_ - 1e-2


def test_many_tasks_are_exact_processes_that_share_a_kernel():
    """Every task is the exact GP of its own rows, and the evidence is the sum."""
    X, y, X_new = problem()
    tasks = np.array(["a", "b", "c"])[np.arange(len(y)) % 3]
    sparse = keep_all(KERNELS["rbf"], coupling="kernel", noise_variance=0.05).fit(X, y, tasks)
    total = 0.0
    for name in sparse.tasks_:
        rows = tasks == name
        exact = GaussianProcessRegressor(KERNELS["rbf"], alpha=0.05, optimizer=None)
        exact.fit(X[rows], y[rows])
        total += exact.log_marginal_likelihood_value_
        mean, std = sparse.predict(X_new, [name] * len(X_new), return_std=True)
        assert_allclose(mean, exact.predict(X_new), **TOL)
        assert_allclose(std, exact.predict(X_new, return_std=True)[1], **TOL)
    assert_allclose(sparse.log_evidence_, total, rtol=1e-9)


@pytest.mark.parametrize(
    ("Model", "settings"),
    [
        (SparseGPRegressor, {}),
        (SparseGPRegressor, {"n_active": 20}),
        (SparseGPClassifier, {"posterior": "active"}),
    ],
)
def test_one_task_is_no_tasks(Model, settings):
    """A single task is learnt as data without tasks are."""
    X, y, X_new = problem()
    y = y if Model is SparseGPRegressor else np.where(y > 3.0, "up", "down")
    alone = Model(random_state=0, **settings).fit(X, y)
    named = Model(random_state=0, **settings).fit(X, y, ["only"] * len(y))
    assert alone.tasks_ is None
    assert_array_equal(named.tasks_, ["only"])
    assert_array_equal(named.active_, alone.active_)
    assert_allclose(named.kernel_.theta, alone.kernel_.theta, rtol=1e-12)
    assert_same_answers(named.predict(X_new, ["only"] * len(X_new)), alone.predict(X_new))


@pytest.mark.parametrize("settings", [{}, {"posterior": "active", "n_active": 0.5}, {"n_active": 20}])
@pytest.mark.parametrize("Model", [SparseGPRegressor, SparseGPClassifier])
def test_add_task_leaves_the_others_untouched(Model, settings):
    """Predictions for the old tasks are the same to the last bit; the new one has learnt its rows."""
    X, y, X_new = problem()
    y = y if Model is SparseGPRegressor else np.where(y > 3.0, "up", "down")
    tasks = np.arange(len(y)) % 2
    model = Model(random_state=0, **settings).fit(X[:50], y[:50], tasks[:50])
    old_tasks = np.arange(len(X_new)) % 2
    before = model.predict(X_new, old_tasks)
    n_before, kernel = len(model.active_), model.kernel_
    assert model.add_task(X[50:], y[50:], 7) is model
    assert_array_equal(model.predict(X_new, old_tasks), before)
    assert model.kernel_ == kernel
    assert_array_equal(model.tasks_, [0, 1, 7])
    assert np.all(model.active_[n_before:] >= 50)
    assert model.score(X[50:], y[50:], [7] * 10) > (0.5 if Model is SparseGPRegressor else 0.7)


def test_added_task_is_the_exact_process_of_its_rows():
    """With a fixed kernel, adding a task equals having had it from the start."""
    X, y, X_new = problem()
    tasks = np.arange(len(y)) % 3
    settings = {"noise_variance": 0.05, "coupling": "kernel"}
    together = keep_all(KERNELS["ard"], **settings).fit(X, y, tasks)
    added = keep_all(KERNELS["ard"], **settings).fit(X[tasks < 2], y[tasks < 2], tasks[tasks < 2])
    added.add_task(X[tasks == 2], y[tasks == 2], 2)
    for task in (0, 1, 2):
        where = [task] * len(X_new)
        ours, theirs = added.predict(X_new, where), together.predict(X_new, where)
        assert_allclose(ours, theirs, rtol=1e-12)
    assert_allclose(added.log_evidence_, together.log_evidence_, rtol=1e-12)
