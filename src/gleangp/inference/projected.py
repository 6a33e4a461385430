"""Projection: every row contributes to the posterior through the active points, which are a basis.

With u the function values at the d active points and v = chol(K_dd)^-1 u their whitened form,

    f_n = phi_n^T v + e_n,   Phi = chol(K_dd)^-1 K_dn,   var(e_n) = unexplained_n = k_nn - |phi_n|^2,
    q(v) = N(m, P^-1),  P = I + Phi diag(precision) Phi^T,  P m = Phi shift,

where every row has a Gaussian site exp(shift g - precision g^2 / 2) of g = phi_n^T v.

* Gaussian noise: precision = 1 / variance and shift = y / variance, and the evidence is the collapsed
  variational bound (Titsias 2009), a lower bound of the exact one.
* Other noise models: expectation propagation over all rows, with e_n marginalised, that is, absorbed
  into the noise of its row (the generalised FITC of Naish-Guzman & Holden 2008). It asks of the noise
  model only log_partition, as filtering does.

With every row in the basis, the first is the exact evidence and the second is full expectation propagation.

Gradients. Both evidences are stationary in the sites, so only the explicit dependence counts. With
e = shift - precision * mean and rho_n = d evidence / d unexplained_n (-precision_n / 2 for the bound,
(g_n^2 - nu_n) / 2 at the cavity for EP),

    d/dPhi = m e^T - P^-1 Phi diag(precision) - 2 Phi diag(rho),   d/dk_nn = rho_n,

and, as the evidence does not change when the basis is rotated, d/dK_dd = -1/2 chol^-T (d/dPhi Phi^T) chol^-1
with d/dPhi Phi^T = m m^T - I + P^-1 - 2 Phi diag(rho) Phi^T.

White noise of the kernel is not part of the function: it is absorbed into the noise model.

Noise that is not log-concave has several fixed points. Rows with a label settle first and the others join
them: were all to move at once, rows without a label would take the side of the prior mean (with one class in
ten that of the many) before a label has spoken, and stay there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gleangp._typing import FloatArray
from gleangp.inference.block import Block
from gleangp.inference.posterior import TaskPosterior, prior_only
from gleangp.inference.row_ep import Marginals, RowSites, Swept, labelled_first, sweep_rows
from gleangp.kernels import has_white, kernel_columns, signal_diag, white_diag
from gleangp.kernels.evaluate import evaluate, evaluate_diag
from gleangp.numerics.linalg import (
    cholesky,
    gram,
    inverse_from_cholesky,
    log_determinant,
    solve_cholesky,
    solve_lower,
)

# Added to K_dd, relative to its mean diagonal: smooth kernels at many points are singular in float64.
# It acts as if the basis values were known up to 1e-4 of their standard deviation.
NUGGET = 1e-8
_FEW_SPEAK = 0.8  # share of the rows below which those that say nothing are left out of sums


@dataclass(frozen=True, slots=True, eq=False)
class Coefficients:
    """q(v): the whitened coefficients of the basis."""

    mean: FloatArray  # (d,)
    inner: FloatArray  # (d, d) lower factor of the precision P


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """Sites at their fixed point, and what follows from them."""

    sites: RowSites
    q: Coefficients
    evidence: float
    d_unexplained: FloatArray  # (n,) derivative of the evidence in `unexplained`
    d_white: Any  # (n,) and in the white variance, where there is any
    noise_grad: dict[str, FloatArray]  # derivative in the noise parameters, natural units, to be summed
    rho_is_half_precision: bool  # d_unexplained = -precision / 2: saves two products


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Evidence, its gradients, and the sites at which it is stationary."""

    value: float
    theta_grad: FloatArray  # (q,)
    noise_grad: dict[str, FloatArray]
    sites: RowSites
    # gradients (d, p) in the basis points and (n, p) in the rows, worked out when asked for
    place_grads: Callable[[], tuple[FloatArray, FloatArray]]


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """Rows as the basis sees them."""

    Z: FloatArray  # (d, p)
    chol: FloatArray  # (d, d) lower factor of K_dd
    jitter: float
    Phi: FloatArray  # (d, n)
    unexplained: FloatArray  # (n,)
    white: FloatArray | float  # variance of white noise

    def sweep(self, block: Block, start: RowSites | None = None, **how: Any) -> Swept:
        """Expectation propagation over the rows, whose targets and noise `block` has."""
        marginals, spread = _marginals_on(self.Phi), self.unexplained + self.white
        if start is None:
            start = labelled_first(block, marginals, spread=spread)
        return sweep_rows(block, marginals, spread, start, **how)

    def posterior(self, q: Coefficients) -> TaskPosterior:
        """What prediction needs."""
        return _posterior(self.Z, self.chol, self.jitter, q)


