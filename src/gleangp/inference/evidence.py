"""The posterior and the evidence of a `BlockPrior` under Gaussian sites, and the gradient of the evidence.

Row i has the site exp(shift f - precision f^2 / 2). With R = diag(sqrt(precision)), so that a row without
information needs no division, and u the basis variables,

    L_b L_b^T = I + R H_b R,   V_b = L_b^-1 R F_b,   P = I + sum_b V_b^T V_b,   D_b^-1 = R L_b^-T L_b^-1 R,
    E u = P^-1 sum_b V_b^T L_b^-1 R m_b,   alpha = C^-1 m,   C = F F^T + blockdiag(H_b + 1 / precision).

A group with features of its own (blocks of one large task) has V_b = [common, own]. Its own variables are
eliminated first: with A = sum_b V_b^T V_b over its blocks and C_o = I + A_oo,

    P += A_cc - A_co C_o^-1 A_oc.

Gradient. With G = (alpha alpha^T - C^-1) / 2, restricted to a block, and S = cov(u) of its features,

    d/dK_bb = G,    d/dF_b = alpha E[u]^T - D_b^-1 F_b S - 2 G F_b,

and K_zz follows from the invariance under rotations of the basis (`Basis.gradients`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from gleangp._state import check_arrays, check_factor
from gleangp._typing import FloatArray
from gleangp.inference.prior import BlockPrior, BuiltStack, Part
from gleangp.numerics.linalg import (
    cholesky,
    inverse_factors,
    inverse_from_cholesky,
    inverse_of,
    log_determinant,
    solve_cholesky,
    solve_lower,
    triangular_times,
)

LOG_TWO_PI = np.log(2.0 * np.pi)
_FAINT = 1e-9  # precision times variance below which a site's effect is lost in rounding


@dataclass(frozen=True, slots=True, eq=False)
class RowSites:
    """Sites of all rows, in natural form."""

    precision: FloatArray  # (n,)
    shift: FloatArray  # (n,) precision * site mean
    n_silent: int = 0  # rows without effect because the noise model would widen the posterior

    def at(self, rows) -> RowSites:
        """The sites of some rows."""
        return RowSites(self.precision[rows], self.shift[rows])

    @property
    def mean(self) -> FloatArray:
        """(n,) where each would have the function; zero for a row that says nothing."""
        out = np.zeros_like(self.shift)
        return np.divide(self.shift, self.precision, out=out, where=self.precision > 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Knowledge:
    """Of the common basis variables: u ~ N(mean, P^-1)."""

    mean: FloatArray  # (D,)
    inner: FloatArray  # (D, D) lower factor of P

    def _check_state(self) -> None:
        check_arrays(self, mean="D derived", inner="D D derived")
        check_factor("Knowledge.inner", self.inner)


@dataclass(frozen=True, slots=True, eq=False)
class GroupKnowledge:
    """Of the own basis variables v of a group, given the common ones: v | u ~ N(offset - back u, C_o^-1)."""

    offset: FloatArray  # (q,)
    back: FloatArray  # (q, d) C_o^-1 A_oc
    factor: FloatArray  # (q, q) lower factor of C_o

    def mean(self, common: FloatArray) -> FloatArray:
        """(D,) of the common and the own variables, from that of the common ones."""
        return np.concatenate([common, self.offset - self.back @ common])

    def cov(self, common: FloatArray) -> FloatArray:
        """(D, D) the same for the covariance."""
        if len(self.factor) == 0:
            return common
        cross = -self.back @ common
        own = inverse_from_cholesky(self.factor) - cross @ self.back.T
        return np.block([[common, cross.T], [cross, own]])

    def _check_state(self) -> None:
        check_arrays(self, offset="q derived", back="q d derived", factor="q q derived")
        check_factor("GroupKnowledge.factor", self.factor)


@dataclass(frozen=True, slots=True, eq=False)
class Conditioned:
    """Posterior given Gaussian sites."""

    common: Knowledge
    common_cov: FloatArray  # (d, d) P^-1
    groups: list[GroupKnowledge]
    log_det: float  # log |I + K S|
    misfit: float  # m^T C^-1 m
    alpha: FloatArray  # (n,)
    mean: FloatArray  # (n,) of f at the rows
    also: FloatArray  # (n,) one more quantity of the rows; zero without `also`
    root: FloatArray  # (n + 1,) square roots of the precisions, and zero for padded rows
    jitter: float = 0.0  # largest that a block needed, as a share of its diagonal


def _integrated_out(A: FloatArray, b: FloatArray, d: int) -> tuple[GroupKnowledge, FloatArray, FloatArray]:
    """What is known of a group's own variables given the common ones, and what they leave of A and b.

    A and b are the information on both, the d common variables first. E and e are the own part of A's rows
    and of b, divided by the Cholesky factor of its precision: E^T E and E^T e are taken off the common part.
    """
    chol = cholesky(np.eye(len(b) - d) + A[d:, d:])[0]
    E, e = solve_lower(chol, np.ascontiguousarray(A[d:, :d])), solve_lower(chol, b[d:])
    back, offset = (solve_lower(chol, part, transposed=True) for part in (E, e))
    return GroupKnowledge(offset, back, chol), E, e


def condition(
    prior: BlockPrior,
    precision: FloatArray,
    shift: FloatArray,
    known: Knowledge | None = None,
    *,
    rows: bool = True,
    also: Callable[..., FloatArray] | None = None,
) -> Conditioned:
    """Absorb the sites of all rows, starting from what is known of u (None: u ~ N(0, I)).

    With `rows=False` the quantities of every row (`alpha`, `mean`) are left out, which saves a pass. `also`
    is one more of them: `row_variance` or `row_inverse`.
    """
    n, d = len(prior.X), prior.n_features()
    root = np.append(np.sqrt(precision), 0.0)
    scaled = np.append(np.divide(shift, root[:-1], out=np.zeros(n), where=root[:-1] > 0.0), 0.0)
    if known is None:
        before, prior_mean, log_det = np.eye(d), np.zeros(d), 0.0
    else:
        before, prior_mean = known.inner @ known.inner.T, known.mean
        log_det = -log_determinant(known.inner)
    P, rhs, square, jitter = before.copy(), before @ prior_mean, 0.0, 0.0
    groups = []
    for g, sums in groupby(prior.map(_absorb, (root, scaled)), key=itemgetter(0)):
        D = prior.n_features(g)
        A, b = np.zeros((D, D)), np.zeros(D)
        for _, _, (of_A, of_b, of_square, of_log_det, added) in sums:
            A += of_A
            b += of_b
            square += of_square
            log_det += of_log_det
            jitter = max(jitter, added)
        own, E, e = _integrated_out(A, b, d)
        log_det += log_determinant(own.factor)
        square -= float(e @ e)
        P += A[:d, :d] - E.T @ E
        rhs += b[:d] - E.T @ e
        groups.append(own)
    inner = cholesky(P)[0]
    mean = solve_cholesky(inner, rhs)
    log_det += log_determinant(inner)
    # m^T C^-1 m, and the distance of u from what was known: errors of the mean enter squared.
    misfit = square + float(prior_mean @ before @ prior_mean - mean @ rhs)
    P_inv = inverse_from_cholesky(inner)
    of_rows = np.zeros((3, n + 1))
    if rows:
        by_row, shared = (root, scaled, np.arange(n + 1) < n), (mean, P_inv if also else None, also)
        for _, at, found in prior.map(_row_moments, by_row, shared, groups):
            for values, some in zip(of_rows, found, strict=True):
                values[at] = some
    common, (alpha, of_mean, more) = Knowledge(mean, inner), of_rows[:, :n]
    return Conditioned(common, P_inv, groups, log_det, misfit, alpha, of_mean, more, root, jitter)


def _absorb(
    built: BuiltStack, of_group: None, r: FloatArray, scaled: FloatArray
) -> tuple[FloatArray, FloatArray, float, float, float]:
    """What a stack adds to sums: V^T V, V^T z, z^T z with z = L^-1 R m, log |I + R H R|; and its jitter."""
    half, V, log_det, jitter = _factors(built, r)
    z = _times(half, scaled)
    flat = V.reshape(z.size, V.shape[2])
    return flat.T @ flat, z.ravel() @ flat, float(np.vdot(z, z)), log_det, jitter


def _row_moments(
    built: BuiltStack, own: GroupKnowledge, r, scaled, real, mean, cov, also
) -> tuple[FloatArray, FloatArray, Any]:
    """alpha, posterior mean and the quantity `also` of the rows of a stack."""
    half, V = _factors(built, r)[:2]
    mean = own.mean(mean)
    alpha = r * _times(half.transpose(0, 2, 1), _times(half, scaled) - V @ mean)
    more = 0.0 if also is None else also(built, r, real, own.cov(cov))
    return alpha, built.F @ mean + _times(built.H, alpha), more


def gaussian_evidence(q: Conditioned, precision: FloatArray) -> float:
    """log p(y) where sites are y with noise of variance 1 / precision."""
    return float(0.5 * (np.sum(np.log(precision) - LOG_TWO_PI) - q.log_det - q.misfit))


def row_variance(built: BuiltStack, r, real, cov) -> FloatArray:
    """Posterior variance of f at the rows of a stack."""
    half, V = _factors(built, r)[:2]
    J = triangular_times(half, V.copy(), transposed=True)  # 1/R times F - F D^-1 H, row by row
    left = 1.0 - np.einsum("bij,bij->bj", half, half) + _quadratic(J, cov)
    faint, diagonal = left < _FAINT, np.einsum("bii->bi", built.H)
    var = np.divide(left, r * r, out=np.zeros_like(left), where=~faint)
    for b in np.flatnonzero((faint & real).any(axis=1)):
        some = np.flatnonzero(faint[b] & real[b])
        seen = half[b] @ (r[b][:, None] * built.H[b][:, some])  # L^-1 R H
        J_some = built.F[b, some] - seen.T @ V[b]
        var[b, some] = diagonal[b, some] - np.einsum("in,in->n", seen, seen) + _quadratic(J_some, cov)
    return np.maximum(var, 1e-300)


def row_inverse(built: BuiltStack, r, real, cov) -> FloatArray:
    """Diagonal of C^-1 at the rows of a stack.

    (alpha^2 - C^-1) / 2 is the derivative of the log evidence in the noise variance of a row.
    """
    half, V = _factors(built, r)[:2]
    A = r[:, :, None] * triangular_times(half, V.copy(), transposed=True)
    return np.einsum("bij,bij->bj", half, half) * r * r - _quadratic(A, cov)


@dataclass(frozen=True, slots=True, eq=False)
class EvidenceGradient:
    """Gradient of the log evidence."""

    theta: list[FloatArray]  # per term (q,)
    loadings: list[FloatArray]  # per term (M, R)
    own: list[FloatArray]  # per term (M,)
    noise_variance: FloatArray  # (n,) in 1 / precision
    X: FloatArray  # (n, p) in the inputs of the rows
    Z: FloatArray  # (d, p) in the common basis points
    own_Z: dict[int | None, FloatArray]  # in the basis points of every task that has its own


def evidence_gradient(
    prior: BlockPrior, q: Conditioned, of_weights: Sequence[bool] | None = None
) -> EvidenceGradient:
    """By the explicit dependence on the covariance; sites that have settled do not contribute.

    `of_weights`: of which terms the gradients of loadings and own weights are wanted; None: of all.
    """
    terms, n = prior.terms, len(prior.X)
    theta: list[Any] = [0.0 for _ in terms]
    loadings, own = [np.zeros_like(t.loadings) for t in terms], [np.zeros_like(t.own) for t in terms]
    wanted = [True] * len(terms) if of_weights is None else of_weights
    weights = [part if w else None for w, part in zip(wanted, zip(loadings, own, strict=True), strict=True)]
    alpha, variance, dX = np.append(q.alpha, 0.0), np.zeros(n + 1), np.zeros((n + 1, prior.X.shape[1]))
    inside: dict[Part, list] = {}  # dE/dPhi Phi^T and dE/dZ so far
    for g, own_knowledge in enumerate(q.groups):
        mean, cov = own_knowledge.mean(q.common.mean), own_knowledge.cov(q.common_cov)
        for built in prior.stacks(g):
            stack = built.stack
            r = q.root[stack.rows]
            half, V = _factors(built, r)[:2]
            a, A = alpha[stack.rows], r[:, :, None] * triangular_times(half, V.copy(), transposed=True)
            shared = A @ cov
            G = a[:, :, None] * a[:, None, :] - inverse_of(half, r)
            if A.shape[2]:
                G += shared @ A.transpose(0, 2, 1)
            G *= 0.5
            variance[stack.rows] = np.einsum("bii->bi", G)
            dF = a[:, :, None] * mean - shared - 2.0 * (G @ built.F)
            d_rows = np.zeros((*stack.rows.shape, prior.X.shape[1]))
            for k, covariance in enumerate(built.covariances):
                of_theta, d_input = covariance.gradients(G, weights[k])
                theta[k] = theta[k] + of_theta
                d_rows += d_input
            d_rows += _feature_gradients(built, terms, dF, theta, weights, inside)
            dX[stack.rows] += d_rows
    dX[n] = 0.0
    dZ = np.zeros_like(prior.Z)
    own_Z = {group.task: np.zeros_like(group.Z) for group in prior.layout.groups if group.Z is not None}
    for part, (gram, moved) in inside.items():
        of_theta, d_basis = part.basis.gradients(gram)
        theta[part.term] = theta[part.term] + of_theta
        target = dZ if part.task is None else own_Z[part.task]
        target += d_basis + moved
    return EvidenceGradient(theta, loadings, own, variance[:n], dX[:n], dZ, own_Z)


def _feature_gradients(built, terms, dF, theta, weights, inside) -> FloatArray:
    """Adds the gradients through the features of a stack; returns dE/dX of its rows (B, m, p)."""
    codes, at = built.stack.codes, 0
    (B, m), d_rows = codes.shape, np.zeros((*codes.shape, 1))
    for part, K, Phi in built.crosses:
        weight, of_weights = part.weights(terms)[codes], weights[part.term]  # (B, m, R)
        end = at + weight.shape[2] * Phi.shape[1]
        of_part, at = dF[:, :, at:end].reshape(*weight.shape, -1), end
        if of_weights is not None:
            by_row = np.einsum("bmrd,bmd->bmr", of_part, Phi.reshape(B, m, -1))
            if part.task is None:
                np.add.at(of_weights[0], codes, by_row)
            else:  # sqrt(kappa) Phi: d/dkappa = 1 / (2 sqrt(kappa))
                np.add.at(of_weights[1], codes, (by_row * 0.5 / np.maximum(weight, 1e-150))[:, :, 0])
        each: Any = (weight[:, :, r, None] * of_part[:, :, r] for r in range(weight.shape[2]))
        d_phi = sum(each).reshape(Phi.shape)
        of_theta, d_input, d_basis = K.vjp(solve_lower(part.basis.chol, d_phi.T, transposed=True).T)
        theta[part.term] = theta[part.term] + of_theta
        d_rows = d_rows + np.broadcast_to(d_input, (B * m, part.basis.Z.shape[1])).reshape(B, m, -1)
        entry = inside.setdefault(part, [0.0, 0.0])
        entry[0] = entry[0] + d_phi.T @ Phi
        entry[1] = entry[1] + d_basis
    return d_rows


def _factors(built: BuiltStack, r: FloatArray) -> tuple[FloatArray, FloatArray, float, float]:
    """L^-1 (B, m, m) and V (B, m, D) of every block, the sum of log |I + R H R|, and the jitter.

    Those of the last call are used again where the sites are the same.
    """
    if not built.last or not np.array_equal(built.last[0], r):
        half, log_det, jitter = inverse_factors(built.H * (r[:, :, None] * r[:, None, :]))
        V = triangular_times(half, r[:, :, None] * built.F)
        built.last[:] = r, (half, V, log_det, jitter)
    return built.last[1]


def _quadratic(J: FloatArray, cov: FloatArray) -> FloatArray:
    """J cov J^T, diagonal only."""
    return np.einsum("...d,...d->...", J @ cov, J) if J.shape[-1] else np.zeros(J.shape[:-1])


def _times(M: FloatArray, v: FloatArray) -> FloatArray:
    return (M @ v[:, :, None])[:, :, 0]
