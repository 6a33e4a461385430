"""Negative-binomial noise, for counts that vary more than Poisson counts."""

from dataclasses import dataclass

import numpy as np
from scipy.special import betainc, expit, gammaln

from gleangp._typing import FloatArray
from gleangp.noise.base import Floats, Three
from gleangp.noise.log_link import LogLink
from gleangp.numerics.special import (
    digamma_remainder,
    log1p_remainder,
    log_expit_derivatives,
    stirling_remainder,
)


@dataclass(frozen=True, eq=False)
class NegativeBinomial(LogLink):
    """Counts with mean m = exposure exp(f + bias) and variance m + dispersion m**2.

    This is a Poisson distribution whose rate has a gamma distribution with shape 1 / dispersion.

    Parameters
    ----------
    dispersion : float or ndarray of shape (n,)
        Squared coefficient of variation of the rate, positive.
    bias : float or ndarray of shape (n,)
        Offset added to the latent function: the logarithm of a typical rate.
    exposure : float or ndarray of shape (n,)
        Time, area or population in which the events were counted. It is known, not learnt.

    Examples
    --------
    >>> float(NegativeBinomial(dispersion=0.5).var_given(np.log(4.0)).round(6))
    12.0
    """

    dispersion: Floats = 1.0
    bias: Floats = 0.0
    exposure: Floats = 1.0

    transforms = {"dispersion": "log", "bias": "identity"}
    priors = {"dispersion": (0.3, 1.5)}
    of_tasks, tasks_alike = ("dispersion", 1.0), True
    name = "Negative-binomial"

    def derivatives(self, y: Floats, f: Floats) -> Three:
        log_mean, total = self.log_mean(f), y + 1.0 / self.dispersion
        log_p, share, curvature = log_expit_derivatives(-(log_mean + np.log(self.dispersion)))
        return y * log_mean + total * log_p, y - total * share, total * curvature

    def log_constant(self, y: Floats) -> FloatArray:
        """log of Gamma(y + r) / (Gamma(r) r**y y!) with r = 1 / dispersion."""
        r = 1.0 / np.asarray(self.dispersion)
        main = (y + r) * np.log1p(y * self.dispersion) - y
        return main + stirling_remainder(y + r) - stirling_remainder(r) - gammaln(np.add(y, 1.0))

    def log_prob_grad(self, y: Floats, f: Floats) -> dict[str, FloatArray]:
        mean, r = self.mean_given(f), 1.0 / np.asarray(self.dispersion)
        x = (y - mean) / (r + mean)
        # Far above the target 1 + x is zero by rounding, but not (y + r) / (mean + r).
        log_ratio = np.log((y + r) / (mean + r)) - x
        log_ratio = np.where(x < -0.5, log_ratio, log1p_remainder(np.maximum(x, -0.5)))
        return {"dispersion": -(r**2) * (digamma_remainder(y + r) - digamma_remainder(r) + log_ratio)}

    def cdf(self, y: Floats, f: Floats) -> FloatArray:
        share = expit(self.log_mean(f) + np.log(self.dispersion))
        return 1.0 - betainc(np.add(y, 1.0), 1.0 / np.asarray(self.dispersion), share)

    def sample(self, f: Floats, rng: np.random.Generator) -> FloatArray:
        rate = rng.gamma(1.0 / np.asarray(self.dispersion), self.dispersion * self.mean_given(f))
        return rng.poisson(rate).astype(np.float64)
