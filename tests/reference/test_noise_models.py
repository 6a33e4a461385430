"""Noise models against 60-digit arithmetic, and their gradients against the authors' toolbox."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.reference.noise_from_reference import noise_from_reference, targets_from_reference
from tests.reference.reference_data import entry_names, load

FILE = "noise_models.json"
CASES = entry_names(FILE)
# The reference has 60 digits: log Z within 1e-60 of zero is stored as zero.
DIGITS = 1e-60
TINY = 1e-300


def read(case):
    """The noise model, y, mean, var, and the numbers of a case."""
    entry = load(FILE)[case]
    inputs = entry["inputs"]
    y = targets_from_reference(inputs["y"])
    mean, var = np.array(inputs["mean"]), np.array(inputs["var"])
    return noise_from_reference(inputs["noise"]), (y, mean, var), entry


def test_reference_has_noise_models():
    """The file is not empty, so that the tests below test something."""
    assert load(FILE)


@pytest.mark.parametrize("case", CASES)
def test_log_partition(case):
    """log_z, g and nu are exact to 1e-8 everywhere, tails and negative nu included."""
    noise, data, entry = read(case)
    exact = entry["exact"]
    log_z, g, nu = noise.log_partition(*data)
    assert_allclose(log_z, exact["log_Z"], rtol=1e-8, atol=DIGITS)
    assert_allclose(g, exact["g"], rtol=1e-8, atol=TINY)
    assert_allclose(nu, exact["nu"], rtol=1e-8, atol=TINY)
    assert_allclose(0.5 * (g**2 - nu), exact["dlogZ_dvar"], rtol=1e-8, atol=1e-14)


@pytest.mark.parametrize("case", CASES)
def test_precision_is_nu(case):
    """`precision` gives the nu of `log_partition`; log-concave models have none below zero."""
    noise, data, entry = read(case)
    nu = noise.precision(*data)
    assert_allclose(nu, entry["exact"]["nu"], rtol=1e-8, atol=TINY)
    if noise.log_concave:
        assert np.all(nu >= 0.0)


@pytest.mark.parametrize("case", CASES)
def test_parameter_gradient(case):
    """The gradient of the summed log_z with respect to the parameters the toolbox learns."""
    noise, data, entry = read(case)
    toolbox = entry["toolbox"]
    sums = {name: grad.sum(axis=0) for name, grad in noise.log_partition_grad(*data).items()}
    sums["sigma2"] = sums.get("variance")
    sums["gamma (shared)"] = sums.get("gamma_minus", 0.0) + sums.get("gamma_plus", 0.0)
    ours = []
    for name in toolbox["parameter_names"]:  # as "bias[0]", "widths[1]", "gamma_plus"
        stem, _, index = name.removesuffix("]").partition("[")
        ours.append(np.atleast_1d(sums[stem])[int(index or 0)])
    assert_allclose(ours, toolbox["grad_sum_log_Z_natural"], rtol=1e-7)
    assert_allclose(noise.log_partition(*data)[0].sum(), toolbox["sum_log_Z"], rtol=1e-8)
