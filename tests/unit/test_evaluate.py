"""One evaluation of kernels with gradients, on one matrix or a stack."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import Matern

from gleangp.kernels.evaluate import evaluate
from tests.differences import central
from tests.unit.test_kernels import KERNELS

SHAPES = [((2, 3, 3), None), ((2, 3, 3), (2, 2, 3))]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_gradients_match_central_differences(kernel, shapes):
    """The gradients in theta and in both inputs are those of the contracted kernel matrices."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=shapes[0])
    B = None if shapes[1] is None else rng.normal(size=shapes[1])
    K = evaluate(kernel, A, B)
    G = rng.normal(size=K.value.shape)
    if B is None:
        G = G + np.swapaxes(G, -1, -2)

    def contracted(theta=None, A=A, B=B):
        moved = kernel if theta is None else kernel.clone_with_theta(theta)
        return float(np.sum(evaluate(moved, A, B).value * G))

    theta, dA, dB = K.vjp(G)
    assert_allclose(theta, central(lambda t: contracted(theta=t), kernel.theta), rtol=1e-4, atol=1e-5)
    assert_allclose(np.broadcast_to(dA, A.shape), central(lambda a: contracted(A=a), A), rtol=1e-4, atol=1e-4)
    if B is not None:
        assert_allclose(
            np.broadcast_to(dB, B.shape), central(lambda b: contracted(B=b), B), rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_values_are_those_of_scikit_learn(kernel):
    """Each matrix of a stack is what the kernel gives; white noise is on the diagonal of K(A) alone."""
    rng = np.random.default_rng(1)
    A, B = rng.normal(size=(3, 4, 3)), rng.normal(size=(3, 6, 3))
    square, cross = evaluate(kernel, A).value, evaluate(kernel, A, B).value
    for k in range(3):
        assert_allclose(square[k], kernel(A[k]), rtol=1e-9, atol=1e-12)
        assert_allclose(cross[k], kernel(A[k], B[k]), rtol=1e-9, atol=1e-12)


def test_equal_rows_have_no_distance():
    """Rounding of squared distances does not reach the diagonal, far from the origin either."""
    K = evaluate(Matern(1.0, nu=0.5), np.full((3, 2), 1e8)).value
    assert_allclose(np.diagonal(K), 1.0, rtol=0, atol=0)
