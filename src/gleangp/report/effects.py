"""The effect of every input: partial dependence, and permutation importance on held-out rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from gleangp._typing import FloatArray
from gleangp.data.tables import ColumnEncoding
from gleangp.report.held_out import HeldOutRows, at_rows, increase, log_losses, losses, measure_of

_GRID = 25  # values of an input at which its effect is measured
_MOST_LEVELS = 12  # different values up to which all of them are shown
_AVERAGED = 100  # rows over which an effect is averaged
_REPEATS = 5  # permutations of a column
_MOST_PERMUTED = 1000  # held-out rows of a fold that are permuted


@dataclass(frozen=True, eq=False)
class InputEffect:
    """One column of the table."""

    name: str
    # By how much the held-out error, or minus the log probability of a label, grows if the column is
    # permuted; nan if it was not measured.
    importance: float
    std_error: float  # of that
    levels: list[str] | None  # names of the values if they are categories
    values: FloatArray  # (g,) of a number; positions of the categories else
    mean: FloatArray  # (g,) average prediction
    low: FloatArray  # (g,) the middle 80 % of the rows lie between `low` and `high`
    high: FloatArray


@dataclass(frozen=True, eq=False)
class Response:
    """What a curve shows: the prediction of numbers, or the probability of one class."""

    label: str
    at: int | None  # column of the class probabilities

    def __call__(self, model: Any, X: FloatArray, given: dict[str, Any]) -> FloatArray:
        """Of every row (n,)."""
        if self.at is None:
            return np.asarray(model.predict(X, **given), dtype=float)
        return model.predict_proba(X, **given)[:, self.at]


def response_of(model: Any, target: str, y: np.ndarray) -> Response:
    """The target; of two classes the second; of several the most frequent."""
    if not is_classifier(model):
        return Response(target, None)
    classes = list(model.classes_)
    counts = [np.sum(y == c) for c in classes]
    at = 1 if len(classes) == 2 else int(np.argmax(counts))
    return Response(f"probability of {target} = {classes[at]}", at)


def effects(
    model: Any,
    X: FloatArray,
    y: np.ndarray,
    tasks: np.ndarray | None,
    held: HeldOutRows,
    response: Response,
    columns: Mapping[str, Sequence[int]],
    feature_names: Sequence[str],
    encodings: Mapping[str, ColumnEncoding],
) -> list[InputEffect]:
    """Of every column, the most important first."""
    importance = _importances(X, y, tasks, held, columns)
    rng = np.random.default_rng(0)
    some = np.sort(rng.permutation(len(X))[:_AVERAGED])
    found = []
    for name, at in columns.items():
        settings, levels = _settings(X, list(at), name, feature_names, encodings.get(name))
        rows = np.tile(X[some], (len(settings), 1))
        rows[:, list(at)[: settings.shape[1]]] = np.repeat(settings, len(some), axis=0)
        given = at_rows(tasks, np.tile(some, len(settings)))
        each = response(model, rows, given).reshape(len(settings), len(some))
        mean = each.mean(axis=1)
        # The level of a row is not the effect of this input: rows are compared by their changes.
        low, high = np.quantile(each - each.mean(axis=0), [0.1, 0.9], axis=1) + mean.mean()
        values = np.arange(float(len(settings))) if levels else settings[:, 0]
        found.append(InputEffect(name, *importance[name], levels, values, mean, low, high))
    return sorted(found, key=lambda e: -np.nan_to_num(e.importance, nan=-np.inf))


def levels_of(X: FloatArray, at: Sequence[int], name: str, feature_names: Sequence[str]) -> list[str] | None:
    """Names of the categories of which a column has the indicators; None of other columns."""
    part = X[:, list(at)]
    if len(at) == 1 or not np.isin(part, (0.0, 1.0)).all() or (part.sum(axis=1) > 1).any():
        return None
    return [feature_names[i].removeprefix(f"{name}=") for i in at]


def _settings(
    X: FloatArray, at: list[int], name: str, feature_names: Sequence[str], encoding: ColumnEncoding | None
) -> tuple[FloatArray, list[str] | None]:
    """Values (g, k) to which the features of a column are set, and their names if they are categories."""
    part = X[:, at]
    levels = levels_of(X, at, name, feature_names)
    if levels is not None:
        return np.eye(len(at)), levels
    unique = np.unique(part[:, 0])
    if len(unique) > _MOST_LEVELS:
        low, high = np.quantile(part[:, 0], [0.02, 0.98])
        unique = np.linspace(low, high, _GRID)
    return unique[:, None] if encoding is None else encoding.features(unique), None


def _importances(
    X: FloatArray,
    y: np.ndarray,
    tasks: np.ndarray | None,
    held: HeldOutRows,
    columns: Mapping[str, Sequence[int]],
) -> dict[str, tuple[float, float]]:
    """Growth of the held-out error if a column is permuted, by the models that had not seen the rows.

    Of labels it is that of minus their log probability: many effects change probabilities, and few labels.
    """
    measure = measure_of(next(iter(held.models.values()))) if held.models else "numbers"

    def loss_of(model: Any, X: FloatArray, y: np.ndarray, given: dict[str, Any]) -> FloatArray:
        if measure == "labels":
            return log_losses(model, X, y, given)
        return losses(y, model.predict(X, **given), measure)

    rng = np.random.default_rng(0)
    base: list[FloatArray] = []
    permuted: dict[str, list[FloatArray]] = {name: [] for name in columns}
    for number, model in held.models.items():
        part = np.flatnonzero(held.fold == number)
        part = np.sort(rng.permutation(part)[:_MOST_PERMUTED])
        rows = held.rows[part]
        base.append(loss_of(model, X[rows], y[rows], at_rows(tasks, rows)))
        orders = [rng.permutation(len(rows)) for _ in range(_REPEATS)]
        for name, at in columns.items():
            again = np.tile(X[rows], (_REPEATS, 1))
            again[:, list(at)] = np.concatenate([X[rows][order][:, list(at)] for order in orders])
            at_all = np.tile(rows, _REPEATS)
            loss = loss_of(model, again, y[at_all], at_rows(tasks, at_all))
            permuted[name].append(loss.reshape(_REPEATS, -1).mean(axis=0))
    if not base:
        return dict.fromkeys(columns, (float("nan"), float("nan")))
    whole = np.concatenate(base)
    return {name: increase(whole, np.concatenate(parts), measure) for name, parts in permuted.items()}
