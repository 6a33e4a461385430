"""Kernel values of every pair of rows once are those of the matrices, and so are their derivatives."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, WhiteKernel

from gleangp import ScaledInputs
from gleangp.kernels import kernel_vjp
from gleangp.kernels.pairs import Pairs, pair_rule

SLOPES = ScaledInputs(DotProduct(0.0, "fixed"), [0.5, 1.5], center=[0.3, 0.0], scales_bounds="fixed")
KERNELS = [
    RBF(0.7),
    RBF([0.7, 1.9]),
    RBF([0.7, 1.9], "fixed"),
    ConstantKernel(0.5) * RBF([0.7, 1.9]),
    ConstantKernel(0.5, "fixed") * RBF(1.3),
    ConstantKernel(0.5) * RBF(1.3, "fixed") + WhiteKernel(0.2),
    ConstantKernel(0.5) * RBF([0.7, 1.9]) + ConstantKernel(0.1) + ConstantKernel(0.3) * SLOPES,
    ConstantKernel(0.5) * RBF(0.7) + ConstantKernel(0.1, "fixed") + ConstantKernel(0.3, "fixed") * SLOPES,
    ScaledInputs(RBF(0.7), 1.4),
    ScaledInputs(RBF([0.7, 1.9]) + ConstantKernel(0.2), [1.4, 0.6], "fixed"),
    ScaledInputs(ConstantKernel(0.5, "fixed") * RBF([0.7, 1.9], "fixed") + WhiteKernel(0.2), [1.4, 0.6]),
    ScaledInputs(RBF(0.7, "fixed") + ConstantKernel(0.3) * DotProduct(0.8), [1.4, 0.6], center=[0.3, 0.0])
    + ConstantKernel(0.1)
    + WhiteKernel(0.2),
    ScaledInputs(DotProduct(0.8, "fixed"), [1.4, 0.6]) + ScaledInputs(DotProduct(0.0, "fixed"), 2.0),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_pairs_are_the_matrices(kernel):
    """A rule made at one theta gives, at others and again and again, scikit-learn's values and gradients."""
    rng = np.random.default_rng(0)
    X, moved = rng.normal(size=(3, 6, 2)), clone(kernel)
    pairs = Pairs(X)
    rule = pair_rule(kernel, pairs)
    for _ in range(2):
        moved.theta = kernel.theta + rng.normal(size=kernel.n_dims)
        value, theta_vjp = rule(moved)
        value = np.broadcast_to(value, pairs.shape).copy()
        G = rng.normal(size=pairs.shape)
        expected = np.zeros(kernel.n_dims)
        for t in range(3):
            assert_allclose(value[t], moved(X[t])[pairs.first, pairs.second], rtol=1e-12, atol=1e-14)
            upper = np.zeros((6, 6))
            upper[pairs.first, pairs.second] = G[t]
            expected += kernel_vjp(moved, X[t], 0.5 * (upper + upper.T))
        assert_allclose(theta_vjp(G), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("kernel", "n_features"),
    [
        (Matern(0.7), 2),
        (ConstantKernel(0.5) * Matern(0.7) + RBF(), 2),
        (RBF() * RBF(), 2),
        (RBF(np.ones(9)), 9),
        (ConstantKernel() * RBF(np.ones(9)), 9),
        (ConstantKernel() * ScaledInputs(DotProduct(0.0, "fixed"), [0.5, 1.5]), 2),
        (ScaledInputs(ConstantKernel(0.5) * Matern(0.7), [0.5, 1.5]), 2),
        (ScaledInputs(RBF() * RBF(), [0.5, 1.5]), 2),
        (ScaledInputs(RBF() + Matern(), [0.5, 1.5]), 2),
        (ScaledInputs(RBF(), np.ones(20_000)), 20_000),
    ],
    ids=repr,
)
def test_other_kernels_have_no_rule(kernel, n_features):
    """Kernels of other parts, of many length scales, and linear ones that are scaled anew."""
    assert pair_rule(kernel, Pairs(np.zeros((2, 3, n_features)))) is None


def test_no_length_scale_is_too_short():
    """Differences are taken one by one: rows far from zero in units of the length scale keep their digits."""
    X = 1e4 + np.random.default_rng(0).normal(size=(2, 5, 1)) * 1e-3
    pairs, kernel = Pairs(X), RBF(1e-3)
    value, _ = pair_rule(kernel, pairs)(kernel)
    for t in range(2):  # scikit-learn divides first, and rounds more
        assert_allclose(value[t], kernel(X[t])[pairs.first, pairs.second], rtol=1e-7)
