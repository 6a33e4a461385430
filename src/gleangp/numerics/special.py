"""The normal distribution function in its tails, and functions that would cancel.

Noise models need log Phi(z), its first two derivatives, and the same for the mass of an interval, Phi(u) -
Phi(v). Written naively these lose all digits a few standard deviations out. Here every function is right in
both tails: ratios are formed from scaled functions (`erfcx`), differences of nearly equal numbers are avoided
or replaced by a series, and nothing is clipped. N and Phi are the density and the distribution function of
the standard normal.
"""

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.polynomial.polynomial import polyval
from numpy.typing import ArrayLike
from scipy.special import digamma, erf, erfc, erfcx, gammaln, log_ndtr, ndtr, xlogy

from gleangp._typing import FloatArray

_SQRT_HALF = np.sqrt(0.5)
_SQRT_TWO_OVER_PI = np.sqrt(2.0 / np.pi)
_LOG_SQRT_TWO_PI = 0.5 * np.log(2.0 * np.pi)
# h (h + z) as z -> -inf in powers of 1 / z**2, from the expansion of the Mills ratio (Abramowitz &
# Stegun 1964, 26.2.12). Below _FAR_LEFT the sum h + z has lost more digits than this series drops.
_FAR_LEFT = -20.0
_FAR_LEFT_SERIES = (1.0, -1.0, 6.0, -50.0, 518.0, -6354.0, 89782.0, -1435330.0, 25625910.0, -505785122.0)
# Intervals beyond _FAR_EDGE or narrower than _NARROW are integrated instead of differenced, over
# the part in which the density falls by a factor exp(-_DECAY) or less.
_FAR_EDGE, _NARROW, _DECAY = 8.0, 0.3, 38.0
_NODES, _WEIGHTS = (0.5 * a[:, np.newaxis] for a in leggauss(24))
_NODES = 0.5 + _NODES  # in (0, 1)
# Series in powers of 1 / x**2 (of log Gamma and digamma) and of -x (of log(1 + x)).
_STIRLING_FROM = 15.0
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760)
_SMALL = 0.03
_LOG1P = tuple(1.0 / k for k in range(2, 12))


