"""The projection of a task with so many rows that rows x basis points do not fit in memory at once.

The same model and the same numbers as `inference.projected`, but the whitened columns Phi = chol^-1 K_dn are
made slice by slice and forgotten: memory is basis points x slice, and O(n) for what every row has of its own.
Inputs that are stored in float32 become float64 here, a slice at a time.
Gaussian noise needs one pass over the rows, expectation propagation one for every sweep (`summed_ep`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gleangp._typing import FloatArray
from gleangp.inference.block import Block, float64
from gleangp.inference.row_ep import RowSites
from gleangp.inference.summed_ep import Moving, SweepSums, settle_from_sums, sweep_slices
from gleangp.kernels import has_white, kernel_columns, signal_diag, white_diag
from gleangp.linalg import cholesky, gram, log_determinant, solve_cholesky, solve_lower

AT_ONCE = 30_000_000  # entries of Phi: 240 MB


def needs_slices(n_rows: int, n_basis: int) -> bool:
    """Whether Phi is too large to be held."""
    return n_rows * n_basis > AT_ONCE


def slices_of(n_rows: int, n_basis: int) -> Iterator[slice]:
    """Slices of rows for which Phi can be held."""
    step = max(1, AT_ONCE // max(1, 4 * n_basis))  # a few arrays of this size are in use at a time
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


class SlicedRows:
    """Phi of a block on a basis, slice by slice."""

    def __init__(self, kernel, block: Block, Z: FloatArray, chol: FloatArray):
        self.kernel, self.X, self.Z, self.chol = kernel, block.X, Z, chol

    def __iter__(self) -> Iterator[tuple[slice, FloatArray]]:
        for rows in slices_of(len(self.X), len(self.Z)):
            yield rows, solve_lower(self.chol, kernel_columns(self.kernel, self.Z, float64(self.X[rows])))

    def diag(self, of: Callable[[Any, FloatArray], FloatArray]) -> FloatArray:
        """(n,) what `signal_diag` or `white_diag` give for all rows."""
        parts = [of(self.kernel, float64(self.X[rows])) for rows in slices_of(len(self.X), len(self.Z))]
        return np.concatenate(parts)

    def unexplained(self) -> FloatArray:
        """(n,) prior variance that the basis does not express."""
        left = self.diag(signal_diag)
        for rows, Phi in self:
            left[rows] -= np.einsum("dn,dn->n", Phi, Phi)
        return np.maximum(left, 0.0)

    def spread(self, rows: slice, Phi: FloatArray) -> FloatArray:
        """The same of some rows, with the white noise of the kernel."""
        X = float64(self.X[rows])
        left = np.maximum(signal_diag(self.kernel, X) - np.einsum("dn,dn->n", Phi, Phi), 0.0)
        return left + white_diag(self.kernel, X) if has_white(self.kernel) else left

    def told_by(self, sites: RowSites | None) -> tuple[FloatArray, FloatArray]:
        """Phi diag(precision) Phi^T and Phi shift of sites; None for those that say nothing."""
        inside, b = np.zeros((len(self.Z), len(self.Z))), np.zeros(len(self.Z))
        for rows, Phi in self if sites is not None else ():
            b += Phi @ sites.shift[rows]
            inside += gram(Phi * np.sqrt(sites.precision[rows]))
        return inside, b


def settle_in_slices(
    kernel, block: Block, Z: FloatArray, chol: FloatArray, start: RowSites | None
) -> tuple[FloatArray, FloatArray, float, RowSites]:
    """Factor of the precision and mean of the coefficients, evidence, and the sites of all rows."""
    rows = SlicedRows(kernel, block, Z, chol)
    if block.noise.precision_depends_on_mean:
        return _propagate(rows, block, start)
    return _collapse(rows, block, rows.diag(white_diag) if has_white(kernel) else 0.0)


def _collapse(slices: SlicedRows, block: Block, white) -> tuple[FloatArray, FloatArray, float, RowSites]:
    """Gaussian noise, in one pass."""
    sites = gaussian_sites(block, white)
    return *collapse([collapse_sums(slices, block, sites)]), sites


def gaussian_sites(block: Block, white) -> RowSites:
    """What Gaussian noise says about every row, whatever the others say."""
    precision = np.broadcast_to(1.0 / (block.noise.variance + white), (len(block),))
    return RowSites(precision, precision * (block.y - block.noise.bias))


@dataclass(frozen=True, slots=True, eq=False)
class CollapseSums:
    """What the collapsed bound needs of some of the rows: sums, so that rows may be in many places."""

    inside: FloatArray  # (d, d) Phi diag(precision) Phi^T
    b: FloatArray  # (d,) Phi shift
    constant: float  # of -2 times the bound: what does not ask for the coefficients


def collapse_sums(slices: SlicedRows, block: Block, sites: RowSites) -> CollapseSums:
    """The sums over the rows of a block."""
    d, precision = len(slices.Z), sites.precision
    prior = slices.diag(signal_diag)
    inside, b, left = np.zeros((d, d)), np.zeros(d), 0.0
    for rows, Phi in slices:
        b += Phi @ sites.shift[rows]
        unexplained = np.maximum(prior[rows] - np.einsum("dn,dn->n", Phi, Phi), 0.0)
        left += float(precision[rows] @ unexplained)
        Phi *= np.sqrt(precision[rows])
        inside += gram(Phi)
    told = float((block.y - block.noise.bias) @ sites.shift - np.sum(np.log(precision)))
    return CollapseSums(inside, b, len(block) * np.log(2.0 * np.pi) + told + left)


def collapse(parts: list[CollapseSums]) -> tuple[FloatArray, FloatArray, float]:
    """Factor of the precision, mean, and the collapsed bound of Titsias 2009, eq. 9, from sums over rows."""
    b = np.sum([part.b for part in parts], axis=0)
    inner, _ = cholesky(np.eye(len(b)) + sum(part.inside for part in parts))
    mean = solve_cholesky(inner, b)
    bound = -0.5 * (sum(part.constant for part in parts) + log_determinant(inner) - b @ mean)
    return inner, mean, float(bound)


def _propagate(slices: SlicedRows, block: Block, start: RowSites | None):
    n = len(block)
    moving = Moving.from_rest(RowSites(np.zeros(n), np.zeros(n)) if start is None else start)

    def sweep(step: float, inner: FloatArray, mean: FloatArray) -> SweepSums:
        nonlocal moving
        sums, moving = sweep_slices(slices, block, moving, step, inner, mean)
        return sums

    log_concave = block.noise.log_concave
    inner, mean, evidence, last = settle_from_sums(sweep, slices.told_by(start), log_concave=log_concave)
    return inner, mean, evidence, replace(moving.sites, n_silent=0 if log_concave else last.n_silent)
