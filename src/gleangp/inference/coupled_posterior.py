"""Prediction from coupled tasks, new tasks and new rows: what `coupled` leaves behind, and its use.

At a new row x of task t, with features F(x) and the residual covariances h to the rows of the task,

    mean(x) = F(x)^T m + h(x)^T alpha_t,
    cov(x, x') = [same task] (H(x, x') - h(x)^T D_t^-1 h(x')) + J(x)^T P^-1 J(x'),   J(x) = F(x) - A_t h(x):

what the common basis knows, what the task's own rows add to it, and how surely. Rows of different tasks
are correlated through the basis. A task without rows has J = F and the prior of its residual.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.inference.conditioning import Knowledge
from gleangp.inference.coupled import (
    CoupledPrior,
    Settled,
    Term,
    settle,
    stack_rows,
)
from gleangp.inference.row_ep import RowSites
from gleangp.kernels import kernel_columns
from gleangp.linalg import solve_lower

_KEPT_FEATURES = 5_000_000  # of all rows (40 MB) that a posterior keeps; more are made again
_CHUNK_ENTRIES = 4_000_000  # of the cross-covariance at a time: 32 MB


@dataclass(frozen=True, slots=True, eq=False)
class OwnRows:
    """What one task knows beyond the basis."""

    X: FloatArray  # (n, p) its rows
    alpha: FloatArray  # (n,)
    inverse: FloatArray  # (n, n) D_t^-1
    F: FloatArray | None  # (D, n); None: made again when they are needed
    weights: FloatArray  # (D,) of the features of new rows in the mean: m - F alpha
    sites: RowSites
    known: Knowledge | None = None  # of the basis, where it is more than what the other tasks know


@dataclass(frozen=True, eq=False)
class CoupledPosterior:
    """The posterior of all tasks."""

    terms: tuple[Term, ...]
    Z: FloatArray  # (d, p) the basis
    chols: tuple[FloatArray | None, ...]  # per term (d, d), lower factor of K_dd; None: nothing shared
    known: Knowledge  # of the basis, from all tasks
    own: tuple[OwnRows, ...]  # by task
    log_evidence: float
    log_z: float  # log of the integral of the prior and the (unnormalised) sites
    jitter: float


def fit_coupled(
    terms: Sequence[Term], blocks: list[Block], Z: FloatArray, start: RowSites | None = None
) -> CoupledPosterior:
    """Posterior of the blocks of all tasks (some may be empty) on the basis Z (d, p)."""
    filled = [t for t, b in enumerate(blocks) if len(b)]
    rows_in_stacks = stack_rows([blocks[t] for t in filled], np.array(filled))
    prior = CoupledPrior(terms, rows_in_stacks, Z, gradients=False)
    settled = settle(prior, start)
    own = [_no_rows(Z.shape[1], settled.q.m) for _ in blocks]
    for t, rows in zip(filled, _own_rows(prior, settled), strict=True):
        own[t] = rows
    known = Knowledge(settled.q.m, settled.q.inner)
    chols = tuple(None if b is None else b.chol for b in prior.bases)
    return CoupledPosterior(
        tuple(terms), Z, chols, known, tuple(own), settled.evidence, settled.q.log_z, prior.jitter
    )


def add_block(posterior: CoupledPosterior, terms: Sequence[Term], block: Block) -> CoupledPosterior:
    """The posterior with one more task, for which `terms` have one more row.

    The new task is conditioned on its rows starting from what the others taught about the shared
    functions, which is all there is to know about it. What its rows would teach the others is left out:
    they are untouched.
    """
    new = _no_rows(posterior.Z.shape[1], posterior.known.m)
    evidence = log_z = 0.0
    if len(block):
        rows = stack_rows([block], np.array([len(posterior.own)]))
        prior = CoupledPrior(terms, rows, posterior.Z, gradients=False)
        settled = settle(prior, known=posterior.known)
        new = replace(_own_rows(prior, settled)[0], known=Knowledge(settled.q.m, settled.q.inner))
        evidence, log_z = settled.evidence, settled.q.log_z
    return replace(
        posterior,
        terms=tuple(terms),
        own=(*posterior.own, new),
        log_evidence=posterior.log_evidence + evidence,
        log_z=posterior.log_z + log_z,
    )


def absorb_blocks(posterior: CoupledPosterior, blocks: dict[int, Block]) -> CoupledPosterior:
    """The posterior after new rows of known tasks; sites of the old rows are held.

    Exact for Gaussian noise. All tasks learn from the new rows, and those added later join the others.
    """
    rows = []
    for task, own in enumerate(posterior.own):
        new = blocks.get(task)
        X = own.X if new is None else np.vstack([own.X, new.X])
        y = np.zeros(len(X))  # held sites have none, and the new rows bring their own
        rows.append(Block(X, y, PartlyHeld(own.sites, new)))
    after = fit_coupled(posterior.terms, rows, posterior.Z)
    gained = after.log_evidence - posterior.log_z
    return replace(after, log_evidence=posterior.log_evidence + gained)


@dataclass(frozen=True, eq=False)
class PartlyHeld:
    """Noise of a task's rows of which the first have settled sites, and the others a noise model."""

    sites: RowSites
    new: Block | None

    precision_depends_on_mean: ClassVar[bool] = True  # expectation propagation, which held sites pass through

    @property
    def log_concave(self) -> bool:
        """As the noise model of the new rows: held sites have precisions that are not negative."""
        return self.new is None or self.new.noise.log_concave

    def log_partition(self, y, mean, var):
        """log_z, g and nu: of a site exp(shift f - precision f^2 / 2), or of the noise model."""
        n = len(self.sites.precision)
        s, shift, m, v = self.sites.precision, self.sites.shift, mean[:n], var[:n]
        grown = 1.0 + s * v
        log_z = 0.5 * ((shift**2 * v + 2.0 * shift * m - s * m**2) / grown - np.log(grown))
        held = np.array([log_z, (shift - s * m) / grown, s / grown])
        if self.new is None:
            return held
        told = self.new.noise.log_partition(self.new.y, mean[n:], var[n:])
        return np.concatenate([held, np.array(np.broadcast_arrays(*told))], axis=1)

    def log_partition_grad(self, y, mean, var):
        """Nothing is learnt here."""
        return {}


