"""One task on a basis: blocks of one row (`inference.prior`), and predictions from the basis points alone.

Every row contributes through the basis; what it has beyond is independent of all others (FITC; Snelson &
Ghahramani 2006). O(n d^2), and a posterior of d points. With every row in the basis it is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gleangp._typing import FloatArray
from gleangp.inference.block import Block
from gleangp.inference.evidence import Knowledge, condition
from gleangp.inference.posterior import TaskPosterior
from gleangp.inference.prior import BlockPrior, Group, Layout, Stack, Term
from gleangp.inference.propagate import RowSites, Swept, labelled_first, marginals_of, sweep_rows
from gleangp.numerics.linalg import solve_lower


def fitc_prior(kernel: Any, X: FloatArray, Z: FloatArray) -> BlockPrior:
    """The prior of rows X (n, p) on the basis Z (d, p)."""
    codes = np.zeros(len(X), dtype=np.intp)
    layout = Layout(codes, [Group([Stack(np.arange(len(X))[:, None], codes[:, None], mixed=False)])])
    return BlockPrior([Term(kernel, np.ones((1, 1)), np.zeros(1))], X, layout, Z)


def on_basis(prior: BlockPrior, known: Knowledge) -> TaskPosterior:
    """What prediction needs, from what is known of the basis variables."""
    basis = prior.common[0].basis
    weights = solve_lower(basis.chol, known.mean, transposed=True)
    return TaskPosterior(basis.Z, weights, basis.chol, known.inner, basis.jitter)


def sweep(prior: BlockPrior, block: Block, start: RowSites | None = None) -> Swept:
    """Expectation propagation over all rows, from `start` or from the sites of the labelled rows."""
    marginals = marginals_of(prior)
    return sweep_rows(block, marginals, start=labelled_first(block, marginals) if start is None else start)


def fit_on_basis(kernel: Any, block: Block, Z: FloatArray) -> TaskPosterior:
    """Posterior of a block on the basis Z (d, p)."""
    prior, noise = fitc_prior(kernel, block.X, Z), block.noise
    if noise.precision_depends_on_mean:
        return on_basis(prior, sweep(prior, block).marginals.state.common)
    precision = np.broadcast_to(1.0 / noise.variance, len(block))
    return on_basis(prior, condition(prior, precision, precision * (block.y - noise.bias), rows=False).common)
