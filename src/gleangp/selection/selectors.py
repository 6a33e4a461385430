"""The public selectors: which points to keep, for one task or many.

A selector chooses; it does not learn. Given the kernel and the blocks of all tasks it returns a
`Selection` of `n_active` points over all of them; `start_runs` gives one run per block, nothing taken yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

import numpy as np
from sklearn.base import BaseEstimator

from gleangp._typing import IntArray
from gleangp.data.tasks import blocks_of_rows
from gleangp.inference.block import Block
from gleangp.selection.base import Run, Selector, TaskChoice, UniformRun, join_choices, merged
from gleangp.selection.graph import GraphSelector
from gleangp.selection.greedy import GreedyRun, entropy_reduction, information_gain
from gleangp.selection.residual import PivotedRun
from gleangp.selection.swaps import swap_points


class EntropySelector(BaseEstimator):
    """Greedily the point that most reduces the entropy of the posterior (the IVM).

    Over several tasks the best point of all is taken each time (MT-IVM, Lawrence & Platt 2004,
    algorithm 2). For Gaussian noise labels play no part; for classification the choice looks at the
    labels, and mislabelled points look informative to it.

    Parameters
    ----------
    n_swaps : int, default=0
        Maximum number of swaps: the active point with the smallest gain is exchanged for the
        best row outside, if the entropy falls (Lawrence, Platt & Jordan 2005, section 3.5).

    Examples
    --------
    >>> from gleangp import EntropySelector, SparseGPRegressor
    >>> SparseGPRegressor(selector=EntropySelector(), n_active=20).selector
    EntropySelector()
    """

    def __init__(self, n_swaps=0):
        self.n_swaps = n_swaps

    def select(self, kernel, blocks, n_active, *, rng, n_jobs=None):
        """The greedy choice, with its swaps; `rng` is not used."""
        if not isinstance(self.n_swaps, Integral) or self.n_swaps < 0:
            raise ValueError(f"n_swaps={self.n_swaps!r}: a whole number that is not negative is expected.")
        runs = [GreedyRun(kernel, b, entropy_reduction) for b in blocks]
        selection = merged(runs, blocks, n_active)
        return swap_points(entropy_reduction, kernel, blocks, selection, int(self.n_swaps))

    def start_runs(self, kernel, blocks, rng, n_jobs=None) -> Sequence[Run]:
        if self.n_swaps:
            raise ValueError(
                f"n_swaps={self.n_swaps}: a choice that is made point by point under another rule cannot be "
                "swapped afterwards. Leave n_swaps=0 inside other selectors."
            )
        return [GreedyRun(kernel, b, entropy_reduction) for b in blocks]


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
        return merged(self.start_runs(kernel, blocks, rng), blocks, n_active)

    def start_runs(self, kernel, blocks, rng, n_jobs=None) -> Sequence[Run]:
        return [GreedyRun(kernel, b, information_gain) for b in blocks]


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

    samples = True

    def __init__(self, weight="auto"):
        self.weight = weight

    def select(self, kernel, blocks, n_active, *, rng, n_jobs=None):
        """The sampled choice; tasks are drawn in proportion to what is on offer in them."""
        runs = self.start_runs(kernel, blocks, rng)
        return merged(runs, blocks, n_active, rng.random(n_active))

    def start_runs(self, kernel, blocks, rng, n_jobs=None) -> Sequence[Run]:
        if self.weight not in ("auto", "variance", "gain"):
            raise ValueError(f"weight={self.weight!r} is not known; use 'auto', 'variance' or 'gain'.")
        given = list(zip(blocks, rng.spawn(len(blocks)), strict=True))
        not_gaussian = any(b.noise.precision_depends_on_mean for b in blocks)
        if self.weight == "gain" or (self.weight == "auto" and not_gaussian):
            return [GreedyRun(kernel, b, entropy_reduction, stream) for b, stream in given]
        return [PivotedRun(kernel, b.X, stream) for b, stream in given]


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
        sizes = [len(b) for b in blocks]
        chosen = rng.permutation(sum(sizes))[:n_active]
        order = np.searchsorted(np.cumsum(sizes), chosen, side="right")
        row_of = np.concatenate([np.arange(n) for n in sizes])[chosen]
        by_task = blocks_of_rows(order, len(blocks))
        return join_choices(
            order, [_at_prior(kernel, b, row_of[at]) for b, at in zip(blocks, by_task, strict=True)]
        )

    def start_runs(self, kernel, blocks, rng, n_jobs=None) -> Sequence[Run]:
        streams = rng.spawn(len(blocks))
        return [UniformRun(len(b), stream) for b, stream in zip(blocks, streams, strict=True)]


SELECTORS: dict[str, type[Selector]] = {
    "entropy": EntropySelector,
    "graph": GraphSelector,
    "information": InformationGainSelector,
    "residual": ResidualSelector,
    "random": RandomSelector,
}


def _at_prior(kernel, block: Block, rows: IntArray) -> TaskChoice:
    """Rows drawn without looking; a point's gain is what it would have told at the prior."""
    kept = block.at(rows)
    var = kernel.diag(kept.X) if len(rows) else np.zeros(0)  # not every kernel takes an empty array
    return TaskChoice(rows, entropy_reduction(kept.noise, kept.y, np.zeros(len(kept)), var))
