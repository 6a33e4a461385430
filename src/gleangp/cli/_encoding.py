"""From the columns of a table to numbers: learnt once, kept with the model, the same for ever after.

Numbers stay, booleans become 0 and 1, categories (text) become one column for each. Missing inputs are
refused unless the user asks for the median (numbers) or a category of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gleangp._typing import FloatArray
from gleangp.exceptions import LabelError, TaskError

_MOST_CATEGORIES = 50
_TRUE, _FALSE = {"true", "yes"}, {"false", "no"}


@dataclass(frozen=True, eq=False)
class ColumnEncoding:
    """One input column."""

    name: str
    kind: str  # "number", "boolean" or "category"
    categories: tuple[str, ...]  # of a category; "" stands for a missing one
    fill: float | None  # number for missing values, or None: refuse them

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns it becomes."""
        if self.kind != "category":
            return [self.name]
        return [f"{self.name}={c or '(missing)'}" for c in self.categories]


@dataclass(frozen=True, eq=False)
class TableEncoding:
    """The columns of a table: inputs, task, target."""

    target: str
    task: str | None
    columns: tuple[ColumnEncoding, ...]

    @property
    def feature_names(self) -> list[str]:
        """Names of the inputs of the model."""
        return [name for column in self.columns for name in column.feature_names]

    @property
    def positions(self) -> dict[str, list[int]]:
        """Name of a column -> positions of the inputs that it becomes."""
        ends = np.cumsum([0, *(len(c.feature_names) for c in self.columns)]).tolist()
        return {c.name: list(range(a, b)) for c, a, b in zip(self.columns, ends, ends[1:], strict=False)}

    def inputs(self, frame: Any) -> FloatArray:
        """Rows (n, p) of numbers."""
        missing = [c.name for c in self.columns if c.name not in frame.columns]
        if missing:
            raise ValueError(
                f"the table has no column {missing[0]!r}, which the model was fitted with. It has: "
                f"{', '.join(map(repr, map(str, frame.columns)))}."
            )
        parts = [_encode(column, frame[column.name]) for column in self.columns]
        return np.column_stack(parts) if parts else np.zeros((len(frame), 0))

    def tasks(self, frame: Any) -> np.ndarray | None:
        """Task of every row, as text; None if the model has no tasks."""
        if self.task is None:
            return None
        if self.task not in frame.columns:
            raise TaskError(f"the table has no column {self.task!r}, which holds the task of each row.")
        return text_of(frame[self.task], self.task)


def learn_encoding(
    frame: Any, target: str, task: str | None, *, drop: list[str], impute: bool, row_id: str | None = None
) -> TableEncoding:
    """Look at a table and decide what becomes of each column."""
    named = {"--target": target, "--task": task, "--id": row_id, **{f"--drop {d}": d for d in drop}}
    for option, name in named.items():
        if name is not None and name not in frame.columns:
            raise ValueError(
                f"{option} names the column {name!r}, but the table has: "
                f"{', '.join(map(repr, map(str, frame.columns)))}."
            )
    inputs = [c for c in frame.columns if c not in (target, task, row_id, *drop)]
    # A column without a heading that is different in every row counts the rows: R and pandas write it.
    inputs = [c for c in inputs if not (str(c).startswith("Unnamed: ") and frame[c].is_unique)]
    if not inputs:
        raise ValueError("the table has no input columns beside target and task.")
    return TableEncoding(target, task, tuple(_learn_column(frame[c], str(c), impute) for c in inputs))


def _learn_column(values: Any, name: str, impute: bool) -> ColumnEncoding:
    gone = values.isna()
    if gone.all():
        raise ValueError(f"column {name!r} is empty. Leave it out with --drop {name}.")
    if gone.any() and not impute:
        raise ValueError(
            f"column {name!r} has {int(gone.sum())} missing values. Fill them with --impute (the median of "
            f"numbers, a category of their own for text), or leave the column out with --drop {name}."
        )
    kind = _kind_of(values)
    if kind != "category":
        numbers = _numbers(values, name, kind)
        fill = float(np.nanmedian(numbers)) if impute else None
        return ColumnEncoding(name, kind, (), fill)
    categories = sorted({str(v) for v in values[~gone]})
    if len(categories) > _MOST_CATEGORIES:
        raise ValueError(
            f"column {name!r} is text with {len(categories)} different values (most: {_MOST_CATEGORIES}). "
            f"Leave it out with --drop {name}, or name it with --task if it says which task a row is of."
        )
    return ColumnEncoding(name, kind, (*categories, *([""] if impute else [])), None)


