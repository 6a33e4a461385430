"""Expectation propagation one site after the other: the slow twin of `inference.propagate`.

Lawrence, Platt & Jordan 2005, section 3.5; Minka 2001. A sweep takes each site out (its cavity), matches
moments again, and puts it back, as the authors' toolbox does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gleangp._typing import FloatArray
from gleangp.inference.block import Block
from gleangp.inference.posterior import PRECISION_FLOOR, Sites
from gleangp.numerics.linalg import cholesky, log_determinant, solve_lower


@dataclass(frozen=True, slots=True, eq=False)
class Propagated:
    """Sites after the sweeps, the EP log evidence, and how it went."""

    sites: Sites
    log_evidence: float
    n_sweeps: int
    change: float  # largest change of a site precision in the last sweep
    converged: bool


def propagate(kernel, kept: Block, sites: Sites, *, max_sweeps: int = 100, tol: float = 1e-8) -> Propagated:
    """Sweep over the sites of the active points `kept`, in their order, until they settle. O(d^3) a sweep.

    `tol` is on the largest change of a site precision, relative to the largest precision.
    """
    K = kernel(kept.X)
    mean, precision = np.array(sites.mean), np.array(sites.precision)
    change, n_sweeps, n_silent = np.inf, 0, sites.n_silent
    while n_sweeps < max_sweeps:
        n_sweeps += 1
        before = precision.copy()
        n_silent = _sweep(K, kept, mean, precision)
        change = float(np.max(np.abs(precision - before), initial=0.0))
        if change <= tol * (1.0 + np.max(precision, initial=0.0)):
            break
    settled = Sites(mean, precision, n_silent)
    converged = bool(change <= tol * (1.0 + np.max(precision, initial=0.0)))
    return Propagated(settled, ep_log_evidence(K, kept, settled), n_sweeps, change, converged)


def ep_log_evidence(K: FloatArray, kept: Block, sites: Sites) -> float:
    """EP's approximation to log p(y_I), from the sites and their cavities (Minka 2001)."""
    C = K + np.diag(1.0 / sites.precision)
    chol, _ = cholesky(C)
    z = solve_lower(chol, sites.mean)
    post_mean, cov = _moments(K, sites.mean, sites.precision)
    cavity_mean, cavity_var = _cavity(post_mean, np.diagonal(cov), sites.mean, sites.precision)
    log_z, _, _ = kept.noise.log_partition(kept.y, cavity_mean, cavity_var)
    spread = cavity_var + 1.0 / sites.precision
    correction = 0.5 * (np.log(spread) + (sites.mean - cavity_mean) ** 2 / spread)
    return float(np.sum(log_z + correction) - 0.5 * (log_determinant(chol) + z @ z))


def _sweep(K, kept: Block, site_mean, site_precision) -> int:
    """One pass over all sites, in place; returns how many were silenced (see `filtering`)."""
    mean, cov = _moments(K, site_mean, site_precision)
    n_silent = 0
    for i in range(len(kept)):
        one = np.array([i])
        cavity_mean, cavity_var = _cavity(mean[one], cov[one, one], site_mean[one], site_precision[one])
        if not cavity_var[0] > 0.0:
            continue  # the others do not support this site on their own: keep it as it is
        noise = kept.noise.at(one)
        _, g, nu = noise.log_partition(kept.y[one], cavity_mean, cavity_var)
        g, nu = float(g[0]), float(nu[0])
        if nu < PRECISION_FLOOR:
            g, nu = (g if noise.log_concave else 0.0), PRECISION_FLOOR
            n_silent += not noise.log_concave
        precision = nu / (1.0 - nu * cavity_var[0])
        new_mean = cavity_mean[0] + g / nu
        more = precision - site_precision[i]
        shift = precision * new_mean - site_precision[i] * site_mean[i]
        column = cov[:, i].copy()
        scale = 1.0 + more * column[i]
        mean += (shift - more * mean[i]) / scale * column
        cov -= (more / scale) * np.outer(column, column)
        site_mean[i], site_precision[i] = new_mean, precision
    return n_silent


def _moments(K, site_mean, site_precision) -> tuple[FloatArray, FloatArray]:
    """Posterior mean (d,) and covariance (d, d) at the active points."""
    chol, _ = cholesky(K + np.diag(1.0 / site_precision))
    v = solve_lower(chol, K)
    return v.T @ solve_lower(chol, site_mean), K - v.T @ v


def _cavity(mean, var, site_mean, site_precision) -> tuple[FloatArray, FloatArray]:
    """Marginals with their own site taken out."""
    cavity_var = 1.0 / (1.0 / var - site_precision)
    return cavity_var * (mean / var - site_precision * site_mean), cavity_var
