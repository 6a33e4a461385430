"""What workers do with a group of whole tasks while the client learns. Every function is pure.

The one exception is a selection, which grows in place: `extend_runs` says from how many picks to how many,
so that doing it again changes nothing. Whatever a dead worker had, Dask makes again from the partitions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.dask._partitions import Piece
from gleangp.estimators._targets import TargetMoments, target_moments
from gleangp.inference.block import Block
from gleangp.learning.fit_blocks import evidence_of_blocks, fit_blocks
from gleangp.learning.task_store import NoiseTerm, evidence_sums, noise_term
from gleangp.parallel import in_worker
from gleangp.selection.base import Selection, TaskChoice
from gleangp.selection.everything import keep_block
from gleangp.selection.merge import extend_all
from gleangp.selection.selectors import uniform_choice


@dataclass(frozen=True, eq=False)
class Group:
    """Whole tasks, with targets in the coding of the noise model."""

    X: list[FloatArray]  # by task
    y: list[FloatArray]
    numbers: list[IntArray]  # of the rows, through all partitions
    positions: list[IntArray]  # the same among rows that have a target
    chunks: list[tuple[int, int]]  # tasks whose sums are taken together

    def blocks(self, noise: Any) -> list[Block]:
        """The tasks under a noise model."""
        return [Block(X, y, noise) for X, y in zip(self.X, self.y, strict=True)]

    def __sizeof__(self) -> int:
        return sum(a.nbytes for part in (self.X, self.y, self.numbers) for a in part) + 200


@dataclass(frozen=True, eq=False)
class Streams:
    """In place of a generator: the streams of a group's tasks among those of all."""

    streams: list[np.random.Generator]

    def spawn(self, n: int) -> list[np.random.Generator]:
        """They were made already."""
        return self.streams


def _edges(rows: Piece) -> IntArray:
    return np.flatnonzero(np.diff(rows.task, prepend=-1, append=-1))


@in_worker
def moments_of(rows: Piece) -> TargetMoments:
    """Of the targets of every task of a group."""
    return target_moments(np.split(rows.y, _edges(rows)[1:-1]))


def code_targets(rows: Piece, code: Any, chunks: list[tuple[int, int]]) -> Group:
    """The tasks of a group, their targets coded."""
    edges = _edges(rows)
    cuts, tasks = edges[1:-1], rows.task[edges[:-1]]
    y = [code(part, t) for part, t in zip(np.split(rows.y, cuts), tasks.tolist(), strict=True)]
    numbers, positions = np.split(rows.number, cuts), np.split(rows.position, cuts)
    return Group(np.split(rows.X, cuts), y, numbers, positions, chunks)


def rows_at(group: Group, chosen: list[tuple[int, IntArray]]) -> list[tuple[FloatArray, FloatArray]]:
    """Some rows of some tasks."""
    return [(group.X[t][rows], group.y[t][rows]) for t, rows in chosen]


def numbers_at(group: Group, active: list[IntArray]) -> list[IntArray]:
    """Numbers of rows through all partitions."""
    return [numbers[a] for numbers, a in zip(group.numbers, active, strict=True)]


@in_worker
def choose_all(group: Group, kernel: Any, noise: Any) -> list[TaskChoice]:
    """All rows of every task, in greedy order."""
    return [keep_block(kernel, block) for block in group.blocks(noise)]


@in_worker
def choose_drawn(group: Group, kernel: Any, noise: Any, drawn: list[IntArray]) -> list[TaskChoice]:
    """Rows that the client drew."""
    return [uniform_choice(kernel, b, rows) for b, rows in zip(group.blocks(noise), drawn, strict=True)]


@in_worker
def start_runs(
    group: Group, kernel: Any, noise: Any, selector: Any, seed: int, span: tuple[int, int]
) -> list[Any]:
    """One run per task; `span` is where the group's tasks are among all."""
    streams = np.random.default_rng(seed).spawn(span[1])[span[0] :]
    return selector.start_runs(kernel, group.blocks(noise), Streams(streams))


