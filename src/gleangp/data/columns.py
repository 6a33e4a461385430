"""One column of user data as an array: which cells are missing, of which kind, as numbers, dates or text.

Checks of all columns of X stand here too. Lists, arrays, pandas and polars columns arrive here;
`tasks`, `labels` and `tables` give them meaning.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from numbers import Integral, Real
from statistics import mode
from typing import Any

import numpy as np
from sklearn.utils.validation import column_or_1d

from gleangp._state import LARGEST
from gleangp._typing import FloatArray
from gleangp.exceptions import InputError, InputWarning, warn_user

_BOOLEAN_WORDS = {"true", "yes", "false", "no"}
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?)?")
_BOUND = re.compile(r"[<>≤≥]=?\s*[-+]?\d[\d.,]*")
_KINDS = {"b": "boolean", "i": "number", "u": "number", "f": "number", "M": "date"}
_CELLS = (  # types of a cell, the type of an array of them, and the kind of their column
    (str, str, "text"),
    ((bool, np.bool_), bool, "boolean"),
    (Integral, int, "number"),
    (Real, float, "number"),
    (Decimal, object, "number"),
    ((date, np.datetime64), object, "date"),
)
_CORRECT = "Correct this cell, or leave it empty if the value is not known."


def as_column(values: Any, name: str, error: type[ValueError], n_rows: int | None = None) -> np.ndarray:
    """`values` as a 1-D array, in the type in which they came; `n_rows` is that of X, if there is an X.

    A single column of shape (n, 1) is accepted with scikit-learn's `DataConversionWarning`.
    """
    # As objects: NumPy would turn ["a", 1] into two strings and [True, 2] into two integers.
    column = np.array(values, dtype=object) if isinstance(values, list | tuple) else np.asarray(values)
    if column.ndim == 2 and column.shape[1] == 1:
        column = column_or_1d(column, warn=True)
    if column.ndim != 1:
        found = f"has shape {column.shape}" if column.ndim else f"is the single value {values!r}"
        raise error(f"{name} {found}. One value per row of X is expected.")
    if column.dtype.kind == "c":
        raise error(f"{name} has complex numbers. Complex data not supported.")
    if n_rows is not None and len(column) != n_rows:
        found = f"{name} has {len(column)} entries, but X has {n_rows} rows"
        raise error(f"{found}. One entry per row is expected.")
    return column


def is_table(X: Any) -> bool:
    """Whether X is a pandas or polars DataFrame."""
    kinds = (getattr(sys.modules.get(name), "DataFrame", None) for name in ("pandas", "polars"))
    return any(isinstance(X, kind) for kind in kinds if kind is not None)


def check_headings(X: Any) -> None:
    """Raise if X is a frame in which two columns have one heading."""
    if is_table(X):
        for heading, count in Counter(X.columns).items():
            if count > 1:
                raise InputError(f"X has {count} columns with the heading {heading!r}. Rename one.")


def column_of(X: Any, place: int) -> Any:
    """A column of a pandas or polars frame, or of an array."""
    if hasattr(X, "iloc"):
        return X.iloc[:, place]
    return X.to_series(place) if hasattr(X, "columns") else X[:, place]


def check_magnitude(values: np.ndarray, name: str, error: type[ValueError]) -> None:
    """Raise an error if a number of the user's data is too large for products to be finite."""
    if float(np.max(np.abs(values), initial=0.0)) > LARGEST:  # as float, since float32 has no such number
        first = values[np.abs(values) > LARGEST][0]
        expected = f"Numbers from {-LARGEST:.0e} to {LARGEST:.0e} are expected: use another unit."
        raise error(f"{name} has the number {first:.6g}. {expected}")


def check_columns(X: np.ndarray) -> None:
    """Raise `InputError` if a column of inputs (n, p) is so small that its products are zero."""
    largest = np.max(np.abs(X), axis=0, initial=0.0)
    small = np.flatnonzero((largest > 0.0) & (largest < 1.0 / LARGEST))
    if len(small):
        found = f"column {small[0]} of X has no number above {largest[small[0]]:.6g}"
        raise InputError(f"{found}. Use another unit, with some above {1.0 / LARGEST:.0e}.")


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


def with_common_type(column: np.ndarray, name: str, error: type[ValueError]) -> np.ndarray:
    """A column without missing entries in one type: strings, booleans, integers or floats.

    Objects are converted (integers beside floats become floats); different types are an error.
    """
    if column.dtype.kind == "O":
        of_type = {type(value): value for value in reversed(column)}
        examples = {_cell_type(of)[0]: value for of, value in of_type.items()}
        if set(examples) == {int, float}:
            del examples[int]
        if len(examples) > 1:
            shown = " and ".join(f"{t.__name__} ({v!r})" for t, v in examples.items())
            raise error(f"{name} mixes types: {shown}. Use one type, for example astype(str).")
        for common in examples:
            column = column.astype(common)
    if column.dtype.kind not in "Ubiuf" and len(column):  # an empty column of objects has no type
        kind = type(column[0]).__name__ if column.dtype.kind == "O" else column.dtype
        expected = "Numbers, strings or booleans are expected: convert them."
        raise error(f"{name} has values of type {kind}. {expected}")
    return column


def _cell_type(of: type) -> tuple[type, str]:
    """The type of an array of such cells, and the kind of their column; object and a name for all others."""
    found = (entry[1:] for entry in _CELLS if issubclass(of, entry[0]))
    return next(found, (object, of.__name__))


