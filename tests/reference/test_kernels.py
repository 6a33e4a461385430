"""Kernels against the authors' toolbox: values, gradients in its parameters, input gradients."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gleangp.kernels import (
    kernel_columns,
    kernel_input_vjp,
    kernel_vjp,
)
from gleangp.kernels.evaluate import evaluate, evaluate_diag
from tests.reference.kernels_from_reference import kernel_from_reference
from tests.reference.reference_data import folder, load

FILE = "kernels.json"
NAMES = list(load(FILE)["kernels"]) if (folder() / FILE).is_file() else []
CASES = pytest.mark.parametrize("name", NAMES)


@pytest.fixture
def case(name):
    return load(FILE)["kernels"][name]


@pytest.fixture
def inputs():
    return {name: np.array(value) for name, value in load(FILE)["inputs"].items()}


def test_reference_has_kernels():
    """The file is not empty, so that the tests below test something."""
    assert load(FILE)["kernels"]


@CASES
def test_parameters(case):
    """Names, natural values and slopes of the transforms come in the order of the file."""
    reference, stored = kernel_from_reference(case["kernel"]), case["parameters"]
    assert reference.names == stored["names"]
    assert_allclose(reference.natural, stored["natural"], rtol=1e-14)
    assert_allclose(reference.dnatural_dtransformed, stored["d_natural_d_transformed"], rtol=1e-13)
    moved = reference.at(reference.natural * 1.1)
    assert_allclose(moved.natural, reference.natural * 1.1, rtol=1e-14)


@CASES
def test_values(case, inputs):
    """K(X, X) with white variance, K(X, X2) without, and the diagonal."""
    kernel = kernel_from_reference(case["kernel"]).kernel
    X, X2 = inputs["X"], inputs["X2"]
    for K in (kernel(X), evaluate(kernel, X).value):
        assert_allclose(K, case["K"], rtol=1e-10, atol=1e-13)
    for K in (kernel(X, X2), evaluate(kernel, X, X2).value, kernel_columns(kernel, X, X2)):
        assert_allclose(K, case["K_cross"], rtol=1e-10, atol=1e-13)
    for diag in (kernel.diag(X), evaluate_diag(kernel, X).value):
        assert_allclose(diag, case["diag"], rtol=1e-12)


@CASES
def test_parameter_gradients(case, inputs):
    """d/dparameter of sum C K and sum C_cross K_cross, natural and transformed, ties included."""
    reference = kernel_from_reference(case["kernel"])
    X, tied = inputs["X"], case.get("tied_groups", ())
    square = [kernel_vjp(reference.kernel, X, C) for C in inputs["C"]]
    cross = evaluate(reference.kernel, X, inputs["X2"]).vjp(inputs["C_cross"])[0]
    for stored, gradients in (
        (case["grad_contracted_transformed"], square),
        ([case["grad_cross_contracted_transformed"]], [cross]),
    ):
        transformed = [reference.transformed_gradient(g, tied) for g in gradients]
        assert_allclose(transformed, stored, rtol=1e-7, atol=1e-12)
    if "grad_contracted_natural" in case:
        natural = [reference.natural_gradient(g) for g in square]
        assert_allclose(natural, case["grad_contracted_natural"], rtol=1e-7, atol=1e-12)
    if "grad_cross_contracted_natural" in case:
        natural = reference.natural_gradient(cross)
        assert_allclose(natural, case["grad_cross_contracted_natural"], rtol=1e-7, atol=1e-12)


@CASES
def test_input_gradients(case, inputs):
    """d k(x_i, z_j)/dx_i of every pair, and d k(x_i, x_i)/dx_i with both arguments moving."""
    kernel = kernel_from_reference(case["kernel"]).kernel
    X, X2 = inputs["X"], inputs["X2"]
    stored = np.array(case["dK_cross_dX"])
    for j in range(len(X2)):
        column = np.zeros((len(X), len(X2)))
        column[:, j] = 1.0
        gradient = kernel_input_vjp(kernel, X, X2, column)
        assert_allclose(gradient, stored[:, j], rtol=1e-7, atol=1e-12)
    for gradient in (
        evaluate_diag(kernel, X).vjp(np.ones(len(X)))[1],
        np.broadcast_to(evaluate(kernel, X).vjp(np.eye(len(X)))[1], X.shape),
    ):
        assert_allclose(gradient, case["dDiag_dX"], rtol=1e-7, atol=1e-12)
