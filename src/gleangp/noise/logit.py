"""Logit noise, for two classes."""

from dataclasses import dataclass

import numpy as np

from gleangp._typing import FloatArray
from gleangp.noise.base import Floats, Noise, Three, TwoClasses
from gleangp.noise.probit import Probit
from gleangp.numerics.special import log_expit_derivatives

# A variance beside which the noise of `Logit` (logistic, of variance pi^2 / 3) has the effect of normal noise
# to 1e-9, and an integrand with a step that is too narrow for nodes.
_WIDE = 1e6


@dataclass(frozen=True, eq=False)
class Logit(TwoClasses, Noise):
    """p(y | f) = 1 / (1 + exp(-y (f + bias))) for y in {-1, +1}.

    Parameters
    ----------
    bias : float or ndarray of shape (n,)
        Offset added to the latent function: the log odds of +1 where f is zero.

    Examples
    --------
    >>> log_z, g, nu = Logit().log_partition(y=1.0, mean=0.0, var=3.0)
    >>> float(log_z.round(4)), float(g.round(4)), float(nu.round(4))
    (-0.6931, 0.3287, 0.108)
    """

    bias: Floats = 0.0

    support = "label"

    def derivatives(self, y: Floats, f: Floats) -> Three:
        log_p, slope, curvature = log_expit_derivatives(y * (f + self.bias))
        return log_p, y * slope, curvature

    def log_partition(self, y: Floats, mean: Floats, var: Floats) -> Three:
        wide = np.asarray(var) > _WIDE
        narrow = super().log_partition(y, mean, np.where(wide, 1.0, var))
        if not np.any(wide):
            return narrow
        normal = Probit(self.bias, np.sqrt(3.0) / np.pi).log_partition(y, mean, var)
        log_z, g, nu = (np.where(wide, a, b)[()] for a, b in zip(normal, narrow, strict=True))
        return log_z, g, nu

    def class_log_prob(self, mean: Floats, var: Floats) -> tuple[FloatArray, FloatArray]:
        """As for other noise; without the error of the quadrature in their sum, which is one."""
        minus, plus = super().class_log_prob(mean, var)
        total = np.logaddexp(minus, plus)
        return minus - total, plus - total

    def log_partition_grad(self, y: Floats, mean: Floats, var: Floats) -> dict[str, FloatArray]:
        return {"bias": self.log_partition(y, mean, var)[1]}
