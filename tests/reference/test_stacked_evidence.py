"""Exact evidence of stacked small tasks against the same task by task."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel

from gleangp import ScaledInputs
from gleangp.inference.block import Block
from gleangp.models.active.learn import ActiveEvidence
from gleangp.noise import Gaussian
from tests.unit.gp_twins import gaussian_log_evidence

SLOPES = ScaledInputs(DotProduct(0.0, "fixed"), [0.4, 0.9], "fixed", center=[0.1, -0.2])
KERNELS = {
    "default": ConstantKernel(1.5) * RBF([0.5, 1.5]) + ConstantKernel(0.3) + ConstantKernel(0.2) * SLOPES,
    "slopes first": ConstantKernel(0.2) * SLOPES + ConstantKernel(1.5) * RBF(0.8),
    "slopes twice": ConstantKernel(0.2) * SLOPES + ConstantKernel(0.7) * SLOPES,
    "fixed amplitude": ConstantKernel(1.5, "fixed") * RBF([0.5, 1.5]) + ConstantKernel(0.1, "fixed") * SLOPES,
    "fixed scales": ConstantKernel(1.5) * RBF([0.5, 1.5], "fixed") + WhiteKernel(0.1),
    "learnt scales": ConstantKernel(0.2) * ScaledInputs(DotProduct(0.0, "fixed"), [0.4, 0.9]) + RBF(0.8),
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("variance", [None, 0.2], ids=["own", "learnt"])
def test_stacks_give_what_tasks_give(name, variance):
    """Value and gradients over five tasks of unequal size are sums over the tasks, at every call."""
    rng, kernel = np.random.default_rng(0), KERNELS[name]
    blocks = []
    for n in (9, 10, 7, 10, 12):
        noise = Gaussian(0.1 if variance else rng.uniform(0.05, 0.2, n))
        blocks.append(Block(rng.normal(size=(n, 2)), rng.normal(size=n), noise))
    evidence = ActiveEvidence(blocks)
    values = {} if variance is None else {"variance": variance}
    alone = [
        gaussian_log_evidence(kernel, b.X, b.y, b.noise.variance if variance is None else variance)
        for b in blocks
    ]
    for _ in range(2):  # memory is used again from call to call
        value, theta_grad, grads = evidence(kernel, values)
        assert_allclose(value, sum(a[0] for a in alone), rtol=1e-10)
        assert_allclose(theta_grad, sum(a[1] for a in alone), rtol=1e-8, atol=1e-8)
        assert_allclose(grads["variance"].sum(), sum(np.sum(a[2]) for a in alone), rtol=1e-8)
