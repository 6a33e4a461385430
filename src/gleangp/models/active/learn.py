"""Learning a kernel that all tasks share: rounds of "select points, then maximise the evidence".

Lawrence & Platt 2004, section 4; Lawrence, Platt & Jordan 2005, algorithm 2. Departures: L-BFGS-B in
place of scaled conjugate gradients; the best round is kept; rounds end when the evidence no longer
rises. Tasks that share a kernel alone do not interact: sites and posteriors are found task by task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import ConstantKernel

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block, Layout, lay_out
from gleangp.inference.evidence import LOG_TWO_PI, RowSites, condition, evidence_gradient, gaussian_evidence
from gleangp.inference.posterior import (
    NO_SITES,
    PRECISION_FLOOR,
    Sites,
    TaskPosterior,
    filter_in_order,
    posterior_from_sites,
    without_own_site,
)
from gleangp.inference.prior import BlockPrior, Term
from gleangp.inference.propagate import marginals_of, sweep_rows
from gleangp.models.defaults import ACTIVE
from gleangp.models.parameters import LogEvidence, Parameters, sum_log_z
from gleangp.numerics.linalg import log_determinant
from gleangp.numerics.optimize import Optimum
from gleangp.numerics.parallel import in_parallel
from gleangp.progress import Progress, Stage, report_to, silent
from gleangp.selection.base import Selection
from gleangp.selection.runs import keep_everything

# Of expectation propagation over active points: nats per row, and sweeps. A search follows the sites.
_SETTLED, _MOST_SWEEPS = 1e-20, 100
TaskFits = tuple[list[TaskPosterior], list[Sites], float]  # of every task; the log evidence of all


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
    invariances: Sequence[Any] = ()  # functions from rows to as many rows, see `add_virtual_vectors`


class TaskBlocks:
    """Rows of tasks that share kernel and noise: those tasks, of all that are given, that have rows.

    `rows` are the numbers of the rows in the training set, `codes` those of the tasks.
    """

    def __init__(self, blocks: Sequence[Block], rows: Sequence[IntArray] = (), codes: Sequence[int] = ()):
        filled = [t for t, b in enumerate(blocks) if len(b)]
        self.blocks = [blocks[t] for t in filled]
        self.rows = [rows[t] for t in filled] if rows else [np.arange(len(b)) for b in self.blocks]
        self.codes = np.array(codes)[filled] if codes else np.array(filled)
        self.sizes = [len(b) for b in self.blocks]
        self.noise = self.blocks[0].noise  # all share its parameters

    def at(self, parameters: Parameters) -> TaskBlocks:
        """The same rows under the learnt noise of the parameters."""
        values = {name: parameters.noise.parameters[name] for name in parameters.learn_noise}
        blocks = [replace(b, noise=replace(b.noise, **values)) for b in self.blocks]
        return TaskBlocks(blocks, self.rows, list(self.codes)) if values else self

    def is_exact(self, settings: Settings) -> bool:
        """Whether all rows are active with Gaussian noise: the evidence is then the exact one of all rows."""
        return settings.n_active >= sum(self.sizes) and not self.noise.precision_depends_on_mean

    def choose(self, kernel: Any, settings: Settings, seed: int) -> Selection:
        """The selector's choice; where every row is kept and noise is Gaussian there is none to make."""
        if self.is_exact(settings):
            return keep_everything(kernel, self.blocks)
        selector, rng = settings.selector, np.random.default_rng(seed)
        if len(self.blocks) == 1:
            selector = getattr(selector, "alone", selector)
        return selector.select(kernel, self.blocks, settings.n_active, rng=rng, n_jobs=settings.n_jobs)

    def evidence(self, kernel: Any, selection: Selection | None, settings: Settings) -> ActiveEvidence:
        """The objective of a round; an exact one needs no selection."""
        if selection is None:
            return ActiveEvidence(self.blocks)
        calls = self._calls(kernel, selection, settings)
        held = self.noise.precision_depends_on_mean
        return ActiveEvidence([c[1] for c in calls], [active_sites(*c)[0] for c in calls] if held else None)

    def fit(self, kernel: Any, selection: Selection, settings: Settings) -> TaskFits:
        """Posterior and sites of every task, and the log evidence; with `n_jobs`, in several processes."""
        found = in_parallel(fit_task, self._calls(kernel, selection, settings), settings.n_jobs)
        posteriors, sites, values = (list(part) for part in zip(*found, strict=True))
        return posteriors, sites, sum(values)

    def _calls(self, kernel: Any, selection: Selection, settings: Settings) -> list[tuple]:
        """Arguments of `fit_task` for every task."""
        parts = zip(self.blocks, selection.active, selection.sites or [None] * len(self.blocks), strict=True)
        return [(kernel, block.at(active), sites, settings.propagate) for block, active, sites in parts]

    def noise_objective(self, kernel: Any, selection: Selection, posteriors: list) -> LogEvidence:
        """The sum of log Z over all rows (LPJ05, eq. 28) as a function of noise values, the posterior held.

        An active row is judged by its posterior given the others: with its own site in it, noise that
        lets every active point have its way would look best.
        """
        given = zip(posteriors, self.blocks, selection.active, strict=True)
        latent = [without_own_site(kernel, p, b.X, active) for p, b, active in given]
        mean, var = (np.concatenate(part) for part in zip(*latent, strict=True))
        y, of_rows = np.concatenate([b.y for b in self.blocks]), {}
        for name, value in self.noise.row_fields.items():
            if np.ndim(value):
                of_rows[name] = np.concatenate([getattr(b.noise, name) for b in self.blocks])
        return sum_log_z(replace(self.noise, **of_rows), y, mean, var)


