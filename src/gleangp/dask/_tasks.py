"""The client's side: a store of tasks whose rows stay with the workers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from distributed import Client, Future
from distributed.scheduler import KilledWorker

from gleangp.dask import _groups
from gleangp.exceptions import ClusterError
from gleangp.inference.block import Block
from gleangp.learning.fit_blocks import keeps_all
from gleangp.learning.settings import Settings
from gleangp.learning.task_store import (
    LocalTasks,
    chunks_of_tasks,
    is_exact,
    sum_evidence,
    sum_noise_terms,
)
from gleangp.selection.base import Selection, in_order, join_choices
from gleangp.selection.merge import merge_order, merge_runs
from gleangp.selection.selectors import RandomSelector, draw_uniformly


def gather(client: Client, futures: list[Future]) -> list[Any]:
    """Their results, or an error that says what to do."""
    try:
        return client.gather(futures)
    except KilledWorker as error:
        raise ClusterError(
            "workers died again and again over the same part of the data, which is what happens when one is "
            "out of memory. Give workers more memory, or more of them (each group of tasks must fit one), "
            f"or ask for fewer active points. Dask says: {error}"
        ) from error
    except MemoryError as error:
        raise ClusterError(
            "a worker could not get the memory it needs. Give workers more of it, or ask for fewer active "
            "points."
        ) from error


def submit(client: Client, function: Callable, *arguments: Any, place: str | None = None) -> Future:
    """A task that Dask may do again when a worker dies.

    `place` is the worker that should do it, as long as it lives: of a task that also needs something small
    from elsewhere, Dask might think it quicker there, and copy the rows.
    """
    where = {} if place is None else {"workers": [place], "allow_other_workers": True}
    with warnings.catch_warnings():
        # Choices of millions of points are large, but they must travel with the task: data scattered
        # to workers would die with them.
        warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)
        return client.submit(function, *arguments, pure=False, **where)


@dataclass(frozen=True, eq=False)
class ClusterTasks:
    """A `TaskStore` with groups of whole tasks on workers; see `learning.task_store` for its methods."""

    client: Client
    groups: list[Future]
    places: list[str]  # worker of every group, as it was laid out
    spans: list[tuple[int, int]]  # tasks of every group, among those with rows
    filled: list[int]
    sizes: list[int]
    n_tasks: int
    n_inputs: int
    noise: Any

    def with_noise(self, values):
        """The same rows under other noise values."""
        return replace(self, noise=replace(self.noise, **values)) if values else self

    def take(self, chosen):
        """Some rows of some tasks, brought here."""
        by_group: list[list] = [[] for _ in self.groups]
        place = {}
        for at, (t, rows) in enumerate(chosen):
            g = self._group_of(t)
            place[at] = (g, len(by_group[g]))
            by_group[g].append((t - self.spans[g][0], rows))
        there = [g for g, wanted in enumerate(by_group) if wanted]
        brought = self._map(_groups.rows_at, [(by_group[g],) for g in there], there)
        parts = dict(zip(there, brought, strict=True))
        return [Block(*parts[g][k], self.noise) for g, k in (place[at] for at in range(len(chosen)))]

    def labeled_first(self, task, rows):
        """All rows here have a label."""
        return rows

    def start_sites(self, kernel, settings, seed):
        """None: the noise models here have one fixed point."""
        return None

    def choose(self, kernel, settings, seed):
        """The active points: workers choose within tasks, the client merges."""
        if keeps_all(self.noise, sum(self.sizes), settings):
            choices = self._map_flat(_groups.choose_all, [(kernel, self.noise)] * len(self.groups))
            return join_choices(merge_order([c.gain for c in choices]), choices)
        rng, selector = np.random.default_rng(seed), settings.selector
        if isinstance(selector, RandomSelector):
            order, drawn = draw_uniformly(self.sizes, settings.n_active, rng)
            parts = [(kernel, self.noise, drawn[a:b]) for a, b in self.spans]
            return join_choices(order, self._map_flat(_groups.choose_drawn, parts))
        runs = RemoteRuns(self, kernel, selector, seed)
        draws = selector.merge_draws(settings.n_active, rng)
        _, order = merge_runs(runs.runs, settings.n_active, draws=draws, extend=runs.extend)
        choices, seen = runs.choices(np.bincount(order, minlength=len(self.sizes)).tolist())
        return replace(join_choices(order, choices), seen=seen)

    def under_kernel(self, kernel, settings):
        """The settings: covariances are made by the workers."""
        return settings

    def row_numbers(self, selection):
        """Rows through all partitions, in order of inclusion."""
        parts = [(list(selection.active[a:b]),) for a, b in self.spans]
        return in_order(selection.order, self._map_flat(_groups.numbers_at, parts))

    def evidence(self, kernel, selection, settings, start=None):
        """The objective of a round: of the active points here, of all rows with the workers."""
        exact = is_exact(self.noise, self.sizes, settings)
        if settings.posterior == "active" and not exact:
            kept, at_home = self._bring_active(selection)
            return kept.evidence(kernel, at_home, replace(settings, n_active=0))
        return ClusterEvidence(self, kernel, selection, settings.portable(), exact)

    def fit(self, kernel, selection, settings, start=None):
        """Posterior and sites of every task, and the log evidence."""
        if settings.posterior == "active":
            kept, at_home = self._bring_active(selection)
            return kept.fit(kernel, at_home, settings)
        posteriors, sites, values = [], [], []
        groups, parts = [], []
        for a, b in chunks_of_tasks(self.sizes):  # by chunks: a worker that is done may take some over
            groups.append(self._group_of(a))
            first = self.spans[groups[-1]][0]
            parts.append(
                ((a - first, b - first), kernel, self.noise, selection.of_tasks(a, b), settings.portable())
            )
        for chunk in self._map(_groups.fit_chunk, parts, groups):
            posteriors += chunk[0]
            sites += chunk[1]
            values.append(chunk[2])
        for _ in posteriors:
            settings.task_done()
        return posteriors, sites, sum(values)

    def noise_objective(self, kernel, selection, posteriors=None):
        """The sum of log Z over all rows."""
        if posteriors is None:
            parts = [(self.noise, seen) for seen in selection.seen]
            terms = self._submit(_groups.noise_terms_as_seen, parts)
        else:
            parts = [
                (kernel, self.noise, posteriors[a:b], list(selection.active[a:b])) for a, b in self.spans
            ]
            terms = self._submit(_groups.make_noise_terms, parts)

        def sum_log_z(values):
            futures = [submit(self.client, _groups.evaluate_noise, term, values) for term in terms]
            return sum_noise_terms([chunk for part in gather(self.client, futures) for chunk in part])

        return sum_log_z

    def _bring_active(self, selection: Selection) -> tuple[LocalTasks, Selection]:
        """The active points as tasks in this process, and the choice of all of them."""
        kept = LocalTasks(self.take(list(enumerate(selection.active))))
        # A task without active points stays where it is in the list.
        kept.blocks, kept.filled = kept.all_blocks, list(range(len(self.sizes)))
        kept.sizes, kept.chunks = [len(b) for b in kept.blocks], chunks_of_tasks(self.sizes)
        return kept, replace(selection, active=tuple(np.arange(n) for n in kept.sizes))

    def _group_of(self, task: int) -> int:
        return next(g for g, (_, stop) in enumerate(self.spans) if task < stop)

    def _submit(self, function, parts: list[tuple], groups: list[int] | None = None) -> list[Future]:
        where = range(len(self.groups)) if groups is None else groups
        return [submit(self.client, function, self.groups[g], *p) for g, p in zip(where, parts, strict=True)]

    def _map(self, function, parts: list[tuple], groups: list[int] | None = None) -> list[Any]:
        return gather(self.client, self._submit(function, parts, groups))

    def _map_flat(self, function, parts: list[tuple]) -> list[Any]:
        return [item for part in self._map(function, parts) for item in part]


class ClusterEvidence:
    """The evidence of all tasks, summed by the workers chunk by chunk."""

    def __init__(self, tasks: ClusterTasks, kernel, selection: Selection, settings: Settings, exact: bool):
        self.client = tasks.client
        self.is_exact, self.holds_sites = exact, False
        self._warm = tasks.noise.precision_depends_on_mean  # sites go from call to call
        nothing = Selection(np.zeros(0, np.intp), (), np.zeros(0))
        parts = [
            (kernel, tasks.noise, nothing if exact else selection.of_tasks(a, b), settings, exact)
            for a, b in tasks.spans
        ]
        self.evidence = tasks._submit(_groups.make_evidence, parts)
        self._sites: list[Any] = [None] * len(self.evidence)

    def __call__(self, kernel, noise_values):
        if self._warm:
            pairs = [
                submit(self.client, _groups.evaluate_from, evidence, sites, kernel, noise_values)
                for evidence, sites in zip(self.evidence, self._sites, strict=True)
            ]
            self._sites = [submit(self.client, _groups.second_of, pair) for pair in pairs]
            sums = [submit(self.client, _groups.first_of, pair) for pair in pairs]
        else:
            sums = [submit(self.client, _groups.evaluate, e, kernel, noise_values) for e in self.evidence]
        return sum_evidence([chunk for part in gather(self.client, sums) for chunk in part])

    def slack(self, kernel) -> float:
        """Nats by which it may fall short of the exact evidence."""
        parts = [submit(self.client, _groups.slack_of, e, kernel) for e in self.evidence]
        return sum(chunk for part in gather(self.client, parts) for chunk in part)


class RemoteRun:
    """What the merge must know of a run that a worker has."""

    def __init__(self, n_rows: int):
        self.n_rows = n_rows
        self.keys: list[float] = []
        self.head: tuple[float, int] = (-np.inf, -1)

    def __len__(self) -> int:
        return self.n_rows

    @property
    def picks(self) -> range:
        """As many as were made; which they are stays with the worker."""
        return range(len(self.keys))


class RemoteRuns:
    """The selections within all tasks, group by group."""

    def __init__(self, tasks: ClusterTasks, kernel, selector, seed: int):
        self.tasks = tasks
        self.runs = [RemoteRun(n) for n in tasks.sizes]
        parts = [(kernel, tasks.noise, selector, seed, span) for span in tasks.spans]
        self.futures = tasks._submit(_groups.start_runs, parts)

    def extend(self, runs: list[RemoteRun], wanted: list[int]) -> None:
        """Take every run to that many picks."""
        client = self.tasks.client
        touched, reports = [], []
        for g, (a, b) in enumerate(self.tasks.spans):
            have, want = [len(r.picks) for r in runs[a:b]], wanted[a:b]
            if any(w > h for h, w in zip(have, want, strict=True)):
                self.futures[g] = submit(client, _groups.extend_runs, self.futures[g], have, want)
                reports.append(submit(client, _groups.heads_of, self.futures[g], have))
                touched.append((a, b))
        for (a, b), heads in zip(touched, gather(client, reports), strict=True):
            for run, (keys, head) in zip(runs[a:b], heads, strict=True):
                run.keys += keys
                run.head = (head, -1)

    def choices(self, counts: list[int]) -> tuple[list[Any], list[Future] | None]:
        """What was chosen of every task, and how its rows are seen, which stays with the workers."""
        tasks, client = self.tasks, self.tasks.client
        whole = [
            submit(client, _groups.choices_of, runs, counts[a:b], group, tasks.noise)
            for runs, group, (a, b) in zip(self.futures, tasks.groups, tasks.spans, strict=True)
        ]
        parts = gather(client, [submit(client, _groups.first_of, pair) for pair in whole])
        choices = [choice for part in parts for choice in part]
        if choices[0].sites is None or not tasks.noise.precision_depends_on_mean:
            return choices, None
        return choices, [submit(client, _groups.second_of, pair) for pair in whole]
