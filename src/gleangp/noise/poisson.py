"""Poisson noise, for counts."""

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincc, gammaln

from gleangp._typing import FloatArray
from gleangp.noise.base import Floats, Three
from gleangp.noise.log_link import LogLink, exp_bounded


@dataclass(frozen=True, eq=False)
class Poisson(LogLink):
    """y ~ Poisson(exposure exp(f + bias)) for y in 0, 1, 2, ...

    Parameters
    ----------
    bias : float or ndarray of shape (n,)
        Offset added to the latent function: the logarithm of a typical rate.
    exposure : float or ndarray of shape (n,)
        Time, area or population in which the events were counted. It is known, not learnt.

    Examples
    --------
    >>> float(Poisson(exposure=2.0).predict_quantile(mean=0.0, var=0.5, q=0.9))
    6.0
    """

    bias: Floats = 0.0
    exposure: Floats = 1.0

    def derivatives(self, y: Floats, f: Floats) -> Three:
        log_rate = self.log_mean(f)
        rate = exp_bounded(log_rate)
        return y * log_rate - rate, y - rate, rate

    def log_constant(self, y: Floats) -> FloatArray:
        """-log y!"""
        return -gammaln(np.add(y, 1.0))

    def cdf(self, y: Floats, f: Floats) -> FloatArray:
        return gammaincc(np.add(y, 1.0), self.mean_given(f))

    def sample(self, f: Floats, rng: np.random.Generator) -> FloatArray:
        return rng.poisson(self.mean_given(f)).astype(np.float64)
