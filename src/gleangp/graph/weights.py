"""The graph of manifold-preserving reduction: which rows are close, and how close.

Zhu & Sun 2013, section 3 and eq. 14. Their norm is not squared, so the weights fall off like an
exponential and not like a Gaussian.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from gleangp._typing import FloatArray, IntArray
from gleangp.exceptions import GraphError
from gleangp.graph.neighbours import mean_nearest_distance, nearest_neighbours, union_graph

# exp(-d) underflows at d = 745, and an edge of weight zero would vanish from a sparse matrix.
_FARTHEST = 700.0


def exponential_graph(
    X: FloatArray, n_neighbors: int = 10, scale: float = 1.0, *, n_jobs: int | None = None
) -> csr_array:
    """Union of the k-nearest-neighbour edges, weighted exp(-distance / (scale * m_x)).

    Parameters
    ----------
    X : ndarray of shape (n, p)
        Rows. Distances are Euclidean: features should be on comparable scales.
    n_neighbors : int, default=10
        Neighbours of each row, at most n - 1.
    scale : float, default=1.0
        Reach of the weights (t of the paper), in units of m_x, the mean distance of a row to the
        nearest one that is not its duplicate.
    n_jobs : int, optional
        Threads of the search for neighbours.

    Returns
    -------
    csr_array of shape (n, n)
        Symmetric, zero diagonal, weights in (0, 1]; duplicates have weight 1.

    Examples
    --------
    >>> W = exponential_graph(np.array([[0.0], [1.0], [2.0]]), n_neighbors=1)
    >>> W.toarray().round(3).tolist()
    [[0.0, 0.368, 0.0], [0.368, 0.0, 0.368], [0.0, 0.368, 0.0]]
    """
    if not scale > 0.0:
        raise GraphError(f"scale={scale}; the reach of the weights must be positive.")
    neighbours = nearest_neighbours(X, n_neighbors, n_jobs=n_jobs)
    reach = scale * mean_nearest_distance(X, neighbours)
    # Zhu & Sun 2013, eq. 14
    return union_graph(neighbours, np.exp(-np.minimum(neighbours.distance / reach, _FARTHEST)))


def connectivity(W: csr_array, kept: IntArray) -> float:
    """Mean over the rows left out of their strongest link to a kept one (Zhu & Sun 2013, eq. 10).

    Parameters
    ----------
    W : csr_array of shape (n, n)
        Weights of the graph; no link counts as zero.
    kept : ndarray of shape (d,)
        Rows kept; d may be anything from 0 to n. With nothing left out the value is 1.

    Returns
    -------
    float

    Examples
    --------
    >>> W = csr_array(np.array([[0.0, 0.5, 0.0], [0.5, 0.0, 0.2], [0.0, 0.2, 0.0]]))
    >>> connectivity(W, np.array([1]))
    0.35
    """
    out = np.setdiff1d(np.arange(W.shape[0]), kept)
    if len(out) == 0:
        return 1.0
    if len(kept) == 0:
        return 0.0
    return float(W[out][:, np.asarray(kept)].max(axis=1).toarray().mean())
