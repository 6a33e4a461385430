"""Order constraints: what is known of the function besides labels.

Constraints hold up to noise, so they may contradict each other. Rows are numbers of rows of the X that is
given to `fit`, labelled or not. Arrays stand for many constraints at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from gleangp._typing import FloatArray, IntArray
from gleangp.exceptions import ConstraintError

__all__ = ["DifferenceOrder", "Order"]


@dataclass(frozen=True, eq=False)
class Order:
    """The function at row i exceeds that at row j by at least `margin`.

    Parameters
    ----------
    i, j : int or array-like of int
        Rows of X.
    margin : float or array-like, default=0.0
        Least difference, in units of y. The exact difference pushes beyond it: give at most half of it.

    Examples
    --------
    >>> from gleangp import Order
    >>> Order(3, 8)
    Order(i=3, j=8, margin=0.0)
    >>> Order([3, 4], [8, 8], margin=[0.5, 1.0]).margin
    [0.5, 1.0]
    """

    i: Any
    j: Any
    margin: Any = 0.0


@dataclass(frozen=True, eq=False)
class DifferenceOrder:
    """The difference between rows i and j is at least that between rows k and l: f_i - f_j >= f_k - f_l.

    Parameters
    ----------
    i, j, k, l : int or array-like of int
        Rows of X; j and k may be the same.

    Examples
    --------
    >>> from gleangp import DifferenceOrder
    >>> DifferenceOrder(0, 4, 4, 9)
    DifferenceOrder(i=0, j=4, k=4, l=9)
    """

    i: Any
    j: Any
    k: Any
    l: Any  # noqa: E741 the four points have the names of consecutive letters


_SIGNS = {"i": 1.0, "j": -1.0, "k": -1.0, "l": 1.0}  # of the terms of a constraint
_FAR = 10.0  # ranges of the targets by which a constraint may miss: it holds up to a noise, which is learnt


Encoded = tuple[csr_array, FloatArray]  # coefficients (c, n) and margin (c,): coefficients @ f >= margin


def constraints_of_tasks(
    given: Any, y: FloatArray, codes: IntArray, by_task: list[IntArray], scale: FloatArray, mean: FloatArray
) -> list[Encoded | None]:
    """The constraints of every task over its rows, with margins in units of its scale; None: there are none.

    `codes` (n,) are the tasks of all rows, `by_task` their numbers, y (n,) the targets with NaN in unlabelled
    rows. What a mean function (n,) already says of an inequality is not asked of the deviation from it.
    """
    constraints = [given] if isinstance(given, Order | DifferenceOrder) else given
    if not isinstance(constraints, Iterable):
        raise ConstraintError(
            f"constraints are {constraints!r}; a list of Order and DifferenceOrder is expected."
        )
    parts = [(csr_array((0, len(codes))), np.zeros(0)), *(_encoded(each, codes) for each in constraints)]
    coefficients = vstack([signs for signs, _ in parts], format="csr")
    margin = np.concatenate([least for _, least in parts])
    _check_possible(coefficients, margin, y, float(np.max(scale[codes], initial=0.0)))
    task, found = codes[coefficients.indices[coefficients.indptr[:-1]]], []
    for rows in by_task:
        at = np.flatnonzero(task == codes[rows[0]]) if len(rows) else rows
        signs = coefficients[at][:, rows]
        least = margin[at] / scale[codes[rows[:1]]] - signs @ mean[rows]
        found.append((signs, least) if len(at) else None)
    return found


def _check_possible(signs: csr_array, margin: FloatArray, y: FloatArray, unit: float) -> None:
    """Raise if a constraint cannot hold by far, whatever the unlabelled rows are within the range of y.

    The range is at least `unit`.
    """
    known = ~np.isnan(y)
    low, high = (float(f(y[known])) for f in (np.min, np.max)) if known.any() else (0.0, 0.0)
    reach = max(high - low, unit)
    best = signs.maximum(0.0) @ np.where(known, y, high) + signs.minimum(0.0) @ np.where(known, y, low)
    missing = margin - best
    wrong = np.flatnonzero(missing > _FAR * reach)
    if len(wrong):
        more = f" So do {len(wrong) - 1} more." if len(wrong) > 1 else ""
        raise ConstraintError(
            f"constraint {wrong[0]} (from 0) asks for {missing[wrong[0]]:.4g} more than is possible within "
            f"the range of the targets, {reach:.4g}.{more} Check its margin and the units, or leave it out."
        )


def _encoded(constraint: Any, codes: IntArray) -> Encoded:
    """One constraint, or as many as its arrays are long."""
    if not isinstance(constraint, Order | DifferenceOrder):
        raise ConstraintError(
            f"a constraint is {constraint!r}. Use Order(i, j, margin) or DifferenceOrder(i, j, k, l)."
        )
    kind, names = type(constraint).__name__, [name for name in _SIGNS if hasattr(constraint, name)]
    columns = [_row_numbers(constraint, name, len(codes)) for name in names]
    margin = np.atleast_1d(np.asarray(getattr(constraint, "margin", 0.0), dtype=np.float64))
    if not np.isfinite(margin).all():
        bad = margin[~np.isfinite(margin)][0]
        raise ConstraintError(f"a margin of {kind} is {bad}; finite numbers are expected.")
    try:
        *columns, margin = np.broadcast_arrays(*columns, margin)
    except ValueError:
        sizes = [len(column) for column in (*columns, margin)]
        raise ConstraintError(
            f"the arrays of one {kind} have the lengths {sizes}; give them one length."
        ) from None
    rows = np.column_stack(columns).astype(np.intp)  # (c, k)
    across = np.flatnonzero((codes[rows] != codes[rows[:, :1]]).any(axis=1))
    if len(across):
        raise ConstraintError(
            f"a constraint names the rows {rows[across[0]].tolist()}, which are of different tasks. "
            "Functions of different tasks are not compared; constrain rows of one task."
        )
    signs, numbers = [_SIGNS[name] for name in names], np.arange(len(rows))
    entries = np.tile(signs, len(rows)), (np.repeat(numbers, len(names)), rows.ravel())
    coefficients = csr_array(entries, shape=(len(rows), len(codes)))  # entries of one place add up
    idle = np.flatnonzero(abs(coefficients).sum(axis=1) == 0.0)
    if len(idle):
        raise ConstraintError(
            f"a constraint on the rows {rows[idle[0]].tolist()} has no effect: its terms cancel. "
            "Name different rows."
        )
    return coefficients, np.array(margin)


def _row_numbers(constraint: Any, name: str, n_rows: int) -> np.ndarray:
    """One of the fields of a constraint, which must be numbers of rows."""
    value, kind = getattr(constraint, name), type(constraint).__name__
    given = np.atleast_1d(np.asarray(value))
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise ConstraintError(
            f"{name} of {kind} is {value!r}; a row number of X, or an array of them, is expected."
        )
    outside = given[(given < 0) | (given >= n_rows)]
    if len(outside):
        raise ConstraintError(
            f"{name} of {kind} names row {int(outside[0])}, but X has the rows 0 to {n_rows - 1}."
        )
    return given
