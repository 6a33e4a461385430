"""Latent positions of new rows without a back-constraint: a short search from the nearest training rows.

For every row we minimise -log p(y | x) + 0.005 |x|^2 over its own position x, where p(y | x) is the
prediction of the map to the observations. All rows are searched at once and none sees another: each has its
own quasi-Newton matrix (q x q) and step length.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

from gleangp._typing import FloatArray
from gleangp.kernels.evaluate import evaluate, evaluate_diag
from gleangp.models.defaults import LATENT_SPACE
from gleangp.models.latent.terms import Mapping
from gleangp.numerics.linalg import row_chunks, solve_cholesky, solve_lower

_NEAREST = 3  # training rows whose positions are tried as starts
_SUFFICIENT = 1e-4  # share of the predicted decrease that a step must give (Armijo)
_HALVINGS = 12
_MOST_STEPS, _TOLERANCE = 50, 1e-8  # of a row; the gain, relative to the value, after which it stops


def search_positions(
    mapping: Mapping, scores: FloatArray, known_scores: FloatArray, known_positions: FloatArray
) -> FloatArray:
    """Positions (m, q) of rows with the given scores (m, k), from training rows with known positions."""
    out = np.empty((len(scores), known_positions.shape[1]))
    for rows in row_chunks(len(scores), len(known_scores)):
        start = _best_start(mapping, scores[rows], known_scores, known_positions)
        out[rows] = _descend(mapping, scores[rows], start)
    return out


def row_objective(mapping: Mapping, scores: FloatArray, X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Minus log p(y | x) up to a constant, plus the pull, per row (m,); and its gradient (m, q)."""
    n_scores = scores.shape[1]
    chol, inner = mapping.factors[0]
    K = evaluate(mapping.kernel, X, mapping.points)
    diag = evaluate_diag(mapping.kernel, X)
    v = solve_lower(chol, K.value.T)
    w = v if inner is None else v - solve_cholesky(inner, v)
    var = diag.value - np.einsum("dm,dm->m", v, w)
    error = scores - K.value @ mapping.weights
    square = np.einsum("mk,mk->m", error, error)
    value = 0.5 * (n_scores * np.log(var) + square / var + LATENT_SPACE.pull * np.einsum("mq,mq->m", X, X))
    d_var = 0.5 * (n_scores - square / var) / var
    dL_dK = -(error / var[:, None]) @ mapping.weights.T
    dL_dK -= 2.0 * d_var[:, None] * solve_lower(chol, w, transposed=True).T
    return value, K.vjp(dL_dK)[1] + diag.vjp(d_var)[1] + LATENT_SPACE.pull * X


def _best_start(mapping, scores, known_scores, known_positions) -> FloatArray:
    count = min(_NEAREST, len(known_scores))
    near = np.argsort(cdist(scores, known_scores), axis=1, kind="stable")[:, :count]
    values = np.column_stack(
        [row_objective(mapping, scores, known_positions[near[:, k]])[0] for k in range(count)]
    )
    best = near[np.arange(len(scores)), values.argmin(axis=1)]
    return known_positions[best].copy()


def _descend(mapping, scores, X) -> FloatArray:
    """BFGS in every row on its own (Nocedal & Wright 2006, eq. 6.17), with backtracking."""
    q = X.shape[1]
    value, gradient = row_objective(mapping, scores, X)
    H = np.tile(np.eye(q), (len(X), 1, 1))
    H /= np.maximum(1.0, np.linalg.norm(gradient, axis=1))[:, None, None]  # a first step of at most one
    going = np.arange(len(X))
    for _ in range(_MOST_STEPS):
        direction = -np.einsum("mij,mj->mi", H[going], gradient[going])
        moved, new_value, new_gradient = _backtrack(
            mapping, scores[going], X[going], value[going], gradient[going], direction
        )
        H[going] = _updated(H[going], moved, new_gradient - gradient[going])
        gain = value[going] - new_value
        X[going] += moved
        value[going], gradient[going] = new_value, new_gradient
        going = going[gain > _TOLERANCE * (1.0 + np.abs(new_value))]
        if len(going) == 0:
            break
    return X


def _backtrack(mapping, scores, X, value, gradient, direction):
    """The first of the halved steps that decreases enough; a row that finds none does not move."""
    slope = np.einsum("mi,mi->m", gradient, direction)
    moved, new_value, new_gradient = np.zeros_like(X), value.copy(), gradient.copy()
    left, length = np.arange(len(X)), 1.0
    for _ in range(_HALVINGS):
        v, g = row_objective(mapping, scores[left], X[left] + length * direction[left])
        fine = v <= value[left] + _SUFFICIENT * length * slope[left]
        rows = left[fine]
        moved[rows] = length * direction[rows]
        new_value[rows], new_gradient[rows] = v[fine], g[fine]
        left = left[~fine]
        if len(left) == 0:
            break
        length *= 0.5
    return moved, new_value, new_gradient


def _updated(H, s, y):
    curvature = np.einsum("mi,mi->m", s, y)
    usable = curvature > 1e-12 * np.linalg.norm(s, axis=1) * np.linalg.norm(y, axis=1)
    rho = np.divide(1.0, curvature, out=np.zeros_like(curvature), where=usable)
    V = np.eye(H.shape[1]) - rho[:, None, None] * np.einsum("mi,mj->mij", s, y)
    updated = V @ H @ V.transpose(0, 2, 1) + rho[:, None, None] * np.einsum("mi,mj->mij", s, s)
    return np.where(usable[:, None, None], updated, H)
