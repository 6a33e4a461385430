"""What each mapping from the latent space contributes to the objective: minus its log evidence.

A term is called with the mapping's kernel and the positions of all rows; it gives the value and its
gradients in theta and in the positions. `fit_map` gives the fitted mapping, which is what predicts.

`GaussianTerm` has columns of targets that share one covariance, the noise being the kernel's white
variance (Urtasun, Quattoni & Darrell 2007, eqs. 1 and 3). `models.latent.sparse` has the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gleangp._state import check_arrays, check_factor, check_kernel
from gleangp._typing import FloatArray, IntArray
from gleangp.inference.posterior import variance_taken
from gleangp.kernels import kernel_columns
from gleangp.kernels.evaluate import evaluate
from gleangp.numerics.linalg import (
    cholesky,
    evidence_sensitivity,
    log_determinant,
    mirror_upper,
    solve_cholesky,
)
from gleangp.numerics.memory import row_chunks

_LOG_TWO_PI = np.log(2.0 * np.pi)


@dataclass(frozen=True, slots=True, eq=False)
class Mapping:
    """A fitted mapping from latent positions to the columns of its targets.

    mean = offset + k(x)' weights, var = k(x, x) - |chol^-1 k(x)|^2 + |inner^-1 chol^-1 k(x)|^2, where
    columns may share their factors.
    """

    kernel: Any
    points: FloatArray  # (d, q)
    weights: FloatArray  # (d, S)
    factors: tuple[tuple[FloatArray, FloatArray | None], ...]  # (chol, inner) of each column, or one for all
    jitter: float  # added to the diagonal of what a factor factorises
    offset: float = 0.0  # prior mean of every column

    def _check_state(self) -> None:
        """Raise if the parts do not fit together (a damaged model file)."""
        sizes = check_arrays(self, points="d q", weights="d S derived", offset="", jitter=">=0")
        d, n_factors = sizes["d"], len(self.factors)
        if n_factors not in ((1, sizes["S"]) if d else (0, 1, sizes["S"])) or sizes["S"] == 0:
            raise ValueError(f"Mapping has {n_factors} factors for {sizes['S']} columns.")
        for chol, inner in self.factors:
            for factor in (chol,) if inner is None else (chol, inner):
                if np.shape(factor) != (d, d) or not np.isfinite(factor).all():
                    raise ValueError(f"Mapping has a factor that is not finite and of size {d}.")
                check_factor("a factor of Mapping", factor)
        check_kernel("Mapping.kernel", self.kernel, sizes["q"])

    def predict(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance (n, S); the variance has the kernel's white noise in it."""
        mean, var = np.empty((len(X), self.weights.shape[1])), np.empty((len(X), self.weights.shape[1]))
        prior = self.kernel.diag(X)
        if len(self.points) == 0:  # a task without rows
            return np.full_like(mean, self.offset), np.repeat(prior[:, None], mean.shape[1], axis=1)
        for part in row_chunks(len(X), len(self.points)):
            K = kernel_columns(self.kernel, self.points, X[part])
            mean[part] = self.offset + K.T @ self.weights
            reductions = [variance_taken(K, *factor) for factor in self.factors]
            var[part] = prior[part, None] - np.column_stack(reductions)
        return mean, np.maximum(var, 0.0)


class Term(Protocol):
    """One mapping's part of the objective."""

    targets: FloatArray  # (n, S)
    rows: IntArray  # (n,) of the training set

    def __call__(self, kernel, positions: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Minus the log evidence, its gradient in theta (t,) and in all positions (N, q)."""

    def fit_map(self, kernel, positions: FloatArray) -> Mapping:
        """The mapping at these positions."""


@dataclass(frozen=True, slots=True, eq=False)
class GaussianTerm:
    """Targets with Gaussian noise; exact."""

    targets: FloatArray
    rows: IntArray

    def __call__(self, kernel, positions):
        """UQD07 eq. 4, with the constant."""
        n, n_columns = self.targets.shape
        K = evaluate(kernel, positions[self.rows])
        chol, _ = cholesky(K.value.T)  # symmetric, and stored the way LAPACK reads it
        weights = solve_cholesky(chol, self.targets)
        value = 0.5 * (n_columns * (log_determinant(chol) + n * _LOG_TWO_PI) + np.vdot(self.targets, weights))
        dL_dK = mirror_upper(evidence_sensitivity(chol, weights))
        theta_gradient, input_gradient, _ = K.vjp(dL_dK)
        gradient = np.zeros_like(positions)
        gradient[self.rows] = input_gradient
        return float(value), theta_gradient, gradient

    def fit_map(self, kernel, positions):
        """UQD07 eq. 8 for every column, all with one factor."""
        X = positions[self.rows]
        chol, jitter = cholesky(kernel(X))
        return Mapping(kernel, X, solve_cholesky(chol, self.targets), ((chol, None),), jitter)
