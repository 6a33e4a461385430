"""The public selectors: which points to keep, for one task or many.

A selector chooses; it does not learn. Given the kernel and the blocks of all tasks it returns a
`Selection` of `n_active` points over all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

import numpy as np
from sklearn.base import BaseEstimator

from gleangp._typing import FloatArray, IntArray
from gleangp.data.tasks import blocks_of_rows
from gleangp.inference.block import Block
from gleangp.selection.base import ScoredRun, Selection, Selector, TaskChoice, draw_row, join_choices
from gleangp.selection.criteria import EntropyReduction, InformationGain
from gleangp.selection.graph import GraphSelector
from gleangp.selection.greedy import GreedyRun
from gleangp.selection.merge import merge_runs
from gleangp.selection.residual import PivotedRun, SampledRun
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

    @property
    def task_by_task(self):
        """Whether tasks do not interact: second thoughts weigh all of them against each other."""
        return self.n_swaps == 0

    def select(self, kernel, blocks, n_active, *, rng, n_jobs=None):
        """The greedy choice, with its swaps; `rng` is not used."""
        if not isinstance(self.n_swaps, Integral) or self.n_swaps < 0:
            raise ValueError(f"n_swaps={self.n_swaps!r}: a whole number that is not negative is expected.")
        selection = _merged(EntropySelector(), kernel, blocks, n_active, rng, n_jobs)
        if self.n_swaps == 0:
            return selection
        return swap_points(EntropyReduction(), kernel, blocks, selection, self.n_swaps)

    def merge_draws(self, n_active, rng):
        """None: the best head wins."""
        return None

    def start_runs(self, kernel, blocks, rng, n_jobs=None) -> Sequence[ScoredRun]:
        """One run per block, nothing taken yet."""
        if self.n_swaps:
            raise ValueError(
                f"n_swaps={self.n_swaps}: a choice that is made point by point under another rule cannot be "
                "swapped afterwards. Leave n_swaps=0 inside other selectors."
            )
        return _greedy_runs(EntropyReduction(), kernel, blocks)


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

    task_by_task = True

    def select(self, kernel, blocks, n_active, *, rng, n_jobs=None):
        """The greedy choice; `rng` is not used."""
        return _merged(self, kernel, blocks, n_active, rng, n_jobs)

    def merge_draws(self, n_active, rng):
        """None: the best head wins."""
        return None

    def start_runs(self, kernel, blocks, rng, n_jobs=None) -> Sequence[ScoredRun]:
        """One run per block, nothing taken yet."""
        return _greedy_runs(InformationGain(), kernel, blocks)


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

    task_by_task = True
    samples = True

    def __init__(self, weight="auto"):
        self.weight = weight

    def select(self, kernel, blocks, n_active, *, rng, n_jobs=None):
        """The sampled choice."""
        return _merged(self, kernel, blocks, n_active, rng, n_jobs)

    def merge_draws(self, n_active, rng):
        """Tasks are drawn in proportion to what is on offer in them."""
        return rng.random(n_active)

    def start_runs(self, kernel, blocks, rng, n_jobs=None) -> Sequence[ScoredRun]:
        """One run per block, nothing drawn yet."""
        streams = rng.spawn(len(blocks))
        if not self._by_gain(blocks):
            return [PivotedRun(kernel, b.X, stream) for b, stream in zip(blocks, streams, strict=True)]
        runs = _greedy_runs(EntropyReduction(), kernel, blocks)
        return [SampledRun(run, stream) for run, stream in zip(runs, streams, strict=True)]

    def _by_gain(self, blocks: list[Block]) -> bool:
        if self.weight not in ("auto", "variance", "gain"):
            raise ValueError(f"weight={self.weight!r} is not known; use 'auto', 'variance' or 'gain'.")
        return self.weight == "gain" or (
            self.weight == "auto" and any(b.noise.precision_depends_on_mean for b in blocks)
        )


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
        order, active = draw_uniformly([len(b) for b in blocks], n_active, rng)
        choices = [uniform_choice(kernel, block, rows) for block, rows in zip(blocks, active, strict=True)]
        return join_choices(order, choices)

    def start_runs(self, kernel, blocks, rng, n_jobs=None) -> Sequence[ScoredRun]:
        """One run per block, nothing drawn yet."""
        streams = rng.spawn(len(blocks))
        return [UniformRun(len(b), stream) for b, stream in zip(blocks, streams, strict=True)]


class UniformRun:
    """A run in which every row left is worth the same; picks are drawn."""

    def __init__(self, n_rows: int, rng: np.random.Generator):
        self.rng = rng
        self.picks: list[int] = []
        self._scores = np.ones(n_rows)

    def scores(self) -> FloatArray:
        """One for rows left, -inf for rows taken."""
        return self._scores.copy()

    def choose(self, scores: FloatArray) -> int:
        """A row drawn in proportion to the scores."""
        return draw_row(scores, self.rng)

    def force(self, row: int) -> None:
        """Include a row."""
        self.picks.append(row)
        self._scores[row] = -np.inf

    def task_sites(self):
        """None: nothing is filtered."""
        return None


SELECTORS: dict[str, type[Selector]] = {
    "entropy": EntropySelector,
    "graph": GraphSelector,
    "information": InformationGainSelector,
    "residual": ResidualSelector,
    "random": RandomSelector,
}


def _merged(selector, kernel, blocks, n_active, rng, n_jobs) -> Selection:
    """The choice of a selector to which tasks are strangers: one run per task, merged."""
    runs = selector.start_runs(kernel, blocks, rng)
    draws = selector.merge_draws(n_active, rng)
    runs, order = merge_runs(runs, n_active, draws=draws, n_jobs=n_jobs)
    counts = np.bincount(order, minlength=len(runs)).tolist()
    return join_choices(order, [r.choice(c, b) for r, c, b in zip(runs, counts, blocks, strict=True)])


def _greedy_runs(criterion, kernel, blocks: list[Block]) -> list[GreedyRun]:
    return [GreedyRun(kernel, b.X, [(b.y, b.noise)], criterion) for b in blocks]


def draw_uniformly(sizes: list[int], n_active: int, rng) -> tuple[IntArray, list[IntArray]]:
    """Task of each of `n_active` rows drawn from all of them, and the rows of every task."""
    task_of = np.repeat(np.arange(len(sizes)), sizes)
    row_of = np.concatenate([np.arange(n) for n in sizes])
    chosen = rng.permutation(len(task_of))[:n_active]
    order = task_of[chosen]
    return order, [row_of[chosen[places]] for places in blocks_of_rows(order, len(sizes))]


def uniform_choice(kernel, block: Block, rows: IntArray) -> TaskChoice:
    """Rows drawn without looking; a point's gain is what it would have told at the prior."""
    kept = block.at(rows)
    var = kernel.diag(kept.X) if len(rows) else np.zeros(0)  # not every kernel takes an empty array
    key = EntropyReduction().key(kept.noise, kept.y, np.zeros(len(kept)), var)
    return TaskChoice(rows, EntropyReduction().gain(key))
