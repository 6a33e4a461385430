"""Rows that a model had not seen: its predictions of them, and those of simpler models, on the same folds."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from scipy.special import ndtri, xlogy
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning

from gleangp import SparseGPClassifier, SparseGPOrdinal, SparseGPRegressor
from gleangp._typing import FloatArray, IntArray
from gleangp.model_selection import TaskKFold

_SMALLEST_MEAN = 1e-3  # of a count: predictions below zero are as small
_SMALL = 2000  # rows up to which every row is held out once
_MOST_OWN_MODELS = 20  # tasks for which a model of their own is fitted
_MOST_POOLED_ROWS = 2000  # from which the model without tasks learns, drawn at random


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
    std_error: float  # of it, over folds (nan for one)
    models: dict[int, Any]  # fold -> its model, where it was kept


@dataclass(frozen=True, eq=False)
class Rival:
    """A simpler model on the same held-out rows."""

    name: str
    rows: int  # on which both were compared
    error: float
    ours: float  # error of the model on these rows
    std_error: float  # of `error - ours`, from paired differences

    @property
    def is_better(self) -> bool:
        """Whether it is better than the model, beyond two standard errors."""
        return self.error - self.ours < -2 * self.std_error

    @property
    def is_worse(self) -> bool:
        """Whether it is worse than the model, beyond two standard errors."""
        return self.error - self.ours > 2 * self.std_error


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


def log_losses(model: Any, X: FloatArray, y: np.ndarray, given: dict[str, Any]) -> FloatArray:
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
    """By how much the error of `other` is larger, and its standard error from the paired differences."""
    ours, theirs = error_of(loss, measure), error_of(other, measure)
    d = other - loss
    se = float(np.std(d, ddof=1) / np.sqrt(len(d))) if len(d) > 1 else float("nan")
    # a² - b² = (a - b)(a + b): from mean squares to root mean squares.
    return theirs - ours, se if measure != "numbers" or ours + theirs == 0 else se / (ours + theirs)


def normal_scores(
    held: HeldOutRows, X: FloatArray, y: np.ndarray, tasks: np.ndarray | None
) -> FloatArray | None:
    """Standard deviations (m,) from the prediction; for counts, normal scores of their probabilities.

    The probability of a count is taken in its middle: half of its own is below it.
    """
    if held.spread is None:
        return None
    truth = np.asarray(y[held.rows], dtype=float)
    scores = (truth - held.predicted) / held.spread
    for number, model in held.models.items():
        if getattr(model, "noise", "gaussian") == "gaussian":
            continue
        part = held.fold == number
        at, given = X[held.rows[part]], at_rows(tasks, held.rows[part])
        probability = model.predict_cdf(at, truth[part], **given)
        if model.noise_.support == "count":
            below = model.predict_cdf(at, truth[part] - 1.0, **given)
            probability = 0.5 * (probability + np.where(truth[part] > 0.0, below, 0.0))
        scores[part] = ndtri(np.clip(probability, 1e-12, 1.0 - 1e-12))
    return scores


def spread_of(model: Any, X: FloatArray, given: dict[str, Any]) -> FloatArray | None:
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


def hold_out(
    model: Any, X: FloatArray, y: np.ndarray, tasks: np.ndarray | None, labeled: np.ndarray, *, seed: int = 0
) -> HeldOutRows:
    """Five folds within every task (above 2000 rows one of them), the model fitted anew for each."""
    at = np.flatnonzero(labeled)
    groups = np.zeros(len(at), dtype=int) if tasks is None else tasks[at]
    splitter = TaskKFold(min(5, len(at)), shuffle=True, random_state=seed)
    classify, measure = is_classifier(model), measure_of(model)
    rows, folds, predicted, spread, models = [], [], [], [], {}
    for number, (_, test) in enumerate(splitter.split(groups, groups=groups)):
        test = at[test]
        if tasks is not None:  # a task's only row stays to learn from
            others = np.isin(tasks[test], np.delete(tasks, test)[np.delete(labeled, test)])
            test = test[others]
        train = np.delete(np.arange(len(X)), test)
        if len(test) == 0 or (classify and len(np.unique(y[train][labeled[train]])) < 2):
            continue
        twin = clone(model).set_params(verbose=0)
        twin.set_callbacks()
        fit_quietly(twin, X[train], y[train], at_rows(tasks, train))
        rows.append(test)
        folds.append(np.full(len(test), number))
        predicted.append(twin.predict(X[test], **at_rows(tasks, test)))
        spread.append(spread_of(twin, X[test], at_rows(tasks, test)))
        models[number] = twin
        if len(at) > _SMALL:
            break
    if not rows:
        return HeldOutRows(np.zeros(0, int), np.zeros(0, int), y[:0], None, np.nan, np.nan, {})
    errors = [error_of(losses(y[r], p, measure), measure) for r, p in zip(rows, predicted, strict=True)]
    joined, values = np.concatenate(rows), np.concatenate(predicted)
    return HeldOutRows(
        joined,
        np.concatenate(folds),
        values,
        join_spread(spread),
        error_of(losses(y[joined], values, measure), measure),
        float(np.std(errors, ddof=1) / np.sqrt(len(errors))) if len(errors) > 1 else float("nan"),
        models,
    )


def join_spread(parts: list[Any]) -> FloatArray | None:
    """Of all folds; None where a fold has none, or not the same classes."""
    if not parts or any(p is None for p in parts) or len({p.shape[1:] for p in parts}) > 1:
        return None
    return np.concatenate(parts)


def fit_quietly(model: Any, X: FloatArray, y: np.ndarray, given: dict[str, Any]) -> Any:
    """Fit; warnings on the optimiser and on the number of active points are not shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)  # n_active larger than four fifths of the rows
        return model.fit(X, y, **given)


