"""Frames in, arrays out: what each column of a table becomes, learnt in `fit` and kept with the model.

========  ====================================================================================
kind      becomes
========  ====================================================================================
number    itself
boolean   0 and 1
date      days since the first date of `fit`; sine and cosine of the year or week where the target repeats
category  an indicator (0 or 1) for every category
========  ====================================================================================

A missing cell becomes the mean of its column. A column that had some in `fit` has one more indicator, which
is 1 where a cell is missing. If a category is missing, or was not seen in `fit`, all its indicators are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.data.columns import category_text, column_of, dates, floats, kind_of, read_cells, shown, to_date
from gleangp.data.tasks import list_names
from gleangp.exceptions import InputError, InputWarning, warn_user
from gleangp.io.classes import register

_MOST_CATEGORIES = 50
_WORDS = {"true": 1.0, "yes": 1.0, "1": 1.0, "false": 0.0, "no": 0.0, "0": 0.0}
_PERIODS = {"year": 365.2425, "week": 7.0}  # days
_LEAST_PERIODS = 2  # that dates must span, so that something can repeat
_LEAST_PHASES = 4  # different days of a year or week
_LEAST_DATES = 20


@dataclass(frozen=True)
class ColumnEncoding:
    """One column of a table, and what it becomes."""

    name: str  # its heading
    kind: str  # "number", "boolean", "date" or "category"
    categories: tuple[str, ...] = ()  # that `fit` saw; "" stands for a missing one (older model files)
    fill: float | None = None  # what a missing number, boolean or date becomes; None: they are refused
    first: str | None = None  # date
    n_missing: int = 0  # cells, in `fit`
    periods: tuple[str, ...] = ()  # "year" or "week", of a date along which the target repeats

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns of numbers that it becomes."""
        if self.kind == "category":
            return [f"{self.name}={c or '(missing)'}" for c in self.categories]
        waves = [f"{self.name}: {wave} of the {p}" for p in self.periods for wave in ("sine", "cosine")]
        return [self.name, *waves, *([f"{self.name}=(missing)"] if self.n_missing else [])]

    def cell(self, number: float) -> Any:
        """The cell that became a number: of a date, the day as text."""
        return str(np.datetime64(self.first, "D") + round(number)) if self.kind == "date" else number

    def __str__(self) -> str:
        becomes = ", ".join(self.feature_names)
        unit = f" (days since {self.first})" if self.kind == "date" else ""
        return f"{self.name}: {self.kind}{unit}, becomes {becomes}; {self.n_missing} missing"

    def _check_state(self) -> None:
        if self.kind not in ("number", "boolean", "date", "category") or self.n_missing < 0:
            raise ValueError(f"a column of the kind {self.kind!r} with {self.n_missing} missing cells.")
        if not all(isinstance(c, str) for c in self.categories):
            raise ValueError(f"categories of the column {self.name!r} that are not text.")
        if self.fill is not None and not np.isfinite(self.fill):
            raise ValueError(f"the column {self.name!r} has {self.fill} for missing cells.")
        if self.kind == "date":
            to_date(self.first)
        if any(p not in _PERIODS for p in self.periods) or (self.periods and self.kind != "date"):
            raise ValueError(f"the column {self.name!r} repeats by {self.periods}.")


register(ColumnEncoding)


def feature_groups(columns: Sequence[ColumnEncoding]) -> IntArray | None:
    """(p,) number of the length scale of every feature; None if each has its own.

    The indicators of a category share one: which of its cells are alike is not known.
    """
    if all(column.kind != "category" for column in columns):
        return None
    begins = [k == 0 or c.kind != "category" for c in columns for k in range(len(c.feature_names))]
    return np.cumsum(begins) - 1


