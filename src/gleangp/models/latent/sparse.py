"""Latent-space terms through a basis of positions: cost linear in the rows, and signs with probit noise.

The basis are the latent positions of some informative rows. All rows contribute through it, by the projection
of `inference.projected`. As rows of the training set, basis points move with the latent space. With every
row in the basis the terms are exact: `GaussianTerm` for numbers, and expectation propagation for signs (what
Urtasun, Quattoni & Darrell 2007 leave as future work).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.inference.projected import fit_projection, projected_evidence
from gleangp.models.latent.terms import Mapping
from gleangp.noise import Gaussian, Probit
from gleangp.selection.selectors import ResidualSelector


def choose_basis(kernel, positions: FloatArray, n_active: int, rng: np.random.Generator) -> IntArray:
    """Rows whose positions explain those of the others: sampled by what is still unexplained."""
    block = Block(positions, np.zeros(len(positions)), Gaussian(1.0))
    return ResidualSelector(weight="variance").select(kernel, [block], n_active, rng=rng).active[0]


@dataclass(frozen=True, slots=True, eq=False)
class ProjectedTerm:
    """Targets through the basis, O(n d^2): numbers whose noise is white, or signs with probit noise.

    `warm` keeps the sites of signs from call to call. They start the next propagation, and do not change
    its end.
    """

    targets: FloatArray  # (n, S)
    rows: IntArray  # (n,)
    basis: IntArray  # (d,) rows of the training set
    probit: bool = False
    warm: dict = field(default_factory=dict)

    def __call__(self, kernel, positions):
        """Minus the log evidence, its gradient in theta and in all positions."""
        value, theta_gradient, gradient = 0.0, 0.0, np.zeros_like(positions)
        for c, block in enumerate(self._blocks(positions)):
            found = projected_evidence(kernel, block, positions[self.basis], self.warm.get(c))
            self.warm[c] = found.sites
            value -= found.value
            theta_gradient = theta_gradient - found.theta
            gradient[self.rows] -= found.d_rows
            gradient[self.basis] -= found.d_basis
        return value, theta_gradient, gradient

    def fit_map(self, kernel, positions):
        """One pair of factors for all columns of numbers; one for each column of signs."""
        Z = positions[self.basis]
        blocks = enumerate(self._blocks(positions))
        found = [fit_projection(kernel, block, Z, self.warm.get(c)) for c, block in blocks]
        weights = np.column_stack([p.weights for p in found])
        return Mapping(kernel, Z, weights, tuple((p.chol, p.inner) for p in found), found[0].jitter)

    def _blocks(self, positions) -> list[Block]:
        """Columns that share their sites' precisions are one block."""
        X = positions[self.rows]
        if self.probit:
            return [Block(X, signs, Probit()) for signs in np.ascontiguousarray(self.targets.T)]
        return [Block(X, self.targets, Gaussian(0.0))]
