"""Graphs over rows: which are close, and how close. Laplacians: f^T L f is how rough a function is on them.

Distances are Euclidean, in the units of the inputs: features should be on comparable scales. They are taken
again by differences of the rows: scikit-learn's brute-force search takes them by matrix products, where the
distance of a row to its duplicate is not quite zero. Graphs are symmetric (n, n), with a zero diagonal and
weights in (0, 1].
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import coo_array, csr_array
from sklearn.neighbors import NearestNeighbors

from gleangp._typing import FloatArray, IntArray
from gleangp.exceptions import GraphError
from gleangp.numerics.linalg import row_chunks

# exp(-d) underflows at d = 745, and an edge of weight zero would vanish from a sparse matrix.
_FARTHEST = 700.0
# Repeated rows have neighbours at distance zero; their scale is this share of the mean one.
_LEAST_SCALE = 1e-6
# Added to L_EE: a part of the graph that holds no kept row would make it singular.
_RIDGE = 1e-9


def nearest_neighbours(
    X: FloatArray, n_neighbors: int, *, n_jobs: int | None = None
) -> tuple[IntArray, FloatArray]:
    """The nearest other rows of every row of X (n, p), and their distances; (n, k) each, nearest first.

    Equally near ones come by row number, duplicates are at distance zero. `n_jobs` are threads.
    """
    if len(X) <= n_neighbors:
        remedy = f"Set n_neighbors to at most {len(X) - 1}."
        if len(X) < 2:
            remedy = "One row makes no graph: leave it out, or choose points with another selector."
        raise GraphError(f"{len(X)} rows cannot have n_neighbors={n_neighbors} neighbours each. {remedy}")
    if n_neighbors < 1:
        raise GraphError(f"n_neighbors={n_neighbors}; every row needs at least one neighbour.")
    exponent = np.frexp(np.max(np.abs(X)))[1]
    X = np.ldexp(X, -exponent)  # so that squares of very small numbers are not zero
    search = NearestNeighbors(n_neighbors=n_neighbors, n_jobs=n_jobs).fit(X)
    row = search.kneighbors(return_distance=False)
    distance = np.empty(row.shape)
    for part in row_chunks(len(X), row.shape[1] * X.shape[1]):
        difference = X[row[part]] - X[part, None, :]
        distance[part] = np.sqrt(np.einsum("nkp,nkp->nk", difference, difference))
    distance = np.ldexp(distance, exponent)
    order = np.lexsort((row, distance), axis=1)
    return np.take_along_axis(row, order, axis=1), np.take_along_axis(distance, order, axis=1)


def mean_nearest_distance(X: FloatArray, distance: FloatArray) -> float:
    """m_x of Zhu & Sun 2013, eq. 14: the mean over rows of the distance to the nearest other one.

    Duplicates, which would make it zero, are passed over. `distance` (n, k) is that of `nearest_neighbours`;
    a row whose neighbours are all duplicates of it is looked up among the distinct rows.
    """
    nearest = np.where(distance > 0.0, distance, np.inf).min(axis=1)
    if not np.isfinite(nearest).all():
        distinct, copy_of = np.unique(X, axis=0, return_inverse=True)
        nearest = np.zeros(len(X))
        if len(distinct) > 1:
            nearest = nearest_neighbours(distinct, 1)[1][copy_of.ravel(), 0]
        if not nearest.any():
            raise GraphError(
                f"all {len(X)} rows are the same point, so no distance sets the scale of a graph. "
                "Leave the rows out, or choose points with another selector."
            )
    return float(nearest.mean())


def _union_graph(row: IntArray, decay: FloatArray) -> csr_array:
    """Symmetric graph (n, n) with an edge where either row is among the other's neighbours `row` (n, k).

    Weights are exp(-decay), of both ends the larger.
    """
    n, k = row.shape
    weight = np.exp(-np.minimum(decay, _FARTHEST))
    directed = coo_array((weight.ravel(), (np.repeat(np.arange(n), k), row.ravel())), shape=(n, n)).tocsr()
    return csr_array(directed.maximum(directed.T))


def exponential_graph(
    X: FloatArray, n_neighbors: int = 10, scale: float = 1.0, *, n_jobs: int | None = None
) -> csr_array:
    """Union of the k-nearest-neighbour edges, weighted exp(-distance / (scale * m_x)).

    Zhu & Sun 2013, eq. 14, where `scale` is t. Their norm is not squared, so the weights fall off like an
    exponential and not like a Gaussian.
    """
    if not scale > 0.0:
        raise GraphError(f"scale={scale}; the reach of the weights must be positive.")
    row, distance = nearest_neighbours(X, n_neighbors, n_jobs=n_jobs)
    return _union_graph(row, distance / (scale * mean_nearest_distance(X, distance)))


def local_scaling_graph(X: FloatArray, n_neighbors: int, *, n_jobs: int | None = None) -> csr_array:
    """Union of the k-nearest-neighbour edges, weighted exp(-d_ij^2 / (s_i s_j)) (Zelnik-Manor & Perona 2005).

    s_i is the distance of the last neighbour of row i, so that weights adapt to the density of the rows. With
    fewer than k + 1 rows all are neighbours. Rows that repeat have weight 1.
    """
    if min(n_neighbors, len(X) - 1) < 1:
        return csr_array((len(X), len(X)))
    row, distance = nearest_neighbours(X, min(n_neighbors, len(X) - 1), n_jobs=n_jobs)
    positive = distance[:, -1][distance[:, -1] > 0.0]
    scale = np.maximum(distance[:, -1], _LEAST_SCALE * positive.mean() if len(positive) else 1.0)
    # Zhang & Yeung 2009, section 3. Ratios first: the product of two floors could underflow.
    return _union_graph(row, (distance / scale[:, None]) * (distance / scale[row]))


def connectivity(W: csr_array, kept: IntArray) -> float:
    """Mean over the rows left out of their strongest link to a kept one (Zhu & Sun 2013, eq. 10).

    W (n, n) are the weights; no link counts as zero. With nothing left out the value is 1.
    """
    out = np.setdiff1d(np.arange(W.shape[0]), kept)
    if len(out) == 0 or len(kept) == 0:
        return float(len(out) == 0)
    return float(W[out][:, np.asarray(kept)].max(axis=1).toarray().mean())


def condense_laplacian(laplacian: csr_array, keep: IntArray) -> FloatArray:
    """Schur complement (d, d) of the Laplacian on the rows `keep` (d,): a large graph on few of its rows.

    Eliminating rows E leaves L_DD - L_DE L_EE^-1 L_ED, and f_D^T (...) f_D is the minimum over f_E of
    f^T L f: the roughness of the smoothest function on the whole graph that takes the values f_D. All rows
    still shape it, but a model with the graph as prior then works with matrices of size |D|.

    O((n - d)^3) once, dense: five thousand rows take seconds. Exact, and cheap, if all rows are kept.
    """
    gone = np.setdiff1d(np.arange(laplacian.shape[0]), keep)
    kept = laplacian[keep]
    condensed = kept[:, keep].toarray()
    if len(gone):
        inside = laplacian[gone][:, gone].toarray()
        inside.flat[:: len(gone) + 1] += _RIDGE
        across = kept[:, gone].toarray()
        condensed -= across @ cho_solve(cho_factor(inside, lower=True, overwrite_a=True), across.T)
    return 0.5 * (condensed + condensed.T)
