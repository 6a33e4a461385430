"""Binomial noise, for counts out of a known number."""

from dataclasses import dataclass

import numpy as np
from scipy.special import betainc, expit, gammaln

from gleangp._typing import FloatArray
from gleangp.noise.base import Floats, Noise, Three, refuse
from gleangp.noise.log_link import check_counts
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
