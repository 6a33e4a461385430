"""Basis points that leave their rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from gleangp import SparseGPRegressor
from gleangp.inference.block import Block
from gleangp.inference.moved_basis import move_basis
from gleangp.inference.posterior import gaussian_log_evidence
from gleangp.inference.projected import fit_projection, projected_evidence
from gleangp.noise import Gaussian, Probit


@pytest.fixture
def block():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    return Block(X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2], Gaussian(0.05))


@pytest.mark.parametrize(
    "kernel",
    [
        ConstantKernel(1.5) * RBF([0.8, 1.2, 2.0]),
        ConstantKernel(1.5) * RBF(1.0) + WhiteKernel(0.1),
        ConstantKernel(0.7) * Matern(1.3, nu=2.5),
    ],
    ids=["ard", "white", "matern"],
)
@pytest.mark.parametrize("noise", [Gaussian(0.05), Probit(0.2)], ids=["gaussian", "probit"])
def test_basis_gradient_matches_finite_differences(block, kernel, noise):
    """The gradient in the basis points is the derivative of the evidence."""
    y = block.y if isinstance(noise, Gaussian) else np.sign(block.y)
    block = Block(block.X, y, noise)
    Z = block.X[:6] + 0.1
    gradient = projected_evidence(kernel, block, Z).basis_grad()
    for i, k in [(0, 0), (3, 1), (5, 2)]:
        step = np.zeros_like(Z)
        step[i, k] = 1e-5
        up, down = (projected_evidence(kernel, block, Z + s).value for s in (step, -step))
        assert_allclose(gradient[i, k], (up - down) / 2e-5, rtol=2e-3, atol=2e-3)


def test_moving_raises_the_bound_towards_the_exact_evidence(block):
    """The bound rises, and stays below the exact evidence."""
    kernel = ConstantKernel(1.5) * RBF([0.8, 1.2, 1.5])
    Z = block.X[:15]
    before = fit_projection(kernel, block, Z)[1]
    after = fit_projection(kernel, block, move_basis(kernel, block, Z))[1]
    exact = gaussian_log_evidence(kernel, block.X, block.y, 0.05)[0]
    assert before + 10.0 < after < exact


def test_constant_features_do_not_move(block):
    """A feature that does not vary among the rows keeps its value in the basis."""
    X = np.column_stack([block.X, np.full(len(block), 7.0)])
    moved = move_basis(RBF(1.0), Block(X, block.y, block.noise), X[:5], steps=5)
    assert_allclose(moved[:, 3], 7.0)
    assert np.abs(moved[:, :3] - X[:5, :3]).max() > 1e-3


def test_a_moved_basis_predicts_better_than_its_rows():
    """Where few points cannot express the rows, moving them brings the error towards the exact one."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(600, 4))
    f = np.sin(2 * X[:, 0]) + np.cos(2 * X[:, 1]) + X[:, 2] * X[:, 3]
    y = f[:400] + 0.1 * rng.normal(size=400)
    error = {}
    for move in (False, "auto"):
        model = SparseGPRegressor(n_active=30, posterior="projected", move_basis=move, random_state=0)
        model.fit(X[:400], y)
        error[move] = np.sqrt(np.mean((model.predict(X[400:]) - f[400:]) ** 2))
    assert error["auto"] < 0.8 * error[False]