def read_cells(cells: Any) -> tuple[np.ndarray, np.ndarray, str | None]:
    """A column as numbers, dates or objects; which cells are missing; its kind, if its type decides that."""
    is_pandas = hasattr(cells, "iloc")
    values = cells if is_pandas else np.asarray(cells)
    kind = _KINDS.get(values.dtype.kind)
    if str(cells.dtype).lower().startswith(("categor", "enum")):
        kind, values = "category", np.asarray(values, dtype=object)
    elif is_pandas and kind == "date":
        values = np.asarray(cells, dtype="datetime64[us]")
    elif is_pandas:  # it has types of its own, with missing values
        values = cells.to_numpy(np.float64, na_value=np.nan) if kind else cells.to_numpy(object)
    if values.dtype.kind not in _KINDS:
        values = values.astype(object)
    gone = missing_entries(values)
    if values.dtype.kind == "O":
        gone |= np.fromiter((isinstance(v, str) and not v.strip() for v in values), bool, len(values))
    return values, gone, kind


def kind_of(values: np.ndarray, gone: np.ndarray, name: str) -> str:
    """The kind of a column of Python objects, which should all be of one."""
    kinds = {cell: _cell_type(cell)[1] for cell in set(map(type, values[~gone]))}
    usual, usable = mode(kinds[type(value)] for value in values[~gone]), {kind for *_, kind in _CELLS}
    for row in () if set(kinds.values()) == {usual} <= usable else np.flatnonzero(~gone):
        found = kinds[type(values[row])]
        if found not in usable:
            raise InputError(
                f"column {name!r} has a {found} in row {row}: {shown(values[row])}. Numbers, text, booleans "
                "and dates can be used. Convert the column to one of these, or leave it out."
            )
        if found != usual:
            raise InputError(
                f"column {name!r} mixes types: row {row} has {shown(values[row])} ({found}), but most cells "
                f"are of the type {usual}. {_CORRECT} If the cells are categories, convert all to text."
            )
    return _kind_of_text(values, gone, name) if usual == "text" else usual


def _kind_of_text(values: np.ndarray, gone: np.ndarray, name: str) -> str:
    def converts(function: Callable[[str], Any], word: str) -> bool:
        try:
            function(word)
        except ValueError:
            return False
        return True

    words = {str(value).strip() for value in values[~gone]}
    if {word.lower() for word in words} <= _BOOLEAN_WORDS:
        return "boolean"
    days, numbers = ({word for word in words if converts(of, word)} for of in (to_date, float))
    bounds = {word for word in words if _BOUND.fullmatch(word)}
    if days == words:
        return "date"

    def first_of(some: set[str]) -> str:
        row = next(r for r in np.flatnonzero(~gone) if values[r].strip() in some)
        return f"column {name!r} has {values[row]!r} in row {row}"

    if bounds and numbers:
        raise InputError(
            f"{first_of(bounds)}, a bound among numbers. Replace it by a number, or leave it empty. If the "
            "cells are categories, convert them with astype('category')."
        )
    for some, what in ((days, "dates"), (numbers, "numbers")):
        if len(words) < 2 * len(some) < 2 * len(words):
            warn_user(
                f"{first_of(words - some)}, and most other values are {what}. All are categories, of "
                f"which none is near another. If {what} are meant, correct such cells or leave them empty; "
                "astype('category') says that categories are.",
                InputWarning,
            )
    return "category"


def floats(values: np.ndarray, gone: np.ndarray, name: str) -> FloatArray:
    """Cells as numbers, NaN where one is missing; `InputError` if one is no number, or infinite."""
    plain = values.dtype.kind in "biuf"
    numbers = (values if plain else _convert(float, values, gone, name, "a number")).astype(np.float64)
    if np.isinf(numbers).any():
        row = np.isinf(numbers).argmax()
        found = f"column {name!r} has infinite values, the first in row {row}: {shown(values[row])}"
        raise InputError(f"{found}. {_CORRECT}")
    return numbers


def dates(values: np.ndarray, gone: np.ndarray, name: str) -> np.ndarray:
    """Cells as dates, NaT where one is missing; `InputError` if one is no date."""
    if values.dtype.kind != "M":
        values = _convert(to_date, values, gone, name, "a date")
    return values.astype("datetime64[us]")


def _convert(function: Any, values: np.ndarray, gone: np.ndarray, name: str, expected: str) -> np.ndarray:
    """The function of every cell, None where one is missing; of equal text once."""
    out, of_text = np.full(len(values), None), cache(function)
    for row in np.flatnonzero(~gone):
        try:
            out[row] = (of_text if isinstance(values[row], str) else function)(values[row])
        except (TypeError, ValueError, OverflowError):
            found = f"column {name!r} has {shown(values[row])} in row {row}, where {expected} is expected."
            raise InputError(f"{found} {_CORRECT}") from None
    return out


def to_date(cell: Any) -> np.datetime64:
    """A date in UTC, of a date, of a date and time, or of text such as 2024-01-31 or 2024-01-31T12:00Z."""
    if isinstance(cell, str):
        if not _DATE.fullmatch(cell.strip()):
            raise ValueError(f"{cell!r} is not a date.")
        return np.datetime64(cell.strip().removesuffix("Z"), "us")
    if not isinstance(cell, date | np.datetime64):
        raise TypeError(f"{cell!r} is not a date.")
    if isinstance(cell, datetime) and cell.tzinfo is not None:
        cell = cell.astimezone(UTC).replace(tzinfo=None)
    return np.datetime64(cell, "us")


def category_text(value: Any) -> str:
    """A category as text; whole numbers without a decimal point, however they are stored."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def shown(cell: Any) -> str:
    """A cell for a message."""
    text = repr(cell.item() if isinstance(cell, np.generic) else cell)
    return text if len(text) <= 60 else text[:57] + "..."
