"""The rows of all tasks, and what learning asks of them: active points, evidence, posteriors.

Tasks that share a kernel alone do not interact: sites and posteriors are found task by task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block, Layout, lay_out
from gleangp.inference.evidence import condition, evidence_gradient, gaussian_evidence
from gleangp.inference.filtering import NO_SITES, PRECISION_FLOOR, Sites, filter_in_order
from gleangp.inference.posterior import (
    TaskPosterior,
    log_evidence_of_sites,
    posterior_from_sites,
    without_own_site,
)
from gleangp.inference.prior import BlockPrior, Term
from gleangp.inference.propagate import RowSites, marginals_of, sweep_rows
from gleangp.models.defaults import ACTIVE
from gleangp.numerics.parallel import in_parallel
from gleangp.progress import Progress, silent
from gleangp.selection.base import Selection, select_in_two_rounds
from gleangp.selection.runs import keep_everything


@dataclass(frozen=True, eq=False)
class Settings:
    """How to learn; the estimators fill it in from their constructor."""

    selector: Any  # chooses the active points (`selection.selectors`)
    n_active: int
    optimize: bool = True
    n_rounds: int = 5
    max_iter: int = 100
    precision: float = 1e-5  # relative change of the objective at which the optimiser stops
    n_restarts: int = 0
    tol: float = 1e-3  # a round that gains less than this share of a nat per row is the last
    propagate: bool = False  # expectation propagation over the active points, after filtering
    n_jobs: int | None = None
    progress: Progress = silent  # told of every stage and step of learning; may ask to stop
    uncoupled: str = "as asked"  # why tasks share the kernel alone
    invariances: Sequence[Any] = ()  # functions from rows to as many rows, see `virtual_vectors`


def most_stages(settings: Settings) -> int:
    """Most stages of a fit: rounds, posteriors twice."""
    return settings.n_rounds + 2


# Of expectation propagation over active points: nats per row, and sweeps. A search follows the sites.
_SETTLED, _MOST_SWEEPS = 1e-20, 100


class TaskBlocks:
    """Rows of tasks that share kernel and noise; tasks are numbered among those that have rows.

    `block_rows` are the numbers of the rows in the training set.
    """

    def __init__(self, blocks: list[Block], block_rows: list[IntArray] | None = None):
        self.n_tasks, self.n_inputs = len(blocks), blocks[0].X.shape[1]
        self.all_blocks, self.all_rows = blocks, block_rows
        self.filled = [t for t, b in enumerate(blocks) if len(b)]
        self.blocks = [blocks[t] for t in self.filled]
        self.sizes = [len(b) for b in self.blocks]

    @property
    def noise(self) -> Any:
        """Of the first task with rows; all share its parameters."""
        return self.blocks[0].noise

    def with_noise(self, values: dict[str, Any]) -> TaskBlocks:
        """The same rows under other noise values."""
        models = {id(b.noise): b.noise for b in self.all_blocks}
        models = {key: replace(noise, **values) for key, noise in models.items()}  # shared ones stay so
        blocks = [replace(b, noise=models[id(b.noise)]) for b in self.all_blocks]
        return TaskBlocks(blocks, self.all_rows) if values else self

    def is_exact(self, settings: Settings) -> bool:
        """Whether all rows are active with Gaussian noise: the evidence is then the exact one of all rows."""
        return settings.n_active >= sum(self.sizes) and not self.noise.precision_depends_on_mean

    def choose(self, kernel: Any, settings: Settings, seed: int) -> Selection:
        """The selector's choice; where every row is kept and noise is Gaussian there is none to make."""
        if self.is_exact(settings):
            return keep_everything(kernel, self.blocks)
        selector, n_active, rng = settings.selector, settings.n_active, np.random.default_rng(seed)
        many = self.sizes[0] > max(ACTIVE.most_entries // n_active, 4 * n_active)
        if len(self.blocks) == 1 and many and not getattr(selector, "model_free", False):
            return select_in_two_rounds(selector, kernel, self.blocks[0], n_active, ACTIVE.most_entries, rng)
        return selector.select(kernel, self.blocks, n_active, rng=rng, n_jobs=settings.n_jobs)

    def row_numbers(self, selection: Selection) -> IntArray:
        """Rows of the training set, in order of inclusion."""
        assert self.all_rows is not None
        return selection.rows([self.all_rows[t] for t in self.filled])

    def evidence(self, kernel: Any, selection: Selection | None, settings: Settings) -> ActiveEvidence:
        """The objective of a round; an exact one needs no selection."""
        if selection is None:
            return ActiveEvidence(self.blocks)
        kept = self._kept(selection)
        if not self.noise.precision_depends_on_mean:
            return ActiveEvidence(kept)
        calls = self._calls(kernel, kept, selection, settings)
        return ActiveEvidence(kept, [active_sites(*call)[0] for call in calls])

    def fit(
        self, kernel: Any, selection: Selection, settings: Settings
    ) -> tuple[list[TaskPosterior], list[Sites], float]:
        """Posterior and sites of every task, and the log evidence; with `n_jobs`, in several processes."""
        calls = self._calls(kernel, self._kept(selection), selection, settings)
        found = in_parallel(fit_task, calls, settings.n_jobs)
        posteriors, sites, values = (list(part) for part in zip(*found, strict=True))
        return posteriors, sites, sum(values)

    def noise_objective(
        self, kernel: Any, selection: Selection, posteriors: list[TaskPosterior]
    ) -> NoiseObjective:
        """The sum of log Z over all rows (LPJ05, eq. 28) and its gradients, as a function of noise values.

        An active row is judged by its posterior given the others: with its own site in it, noise that
        lets every active point have its way would look best.
        """
        given = zip(posteriors, self.blocks, selection.active, strict=True)
        marginals = [without_own_site(kernel, p, b.X, active) for p, b, active in given]
        return NoiseObjective(self.blocks, marginals)

    def _kept(self, selection: Selection) -> list[Block]:
        return [b.at(a) for b, a in zip(self.blocks, selection.active, strict=True)]

    def _calls(self, kernel, kept, selection: Selection, settings: Settings) -> list[tuple]:
        sites = selection.sites or [None] * len(kept)
        return [(kernel, k, s, settings.propagate) for k, s in zip(kept, sites, strict=True)]


def active_sites(
    kernel: Any, kept: Block, filtered: Sites | None, with_propagation: bool
) -> tuple[Sites, float | None]:
    """Sites of a task's active points, and their log evidence where finding them gave it."""
    if len(kept) == 0:
        return NO_SITES, 0.0
    if not kept.noise.precision_depends_on_mean:
        variance = np.broadcast_to(kept.noise.variance, kept.y.shape)
        return Sites(kept.y - kept.noise.bias, 1.0 / variance), None
    sites = filter_in_order(kernel, kept) if filtered is None else filtered
    if not with_propagation:
        return sites, None
    # LPJ05 section 3.5: a site made early by filtering depends on few rows; it is matched again with all.
    start = RowSites(sites.precision, sites.precision * sites.mean)
    prior = _prior(kernel, kept.X, _apart([len(kept)]))
    swept = sweep_rows(kept, marginals_of(prior), start=start, tol=_SETTLED, max_sweeps=_MOST_SWEEPS)
    settled = swept.sites
    precision = np.maximum(settled.precision, PRECISION_FLOOR)
    return Sites(settled.mean, precision, settled.n_silent), swept.evidence


def _apart(sizes: list[int]) -> Layout:
    """Tasks as blocks, one after the other."""
    codes = np.repeat(np.arange(len(sizes)), sizes)
    return lay_out(codes, np.split(np.arange(len(codes)), np.cumsum(sizes)[:-1]))


def _prior(kernel: Any, X: FloatArray, layout: Layout) -> BlockPrior:
    """Tasks that share the kernel alone: blocks without a basis."""
    n_tasks = int(layout.codes[-1]) + 1
    return BlockPrior([Term(kernel, np.zeros((n_tasks, 0)), np.ones(n_tasks))], X, layout, X[:0])


def fit_task(
    kernel: Any, kept: Block, filtered: Sites | None, with_propagation: bool
) -> tuple[TaskPosterior, Sites, float]:
    """Posterior and sites of one task from its active points, and the log evidence."""
    sites, value = active_sites(kernel, kept, filtered, with_propagation)
    posterior = posterior_from_sites(kernel, kept.X, sites)
    return posterior, sites, log_evidence_of_sites(posterior, sites) if value is None else value


class ActiveEvidence:
    """sum over tasks of log N(y_I | 0, K_I + variance): Lawrence & Platt 2004, eq. 14, on the points kept.

    Exact if all rows are kept. With `sites` these are held, each as Gaussian noise of its own variance about
    its own mean (LPJ05 eq. 26), and the evidence does not depend on the noise. Called with a kernel and noise
    values it gives the value, the gradient in theta and the noise gradients per row. Tasks are blocks without
    a basis (`inference.prior`).
    """

    def __init__(self, kept: list[Block], sites: list[Sites] | None = None):
        self.holds_sites, self.blocks = sites is not None, [b for b in kept if len(b)]
        if sites is not None:
            self.site_mean = np.concatenate([s.mean for s in sites])
            self.site_variance = 1.0 / np.concatenate([s.precision for s in sites])
        self.X, self.layout = np.vstack([b.X for b in self.blocks]), _apart([len(b) for b in self.blocks])

    def __call__(
        self, kernel: Any, noise_values: dict[str, Any]
    ) -> tuple[float, FloatArray, dict[str, FloatArray]]:
        y, variance = self._gaussian(noise_values)
        precision = 1.0 / variance
        prior = _prior(kernel, self.X, self.layout)
        q = condition(prior, precision, precision * y)
        found = evidence_gradient(prior, q, [False])
        of_noise = {} if self.holds_sites else {"variance": found.noise_variance}
        return gaussian_evidence(q, precision), found.theta[0], of_noise

    def _gaussian(self, noise_values: dict[str, Any]) -> tuple[FloatArray, FloatArray]:
        """Targets and noise variances of all rows."""
        if self.holds_sites:
            return self.site_mean, self.site_variance
        noises = [replace(b.noise, **noise_values) for b in self.blocks]
        y = [b.y - noise.bias for b, noise in zip(self.blocks, noises, strict=True)]
        variance = [np.broadcast_to(n.variance, len(b)) for b, n in zip(self.blocks, noises, strict=True)]
        return np.concatenate(y), np.concatenate(variance)


class NoiseObjective:
    """Sum of log Z over rows with given marginals and its gradients, as a function of noise values."""

    def __init__(self, blocks: list[Block], marginals: Sequence[tuple[FloatArray, FloatArray]]):
        self.parts = [(b.noise, b.y, *at) for b, at in zip(blocks, marginals, strict=True)]
        first = blocks[0].noise
        if all(b.noise is first for b in blocks) and first.at(slice(0, 1)) is first:
            # One model without anything that differs from row to row: one call instead of many.
            _, *rows = zip(*self.parts, strict=True)
            self.parts = [(first, *(np.concatenate(r) for r in rows))]

    def __call__(self, values: dict[str, Any]) -> tuple[float, dict[str, FloatArray]]:
        total, gradients = 0.0, []
        for of_block, *rows in self.parts:
            noise = replace(of_block, **values)
            total += float(np.sum(noise.log_partition(*rows)[0]))
            gradients.append(noise.log_partition_grad(*rows))
        return total, {name: np.stack([np.sum(g[name], axis=0) for g in gradients]) for name in values}
