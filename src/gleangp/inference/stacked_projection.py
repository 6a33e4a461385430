"""The projected evidence of many small tasks at once, for noise that is not Gaussian.

The same quantities as `inference.projected` (whose docstring has the equations), for T tasks in arrays
padded to the largest: expectation propagation sweeps over all tasks that have not settled yet. Basis
points are rows of their task and stand first among them, so that K_dd and K_dn are parts of one kernel
matrix. Padding is a row that the basis does not see and that says nothing, and a basis point of variance
one that sees no row.
White noise of the kernel would need a diagonal of its own: such kernels are evaluated task by task.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from scipy.linalg import blas

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.inference.projected import NUGGET
from gleangp.inference.row_ep import MAX_SWEEPS, TOLERANCE
from gleangp.kernels import has_white
from gleangp.kernels.stacked import StackLinearization, linearize_stack
from gleangp.noise import NoiseModel

_LARGEST_TASK = 256  # rows; larger tasks keep LAPACK busy on their own


def can_stack(kernel, block: Block) -> bool:
    """Whether a task may stand in a stack under this kernel."""
    noise = block.noise
    return (
        0 < len(block) <= _LARGEST_TASK
        and noise.precision_depends_on_mean
        and noise.log_concave
        and noise.at(slice(0, 1)) is noise  # nothing differs from row to row
        and not has_white(kernel)
        and linearize_stack(kernel, block.X[None, :1]) is not None
    )


@dataclass(slots=True, eq=False)
class _Moving:
    """Tasks whose sites still move: arrays over (task, row) but for those that say otherwise."""

    task: IntArray  # (T,) where they stand in the stack
    Phi: FloatArray  # (T, d, n)
    spread: FloatArray
    y: FloatArray
    real: np.ndarray
    precision: FloatArray
    shift: FloatArray
    last_move: FloatArray  # of the precisions
    step: FloatArray  # (T,)
    evidence: FloatArray  # (T,)

    def at(self, some: np.ndarray) -> _Moving:
        """Some of the tasks."""
        return _Moving(*(getattr(self, f.name)[some] for f in fields(self)))


@dataclass(slots=True, eq=False)
class _Settled:
    """Sites at their fixed point and what follows from them, over (task, row)."""

    precision: FloatArray
    shift: FloatArray
    mean: FloatArray
    cavity_mean: FloatArray
    cavity_var: FloatArray  # with the spread in it
    g: FloatArray
    nu: FloatArray
    evidence: FloatArray  # (T,)
    inner: FloatArray  # (T, d, d) lower factor of P
    z: FloatArray  # (T, d) inner^-1 Phi shift

    @classmethod
    def room(cls, T: int, n: int, d: int) -> _Settled:
        """Nothing known yet."""
        return cls(*np.empty((7, T, n)), np.empty(T), np.empty((T, d, d)), np.empty((T, d)))

    def put(self, tasks: IntArray, some: np.ndarray, *values: FloatArray) -> None:
        """Write down some of the tasks that were moving."""
        for f, value in zip(fields(self), values, strict=True):
            getattr(self, f.name)[tasks[some]] = value[some]


class ProjectedStack:
    """Small tasks of one noise model, each on a basis of some of its rows.

    Sites warm-start from call to call.
    """

    def __init__(self, blocks: list[Block], basis_rows: list[IntArray]):
        T, p = len(blocks), blocks[0].X.shape[1]
        n, d = max(len(b) for b in blocks), max(len(rows) for rows in basis_rows)
        self.X, self.y = np.empty((T, n, p)), np.empty((T, n))
        self.real = np.zeros((T, n), dtype=bool)
        self.in_basis = np.zeros((T, d), dtype=bool)
        for t, (block, basis) in enumerate(zip(blocks, basis_rows, strict=True)):
            m = len(block)
            order = np.concatenate([basis, np.setdiff1d(np.arange(m), basis)])
            self.X[t, :m], self.y[t, :m] = block.X[order], block.y[order]
            self.X[t, m:], self.y[t, m:] = block.X[0], block.y[0]
            self.real[t, :m] = True
            self.in_basis[t, : len(basis)] = True
        self.precision, self.shift = np.zeros((T, n)), np.zeros((T, n))

    def log_evidence(
        self, kernel, noise: NoiseModel
    ) -> tuple[float, FloatArray, dict[str, FloatArray]] | None:
        """Sum of the evidences, its gradient in theta, and in the noise parameters for every row.

        None where tasks must be taken one by one: length scales are so short that distances need to be, or
        a basis is singular, which its own task may mend by jitter.
        """
        K = linearize_stack(kernel, self.X)
        if K is None:
            return None
        try:
            return self._log_evidence(K, noise)
        except np.linalg.LinAlgError:
            return None

    def _log_evidence(self, K: StackLinearization, noise: NoiseModel):
        T, n = self.y.shape
        d = self.in_basis.shape[1]
        prior = np.broadcast_to(K.value, (T, n, n))
        seen = self.in_basis[:, :, None] & self.real[:, None, :]
        K_dn = np.where(seen, prior[:, :d], 0.0)
        C = K_dn[:, :, :d].copy()
        diagonal = np.einsum("tii->ti", C)
        count = np.maximum(self.in_basis.sum(axis=1), 1)
        diagonal += (NUGGET * diagonal.sum(axis=1) / count)[:, None]
        diagonal[~self.in_basis] = 1.0
        chol = np.linalg.cholesky(C)
        Phi = _solve(chol, K_dn)
        spread = np.einsum("tii->ti", prior) - np.einsum("tdn,tdn->tn", Phi, Phi)
        spread = np.where(self.real, np.maximum(spread, 0.0), 1.0)
        at = self._sweep(Phi, spread, noise)
        self.precision, self.shift = at.precision, at.shift

        rho = 0.5 * (at.g * at.g - at.nu)  # derivative in what the basis leaves unexplained
        m = _solve(at.inner, at.z[:, :, None].copy(), transposed=True)
        inverse = _solve(at.inner, np.broadcast_to(np.eye(d), (T, d, d)).copy())
        P_inv = inverse.transpose(0, 2, 1) @ inverse
        error = at.shift - at.precision * at.mean
        twice = Phi * (-2.0 * rho)[:, None, :]
        inside = twice @ Phi.transpose(0, 2, 1) + m @ m.transpose(0, 2, 1) + P_inv - np.eye(d)
        twice -= P_inv @ (Phi * at.precision[:, None, :])
        twice += m * error[:, None, :]
        dE_dKdn = _solve(chol, twice, transposed=True)
        half = _solve(chol, inside, transposed=True)
        dE_dKdd = -0.5 * _solve(chol, np.ascontiguousarray(half.transpose(0, 2, 1)), transposed=True)
        diagonal = np.einsum("tii->ti", dE_dKdd)
        diagonal[~self.in_basis] = 0.0
        diagonal += (NUGGET * diagonal.sum(axis=1) / count)[:, None]  # the nugget moves too

        dE_dK = np.zeros((T, n, n))
        dE_dK[:, :d] = np.where(seen, dE_dKdn, 0.0)
        dE_dK[:, :d, :d] += np.where(seen[:, :, :d], dE_dKdd, 0.0)
        np.einsum("tii->ti", dE_dK)[:] += rho
        real = self.real.reshape(-1)
        flat = (a.reshape(-1)[real] for a in (self.y, at.cavity_mean, at.cavity_var))
        return float(at.evidence.sum()), K.theta_vjp(dE_dK), noise.log_partition_grad(*flat)

    def _sweep(self, Phi: FloatArray, spread: FloatArray, noise: NoiseModel) -> _Settled:
        """Expectation propagation, as `row_ep.sweep_rows` does it for one task."""
        T, n = self.y.shape
        out = _Settled.room(T, n, Phi.shape[1])
        now = _Moving(
            np.arange(T), Phi, spread, self.y, self.real, self.precision, self.shift,
            np.zeros((T, n)), np.ones(T), np.full(T, np.inf),
        )  # fmt: skip
        for sweep in range(MAX_SWEEPS):
            inner, z, mean, var, log_det = _marginals(now)
            left = np.maximum(1.0 - now.precision * var, 1e-12)
            cavity_var = var / left
            cavity_mean = (mean - var * now.shift) / left
            total = cavity_var + now.spread
            flat = (a.reshape(-1) for a in (now.y, cavity_mean, total))
            moments = (a.reshape(now.y.shape) for a in noise.log_partition(*flat))
            log_z, g, nu = (np.where(now.real, a, 0.0) for a in moments)  # padding says nothing
            evidence = _log_evidence(now, mean, log_det, cavity_mean, cavity_var, log_z)
            settled = np.abs(evidence - now.evidence) <= TOLERANCE * (1.0 + np.abs(evidence))
            settled |= sweep == MAX_SWEEPS - 1
            now.evidence = evidence
            if settled.any():
                where = now.precision, now.shift, mean, cavity_mean, total, g, nu, evidence, inner, z
                out.put(now.task, settled, *where)
                if settled.all():
                    break
                now = now.at(~settled)
                g, nu, cavity_mean, cavity_var = (a[~settled] for a in (g, nu, cavity_mean, cavity_var))
            _move(now, g, nu, cavity_mean, cavity_var)
        return out


def _move(now: _Moving, g, nu, cavity_mean, cavity_var) -> None:
    """Sites towards those that match the moments; swings of the precisions shorten the step (`row_ep`)."""
    left, speaks = 1.0 - nu * cavity_var, nu > 0.0
    precision = np.divide(nu, left, out=np.zeros_like(nu), where=speaks)
    shift = np.divide(g + nu * cavity_mean, left, out=np.zeros_like(nu), where=speaks)
    move = precision - now.precision
    kept = np.einsum("tn,tn->t", move, now.last_move)
    kept /= np.maximum(np.einsum("tn,tn->t", now.last_move, now.last_move), 1e-300)
    now.step = np.clip(now.step / np.maximum(1.0 - kept, 0.5), 0.25, 1.0)
    now.precision = now.precision + now.step[:, None] * move
    now.shift = now.shift + now.step[:, None] * (shift - now.shift)
    now.last_move = move


def _marginals(now: _Moving):
    """Factor of P, inner^-1 Phi shift, marginal means and variances of all rows, and log |P|."""
    T, d, n = now.Phi.shape
    scaled = now.Phi * np.sqrt(now.precision)[:, None, :]
    P = scaled @ scaled.transpose(0, 2, 1)
    np.einsum("tii->ti", P)[:] += 1.0
    inner = np.linalg.cholesky(P)
    W = np.empty((T, d, n + 1))
    W[:, :, :n] = now.Phi
    W[:, :, n] = np.einsum("tdn,tn->td", now.Phi, now.shift)
    W = _solve(inner, W)
    z, W = W[:, :, n], W[:, :, :n]
    log_det = 2.0 * np.log(np.einsum("tii->ti", inner)).sum(axis=1)
    return inner, z, np.einsum("td,tdn->tn", z, W), np.einsum("tdn,tdn->tn", W, W), log_det


def _log_evidence(now: _Moving, mean, log_det, cavity_mean, cavity_var, log_z) -> FloatArray:
    """log Z of EP of every task, as `row_ep` has it."""
    precision, shift = now.precision, now.shift
    grown = 1.0 + precision * cavity_var
    exponent = shift**2 * cavity_var + 2.0 * shift * cavity_mean - precision * cavity_mean**2
    local = log_z + 0.5 * np.log(grown) - 0.5 * exponent / grown + 0.5 * shift * mean
    return local.sum(axis=1) - 0.5 * log_det


def _solve(L: FloatArray, B: FloatArray, *, transposed: bool = False) -> FloatArray:
    """L^-1 B, or L^-T B, of every task, in place of B; both in C order, L lower."""
    for lower, right in zip(L, B, strict=True):
        # In Fortran's eyes both are transposed: X A = B^T with A = L^T.
        blas.dtrsm(1.0, lower.T, right.T, side=1, lower=0, trans_a=int(transposed), overwrite_b=1)
    return B
