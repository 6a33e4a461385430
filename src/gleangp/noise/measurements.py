"""Measured targets: normal noise that is added to the latent function, also with outliers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.special import ndtr, ndtri

from gleangp._typing import FloatArray
from gleangp.noise.base import Floats, Mixture, Noise, NoiseModel, Three, log_shares

_LOG_TWO_PI = np.log(2.0 * np.pi)


class AddedNoise(Noise):
    """y = f + bias + noise, the noise independent of f and of mean zero."""

    bias: Floats

    log_prob, log_partition_grad = NoiseModel.log_prob, NoiseModel.log_partition_grad

    def mean_given(self, f: Floats) -> FloatArray:
        return np.add(f, self.bias)

    def predict_mean(self, mean: Floats, var: Floats) -> FloatArray:
        return self.mean_given(mean)

    def predict_var(self, mean: Floats, var: Floats) -> FloatArray:
        return var + self.var_given(mean)

    def var_of_mean(self, mean: Floats, var: Floats) -> FloatArray:
        return np.asarray(var)

    def cdf(self, y: Floats, f: Floats) -> FloatArray:
        return self.predict_cdf(y, f, 0.0)


@dataclass(frozen=True, eq=False)
class Gaussian(AddedNoise):
    """p(y | f) = N(y | f + bias, variance) (Lawrence, Platt & Jordan 2005, section 2.3).

    Parameters
    ----------
    variance : float or ndarray of shape (n,)
        Noise variance, shared or one per row.
    bias : float or ndarray of shape (n,)
        Offset added to the latent function.

    Examples
    --------
    >>> log_z, g, nu = Gaussian(variance=1.0).log_partition(y=2.0, mean=0.0, var=3.0)
    >>> float(g), float(nu)
    (0.5, 0.25)
    """

    variance: Floats = 1.0
    bias: Floats = 0.0

    precision_depends_on_mean = False
    transforms = {"variance": "log", "bias": "identity"}
    priors = {"variance": (0.1, 3.0)}
    of_tasks = ("variance", 1.0)

    def log_partition(self, y: Floats, mean: Floats, var: Floats) -> Three:
        residual, total = np.broadcast_arrays(y - mean - self.bias, var + self.variance)
        nu = 1.0 / total  # Lawrence, Platt & Jordan 2005, eq. 10
        g = residual * nu  # Lawrence, Platt & Jordan 2005, eq. 9
        return -0.5 * (residual * g + np.log(total) + _LOG_TWO_PI), g, nu

    def var_given(self, f: Floats) -> FloatArray:
        return self.variance + np.zeros_like(f, dtype=np.float64)

    def predict_cdf(self, y: Floats, mean: Floats, var: Floats) -> FloatArray:
        return ndtr((y - self.mean_given(mean)) / np.sqrt(self.predict_var(mean, var)))

    def predict_quantile(self, mean: Floats, var: Floats, q: Floats) -> FloatArray:
        return self.mean_given(mean) + np.sqrt(self.predict_var(mean, var)) * ndtri(q)

    def sample(self, f: Floats, rng: np.random.Generator) -> FloatArray:
        shape = np.broadcast_shapes(*(np.shape(a) for a in (f, self.bias, self.variance)))
        return f + self.bias + np.sqrt(self.variance) * rng.standard_normal(shape)


@dataclass(frozen=True, eq=False)
class ContaminatedNormal(Mixture, AddedNoise):
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

    transforms = {"scale": "log", "share": "logit", "reach": "log", "bias": "identity"}
    priors = {"scale": (0.3, 1.5), "share": (0.02, 1.0), "reach": (10.0, 1.0)}
    of_tasks = ("scale", 0.5)

    def log_partition_grad(self, y: Floats, mean: Floats, var: Floats) -> dict[str, FloatArray]:
        (log_z, g, _), shares, parts = self._mixed(y, mean, var)
        # d log Z / d variance of both components
        of_1, of_2 = (w * 0.5 * (g_i**2 - nu_i) for w, (_, g_i, nu_i) in zip(shares, parts, strict=True))
        return {
            "scale": 2.0 * self.scale * (of_1 + np.square(self.reach) * of_2),
            "share": np.exp(parts[1][0] - log_z) - np.exp(parts[0][0] - log_z),
            "reach": 2.0 * np.square(self.scale) * self.reach * of_2,
            "bias": g,
        }

    def _parts(self, y: Floats, mean: Floats, var: Floats) -> tuple[Sequence[Floats], Sequence[Three]]:
        parts = [noise.log_partition(y, mean, var) for noise in (self.regular, self.outlier)]
        return log_shares(self.share), parts

    def with_variance(self, variance: FloatArray) -> Self:
        """With these scale**2; what outliers have beyond stays, as a wrong entry is far off in any task."""
        more = np.square(self.scale) * (np.square(self.reach) - 1.0)
        with np.errstate(invalid="ignore"):  # a search can try a reach below one: NaN with less noise
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

    @property
    def outlier(self) -> Gaussian:
        """The noise of a row that is one."""
        return Gaussian(np.square(self.reach * self.scale), self.bias)

    def var_given(self, f: Floats) -> FloatArray:
        """Variance of y given f, outliers included."""
        grown = 1.0 + self.share * (np.square(self.reach) - 1.0)
        return np.square(self.scale) * grown + np.zeros_like(f, dtype=np.float64)

    def predict_cdf(self, y: Floats, mean: Floats, var: Floats) -> FloatArray:
        regular, outlier = (noise.predict_cdf(y, mean, var) for noise in (self.regular, self.outlier))
        return (1.0 - self.share) * regular + self.share * outlier

    def sample(self, f: Floats, rng: np.random.Generator) -> FloatArray:
        shape = np.broadcast_shapes(*(np.shape(a) for a in (f, *self.parameters.values())))
        scale = self.scale * np.where(rng.random(shape) < self.share, self.reach, 1.0)
        return f + self.bias + scale * rng.standard_normal(shape)
