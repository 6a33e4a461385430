"""Do tasks have anything in common? A score test that only needs the model in which they do not.

Under independent tasks y_t ~ N(0, C_t). Let a function common to all have variance rho k: the evidence rises
from rho = 0 with the slope (Rao 1948, the score)

    sum over pairs s < t of  S_st = alpha_s^T K(X_s, X_t) alpha_t,     alpha_t = C_t^-1 y_t,

because only the covariance between tasks changes. If tasks are independent, the S_st have mean zero, are
uncorrelated, and have variance V_st = tr(C_s^-1 K_st C_t^-1 K_ts). Two numbers in standard deviations follow:
the sum of all S_st asks for one common function; the sum of S_st^2 / V_st, which has mean 1 per pair and
variance near 2, asks for pairs that are alike or opposite. O(n^2 times the rows of a task).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gleangp._typing import FloatArray
from gleangp.inference.coupled import Conditioned, CoupledPrior
from gleangp.kernels import kernel_columns


@dataclass(frozen=True, slots=True)
class Relatedness:
    """What speaks for covariance between tasks, in standard deviations under independence."""

    common: float  # for one common function
    pairs: float  # for pairs of tasks that are alike or opposite


def relatedness(prior: CoupledPrior, q: Conditioned) -> Relatedness:
    """The test, for a prior with one term and nothing shared, and its posterior given the sites."""
    blocks = prior.rows.blocks
    first = np.concatenate([[0], np.cumsum([len(b) for b in blocks])])[:-1]
    X = np.vstack([b.X for b in blocks])
    K = kernel_columns(prior.terms[0].kernel, X, X)
    slopes = _by_pairs(q.alpha[:, None] * K * q.alpha, first)
    inverses = _inverses(prior, q)
    half = _times_blocks(inverses, K, first)  # C_s^-1 K_st: V_st = tr(half_st half_ts)
    variances = _by_pairs(half * half.T, first)
    upper = np.triu_indices(len(blocks), 1)
    slope, variance = slopes[upper], variances[upper]
    known = variance > 1e-12 * np.max(variance, initial=0.0)
    if not known.any():
        return Relatedness(0.0, 0.0)
    slope, variance = slope[known], variance[known]
    pairs = (np.sum(slope**2 / variance) - len(slope)) / np.sqrt(2.0 * len(slope))
    return Relatedness(float(slope.sum() / np.sqrt(variance.sum())), float(pairs))


def _inverses(prior: CoupledPrior, q: Conditioned) -> list[FloatArray]:
    """C_t^-1 of every block."""
    inverses = [np.zeros((0, 0)) for _ in prior.rows.blocks]
    for (members, _, _), stack in zip(prior.rows.stacks, q.inverses(prior), strict=True):
        for k, t in enumerate(members):
            n = len(prior.rows.blocks[t])
            inverses[t] = stack[k, :n, :n]
    return inverses


def _times_blocks(inverses: list[FloatArray], M: FloatArray, first) -> FloatArray:
    """blockdiag(C_t^-1) M."""
    out = np.empty_like(M)
    for C_inv, start in zip(inverses, first, strict=True):
        rows = slice(start, start + len(C_inv))
        out[rows] = C_inv @ M[rows]
    return out


def _by_pairs(M: FloatArray, first) -> FloatArray:
    """Sums over the blocks of a matrix, (tasks, tasks)."""
    return np.add.reduceat(np.add.reduceat(M, first, axis=0), first, axis=1)
