"""Learning a kernel that all tasks share: rounds of "select points, then maximise the evidence".

Lawrence & Platt 2004, section 4; Lawrence, Platt & Jordan 2005, algorithm 2. Departures: L-BFGS-B in
place of scaled conjugate gradients; the best round is kept; rounds end when the evidence no longer
rises; with `posterior="projected"` the evidence is the bound of all rows, and learning starts on a
random part of them, where each step is cheap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process.kernels import ConstantKernel

from gleangp._typing import IntArray
from gleangp.inference.block import Block
from gleangp.inference.ep import propagate
from gleangp.inference.filtering import Sites, filter_in_order
from gleangp.inference.moved_basis import move_basis
from gleangp.inference.posterior import (
    TaskPosterior,
    log_evidence_of_sites,
    posterior_from_sites,
    training_marginals,
)
from gleangp.inference.projected import fit_projection, unexplained_nats
from gleangp.inference.row_ep import RowSites
from gleangp.learning.evidence import (
    ActiveGaussianEvidence,
    ActiveSiteEvidence,
    ProjectedEvidence,
)
from gleangp.learning.parameters import Parameters
from gleangp.optimize import Optimum, minimize
from gleangp.selection.base import Chosen, Selection, Selector
from gleangp.selection.everything import keep_everything
from gleangp.selection.selectors import RandomSelector

# With many rows, the first parameters are learnt on random parts of them: some tasks, and of each not
# more rows than leave room for four tasks.
_FIRST_PART = 400
_SECOND_PART = 800
_LITTLE = 10.0
# Nats per row that the basis may leave unexplained for the collapsed bound to be a guide to the
# parameters. A looser bound is raised by calling noise what the basis cannot express.
_TIGHT = 0.1
_MOVE_WORK = 1e9  # n d^2 up to which a loose basis is moved: some seconds


def no_report(round_: int, value: float) -> None:
    """Says nothing about a round."""


@dataclass(frozen=True, eq=False)
class Settings:
    """How to learn; the estimators fill it in from their constructor."""

    selector: Selector
    n_active: int
    posterior: str = "projected"  # or "active"
    move_basis: bool | str = "auto"  # of projections with Gaussian noise
    n_learning: int = 300  # most basis points of a task while learning: steps cost their square
    optimize: bool = True
    n_rounds: int = 5
    max_iter: int = 100
    precision: float = 1e-5  # relative change of the objective at which the optimiser stops
    n_restarts: int = 0
    tol: float = 1e-3  # a round that gains less than this share of a nat per row is the last
    propagate: bool = False  # expectation propagation over the active points, after filtering
    n_jobs: int | None = None
    report: Callable[[int, float], None] = no_report
    couplings: tuple[Any, ...] = ()  # to choose from (`couplings`); none: tasks share the kernel alone
    n_basis: int = 300  # points of the common basis of coupled tasks


@dataclass(frozen=True, eq=False)
class SharedKernelFit:
    """What was learnt."""

    parameters: Parameters
    selection: Selection
    posteriors: list[TaskPosterior]
    sites: list[Sites]
    log_evidence: float
    n_rounds: int
    converged: bool
    last_change: float

    @property
    def kernel(self):
        """The learnt kernel."""
        return self.parameters.kernel


def learn_shared_kernel(
    parameters: Parameters, blocks: list[Block], settings: Settings, rng: np.random.Generator
) -> SharedKernelFit:
    """Select points and learn the kernel and noise they share, then form every task's posterior.

    Parameters
    ----------
    parameters : Parameters
        Kernel and noise to start from, and which noise parameters are free.
    blocks : list of Block
        One per task, none empty.
    settings : Settings
        How to learn.
    rng : numpy.random.Generator
        For selectors that sample, restarts and the warm-up's rows.

    Returns
    -------
    SharedKernelFit
        The best round.
    """
    seed = int(rng.integers(2**63))  # every round draws the same numbers: rounds stay comparable
    if hasattr(settings.selector, "check_tasks"):
        settings.selector.check_tasks(len(blocks))
    if getattr(settings.selector, "model_free", False):
        settings = replace(
            settings, selector=Chosen(choose_points(parameters.kernel, blocks, settings, seed))
        )
    exact = _is_exact(blocks, settings)
    if not (settings.optimize and (parameters.n_kernel or parameters.learn_noise)):
        return _finish(parameters, blocks, None, settings, seed, _Course(0, True, 0.0))
    if settings.posterior == "projected" or exact:
        start = None
        if not all(b.noise.log_concave for b in blocks):
            start = _first_sites(parameters, blocks, settings, seed)
        for part in _parts(blocks, exact):
            parameters = _learn_on_part(parameters, blocks, part, settings, rng, start)
        return _climb(parameters, blocks, settings, seed, rng, start)
    return _alternate(parameters, blocks, settings, seed, rng)


@dataclass(frozen=True, slots=True)
class _Course:
    """How the rounds went."""

    n_rounds: int
    converged: bool
    last_change: float


def _first_sites(parameters, blocks, settings, seed) -> list[RowSites]:
    """Sites of all rows under the kernel that learning starts from.

    Noise that is not log-concave has several fixed points, and learning follows the one it starts in.
    """
    selection = choose_points(parameters.kernel, blocks, settings, seed)
    bases = [b.X[a[: settings.n_learning]] for b, a in zip(blocks, selection.active, strict=True)]
    return [fit_projection(parameters.kernel, b, Z)[2] for b, Z in zip(blocks, bases, strict=True)]


def _climb(parameters, blocks, settings, seed, rng, start=None) -> SharedKernelFit:
    """Rounds whose evidence is that of all rows, so that it can only rise.

    A new selection is taken only if it raises the evidence at the parameters learnt so far. Where the
    basis is too small for the bound to guide, the parameters learnt exactly on a part are kept.
    """
    n_rows = sum(len(b) for b in blocks)
    value, change, selection, n_rounds, settled = -np.inf, np.inf, None, 0, False
    while n_rounds < settings.n_rounds and not settled:
        blocks = _with_noise(blocks, parameters)
        candidate = choose_points(parameters.kernel, blocks, settings, seed)
        evidence = _evidence(parameters.kernel, blocks, candidate, settings, start)
        if n_rounds == 0 and evidence.slack(parameters.kernel) > _TIGHT * n_rows:
            return _finish(parameters, blocks, candidate, settings, seed, _Course(1, True, 0.0), start)
        if n_rounds > 0 and not _value_at(parameters, evidence) > value + settings.tol * n_rows:
            settled = True
            break
        n_rounds += 1
        selection = candidate
        optimum = _maximize(parameters, evidence, settings, rng, settings.n_restarts if n_rounds == 1 else 0)
        parameters = parameters.with_values(optimum.theta)
        if start is not None:
            start = evidence.sites
        change, value = -optimum.value - value, -optimum.value
        settings.report(n_rounds, value)
        settled = optimum.converged and isinstance(evidence, ActiveGaussianEvidence)
    # Rounds that ran out while each still gained a little are not worth a warning.
    settled = settled or change <= _LITTLE * settings.tol * n_rows or settings.n_rounds == 1
    course = _Course(n_rounds, settled and optimum.converged, change)
    return _finish(parameters, blocks, selection, settings, seed, course, start)


def _alternate(parameters, blocks, settings, seed, rng) -> SharedKernelFit:
    """Rounds of LPJ05 algorithm 2: each sees the evidence of its own active points; the best is kept."""
    n_rows = sum(len(b) for b in blocks)
    best, best_value, value, change, settled, n_rounds = parameters, -np.inf, -np.inf, np.inf, False, 0
    while n_rounds < settings.n_rounds and not settled:
        n_rounds += 1
        optimum, parameters = _learn_once(parameters, blocks, settings, seed, rng, n_rounds)
        change, value = -optimum.value - value, -optimum.value
        settings.report(n_rounds, value)
        if value > best_value:
            best, best_value = parameters, value
        settled = optimum.converged and change <= settings.tol * n_rows
    settled = settled or change <= _LITTLE * settings.tol * n_rows or settings.n_rounds == 1
    course = _Course(n_rounds, settled and optimum.converged, change)
    return _finish(best, blocks, None, settings, seed, course)


def fit_blocks(
    kernel,
    blocks: list[Block],
    selection: Selection,
    settings: Settings,
    start: list[RowSites] | None = None,
) -> tuple[list[TaskPosterior], list[Sites], float]:
    """Posterior and sites of every task for given active points, and the log evidence.

    `start` are sites of all rows to begin from, for the projection of noise with several fixed points.
    """
    posteriors, all_sites, log_evidence = [], [], 0.0
    for t, block in enumerate(blocks):
        active = selection.active[t]
        kept = block.at(active)
        if settings.posterior == "projected" and not _exact_block(block, active):
            first = None if start is None else start[t]
            basis = _basis(kernel, block, kept.X, settings)
            posterior, value, rows_sites = fit_projection(kernel, block, basis, first)
            precision = rows_sites.precision[active]
            mean = np.divide(
                rows_sites.shift[active], precision, out=np.zeros(len(active)), where=precision > 0
            )
            sites = Sites(mean, precision, rows_sites.n_silent)
        else:
            sites, value = _active_sites(kernel, kept, selection, t, settings)
            posterior = posterior_from_sites(kernel, kept.X, sites)
            if value is None:
                value = log_evidence_of_sites(posterior, sites)
        posteriors.append(posterior)
        all_sites.append(sites)
        log_evidence += value
    return posteriors, all_sites, log_evidence


def _basis(kernel, block: Block, Z, settings: Settings):
    """The active points, or where they moved to if they cannot express the rows and moving is affordable."""
    move = settings.move_basis
    if block.noise.precision_depends_on_mean or move is False or len(Z) == 0:
        return Z
    if move == "auto":
        too_dear = len(block) * len(Z) ** 2 > _MOVE_WORK
        if too_dear or unexplained_nats(kernel, block, Z) <= _TIGHT * len(block):
            return Z
    return move_basis(kernel, block, Z)


def choose_points(kernel, blocks, settings: Settings, seed: int) -> Selection:
    """The selector's choice; where every row is kept and noise is Gaussian there is none to make."""
    if settings.n_active >= sum(len(b) for b in blocks) and all(_is_plain(b) for b in blocks):
        return keep_everything(kernel, blocks)
    return settings.selector.select(
        kernel, blocks, settings.n_active, rng=np.random.default_rng(seed), n_jobs=settings.n_jobs
    )


