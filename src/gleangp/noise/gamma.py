"""Gamma noise, for durations, costs and other positive targets."""

from dataclasses import dataclass

import numpy as np
from scipy.special import gammainc

from gleangp._typing import FloatArray
from gleangp.noise.base import Floats, Three, refuse
from gleangp.noise.log_link import LogLink, exp_bounded
from gleangp.numerics.special import digamma_remainder, stirling_remainder


@dataclass(frozen=True, eq=False)
class Gamma(LogLink):
    """y has a gamma distribution with mean exp(f + bias) and a coefficient of variation 1 / sqrt(shape).

    Parameters
    ----------
    shape : float or ndarray of shape (n,)
        Positive. 1 is the exponential distribution; the larger, the narrower.
    bias : float or ndarray of shape (n,)
        Offset added to the latent function: the logarithm of a typical value.

    Examples
    --------
    >>> log_z, g, nu = Gamma(shape=2.0).log_partition(y=1.0, mean=0.0, var=0.5)
    >>> float(log_z.round(4)), float(g.round(4)), float(nu.round(4))
    (-0.9628, 0.122, 1.0004)
    """

    shape: Floats = 1.0
    bias: Floats = 0.0

    transforms = {"shape": "log", "bias": "identity"}
    priors = {"shape": (2.0, 1.5)}
    of_tasks = ("shape", -1.0)  # the squared coefficient of variation
    support = "positive"
    linear = 0.0

    @property
    def dispersion(self) -> Floats:
        return 1.0 / self.shape

    def derivatives(self, y: Floats, f: Floats) -> Three:
        log_ratio = np.log(y) - self.log_mean(f)
        ratio = exp_bounded(log_ratio)
        return self.shape * (log_ratio - ratio + 1.0), self.shape * (ratio - 1.0), self.shape * ratio

    def log_constant(self, y: Floats) -> FloatArray:
        """log of shape**shape exp(-shape) / (Gamma(shape) y)."""
        return -stirling_remainder(self.shape) - np.log(y)

    def log_prob_grad(self, y: Floats, f: Floats) -> dict[str, FloatArray]:
        log_ratio = np.log(y) - self.log_mean(f)
        return {"shape": log_ratio - exp_bounded(log_ratio) + 1.0 - digamma_remainder(self.shape)}

    def cdf(self, y: Floats, f: Floats) -> FloatArray:
        with np.errstate(divide="ignore"):
            return gammainc(self.shape, self.shape * exp_bounded(np.log(y) - self.log_mean(f)))

    def sample(self, f: Floats, rng: np.random.Generator) -> FloatArray:
        return np.asarray(rng.gamma(self.shape, self.mean_given(f) / self.shape))

    def check_target(self, y: FloatArray) -> None:
        needed = "Gamma noise needs positive targets. Leave out rows without a duration or cost, or use"
        refuse(~(np.isfinite(y) & np.greater(y, 0.0)), y, "y", f'{needed} noise="gaussian".')
