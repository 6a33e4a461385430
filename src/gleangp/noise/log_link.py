"""What counts and positive targets share: means that are exponentials of the latent function."""

from typing import Any, ClassVar

import numpy as np

from gleangp._typing import FloatArray
from gleangp.exceptions import LabelError
from gleangp.noise.base import Floats, Noise, refuse


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
        exposure = np.broadcast_to(self._exposure, np.shape(y))
        return float(np.log(max(y.sum(), 0.5) / exposure.sum()))  # no event at all: half of one

    def predict_mean(self, mean: Floats, var: Floats) -> FloatArray:
        """Mean of an observation of a new row: the mean of a log-normal distribution."""
        return exp_bounded(self.log_mean(mean) + 0.5 * np.asarray(var))

    def predict_var(self, mean: Floats, var: Floats) -> FloatArray:
        """Variance of an observation of a new row, from the moments of a log-normal distribution."""
        centre, growth = self.predict_mean(mean, var), np.expm1(np.minimum(var, 60.0))  # finite together
        return self.linear * centre + centre**2 * (growth + self.dispersion * (1.0 + growth))

    def check_target(self, y: FloatArray) -> None:
        """Raise `LabelError` unless y are counts and every exposure is positive."""
        expected = "It must be a positive number: the time, area or population in which events were counted."
        remedy = "Leave out rows in which nothing was observed."
        check_counts(y, self.name, "exposure", self._exposure, f"{expected} {remedy}")