def predict_coupled(
    posterior: CoupledPosterior, task: int, X: FloatArray, *, with_var: bool = True
) -> tuple[FloatArray, FloatArray]:
    """Latent mean (n,) of new rows of a task, and variance (empty unless asked for)."""
    mean, var = np.empty(len(X)), np.empty(len(X) if with_var else 0)
    own = posterior.own[task]
    F_own = _own_features(posterior, task) if with_var else None
    step = max(1, _CHUNK_ENTRIES // max(1, len(own.X) + len(posterior.known.m)))
    for start in range(0, len(X), step):
        part = slice(start, start + step)
        mean[part], F, k = _mean_at(posterior, task, X[part])
        if with_var:
            h = k - F_own.T @ F
            prior_var = sum(q.within[task] * q.kernel.diag(X[part]) for q in posterior.terms)
            var[part] = prior_var - np.einsum("dn,dn->n", F, F) - np.einsum("in,in->n", h, own.inverse @ h)
            J = _unsure(posterior, task, F, F_own, h)
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
        mean[rows], F, k = _mean_at(posterior, task, X[rows])
        F_own = _own_features(posterior, task)
        h = k - F_own.T @ F
        prior_cov = sum(q.within[task] * q.kernel(X[rows]) for q in posterior.terms)
        cov[np.ix_(rows, rows)] = prior_cov - F.T @ F - h.T @ (own.inverse @ h)
        J[:, rows] = _unsure(posterior, task, F, F_own, h)
        added[rows] = 0 if own.known is None else 1 + task
    cov += (J.T @ J) * (added[:, None] == added[None, :])
    return mean, cov


def _mean_at(posterior: CoupledPosterior, task: int, X: FloatArray):
    """Mean (n,), features F (D, n), and covariances k (n_t, n) of the function to the task's rows."""
    own = posterior.own[task]
    F = _features(posterior, task, X)
    k = np.zeros((len(own.X), len(X)))
    if len(own.X):
        for term in posterior.terms:
            if term.within[task]:
                k += term.within[task] * kernel_columns(term.kernel, own.X, X)
    return own.weights @ F + own.alpha @ k, F, k


def _own_features(posterior: CoupledPosterior, task: int) -> FloatArray:
    """F (D, n) of the task's own rows."""
    own = posterior.own[task]
    return _features(posterior, task, own.X) if own.F is None else own.F


def _unsure(posterior, task, F, F_own, h) -> FloatArray:
    """inner^-1 J (D, n)."""
    own = posterior.own[task]
    known = posterior.known if own.known is None else own.known
    return solve_lower(known.inner, np.ascontiguousarray(F - F_own @ (own.inverse @ h)))


def _features(posterior: CoupledPosterior, task: int, X: FloatArray) -> FloatArray:
    """F (D, n) of rows of one task."""
    parts = [np.zeros((0, len(X)))]
    for term, chol in zip(posterior.terms, posterior.chols, strict=True):
        if chol is not None:
            Phi = solve_lower(chol, kernel_columns(term.kernel, posterior.Z, X))
            parts += [weight * Phi for weight in term.loadings[task]]
    return np.concatenate(parts)


def _no_rows(n_features: int, m: FloatArray) -> OwnRows:
    none = np.zeros(0)
    X, F = np.zeros((0, n_features)), np.zeros((len(m), 0))
    return OwnRows(X, none, np.zeros((0, 0)), F, m, RowSites(none, none))


def _own_rows(prior: CoupledPrior, settled: Settled) -> list[OwnRows]:
    blocks, q = prior.rows.blocks, settled.q
    first = np.concatenate([[0], np.cumsum([len(b) for b in blocks])])
    own: list[OwnRows | None] = [None] * len(blocks)
    keep = first[-1] * prior.n_shared <= _KEPT_FEATURES
    inverses = q.inverses(prior)
    for (members, _, _), stack, inverse in zip(prior.rows.stacks, prior.stacks, inverses, strict=True):
        for k, t in enumerate(members):
            n, rows = len(blocks[t]), slice(first[t], first[t + 1])
            sites = RowSites(settled.sites.precision[rows], settled.sites.shift[rows])
            F, alpha = stack.F[k, :n].T, q.alpha[rows]
            D_inv, kept = np.array(inverse[k, :n, :n]), np.array(F, order="C") if keep else None
            own[t] = OwnRows(blocks[t].X, alpha, D_inv, kept, q.m - F @ alpha, sites)
    return own
