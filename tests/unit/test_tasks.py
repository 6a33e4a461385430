"""Tasks arrive as columns or arrays and become names and codes."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array

from gleangp import stack_outputs, unstack_outputs
from gleangp.data.tasks import (
    append_task,
    blocks_of_rows,
    encode_tasks,
    lookup_tasks,
    take_task_column,
)
from gleangp.exceptions import GleanError, TaskError

WHO = ["bob", "ann", "bob"]
NUMBERS = {"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0]}
KINDS = {
    "strings": (["bob", "ann", "bob"], "U"),
    "integers": ([7, -2, 7], "i"),
    "booleans": ([True, False, True], "b"),
    "whole floats": ([7.0, -2.0, 7.0], "i"),
}


# -- take_task_column ----------------------------------------------------------------------------
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("task", ["who", 1, -2, np.int64(1)])
def test_frame_column_by_name_or_position(frame, task):
    """Name and position take the same column, and the rest stays a frame with its names."""
    X = frame({"a": NUMBERS["a"], "who": WHO, "b": NUMBERS["b"]})
    rest, tasks = take_task_column(X, task)
    assert_array_equal(tasks, WHO)
    assert isinstance(rest, frame)
    assert list(rest.columns) == ["a", "b"]
    assert_array_equal(np.asarray(rest), np.column_stack([NUMBERS["a"], NUMBERS["b"]]))


@pytest.mark.parametrize("task", [0, 2, -1])
def test_array_column_by_position(task):
    """A float array with whole numbers in the task column gives integer tasks."""
    X = np.array([[3.0, 0.5, 1.0], [4.0, 0.7, 2.0]])
    rest, tasks = take_task_column(X, task)
    assert tasks.dtype == np.int64
    assert_array_equal(tasks, X[:, task])
    assert_array_equal(rest, np.delete(X, task, axis=1))


def test_list_keeps_numbers_beside_strings():
    """Rows of a list may mix a string task with numbers, which are not turned into strings."""
    rest, tasks = take_task_column([["x", 0.1], ["y", 0.2]], 0)
    assert tasks.tolist() == ["x", "y"]
    assert rest.astype(float).tolist() == [[0.1], [0.2]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "column",
    [
        list,
        np.array,
        lambda v: np.array(v, dtype=object),
        pd.Series,
        lambda v: pd.Series(v, dtype="category"),
        lambda v: pd.Series(v).convert_dtypes(),
        pl.Series,
    ],
    ids=["list", "array", "objects", "pandas", "categorical", "nullable", "polars"],
)
def test_types_of_tasks(kind, column):
    """Strings, integers, booleans and whole floats give the same names from any container."""
    values, code = KINDS[kind]
    names, codes = encode_tasks(column(values), 3)
    assert names.dtype.kind == code
    assert names.tolist() == sorted(set(values))
    assert names[codes].tolist() == values


def test_polars_categorical():
    """Categories are named by their strings."""
    names, _ = encode_tasks(pl.Series(WHO, dtype=pl.Categorical), 3)
    assert names.tolist() == ["ann", "bob"]


@pytest.mark.parametrize(
    ("X", "task", "message"),
    [
        (pd.DataFrame(NUMBERS), "who", r"no column named task='who'.*'a', 'b'"),
        (pl.DataFrame(NUMBERS), "who", r"no column named task='who'.*'a', 'b'"),
        (pd.DataFrame({str(i): [0] for i in range(30)}), "who", r"'9' and 20 more"),
        (pd.DataFrame([[1, 2, 3]], columns=["a", "a", "b"]), "a", r"2 columns named task='a'"),
        (pd.DataFrame(NUMBERS), 2, r"task=2 is not a column of X, which has 2"),
        (np.ones((3, 2)), -3, r"task=-3 is not a column"),
        (np.ones((3, 2)), "who", r"X is an array without column names"),
        (np.ones((3, 1)), 0, r"1 feature\(s\), and it is the task column"),
        (np.ones(3), 0, r"Expected 2D array"),
        (csr_array(np.ones((3, 2))), 0, r"X is sparse"),
        (np.array([[0.5, 1.0]]), 0, r"has the value 0.5 in row 0.*right column"),
        (np.array([[1.0, 1.0], [np.inf, 1.0]]), 0, r"has the value inf in row 1"),
        (np.array([[1.0, 1.0], [np.nan, 1.0]]), 0, r"1 missing entries.*first in row 1"),
        ([[None, 1.0]], 0, r"1 missing entries"),
        (pd.DataFrame({"who": ["a", None], "b": [1, 2]}), "who", r"column 'who' has 1 missing"),
        (pd.DataFrame({"who": pd.array([1, None]), "b": [1, 2]}), "who", r"1 missing"),
        (pl.DataFrame({"who": ["a", None], "b": [1, 2]}), "who", r"1 missing"),
        (pd.DataFrame({"who": pd.array([True, None]), "b": [1, 2]}), "who", r"1 missing"),
    ],
)
def test_column_errors(X, task, message):
    """Every way in which there is no usable column has its own message."""
    with pytest.raises(TaskError, match=message):
        take_task_column(X, task)


# -- encode, look up, append ---------------------------------------------------------------------
@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (["a", 1, "b"], r"mixes types: .*str \('a'\).*int|mixes types: .*int \(1\).*str"),
        ([True, 2, 3], r"mixes types"),
        (["a", "b"], r"tasks has 2 entries, but X has 3 rows"),
        ("a", r"single value 'a'"),
        (np.ones((3, 2)), r"shape \(3, 2\)"),
        ([1j, 2.0, 3.0], r"values of type|mixes types"),
        (np.array([1j, 2, 3]), r"complex"),
        (np.array(["2020-01-01"] * 3, dtype="datetime64[D]"), r"values of type datetime64"),
        ([(1, 2), (3, 4), (5, 6)], r"shape \(3, 2\)"),
        (np.array([2**63] * 3, dtype=np.uint64), r"9223372036854775808 in row 0"),
    ],
)
def test_encode_errors(tasks, message):
    """Tasks that cannot be told apart or do not match the rows are refused."""
    with pytest.raises(TaskError, match=message) as caught:
        encode_tasks(tasks, 3)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, GleanError)


def test_lookup_in_any_order():
    """Codes follow the order of the names, which a task added later leaves unsorted."""
    names = append_task(np.array(["bob", "cid"]), "a longer name")
    assert names.tolist() == ["bob", "cid", "a longer name"]
    assert lookup_tasks(names, ["cid", "a longer name", "bob"]).tolist() == [1, 2, 0]


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=40))
def test_lookup_inverts_encode(tasks):
    """Looking up the tasks that were encoded gives their codes, whatever the order of names."""
    names, codes = encode_tasks(tasks, len(tasks))
    assert_array_equal(lookup_tasks(names, tasks), codes)
    assert_array_equal(names[::-1][lookup_tasks(names[::-1], tasks)], tasks)


def test_unknown_tasks_are_listed():
    """The message shows the unknown tasks and the known ones, at most ten of each."""
    names = np.array(["ann", "bob"])
    expected = r"unknown tasks \(2\): 'cid', 'dan'. Known tasks \(2\): 'ann', 'bob'. .*add_task"
    with pytest.raises(TaskError, match=expected):
        lookup_tasks(names, ["dan", "ann", "cid", "dan"])
    with pytest.raises(TaskError, match=r"\(1\): -1. Known tasks \(99\): 0, 1, .*9 and 89 more"):
        lookup_tasks(np.arange(99), [-1])
    with pytest.raises(TaskError, match=r"unknown tasks \(1\): 1. Known tasks \(2\): 'ann'"):
        lookup_tasks(names, [1])
    with pytest.raises(TaskError, match=r"tasks has 1 entries, but X has 2 rows"):
        lookup_tasks(names, ["ann"], n_rows=2)


@pytest.mark.parametrize(
    ("task", "message"),
    [("ann", r"'ann' is known already"), (3, r"task 3 is of another type"), (None, r"missing")],
)
def test_append_errors(task, message):
    """A new task is new, and of the type of the others."""
    with pytest.raises(TaskError, match=message):
        append_task(np.array(["ann", "bob"]), task)


@given(st.lists(st.integers(0, 6), max_size=60))
def test_blocks_of_rows(codes):
    """Each block is where the code is, ascending; tasks without rows have an empty block."""
    codes = np.array(codes, dtype=int)
    blocks = blocks_of_rows(codes, 8)
    assert len(blocks) == 8
    for code, rows in enumerate(blocks):
        assert_array_equal(rows, np.flatnonzero(codes == code))


# -- several outputs -----------------------------------------------------------------------------
@pytest.mark.parametrize("names", [None, ["z", "y", "x"], [3, 1, 2]], ids=str)
def test_stack_round_trip(names):
    """Unstacking the stacked outputs gives them back, missing entries included."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(5, 2)), rng.normal(size=(5, 3))
    Y[1, 2] = np.nan
    X_stacked, y_stacked, tasks = stack_outputs(X, Y, names)
    assert X_stacked.shape == (15, 2)
    for j, name in enumerate([0, 1, 2] if names is None else names):
        assert_array_equal(X_stacked[tasks == name], X)
        assert_array_equal(y_stacked[tasks == name], Y[:, j])
    assert_array_equal(unstack_outputs(y_stacked, tasks), Y)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_stack_frames(frame):
    """Column names of Y become tasks, X stays a frame, class labels stay what they are."""
    X = frame(NUMBERS)
    Y = frame({"up": ["y", "n", "y"], "down": ["n", "n", "y"]})
    X_stacked, y_stacked, tasks = stack_outputs(X, Y)
    assert isinstance(X_stacked, frame)
    assert X_stacked.shape == (6, 2)
    assert tasks.tolist() == ["up"] * 3 + ["down"] * 3
    assert unstack_outputs(y_stacked, tasks).tolist() == np.asarray(Y).tolist()
    assert unstack_outputs(y_stacked, tasks, names=["down", "up"])[:, 1].tolist() == ["y", "n", "y"]


