"""One task below the estimators: its rows, their targets, and the noise between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gleangp._typing import FloatArray, IntArray


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