def _kind_of(values: Any) -> str:
    from pandas.api import types

    if types.is_bool_dtype(values):
        return "boolean"
    if types.is_numeric_dtype(values):
        return "number"
    words = {str(v).lower() for v in values.dropna().unique()[:10]}
    return "boolean" if words <= _TRUE | _FALSE else "category"


def _numbers(values: Any, name: str, kind: str) -> FloatArray:
    if kind == "boolean":
        words = values.astype(object).map(lambda v: v if v is None or v != v else str(v).lower())
        known = words.isna() | words.isin(_TRUE | _FALSE | {"1", "0", "1.0", "0.0"})
        if not known.all():
            raise ValueError(
                f"column {name!r} has {words[~known].iloc[0]!r} where true or false is expected."
            )
        return np.where(words.isna(), np.nan, words.isin(_TRUE | {"1", "1.0"}).astype(float))
    try:
        return np.asarray(values.astype(float), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"column {name!r} should hold numbers: {error}") from error


def _encode(column: ColumnEncoding, values: Any) -> FloatArray:
    if column.kind == "category":
        words = values.astype(object).where(~values.isna(), "").map(str).to_numpy(dtype=object)
        unknown = sorted(set(words) - set(column.categories))
        if unknown:
            raise ValueError(
                f"column {column.name!r} has the value {unknown[0]!r}, which the model has not seen. Known: "
                f"{', '.join(map(repr, column.categories))}."
            )
        return (words[:, None] == np.array(column.categories, dtype=object)).astype(np.float64)
    numbers = _numbers(values, column.name, column.kind)
    gone = np.isnan(numbers)
    if gone.any():
        if column.fill is None:
            raise ValueError(
                f"column {column.name!r} has {int(gone.sum())} missing values, and the model was fitted "
                "without --impute."
            )
        numbers = np.where(gone, column.fill, numbers)
    if not np.isfinite(numbers).all():
        raise ValueError(f"column {column.name!r} has infinite values.")
    return numbers


def text_of(values: Any, name: str) -> np.ndarray:
    """A column as text; whole numbers without a decimal point."""
    if values.isna().any():
        raise TaskError(f"column {name!r} has {int(values.isna().sum())} rows without a task.")
    if values.dtype.kind == "f" and (values == values.round()).all():
        values = values.astype("int64")
    return np.array([str(v) for v in values])


def _is_word(value: Any, word: str) -> bool:
    """Whether a cell is what the user wrote: the same text, or the same number."""
    try:
        return str(value) == word or float(value) == float(word)
    except (TypeError, ValueError):
        return False


def target_of(frame: Any, target: str, *, classify: bool, unlabeled: str | None) -> np.ndarray:
    """The target: numbers with NaN where there is none, or class labels as text."""
    if target not in frame.columns:
        raise LabelError(f"the table has no column {target!r}, which holds the target.")
    values = frame[target]
    if classify:
        if values.isna().any() and unlabeled is None:
            raise LabelError(
                f"the target {target!r} has {int(values.isna().sum())} rows without a label. Remove them, or "
                "say with --unlabeled which value means that there is none."
            )
        if values.dtype.kind == "f" and (values.dropna() == values.dropna().round()).all():
            values = values.astype("Int64")
        return np.array(
            [
                unlabeled if v is None or v != v else str(v)
                for v in values.astype(object).where(~values.isna(), None)
            ]
        )
    if unlabeled is not None:
        values = values.where(~values.map(lambda v: _is_word(v, unlabeled)))
    return _numbers(values, target, "number")
