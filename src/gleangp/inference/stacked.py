"""Exact evidence of many small tasks at once.

Tasks are put into stacks of nearly equal size and padded with rows that are independent of everything:
a padded row has covariance zero with all others, variance one and target zero, so it adds nothing to
the log evidence but a known constant. Kernel matrices and contractions are then array operations over
the whole stack, and only LAPACK is called task by task.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from gleangp._typing import FloatArray
from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.inference.block import Block
from gleangp.kernels.stacked import StackLinearization, linearize_stack

_LARGEST_TASK = 256  # rows; larger tasks keep LAPACK busy on their own
_STACK_ENTRIES = 130_000  # of the kernel matrices of one stack: they stay in the cache
_LOG_TWO_PI = np.log(2.0 * np.pi)


class Stack:
    """Blocks of nearly equal size with Gaussian noise, padded to one array."""

    def __init__(self, blocks: list[Block]):
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
        self.padding = None if self.real.all() else ~(self.real[:, :, None] & self.real[:, None, :])
        # Reused by every evaluation: asking the system for fresh memory costs as much as the arithmetic.
        self._C = np.empty((T, n, n))
        self._dL_dK = np.empty((T, n, n))
        self._upper = np.triu(np.ones((n, n)), 1) + 0.5 * np.eye(n)

    def log_evidence(
        self, K: StackLinearization, variance: float | None = None
    ) -> tuple[float, FloatArray, FloatArray]:
        """Sum of log N(y | 0, K + variance), its gradient in theta, and in every row's variance.

        None: the variances of the blocks' own noise.
        """
        T, n = self.y.shape
        C = K.value if K.spare and K.value.shape == self._C.shape else self._C
        if C is self._C:
            np.copyto(C, K.value)
        if self.padding is not None:
            C[self.padding] = 0.0
        diagonal = np.einsum("tii->ti", C)  # a view that can be written to
        diagonal += self.variance if variance is None else variance
        if self.padding is not None:
            diagonal[~self.real] = 1.0
        weights = np.empty((T, n))
        for t in range(T):
            # The symmetric matrix is its own transpose: LAPACK's lower triangle is our upper one.
            chol, info = lapack.dpotrf(C[t].T, lower=1, clean=0, overwrite_a=1)
            if info:
                raise NotPositiveDefiniteError(f"the covariance of a task of {n} rows has no Cholesky factor")
            weights[t] = lapack.dpotrs(chol, self.y[t], lower=1)[0]
        log_det = 2.0 * float(np.log(diagonal).sum())
        for t in range(T):
            lapack.dpotri(C[t].T, lower=1, overwrite_c=1)
        value = -0.5 * (float(np.sum(weights * self.y)) + log_det + self.real.sum() * _LOG_TWO_PI)
        # dL/dK = (w w^T - C^-1) / 2, folded onto the upper triangle, where LAPACK left the inverse.
        dL_dK = np.multiply(weights[:, :, None], weights[:, None, :], out=self._dL_dK)
        dL_dK -= C
        dL_dK *= self._upper
        if self.padding is not None:
            dL_dK[self.padding] = 0.0
        return value, K.theta_vjp(dL_dK), np.einsum("tii->ti", dL_dK)[self.real]


def stack_blocks(kernel, blocks: list[Block]) -> tuple[list[Stack], list[Block]]:
    """Stacks of small blocks, and the blocks that are better left alone."""
    small = sorted((b for b in blocks if 0 < len(b) <= _LARGEST_TASK), key=len)
    alone = [b for b in blocks if len(b) > _LARGEST_TASK]
    if len(small) < 4 or linearize_stack(kernel, small[0].X[None]) is None:
        return [], [b for b in blocks if len(b)]
    return [Stack([small[k] for k in group]) for group in group_sizes([len(b) for b in small])], alone


def group_sizes(sizes: list[int]) -> list[range]:
    """Runs of ascending sizes that may be padded to one array: padding costs cubically."""
    groups, start = [], 0
    while start < len(sizes):
        limit = max(sizes[start] + 4, int(1.2 * sizes[start]))  # a fifth larger than the smallest
        most = max(1, _STACK_ENTRIES // limit**2)
        stop = start
        while stop < len(sizes) and sizes[stop] <= limit and stop - start < most:
            stop += 1
        groups.append(range(start, stop))
        start = stop
    return groups
