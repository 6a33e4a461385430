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

from gleangp._state import check_magnitude
from gleangp.data.columns import (
    as_column,
    check_length,
    is_missing,
    missing_entries,
    with_common_type,
)
from gleangp.exceptions import LabelError

__all__ = [
    "check_class_target",
    "check_regression_target",
    "encode_binary",
    "encode_classes",
    "split_unlabeled",
]


def check_regression_target(y: Any, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Targets as floats, and which rows have one.

    Parameters
    ----------
    y : array-like of shape (n_rows,)
        Numbers; NaN, None or NA where there is no target.
    n_rows : int
        Number of rows of X.

    Returns
    -------
    y : ndarray of shape (n_rows,)
        float64, NaN in unlabeled rows.
    labeled : ndarray of shape (n_rows,)
        Mask of the rows that have a target.

    Raises
    ------
    LabelError
        If there is no target at all, one is infinite or not a number, or the length is wrong.

    Examples
    --------
    >>> from gleangp.data.labels import check_regression_target
    >>> y, labeled = check_regression_target([1, None, 3], n_rows=3)
    >>> y, labeled
    (array([ 1., nan,  3.]), array([ True, False,  True]))
    """
    column = _target_column(y, n_rows)
    labeled = ~missing_entries(column)
    if not labeled.any():
        raise LabelError("y is NaN in all rows. At least one row with a target is needed.")
    numbers = with_common_type(column[labeled], "y", LabelError)
    if numbers.dtype.kind == "U":
        raise LabelError(
            f"y has strings, such as {str(numbers[0])!r}. Numbers are expected; for classes use a classifier."
        )
    numbers = numbers.astype(np.float64)
    _refuse_infinity(numbers)
    check_magnitude(numbers, "y", LabelError)
    target = np.full(n_rows, np.nan)
    target[labeled] = numbers
    return target, labeled


def check_class_target(y: Any, n_rows: int) -> np.ndarray:
    """Class labels as one column, one entry per row of X, otherwise as they came.

    Parameters
    ----------
    y : array-like of shape (n_rows,)
        Class labels.
    n_rows : int
        Number of rows of X.

    Returns
    -------
    ndarray of shape (n_rows,)

    Examples
    --------
    >>> from gleangp.data.labels import check_class_target
    >>> check_class_target(["a", "b", -1], n_rows=3)
    array(['a', 'b', -1], dtype=object)
    """
    return _target_column(y, n_rows)


def split_unlabeled(y: Any, unlabeled: Any) -> np.ndarray:
    """Which rows have a class label.

    Parameters
    ----------
    y : array-like of shape (n,)
        Class labels.
    unlabeled : object
        The label that means "no label"; None if every label is a class. See the top of this module.

    Returns
    -------
    ndarray of shape (n,)
        Mask of the labeled rows.

    Raises
    ------
    LabelError
        If `unlabeled` is of a type that no label can equal, or is None and entries are missing.

    Examples
    --------
    >>> from gleangp.data.labels import split_unlabeled
    >>> split_unlabeled([1, 0, -1], unlabeled=-1)
    array([ True,  True, False])
    >>> split_unlabeled([1, 1, -1], unlabeled=None)
    array([ True,  True,  True])
    """
    y = as_column(y, "y", LabelError)
    missing = missing_entries(y)
    if unlabeled is None:
        if missing.any():
            raise LabelError(
                f"y has {missing.sum()} missing entries (NaN or None), the first in row "
                f"{missing.argmax()}, and unlabeled=None makes every label a class. To learn from "
                "rows without a label set unlabeled=np.nan; else leave them out."
            )
        return ~missing
    if is_missing(unlabeled):
        return ~missing
    _check_comparable(y, unlabeled)
    labeled = ~missing
    labeled[labeled] = y[labeled] != unlabeled
    return labeled


def encode_classes(y: Any, labeled: np.ndarray, unlabeled: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Classes, sorted, and the code of each row.

    Parameters
    ----------
    y : array-like of shape (n,)
        Class labels.
    labeled : ndarray of shape (n,)
        Mask of the labeled rows, from `split_unlabeled`.
    unlabeled : object, default=None
        What the mask was made with; only for the message of an error.

    Returns
    -------
    classes : ndarray of shape (c,)
        Sorted and unique.
    codes : ndarray of shape (n,)
        `classes[codes]` are the labels; -1 in unlabeled rows.

    Raises
    ------
    LabelError
        If fewer than two classes are left.

    Examples
    --------
    >>> import numpy as np
    >>> from gleangp.data.labels import encode_classes
    >>> classes, codes = encode_classes(["b", "a", "?"], np.array([True, True, False]))
    >>> classes.tolist(), codes.tolist()
    (['a', 'b'], [1, 0, -1])
    """
    y = as_column(y, "y", LabelError)
    codes = np.full(len(y), -1)
    removed = ""
    if unlabeled is not None:
        removed = f" after removing unlabeled rows (unlabeled={unlabeled!r})"
    if not labeled.any():
        raise LabelError(f"y has no class{removed}. Two are needed.{_advice(unlabeled)}")
    labels = with_common_type(y[labeled], "y", LabelError)
    _refuse_infinity(labels)
    check_classification_targets(labels)
    classes, codes[labeled] = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise LabelError(f"y has 1 class{removed}: {classes.tolist()}. Two are needed.{_advice(unlabeled)}")
    return classes, codes


def encode_binary(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """The two classes, sorted, and the sign of each row.

    Parameters
    ----------
    y : array-like of shape (n,)
        Class labels, all of them labeled.

    Returns
    -------
    classes : ndarray of shape (2,)
        Sorted.
    signs : ndarray of shape (n,)
        -1.0 for the first class, +1.0 for the second.

    Raises
    ------
    LabelError
        Unless there are exactly two classes.

    Examples
    --------
    >>> from gleangp.data.labels import encode_binary
    >>> classes, signs = encode_binary(["no", "yes", "no"])
    >>> classes.tolist(), signs.tolist()
    (['no', 'yes'], [-1.0, 1.0, -1.0])
    """
    y = as_column(y, "y", LabelError)
    classes, codes = encode_classes(y, split_unlabeled(y, None))
    if len(classes) > 2:
        raise LabelError(f"y has {len(classes)} classes: {classes.tolist()}. Two are needed.")
    return classes, 2.0 * codes - 1.0


def _target_column(y: Any, n_rows: int) -> np.ndarray:
    if y is None:
        # The words are those scikit-learn's estimator checks look for.
        raise LabelError("fit requires y to be passed, but the target y is None.")
    column = np.asarray(y)
    if column.ndim == 2 and column.shape[1] > 1:
        raise LabelError(
            f"y has shape {column.shape}. One target per row is expected. SparseGPRegressor learns several "
            "outputs; for other models make tasks of them with stack_outputs."
        )
    column = as_column(y, "y", LabelError)
    check_length(column, n_rows, "y", LabelError)
    return column


def _refuse_infinity(numbers: np.ndarray) -> None:
    if numbers.dtype.kind == "f" and np.isinf(numbers).any():
        row = np.isinf(numbers).argmax()
        raise LabelError(
            f"y contains infinity ({numbers[row]!s}). Finite targets are expected, NaN in rows "
            "without a target."
        )


def _check_comparable(y: np.ndarray, unlabeled: Any) -> None:
    """Raise if `unlabeled` is of a type that no label can equal; objects can equal anything."""
    for kinds, types, name in (
        ("U", str, "strings"),
        ("b", (bool, np.bool_), "booleans"),
        ("iuf", (int, float, np.number), "numbers"),
    ):
        if y.dtype.kind in kinds and not isinstance(unlabeled, types):
            raise LabelError(
                f"unlabeled={unlabeled!r} can equal no label: the labels are {name}. Give a value "
                "of their type, np.nan if missing entries are the unlabeled rows, or None if there "
                "are none."
            )


def _advice(unlabeled: Any) -> str:
    if unlabeled is None or is_missing(unlabeled):
        return ""
    return f" If {unlabeled!r} is one of your classes, leave unlabeled=None."
