"""Single tasks and single rows: curves of every task, tasks that differ, rows that do not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from gleangp._typing import FloatArray, IntArray
from gleangp.data.tables import ColumnEncoding
from gleangp.report.charts import shown
from gleangp.report.effects import Response, levels_of
from gleangp.report.held_out import HeldOutRows, spread_of

MOST_CURVES = 2000  # tasks that are drawn
_MOST_PREDICTED = 20_000  # points at which all curves together are computed
_MOST_POINTS = 100  # rows of a task that are drawn
MOST_ODD = 20  # rows that are listed


@dataclass(frozen=True, eq=False)
class Curve:
    """Predictions of one task along one input."""

    task: int  # its code
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
    X: FloatArray,
    y: np.ndarray,
    names: np.ndarray | None,
    codes: IntArray,
    labeled: np.ndarray,
    response: Response,
    along: str,
    columns: Mapping[str, Sequence[int]],
    feature_names: Sequence[str],
    encodings: Mapping[str, ColumnEncoding],
) -> list[Curve]:
    """Mean and band of every task along one column, the others at the medians of the task.

    A category is at the most frequent one.
    """
    feature, whole_column = columns[along][0], list(columns[along])
    levels = {name: levels_of(X, at, name, feature_names) for name, at in columns.items()}
    categories = [list(columns[name]) for name, found in levels.items() if found is not None]
    n_tasks = min(int(codes.max()) + 1, MOST_CURVES)
    n_grid = int(np.clip(_MOST_PREDICTED // n_tasks, 12, 40))
    rng = np.random.default_rng(0)
    picked, grids, flat = [], [], []
    whole = np.array([X[:, feature].min(), X[:, feature].max()])
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes))
    for code in range(n_tasks):
        rows = order[(ends[code - 1] if code else 0) : ends[code]]
        middle = np.median(X[rows], axis=0)
        for at in categories:
            middle[at] = np.eye(len(at))[X[rows][:, at].sum(axis=0).argmax()]
        for name, encoding in encodings.items():
            at = list(columns[name])
            middle[at] = encoding.features(middle[at[:1]])[0]
        low, high = X[rows, feature].min(), X[rows, feature].max()
        if high <= low:
            low, high = whole
        grid = np.tile(middle, (n_grid, 1))
        places = np.linspace(low, high, n_grid)
        grid[:, feature] = places
        if along in encodings:
            grid[:, whole_column] = encodings[along].features(places)
        rows = rows[labeled[rows]]
        rows = np.sort(rng.permutation(rows)[:_MOST_POINTS])
        moved = np.tile(middle, (len(rows), 1))
        moved[:, whole_column] = X[rows][:, whole_column]
        picked.append(rows)
        grids.append(grid)
        flat.append(moved)
    points = np.concatenate(grids)
    given = {} if names is None else {"tasks": np.repeat(names[:n_tasks], n_grid)}
    mean = response(model, points, given).reshape(n_tasks, n_grid)
    band = None
    if response.at is None:
        found = _band(model, points, given, mean.ravel())
        band = None if found is None else found.reshape(n_tasks, n_grid, 2)
    data = _data(model, X, y, names, codes, picked, flat, response)
    return [
        Curve(
            code,
            _other_values(grids[code][0], along, columns, levels, encodings),
            grids[code][:, feature],
            mean[code],
            None if band is None else band[code],
            X[picked[code], feature],
            data[code],
        )
        for code in range(n_tasks)
    ]


def _band(model: Any, X: FloatArray, given: dict[str, Any], mean: FloatArray) -> FloatArray | None:
    """Where 95 % of new targets lie (n, 2)."""
    if getattr(model, "noise", "gaussian") != "gaussian":
        return model.predict_interval(X, **given)
    std = spread_of(model, X, given)
    return None if std is None else np.column_stack([mean - 1.96 * std, mean + 1.96 * std])


def _data(
    model: Any,
    X: FloatArray,
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
    if X.shape[1] > 1 and len(rows):
        values = values - response(model, X[rows], given) + response(model, np.concatenate(flat), given)
    return np.split(values, splits)


def _other_values(
    row: FloatArray,
    along: str,
    columns: Mapping[str, Sequence[int]],
    levels: Mapping[str, list[str] | None],
    encodings: Mapping[str, ColumnEncoding],
    most: int = 4,
) -> str:
    """For a caption: which values the other columns have."""
    others = []
    for name, at in columns.items():
        words = levels[name]
        if words is not None:
            value = words[int(row[list(at)].argmax())]
        else:
            value = shown(row[at[0]], encodings.get(name))
        if name != along:
            others.append(f"{name} = {value}")
    text = ", ".join(others[:most])
    return text + (f" and {len(others) - most} more" if len(others) > most else "")


def distances(model: Any, X: FloatArray, names: np.ndarray | None, response: Response) -> Distances | None:
    """Compare all tasks at the same rows; None of fewer than three tasks."""
    if names is None or not 3 <= len(names):
        return None
    n_rows = int(np.clip(_MOST_PREDICTED // len(names), 4, 50))
    some = X[np.random.default_rng(0).permutation(len(X))[:n_rows]]
    given = {"tasks": np.repeat(names, len(some))}
    each = response(model, np.tile(some, (len(names), 1)), given).reshape(len(names), len(some))
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


def noise_std(model: Any, X: FloatArray, names: np.ndarray | None, codes: IntArray) -> float | None:
    """Standard deviation of the noise in units of the target, median of some rows; None if not known."""
    if is_classifier(model) or "include_noise" not in signature(model.predict).parameters:
        return None
    if getattr(model, "noise", "gaussian") != "gaussian":
        return None  # it depends on the mean
    some = np.random.default_rng(0).permutation(len(X))[:200]
    given = {} if names is None else {"tasks": names[codes[some]]}
    function = model.predict(X[some], return_std=True, **given)[1]
    new = model.predict(X[some], return_std=True, include_noise=True, **given)[1]
    return float(np.sqrt(np.median(np.maximum(new**2 - function**2, 0.0))))
