"""Selection across tasks as a merge of selections within them.

Lawrence & Platt 2004, algorithm 2, picks the best point over all tasks. Given the kernel the tasks do
not interact, so a task's j-th pick does not depend on the others: the joint order is a merge of the
tasks' own sequences, head against head (not a sort: a probit gain can rise). Each sequence is
computed only as far as the merge needs it, in any process.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.numerics.parallel import in_parallel
from gleangp.selection.base import TaskChoice

_FIRST_SHARE = 1.2  # of an equal share of the budget, computed for every task at first
_GROWTH = 1.5


class Run(Protocol):
    """A resumable selection within one task."""

    picks: list[int]
    keys: list[float]  # what each pick weighed when it was the head

    def __len__(self) -> int:
        """Number of rows."""

    @property
    def head(self) -> tuple[float, int]:
        """Weight of the next pick, and its row where it is known already (else -1)."""

    def extend(self, count: int) -> Run:
        """Make up to `count` more picks; returns itself, or its copy from another process."""

    def choice(self, count: int, block: Block) -> TaskChoice:
        """The first `count` picks."""


def merge_runs(
    runs: Sequence[Run],
    n_active: int,
    *,
    draws: FloatArray | None = None,
    n_jobs: int | None = None,
) -> tuple[list[Run], IntArray]:
    """Extend the runs until the first `n_active` picks over all tasks are known.

    Parameters
    ----------
    runs : sequence of Run
        One per task.
    n_active : int
        Budget over all tasks, at most the number of rows.
    draws : ndarray of shape (n_active,), optional
        Uniform numbers in [0, 1). With them the task of each inclusion is sampled with probability
        proportional to its head's weight; without, the heaviest head wins and ties go to the lowest
        task.
    n_jobs : int, optional
        joblib's number of processes for the tasks.

    Returns
    -------
    runs : list of Run
        Extended at least as far as the order needs.
    order : ndarray of shape (n_active,)
        Task of each inclusion.
    """
    runs = list(runs)
    share = math.ceil(_FIRST_SHARE * n_active / len(runs)) if len(runs) > 1 else n_active
    wanted = [min(share, len(run)) for run in runs]
    while True:
        extend_all(runs, wanted, n_jobs)
        order, counts, starved = merge_known([_weights(run) for run in runs], n_active, draws)
        if starved is None:
            return runs, order
        for t, run in enumerate(runs):
            if t == starved or counts[t] >= 0.9 * len(run.picks):
                wanted[t] = min(len(run), max(len(run.picks) + 1, math.ceil(_GROWTH * wanted[t])))


def extend_all(runs: list[Run], wanted: Sequence[int], n_jobs: int | None = None) -> None:
    """Take every run to that many picks, in place."""
    todo = [t for t, run in enumerate(runs) if wanted[t] > len(run.picks)]
    extended = in_parallel(_extend_one, [(runs[t], wanted[t] - len(runs[t].picks)) for t in todo], n_jobs)
    for t, run in zip(todo, extended, strict=True):
        runs[t] = run


def _extend_one(run: Run, count: int) -> Run:
    return run.extend(count)


def _weights(run: Run) -> list[float]:
    return [*run.keys, run.head[0]] if len(run.picks) < len(run) else [*run.keys, -np.inf]


def merge_known(weights, n_active, draws=None):
    """Order, picks used per task, and the task that has no known picks left (or None)."""
    step = _heaviest(weights) if draws is None else _sampled(weights, draws)
    order, counts = [], [0] * len(weights)
    while len(order) < n_active:
        t = next(step)
        if counts[t] == len(weights[t]) - 1:  # the head is known, but not what comes after it
            return np.array(order, dtype=np.intp), counts, t
        order.append(t)
        counts[t] += 1
        step.send(counts[t])
    return np.array(order, dtype=np.intp), counts, None


def _heaviest(weights):
    """Task with the heaviest head, again and again; told the number of its picks used so far."""
    heap = [(-w[0], t) for t, w in enumerate(weights)]
    heapq.heapify(heap)
    while True:
        t = heap[0][1]
        used = yield t
        heapq.heapreplace(heap, (-weights[t][used], t))
        yield t


def _sampled(weights, draws):
    """Task drawn in proportion to the heads' weights; told the number of its picks used so far."""
    heads = np.array([w[0] for w in weights])  # -inf for a task that has no rows left
    for draw in draws:
        total = np.cumsum(np.maximum(heads, 0.0))
        t = int(np.searchsorted(total, draw * total[-1], side="right"))
        # Where everything is explained, the first task that still has rows.
        t = min(t, int(np.flatnonzero(heads > 0)[-1])) if total[-1] > 0 else int(np.argmax(heads))
        used = yield t
        heads[t] = weights[t][used]
        yield t


def merge_order(keys: Sequence[FloatArray]) -> IntArray:
    """Task of each inclusion when all sequences are known to their end: head against head."""
    joined, sizes = np.concatenate(keys), [len(k) for k in keys]
    if all((k[1:] <= k[:-1]).all() for k in keys):  # sequences that fall: a stable sort merges them
        task = np.repeat(np.arange(len(keys)), sizes)
        return task[np.lexsort((task, -joined))]
    weights = [[*k, -np.inf] for k in keys]
    return merge_known(weights, len(joined))[0]