def learn_columns(frame: Any, target: Any = None) -> tuple[ColumnEncoding, ...]:
    """Decide what every column of a pandas or polars frame (n, p) becomes; it has no task column.

    `target` (n,) are numbers that are predicted, NaN where there is none. If they repeat with the year or the
    week, a date becomes sine and cosine of these too: where Schwarz's criterion prefers a trend with them to
    one without.
    """
    headings = enumerate(map(str, frame.columns))  # which may be repeated
    return tuple(_learn(name, column_of(frame, place), target) for place, name in headings)


def count_features(columns: Sequence[ColumnEncoding]) -> int:
    """Number of columns of numbers that these columns become."""
    return sum(len(column.feature_names) for column in columns)


def encode_columns(columns: Sequence[ColumnEncoding], X: Any, *, strict: bool = False) -> FloatArray:
    """The columns of a table as finite numbers (n, number of features).

    X is a frame with these columns, in any order and perhaps with others, or an array with as many columns.
    If a category was not seen in `fit` there is an `InputWarning`; `strict` makes it an error.
    """
    wanted, cells = [c.name for c in columns], [column_of(X, place) for place in range(X.shape[1])]
    if hasattr(X, "columns"):
        there = list(map(str, X.columns))
        for name in wanted:
            if name not in there:
                found = f"the table has no column {name!r}, which the model was fitted with"
                raise InputError(f"{found}. It has: {list_names(there, 20)}.")
        if there != wanted:
            cells = [cells[there.index(name)] for name in wanted]
    elif len(cells) != len(wanted):
        expected = f"{len(wanted)} are expected: {list_names(wanted, 20)}"
        raise InputError(f"X has {len(cells)} features, and {expected}.")
    notes: list[str] = []
    parts = [_encode(column, of, strict, notes) for column, of in zip(columns, cells, strict=True)]
    if notes:
        warn_user(" ".join(notes), InputWarning)
    return np.column_stack(parts) if parts else np.zeros((len(X), 0))


def as_numbers(cells: Any, name: str) -> FloatArray:
    """One column as numbers, NaN where a cell is missing; its name is for errors."""
    return floats(*read_cells(cells)[:2], name)


def _learn(name: str, cells: Any, target: Any) -> ColumnEncoding:
    values, gone, kind = read_cells(cells)
    n_missing = int(gone.sum())
    if n_missing == len(values):
        raise InputError(f"column {name!r} is empty: all {n_missing} cells are missing. Leave it out.")
    if kind is None:
        kind = kind_of(values, gone, name)
    if kind == "category":
        categories = sorted({category_text(value) for value in values[~gone]})
        if len(categories) > _MOST_CATEGORIES:
            raise InputError(
                f"column {name!r} is text with {len(categories)} different values (most: "
                f"{_MOST_CATEGORIES}), such as {shown(categories[0])}. Leave it out, or use it as the task "
                "of each row. If the cells are numbers or dates, convert them; else merge rare categories."
            )
        return ColumnEncoding(name, kind, tuple(categories), 0.0, n_missing=n_missing)
    column = ColumnEncoding(name, kind, n_missing=n_missing)
    if kind == "date":
        first = np.datetime_as_string(dates(values, gone, name)[~gone].min(), unit="auto")
        column = replace(column, first=str(first))
    numbers = _numbers(column, values, gone)[0]
    low = numbers[~gone].min()
    mean = low + np.sum((numbers[~gone] - low) / np.sum(~gone))  # divided first: a sum can overflow
    periods = () if target is None or kind != "date" else _periods(numbers, np.asarray(target, np.float64))
    return replace(column, fill=float(mean), periods=periods)


def _waves(days: FloatArray, period: str) -> FloatArray:
    """Sine and cosine (n, 2) of the time of the year or week."""
    phase = 2.0 * np.pi * days[:, None] / _PERIODS[period]
    return np.hstack([np.sin(phase), np.cos(phase)])


