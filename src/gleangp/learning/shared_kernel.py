"""Learning a kernel that all tasks share: rounds of "select points, then maximise the evidence".

Lawrence & Platt 2004, section 4; Lawrence, Platt & Jordan 2005, algorithm 2. Departures: L-BFGS-B in
place of scaled conjugate gradients; the best round is kept; rounds end when the evidence no longer
rises; with `posterior="projected"` the evidence is the bound of all rows, and learning starts on a
random part of them, where each step is cheap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from sklearn.gaussian_process.kernels import ConstantKernel

from gleangp._typing import IntArray
from gleangp.inference.block import Block
from gleangp.inference.ep import propagate
from gleangp.inference.filtering import Sites, filter_in_order
from gleangp.inference.posterior import (
    TaskPosterior,
    posterior_from_sites,
    site_log_evidence,
    training_marginals,
)
from gleangp.inference.projected import fit_projection
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

# With more rows than this, the first parameters are learnt on a random part of them.
_WARM_UP_ROWS = 1000
_WARM_UP_PART = 500
_WARM_UP_ACTIVE = 150


def no_report(round_: int, value: float) -> None:
    """Says nothing about a round."""


@dataclass(frozen=True, eq=False)
class Settings:
    """How to learn; the estimators fill it in from their constructor."""

    selector: Selector
    n_active: int
    posterior: str = "projected"  # or "active"
    optimize: bool = True
    n_rounds: int = 5
    max_iter: int = 100
    n_restarts: int = 0
    tol: float = 1e-3  # a round that gains less than this share of a nat per row is the last
    propagate: bool = False  # expectation propagation over the active points, after filtering
    n_jobs: int | None = None
    report: Callable[[int, float], None] = no_report


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

    @property
    def jitter(self) -> float:
        """Largest jitter that a factor needed."""
        return max((p.jitter for p in self.posteriors), default=0.0)


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
    n_rows = sum(len(b) for b in blocks)
    if getattr(settings.selector, "model_free", False):
        settings = replace(
            settings, selector=Chosen(choose_points(parameters.kernel, blocks, settings, seed))
        )
    free = settings.optimize and (parameters.n_kernel + len(parameters.learn_noise)) > 0
    if not free:
        return _finish(parameters, blocks, settings, seed, 0, True, 0.0)
    if settings.posterior == "projected" and n_rows > _WARM_UP_ROWS:
        parameters = _warm_up(parameters, blocks, settings, rng)
    best, best_value, value, change = parameters, -np.inf, -np.inf, np.inf
    converged, n_rounds = False, 0
    one_round = _is_exact(blocks, settings)
    for n_rounds in range(1, settings.n_rounds + 1):
        optimum, parameters = _learn_once(parameters, blocks, settings, seed, rng, n_rounds)
        change = -optimum.value - value
        value = -optimum.value
        settings.report(n_rounds, value)
        if value > best_value:
            best, best_value = parameters, value
        converged = optimum.converged and (one_round or abs(change) <= settings.tol * n_rows)
        if converged or (n_rounds > 1 and change < 0.0):
            converged = True
            break
    return _finish(best, blocks, settings, seed, n_rounds, converged, change)


def fit_blocks(
    kernel, blocks: list[Block], selection: Selection, settings: Settings
) -> tuple[list[TaskPosterior], list[Sites], float]:
    """Posterior and sites of every task for given active points, and the log evidence."""
    posteriors, all_sites, log_evidence = [], [], 0.0
    for t, block in enumerate(blocks):
        active = selection.active[t]
        kept = block.at(active)
        if settings.posterior == "projected" and not _exact_block(block, active):
            posterior, value, rows_sites = fit_projection(kernel, block, kept.X)
            precision = rows_sites.precision[active]
            mean = np.divide(
                rows_sites.shift[active], precision, out=np.zeros(len(active)), where=precision > 0
            )
            sites = Sites(mean, precision)
        else:
            sites, value = _active_sites(kernel, kept, selection, t, settings)
            posterior = posterior_from_sites(kernel, kept.X, sites)
        posteriors.append(posterior)
        all_sites.append(sites)
        log_evidence += value
    return posteriors, all_sites, log_evidence


def choose_points(kernel, blocks, settings: Settings, seed: int) -> Selection:
    """The selector's choice; where every row is kept and noise is Gaussian there is none to make."""
    if settings.n_active >= sum(len(b) for b in blocks) and all(_is_plain(b) for b in blocks):
        return keep_everything(kernel, blocks)
    return settings.selector.select(
        kernel, blocks, settings.n_active, rng=np.random.default_rng(seed), n_jobs=settings.n_jobs
    )


