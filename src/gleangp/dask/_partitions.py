"""From partitions of a frame to groups of whole tasks: what workers do with rows before learning.

Rows are numbered through all partitions, in their order: what `ddf.compute()` would give. A task's rows keep
that order, so that a fit sees what a fit in memory would see.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

from gleangp._columns import as_column, missing_entries
from gleangp._typing import FloatArray, IntArray
from gleangp.exceptions import GleanError, LabelError
from gleangp.labels import check_class_target, check_regression_target, split_unlabeled
from gleangp.selection.two_rounds import part_of_row
from gleangp.tasks import blocks_of_rows, encode_tasks, lookup_tasks


@dataclass(frozen=True)
class Columns:
    """Which columns of the frame are what."""

    features: tuple[Any, ...]
    target: Any
    task: Any  # None: all rows are of one task
    classes: bool  # targets are labels of classes and not numbers
    unlabeled: Any = None  # the label that means "no label"


@dataclass(frozen=True, eq=False)
class Facts:
    """What the client must know about a partition before rows are moved."""

    n_rows: int
    n_labeled: int
    tasks: Any  # names that occur; None without tasks
    task_counts: IntArray  # labelled rows of each
    classes: Any  # labels that occur; None for numbers
    class_counts: IntArray
    trouble: str = ""  # why the rows cannot be learnt from


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a partition, checked; targets as they came."""

    X: FloatArray  # (n, p)
    y: np.ndarray  # (n,)
    labeled: np.ndarray  # (n,) mask
    names: np.ndarray | None  # of the tasks that occur; None without tasks
    codes: IntArray  # (n,) which of them; none without tasks

    def __len__(self) -> int:
        return len(self.X)

    def __sizeof__(self) -> int:
        return sum(a.nbytes for a in (self.X, self.y, self.labeled, self.codes)) + 200


@dataclass(frozen=True)
class BadRows:
    """A partition that cannot be learnt from."""

    n_rows: int
    trouble: str


@dataclass(frozen=True, eq=False)
class Plan:
    """Where every row goes: what the client made of the facts."""

    tasks: Any  # (M,) names of all tasks, or None
    classes: Any  # (C,) sorted, or None for numbers
    codes: Any  # (C,) what each of them is coded as
    group_of_task: IntArray  # -1 for tasks without labelled rows
    n_parts: int  # of one huge task, which then stand for tasks; 0 otherwise
    step: int  # every so many labelled rows one goes into the sample


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows of one partition that go to one group; or, put together, all rows of that group."""

    X: FloatArray
    y: np.ndarray
    task: IntArray
    number: IntArray  # of the row, through all partitions
    position: IntArray  # the same among rows that have a target

    def __len__(self) -> int:
        return len(self.X)

    def __sizeof__(self) -> int:
        # Dask weighs the cost of moving things by this.
        return sum(a.nbytes for a in (self.X, self.y, self.task, self.number, self.position)) + 200


def read_rows(frame: Any, columns: Columns) -> Rows | BadRows:
    """The rows of a partition; what is wrong with it is a result, so that all partitions are heard."""
    try:
        return _checked(frame, columns)
    except (GleanError, ValueError) as error:
        return BadRows(len(frame), f"{type(error).__name__}: {error}")


def state_facts(rows: Rows | BadRows, columns: Columns) -> Facts:
    """The facts of a partition."""
    nothing = np.zeros(0, dtype=np.intp)
    if isinstance(rows, BadRows):
        return Facts(rows.n_rows, 0, None, nothing, None, nothing, rows.trouble)
    task_counts = nothing
    if rows.names is not None:
        task_counts = np.bincount(rows.codes[rows.labeled], minlength=len(rows.names))
    classes, class_counts = None, nothing
    if columns.classes:
        classes, class_counts = np.unique(rows.y[rows.labeled], return_counts=True)
    return Facts(len(rows), int(rows.labeled.sum()), rows.names, task_counts, classes, class_counts)


def split_rows(
    rows: Rows, columns: Columns, plan: Plan, first_row: int, first_labeled: int
) -> tuple[FloatArray, dict[int, Piece]]:
    """Every `plan.step`-th labelled row, and the labelled rows by the group they go to.

    `first_row` and `first_labeled` are the numbers of the partition's first row and labelled row.
    """
    kept = np.flatnonzero(rows.labeled)
    sample = rows.X[kept[(first_labeled + np.arange(len(kept))) % plan.step == 0]]
    task = np.zeros(len(rows), dtype=np.intp)
    if rows.names is not None and len(rows):
        task = lookup_tasks(plan.tasks, rows.names, len(rows.names))[rows.codes]
    y = rows.y[kept]
    if columns.classes:
        y = plan.codes[np.searchsorted(plan.classes, y)]
    position = first_labeled + np.arange(len(kept))
    if plan.n_parts:
        task[kept] = part_of_row(position, plan.n_parts)
    group = plan.group_of_task[task[kept]]
    pieces = {}
    for g in np.unique(group).tolist():
        inside = group == g
        at = kept[inside]
        pieces[g] = Piece(rows.X[at], y[inside], task[at], first_row + at, position[inside])
    return sample, pieces


def pick(split: tuple[FloatArray, dict[int, Piece]], group: int) -> Piece | None:
    """What of a partition goes to a group."""
    return split[1].get(group)


def pick_sample(split: tuple[FloatArray, dict[int, Piece]]) -> FloatArray:
    """The sampled rows of a partition."""
    return split[0]


def join_pieces(pieces: list[Piece | None]) -> Piece:
    """All rows of a group, sorted by task and, within it, in their order through the partitions."""
    there = [piece for piece in pieces if piece is not None]
    task = np.concatenate([piece.task for piece in there])
    order = np.concatenate(blocks_of_rows(task, int(task.max()) + 1))
    names = ("X", "y", "task", "number", "position")
    return Piece(*(np.concatenate([getattr(p, name) for p in there])[order] for name in names))


def _checked(frame: Any, columns: Columns) -> Rows:
    n, nothing = len(frame), np.zeros(0)
    no_codes = np.zeros(0, dtype=np.intp)
    if n == 0:
        names = None if columns.task is None else nothing
        X = np.zeros((0, len(columns.features)))
        return Rows(X, nothing, np.zeros(0, dtype=bool), names, no_codes)
    X = check_array(frame[list(columns.features)], dtype=np.float64, input_name="X")
    y = frame[columns.target]
    if columns.classes:
        y = check_class_target(y, n)
        labeled = split_unlabeled(y, columns.unlabeled)
    else:
        labeled = ~missing_entries(as_column(y, "y", LabelError))
        y = check_regression_target(y, n)[0] if labeled.any() else np.full(n, np.nan)
    names, codes = (None, no_codes) if columns.task is None else encode_tasks(frame[columns.task], n)
    return Rows(np.ascontiguousarray(X), y, labeled, names, codes)
