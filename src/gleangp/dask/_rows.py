"""The rows of a Dask DataFrame as an estimator learns from them: facts first, then whole tasks to workers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from dask.base import annotate
from dask.delayed import delayed
from distributed import Client, Future

from gleangp._typing import FloatArray, IntArray
from gleangp.dask import _groups
from gleangp.dask._huge import HugeTask, OneTask, join_moments, part_sizes
from gleangp.dask._partitions import (
    Columns,
    Facts,
    Plan,
    join_pieces,
    pick,
    pick_sample,
    read_rows,
    split_rows,
    state_facts,
)
from gleangp.dask._tasks import ClusterTasks, gather, submit
from gleangp.estimators._targets import TargetMoments
from gleangp.estimators._training_rows import evenly_spaced
from gleangp.exceptions import ClusterError, LabelError, TaskError
from gleangp.learning.task_store import chunks_of_tasks

_SHOWN = 5  # partitions in an error message


def read_facts(client: Client, partitions: list[Any], columns: Columns) -> tuple[list[Future], list[Facts]]:
    """Rows of every partition, which stay with the workers, and facts about them.

    Raises if any has rows that cannot be learnt from.
    """
    read = delayed(read_rows)
    rows = client.compute([read(p, columns) for p in partitions])
    facts = gather(client, [submit(client, state_facts, r, columns) for r in rows])
    bad = [(k, f.trouble) for k, f in enumerate(facts) if f.trouble]
    if bad:
        listed = "\n".join(f"  partition {k}: {trouble}" for k, trouble in bad[:_SHOWN])
        more = f"\n  and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
        raise LabelError(
            f"{len(bad)} of {len(facts)} partitions have rows that cannot be learnt from. Filter or repair "
            f"them in the Dask DataFrame.\n{listed}{more}"
        )
    if not sum(f.n_labeled for f in facts):
        raise LabelError("no row has a target. At least one is needed.")
    return rows, facts


def join_names(parts: list[np.ndarray | None], what: str) -> np.ndarray:
    """All names that occur, sorted; they must be of one kind."""
    there = [p for p in parts if p is not None and len(p)]
    kinds = {"number" if p.dtype.kind in "iuf" else p.dtype.kind for p in there}
    if len(kinds) > 1:
        types = ", ".join(sorted({str(p.dtype) for p in there}))
        raise TaskError(
            f"{what} are of different types in different partitions ({types}). Make the column one type."
        )
    return np.unique(np.concatenate(there))


@dataclass(frozen=True, eq=False)
class Layout:
    """Which group has which tasks. Numbers of tasks here count those with labelled rows alone."""

    filled: list[int]
    sizes: list[int]
    spans: list[tuple[int, int]]  # tasks of every group
    chunks: list[list[tuple[int, int]]]  # of every group, counted from its first task


def lay_out(task_sizes: IntArray, n_groups: int) -> Layout:
    """Neighbouring chunks of tasks to groups of about equal numbers of rows."""
    filled = np.flatnonzero(task_sizes)
    sizes = task_sizes[filled].tolist()
    chunks = chunks_of_tasks(sizes)
    rows = np.cumsum([sum(sizes[a:b]) for a, b in chunks])
    ends = np.searchsorted(rows, rows[-1] * np.arange(1, n_groups) / n_groups)
    cuts = np.unique([0, *(ends + 1), len(chunks)])
    spans, parts = [], []
    for start, stop in pairwise(cuts.tolist()):
        first = chunks[start][0]
        spans.append((first, chunks[stop - 1][1]))
        parts.append([(a - first, b - first) for a, b in chunks[start:stop]])
    return Layout(filled.tolist(), sizes, spans, parts)


class ClusterRows:
    """`TrainingRows` that stay with the workers; see `estimators._training_rows` for what is asked of it."""

    can_travel = False

    def __init__(
        self,
        client: Client,
        rows: list[Future],
        columns: Columns,
        facts: list[Facts],
        names: np.ndarray | None,
        classes: np.ndarray | None,
        codes: IntArray | None,
        n_parts: int = 0,
    ):
        self.client = client
        self.n_parts = n_parts
        self.n_rows = sum(f.n_rows for f in facts)
        self.n_tasks = 1 if names is None else len(names)
        self.n_inputs = len(columns.features)
        task_sizes = _task_sizes(facts, names)
        self.sizes = task_sizes.tolist()
        self._class_counts = _class_counts(facts, classes, codes)
        threads = _threads(client)
        pieces = part_sizes(self.sizes[0], n_parts) if n_parts else task_sizes
        self.layout = lay_out(pieces, len(threads))
        group_of_task = np.full(len(pieces), -1)
        for g, (a, b) in enumerate(self.layout.spans):
            group_of_task[self.layout.filled[a:b]] = g
        step = evenly_spaced(int(task_sizes.sum())).step
        plan = Plan(names, classes, codes, group_of_task, n_parts, step)
        self.places = threads[: len(self.layout.spans)]
        self.samples, self.groups = _move(client, rows, columns, facts, plan, self.places)

    @cached_property
    def inputs(self) -> FloatArray:
        """Inputs of at most 50 000 of the labelled rows, evenly spaced."""
        return np.concatenate(gather(self.client, self.samples))

    def moments(self) -> TargetMoments:
        """Of the targets of every task."""
        parts = gather(self.client, [submit(self.client, _groups.moments_of, g) for g in self.groups])
        if self.n_parts:
            return join_moments(parts)
        columns = []
        for name in ("size", "mean", "deviation", "largest"):
            values = np.concatenate([getattr(p, name) for p in parts])
            column = np.zeros(self.n_tasks, dtype=values.dtype)
            column[self.layout.filled] = values
            columns.append(column)
        return TargetMoments(*columns)

    def counts(self, n_classes: int) -> IntArray:
        """Rows of every class."""
        return self._class_counts

    def tasks(self, code: Any, noise: Any, variance: FloatArray | None = None) -> Any:
        """What to learn from."""
        code = OneTask(code) if self.n_parts else code
        groups = [
            submit(self.client, _groups.code_targets, rows, code, chunks)
            for rows, chunks in zip(self.groups, self.layout.chunks, strict=True)
        ]
        layout = self.layout
        tasks = ClusterTasks(
            self.client,
            groups,
            self.places,
            layout.spans,
            layout.filled,
            layout.sizes,
            self.n_tasks,
            self.n_inputs,
            noise,
        )
        return HugeTask(tasks, self.n_parts) if self.n_parts else tasks


def _threads(client: Client) -> list[str]:
    """The address of its worker, for every thread of the cluster."""
    threads = [address for address, n_threads in client.nthreads().items() for _ in range(n_threads)]
    if not threads:
        raise ClusterError("the cluster has no workers. Start some, or wait for them (wait_for_workers).")
    return threads


def _move(
    client: Client, rows, columns: Columns, facts: list[Facts], plan: Plan, places: list[str]
) -> tuple[list[Future], list[Future]]:
    """The sampled rows of every partition, and all rows of every group, with the workers.

    The graph from the partitions stays known to the scheduler, so that what a dead worker had is made again.
    """
    numbers = np.cumsum([0, *(f.n_rows for f in facts)]).tolist()
    labeled = np.cumsum([0, *(f.n_labeled for f in facts)]).tolist()
    split = delayed(split_rows)
    there = [k for k, f in enumerate(facts) if f.n_labeled]
    splits = [split(rows[k], columns, plan, numbers[k], labeled[k]) for k in there]
    groups = []
    for g, place in enumerate(places):
        with annotate(workers=[place], allow_other_workers=True):
            groups.append(delayed(join_pieces)([delayed(pick)(s, g) for s in splits]))
    samples = [delayed(pick_sample)(s) for s in splits]
    futures = client.compute([*samples, *groups], optimize_graph=False)
    return futures[: len(samples)], futures[len(samples) :]


def _task_sizes(facts: list[Facts], names: np.ndarray | None) -> IntArray:
    if names is None:
        return np.array([sum(f.n_labeled for f in facts)])
    sizes = np.zeros(len(names), dtype=np.intp)
    for f in facts:
        if f.n_rows:
            sizes[np.searchsorted(names, f.tasks)] += f.task_counts
    return sizes


def _class_counts(facts: list[Facts], classes: np.ndarray | None, codes: IntArray | None) -> IntArray:
    if classes is None or codes is None:
        return np.zeros(0, dtype=np.intp)
    counts = np.zeros(len(classes), dtype=np.intp)
    for f in facts:
        if f.n_labeled:
            counts[codes[np.searchsorted(classes, f.classes)]] += f.class_counts
    return counts
