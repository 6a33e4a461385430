"""The rows of all tasks as the model needs them, and blocks of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.data.neighbourhoods import neighbourhoods


@dataclass(frozen=True, eq=False)
class Data:
    """Rows of all tasks; inputs in their own units, targets in the coding of the noise."""

    X: FloatArray  # (n, p)
    y: FloatArray  # (n,)
    codes: IntArray  # (n,)
    n_tasks: int
    noise: Any  # Gaussian: (n,) known factors of the variance; else the noise model of all rows

    def __len__(self) -> int:
        return len(self.y)

    @property
    def sizes(self) -> IntArray:
        """(M,) rows of each task."""
        return np.bincount(self.codes, minlength=self.n_tasks)

    def at(self, rows: IntArray) -> Data:
        """Some of the rows."""
        return Data(self.X[rows], self.y[rows], self.codes[rows], self.n_tasks, self.noise_at(rows))

    def noise_at(self, rows: IntArray) -> Any:
        """The noise of some rows."""
        return self.noise[rows] if isinstance(self.noise, np.ndarray) else self.noise.at(rows)


def targets_of(y: FloatArray, noise: Any) -> dict[str, FloatArray]:
    """Targets and what else is known of every row, such as "exposure"; each (n,)."""
    values = {"y": y, **{name: getattr(noise, name) for name in known_of_rows(noise)}}
    return {name: np.array(np.broadcast_to(value, len(y)), np.float64) for name, value in values.items()}


def known_of_rows(noise: Any) -> list[str]:
    """Fields of a noise model that are not learnt but known for every row."""
    return [name for name in noise.row_fields if name not in noise.transforms]


def canonical_order(X: FloatArray, y: FloatArray, codes: IntArray) -> IntArray:
    """An order of the rows that depends on their content alone, so that results do not depend on theirs."""
    return np.lexsort((y, *X.T[::-1], codes))


def blocks_of_tasks(data: Data, W: FloatArray, block: int) -> list[IntArray]:
    """Every task of up to twice `block` rows as one block, larger ones in neighbourhoods.

    W are the inputs in units in which distances matter.
    """
    order, blocks = np.argsort(data.codes, kind="stable"), []
    for rows in np.split(order, np.cumsum(data.sizes)[:-1]):
        if len(rows) > 2 * block:
            blocks += [rows[part] for part in neighbourhoods(W[rows], block)]
        elif len(rows):
            blocks.append(rows)
    return blocks


def evenly_chosen(blocks: list[IntArray], n_rows: int, rng: np.random.Generator) -> list[IntArray]:
    """Blocks with about `n_rows` rows in all, evenly spread over the list; all if it has not many more."""
    total = sum(len(b) for b in blocks)
    if total <= 1.5 * n_rows:
        return blocks
    count = max(1, round(len(blocks) * n_rows / total))
    places = (np.arange(count) + rng.random()) * (len(blocks) / count)
    return [blocks[int(k)] for k in places]


def some_of(n: int, count: int, rng: np.random.Generator) -> IntArray:
    """All numbers below n, or as many of them drawn, in order."""
    return np.arange(n) if n <= count else np.sort(rng.choice(n, count, replace=False))
