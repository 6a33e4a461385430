"""Integrals over the latent value, for noise models without a closed form.

The trapezoidal rule converges exponentially for smooth integrands that vanish at both ends. If the
step h gives an error e, the step 2 h gives at least sqrt(e). So the even nodes alone are the test:
rows whose sum and first two moments change by more than `_AGREE` without the odd nodes get twice as
many nodes. Most rows need one pass of 33 nodes; no row needs a choice by the noise model.

The nodes of a row cover the part in which the integrand is above exp(-DROP) of its peak. All arrays of
nodes have shape (nodes, rows), so that an array with one entry per row broadcasts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy.special import ndtr, ndtri

from gleangp._typing import FloatArray

_AGREE = 1e-6  # of two rules; the error of the finer one is about its square
_FLOOR = 1e-4  # averages below it need not agree to as many digits
DROP = 30.0  # the integral leaves out parts below exp(-30) of the peak
_REACH = np.sqrt(2.0 * DROP)  # the same in standard deviations
_FIRST, _MOST = 32, 1 << 15  # intervals
_CELLS = 1 << 13  # nodes times rows at a time, so that working arrays stay in the cache
_ALIKE = 1e-6  # nu var where mean and variance of f are almost those of the prior
_LEAST_WIDTH = 1e-12  # of the distance from the mean: nodes must differ
LEAST_VARIANCE = 1e-100  # below it a latent value is known exactly

_NORMAL_END = 8.5  # standard deviations beyond which a normal distribution has no mass
_SURE = 1e-13  # a distribution function this near to 0 or 1 is there
_HALVINGS = 12  # of the normal distribution, to find where the distribution function falls
_NODES, _WEIGHTS = (a[:, np.newaxis] for a in leggauss(48))
_NODES, _WEIGHTS = 0.5 + 0.5 * _NODES, 0.5 * _WEIGHTS
_CLOSE, _LOG_MOST = 1e-11, 700.0
_DOUBLINGS, _ITERATIONS = 64, 100
_TINY, _EPS = np.finfo(np.float64).tiny, np.finfo(np.float64).eps


def trapezoid(integrand: Any, low: FloatArray, high: FloatArray, rough: bool = False) -> Any:
    """Integrals of exp(log_w) from low to high (n,), where it is negligible, and means with respect to it.

    `integrand` takes rows and nodes (k, r), and gives log_w (k, r) and arrays (k, r) to average. If `rough`,
    these may vary faster than the integrand, and the even nodes must agree for them too. Returns logarithms
    of the integrals (n,), mean and variance (n,) of the nodes, less the middle of low and high, and the means
    of the arrays (q, n) under the normalised integrand.
    """
    log_integral, first, second = np.empty((3, len(low)))
    averages: list[FloatArray] = []
    pending, intervals = np.arange(len(low)), _FIRST
    while len(pending):
        x = np.linspace(-0.5, 0.5, intervals + 1)[:, np.newaxis]
        powers = np.hstack([np.ones_like(x), x, x**2]).T
        even = np.where(np.arange(intervals + 1) % 2, 0.0, 2.0)
        sums = np.vstack([powers, even * powers])
        at_a_time, again = max(1, _CELLS // len(x)), []
        for start in range(0, len(pending), at_a_time):
            rows = pending[start : start + at_a_time]
            width = high[rows] - low[rows]
            log_w, functions = integrand(rows, 0.5 * (low[rows] + high[rows]) + x * width)
            top = log_w.max(axis=0)
            w = np.exp(np.subtract(log_w, top, out=log_w), out=log_w)
            moments = sums @ w
            total = moments[0]
            moments = moments / total
            variance = moments[2] - moments[1] ** 2
            log_integral[rows] = top + np.log(total * width / intervals)
            first[rows], second[rows] = width * moments[1], width**2 * variance
            averages = averages or [np.empty(len(low)) for _ in functions]
            for average, function in zip(averages, functions, strict=True):
                average[rows] = np.einsum("kn,kn->n", w, function) / total
            if intervals < _MOST:
                even_total, even_first, even_second = moments[3:]  # to be one, and those of all nodes
                shift = even_second - 2.0 * moments[1] * even_first + moments[1] ** 2 * even_total - variance
                settled = np.abs(even_total - 1.0) < _AGREE
                settled &= np.abs(even_first - moments[1] * even_total) < _AGREE * np.sqrt(variance)
                settled &= np.abs(shift) < _AGREE * variance
                for function in functions if rough else ():
                    share = w * function / total
                    size = np.abs(share).sum(axis=0) + _FLOOR
                    settled &= np.abs(share.sum(axis=0) - even @ share) <= _AGREE * size
                again.append(rows[~settled])
        pending, intervals = np.concatenate([*again, np.empty(0, np.intp)]), 2 * intervals
    return log_integral, first, second, np.array(averages).reshape(-1, len(low))


def tilted(noise: Any, y: Any, mean: Any, var: Any, gradients: bool = False) -> Any:
    """log_z, g and nu of `NoiseModel.log_partition` for a log-concave p(y | f); y, mean and var broadcast.

    If `gradients`: a dict, name -> d log_z / d parameter. g and nu follow from mean and variance of f. Where
    these are almost those of the prior, the difference would have few digits: there g and nu are averages of
    the derivatives of log p(y | f).
    """
    noise, shape, y, mean, var = flat(noise, y, mean, var)
    var = np.maximum(var, LEAST_VARIANCE)
    mode, scale = _mode(noise, y, mean, var)
    scale = np.maximum(scale, _LEAST_WIDTH * np.abs(mode))
    low, high = (_end(noise, y, mean, var, mode, side * _REACH * scale) for side in (-1.0, 1.0))
    names = [name for name in noise.transforms if name != "bias"] if gradients else []

    def integrand(rows: Any, t: FloatArray, slopes: bool = False) -> tuple[FloatArray, list[FloatArray]]:
        part, f = noise.at(rows), t + mean[rows]
        log_w, slope, curvature = part.derivatives(y[rows], f)
        log_w = log_w - 0.5 / var[rows] * t**2
        if slopes:
            slope = slope - (mode / var)[rows]
            return log_w, [slope, slope**2, np.broadcast_to(curvature, f.shape)]
        by_name = part.log_prob_grad(y[rows], f) if names else {}
        return log_w, [np.broadcast_to(by_name[name], f.shape) for name in names]

    with np.errstate(over="ignore", under="ignore"):
        log_z, moved, variance, means = trapezoid(integrand, low, high, rough=gradients)
        g = (0.5 * (low + high) + moved) / var
        nu = (1.0 - variance / var) / var
        alike = np.flatnonzero(nu * var < _ALIKE)
        if len(alike):
            _, _, _, (slope, square, curvature) = trapezoid(
                lambda rows, t: integrand(alike[rows], t, slopes=True), low[alike], high[alike], rough=True
            )
            g[alike], nu[alike] = slope + (mode / var)[alike], curvature - (square - slope**2)
    if gradients:
        found = {"bias": g, **dict(zip(names, means, strict=True))}
        return {name: found[name].reshape(shape)[()] for name in noise.transforms}
    log_z = log_z - 0.5 * np.log(2.0 * np.pi * var) + noise.log_constant(y)
    # p(y | f) is log-concave: only rounding makes nu negative.
    return tuple(part.reshape(shape)[()] for part in (log_z, g, np.maximum(nu, 0.0)))


def normal_mean(noise: Any, function: Callable[[Any, FloatArray], FloatArray], mean: Any, var: Any) -> Any:
    """Mean of a function of the model and f, at most of polynomial growth, under f ~ N(mean, var)."""
    noise, shape, mean, var = flat(noise, mean, var)
    sd, end = np.sqrt(var), np.full(len(mean), _NORMAL_END)

    def integrand(rows: Any, z: FloatArray) -> tuple[FloatArray, list[FloatArray]]:
        f = mean[rows] + sd[rows] * z
        return -0.5 * z**2, [np.broadcast_to(function(noise.at(rows), f), f.shape)]

    return trapezoid(integrand, -end, end, rough=True)[3].reshape(shape)[()]


def flat(noise: Any, *arrays: Any) -> tuple[Any, ...]:
    """The model and arrays with one entry per row each, after the shape they have together."""
    fields = {name: value for name, value in noise.row_fields.items() if np.ndim(value) > 0}
    every = np.broadcast_arrays(*arrays, *fields.values())
    shape = every[0].shape
    columns = [np.ascontiguousarray(a, dtype=np.float64).ravel() for a in every]
    if fields:
        noise = replace(noise, **dict(zip(fields, columns[len(arrays) :], strict=True)))
    return noise, shape, *columns[: len(arrays)]


def _mode(noise: Any, y: FloatArray, mean: FloatArray, var: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Where p(y | f) N(f | mean, var) is largest to a tenth of its width there, less the mean; that width."""
    sd, width = np.sqrt(var), np.empty_like(mean)

    def newton_step(rows: Any, t: FloatArray) -> FloatArray:
        """Back to the mode from mean + sd t, in widths; t sd - var slope(mean + t sd) grows with t."""
        t, v = sd[rows] * t, var[rows]
        _, slope, curvature = noise.at(rows).derivatives(y[rows], mean[rows] + t)
        width[rows] = np.sqrt(v / (1.0 + v * curvature))
        return (t / v - slope) * width[rows]

    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return sd * _root(newton_step, len(mean), close=0.1), width


