"""Tasks: from a column of X, an array or several outputs to names and codes.

The user names tasks by integers, strings or booleans; everything below the estimators sees codes 0..M-1.
Names are sorted when a model is fitted; a task added later comes last, so that codes once given stay.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import issparse

from gleangp._compat import safe_indexing
from gleangp.data.columns import as_column, column_of, missing_entries, with_common_type
from gleangp.exceptions import TaskError


def take_task_column(X: Any, task: str | int) -> tuple[Any, np.ndarray]:
    """Split X (n, p) into the inputs (n, p - 1) and the tasks (n,), which are one of its columns.

    X is a pandas or polars frame or array-like, and the inputs are of the same type; lists become arrays.
    `task` is the name of the column of a frame, or a position.
    """
    if issparse(X):
        raise TaskError("X is sparse. A frame or dense array is expected; use X.toarray().")
    headings = list(X.columns) if hasattr(X, "columns") else None
    if headings is None:
        # As objects a list keeps the numbers beside its strings.
        X = np.array(X, dtype=object) if isinstance(X, list | tuple) else np.asarray(X)
        if X.ndim != 2:
            raise TaskError(f"X has {X.ndim} dimension(s). Expected 2D array with the column task={task!r}.")
    position = _column_position(headings, X.shape[1], task)
    if X.shape[1] == 1:
        raise TaskError("X has 1 feature(s), and it is the task column. At least one more is needed.")
    others = [j for j in range(X.shape[1]) if j != position]
    rest = X.iloc[:, others] if hasattr(X, "iloc") else X[:, others]
    return rest, task_array(column_of(X, position), f"the task column {task!r}")


def _column_position(headings: list[Any] | None, n_columns: int, task: Any) -> int:
    """Position of the task column; arrays have no headings."""
    if isinstance(task, int | np.integer) and not isinstance(task, bool):
        if not -n_columns <= task < n_columns:
            expected = f"A position from 0 to {n_columns - 1}, or the name of a column, is expected."
            raise TaskError(f"task={task} is not a column of X, which has {n_columns}. {expected}")
        return int(task) % n_columns
    if headings is None:
        found = f"task={task!r} names a column, but X is an array without column names"
        raise TaskError(f"{found}. Give a DataFrame, or the position of the column.")
    if (count := headings.count(task)) != 1:
        found = f"X has {f'{count} columns' if count else 'no column'} named task={task!r}"
        raise TaskError(f"{found}. One is expected; the columns are: {list_names(headings)}.")
    return headings.index(task)


def take_task_of_all(X: Any, column: str | int | None, task: Any, n_columns: int) -> Any:
    """Rows of one task without the task column, if they have it; `TaskError` if it holds another task.

    `column` is the task column (None: there is none); an array with fewer than `n_columns` has none.
    """
    has_column = hasattr(X, "columns") and column in list(X.columns)
    if column is None or not (has_column or np.shape(X)[1:] == (n_columns,)):
        return X
    X, given = take_task_column(X, column)
    for other in given.tolist():
        if other != task:
            found = f"add_task has task={task!r}, but the task column of its rows has {other!r}"
            raise TaskError(f"{found}. Give the rows of one task, or leave the column out.")
    return X


def encode_tasks(tasks: Any, n_rows: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Names (M,) of the tasks, sorted, and the code (n,) of each row; `n_rows` None: there is no X."""
    return np.unique(task_array(tasks, "tasks", n_rows), return_inverse=True)


def lookup_tasks(names: np.ndarray, tasks: Any, n_rows: int | None = None) -> np.ndarray:
    """Codes (n,) of tasks that are already known, into `names`; `TaskError` if one is not."""
    codes, new = match_tasks(names, tasks, n_rows)
    if len(new):
        known = f"Known tasks ({len(names)}): {list_names(names)}. Learn a new task with add_task"
        raise TaskError(f"unknown tasks ({len(new)}): {list_names(new)}. {known}, or leave its rows out.")
    return codes


