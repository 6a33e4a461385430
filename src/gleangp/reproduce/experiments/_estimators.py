"""Methods that are estimators: made, fitted to the rows of a split, measured on the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from gleangp.reproduce.experiment import Context, Method, Outcome


@dataclass(frozen=True)
class Split:
    """Training and test rows; tasks are None for a single task."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    tasks: np.ndarray | None = None
    tasks_test: np.ndarray | None = None


Measure = Callable[[Split, np.ndarray, np.ndarray | None], dict[str, float]]


def estimator_method(
    name: str, make: Callable[[], Any], measure: Measure, *, role: str = "other", pooled: bool = False
) -> Method:
    """A method that fits what `make` gives; `pooled` keeps the tasks from it. The coupling taken is kept."""

    def run(split: Split, context: Context) -> Outcome:
        with_tasks = split.tasks is not None and not pooled
        fitting = {"tasks": split.tasks} if with_tasks else {}
        predicting = {"tasks": split.tasks_test} if with_tasks else {}
        model = make().fit(split.X, split.y, **fitting)
        prediction = model.predict(split.X_test, **predicting)
        probability = None
        if hasattr(model, "predict_proba"):
            probability = model.predict_proba(split.X_test, **predicting)
        shown = {"coupling": str(model.coupling_)} if hasattr(model, "coupling_") else {}
        return Outcome(measure(split, prediction, probability), shown)

    return Method(name, run, role, " ".join(repr(make()).split()))


def task_auc(split: Split, score: np.ndarray) -> float:
    """Area under the curve, averaged over the tasks whose test rows have both classes."""
    positive = split.y_test == np.max(split.y_test)
    tasks = np.zeros(len(score)) if split.tasks_test is None else split.tasks_test
    both = [
        roc_auc_score(positive[tasks == t], score[tasks == t])
        for t in np.unique(tasks)
        if 0 < positive[tasks == t].sum() < np.sum(tasks == t)
    ]
    return float(np.mean(both))


class PerTask:
    """One model for each task, on its own."""

    def __init__(self, make: Callable[[], Any]):
        self.make = make

    def __repr__(self) -> str:
        return f"one for each task: {self.make()!r}"

    def fit(self, X: np.ndarray, y: np.ndarray, tasks: np.ndarray) -> PerTask:
        """Fit each task's rows."""
        self.models = {t: self.make().fit(X[tasks == t], y[tasks == t]) for t in np.unique(tasks)}
        if all(hasattr(m, "predict_proba") for m in self.models.values()):
            self.predict_proba = lambda X, tasks: self._gather("predict_proba", X, tasks)
        return self

    def predict(self, X: np.ndarray, tasks: np.ndarray) -> np.ndarray:
        """Predict each task's rows."""
        return self._gather("predict", X, tasks)

    def _gather(self, method: str, X: np.ndarray, tasks: np.ndarray) -> np.ndarray:
        parts = {t: getattr(m, method)(X[tasks == t]) for t, m in self.models.items()}
        first = next(iter(parts.values()))
        out = np.empty((len(X), *first.shape[1:]), first.dtype)
        for t, part in parts.items():
            out[tasks == t] = part
        return out
