"""The inputs of a report: one number for each cell of a table, and what a model is given of them.

A category is its position, a date the days since the first, a boolean 0 or 1; a missing cell is nan. So the
values of a column can be permuted, and set to others, in the same way for all kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from gleangp._typing import FloatArray
from gleangp.data.columns import is_table
from gleangp.data.tables import ColumnEncoding, encode_columns
from gleangp.data.tasks import take_task_column
from gleangp.exceptions import TaskError

_MICROSECONDS = 86_400_000_000.0  # of a day


@dataclass(frozen=True, eq=False)
class Inputs:
    """Rows of a table without tasks and target."""

    columns: tuple[ColumnEncoding, ...]
    cells: FloatArray  # (n, c)
    framed: bool  # whether models were fitted on frames

    def __len__(self) -> int:
        return len(self.cells)

    def given(self, model: Any, cells: FloatArray) -> Any:
        """What a fitted model is given for some cells (m, c): an array, or a frame with its columns."""
        if not self.framed:
            return cells
        return known_columns(model, as_frame(self.columns, cells))

    def to_fit(self, rows: Any) -> Any:
        """What a model is given to learn from."""
        cells = self.cells[rows]
        return without_empty(as_frame(self.columns, cells)) if self.framed else cells


def read_inputs(
    X: Any, columns: Sequence[ColumnEncoding] | None, feature_names: Sequence[str] | None
) -> Inputs:
    """Inputs of a frame, of which `columns` describes the columns, or of an array."""
    if columns and is_table(X):
        return Inputs(tuple(columns), as_cells(columns, X), True)
    cells = np.asarray(X, dtype=np.float64)
    headings = list(map(str, X.columns)) if is_table(X) else [f"x{i}" for i in range(cells.shape[1])]
    names = list(feature_names) if feature_names else headings
    return Inputs(tuple(ColumnEncoding(name, "number") for name in names), cells, False)


def tasks_apart(model: Any, X: Any, tasks: Any) -> tuple[Any, Any, Any]:
    """A model and its rows as if the tasks had been given beside X, where they are a column of it."""
    task = getattr(model, "task", None)
    if task is None:
        return model, X, tasks
    if tasks is not None:
        raise TaskError(f"tasks were given twice: by the column task={task!r} of X and by tasks=. Give one.")
    X, tasks = take_task_column(X, task)
    model = copy(model).set_params(task=None)
    model.n_features_in_ -= 1
    if (names := getattr(model, "feature_names_in_", None)) is not None:
        model.feature_names_in_ = np.delete(names, names == task if isinstance(task, str) else task)
    return model, X, tasks


def as_cells(columns: Sequence[ColumnEncoding], frame: Any) -> FloatArray:
    """One number for each cell (n, c), of columns that `learn_columns` learnt from this frame."""
    encoded, start, out = encode_columns(columns, frame), 0, []
    for column in columns:
        part = encoded[:, start : start + len(column.feature_names)]
        start += part.shape[1]
        if column.kind == "category":
            out.append(np.where(part.any(axis=1), part.argmax(axis=1), np.nan))
        else:
            out.append(np.where(part[:, -1] == 1.0, np.nan, part[:, 0]) if column.n_missing else part[:, 0])
    return np.column_stack(out)


def as_frame(columns: Sequence[ColumnEncoding], cells: FloatArray) -> Any:
    """A frame of these cells, in which the type of every column says its kind, whichever rows there are."""
    import pandas as pd

    return pd.DataFrame({c.name: _typed(c, v) for c, v in zip(columns, cells.T, strict=True)})


def _typed(column: ColumnEncoding, values: FloatArray) -> Any:
    import pandas as pd

    if column.kind == "category":
        codes = np.nan_to_num(values, nan=-1.0).astype(int)
        return pd.Categorical.from_codes(codes, list(column.categories))
    if column.kind == "boolean":
        return pd.array(values, dtype="boolean")
    if column.kind == "date":
        gone = np.isnan(values)
        since = (np.where(gone, 0.0, values) * _MICROSECONDS).round().astype("timedelta64[us]")
        days = np.datetime64(column.first, "us") + since
        days[gone] = np.datetime64("NaT")
        return days
    return values


def without_empty(X: Any) -> Any:
    """The columns of a frame that have a cell: from the others nothing can be learnt. Arrays have no gaps."""
    return X.dropna(axis=1, how="all") if is_table(X) else X


def known_columns(model: Any, frame: Any) -> Any:
    """The columns that a model was fitted with."""
    names = getattr(model, "feature_names_in_", None)
    return frame if names is None or not is_table(frame) else frame[list(names)]
