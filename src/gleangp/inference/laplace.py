"""Laplace's approximation for sites of u with a Gaussian prior N(0, K) on u.

The mode is found by Newton's method in a = K^-1 u, damped so that the objective never falls; the sites
are log-concave, so it is unique and contradictory sites converge too (Zhang & Yeung 2009, section 4.1,
descend its gradient).

The gradient of the evidence follows the mode as it moves. With g the gradient of log p at the mode,
Rm = (K + W^-1)^-1, s = 1/2 diag(posterior covariance) * (third derivative of log p), h = (1 - Rm K) s,

    d ln Z = tr[ (1/2 g g^T - 1/2 Rm + 1/2 (g h^T + h g^T)) dK ]

(Rasmussen & Williams 2006, section 5.5.1). Zhang & Yeung 2009 leave the terms in h out, which can turn
the sign of the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gleangp._typing import FloatArray
from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.noise.order import SiteValues
from gleangp.numerics.linalg import cholesky, log_determinant, solve_cholesky, solve_lower

_MAX_STEPS = 100
_TOLERANCE = 1e-11  # of the objective, relative
_LEAST_STEP = 1e-8


@dataclass(frozen=True, slots=True, eq=False)
class LaplaceFit:
    """The mode and the curvature there."""

    dual: FloatArray  # (N,) a = K^-1 u, which at the mode is the gradient of log p
    u: FloatArray  # (N,)
    sites: SiteValues
    chol: FloatArray  # (N, N) lower factor of 1 + W^1/2 K W^1/2
    log_evidence: float

    def reduction(self) -> FloatArray:
        """Rm = (K + W^-1)^-1 (N, N): by how much of it the sites reduce the prior covariance."""
        root = np.sqrt(self.sites.precision)
        half = solve_lower(self.chol, np.diag(root))
        return half.T @ half


def find_mode(
    K: FloatArray, sites: Callable[[FloatArray], SiteValues], start: FloatArray | None = None
) -> LaplaceFit:
    """Damped Newton to the mode of log p(sites | u) - 1/2 u^T K^-1 u.

    `start` (N,) is a dual vector to begin from, used only if it beats zero.
    """
    if not np.isfinite(K).all():
        raise NotPositiveDefiniteError("a prior covariance has entries that are not finite.")
    a, u = np.zeros(len(K)), np.zeros(len(K))
    values = sites(u)
    objective = values.log_prob
    if start is not None:
        started = sites(K @ start)
        ahead = float(started.log_prob - 0.5 * start @ (K @ start))
        if np.isfinite(ahead) and ahead > objective:
            a, u, values, objective = start, K @ start, started, ahead
    chol = _factor(K, values.precision)
    for _ in range(_MAX_STEPS):
        root = np.sqrt(values.precision)
        b = values.precision * u + values.gradient
        target = b - root * solve_cholesky(chol, root * (K @ b))  # Rasmussen & Williams 2006, alg. 3.1
        step, direction = 1.0, target - a
        while True:
            a_new = a + step * direction
            u_new = K @ a_new
            new_values = sites(u_new)
            new = float(new_values.log_prob - 0.5 * a_new @ u_new)
            if new >= objective - 1e-13 * abs(objective) or step < _LEAST_STEP:
                break
            step *= 0.5
        if not new >= objective - 1e-13 * abs(objective):
            break  # rounding error is all that is left
        converged = abs(new - objective) <= _TOLERANCE * (1.0 + abs(objective)) and step == 1.0
        a, u, values, objective = a_new, u_new, new_values, new
        chol = _factor(K, values.precision)
        if converged:
            break
    log_evidence = objective - 0.5 * log_determinant(chol)
    return LaplaceFit(a, u, values, chol, float(log_evidence))


def _factor(K, precision):
    root = np.sqrt(precision)
    B = root[:, None] * K * root
    B.flat[:: len(B) + 1] += 1.0
    return cholesky(B)[0]


def laplace_gradient(K: FloatArray, fit: LaplaceFit) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Derivative of the log evidence in K (N, N), posterior variance of u (N,), and K h (N,).

    K h is the derivative in the gradient of log p, through which the mode moves.
    """
    values = fit.sites
    Rm = fit.reduction()
    root = np.sqrt(values.precision)
    half = solve_lower(fit.chol, root[:, None] * K)
    variance = np.diagonal(K) - np.einsum("ij,ij->j", half, half)
    s = 0.5 * variance * values.third
    h = s - Rm @ (K @ s)
    g = values.gradient
    dK = 0.5 * (np.outer(fit.dual, fit.dual) - Rm + np.outer(g, h) + np.outer(h, g))
    return dK, variance, K @ h
