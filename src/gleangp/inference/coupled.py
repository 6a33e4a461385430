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

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import lapack

from gleangp._typing import FloatArray, IntArray
from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.inference.block import Block
from gleangp.inference.projected import NUGGET
from gleangp.inference.row_ep import Marginals, RowSites, sweep_rows
from gleangp.kernels import linearize
from gleangp.kernels.stacked import linearize_tasks
from gleangp.linalg import cholesky, inverse_from_cholesky, log_determinant, solve_cholesky, solve_lower

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
    stacks, start = [], 0
    while start < len(by_size):
        # Padding costs cubically: a stack holds sizes up to a fifth larger than its smallest.
        smallest = sizes[by_size[start]]
        limit = max(smallest + 2, int(1.2 * smallest))
        most = max(1, min(_STACK_ENTRIES // limit**2, _STACK_ROWS // limit))
        members = [t for t in by_size[start : start + most] if sizes[t] <= limit]
        n = sizes[members[-1]]
        rows = np.full((len(members), n), first[-1])
        X = np.empty((len(members), n, blocks[0].X.shape[1]))
        for k, t in enumerate(members):
            rows[k, : sizes[t]] = np.arange(first[t], first[t + 1])
            X[k, : sizes[t]] = blocks[t].X
            X[k, sizes[t] :] = blocks[t].X[0]
        stacks.append((np.array(members), rows, X))
        start += len(members)
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
        """dE/dtheta from `inside` = dE/dPhi Phi^T (d, d) and (K_dn, dE/dPhi) of each stack."""
        gradient: Any = 0.0
        for K_dn, d_phi in parts:
            gradient = gradient + K_dn.theta_vjp(solve_lower(self.chol, d_phi, transposed=True))
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
    def stacks(self) -> Iterable[_Stack]:
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
            K_dn = linearize(term.kernel, basis.Z, X.reshape(T * n, p))
            d = len(basis.Z)
            Phi = solve_lower(basis.chol, K_dn.value).reshape(d, T, n).transpose(1, 0, 2)
            cross.append((K_dn, Phi) if self._gradients else None)
            F.append((term.loadings[tasks][:, :, None, None] * Phi[:, None]).reshape(T, -1, n))
        F = np.concatenate(F, axis=1) if F else np.zeros((T, 0, n))
        H -= F.transpose(0, 2, 1) @ F
        return _Stack(tasks, row_numbers, H, F, kernels, cross)

    @property
    def jitter(self) -> float:
        """Largest jitter that the factor of a basis needed."""
        return max((b.jitter for b in self.bases if b is not None), default=0.0)


@dataclass(frozen=True, slots=True, eq=False)
class _Stack:
    tasks: IntArray  # (T,)
    rows: IntArray  # (T, n)
    H: FloatArray  # (T, n, n)
    F: FloatArray  # (T, D, n)
    kernels: list  # per term, the linearization of K(X_t)
    cross: list  # per term, (K_dn, Phi) or None


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
    inverses: list[FloatArray]  # D_t^-1 of every stack (T, n, n)
    A: list[FloatArray]  # F_t D_t^-1 of every stack (T, D, n), if the prior keeps its stacks

    @property
    def log_z(self) -> float:
        """log of the integral of the prior and the sites, as they are."""
        return 0.5 * (self.site_square - self.cost)

    def over(self, prior: CoupledPrior) -> Iterator[tuple[_Stack, FloatArray, FloatArray]]:
        """Every stack with its D_t^-1 and F_t D_t^-1."""
        for k, (stack, inverse) in enumerate(zip(prior.stacks, self.inverses, strict=True)):
            yield stack, inverse, self.A[k] if self.A else stack.F @ inverse


def condition(prior: CoupledPrior, sites: RowSites, known: Knowledge | None = None) -> Conditioned:
    """Absorb the sites of all rows, starting from what is known of v (None: v ~ N(0, I))."""
    n, D = len(prior.rows), prior.n_shared
    root = _with_padding(np.sqrt(sites.precision))
    # Scaled site means; a row that says nothing has none.
    z = np.divide(sites.shift, root[:-1], out=np.zeros(n), where=root[:-1] > 0.0)
    z = _with_padding(z)
    if known is None:
        known = Knowledge(np.zeros(D), np.eye(D))
    P_before = known.inner @ known.inner.T
    P, rhs, log_det = P_before.copy(), P_before @ known.m, -log_determinant(known.inner)
    factors, inverses, A_all = [], [], []
    for stack in prior.stacks:
        r = root[stack.rows]
        scaled, log_b = _inverse_and_log_det(stack.H * (r[:, :, None] * r[:, None, :]))
        inverse = scaled * (r[:, :, None] * r[:, None, :])
        A = stack.F @ inverse
        P += _flat(A) @ _flat(stack.F).T
        rhs += np.einsum("tdn,tn->d", stack.F, r * _times(scaled, z[stack.rows]))
        log_det += log_b
        factors.append(scaled)
        inverses.append(inverse)
        if prior.keeps:
            A_all.append(A)
    inner = cholesky(P)[0] if D else P
    m = solve_cholesky(inner, rhs)
    alpha, mean = np.zeros(n + 1), np.zeros(n + 1)
    # Smallest over v of |site mean - F^T v|^2 in D^-1 and of v in its prior: errors of m enter squared.
    misfit = float((m - known.m) @ P_before @ (m - known.m))
    for stack, scaled in zip(prior.stacks, factors, strict=True):
        r, shared = root[stack.rows], m @ stack.F
        residual = z[stack.rows] - r * shared
        weighted = _times(scaled, residual)
        misfit += float(np.sum(residual * weighted))
        alpha[stack.rows] = r * weighted
        mean[stack.rows] = shared + _times(stack.H, r * weighted)
    log_det += log_determinant(inner)
    return Conditioned(m, inner, log_det + misfit, z[:-1] @ z[:-1], alpha[:n], mean[:n], inverses, A_all)


def posterior_var(prior: CoupledPrior, q: Conditioned) -> FloatArray:
    """Variance (n,) of f at the training rows."""
    var = np.zeros(len(prior.rows) + 1)
    for stack, inverse, A in q.over(prior):
        var[stack.rows] = np.einsum("tii->ti", stack.H) - np.einsum("tij,tij->ti", stack.H @ inverse, stack.H)
        J = solve_lower(q.inner, np.ascontiguousarray(_flat(stack.F - A @ stack.H)))
        var[stack.rows] += np.einsum("dn,dn->n", J, J).reshape(stack.rows.shape)
    return np.maximum(var[:-1], 1e-300)


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
) -> Settled:
    """The posterior of all rows: at once for Gaussian noise, by expectation propagation for other models."""
    blocks = prior.rows.blocks
    if not blocks[0].noise.precision_depends_on_mean:
        residual = np.concatenate([b.y - b.noise.bias for b in blocks])
        precision = np.concatenate([np.broadcast_to(1.0 / b.noise.variance, len(b)) for b in blocks])
        sites = RowSites(precision, precision * residual)
        q = condition(prior, sites, known)
        # The squares of the sites cancel against those of the noise: left out on both sides.
        return Settled(sites, q, float(0.5 * (np.sum(np.log(precision) - _LOG_TWO_PI) - q.cost)), None)
    return _propagate(prior, start, known, tol)


def _propagate(prior: CoupledPrior, start: RowSites | None, known: Knowledge | None, tol) -> Settled:
    """Expectation propagation over the rows of all tasks."""

    def marginals(sites: RowSites) -> Marginals:
        q = condition(prior, sites, known)
        # What the evidence subtracts from shift^T E f; with nothing known of v, log |I + K diag(precision)|.
        return Marginals(q.mean, posterior_var(prior, q), sites.shift @ q.mean - 2.0 * q.log_z, q)

    joined = _JoinedBlocks(prior.rows.blocks)
    swept = sweep_rows(joined, marginals, start=start, tol=tol)
    noise_grad = joined.log_partition_grad(swept.cavity_mean, swept.cavity_var)
    return Settled(swept.sites, swept.marginals.state, swept.evidence, noise_grad)


class _JoinedBlocks:
    """All blocks as one, for the sweeps: noise models stay those of their blocks."""

    def __init__(self, blocks: list[Block]):
        self.blocks = blocks
        self.y = np.concatenate([b.y for b in blocks])
        ends = np.cumsum([len(b) for b in blocks])
        self.parts = [slice(end - len(b), end) for b, end in zip(blocks, ends, strict=True)]
        self.noise = self
        self.log_concave = all(b.noise.log_concave for b in blocks)

    def __len__(self) -> int:
        return len(self.y)

    def log_partition(self, y, mean, var):
        """log_z, g and nu of all rows, each (n,)."""
        values = [
            np.array(np.broadcast_arrays(*b.noise.log_partition(b.y, mean[part], var[part])))
            for b, part in zip(self.blocks, self.parts, strict=True)
        ]
        return np.concatenate(values, axis=1)

    def log_partition_grad(self, mean, var) -> dict[str, FloatArray]:
        """Parameter name -> derivative of log_z per row."""
        values = [
            b.noise.log_partition_grad(b.y, mean[part], var[part])
            for b, part in zip(self.blocks, self.parts, strict=True)
        ]
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
    alpha, d_variance = _with_padding(q.alpha), np.zeros(len(prior.rows) + 1)
    P_inv = inverse_from_cholesky(q.inner) if len(q.inner) else q.inner
    for stack, inverse, A in q.over(prior):
        a = alpha[stack.rows]
        shared = P_inv @ A
        G = a[:, :, None] * a[:, None, :] - inverse
        G += A.transpose(0, 2, 1) @ shared
        G *= 0.5
        d_variance[stack.rows] = np.einsum("tii->ti", G)
        dF = q.m[None, :, None] * a[:, None, :] - shared - 2.0 * (stack.F @ G)
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
            K_dn, Phi = stack.cross[k]
            W, R, d = term.loadings[stack.tasks], term.loadings.shape[1], Phi.shape[1]
            dF_k = dF[:, at : at + R * d].reshape(T, R, d, n)
            at += R * d
            loadings[k][stack.tasks] += 2.0 * W * d_within[:, None] + np.einsum("trdn,tdn->tr", dF_k, Phi)
            d_phi = _flat(np.einsum("tr,trdn->tdn", W, dF_k))
            inside[k] += d_phi @ _flat(Phi).T
            parts[k].append((K_dn, np.ascontiguousarray(d_phi)))
    for k, basis in enumerate(prior.bases):
        if basis is not None:
            theta[k] = theta[k] + basis.theta_grad(inside[k], parts[k])
    noise = settled.noise_grad
    if noise is None:
        noise = {"variance": d_variance[:-1], "bias": q.alpha}
    return CoupledGradient(theta, loadings, own, noise)


def _with_padding(values: FloatArray) -> FloatArray:
    return np.append(values, 0.0)


def _flat(F: FloatArray) -> FloatArray:
    """(T, D, n) as (D, T n)."""
    T, D, n = F.shape
    return F.transpose(1, 0, 2).reshape(D, T * n)


def _times(M: FloatArray, v: FloatArray) -> FloatArray:
    return (M @ v[:, :, None])[:, :, 0]


def _inverse_and_log_det(M: FloatArray) -> tuple[FloatArray, float]:
    """(I + M)^-1 of every matrix of the stack, in place, and the sum of log |I + M|."""
    log_det = 0.0
    np.einsum("tii->ti", M)[...] += 1.0
    for t in range(len(M)):
        # The symmetric matrix is its own transpose: LAPACK's columns are our rows.
        chol, info = lapack.dpotrf(M[t].T, lower=1, clean=0, overwrite_a=1)
        if info:
            raise NotPositiveDefiniteError(f"the covariance of a task of {M.shape[1]} rows has no factor")
        log_det += 2.0 * float(np.log(chol.diagonal()).sum())
        lapack.dpotri(chol, lower=1, overwrite_c=1)
    inverse = np.triu(M)
    inverse += np.triu(M, 1).transpose(0, 2, 1)
    return inverse, log_det