def fit_task(
    kernel: Any, kept: Block, filtered: Sites | None, with_propagation: bool
) -> tuple[TaskPosterior, Sites, float]:
    """Posterior and sites of one task from its active points, and the log evidence."""
    sites, value = active_sites(kernel, kept, filtered, with_propagation)
    posterior = posterior_from_sites(kernel, kept.X, sites)
    if value is None:  # log N(site means | 0, K + 1 / precision)
        fit = float(sites.mean @ posterior.weights)
        value = -0.5 * (fit + log_determinant(posterior.chol) + len(sites) * LOG_TWO_PI)
    return posterior, sites, value


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
    marginals = marginals_of(_prior(kernel, kept.X, _apart([len(kept)])))
    swept = sweep_rows(kept, marginals, start=start, tol=_SETTLED, max_sweeps=_MOST_SWEEPS)
    precision = np.maximum(swept.sites.precision, PRECISION_FLOOR)
    return Sites(swept.sites.mean, precision, swept.sites.n_silent), swept.evidence


def _apart(sizes: list[int]) -> Layout:
    """Tasks as blocks, one after the other."""
    codes = np.repeat(np.arange(len(sizes)), sizes)
    return lay_out(codes, np.split(np.arange(len(codes)), np.cumsum(sizes)[:-1]))


def _prior(kernel: Any, X: FloatArray, layout: Layout) -> BlockPrior:
    """Tasks that share the kernel alone: blocks without a basis."""
    n_tasks = int(layout.codes[-1]) + 1
    return BlockPrior([Term(kernel, np.zeros((n_tasks, 0)), np.ones(n_tasks))], X, layout, X[:0])


class ActiveEvidence:
    """sum over tasks of log N(y_I | 0, K_I + variance): Lawrence & Platt 2004, eq. 14, on the points kept.

    Exact if all rows are kept. With `sites` these are held, each as Gaussian noise of its own variance about
    its own mean (LPJ05 eq. 26), and the evidence does not depend on the noise. Called with a kernel and noise
    values it gives the value, the gradient in theta and the noise gradients per row.
    """

    def __init__(self, kept: list[Block], sites: list[Sites] | None = None):
        self.sites, self.blocks = sites, [b for b in kept if len(b)]
        self.X, self.layout = np.vstack([b.X for b in self.blocks]), _apart([len(b) for b in self.blocks])

    def __call__(
        self, kernel: Any, noise_values: dict[str, Any]
    ) -> tuple[float, FloatArray, dict[str, FloatArray]]:
        if self.sites is not None:
            y = np.concatenate([s.mean for s in self.sites])
            variance = 1.0 / np.concatenate([s.precision for s in self.sites])
        else:
            pairs = [(b, replace(b.noise, **noise_values)) for b in self.blocks]
            y = np.concatenate([b.y - noise.bias for b, noise in pairs])
            variance = np.concatenate([np.broadcast_to(noise.variance, len(b)) for b, noise in pairs])
        precision, prior = 1.0 / variance, _prior(kernel, self.X, self.layout)
        q = condition(prior, precision, precision * y)
        found = evidence_gradient(prior, q, [False])
        of_noise = {"variance": found.noise_variance} if self.sites is None else {}
        return gaussian_evidence(q, precision), found.theta[0], of_noise


class SharedKernelFit(NamedTuple):
    """What was learnt."""

    parameters: Parameters
    selection: Selection
    n_rounds: int
    converged: bool
    last_change: float


