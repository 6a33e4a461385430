"""A stack of kernel matrices equals the matrices one by one."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, WhiteKernel

from gleangp import ScaledInputs
from gleangp.kernels import linearize
from gleangp.kernels.own_theta import is_stackable, prepare_stack

C = ConstantKernel
KERNELS = [
    (C(2.0) * RBF(1.5), True),
    (C(0.3) * DotProduct(0.5) + C(2.0) * RBF(0.7) + C(0.1), True),
    (C(0.3) * DotProduct(0.0, "fixed") * RBF(0.7), True),
    (ScaledInputs(C(2.0) * RBF(), scales=[1.0, 0.5, 2.0], scales_bounds="fixed"), True),
    (C(0.3) * ScaledInputs(DotProduct(0.0, "fixed"), [1.0, 0.5, 2.0], "fixed", [0.3, 5.0, -1.0]), True),
    (C(2.0, "fixed") * RBF([0.5, 1.0, 2.0], "fixed") + RBF(), True),
    (C(2.0) * RBF([0.5, 1.0, 2.0]), False),
    (C(2.0) * Matern(1.5, nu=1.5) + RBF(), False),
    (C(2.0) * RBF() + WhiteKernel(0.3), False),
]


@pytest.mark.parametrize(("kernel", "stackable"), KERNELS, ids=[str(k) for k, _ in KERNELS])
def test_stack_equals_loop(kernel, stackable):
    """Values, white variance and gradients are those of `linearize`, set by set."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4, 6, 3))
    X[0, 1] = X[0, 0]
    theta = kernel.theta + 0.5 * rng.normal(size=(4, kernel.n_dims))
    assert is_stackable(kernel) is stackable
    stack = prepare_stack(kernel, X)(theta)
    dL_dK, dL_dwhite = rng.normal(size=(4, 6, 6)), rng.normal(size=(4, 6))
    gradient = stack.theta_vjp(dL_dK, dL_dwhite)
    for b in range(4):
        one = clone(kernel)
        one.theta = theta[b]
        expected = linearize(one, X[b], X[b])
        assert_allclose(stack.value[b], expected.value, rtol=1e-10, atol=1e-12)
        slope = expected.theta_vjp(dL_dK[b])
        if stack.white is not None:
            assert_allclose(stack.white[b], np.exp(theta[b, -1]), rtol=1e-10)
            slope[-1] += np.exp(theta[b, -1]) * dL_dwhite[b].sum()
        assert_allclose(gradient[b], slope, rtol=1e-9, atol=1e-10)
