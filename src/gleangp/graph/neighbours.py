"""Nearest neighbours of every row, and the undirected graph they make.

Distances are Euclidean, in the units of the inputs. They are taken again by differences of the rows:
scikit-learn's brute-force search takes them by matrix products, where the distance of a row to its
duplicate is not quite zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array, csr_array
from sklearn.neighbors import NearestNeighbors

from gleangp._typing import FloatArray, IntArray
from gleangp.exceptions import GraphError

_CHUNK_ENTRIES = 2**22  # numbers held at once while distances are taken again


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """The k nearest other rows of each row, nearest first; equally near ones by row number."""

    row: IntArray  # (n, k)
    distance: FloatArray  # (n, k)

    def __len__(self) -> int:
        return len(self.row)


def nearest_neighbours(X: FloatArray, n_neighbors: int, *, n_jobs: int | None = None) -> Neighbours:
    """The `n_neighbors` nearest other rows of every row of X (n, p), at least 1 and at most n - 1.

    Duplicates are neighbours at distance zero. `n_jobs` are threads of the search.

    Examples
    --------
    >>> nearest_neighbours(np.array([[0.0], [1.0], [3.0]]), 1).row.ravel().tolist()
    [1, 0, 1]
    """
    if len(X) <= n_neighbors:
        raise GraphError(
            f"{len(X)} rows cannot have n_neighbors={n_neighbors} neighbours each. "
            + ("One row makes no graph." if len(X) < 2 else f"Set n_neighbors to at most {len(X) - 1}.")
        )
    if n_neighbors < 1:
        raise GraphError(f"n_neighbors={n_neighbors}; every row needs at least one neighbour.")
    exponent = np.frexp(np.max(np.abs(X)))[1]
    X = np.ldexp(X, -exponent)  # so that squares of very small numbers are not zero
    search = NearestNeighbors(n_neighbors=n_neighbors, n_jobs=n_jobs).fit(X)
    row = search.kneighbors(return_distance=False)
    distance = np.ldexp(_distances(X, row), exponent)
    order = np.lexsort((row, distance), axis=1)
    return Neighbours(
        np.take_along_axis(row, order, axis=1).astype(np.intp), np.take_along_axis(distance, order, axis=1)
    )


def mean_nearest_distance(X: FloatArray, neighbours: Neighbours) -> float:
    """Mean over rows of the distance to the nearest row that is not a duplicate.

    This is m_x of Zhu & Sun 2013, eq. 14, with duplicates passed over: they would make it zero.
    A row whose neighbours are all duplicates of it is looked up among the distinct rows.
    """
    nearest = np.where(neighbours.distance > 0.0, neighbours.distance, np.inf).min(axis=1)
    if not np.isfinite(nearest).all():
        distinct, copy_of = np.unique(X, axis=0, return_inverse=True)
        nearest = np.zeros(len(X))
        if len(distinct) > 1:
            nearest = nearest_neighbours(distinct, 1).distance[copy_of.ravel(), 0]
        if not nearest.any():
            raise GraphError(
                f"all {len(X)} rows are the same point, so no distance sets the scale of a graph. "
                "Leave the rows out, or choose points with another selector."
            )
    return float(nearest.mean())


def union_graph(neighbours: Neighbours, weight: FloatArray) -> csr_array:
    """Symmetric graph (n, n) with an edge where either row is among the other's neighbours.

    `weight` (n, k) is that of the edge to each neighbour; where both ends name the edge, the larger counts.
    """
    n, k = neighbours.row.shape
    start = np.repeat(np.arange(n), k)
    directed = coo_array((weight.ravel(), (start, neighbours.row.ravel())), shape=(n, n)).tocsr()
    return csr_array(directed.maximum(directed.T))


def _distances(X: FloatArray, row: IntArray) -> FloatArray:
    distance = np.empty(row.shape)
    step = max(1, _CHUNK_ENTRIES // (row.shape[1] * max(1, X.shape[1])))
    for start in range(0, len(X), step):
        part = slice(start, start + step)
        difference = X[row[part]] - X[part, None, :]
        distance[part] = np.sqrt(np.einsum("nkp,nkp->nk", difference, difference))
    return distance
