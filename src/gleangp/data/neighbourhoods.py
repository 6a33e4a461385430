"""Neighbourhoods of a large task: blocks of rows that lie close together, and the rows nearest to a point."""

from collections.abc import Callable

import numpy as np
from scipy.spatial import cKDTree
from sklearn.neighbors import NearestNeighbors

from gleangp._typing import FloatArray, IntArray

_SAMPLED = 1000  # rows from which the width of columns is computed
_TREE_COLUMNS = 15  # with more columns a tree has to look at most rows


def neighbourhoods(X: FloatArray, size: int) -> list[IntArray]:
    """Row numbers of blocks of nearly equal size, at most `size`, by splits along the widest column.

    X (n, p) is in units in which distances matter (inputs over length scales). Sizes differ by one at most,
    so that blocks stack.
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


def finder(rows: FloatArray, count: int) -> Callable[[FloatArray], IntArray]:
    """A function from points (n, p) to the numbers (n, count) of the nearest rows."""
    if rows.shape[1] > _TREE_COLUMNS:
        brute = NearestNeighbors(n_neighbors=count, algorithm="brute").fit(rows)
        return lambda X: brute.kneighbors(X, return_distance=False)
    # Splits in the middle of a cell: half the time of medians, and queries are as fast.
    tree = cKDTree(rows, balanced_tree=False, compact_nodes=False)
    return lambda X: tree.query(X, k=np.arange(1, count + 1))[1]
