"""Binomial noise, for counts out of a known number of trials."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import betainc, expit, gammaln

from gleangp._typing import FloatArray
from gleangp.noise.base import Floats, Noise, check_counts, check_positive, refuse
from gleangp.numerics.special import log_expit_derivatives


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
    >>> noise = Binomial(trials=10.0)
    >>> log_z, g, nu = noise.log_partition(y=7.0, mean=0.0, var=0.5)
    >>> float(log_z.round(4)), float(g.round(4)), float(nu.round(4))
    (-2.0822, 0.9236, 1.0602)
    >>> mean, upper = noise.predict_mean(0.0, 0.5), noise.predict_quantile(0.0, 0.5, 0.9)
    >>> float(mean.round(6)), float(upper)
    (5.0, 8.0)
    """

    bias: Floats = 0.0
    trials: Floats = 1.0

    support: ClassVar[str] = "count"

    def derivatives(self, y: Floats, f: Floats) -> tuple[FloatArray, FloatArray, FloatArray]:
        z = f + self.bias
        log_p, rest, curvature = log_expit_derivatives(z)
        failures = self.trials - y
        log_prob = self.trials * log_p - failures * z
        return log_prob, self.trials * rest - failures, self.trials * curvature

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
        check_counts(y, "Binomial")
        expected = "It must be a positive whole number: how many cases the count in y is out of."
        check_positive(self.trials, len(y), "trials", expected)
        trials = np.broadcast_to(self.trials, len(y))
        refuse(np.not_equal(trials, np.floor(trials)), trials, "trials", expected)
        over = np.greater(y, trials)
        most = trials[np.argmax(over)]
        refuse(over, y, "y", f"It cannot be above its {most:g} trials: check `trials`, or use Poisson noise.")
