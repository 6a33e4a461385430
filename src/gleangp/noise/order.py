"""Labelled rows and order constraints as sites of u = Q f (Zhang & Yeung 2009, section 4).

The likelihood depends on the function only through u: the values at the labelled rows, and one linear
combination for each constraint (a pair, or a difference of pairs). In u the sites are independent:

    labelled:    N(y | u, variance)
    constraint:  Phi((u - margin) / width),   width = epsilon * norm of its coefficients.

With four different points the norm is 2 and with a pair sqrt(2), as in the paper; where a point is
shared (v = w) its one noise term counts with its coefficient, sqrt(6).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gleangp._typing import FloatArray
from gleangp.numerics.special import log_ndtr_derivatives

# Beyond this the third derivative is below 1e-7 and cancels to noise.
_FAR_LEFT = -300.0


class SiteValues(NamedTuple):
    """log p(sites | u) and its derivatives in u, (l + c,) each but the first."""

    log_prob: float
    gradient: FloatArray
    precision: FloatArray  # minus the second derivative, never negative
    third: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class OrderSites:
    """Gaussian sites of the labelled rows, then probit sites of the constraints."""

    y: FloatArray  # (l,)
    variance: FloatArray  # (l,)
    margin: FloatArray  # (c,)
    width: FloatArray  # (c,)

    def __call__(self, u: FloatArray) -> SiteValues:
        """The sites at u (l + c,)."""
        residual = self.y - u[: len(self.y)]
        gaussian = -0.5 * (residual**2 / self.variance + np.log(2.0 * np.pi * self.variance))
        _, log_phi, h, curvature, third = self._constraints(u)
        return SiteValues(
            float(gaussian.sum() + log_phi.sum()),
            np.concatenate([residual / self.variance, h / self.width]),
            np.concatenate([1.0 / self.variance, curvature / self.width**2]),
            np.concatenate([np.zeros(len(self.y)), third / self.width**3]),
        )

    def variance_derivatives(self, u: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Derivatives (l,) in each row's variance of log p, of its gradient and of the precision."""
        residual, inverse = self.y - u[: len(self.y)], 1.0 / self.variance
        return 0.5 * inverse * (residual**2 * inverse - 1.0), -residual * inverse**2, -(inverse**2)

    def width_derivatives(self, u: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Derivatives (c,) in ln epsilon of log p, of its gradient and of the precision."""
        z, _, h, curvature, third = self._constraints(u)
        d_gradient = (-h + z * curvature) / self.width
        return -z * h, d_gradient, (-2.0 * curvature + z * third) / self.width**2

    def _constraints(self, u: FloatArray) -> tuple[FloatArray, ...]:
        """z, log Phi, its derivative h, minus its second w = h (h + z), the third w (h + z) - h (1 - w)."""
        z = (u[len(self.y) :] - self.margin) / self.width
        log_phi, h, curvature = log_ndtr_derivatives(z)
        third = curvature * (h + z) - h * (1.0 - curvature)
        return z, log_phi, h, curvature, np.where(z < _FAR_LEFT, 0.0, third)
