"""The objectives of the sparse models: log evidence over all tasks, which share kernel and noise.

Each class is one reading of "evidence"; all are called with a kernel and noise values, and give the
value, the gradient in theta, and the noise gradients per row (natural units).

* `ActiveGaussianEvidence`: Gaussian noise, active points only; exact when all rows are active.
* `ActiveSiteEvidence`: other noise models, active points with their sites held (LPJ05 eq. 26).

`holds_sites`: it does not depend on the noise.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gleangp._typing import FloatArray
from gleangp.inference.block import Block
from gleangp.inference.filtering import Sites
from gleangp.inference.posterior import gaussian_log_evidence
from gleangp.inference.stacked import stack_blocks
from gleangp.noise import Gaussian


class ActiveGaussianEvidence:
    """sum over tasks of log N(y_I | 0, K_I + variance): Lawrence & Platt 2004, eq. 14, on the points kept."""

    holds_sites = False

    def __init__(self, kernel, active_blocks: list[Block]):
        self.stacks, self.alone = stack_blocks(kernel, active_blocks)

    def __call__(self, kernel, noise_values):
        value, theta_grad, d_variance = 0.0, 0.0, []
        for stack in self.stacks:
            together = stack.log_evidence(kernel, noise_values.get("variance"))
            parts = [together]
            if together is None:  # length scales so short that distances must be taken one by one
                parts = [_alone(kernel, b, noise_values) for b in stack.blocks]
            for v, g, d in parts:
                value, theta_grad = value + v, theta_grad + g
                d_variance.append(d)
        for block in self.alone:
            v, g, d = _alone(kernel, block, noise_values)
            value, theta_grad = value + v, theta_grad + g
            d_variance.append(d)
        if not d_variance:
            return 0.0, np.zeros(kernel.n_dims), {"variance": np.zeros(0)}
        return value, theta_grad, {"variance": np.concatenate(d_variance)}


def _alone(kernel, block, noise_values):
    noise = replace(block.noise, **noise_values)
    return gaussian_log_evidence(kernel, block.X, block.y - noise.bias, noise.variance)


class ActiveSiteEvidence:
    """sum over tasks of log N(site_mean | 0, K_I + 1 / site_precision), sites held (LPJ05 eq. 26)."""

    holds_sites = True

    def __init__(self, kernel, active_X: list[FloatArray], sites: list[Sites]):
        # A site is Gaussian noise of its own variance about its own mean.
        as_rows = [
            Block(X, s.mean, Gaussian(1.0 / s.precision)) for X, s in zip(active_X, sites, strict=True)
        ]
        self.gaussian = ActiveGaussianEvidence(kernel, as_rows)

    def __call__(self, kernel, noise_values):
        value, theta_grad, _ = self.gaussian(kernel, {})
        return value, theta_grad, {}
