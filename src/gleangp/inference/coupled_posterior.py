"""Prediction from coupled tasks, new tasks and new rows: what `coupled` leaves behind, and its use.

At a new row x of task t, with features F(x) and the residual covariances h to the rows of the task,

    mean(x) = F(x)^T m + h(x)^T alpha_t,
    cov(x, x') = [same task] (H(x, x') - h(x)^T D_t^-1 h(x')) + J(x)^T P^-1 J(x'),   J(x) = F(x) - A_t h(x):

what the common basis knows, what the task's own rows add to it, and how surely. Rows of different tasks
are correlated through the basis. A task without rows has J = F and the prior of its residual.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.inference.coupled import (
    Basis,
    CoupledPrior,
    Knowledge,
    Settled,
    Term,
    settle,
    stack_rows,
)
from gleangp.inference.projected import RowSites
from gleangp.kernels import kernel_columns
from gleangp.linalg import solve_lower

_CHUNK_ENTRIES = 4_000_000  # of the cross-covariance at a time: 32 MB


@dataclass(frozen=True, slots=True, eq=False)
class OwnRows:
    """What one task knows beyond the basis."""

    X: FloatArray  # (n, p) its rows
    alpha: FloatArray  # (n,)
    inverse: FloatArray  # (n, n) D_t^-1
    F: FloatArray  # (D, n)
    sites: RowSites
    known: Knowledge | None = None  # of the basis, where it is more than what the other tasks know


@dataclass(frozen=True, eq=False)
class CoupledPosterior:
    """The posterior of all tasks."""

    terms: list[Term]
    Z: FloatArray  # (d, p) the basis
    bases: list[Basis | None]  # per term
    known: Knowledge  # of the basis, from all tasks
    own: tuple[OwnRows, ...]  # by task
    log_evidence: float
    jitter: float


def fit_coupled(
    terms: list[Term], blocks: list[Block], Z: FloatArray, start: RowSites | None = None
) -> CoupledPosterior:
    """Posterior of the blocks of all tasks (some may be empty) on the basis Z (d, p)."""
    filled = [t for t, b in enumerate(blocks) if len(b)]
    prior = CoupledPrior(terms, stack_rows([blocks[t] for t in filled], np.array(filled)), Z)
    settled = settle(prior, start)
    own = [_no_rows(Z.shape[1], prior.n_shared) for _ in blocks]
    for t, rows in zip(filled, _own_rows(prior, settled), strict=True):
        own[t] = rows
    known = Knowledge(settled.q.m, settled.q.inner)
    return CoupledPosterior(terms, Z, prior.bases, known, tuple(own), settled.evidence, prior.jitter)


def add_block(posterior: CoupledPosterior, terms: list[Term], block: Block) -> CoupledPosterior:
    """The posterior with one more task, for which `terms` have one more row.

    The new task is conditioned on its rows starting from what the others taught about the shared
    functions, which is all there is to know about it. What its rows would teach the others is left out:
    they are untouched.
    """
    new = _no_rows(posterior.Z.shape[1], len(posterior.known.m))
    evidence = 0.0
    if len(block):
        prior = CoupledPrior(terms, stack_rows([block], np.array([len(posterior.own)])), posterior.Z)
        settled = settle(prior, known=posterior.known)
        new = replace(_own_rows(prior, settled)[0], known=Knowledge(settled.q.m, settled.q.inner))
        evidence = settled.evidence
    return replace(
        posterior, terms=terms, own=(*posterior.own, new), log_evidence=posterior.log_evidence + evidence
    )


def predict_coupled(
    posterior: CoupledPosterior, task: int, X: FloatArray, *, with_var: bool = True
) -> tuple[FloatArray, FloatArray]:
    """Latent mean (n,) of new rows of a task, and variance (empty unless asked for)."""
    mean, var = np.empty(len(X)), np.empty(len(X) if with_var else 0)
    own = posterior.own[task]
    step = max(1, _CHUNK_ENTRIES // max(1, len(own.X) + len(posterior.known.m)))
    for start in range(0, len(X), step):
        part = slice(start, start + step)
        mean[part], F, h = _mean_at(posterior, task, X[part])
        if with_var:
            prior_var = sum(q.within[task] * q.kernel.diag(X[part]) for q in posterior.terms)
            var[part] = prior_var - np.einsum("dn,dn->n", F, F) - np.einsum("in,in->n", h, own.inverse @ h)
            J = _unsure(posterior, task, F, h)
            var[part] += np.einsum("dn,dn->n", J, J)
    # Rounding can leave a point that is known exactly with a variance of -1e-17.
    return mean, np.maximum(var, 0.0)


def predict_coupled_cov(
    posterior: CoupledPosterior, X: FloatArray, codes: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Latent mean (n,) and covariance (n, n) of new rows of any tasks.

    Tasks are correlated through the shared functions; a task that was added later knows more of these
    than the others, and is taken to be independent of them.
    """
    mean, cov = np.empty(len(X)), np.zeros((len(X), len(X)))
    J = np.zeros((len(posterior.known.m), len(X)))
    added = np.zeros(len(X), dtype=np.intp)
    for task in np.unique(codes):
        rows, own = np.flatnonzero(codes == task), posterior.own[task]
        mean[rows], F, h = _mean_at(posterior, task, X[rows])
        prior_cov = sum(q.within[task] * q.kernel(X[rows]) for q in posterior.terms)
        cov[np.ix_(rows, rows)] = prior_cov - F.T @ F - h.T @ (own.inverse @ h)
        J[:, rows] = _unsure(posterior, task, F, h)
        added[rows] = 0 if own.known is None else 1 + task
    cov += (J.T @ J) * (added[:, None] == added[None, :])
    return mean, cov


