"""Selection by sampling: a point's chance is proportional to what is still unexplained about it.

For Gaussian noise this is randomly pivoted Cholesky (Chen, Epperly, Tropp & Webber 2025): the weight
is the prior variance that the points chosen so far leave unexplained. It neither runs to the
periphery, as the greedy entropy does in many dimensions, nor misses small clusters, as uniform
sampling does. Blocks of proposals are drawn at once and thinned by rejection (Epperly, Tropp & Webber
2024), which leaves the law of the picks unchanged and turns the work into matrix products.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gleangp._typing import FloatArray
from gleangp.inference.block import Block
from gleangp.kernels import kernel_columns, signal_diag, white_diag
from gleangp.numerics.linalg import solve_lower
from gleangp.selection.base import Run, TaskChoice
from gleangp.selection.greedy import entropy_reduction

_PROPOSALS = 32
# A row is explained when this share of its prior variance is left: float64 kernels know no more.
_EXPLAINED = 1e-12


class PivotedRun(Run):
    """Randomly pivoted partial Cholesky of the prior covariance of one block, without white noise.

    Picks are made in blocks, so there may be more of them than were asked for. Their scores are the variances
    that were left unexplained, and the weight of the task is the sum of these.
    """

    rng: np.random.Generator

    def __init__(self, kernel: Any, X: FloatArray, rng: np.random.Generator):
        super().__init__(len(X), rng)
        self.kernel, self.X = kernel, X
        self.residual = signal_diag(kernel, X).astype(np.float64)
        self._floor = _EXPLAINED * self.residual
        self._rows = np.empty((0, len(X)))  # of the factor, the first `_size` count
        self._size = 0

    def worth(self) -> FloatArray:
        """Unexplained variance."""
        return self.residual

    def extend(self, count: int) -> PivotedRun:
        """Draw at least `count` more rows, or as many as there are."""
        target = min(len(self.picks) + count, len(self))
        self._reserve(target - self._size + _PROPOSALS)
        while len(self.picks) < target:
            if not self.residual.any():  # everything is explained: rows left are alike
                self.take(self.choose(self.scores()))
            else:
                self._propose(min(_PROPOSALS, max(1, len(self) // 8)))
        return self

    def include(self, row: int) -> None:
        """Take what the row explains off all others."""
        if self.residual[row] > 0.0:
            done = self._rows[: self._size]
            column = kernel_columns(self.kernel, self.X[[row]], self.X) - done[:, row] @ done
            self._append(column / np.sqrt(self.residual[row]))
            self._explain(row, self._rows[self._size - 1])

    def choice(self, count: int, block: Block) -> TaskChoice:
        """The first `count` picks, with the entropy that each removed."""
        kept = block.at(np.array(self.picks[:count], dtype=np.intp))
        var = np.array(self.gains[:count]) + white_diag(self.kernel, kept.X)
        gain = entropy_reduction(kept.noise, kept.y, np.zeros(count), var)
        return TaskChoice(np.array(self.picks[:count], dtype=np.intp), gain)

    def _propose(self, n_proposals: int) -> None:
        proposals = self.rng.choice(len(self), size=n_proposals, p=self.residual / self.residual.sum())
        thresholds = self.rng.random(n_proposals) * self.residual[proposals]
        done = self._rows[: self._size]
        columns = kernel_columns(self.kernel, self.X[proposals], self.X) - done[:, proposals].T @ done
        accepted, factor = _thin(columns[:, proposals], thresholds)
        if not accepted:  # by rounding, a kernel's matrix can deny the variance that its diagonal has
            denied = ~(columns[np.arange(n_proposals), proposals] > self._floor[proposals])
            self.residual[proposals[denied]] = 0.0
        new = solve_lower(factor, columns[accepted])
        for row, step in zip(proposals[accepted].tolist(), new, strict=True):
            self.weights.append(float(self.residual.sum()))
            self.gains.append(float(self.residual[row]))
            self.picks.append(row)
            self.left[row], self._scores = False, None
            self._explain(row, step)
        self._append(new)

    def _explain(self, row: int, step: FloatArray) -> None:
        self.residual -= step * step
        self.residual[(self.residual < self._floor) | ~self.left] = 0.0
        self.residual[row] = 0.0

    def _append(self, new: FloatArray) -> None:
        self._reserve(len(new))
        self._rows[self._size : self._size + len(new)] = new
        self._size += len(new)

    def _reserve(self, count: int) -> None:
        if self._size + count > len(self._rows):
            rows = np.empty((max(self._size + count, 2 * len(self._rows)), len(self)))
            rows[: self._size] = self._rows[: self._size]
            self._rows = rows


def _thin(K: FloatArray, thresholds: FloatArray) -> tuple[list[int], FloatArray]:
    """Proposals kept by rejection, and the lower factor of their residual covariance.

    A proposal is kept with probability (its variance now) / (its variance when it was drawn).
    """
    K = K.copy()
    accepted: list[int] = []
    columns: list[FloatArray] = []
    for i in range(len(K)):
        if K[i, i] > thresholds[i]:
            column = K[:, i] / np.sqrt(K[i, i])
            K -= np.outer(column, column)
            accepted.append(i)
            columns.append(column)
    factor = np.array(columns).T[accepted] if accepted else np.zeros((0, 0))
    return accepted, np.tril(factor)
