"""The projected evidence of many small tasks at once: against the same task by task."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, WhiteKernel

from gleangp import ScaledInputs
from gleangp.inference.stacked_projection import can_stack
from gleangp.learning.evidence import ProjectedEvidence, SmallTasksEvidence
from gleangp.noise import NullCategory, Ordered, Probit
from tests.unit.gp_twins import make_block

KERNELS = {
    "ard": ConstantKernel(3.0) * RBF([0.5, 1.5]) + ConstantKernel(0.3),
    "scaled line": ScaledInputs(RBF(0.7) + ConstantKernel(0.5) * DotProduct(0.4), [1.2, 0.8]),
    "slopes": ConstantKernel(1.5) * RBF([0.5, 1.5])
    + ConstantKernel(0.3)
    + ConstantKernel(0.2) * ScaledInputs(DotProduct(0.0, "fixed"), [0.4, 0.9], "fixed", center=[0.1, -0.2]),
    "no rule for stacks": ConstantKernel(2.0) * Matern(0.9, nu=1.5),
    "white": RBF(0.7) + WhiteKernel(0.1),
    "too short for products": RBF(1e-5),
}


def make_tasks(noise, sizes, seed=0):
    rng = np.random.default_rng(seed)
    blocks = [make_block(noise, n, seed + k) for k, n in enumerate(sizes)]
    if isinstance(noise, Ordered):
        blocks = [type(b)(b.X, rng.integers(0, 3, len(b)).astype(float), noise) for b in blocks]
    return blocks, [rng.permutation(n)[: max(1, n - 3)] for n in sizes]


def assert_same_evidence(kernel, blocks, rows, noise_values, rtol=1e-6):
    """Value, gradients and noise gradients of both."""
    stacked = SmallTasksEvidence(kernel, blocks, rows)
    twin = ProjectedEvidence(blocks, [b.X[r] for b, r in zip(blocks, rows, strict=True)])
    for _ in range(3):  # the second and third call start from the sites of the one before
        value, theta_grad, grads = stacked(kernel, noise_values)
        expected, expected_grad, expected_grads = twin(kernel, noise_values)
        assert_allclose(value, expected, rtol=rtol)
        assert_allclose(theta_grad, expected_grad, rtol=1e-4, atol=1e-4)
        assert set(grads) == set(expected_grads)
        for name in grads:
            ours, theirs = np.sum(grads[name], axis=0), np.sum(expected_grads[name], axis=0)
            assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", KERNELS)
def test_small_tasks_together(kernel):
    """Sizes from one row up, bases of most rows, one of all: the sum over tasks one by one."""
    blocks, rows = make_tasks(Probit(bias=0.1), (1, 2, 9, 9, 14, 30, 31, 5))
    rows[2] = np.arange(9)
    assert_same_evidence(KERNELS[kernel], blocks, rows, {"bias": 0.2})


def test_ordered_categories_together():
    """Any log-concave noise: here one whose parameters are a vector."""
    noise = Ordered(0.1, np.array([0.8]), 0.5)
    blocks, rows = make_tasks(noise, (8, 12, 20, 7))
    assert_same_evidence(KERNELS["ard"], blocks, rows, {})


def test_large_tasks_stand_apart():
    """A task too large for the stack is counted all the same."""
    blocks, rows = make_tasks(Probit(), (6, 300, 7, 8, 9))
    rows[1] = np.arange(20)
    assert not can_stack(KERNELS["ard"], blocks[1])
    assert_same_evidence(KERNELS["ard"], blocks, rows, {})


def test_all_of_one_class_and_steep_noise():
    """Tails: every label alike, a slope of 30, a kernel of variance 1e4."""
    blocks, rows = make_tasks(Probit(slope=30.0), (6, 7, 8, 9, 10))
    blocks = [type(b)(b.X, np.ones(len(b)), b.noise) if k % 2 else b for k, b in enumerate(blocks)]
    assert_same_evidence(ConstantKernel(1e4) * RBF(0.5), blocks, rows, {}, rtol=1e-5)


def test_what_does_not_stack():
    """Noise with several fixed points, and noise of its own in every row, are not for stacks."""
    block = make_block(Probit(), 9)
    assert can_stack(RBF(), block)
    assert not can_stack(RBF(), type(block)(block.X, block.y, Probit(bias=np.zeros(9))))
    assert not can_stack(RBF(), type(block)(block.X, block.y, NullCategory()))