def _posterior(Z: FloatArray, chol: FloatArray, jitter: float, q: Coefficients) -> TaskPosterior:
    if len(Z) == 0:
        return prior_only(Z.shape[1])
    return TaskPosterior(Z, solve_lower(chol, q.mean, transposed=True), chol, q.inner, jitter)


def project(kernel, X: FloatArray, Z: FloatArray) -> Projection:
    """The rows X (n, p) on the basis Z (d, p), which may be empty. O(n d^2)."""
    chol, jitter, Phi = np.zeros((0, 0)), 0.0, np.zeros((0, len(X)))
    if len(Z):
        chol, jitter = factor_basis(kernel, Z)
        Phi = solve_lower(chol, kernel_columns(kernel, Z, X))
    return _projection(kernel, X, Z, chol, jitter, Phi)


def _projection(kernel, X, Z, chol, jitter, Phi) -> Projection:
    unexplained = np.maximum(signal_diag(kernel, X) - np.einsum("dn,dn->n", Phi, Phi), 0.0)
    return Projection(Z, chol, jitter, Phi, unexplained, white_diag(kernel, X) if has_white(kernel) else 0.0)


def factor_basis(kernel, Z: FloatArray) -> tuple[FloatArray, float]:
    """Lower factor of K_dd without white noise but with the nugget; and the jitter beyond it."""
    K = kernel_columns(kernel, Z, Z)
    K.flat[:: len(K) + 1] += NUGGET * np.mean(np.diagonal(K))
    return cholesky(K)


def fit_projection(
    kernel, block: Block, Z: FloatArray, start: RowSites | None = None
) -> tuple[TaskPosterior, float, RowSites]:
    """Posterior of a block on the basis Z (d, p), the log evidence, and the sites of all rows. O(n d^2).

    `start` are sites to begin from. Without basis points the posterior is the prior.
    """
    block = block.whole()
    projection = project(kernel, block.X, Z)
    settled = _settle(block, projection, start)
    return projection.posterior(settled.q), settled.evidence, settled.sites


def projected_evidence(kernel, block: Block, Z: FloatArray, start: RowSites | None = None) -> Evidence:
    """The evidence and its gradients, for learning."""
    if len(Z) == 0:
        return _evidence_without_basis(kernel, block, Z)
    K_dd = evaluate(kernel, Z, Z)
    C = np.array(K_dd.value, order="F")
    C.flat[:: len(C) + 1] += NUGGET * np.mean(np.diagonal(C))
    chol, jitter = cholesky(C)
    K_dn = evaluate(kernel, Z, block.X)
    Phi = solve_lower(chol, K_dn.value)
    settled = _settle(block, _projection(kernel, block.X, Z, chol, jitter, Phi), start)

    m, sites = settled.q.mean, settled.sites
    P_inv = inverse_from_cholesky(settled.q.inner)
    error = sites.shift - sites.precision * (m @ Phi)
    # chol^-T d/dPhi, with the small matrices multiplied first
    left = solve_lower(chol, P_inv, transposed=True)
    weighted = Phi * sites.precision
    if settled.rho_is_half_precision:
        inside = settled.q.inner @ settled.q.inner.T
        inside.flat[:: len(inside) + 1] -= 1.0
        left -= solve_lower(chol, np.eye(len(chol)), transposed=True)
        dE_dKdn = -(left @ weighted)
    else:
        twice = Phi * (-2.0 * settled.d_unexplained)
        inside = twice @ Phi.T
        dE_dKdn = solve_lower(chol, twice, transposed=True)
        dE_dKdn -= left @ weighted
    dE_dKdn += np.outer(solve_lower(chol, m, transposed=True), error)
    inside += np.outer(m, m) + P_inv
    inside.flat[:: len(inside) + 1] -= 1.0
    half = solve_lower(chol, np.ascontiguousarray(inside), transposed=True)
    dE_dKdd = -0.5 * solve_lower(chol, np.ascontiguousarray(half.T), transposed=True)
    dE_dKdd.flat[:: len(C) + 1] += NUGGET * np.mean(np.diagonal(dE_dKdd))  # the nugget moves too

    theta_grad = K_dd.vjp(dE_dKdd, inputs=False)[0] + K_dn.vjp(dE_dKdn, inputs=False)[0]
    theta_grad += _diag_gradient(kernel, block, settled)

    def place_grads():
        _, first, second = K_dd.vjp(dE_dKdd)  # both arguments are the basis
        _, d_basis, d_rows = K_dn.vjp(dE_dKdn)
        own = evaluate_diag(kernel, block.X).vjp(settled.d_unexplained)[1]  # white has no place
        return first + second + d_basis, d_rows + own

    return Evidence(settled.evidence, theta_grad, settled.noise_grad, sites, place_grads)


