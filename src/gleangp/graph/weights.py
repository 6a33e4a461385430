"""Neighbour graphs over rows (n, p): which are close, and how close.

Graphs are symmetric (n, n), with a zero diagonal and weights in (0, 1]. Distances are Euclidean, so features
should be on comparable scales.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from gleangp._typing import FloatArray, IntArray
from gleangp.exceptions import GraphError
from gleangp.graph.neighbours import mean_nearest_distance, nearest_neighbours, union_graph

# exp(-d) underflows at d = 745, and an edge of weight zero would vanish from a sparse matrix.
_FARTHEST = 700.0
# Repeated rows have neighbours at distance zero; their scale is this share of the mean one.
_LEAST_SCALE = 1e-6


def exponential_graph(
    X: FloatArray, n_neighbors: int = 10, scale: float = 1.0, *, n_jobs: int | None = None
) -> csr_array:
    """Union of the k-nearest-neighbour edges, weighted exp(-distance / (scale * m_x)).

    Zhu & Sun 2013, eq. 14: m_x is the mean distance of a row to the nearest one that is not its duplicate,
    and `scale` is t of the paper. Their norm is not squared, so the weights fall off like an exponential and
    not like a Gaussian.

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
    return union_graph(neighbours, np.exp(-np.minimum(neighbours.distance / reach, _FARTHEST)))


def local_scaling_graph(X: FloatArray, n_neighbors: int, *, n_jobs: int | None = None) -> csr_array:
    """Union of the k-nearest-neighbour edges, weighted exp(-d_ij^2 / (s_i s_j)) (Zelnik-Manor & Perona 2005).

    s_i is the distance of the last neighbour of row i, so that weights adapt to the density of the rows. With
    fewer than k + 1 rows all are neighbours. Rows that repeat have weight 1.

    Examples
    --------
    >>> local_scaling_graph(np.array([[0.0], [1.0], [3.0]]), 1).toarray().round(3)
    array([[0.   , 0.368, 0.   ],
           [0.368, 0.   , 0.135],
           [0.   , 0.135, 0.   ]])
    """
    n_neighbors = min(n_neighbors, len(X) - 1)
    if n_neighbors < 1:
        return csr_array((len(X), len(X)))
    neighbours = nearest_neighbours(X, n_neighbors, n_jobs=n_jobs)
    distance, scale = neighbours.distance, neighbours.distance[:, -1]
    positive = scale[scale > 0.0]
    scale = np.maximum(scale, _LEAST_SCALE * positive.mean() if len(positive) else 1.0)
    # Zhang & Yeung 2009, section 3. Ratios first: the product of two floors could underflow.
    exponent = (distance / scale[:, None]) * (distance / scale[neighbours.row])
    return union_graph(neighbours, np.exp(-np.minimum(exponent, _FARTHEST)))


def connectivity(W: csr_array, kept: IntArray) -> float:
    """Mean over the rows left out of their strongest link to a kept one (Zhu & Sun 2013, eq. 10).

    W (n, n) are the weights; no link counts as zero. With nothing left out the value is 1.

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