def _learn_once(parameters, blocks, settings, seed, rng, round_, start=None) -> tuple[Optimum, Parameters]:
    """Select, then learn: kernel and noise together, or one after the other where sites are held."""
    blocks = _with_noise(blocks, parameters)
    n_restarts = settings.n_restarts if round_ == 1 else 0
    selection = choose_points(parameters.kernel, blocks, settings, seed)
    evidence = _evidence(parameters.kernel, blocks, selection, settings, start)
    if not isinstance(evidence, ActiveSiteEvidence):
        optimum = _maximize(parameters, evidence, settings, rng, n_restarts)
        return optimum, parameters.with_values(optimum.theta)
    # Sites held, the evidence does not know the noise: LPJ05 algorithm 2 learns it in a step of its own.
    kernel_only = replace(parameters, learn_noise=())
    optimum = _maximize(kernel_only, evidence, settings, rng, n_restarts)
    learnt = replace(parameters, kernel=kernel_only.with_values(optimum.theta).kernel)
    return optimum, _learn_noise(learnt, blocks, settings, seed) if parameters.learn_noise else learnt


def _learn_noise(parameters, blocks, settings, seed) -> Parameters:
    """Noise parameters that maximise the sum of log Z over all rows after reselection (LPJ05 eq. 28)."""
    selection = choose_points(parameters.kernel, blocks, settings, seed)
    posteriors, _, _ = fit_blocks(parameters.kernel, blocks, selection, settings)
    marginals = [
        training_marginals(parameters.kernel, p, b.X, a)
        for p, b, a in zip(posteriors, blocks, selection.active, strict=True)
    ]
    noise_only = replace(parameters, kernel=ConstantKernel(1.0, "fixed"))

    def objective(z):
        values = noise_only.noise_values(z)
        total, gradient = 0.0, np.zeros(len(z))
        for block, (mean, var) in zip(blocks, marginals, strict=True):
            noise = replace(block.noise, **values)
            total += float(np.sum(noise.log_partition(block.y, mean, var)[0]))
            gradient += noise_only.noise_gradient(z, noise.log_partition_grad(block.y, mean, var))
        return -total, -gradient

    optimum = minimize(objective, noise_only.start(), noise_only.bounds(), max_iter=settings.max_iter)
    return replace(noise_only.with_values(optimum.theta), kernel=parameters.kernel)


