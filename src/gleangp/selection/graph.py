"""Points that stand for their neighbourhood: manifold-preserving graph reduction, and coverage.

Zhu & Sun 2013, section 3. Their algorithm takes the vertex of largest degree, removes it with its
edges, and goes on. It is meant to make eq. 10 large (how strongly the rows left out are linked to
those kept) but is weak at it, so the plain greedy on eq. 10 is here as well.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator

from gleangp._typing import FloatArray, IntArray
from gleangp.exceptions import GraphError
from gleangp.graph import connectivity, exponential_graph
from gleangp.selection.base import Run, Selection, merged


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
        "degree": the largest sum of weights to rows not yet taken (manifold-preserving graph
        reduction). "coverage": the largest gain in `connectivity`, the paper's eq. 10, which is
        facility location and submodular: its greedy is within 1 - 1/e of the best choice.

    Notes
    -----
    Over several tasks each has its own graph, and the best row of all is taken each time. Distances
    are Euclidean in the inputs as they come, so features belong on comparable scales; the kernel is
    not used. Ties go to the lowest row. The score of a pick (`active_gain_`) is its remaining
    degree, or the coverage it adds, where a kept row covers itself fully. Where all rows are kept
    there is nothing to choose: they come in their own order, without scores (NaN).
    After the neighbour search the time is near-linear in the number of edges.

    References
    ----------
    Zhu & Sun 2013, section 3.

    Examples
    --------
    >>> import numpy as np
    >>> from gleangp import GraphSelector, SparseGPRegressor
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> model = SparseGPRegressor(selector=GraphSelector(), n_active=15, posterior="active")
    >>> model = model.fit(X, np.sin(X[:, 0]))
    >>> round(model.selection_objective_, 2)
    0.29
    """

    model_free = True  # the choice depends on neither kernel nor targets

    def __init__(self, n_neighbors=10, scale=1.0, objective="degree"):
        self.n_neighbors = n_neighbors
        self.scale = scale
        self.objective = objective

    def select(self, kernel, blocks, n_active, *, rng, n_jobs=None):
        """The greedy choice; `kernel` and `rng` are not used."""
        if n_active >= sum(len(b) for b in blocks):
            return _all_in_order([len(b) for b in blocks])
        runs = self.start_runs(kernel, blocks, rng, n_jobs=n_jobs)
        return replace(merged(runs, blocks, n_active), objective=self.achieved(runs))

    def start_runs(self, kernel, blocks, rng, n_jobs=None):
        """One run per block, nothing taken yet."""
        return [
            GraphRun(self._graph(block.X, _where(task, len(blocks)), n_jobs), self.objective)
            for task, block in enumerate(blocks)
        ]

    def achieved(self, runs) -> float:
        """Eq. 10 for all picks of these runs together."""
        return mean_connectivity([run.W for run in runs], [run.picks for run in runs])

    def connectivity(self, X, kept) -> float:
        """Mean over the rows left out of their strongest link to a kept one (Zhu & Sun 2013, eq. 10).

        Parameters
        ----------
        X : array-like of shape (n, p)
            All rows of one task.
        kept : array-like of shape (d,)
            The rows that are kept.

        Returns
        -------
        float
            Between 0 and 1.

        Examples
        --------
        >>> from gleangp import GraphSelector
        >>> GraphSelector(n_neighbors=1).connectivity([[0.0], [0.0], [5.0], [5.0]], [0, 2])
        1.0
        """
        X = np.asarray(X, dtype=np.float64)
        return connectivity(self._graph(X, "", None), np.asarray(kept, dtype=np.intp))

    def _graph(self, X: FloatArray, where: str, n_jobs: int | None) -> csr_array:
        try:
            return exponential_graph(X, self.n_neighbors, self.scale, n_jobs=n_jobs)
        except GraphError as error:
            raise GraphError(f"GraphSelector{where}: {error}") from None


