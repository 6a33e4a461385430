"""What noise models of positive targets share: the logarithm of the mean of y is f plus an offset."""

from typing import ClassVar

import numpy as np

from gleangp._typing import FloatArray
from gleangp.noise.base import Floats, Noise, check_counts, check_positive


def exp_bounded(x: Floats) -> FloatArray:
    """exp(x), at most exp(300): that is as good as infinite, and its square is still a number."""
    return np.exp(np.minimum(x, 300.0))


class LogLink(Noise):
    """E[y | f] = exp(f + offset); the variance given the mean m is `linear` m + `quadratic` m**2."""

    bias: Floats
    linear: ClassVar[float] = 0.0

    @property
    def quadratic(self) -> Floats:
        """The share of the squared mean in the variance."""
        return 0.0

    @property
    def offset(self) -> Floats:
        """What is added to f."""
        return self.bias

    def log_mean(self, f: Floats) -> FloatArray:
        """log E[y | f]."""
        return np.add(f, self.offset)

    def mean_given(self, f: Floats) -> FloatArray:
        return exp_bounded(self.log_mean(f))

    def var_given(self, f: Floats) -> FloatArray:
        mean = self.mean_given(f)
        return self.linear * mean + self.quadratic * mean**2

    def typical_bias(self, y: FloatArray) -> float:
        """Log of the mean target per unit of exposure."""
        exposure = np.broadcast_to(getattr(self, "exposure", 1.0), np.shape(y))
        return float(np.log(max(y.sum(), 0.5) / exposure.sum()))  # no event at all: half of one

    def predict_mean(self, mean: Floats, var: Floats) -> FloatArray:
        """Mean of an observation of a new row: the mean of a log-normal distribution."""
        return exp_bounded(mean + self.offset + 0.5 * np.asarray(var))

    def predict_var(self, mean: Floats, var: Floats) -> FloatArray:
        """Variance of an observation of a new row, from the moments of a log-normal distribution."""
        centre, growth = self.predict_mean(mean, var), np.expm1(np.minimum(var, 60.0))  # finite together
        return self.linear * centre + centre**2 * (growth + self.quadratic * (1.0 + growth))


class Counts(LogLink):
    """Events in a known exposure: 0, 1, 2, ..."""

    exposure: Floats
    name: ClassVar[str] = "Poisson"
    support: ClassVar[str] = "count"
    linear: ClassVar[float] = 1.0

    @property
    def offset(self) -> Floats:
        return self.bias + np.log(self.exposure)

    def check_target(self, y: FloatArray) -> None:
        """Raise `LabelError` unless y are counts and every exposure is positive."""
        check_counts(y, self.name)
        remedy = (
            "It must be a positive number: the time, area or population in which events were counted. "
            "Leave out rows in which nothing was observed."
        )
        check_positive(self.exposure, len(y), "exposure", remedy)