def _evidence_without_basis(kernel, block: Block, Z: FloatArray) -> Evidence:
    settled = _settle(block, project(kernel, block.X, Z), None)
    return Evidence(
        settled.evidence,
        _diag_gradient(kernel, block, settled),
        settled.noise_grad,
        settled.sites,
        lambda: (np.zeros_like(Z), evaluate_diag(kernel, block.X).vjp(settled.d_unexplained)[1]),
    )


def _diag_gradient(kernel, block: Block, settled: Settled) -> FloatArray:
    rho = settled.d_unexplained
    if not has_white(kernel):
        return evaluate_diag(kernel, block.X).vjp(rho, inputs=False)[0]
    whole = evaluate_diag(kernel, block.X).vjp(settled.d_white, inputs=False)[0]
    signal = evaluate_diag(kernel, block.X, white=False)
    return whole + signal.vjp(rho - settled.d_white, inputs=False)[0]


def _coefficients(Phi: FloatArray, sites: RowSites) -> Coefficients:
    speaking = np.flatnonzero(sites.precision)
    if len(speaking) < _FEW_SPEAK * Phi.shape[1]:
        P = gram(Phi[:, speaking] * np.sqrt(sites.precision[speaking]))
    else:
        P = gram(Phi * np.sqrt(sites.precision))
    P.flat[:: len(P) + 1] += 1.0
    inner, _ = cholesky(P)
    return Coefficients(solve_cholesky(inner, Phi @ sites.shift), inner)


def _settle(block: Block, seen: Projection, start: RowSites | None) -> Settled:
    if block.noise.precision_depends_on_mean:
        return _propagate(block, seen, start)
    return _collapse(block, seen.Phi, seen.unexplained, seen.white)


def _collapse(block: Block, Phi, unexplained, white) -> Settled:
    """Gaussian noise: the collapsed bound of Titsias 2009, eq. 9."""
    n = len(block)
    precision = np.broadcast_to(1.0 / (block.noise.variance + white), (n,))
    residual = block.y - block.noise.bias
    sites = RowSites(precision, precision * residual)
    q = _coefficients(Phi, sites)
    evidence = -0.5 * (
        n * np.log(2.0 * np.pi)
        - np.sum(np.log(precision))
        + log_determinant(q.inner)
        + residual @ sites.shift
        - (Phi @ sites.shift) @ q.mean
        + precision @ unexplained
    )
    error = residual - q.mean @ Phi
    if np.ndim(white) == 0 and np.ndim(block.noise.variance) == 0:
        # sum over rows of phi^T P^-1 phi = tr(P^-1 (P - I)) / precision
        inverse = solve_lower(q.inner, np.eye(len(q.mean)))
        spread = np.sum(unexplained) + (len(q.mean) - np.sum(inverse**2)) / precision[0]
        d_variance = 0.5 * precision[:1] * (precision[0] * (error @ error + spread) - n)
        d_white = None
    else:
        w = solve_lower(q.inner, Phi)
        var = unexplained + np.einsum("dn,dn->n", w, w)
        d_white = d_variance = 0.5 * precision * (precision * (error**2 + var) - 1.0)
    grads = {"variance": d_variance, "bias": precision * error}
    return Settled(sites, q, float(evidence), -0.5 * precision, d_white, grads, True)


def _propagate(block: Block, seen: Projection, start: RowSites | None) -> Settled:
    """Expectation propagation, all sites at once."""
    swept = seen.sweep(block, start)
    d_spread = 0.5 * (swept.g * swept.g - swept.nu)
    grads = block.noise.log_partition_grad(block.y, swept.cavity_mean, swept.cavity_var)
    return Settled(swept.sites, swept.marginals.state, swept.evidence, d_spread, d_spread, grads, False)


def _marginals_on(Phi: FloatArray) -> Callable[[RowSites], Marginals]:
    def marginals(sites: RowSites) -> Marginals:
        q = _coefficients(Phi, sites)
        w = solve_lower(q.inner, Phi)
        return Marginals(q.mean @ Phi, np.einsum("dn,dn->n", w, w), log_determinant(q.inner), q)

    return marginals
