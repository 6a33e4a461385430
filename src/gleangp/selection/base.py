"""What a selector gives; selection within one task row after row, and across tasks as a merge of such runs.

Lawrence & Platt 2004, algorithm 2, picks the best point over all tasks. Given the kernel the tasks do not
interact: a task's j-th pick does not depend on the others, and the joint order is a merge of the tasks' own
sequences, head against head (not a sort: a probit gain can rise).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.random import Generator

from gleangp._typing import FloatArray, IntArray
from gleangp.data.tasks import blocks_of_rows
from gleangp.inference.block import Block
from gleangp.inference.posterior import Sites

# From one task: rows of its block in order of inclusion, the gain of each, and their sites or None.
TaskChoice = tuple[IntArray, FloatArray, Sites | None]


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """The active points of every task, and the order in which they came in over all tasks."""

    order: IntArray  # (d,) task of each inclusion
    active: tuple[IntArray, ...]  # per task: rows of its block, in order of inclusion
    gain: FloatArray  # (d,) score of each inclusion: nats, or the degree in a graph
    sites: tuple[Sites, ...] | None = None  # per task, where the selector filtered the points
    objective: float | None = None  # what the choice achieves, where the selector has a goal of its own

    def rows(self, block_rows: list[IntArray]) -> IntArray:
        """Rows of the training set, in order of inclusion over all tasks."""
        return in_order(self.order, [rows[a] for rows, a in zip(block_rows, self.active, strict=True)])


def in_order(order: IntArray, by_task: Sequence[np.ndarray]) -> np.ndarray:
    """What is known task by task, in the order of inclusion over all tasks. O(d log d)."""
    out = np.empty(len(order), dtype=by_task[0].dtype)
    for places, values in zip(blocks_of_rows(order, len(by_task)), by_task, strict=True):
        out[places] = values
    return out


def join_choices(order: IntArray, choices: Sequence[TaskChoice]) -> Selection:
    """The selection over all tasks from what was chosen of each."""
    active, gain, sites = zip(*choices, strict=True)
    return Selection(order, active, in_order(order, gain), None if sites[0] is None else sites)


class Run:
    """A selection within one task that can be taken further; in this one all rows are worth the same.

    With `rng` rows are drawn in proportion to their scores; without, the first of the best is taken.
    """

    def __init__(self, n_rows: int, rng: Generator | None = None):
        self.rng, self.left = rng, np.ones(n_rows, dtype=bool)
        self.picks: list[int] = []  # rows in order of inclusion
        self.gains: list[float] = []  # score of each when it was taken
        self.weights: list[float] = []  # weight of the task before each (`weight`)
        self._scores: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.left)

    def worth(self) -> FloatArray:
        """What every row is worth now (n,); what it says of rows that were taken is not used."""
        return np.ones(len(self))

    def include(self, row: int) -> None:
        """Change the state as a pick does."""

    def scores(self) -> FloatArray:
        """What every row is worth now (n,); -inf for rows that were taken."""
        if self._scores is None:
            self._scores = np.where(self.left, self.worth(), -np.inf)
        return self._scores

    @property
    def weight(self) -> float:
        """What the task weighs against others: its best score, or their sum if rows are drawn."""
        scores = self.scores()
        if not self.left.any():
            return -np.inf
        return float(np.max(scores) if self.rng is None else np.sum(np.maximum(scores[self.left], 0.0)))

    def choose(self, scores: FloatArray) -> int:
        """The row to take by these scores."""
        if self.rng is None:
            return int(np.argmax(scores))
        weights = np.where(self.left, np.maximum(scores, 0.0), 0.0)
        if not weights.sum() > 0.0:  # where nothing left has a score, all rows left are alike
            weights = self.left
        return int(self.rng.choice(len(self), p=weights / weights.sum()))

    def take(self, row: int) -> None:
        """Include a row, with its score and the weight of the task."""
        self._note(row, self.weight, self.scores()[row])
        self.include(row)

    def _note(self, row: int, weight: float, gain: float) -> None:
        self.weights.append(float(weight))
        self.gains.append(float(gain))
        self.picks.append(row)
        self.left[row], self._scores = False, None

    def extend(self, count: int) -> Self:
        """Make at least `count` more picks, or as many as there are rows."""
        for _ in range(min(count, int(self.left.sum()))):
            self.take(self.choose(self.scores()))
        return self

    def choice(self, count: int, block: Block) -> TaskChoice:
        """The first `count` picks."""
        return np.array(self.picks[:count], dtype=np.intp), np.array(self.gains[:count]), None


def merged(
    runs: Sequence[Run], blocks: Sequence[Any], n_active: int, draws: FloatArray | None = None
) -> Selection:
    """The first `n_active` picks of new runs of all tasks, at most all rows; runs go as far as needed.

    With `draws`, uniform numbers (n_active,) in [0, 1), the task of each inclusion is sampled in proportion
    to its weight; without, the heaviest wins and ties go to the lowest task.
    """
    order, counts = np.empty(n_active, dtype=np.intp), [0] * len(runs)
    weight = np.array([run.weight for run in runs])  # -inf of a task that has no rows left
    for step in range(n_active):
        t, total = int(np.argmax(weight)), np.cumsum(np.maximum(weight, 0.0))
        if draws is not None and total[-1] > 0.0:  # else all is explained: the first task that still has rows
            t = int(np.searchsorted(total, draws[step] * total[-1], side="right"))
            t = min(t, int(np.flatnonzero(weight > 0)[-1]))
        run = runs[t]
        if counts[t] == len(run.picks):
            run.extend(1)
        order[step] = t
        counts[t] += 1
        weight[t] = run.weights[counts[t]] if counts[t] < len(run.picks) else run.weight
    given = zip(runs, counts, blocks, strict=True)
    return join_choices(order, [run.choice(count, block) for run, count, block in given])
