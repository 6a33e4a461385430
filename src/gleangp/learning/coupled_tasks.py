"""Learning coupled tasks: choose the common basis, then maximise the evidence of all rows.

As `shared_kernel` does for tasks that share a kernel alone: rounds of "select, then learn", the first
parameters from random parts of the rows. The basis is chosen among the rows of all tasks as one block, under
the kernels that are shared, because it has to carry the shared functions only: own functions are exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from sklearn.gaussian_process.kernels import Sum

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.inference.coupled import CoupledPrior, evidence_gradient, settle, stack_rows
from gleangp.inference.row_ep import RowSites
from gleangp.learning.couplings import CoupledParameters
from gleangp.learning.parameters import MovingKernel
from gleangp.learning.settings import Settings
from gleangp.optimize import Optimum, minimize
from gleangp.progress import Stage, report_to
from gleangp.selection.base import Selection

# Rows on which parameters are learnt, one after the other, and how many of a task at most, so that there are
# enough tasks to tell common from own; with not many more, all are used at the end. Where sites are to be
# found a step on many rows costs a second, and one part more saves some of them.
_PARTS = ((800, 50), (6000, 50))
_PARTS_WITH_SITES = ((800, 50), (2000, 100), (6000, 50))
_LITTLE = 10.0
_SETTLED = 0.1  # of what a search can tell: change of the evidence at which the sites have settled
_FIRST_STEP = 0.5  # of a search, in log-parameters
_LEARNING_FEATURES = 200  # basis points times shared functions while learning: steps cost their square


@dataclass(frozen=True, eq=False)
class CoupledFit:
    """What was learnt."""

    parameters: CoupledParameters
    basis: Selection  # over the rows of all blocks, one after the other
    objective: float  # evidence and priors of the rows last learnt on
    n_rounds: int
    converged: bool
    last_change: float
    sites: RowSites | None = None  # of the rows learnt on, at the end; None with Gaussian noise


class CoupledEvidence:
    """Log evidence and log prior of all rows, and their gradient; EP sites warm-start from call to call.

    Sites have settled where the evidence changes by less than `nats`. They belong to the rows and hardly
    depend on the basis, so that those of one may be the start of another.
    """

    def __init__(
        self,
        parameters: CoupledParameters,
        blocks: list[Block],
        Z: FloatArray,
        nats: float = 0.0,
        sites: RowSites | None = None,
    ):
        filled = [t for t, b in enumerate(blocks) if len(b)]
        self.parameters, self.Z, self.nats = parameters, Z, nats
        self.rows = stack_rows([blocks[t] for t in filled], np.array(filled))
        self._kernel = MovingKernel(parameters.base.kernel)
        self.sites = sites

    def __call__(self, z: FloatArray) -> tuple[float, FloatArray]:
        prior, parameters = self._prior_at(z)
        settled = settle(prior, self.sites, nats=self.nats)
        if prior.rows.blocks[0].noise.precision_depends_on_mean:
            self.sites = settled.sites
        grad = parameters.gradient(z, evidence_gradient(prior, settled))
        log_prior, prior_grad = parameters.log_prior(z)
        return settled.evidence + log_prior, grad + prior_grad

    def value(self, z: FloatArray) -> float:
        """Without the gradient."""
        prior, parameters = self._prior_at(z)
        return settle(prior, self.sites, nats=self.nats).evidence + parameters.log_prior(z)[0]

    def _prior_at(self, z):
        base = self.parameters.base
        kernel = self._kernel.at(z[: base.n_kernel])
        parameters = self.parameters.with_shares(z)
        rows, values = self.rows, base.noise_values(z)
        if values:
            rows = replace(rows, blocks=with_noise(rows.blocks, values))
        return CoupledPrior(parameters.terms(kernel), rows, self.Z), parameters


def learn_coupled(
    parameters: CoupledParameters,
    blocks: list[Block],
    settings: Settings,
    rng: np.random.Generator,
    first_part: bool = True,
) -> CoupledFit:
    """Choose the basis and learn kernels, noise, and loadings where they are free.

    Parameters
    ----------
    parameters : CoupledParameters
        To start from.
    blocks : list of Block
        One per task; a task without rows has an empty one.
    settings : Settings
        How to learn; `n_active` is the number of basis points.
    rng : numpy.random.Generator
        For selectors that sample, restarts, and the rows to begin with.
    first_part : bool, default=True
        Begin on a small part of many rows; False where the parameters come from one already.

    Returns
    -------
    CoupledFit
        Learnt parameters and the basis; the posterior is the caller's to form.
    """
    seed = int(rng.integers(2**63))  # every round draws the same numbers: rounds stay comparable
    n_rows = sum(len(b) for b in blocks)
    if not (settings.optimize and len(parameters.start())):
        return CoupledFit(parameters, choose_basis(parameters, blocks, settings, seed), np.nan, 0, True, 0.0)
    parts = _PARTS_WITH_SITES if parameters.base.noise.precision_depends_on_mean else _PARTS
    for n_part, most in parts[0 if first_part else 1 :]:
        if n_rows > 1.5 * n_part:
            part, tasks = some_rows(blocks, n_part, most, parameters.learn_loadings, rng)
            once = replace(settings, n_rounds=1)
            fit = climb(parameters.at_tasks(tasks), part, once, seed, rng, f"{n_part} rows")
            parameters = learnt_on(parameters, fit.parameters, tasks)
    if n_rows > 1.5 * parts[-1][0]:  # so many rows that more of them would not change the parameters
        basis = choose_basis(parameters, blocks, settings, seed)
        return replace(fit, parameters=parameters, basis=basis, sites=None)
    fit = climb(parameters, blocks, settings, seed, rng)
    empty = [t for t, b in enumerate(blocks) if not len(b)]
    return replace(fit, parameters=fit.parameters.average_at(empty))


def climb(parameters, blocks, settings, seed, rng, name=None) -> CoupledFit:
    """Rounds whose evidence is that of all rows: a new basis is taken only if it raises it.

    `name` is what progress calls them, if not by their number.
    """
    n_rows = sum(len(b) for b in blocks)
    value, change, n_rounds, settled, basis, sites = -np.inf, np.inf, 0, False, None, None
    X = np.vstack([b.X for b in blocks])
    while n_rounds < settings.n_rounds and not settled:
        blocks = with_noise(blocks, parameters.base.noise_values(parameters.start()))
        candidate = choose_basis(parameters, blocks, settings, seed)
        Z = X[candidate.active[0][: _learning_basis(parameters)]]
        nats = _SETTLED * settings.precision * n_rows
        evidence = CoupledEvidence(parameters, blocks, Z, nats, sites)
        if n_rounds and evidence.value(parameters.start()) <= value + settings.tol * n_rows:
            settled = True
            break
        n_restarts = 0 if n_rounds else settings.n_restarts
        most = settings.max_iter * (1 + n_restarts)
        stage = Stage(name or f"round {n_rounds + 1}", most, len(blocks), len(candidate.order))
        stopped = settings.progress(stage, 0, value if n_rounds else None)
        if stopped and n_rounds:
            break
        n_rounds += 1
        basis = candidate
        optimum = _maximize(parameters, evidence, settings, rng, n_restarts, stage, n_rows)
        parameters, sites = parameters.with_values(optimum.theta), evidence.sites
        change, value = -optimum.value - value, -optimum.value
        settled = optimum.converged and len(Z) == len(X)
    # Rounds that ran out while each still gained a little are not worth a warning.
    settled = settled or change <= _LITTLE * settings.tol * n_rows or settings.n_rounds == 1
    return CoupledFit(parameters, basis, value, n_rounds, settled and optimum.converged, change, sites)


def _learning_basis(parameters: CoupledParameters) -> int:
    n_shared = sum(W.shape[1] for W in parameters.loadings)
    return max(50, _LEARNING_FEATURES // max(1, n_shared))


def _maximize(
    parameters: CoupledParameters, evidence: CoupledEvidence, settings, rng, n_restarts, stage, n_rows
) -> Optimum:
    def objective(z):
        value, gradient = evidence(z)
        return -value, -gradient

    # What labels say of the parameters is counted per row: the log evidence of an easy class is near zero,
    # and a part of it more than the data know. Measurements have about a nat a row, where it is the same.
    counted = {}
    if parameters.base.noise.precision_depends_on_mean:
        counted = {"scale": n_rows, "first_step": _FIRST_STEP}
    return minimize(
        objective,
        parameters.start(),
        parameters.bounds(),
        max_iter=settings.max_iter,
        tol=settings.precision,
        n_restarts=n_restarts,
        rng=rng,
        report=report_to(settings.progress, stage),
        **counted,
    )


def choose_basis(
    parameters: CoupledParameters, blocks: list[Block], settings: Settings, seed: int
) -> Selection:
    """The selector's choice among the rows of all tasks, as one block under the shared kernels."""
    pooled = pool_blocks(blocks)
    n_active = min(settings.n_active, len(pooled))
    selector = getattr(settings.selector, "alone", settings.selector)
    kernel = shared_kernel(parameters)
    return selector.select(
        kernel, [pooled], n_active, rng=np.random.default_rng(seed), n_jobs=settings.n_jobs
    )


