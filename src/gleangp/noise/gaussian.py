"""Gaussian noise, and what noise that is added to the latent function shares."""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from gleangp._typing import FloatArray
from gleangp.noise.base import Floats, Noise, NoiseModel, Three

_LOG_TWO_PI = np.log(2.0 * np.pi)


class AddedNoise(Noise):
    """y = f + bias + noise, the noise independent of f and of mean zero."""

    bias: Floats

    log_prob = NoiseModel.log_prob

    def mean_given(self, f: Floats) -> FloatArray:
        return np.add(f, self.bias)

    def predict_mean(self, mean: Floats, var: Floats) -> FloatArray:
        return self.mean_given(mean)

    def predict_var(self, mean: Floats, var: Floats) -> FloatArray:
        return var + self.var_given(mean)

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

    def log_partition_grad(self, y: Floats, mean: Floats, var: Floats) -> dict[str, FloatArray]:
        _, g, nu = self.log_partition(y, mean, var)
        return {"variance": 0.5 * (g**2 - nu), "bias": g}

    def var_given(self, f: Floats) -> FloatArray:
        return self.variance + np.zeros_like(f, dtype=np.float64)

    def predict_cdf(self, y: Floats, mean: Floats, var: Floats) -> FloatArray:
        return ndtr((y - self.mean_given(mean)) / np.sqrt(self.predict_var(mean, var)))

    def predict_quantile(self, mean: Floats, var: Floats, q: Floats) -> FloatArray:
        return self.mean_given(mean) + np.sqrt(self.predict_var(mean, var)) * ndtri(q)

    def sample(self, f: Floats, rng: np.random.Generator) -> FloatArray:
        shape = np.broadcast_shapes(*(np.shape(a) for a in (f, self.bias, self.variance)))
        return f + self.bias + np.sqrt(self.variance) * rng.standard_normal(shape)
