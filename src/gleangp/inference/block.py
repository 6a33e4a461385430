"""Rows in blocks: one task with its targets and noise, and all rows as stacks of blocks of equal size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gleangp._typing import BoolArray, FloatArray, IntArray

_STACK_ENTRIES = 2_000_000  # of one array of matrices or features
_STACK_COST = 20_000  # entries of padded rows that cost as much as one more stack does
_LEAST_WIDTH = 100  # that a row counts for, whatever its block: it has features too


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The rows of one task. Tasks are independent given the kernel (Lawrence & Platt 2004, eq. 14)."""

    X: FloatArray  # (n, p)
    y: FloatArray  # (n,), in the coding of `noise`
    noise: Any  # a `NoiseModel`; what needs Gaussian noise, or a null category, reads their fields

    def __len__(self) -> int:
        return len(self.y)

    def at(self, rows: IntArray) -> Block:
        """The block of some of its rows, in the order given."""
        return Block(self.X[rows], self.y[rows], self.noise.at(rows))


@dataclass(frozen=True, eq=False)
class Stack:
    """Blocks of nearly equal size in one array; a padded row has the number n, one past the last."""

    rows: IntArray  # (B, m)
    codes: IntArray  # (B, m) task of each row
    mixed: bool  # whether a block has rows of several tasks

    @cached_property
    def by_task(self) -> list[Stack]:
        """The rows of every task of a single block, as numbers of its rows: blocks within the block."""
        codes = self.codes[0]
        order = np.argsort(codes, kind="stable")
        return _stack(codes, np.split(order, np.flatnonzero(np.diff(codes[order])) + 1))

    @cached_property
    def same(self) -> BoolArray:
        """(B, m, m) whether two rows of a block belong to one task."""
        return self.codes[:, :, None] == self.codes[:, None, :]

    @property
    def tasks(self) -> IntArray:
        """(B,) the task of each block, where blocks are not mixed."""
        return self.codes[:, 0]


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Stacks that share features. `task` has a basis `rows` of its own; None: only the common basis."""

    stacks: list[Stack]
    task: int | None = None
    Z: FloatArray | None = None  # (d, p)


@dataclass(frozen=True, eq=False)
class Layout:
    """How rows lie in blocks."""

    codes: IntArray  # (n,)
    groups: list[Group]

    def __len__(self) -> int:
        return len(self.codes)


def lay_out(
    codes: IntArray, blocks: Sequence[IntArray], own_bases: dict[int, FloatArray] | None = None
) -> Layout:
    """Put blocks of rows into stacks; `own_bases` are basis points (d, p) of tasks with several blocks."""
    own_bases = own_bases or {}
    parts: dict[int | None, list[IntArray]] = {None: []}
    for rows in blocks:
        if len(rows):
            task = int(codes[rows[0]])
            parts.setdefault(task if task in own_bases else None, []).append(rows)
    groups = []
    for of_task, members in parts.items():
        if members:
            Z = None if of_task is None else own_bases[of_task]
            groups.append(Group(_stack(codes, members), of_task, Z))
    return Layout(np.asarray(codes, dtype=np.intp), groups)


def _stack(codes: IntArray, blocks: list[IntArray]) -> list[Stack]:
    """Blocks of nearly equal size together: a padded row costs as much as another, a stack some rows."""
    by_size = sorted(range(len(blocks)), key=lambda b: len(blocks[b]))
    stacks: list[Stack] = []
    members: list[int] = []
    n_real = 0  # rows of the members
    for b in [*by_size, None]:
        size = 0 if b is None else len(blocks[b])
        padded = len(members) * size - n_real
        full = members and (
            b is None
            or (size > 1.15 * len(blocks[members[0]]) and padded * max(size, _LEAST_WIDTH) > _STACK_COST)
            or (len(members) + 1) * size * max(size, _LEAST_WIDTH) > _STACK_ENTRIES
        )
        if full:
            m = len(blocks[members[-1]])
            rows = np.full((len(members), m), len(codes))
            which = np.empty_like(rows)
            for k, member in enumerate(members):
                rows[k, : len(blocks[member])] = blocks[member]
                which[k] = codes[blocks[member][0]]
                which[k, : len(blocks[member])] = codes[blocks[member]]
            stacks.append(Stack(rows, which, bool((which != which[:, :1]).any())))
            members, n_real = [], 0
        if b is not None:
            members.append(b)
            n_real += size
    return stacks
