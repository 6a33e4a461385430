"""Points that stand for their neighbourhood: manifold-preserving graph reduction, and coverage.

Zhu & Sun 2013, section 3. Their algorithm takes the vertex of largest degree, removes it with its
edges, and goes on. It is meant to make eq. 10 large (how strongly the rows left out are linked to
those kept) but is weak at it, so the plain greedy on eq. 10 is here as well. Both scores of a row can
only fall as others are taken, which makes the lazy queue exact: a row is looked at again only when its
old score is the best on offer.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator

from gleangp._typing import FloatArray, IntArray
from gleangp.exceptions import GraphError
from gleangp.graph.weights import connectivity, exponential_graph
from gleangp.selection.base import Selection, best_row, keep_rows_in_order
from gleangp.selection.merge import merge_runs


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
            return keep_rows_in_order([len(b) for b in blocks])
        runs = self.start_runs(kernel, blocks, rng, n_jobs=n_jobs)
        runs, order = merge_runs(runs, n_active)
        counts = np.bincount(order, minlength=len(runs))
        active, gain = [], np.empty(len(order))
        for task, (run, count) in enumerate(zip(runs, counts, strict=True)):
            active.append(np.array(run.picks[:count], dtype=np.intp))
            gain[order == task] = run.keys[:count]
        objective = mean_connectivity([run.W for run in runs], active)
        return Selection(order, tuple(active), gain, objective=objective)

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


class GraphRun:
    """A greedy choice on one graph that can be taken further.

    Attributes
    ----------
    W : csr_array of shape (n, n)
        Symmetric weights in [0, 1], zero diagonal. Entries of a row are stored in ascending order of
        weight: rows with equal weights then have equal sums to the last bit, and ties are ties.
    picks : list of int
        Rows in order of inclusion.
    keys : list of float
        Score of each when it was taken.
    """

    def __init__(self, W: csr_array, objective: str = "degree"):
        if objective not in _OBJECTIVES:
            raise ValueError(f"objective={objective!r} is not known; use 'degree' or 'coverage'.")
        self.W = _ascending(W)
        self.objective = _OBJECTIVES[objective](self.W)
        self.is_active = np.zeros(W.shape[0], dtype=bool)
        self.picks: list[int] = []
        self.keys: list[float] = []
        self._queue: list[tuple[float, int]] | None = None

    def __len__(self) -> int:
        return len(self.is_active)

    @property
    def head(self) -> tuple[float, int]:
        """Score and row of the next pick; the score is -inf when no row is left."""
        queue = self._queue
        if queue is None:
            queue = self._queue = [(-s, v) for v, s in enumerate(self.scores().tolist())]
            heapq.heapify(queue)
        while queue:
            old, v = queue[0]
            if self.is_active[v]:
                heapq.heappop(queue)
            elif (score := self.objective.score(v)) == -old:
                return score, v
            else:
                heapq.heapreplace(queue, (-score, v))
        return -np.inf, -1

    def extend(self, count: int) -> GraphRun:
        """Make `count` more picks, or as many as there are rows."""
        for _ in range(min(count, len(self) - len(self.picks))):
            score, row = self.head
            self._include(row, score)
        return self

    def scores(self) -> FloatArray:
        """Score of every row, -inf for those taken."""
        return np.where(self.is_active, -np.inf, self.objective.scores())

    def choose(self, scores: FloatArray) -> int:
        """The best row; the lowest of several."""
        return best_row(scores)

    def force(self, row: int) -> None:
        """Include a row of the caller's choice."""
        self._include(row, self.objective.score(row))

    def task_sites(self):
        """None: nothing is filtered."""
        return None

    def _include(self, row: int, score: float) -> None:
        self.picks.append(int(row))
        self.keys.append(score)
        self.is_active[row] = True
        self.objective.take(row)


class Degree:
    """Sum of the weights to rows not yet taken: d(x) of Zhu & Sun 2013, eq. 13."""

    def __init__(self, W: csr_array):
        self.W = W
        self.left = np.ones(W.shape[0])

    def scores(self) -> FloatArray:
        """Degree of every row among those left."""
        return self.W @ self.left

    def score(self, v: int) -> float:
        """The same of one row, added up in the same order."""
        edges = slice(*self.W.indptr[v : v + 2])
        return _running_sum(self.W.data[edges] * self.left[self.W.indices[edges]])

    def take(self, v: int) -> None:
        """Remove a row with its edges."""
        self.left[v] = 0.0


class Coverage:
    """Rise of sum_i max_{j kept} W_ij, a kept row covering itself with W_ii = 1.

    That sum is (m - t) times Zhu & Sun 2013, eq. 10, plus t, so its greedy is the plain greedy on
    eq. 10; with the diagonal it is monotone submodular.
    """

    def __init__(self, W: csr_array):
        self.W = W
        self.best = np.zeros(W.shape[0])  # strongest link of every row to a kept one
        self._start = np.repeat(np.arange(W.shape[0]), np.diff(W.indptr))

    def scores(self) -> FloatArray:
        """Gain of every row."""
        rise = np.maximum(self.W.data - self.best[self.W.indices], 0.0)
        return np.bincount(self._start, rise, minlength=len(self.best)) + (1.0 - self.best)

    def score(self, v: int) -> float:
        """The same of one row, added up in the same order."""
        edges = slice(*self.W.indptr[v : v + 2])
        rise = np.maximum(self.W.data[edges] - self.best[self.W.indices[edges]], 0.0)
        return _running_sum(rise) + (1.0 - float(self.best[v]))

    def take(self, v: int) -> None:
        """Keep a row: its neighbours are linked to it from now on."""
        edges = slice(*self.W.indptr[v : v + 2])
        linked = self.W.indices[edges]
        self.best[linked] = np.maximum(self.best[linked], self.W.data[edges])
        self.best[v] = 1.0


_OBJECTIVES: dict[str, Any] = {"degree": Degree, "coverage": Coverage}


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


def _running_sum(terms: FloatArray) -> float:
    # Left to right like the sparse product and bincount; np.sum adds in another order.
    return float(np.add.accumulate(terms)[-1]) if len(terms) else 0.0


def _where(task: int, n_tasks: int) -> str:
    return f", task number {task} (from 0)" if n_tasks > 1 else ""