@in_worker
def extend_runs(runs: list[Any], have: list[int], want: list[int]) -> list[Any]:
    """The runs taken from `have` to `want` picks."""
    fresh = [len(run.picks) == n for run, n in zip(runs, have, strict=True)]
    extend_all(runs, [after if new else 0 for new, after in zip(fresh, want, strict=True)])
    return runs


def heads_of(runs: list[Any], have: list[int]) -> list[tuple[list[float], float]]:
    """Keys of the picks beyond `have`, and the weight of the next one."""
    return [(run.keys[n:], run.head[0]) for run, n in zip(runs, have, strict=True)]


@in_worker
def choices_of(
    runs: list[Any], counts: list[int], group: Group, noise: Any
) -> tuple[list[TaskChoice], list[Any]]:
    """The first picks of every run, and how they see the rows of the task."""
    choices = [run.choice(n, b) for run, n, b in zip(runs, counts, group.blocks(noise), strict=True)]
    return [replace(choice, seen=None) for choice in choices], [choice.seen for choice in choices]


@in_worker
def make_evidence(
    group: Group, kernel: Any, noise: Any, selection: Selection, settings: Any, exact: bool
) -> list[Any]:
    """The objective of every chunk."""
    blocks = group.blocks(noise)
    return [
        evidence_of_blocks(kernel, blocks[a:b], selection.of_tasks(a, b), settings, exact)
        for a, b in group.chunks
    ]


@in_worker
def evaluate(evidence: list[Any], kernel: Any, values: Any) -> list[Any]:
    """Value and gradients of every chunk."""
    return [evidence_sums(part, kernel, values) for part in evidence]


@in_worker
def evaluate_from(evidence: list[Any], sites: list[Any] | None, kernel: Any, values: Any) -> tuple[Any, Any]:
    """The same where sites warm-start from call to call: these are handed on, not left behind."""
    for k, part in enumerate(evidence):
        part.sites = [None] * len(part.blocks) if sites is None else sites[k]
    sums = [evidence_sums(part, kernel, values) for part in evidence]
    return sums, [part.sites for part in evidence]


@in_worker
def slack_of(evidence: list[Any], kernel: Any) -> list[float]:
    """Nats by which every chunk may fall short."""
    return [part.slack(kernel) for part in evidence]


@in_worker
def fit_chunk(
    group: Group, chunk: tuple[int, int], kernel: Any, noise: Any, selection: Selection, settings: Any
) -> tuple[list[Any], list[Any], float]:
    """Posteriors, sites and log evidence of a chunk; `selection` is that of its tasks."""
    start, stop = chunk
    return fit_blocks(kernel, group.blocks(noise)[start:stop], selection, settings)


@in_worker
def make_noise_terms(
    group: Group, kernel: Any, noise: Any, posteriors: list[Any], active: list[IntArray]
) -> list[NoiseTerm]:
    """The sum of log Z of every chunk, to be evaluated at noise values."""
    blocks = group.blocks(noise)
    return [noise_term(kernel, blocks[a:b], posteriors[a:b], active[a:b]) for a, b in group.chunks]


@in_worker
def noise_terms_as_seen(group: Group, noise: Any, seen: list[Any]) -> list[NoiseTerm]:
    """The same with rows as the selection saw them."""
    blocks = group.blocks(noise)
    return [NoiseTerm(blocks[a:b], seen[a:b]) for a, b in group.chunks]


@in_worker
def evaluate_noise(terms: list[NoiseTerm], values: Any) -> list[Any]:
    """Value and gradients of every chunk."""
    return [term(values) for term in terms]


def first_of(pair: tuple[Any, Any]) -> Any:
    """What the client wants to see."""
    return pair[0]


def second_of(pair: tuple[Any, Any]) -> Any:
    """What stays with the worker."""
    return pair[1]
