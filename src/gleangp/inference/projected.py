"""Projection: every row contributes to the posterior through the active points, which are a basis.

With u the function values at the d active points and v = chol(K_dd)^-1 u their whitened form,

    f_n = phi_n^T v + e_n,   Phi = chol(K_dd)^-1 K_dn,   var(e_n) = unexplained_n = k_nn - |phi_n|^2,
    q(v) = N(m, P^-1),  P = I + Phi diag(precision) Phi^T,  P m = Phi shift,

where every row has a Gaussian site exp(shift g - precision g^2 / 2) of g = phi_n^T v.

* Gaussian noise: precision = 1 / variance and shift = y / variance, and the evidence is the collapsed
  variational bound (Titsias 2009), a lower bound of the exact one. Targets may have S columns that share the
  kernel and the noise, and so all but m.
* Other noise models: expectation propagation over all rows, with e_n marginalised, that is, absorbed
  into the noise of its row (the generalised FITC of Naish-Guzman & Holden 2008).

With every row in the basis, the first is the exact evidence and the second is full expectation propagation.

Gradients. Both evidences are stationary in the sites, so only the explicit dependence counts. With
e = shift - precision * mean and rho_n = d evidence / d unexplained_n (-S precision_n / 2 for the bound,
(g_n^2 - nu_n) / 2 at the cavity for EP),

    d/dPhi = m e^T - S P^-1 Phi diag(precision) - 2 Phi diag(rho),   d/dk_nn = rho_n,

and K_dd follows from the invariance under rotations of the basis (`Basis.gradients`), with
d/dPhi Phi^T = m m^T - S I + S P^-1 - 2 Phi diag(rho) Phi^T. White noise of the kernel is not part of the
function: it is absorbed into the noise model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gleangp._typing import FloatArray
from gleangp.inference.block import Block
from gleangp.inference.posterior import TaskPosterior
from gleangp.inference.prior import Basis
from gleangp.inference.propagate import Marginals, RowSites, labelled_first, sweep_rows
from gleangp.kernels import has_white
from gleangp.kernels.evaluate import Evaluation, evaluate_diag
from gleangp.numerics.linalg import (
    cholesky,
    gram,
    inverse_from_cholesky,
    log_determinant,
    solve_cholesky,
    solve_lower,
)


@dataclass(frozen=True, slots=True, eq=False)
class Coefficients:
    """q(v): the whitened coefficients of the basis."""

    mean: FloatArray  # (d,), or (d, S) for S columns of targets
    inner: FloatArray  # (d, d) lower factor of the precision P


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """Sites at their fixed point, and what follows from them."""

    sites: RowSites  # `shift` is (n, S) for S columns
    q: Coefficients
    evidence: float
    d_unexplained: FloatArray  # (n,) derivative of the evidence in `unexplained`
    d_noise: FloatArray  # and in the variance of the noise, white included: (n,), or (1,) their sum
    is_bound: bool  # d_unexplained = -S precision / 2


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """Rows as the basis sees them."""

    basis: Basis
    K: Evaluation  # K(X, Z)
    Phi: FloatArray  # (d, n)
    variance: Evaluation  # of the function at the rows
    unexplained: FloatArray  # (n,)
    whole: Evaluation | None  # the same with white noise, where there is any

    @property
    def white(self) -> FloatArray | float:
        """Variance of white noise (n,), or zero."""
        return 0.0 if self.whole is None else self.whole.value - self.variance.value

    def posterior(self, q: Coefficients) -> TaskPosterior:
        """What prediction needs; its weights have the shape of `q.mean`."""
        chol = self.basis.chol
        weights = solve_lower(chol, q.mean, transposed=True)
        return TaskPosterior(self.basis.Z, weights, chol, q.inner, self.basis.jitter)


@dataclass(frozen=True, slots=True, eq=False)
class ProjectedEvidence:
    """Evidence, its gradients, and the sites at which it is stationary."""

    value: float
    theta: FloatArray  # (q,)
    d_noise: FloatArray  # as in `Settled`
    d_rows: FloatArray  # (n, p) in the inputs of the rows
    d_basis: FloatArray  # (d, p) in the basis points
    sites: RowSites


def project(kernel: Any, X: FloatArray, Z: FloatArray) -> Projection:
    """The rows X (n, p) on the basis Z (d, p). O(n d^2)."""
    basis, variance = Basis(kernel, Z), evaluate_diag(kernel, X, white=False)
    K, features = basis.features(X)
    unexplained = np.maximum(variance.value - np.einsum("nd,nd->n", features, features), 0.0)
    whole = evaluate_diag(kernel, X) if has_white(kernel) else None
    return Projection(basis, K, features.T, variance, unexplained, whole)


def fit_projection(kernel: Any, block: Block, Z: FloatArray, start: RowSites | None = None) -> TaskPosterior:
    """Posterior of a block on the basis Z (d, p), the sites starting from `start`. O(n d^2)."""
    seen = project(kernel, block.X, Z)
    return seen.posterior(_settle(block, seen, start).q)


def projected_evidence(
    kernel: Any, block: Block, Z: FloatArray, start: RowSites | None = None
) -> ProjectedEvidence:
    """The evidence and its gradients, for learning."""
    seen = project(kernel, block.X, Z)
    settled = _settle(block, seen, start)
    d_cross, inside = _through_basis(seen.basis.chol, seen.Phi, settled)
    of_basis, d_basis = seen.basis.gradients(inside)
    of_cross, d_rows, d_cross_basis = seen.K.vjp(d_cross.T)
    assert d_cross_basis is not None
    d_variance = settled.d_unexplained if seen.whole is None else settled.d_unexplained - settled.d_noise
    of_variance, d_rows_variance, _ = seen.variance.vjp(d_variance)
    theta, d_rows = of_basis + of_cross + of_variance, d_rows + d_rows_variance
    if seen.whole is not None:
        of_whole, d_rows_whole, _ = seen.whole.vjp(settled.d_noise)
        theta, d_rows = theta + of_whole, d_rows + d_rows_whole
    return ProjectedEvidence(
        settled.evidence,
        theta,
        settled.d_noise,
        d_rows,
        d_basis + d_cross_basis,
        settled.sites,
    )


def _through_basis(chol: FloatArray, Phi: FloatArray, settled: Settled) -> tuple[FloatArray, FloatArray]:
    """dE/dK(Z, X) = chol^-T dE/dPhi (d, n), and dE/dPhi Phi^T (d, d), small matrices multiplied first."""
    sites, m = settled.sites, settled.q.mean.reshape(len(Phi), -1)
    S, P_inv = m.shape[1], inverse_from_cholesky(settled.q.inner)
    error = sites.shift.reshape(Phi.shape[1], -1) - sites.precision[:, None] * (Phi.T @ m)
    inside = m @ m.T + S * P_inv
    inside.flat[:: len(inside) + 1] -= S
    left = solve_lower(chol, P_inv, transposed=True)
    if settled.is_bound:  # -2 rho = S precision
        left -= solve_lower(chol, np.eye(len(chol)), transposed=True)
        inside += S * (settled.q.inner @ settled.q.inner.T)
        inside.flat[:: len(inside) + 1] -= S
        d_cross = -S * (left @ (Phi * sites.precision))
    else:
        twice = Phi * (-2.0 * settled.d_unexplained)
        inside += twice @ Phi.T
        d_cross = solve_lower(chol, twice, transposed=True) - S * (left @ (Phi * sites.precision))
    d_cross += solve_lower(chol, m, transposed=True) @ error.T
    return d_cross, inside


def _coefficients(Phi: FloatArray, sites: RowSites) -> Coefficients:
    P = gram(Phi * np.sqrt(sites.precision))
    P.flat[:: len(P) + 1] += 1.0
    inner, _ = cholesky(P)
    return Coefficients(solve_cholesky(inner, Phi @ sites.shift), inner)


def _settle(block: Block, seen: Projection, start: RowSites | None) -> Settled:
    if not block.noise.precision_depends_on_mean:
        return _collapse(block, seen)
    marginals, spread = _marginals_on(seen.Phi), seen.unexplained + seen.white
    if start is None:
        start = labelled_first(block, marginals, spread=spread)
    swept = sweep_rows(block, marginals, spread, start)
    d_spread = 0.5 * (swept.g * swept.g - swept.nu)
    return Settled(swept.sites, swept.marginals.state, swept.evidence, d_spread, d_spread, False)


def _collapse(block: Block, seen: Projection) -> Settled:
    """Gaussian noise: the collapsed bound of Titsias 2009, eq. 9, for every column of the targets."""
    n, Phi = len(block), seen.Phi
    precision = np.broadcast_to(1.0 / (block.noise.variance + seen.white), (n,))
    residual = block.y - block.noise.bias
    S = residual.size // n
    sites = RowSites(precision, (precision * residual.T).T)
    q = _coefficients(Phi, sites)
    per_column = n * np.log(2.0 * np.pi) - np.sum(np.log(precision)) + log_determinant(q.inner)
    misfit = np.vdot(residual, sites.shift) - np.vdot(Phi @ sites.shift, q.mean)
    evidence = -0.5 * (S * (per_column + precision @ seen.unexplained) + misfit)
    error = (residual - Phi.T @ q.mean).reshape(n, S)
    if seen.whole is None and np.ndim(block.noise.variance) == 0:
        # sum over rows of phi^T P^-1 phi = tr(P^-1 (P - I)) / precision
        inverse = solve_lower(q.inner, np.eye(len(q.inner)))
        spread = np.sum(seen.unexplained) + (len(inverse) - np.sum(inverse**2)) / precision[0]
        d_noise = 0.5 * precision[:1] * (precision[0] * (np.vdot(error, error) + S * spread) - S * n)
    else:
        w = solve_lower(q.inner, Phi)
        var = seen.unexplained + np.einsum("dn,dn->n", w, w)
        square = np.einsum("ns,ns->n", error, error)
        d_noise = 0.5 * precision * (precision * (square + S * var) - S)
    return Settled(sites, q, float(evidence), -0.5 * S * precision, d_noise, True)


def _marginals_on(Phi: FloatArray) -> Callable[[RowSites], Marginals]:
    def marginals(sites: RowSites) -> Marginals:
        q = _coefficients(Phi, sites)
        w = solve_lower(q.inner, Phi)
        return Marginals(q.mean @ Phi, np.einsum("dn,dn->n", w, w), log_determinant(q.inner), q)

    return marginals
