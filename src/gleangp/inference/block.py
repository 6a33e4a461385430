"""One task below the estimators: its rows, their targets, and the noise between them."""

from __future__ import annotations

from dataclasses import dataclass

from gleangp._typing import FloatArray, IntArray
from gleangp.noise import NoiseModel


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The rows of one task. Tasks are independent given the kernel (Lawrence & Platt 2004, eq. 14)."""

    X: FloatArray  # (n, p)
    y: FloatArray  # (n,), in the coding of `noise`
    noise: NoiseModel

    def __len__(self) -> int:
        return len(self.y)

    def at(self, rows: IntArray) -> Block:
        """The block of some of its rows, in the order given."""
        return Block(self.X[rows], self.y[rows], self.noise.at(rows))
