"""Expectation propagation of a projection from sums over rows, which may be in slices or in many places.

The sweeps of `row_ep.sweep_rows`, with one look at every row a sweep. Rows are given the factor and the mean
of the coefficients, and the step of their last move; they move, and answer with what the sites that they want
next would add to the precision of the coefficients. These sums are linear in the sites. Part of the way from
some sites to others is therefore as much of the way between their sums: how far to go can be decided after
the rows were seen, and they need not be seen again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np

from gleangp._typing import FloatArray
from gleangp.inference.block import Block
from gleangp.inference.row_ep import MAX_SWEEPS, Course, RowSites, leave_out
from gleangp.linalg import cholesky, gram, log_determinant, solve_cholesky, solve_lower


class Slices(Protocol):
    """Rows as a basis sees them, some at a time."""

    def __iter__(self) -> Iterator[tuple[slice, FloatArray]]:
        """Rows, and their whitened columns Phi (d, rows)."""

    def spread(self, rows: slice, Phi: FloatArray) -> FloatArray:
        """Variance of rows that no other row shares."""


@dataclass(frozen=True, slots=True, eq=False)
class SweepSums:
    """What a sweep says of some rows."""

    inside: FloatArray  # (d, d) Phi diag(precision) Phi^T of the sites that they want
    b: FloatArray  # (d,) Phi shift of the same
    local: float  # their part of the evidence, at the sites that they have
    told: float  # shift @ mean of the same
    along: float  # move @ last move, of the precisions
    length: float  # move @ move
    n_silent: int  # rows that the noise model leaves without a say

    def __add__(self, other: SweepSums) -> SweepSums:
        return SweepSums(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True, slots=True, eq=False)
class Moving:
    """Sites of some rows, and the move that they want: how far it goes, all rows decide."""

    sites: RowSites
    move: RowSites

    @classmethod
    def from_rest(cls, sites: RowSites) -> Moving:
        """Sites that want nothing yet."""
        nothing = np.zeros(len(sites.precision))
        return cls(sites, RowSites(nothing, nothing))

    def __sizeof__(self) -> int:
        return 4 * self.sites.precision.nbytes + 200  # Dask weighs the cost of moving things by this


def sweep_slices(
    slices: Slices, block: Block, moving: Moving, step: float, inner: FloatArray, mean: FloatArray
) -> tuple[SweepSums, Moving]:
    """Take the step of the last move, and look where to go next, with q(v) = N(mean, (inner inner^T)^-1)."""
    d, n = len(mean), len(block)
    sites = moving.sites.moved(moving.move, step)
    inside, b, local, n_silent = np.zeros((d, d)), np.zeros(d), 0.0, 0
    row_mean, precision, shift = np.empty((3, n))
    for rows, Phi in slices:
        row_mean[rows] = mean @ Phi
        cavities = leave_out(sites.at(rows), row_mean[rows], _variances(inner, Phi))
        wide = cavities.var + slices.spread(rows, Phi)
        log_z, g, nu = block.noise.at(rows).log_partition(block.y[rows], cavities.mean, wide)
        local += cavities.log_evidence(log_z)
        n_silent += int(np.sum(nu < 0.0))
        wanted = cavities.wanted_sites(g, nu)
        precision[rows], shift[rows] = wanted.precision, wanted.shift
        b += Phi @ wanted.shift
        Phi *= np.sqrt(wanted.precision)
        inside += gram(Phi)
    move = RowSites(precision, shift) - sites
    told, along = sites.shift @ row_mean, move.precision @ moving.move.precision
    length = move.precision @ move.precision
    sums = SweepSums(inside, b, local, float(told), float(along), float(length), n_silent)
    return sums, Moving(sites, move)


def settle_from_sums(
    sweep: Callable[[float, FloatArray, FloatArray], SweepSums],
    start: tuple[FloatArray, FloatArray],
    *,
    log_concave: bool,
) -> tuple[FloatArray, FloatArray, float, SweepSums]:
    """Factor of the precision, mean and evidence where the sites have settled, and the last sums.

    `sweep(step, inner, mean)` is `sweep_slices` over all rows, wherever they are. `start` has Phi
    diag(precision) Phi^T and Phi shift of the sites that they start from.
    """
    inside, b = start
    course, step, last_length = Course(log_concave), 0.0, 0.0
    for _ in range(MAX_SWEEPS):
        inner, _ = cholesky(np.eye(len(b)) + inside)
        mean = solve_cholesky(inner, b)
        sums = sweep(step, inner, mean)
        if course.settles(sums.local + 0.5 * (sums.told - log_determinant(inner))):
            break
        step, last_length = course.step(sums.along, last_length), sums.length
        inside = (1.0 - step) * inside + step * sums.inside
        b = (1.0 - step) * b + step * sums.b
    return inner, mean, course.outcome, sums


def _variances(inner: FloatArray, Phi: FloatArray) -> FloatArray:
    w = solve_lower(inner, Phi)
    return np.einsum("dn,dn->n", w, w)
