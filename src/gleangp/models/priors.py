"""Priors on parameters, as penalties in the space where they are optimised: logarithms of positive ones.

Examples
--------
Log density and its slope, both elementwise. The slope is zero at a mode.

>>> Gamma(shape=1.0, rate=2.0).log_prob(3.0)[1], Normal(mean=-1.0, spread=2.0).log_prob(3.0)[1]
(-2.0, -1.0)
>>> [float(abs(prior(2.0).log_prob(2.0)[1])) for prior in (LogNormal, Exponential)]
[0.0, 0.0]
>>> [float(prior(scale=2.0).log_prob(4.0)[1]) for prior in (HalfNormal, HalfCauchy)]  # at a deviation of 2
[0.0, 0.0]
>>> Tied(median=1.0, spread=1.0).log_prob(np.array([2.0, 2.0]))[1].round(4)  # alike: drawn to the median
array([-0.1733, -0.1733])
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from gleangp._typing import FloatArray


@dataclass(frozen=True)
class Gamma:
    """Gamma density of the parameter itself; shape 1 is the exponential (an L1 penalty).

    Lawrence, Platt & Jordan 2005, section 4.3, put it on process variances. It is evaluated on the
    natural parameter without a Jacobian, as in the authors' toolbox.
    """

    shape: float = 1.0
    rate: float = 1.0

    def log_prob(self, x):
        norm = self.shape * np.log(self.rate) - gammaln(self.shape)
        value = norm + (self.shape - 1.0) * np.log(x) - self.rate * x
        return value, (self.shape - 1.0) / x - self.rate


@dataclass(frozen=True)
class LogNormal:
    """Normal density of the logarithm, with its median and the standard deviation of the log.

    The density is that of log x, so a flat prior on the log-scale is the limit of a large spread.
    """

    median: float | FloatArray = 1.0
    spread: float = 2.0

    def log_prob(self, x):
        z = np.log(x / self.median) / self.spread
        return -0.5 * (z * z + np.log(2.0 * np.pi)) - np.log(self.spread), -z / (self.spread * x)


@dataclass(frozen=True)
class Normal:
    """Normal density of the parameter itself, for those of either sign such as the bias of a noise model."""

    mean: float | FloatArray = 0.0
    spread: float = 1.0

    def log_prob(self, x):
        z = (x - self.mean) / self.spread
        return -0.5 * (z * z + np.log(2.0 * np.pi)) - np.log(self.spread), -z / self.spread


@dataclass(frozen=True)
class HalfNormal:
    """Half-normal density of a standard deviation; the parameter is its square, a variance.

    The density is that of the logarithm of the deviation (with its Jacobian), so the mode is not at zero.
    """

    scale: float = 1.0

    def log_prob(self, x):
        s2 = self.scale**2
        value = 0.5 * np.log(2.0 / np.pi / s2) - 0.5 * x / s2 + 0.5 * np.log(x)
        return value, -0.5 / s2 + 0.5 / x


@dataclass(frozen=True)
class HalfCauchy:
    """Half-Cauchy density of a standard deviation, as `HalfNormal`."""

    scale: float = 1.0

    def log_prob(self, x):
        s2 = self.scale**2
        value = np.log(2.0 / np.pi / self.scale) - np.log1p(x / s2) + 0.5 * np.log(x)
        return value, -1.0 / (s2 + x) + 0.5 / x


@dataclass(frozen=True)
class Exponential:
    """Exponential density of a positive parameter, as a density of its logarithm."""

    mean: float = 1.0

    def log_prob(self, x):
        return np.log(x / self.mean) - x / self.mean, 1.0 / x - 1.0 / self.mean


@dataclass(frozen=True)
class Tied:
    """Logarithms near a common one, which is normal: most length scales alike, a few far longer.

    With c the mean of the logarithms, c ~ N(log median, spread^2), and their deviations from c have the
    density sech(d / scale): every factor of e away from the others costs about 1 / scale nats.
    """

    median: float = 1.0
    spread: float = 1.0
    scale: float = 0.5

    def log_prob(self, x):
        log_x = np.log(x)
        centre = log_x.mean()
        away = (log_x - centre) / self.scale
        off = (centre - np.log(self.median)) / self.spread
        value = -0.5 * off**2 - np.sum(np.logaddexp(away, -away) - np.log(2.0))
        pull = -np.tanh(away) / self.scale
        slope = pull - pull.mean() - off / self.spread / len(x)
        return value, slope / x
