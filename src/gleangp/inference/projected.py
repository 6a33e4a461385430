"""Projection: all rows speak, through the active points as a basis.

With u the function values at the d active points and v = chol(K_dd)^-1 u their whitened form,

    f_n = phi_n^T v + (what the basis cannot say),   Phi = chol(K_dd)^-1 K_dn,
    q(v) = N(m, P^-1),  P = I + Phi diag(site_precision) Phi^T,  P m = Phi (site_precision * site_mean).

The sites are those of the variational bound (Titsias 2009; Hensman, Matthews & Ghahramani 2015)

    L = sum_n E_q[log p(y_n | f_n)] - KL(q(v) || N(0, I)).

At its maximum over q, site_precision_n = -E[d^2 log p / df^2] and site_precision * site_mean =
E[d log p / df] + site_precision * mean (Khan & Lin 2017; Adam et al. 2021). For Gaussian noise that is
1 / variance and y at once, and L is the collapsed bound of Titsias; for other noise models a few
damped Newton-like sweeps find it. With every row in the basis, L is the exact evidence for Gaussian
noise.

Because L is stationary in q, its gradient in the kernel only needs the explicit dependence. With
e1 = dL/dmean and the fixed point above it simplifies to

    dL/dPhi = m e1^T + (I - P^-1) Phi diag(site_precision),   dL/dk_nn = -site_precision / 2,

and, as L does not change when the basis is rotated, dL/dK_dd = -1/2 chol^-T (dL/dPhi Phi^T) chol^-1 with
dL/dPhi Phi^T = m m^T + P + P^-1 - 2 I.

White noise of the kernel is not part of the function: it is absorbed into the noise model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gleangp._typing import FloatArray
from gleangp.inference.block import Block
from gleangp.inference.posterior import TaskPosterior
from gleangp.kernels import (
    has_white,
    kernel_columns,
    linearize,
    linearize_diag,
    signal_diag,
    white_diag,
)
from gleangp.linalg import (
    cholesky,
    inverse_from_cholesky,
    log_determinant,
    solve_cholesky,
    solve_lower,
)

# Added to K_dd, relative to its mean diagonal: smooth kernels at many points are singular in float64.
# It acts as if the basis values were known up to 1e-4 of their standard deviation.
NUGGET = 1e-8
_MAX_SWEEPS = 50


@dataclass(frozen=True, slots=True, eq=False)
class ProjectedSites:
    """Sites of all rows in natural form."""

    precision: FloatArray  # (n,)
    shift: FloatArray  # (n,) precision * site mean


@dataclass(frozen=True, slots=True, eq=False)
class Coefficients:
    """q(v): the whitened coefficients of the basis."""

    mean: FloatArray  # (d,)
    inner: FloatArray  # (d, d) lower factor of the precision P


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """Value of the bound, its gradients, and the sites at which it is stationary."""

    value: float
    theta_grad: FloatArray  # (q,)
    noise_grad: dict[str, FloatArray]  # d bound / d parameter of the noise model, natural units
    sites: ProjectedSites


def factor_basis(kernel, Z: FloatArray) -> tuple[FloatArray, float]:
    """Lower factor of K_dd without white noise but with the nugget; and the jitter beyond it."""
    K = kernel_columns(kernel, Z, Z)
    K.flat[:: len(K) + 1] += NUGGET * np.mean(np.diagonal(K))
    return cholesky(K)


def fit_projection(
    kernel, block: Block, Z: FloatArray, start: ProjectedSites | None = None
) -> tuple[TaskPosterior, float, ProjectedSites]:
    """Posterior of a block on the basis Z (d, p), the bound, and the sites of all rows. O(n d^2)."""
    chol, jitter = factor_basis(kernel, Z)
    Phi = solve_lower(chol, kernel_columns(kernel, Z, block.X))
    noise = _effective_noise(kernel, block)
    unexplained = _unexplained(signal_diag(kernel, block.X), Phi)
    q, sites, value = _settle(noise, block.y, Phi, unexplained, start)
    weights = solve_lower(chol, q.mean, transposed=True)
    return TaskPosterior(Z, weights, chol, q.inner, jitter), value, sites


def projected_bound(
    kernel, block: Block, Z: FloatArray, start: ProjectedSites | None = None
) -> Bound:
    """The bound and its gradients, for learning."""
    K_dd = linearize(kernel, Z, Z)
    C = np.array(K_dd.value, order="F")
    C.flat[:: len(C) + 1] += NUGGET * np.mean(np.diagonal(C))
    chol, _ = cholesky(C)
    K_dn = linearize(kernel, Z, block.X)
    Phi = solve_lower(chol, K_dn.value)
    noise = _effective_noise(kernel, block)
    unexplained = _unexplained(signal_diag(kernel, block.X), Phi)
    q, sites, value = _settle(noise, block.y, Phi, unexplained, start)

    mean, var = _marginals(q, Phi, unexplained)
    _, e1, _ = noise.expected_log_prob(block.y, mean, var)
    P_inv = inverse_from_cholesky(q.inner)
    P = q.inner @ q.inner.T
    dL_dPhi = Phi - P_inv @ Phi
    dL_dPhi *= sites.precision
    dL_dPhi += np.outer(q.mean, e1)
    dL_dKdn = solve_lower(chol, dL_dPhi, transposed=True)
    inside = np.outer(q.mean, q.mean) + P + P_inv
    inside.flat[:: len(inside) + 1] -= 2.0
    half = solve_lower(chol, inside, transposed=True)
    dL_dKdd = -0.5 * solve_lower(chol, half.T, transposed=True)
    dL_dKdd.flat[:: len(C) + 1] += NUGGET * np.mean(np.diagonal(dL_dKdd))  # the nugget moves too

    theta_grad = K_dd.theta_vjp(dL_dKdd) + K_dn.theta_vjp(dL_dKdn)
    theta_grad += _diag_gradient(kernel, block, noise, mean, var, sites)
    noise_grad = noise.expected_log_prob_grad(block.y, mean, var)
    return Bound(value, theta_grad, noise_grad, sites)


def _effective_noise(kernel, block: Block):
    return block.noise.absorb(white_diag(kernel, block.X)) if has_white(kernel) else block.noise


def _unexplained(prior_var: FloatArray, Phi: FloatArray) -> FloatArray:
    return np.maximum(prior_var - np.einsum("dn,dn->n", Phi, Phi), 0.0)


def _diag_gradient(kernel, block, noise, mean, var, sites) -> FloatArray:
    d_signal = -0.5 * sites.precision
    if not has_white(kernel):
        return linearize_diag(kernel, block.X).theta_vjp(d_signal)
    d_white = noise.absorbed_grad(block.y, mean, var)
    whole = linearize_diag(kernel, block.X).theta_vjp(d_white)
    return whole + _signal_diag_vjp(kernel, block.X, d_signal - d_white)


def _signal_diag_vjp(kernel, X: FloatArray, dL_ddiag: FloatArray) -> FloatArray:
    """Gradient in theta of a function of the diagonal without white noise, from small blocks of K."""
    gradient = np.zeros(kernel.n_dims)
    for start in range(0, len(X), 64):
        rows = X[start : start + 64]
        gradient += linearize(kernel, rows, rows).theta_vjp(np.diag(dL_ddiag[start : start + 64]))
    return gradient


def _coefficients(Phi: FloatArray, sites: ProjectedSites) -> Coefficients:
    P = (Phi * sites.precision) @ Phi.T
    P.flat[:: len(P) + 1] += 1.0
    inner, _ = cholesky(P)
    return Coefficients(solve_cholesky(inner, Phi @ sites.shift), inner)


def _marginals(q: Coefficients, Phi, unexplained) -> tuple[FloatArray, FloatArray]:
    w = solve_lower(q.inner, Phi)
    return q.mean @ Phi, unexplained + np.einsum("dn,dn->n", w, w)


def _divergence(q: Coefficients) -> float:
    """KL(N(m, P^-1) || N(0, I))."""
    inverse = solve_lower(q.inner, np.eye(len(q.inner)))
    trace = float(np.einsum("ij,ij->", inverse, inverse))
    return 0.5 * (trace + float(q.mean @ q.mean) - len(q.mean) + log_determinant(q.inner))


def _settle(noise, y, Phi, unexplained, start):
    """q, sites and bound at the fixed point."""
    n = len(y)
    mean, var = np.zeros(n), unexplained + np.einsum("dn,dn->n", Phi, Phi)
    sites = _site_update(noise, y, mean, var) if start is None else start
    q = _coefficients(Phi, sites)
    mean, var = _marginals(q, Phi, unexplained)
    value = float(noise.expected_log_prob(y, mean, var)[0].sum()) - _divergence(q)
    if not noise.precision_depends_on_mean:  # Gaussian: the first sites are already the right ones
        return q, sites, value
    step = 1.0
    for _ in range(_MAX_SWEEPS):
        target = _site_update(noise, y, mean, var)
        proposal = ProjectedSites(
            sites.precision + step * (target.precision - sites.precision),
            sites.shift + step * (target.shift - sites.shift),
        )
        new_q = _coefficients(Phi, proposal)
        new_mean, new_var = _marginals(new_q, Phi, unexplained)
        new_value = float(noise.expected_log_prob(y, new_mean, new_var)[0].sum()) - _divergence(new_q)
        if new_value < value - 1e-9 * abs(value) and step > 1e-3:
            step *= 0.5
            continue
        change = new_value - value
        q, sites, value, mean, var = new_q, proposal, new_value, new_mean, new_var
        if abs(change) <= 1e-7 * (1.0 + abs(value)):
            break
        step = min(1.0, 2.0 * step)
    return q, sites, value


def _site_update(noise, y, mean, var) -> ProjectedSites:
    _, d_mean, d_var = noise.expected_log_prob(y, mean, var)
    precision = np.maximum(-2.0 * d_var, 0.0)  # a row that would widen the posterior says nothing
    precision = np.broadcast_to(precision, mean.shape)
    return ProjectedSites(precision, d_mean + precision * mean)