def _end(noise: Any, y: Any, mean: Any, var: Any, mode: FloatArray, reach: FloatArray) -> FloatArray:
    """Where the integrand has fallen by `DROP` on one side of the mode, or a little farther out."""
    end = mode + reach
    with np.errstate(over="ignore"):
        at_end, slope, _ = noise.derivatives(y, mean + end)
        drop = noise.derivatives(y, mean + mode)[0] - at_end + 0.5 * (end**2 - mode**2) / var
        rows = np.flatnonzero(drop < DROP)
    if len(rows):
        # From here the logarithm falls at least as a parabola of this slope and the prior's curvature.
        v, short = var[rows], 2.0 * (DROP - drop[rows])
        slope = np.abs(slope[rows] - end[rows] / v)
        end[rows] += np.sign(reach[rows]) * short / (slope + np.sqrt(slope**2 + short / v))
    return end


def mixture_cdf(noise: Any, y: Any, mean: Any, var: Any) -> FloatArray:
    """P(Y <= y) of a new observation with f ~ N(mean, var).

    `noise.cdf(y, f)` falls from 1 to 0 as f grows. Below that part the integral is the normal
    distribution function; the part itself is integrated with Gauss-Legendre nodes.
    """
    noise, shape, y, mean, var = flat(noise, y, mean, var)

    def given(z: FloatArray) -> FloatArray:
        return noise.cdf(y, mean + np.sqrt(var) * z)

    low = _edge(lambda z: given(z) >= 1.0 - _SURE, -_NORMAL_END, len(mean))
    high = _edge(lambda z: given(z) <= _SURE, _NORMAL_END, len(mean))
    z = low + _NODES * (high - low)
    density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    p = ndtr(low) + (high - low) * np.sum(_WEIGHTS * given(z) * density, axis=0)
    return p.reshape(shape)[()]


