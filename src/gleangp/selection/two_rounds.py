"""Selection from one huge task in two rounds: from parts of its rows, then from what the parts gave.

The distributed greedy of Mirzasoleiman, Karbasi, Sarkar & Krause 2013: every part chooses as many points as
are wanted in the end, and the same selector chooses again from their union. A selection holds rows x points;
here it holds part x points. The choice is not that of one selection over all rows; what is lost is small
where parts are alike (`benchmarks/scale.py two-rounds` measures it).

A selector that samples (`samples`) must see how rows are spread: what parts chose is spread too widely (it
left up to 1.8 times as much unexplained as one selection, more than uniform points leave). It therefore
chooses again from one whole part and what the others gave, which stands for the rare rows.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from gleangp.inference.block import Block
from gleangp.selection.base import Selection


def select_in_two_rounds(
    selector: Any, kernel: Any, block: Block, n_active: int, most_entries: int, rng: np.random.Generator
) -> Selection:
    """`n_active` points of one block, of which `most_entries` rows x points are held at a time."""
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
