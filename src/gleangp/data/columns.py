"""One column of user data (targets or tasks) as an array: which entries are missing, of which type.

Lists, arrays, pandas and polars columns arrive here; `data/tasks.py` and `data/labels.py` give them meaning.
"""

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils.validation import column_or_1d

from gleangp._state import LARGEST


def as_column(
    values: Any, name: str, error: Callable[[str], Exception], n_rows: int | None = None
) -> np.ndarray:
    """`values` as a 1-D array, in the type in which they came; lists keep each entry's own type.

    A single column of shape (n, 1) is accepted with scikit-learn's `DataConversionWarning`. `n_rows` is the
    number of rows of X, if there is an X.
    """
    if isinstance(values, list | tuple):
        # NumPy would turn ["a", 1] into two strings and [True, 2] into two integers.
        column = np.array(values, dtype=object)
    else:
        column = np.asarray(values)
    if column.ndim == 2 and column.shape[1] == 1:
        column = column_or_1d(column, warn=True)
    if column.ndim == 0:
        raise error(f"{name} is the single value {values!r}. One value per row of X is expected.")
    if column.ndim > 1:
        raise error(f"{name} has shape {column.shape}. One value per row of X is expected.")
    if column.dtype.kind == "c":
        raise error(f"{name} has complex numbers. Complex data not supported.")
    if n_rows is not None and len(column) != n_rows:
        raise error(
            f"{name} has {len(column)} entries, but X has {n_rows} rows. One entry per row is expected."
        )
    return column


def column_of(X: Any, place: int) -> Any:
    """A column of a pandas or polars frame, or of an array."""
    if hasattr(X, "iloc"):
        return X.iloc[:, place]
    return X.to_series(place) if hasattr(X, "columns") else X[:, place]


def check_magnitude(values: np.ndarray, name: str, error: type[ValueError]) -> None:
    """Raise an error if a number of the user's data is too large for products to be finite."""
    if float(np.max(np.abs(values), initial=0.0)) > LARGEST:
        first = values.ravel()[np.argmax(np.abs(values.ravel()) > LARGEST)]
        raise error(
            f"{name} has the number {first:.6g}. Numbers from {-LARGEST:.0e} to {LARGEST:.0e} are expected: "
            "use another unit."
        )


def check_columns(X: np.ndarray, error: type[ValueError]) -> None:
    """Raise an error if a column of inputs (n, p) is so small that its products are zero."""
    largest = np.max(np.abs(X), axis=0, initial=0.0)
    small = np.flatnonzero((largest > 0.0) & (largest < 1.0 / LARGEST))
    if len(small):
        raise error(
            f"column {small[0]} of X has no number above {largest[small[0]]:.6g}. Use another unit, with "
            f"some above {1.0 / LARGEST:.0e}."
        )


def is_missing(value: Any) -> bool:
    """Whether one value is None, NaN, NaT or pandas' NA."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except TypeError:  # pandas.NA != pandas.NA is NA, which has no truth value
        return True
    except ValueError:  # an array in a cell: not one value, but there
        return False


def missing_entries(column: np.ndarray) -> np.ndarray:
    """Mask of the entries that are None, NaN, NaT or pandas' NA."""
    if column.dtype.kind == "O":
        return np.fromiter(map(is_missing, column), dtype=bool, count=len(column))
    return column != column


def with_common_type(column: np.ndarray, name: str, error: Callable[[str], Exception]) -> np.ndarray:
    """A column without missing entries in one type: strings, booleans, integers or floats.

    Arrays of objects are converted (integers beside floats become floats). Entries of different
    types are an error that shows one of each.
    """
    if column.dtype.kind == "O":
        examples = {_scalar_type(type(value)): value for value in reversed(column)}
        if set(examples) == {int, float}:
            del examples[int]
        if len(examples) > 1:
            shown = " and ".join(f"{t.__name__} ({v!r})" for t, v in examples.items())
            raise error(f"{name} mixes types: {shown}. Use one type, for example astype(str).")
        for common in examples:
            column = column.astype(common)
    if column.dtype.kind not in "Ubiuf":
        kind = type(column[0]).__name__ if column.dtype.kind == "O" else column.dtype
        raise error(
            f"{name} has values of type {kind}. Numbers, strings or booleans are expected; "
            "convert them, for example with astype(str)."
        )
    return column


def _scalar_type(kind: type) -> type:
    """The Python type that stands for a Python or NumPy scalar type; object for all others."""
    for bases, common in ((str, str), ((bool, np.bool_), bool), (Integral, int), (Real, float)):
        if issubclass(kind, bases):
            return common
    return object
