"""Coupled tasks: exact within a task, through a common basis between tasks.

A model is a list of terms, each a kernel k with loadings W (M, R) and own weights kappa (M,):

    f_t(x) = sum over terms of  sum_r W[t, r] g_r(x) + sqrt(kappa[t]) own_t(x),    g_r, own_t ~ GP(0, k),

which covers a common function with deviations, and (linear models of) coregionalisation. With the basis
Z of d points, Phi = chol(K_dd)^-1 K_dn, and the features F (D, n) that stack W[t, r] Phi over r and terms,

    f = F^T v + h,   v ~ N(0, I),   cov(h) = blockdiag(H_t),
    H_t = sum over terms of (kappa[t] + |W[t]|^2) K(X_t) - F_t^T F_t,

the partially independent conditional of Snelson & Ghahramani 2007 with tasks as its blocks. Rows have
sites exp(shift f - precision f^2 / 2). With D_t = H_t + 1 / precision and A_t = F_t D_t^-1,

    P = I + sum_t A_t F_t^T,   m = E v = P^-1 sum_t F_t D_t^-1 (shift / precision),
    alpha = C^-1 (shift / precision),   E f = F^T m + H alpha,   C = F^T F + blockdiag(D_t).

Gaussian noise: precision = 1 / variance, and the evidence is exact for this prior. Other noise models:
expectation propagation over all rows, which asks of them log_partition alone.

Gradients. The evidence is stationary in the sites, so only its explicit dependence on the covariance
counts: with G = (alpha alpha^T - C^-1) / 2,

    d/dK(X_t) = (kappa[t] + |W[t]|^2) G_tt,     d/dF_t = m alpha_t^T - P^-1 A_t - 2 F_t G_tt,

and d/dK_dd by invariance under rotations of the basis, as in `projected`. White noise of a kernel is a part
of h. Tasks of nearly equal size stand in one array; a padded row has a site of precision zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.inference.conditioning import (
    Conditioned,
    Knowledge,
    condition,
    inverse_of,
    posterior_var,
    seen_through,
)
from gleangp.inference.projected import NUGGET
from gleangp.inference.row_ep import Marginals, RowSites, sweep_rows
from gleangp.inference.stacked import group_sizes
from gleangp.kernels import linearize
from gleangp.kernels.stacked import linearize_tasks
from gleangp.linalg import cholesky, inverse_from_cholesky, solve_lower

_STACK_ENTRIES = 2_000_000  # of one array of matrices
_STACK_ROWS = 10_000  # of one stack: their features are some hundred numbers each
_KEPT_ENTRIES = 20_000_000  # features of all rows (160 MB) up to which stacks are kept and not made again
_TOLERANCE = 1e-7  # of the evidence, relative, for sites to have settled
_LOG_TWO_PI = np.log(2.0 * np.pi)


@dataclass(frozen=True, eq=False)
class Term:
    """One kernel, and how the tasks share it."""

    kernel: Any
    loadings: FloatArray  # (M, R) W; R = 0: nothing is shared
    own: FloatArray  # (M,) kappa >= 0

    @property
    def within(self) -> FloatArray:
        """(M,) weight of the kernel inside each task: kappa + |W|^2."""
        return self.own + np.einsum("tr,tr->t", self.loadings, self.loadings)

    def between(self) -> FloatArray:
        """B (M, M): covariance of the tasks, W W^T + diag(kappa)."""
        return self.loadings @ self.loadings.T + np.diag(self.own)


@dataclass(frozen=True, eq=False)
class TaskRows:
    """All rows, in stacks of tasks of nearly equal size; flat vectors run over blocks in order."""

    blocks: list[Block]
    task: IntArray  # of each block, a row of the loadings
    stacks: list[tuple[IntArray, IntArray, FloatArray]]  # blocks (T,), flat rows (T, n), X (T, n, p)

    def __len__(self) -> int:
        return sum(len(b) for b in self.blocks)


def stack_rows(blocks: list[Block], task: IntArray) -> TaskRows:
    """Rows of the filled blocks; a padded row has the flat number n, one past the last."""
    sizes = np.array([len(b) for b in blocks])
    first = np.concatenate([[0], np.cumsum(sizes)])
    by_size = [t for t in np.argsort(sizes, kind="stable") if sizes[t]]
    stacks = []
    # A padded row has features of some hundred numbers: it is not cheaper than another stack.
    for group in group_sizes([int(sizes[t]) for t in by_size], _STACK_ENTRIES, rows=_STACK_ROWS, padding=0):
        members = [by_size[k] for k in group]
        n = sizes[members[-1]]
        rows = np.full((len(members), n), first[-1])
        X = np.empty((len(members), n, blocks[0].X.shape[1]))
        for k, t in enumerate(members):
            rows[k, : sizes[t]] = np.arange(first[t], first[t + 1])
            X[k, : sizes[t]] = blocks[t].X
            X[k, sizes[t] :] = blocks[t].X[0]
        stacks.append((np.array(members), rows, X))
    return TaskRows(blocks, np.asarray(task, dtype=np.intp), stacks)


class Basis:
    """The whitened basis of one term: chol(K_dd) and what gradients need of it."""

    def __init__(self, kernel, Z: FloatArray):
        self.Z, self.kernel = Z, kernel
        self.K_dd = linearize(kernel, Z, Z)
        C = np.array(self.K_dd.value, order="F")
        C.flat[:: len(C) + 1] += NUGGET * np.mean(np.diagonal(C))
        self.chol, self.jitter = cholesky(C)

    def theta_grad(self, inside: FloatArray, parts: list[tuple[Any, FloatArray]]) -> FloatArray:
        """dE/dtheta from `inside` = dE/dPhi Phi^T (d, d) and (K_nd, dE/dPhi^T) of each stack."""
        gradient: Any = 0.0
        for K_nd, d_phi in parts:
            gradient = gradient + K_nd.theta_vjp(solve_lower(self.chol, d_phi.T, transposed=True).T)
        inside = 0.5 * (inside + inside.T)
        half = solve_lower(self.chol, np.ascontiguousarray(inside), transposed=True)
        d_Kdd = -0.5 * solve_lower(self.chol, np.ascontiguousarray(half.T), transposed=True)
        d_Kdd.flat[:: len(d_Kdd) + 1] += NUGGET * np.mean(np.diagonal(d_Kdd))  # the nugget moves too
        return gradient + self.K_dd.theta_vjp(d_Kdd)


class CoupledPrior:
    """Covariance of all rows under given terms and bases: F and H of every stack.

    Stacks of very many rows are made anew on every pass, so that memory is that of one of them.
    `gradients=False` forgets what only gradients need.
    """

    def __init__(self, terms: list[Term], rows: TaskRows, Z: FloatArray, *, gradients: bool = True):
        self.terms, self.rows = terms, rows
        self.bases = [Basis(q.kernel, Z) if q.loadings.shape[1] else None for q in terms]
        self.n_shared = len(Z) * sum(q.loadings.shape[1] for q in terms)  # D: features that tasks share
        self.keeps = len(rows) * self.n_shared <= _KEPT_ENTRIES
        self._gradients = gradients
        self._kept = [self._stack(*stack) for stack in rows.stacks] if self.keeps else []

    @property
    def stacks(self) -> Iterable[Stack]:
        """The stacks in their order."""
        return self._kept if self.keeps else (self._stack(*stack) for stack in self.rows.stacks)

    def _stack(self, members, row_numbers, X):
        T, n, p = X.shape
        tasks = self.rows.task[members]
        H, F, kernels, cross = np.zeros((T, n, n)), [], [], []
        for term, basis in zip(self.terms, self.bases, strict=True):
            K = linearize_tasks(term.kernel, X)
            kernels.append(K if self._gradients else None)
            H += term.within[tasks, None, None] * K.value
            if basis is None:
                cross.append(None)
                continue
            K_nd = linearize(term.kernel, X.reshape(T * n, p), basis.Z)
            Phi = solve_lower(basis.chol, K_nd.value.T).T.reshape(T, n, len(basis.Z))
            cross.append((K_nd, Phi) if self._gradients else None)
            F.append((term.loadings[tasks][:, None, :, None] * Phi[:, :, None]).reshape(T, n, -1))
        F = np.concatenate([np.zeros((T, n, 0)), *F], axis=2) if len(F) != 1 else F[0]
        if F.shape[2]:
            for of_task, covariance in zip(F, H, strict=True):
                covariance -= of_task @ of_task.T
        return Stack(tasks, row_numbers, H, F, kernels, cross)

    @property
    def jitter(self) -> float:
        """Largest jitter that the factor of a basis needed."""
        return max((b.jitter for b in self.bases if b is not None), default=0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """Covariance of tasks of nearly equal size."""

    tasks: IntArray  # (T,)
    rows: IntArray  # (T, n) flat numbers
    H: FloatArray  # (T, n, n)
    F: FloatArray  # (T, n, D) the features F^T, row by row
    kernels: list  # per term, the linearization of K(X_t)
    cross: list  # per term, (K_nd, Phi^T) or None


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """Sites at their fixed point, and what follows from them."""

    sites: RowSites
    q: Conditioned
    evidence: float
    noise_grad: dict[str, FloatArray] | None  # per row, natural units; None: Gaussian, from the gradient pass


def settle(
    prior: CoupledPrior,
    start: RowSites | None = None,
    known: Knowledge | None = None,
    tol: float = _TOLERANCE,
    nats: float = 0.0,
) -> Settled:
    """The posterior of all rows: at once for Gaussian noise, by expectation propagation for other models.

    Propagation ends where the evidence changes by less than `tol` of itself, or less than `nats`.
    """
    blocks = prior.rows.blocks
    if not blocks[0].noise.precision_depends_on_mean:
        residual = np.concatenate([b.y - b.noise.bias for b in blocks])
        precision = np.concatenate([np.broadcast_to(1.0 / b.noise.variance, len(b)) for b in blocks])
        sites = RowSites(precision, precision * residual)
        q = condition(prior, sites, known)
        # The squares of the sites cancel against those of the noise: left out on both sides.
        return Settled(sites, q, float(0.5 * (np.sum(np.log(precision) - _LOG_TWO_PI) - q.cost)), None)
    return _propagate(prior, start, known, tol, nats)


def _propagate(
    prior: CoupledPrior, start: RowSites | None, known: Knowledge | None, tol: float, nats: float
) -> Settled:
    """Expectation propagation over the rows of all tasks."""

    def marginals(sites: RowSites) -> Marginals:
        q = condition(prior, sites, known)
        # What the evidence subtracts from shift^T E f; with nothing known of v, log |I + K diag(precision)|.
        return Marginals(q.mean, posterior_var(prior, q), sites.shift @ q.mean - 2.0 * q.log_z, q)

    joined = _JoinedBlocks(prior.rows.blocks)
    swept = sweep_rows(joined, marginals, start=start, tol=tol, nats=nats)
    noise_grad = joined.log_partition_grad(swept.cavity_mean, swept.cavity_var)
    return Settled(swept.sites, swept.marginals.state, swept.evidence, noise_grad)


class _JoinedBlocks:
    """All blocks as one, for the sweeps: noise models stay those of their blocks."""

    def __init__(self, blocks: list[Block]):
        self.y = np.concatenate([b.y for b in blocks])
        ends, first = np.cumsum([len(b) for b in blocks]), blocks[0].noise
        self.parts = [(b.noise, slice(end - len(b), end)) for b, end in zip(blocks, ends, strict=True)]
        if len(blocks) > 1 and all(b.noise is first for b in blocks) and first.at(slice(0, 1)) is first:
            # One model without anything that differs from row to row: one call instead of many.
            self.parts = [(first, slice(0, len(self.y)))]
        self.noise = self
        self.log_concave = all(b.noise.log_concave for b in blocks)

    def __len__(self) -> int:
        return len(self.y)

    def log_partition(self, y, mean, var):
        """log_z, g and nu of all rows, each (n,)."""
        values = [
            np.array(np.broadcast_arrays(*noise.log_partition(y[part], mean[part], var[part])))
            for noise, part in self.parts
        ]
        return np.concatenate(values, axis=1)

    def log_partition_grad(self, mean, var) -> dict[str, FloatArray]:
        """Parameter name -> derivative of log_z per row."""
        values = [noise.log_partition_grad(self.y[part], mean[part], var[part]) for noise, part in self.parts]
        return {name: np.concatenate([np.atleast_1d(v[name]) for v in values]) for name in values[0]}


@dataclass(frozen=True, slots=True, eq=False)
class CoupledGradient:
    """Gradient of the evidence."""

    theta: list[FloatArray]  # per term (q,)
    loadings: list[FloatArray]  # per term (M, R)
    own: list[FloatArray]  # per term (M,)
    noise: dict[str, FloatArray]  # per row, natural units, to be summed


def evidence_gradient(prior: CoupledPrior, settled: Settled) -> CoupledGradient:
    """Gradient in everything that is learnt, by the explicit dependence on the covariance."""
    q, terms = settled.q, prior.terms
    theta: list[Any] = [0.0 for _ in terms]  # the length is not asked: reflection costs as much as tasks
    loadings = [np.zeros_like(t.loadings) for t in terms]
    own = [np.zeros_like(t.own) for t in terms]
    inside = [None if b is None else np.zeros((len(b.Z), len(b.Z))) for b in prior.bases]
    parts: list[list] = [[] for _ in terms]
    alpha, d_variance = np.append(q.alpha, 0.0), np.zeros(len(prior.rows) + 1)
    P_inv = inverse_from_cholesky(q.inner) if len(q.inner) else q.inner
    for stack, r, half, V in q.over(prior):
        a, A = alpha[stack.rows], seen_through(r, half, V)
        shared = (A.reshape(r.size, len(P_inv)) @ P_inv).reshape(A.shape)
        G = a[:, :, None] * a[:, None, :] - inverse_of(half, r)
        G += shared @ A.transpose(0, 2, 1)
        G *= 0.5
        d_variance[stack.rows] = np.einsum("tii->ti", G)
        dF = (-2.0 * G) @ stack.F
        dF += a[:, :, None] * q.m
        dF -= shared
        at = 0
        for k, term in enumerate(terms):
            T, n = stack.rows.shape
            K = stack.kernels[k]
            within = term.within[stack.tasks]
            theta[k] = theta[k] + K.theta_vjp(within[:, None, None] * G)
            d_within = np.einsum("tij,tij->t", G, np.broadcast_to(K.value, G.shape))
            own[k][stack.tasks] += d_within
            if prior.bases[k] is None:
                continue
            K_nd, Phi = stack.cross[k]
            W, R, d = term.loadings[stack.tasks], term.loadings.shape[1], Phi.shape[2]
            dF_k = dF[:, :, at : at + R * d].reshape(T, n, R, d)
            at += R * d
            d_phi = np.zeros((T, n, d))
            for g in range(R):
                loadings[k][stack.tasks, g] += np.einsum("tnd,tnd->t", dF_k[:, :, g], Phi)
                d_phi += W[:, g, None, None] * dF_k[:, :, g]
            loadings[k][stack.tasks] += 2.0 * W * d_within[:, None]
            d_phi = d_phi.reshape(T * n, d)
            inside[k] += d_phi.T @ Phi.reshape(T * n, d)
            parts[k].append((K_nd, d_phi))
    for k, basis in enumerate(prior.bases):
        if basis is not None:
            theta[k] = theta[k] + basis.theta_grad(inside[k], parts[k])
    noise = settled.noise_grad
    if noise is None:
        noise = {"variance": d_variance[:-1], "bias": q.alpha}
    return CoupledGradient(theta, loadings, own, noise)
