"""Selection from one huge task in two rounds: from parts of its rows, then from what the parts gave.

The distributed greedy of Mirzasoleiman, Karbasi, Sarkar & Krause 2013: every part chooses as many points as
are wanted in the end, and the same selector chooses again from their union. A selection holds rows x points;
here it holds part x points, and parts can be anywhere. The choice is not that of one selection over all
rows; what is lost is small where parts are alike (`benchmarks/scale.py two-rounds` measures it).

A selector that samples (`samples`) must see how rows are spread: what parts chose is spread too widely (it
left up to 1.8 times as much unexplained as one selection, more than uniform points leave). It therefore
chooses again from one whole part and what the others gave, which stands for the rare rows.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from gleangp._typing import IntArray
from gleangp.data.tasks import blocks_of_rows
from gleangp.inference.block import Block
from gleangp.numerics.parallel import in_parallel
from gleangp.selection.base import Selection

MOST_ENTRIES = 60_000_000  # rows x points of one selection: 480 MB


def needs_two_rounds(n_rows: int, n_active: int) -> bool:
    """Whether one selection over all rows would hold too much."""
    return n_rows * n_active > MOST_ENTRIES and n_rows > 4 * n_active


def select_in_two_rounds(selector, kernel, block: Block, n_active: int, *, rng, n_jobs=None) -> Selection:
    """`n_active` points of one block, by the selector's rule within parts and again over their union."""
    part = part_of_row(np.arange(len(block)), count_parts(len(block), n_active))
    parts = blocks_of_rows(part, int(part.max()) + 1)
    streams = rng.spawn(len(parts) + 1)
    given = zip(parts, streams[1:], strict=True)
    jobs = ((selector, kernel, block.at(rows), n_active, stream) for rows, stream in given)
    if n_jobs in (None, 1):
        chosen = [choose_from_part(*job) for job in jobs]  # rows of one part at a time
    else:
        chosen = in_parallel(choose_from_part, list(jobs), n_jobs)
    if getattr(selector, "samples", False):
        chosen[0] = np.arange(len(parts[0]))
    union = np.concatenate([rows[c] for rows, c in zip(parts, chosen, strict=True)])
    return second_round(selector, kernel, block.at(union), union, n_active, streams[0])


def count_parts(n_rows: int, n_active: int) -> int:
    """As many as keep each selection within memory."""
    return max(2, math.ceil(n_rows * n_active / MOST_ENTRIES))


def part_of_row(number: IntArray, n_parts: int) -> IntArray:
    """Part of every row, from its number alone: as good as random, and the same on every machine."""
    with np.errstate(over="ignore"):
        z = number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # the finaliser of SplitMix64
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) % np.uint64(n_parts)).astype(np.intp)


def choose_from_part(selector, kernel, block: Block, n_active: int, rng) -> IntArray:
    """Rows of a part that its own selection takes."""
    count = min(n_active, len(block))
    return selector.select(kernel, [block], count, rng=rng).active[0]


def second_round(selector, kernel, union: Block, rows: IntArray, n_active: int, rng) -> Selection:
    """The selection from the union of what the parts chose; `rows` are their numbers."""
    again = selector.select(kernel, [union], n_active, rng=rng)
    return replace(again, active=(rows[again.active[0]],), seen=None)  # of the union alone
