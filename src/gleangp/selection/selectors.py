"""The public selectors: which points to keep, for one task or many.

`select` gives a `Selection` of `n_active` points over the blocks of all tasks, `start_runs` one new run per
block. Optional attributes: `model_free`, the choice depends on neither kernel nor noise and is made once per
fit; `alone`, the selector for a task on its own, where several are needed, and `check_tasks(n_tasks)`, which
refuses a single one, even if all rows are kept.
"""

from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from gleangp.data.tasks import blocks_of_rows
from gleangp.exceptions import GraphError
from gleangp.graph import connectivity, exponential_graph
from gleangp.selection.base import Run, Selection, join_choices, merged
from gleangp.selection.runs import GraphRun, GreedyRun, PivotedRun, entropy_reduction, information_gain, swap


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
    >>> model = SparseGPRegressor(selector=EntropySelector(), n_active=20)
    """

    def __init__(self, n_swaps=0):
        self.n_swaps = n_swaps

    def select(self, kernel, blocks, n_active, *, rng, n_jobs=None):
        if not isinstance(self.n_swaps, Integral) or self.n_swaps < 0:
            raise ValueError(f"n_swaps={self.n_swaps!r}: a whole number that is not negative is expected.")
        runs = [GreedyRun(kernel, b, entropy_reduction) for b in blocks]
        selection = merged(runs, blocks, n_active)
        return swap(kernel, blocks, selection, int(self.n_swaps)) if self.n_swaps else selection

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
    >>> from gleangp import InformationGainSelector, SparseGPRegressor
    >>> model = SparseGPRegressor(selector=InformationGainSelector(), n_active=20)
    """

    def select(self, kernel, blocks, n_active, *, rng, n_jobs=None):
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
    >>> from gleangp import ResidualSelector, SparseGPRegressor
    >>> model = SparseGPRegressor(selector=ResidualSelector(weight="variance"), n_active=20)
    """

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
    >>> from gleangp import RandomSelector, SparseGPRegressor
    >>> model = SparseGPRegressor(selector=RandomSelector(), n_active=20)
    """

    def select(self, kernel, blocks, n_active, *, rng, n_jobs=None):
        """The uniform choice; a point's gain is what it would have told at the prior."""
        sizes = [len(b) for b in blocks]
        chosen = rng.permutation(sum(sizes))[:n_active]
        order = np.searchsorted(np.cumsum(sizes), chosen, side="right")
        row_of, choices = np.concatenate([np.arange(n) for n in sizes])[chosen], []
        for block, places in zip(blocks, blocks_of_rows(order, len(blocks)), strict=True):
            kept = block.at(row_of[places])
            var = kernel.diag(kept.X) if len(kept) else np.zeros(0)  # not every kernel takes an empty array
            gain = entropy_reduction(kept.noise, kept.y, np.zeros(len(kept)), var)
            choices.append((row_of[places], gain, None))
        return join_choices(order, choices)

    def start_runs(self, kernel, blocks, rng, n_jobs=None) -> Sequence[Run]:
        return [Run(len(b), stream) for b, stream in zip(blocks, rng.spawn(len(blocks)), strict=True)]


class GraphSelector(BaseEstimator):
    """Points that are strongly linked to the rest of the data; labels play no part.

    Parameters
    ----------
    n_neighbors : int, default=10
        Each row is linked to so many nearest others. Every task needs more rows than that.
    scale : float, default=1.0
        Reach of the weights exp(-distance / (scale * m_x)), where m_x is the mean distance of a row
        to its nearest distinct neighbour (t in Zhu & Sun 2013, eq. 14, who try 1, 5 and 10).
    objective : {"degree", "coverage"}, default="degree"
        "degree": the row with the largest sum of weights, which is then removed with its edges
        (manifold-preserving graph reduction, Zhu & Sun 2013, section 3). It is meant to make the paper's
        eq. 10 large (`connectivity`) but is weak at it. "coverage": the largest gain in eq. 10, which is
        facility location and submodular: its greedy is within 1 - 1/e of the best choice.

    Notes
    -----
    Over several tasks each has its own graph, and the best row of all is taken each time, of equal ones the
    lowest. Distances are Euclidean, so features belong on comparable scales. The score of a pick
    (`active_gain_`) is its remaining degree, or the coverage it adds, where a kept row covers itself fully.
    Where all rows are kept they come in their own order, without scores (NaN). After the neighbour search
    the time is near-linear in the number of edges.

    Examples
    --------
    >>> import numpy as np
    >>> from gleangp import GraphSelector, SparseGPRegressor
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> model = SparseGPRegressor(selector=GraphSelector(), n_active=15, posterior="active")
    >>> round(model.fit(X, np.sin(X[:, 0])).selection_objective_, 2)
    0.29
    """

    model_free = True

    def __init__(self, n_neighbors=10, scale=1.0, objective="degree"):
        self.n_neighbors = n_neighbors
        self.scale = scale
        self.objective = objective

    def select(self, kernel, blocks, n_active, *, rng, n_jobs=None):
        sizes = [len(b) for b in blocks]
        if n_active >= sum(sizes):
            order, active = np.repeat(np.arange(len(sizes)), sizes), tuple(map(np.arange, sizes))
            return Selection(order, active, np.full(len(order), np.nan), objective=1.0)
        runs = self.start_runs(kernel, blocks, rng, n_jobs=n_jobs)
        return replace(merged(runs, blocks, n_active), objective=self.achieved(runs))

    def start_runs(self, kernel, blocks, rng, n_jobs=None) -> Sequence[GraphRun]:
        where = [f", task number {t} (from 0)" for t in range(len(blocks))] if len(blocks) > 1 else [""]
        given = zip(blocks, where, strict=True)
        return [GraphRun(self._graph(b.X, task, n_jobs), self.objective) for b, task in given]

    def achieved(self, runs) -> float:
        """Eq. 10 over the rows that these runs left out of all tasks together; 1 where none is left out."""
        left_out = [int(run.left.sum()) for run in runs]
        if not any(left_out):
            return 1.0
        values = [connectivity(run.W, run.picks) for run in runs]
        return float(np.average(values, weights=left_out))

    def connectivity(self, X, kept) -> float:
        """Mean over the rows left out of their strongest link to a kept one (Zhu & Sun 2013, eq. 10).

        Parameters
        ----------
        X : array-like of shape (n, p)
            All rows of one task.
        kept : array-like of shape (d,)
            The rows that are kept.

        Examples
        --------
        >>> from gleangp import GraphSelector
        >>> GraphSelector(n_neighbors=1).connectivity([[0.0], [0.0], [5.0], [5.0]], [0, 2])
        1.0
        """
        X = np.asarray(X, dtype=np.float64)
        return connectivity(self._graph(X, "", None), np.asarray(kept, dtype=np.intp))

    def _graph(self, X, where, n_jobs):
        try:
            return exponential_graph(X, self.n_neighbors, self.scale, n_jobs=n_jobs)
        except GraphError as error:
            raise GraphError(f"GraphSelector{where}: {error}") from None


SELECTORS: dict[str, Any] = {
    "entropy": EntropySelector,
    "graph": GraphSelector,
    "information": InformationGainSelector,
    "residual": ResidualSelector,
    "random": RandomSelector,
}
