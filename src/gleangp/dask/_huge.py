"""One task too large for a worker: its rows lie in parts, chosen by their position, on all of them.

Points are chosen in two rounds (`selection.two_rounds`), from the same parts as in memory. Parameters are
learnt on a random part of the rows, brought to the client. The posterior needs sums over rows alone, because
the noise is Gaussian.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.dask._groups import Group
from gleangp.estimators._targets import TargetMoments
from gleangp.inference.block import Block
from gleangp.inference.filtering import Sites
from gleangp.inference.posterior import TaskPosterior
from gleangp.inference.projected import factor_basis
from gleangp.inference.sliced_projection import (
    CollapseSums,
    SlicedRows,
    collapse,
    collapse_sums,
    gaussian_sites,
)
from gleangp.kernels import has_white, white_diag
from gleangp.learning.shared_kernel import MOST_LEARNT_ON
from gleangp.learning.task_store import LocalTasks
from gleangp.linalg import solve_lower
from gleangp.parallel import in_worker
from gleangp.selection.base import Selection
from gleangp.selection.two_rounds import (
    choose_from_part,
    count_parts,
    needs_two_rounds,
    part_of_row,
    second_round,
)


def parts_of_task(n_rows: int, n_active: int) -> int:
    """In how many parts one task is to lie; 0 if a worker can have it whole."""
    huge = n_rows > MOST_LEARNT_ON and needs_two_rounds(n_rows, n_active)
    return count_parts(n_rows, n_active) if huge else 0


def part_sizes(n_rows: int, n_parts: int) -> IntArray:
    """Rows of every part."""
    sizes = np.zeros(n_parts, dtype=np.intp)
    for start in range(0, n_rows, 1_000_000):
        rows = np.arange(start, min(start + 1_000_000, n_rows))
        sizes += np.bincount(part_of_row(rows, n_parts), minlength=n_parts)
    return sizes


def join_moments(parts: list[TargetMoments]) -> TargetMoments:
    """Moments of one task from those of its parts."""
    size, mean, deviation, largest = (
        np.concatenate([getattr(p, name) for p in parts]) for name in ("size", "mean", "deviation", "largest")
    )
    share = size / size.sum()
    centre = share @ mean
    spread = np.sqrt(share @ deviation**2 + share @ (mean - centre) ** 2)
    one = (size.sum(), centre, spread, largest.max())
    return TargetMoments(*(np.array([value]) for value in one))


@dataclass(frozen=True)
class OneTask:
    """The coding of targets where numbers of parts stand for tasks."""

    code: Any

    def __call__(self, y: np.ndarray, part: int) -> FloatArray:
        """As for the only task."""
        return self.code(y, 0)


@dataclass(frozen=True, eq=False)
class HugeTask:
    """A `TaskStore` of one task; `parts` has its parts in place of tasks."""

    parts: Any  # ClusterTasks
    n_parts: int
    n_tasks = 1

    @property
    def filled(self):
        """The only task has rows."""
        return [0]

    @property
    def sizes(self):
        """Rows of the only task."""
        return [sum(self.parts.sizes)]

    @property
    def n_inputs(self):
        """Features of a row."""
        return self.parts.n_inputs

    @property
    def noise(self):
        """Of all rows."""
        return self.parts.noise

    def with_noise(self, values):
        """The same rows under other noise values."""
        return replace(self, parts=self.parts.with_noise(values))

    def take(self, chosen):
        """Some rows, brought here."""
        (_, rows), = chosen
        X, y = np.empty((len(rows), self.n_inputs)), np.empty(len(rows))
        for at, part in self._of_positions(rows_at_positions, rows):
            X[at], y[at] = part
        return [Block(X, y, self.noise)]

    def labeled_first(self, task, rows):
        """All rows here have a target."""
        return rows

    def start_sites(self, kernel, settings, seed):
        """None: Gaussian noise has one fixed point."""
        return None

    def choose(self, kernel, settings, seed):
        """Every part chooses on its worker; a second selection from the union is made here."""
        streams = np.random.default_rng(seed).spawn(self.n_parts + 1)
        calls = [
            (kernel, self.noise, settings.selector, settings.n_active, streams[1 + a : 1 + b])
            for a, b in self.parts.spans
        ]
        chosen = self.parts._map_flat(choose_in_parts, calls)
        if getattr(settings.selector, "samples", False):  # again from all of the first part, where that is
            again = (chosen[1:], kernel, self.noise, settings.selector, settings.n_active, streams[0])
            return self.parts._map(choose_with_first_part, [again], [0])[0]
        return choose_again(chosen, kernel, self.noise, settings.selector, settings.n_active, streams[0])

    def row_numbers(self, selection):
        """Rows through all partitions, in order of inclusion."""
        numbers = np.empty(len(selection.active[0]), dtype=np.intp)
        for at, part in self._of_positions(numbers_at_positions, selection.active[0]):
            numbers[at] = part
        return numbers

    def evidence(self, kernel, selection, settings, start=None):
        """Of the active points alone: parameters of all rows are learnt on a part of them."""
        kept = LocalTasks(self.take([(0, selection.active[0])]))
        at_home = replace(selection, active=(np.arange(kept.sizes[0]),))
        return kept.evidence(kernel, at_home, replace(settings, n_active=0))

    def fit(self, kernel, selection, settings, start=None):
        """The posterior from sums over the rows of all parts."""
        block = self.take([(0, selection.active[0])])[0]
        if settings.posterior == "active":
            at_home = replace(selection, active=(np.arange(len(block)),))
            return LocalTasks([block]).fit(kernel, at_home, settings)
        chol, jitter = factor_basis(kernel, block.X)
        calls = [(kernel, self.noise, block.X, chol)] * len(self.parts.groups)
        inner, mean, bound = collapse(self.parts._map_flat(sums_of_parts, calls))
        posterior = TaskPosterior(block.X, solve_lower(chol, mean, transposed=True), chol, inner, jitter)
        sites = gaussian_sites(block, white_diag(kernel, block.X) if has_white(kernel) else 0.0)
        settings.task_done()
        return [posterior], [Sites(sites.shift / sites.precision, sites.precision)], bound

    def noise_objective(self, kernel, posteriors, selection):
        """Never asked for: the noise here is Gaussian, and is learnt with the kernel."""
        raise AssertionError(f"one task on many workers has no noise objective of {self.noise!r}")

    def _of_positions(self, function, positions: IntArray):
        """What the groups say of rows given by position, with the places of these rows in the list."""
        part = part_of_row(positions, self.n_parts)
        calls, places, there = [], [], []
        for g, (a, b) in enumerate(self.parts.spans):
            inside = np.flatnonzero((part >= a) & (part < b))
            if len(inside):
                there.append(g)
                places.append(inside)
                calls.append((part[inside] - a, positions[inside]))
        return zip(places, self.parts._map(function, calls, there), strict=True)


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
