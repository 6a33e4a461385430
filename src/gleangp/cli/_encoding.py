"""The columns of a table in a file: which are inputs, task and target.

An estimator learns what becomes of the inputs (`columns_`). Missing inputs are refused without `--impute`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from gleangp._typing import FloatArray
from gleangp.cli._usage import note
from gleangp.data.tables import ColumnEncoding, as_numbers, learn_columns
from gleangp.exceptions import InputError, InputWarning, LabelError, TaskError


@dataclass(frozen=True, eq=False)
class TableEncoding:
    """The columns of a table: inputs, task, target.

    In model files `columns` is empty, because the estimator has them; in older files they are here.
    """

    target: str
    task: str | None
    columns: tuple[ColumnEncoding, ...] = ()
    exposure: str | None = None
    trials: str | None = None

    @property
    def fields(self) -> dict[str, str]:
        """ "exposure" or "trials" -> the column that holds it."""
        both = {"exposure": self.exposure, "trials": self.trials}
        return {field: column for field, column in both.items() if column is not None}

    def fields_of(self, frame: Any, *, strict: bool = True) -> dict[str, FloatArray]:
        """Exposure or trials of every row; without that column, and not `strict`, 1 with a warning."""
        found = {}
        for field, column in self.fields.items():
            if column in frame.columns:
                found[field] = as_numbers(frame[column], column)
                bad = ~(found[field] > 0.0)
                if bad.any():
                    raise InputError(
                        f"column {column!r} has {frame[column].iloc[bad.argmax()]!s} in row {bad.argmax()}, "
                        f"where a positive number is expected: --{field}."
                    )
            elif strict:
                raise InputError(f"the table has no column {column!r}, which holds the {field} of each row.")
            else:
                message = f"the table has no column {column!r}: rows are predicted for the {field} 1."
                warnings.warn(message, InputWarning, stacklevel=2)
        return found

    def _check_state(self) -> None:
        """Raise if the parts do not fit together (a damaged model file)."""
        if not all(isinstance(column, ColumnEncoding) for column in self.columns):
            raise ValueError("columns of a table of another kind.")
        names = [self.target, self.task, *(column.name for column in self.columns)]
        if len(set(names)) < len(names):
            raise ValueError("a table in which two columns have one name.")

    def tasks(self, frame: Any) -> np.ndarray | None:
        """Task of every row, as text; None if the model has no tasks."""
        if self.task is None:
            return None
        if self.task not in frame.columns:
            raise TaskError(f"the table has no column {self.task!r}, which holds the task of each row.")
        return text_of(frame[self.task], self.task)


def learn_encoding(
    frame: Any,
    target: str,
    task: str | None,
    *,
    drop: list[str],
    impute: bool,
    row_id: str | None = None,
    exposure: str | None = None,
    trials: str | None = None,
) -> TableEncoding:
    """Look at a table and decide what becomes of each column."""
    roles = {"--target": target, "--task": task, "--id": row_id, "--exposure": exposure, "--trials": trials}
    named = {**roles, **{f"--drop {d}": d for d in drop}}
    for option, name in named.items():
        if name is not None and name not in frame.columns:
            raise ValueError(
                f"{option} names the column {name!r}, but the table has: "
                f"{', '.join(map(repr, map(str, frame.columns)))}."
            )
    inputs = [c for c in frame.columns if c not in (*roles.values(), *drop)]
    # A column without a heading that is different in every row counts the rows: R and pandas write it.
    inputs = [c for c in inputs if not (str(c).startswith("Unnamed: ") and frame[c].is_unique)]
    if not inputs:
        raise ValueError("the table has no input columns beside target and task.")
    values = frame[target]
    numbers = values.astype(float) if values.dtype.kind in "iuf" else None
    columns = tuple(_learn_column(frame, c, impute, numbers) for c in inputs)
    return TableEncoding(target, task, columns, exposure, trials)


def _learn_column(frame: Any, name: Any, impute: bool, target: Any) -> ColumnEncoding:
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", InputWarning)
            (column,) = learn_columns(frame[[name]], target)
    except InputError as error:
        raise InputError(f"{error} To leave it out: --drop {name}.") from None
    for warning in caught:
        if issubclass(warning.category, InputWarning):
            note(str(warning.message))
    if column.n_missing and not impute:
        raise InputError(
            f"column {name!r} has {column.n_missing} missing values. Fill them with --impute (the mean of "
            f"numbers, none of the categories), or leave the column out with --drop {name}."
        )
    return column


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


def target_column(frame: Any, target: str) -> Any:
    """The column of the target as it is in the table."""
    if target not in frame.columns:
        raise LabelError(f"the table has no column {target!r}, which holds the target.")
    return frame[target]


def target_of(frame: Any, target: str, *, classify: bool, unlabeled: str | None) -> np.ndarray:
    """The target: numbers with NaN where there is none, or class labels as text."""
    values = target_column(frame, target)
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
    return as_numbers(values, target)
