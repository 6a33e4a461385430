"""Latent-space terms whose cost is linear in the rows: both mappings use a basis of positions.

The basis are the latent positions of some informative rows. All rows contribute through it, by the projection
of `inference.projected`. As rows of the training set, basis points move with the latent space. With every
row in the basis the terms equal the dense ones of `latent_terms`.

The observations have many columns that share a covariance, so that their collapsed bound (Titsias 2009,
eq. 9) is written here for all columns at once: with Phi = chol(K_dd)^-1 K_dn, A = Phi diag(precision),
P = I + A Phi' and m = P^-1 A T,

    d bound / dPhi = m (T - Phi' m)' diag(precision) + S (I - P^-1) A.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.inference.projected import (
    NUGGET,
    factor_basis,
    fit_projection,
    projected_evidence,
)
from gleangp.kernels import kernel_columns, signal_diag, white_diag
from gleangp.kernels.evaluate import evaluate, evaluate_diag
from gleangp.models.latent.terms import Mapping
from gleangp.noise import Gaussian, Probit
from gleangp.numerics.linalg import (
    cholesky,
    inverse_from_cholesky,
    log_determinant,
    solve_cholesky,
    solve_lower,
)
from gleangp.selection.selectors import ResidualSelector

_LOG_TWO_PI = np.log(2.0 * np.pi)


def choose_basis(kernel, positions: FloatArray, n_active: int, rng: np.random.Generator) -> IntArray:
    """Rows whose positions explain those of the others: sampled by what is still unexplained."""
    block = Block(positions, np.zeros(len(positions)), Gaussian(1.0))
    return ResidualSelector(weight="variance").select(kernel, [block], n_active, rng=rng).active[0]


@dataclass(frozen=True, slots=True, eq=False)
class ProjectedGaussianTerm:
    """Targets with Gaussian noise, through the basis: minus the collapsed bound."""

    targets: FloatArray  # (n, S)
    rows: IntArray  # (n,)
    basis: IntArray  # (d,) rows of the training set

    def __call__(self, kernel, positions):
        """Minus the bound, its gradient in theta and in all positions; O(n d^2)."""
        n_columns = self.targets.shape[1]
        X, Z = positions[self.rows], positions[self.basis]
        K_dd, K_dn = evaluate(kernel, Z, Z), evaluate(kernel, Z, X)
        C = np.array(K_dd.value, order="F")
        C.flat[:: len(C) + 1] += NUGGET * np.mean(np.diagonal(C))
        chol, _ = cholesky(C)
        Phi = solve_lower(chol, K_dn.value)
        precision, P, inner, m = self._coefficients(kernel, X, Phi)
        unexplained = np.maximum(signal_diag(kernel, X) - np.einsum("dn,dn->n", Phi, Phi), 0.0)
        bound = self._bound(precision, unexplained, Phi, inner, m)

        A = Phi * precision
        P_inv = inverse_from_cholesky(inner)
        residual = self.targets - Phi.T @ m
        dE_dPhi = m @ (residual * precision[:, None]).T
        dE_dPhi += n_columns * (A - P_inv @ A)
        inside = m @ m.T + n_columns * (P + P_inv)
        inside.flat[:: len(inside) + 1] -= 2.0 * n_columns
        dE_dKdn = solve_lower(chol, dE_dPhi, transposed=True)
        half = solve_lower(chol, np.ascontiguousarray(inside), transposed=True)
        dE_dKdd = -0.5 * solve_lower(chol, np.ascontiguousarray(half.T), transposed=True)
        dE_dKdd.flat[:: len(C) + 1] += NUGGET * np.mean(np.diagonal(dE_dKdd))  # the nugget moves too

        d_unexplained = -0.5 * n_columns * precision
        w = solve_lower(inner, Phi)
        spread = precision * (unexplained + np.einsum("dn,dn->n", w, w))
        square = precision * np.einsum("ns,ns->n", residual, residual)
        d_white = 0.5 * precision * (square + n_columns * (spread - 1.0))
        of_basis, first, second = K_dd.vjp(dE_dKdd)
        of_cross, dZ, dX = K_dn.vjp(dE_dKdn)
        of_signal, dX_diag, _ = evaluate_diag(kernel, X, white=False).vjp(d_unexplained - d_white)
        of_whole, dX_whole, _ = evaluate_diag(kernel, X).vjp(d_white)
        theta_grad = of_basis + of_cross + of_signal + of_whole
        d_rows, d_basis = dX + dX_diag + dX_whole, first + second + dZ
        return -bound, -theta_grad, _spread_gradient(positions, self.rows, self.basis, -d_rows, -d_basis)

    def fit_map(self, kernel, positions):
        """One pair of factors for all columns."""
        X, Z = positions[self.rows], positions[self.basis]
        chol, jitter = factor_basis(kernel, Z)
        Phi = solve_lower(chol, kernel_columns(kernel, Z, X))
        _, _, inner, m = self._coefficients(kernel, X, Phi)
        return Mapping(kernel, Z, solve_lower(chol, m, transposed=True), ((chol, inner),), jitter)

    def _coefficients(self, kernel, X, Phi):
        precision = 1.0 / white_diag(kernel, X)
        A = Phi * precision
        P = A @ Phi.T
        P.flat[:: len(P) + 1] += 1.0
        inner, _ = cholesky(P)
        return precision, P, inner, solve_cholesky(inner, A @ self.targets)

    def _bound(self, precision, unexplained, Phi, inner, m) -> float:
        n, n_columns = self.targets.shape
        per_column = n * _LOG_TWO_PI - np.sum(np.log(precision)) + log_determinant(inner)
        per_column += precision @ unexplained
        square = precision @ np.einsum("ns,ns->n", self.targets, self.targets)
        explained = np.vdot((Phi * precision) @ self.targets, m)
        return float(-0.5 * (n_columns * per_column + square - explained))


@dataclass(frozen=True, slots=True, eq=False)
class ProjectedProbitTerm:
    """Signs with probit noise, through the basis: expectation propagation over all rows."""

    targets: FloatArray  # (n, S)
    rows: IntArray  # (n,)
    basis: IntArray  # (d,)
    warm: dict = field(default_factory=dict)  # sites by column, from call to call

    def __call__(self, kernel, positions):
        """Minus the log evidence, its gradient in theta and in all positions; O(n d^2) a sweep."""
        value, theta_grad, gradient = 0.0, np.zeros(kernel.n_dims), np.zeros_like(positions)
        Z = positions[self.basis]
        for c, block in enumerate(self._blocks(positions)):
            evidence = projected_evidence(kernel, block, Z, self.warm.get(c))
            self.warm[c] = evidence.sites
            value -= evidence.value
            theta_grad -= evidence.theta_grad
            d_basis, d_rows = evidence.place_grads()
            gradient -= _spread_gradient(positions, self.rows, self.basis, d_rows, d_basis)
        return value, theta_grad, gradient

    def fit_map(self, kernel, positions):
        """A pair of factors for each column."""
        Z = positions[self.basis]
        fitted = [
            fit_projection(kernel, block, Z, self.warm.get(c))[0]
            for c, block in enumerate(self._blocks(positions))
        ]
        weights = np.column_stack([p.weights for p in fitted])
        jitter = max(p.jitter for p in fitted)
        return Mapping(kernel, Z, weights, tuple((p.chol, p.inner) for p in fitted), jitter)

    def _blocks(self, positions) -> list[Block]:
        X = positions[self.rows]
        return [Block(X, signs, Probit()) for signs in np.ascontiguousarray(self.targets.T)]


def _spread_gradient(positions, rows, basis, d_rows, d_basis) -> FloatArray:
    """Gradient in all positions from those of a term's rows and of its basis (rows may be in both)."""
    gradient = np.zeros_like(positions)
    gradient[rows] += d_rows
    gradient[basis] += d_basis
    return gradient
