"""Rows in blocks: one task with its targets and noise, and all rows as stacks of blocks of equal size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray

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

    @cached_property
    def mixed(self) -> bool:
        """Whether a block has rows of several tasks."""
        return bool((self.codes != self.codes[:, :1]).any())

    @cached_property
    def by_task(self) -> list[Stack]:
        """The rows of every task of a single block, as numbers of its rows: blocks within the block."""
        codes = self.codes[0]
        order = np.argsort(codes, kind="stable")
        return _stack(codes, np.split(order, np.flatnonzero(np.diff(codes[order])) + 1))


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Stacks that share features: with `Z` (d, p), a basis of one `task`; else only the common basis."""

    stacks: list[Stack]
    task: int | None = None
    Z: FloatArray | None = None


@dataclass(frozen=True, eq=False)
class Layout:
    """How rows lie in blocks."""

    codes: IntArray  # (n,)
    groups: list[Group]


def lay_out(
    codes: IntArray, blocks: Sequence[IntArray], own_bases: dict[int, FloatArray] | None = None
) -> Layout:
    """Put blocks of rows into stacks; `own_bases` are basis points (d, p) of tasks with several blocks."""
    codes, own = np.asarray(codes, dtype=np.intp), own_bases or {}
    members: dict[int | None, list[IntArray]] = {None: []}
    for rows in blocks:
        if len(rows):
            task = int(codes[rows[0]])
            members.setdefault(task if task in own else None, []).append(rows)
    groups = []
    for of_task, parts in members.items():
        if parts:
            groups.append(Group(_stack(codes, parts), of_task, None if of_task is None else own[of_task]))
    return Layout(codes, groups)


def _stack(codes: IntArray, blocks: list[IntArray]) -> list[Stack]:
    """Blocks of nearly equal size together: a padded row costs as much as another, a stack some rows."""
    blocks = sorted(blocks, key=len)
    starts, n_real = [0], 0  # of the stacks, and rows in the last
    for k, rows in enumerate(blocks):
        size, count, width = len(rows), k - starts[-1], max(len(rows), _LEAST_WIDTH)
        unequal = size > 1.15 * len(blocks[starts[-1]]) and (count * size - n_real) * width > _STACK_COST
        if count and (unequal or (count + 1) * size * width > _STACK_ENTRIES):
            starts.append(k)
            n_real = 0
        n_real += size
    stacks = []
    for start, end in pairwise([*starts, len(blocks)]):
        places = np.full((end - start, len(blocks[end - 1])), len(codes))
        for place, rows in zip(places, blocks[start:end], strict=True):
            place[: len(rows)] = rows
        stacks.append(Stack(places, codes[np.where(places < len(codes), places, places[:, :1])]))
    return stacks
