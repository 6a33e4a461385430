"""How alike two tasks are, so that points chosen in one may guide the choice in another.

Zhu & Sun 2013, section 4, describe a task by the mean label of eight crucial points, found as
principal variables (Cumming & Wooff 2007). Two measures are here; a third is any object with the method
`distances(kernel, blocks, n_points)` that gives an (M, M) matrix for M tasks.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist, pdist, squareform
from sklearn.base import BaseEstimator

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.inference.posterior import fit_on_basis

_POOL_ROWS = 500  # crucial points are sought among so many rows of all tasks
_LABELS_PER_POINT = 3  # a task's label at a point that is not among its rows: the mean of so many near it


class LabelRelevance(BaseEstimator):
    """Tasks are alike when they have like labels in like places.

    Parameters
    ----------
    descriptor : {"vector", "mean"}, default="vector"
        "vector": the labels of each task at the same crucial points, found among the rows of all
        tasks. "mean": one number per task, the mean label of its own crucial points, as in Zhu & Sun
        2013; with rare classes most tasks then have the same descriptor.

    Notes
    -----
    A task's label at a crucial point is the mean of its three rows nearest to it, or of its one nearest
    where all tasks have a row right there (tasks that share their inputs). Labels must mean the same
    in all tasks; where they do not, use `PosteriorRelevance`.

    Examples
    --------
    >>> from gleangp import GraphSelector, LabelRelevance, TaskRelevance
    >>> TaskRelevance(GraphSelector(), relevance=LabelRelevance("mean"))
    TaskRelevance(relevance=LabelRelevance(descriptor='mean'),
                  selector=GraphSelector())
    """

    model_free = True

    def __init__(self, descriptor="vector"):
        self.descriptor = descriptor

    def distances(self, kernel, blocks, n_points):
        """Euclidean distances between the descriptors, (M, M); the kernel is not used."""
        if self.descriptor not in ("vector", "mean"):
            raise ValueError(f"descriptor={self.descriptor!r} is not known; use 'vector' or 'mean'.")
        if self.descriptor == "mean":
            means = [b.y[principal_rows(b.X, n_points)].mean() for b in blocks]
            return cdist(np.array(means)[:, None], np.array(means)[:, None])
        points = crucial_points(blocks, n_points)
        near = [cdist(points, b.X) for b in blocks]
        shared = np.all([d.min(axis=1) == 0.0 for d in near], axis=0)
        descriptors = np.array([_labels_at(d, b.y, shared) for d, b in zip(near, blocks, strict=True)])
        return cdist(descriptors, descriptors)


class PosteriorRelevance(BaseEstimator):
    """Tasks are alike when their functions rise and fall in the same places.

    Each task's posterior, under the present kernel and noise, is formed on the same crucial points;
    the distance between two tasks is sqrt(1 - r^2) with r the correlation of their posterior means
    there. Units, offset and sign of the targets cancel, so labels need not be comparable across
    tasks: tasks may even have different noise models. A constant posterior mean is
    at distance 1 from all others.

    Notes
    -----
    Costs O(n m^2) for m crucial points, which are the basis of every posterior.

    Examples
    --------
    >>> from gleangp import PosteriorRelevance, TaskRelevance
    >>> TaskRelevance("entropy", relevance=PosteriorRelevance()).relevance
    PosteriorRelevance()
    """

    model_free = False

    def distances(self, kernel, blocks, n_points):
        """sqrt(1 - r^2) between the posterior means at the crucial points, (M, M)."""
        points = crucial_points(blocks, n_points)
        posteriors = [fit_on_basis(kernel, b, points) for b in blocks]
        means = [posterior.predict(kernel, points, with_var=False)[0] for posterior in posteriors]
        centred = np.array(means) - np.mean(means, axis=1, keepdims=True)
        length = np.linalg.norm(centred, axis=1)
        varies = length > 1e-12 * np.linalg.norm(means, axis=1)
        direction = np.divide(centred, length[:, None], out=np.zeros_like(centred), where=varies[:, None])
        squared = np.minimum((direction @ direction.T) ** 2, 1.0)
        distances = np.sqrt(1.0 - squared)
        np.fill_diagonal(distances, 0.0)
        return distances


RELEVANCES = {"labels": LabelRelevance, "posterior": PosteriorRelevance}


def crucial_points(blocks: list[Block], n_points: int) -> FloatArray:
    """Up to `n_points` inputs that stand for the rows of all tasks, (m, p).

    They are sought among at most 500 rows, evenly spaced within the tasks.
    """
    share = max(1, _POOL_ROWS // len(blocks))
    pool = np.vstack([b.X[:: -(-len(b) // share)] for b in blocks])
    return pool[principal_rows(pool, n_points)]


def principal_rows(X: FloatArray, count: int) -> IntArray:
    """Principal variables of a Gaussian kernel matrix over the rows, as wide as their median distance."""
    distance = pdist(X)
    positive = distance[distance > 0.0]
    width = np.median(positive) if len(positive) else 1.0
    C = squareform(np.exp(-0.5 * (distance / width) ** 2))
    C.flat[:: len(C) + 1] = 1.0
    return principal_variables(C, count)


def principal_variables(C: FloatArray, count: int) -> IntArray:
    """The variables that explain most of all others, one after the other (Cumming & Wooff 2007).

    C (n, n) is their covariance matrix. There are fewer than `count` where fewer explain everything.

    Examples
    --------
    >>> principal_variables(np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 0.5]]), 2).tolist()
    [0, 2]
    """
    C = np.array(C, dtype=np.float64)
    floor = 1e-10 * np.diagonal(C)
    chosen: list[int] = []
    while len(chosen) < min(count, len(C)):
        var = np.diagonal(C)
        left = var > floor
        if not left.any():
            break
        # Variance of all variables that variable j explains, given those chosen before.
        explained = np.divide(np.einsum("ij,ij->j", C, C), var, out=np.zeros(len(C)), where=left)
        j = int(np.argmax(explained))
        chosen.append(j)
        column = C[:, j] / np.sqrt(var[j])
        C -= np.outer(column, column)
    return np.array(chosen, dtype=np.intp)


def _labels_at(distance: FloatArray, y: FloatArray, shared: FloatArray) -> FloatArray:
    """A task's label at each point; `distance` (m, n) is that of the points to its rows."""
    nearest = np.argsort(distance, axis=1, kind="stable")[:, :_LABELS_PER_POINT]
    return np.where(shared, y[nearest[:, 0]], y[nearest].mean(axis=1))
