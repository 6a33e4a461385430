"""Unlabelled rows, ordered categories and invariances with tasks and with every selector."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from gleangp import (
    EntropySelector,
    GraphSelector,
    SparseGPClassifier,
    SparseGPOrdinal,
    SparseGPRegressor,
    TaskRelevance,
)

SELECTORS = [
    "entropy",
    "information",
    "residual",
    "random",
    "graph",
    EntropySelector(n_swaps=3),
    TaskRelevance(EntropySelector()),
    TaskRelevance(GraphSelector()),
]
KERNEL = ConstantKernel(4.0, "fixed") * RBF(1.0, "fixed")


@pytest.fixture(scope="module")
def rows():
    """Two tasks of 40 rows in two clusters each; mirrored inputs mean the same."""
    rng = np.random.default_rng(0)
    side = np.where(np.arange(80) % 2, 1, -1)
    X = np.column_stack([2.0 * side, np.zeros(80)]) + 0.4 * rng.standard_normal((80, 2))
    return X, side, np.repeat(["a", "b"], 40)


def mirror(X):
    """The second feature turned round."""
    return X * [1.0, -1.0]


@pytest.mark.parametrize("selector", SELECTORS, ids=repr)
@pytest.mark.parametrize("posterior", ["local", "active"])
def test_unlabeled_rows(rows, selector, posterior):
    """Two tasks, three labels a class and task: both clusters are found, and nothing is infinite."""
    X, side, tasks = rows
    y = np.where(np.arange(80) % 40 < 6, side, 0)
    model = SparseGPClassifier(
        KERNEL,
        unlabeled=0,
        selector=selector,
        posterior=posterior,
        n_active=30,
        optimizer=None,
        random_state=0,
    ).fit(X, y, tasks=tasks)
    assert np.isfinite(model.log_evidence_)
    assert len(model.active_) == 30
    if posterior == "local":
        assert np.mean(model.predict(X, tasks=tasks) != side) < 0.05


@pytest.mark.parametrize("selector", SELECTORS, ids=repr)
@pytest.mark.parametrize("posterior", ["local", "active"])
def test_ordered_categories(rows, selector, posterior):
    """Three categories along the first feature, in two tasks."""
    X, _, tasks = rows
    y = np.digitize(X[:, 0], [-2.0, 2.0])
    model = SparseGPOrdinal(
        KERNEL, selector=selector, posterior=posterior, n_active=40, optimizer=None, random_state=0
    ).fit(X, y, tasks=tasks)
    assert np.isfinite(model.log_evidence_)
    assert np.mean(model.predict(X, tasks=tasks) != y) < 0.4
    assert np.mean(np.abs(model.predict(X, tasks=tasks) - y) > 1) < 0.1


@pytest.mark.parametrize("selector", SELECTORS, ids=repr)
@pytest.mark.parametrize("estimator", [SparseGPClassifier, SparseGPRegressor, SparseGPOrdinal])
def test_invariances(rows, selector, estimator):
    """Copies keep the task of their row, in `fit` and in a task that comes later."""
    X, side, tasks = rows
    y = np.digitize(X[:, 0], [-2.0, 2.0]) if estimator is SparseGPOrdinal else side
    for posterior in ("local", "active"):
        model = estimator(
            KERNEL,
            selector=selector,
            posterior=posterior,
            invariances=mirror,
            n_active=20,
            optimizer=None,
            random_state=0,
        ).fit(X, y, tasks=tasks)
        inner = model._models[0] if estimator is SparseGPClassifier else model._model
        assert (model.active_virtual_ == 0).any()
        assert_array_equal(tasks[model.active_], model.tasks_[inner.active_task])
        before = model.predict(X, tasks=tasks)
        model.add_task(X[:30], y[:30], "c")
        new = model.active_ >= 80
        assert (model.active_virtual_[new] == 0).any()
        assert (model.active_[new] < 110).all()
        assert np.isfinite(model.log_evidence_)
        assert_array_equal(model.predict(X, tasks=tasks), before)
        assert np.mean(np.abs(model.predict(X, tasks=np.full(80, "c")) - y) > 0.5) < 0.3


def test_coupled_functions_are_refused(rows):
    """What needs tasks that share the kernel alone is refused with the reason."""
    X, side, tasks = rows
    with pytest.raises(ValueError, match=r"coupling='function', but .* because invariances are given"):
        SparseGPClassifier(coupling="function", invariances=mirror).fit(X, side, tasks=tasks)
