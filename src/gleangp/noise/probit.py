"""Probit noise, for two classes."""

from dataclasses import dataclass

import numpy as np

from gleangp._typing import FloatArray
from gleangp.noise.base import Floats, Three, TwoClasses
from gleangp.numerics.special import log_ndtr_derivatives


@dataclass(frozen=True, eq=False)
class Probit(TwoClasses):
    """p(y | f) = Phi(y slope (f + bias)) for y in {-1, +1} (Lawrence, Platt & Jordan 2005, section 2.4).

    Parameters
    ----------
    bias : float or ndarray of shape (n,)
        Offset added to the latent function.
    slope : float or ndarray of shape (n,)
        lambda of the paper; 1 / slope is the deviation of the Gaussian by which a step was convolved. It
        trades off against the scale of the kernel and its white noise: learn at most one of them.

    Examples
    --------
    >>> log_z, g, nu = Probit().log_partition(y=1.0, mean=0.0, var=3.0)
    >>> float(np.exp(log_z)), float(g.round(4)), float(nu.round(4))
    (0.5, 0.3989, 0.1592)
    >>> log_no, log_yes = Probit().class_log_prob(mean=1.0, var=3.0)
    >>> float(np.exp(log_yes).round(4)), float(Probit().margin(mean=1.0, var=3.0))
    (0.6915, 0.5)
    """

    bias: Floats = 0.0
    slope: Floats = 1.0

    transforms = {"bias": "identity", "slope": "log"}

    def log_partition(self, y: Floats, mean: Floats, var: Floats) -> Three:
        total = self._total(var)
        c = y / np.sqrt(total)  # Lawrence, Platt & Jordan 2005, eq. 13
        log_z, h, curvature = log_ndtr_derivatives((mean + self.bias) * c)
        return log_z, h * c, curvature / total  # Lawrence, Platt & Jordan 2005, eqs. 14-15

    def log_partition_grad(self, y: Floats, mean: Floats, var: Floats) -> dict[str, FloatArray]:
        total = self._total(var)
        c = y / np.sqrt(total)
        u = (mean + self.bias) * c
        _, h, _ = log_ndtr_derivatives(u)
        return {"bias": h * c, "slope": h * u / total * self.slope**-3.0}

    def margin(self, mean: Floats, var: Floats) -> FloatArray:
        """Distance from the boundary in predictive deviations; positive for +1."""
        return (mean + self.bias) / np.sqrt(self._total(var))

    def _total(self, var: Floats) -> Floats:
        return var + 1.0 / (self.slope * self.slope)
