"""Counts on the command line: columns with the exposure or the trials of rows, and mixed models as rivals."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaln
from sklearn.base import BaseEstimator, RegressorMixin

from gleangp._typing import FloatArray
from gleangp.cli._mixed_model import fixed_part, varying_columns

_STEPS = 100  # of the search for the coefficients under one deviation of the tasks
_SMALL = 1e-8  # change of the log likelihood per row at which it has ended
_SLIGHT = 1e-3  # precision of the fixed coefficients, in units of the inputs' spread: they stay finite


class WithFields(RegressorMixin, BaseEstimator):
    """A regressor that finds "exposure" or "trials" in columns of X: `fields` has their names.

    Everything that is measured on folds of rows then has them too. What else the regressor has is found here.
    """

    def __init__(self, estimator: Any, fields: dict[str, str]) -> None:
        self.estimator = estimator
        self.fields = fields

    def fit(self, X: Any, y: Any, tasks: Any = None) -> WithFields:
        """Fit the regressor itself."""
        self.feature_names_in_ = np.asarray(X.columns, dtype=object)
        X, given = self._split(X)
        self.estimator.fit(X, y, tasks=tasks, **given)
        return self

    def predict(
        self, X: Any, tasks: Any = None, return_std: bool = False, include_noise: bool = False
    ) -> Any:
        """Predictions for the exposure or the trials of every row."""
        X, given = self._split(X)
        return self.estimator.predict(
            X, tasks=tasks, return_std=return_std, include_noise=include_noise, **given
        )

    def predict_interval(self, X: Any, coverage: float = 0.95, tasks: Any = None) -> FloatArray:
        """Intervals for the exposure or the trials of every row."""
        X, given = self._split(X)
        return self.estimator.predict_interval(X, coverage, tasks=tasks, **given)

    def predict_cdf(self, X: Any, y: Any, tasks: Any = None) -> FloatArray:
        """Probability of at most y, for the exposure or the trials of every row."""
        X, given = self._split(X)
        return self.estimator.predict_cdf(X, y, tasks=tasks, **given)

    def _split(self, X: Any) -> tuple[Any, dict[str, FloatArray]]:
        given = {field: X[column].to_numpy() for field, column in self.fields.items()}
        return X.drop(columns=list(self.fields.values())), given

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("estimator", "fields"):
            raise AttributeError(name)
        return getattr(self.estimator, name)


class CountMixedModel(BaseEstimator):
    """Poisson or negative-binomial regression with a random intercept of every task.

    log mean = log exposure + B(x) beta + u_t, u_t ~ N(0, s^2), with the splines of the linear mixed model.
    The deviation s and the dispersion maximise Laplace's approximation of the likelihood.

    Parameters
    ----------
    dispersed : bool, default=False
        Negative binomial rather than Poisson.
    exposure : bool, default=False
        Whether the last column of X is the exposure.
    n_knots : int, default=5
        Of the spline of a column; below 3 it stays linear.
    """

    def __init__(self, dispersed: bool = False, exposure: bool = False, n_knots: int = 5) -> None:
        self.dispersed = dispersed
        self.exposure = exposure
        self.n_knots = n_knots

    def fit(self, X: Any, y: Any, tasks: Any = None) -> CountMixedModel:
        """Learn the deviation of the tasks and the dispersion, then all coefficients."""
        X, offset = self._split(X)
        tasks = np.zeros(len(X)) if tasks is None else tasks
        self.tasks_, codes = np.unique(tasks, return_inverse=True)
        y = np.asarray(y, dtype=float)
        spread = X.std(axis=0)
        self.center_, self.scale_ = X.mean(axis=0), np.where(spread > 0, spread, 1.0)
        scaled = (X - self.center_) / self.scale_
        varying = varying_columns(scaled, np.log1p(y), codes, len(self.tasks_))
        self.knots_, B = fixed_part(scaled, varying, self.n_knots)
        rate = np.log((y.sum() + 0.5) / np.exp(offset).sum())
        state = [np.concatenate([[rate], np.zeros(B.shape[1] - 1)]), np.zeros(len(self.tasks_))]

        def deviance(theta: FloatArray) -> float:
            dispersion = float(np.exp(theta[1])) if self.dispersed else 0.0
            value, *state[:] = _mode(B, codes, y, offset, float(np.exp(theta[0])), dispersion, *state)
            return value

        n_parameters = 2 if self.dispersed else 1
        start = np.log([0.5, 0.3])[:n_parameters]
        found = minimize(deviance, start, method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-3})
        deviance(found.x)
        self.coef_, self.task_coef_ = state
        self.deviation_ = float(np.exp(found.x[0]))
        self.dispersion_ = float(np.exp(found.x[1])) if self.dispersed else 0.0
        return self

    def predict(self, X: Any, tasks: Any = None) -> FloatArray:
        """Mean of every row; a task that was not seen has the intercept of all."""
        X, offset = self._split(X)
        tasks = np.zeros(len(X)) if tasks is None else np.asarray(tasks)
        at = np.minimum(np.searchsorted(self.tasks_, tasks), len(self.tasks_) - 1)
        own = np.where(self.tasks_[at] == tasks, self.task_coef_[at], 0.0)
        B = fixed_part((X - self.center_) / self.scale_, knots=self.knots_)[1]
        return np.exp(np.minimum(B @ self.coef_ + own + offset, 50.0))

    def _split(self, X: Any) -> tuple[FloatArray, FloatArray]:
        return (X[:, :-1], np.log(X[:, -1])) if self.exposure else (X, np.zeros(len(X)))


def _mode(
    B: FloatArray,
    codes: np.ndarray,
    y: FloatArray,
    offset: FloatArray,
    deviation: float,
    dispersion: float,
    beta: FloatArray,
    u: FloatArray,
) -> tuple[float, FloatArray, FloatArray]:
    """Deviance (-2 log likelihood by Laplace), and the coefficients of all rows and of tasks (Newton)."""
    n_tasks, prior = len(u), 1.0 / deviation**2

    def objective(beta: FloatArray, u: FloatArray) -> tuple[float, FloatArray, FloatArray, Any]:
        value, slope, weight = _log_likelihood(y, B @ beta + u[codes] + offset, dispersion)
        value -= 0.5 * prior * float(u @ u) + 0.5 * _SLIGHT * float(beta[1:] @ beta[1:])
        return value, slope, weight, np.bincount(codes, weight, n_tasks) + prior

    value, slope, weight, own = objective(beta, u)
    ridge = _SLIGHT * np.eye(len(beta))
    ridge[0, 0] = 0.0
    for _ in range(_STEPS):
        cross = np.zeros((n_tasks, len(beta)))
        np.add.at(cross, codes, weight[:, None] * B)
        toward = np.bincount(codes, slope, n_tasks) - prior * u
        schur = B.T @ (weight[:, None] * B) + ridge - cross.T @ (cross / own[:, None])
        step = np.linalg.solve(schur, B.T @ slope - ridge @ beta - cross.T @ (toward / own))
        own_step = (toward - cross @ step) / own
        size = 1.0
        found = objective(beta + step, u + own_step)
        while not found[0] > value - 1e-10 and size > 1e-4:
            size *= 0.5
            found = objective(beta + size * step, u + size * own_step)
        if not found[0] > value:
            break
        gain = found[0] - value
        beta, u = beta + size * step, u + size * own_step
        value, slope, weight, own = found
        if gain < _SMALL * len(y):
            break
    return -2.0 * value + float(np.log(own / prior).sum()), beta, u


def _log_likelihood(
    y: FloatArray, log_mean: FloatArray, dispersion: float
) -> tuple[float, FloatArray, FloatArray]:
    """Sum over rows, slope in the log mean, and minus the second derivative."""
    log_mean = np.clip(log_mean, -50.0, 50.0)
    mean = np.exp(log_mean)
    if dispersion < 1e-6:
        return float(np.sum(y * log_mean - mean - gammaln(y + 1.0))), y - mean, np.maximum(mean, 1e-12)
    r = 1.0 / dispersion
    share = mean / (mean + r)
    value = gammaln(y + r) - gammaln(r) - gammaln(y + 1.0) + y * np.log(share) + r * np.log1p(-share)
    return float(value.sum()), y - (y + r) * share, np.maximum((y + r) * share * (1.0 - share), 1e-12)


def looks_like_counts(y: np.ndarray) -> bool:
    """Whether numbers are whole, begin at 0, and are few."""
    if y.dtype.kind != "f":
        return False
    y = y[~np.isnan(y)]
    values = np.unique(y)
    return bool(values[0] == 0.0 and 3 <= len(values) <= len(y) / 2 and (values == np.round(values)).all())
