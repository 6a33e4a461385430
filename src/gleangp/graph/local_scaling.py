"""Neighbour graphs whose weights adapt to the density of the rows (Zelnik-Manor & Perona 2005)."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from gleangp._typing import FloatArray
from gleangp.graph.neighbours import nearest_neighbours, union_graph

# Repeated rows have neighbours at distance zero; their scale is this share of the mean one.
_LEAST_SCALE = 1e-6
# exp(-d) underflows at d = 745, and an edge of weight zero would vanish from a sparse matrix.
_FARTHEST = 700.0


def local_scaling_graph(X: FloatArray, n_neighbors: int, *, n_jobs: int | None = None) -> csr_array:
    """exp(-d_ij^2 / (s_i s_j)) between neighbours, s_i the distance of row i's last neighbour.

    Parameters
    ----------
    X : ndarray of shape (n, p)
        The rows. Distances are Euclidean: features should be on comparable scales.
    n_neighbors : int
        K of the graph; with fewer than K + 1 rows all are neighbours.
    n_jobs : int, default=None
        Threads of the search.

    Returns
    -------
    scipy.sparse.csr_array of shape (n, n)
        Symmetric, zero diagonal, weights in (0, 1]; rows that repeat are joined with weight 1.

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
