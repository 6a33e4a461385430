"""The effect of every input: partial dependence, and permutation importance on held-out rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from gleangp._typing import FloatArray
from gleangp.data.tables import ColumnEncoding
from gleangp.report.held_out import HeldOutRows, at_rows, increase, log_losses, losses, measure_of
from gleangp.report.inputs import Inputs

_GRID = 25  # values of an input at which its effect is measured
_MOST_LEVELS = 12  # different values up to which all of them are shown
_AVERAGED = 100  # rows over which an effect is averaged
_REPEATS = 5  # permutations of a column
_MOST_PERMUTED = 1000  # held-out rows of a fold that are permuted


@dataclass(frozen=True, eq=False)
class InputEffect:
    """One column of the table."""

    column: ColumnEncoding
    # By how much the held-out error, or minus the log probability of a label, grows if the column is
    # permuted; nan if it was not measured.
    importance: float
    std_error: float  # of that
    values: FloatArray  # (g,) of a number; positions of the categories else
    mean: FloatArray  # (g,) average prediction
    low: FloatArray  # (g,) the middle 80 % of the rows lie between `low` and `high`
    high: FloatArray

    @property
    def name(self) -> str:
        """Heading of the column."""
        return self.column.name


@dataclass(frozen=True, eq=False)
class Response:
    """What a curve shows: the prediction of numbers, or the probability of one class."""

    label: str
    at: int | None  # column of the class probabilities

    def __call__(self, model: Any, X: Any, given: dict[str, Any]) -> FloatArray:
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
    model: Any, inputs: Inputs, y: np.ndarray, tasks: np.ndarray | None, held: HeldOutRows, response: Response
) -> list[InputEffect]:
    """Of every column, the most important first."""
    importance = _importances(inputs, y, tasks, held)
    some = np.sort(np.random.default_rng(0).permutation(len(inputs))[:_AVERAGED])
    found = []
    for place, column in enumerate(inputs.columns):
        values = _values(column, inputs.cells[:, place])
        cells = np.tile(inputs.cells[some], (len(values), 1))
        cells[:, place] = np.repeat(values, len(some))
        given = at_rows(tasks, np.tile(some, len(values)))
        each = response(model, inputs.given(model, cells), given).reshape(len(values), len(some))
        mean = each.mean(axis=1)
        # The level of a row is not the effect of this input: rows are compared by their changes.
        low, high = np.quantile(each - each.mean(axis=0), [0.1, 0.9], axis=1) + mean.mean()
        found.append(InputEffect(column, *importance[place], values, mean, low, high))
    return sorted(found, key=lambda e: -np.nan_to_num(e.importance, nan=-np.inf))


def _values(column: ColumnEncoding, cells: FloatArray) -> FloatArray:
    """Values (g,) to which the cells of a column are set."""
    if column.kind == "category":
        return np.arange(float(len(column.categories)))
    known = cells[~np.isnan(cells)]
    unique = np.unique(known)
    if len(unique) <= _MOST_LEVELS:
        return unique
    low, high = np.quantile(known, [0.02, 0.98])
    return np.linspace(low, high, _GRID)


def _importances(
    inputs: Inputs, y: np.ndarray, tasks: np.ndarray | None, held: HeldOutRows
) -> list[tuple[float, float]]:
    """Growth of the held-out error if a column is permuted, by the models that had not seen the rows.

    Of labels it is that of minus their log probability: many effects change probabilities, and few labels.
    """
    measure = measure_of(next(iter(held.models.values()))) if held.models else "numbers"

    def loss_of(model: Any, cells: FloatArray, rows: Any) -> FloatArray:
        X, given = inputs.given(model, cells), at_rows(tasks, rows)
        if measure == "labels":
            return log_losses(model, X, y[rows], given)
        return losses(y[rows], model.predict(X, **given), measure)

    rng = np.random.default_rng(0)
    base: list[FloatArray] = []
    permuted: list[list[FloatArray]] = [[] for _ in inputs.columns]
    for number, model in held.models.items():
        part = np.flatnonzero(held.fold == number)
        part = np.sort(rng.permutation(part)[:_MOST_PERMUTED])
        rows = held.rows[part]
        cells = inputs.cells[rows]
        base.append(loss_of(model, cells, rows))
        orders = [rng.permutation(len(rows)) for _ in range(_REPEATS)]
        for place, losses_of_column in enumerate(permuted):
            again = np.tile(cells, (_REPEATS, 1))
            again[:, place] = np.concatenate([cells[order, place] for order in orders])
            loss = loss_of(model, again, np.tile(rows, _REPEATS))
            losses_of_column.append(loss.reshape(_REPEATS, -1).mean(axis=0))
    if not base:
        return [(float("nan"), float("nan"))] * len(inputs.columns)
    whole = np.concatenate(base)
    return [increase(whole, np.concatenate(parts), measure) for parts in permuted]
