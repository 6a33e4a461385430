"""What a selector gives, and what it must offer so that others can build on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.data.tasks import blocks_of_rows
from gleangp.inference.block import Block
from gleangp.inference.filtering import Sites


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


@dataclass(frozen=True, slots=True, eq=False)
class TaskChoice:
    """What was chosen from one task."""

    active: IntArray  # rows of its block, in order of inclusion
    gain: FloatArray  # of each
    sites: Sites | None = None  # of each, where the selector filtered them


def in_order(order: IntArray, by_task: Sequence[np.ndarray]) -> np.ndarray:
    """What is known task by task, in the order of inclusion over all tasks. O(d log d)."""
    out = np.empty(len(order), dtype=by_task[0].dtype)
    for places, values in zip(blocks_of_rows(order, len(by_task)), by_task, strict=True):
        out[places] = values
    return out


def join_choices(order: IntArray, choices: Sequence[TaskChoice]) -> Selection:
    """The selection over all tasks from what was chosen of each."""
    sites: Any = None if choices[0].sites is None else tuple(c.sites for c in choices)
    gain = in_order(order, [c.gain for c in choices])
    return Selection(order, tuple(c.active for c in choices), gain, sites)


class Selector(Protocol):
    """Chooses the active set.

    A selector whose choice depends on neither kernel nor noise may say so with a true attribute
    `model_free`: it is then asked once per fit and not in every round. One that needs several tasks
    refuses a single one in `check_tasks(n_tasks)`, which is asked even where all rows are kept and
    nothing is chosen, and names in `alone` the selector that serves a task on its own. A true attribute
    `samples` says that points are drawn and not ranked.
    """

    def select(
        self,
        kernel,
        blocks: list[Block],
        n_active: int,
        *,
        rng: np.random.Generator,
        n_jobs: int | None = None,
    ) -> Selection:
        """The `n_active` points over all blocks; at most as many as there are rows."""


def select_in_two_rounds(
    selector: Any, kernel: Any, block: Block, n_active: int, most_entries: int, rng: np.random.Generator
) -> Selection:
    """`n_active` points of one huge block, of which `most_entries` rows x points are held at a time.

    The distributed greedy of Mirzasoleiman, Karbasi, Sarkar & Krause 2013: every part chooses as many points
    as are wanted in the end, and the same selector chooses again from their union. The choice is not that of
    one selection over all rows; what is lost is small where parts are alike (`benchmarks/scale.py two-rounds`
    measures it).

    A selector that samples (`samples`) must see how rows are spread: what parts chose is spread too widely
    (it left up to 1.8 times as much unexplained as one selection, more than uniform points leave). It
    therefore chooses again from one whole part and what the others gave, which stands for the rare rows.
    """
    n_parts = max(2, math.ceil(len(block) * n_active / most_entries))
    parts = [np.sort(rows) for rows in np.array_split(rng.permutation(len(block)), n_parts)]
    chosen = []
    for rows in parts:
        of_part = selector.select(kernel, [block.at(rows)], min(n_active, len(rows)), rng=rng)
        chosen.append(rows[of_part.active[0]])
    if getattr(selector, "samples", False):
        chosen[0] = parts[0]
    union = np.concatenate(chosen)
    again = selector.select(kernel, [block.at(union)], n_active, rng=rng)
    return replace(again, active=(union[again.active[0]],))
