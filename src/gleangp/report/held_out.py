"""Rows that a model had not seen, and its predictions of them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import numpy as np
from scipy.special import xlogy
from sklearn.base import clone, is_classifier

from gleangp._typing import FloatArray, IntArray
from gleangp.plots.calibration import scores_of_noise
from gleangp.report.inputs import Inputs

_SMALLEST_MEAN = 1e-3  # of a count: predictions below zero are as small
SMALL = 2000  # rows up to which every row is held out once


@dataclass(frozen=True, eq=False)
class HeldOutRows:
    """Predictions of rows by models that had not seen them.

    A model of a fold was fitted to all rows that are not in the fold.
    """

    rows: IntArray  # (m,) positions in the table
    fold: IntArray  # (m,) fold of each of them
    predicted: np.ndarray  # (m,)
    spread: FloatArray | None  # (m,) standard deviation of a new target, or (m, c) class probabilities
    error: float  # root mean square, mean deviance of counts, or share of wrong labels
    std_error: float  # of it (nan for one row)
    models: dict[int, Any]  # fold -> its model, where it was kept


@dataclass(frozen=True, eq=False)
class Score(HeldOutRows):
    """What the error is made of."""

    loss: FloatArray  # (m,) of every row, see `losses`
    measure: str  # "labels", "counts" or "numbers"
    seconds: float = 0.0  # of fitting

    def behind(self, other: Score) -> tuple[float, float]:
        """How much larger the error is than another's on the same rows, and the paired standard error."""
        return increase(other.loss, self.loss, self.measure)

    def by(self, measure: str, y: np.ndarray) -> Score:
        """The score of the same predictions by another measure; y (m,) are their targets."""
        loss = losses(y, self.predicted, measure)
        error = error_of(loss, measure)
        spread = _spread_of_mean(_influence(loss, error, measure))
        return replace(self, error=error, std_error=spread, loss=loss, measure=measure)


def measure_of(model: Any) -> str:
    """What errors of a model are: "labels", "counts" or "numbers"."""
    if is_classifier(model):
        return "labels"
    return "counts" if getattr(model, "noise", None) in ("poisson", "negative_binomial") else "numbers"


def losses(y: np.ndarray, predicted: np.ndarray, measure: str) -> FloatArray:
    """Squared error, Poisson deviance, or 1 for a wrong label, of every row."""
    if measure == "labels":
        return (np.asarray(y) != np.asarray(predicted)).astype(float)
    y, predicted = np.asarray(y, dtype=float), np.asarray(predicted, dtype=float)
    if measure == "numbers":
        return (y - predicted) ** 2
    mean = np.maximum(predicted, _SMALLEST_MEAN)
    return 2.0 * (xlogy(y, y / mean) - (y - mean))


def log_losses(model: Any, X: Any, y: np.ndarray, given: dict[str, Any]) -> FloatArray:
    """Minus the log probability of every label."""
    p = model.predict_proba(X, **given)
    of_label = np.sum(p * (np.asarray(y)[:, None] == model.classes_), axis=1)  # none of a class not seen
    return -np.log(np.maximum(of_label, 1e-12))


def error_of(loss: FloatArray, measure: str) -> float:
    """Root mean square, mean deviance, or share of wrong labels; nan of no rows."""
    if len(loss) == 0:
        return float("nan")
    return float(np.sqrt(np.mean(loss)) if measure == "numbers" else np.mean(loss))


def increase(loss: FloatArray, other: FloatArray, measure: str) -> tuple[float, float]:
    """By how much the error of `other` is larger, and its standard error from the paired rows."""
    errors = [error_of(each, measure) for each in (loss, other)]
    ours, theirs = (_influence(*pair, measure) for pair in zip((loss, other), errors, strict=True))
    return errors[1] - errors[0], _spread_of_mean(theirs - ours)


def _influence(loss: FloatArray, error: float, measure: str) -> FloatArray:
    """What every row contributes to the deviation of the error from its mean, to first order (m,)."""
    centred = loss - np.mean(loss)
    return centred / (2.0 * error) if measure == "numbers" and error > 0.0 else centred


def _spread_of_mean(values: FloatArray) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def normal_scores(
    held: HeldOutRows, inputs: Inputs, y: np.ndarray, tasks: np.ndarray | None
) -> FloatArray | None:
    """Standard deviations (m,) from the prediction; with other than Gaussian noise, `scores_of_noise`."""
    if held.spread is None:
        return None
    truth = np.asarray(y[held.rows], dtype=float)
    scores, rng = (truth - held.predicted) / held.spread, np.random.default_rng(0)
    for number, model in held.models.items():
        if getattr(model, "noise", "gaussian") == "gaussian":
            continue
        part = held.fold == number
        rows = held.rows[part]
        at, given = inputs.given(model, inputs.cells[rows]), at_rows(tasks, rows)
        scores[part] = scores_of_noise(model, at, truth[part], given, rng)
    return scores


def spread_of(model: Any, X: Any, given: dict[str, Any]) -> FloatArray | None:
    """Standard deviation of new targets, or class probabilities; None where a model has neither."""
    if hasattr(model, "predict_proba"):
        return model.predict_proba(X, **given)
    known = signature(model.predict).parameters
    if "return_std" not in known:
        return None
    return model.predict(
        X, return_std=True, **({"include_noise": True} if "include_noise" in known else {}), **given
    )[1]


