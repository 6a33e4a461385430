"""The joint covariance of new rows under a `LocalPosterior`.

In a model of several blocks, new rows of a task have the union of their nearest rows as neighbours, in parts.
Residuals of different parts and tasks are independent, and their means move with the basis variables.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.data.neighbourhoods import neighbourhoods
from gleangp.inference.prior import covariance, white_variance
from gleangp.numerics.linalg import CHUNK_ENTRIES, inverse_factors

if TYPE_CHECKING:
    from gleangp.inference.local import LocalPosterior


def predict_cov(q: LocalPosterior, X: FloatArray, codes: IntArray) -> tuple[FloatArray, FloatArray]:
    """Latent mean (n,) and covariance (n, n) of new rows.

    A task that was added later has informed no other: its rows and those of others are correlated as far as
    the others' posterior says.
    """
    mean, parts = np.empty(len(X)), []
    for task, rows, near in _parts(q, X, codes):
        solved = q._solve(near[None], task, cache=q.together)
        seen = q._seen(solved, X[rows][None], codes[rows] if q.together else task)
        T, F, g, mean[rows] = (part[0] for part in seen)
        parts.append((task, rows, T, F, g))
    cov = (_cov_of_one_block if q.together else _cov_of_blocks)(q, X, codes, parts)
    cov.flat[:: len(X) + 1] += white_variance(q.terms, X, codes)
    root = np.sqrt(q.factor(X, codes))
    return mean, cov * np.outer(root, root)


def _parts(q: LocalPosterior, X: FloatArray, codes: IntArray) -> Iterator[tuple[int, IntArray, IntArray]]:
    """Tasks, parts of their new rows, and the neighbours of each part.

    A part is halved while its neighbours are too many for one matrix. Rows whose neighbours are few in
    common lie far apart: given these, next to nothing is left that they share.
    """
    for task, rows in q._alike(codes):
        near, stack = q.neighbours(X[rows], task), [np.arange(len(rows))]
        while stack:
            part = stack.pop()
            union = near if near.ndim == 1 else np.unique(near[part])
            if near.ndim == 1 or len(part) == 1 or len(union) ** 2 <= CHUNK_ENTRIES:
                yield task, rows[part], union
            else:
                halves = neighbourhoods(q._scaled(X[rows[part]]), -(-len(part) // 2))
                stack += [part[half] for half in halves]


def _cov_of_one_block(q: LocalPosterior, X: FloatArray, codes: IntArray, parts) -> FloatArray:
    """Posterior covariance (n, n) of new rows in a model of one block, without white noise.

    Let f and f_r be new rows and the later rows of an added task, as the rows learnt from leave them. The
    later rows inform this task alone, whose new rows are f - G (f_r + e - y_r), with noise e and the gain
    G. Hence they covary with those of other tasks as f - G f_r does.
    """
    n, m = q.n_learnt, len(X)
    later = n + np.flatnonzero(np.isin(q.codes[n:], codes))
    at, tasks = np.vstack([X, q.X[later]]), np.append(codes, q.codes[later])
    T = np.empty((n, len(at)))
    for _, rows, seen, _, _ in parts:
        T[:, rows] = seen[:n]
    if len(later):
        base = q._solve(np.arange(n)[None], 0, cache=True)
        T[:, m:] = q._seen(base, at[None, m:], tasks[m:])[0][0]
    cov = covariance(q.terms, at, tasks, at, tasks) - T.T @ T
    if not len(later):
        return cov
    cov.flat[m * (len(at) + 1) :: len(at) + 1] += white_variance(q.terms, at[m:], tasks[m:])
    moves, of_noise = np.eye(m, len(at)), np.zeros((m, len(later)))
    for task in np.unique(tasks[m:]):
        rows, r = np.flatnonzero(codes == task), m + np.flatnonzero(tasks[m:] == task)
        root = np.sqrt(q.precision[later[r - m]])
        inverse = inverse_factors((cov[np.ix_(r, r)] * np.outer(root, root))[None])[0][0]
        of_root = cov[np.ix_(rows, r)] * root @ inverse.T @ inverse  # G / root
        moves[np.ix_(rows, r)] = -of_root * root
        of_noise[np.ix_(rows, r - m)] = of_root
    return moves @ cov @ moves.T + of_noise @ of_noise.T


def _cov_of_blocks(q: LocalPosterior, X: FloatArray, codes: IntArray, parts) -> FloatArray:
    """The same in a model of several blocks."""
    moves, D = np.empty((len(X), len(q.common.mean))), len(q.common.mean)
    for task, rows, _, _, g in parts:
        moves[rows] = g[:, :D] - g[:, D:] @ q.group(task).back if task in q.own else g
    cov = moves @ q._common_knowledge[1] @ moves.T
    for task, of_task in groupby(parts, itemgetter(0)):
        several = list(of_task)
        rows, S = np.concatenate([part[1] for part in several]), q.knowledge(task)[1]
        J = np.vstack([g for *_, g in several])
        cov[np.ix_(rows, rows)] = J @ S @ J.T
        for _, rows, T, F, g in several:
            at, of_rows = X[rows], codes[rows]
            block = covariance(q.terms, at, of_rows, at, of_rows) - F @ F.T - T.T @ T
            if not q._informed(task):  # T has what its rows leave of the variables too
                block += F @ S @ F.T - g @ S @ g.T
            cov[np.ix_(rows, rows)] += block
    return cov
