"""Order constraints from a table of pairs: `higher,lower[,margin]`, or `i,j,k,l` for differences.

A row of `higher,lower,margin` says that the target of one row of the training table exceeds that of another
by at least the margin (0 if the column is left out); `i,j,k,l` says that the difference of rows i and j is at
least that of rows k and l. Rows are named by the column `--id` of the training table, or numbered from 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gleangp import DifferenceOrder, Order
from gleangp.cli._tables import read_table
from gleangp.exceptions import ConstraintError

_KINDS = {("higher", "lower"): Order, ("i", "j", "k", "l"): DifferenceOrder}


def read_constraints(path: str, names: np.ndarray | None, n_rows: int, encoding: str = "utf-8") -> Any:
    """The constraint of many rows that a table of pairs holds.

    Parameters
    ----------
    path : str
        Of the table of pairs.
    names : ndarray of shape (n_rows,) or None
        Names of the rows of the training table, as text; None: they are numbered.
    n_rows : int
        Rows of the training table.
    encoding : str, default="utf-8"
        Of the file, if it is text.
    """
    frame = read_table(path, () if names is None else tuple(c for kind in _KINDS for c in kind), encoding)
    found = list(map(str, frame.columns))
    columns = next((c for c in _KINDS if set(c) <= set(found)), None)
    if columns is None:
        raise ConstraintError(
            f"--constraints {path} has the columns {', '.join(map(repr, found))}; expected are 'higher', "
            "'lower' and perhaps 'margin', or 'i', 'j', 'k' and 'l'."
        )
    rows = [_row_numbers(frame[c], c, names, n_rows) for c in columns]
    if columns == ("higher", "lower"):
        margin = _margins(frame["margin"]) if "margin" in found else 0.0
        return Order(rows[0], rows[1], margin)
    return DifferenceOrder(*rows)


def _margins(values: Any) -> np.ndarray:
    try:
        margin = values.astype(float).to_numpy()
    except (TypeError, ValueError) as error:
        raise ConstraintError(f"the column 'margin' of --constraints should hold numbers: {error}") from error
    if not np.isfinite(margin).all():
        raise ConstraintError("the column 'margin' of --constraints has missing or infinite values.")
    return margin


def _row_numbers(values: Any, column: str, names: np.ndarray | None, n_rows: int) -> np.ndarray:
    if values.isna().any():
        raise ConstraintError(f"the column {column!r} of --constraints has missing values.")
    if names is None:
        if values.dtype.kind not in "iu":
            raise ConstraintError(
                f"the column {column!r} of --constraints should hold row numbers, counted from 0. If it has "
                "names of rows, say with --id which column of the training table has them."
            )
        return values.to_numpy()
    place = {name: k for k, name in enumerate(names)}
    unknown = [v for v in values if str(v) not in place]
    if unknown:
        raise ConstraintError(
            f"the column {column!r} of --constraints names the row {unknown[0]!r}, which the training table "
            "does not have in its --id column."
        )
    return np.array([place[str(v)] for v in values], dtype=np.intp)


def constraints_at(constraint: Any, rows: np.ndarray, n_rows: int) -> Any | None:
    """The constraints about the given rows alone, renumbered to them; None if there is none."""
    place = np.full(n_rows, -1)
    place[rows] = np.arange(len(rows))
    names = ("i", "j") if isinstance(constraint, Order) else ("i", "j", "k", "l")
    columns = [np.atleast_1d(getattr(constraint, name)) for name in names]
    outside = [c[(c < 0) | (c >= n_rows)] for c in columns]
    if any(len(o) for o in outside):
        bad = next(o[0] for o in outside if len(o))
        raise ConstraintError(f"--constraints names row {bad}, but the table has the rows 0 to {n_rows - 1}.")
    moved = [place[c] for c in columns]
    kept = np.all([m >= 0 for m in moved], axis=0)
    if not kept.any():
        return None
    if isinstance(constraint, Order):
        margin = np.broadcast_to(np.asarray(constraint.margin, dtype=float), kept.shape)[kept]
        return Order(moved[0][kept], moved[1][kept], margin)
    return DifferenceOrder(*(m[kept] for m in moved))
