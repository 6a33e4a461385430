"""What the hierarchy knows of one task: labelled rows, unlabelled rows, and the order of some of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, eye_array, vstack

from gleangp._typing import FloatArray
from gleangp.noise.order import OrderSites

# Added to the diagonal of K_uu, in standard units: constraints on labelled rows are combinations of them.
JITTER = 1e-6


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
    basis: FloatArray | None = None  # (d, p) rows through which labels contribute; no graph or order then

    @property
    def n_labelled(self) -> int:
        """Number of labelled rows."""
        return len(self.y)

    def combinations(self) -> csr_array:
        """Q (l + c, n): the labelled rows, then the constraints."""
        labelled = eye_array(self.n_labelled, len(self.X), format="csr")
        return labelled if self.order is None else csr_array(vstack([labelled, self.order.coefficients]))

    def sites(self, noise: FloatArray, log_width: float) -> OrderSites:
        """The sites of Q f, `noise` (l,) being the variance of each label."""
        if self.order is None:
            return OrderSites(self.y, noise, np.zeros(0), np.zeros(0))
        return OrderSites(self.y, noise, self.order.margin, np.exp(log_width) * self.order.norm)


def with_jitter(K_uu: FloatArray) -> FloatArray:
    """The prior covariance of Q f as a symmetric matrix that has a factor: constraints repeat rows."""
    K_uu = 0.5 * (K_uu + K_uu.T)
    K_uu.flat[:: len(K_uu) + 1] += JITTER
    return K_uu
