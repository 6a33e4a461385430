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
from gleangp.inference.evidence import condition, evidence_gradient, gaussian_evidence
from gleangp.inference.filtering import Sites
from gleangp.inference.prior import BlockPrior, Term, lay_out
from gleangp.noise import Gaussian


class ActiveGaussianEvidence:
    """sum over tasks of log N(y_I | 0, K_I + variance): Lawrence & Platt 2004, eq. 14, on the points kept.

    Tasks are blocks without a basis (`inference.prior`).
    """

    holds_sites = False

    def __init__(self, active_blocks: list[Block]):
        self.blocks = [b for b in active_blocks if len(b)]
        self.sizes = [len(b) for b in self.blocks]
        codes = np.repeat(np.arange(len(self.sizes)), self.sizes)
        rows = np.split(np.arange(len(codes)), np.cumsum(self.sizes)[:-1]) if self.blocks else []
        self.layout = lay_out(codes, rows)
        self.X = np.vstack([b.X for b in self.blocks]) if self.blocks else np.zeros((0, 0))

    def __call__(self, kernel, noise_values):
        if not self.blocks:
            return 0.0, np.zeros(kernel.n_dims), {"variance": np.zeros(0)}
        noises = [replace(b.noise, **noise_values) for b in self.blocks]
        y = np.concatenate([b.y - noise.bias for b, noise in zip(self.blocks, noises, strict=True)])
        variance = [np.broadcast_to(n.variance, size) for n, size in zip(noises, self.sizes, strict=True)]
        precision = 1.0 / np.concatenate(variance)
        alone = Term(kernel, np.zeros((len(self.blocks), 0)), np.ones(len(self.blocks)))
        prior = BlockPrior([alone], self.X, self.layout, self.X[:0])
        q = condition(prior, precision, precision * y)
        found = evidence_gradient(prior, q)
        return gaussian_evidence(q, precision), found.theta[0], {"variance": found.noise_variance}


class ActiveSiteEvidence:
    """sum over tasks of log N(site_mean | 0, K_I + 1 / site_precision), sites held (LPJ05 eq. 26)."""

    holds_sites = True

    def __init__(self, active_X: list[FloatArray], sites: list[Sites]):
        # A site is Gaussian noise of its own variance about its own mean.
        as_rows = [
            Block(X, s.mean, Gaussian(1.0 / s.precision)) for X, s in zip(active_X, sites, strict=True)
        ]
        self.gaussian = ActiveGaussianEvidence(as_rows)

    def __call__(self, kernel, noise_values):
        value, theta_grad, _ = self.gaussian(kernel, {})
        return value, theta_grad, {}
