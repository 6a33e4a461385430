"""One estimator in several threads: no change is lost, and predictions see whole states only."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gleangp import (
    SparseGPRegressor,
    TaskColumn,
    load,
    save,
)
from tests.endurance.every_estimator import every, make_rows
from tests.endurance.threads import CASES, add_from_threads, eager, small_table, while_predicting

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(autouse=True)
def eager_threads():
    """Threads take turns as often as they can."""
    with eager():
        yield


@every(CASES)
def test_no_task_is_lost(case, tmp_path):
    """Eight threads add three tasks each; all are there, and predictions of known tasks never change."""
    model, n_lost, n_mixed = add_from_threads(case, 3)
    assert (n_lost, n_mixed) == (0, 0)
    X, target, codes, rows = small_table(case)
    new = np.full(len(X), 8002)
    same = case.outputs(model, X, new)
    alone = case.new().fit(X, target, codes).add_task(X[rows], target[rows], 8002)
    assert_array_equal(same, case.outputs(alone, X, new))
    save(model, tmp_path / "model.glean")
    for again in (load(tmp_path / "model.glean"), pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert_array_equal(case.outputs(again, X, new), same)
        again.add_task(X[rows], target[rows], 9)
        assert 9 not in model.tasks_


SMALL = SparseGPRegressor(RBF(), coupling="kernel", optimizer=None, random_state=0)
WITH_COLUMN = [clone(SMALL).set_params(task=1), TaskColumn(make_pipeline(StandardScaler(), SMALL), task=1)]


@pytest.mark.parametrize("model", WITH_COLUMN, ids=["estimator", "TaskColumn"])
def test_predictions_during_fits_are_old_or_new(model):
    """Fits in turn on other tasks, in other units: never a mixture."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 6, 20)
    few = np.column_stack([x, np.arange(20) % 2]), np.sin(x)
    many = np.column_stack([x, np.arange(20) % 5]), 1e6 + 1e3 * np.cos(x)
    new = few[0][:3]
    states = [np.column_stack(clone(model).fit(*data).predict(new, return_std=True)) for data in (few, many)]
    model = clone(model).fit(*few)

    def refit():
        for _ in range(10):
            model.fit(*many)
            model.fit(*few)

    seen = while_predicting(lambda: np.column_stack(model.predict(new, return_std=True)), refit)
    assert all(any(np.array_equal(s, state) for state in states) for s in seen)
    assert any(np.array_equal(s, states[1]) for s in seen)


def test_parts_of_several_threads_are_all_absorbed():
    """Rows of four threads are all in, first calls included: the model has seen every row."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, (120, 1))
    parts = np.array_split(np.arange(120), 24)
    model = SparseGPRegressor(RBF(), optimizer=None, random_state=0)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda rows: model.partial_fit(X[rows], np.sin(X[rows, 0])), parts))
    assert model._model.n_rows == 120


def test_a_lock_is_no_part_of_an_estimator():
    """Parameters and attributes are the same after the lock was used, and a clone is as new."""
    X, y, codes, _ = make_rows(24, 0)
    model = clone(SMALL)
    before = set(model.get_params(deep=False))
    model.fit(X, y, codes)
    assert set(model.get_params(deep=False)) == before
    assert not any("lock" in type(value).__name__.lower() for value in vars(model).values())
    assert set(vars(clone(model))) == before
