"""Special functions: values in both tails, limits, and consistency with each other."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import log_ndtr, logsumexp, softmax

from gleangp.models.parameters import constrain, constrain_slope, unconstrain
from gleangp.numerics.special import (
    digamma_remainder,
    log1p_remainder,
    log_diff_ndtr_derivatives,
    log_expit_derivatives,
    log_ndtr_derivatives,
    stirling_remainder,
)
from tests.differences import central

# N(z) / Phi(z) and h (h + z), computed with 60 digits.
HAZARD = {
    -1e9: (1000000000.000000001, 0.999999999999999999),
    -1e5: (100000.00001, 0.99999999990000000006),
    -50.0: (50.01998403190564, 0.9996009568131961),
    -20.001: (20.050750605387594, 0.99753698109367616),
    -19.999: (20.048755531910834, 0.99753649564051596),
    -3.0: (3.2830986549304365, 0.92944081321473188),
    0.0: (0.79788456080286536, 0.63661977236758134),
    8.0: (5.0522710835368954e-15, 4.0418168668295189e-14),
    30.0: (1.4736461348785475e-196, 4.4209384046356426e-195),
    45.0: (0.0, 0.0),
}


def truncated_moments(lower, upper):
    """log mass, mean and variance of N(0, 1) cut to [lower, upper], by summing over a fine grid."""
    near = min(abs(lower), abs(upper)) if lower * upper > 0 else 0.0
    reach = 40.0 / max(near, 1.0)
    start = lower if lower > 0 else max(lower, min(upper, 0.0) - reach)
    stop = min(upper, start + 2 * reach) if lower > 0 else min(upper, reach)
    step = (stop - start) / 400_000
    t = step * (np.arange(400_000) + 0.5)  # distance from start, to keep its digits
    log_w = -0.5 * ((start + t) ** 2 + np.log(2 * np.pi)) + np.log(step)
    w = softmax(log_w)
    return logsumexp(log_w), start + w @ t, w @ (t - w @ t) ** 2


@pytest.mark.parametrize("z", HAZARD)
def test_hazard_and_curvature(z):
    """h and h (h + z) keep their digits from z = -1e9 to where they underflow."""
    h, curvature = HAZARD[z]
    assert_allclose(log_ndtr_derivatives(z)[1], h, rtol=1e-13)
    assert_allclose(log_ndtr_derivatives(z), (log_ndtr(z), h, curvature), rtol=2e-13)


def test_curvature_stays_between_zero_and_one():
    """The curvature of log Phi falls monotonically from 1 to 0 and never leaves that range."""
    z = np.concatenate([-np.logspace(100, -3, 4000), np.logspace(-3, 2, 1000)])
    curvature = log_ndtr_derivatives(z)[2]
    assert np.all((curvature >= 0.0) & (curvature <= 1.0))
    assert np.all(np.diff(curvature) <= 2e-13)
    assert_allclose(1.0 - log_ndtr_derivatives(-1e4)[2], 1e-8, rtol=1e-6)


def test_remainders_where_the_difference_cancels():
    """log Gamma, digamma and log(1 + x) less what they are nearly equal to."""
    assert_allclose(stirling_remainder(1e12), -12.896572, atol=1e-6)
    assert_allclose(digamma_remainder(1e10), -5e-11, rtol=1e-9)
    assert_allclose(log1p_remainder(1e-10), -5e-21, rtol=1e-9)


def test_log_expit():
    """log p, 1 - p and p (1 - p), in the tails too."""
    assert_allclose(log_expit_derivatives(0.0), [np.log(0.5), 0.5, 0.25], rtol=1e-14)
    assert_allclose(log_expit_derivatives(-800.0), [-800.0, 1.0, 0.0])


def test_scalars_in_scalars_out():
    """A scalar argument gives a scalar, not an array of no dimensions."""
    derivatives = *log_ndtr_derivatives(0.3), *log_ndtr_derivatives(-30.0)
    for value in (*derivatives, *log_diff_ndtr_derivatives(1.0, 0.5)):
        assert isinstance(value, np.float64)


@pytest.mark.parametrize(
    ("upper", "lower"),
    [
        (1.0, -1.0),
        (0.31, 0.0),
        (0.15, -0.1),
        (1e-5, -2e-6),
        (-60.0, -60.1),
        (8.4, 7.9),
        (8.5, 8.1),
        (-5.0, -5.00001),
        (1000.0, 999.9),
        (1001.0, 1000.0),
        (2.0, -30.0),
        (np.inf, 9.0),
        (np.inf, 0.5),
        (np.inf, -3.0),
        (-0.5, -np.inf),
        (3.0, -np.inf),
        (-300.0, -np.inf),
    ],
)
def test_interval_matches_brute_force(upper, lower):
    """log mass, slope and curvature of an interval are moments of the truncated normal."""
    if upper < 0:
        log_mass, mean, var = truncated_moments(-upper, -lower)
        mean = -mean
    else:
        log_mass, mean, var = truncated_moments(lower, upper)
    got, at_upper, at_lower, slope, curvature = log_diff_ndtr_derivatives(upper, lower)
    assert_allclose(got, log_mass, rtol=1e-7, atol=1e-9)
    assert_allclose(slope, -mean, rtol=1e-6, atol=1e-8)
    assert_allclose(curvature, 1.0 - var, rtol=1e-7)
    assert_allclose(at_upper - at_lower, slope, rtol=1e-6, atol=1e-8)


def test_interval_without_lower_end_is_log_ndtr():
    """With v = -inf the interval functions reduce to log Phi and its derivatives."""
    u = np.concatenate([-np.logspace(6, -2, 60), np.logspace(-2, 1.5, 40)])
    log_phi, h, curvature = log_ndtr_derivatives(u)
    log_mass, at_u, at_v, slope, lost = log_diff_ndtr_derivatives(u, -np.inf)
    assert_allclose(log_mass, log_phi, rtol=1e-12)
    assert_allclose(at_u, h, rtol=1e-12)
    assert_allclose(at_v, 0.0)
    assert_allclose(slope, h, rtol=1e-12)
    assert_allclose(lost, curvature, rtol=1e-12)


def test_interval_is_symmetric():
    """Reflecting the interval exchanges its ends and the sign of the slope, and nothing else."""
    rng = np.random.default_rng(0)
    v = rng.normal(scale=10.0, size=200)
    u = v + rng.exponential(size=200)
    log_mass, at_u, at_v, slope, curvature = log_diff_ndtr_derivatives(u, v)
    mirrored = log_diff_ndtr_derivatives(-v, -u)
    for got, expected in zip(mirrored, (log_mass, at_v, at_u, -slope, curvature), strict=True):
        assert_allclose(got, expected, rtol=1e-14)


def test_interval_is_continuous_where_the_method_changes():
    """The closed form and the integral agree at the border between them."""
    for edge, width in [(8.0, 1.0), (2.0, 0.3), (-0.1, 0.3)]:
        for shift, stretch in [(1e-13, 0.0), (0.0, 1e-13)]:
            below = log_diff_ndtr_derivatives(edge + width - stretch, edge - shift)
            above = log_diff_ndtr_derivatives(edge + width + stretch, edge + shift)
            assert_allclose(below, above, rtol=3e-11)


@pytest.mark.parametrize(
    ("transform", "value"), [("identity", -3.0), ("log", 0.2), ("logit", 0.3), ("logit", 1e-12)]
)
def test_transforms_invert_and_differentiate(transform, value):
    """`unconstrain` undoes `constrain`, and `constrain_slope` is its derivative."""
    free = unconstrain(transform, value)
    assert_allclose(constrain(transform, free), value, rtol=1e-13)
    slope = central(lambda free: constrain(transform, free), free)
    assert_allclose(constrain_slope(transform, value), slope, rtol=1e-8)
