"""The informative vector machine with ordered-category noise, against the authors' toolbox."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gleangp.inference.posterior import predict_latent
from tests.reference.ivm_cases import (
    ATOL,
    OBJECTIVE_SLACK,
    RTOL,
    best_objective,
    check_evidence,
    check_filter,
    check_noise_objective,
    check_order,
    read_case,
)
from tests.reference.reference_data import entry_names, entry_names_with, load

FILE = "ivm_ordered.json"
CASES = entry_names(FILE)


def test_reference_has_cases():
    """The file is not empty, so that the tests below test something."""
    assert load(FILE)


@pytest.mark.parametrize("case", CASES)
def test_selection_order(case):
    """Greedy entropy takes the reference's points, with the reference's gains."""
    check_order(read_case(FILE, case))


@pytest.mark.parametrize("case", CASES)
def test_filtering(case):
    """Moments at every inclusion, sites and final marginals are the reference's."""
    check_filter(read_case(FILE, case))


@pytest.mark.parametrize("case", CASES)
def test_evidence(case):
    """Log-likelihood of the active points, with gradients, here and at other parameters."""
    check_evidence(read_case(FILE, case))


@pytest.mark.parametrize("case", CASES)
def test_noise_objective(case):
    """The objective of the noise parameters and its gradient (LPJ05 eq. 28)."""
    check_noise_objective(read_case(FILE, case))


@pytest.mark.parametrize("case", CASES)
def test_prediction(case):
    """Latent mean and variance at new inputs, and the category that contains the mean."""
    case = read_case(FILE, case)
    theirs = case.outputs["test"]
    (posterior,), (noise,) = case.posteriors(), case.noises
    mean, var = predict_latent(case.kernel.kernel, posterior, np.array(case.inputs["X_test"]))
    assert_allclose(mean, theirs["mean"], rtol=RTOL, atol=ATOL)
    assert_allclose(var, theirs["var"], rtol=RTOL, atol=ATOL)
    assert_array_equal(np.searchsorted(noise.edges[1:-1], mean + noise.bias), theirs["output"])


@pytest.mark.parametrize("case", entry_names_with(FILE, "chol_lower_KI_plus_invB"))
def test_cholesky_factor(case):
    """The lower factor of K_I + B^-1."""
    case = read_case(FILE, case)
    (posterior,) = case.posteriors()
    assert_allclose(posterior.chol, case.outputs["chol_lower_KI_plus_invB"], rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("case", entry_names_with(FILE, "behaviour_after_scg_on_fixed_active_set"))
def test_optimum_on_fixed_active_set(case):
    """Our optimiser ends at an objective at least as good as scaled conjugate gradients did."""
    case = read_case(FILE, case)
    theirs = case.outputs["behaviour_after_scg_on_fixed_active_set"]["negative_log_posterior"]
    ours = best_objective(case.log_posterior, case.kernel.kernel) + case.two_pi
    assert ours <= theirs + OBJECTIVE_SLACK
