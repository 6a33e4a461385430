"""The informative vector machine with Gaussian noise, against the authors' toolbox."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gleangp.inference.block import Block
from gleangp.inference.posterior import predict_latent
from tests.reference.algorithm2 import one_round_each, rounds
from tests.reference.ivm_cases import (
    ATOL,
    OBJECTIVE_SLACK,
    RTOL,
    best_objective,
    check_evidence,
    check_filter,
    check_noise_objective,
    check_order,
    check_removal,
    read_case,
)
from tests.reference.reference_data import entry_names, entry_names_with, load

FILE = "ivm_regression.json"
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
    """Log-likelihood of the active points and its gradient, here and at other parameters."""
    check_evidence(read_case(FILE, case))


@pytest.mark.parametrize("case", CASES)
def test_noise_objective(case):
    """The objective of the noise parameters and its gradient (LPJ05 eq. 28)."""
    check_noise_objective(read_case(FILE, case))


@pytest.mark.parametrize("case", CASES)
def test_prediction(case):
    """Latent mean and variance at new inputs, the output, and the likelihood of test targets."""
    case = read_case(FILE, case)
    theirs = case.outputs["test"]
    X_test = np.array(case.inputs["X_test"])
    for k, (posterior, noise) in enumerate(zip(case.posteriors(), case.noises, strict=True)):
        mean, var = predict_latent(case.kernel.kernel, posterior, X_test)
        assert_allclose(mean, case.per_output(theirs["mean"])[:, k], rtol=RTOL, atol=ATOL)
        assert_allclose(var, case.per_output(theirs["var"])[:, k], rtol=RTOL, atol=ATOL)
        output = mean + noise.bias
        assert_allclose(output, case.per_output(theirs["output"])[:, k], rtol=RTOL, atol=ATOL)
        if "likelihood_of_y_test" in theirs:
            y_test = case.per_output(case.inputs["y_test"])[:, k]
            likelihood = np.exp(noise.log_partition(y_test, mean, var)[0])
            expected = case.per_output(theirs["likelihood_of_y_test"])[:, k]
            assert_allclose(likelihood, expected, rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("case", entry_names_with(FILE, "chol_lower_KI_plus_invB"))
def test_cholesky_factor(case):
    """The lower factor of K_I + B^-1."""
    case = read_case(FILE, case)
    (posterior,) = case.posteriors()
    assert_allclose(posterior.chol, case.outputs["chol_lower_KI_plus_invB"], rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("case", entry_names_with(FILE, "after_removal"))
def test_removal(case):
    """Active points can be taken out again (LPJ05 section 3.5)."""
    check_removal(read_case(FILE, case))


@pytest.mark.parametrize("case", entry_names_with(FILE, "behaviour_after_scg_on_fixed_active_set"))
def test_optimum_on_fixed_active_set(case):
    """Our optimiser ends at an objective at least as good as scaled conjugate gradients did."""
    case = read_case(FILE, case)
    theirs = case.outputs["behaviour_after_scg_on_fixed_active_set"]["negative_log_posterior"]
    ours = best_objective(case.log_evidence, case.kernel.kernel) + case.two_pi
    assert ours <= theirs + OBJECTIVE_SLACK


@pytest.mark.parametrize("case", entry_names_with(FILE, "behaviour_algorithm2"))
def test_algorithm_2(case):
    """A round of "select, learn the kernel" ends at least as well as the reference's (LPJ05 algorithm 2)."""
    case = read_case(FILE, case)
    theirs = case.outputs["behaviour_algorithm2"]
    blocks = [Block(case.X, case.Y[:, 0], case.noises[0])]
    n_active = len(case.outputs["active"])
    ours = one_round_each(case.kernel, blocks, n_active, theirs["natural_after_each"])
    expected = np.array(theirs["negative_log_posterior_after_each"])
    assert np.all(case.two_pi - np.array(ours) <= expected + OBJECTIVE_SLACK)
    _, best = rounds(case.kernel.kernel, blocks, n_active, theirs["outer_iterations"])
    assert np.all(np.diff(best) >= 0.0)
