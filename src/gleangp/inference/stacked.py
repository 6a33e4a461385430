"""Exact evidence of many small tasks at once.

Tasks are put into stacks of nearly equal size and padded with rows that are independent of everything:
a padded row has covariance zero with all others, variance one and target zero, so it adds nothing to
the log evidence but a known constant. Kernel matrices and contractions are then array operations over
the whole stack (over every pair of rows once, where the kernel has a rule for that), and only LAPACK is
called task by task.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from gleangp._typing import FloatArray
from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.inference.block import Block
from gleangp.kernels.pairs import Pairs, pair_rule
from gleangp.kernels.stacked import StackLinearization, linearize_stack

_LARGEST_TASK = 256  # rows; larger tasks keep LAPACK busy on their own
_STACK_ENTRIES = 130_000  # of the kernel matrices of one stack: they stay in the cache
_PADDING = 20_000  # entries that take as long as the calls for one more stack
_LOG_TWO_PI = np.log(2.0 * np.pi)


class Stack:
    """Blocks of nearly equal size with Gaussian noise, padded to one array."""

    def __init__(self, kernel, blocks: list[Block]):
        n = max(len(b) for b in blocks)
        T, p = len(blocks), blocks[0].X.shape[1]
        self.blocks = blocks
        self.X = np.empty((T, n, p))
        self.y = np.zeros((T, n))
        self.real = np.zeros((T, n), dtype=bool)
        self.variance = np.zeros((T, n))
        for t, block in enumerate(blocks):
            self.X[t, : len(block)] = block.X
            self.X[t, len(block) :] = block.X[0]
            self.y[t, : len(block)] = block.y - block.noise.bias
            self.real[t, : len(block)] = True
            self.variance[t, : len(block)] = block.noise.variance
        # Reused by every evaluation: asking the system for fresh memory costs as much as the arithmetic.
        self._C = np.empty((T, n, n))
        pairs = Pairs(self.X)
        self._rule = pair_rule(kernel, pairs)
        self._reduce = _OverMatrices(self) if self._rule is None else _OverPairs(self, pairs)

    def log_evidence(self, kernel, variance=None) -> tuple[float, FloatArray, FloatArray] | None:
        """Sum of log N(y | 0, K + variance), its gradient in theta, and in every row's variance.

        `kernel` is the one that the stack was made for, at any theta; `variance` None means the blocks' own.
        None is given back where length scales are so short that distances must be taken one by one.
        """
        if self._rule is not None:
            value, theta_vjp = self._rule(kernel)
            C = self._reduce.fill(self._C, value)
        else:
            K = linearize_stack(kernel, self.X)
            if K is None:
                return None
            theta_vjp = K.theta_vjp
            C = self._reduce.fill(self._C, K)
        diagonal = np.einsum("tii->ti", C)  # a view that can be written to
        diagonal += self.variance if variance is None else variance
        if self._reduce.padding is not None:
            diagonal[~self.real] = 1.0
        weights, log_det = _invert(C, self.y)
        value = -0.5 * (float(np.sum(weights * self.y)) + log_det + self.real.sum() * _LOG_TWO_PI)
        # dL/dK = (w w^T - C^-1) / 2, folded onto the upper triangle, where LAPACK left the inverse.
        dL_dK, d_variance = self._reduce.sensitivity(C, weights)
        return value, theta_vjp(dL_dK), d_variance[self.real]


def _invert(C: FloatArray, y: FloatArray) -> tuple[FloatArray, float]:
    """C^-1 y (T, n) and the sum of the log determinants; leaves C^-1 in the upper triangles of C."""
    weights = np.empty_like(y)
    for t in range(len(C)):
        # The symmetric matrix is its own transpose: LAPACK's lower triangle is our upper one.
        chol, info = lapack.dpotrf(C[t].T, lower=1, clean=0, overwrite_a=1)
        if info:
            raise NotPositiveDefiniteError(
                f"the covariance of a task of {len(C[t])} rows has no Cholesky factor"
            )
        weights[t] = lapack.dpotrs(chol, y[t], lower=1)[0]
    log_det = 2.0 * float(np.log(np.einsum("tii->ti", C)).sum())
    for t in range(len(C)):
        lapack.dpotri(C[t].T, lower=1, overwrite_c=1)
    return weights, log_det


class _OverPairs:
    """Kernel values and sensitivities of every pair of rows once."""

    def __init__(self, stack: Stack, pairs: Pairs):
        self.pairs, self.entries = pairs, pairs.entries
        both = np.logical_and(*pairs.at(stack.real))
        self.padding = None if both.all() else ~both
        self._fold = np.where(pairs.is_row, 0.5, 1.0)
        self._dL_dK, self._inverse = np.empty(pairs.shape), np.empty(pairs.shape)

    def fill(self, C: FloatArray, value: FloatArray) -> FloatArray:
        """C with the values in its upper triangles."""
        C.reshape(len(C), -1)[:, self.entries] = value
        if self.padding is not None:
            C.reshape(len(C), -1)[:, self.entries] *= ~self.padding
        return C

    def sensitivity(self, C: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """dL/dK of every pair, and of every row with itself."""
        # With mode="clip" NumPy writes to `out` without a copy; no entry is out of range.
        np.take(C.reshape(len(C), -1), self.entries, axis=1, out=self._inverse, mode="clip")
        dL_dK = np.multiply(*self.pairs.at(weights), out=self._dL_dK)
        dL_dK -= self._inverse
        dL_dK *= self._fold
        if self.padding is not None:
            dL_dK[self.padding] = 0.0
        return dL_dK, dL_dK[:, self.pairs.is_row]


class _OverMatrices:
    """The same with whole matrices, for any kernel that can be stacked."""

    def __init__(self, stack: Stack):
        n = stack.y.shape[1]
        self.padding = None if stack.real.all() else ~(stack.real[:, :, None] & stack.real[:, None, :])
        self._dL_dK = np.empty_like(stack._C)
        self._upper = np.triu(np.ones((n, n)), 1) + 0.5 * np.eye(n)

    def fill(self, C: FloatArray, K: StackLinearization) -> FloatArray:
        """The values of the kernel, in C or where they are if they may be overwritten."""
        if K.spare and K.value.shape == C.shape:
            C = K.value
        else:
            np.copyto(C, K.value)
        if self.padding is not None:
            C[self.padding] = 0.0
        return C

    def sensitivity(self, C: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """dL/dK on the upper triangles, and of every row with itself."""
        dL_dK = np.multiply(weights[:, :, None], weights[:, None, :], out=self._dL_dK)
        dL_dK -= C
        dL_dK *= self._upper
        if self.padding is not None:
            dL_dK[self.padding] = 0.0
        return dL_dK, np.einsum("tii->ti", dL_dK)


def stack_blocks(kernel, blocks: list[Block]) -> tuple[list[Stack], list[Block]]:
    """Stacks of small blocks, and the blocks that are better left alone."""
    small = sorted((b for b in blocks if 0 < len(b) <= _LARGEST_TASK), key=len)
    alone = [b for b in blocks if len(b) > _LARGEST_TASK]
    if len(small) < 4 or linearize_stack(kernel, small[0].X[None]) is None:
        return [], [b for b in blocks if len(b)]
    return [Stack(kernel, [small[k] for k in group]) for group in group_sizes([len(b) for b in small])], alone


def group_sizes(
    sizes: list[int], entries: int = _STACK_ENTRIES, *, rows: int | None = None, padding: int = _PADDING
) -> list[range]:
    """Runs of ascending sizes that are padded to one array, of at most so many entries and rows.

    Padding costs cubically, so sizes in a stack differ by a fifth at most (or two rows), unless all that is
    padded is less than `padding` entries: small arrays take the time of the calls.
    """
    groups, start = [], 0
    while start < len(sizes):
        stop, padded = start + 1, 0
        while stop < len(sizes):
            count, last, size = stop - start, sizes[stop - 1], sizes[stop]
            padded += count * (size**2 - last**2)
            too_many = (count + 1) * size**2 > entries or (rows is not None and (count + 1) * size > rows)
            unlike = size > max(1.2 * sizes[start], sizes[start] + 2)
            if too_many or (unlike and padded > padding):
                break
            stop += 1
        groups.append(range(start, stop))
        start = stop
    return groups