def _mean_at(posterior: CoupledPosterior, task: int, X: FloatArray):
    """Mean (n,), features F (D, n), and covariances h (n_t, n) of the residual to the task's rows."""
    own = posterior.own[task]
    known = posterior.known if own.known is None else own.known
    F = features(posterior.terms, posterior.bases, task, X)
    h = -(own.F.T @ F)
    if len(own.X):
        for term in posterior.terms:
            if term.within[task]:
                h += term.within[task] * kernel_columns(term.kernel, own.X, X)
    return known.m @ F + own.alpha @ h, F, h


def _unsure(posterior, task, F, h) -> FloatArray:
    """inner^-1 J (D, n)."""
    own = posterior.own[task]
    known = posterior.known if own.known is None else own.known
    return solve_lower(known.inner, np.ascontiguousarray(F - own.F @ (own.inverse @ h)))


def features(terms: list[Term], bases: list[Basis | None], task: int, X: FloatArray) -> FloatArray:
    """F (D, n) of rows of one task."""
    parts = [np.zeros((0, len(X)))]
    for term, basis in zip(terms, bases, strict=True):
        if basis is not None:
            Phi = solve_lower(basis.chol, kernel_columns(term.kernel, basis.Z, X))
            parts += [weight * Phi for weight in term.loadings[task]]
    return np.concatenate(parts)


def _no_rows(n_features: int, n_shared: int) -> OwnRows:
    none = np.zeros(0)
    X, F = np.zeros((0, n_features)), np.zeros((n_shared, 0))
    return OwnRows(X, none, np.zeros((0, 0)), F, RowSites(none, none))


def _own_rows(prior: CoupledPrior, settled: Settled) -> list[OwnRows]:
    blocks, q = prior.rows.blocks, settled.q
    first = np.concatenate([[0], np.cumsum([len(b) for b in blocks])])
    own: list[OwnRows | None] = [None] * len(blocks)
    for (members, _, _), stack, inverse in zip(prior.rows.stacks, prior.stacks, q.inverses, strict=True):
        for k, t in enumerate(members):
            n, rows = len(blocks[t]), slice(first[t], first[t + 1])
            sites = RowSites(settled.sites.precision[rows], settled.sites.shift[rows])
            D_inv, F = np.array(inverse[k, :n, :n]), np.array(stack.F[k, :, :n])
            own[t] = OwnRows(blocks[t].X, q.alpha[rows], D_inv, F, sites)
    return own
