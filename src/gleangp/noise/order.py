"""What labelled rows and order constraints say, as sites of u = Q f.

The likelihood of Zhang & Yeung 2009, section 4, sees the function only through u: the values at the
labelled rows, and one linear combination for each constraint (a pair, or a difference of pairs). In u
the sites are independent:

    labelled:    N(y | u, variance)
    constraint:  Phi((u - margin) / width),   width = epsilon * norm of its coefficients.

With four different points the norm is 2 and with a pair sqrt(2), as in the paper; where a point is
shared (v = w) its one noise term counts with its coefficient, sqrt(6).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gleangp._typing import FloatArray
from gleangp.numerics.special import log_ndtr_derivatives

# Beyond this the third derivative is below 1e-7 and cancels to noise.
_FAR_LEFT = -300.0


@dataclass(frozen=True, slots=True, eq=False)
class SiteValues:
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
        k = len(self.y)
        residual = self.y - u[:k]
        gaussian = -0.5 * (residual**2 / self.variance + np.log(2.0 * np.pi * self.variance))
        z = self._z(u)
        log_phi, h, curvature = log_ndtr_derivatives(z)
        return SiteValues(
            float(gaussian.sum() + log_phi.sum()),
            np.concatenate([residual / self.variance, h / self.width]),
            np.concatenate([1.0 / self.variance, curvature / self.width**2]),
            np.concatenate([np.zeros(k), _third(z, h, curvature) / self.width**3]),
        )

    def variance_derivatives(self, u: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Derivatives (l,) in each row's variance of log p, of its gradient and of the precision."""
        residual = self.y - u[: len(self.y)]
        inverse = 1.0 / self.variance
        return 0.5 * inverse * (residual**2 * inverse - 1.0), -residual * inverse**2, -(inverse**2)

    def width_derivatives(self, u: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Derivatives (c,) in ln epsilon of log p, of its gradient and of the precision."""
        z = self._z(u)
        _, h, curvature = log_ndtr_derivatives(z)
        third = _third(z, h, curvature)
        d_gradient = (-h + z * curvature) / self.width
        return -z * h, d_gradient, (-2.0 * curvature + z * third) / self.width**2

    def _z(self, u: FloatArray) -> FloatArray:
        return (u[len(self.y) :] - self.margin) / self.width


def _third(z: FloatArray, h: FloatArray, curvature: FloatArray) -> FloatArray:
    """Third derivative of log Phi: with r = h(z) and w = r (r + z), it is w (r + z) - r (1 - w)."""
    third = curvature * (h + z) - h * (1.0 - curvature)
    return np.where(z < _FAR_LEFT, 0.0, third)
