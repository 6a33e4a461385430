"""Student's t noise, for regression with outliers.

A t distribution is a normal distribution whose precision has a gamma distribution,
p(y | f) = E[N(y | f, scale**2 / w)] with w ~ Gamma(df / 2, df / 2). Given w the latent value integrates in
closed form, so Z is one integral over log w. Its integrand is smooth on a scale that depends on df alone,
however far apart the widths of prior and noise are, and it covers both modes of p(y | f) N(f | mean, var).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import betaln, ndtr, stdtr

from gleangp._typing import FloatArray
from gleangp.noise.base import Floats, Noise
from gleangp.noise.quadrature import DROP, LEAST_VARIANCE, flat, trapezoid
from gleangp.special import digamma_remainder, stirling_remainder

_LOG_TWO_PI = np.log(2.0 * np.pi)


@dataclass(frozen=True, eq=False)
class StudentT(Noise):
    """p(y | f) = t((y - f - bias) / scale) / scale, with t the density of Student's t with df degrees.

    Parameters
    ----------
    scale : float or ndarray of shape (n,)
        Width of the distribution; its standard deviation is scale sqrt(df / (df - 2)) for df > 2.
    df : float or ndarray of shape (n,)
        Degrees of freedom: the smaller, the more outliers. With many it is Gaussian noise.
    bias : float or ndarray of shape (n,)
        Offset added to the latent function.

    Notes
    -----
    p(y | f) is not log-concave. An outlier has nu < 0; the further out, the smaller its influence.

    Examples
    --------
    >>> noise = StudentT(scale=0.5, df=4.0)
    >>> log_z, g, nu = noise.log_partition(y=np.array([1.0, 10.0]), mean=0.0, var=0.1)
    >>> log_z.round(4), g.round(4), nu.round(4)
    (array([ -1.7621, -11.8107]), array([2.2241, 0.498 ]), array([ 0.9526, -0.0494]))
    """

    scale: Floats = 1.0
    df: Floats = 4.0
    bias: Floats = 0.0

    log_concave: ClassVar[bool] = False
    transforms: ClassVar[Mapping[str, str]] = {"scale": "log", "df": "log", "bias": "identity"}
    priors: ClassVar[Mapping[str, tuple[float, float]]] = {"scale": (0.3, 1.5), "df": (8.0, 1.0)}

    def log_prob(self, y: Floats, f: Floats) -> FloatArray:
        """log p(y | f)."""
        df = np.asarray(self.df)
        tail = 0.5 * (df + 1.0) * np.log1p(((y - f - self.bias) / self.scale) ** 2 / df)
        return -betaln(0.5, 0.5 * df) - 0.5 * np.log(df) - np.log(self.scale) - tail

    def log_partition(
        self, y: Floats, mean: Floats, var: Floats
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """log E[p(y | f)] under N(mean, var), with g and the true nu, which may be negative."""
        noise, shape, y, mean, var = flat(self, y, mean, var)
        residual = y - mean - noise.bias
        log_z, (inverse, square) = noise._mixture(residual, var, lambda log_w, w, b, r, s: [b, b**2])
        g, nu = residual * inverse, inverse - residual**2 * (square - inverse**2)
        log_z = log_z - 0.5 * _LOG_TWO_PI - stirling_remainder(0.5 * np.asarray(noise.df))
        return tuple(part.reshape(shape)[()] for part in (log_z, g, nu))

    def log_partition_grad(self, y: Floats, mean: Floats, var: Floats) -> dict[str, FloatArray]:
        """d log_z / d parameter, per row."""
        noise, shape, y, mean, var = flat(self, y, mean, var)
        residual = y - mean - noise.bias
        _, (inverse, of_scale, of_df) = noise._mixture(
            residual,
            var,
            lambda log_w, w, b, r, s: [b, s / w * b * (r**2 * b - 1.0), 0.5 * (log_w - np.expm1(log_w))],
        )
        of_df = of_df - 0.5 * digamma_remainder(0.5 * np.asarray(noise.df))
        found = {"scale": of_scale, "df": of_df, "bias": residual * inverse}
        return {name: value.reshape(shape)[()] for name, value in found.items()}

    def mean_given(self, f: Floats) -> FloatArray:
        """Centre of y given f: its mean for df > 1."""
        return np.add(f, self.bias)

    def var_given(self, f: Floats) -> FloatArray:
        """Variance of y given f: infinite for df <= 2."""
        df = np.asarray(self.df)
        ratio = np.where(df > 2.0, df / np.where(df > 2.0, df - 2.0, 1.0), np.inf)
        return np.square(self.scale) * ratio + np.zeros_like(f, dtype=np.float64)

    def cdf(self, y: Floats, f: Floats) -> FloatArray:
        """P(Y <= y | f)."""
        return stdtr(self.df, (y - f - self.bias) / self.scale)

    def predict_cdf(self, y: Floats, mean: Floats, var: Floats) -> FloatArray:
        """Probability that an observation of a new row with f ~ N(mean, var) is at most y."""
        noise, shape, target, centre, spread = flat(self, y, mean, var)
        residual = target - centre - noise.bias
        scale, half = noise._per_row(len(residual))
        fall = DROP / half

        def integrand(rows: Any, log_w: FloatArray) -> tuple[FloatArray, list[FloatArray]]:
            w = np.exp(log_w)
            p = ndtr(residual[rows] / np.sqrt(spread[rows] + scale[rows] ** 2 / w))
            return half[rows] * (log_w - (w - 1.0)), [p]

        return trapezoid(integrand, -_left(fall), _right(fall), rough=True)[3].reshape(shape)[()]

    def predict_mean(self, mean: Floats, var: Floats) -> FloatArray:
        """Centre of an observation of a new row: its mean for df > 1."""
        return self.mean_given(mean)

    def predict_var(self, mean: Floats, var: Floats) -> FloatArray:
        """Variance of an observation of a new row: infinite for df <= 2."""
        return var + self.var_given(mean)

    def sample(self, f: Floats, rng: np.random.Generator) -> FloatArray:
        """One observation for each latent value."""
        shape = np.broadcast_shapes(*(np.shape(a) for a in (f, self.bias, self.scale, self.df)))
        return f + self.bias + self.scale * rng.standard_t(self.df, size=shape)

    def _per_row(self, n: int) -> tuple[FloatArray, FloatArray]:
        """`scale` and half of `df` of every row."""
        return np.broadcast_to(self.scale, n), np.broadcast_to(0.5 * np.asarray(self.df), n)

    def _mixture(
        self, residual: FloatArray, var: FloatArray, functions: Any
    ) -> tuple[FloatArray, FloatArray]:
        """Integral over log w, less its constant, and means of functions of (log_w, w, b, r, scale).

        b = 1 / (var + scale**2 / w) is the precision of y given w.
        """
        scale, half = self._per_row(len(residual))
        variance, square, var = scale**2, residual**2, np.maximum(var, LEAST_VARIANCE)

        def integrand(rows: Any, log_w: FloatArray) -> tuple[FloatArray, list[FloatArray]]:
            w = np.exp(log_w)
            b = 1.0 / (var[rows] + variance[rows] / w)
            log_density = half[rows] * (log_w - (w - 1.0)) + 0.5 * (np.log(b) - square[rows] * b)
            return log_density, functions(log_w, w, b, residual[rows], scale[rows])

        log_z, _, _, means = trapezoid(integrand, *_ends(square, var, variance, half), intervals=64)
        return log_z, means


def _ends(
    square: FloatArray, var: FloatArray, variance: FloatArray, half: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Between which values of log w the integrand is above exp(-DROP) of its peak.

    N(y | mean, var + scale**2 / w) is at most that of the best variance above var, and the peak is at
    least the value at w = 1. So the prior of log w has fallen by at most their difference and DROP.
    """
    best = -0.5 * (np.log(np.maximum(square, var)) + np.minimum(square / var, 1.0))
    total = var + variance
    fall = (DROP + best + 0.5 * (np.log(total) + square / total)) / half
    # Below w = scale**2 / (var + residual**2) the normal density falls like sqrt(w).
    start, farther = np.minimum(np.log(variance / (var + square)), 0.0), (DROP + 1.0) / (half + 0.5)
    return np.maximum(-_left(fall), start - _left(farther)), _right(fall)


def _left(fall: FloatArray) -> FloatArray:
    """x > 0 such that e**-x - 1 + x is at least `fall`."""
    return fall + np.minimum(np.sqrt(2.0 * fall), 1.0)


def _right(fall: FloatArray) -> FloatArray:
    """x > 0 such that e**x - 1 - x is at least `fall`."""
    return np.where(fall > 2.0, np.log1p(2.0 * fall), np.sqrt(2.0 * fall))
