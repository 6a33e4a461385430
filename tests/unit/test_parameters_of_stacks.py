"""A stack of kernel matrices, each with its own parameters, equals the matrices one by one."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    PairwiseKernel,
    RationalQuadratic,
    WhiteKernel,
)

from gleangp import ArcSine, ScaledInputs
from gleangp.kernels.evaluate import MovingKernel, evaluate, evaluate_apart

C = ConstantKernel
KERNELS = [
    C(2.0) * RBF(1.5),
    C(0.3) * DotProduct(0.5) + C(2.0) * RBF(0.7) + C(0.1),
    C(0.3) * DotProduct(0.0, "fixed") * RBF(0.7),
    ScaledInputs(C(2.0) * RBF(), scales=[1.0, 0.5, 2.0], scales_bounds="fixed"),
    C(0.3) * ScaledInputs(DotProduct(0.0, "fixed"), [1.0, 0.5, 2.0], "fixed", [0.3, 5.0, -1.0]),
    ScaledInputs(ArcSine(), scales=[1.0, 0.5, 2.0]),
    ScaledInputs(ArcSine(2.0, 0.5, "fixed"), scales=0.7),
    C(2.0, "fixed") * RBF([0.5, 1.0, 2.0], "fixed") + RBF(),
    C(2.0) * RBF([0.5, 1.0, 2.0]),
    C(2.0) * Matern([1.5, 0.7, 1.0], nu=1.5) + RBF(),
    Matern(1.5, nu=0.5) * RationalQuadratic(0.7, 2.0) ** 2,
    ExpSineSquared(1.5, 2.0, "fixed") + ExpSineSquared(1.5, 2.0),
    C(2.0) * RBF() + WhiteKernel(0.3),
    C(2.0) * PairwiseKernel(0.7, metric="laplacian") + WhiteKernel(0.3),  # which has no rule of its own
]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("size", [1.0, 1e4])  # far from the origin, distances are formed another way
def test_stack_equals_loop(kernel, size):
    """Values, white variance and gradients are those of single matrices."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4, 6, 3))
    X[1:] += size - 1.0
    X[0, 1] = X[0, 0]
    theta = kernel.theta + 0.3 * rng.normal(size=(4, kernel.n_dims))
    K, white, vjp = evaluate_apart(MovingKernel(kernel).at(theta), X)
    dL_dK, dL_dwhite = rng.normal(size=(4, 6, 6)), rng.normal(size=(4, 6))
    gradient = vjp(dL_dK, dL_dwhite)
    assert gradient.shape == theta.shape
    for b in range(4):
        expected = evaluate(kernel.clone_with_theta(theta[b]), X[b], X[b])
        tolerance = 1e-9 * np.abs(expected.value).max()
        assert_allclose(K[b], expected.value, rtol=1e-9, atol=tolerance)
        slope = np.array(expected.vjp(dL_dK[b])[0])
        if white is not None:
            assert_allclose(white[b], np.exp(theta[b, -1]), rtol=1e-8)
            slope[-1] += np.exp(theta[b, -1]) * dL_dwhite[b].sum()
        assert_allclose(gradient[b], slope, rtol=1e-6, atol=1e-10)
