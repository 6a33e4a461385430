"""Single tasks and single rows: curves of every task, tasks that differ, rows that do not fit."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from gleangp._typing import FloatArray, IntArray
from gleangp.data.tables import ColumnEncoding
from gleangp.report.charts import shown
from gleangp.report.effects import Response
from gleangp.report.held_out import HeldOutRows, spread_of
from gleangp.report.inputs import Inputs

MOST_CURVES = 2000  # tasks that are drawn
_MOST_PREDICTED = 20_000  # points at which all curves together are computed
_MOST_POINTS = 100  # rows of a task that are drawn
MOST_ODD = 20  # rows that are listed


@dataclass(frozen=True, eq=False)
class Curve:
    """Predictions of one task along one input."""

    task: int  # its code
    along: ColumnEncoding
    others: str  # values of the other inputs
    x: FloatArray  # (g,)
    mean: FloatArray  # (g,)
    band: FloatArray | None  # (g, 2) where 95 % of new targets lie; None of probabilities
    data_x: FloatArray  # (k,)
    data_y: FloatArray  # (k,) targets less what the other inputs change, or 1 where the class is there


@dataclass(frozen=True, eq=False)
class OddRow:
    """A held-out row that does not fit."""

    row: int  # position in the table
    measured: Any
    predicted: Any
    score: float  # standard deviations from the prediction, or the probability of the row's label


@dataclass(frozen=True, eq=False)
class Distances:
    """How far the predictions of each task are from the median over tasks, at the same rows."""

    offset: FloatArray  # (M,) mean difference
    distance: FloatArray  # (M,) root mean square difference
    unusual: np.ndarray  # (M,) whether it is far above that of most tasks


def curves(
    model: Any,
    inputs: Inputs,
    y: np.ndarray,
    names: np.ndarray | None,
    codes: IntArray,
    labeled: np.ndarray,
    response: Response,
    along: int,
) -> list[Curve]:
    """Mean and band of every task along one column of numbers, the others at the medians of the task.

    Categories and booleans are at the most frequent value.
    """
    cells = inputs.cells
    n_tasks = min(int(codes.max()) + 1, MOST_CURVES)
    n_grid = int(np.clip(_MOST_PREDICTED // n_tasks, 12, 40))
    rng = np.random.default_rng(0)
    picked, grids, flat = [], [], []
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes))
    for code in range(n_tasks):
        rows = order[(ends[code - 1] if code else 0) : ends[code]]
        middle = _middle(inputs.columns, cells[rows])
        ends_here = _ends(cells[rows, along])
        grid = np.tile(middle, (n_grid, 1))
        grid[:, along] = np.linspace(*(ends_here or _ends(cells[:, along]) or (0.0, 1.0)), n_grid)
        rows = rows[labeled[rows] & np.isfinite(cells[rows, along])]
        rows = np.sort(rng.permutation(rows)[:_MOST_POINTS])
        moved = np.tile(middle, (len(rows), 1))
        moved[:, along] = cells[rows, along]
        picked.append(rows)
        grids.append(grid)
        flat.append(moved)
    points = inputs.given(model, np.concatenate(grids))
    given = {} if names is None else {"tasks": np.repeat(names[:n_tasks], n_grid)}
    mean = response(model, points, given).reshape(n_tasks, n_grid)
    band = None
    if response.at is None:
        found = _band(model, points, given, mean.ravel())
        band = None if found is None else found.reshape(n_tasks, n_grid, 2)
    data = _data(model, inputs, y, names, codes, picked, flat, response)
    return [
        Curve(
            code,
            inputs.columns[along],
            _other_values(inputs.columns, grids[code][0], along),
            grids[code][:, along],
            mean[code],
            None if band is None else band[code],
            cells[picked[code], along],
            data[code],
        )
        for code in range(n_tasks)
    ]


def _middle(columns: Sequence[ColumnEncoding], cells: FloatArray) -> FloatArray:
    """A cell for every column: the median of numbers and dates, else the most frequent; nan of none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column without a cell
        middle = np.nanmedian(cells, axis=0)
    for place, column in enumerate(columns):
        if column.kind in ("category", "boolean") and np.isfinite(middle[place]):
            values, counts = np.unique(cells[:, place], return_counts=True)
            known = np.isfinite(values)
            middle[place] = values[known][counts[known].argmax()]
    return middle