def _periods(days: FloatArray, y: FloatArray) -> tuple[str, ...]:
    """With which periods a target (n,) repeats along a date, beyond a quadratic trend; NaN: not known."""
    known = np.isfinite(days) & np.isfinite(y)
    days, y = days[known], y[known]
    span = np.ptp(days) if len(days) else 0.0
    if span == 0.0 or np.ptp(y) == 0.0:
        return ()
    y = (y - y.mean()) / np.ptp(y)
    trend = np.vander(2.0 * days / span - 1.0, 3)
    found: tuple[str, ...] = ()
    for period, length in _PERIODS.items():
        several = span >= _LEAST_PERIODS * length and len(np.unique(np.round(days % length))) >= _LEAST_PHASES
        if not several or len(y) < _LEAST_DATES:
            continue
        wider = np.hstack([trend, _waves(days, period)])
        squares = [np.sum((y - A @ np.linalg.lstsq(A, y, rcond=None)[0]) ** 2) for A in (trend, wider)]
        rest, less = np.maximum(squares, np.finfo(float).tiny)
        if len(y) * np.log(rest / less) > 2.0 * np.log(len(y)):
            found, trend = (*found, period), wider
    return found


def _encode(column: ColumnEncoding, cells: Any, strict: bool, notes: list[str]) -> FloatArray:
    """The column as numbers (n, k); what the user should be told is added to `notes`."""
    values, gone, _ = read_cells(cells)
    block, unseen = _numbers(column, values, gone)
    if block.ndim == 1:
        gone = gone | (np.isnan(block) & ~unseen)  # the text "nan"
    name = f"column {column.name!r}"
    if unseen.any():
        known = list_names(column.categories if column.kind == "category" else ("true", "false"), 20)
        text = f"{name} has the value {shown(values[unseen.argmax()])}, which "
        if strict:
            raise InputError(f"{text}the model has not seen. Known: {known}.")
        many = f"was not seen in fit ({unseen.sum()} rows have unseen values)"
        notes.append(f"{text}{many}. It counts as none of the known ones: {known}.")
    if "" in column.categories:  # a missing category has an indicator of its own
        return block
    n_missing = int(gone.sum())
    if n_missing and (column.fill is None or (strict and not column.n_missing)):
        found = f"{name} has {n_missing} missing values, the first in row {gone.argmax()}"
        advice = "and the model was fitted without --impute. Fill them, or fit again with it."
        raise InputError(f"{found}, {advice}")
    if n_missing and not column.n_missing:
        means = "none of the categories" if column.kind == "category" else "the mean of the column"
        notes.append(f"{name} has {n_missing} missing values, and had none in fit. They count as {means}.")
    if column.kind == "category":
        return block
    block[gone | unseen] = column.fill
    waves = [_waves(block, period) for period in column.periods]
    return np.column_stack([block, *waves, *([gone] if column.n_missing else [])])


def _numbers(column: ColumnEncoding, values: np.ndarray, gone: np.ndarray) -> tuple[FloatArray, np.ndarray]:
    """Numbers (n,), NaN where missing, or indicators (n, k); and which cells `fit` did not see."""
    if column.kind == "number":
        return floats(values, gone, column.name), np.zeros(len(values), dtype=bool)
    if column.kind == "date":
        days = (dates(values, gone, column.name) - to_date(column.first)) / np.timedelta64(1, "D")
        return days, np.zeros(len(values), dtype=bool)
    if column.kind == "boolean" and values.dtype.kind in "biuf":
        return values.astype(np.float64), ~gone & (values != 0) & (values != 1)
    words = ["" if g else category_text(v) for v, g in zip(values, gone, strict=True)]
    if column.kind == "boolean":
        numbers = np.array([_WORDS.get(word.strip().lower(), np.nan) for word in words])
        return numbers, ~gone & np.isnan(numbers)
    places = {category: place for place, category in enumerate(column.categories)}
    place = np.array([places.get(word, -1) for word in words])
    return (place[:, None] == np.arange(len(places))).astype(np.float64), ~gone & (place < 0)