def _edge(outside: Callable[[FloatArray], Any], end: float, n: int) -> FloatArray:
    """The innermost of a few points, from `end` to `-end`, that is outside; `end` if none is."""
    outer, inner = np.full(n, end), np.full(n, -end)
    for _ in range(_HALVINGS):
        middle = 0.5 * (outer + inner)
        is_outside = outside(middle)
        outer, inner = np.where(is_outside, middle, outer), np.where(is_outside, inner, middle)
    return outer


def mixture_quantile(noise: Any, mean: Any, var: Any, q: Any) -> FloatArray:
    """The value that a new observation with f ~ N(mean, var) does not exceed with probability q.

    A whole number if the support is the counts. It is the root of the normal quantile of the distribution
    function, which is almost linear in y, or in the logarithm of y where y is positive.
    """
    noise, shape, mean, var, q = flat(noise, mean, var, q)
    unit, centre, spread = np.ones_like(mean), noise.mean_given(mean), noise.var_given(mean)
    if noise.support == "real":
        unit = np.sqrt(var + np.where(np.isfinite(spread), spread, 1.0))
    else:
        centre = np.clip(np.log(centre), -_LOG_MOST, _LOG_MOST)

    def values(rows: Any, t: FloatArray) -> FloatArray:
        """From the whole line to the values that an observation can have."""
        line = centre[rows] + unit[rows] * t
        if noise.support == "real":
            return line
        line = np.clip(line, -_LOG_MOST, _LOG_MOST)
        return np.expm1(line) if noise.support == "count" else np.exp(line)

    def excess(rows: Any, t: FloatArray) -> FloatArray:
        p = noise.at(rows).predict_cdf(values(rows, t), mean[rows], var[rows])
        return ndtri(np.clip(p, _TINY, 1.0 - _EPS)) - ndtri(q[rows])

    y = values(slice(None), _root(excess, len(mean)))
    if noise.support == "count":
        y = np.maximum(np.ceil(y - _CLOSE * (1.0 + np.abs(y))), 0.0)
    return y.reshape(shape)[()]