def _evidence(kernel, blocks, selection: Selection, settings, start=None):
    """The objective of a round, for given active points."""
    if _is_exact(blocks, settings):
        return ActiveGaussianEvidence(kernel, blocks)
    kept = [b.at(a) for b, a in zip(blocks, selection.active, strict=True)]
    if settings.posterior == "projected":
        return ProjectedEvidence(blocks, [b.X[: settings.n_learning] for b in kept], start)
    if not blocks[0].noise.precision_depends_on_mean:
        return ActiveGaussianEvidence(kernel, kept)
    sites = [_active_sites(kernel, k, selection, t, settings)[0] for t, k in enumerate(kept)]
    return ActiveSiteEvidence([k.X for k in kept], sites)


def _value_at(parameters, evidence) -> float:
    """Objective (evidence and priors) at the present parameters."""
    z = parameters.start()
    return evidence(parameters.kernel, parameters.noise_values(z))[0] + parameters.log_prior(z)[0]


def _maximize(parameters, evidence, settings, rng, n_restarts) -> Optimum:
    kernel = clone(parameters.kernel)  # one copy for the whole search: clones cost as much as small tasks

    def objective(z):
        kernel.theta = z[: parameters.n_kernel]
        value, theta_grad, noise_grads = evidence(kernel, parameters.noise_values(z))
        noise_grad = parameters.noise_gradient(z, noise_grads)
        log_prior, prior_grad = parameters.log_prior(z)
        return -(value + log_prior), -(np.concatenate([theta_grad, noise_grad]) + prior_grad)

    return minimize(
        objective,
        parameters.start(),
        parameters.bounds(),
        max_iter=settings.max_iter,
        tol=settings.precision,
        n_restarts=n_restarts,
        rng=rng,
    )