def test_unstack_probabilities_and_one_output():
    """Values may have several columns, and one output may come as a vector."""
    X_stacked, y_stacked, tasks = stack_outputs(np.ones((4, 1)), np.arange(4.0))
    assert len(X_stacked) == 4
    assert unstack_outputs(np.c_[y_stacked, -y_stacked], tasks).shape == (4, 1, 2)


@given(st.permutations(range(12)))
def test_unstack_after_shuffling_tasks_together(order):
    """Tasks may be interleaved, as long as each keeps its rows in order."""
    _, y_stacked, tasks = stack_outputs(np.ones((4, 1)), np.arange(12).reshape(4, 3))
    tasks = tasks[list(order)]
    values = np.empty(12)
    for task in range(3):
        values[tasks == task] = y_stacked[4 * task : 4 * task + 4]
    assert_array_equal(unstack_outputs(values, tasks, names=[0, 1, 2]), np.arange(12).reshape(4, 3))


@pytest.mark.parametrize(
    ("X", "Y", "names", "message"),
    [
        (np.ones((3, 1)), np.ones((4, 2)), None, r"Y has 4 rows, but X has 3"),
        (np.ones((3, 1)), np.ones((3, 2)), ["a"], r"1 entries, 1 of them different.*2 columns"),
        (np.ones((3, 1)), np.ones((3, 2)), ["a", "a"], r"2 entries, 1 of them different"),
        (np.ones((3, 1)), np.ones((3, 2, 2)), None, r"shape \(3, 2, 2\)"),
    ],
)
def test_stack_errors(X, Y, names, message):
    """Outputs match the rows, names match the outputs."""
    with pytest.raises(TaskError, match=message):
        stack_outputs(X, Y, names)


def test_unstack_errors():
    """Tasks of different size, or names that are not the tasks, cannot be columns."""
    with pytest.raises(TaskError, match=r"'b' has 1, 'a' has 2"):
        unstack_outputs([1, 2, 3], ["a", "a", "b"])
    with pytest.raises(TaskError, match=r"names lists 'a', but the tasks are 'a', 'b'"):
        unstack_outputs([1, 2], ["a", "b"], names=["a"])
    with pytest.raises(TaskError, match=r"unknown tasks"):
        unstack_outputs([1, 2], ["a", "b"], names=["a", "c"])
