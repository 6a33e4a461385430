"""Targets: from the user's labels to the internal coding. The only file that knows "unlabeled".

A row without a target is NaN (or None, or pandas' NA) in regression, always. In classification the
estimator's parameter `unlabeled` decides:

* None: every label is a class, so that {-1, +1} needs no recoding, and a missing entry is an error;
* any label: rows that carry it, and rows whose entry is missing, are unlabeled;
* NaN: only missing entries are.
"""

from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from gleangp.data.columns import (
    as_column,
    check_magnitude,
    is_missing,
    is_table,
    missing_entries,
    with_common_type,
)
from gleangp.exceptions import LabelError

_TYPES = (  # kinds of arrays of labels, the types that can equal one, and their name
    ("U", str, "strings"),
    ("b", (bool, np.bool_), "booleans"),
    ("iuf", (int, float, np.number), "numbers"),
)


def check_regression_target(y: Any, n_rows: int, *, needed: bool = True) -> np.ndarray:
    """Targets (n_rows,) as floats, NaN where there is none.

    y has numbers; NaN, None or NA where there is no target. If they are `needed`, at least one must be there,
    if there are rows.
    """
    if n_rows == 0:  # a task without rows
        return np.zeros(0)
    column = check_class_target(y, n_rows)
    labeled = ~missing_entries(column)
    if not labeled.any():
        if not needed:
            return np.full(n_rows, np.nan)
        raise LabelError("y is NaN in all rows. At least one row with a target is needed.")
    numbers = with_common_type(column[labeled], "y", LabelError)
    if numbers.dtype.kind == "U":
        found = f"y has strings, such as {str(numbers[0])!r}"
        raise LabelError(f"{found}. Numbers are expected; for classes use a classifier.")
    _refuse_infinity(numbers)
    check_magnitude(numbers, "y", LabelError)
    target = np.full(n_rows, np.nan)
    target[labeled] = numbers
    return target


def split_unlabeled(y: Any, unlabeled: Any) -> np.ndarray:
    """Mask (n,) of the rows that have a class label; `unlabeled` as at the top of this module."""
    y = as_column(y, "y", LabelError)
    labeled = ~missing_entries(y)
    if unlabeled is None and not labeled.all():
        raise LabelError(
            f"y has {np.sum(~labeled)} missing entries (NaN or None), the first in row {labeled.argmin()}, "
            "and unlabeled=None makes every label a class. To learn from rows without a label set "
            "unlabeled=np.nan; else leave them out."
        )
    if is_missing(unlabeled):
        return labeled
    for kinds, types, name in _TYPES:  # objects can equal anything
        if y.dtype.kind in kinds and not isinstance(unlabeled, types):
            raise LabelError(
                f"unlabeled={unlabeled!r} can equal no label: the labels are {name}. Give a value of their "
                "type, np.nan if missing entries are the unlabeled rows, or None if there are none."
            )
    labeled[labeled] = y[labeled] != unlabeled
    return labeled


def encode_classes(y: Any, n_rows: int, unlabeled: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Classes (c,), sorted, at least two, and the code (n_rows,) of each row; -1 in unlabeled rows."""
    y = check_class_target(y, n_rows)
    labeled, codes = split_unlabeled(y, unlabeled), np.full(n_rows, -1)
    removed = advice = ""
    if unlabeled is not None:
        removed = f" after removing unlabeled rows (unlabeled={unlabeled!r})"
    if not is_missing(unlabeled):
        advice = f" If {unlabeled!r} is one of your classes, leave unlabeled=None."
    if not labeled.any():
        raise LabelError(f"y has no class{removed}. Two are needed.{advice}")
    labels = with_common_type(y[labeled], "y", LabelError)
    _refuse_infinity(labels)
    check_classification_targets(labels)
    classes, codes[labeled] = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise LabelError(f"y has 1 class{removed}: {classes.tolist()}. Two are needed.{advice}")
    return classes, codes


def ordered_categories(y: Any) -> list[Any] | None:
    """The categories of an ordered categorical of pandas, or of an Enum of polars, in order; else None."""
    kind: Any = getattr(y[y.columns[0]] if is_table(y) else y, "dtype", None)
    is_ordered = getattr(kind, "ordered", False) or str(kind).startswith("Enum")
    return list(kind.categories) if is_ordered else None


def lookup_classes(classes: np.ndarray, y: Any, n_rows: int, unlabeled: Any = None) -> np.ndarray:
    """Codes (n_rows,) into `classes` that are already known, in their order; -1 in unlabeled rows."""
    codes = np.full(n_rows, -1)
    if n_rows == 0:
        return codes
    y = check_class_target(y, n_rows)
    labeled = split_unlabeled(y, unlabeled)
    unknown = np.setdiff1d(y[labeled], classes)
    if len(unknown):
        known = f"Known classes: {classes.tolist()}. Fit again with rows of the new ones."
        raise LabelError(f"y has classes that fit did not see: {unknown.tolist()}. {known}")
    order = np.argsort(classes)
    codes[labeled] = order[np.searchsorted(classes, y[labeled], sorter=order)]
    return codes


def check_class_target(y: Any, n_rows: int) -> np.ndarray:
    """Targets (n_rows,) as one column, otherwise as they came."""
    if y is None:
        # The words are those scikit-learn's estimator checks look for.
        raise LabelError("fit requires y to be passed, but the target y is None.")
    shape = np.asarray(y).shape
    if len(shape) == 2 and shape[1] > 1:
        several = (
            "SparseGPRegressor learns several outputs; for other models make tasks of them with stack_outputs"
        )
        raise LabelError(f"y has shape {shape}. One target per row is expected. {several}.")
    return as_column(y, "y", LabelError, n_rows)


def _refuse_infinity(numbers: np.ndarray) -> None:
    if numbers.dtype.kind == "f" and np.isinf(numbers).any():
        found = f"y contains infinity ({numbers[np.isinf(numbers).argmax()]!s})"
        raise LabelError(f"{found}. Finite targets are expected, NaN in rows without one.")
