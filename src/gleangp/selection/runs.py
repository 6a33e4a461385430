"""Selection within one task, one row after the other, and across tasks as a merge of such runs.

Lawrence & Platt 2004, algorithm 2, picks the best point over all tasks. Given the kernel the tasks do not
interact: a task's j-th pick does not depend on the others, and the joint order is a merge of the tasks' own
sequences, head against head (not a sort: a probit gain can rise).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.selection.base import Selection, TaskChoice, join_choices


class Run(ABC):
    """A selection within one task that can be taken further.

    With `rng` rows are drawn in proportion to their scores; without, the best one is taken, and the lowest of
    several.
    """

    def __init__(self, n_rows: int, rng: np.random.Generator | None = None):
        self.rng, self.left = rng, np.ones(n_rows, dtype=bool)
        self.picks: list[int] = []  # rows in order of inclusion
        self.gains: list[float] = []  # score of each when it was taken
        self.weights: list[float] = []  # weight of the task before each (`weight`)
        self._scores: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.left)

    @abstractmethod
    def worth(self) -> FloatArray:
        """What every row is worth now (n,); what it says of rows that were taken is not used."""

    @abstractmethod
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
        total = weights.sum()  # where nothing left has a score, all rows left are alike
        return int(
            self.rng.choice(len(self), p=weights / total if total > 0.0 else self.left / self.left.sum())
        )

    def take(self, row: int) -> None:
        """Include a row, keeping the books."""
        self.weights.append(self.weight)
        self.gains.append(float(self.scores()[row]))
        self.include(row)
        self.picks.append(row)
        self.left[row], self._scores = False, None

    def extend(self, count: int) -> Run:
        """Make at least `count` more picks, or as many as there are rows."""
        for _ in range(min(count, int(self.left.sum()))):
            self.take(self.choose(self.scores()))
        return self

    def choice(self, count: int, block: Block) -> TaskChoice:
        """The first `count` picks."""
        return TaskChoice(np.array(self.picks[:count], dtype=np.intp), np.array(self.gains[:count]))


class UniformRun(Run):
    """A run in which every row left is worth the same."""

    def worth(self) -> FloatArray:
        """One."""
        return np.ones(len(self))

    def include(self, row: int) -> None:
        """Nothing changes."""


def merge_runs(
    runs: Sequence[Run], n_active: int, draws: FloatArray | None = None
) -> tuple[IntArray, IntArray]:
    """Extend the runs of all tasks until their first `n_active` picks are known; at most the number of rows.

    Gives the task of each inclusion (n_active,), and how many picks of every run these are (M,); it may have
    made more. With `draws`, uniform numbers (n_active,) in [0, 1), the task of each inclusion is sampled in
    proportion to its weight; without, the heaviest wins and ties go to the lowest task.
    """
    order, counts = np.empty(n_active, dtype=np.intp), np.zeros(len(runs), dtype=np.intp)
    weight = np.array([run.weights[0] if run.picks else run.weight for run in runs])
    for step in range(n_active):
        t = int(np.argmax(weight)) if draws is None else _drawn(weight, draws[step])
        run = runs[t]
        if counts[t] == len(run.picks):
            run.extend(1)
        order[step] = t
        counts[t] += 1
        weight[t] = run.weights[counts[t]] if counts[t] < len(run.picks) else run.weight
    return order, counts


def _drawn(weight: FloatArray, draw: float) -> int:
    """A task in proportion to the weights, which are -inf of tasks that have no rows left."""
    total = np.cumsum(np.maximum(weight, 0.0))
    if not total[-1] > 0.0:  # everything is explained: the first task that still has rows
        return int(np.argmax(weight))
    t = int(np.searchsorted(total, draw * total[-1], side="right"))
    return min(t, int(np.flatnonzero(weight > 0)[-1]))


def merged(
    runs: Sequence[Run], blocks: list[Block], n_active: int, draws: FloatArray | None = None
) -> Selection:
    """The selection over all tasks from one run of each."""
    order, counts = merge_runs(runs, n_active, draws)
    given = zip(runs, counts.tolist(), blocks, strict=True)
    return join_choices(order, [run.choice(count, block) for run, count, block in given])
