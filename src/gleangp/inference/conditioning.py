"""Coupled tasks given Gaussian sites: what is known of the shared functions and of every row.

The prior is that of `coupled`, whose docstring has the equations: f = F^T v + h with cov(h) = blockdiag(H_t).
Here with R = diag(sqrt(precision)), so that rows that say nothing need no division,

    L_t L_t^T = I + R H_t R,   V_t = L_t^-1 R F_t^T,   P = I + sum_t V_t^T V_t,   D_t^-1 = R L_t^-T L_t^-1 R.

Variances of the rows follow from the same factors, because H - H D^-1 H = S^-1 - S^-1 D^-1 S^-1 and
F - F D^-1 H = F D^-1 S^-1 with S = R^2: no further product with H_t is needed. For rows that say next to
nothing these differences lose their digits, and the left sides are computed instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import blas, lapack

from gleangp._typing import FloatArray
from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.inference.row_ep import RowSites
from gleangp.linalg import cholesky, log_determinant, solve_cholesky, solve_lower

if TYPE_CHECKING:
    from gleangp.inference.coupled import CoupledPrior, Stack

_FAINT = 1e-6  # precision times prior variance below which a site's effect is lost in rounding
_FEW_ROWS = 12  # of a task, below which one general product of all tasks beats triangular ones in turn


@dataclass(frozen=True, slots=True, eq=False)
class Knowledge:
    """Of the shared functions: v ~ N(m, P^-1)."""

    m: FloatArray  # (D,)
    inner: FloatArray  # (D, D) lower factor of P


@dataclass(frozen=True, slots=True, eq=False)
class Conditioned:
    """Posterior given Gaussian sites."""

    m: FloatArray  # (D,)
    inner: FloatArray  # (D, D) lower factor of P
    cost: float  # log |I + K S| + misfit of the site means, in units of half a nat
    site_square: float  # sum of precision * site mean^2
    alpha: FloatArray  # (n,)
    mean: FloatArray  # (n,)
    root: FloatArray  # (n + 1,) square roots of the precisions, and zero for padded rows
    halves: list[FloatArray]  # L_t^-1 of every stack (T, n, n)
    V: list[FloatArray]  # of every stack (T, n, D), if the prior keeps its stacks

    @property
    def log_z(self) -> float:
        """log of the integral of the prior and the sites, as they are."""
        return 0.5 * (self.site_square - self.cost)

    def over(self, prior: CoupledPrior) -> Iterator[tuple[Stack, FloatArray, FloatArray, FloatArray]]:
        """Every stack with its R (T, n), L^-1 and V."""
        for k, (stack, half) in enumerate(zip(prior.stacks, self.halves, strict=True)):
            r = self.root[stack.rows]
            yield stack, r, half, self.V[k] if self.V else _features_seen(stack, r, half)

    def inverses(self, prior: CoupledPrior) -> Iterator[FloatArray]:
        """D_t^-1 (T, n, n) of every stack."""
        for (_, rows, _), half in zip(prior.rows.stacks, self.halves, strict=True):
            yield inverse_of(half, self.root[rows])


def condition(prior: CoupledPrior, sites: RowSites, known: Knowledge | None = None) -> Conditioned:
    """Absorb the sites of all rows, starting from what is known of v (None: v ~ N(0, I))."""
    n, D = len(prior.rows), prior.n_shared
    root = np.append(np.sqrt(sites.precision), 0.0)
    # Scaled site means; a row that says nothing has none.
    z = np.divide(sites.shift, root[:-1], out=np.zeros(n), where=root[:-1] > 0.0)
    z = np.append(z, 0.0)
    if known is None:
        P_before, prior_mean, log_det = np.eye(D), np.zeros(D), 0.0
    else:
        P_before, prior_mean = known.inner @ known.inner.T, known.m
        log_det = -log_determinant(known.inner)
    P, rhs = P_before.copy(), P_before @ prior_mean
    halves, heard, V_all = [], [], []
    for stack in prior.stacks:
        r = root[stack.rows]
        half, log_b = _inverse_factor(stack.H * (r[:, :, None] * r[:, None, :]))
        V, u = _features_seen(stack, r, half), _times(half, z[stack.rows])
        V_rows = V.reshape(u.size, D)
        P += V_rows.T @ V_rows
        rhs += u.ravel() @ V_rows
        log_det += log_b
        halves.append(half)
        heard.append(u)
        if prior.keeps:
            V_all.append(V)
    inner = cholesky(P)[0] if D else P
    m = solve_cholesky(inner, rhs)
    alpha, mean = np.zeros(n + 1), np.zeros(n + 1)
    # Smallest over v of |site mean - F^T v|^2 in D^-1 and of v in its prior: errors of m enter squared.
    misfit = float((m - prior_mean) @ P_before @ (m - prior_mean))
    for k, stack in enumerate(prior.stacks):
        r, half = root[stack.rows], halves[k]
        V = V_all[k] if V_all else _features_seen(stack, r, half)
        residual = heard[k] - V @ m
        misfit += float(np.vdot(residual, residual))
        a = r * _times(half.transpose(0, 2, 1), residual)
        alpha[stack.rows] = a
        mean[stack.rows] = stack.F @ m + _times(stack.H, a)
    log_det += log_determinant(inner)
    return Conditioned(m, inner, log_det + misfit, float(z @ z), alpha[:n], mean[:n], root, halves, V_all)


def posterior_var(prior: CoupledPrior, q: Conditioned) -> FloatArray:
    """Variance (n,) of f at the training rows."""
    var = np.zeros(len(prior.rows) + 1)
    D = prior.n_shared
    for stack, r, half, V in q.over(prior):
        precision, diag = r * r, np.einsum("tii->ti", stack.H)
        J = _columns_solved(q.inner, V.reshape(r.size, D)).reshape(V.shape)
        J = _triangular_times(half, J, transposed=True)
        left = 1.0 - np.einsum("tij,tij->tj", half, half) + np.einsum("tnd,tnd->tn", J, J)
        faint = precision * diag < _FAINT
        var[stack.rows] = np.divide(left, precision, out=np.zeros_like(left), where=~faint)
        faint &= stack.rows < len(prior.rows)
        for t in np.flatnonzero(faint.any(axis=1)):
            some = np.flatnonzero(faint[t])
            var[stack.rows[t, some]] = _faint_var(stack, r, half, V, q.inner, t, some)
    return np.maximum(var[:-1], 1e-300)


def _faint_var(stack: Stack, r, half, V, inner, t: int, some) -> FloatArray:
    """Variance of some rows of one task, without a division by their precision."""
    var, J = stack.H[t, some, some], stack.F[t, some]
    if r[t].any():
        seen = half[t] @ (r[t][:, None] * stack.H[t][:, some])  # L^-1 R H
        var, J = var - np.einsum("in,in->n", seen, seen), J - seen.T @ V[t]
    J = _columns_solved(inner, np.ascontiguousarray(J))
    return var + np.einsum("nd,nd->n", J, J)


def inverse_of(half: FloatArray, r: FloatArray) -> FloatArray:
    """D_t^-1 = R L^-T L^-1 R of every task of a stack."""
    inverse = np.empty_like(half)
    scaled = half * r[:, None, :]
    for t, factor in enumerate(scaled):
        inverse[t] = factor.T @ factor
    return inverse


def seen_through(r: FloatArray, half: FloatArray, V: FloatArray) -> FloatArray:
    """(F_t D_t^-1)^T = R L^-T V of every task of a stack (T, n, D)."""
    return r[:, :, None] * _triangular_times(half, V.copy(), transposed=True)


def _features_seen(stack: Stack, r: FloatArray, half: FloatArray) -> FloatArray:
    """V = L^-1 R F^T of every task (T, n, D)."""
    return _triangular_times(half, r[:, :, None] * stack.F)


def _inverse_factor(M: FloatArray) -> tuple[FloatArray, float]:
    """L^-1 of the lower factor of every I + M of the stack, in place of M, and the sum of log |I + M|."""
    log_det, n = 0.0, M.shape[1]
    np.einsum("tii->ti", M)[...] += 1.0
    for matrix in M:
        # The symmetric matrix is its own transpose: LAPACK's columns are our rows.
        chol, info = lapack.dpotrf(matrix.T, lower=0, clean=1, overwrite_a=1)
        if info:
            raise NotPositiveDefiniteError(f"the covariance of a task of {n} rows has no factor")
        log_det += 2.0 * float(np.log(chol.diagonal()).sum())
        lapack.dtrtri(chol, lower=0, overwrite_c=1)
    return M, log_det


def _triangular_times(half: FloatArray, B: FloatArray, *, transposed: bool = False) -> FloatArray:
    """L^-1 B, or L^-T B, of every task, in place of B (T, n, D)."""
    if B.size == 0:
        return B
    if half.shape[1] < _FEW_ROWS:
        return (half.transpose(0, 2, 1) if transposed else half) @ B
    for lower, right in zip(half, B, strict=True):
        # In Fortran's eyes both are transposed: B^T L^-T, or B^T L^-1.
        blas.dtrmm(1.0, lower.T, right.T, side=1, lower=0, trans_a=int(transposed), overwrite_b=1)
    return B


def _columns_solved(inner: FloatArray, rows: FloatArray) -> FloatArray:
    """`inner^-1` of every row of (n, D)."""
    return solve_lower(inner, rows.T).T if len(inner) else rows


def _times(M: FloatArray, v: FloatArray) -> FloatArray:
    return (M @ v[:, :, None])[:, :, 0]
