"""When every row is kept: the order in which greedy entropy would have taken them.

With Gaussian noise of variance s_n the gain of a point grows with its posterior variance over s_n, so the
greedy order is that of a Cholesky factorisation with complete pivoting of s^-1/2 K s^-1/2 + 1, and the gain
of a pick is log(pivot). One LAPACK call per task.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from gleangp.inference.block import Block
from gleangp.selection.base import Selection, TaskChoice, join_choices


def keep_everything(kernel, blocks: list[Block]) -> Selection:
    """All rows of all blocks, in greedy order within and across tasks."""
    choices = [keep_block(kernel, block) for block in blocks]
    task = np.repeat(np.arange(len(blocks)), [len(b) for b in blocks])
    gain = np.concatenate([c.gain for c in choices])  # falls within a task: a stable sort merges the tasks
    return join_choices(task[np.lexsort((task, -gain))], choices)


def keep_block(kernel, block: Block) -> TaskChoice:
    """All rows of one block, in greedy order."""
    root = np.broadcast_to(np.sqrt(block.noise.variance), len(block))
    C = kernel(block.X) / root / root[:, None]
    C.flat[:: len(C) + 1] += 1.0
    factor, pivots, rank, _ = lapack.dpstrf(C, lower=1, tol=0.0, overwrite_a=1)
    gain = np.zeros(len(block))
    gain[:rank] = np.log(np.diagonal(factor)[:rank])
    return TaskChoice(pivots.astype(np.intp) - 1, np.minimum.accumulate(np.maximum(gain, 0.0)))
