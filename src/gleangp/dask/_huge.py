"""One task too large for a worker: its rows lie in parts, chosen by their position, on all of them.

Points are chosen in two rounds (`selection.two_rounds`), from the same parts as in memory. Parameters are
learnt on a random part of the rows, brought to the client. The posterior needs sums over rows alone: one pass
for Gaussian noise, one for every sweep of expectation propagation for other noise models (`_sweeps`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.dask import _groups, _parts
from gleangp.dask._sweeps import RemoteSweeps
from gleangp.dask._tasks import gather, submit
from gleangp.estimators._targets import TargetMoments
from gleangp.inference.block import Block
from gleangp.inference.filtering import Sites
from gleangp.inference.posterior import TaskPosterior
from gleangp.inference.projected import factor_basis
from gleangp.inference.row_ep import RowSites
from gleangp.inference.sliced_projection import collapse, gaussian_sites
from gleangp.inference.summed_ep import settle_from_sums
from gleangp.kernels import has_white, white_diag
from gleangp.learning.shared_kernel import MOST_LEARNT_ON
from gleangp.learning.task_store import LocalTasks, sum_noise_terms
from gleangp.linalg import solve_lower
from gleangp.selection.base import join_choices
from gleangp.selection.selectors import RandomSelector, draw_uniformly, uniform_choice
from gleangp.selection.two_rounds import count_parts, needs_two_rounds, part_of_row


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
        ((_, rows),) = chosen
        X, y = np.empty((len(rows), self.n_inputs)), np.empty(len(rows))
        for at, part in self._of_positions(_parts.rows_at_positions, rows):
            X[at], y[at] = part
        return [Block(X, y, self.noise)]

    def labeled_first(self, task, rows):
        """All rows here have a target."""
        return rows

    def start_sites(self, kernel, settings, seed):
        """None: the noise models here have one fixed point."""
        return None

    def choose(self, kernel, settings, seed):
        """Every part chooses on its worker; a second selection from the union is made here."""
        rng = np.random.default_rng(seed)
        if isinstance(settings.selector, RandomSelector):  # looks at no row, so there is nothing to divide
            order, drawn = draw_uniformly(self.sizes, settings.n_active, rng)
            kept = self.take([(0, drawn[0])])[0]
            choice = uniform_choice(kernel, kept, np.arange(len(kept)))
            return join_choices(order, [replace(choice, active=drawn[0])])
        streams = rng.spawn(self.n_parts + 1)
        how = (kernel, self.noise, settings.selector, settings.n_active)
        calls = [(*how, streams[1 + a : 1 + b]) for a, b in self.parts.spans]
        chosen = self.parts._map_flat(_parts.choose_in_parts, calls)
        if getattr(settings.selector, "samples", False):  # again from all of the first part, where that is
            again = (chosen[1:], *how, streams[0])
            return self.parts._map(_parts.choose_with_first_part, [again], [0])[0]
        return _parts.choose_again(chosen, *how, streams[0])

    def under_kernel(self, kernel, settings):
        """The settings: there is one task, and it is not small."""
        return settings

    def row_numbers(self, selection):
        """Rows through all partitions, in order of inclusion."""
        numbers = np.empty(len(selection.active[0]), dtype=np.intp)
        for at, part in self._of_positions(_parts.numbers_at_positions, selection.active[0]):
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
        find = self._propagate if self.noise.precision_depends_on_mean else self._collapse
        inner, mean, evidence, sites = find(kernel, block, selection.active[0], chol)
        posterior = TaskPosterior(block.X, solve_lower(chol, mean, transposed=True), chol, inner, jitter)
        settings.task_done()
        return [posterior], [Sites(sites.mean, sites.precision)], evidence

    def _collapse(self, kernel, kept: Block, active: IntArray, chol: FloatArray):
        """Gaussian noise: coefficients, the collapsed bound, and the sites of the active points."""
        calls = [(kernel, self.noise, kept.X, chol)] * len(self.parts.groups)
        white = white_diag(kernel, kept.X) if has_white(kernel) else 0.0
        return *collapse(self.parts._map_flat(_parts.sums_of_parts, calls)), gaussian_sites(kept, white)

    def _propagate(self, kernel, kept: Block, active: IntArray, chol: FloatArray):
        """Other noise: coefficients, the evidence, and the sites of the active points."""
        sweeps = RemoteSweeps(self.parts, kernel, kept.X, chol)
        start = np.zeros_like(chol), np.zeros(len(chol))
        inner, mean, evidence, _ = settle_from_sums(sweeps, start, log_concave=self.noise.log_concave)
        precision, shift = np.empty((2, len(active)))
        for at, found in self._of_positions(_parts.sites_at_positions, active, sweeps.moving):
            precision[at], shift[at] = found
        return inner, mean, evidence, RowSites(precision, shift)

    def noise_objective(self, kernel, selection, posteriors):
        """The sum of log Z over all rows."""
        part, points = part_of_row(selection.active[0], self.n_parts), np.arange(len(selection.active[0]))
        calls = []
        for a, b in self.parts.spans:
            there = [points[part == k] for k in range(a, b)]
            calls.append((kernel, self.noise, posteriors[0], selection.active[0], there))
        terms, client = self.parts._submit(_parts.noise_terms_of_parts, calls), self.parts.client

        def sum_log_z(values):
            futures = [submit(client, _groups.evaluate_noise, term, values) for term in terms]
            return sum_noise_terms([value for group in gather(client, futures) for value in group])

        return sum_log_z

    def _of_positions(self, function, positions: IntArray, beside: list | None = None):
        """What the groups say of rows given by position, with the places of these rows in the list.

        `beside` has something more of every group, that the function is given too.
        """
        part = part_of_row(positions, self.n_parts)
        calls, places, there = [], [], []
        for g, (a, b) in enumerate(self.parts.spans):
            inside = np.flatnonzero((part >= a) & (part < b))
            if len(inside):
                there.append(g)
                places.append(inside)
                more = () if beside is None else (beside[g],)
                calls.append((part[inside] - a, positions[inside], *more))
        return zip(places, self.parts._map(function, calls, there), strict=True)
