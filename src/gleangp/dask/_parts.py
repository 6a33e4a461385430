"""What workers do with parts of one huge task while the client learns. Every function is pure."""

from __future__ import annotations

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.dask._groups import Group
from gleangp.inference.block import Block
from gleangp.inference.posterior import TaskPosterior, without_own_site
from gleangp.inference.sliced_projection import CollapseSums, SlicedRows, collapse_sums, gaussian_sites
from gleangp.inference.summed_ep import Moving
from gleangp.kernels import has_white, white_diag
from gleangp.learning.task_store import NoiseTerm
from gleangp.parallel import in_worker
from gleangp.selection.base import Selection
from gleangp.selection.two_rounds import choose_from_part, second_round


def _found(group: Group, part: IntArray, positions: IntArray):
    """Part and row in it, of rows given by position."""
    return [(k, int(np.searchsorted(group.positions[k], p))) for k, p in zip(part, positions, strict=True)]


def rows_at_positions(group: Group, part: IntArray, positions: IntArray) -> tuple[FloatArray, FloatArray]:
    """Inputs and targets."""
    found = _found(group, part, positions)
    return np.array([group.X[k][i] for k, i in found]), np.array([group.y[k][i] for k, i in found])


def numbers_at_positions(group: Group, part: IntArray, positions: IntArray) -> IntArray:
    """Numbers of rows through all partitions."""
    return np.array([group.numbers[k][i] for k, i in _found(group, part, positions)])


def sites_at_positions(
    group: Group, part: IntArray, positions: IntArray, moving: list[Moving]
) -> tuple[FloatArray, FloatArray]:
    """Precision and shift of the sites."""
    found = _found(group, part, positions)
    sites = [(moving[k].sites.precision[i], moving[k].sites.shift[i]) for k, i in found]
    precision, shift = np.array(sites).T
    return precision, shift


@in_worker
def choose_in_parts(group: Group, kernel, noise, selector, n_active: int, streams) -> list[tuple]:
    """Inputs, targets and positions of what every part chooses."""
    out = []
    for block, positions, stream in zip(group.blocks(noise), group.positions, streams, strict=True):
        rows = choose_from_part(selector, kernel, block, n_active, stream)
        out.append((block.X[rows], block.y[rows], positions[rows]))
    return out


def choose_again(chosen: list[tuple], kernel, noise, selector, n_active: int, rng) -> Selection:
    """The second round, from the union of what was chosen."""
    X, y, positions = (np.concatenate(values) for values in zip(*chosen, strict=True))
    return second_round(selector, kernel, Block(X, y, noise), positions, n_active, rng)


@in_worker
def choose_with_first_part(group: Group, others: list[tuple], kernel, noise, *more) -> Selection:
    """The second round, from all of the first part and what was chosen of the others."""
    first = (group.X[0], group.y[0], group.positions[0])
    return choose_again([first, *others], kernel, noise, *more)


@in_worker
def sums_of_parts(group: Group, kernel, noise, Z: FloatArray, chol: FloatArray) -> list[CollapseSums]:
    """The sums of the collapsed bound over all parts of the group."""
    sums = []
    for block in group.blocks(noise):
        white = white_diag(kernel, block.X) if has_white(kernel) else 0.0
        sums.append(collapse_sums(SlicedRows(kernel, block, Z, chol), block, gaussian_sites(block, white)))
    inside, b = (np.sum([getattr(s, name) for s in sums], axis=0) for name in ("inside", "b"))
    return [CollapseSums(inside, b, sum(s.constant for s in sums))]


@in_worker
def noise_terms_of_parts(
    group: Group, kernel, noise, posterior: TaskPosterior, active: IntArray, points: list[IntArray]
) -> list[NoiseTerm]:
    """The sum of log Z over every part; `points` says which of the active points it has."""
    terms = []
    for block, positions, own in zip(group.blocks(noise), group.positions, points, strict=True):
        rows = np.searchsorted(positions, active[own])
        marginals = without_own_site(kernel, posterior, block.X, rows, points=own)
        terms.append(NoiseTerm([block], [marginals]))
    return terms
