"""A contaminated normal, for measurements with outliers."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.special import ndtr

from gleangp._typing import FloatArray
from gleangp.noise.base import Floats, Three
from gleangp.noise.gaussian import AddedNoise, Gaussian

_LOG_TWO_PI = np.log(2.0 * np.pi)


@dataclass(frozen=True, eq=False)
class ContaminatedNormal(AddedNoise):
    """p(y | f) = (1 - share) N(y | f + bias, scale**2) + share N(y | f + bias, (reach scale)**2).

    `regular` is the noise of a row that is no outlier. Estimators use it for intervals and deviations: these
    hold for good measurements. `log_density` is that of any observation.

    Parameters
    ----------
    scale : float or ndarray of shape (n,)
        Deviation of a row that is no outlier.
    share : float or ndarray of shape (n,)
        Probability that a row is an outlier.
    reach : float or ndarray of shape (n,)
        Deviation of outliers, in units of `scale`.
    bias : float or ndarray of shape (n,)
        Offset added to the latent function.

    Notes
    -----
    Z is the same mixture with variances v_1 = var + scale**2 and v_2 = var + (reach scale)**2. p(y | f) is
    not log-concave: nu < 0 for a row that may be an outlier or not.

    Examples
    --------
    >>> y, noise = np.array([1.0, 9.0]), ContaminatedNormal(scale=0.5)
    >>> noise.log_partition(y, mean=0.0, var=0.1)[1].round(2)
    array([2.79, 0.36])
    """

    scale: Floats = 0.3
    share: Floats = 0.05
    reach: Floats = 10.0
    bias: Floats = 0.0

    log_concave = False
    transforms = {"scale": "log", "share": "logit", "reach": "log", "bias": "identity"}
    priors = {"scale": (0.3, 1.5), "share": (0.02, 1.0), "reach": (10.0, 1.0)}
    of_tasks = ("scale", 0.5)

    def log_partition(self, y: Floats, mean: Floats, var: Floats) -> Three:
        r = y - mean - self.bias
        log_z, p, (a, b), _ = self._two(r, var)
        inverse, square = (1.0 - p) * a + p * b, (1.0 - p) * a**2 + p * b**2
        return log_z, r * inverse, inverse - r**2 * (square - inverse**2)

    def log_partition_grad(self, y: Floats, mean: Floats, var: Floats) -> dict[str, FloatArray]:
        r = y - mean - self.bias
        log_z, p, (a, b), (log_1, log_2) = self._two(r, var)
        # d log N / d variance of both components, times their posterior weights
        of_1, of_2 = 0.5 * (1.0 - p) * (r**2 * a**2 - a), 0.5 * p * (r**2 * b**2 - b)
        return {
            "scale": 2.0 * self.scale * (of_1 + np.square(self.reach) * of_2),
            "share": np.exp(log_2 - log_z) - np.exp(log_1 - log_z),
            "reach": 2.0 * np.square(self.scale) * self.reach * of_2,
            "bias": r * ((1.0 - p) * a + p * b),
        }

    def _two(self, r: Floats, var: Floats) -> tuple[FloatArray, FloatArray, Any, Any]:
        """log Z, the probability that the row is an outlier, both 1 / v, and both log densities."""
        precisions = self._precisions(var)
        log_1, log_2 = (0.5 * (np.log(v) - _LOG_TWO_PI - r**2 * v) for v in precisions)
        with np.errstate(divide="ignore"):  # log 0 = -inf is right where there are no outliers
            log_z = np.logaddexp(np.log1p(-np.asarray(self.share)) + log_1, np.log(self.share) + log_2)
            return log_z, np.exp(np.log(self.share) + log_2 - log_z), precisions, (log_1, log_2)

    def _precisions(self, var: Floats) -> tuple[FloatArray, FloatArray]:
        """1 / v_1 and 1 / v_2."""
        square = np.square(self.scale)
        return 1.0 / (var + square), 1.0 / (var + np.square(self.reach) * square)

    def with_variance(self, variance: FloatArray) -> Self:
        """With these scale**2; what outliers have beyond stays, as a wrong entry is far off in any task."""
        more = np.square(self.scale) * (np.square(self.reach) - 1.0)
        return replace(self, scale=np.sqrt(variance), reach=np.sqrt(1.0 + more / variance))

    def grad_of_shared(
        self, by_name: dict[str, FloatArray], shared: Self
    ) -> tuple[dict[str, FloatArray], FloatArray]:
        square, more = np.square(self.scale), np.square(shared.scale) * (np.square(shared.reach) - 1.0)
        of_more = by_name["reach"] / (2.0 * square * self.reach)
        by_log = 0.5 * self.scale * by_name["scale"] - more * of_more
        of_scale = 2.0 / shared.scale * (by_log + more * of_more)
        of_reach = 2.0 * np.square(shared.scale) * shared.reach * of_more
        return {**by_name, "scale": of_scale, "reach": of_reach}, by_log

    @property
    def regular(self) -> Gaussian:
        return Gaussian(np.square(self.scale), self.bias)

    def var_given(self, f: Floats) -> FloatArray:
        """Variance of y given f, outliers included."""
        grown = 1.0 + self.share * (np.square(self.reach) - 1.0)
        return np.square(self.scale) * grown + np.zeros_like(f, dtype=np.float64)

    def predict_cdf(self, y: Floats, mean: Floats, var: Floats) -> FloatArray:
        r = y - mean - self.bias
        regular, outlier = (ndtr(r * np.sqrt(v)) for v in self._precisions(var))
        return (1.0 - self.share) * regular + self.share * outlier

    def sample(self, f: Floats, rng: np.random.Generator) -> FloatArray:
        shape = np.broadcast_shapes(*(np.shape(a) for a in (f, *self.parameters.values())))
        scale = self.scale * np.where(rng.random(shape) < self.share, self.reach, 1.0)
        return f + self.bias + scale * rng.standard_normal(shape)
