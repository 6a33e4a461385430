"""The public selectors: which points to keep, for one task or many.

A selector chooses; it does not learn. Given the kernel and the blocks of all tasks it returns a
`Selection` of `n_active` points over all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from sklearn.base import BaseEstimator

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.inference.filtering import Sites
from gleangp.selection.criteria import EntropyReduction, InformationGain
from gleangp.selection.greedy import GreedyRun
from gleangp.selection.merge import merge_runs
from gleangp.selection.residual import PivotedRun, SampledRun


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """The active points of every task, and the order in which they came in over all tasks."""

    order: IntArray  # (d,) task of each inclusion
    active: tuple[IntArray, ...]  # per task: rows of its block, in order of inclusion
    gain: FloatArray  # (d,) score of each inclusion, nats
    sites: tuple[Sites, ...] | None = None  # per task, where the selector filtered the points

    def rows(self, block_rows: list[IntArray]) -> IntArray:
        """Rows of the training set, in order of inclusion over all tasks."""
        out = np.empty(len(self.order), dtype=np.intp)
        for task, active in enumerate(self.active):
            out[self.order == task] = block_rows[task][active]
        return out


class Selector(Protocol):
    """Chooses the active set."""

    def select(
        self,
        kernel,
        blocks: list[Block],
        n_active: int,
        *,
        rng: np.random.Generator,
        n_jobs: int | None = None,
    ) -> Selection:
        """The `n_active` points over all blocks; at most as many as there are rows."""


class EntropySelector(BaseEstimator):
    """Greedily the point that most reduces the entropy of the posterior (the IVM).

    Over several tasks the best point of all is taken each time (MT-IVM, Lawrence & Platt 2004,
    algorithm 2). For Gaussian noise labels play no part; for classification the choice looks at the
    labels, and mislabelled points look informative to it.

    Examples
    --------
    >>> from gleangp import EntropySelector, SparseGPRegressor
    >>> SparseGPRegressor(selector=EntropySelector(), n_active=20).selector
    EntropySelector()
    """

    def select(self, kernel, blocks, n_active, *, rng, n_jobs=None):
        """The greedy choice; `rng` is not used."""
        return _greedy(EntropyReduction(), kernel, blocks, n_active, n_jobs)


class InformationGainSelector(BaseEstimator):
    """Greedily the point that moves the posterior most, in Kullback-Leibler divergence.

    Unlike the entropy it also counts the shift of the mean, so it looks at the targets even with
    Gaussian noise.

    Examples
    --------
    >>> from gleangp import InformationGainSelector
    >>> InformationGainSelector()
    InformationGainSelector()
    """

    def select(self, kernel, blocks, n_active, *, rng, n_jobs=None):
        """The greedy choice; `rng` is not used."""
        return _greedy(InformationGain(), kernel, blocks, n_active, n_jobs)


class ResidualSelector(BaseEstimator):
    """Samples points in proportion to what the chosen ones leave unexplained.

    Parameters
    ----------
    weight : {"auto", "variance", "gain"}, default="auto"
        "variance": the prior variance left unexplained, which ignores the labels (randomly pivoted
        Cholesky; Chen, Epperly, Tropp & Webber 2025). "gain": the entropy that the point would
        remove. "auto" is "variance" for Gaussian noise and "gain" for other noise models.

    Examples
    --------
    >>> from gleangp import ResidualSelector
    >>> ResidualSelector(weight="variance")
    ResidualSelector(weight='variance')
    """

    def __init__(self, weight="auto"):
        self.weight = weight

    def select(self, kernel, blocks, n_active, *, rng, n_jobs=None):
        """The sampled choice."""
        if self.weight not in ("auto", "variance", "gain"):
            raise ValueError(f"weight={self.weight!r} is not known; use 'auto', 'variance' or 'gain'.")
        by_gain = self.weight == "gain" or (
            self.weight == "auto" and any(b.noise.precision_depends_on_mean for b in blocks)
        )
        streams = rng.spawn(len(blocks))
        draws = rng.random(n_active)
        if by_gain:
            runs = [
                SampledRun(GreedyRun(kernel, b.X, [(b.y, b.noise)], EntropyReduction()), stream)
                for b, stream in zip(blocks, streams, strict=True)
            ]
            runs, order = merge_runs(runs, n_active, draws=draws, n_jobs=n_jobs)
            return _collect([r.run for r in runs], order)
        runs = [PivotedRun(kernel, b.X, stream) for b, stream in zip(blocks, streams, strict=True)]
        runs, order = merge_runs(runs, n_active, draws=draws, n_jobs=n_jobs)
        counts = np.bincount(order, minlength=len(blocks))
        active = tuple(np.array(r.picks[:c], np.intp) for r, c in zip(runs, counts, strict=True))
        gain = np.empty(n_active)
        for task, (run, block, rows) in enumerate(zip(runs, blocks, active, strict=True)):
            var = np.array(run.residuals[: len(rows)])
            nu = block.noise.at(rows).precision(block.y[rows], np.zeros(len(rows)), var)
            gain[order == task] = EntropyReduction().gain(nu * var)
        return Selection(order, active, gain)


class RandomSelector(BaseEstimator):
    """Points drawn uniformly over all tasks: the baseline every other selector must beat.

    Examples
    --------
    >>> from gleangp import RandomSelector
    >>> RandomSelector()
    RandomSelector()
    """

    def select(self, kernel, blocks, n_active, *, rng, n_jobs=None):
        """The uniform choice; a point's gain is what it would have told at the prior."""
        task_of = np.repeat(np.arange(len(blocks)), [len(b) for b in blocks])
        row_of = np.concatenate([np.arange(len(b)) for b in blocks])
        chosen = rng.permutation(len(task_of))[:n_active]
        order = task_of[chosen]
        gain = np.empty(n_active)
        active = []
        for task, block in enumerate(blocks):
            rows = row_of[chosen[order == task]]
            active.append(rows)
            gain[order == task] = _prior_gain(kernel, block.at(rows))
        return Selection(order, tuple(active), gain)


SELECTORS = {
    "entropy": EntropySelector,
    "information": InformationGainSelector,
    "residual": ResidualSelector,
    "random": RandomSelector,
}


def _greedy(criterion, kernel, blocks, n_active, n_jobs) -> Selection:
    runs = [GreedyRun(kernel, b.X, [(b.y, b.noise)], criterion) for b in blocks]
    runs, order = merge_runs(runs, n_active, n_jobs=n_jobs)
    return _collect(runs, order)


def _collect(runs: list[GreedyRun], order: IntArray) -> Selection:
    counts = np.bincount(order, minlength=len(runs))
    gain = np.empty(len(order))
    active, sites = [], []
    for task, (run, count) in enumerate(zip(runs, counts, strict=True)):
        active.append(np.array(run.picks[:count], dtype=np.intp))
        sites.append(run.sites(count)[0])
        gain[order == task] = run.gains()[:count]
    return Selection(order, tuple(active), gain, tuple(sites))


def _prior_gain(kernel, block: Block) -> FloatArray:
    var = kernel.diag(block.X)
    return EntropyReduction().gain(EntropyReduction().key(block.noise, block.y, np.zeros(len(block)), var))
