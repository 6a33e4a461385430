"""Logit noise, for two classes."""

from dataclasses import dataclass

from gleangp._typing import FloatArray
from gleangp.noise.base import Floats
from gleangp.noise.two_classes import TwoClasses
from gleangp.numerics.special import log_expit_derivatives


@dataclass(frozen=True, eq=False)
class Logit(TwoClasses):
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

    def derivatives(self, y: Floats, f: Floats) -> tuple[FloatArray, FloatArray, FloatArray]:
        """log p(y | f), its first derivative in f and minus its second."""
        log_p, slope, curvature = log_expit_derivatives(y * (f + self.bias))
        return log_p, y * slope, curvature
