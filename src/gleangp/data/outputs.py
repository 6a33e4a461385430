"""Several outputs of the same rows as tasks, and back."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gleangp._compat import safe_indexing
from gleangp.data.tasks import blocks_of_rows, encode_tasks, list_names, lookup_tasks, task_array
from gleangp.exceptions import TaskError


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
        X once for every output, one output after the other. Lists become arrays.
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
        raise TaskError(
            f"Y has shape {Y.shape}. One row per row of X and one column per output are expected."
        )
    X = X if hasattr(X, "columns") else np.asarray(X)
    n, q = Y.shape
    if len(X) != n:
        raise TaskError(f"Y has {n} rows, but X has {len(X)}. The same number is expected.")
    outputs = task_array(np.arange(q) if names is None else names, "names")
    n_different = len(np.unique(outputs))
    if len(outputs) != q or n_different != q:
        raise TaskError(
            f"names has {len(outputs)} entries, {n_different} of them different, but Y has {q} "
            "columns. One name per column is expected, each of them once."
        )
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
    if names is None:
        order = np.argsort([rows[0] for rows in blocks])
    else:
        order = lookup_tasks(found, names)
        if sorted(order) != list(range(len(found))):
            raise TaskError(
                f"names lists {list_names(names)}, but the tasks are {list_names(found)}. "
                "Each task is expected once."
            )
    sizes = np.array([len(rows) for rows in blocks])
    if sizes.min() != sizes.max():
        small, large = sizes.argmin(), sizes.argmax()
        raise TaskError(
            f"tasks differ in their number of rows: {list_names(found[[small]])} has {sizes[small]}, "
            f"{list_names(found[[large]])} has {sizes[large]}. All outputs of the same rows are "
            "expected, as stack_outputs makes them."
        )
    return np.stack([values[blocks[code]] for code in order], axis=1)
