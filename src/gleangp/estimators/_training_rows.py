"""The rows a sparse estimator learns from, and the few facts it needs about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.data.tasks import blocks_of_rows
from gleangp.estimators._targets import TargetMoments, TargetUnits, target_moments
from gleangp.inference.block import Block, float64
from gleangp.models.active.tasks import TaskBlocks
from gleangp.models.local.data import canonical_order

# Rows from which the spread of the features is told: more make no difference to where a search starts.
_MOST_SAMPLED = 50_000

# From the targets of one task, and its number, to the coding of the noise model.
Coder = Callable[[np.ndarray, int], FloatArray]


class LocalRows:
    """Rows of all tasks; those without a target are left out unless the noise model has a place for them.

    Parameters
    ----------
    X : ndarray of shape (n, p)
        Inputs; of one task they may be float32.
    y : ndarray of shape (n,)
        Targets: numbers, or codes of classes.
    codes : ndarray of shape (n,)
        Task of each row.
    n_tasks : int
        Number of tasks.
    keep : ndarray of shape (n,), default=None
        Mask of the rows to learn from; None for all.
    """

    def __init__(self, X: FloatArray, y: np.ndarray, codes: IntArray, n_tasks: int, keep: Any = None):
        self.X, self.y, self.codes, self.keep = np.ascontiguousarray(X), y, codes, keep
        self.n_rows, self.n_tasks = len(X), n_tasks
        rows = blocks_of_rows(codes, n_tasks)
        self.block_rows = rows if keep is None else [r[keep[r]] for r in rows]
        self.sizes = [len(r) for r in self.block_rows]

    @cached_property
    def inputs(self) -> FloatArray:
        """Inputs of at most 50 000 of the rows, evenly spaced."""
        kept = slice(None) if self.keep is None else np.flatnonzero(self.keep)
        X = self.X[kept]
        return float64(X[evenly_spaced(len(X))])

    def moments(self) -> TargetMoments:
        """Of the targets of every task."""
        return target_moments([np.sort(self.y[r]) for r in self.block_rows])

    def counts(self, n_classes: int) -> IntArray:
        """Rows of every class; rows without one do not count."""
        return np.bincount(self.y[self.y >= 0], minlength=n_classes)

    def tasks(self, code: Coder, noise: Any, variance: FloatArray | None = None) -> TaskBlocks:
        """What to learn from."""
        every_row = [in_canonical_order(self.X, self.y, r) for r in self.block_rows]
        blocks = [
            Block(
                float64(self.X[r]),
                code(self.y[r], t),
                noise if variance is None else type(noise)(variance[r]),
            )
            for t, r in enumerate(every_row)
        ]
        return TaskBlocks(blocks, every_row)


def in_canonical_order(X: FloatArray, y: np.ndarray, rows: IntArray) -> IntArray:
    """Row numbers of a task, sorted by what is in the rows: results do not depend on their order."""
    return rows[canonical_order(X[rows], y[rows], np.zeros(len(rows), dtype=np.intp))]


def evenly_spaced(n_rows: int) -> slice:
    """Which rows to look at."""
    return slice(None, None, max(1, -(-n_rows // _MOST_SAMPLED)))


@dataclass(frozen=True)
class StandardTargets:
    """Numbers in units in which one kernel serves all tasks."""

    units: TargetUnits

    def __call__(self, y: np.ndarray, task: int) -> FloatArray:
        """(y - mean) / scale of the task."""
        return self.units.to_standard(y, np.full(len(y), task))


@dataclass(frozen=True)
class ClassSigns:
    """+1 for one class, -1 for the others, 0 without a label."""

    positive: int

    def __call__(self, y: np.ndarray, task: int) -> FloatArray:
        """From codes of classes."""
        return np.where(y < 0, 0.0, np.where(y == self.positive, 1.0, -1.0))


@dataclass(frozen=True)
class Ranks:
    """Codes of ordered categories, as they are."""

    def __call__(self, y: np.ndarray, task: int) -> FloatArray:
        """From codes of classes."""
        return y.astype(np.float64)
