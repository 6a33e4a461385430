"""Counts and positive targets."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import betainc, expit, gammainc, gammaincc, gammaln

from gleangp._typing import FloatArray
from gleangp.exceptions import LabelError
from gleangp.noise.base import Floats, Noise, Three, refuse
from gleangp.numerics.special import (
    digamma_remainder,
    log1p_remainder,
    log_expit_derivatives,
    stirling_remainder,
)


def exp_bounded(x: Floats) -> FloatArray:
    """exp(x), at most exp(300): that is as good as infinite, and its square is still a number."""
    return np.exp(np.minimum(x, 300.0))


def check_counts(y: FloatArray, model: str, name: str, known: Any, remedy: str) -> None:
    """Raise `LabelError` unless y are counts and `known`, the field `name`, is positive and one per row."""
    is_count = np.isfinite(y) & np.greater_equal(y, 0.0) & np.equal(y, np.floor(y))
    other = 'For other targets use noise="gaussian", or "gamma" if they are positive.'
    refuse(~is_count, y, "y", f"{model} noise needs counts: 0, 1, 2, ... {other}")
    if np.ndim(known) > 0 and np.shape(known) != y.shape:
        raise LabelError(
            f"{name} has shape {np.shape(known)} and y has {len(y)} rows. Give one number, or one per row."
        )
    bad = ~(np.isfinite(known) & np.greater(known, 0.0))
    refuse(np.broadcast_to(bad, y.shape), known, name, remedy)


class LogLink(Noise):
    """E[y | f] = exposure exp(f + bias), the exposure being 1 if there is no such field.

    The variance given the mean m is `linear` m + `dispersion` m**2.
    """

    bias: Floats
    linear: ClassVar[float] = 1.0
    name: ClassVar[str] = "Poisson"
    support = "count"

    @property
    def dispersion(self) -> Floats:
        """The share of the squared mean in the variance."""
        return 0.0

    @property
    def _exposure(self) -> Floats:
        return getattr(self, "exposure", 1.0)

    def log_mean(self, f: Floats) -> FloatArray:
        """log E[y | f]."""
        return np.add(f, self.bias + np.log(self._exposure))

    def mean_given(self, f: Floats) -> FloatArray:
        return exp_bounded(self.log_mean(f))

    def var_given(self, f: Floats) -> FloatArray:
        mean = self.mean_given(f)
        return self.linear * mean + self.dispersion * mean**2

    def typical_bias(self, y: FloatArray) -> float:
        """Log of the mean target per unit of exposure."""
        exposure, none = np.broadcast_to(self._exposure, np.shape(y)), not y.any()
        return float(np.log((0.5 if none else y.sum()) / exposure.sum()))  # no event at all: half of one

    def predict_mean(self, mean: Floats, var: Floats) -> FloatArray:
        """Mean of an observation of a new row: the mean of a log-normal distribution."""
        return exp_bounded(self.log_mean(mean) + 0.5 * np.asarray(var))

    def predict_var(self, mean: Floats, var: Floats) -> FloatArray:
        """Variance of an observation of a new row, from the moments of a log-normal distribution."""
        centre, of_mean = self.predict_mean(mean, var), self.var_of_mean(mean, var)
        return self.linear * centre + of_mean + self.dispersion * (centre**2 + of_mean)

    def var_of_mean(self, mean: Floats, var: Floats) -> FloatArray:
        return self.predict_mean(mean, var) ** 2 * np.expm1(np.minimum(var, 60.0))  # finite together

    def check_target(self, y: FloatArray) -> None:
        """Raise `LabelError` unless y are counts and every exposure is positive."""
        expected = "It must be a positive number: the time, area or population in which events were counted."
        remedy = "Leave out rows in which nothing was observed."
        check_counts(y, self.name, "exposure", self._exposure, f"{expected} {remedy}")


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


@dataclass(frozen=True, eq=False)
class Binomial(Noise):
    """y of `trials` with probability 1 / (1 + exp(-(f + bias))) each.

    Parameters
    ----------
    bias : float or ndarray of shape (n,)
        Offset added to the latent function: the log odds where f is zero.
    trials : float or ndarray of shape (n,)
        Number of trials, a whole number. It is known, not learnt.

    Examples
    --------
    >>> float(Binomial(trials=10.0).predict_quantile(mean=0.0, var=0.5, q=0.9))
    8.0
    """

    bias: Floats = 0.0
    trials: Floats = 1.0

    support = "count"

    def derivatives(self, y: Floats, f: Floats) -> Three:
        z, failures = f + self.bias, self.trials - y
        log_p, rest, curvature = log_expit_derivatives(z)
        return self.trials * log_p - failures * z, self.trials * rest - failures, self.trials * curvature

    def log_constant(self, y: Floats) -> FloatArray:
        """log of the number of ways to choose y of the trials."""
        n = np.asarray(self.trials)
        return gammaln(n + 1.0) - gammaln(np.add(y, 1.0)) - gammaln(n - y + 1.0)

    def typical_bias(self, y: FloatArray) -> float:
        """Log odds of all trials, with half an event added to either side."""
        total = np.broadcast_to(self.trials, np.shape(y)).sum()
        return float(np.log((y.sum() + 0.5) / (total - y.sum() + 0.5)))

    def mean_given(self, f: Floats) -> FloatArray:
        return self.trials * expit(f + self.bias)

    def var_given(self, f: Floats) -> FloatArray:
        return self.trials * log_expit_derivatives(f + self.bias)[2]

    def cdf(self, y: Floats, f: Floats) -> FloatArray:
        rest = self.trials - np.asarray(y)
        inside = 1.0 - betainc(np.add(y, 1.0), np.maximum(rest, np.finfo(float).tiny), expit(f + self.bias))
        return np.where(rest > 0.0, inside, 1.0)[()]

    def sample(self, f: Floats, rng: np.random.Generator) -> FloatArray:
        return rng.binomial(np.asarray(self.trials, np.int64), expit(f + self.bias)).astype(np.float64)

    def check_target(self, y: FloatArray) -> None:
        """Raise `LabelError` unless y are counts of at most `trials`, which are positive whole numbers."""
        expected = "It must be a positive whole number: how many cases the count in y is out of."
        check_counts(y, "Binomial", "trials", self.trials, expected)
        trials = np.broadcast_to(self.trials, len(y))
        refuse(np.not_equal(trials, np.floor(trials)), trials, "trials", expected)
        over = np.greater(y, trials)
        most = trials[np.argmax(over)]
        refuse(over, y, "y", f"It cannot be above its {most:g} trials: check `trials`, or use Poisson noise.")
