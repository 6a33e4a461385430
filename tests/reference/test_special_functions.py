"""Special functions against 60-digit arithmetic."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import log_ndtr

from gleangp.models.parameters import constrain, constrain_slope, unconstrain
from gleangp.numerics.special import (
    log_diff_ndtr_derivatives,
    log_ndtr_derivatives,
)
from tests.reference.reference_data import load

FILE = "special_functions.json"
DIGITS = 1e-60  # the reference has 60 digits: log Phi within 1e-60 of zero is stored as zero
TINY = 1e-300  # numbers below this are, or are close to, denormal
# Named in the file, but functions the library takes from SciPy or NumPy, does not have (softplus), or has
# elsewhere (the gamma prior, in gleangp.models).
NOT_HERE = {"inverse_ndtr", "gamma_prior", "log_weighted_sum_ndtr"}
# The toolbox clamps transformed parameters to +-36; the library leaves bounds to the optimiser.
CLAMP = 36.0


def test_every_function_of_the_file_is_accounted_for():
    """The entries consumed below, and those left out by name, are all there are."""
    here = {
        "log_ndtr",
        "grad_log_ndtr",
        "log_diff_ndtr",
        "gauss_over_diff_ndtr",
        "transforms",
    }
    assert set(load(FILE)) <= here | NOT_HERE


@pytest.mark.parametrize("function", [log_ndtr, lambda x: log_ndtr_derivatives(x)[0]])
def test_log_ndtr(function):
    """log Phi(x), from the far left tail to where it underflows on the right."""
    entry = load(FILE)["log_ndtr"]
    assert_allclose(function(np.array(entry["x"])), entry["exact"], rtol=1e-12, atol=DIGITS)


def test_hazard():
    """N(x) / Phi(x) in both tails."""
    entry = load(FILE)["grad_log_ndtr"]
    assert_allclose(log_ndtr_derivatives(entry["x"])[1], entry["exact"], rtol=1e-12, atol=TINY)


def test_log_diff_ndtr():
    """log(Phi(u) - Phi(u')) for narrow and wide intervals anywhere."""
    entry = load(FILE)["log_diff_ndtr"]
    found = log_diff_ndtr_derivatives(entry["u"], entry["u_prime"])[0]
    assert_allclose(found, entry["exact"], rtol=1e-13)


def test_densities_over_diff_ndtr():
    """The densities at either end over the mass between, for the same intervals."""
    entry = load(FILE)["gauss_over_diff_ndtr"]
    _, at_u, at_v, _, _ = log_diff_ndtr_derivatives(entry["u"], entry["u_prime"])
    assert_allclose(at_u, entry["at_u"]["exact"], rtol=1e-12, atol=TINY)
    assert_allclose(at_v, entry["at_u_prime"]["exact"], rtol=1e-12, atol=TINY)


@pytest.mark.parametrize(("transform", "theirs"), [("log", "exp"), ("logit", "sigmoid")])
def test_transforms(transform, theirs):
    """Transforms of parameters and their slopes, where the toolbox does not clamp."""
    entry = load(FILE)["transforms"]
    free = np.array(entry["a"])
    inside = np.abs(free) <= CLAMP
    value = np.array(entry[f"{theirs}_a_to_x"])[inside]
    assert_allclose(constrain(transform, free)[inside], value, rtol=1e-13)
    inverse = entry.get(f"{theirs}_x_to_a")
    if inverse is not None:
        assert_allclose(unconstrain(transform, entry["x"]), inverse, rtol=1e-13)
    slope = entry.get(f"{theirs}_dx_da")
    if slope is not None:
        assert_allclose(constrain_slope(transform, entry["x"]), slope, rtol=1e-13)
