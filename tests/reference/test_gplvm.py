"""The map to the observations against the authors' toolbox: likelihood, gradients, prediction."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gleangp.models.latent.terms import GaussianTerm
from tests.reference.kernels_from_reference import kernel_from_reference
from tests.reference.reference_data import entry_names, load

FILE = "gplvm.json"
CASES = pytest.mark.parametrize("name", entry_names(FILE))


@pytest.fixture
def case(name):
    case = load(FILE)[name]
    inputs, outputs = case["inputs"], case["outputs"]
    assert_allclose(outputs["output_scale"], 1.0)
    Y = np.array(inputs["Y"]) - np.array(outputs["output_bias"])
    return {
        "X": np.array(inputs["X"]),
        "X_test": np.array(inputs["X_test"]),
        "kernel": kernel_from_reference(inputs["kernel"]),
        "term": GaussianTerm(Y, np.arange(len(Y))),
        "outputs": outputs,
    }


def test_reference_has_cases():
    """The file is not empty, so that the tests below test something."""
    assert load(FILE)


@CASES
def test_output_bias_is_the_column_mean(name):
    """The toolbox centres every column of Y, as we do."""
    case = load(FILE)[name]
    assert_allclose(np.mean(case["inputs"]["Y"], axis=0), case["outputs"]["output_bias"], rtol=1e-10)


@CASES
def test_log_likelihood(case):
    """log p(Y | X), with the 2 pi constant; with a standard normal prior on X, the log posterior."""
    value, _, _ = case["term"](case["kernel"].kernel, case["X"])
    outputs, X = case["outputs"], case["X"]
    assert_allclose(-value, outputs["log_likelihood_with_2pi_constant"], rtol=1e-12)
    log_prior = -0.5 * np.sum(X**2 + np.log(2 * np.pi))
    assert_allclose(log_prior, outputs["log_prior_X"], rtol=1e-12)
    assert_allclose(log_prior - value, outputs["log_posterior_with_constants"], rtol=1e-12)


@CASES
def test_gradients(case):
    """d/dX of the log posterior, and d/d kernel parameters, natural and transformed."""
    reference, outputs = case["kernel"], case["outputs"]
    _, theta_grad, X_grad = case["term"](reference.kernel, case["X"])
    assert_allclose(-X_grad - case["X"], outputs["grad_X"], rtol=1e-9, atol=1e-9)
    assert_allclose(reference.natural_gradient(-theta_grad), outputs["grad_kernel_natural"], rtol=1e-9)
    transformed = reference.transformed_gradient(-theta_grad)
    assert_allclose(transformed, outputs["grad_kernel_transformed"], rtol=1e-9)
    assert reference.names == outputs["kernel_parameters"]["names"]


@CASES
def test_prediction(case):
    """Mean and variance, white noise included, of Y at latent test points."""
    mapping = case["term"].fit_map(case["kernel"].kernel, case["X"])
    mean, var = mapping.predict(case["X_test"])
    stored = case["outputs"]["test"]
    assert_allclose(mean + case["outputs"]["output_bias"], stored["mean"], rtol=1e-10, atol=1e-12)
    assert_allclose(var, stored["var"], rtol=1e-9)
