"""What each mapping from the latent space contributes to the objective: minus its log evidence.

A term is called with the mapping's kernel and the positions of all rows; it gives the value and its
gradients in theta and in the positions. `fit_map` gives the fitted mapping, which is what predicts.

* `GaussianTerm`: columns of targets that share one covariance, the noise being the kernel's white
  variance (Urtasun, Quattoni & Darrell 2007, eqs. 1 and 3).
* `ProbitTerm`: columns of signs with probit noise (what the paper leaves as future work). The evidence
  is that of expectation propagation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from gleangp._state import check_arrays, check_factor, check_kernel
from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.inference.evidence import inverse_factors
from gleangp.inference.filtering import Sites
from gleangp.inference.posterior import posterior_from_sites, variance_taken
from gleangp.inference.propagate import Marginals, RowSites, Swept, sweep_rows
from gleangp.kernels import kernel_columns
from gleangp.kernels.evaluate import evaluate
from gleangp.noise import Probit
from gleangp.numerics.linalg import (
    cholesky,
    cholesky_in_place,
    evidence_sensitivity,
    gram,
    log_determinant,
    mirror_upper,
    solve_cholesky,
)
from gleangp.numerics.memory import row_chunks

_LOG_TWO_PI = np.log(2.0 * np.pi)
_TOLERANCE = 1e-11  # nats per row, of the evidence of labels: the search follows its gradient
_FAINT = 1e-6  # precision times prior variance of a site whose effect is lost in rounding
_LEAST_PRECISION = 1e-16  # of a site that says nothing, whose row of the factor would be infinite


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

    def predict_mean(self, X: FloatArray) -> FloatArray:
        """Mean (n, S) alone."""
        mean = np.empty((len(X), self.weights.shape[1]))
        for part in row_chunks(len(X), len(self.points)):
            mean[part] = self.offset + kernel_columns(self.kernel, X[part], self.points) @ self.weights
        return mean


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
        chol, _ = cholesky_in_place(K.value.copy().T)  # symmetric, and stored the way LAPACK reads it
        weights = solve_cholesky(chol, self.targets)
        value = 0.5 * (n_columns * (log_determinant(chol) + n * _LOG_TWO_PI) + np.vdot(self.targets, weights))
        dL_dK = mirror_upper(evidence_sensitivity(chol, weights, overwrite_chol=True))
        theta_gradient, input_gradient, _ = K.vjp(dL_dK)
        gradient = np.zeros_like(positions)
        gradient[self.rows] = input_gradient
        return float(value), theta_gradient, gradient

    def fit_map(self, kernel, positions):
        """UQD07 eq. 8 for every column, all with one factor."""
        X = positions[self.rows]
        chol, jitter = cholesky(kernel(X))
        return Mapping(kernel, X, solve_cholesky(chol, self.targets), ((chol, None),), jitter)


@dataclass(frozen=True, slots=True, eq=False)
class ProbitTerm:
    """Signs -1 / +1 with probit noise, each column by expectation propagation on the same covariance.

    `warm` keeps the sites from call to call: they start the next propagation, and do not change its end.
    """

    targets: FloatArray
    rows: IntArray
    warm: dict = field(default_factory=dict)

    def __call__(self, kernel, positions):
        """The explicit derivative is that of log N(site means | 0, K + 1 / site precisions)."""
        K = evaluate(kernel, positions[self.rows])
        value, dL_dK = 0.0, np.zeros(K.value.shape)
        for swept in self._sweeps(K.value):
            scaled, alpha = swept.marginals.state
            value -= swept.evidence
            dL_dK += 0.5 * (gram(scaled.T) - np.outer(alpha, alpha))
        theta_gradient, input_gradient, _ = K.vjp(dL_dK)
        gradient = np.zeros_like(positions)
        gradient[self.rows] = input_gradient
        return value, theta_gradient, gradient

    def fit_map(self, kernel, positions):
        """One factor for every column: their sites differ."""
        X = positions[self.rows]
        found = []
        for swept in self._sweeps(kernel(X)):
            precision = np.maximum(swept.sites.precision, _LEAST_PRECISION)
            found.append(posterior_from_sites(kernel, X, Sites(swept.sites.shift / precision, precision)))
        weights = np.column_stack([p.weights for p in found])
        return Mapping(kernel, X, weights, tuple((p.chol, None) for p in found), max(p.jitter for p in found))

    def _sweeps(self, K: FloatArray) -> Iterator[Swept]:
        """Expectation propagation of one column after the other."""
        marginals = _marginals_under(K)
        for c, signs in enumerate(np.ascontiguousarray(self.targets.T)):
            block = Block(np.zeros((len(signs), 0)), signs, Probit())
            swept = sweep_rows(block, marginals, start=self.warm.get(c), tol=_TOLERANCE)
            self.warm[c] = swept.sites
            yield swept


def _marginals_under(K: FloatArray) -> Callable[[RowSites], Marginals]:
    """From sites to marginals under a covariance K (n, n) that all columns share.

    As `marginals_of` for one block without a basis. Its state: S with S^T S = (K + 1 / precision)^-1, and
    alpha, that times the site means.
    """
    diagonal = K.diagonal()

    def marginals(sites: RowSites) -> Marginals:
        root = np.sqrt(np.maximum(sites.precision, _LEAST_PRECISION))
        halves, log_det, _ = inverse_factors((K * root * root[:, None])[None])
        half, scaled = halves[0], halves[0] * root
        alpha = scaled.T @ (half @ (sites.shift / root))
        # diag(K - K scaled^T scaled K), in which what a faint site takes off is lost in rounding
        var = (1.0 - np.einsum("ij,ij->j", half, half)) / root**2
        faint = np.flatnonzero(root**2 * diagonal < _FAINT)
        var[faint] = diagonal[faint] - np.sum((scaled @ K[:, faint]) ** 2, axis=0)
        return Marginals(K @ alpha, var, log_det, (scaled, alpha))

    return marginals
