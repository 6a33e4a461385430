"""The laws of TaskKFold, and its use by scikit-learn's tools."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score, cross_validate

from gleangp import SparseGPRegressor, TaskKFold
from gleangp.exceptions import NewTaskWarning, TaskError

RNG = np.random.default_rng(0)
TASKS = RNG.permutation(np.repeat(list("abcdefgh"), [1, 2, 3, 4, 5, 9, 17, 30]))


def folds(splitter, tasks=TASKS):
    """Test rows of all folds, after the laws that hold for every splitter were checked."""
    found = []
    for train, test in splitter.split(np.zeros((len(tasks), 1)), groups=tasks):
        assert len(test) > 0
        assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(len(tasks)))
        found.append(test)
    assert_array_equal(np.sort(np.concatenate(found)), np.arange(len(tasks)))
    assert len(found) == splitter.get_n_splits()
    return found


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("n_splits", [2, 3, 5, 40])
def test_known_tasks_are_in_every_training_set(n_splits, shuffle):
    """Every task's rows are spread evenly, and so are all rows; a task of two or more rows is never new."""
    tests = folds(TaskKFold(n_splits, shuffle=shuffle, random_state=0 if shuffle else None))
    sizes = [len(test) for test in tests]
    assert max(sizes) - min(sizes) <= 1
    for task, n_rows in zip(*np.unique(TASKS, return_counts=True), strict=True):
        held_out = [np.sum(TASKS[test] == task) for test in tests]
        assert max(held_out) - min(held_out) <= 1
        assert n_rows == 1 or max(held_out) < n_rows


def test_without_shuffling_the_test_rows_of_a_task_are_neighbours():
    """Rows in the order of time: a fold is a stretch of every task."""
    for test in folds(TaskKFold(3)):
        for task in np.unique(TASKS):
            place = np.flatnonzero(np.isin(np.flatnonzero(TASKS == task), test))
            assert_array_equal(place, place[:1] + np.arange(len(place)))


@pytest.mark.parametrize("shuffle", [False, True])
def test_new_tasks_are_held_out_whole(shuffle):
    """No task is on both sides, and the folds are those of GroupKFold."""
    options = {"shuffle": shuffle, "random_state": 0 if shuffle else None}
    tests = folds(TaskKFold(4, known=False, **options))
    assert sum(len(np.unique(TASKS[test])) for test in tests) == 8
    expected = GroupKFold(4, **options).split(TASKS, groups=TASKS)
    for test, (_, group_test) in zip(tests, expected, strict=True):
        assert_array_equal(test, group_test)


def test_shuffling_is_random_and_can_be_repeated():
    """One seed, one result; another seed, another."""
    one, again, other = (folds(TaskKFold(3, shuffle=True, random_state=seed)) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_tasks_from_a_column(make):
    """The column of a frame by name, or of an array by position; `groups` go first."""
    x = np.arange(len(TASKS), dtype=float)
    expected = folds(TaskKFold(3))
    for column, X in (("who", make({"x": x, "who": TASKS})), (1, np.array([x, TASKS], dtype=object).T)):
        found = [test for _, test in TaskKFold(3, task=column).split(X)]
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
        found = [test for _, test in TaskKFold(3, task=column).split(X, groups=np.arange(len(x)))]
        assert not all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: folds(TaskKFold(3), ["a", None, "b"]), TaskError, "missing"),
        (lambda: list(TaskKFold(3).split(np.zeros((4, 1)))), TaskError, r"no tasks.*task=.*groups="),
        (lambda: list(TaskKFold(3, task="w").split(pd.DataFrame({"x": [1.0] * 3}))), TaskError, "no column"),
        (lambda: folds(TaskKFold(5), ["a"] * 4), ValueError, "n_splits=5 greater than.*n_samples=4"),
        (lambda: folds(TaskKFold(3, known=False), ["a", "b"] * 4), ValueError, "number of groups: 2"),
        (lambda: TaskKFold(1), ValueError, "n_splits=1"),
        (lambda: TaskKFold(random_state=0), ValueError, "shuffle"),
    ],
)
def test_bad_input(call, error, message):
    """What cannot be split is refused with the reason."""
    with pytest.raises(error, match=message):
        call()


@pytest.fixture(scope="module")
def problem():
    """A frame sorted by task, in which tasks have offsets; and a model."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.uniform(0, 6, 96), "who": np.repeat(list("abcdefgh"), 12)})
    offset = dict(zip("abcdefgh", rng.normal(0, 3, 8), strict=True))
    y = np.sin(frame["x"]) + frame["who"].map(offset) + 0.1 * rng.normal(size=96)
    model = SparseGPRegressor(coupling="function", task="who", n_rounds=1, random_state=0)
    return model, frame, y


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::gleangp.exceptions.NewTaskWarning")
def test_two_questions_two_answers(problem):
    """Offsets of known tasks are known, those of new ones are not: both scores are finite, one is high."""
    model, frame, y = problem
    known, new = (
        cross_val_score(model, frame, y, cv=TaskKFold(3, known=known, task="who"), error_score="raise")
        for known in (True, False)
    )
    assert known.min() > 0.95
    assert new.max() < 0.8
    by_groups = cross_val_score(model, frame, y, groups=frame["who"], cv=TaskKFold(3, known=False))
    assert_array_equal(by_groups, new)


def test_known_tasks_give_no_warning_in_a_search(problem):
    """No task is new in any fold of a grid search; with held-out tasks each fold says so."""
    model, frame, y = problem
    model = clone(model).set_params(optimizer=None)
    search = GridSearchCV(model, {"n_active": [10, 20]}, cv=TaskKFold(3, task="who"), error_score="raise")
    assert np.isfinite(search.fit(frame, y).best_score_)
    with pytest.warns(NewTaskWarning):
        cross_val_score(model, frame, y, cv=TaskKFold(3, known=False, task="who"))


def test_routed_groups_reach_the_splitter(problem):
    """With metadata routing switched on, groups are requested."""
    model, frame, y = problem
    model, folds = clone(model).set_params(optimizer=None), TaskKFold(3, task="who")
    with config_context(enable_metadata_routing=True):
        found = cross_validate(model, frame, y, cv=TaskKFold(3), params={"groups": frame["who"]})
    assert_array_equal(found["test_score"], cross_val_score(model, frame, y, cv=folds))


def test_repr():
    """The parameters are shown."""
    assert repr(TaskKFold(3, task="who")).startswith("TaskKFold(known=True, n_splits=3")
