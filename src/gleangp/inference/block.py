"""One task below the estimators: its rows, their targets, and the noise between them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The rows of one task. Tasks are independent given the kernel (Lawrence & Platt 2004, eq. 14)."""

    X: FloatArray  # (n, p); of very many rows it may be float32, and then only `at` and `whole` are float64
    y: FloatArray  # (n,), in the coding of `noise`
    noise: Any  # a `NoiseModel`; what needs Gaussian noise, or a null category, reads their fields

    def __len__(self) -> int:
        return len(self.y)

    def at(self, rows: IntArray) -> Block:
        """The block of some of its rows, in the order given."""
        return Block(float64(self.X[rows]), self.y[rows], self.noise.at(rows))

    def whole(self) -> Block:
        """The block with its inputs in float64: a copy if they are stored otherwise."""
        return self if self.X.dtype == np.float64 else replace(self, X=float64(self.X))


def float64(X: FloatArray) -> FloatArray:
    """The inputs as all arithmetic is done; not copied if they are so already."""
    return np.asarray(X, dtype=np.float64)