def log_ndtr_derivatives(z: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """log Phi(z), its first derivative h = N(z) / Phi(z), and minus its second, h (h + z).

    h is about -z for z << 0, and 0 by underflow for z > 38. The last, in (0, 1), falls from 1 on the far
    left, which it reaches by rounding, to 0 on the right.
    """
    z = np.asarray(z, dtype=np.float64)
    h = _SQRT_TWO_OVER_PI / erfcx(-_SQRT_HALF * z)
    far, curvature = z < _FAR_LEFT, np.asarray(h + z)
    curvature *= h
    if far.any():
        curvature[far] = polyval(z[far] ** -2.0, _FAR_LEFT_SERIES)
    return log_ndtr(z), h, curvature[()]


def log_diff_ndtr_derivatives(u: ArrayLike, v: ArrayLike) -> tuple[FloatArray, ...]:
    """log(Phi(u) - Phi(v)) and its derivatives, for u > v, either of which may be infinite.

    Then N(u) and N(v) over Phi(u) - Phi(v): its derivative in u, and minus its derivative in v. Last the
    first and minus the second derivative when both ends are shifted together: minus the mean of the standard
    normal truncated to [v, u], and one minus its variance, in (0, 1).

    The interval is reflected to [a, b] with b >= abs(a). Where a is far out or the interval is narrow, the
    differences in the closed form cancel; there the moments of x - a are integrated numerically, which loses
    nothing however far out a is.
    """
    u, v = np.broadcast_arrays(np.asarray(u, np.float64), np.asarray(v, np.float64))
    shape = u.shape
    u, v = u.ravel(), v.ravel()
    reflected = u > -v
    a, b = np.where(reflected, v, -u), np.where(reflected, u, -v)
    hard = (a > _FAR_EDGE) | (b - a < _NARROW)
    parts = np.empty((5, u.size))
    parts[:, ~hard] = _differenced_interval(a[~hard], b[~hard])
    if hard.any():
        parts[:, hard] = _integrated_interval(a[hard], b[hard])
    log_mass, at_a, at_b, mean, variance_lost = parts.reshape(5, *shape)
    reflected = reflected.reshape(shape)
    at_u, at_v = np.where(reflected, at_b, at_a), np.where(reflected, at_a, at_b)
    return log_mass[()], at_u[()], at_v[()], np.where(reflected, -mean, mean)[()], variance_lost[()]


def _differenced_interval(a: FloatArray, b: FloatArray) -> tuple[FloatArray, ...]:
    """log mass, densities at the ends, mean, and 1 - variance of the normal truncated to [a, b]."""
    a_scaled, b_scaled = a * _SQRT_HALF, b * _SQRT_HALF
    mass = 0.5 * np.where(a < 0.0, erf(b_scaled) - erf(a_scaled), erfc(a_scaled) - erfc(b_scaled))
    outside = ndtr(a) + ndtr(-b)
    log_mass = np.where(outside < 0.5, np.log1p(-outside), np.log(mass))
    at_a, at_b = (np.exp(-0.5 * end**2 - _LOG_SQRT_TWO_PI) / mass for end in (a, b))
    mean = at_a - at_b
    # x N(x) vanishes at infinity. Where a < 0 all three terms are positive: nothing cancels.
    a_finite, b_finite = np.where(np.isfinite(a), a, 0.0), np.where(np.isfinite(b), b, 0.0)
    return log_mass, at_a, at_b, mean, mean**2 - a_finite * at_a + b_finite * at_b


def _integrated_interval(a: FloatArray, b: FloatArray) -> tuple[FloatArray, ...]:
    """As `_differenced_interval`, by Gauss-Legendre quadrature over the distance t from a."""
    width = b - a
    reach = np.minimum(width, 2.0 * _DECAY / (a + np.sqrt(a**2 + 2.0 * _DECAY)))
    t = reach * _NODES
    weights = _WEIGHTS * np.exp(-(a + 0.5 * t) * t)
    total = weights.sum(axis=0)
    weights /= total
    mean_t = (weights * t).sum(axis=0)
    variance = (weights * (t - mean_t) ** 2).sum(axis=0)
    total *= reach  # (Phi(b) - Phi(a)) / N(a)
    log_mass = np.log(total) - 0.5 * a**2 - _LOG_SQRT_TWO_PI
    at_b = np.exp(-(a + 0.5 * width) * width) / total
    return log_mass, 1.0 / total, at_b, a + mean_t, 1.0 - variance


def stirling_remainder(x: ArrayLike) -> FloatArray:
    """log Gamma(x) - (x log x - x) for x > 0, without the cancellation for large x.

    There it is about log(2 pi / x) / 2 (Abramowitz & Stegun 1964, 6.1.41).
    """
    x = np.asarray(x, dtype=np.float64)
    with np.errstate(over="ignore"):
        inverse = 1.0 / x**2
    series = _LOG_SQRT_TWO_PI - 0.5 * np.log(x) + polyval(inverse, _STIRLING) / x
    return np.where(x < _STIRLING_FROM, gammaln(x) - (xlogy(x, x) - x), series)[()]


def digamma_remainder(x: ArrayLike) -> FloatArray:
    """digamma(x) - log(x) for x > 0, without the cancellation for large x.

    There it is about -1 / (2 x) (Abramowitz & Stegun 1964, 6.3.18).
    """
    x = np.asarray(x, dtype=np.float64)
    with np.errstate(over="ignore"):
        inverse = 1.0 / x**2
    series = -0.5 / x - inverse * polyval(inverse, _DIGAMMA)
    return np.where(x < _STIRLING_FROM, digamma(x) - np.log(x), series)[()]


def log1p_remainder(x: ArrayLike) -> FloatArray:
    """log(1 + x) - x for x > -1, without the cancellation for small x, where it is about -x**2 / 2."""
    x = np.asarray(x, dtype=np.float64)
    small = np.where(np.abs(x) < _SMALL, x, 0.0)
    return np.where(np.abs(x) < _SMALL, -(small**2) * polyval(-small, _LOG1P), np.log1p(x) - x)[()]


def log_expit_derivatives(z: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """With p = 1 / (1 + exp(-z)): log p, its first derivative 1 - p, and minus its second, p (1 - p)."""
    z = np.asarray(z, dtype=np.float64)
    small = np.exp(-np.abs(z))
    share = 1.0 / (1.0 + small)
    curvature = small * share * share
    return np.minimum(z, 0.0) - np.log1p(small), np.where(z > 0.0, small, 1.0) * share, curvature
