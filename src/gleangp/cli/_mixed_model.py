"""A linear mixed model as a rival: splines for all tasks, an intercept and slopes of every task.

``y = B(x) beta + Z(x) u_t + e`` with ``u_t ~ N(0, D)``. B has a natural cubic spline of every numeric column
that varies within tasks, and the other columns as they are; Z has an intercept and some of the former.
``D = sigma^2 L L'`` is learnt by restricted maximum likelihood; fixed effects and sigma are profiled out
(Bates, Maechler, Bolker & Walker 2015, section 3.4).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from sklearn.base import BaseEstimator

from gleangp._typing import FloatArray

_MOST_SLOPES = 3  # a full covariance of intercept and slopes then has ten parameters at most
_ROWS_PER_COLUMN = 10  # of the fixed part, below which numeric columns stay linear
_LARGEST = 1e3  # deviation of a task's coefficient beside that of the noise
_SMALL = 1e-8  # relative: singular values that count as zero


class MixedModel(BaseEstimator):
    """Random intercept and slopes of every task around splines that all tasks share.

    Parameters
    ----------
    n_knots : int, default=5
        Of the spline of a column; below 3 it stays linear.
    """

    def __init__(self, n_knots: int = 5) -> None:
        self.n_knots = n_knots

    def fit(self, X: Any, y: Any, tasks: Any) -> MixedModel:
        """Learn the covariance of the tasks' coefficients, then all coefficients."""
        self.y_center_, self.y_scale_ = float(np.mean(y)), float(np.std(y)) or 1.0
        y = (np.asarray(y, dtype=float) - self.y_center_) / self.y_scale_
        self.tasks_, codes = np.unique(tasks, return_inverse=True)
        self.center_, self.scale_ = X.mean(axis=0), np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
        scaled = (X - self.center_) / self.scale_
        varying = varying_columns(scaled, y, codes, len(self.tasks_))
        self.knots_, B = fixed_part(scaled, varying, self.n_knots)
        self.slopes_ = varying[:_MOST_SLOPES]
        Z = self._random(scaled)
        _, size, directions = np.linalg.svd(B, full_matrices=False)  # columns may depend on each other
        kept = size > _SMALL * size[0]
        self.basis_ = directions[kept].T / size[kept]
        B = B @ self.basis_
        sums = _Sums(B, Z, y, codes, len(self.tasks_))
        q = Z.shape[1]
        lower = np.tril_indices(q)
        start = np.eye(q)[lower]
        bounds = [(0.0 if i == j else -_LARGEST, _LARGEST) for i, j in zip(*lower, strict=True)]

        def deviance(theta: FloatArray) -> float:
            return sums.solve(_triangle(theta, q)).deviance

        found = minimize(deviance, start, method="L-BFGS-B", bounds=bounds)
        self.factor_ = _triangle(found.x, q)
        best = sums.solve(self.factor_)
        self.coef_, self.task_coef_ = self.basis_ @ best.fixed, best.random
        self.noise_variance_ = best.variance * self.y_scale_**2
        return self

    def predict(self, X: Any, tasks: Any) -> FloatArray:
        """Mean of every row; that of all tasks for a task that was not seen."""
        scaled = (X - self.center_) / self.scale_
        at = np.minimum(np.searchsorted(self.tasks_, tasks), len(self.tasks_) - 1)
        known = self.tasks_[at] == np.asarray(tasks)
        own = np.where(known[:, None], self.task_coef_[at], 0.0)
        mean = fixed_part(scaled, knots=self.knots_)[1] @ self.coef_ + np.sum(
            self._random(scaled) * own, axis=1
        )
        return mean * self.y_scale_ + self.y_center_

    def _random(self, scaled: FloatArray) -> FloatArray:
        return np.column_stack([np.ones(len(scaled)), scaled[:, self.slopes_]])


def fixed_part(
    scaled: FloatArray, varying: Any = (), n_knots: int = 0, knots: list[FloatArray] | None = None
) -> tuple[list[FloatArray], FloatArray]:
    """Knots of every column, unless they are given, and the design of what all tasks share."""
    knots = _choose_knots(scaled, varying, n_knots) if knots is None else knots
    parts = [np.ones((len(scaled), 1))]
    for column, places in zip(scaled.T, knots, strict=True):
        parts.append(column[:, None])
        if len(places):
            parts.append(_curves(column, places))
    return knots, np.hstack(parts)