def shared_kernel(parameters: CoupledParameters):
    """Sum of the kernels that tasks share; of all kernels, if none is."""
    terms = parameters.terms()
    kernels = [q.kernel for q in terms if q.loadings.shape[1]] or [q.kernel for q in terms]
    total = kernels[0]
    for kernel in kernels[1:]:
        total = Sum(total, kernel)
    return total


def pool_blocks(blocks: list[Block]) -> Block:
    """All rows as one block; a noise model with values per row keeps them."""
    filled = [b for b in blocks if len(b)]
    noise = filled[0].noise
    per_row = {
        name: np.concatenate([b.noise.parameters[name] for b in filled])
        for name, value in noise.parameters.items()
        if np.ndim(value) == 1 and all(np.shape(b.noise.parameters[name]) == (len(b),) for b in filled)
    }
    noise = replace(noise, **per_row)
    return Block(np.vstack([b.X for b in filled]), np.concatenate([b.y for b in filled]), noise)


def some_rows(
    blocks: list[Block], n_part: int, most: int, every_task: bool, rng
) -> tuple[list[Block], IntArray]:
    """About `n_part` rows, at most `most` of a task, and the tasks they are of.

    Of every task some, where each has its own weights.
    """
    filled = [t for t, b in enumerate(blocks) if len(b)]
    most = max(3, n_part // len(filled)) if every_task else most
    part, tasks, left = [], [], n_part
    for t in rng.permutation(filled):
        take = min(len(blocks[t]), most)
        part.append(blocks[t].at(np.sort(rng.choice(len(blocks[t]), size=take, replace=False))))
        tasks.append(t)
        left -= take
        if left <= 0 and not every_task:
            break
    return part, np.array(tasks)


def learnt_on(parameters, learnt, tasks) -> CoupledParameters:
    """Kernel and noise as learnt on a part; loadings and own weights of the tasks that were in it."""
    loadings, own = [np.array(W) for W in parameters.loadings], [np.array(k) for k in parameters.own]
    for q in range(len(own)):
        loadings[q][tasks], own[q][tasks] = learnt.loadings[q], learnt.own[q]
    return replace(learnt, loadings=tuple(loadings), own=tuple(own))


def with_noise(blocks: list[Block], values: dict) -> list[Block]:
    """The blocks under other noise parameters; those that shared a model still do."""
    if not values:
        return blocks
    models = {id(b.noise): b.noise for b in blocks}
    models = {key: replace(noise, **values) for key, noise in models.items()}
    return [replace(b, noise=models[id(b.noise)]) for b in blocks]