def _ends(values: FloatArray) -> tuple[float, float] | None:
    """Least and largest value; None if they are the same, or there are none."""
    known = values[np.isfinite(values)]
    return (known.min(), known.max()) if len(known) and known.min() < known.max() else None


def _band(model: Any, X: Any, given: dict[str, Any], mean: FloatArray) -> FloatArray | None:
    """Where 95 % of new targets lie (n, 2)."""
    if hasattr(model, "predict_interval"):
        return model.predict_interval(X, **given)
    std = spread_of(model, X, given)
    return None if std is None else np.column_stack([mean - 1.96 * std, mean + 1.96 * std])


def _data(
    model: Any,
    inputs: Inputs,
    y: np.ndarray,
    names: np.ndarray | None,
    codes: IntArray,
    picked: list[IntArray],
    flat: list[FloatArray],
    response: Response,
) -> list[FloatArray]:
    """Targets as they would be with the other inputs at the medians: what the model says these change."""
    rows = np.concatenate(picked)
    splits = np.cumsum([len(p) for p in picked])[:-1]
    if response.at is not None:
        return np.split((y[rows] == model.classes_[response.at]).astype(float), splits)
    given = {} if names is None else {"tasks": names[codes[rows]]}
    values = np.asarray(y[rows], dtype=float)
    if len(inputs.columns) > 1 and len(rows):
        there, moved = (
            response(model, inputs.given(model, cells), given)
            for cells in (inputs.cells[rows], np.concatenate(flat))
        )
        values = values - there + moved
    return np.split(values, splits)


def _other_values(columns: Sequence[ColumnEncoding], cells: FloatArray, along: int, most: int = 4) -> str:
    """For a caption: which values the other columns have."""
    others = [
        f"{column.name} = {shown(value, column)}"
        for place, (column, value) in enumerate(zip(columns, cells, strict=True))
        if place != along
    ]
    text = ", ".join(others[:most])
    return text + (f" and {len(others) - most} more" if len(others) > most else "")


def distances(model: Any, inputs: Inputs, names: np.ndarray | None, response: Response) -> Distances | None:
    """Compare all tasks at the same rows; None of fewer than three tasks."""
    if names is None or not 3 <= len(names):
        return None
    n_rows = int(np.clip(_MOST_PREDICTED // len(names), 4, 50))
    some = inputs.cells[np.random.default_rng(0).permutation(len(inputs))[:n_rows]]
    given = {"tasks": np.repeat(names, len(some))}
    X = inputs.given(model, np.tile(some, (len(names), 1)))
    each = response(model, X, given).reshape(len(names), len(some))
    difference = each - np.median(each, axis=0)
    distance = np.sqrt(np.mean(difference**2, axis=1))
    middle = float(np.median(distance))
    spread = 1.4826 * float(np.median(np.abs(distance - middle)))  # as a standard deviation
    return Distances(difference.mean(axis=1), distance, distance > middle + 3 * max(spread, 0.1 * middle))


def odd_rows(model: Any, y: np.ndarray, held: HeldOutRows, scores: FloatArray | None) -> list[OddRow]:
    """Held-out rows beyond three standard deviations, or of a label with a probability below 5 %."""
    if held.spread is None:
        return []
    truth = y[held.rows]
    if is_classifier(model):
        proba = (truth[:, None] == model.classes_) * held.spread
        score = proba.sum(axis=1)
        order = np.argsort(score, kind="stable")
        order = order[score[order] < 0.05]
    else:
        score = np.asarray(scores)
        order = np.argsort(-np.abs(score), kind="stable")
        order = order[np.abs(score[order]) > 3]
    return [OddRow(int(held.rows[i]), truth[i], held.predicted[i], float(score[i])) for i in order]


def noise_std(model: Any) -> list[float] | None:
    """Standard deviations of the noise in units of the target: of the middle 90 % of tasks, and the median.

    In the order least, median, largest. None if it is not known, or depends on the mean.
    """
    if not hasattr(model, "_noise_of_tasks") or getattr(model, "noise", "gaussian") != "gaussian":
        return None
    try:
        found = model._noise_of_tasks()
    except ValueError:  # noise that was given for each training row is not known elsewhere
        return None
    return np.quantile(found, [0.05, 0.5, 0.95]).tolist()
