"""Neighbourhoods: rows of a large task cut into blocks of about equal size, whose rows lie close together."""

from __future__ import annotations

import numpy as np

from gleangp._typing import FloatArray, IntArray

_SAMPLED = 1000  # rows from which the width of columns is computed


def neighbourhoods(X: FloatArray, size: int) -> list[IntArray]:
    """Row numbers of blocks of nearly equal size, at most `size`, by splits along the widest column.

    X (n, p) is in units in which distances matter (inputs over length scales). Sizes differ by one at most,
    so that blocks stack.

    Examples
    --------
    >>> import numpy as np
    >>> [len(rows) for rows in neighbourhoods(np.arange(10.0)[:, None], 4)]
    [3, 4, 3]
    """
    blocks, stack = [], [(np.arange(len(X)), max(1, -(-len(X) // size)))]
    while stack:
        rows, n_blocks = stack.pop()
        if n_blocks == 1:
            blocks.append(rows)
            continue
        left = n_blocks // 2
        cut = round(len(rows) * left / n_blocks)
        widest = np.argmax(X[rows[:: -(-len(rows) // _SAMPLED)]].var(axis=0))
        order = np.argpartition(X[rows, widest], cut)
        stack += [(rows[order[cut:]], n_blocks - left), (rows[order[:cut]], left)]
    return blocks
