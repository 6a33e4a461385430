"""Selection by sampling: a point's chance is proportional to what is still unexplained about it.

For Gaussian noise this is randomly pivoted Cholesky (Chen, Epperly, Tropp & Webber 2025): the weight
is the prior variance that the points chosen so far leave unexplained. It neither runs to the
periphery, as the greedy entropy does in many dimensions, nor misses small clusters, as uniform
sampling does. Blocks of proposals are drawn at once and thinned by rejection (Epperly, Tropp & Webber
2024), which leaves the law of the picks unchanged and turns the work into matrix products.

For other noise models the weight is the entropy gain under the filter's present state.
"""

from __future__ import annotations

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.kernels import kernel_columns, signal_diag, white_diag
from gleangp.numerics.linalg import solve_lower
from gleangp.selection.base import TaskChoice, draw_row
from gleangp.selection.criteria import EntropyReduction
from gleangp.selection.greedy import GreedyRun

_PROPOSALS = 32
# A row is explained when this share of its prior variance is left: float64 kernels know no more.
_EXPLAINED = 1e-12


class PivotedRun:
    """Randomly pivoted partial Cholesky of the prior covariance of one block, without white noise.

    Attributes
    ----------
    picks : list of int
        Rows in order of inclusion.
    keys : list of float
        Total unexplained variance of the block before each pick: the task's weight in the merge.
    residuals : list of float
        Unexplained variance of each pick when it was chosen.
    """

    def __init__(self, kernel, X: FloatArray, rng: np.random.Generator):
        self.kernel = kernel
        self.X = X
        self.rng = rng
        self.residual = signal_diag(kernel, X).astype(np.float64)
        self._floor = _EXPLAINED * self.residual
        self._rows = np.empty((0, len(X)))
        self._left = np.ones(len(X), dtype=bool)
        self.picks: list[int] = []
        self.keys: list[float] = []
        self.residuals: list[float] = []

    def __len__(self) -> int:
        return len(self.X)

    @property
    def head(self) -> tuple[float, int]:
        """Total unexplained variance; which row comes next is not known before it is drawn."""
        return (float(self.residual.sum()), -1) if self._left.any() else (-np.inf, -1)

    def extend(self, count: int) -> PivotedRun:
        """Draw `count` more rows, or as many as there are."""
        target = min(len(self.picks) + count, len(self))
        self._reserve(target)
        while len(self.picks) < target:
            if not self.residual.any():
                self._fill(target - len(self.picks))
            else:
                self._propose(min(_PROPOSALS, max(1, len(self) // 8)), target - len(self.picks))
        return self

    def scores(self) -> FloatArray:
        """Unexplained variance of every row; -inf for rows that were taken."""
        return np.where(self._left, self.residual, -np.inf)

    def choose(self, scores: FloatArray) -> int:
        """A row drawn in proportion to the scores."""
        return draw_row(scores, self.rng)

    def force(self, row: int) -> None:
        """Include a row of the caller's choice."""
        size = len(self.picks)
        if size == len(self._rows):
            self._reserve(max(16, 2 * size))
        new = self._rows[size : size + 1]
        new[:] = 0.0
        if self.residual[row] > 0.0:
            done = self._rows[:size]
            new += kernel_columns(self.kernel, self.X[[row]], self.X) - done[:, row] @ done
            new /= np.sqrt(self.residual[row])
        self._record(np.array([row]), new)

    def task_sites(self):
        """None: nothing is filtered."""
        return None

    def choice(self, count: int, block: Block) -> TaskChoice:
        """The first `count` picks, with the entropy each removed."""
        rows = np.array(self.picks[:count], np.intp)
        var = np.array(self.residuals[:count]) + white_diag(self.kernel, self.X[rows])
        nu = block.noise.at(rows).precision(block.y[rows], np.zeros(count), var)
        return TaskChoice(rows, EntropyReduction().gain(nu * var))

    def _reserve(self, target: int) -> None:
        if target > len(self._rows):
            rows = np.empty((target, len(self)))
            rows[: len(self.picks)] = self._rows[: len(self.picks)]
            self._rows = rows

    def _propose(self, n_proposals: int, room: int) -> None:
        weight = self.residual / self.residual.sum()
        proposals = self.rng.choice(len(self), size=n_proposals, p=weight)
        thresholds = self.rng.random(n_proposals) * self.residual[proposals]
        size = len(self.picks)
        done = self._rows[:size]
        columns = kernel_columns(self.kernel, self.X[proposals], self.X) - done[:, proposals].T @ done
        accepted, factor = _thin(columns[:, proposals], thresholds, room)
        if not accepted:  # by rounding, a kernel's matrix can deny the variance that its diagonal has
            denied = ~(columns[np.arange(n_proposals), proposals] > self._floor[proposals])
            self.residual[proposals[denied]] = 0.0
        new = solve_lower(factor, columns[accepted])
        self._record(proposals[accepted], new)
        self._rows[size : size + len(new)] = new

    def _record(self, rows: IntArray, new: FloatArray) -> None:
        for row, step in zip(rows.tolist(), new, strict=True):
            self.keys.append(float(self.residual.sum()))
            self.residuals.append(float(self.residual[row]))
            self.picks.append(row)
            self._left[row] = False
            self.residual -= step * step
            self.residual[(self.residual < self._floor) | ~self._left] = 0.0

    def _fill(self, count: int) -> None:
        """Everything is explained: take rows uniformly, so that the budget is still used."""
        rows = self.rng.choice(np.flatnonzero(self._left), size=count, replace=False)
        size = len(self.picks)
        self._rows[size : size + count] = 0.0
        self._record(rows, self._rows[size : size + count])


def _thin(K: FloatArray, thresholds: FloatArray, room: int) -> tuple[list[int], FloatArray]:
    """Proposals kept by rejection, and the lower factor of their residual covariance.

    A proposal is kept with probability (its variance now) / (its variance when it was drawn).
    """
    K = K.copy()
    accepted: list[int] = []
    columns: list[FloatArray] = []
    for i in range(len(K)):
        if len(accepted) == room:
            break
        if K[i, i] > thresholds[i]:
            column = K[:, i] / np.sqrt(K[i, i])
            K -= np.outer(column, column)
            accepted.append(i)
            columns.append(column)
    factor = np.array(columns).T[accepted] if accepted else np.zeros((0, 0))
    return accepted, np.tril(factor)


class SampledRun:
    """A filter whose next point is drawn in proportion to its gain instead of being the best.

    `keys` holds the total gain on offer before each pick: the task's weight in the merge.
    """

    def __init__(self, run: GreedyRun, rng: np.random.Generator):
        self.run = run
        self.rng = rng
        self.keys: list[float] = []

    def __len__(self) -> int:
        return len(self.run)

    @property
    def picks(self) -> list[int]:
        """Rows in order of inclusion."""
        return self.run.picks

    @property
    def head(self) -> tuple[float, int]:
        """Total gain on offer; which row comes next is not known before it is drawn."""
        return float(self.run.candidate_gains().sum()), -1

    def extend(self, count: int) -> SampledRun:
        """Draw `count` more rows, or as many as there are."""
        for _ in range(min(count, len(self) - len(self.picks))):
            scores = self.scores()
            self._take(self.choose(scores), scores)
        return self

    def scores(self) -> FloatArray:
        """Gain of every row in nats; -inf for rows that were taken."""
        return self.run.scores()

    def choose(self, scores: FloatArray) -> int:
        """A row drawn in proportion to the scores."""
        return draw_row(scores, self.rng)

    def force(self, row: int) -> None:
        """Include a row of the caller's choice."""
        self._take(row, self.scores())

    def task_sites(self):
        """Sites of the picks."""
        return self.run.task_sites()

    def choice(self, count: int, block: Block) -> TaskChoice:
        """The first `count` picks."""
        return self.run.choice(count, block)

    def _take(self, row: int, scores: FloatArray) -> None:
        self.keys.append(float(scores[np.isfinite(scores)].sum()))
        self.run.force(row)
