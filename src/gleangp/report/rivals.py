"""Simpler models on the rows that a model was measured on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier

from gleangp import SparseGPClassifier, SparseGPOrdinal, SparseGPRegressor
from gleangp._typing import FloatArray, IntArray
from gleangp.report.held_out import HeldOutRows, at_rows, error_of, increase, losses, measure_of, quiet
from gleangp.report.inputs import Inputs, known_columns, without_empty

_MOST_OWN_MODELS = 20  # tasks for which a model of their own is fitted
_MOST_POOLED_ROWS = 2000  # from which the model without tasks learns, drawn at random


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


class TaskAverage(BaseEstimator):
    """The mean of the task (numbers) or its most frequent class; that of all rows for an unknown task."""

    def __init__(self, classify: bool = False) -> None:
        self.classify = classify

    def fit(self, X: Any, y: Any, tasks: Any = None) -> TaskAverage:
        """Average every task."""
        codes = np.zeros(len(X)) if tasks is None else np.asarray(tasks)
        self.average_ = average(y, self.classify)
        self.averages_ = {t: average(y[codes == t], self.classify) for t in np.unique(codes)}
        return self

    def predict(self, X: Any, tasks: Any = None) -> Any:
        """The average of every row's task."""
        codes = np.zeros(len(X)) if tasks is None else np.asarray(tasks)
        return np.array([self.averages_.get(t, self.average_) for t in codes])


class Pooled(BaseEstimator):
    """One model of all rows, or of some drawn at random, that does not know of tasks."""

    def __init__(self, estimator: Any, most_rows: int | None = None) -> None:
        self.estimator = estimator
        self.most_rows = most_rows

    def fit(self, X: Any, y: Any, tasks: Any = None) -> Pooled:
        """Fit without the tasks."""
        if self.most_rows is not None and len(y) > self.most_rows:
            drawn = np.zeros(len(y), dtype=bool)
            drawn[np.random.default_rng(0).permutation(len(y))[: self.most_rows]] = True
            X, y = X[drawn], y[drawn]
        self.estimator_ = clone(self.estimator).fit(X, y)
        return self

    def predict(self, X: Any, tasks: Any = None) -> Any:
        """Predict without the tasks."""
        return self.estimator_.predict(known_columns(self.estimator_, X))


class PerTask(BaseEstimator):
    """A model for each task, which sees nothing of the others; an average where it cannot learn."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: Any, tasks: Any = None) -> PerTask:
        """Fit one clone for each task."""
        codes = np.zeros(len(X)) if tasks is None else np.asarray(tasks)
        self.models_ = {}
        for task in np.unique(codes):
            rows = codes == task
            known = without_empty(X[rows])
            model: Any = TaskAverage(is_classifier(self.estimator))
            if known.shape[1] and len(np.unique(y[rows])) > 1:
                model = clone(self.estimator)
            self.models_[task] = model.fit(known, y[rows])
        return self

    def predict(self, X: Any, tasks: Any = None) -> Any:
        """Predict every row by its task's model."""
        codes = np.zeros(len(X)) if tasks is None else np.asarray(tasks)
        parts = np.empty(len(X), dtype=object)
        for task in np.unique(codes):
            rows, model = codes == task, self.models_[task]
            parts[rows] = model.predict(known_columns(model, X[rows]))
        return np.array(parts.tolist())


def rivals(
    model: Any,
    inputs: Inputs,
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
    names = np.zeros(len(y), dtype=int) if tasks is None else tasks
    unique = np.unique(names)
    every, own = np.ones(len(y), dtype=bool), np.isin(names, unique[:_MOST_OWN_MODELS])
    average_of = ("most frequent class" if classify else "mean") + (" of the task" if len(unique) > 1 else "")
    fitted: dict[str, tuple[Any, np.ndarray]] = {average_of: (TaskAverage(classify), every)}
    alone = "one model for each task alone"
    if len(unique) > 1:
        fitted["same kind of model, tasks ignored"] = (Pooled(_fresh(model), _MOST_POOLED_ROWS), every)
        fitted[alone] = (PerTask(_fresh(model)), own)
    found = {name: np.full(len(ours), np.nan) for name in (*fitted, alone)}
    for train, part in _parts(held, labeled):
        for name, (rival, whose) in fitted.items():
            rows = train[whose[train]]
            at = np.flatnonzero(part)[whose[held.rows[part]] & np.isin(names[held.rows[part]], names[rows])]
            if len(at) == 0:
                continue
            with quiet():
                one = clone(rival).fit(inputs.to_fit(rows), y[rows], **at_rows(tasks, rows))
                X = inputs.given(one, inputs.cells[held.rows[at]])
                predicted = one.predict(X, **at_rows(tasks, held.rows[at]))
            found[name][at] = losses(truth[at], predicted, measure)
    out = []
    given = {name: losses(truth, predicted, measure) for name, predicted in simpler.items()}
    for name, theirs in {**found, **given}.items():
        kept = np.isfinite(theirs)
        if kept.any():
            _, se = increase(ours[kept], theirs[kept], measure)
            errors = error_of(theirs[kept], measure), error_of(ours[kept], measure)
            out.append(Rival(name, int(kept.sum()), *errors, se))
    return out, found[alone]


def _parts(held: HeldOutRows, labeled: np.ndarray) -> Iterator[tuple[IntArray, np.ndarray]]:
    """Labelled rows outside a fold, and the mask (m,) of those in it."""
    for number in np.unique(held.fold):
        part = held.fold == number
        outside = labeled.copy()
        outside[held.rows[part]] = False
        yield np.flatnonzero(outside), part


def _fresh(model: Any) -> Any:
    """The model for its kind of target with its defaults, as a baseline."""
    if isinstance(model, SparseGPOrdinal):
        return SparseGPOrdinal(random_state=0)
    if getattr(model, "noise", "gaussian") not in ("gaussian", "probit"):
        return clone(model)
    return (SparseGPClassifier if is_classifier(model) else SparseGPRegressor)(random_state=0)


def average(y: np.ndarray, classify: bool) -> Any:
    """The mean, or the most frequent class."""
    if not classify:
        return float(np.mean(y))
    labels, counts = np.unique(y, return_counts=True)
    return labels[np.argmax(counts)]