def _choose_knots(scaled: FloatArray, varying: np.ndarray, n_knots: int) -> list[FloatArray]:
    """Knots of every column, at quantiles; none where it stays linear."""
    knots = [np.zeros(0)] * scaled.shape[1]
    n_columns = 1 + scaled.shape[1]
    for k in varying:
        column = scaled[:, k]
        places = np.unique(np.quantile(column, np.linspace(0.0, 1.0, max(n_knots, 2))))
        n_columns += len(places) - 2
        curved = 3 <= len(places) < len(np.unique(column))
        if curved and len(scaled) >= _ROWS_PER_COLUMN * n_columns:
            knots[k] = places
    return knots


def _curves(x: FloatArray, knots: FloatArray) -> FloatArray:
    """Natural cubic splines beyond the line (n, K - 2): linear outside the knots."""
    cubes = np.maximum(x[:, None] - knots, 0.0) ** 3
    ratios = (cubes[:, :-1] - cubes[:, -1:]) / (knots[-1] - knots[:-1])
    return (ratios[:, :-1] - ratios[:, -1:]) / (knots[-1] - knots[0])


def varying_columns(scaled: FloatArray, y: FloatArray, codes: np.ndarray, n_tasks: int) -> np.ndarray:
    """Numeric columns that vary within tasks, by their correlation with the target there."""
    counts = np.bincount(codes, minlength=n_tasks)

    def within(values: FloatArray) -> FloatArray:
        return values - (np.bincount(codes, values, n_tasks) / counts)[codes]

    own = np.column_stack([within(c) for c in scaled.T])
    spread = np.sqrt(np.mean(own**2, axis=0))
    numeric = np.array([len(np.unique(c)) > 2 for c in scaled.T])
    usable = np.flatnonzero(numeric & (spread > 1e-6))
    strength = np.abs(own[:, usable].T @ within(y)) / spread[usable]
    return usable[np.argsort(-strength)]


def _triangle(theta: FloatArray, q: int) -> FloatArray:
    factor = np.zeros((q, q))
    factor[np.tril_indices(q)] = theta
    return factor


class _Solution(NamedTuple):
    """Coefficients under one covariance of the tasks' coefficients."""

    deviance: float
    fixed: FloatArray
    random: FloatArray
    variance: float


class _Sums:
    """Products of the rows of every task, which are all that the likelihood needs."""

    def __init__(self, B: FloatArray, Z: FloatArray, y: FloatArray, codes: np.ndarray, n_tasks: int) -> None:
        order = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[order], np.arange(n_tasks))
        B, Z, y = B[order], Z[order], y[order]
        self.ZZ = np.add.reduceat(Z[:, :, None] * Z[:, None, :], starts)  # (T, q, q)
        self.ZB = np.add.reduceat(Z[:, :, None] * B[:, None, :], starts)  # (T, q, p)
        self.Zy = np.add.reduceat(Z * y[:, None], starts)  # (T, q)
        self.By, self.yy, self.n = B.T @ y, float(y @ y), len(y)  # the columns of B are orthonormal

    def solve(self, factor: FloatArray) -> _Solution:
        """Restricted deviance (-2 log likelihood), and the coefficients there."""
        q, p = len(factor), len(self.By)
        inner = factor.T @ self.ZZ @ factor + np.eye(q)
        roots = np.linalg.cholesky(inner)
        both = np.concatenate([factor.T @ self.ZB, (self.Zy @ factor)[:, :, None]], axis=2)
        half = np.linalg.solve(roots, both)  # (T, q, p + 1)
        left = half.reshape(-1, p + 1)
        root = np.linalg.cholesky((1.0 + _SMALL) * np.eye(p) - left[:, :p].T @ left[:, :p])
        middle = solve_triangular(root, self.By - left[:, :p].T @ left[:, p], lower=True)
        fixed = solve_triangular(root.T, middle, lower=False)
        rest = self.yy - float(left[:, p] @ left[:, p]) - float(middle @ middle)
        freedom = max(self.n - p, 1)
        rest = max(rest, 1e-12 * self.yy, np.finfo(float).tiny)
        logs = 2.0 * float(np.log(np.diagonal(roots, axis1=1, axis2=2)).sum() + np.log(np.diag(root)).sum())
        deviance = logs + freedom * (1.0 + np.log(2.0 * np.pi * rest / freedom))
        back = np.linalg.solve(roots.transpose(0, 2, 1), (half[:, :, p] - half[:, :, :p] @ fixed)[:, :, None])
        return _Solution(deviance, fixed, back[:, :, 0] @ factor.T, rest / freedom)