def match_tasks(names: np.ndarray, tasks: Any, n_rows: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Codes (n,) of tasks into `names` followed by the new ones, and the new ones (k,), sorted."""
    wanted, inverse = encode_tasks(tasks, n_rows)
    code_of = {name: code for code, name in enumerate(names.tolist())}
    codes = np.array([code_of.setdefault(name, len(code_of)) for name in wanted.tolist()], dtype=np.intp)
    return codes[inverse], wanted[codes >= len(names)]


def append_task(names: np.ndarray, task: Any) -> np.ndarray:
    """`names` (M,) and a new task at the end; `TaskError` if it is known or of another type."""
    new = task_array([task], "task")
    if new.dtype.kind != names.dtype.kind:
        found = f"task {task!r} is of another type than the known tasks: {list_names(names)}"
        raise TaskError(f"{found}. Use the same type.")
    if new[0] in names:
        raise TaskError(
            f"task {task!r} is known already. Known tasks ({len(names)}): {list_names(names)}. "
            "Choose another name for a new task. Estimators with partial_fit take more rows of a known one."
        )
    return np.concatenate([names, new])


def blocks_of_rows(codes: np.ndarray, n_tasks: int) -> list[np.ndarray]:
    """Row numbers of every task, ascending, from the codes (n,) of the rows; a task may have none."""
    order = np.argsort(codes, kind="stable")
    edges = np.searchsorted(codes[order], np.arange(n_tasks + 1))
    return [order[start:stop] for start, stop in pairwise(edges)]


def filled_blocks(codes: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Task and rows of every task that has any."""
    for task, rows in enumerate(blocks_of_rows(codes, int(codes.max(initial=-1)) + 1)):
        if len(rows):
            yield task, rows


def task_array(values: Any, name: str, n_rows: int | None = None) -> np.ndarray:
    """Tasks as strings, int64 or booleans; anything else is an error."""
    column = as_column(values, name, TaskError, n_rows)
    missing = missing_entries(column)
    if missing.any():
        found = f"{missing.sum()} missing entries (NaN or None), the first in row {missing.argmax()}"
        raise TaskError(f"{name} has {found}. Every row needs a task: name one or leave these rows out.")
    column = with_common_type(column, name, TaskError)
    if column.dtype.kind not in "iuf":
        return column
    with np.errstate(invalid="ignore"):  # infinity is found by the comparison
        whole = column.astype(np.int64)
    if not (exact := whole == column).all():
        found = f"{name} has the value {column[exact.argmin()]!s} in row {exact.argmin()}"
        expected = "Tasks are named by whole numbers, strings or booleans: is this the right column?"
        raise TaskError(f"{found}. {expected}")
    return whole


def list_names(names: Any, most: int = 10) -> str:
    """Names for a message, the first ones of them."""
    names = names.tolist() if isinstance(names, np.ndarray) else names  # 'ann' rather than np.str_('ann')
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def stack_outputs(X: Any, Y: Any, names: Sequence[Any] | None = None) -> tuple[Any, np.ndarray, np.ndarray]:
    """Turn q outputs per row into q tasks over the same rows.

    Parameters
    ----------
    X : DataFrame or array-like of shape (n, p)
        Inputs.
    Y : DataFrame or array-like of shape (n, q) or (n,)
        Outputs. Missing entries stay missing: unlabeled rows of that task.
    names : sequence of length q, default=None
        Names of the tasks. By default the column names of Y, or 0..q-1 where it has none.

    Returns
    -------
    X_stacked : same type as X, of shape (n * q, p)
        X once for every output. Lists become arrays.
    y_stacked : ndarray of shape (n * q,)
        The columns of Y, one after the other.
    tasks : ndarray of shape (n * q,)
        The task of each row.

    See Also
    --------
    unstack_outputs : From predictions for stacked rows back to one column per output.

    Examples
    --------
    >>> import gleangp
    >>> X, Y = [[0.0], [1.0]], [[10.0, 20.0], [11.0, 21.0]]
    >>> X_stacked, y_stacked, tasks = gleangp.stack_outputs(X, Y, names=["low", "high"])
    >>> X_stacked.ravel().tolist(), y_stacked.tolist()
    ([0.0, 1.0, 0.0, 1.0], [10.0, 11.0, 20.0, 21.0])
    >>> tasks.tolist()
    ['low', 'low', 'high', 'high']
    >>> gleangp.unstack_outputs(y_stacked, tasks)
    array([[10., 20.],
           [11., 21.]])
    """
    if names is None and hasattr(Y, "columns"):
        names = list(Y.columns)
    Y = np.asarray(Y)
    if Y.ndim == 1:
        Y = Y[:, None]
    if Y.ndim != 2:
        raise TaskError(f"Y has shape {Y.shape}. One row per row of X, one column per output are expected.")
    X = X if hasattr(X, "columns") else np.asarray(X)
    n, q = Y.shape
    if len(X) != n:
        raise TaskError(f"Y has {n} rows, but X has {len(X)}. The same number is expected.")
    outputs = task_array(np.arange(q) if names is None else names, "names")
    n_different = len(np.unique(outputs))
    if len(outputs) != q or n_different != q:
        found = f"names has {len(outputs)} entries, {n_different} of them different, but Y has {q} columns"
        raise TaskError(f"{found}. One name per column is expected, each of them once.")
    return safe_indexing(X, np.tile(np.arange(n), q)), Y.ravel(order="F"), np.repeat(outputs, n)


def unstack_outputs(values: Any, tasks: Any, *, names: Sequence[Any] | None = None) -> np.ndarray:
    """From values for stacked rows to one column per output: the inverse of `stack_outputs`.

    Parameters
    ----------
    values : array-like of shape (n * q,) or (n * q, k)
        One value (or k of them, such as probabilities) per stacked row.
    tasks : array-like of shape (n * q,)
        The task of each stacked row. The i-th row of every task belongs to the i-th row of X.
    names : sequence of length q, default=None
        The tasks in the wanted order of columns; by default the order in which they first appear.

    Returns
    -------
    ndarray of shape (n, q) or (n, q, k)

    See Also
    --------
    stack_outputs : The way there, with an example.

    Examples
    --------
    >>> import gleangp
    >>> tasks = ["b", "b", "a", "a"]
    >>> gleangp.unstack_outputs([1.0, 2.0, 3.0, 4.0], tasks, names=["a", "b"])
    array([[3., 1.],
           [4., 2.]])
    """
    values = np.asarray(values)
    found, codes = encode_tasks(tasks, len(values))
    blocks = blocks_of_rows(codes, len(found))
    order = np.argsort([rows[0] for rows in blocks]) if names is None else lookup_tasks(found, names)
    if sorted(order) != list(range(len(found))):
        listed = f"names lists {list_names(names)}, but the tasks are {list_names(found)}"
        raise TaskError(f"{listed}. Each task is expected once.")
    sizes = np.array([len(rows) for rows in blocks])
    if sizes.min() != sizes.max():
        small, large = sizes.argmin(), sizes.argmax()
        raise TaskError(
            f"tasks differ in their number of rows: {found.tolist()[small]!r} has {sizes[small]}, "
            f"{found.tolist()[large]!r} has {sizes[large]}. All outputs of the same rows are expected, as "
            "stack_outputs makes them."
        )
    return np.stack([values[blocks[code]] for code in order], axis=1)
