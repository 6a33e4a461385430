"""The objectives of the sparse models: log evidence over all tasks, which share kernel and noise.

Each class is one reading of "evidence"; all are called with a kernel and noise values, and give the
value, the gradient in theta, and the noise gradients per row (natural units).

* `ActiveGaussianEvidence`: Gaussian noise, active points only; exact when all rows are active.
* `ActiveSiteEvidence`: other noise models, active points with their sites held (LPJ05 eq. 26).
* `ProjectedEvidence`: all rows, through the active points as basis (`inference.projected`).
* `SmallTasksEvidence`: the same for many small tasks (`inference.stacked_projection`).

`is_exact`: one search for its maximum is all there is to do. `holds_sites`: it does not know the noise.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.inference.filtering import Sites
from gleangp.inference.posterior import gaussian_log_evidence
from gleangp.inference.projected import RowSites, projected_evidence, unexplained_nats
from gleangp.inference.stacked import group_sizes, stack_blocks
from gleangp.inference.stacked_projection import ProjectedStack, can_stack
from gleangp.noise import Gaussian

_MOST_TURNED = 0.01  # share of rows that may change sides while a kernel is learnt


class ActiveGaussianEvidence:
    """sum over tasks of log N(y_I | 0, K_I + variance): Lawrence & Platt 2004, eq. 14, on the points kept."""

    is_exact, holds_sites = True, False

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

    def slack(self, kernel) -> float:
        """Nats by which it may fall short of the exact evidence: none."""
        return 0.0


def _alone(kernel, block, noise_values):
    noise = replace(block.noise, **noise_values)
    return gaussian_log_evidence(kernel, block.X, block.y - noise.bias, noise.variance)


class ActiveSiteEvidence:
    """sum over tasks of log N(site_mean | 0, K_I + 1 / site_precision), sites held (LPJ05 eq. 26)."""

    is_exact, holds_sites = False, True

    def __init__(self, kernel, active_X: list[FloatArray], sites: list[Sites]):
        # A site is Gaussian noise of its own variance about its own mean.
        as_rows = [
            Block(X, s.mean, Gaussian(1.0 / s.precision)) for X, s in zip(active_X, sites, strict=True)
        ]
        self.gaussian = ActiveGaussianEvidence(kernel, as_rows)

    def __call__(self, kernel, noise_values):
        value, theta_grad, _ = self.gaussian(kernel, {})
        return value, theta_grad, {}


class ProjectedEvidence:
    """sum over tasks of the variational bound of all rows; sites warm-start from call to call.

    Noise that is not log-concave has several fixed points, each with a labelling of its own. Every call
    then starts from the sites of the best call so far, and a kernel under which more than a hundredth of the
    rows would change sides has no evidence (NaN): a far step of a line search would otherwise end
    in another labelling, whose evidence is not comparable, and stay there.
    """

    is_exact, holds_sites = False, False

    def __init__(self, blocks: list[Block], bases: list[FloatArray], start: list[RowSites] | None = None):
        self.blocks = blocks
        self.bases = bases
        self.sites: list[RowSites | None] = [None] * len(blocks) if start is None else list(start)
        self._best = -np.inf
        self._first = None if start is None else start
        self._first_bias = [getattr(b.noise, "bias", 0.0) for b in blocks] if start is not None else []

    def slack(self, kernel) -> float:
        """Nats by which the collapsed bound falls short for what the basis cannot express."""
        if self.blocks[0].noise.precision_depends_on_mean:
            return 0.0
        return sum(unexplained_nats(kernel, b, Z) for b, Z in zip(self.blocks, self.bases, strict=True))

    def __call__(self, kernel, noise_values):
        value, theta_grad, noise_grads, sites = 0.0, np.zeros(kernel.n_dims), [], []
        for t, (block, Z) in enumerate(zip(self.blocks, self.bases, strict=True)):
            block = replace(block, noise=replace(block.noise, **noise_values))
            evidence = projected_evidence(kernel, block, Z, self.sites[t])
            sites.append(evidence.sites if block.noise.precision_depends_on_mean else None)
            value += evidence.value
            theta_grad += evidence.theta_grad
            noise_grads.append(evidence.noise_grad)
        if self._first is not None and self._share_turned(sites, noise_values) > _MOST_TURNED:
            value = np.nan
        if self.blocks[0].noise.log_concave or value > self._best:
            self.sites, self._best = sites, value
        grads = {name: _stack([g[name] for g in noise_grads]) for name in noise_grads[0]}
        return value, theta_grad, grads

    def _share_turned(self, sites, noise_values) -> float:
        """Share of rows whose site was above the boundary at the start and is below it now, or vice versa."""
        turned = 0
        for old, new, bias in zip(self._first, sites, self._first_bias, strict=True):
            turned += np.sum(_sides(old, bias) * _sides(new, noise_values.get("bias", bias)) < 0.0)
        return turned / sum(len(b) for b in self.blocks)


class SmallTasksEvidence:
    """The same sum for noise that is log-concave but not Gaussian, small tasks all at once.

    Basis points are given as rows of their tasks.
    """

    is_exact, holds_sites = False, False

    def __init__(self, kernel, blocks: list[Block], basis_rows: list[IntArray]):
        fits = [can_stack(kernel, b) and b.noise == blocks[0].noise for b in blocks]
        small = sorted((t for t, fit in enumerate(fits) if fit), key=lambda t: len(blocks[t]))
        self.groups = [[small[k] for k in group] for group in group_sizes([len(blocks[t]) for t in small])]
        self.blocks, self.basis_rows = blocks, basis_rows
        self.stacks = [
            ProjectedStack([blocks[t] for t in tasks], [basis_rows[t] for t in tasks])
            for tasks in self.groups
        ]
        self.others = self._one_by_one([t for t, fit in enumerate(fits) if not fit])

    def __call__(self, kernel, noise_values):
        noise = replace(self.blocks[0].noise, **noise_values)
        parts = [] if self.others is None else [self.others(kernel, noise_values)]
        for group, stack in zip(self.groups, self.stacks, strict=True):
            part = stack.log_evidence(kernel, noise)
            parts.append(self._one_by_one(group)(kernel, noise_values) if part is None else part)
        values, theta_grads, noise_grads = zip(*parts, strict=True)
        grads = {name: _stack([g[name] for g in noise_grads]) for name in noise_grads[0]}
        return sum(values), np.sum(theta_grads, axis=0), grads

    def slack(self, kernel) -> float:
        """Expectation propagation is no bound: nothing is charged for a small basis."""
        return 0.0

    def _one_by_one(self, tasks: list[int]) -> ProjectedEvidence | None:
        if not tasks:
            return None
        bases = [self.blocks[t].X[self.basis_rows[t]] for t in tasks]
        return ProjectedEvidence([self.blocks[t] for t in tasks], bases)


def _sides(sites: RowSites, bias) -> FloatArray:
    """Sign of the mean of every site, 0 of those that say nothing."""
    return np.sign(sites.shift + bias * sites.precision)


def _stack(parts):
    return np.concatenate([np.atleast_1d(p) for p in parts])
