"""From the rows of a task to what the hierarchy learns from: graph, landmarks, constraints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from sklearn.cluster import kmeans_plusplus

from gleangp._typing import FloatArray, IntArray
from gleangp.graph.condense import condense_laplacian
from gleangp.graph.laplacian import normalized_laplacian
from gleangp.graph.local_scaling import local_scaling_graph
from gleangp.inference.task_rows import OrderRows, TaskRows


@dataclass(frozen=True, slots=True, eq=False)
class GraphSettings:
    """How unlabelled rows enter."""

    n_neighbors: int | None = 5  # None: they do not
    n_landmarks: int = 500  # unlabelled rows that carry the graph of a task
    n_jobs: int | None = None


def task_rows(
    X: FloatArray,
    y: FloatArray,
    constraints: tuple[csr_array, FloatArray] | None,
    settings: GraphSettings,
    rng: np.random.Generator,
) -> TaskRows:
    """One task, labelled rows first.

    Parameters
    ----------
    X : ndarray of shape (n, p)
        All its rows.
    y : ndarray of shape (n,)
        Standardised targets, NaN where there is none.
    constraints : (csr_array of shape (c, n), ndarray of shape (c,)) or None
        Coefficients over its rows, and margins in standard units.
    settings : GraphSettings
        The graph.
    rng : numpy.random.Generator
        For the choice of landmarks.

    Notes
    -----
    The graph is over all rows. With more unlabelled rows than landmarks, it is condensed
    (`gleangp.graph.condense`) on the labelled rows, the constrained ones and landmarks spread over the
    others, so that the cost of learning is that of the landmarks.
    """
    labelled = ~np.isnan(y)
    constrained = np.zeros(len(X), dtype=bool)
    if constraints is not None:
        constrained[np.unique(constraints[0].indices)] = True
    with_graph = settings.n_neighbors is not None and not labelled.all() and (labelled | constrained).any()
    laplacian = None
    kept = np.flatnonzero(labelled)
    if with_graph:
        kept = np.concatenate([kept, np.flatnonzero(constrained & ~labelled)])
        free = np.flatnonzero(~labelled & ~constrained)
        kept = np.concatenate([kept, _landmarks(X, free, settings.n_landmarks, rng)])
        graph = local_scaling_graph(X, settings.n_neighbors, n_jobs=settings.n_jobs)
        whole = normalized_laplacian(graph)
        laplacian = whole[kept][:, kept] if len(kept) == len(X) else condense_laplacian(whole, kept)
    else:
        kept = np.concatenate([kept, np.flatnonzero(constrained & ~labelled)])
    order = None if constraints is None else _order_rows(constraints, kept)
    return TaskRows(X[kept], y[labelled], laplacian, order)


def _landmarks(X: FloatArray, rows: IntArray, n_landmarks: int, rng: np.random.Generator) -> IntArray:
    if len(rows) <= n_landmarks:
        return rows
    _, chosen = kmeans_plusplus(X[rows], n_landmarks, random_state=int(rng.integers(2**31)))
    return rows[np.sort(np.unique(chosen))]


def _order_rows(constraints: tuple[csr_array, FloatArray], kept: IntArray) -> OrderRows:
    coefficients, margin = constraints
    coefficients = csr_array(coefficients[:, kept])
    norm = np.sqrt(np.asarray(coefficients.multiply(coefficients).sum(axis=1)).ravel())
    return OrderRows(coefficients, margin, norm)