def _parts(blocks: list[Block], exact: bool) -> list[int]:
    """Numbers of rows on which to learn before all of them speak.

    An exact evidence of all rows, or one of another noise model, only needs a cheaper start. The collapsed
    bound needs parameters that are right already: all rows if they are few.
    """
    n_rows = sum(len(b) for b in blocks)
    if exact or any(b.noise.precision_depends_on_mean for b in blocks):
        return [part for part, times in ((_FIRST_PART, 2), (_SECOND_PART, 4)) if n_rows > times * part]
    return sorted({min(n_rows, _FIRST_PART), min(n_rows, _SECOND_PART)})


def _learn_on_part(parameters, blocks, n_part, settings, rng, start=None) -> Parameters:
    """Parameters learnt on a random part of the rows: exactly for Gaussian noise, else on a small basis."""
    chosen = _some_rows(_with_noise(blocks, parameters), n_part, rng)
    part = [_with_noise(blocks, parameters)[t].at(rows) for t, rows in chosen]
    if start is not None:
        start = [start[t].at(rows) for t, rows in chosen]
    gaussian = not any(b.noise.precision_depends_on_mean for b in part)
    n_active = sum(len(b) for b in part) if gaussian else min(settings.n_active, n_part // 2)
    # Other selectors may ask more of a task than its few rows here can give.
    small = replace(settings, selector=RandomSelector(), n_active=n_active, n_rounds=1)
    return _learn_once(parameters, part, small, int(rng.integers(2**63)), rng, 1, start)[1]


def _some_rows(blocks: list[Block], n_part: int, rng) -> list[tuple[int, IntArray]]:
    """Random rows of random tasks, at most a quarter of them from one task where the others have enough.

    Where the noise model knows rows without a label, those with one come first.
    """
    n_rows = sum(len(b) for b in blocks)
    most = n_part if len(blocks) == 1 else n_part // 4
    part, left = [], n_part
    for t in rng.permutation(len(blocks)):
        take = min(len(blocks[t]), max(most, n_part - (n_rows - len(blocks[t]))), left)
        rows = rng.permutation(len(blocks[t]))
        if hasattr(blocks[t].noise, "is_labeled"):
            rows = rows[np.argsort(~blocks[t].noise.is_labeled(blocks[t].y[rows]), kind="stable")]
        part.append((t, np.sort(rows[:take])))
        left -= take
        if left == 0:
            break
    return part


def _finish(
    parameters, blocks, selection, settings, seed, course: _Course, start=None
) -> SharedKernelFit:
    blocks = _with_noise(blocks, parameters)
    if selection is None:
        selection = choose_points(parameters.kernel, blocks, settings, seed)
    posteriors, sites, log_evidence = fit_blocks(parameters.kernel, blocks, selection, settings, start)
    return SharedKernelFit(
        parameters,
        selection,
        posteriors,
        sites,
        log_evidence,
        course.n_rounds,
        course.converged,
        course.last_change,
    )


def _active_sites(kernel, kept: Block, selection: Selection, task: int, settings):
    """Sites of a task's active points, and their log evidence where finding them gave it."""
    if len(kept) == 0:
        return Sites(np.zeros(0), np.zeros(0)), 0.0
    if not kept.noise.precision_depends_on_mean:
        variance = np.broadcast_to(kept.noise.variance, kept.y.shape)
        sites = Sites(kept.y - kept.noise.bias, 1.0 / variance)
    else:
        sites = selection.sites[task] if selection.sites is not None else filter_in_order(kernel, kept)
        if settings.propagate:
            propagated = propagate(kernel, kept, sites)
            return propagated.sites, propagated.log_evidence
    return sites, None


def _with_noise(blocks: list[Block], parameters: Parameters) -> list[Block]:
    values = {name: parameters.noise.parameters[name] for name in parameters.learn_noise}
    if not values:
        return blocks
    return [replace(b, noise=replace(b.noise, **values)) for b in blocks]


def _is_exact(blocks, settings) -> bool:
    return settings.n_active >= sum(len(b) for b in blocks) and not any(
        b.noise.precision_depends_on_mean for b in blocks
    )


def _exact_block(block: Block, active: IntArray) -> bool:
    return len(active) == len(block) and not block.noise.precision_depends_on_mean


def _is_plain(block: Block) -> bool:
    """Gaussian noise of one variance: the order of inclusion is that of a pivoted Cholesky."""
    return not block.noise.precision_depends_on_mean and np.ndim(block.noise.variance) == 0