def rivals(
    model: Any,
    X: FloatArray,
    y: np.ndarray,
    tasks: np.ndarray | None,
    labeled: np.ndarray,
    held: HeldOutRows,
    simpler: Mapping[str, np.ndarray],
) -> tuple[list[Rival], FloatArray]:
    """Average, model without tasks, models of single tasks, and those of which predictions are given.

    The second result are the errors (m,) of models of single tasks, or nan.
    """
    classify, measure = is_classifier(model), measure_of(model)
    truth = y[held.rows]
    ours = losses(truth, held.predicted, measure)
    average, pooled, alone = (np.full(len(held.rows), np.nan) for _ in range(3))
    names = np.zeros(len(X), dtype=int) if tasks is None else tasks
    own = set(np.unique(names).tolist()[:_MOST_OWN_MODELS]) if tasks is not None else set()
    for train, part in _parts(held, labeled):
        test = held.rows[part]
        for name, there, rows in _by_task(names, train, test):
            values = y[rows] if len(rows) else y[train]
            at = np.flatnonzero(part)[there]
            average[at] = losses(truth[at], np.full(len(at), _average(values, classify)), measure)
            if name in own and len(np.unique(values)) > 1:
                single = fit_quietly(_fresh(model), X[rows], y[rows], {})
                alone[at] = losses(truth[at], single.predict(X[test[there]]), measure)
        if tasks is not None and len(np.unique(names)) > 1:
            some = np.random.default_rng(0).permutation(train)[:_MOST_POOLED_ROWS]
            one = fit_quietly(_fresh(model), X[some], y[some], {})
            pooled[part] = losses(truth[part], one.predict(X[test]), measure)
    several = len(np.unique(names)) > 1
    of_task = " of the task" if several else ""
    found = {
        ("most frequent class" if classify else "mean") + of_task: average,
        "same kind of model, tasks ignored": pooled,
        "one model for each task alone": alone if several else np.full(len(ours), np.nan),
        **{name: losses(truth, predicted, measure) for name, predicted in simpler.items()},
    }
    out = []
    for name, theirs in found.items():
        kept = np.isfinite(theirs)
        if kept.any():
            _, se = increase(ours[kept], theirs[kept], measure)
            errors = error_of(theirs[kept], measure), error_of(ours[kept], measure)
            out.append(Rival(name, int(kept.sum()), *errors, se))
    return out, alone


def _parts(held: HeldOutRows, labeled: np.ndarray) -> Iterator[tuple[IntArray, np.ndarray]]:
    """Labelled rows outside a fold, and the mask (m,) of those in it."""
    for number in np.unique(held.fold):
        part = held.fold == number
        outside = labeled.copy()
        outside[held.rows[part]] = False
        yield np.flatnonzero(outside), part


def _by_task(
    names: np.ndarray, train: IntArray, test: IntArray
) -> Iterator[tuple[Any, np.ndarray, IntArray]]:
    """For every task of the test rows: its name, the mask of its test rows, its training rows."""
    for name in np.unique(names[test]):
        yield name.item() if hasattr(name, "item") else name, names[test] == name, train[names[train] == name]


def _fresh(model: Any) -> Any:
    """The model for its kind of target with its defaults, as a baseline."""
    if isinstance(model, SparseGPOrdinal):
        return SparseGPOrdinal(random_state=0)
    if getattr(model, "noise", "gaussian") not in ("gaussian", "probit"):
        return clone(model)
    return (SparseGPClassifier if is_classifier(model) else SparseGPRegressor)(random_state=0)


def _average(y: np.ndarray, classify: bool) -> Any:
    if not classify:
        return float(np.mean(y))
    labels, counts = np.unique(y, return_counts=True)
    return labels[np.argmax(counts)]
