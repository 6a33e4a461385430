"""Expectation propagation over all rows of a dense covariance: the exact-kernel twin of the projection.

With S = diag(precision), B = I + S^1/2 K S^1/2 is well conditioned whatever K is (Rasmussen & Williams
2006, eq. 3.67), and the posterior follows from its factor. O(n^3) a sweep.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gleangp._typing import FloatArray
from gleangp.inference.block import Block
from gleangp.inference.row_ep import Marginals, RowSites, sweep_rows
from gleangp.numerics.linalg import (
    cholesky,
    inverse_from_cholesky,
    log_determinant,
    solve_cholesky,
    solve_lower,
)

# A site of less precision than this is silent, and its row of the factor would be infinite.
_SILENT = 1e-16
_TOLERANCE = 1e-10


@dataclass(frozen=True, slots=True, eq=False)
class DensePosterior:
    """Sites of all rows at their fixed point."""

    sites: RowSites
    evidence: float  # log Z of EP
    weights: FloatArray  # (n,) solves (K + 1 / precision) w = site means
    root: FloatArray  # (n,) square roots of the precisions
    inner: FloatArray  # (n, n) lower factor of B

    @property
    def chol(self) -> FloatArray:
        """Lower factor of K + 1 / precision: rows of B's factor over the roots."""
        return self.inner / self.root[:, None]

    def d_covariance(self) -> FloatArray:
        """d evidence / dK (n, n), sites held: (w w' - (K + 1 / precision)^-1) / 2.

        The evidence is stationary in the sites, so that this is the whole derivative.
        """
        derivative = inverse_from_cholesky(self.inner)
        derivative *= -0.5 * self.root
        derivative *= self.root[:, None]
        derivative += np.outer(0.5 * self.weights, self.weights)
        return derivative


def propagate_dense(K: FloatArray, block: Block, start: RowSites | None = None) -> DensePosterior:
    """Sweep until the evidence settles.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Prior covariance of the rows, white noise included.
    block : Block
        Targets and noise of the rows.
    start : RowSites, optional
        Sites of a nearby problem.
    """
    diagonal = np.diagonal(K)

    def marginals(sites: RowSites) -> Marginals:
        root = np.sqrt(np.maximum(sites.precision, _SILENT))
        B = K * root
        B *= root[:, None]
        B.flat[:: len(B) + 1] += 1.0
        inner, _ = cholesky(B)
        v = solve_lower(inner, K * root[:, None])
        mean = K @ sites.shift - v.T @ (v @ sites.shift)
        return Marginals(mean, diagonal - np.einsum("dn,dn->n", v, v), log_determinant(inner), (root, inner))

    swept = sweep_rows(block, marginals, 0.0, start, tol=_TOLERANCE)
    root, inner = swept.marginals.state
    shift = swept.sites.shift
    weights = shift - root * solve_cholesky(inner, root * (K @ shift))
    return DensePosterior(swept.sites, swept.evidence, weights, root, inner)
