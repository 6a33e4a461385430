"""The informative vector machine with every noise model, against the authors' toolbox."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gleangp.inference.block import Block
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

# Noise model -> its file; and what the toolbox prints for a latent mean.
FILES = {
    "gaussian": "ivm_regression.json",
    "probit": "ivm_probit.json",
    "ordered": "ivm_ordered.json",
    "null_category": "ivm_ncnm.json",
}
PRINTED = {
    "gaussian": lambda noise, mean: mean + noise.bias,
    "probit": lambda noise, mean: np.sign(mean + noise.bias),
    "ordered": lambda noise, mean: np.searchsorted(noise.edges[1:-1], mean + noise.bias),
    "null_category": lambda noise, mean: np.sign(mean + noise.bias),
}


def each_case(output=None, slow=()):
    """Cases of all noise models; those that have an output of that name. Some are slow tests."""
    names = {
        noise: entry_names(file) if output is None else entry_names_with(file, output)
        for noise, file in FILES.items()
    }
    marks = dict.fromkeys(slow, pytest.mark.slow)
    pairs = [pytest.param(k, name, marks=marks.get(name, ())) for k, found in names.items() for name in found]
    return pytest.mark.parametrize(("noise", "name"), pairs)


@pytest.mark.parametrize("file", FILES.values())
def test_reference_has_cases(file):
    """No file is empty, so that the tests below test something."""
    assert load(file)


@each_case()
def test_selection_order(noise, name):
    """Greedy entropy takes the reference's points, with the reference's gains."""
    check_order(read_case(FILES[noise], name))


@each_case()
def test_filtering(noise, name):
    """Moments at every inclusion, sites and final marginals are the reference's."""
    check_filter(read_case(FILES[noise], name))


@each_case()
def test_evidence(noise, name):
    """Log-likelihood of the active points and its gradient, with priors where there are some."""
    check_evidence(read_case(FILES[noise], name))


@each_case()
def test_noise_objective(noise, name):
    """The objective of the noise parameters and its gradient (LPJ05 eq. 28)."""
    check_noise_objective(read_case(FILES[noise], name))


@each_case()
def test_prediction(noise, name):
    """Latent mean and variance at new inputs, the output, and the likelihood of test targets."""
    case = read_case(FILES[noise], name)
    theirs = case.outputs["test"]
    X_test = np.array(case.inputs["X_test"])
    for k, (posterior, model) in enumerate(zip(case.posteriors(), case.noises, strict=True)):
        mean, var = posterior.predict(case.kernel.kernel, X_test)
        found = {"mean": mean, "var": var, "output": PRINTED[noise](model, mean)}
        if "likelihood_of_y_test" in theirs:
            y_test = case.per_output(case.inputs["y_test"])[:, k]
            found["likelihood_of_y_test"] = np.exp(model.log_partition(y_test, mean, var)[0])
        for key, ours in found.items():
            assert_allclose(ours, case.per_output(theirs[key])[:, k], rtol=RTOL, atol=ATOL, err_msg=key)


@each_case("chol_lower_KI_plus_invB")
def test_cholesky_factor(noise, name):
    """The lower factor of K_I + B^-1."""
    case = read_case(FILES[noise], name)
    (posterior,) = case.posteriors()
    assert_allclose(posterior.chol, case.outputs["chol_lower_KI_plus_invB"], rtol=RTOL, atol=ATOL)


@each_case("after_removal")
def test_removal(noise, name):
    """Active points can be taken out again (LPJ05 section 3.5)."""
    check_removal(read_case(FILES[noise], name))


@each_case("behaviour_after_scg_on_fixed_active_set", ("probit_mlpard_linard", "probit_unit_slope"))
def test_optimum_on_fixed_active_set(noise, name):
    """Our optimiser ends at an objective at least as good as scaled conjugate gradients did."""
    case = read_case(FILES[noise], name)
    theirs = case.outputs["behaviour_after_scg_on_fixed_active_set"]["negative_log_posterior"]
    enough = theirs + OBJECTIVE_SLACK - case.two_pi
    assert best_objective(case.log_posterior, case.kernel.kernel, enough) <= enough


@each_case("behaviour_algorithm2")
def test_algorithm_2(noise, name):
    """A round of "select, learn the kernel" ends at least as well as the reference's (LPJ05 algorithm 2)."""
    case = read_case(FILES[noise], name)
    theirs = case.outputs["behaviour_algorithm2"]
    blocks = [Block(case.X, case.Y[:, 0], case.noises[0])]
    n_active = len(case.outputs["active"])
    enough = case.two_pi - np.array(theirs["negative_log_posterior_after_each"]) - OBJECTIVE_SLACK
    ours = one_round_each(case.kernel, blocks, n_active, theirs["natural_after_each"], enough)
    assert np.all(ours >= enough)
    if noise == "gaussian":  # the evidence of the kept round never falls
        _, best = rounds(case.kernel.kernel, blocks, n_active, theirs["outer_iterations"])
        assert np.all(np.diff(best) >= 0.0)