def _learn_once(parameters, blocks, settings, seed, rng, round_) -> tuple[Optimum, Parameters]:
    blocks = _with_noise(blocks, parameters)
    n_restarts = settings.n_restarts if round_ == 1 else 0
    evidence = _evidence(parameters.kernel, blocks, settings, seed)
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


def _evidence(kernel, blocks, settings, seed):
    if _is_exact(blocks, settings):
        return ActiveGaussianEvidence(blocks)
    selection = choose_points(kernel, blocks, settings, seed)
    kept = [b.at(a) for b, a in zip(blocks, selection.active, strict=True)]
    if settings.posterior == "projected":
        return ProjectedEvidence(blocks, [b.X for b in kept])
    if not blocks[0].noise.precision_depends_on_mean:
        return ActiveGaussianEvidence(kept)
    sites = [_active_sites(kernel, k, selection, t, settings)[0] for t, k in enumerate(kept)]
    return ActiveSiteEvidence([k.X for k in kept], sites)


def _maximize(parameters, evidence, settings, rng, n_restarts) -> Optimum:
    def objective(z):
        kernel, noise_values = parameters.unpack(z)
        value, theta_grad, noise_grads = evidence(kernel, noise_values)
        noise_grad = parameters.noise_gradient(z, noise_grads)
        log_prior, prior_grad = parameters.log_prior(z)
        return -(value + log_prior), -(np.concatenate([theta_grad, noise_grad]) + prior_grad)

    return minimize(
        objective,
        parameters.start(),
        parameters.bounds(),
        max_iter=settings.max_iter,
        n_restarts=n_restarts,
        rng=rng,
    )


def _warm_up(parameters, blocks, settings, rng) -> Parameters:
    """Parameters learnt on a random part of the rows of all tasks."""
    n_rows = sum(len(b) for b in blocks)
    chosen = np.sort(rng.choice(n_rows, size=_WARM_UP_PART, replace=False))
    edges = np.cumsum([0] + [len(b) for b in blocks])
    part = [
        b.at(chosen[(chosen >= lo) & (chosen < hi)] - lo)
        for b, lo, hi in zip(_with_noise(blocks, parameters), edges[:-1], edges[1:], strict=True)
    ]
    part = [b for b in part if len(b)]
    exact = all(_is_plain(b) for b in part)
    small = replace(
        settings,
        selector=RandomSelector(),  # others may ask more of a task than its few rows here can give
        n_active=_WARM_UP_PART if exact else min(_WARM_UP_ACTIVE, settings.n_active),
        n_rounds=1,
    )
    _, parameters = _learn_once(parameters, part, small, int(rng.integers(2**63)), rng, 1)
    return parameters


def _finish(parameters, blocks, settings, seed, n_rounds, converged, change) -> SharedKernelFit:
    blocks = _with_noise(blocks, parameters)
    selection = choose_points(parameters.kernel, blocks, settings, seed)
    posteriors, sites, log_evidence = fit_blocks(parameters.kernel, blocks, selection, settings)
    return SharedKernelFit(
        parameters, selection, posteriors, sites, log_evidence, n_rounds, converged, change
    )


def _active_sites(kernel, kept: Block, selection: Selection, task: int, settings):
    """Sites of a task's active points, and their log evidence."""
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
    return sites, site_log_evidence(kernel, kept.X, sites)[0]


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