def at_rows(tasks: np.ndarray | None, rows: Any) -> dict[str, Any]:
    """The argument `tasks` for some rows."""
    return {} if tasks is None else {"tasks": tasks[rows]}


def task_folds(tasks: np.ndarray | None, n_rows: int, n_folds: int, rng: np.random.Generator) -> IntArray:
    """Fold of every row (n,), dealt out task by task; a task's only row is never held out (-1)."""
    codes = np.zeros(n_rows, dtype=np.intp) if tasks is None else np.unique(tasks, return_inverse=True)[1]
    fold = np.empty(n_rows, dtype=np.intp)
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.cumsum(np.bincount(codes))[:-1]):
        start = rng.integers(n_folds)
        dealt = (np.arange(len(rows)) + start) % n_folds if len(rows) > 1 else -1
        fold[rng.permutation(rows)] = dealt
    return fold


def choose_folds(
    labeled: np.ndarray, tasks: np.ndarray | None, n_folds: int | None = None, seed: int = 0
) -> tuple[IntArray, int]:
    """Fold of every row (n,), and how many of the folds are held out; rows without a target are in none (-1).

    By default there are five folds, of which large tables hold out one.
    """
    at = np.flatnonzero(labeled)
    fold = np.full(len(labeled), -1)
    of_row = None if tasks is None else tasks[at]
    fold[at] = task_folds(of_row, len(at), n_folds or 5, np.random.default_rng(seed))
    return fold, n_folds or (5 if len(at) <= SMALL else 1)


def predict_folds(
    fold: IntArray,
    n_used: int,
    fit: Callable[[int, IntArray], Any],
    given: Callable[[Any, IntArray], tuple[Any, dict[str, Any]]],
    y: np.ndarray,
    measure: str,
    *,
    keep: bool = True,
) -> Score | None:
    """Fit and predict the first `n_used` folds in turn; None if there is no prediction.

    `fit` has the number of the fold and the rows to learn from. Where it returns None, nothing is held out.
    `given` returns the inputs of some rows for a model, and what else its `predict` is given. `keep` keeps
    the model and the uncertainty of every fold.
    """
    rows, folds, parts, spread, models, seconds = [], [], [], [], {}, 0.0
    for number in range(n_used):
        test = np.flatnonzero(fold == number)
        if len(test) == 0:
            continue
        start = time.perf_counter()
        model = fit(number, np.flatnonzero(fold != number))
        seconds += time.perf_counter() - start
        if model is None:
            continue
        with quiet():
            X, more = given(model, test)
            parts.append(model.predict(X, **more))
            spread.append(spread_of(model, X, more) if keep else None)
        rows.append(test)
        folds.append(np.full(len(test), number))
        if keep:
            models[number] = model
    if not rows:
        return None
    joined, predicted = np.concatenate(rows), np.concatenate(parts)
    both = joined, np.concatenate(folds)
    score = Score(
        *both, predicted, _join_spread(spread), np.nan, np.nan, models, np.zeros(0), measure, seconds
    )
    return score.by(measure, y[joined])


def twin_of(model: Any, y: np.ndarray) -> Any:
    """A model with the same parameters, to learn from some of the rows; None if they have too few classes.

    Ordered categories that no row has are left out: their cut-points cannot be learnt.
    """
    twin, categories = clone(model), getattr(model, "categories", None)
    if categories is not None:
        seen = [category for category in categories if np.any(y == category)]
        return twin.set_params(categories=seen) if len(seen) > 2 else None
    return None if is_classifier(model) and len(np.unique(y)) < 2 else twin


def hold_out(
    model: Any, inputs: Inputs, y: np.ndarray, tasks: np.ndarray | None, labeled: np.ndarray, *, seed: int = 0
) -> HeldOutRows:
    """Five folds within every task (above 2000 rows one of them), the model fitted anew for each."""
    measure = measure_of(model)
    fold, n_used = choose_folds(labeled, tasks, seed=seed)

    def fit(_: int, train: IntArray) -> Any:
        twin = twin_of(model, y[train][labeled[train]])
        if twin is None:
            return None
        twin.set_params(verbose=0).set_callbacks()
        with quiet():
            return twin.fit(inputs.to_fit(train), y[train], **at_rows(tasks, train))

    found = predict_folds(
        fold,
        n_used,
        fit,
        lambda twin, test: (inputs.given(twin, inputs.cells[test]), at_rows(tasks, test)),
        y,
        measure,
    )
    none = np.zeros(0, dtype=int)
    return found or HeldOutRows(none, none, y[:0], None, np.nan, np.nan, {})


def _join_spread(parts: list[Any]) -> FloatArray | None:
    """Of all folds; None where a fold has none, or not the same classes."""
    if not parts or any(p is None for p in parts) or len({p.shape[1:] for p in parts}) > 1:
        return None
    return np.concatenate(parts)


@contextmanager
def quiet() -> Iterator[None]:
    """Warnings on the optimiser, on categories that a fold did not see, and on n_active, are not shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield
