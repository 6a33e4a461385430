"""What the experiments on coupled tasks share: our couplings, and the strong simple methods beside them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV

from gleangp.reproduce.experiment import Experiment, Method
from gleangp.reproduce.experiments._estimators import Measure, Split, estimator_method, task_auc
from gleangp.reproduce.figures import draw_curves, new_figure
from gleangp.reproduce.runner import Results

BOOSTING = HistGradientBoostingRegressor(random_state=0, learning_rate=0.05, min_samples_leaf=10)
_ALPHAS = np.logspace(-2, 4, 25)
_FEWEST = 3  # labels for a model of a task alone


def explained_variance(split: Split, prediction: np.ndarray, probability: Any = None) -> dict[str, float]:
    """One minus the mean squared error over all test rows in units of their variance."""
    error = np.mean((prediction - split.y_test) ** 2)
    return {"explained variance": float(1.0 - error / np.var(split.y_test))}


def mean_auc(split: Split, prediction: np.ndarray, probability: Any) -> dict[str, float]:
    """Area under the curve of every task, averaged; tasks whose test rows are of one class do not count."""
    return {"AUC": task_auc(split, probability[:, 1])}


def couplings(estimator: type, measure: Measure, **named: Any) -> tuple[Method, ...]:
    """Our default, then the estimator with each of the couplings, by name."""

    def method(name: str, coupling: Any, role: str = "other") -> Method:
        return estimator_method(
            name, lambda: estimator(coupling=coupling, random_state=0), measure, role=role
        )

    return method("default", "auto", "default"), *(method(name, c) for name, c in named.items())


def boosting(name: str, model: Any, measure: Measure) -> Method:
    """Gradient boosting of all rows, with the number of the task as an input."""
    return estimator_method(name, lambda: WithTask(clone(model), indicators=False), measure)


def plain_gps(estimator: type, measure: Measure, task: str = "task") -> tuple[Method, ...]:
    """Our estimator without coupling: all rows with indicators of the tasks, and one model for each task."""

    def make() -> Any:
        return estimator(random_state=0)

    pooled = estimator_method(
        "GP, rows pooled + indicators", lambda: WithTask(make(), indicators=True), measure
    )
    return pooled, estimator_method(f"GP per {task}", lambda: Alone(make), measure)


class WithTask:
    """A model of all rows that has the task as an input: one number, or an indicator for each task."""

    def __init__(self, model: Any, *, indicators: bool):
        self.model, self.indicators = model, indicators

    def __repr__(self) -> str:
        return f"{self.model!r} with the task as {'indicators' if self.indicators else 'a number'}"

    def fit(self, X: np.ndarray, y: np.ndarray, tasks: np.ndarray) -> WithTask:
        """Fit to all rows."""
        self.names = np.unique(tasks)
        self.model.fit(self._inputs(X, tasks), y)
        if hasattr(self.model, "predict_proba"):
            self.predict_proba = lambda X, tasks: self.model.predict_proba(self._inputs(X, tasks))
        return self

    def predict(self, X: np.ndarray, tasks: np.ndarray) -> np.ndarray:
        """Predict rows of known tasks."""
        return self.model.predict(self._inputs(X, tasks))

    def _inputs(self, X: np.ndarray, tasks: np.ndarray) -> np.ndarray:
        if self.indicators:
            return np.hstack([X, tasks[:, None] == self.names])
        return np.column_stack([X, np.searchsorted(self.names, tasks)])


class Alone:
    """One model for each task with labels enough; the others are predicted by the mean of all targets."""

    def __init__(self, make: Callable[[], Any]):
        self.make = make

    def __repr__(self) -> str:
        return f"one for each task: {self.make()!r}"

    def fit(self, X: np.ndarray, y: np.ndarray, tasks: np.ndarray) -> Alone:
        """Fit each task's rows."""
        self.mean, self.models = float(np.mean(y)), {}
        for t in np.unique(tasks):
            own = y[tasks == t]
            if len(own) >= _FEWEST and len(np.unique(own)) > 1:
                self.models[t] = self.make().fit(X[tasks == t], own)
        if hasattr(self.make(), "predict_proba"):
            self.predict_proba = self._proba
        return self

    def predict(self, X: np.ndarray, tasks: np.ndarray) -> np.ndarray:
        """Predict each task's rows."""
        out = np.full(len(X), self.mean)
        for t, model in self.models.items():
            if (tasks == t).any():
                out[tasks == t] = model.predict(X[tasks == t])
        return out

    def _proba(self, X: np.ndarray, tasks: np.ndarray) -> np.ndarray:
        out = np.full((len(X), 2), [1.0 - self.mean, self.mean])
        for t, model in self.models.items():
            if (tasks == t).any():
                out[tasks == t] = model.predict_proba(X[tasks == t])
        return out


class MixedModel:
    """A linear mixed model with an offset for each task (statsmodels)."""

    def __repr__(self) -> str:
        return "linear mixed model, random offsets"

    def fit(self, X: np.ndarray, y: np.ndarray, tasks: np.ndarray) -> MixedModel:
        """Fit by restricted maximum likelihood."""
        from statsmodels.regression.mixed_linear_model import MixedLM

        # Indicators of categories are linearly dependent: fixed effects are those of the leading directions.
        self.center = X.mean(axis=0)
        _, size, directions = np.linalg.svd(X - self.center, full_matrices=False)
        self.directions = directions[size > 1e-8 * size[0]].T
        fit = MixedLM(y, self._design(X), groups=tasks).fit()
        self.effects = np.asarray(fit.fe_params)
        self.offsets = {t: float(np.asarray(e)[0]) for t, e in fit.random_effects.items()}
        return self

    def predict(self, X: np.ndarray, tasks: np.ndarray) -> np.ndarray:
        """Predict rows; a task without labels has no offset."""
        return self._design(X) @ self.effects + np.array([self.offsets.get(t, 0.0) for t in tasks])

    def _design(self, X: np.ndarray) -> np.ndarray:
        return np.column_stack([np.ones(len(X)), (X - self.center) @ self.directions])


def make_ridge() -> RidgeCV:
    """Ridge regression, its penalty by leave-one-out."""
    return RidgeCV(_ALPHAS)


def mixed_model(measure: Any) -> tuple[Method, ...]:
    """The mixed model, where statsmodels is installed."""
    if find_spec("statsmodels") is None:
        return ()
    return (estimator_method("linear mixed model", MixedModel, measure),)


def draw_by_labels(experiment_settings: tuple[str, ...], column: str, label: str) -> Any:
    """A drawing function: the measure of every method against what varies down the table."""

    def draw(results: Results) -> dict[str, Any]:
        experiment: Experiment = results.experiment
        figure, (ax,) = new_figure(width=7.0, height=4.4)
        names = [m.name for m in experiment.methods]
        places = list(range(len(experiment_settings)))
        draw_curves(ax, results, names, column, experiment_settings, places)
        ax.set_xticks(places, experiment_settings)
        ax.set_xlabel(label)
        ax.set_ylabel(column)
        ax.legend(fontsize=7, loc="best")
        return {"by-labels": figure}

    return draw