class Learner:
    """Selects points and learns the kernel and noise they share: rounds over the same rows.

    Every round draws the same random numbers, so that rounds stay comparable.
    """

    def __init__(self, tasks: TaskBlocks, settings: Settings, rng: np.random.Generator):
        self.tasks, self.settings, self.seed, self.rng = tasks, settings, int(rng.integers(2**63)), rng
        self.n_rows, self.exact = sum(tasks.sizes), tasks.is_exact(settings)
        self._chosen: Selection | None = None  # by a selector whose choice depends on no parameter
        if hasattr(settings.selector, "check_tasks"):
            settings.selector.check_tasks(len(tasks.sizes))

    def learn(self, parameters: Parameters) -> SharedKernelFit:
        """Rounds of LPJ05 algorithm 2, each of which climbs the evidence of its own active points.

        `parameters` has kernel and noise to start from, and which noise parameters are free.

        The evidence of different points is not comparable. Rounds are compared by the sum of log Z over all
        rows (eq. 28), and the best is kept. Greedily selected points are far apart, so they carry little
        information about the noise, which drifts from round to round while the evidence rises. If all rows
        are active and noise is Gaussian there is one round, on the exact evidence.
        """
        settings, n_tasks = self.settings, len(self.tasks.sizes)
        free = settings.optimize and bool(parameters.kernel.n_dims or parameters.learn_noise)
        most = 0 if not free else 1 if self.exact else settings.n_rounds
        value, change, settled, converged, n_rounds = -np.inf, 0.0, False, not free, 0
        points: Selection | None = None  # chosen with the present parameters, where that was done already
        best, best_points, best_value = parameters, points, value
        while n_rounds < most and not settled:
            n_active = min(settings.n_active, self.n_rows)
            most_steps = settings.max_iter * (1 + settings.n_restarts)
            stage = Stage(f"round {n_rounds + 1}", most_steps, n_tasks, n_active)
            if settings.progress(stage, 0, best_value if n_rounds else None):
                break
            n_rounds += 1
            optimum, parameters, points = self._learn_once(parameters, points, stage, n_rounds == 1)
            change, value = -optimum.value - value, -optimum.value
            if value > best_value:
                best, best_points, best_value = parameters, points, value
            enough = settings.tol * self.n_rows
            settled = optimum.converged and change <= enough
            converged = optimum.converged and (change <= ACTIVE.little * enough or most == 1)
        selection = self._choose(best) if best_points is None else best_points
        return SharedKernelFit(best, selection, n_rounds, converged, change)

    def _learn_once(
        self, parameters: Parameters, selection: Selection | None, stage: Stage, first: bool
    ) -> tuple[Optimum, Parameters, Selection | None]:
        """Select, then learn: kernel and noise together, or one after the other where sites are held.

        Also gives the points that the learnt parameters choose, where learning asked for them.
        """
        if selection is None and not self.exact:
            selection = self._choose(parameters)
        evidence = self.tasks.at(parameters).evidence(parameters.kernel, selection, self.settings)
        settings, held = self.settings, evidence.sites is not None
        # Sites held, the evidence does not know the noise: LPJ05 algorithm 2 learns it in a step of its own.
        free = replace(parameters, learn_noise=()) if held else parameters
        learnt, optimum = free.maximize(
            evidence,
            max_iter=settings.max_iter,
            tol=settings.precision,
            n_restarts=settings.n_restarts if first else 0,
            rng=self.rng,
            report=report_to(settings.progress, stage),
            # With sites held, those of other parameters have another evidence: no far steps.
            scale=1 if held else min(self.n_rows, settings.n_active),
            unit=1.0 if held else ACTIVE.first_step,
        )
        learnt = replace(learnt, learn_noise=parameters.learn_noise)
        if self.exact:
            return optimum, learnt, None
        learnt, total, points = self._learn_noise(learnt, held and bool(parameters.learn_noise))
        return replace(optimum, value=-total), learnt, points

    def _learn_noise(self, parameters: Parameters, learn: bool) -> tuple[Parameters, float, Selection]:
        """Noise parameters that maximise the sum of log Z over all rows after reselection; that sum; points.

        LPJ05 eq. 28; without `learn` the noise stays. The posterior is held while they move, and steeper
        noise may then choose other points, which explain the rows worse: a step that lowers the sum once
        points are chosen anew is cut back. Unlike the evidence of active points and held sites, the sum can
        be compared between rounds.
        """
        objective, points_before = self._sum_log_z(parameters)
        noise_only = replace(parameters, kernel=ConstantKernel(1.0, "fixed"), priors={})
        start = noise_only.slots.start
        before = objective(None, noise_only.noise_values(start))[0]
        if not learn:
            return parameters, before, points_before
        _, optimum = noise_only.maximize(objective, max_iter=self.settings.max_iter)
        promising = -optimum.value - before > ACTIVE.promising * self.settings.tol * self.n_rows
        for share in ACTIVE.noise_steps if promising else ():
            z = start + share * (optimum.theta - start)
            learnt = replace(parameters, noise=noise_only.with_values(z).noise)
            again, points = self._sum_log_z(learnt)
            after = again(None, noise_only.noise_values(z))[0]
            if after > before:
                return learnt, after, points
        return parameters, before, points_before

    def _sum_log_z(self, parameters: Parameters) -> tuple[LogEvidence, Selection]:
        """Sum of log Z over all rows as a function of noise values, and the points chosen at present ones."""
        tasks, kernel, selection = self.tasks.at(parameters), parameters.kernel, self._choose(parameters)
        posteriors = tasks.fit(kernel, selection, self.settings)[0]
        return tasks.noise_objective(kernel, selection, posteriors), selection

    def _choose(self, parameters: Parameters) -> Selection:
        if self._chosen is not None:
            return self._chosen
        chosen = self.tasks.at(parameters).choose(parameters.kernel, self.settings, self.seed)
        if getattr(self.settings.selector, "model_free", False):
            self._chosen = chosen
        return chosen
