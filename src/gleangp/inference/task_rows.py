"""What the hierarchy knows of one task: labelled rows, unlabelled rows, and the order of some of them."""

from __future__ import annotations

from dataclasses import dataclass

from scipy.sparse import csr_array

from gleangp._typing import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class OrderRows:
    """Statements that coefficients @ f is at least `margin`, one per row.

    A pair has the coefficients +1 -1, a comparison of two differences +1 -1 -1 +1; where a row of X
    occurs twice its coefficients add up.
    """

    coefficients: csr_array  # (c, n) over the rows of the task
    margin: FloatArray  # (c,)
    norm: FloatArray  # (c,) Euclidean norm of each row: the noise of its terms adds up to it

    def __len__(self) -> int:
        return len(self.margin)


@dataclass(frozen=True, slots=True, eq=False)
class TaskRows:
    """One task, in standard units. The labelled rows come first."""

    X: FloatArray  # (n, p)
    y: FloatArray  # (l,), l <= n
    laplacian: csr_array | FloatArray | None = None  # (n, n), over all rows
    order: OrderRows | None = None
    basis: FloatArray | None = None  # (d, p) rows that the labels are projected on; no graph or order then

    @property
    def n_labelled(self) -> int:
        """Number of labelled rows."""
        return len(self.y)