class GraphRun(Run):
    """A greedy choice on one graph; only the scores that a pick changes are computed again.

    The weights W (n, n) are symmetric, in [0, 1], with zero diagonal. Entries of a row are stored in
    ascending order of weight: rows with equal weights then have equal sums to the last bit, and stay ties.
    """

    def __init__(self, W: csr_array, objective: str = "degree"):
        if objective not in _OBJECTIVES:
            raise ValueError(f"objective={objective!r} is not known; use 'degree' or 'coverage'.")
        super().__init__(W.shape[0])
        self.W = _ascending(W)
        self.objective = _OBJECTIVES[objective](len(self))
        self._worth = self.objective.scores(self.W, np.arange(len(self)))

    def worth(self) -> FloatArray:
        """Remaining degree, or the coverage that the row adds."""
        return self._worth

    def include(self, row: int) -> None:
        """Take the row out of the graph, or have it cover its neighbours."""
        edges = slice(*self.W.indptr[row : row + 2])
        linked = self.W.indices[edges]
        beyond = self.W[linked].indices if self.objective.take(row, linked, self.W.data[edges]) else linked
        affected = np.unique(np.concatenate([linked, beyond, [row]]))
        self._worth[affected] = self.objective.scores(self.W[affected], affected)


class Degree:
    """Sum of the weights to rows not yet taken: d(x) of Zhu & Sun 2013, eq. 13."""

    def __init__(self, n_rows: int):
        self.left = np.ones(n_rows)

    def scores(self, W: csr_array, rows: IntArray) -> FloatArray:
        """Of some rows, whose edges are W (k, n)."""
        return W @ self.left

    def take(self, row: int, linked: IntArray, weight: FloatArray) -> bool:
        """Remove a row with its edges; says whether neighbours of its neighbours are affected too."""
        self.left[row] = 0.0
        return False


class Coverage:
    """Rise of sum_i max_{j kept} W_ij, a kept row covering itself with W_ii = 1.

    That sum is (m - t) times Zhu & Sun 2013, eq. 10, plus t, so its greedy is the plain greedy on
    eq. 10; with the diagonal it is monotone submodular.
    """

    def __init__(self, n_rows: int):
        self.best = np.zeros(n_rows)  # strongest link of every row to a kept one

    def scores(self, W: csr_array, rows: IntArray) -> FloatArray:
        """Gain of some rows, whose edges are W (k, n)."""
        rise = np.maximum(W.data - self.best[W.indices], 0.0)
        start = np.repeat(np.arange(len(rows)), np.diff(W.indptr))
        return np.bincount(start, rise, minlength=len(rows)) + (1.0 - self.best[rows])

    def take(self, row: int, linked: IntArray, weight: FloatArray) -> bool:
        """Keep a row: its neighbours are linked to it from now on, which changes the gains of theirs."""
        self.best[linked] = np.maximum(self.best[linked], weight)
        self.best[row] = 1.0
        return True


_OBJECTIVES: dict[str, Any] = {"degree": Degree, "coverage": Coverage}


def _all_in_order(sizes: list[int]) -> Selection:
    """All rows of all tasks, as they come and without scores."""
    order = np.repeat(np.arange(len(sizes)), sizes)
    active = tuple(np.arange(n, dtype=np.intp) for n in sizes)
    return Selection(order, active, np.full(len(order), np.nan), objective=1.0)


def mean_connectivity(graphs: list[csr_array], active: list[IntArray]) -> float:
    """Eq. 10 over the rows left out of all tasks together; 1 where none is left out."""
    left_out = np.array([W.shape[0] - len(rows) for W, rows in zip(graphs, active, strict=True)])
    if not left_out.any():
        return 1.0
    values = [connectivity(W, rows) for W, rows in zip(graphs, active, strict=True)]
    return float(np.average(values, weights=left_out))


def _ascending(W: csr_array) -> csr_array:
    start = np.repeat(np.arange(W.shape[0]), np.diff(W.indptr))
    order = np.lexsort((W.data, start))
    return csr_array((W.data[order], W.indices[order], W.indptr), shape=W.shape)


def _where(task: int, n_tasks: int) -> str:
    return f", task number {task} (from 0)" if n_tasks > 1 else ""
