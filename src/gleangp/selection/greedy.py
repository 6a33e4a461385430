"""The informative vector machine on one block: rows are filtered in by what they are worth.

Lawrence & Platt 2004, algorithm 1; Lawrence, Platt & Jordan 2005, algorithm 1. A criterion gives the worth of
every row in nats, from the noise model's moments at its marginal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import lapack

from gleangp._typing import FloatArray
from gleangp.inference.block import Block
from gleangp.inference.filtering import Filter, speaks
from gleangp.kernels import has_white, kernel_columns, signal_diag
from gleangp.noise import NoiseModel
from gleangp.selection.base import Run, Selection, TaskChoice, join_choices

Criterion = Callable[[NoiseModel, FloatArray, FloatArray, FloatArray], FloatArray]
_MOST_EXPLAINED = 1.0 - 2.0**-53


def entropy_reduction(noise: Any, y: FloatArray, mean: FloatArray, var: FloatArray) -> FloatArray:
    """Fall of the entropy of the posterior process: -1/2 log(1 - nu var) (LPJ05 eq. 19)."""
    share = noise.precision(y, mean, var) * var if noise.log_concave else _moments(noise, y, mean, var)[0]
    return -0.5 * np.log1p(-np.minimum(share, _MOST_EXPLAINED))


def information_gain(noise: Any, y: FloatArray, mean: FloatArray, var: FloatArray) -> FloatArray:
    """Kullback-Leibler divergence of the posterior with the point from the one without.

    At the point's own marginal: 1/2 [-log(1 - nu var) - nu var + g^2 var] (Lawrence, Seeger &
    Herbrich 2003). Unlike the entropy it also counts how far the mean moves.
    """
    share, g = _moments(noise, y, mean, var)
    return 0.5 * (-np.log1p(-np.minimum(share, _MOST_EXPLAINED)) - share + g * g * var)


def _moments(noise: Any, y, mean, var) -> tuple[FloatArray, FloatArray]:
    """nu var and g, neither of which is more than zero for rows without a sound site (`filtering.speaks`)."""
    log_z, g, nu = noise.log_partition(y, mean, var)
    share = nu * var
    if noise.log_concave:
        return share, g
    sound = speaks(log_z, g, nu, var)
    return np.where(sound, share, np.minimum(share, 0.0)), np.where(sound, g, 0.0)


class GreedyRun(Run):
    """A filter over the rows of a block, into which rows are taken by their worth. O(n d) a pick."""

    def __init__(
        self, kernel: Any, block: Block, criterion: Criterion, rng: np.random.Generator | None = None
    ):
        super().__init__(len(block), rng)
        self.kernel, self.block, self.criterion = kernel, block, criterion
        prior_var, self.white = prior_variances(kernel, block.X)
        self.filter = Filter(block.y, block.noise, prior_var)

    def worth(self) -> FloatArray:
        """Nats."""
        f = self.filter
        return self.criterion(f.noise, f.y, f.mean, f.var)

    def include(self, row: int) -> None:
        """Filter the row in."""
        column = kernel_columns(self.kernel, self.block.X[[row]], self.block.X)[0]
        column[row] += self.white[row]
        self.filter.include(row, column)

    def choice(self, count: int, block: Block) -> TaskChoice:
        """All picks; of such a run none is made ahead."""
        return TaskChoice(np.array(self.picks, dtype=np.intp), np.array(self.gains), self.filter.sites())


def prior_variances(kernel: Any, X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Prior variance of every row, and what of it is white."""
    signal = signal_diag(kernel, X)
    white = kernel.diag(X) - signal if has_white(kernel) else np.zeros(len(X))
    return signal + white, white


def keep_everything(kernel, blocks: list[Block]) -> Selection:
    """All rows of all blocks, in the order in which greedy entropy would have taken them.

    With Gaussian noise of variance s_n the gain of a point grows with its posterior variance over s_n, so the
    greedy order is that of a Cholesky factorisation with complete pivoting of s^-1/2 K s^-1/2 + 1, and the
    gain of a pick is log(pivot). One LAPACK call per task.
    """
    choices = [_keep_block(kernel, block) for block in blocks]
    task = np.repeat(np.arange(len(blocks)), [len(b) for b in blocks])
    gain = np.concatenate([c.gain for c in choices])  # falls within a task: a stable sort merges the tasks
    return join_choices(task[np.lexsort((task, -gain))], choices)


def _keep_block(kernel, block: Block) -> TaskChoice:
    """All rows of one block, in greedy order."""
    root = np.broadcast_to(np.sqrt(block.noise.variance), len(block))
    C = kernel(block.X) / root / root[:, None]
    C.flat[:: len(C) + 1] += 1.0
    factor, pivots, rank, _ = lapack.dpstrf(C, lower=1, tol=0.0, overwrite_a=1)
    gain = np.zeros(len(block))
    gain[:rank] = np.log(np.diagonal(factor)[:rank])
    return TaskChoice(pivots.astype(np.intp) - 1, np.minimum.accumulate(np.maximum(gain, 0.0)))
