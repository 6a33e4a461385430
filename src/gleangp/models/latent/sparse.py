"""Latent-space terms through a basis of positions: cost linear in the rows; and signs with probit noise.

The basis are the latent positions of some informative rows, through which all rows contribute. As rows of the
training set, basis points move with the latent space. With every row in the basis the terms are exact:
`GaussianTerm` for numbers, and expectation propagation for signs (what Urtasun, Quattoni & Darrell 2007 leave
as future work).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.inference.evidence import evidence_gradient
from gleangp.inference.fitc import fitc_prior, on_basis, sweep
from gleangp.inference.prior import Basis
from gleangp.kernels.evaluate import evaluate_diag
from gleangp.models.latent.terms import Mapping
from gleangp.noise import Gaussian, Probit
from gleangp.numerics.linalg import (
    cholesky,
    gram,
    inverse_from_cholesky,
    log_determinant,
    solve_cholesky,
    solve_lower,
)
from gleangp.selection.selectors import ResidualSelector


def choose_basis(kernel, positions: FloatArray, n_active: int, rng: np.random.Generator) -> IntArray:
    """Rows whose positions explain those of the others: sampled by what is still unexplained."""
    block = Block(positions, np.zeros(len(positions)), Gaussian(1.0))
    return ResidualSelector(weight="variance").select(kernel, [block], n_active, rng=rng).active[0]


@dataclass(frozen=True, slots=True, eq=False)
class SignsTerm:
    """Columns of signs with probit noise, through the basis.

    `warm` keeps the sites from call to call. They start the next propagation, and do not change its end.
    """

    targets: FloatArray  # (n, S)
    rows: IntArray  # (n,)
    basis: IntArray  # (d,) rows of the training set
    warm: dict = field(default_factory=dict)

    def __call__(self, kernel, positions):
        """Minus the log evidence, its gradient in theta and in all positions."""
        value, theta_gradient, gradient = 0.0, 0.0, np.zeros_like(positions)
        prior, swept = self._swept(kernel, positions)
        for found in swept:
            slope = evidence_gradient(prior, found.marginals.state, [False])
            value -= found.evidence
            theta_gradient = theta_gradient - slope.theta[0]
            gradient[self.rows] -= slope.X
            gradient[self.basis] -= slope.Z
        return value, theta_gradient, gradient

    def fit_map(self, kernel, positions):
        """A pair of factors for each column."""
        prior, swept = self._swept(kernel, positions)
        found = [on_basis(prior, s.marginals.state.common) for s in swept]
        weights = np.column_stack([p.weights for p in found])
        return Mapping(kernel, found[0].X, weights, tuple((p.chol, p.inner) for p in found), found[0].jitter)

    def _swept(self, kernel, positions):
        """The prior of the rows, and the sites of every column."""
        X = positions[self.rows]
        prior, swept = fitc_prior(kernel, X, positions[self.basis]), []
        for c, signs in enumerate(np.ascontiguousarray(self.targets.T)):
            swept.append(sweep(prior, Block(X, signs, Probit()), self.warm.get(c)))
            self.warm[c] = swept[-1].sites
        return prior, swept


@dataclass(frozen=True, slots=True, eq=False)
class CollapsedTerm:
    """Columns of numbers whose noise is the kernel's white variance, through the basis, O(n d^2).

    The collapsed bound of Titsias 2009, eq. 9. With Phi = chol(K_dd)^-1 K_dn, B the inverse variances of the
    noise and unexplained = k_nn - |phi_n|^2,

        P = I + Phi B Phi^T,   m = P^-1 Phi B Y,   E = Y - Phi^T m,
        bound = -1/2 [S (n log 2 pi - log |B| + log |P| + sum_n B_n unexplained_n) + tr Y^T B E],
        d/dPhi = m (B E)^T + S (1 - P^-1) Phi B,   d/dk_nn = -S B / 2,
        d/dnoise_n = B_n / 2 [B_n (|E_n|^2 + S (unexplained_n + phi_n^T P^-1 phi_n)) - S].
    """

    targets: FloatArray  # (n, S)
    rows: IntArray  # (n,)
    basis: IntArray  # (d,) rows of the training set

    def __call__(self, kernel, positions):
        """Minus the bound, its gradient in theta and in all positions."""
        X, Y, (n, S) = positions[self.rows], self.targets, self.targets.shape
        basis, K, Phi, B, inner, m = self._solved(kernel, positions)
        signal, whole = evaluate_diag(kernel, X, white=False), evaluate_diag(kernel, X)
        unexplained = np.maximum(signal.value - np.einsum("dn,dn->n", Phi, Phi), 0.0)
        error = Y - Phi.T @ m
        constant = n * np.log(2.0 * np.pi) - np.sum(np.log(B)) + log_determinant(inner)
        value = 0.5 * (S * (constant + B @ unexplained) + np.sum((Y * error).T @ B))
        scaled = Phi * B
        d_Phi = m @ (error.T * B) + S * (scaled - solve_cholesky(inner, scaled))
        explained = np.einsum("dn,dn->n", Phi, inverse_from_cholesky(inner) @ Phi)
        square = np.einsum("ns,ns->n", error, error)
        d_noise = 0.5 * B * (B * (square + S * (unexplained + explained)) - S)
        of_basis, d_basis = basis.gradients(d_Phi @ Phi.T)
        of_cross, d_rows, d_cross = K.vjp(solve_lower(basis.chol, d_Phi, transposed=True).T)
        of_signal, d_signal, _ = signal.vjp(-0.5 * S * B - d_noise)
        of_whole, d_whole, _ = whole.vjp(d_noise)
        gradient = np.zeros_like(positions)
        gradient[self.rows] -= d_rows + d_signal + d_whole
        gradient[self.basis] -= d_basis + d_cross
        return float(value), -(of_basis + of_cross + of_signal + of_whole), gradient

    def fit_map(self, kernel, positions):
        """One pair of factors for all columns."""
        basis, _, _, _, inner, m = self._solved(kernel, positions)
        weights = solve_lower(basis.chol, m, transposed=True)
        return Mapping(kernel, basis.Z, weights, ((basis.chol, inner),), basis.jitter)

    def _solved(self, kernel, positions):
        """Basis, K(X, Z), Phi (d, n), B (n,), the factor of P, and m (d, S)."""
        X, basis = positions[self.rows], Basis(kernel, positions[self.basis])
        K, features = basis.features(X)
        Phi, B = features.T, 1.0 / (kernel.diag(X) - evaluate_diag(kernel, X, white=False).value)
        P = gram(Phi * np.sqrt(B))
        P.flat[:: len(P) + 1] += 1.0
        inner, _ = cholesky(P)
        return basis, K, Phi, B, inner, solve_cholesky(inner, (Phi * B) @ self.targets)