def _root(function: Callable[[Any, FloatArray], FloatArray], n: int, close: float = _CLOSE) -> FloatArray:
    """Where n increasing functions of t, `function(rows, t)`, are zero: away from 0 in doubled steps, then
    regula falsi with a bisection in every third step, until they are `close` to it.
    """
    rows = every = np.arange(n)
    a, at_a = np.zeros(n), function(every, np.zeros(n))
    b, at_b, side = a.copy(), at_a.copy(), np.where(at_a < 0.0, 1.0, -1.0)
    for doubling in range(_DOUBLINGS):
        a[rows], at_a[rows] = b[rows], at_b[rows]
        b[rows] = side[rows] * 2.0**doubling
        at_b[rows] = function(rows, b[rows])
        rows = rows[at_b[rows] * side[rows] < 0.0]
        if not len(rows):
            break
    t, rows, stayed = b.copy(), every, np.full(n, -1)  # neither end so far
    for iteration in range(_ITERATIONS):
        ends = a[rows], b[rows]
        falsi = (ends[0] * at_b[rows] - ends[1] * at_a[rows]) / (at_b[rows] - at_a[rows])
        inside = (falsi - ends[0]) * (falsi - ends[1]) < 0.0
        t[rows] = np.where(inside & (iteration % 3 < 2), falsi, 0.5 * (ends[0] + ends[1]))
        now = function(rows, t[rows])
        beyond = now * side[rows] >= 0.0  # the root lies between a and t
        # An end that stays again counts half: otherwise it would stay for ever (the Illinois rule).
        again = np.where(beyond == stayed[rows], 0.5, 1.0)
        at_a[rows] = np.where(beyond, again * at_a[rows], now)
        at_b[rows] = np.where(beyond, now, again * at_b[rows])
        stayed[rows] = beyond
        a[rows], b[rows] = np.where(beyond, ends[0], t[rows]), np.where(beyond, t[rows], ends[1])
        rows = rows[(np.abs(now) > close) & (np.abs(b[rows] - a[rows]) > _EPS * (1.0 + np.abs(t[rows])))]
        if not len(rows):
            break
    return t
