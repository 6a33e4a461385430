"""Fitting the model of blocks and a basis: learn the parameters, then form the posterior of all rows.

With few rows predictions average over draws of the hyperparameters. Few rows do not determine the form of the
model either. Every form has a mode. The posterior probability of a form is proportional to the mass of its
Laplace approximation,

    log mass = log posterior density - 1/2 log |H| + k/2 log 2 pi,   H = -d2 log posterior / dz2 (k, k),

which depends on how much of the parameter space fits the data, and not only on the best point of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.base import clone

from gleangp._typing import FloatArray, IntArray
from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.inference.block import lay_out
from gleangp.inference.evidence import Conditioned, RowSites
from gleangp.inference.local import LocalPosterior
from gleangp.inference.prior import BlockPrior, Term
from gleangp.kernels.evaluate import length_scales
from gleangp.models.decisions import Choice, Decision
from gleangp.models.defaults import Conditioning, Learning
from gleangp.models.local.answers import choose_spread
from gleangp.models.local.data import Data, blocks_of_tasks, own_bases, some_of, targets_of
from gleangp.models.local.learn import Learnt, Search, learn, learn_on_all, race
from gleangp.models.local.model import Draw, LocalModel, active_points
from gleangp.models.objective import LogPosterior, Rows
from gleangp.models.parameters import Slots
from gleangp.numerics.parallel import freed_memory_kept, on_one_thread, where_blocks_are
from gleangp.progress import Stage


@freed_memory_kept()
@on_one_thread()  # blocks are small, however many rows a task has
def fit_local(candidates: Sequence[Search], data: Data, rng: np.random.Generator) -> LocalModel:
    """Learn the parameters and form the posterior of all rows, of the candidate with the most evidence."""
    seed = int(rng.integers(2**62))
    search, learnt, decisions = _compete(candidates, data, seed)
    modes = _modes(search, learnt, len(data)) if len(learnt) > 1 else []
    best = modes[0].learnt if modes else learnt[0]
    stage = Stage("posterior", 1, data.n_tasks, len(data))
    search.progress(stage, 0, None)
    at_best, basis, n_silent = _posterior(search, best, data, best.optimum.theta, rng)
    if lost_evidence(search, best, data, before := at_best.posterior.log_evidence):
        best = learn_on_all(search, best, data, rng)
        at_best, basis, n_silent = _posterior(search, best, data, best.optimum.theta, rng)
        reason = (
            "Parameters learnt on neighbourhoods did not fit all rows together; learning went on with all."
        )
        numbers = {"log evidence before": before, "after": at_best.posterior.log_evidence}
        decisions.append(Decision("learning", "all rows", numbers, reason))
    search.progress(stage, 1, at_best.posterior.log_evidence)
    modes = modes or _modes(search, [best], len(data))
    draws = _draws(search, modes, data, rng) if modes else ()
    decisions += _decided_forms(modes)
    at_best, draws, made = _with_spread(search, at_best, draws, seed)
    decisions += made
    if modes:
        reason = "Predictions average over draws of the hyperparameters."
        decisions.append(Decision("draws", str(len(draws)), {"rows": float(len(data))}, reason))
    end, learning = best.optimum, search.learning
    return LocalModel(
        search.inputs,
        at_best,
        draws,
        search.likelihood.noise_model(best.objective.slots, best.optimum.theta),
        np.arange(len(data)),
        **active_points(at_best.posterior, basis),
        n_rows=len(data),
        decisions=tuple(decisions),
        # Whether more steps would hardly change the parameters; later stages are short on purpose.
        converged=not end.stopped
        and (end.converged or best.n_rows > learning.n_together or end.last_change <= learning.settled),
        last_change=end.last_change,
        n_silent=n_silent,
        choice=Choice(decisions[0].chosen, dict(decisions[0].numbers), decisions[0].reason),
        targets=None if search.likelihood.gaussian else targets_of(data.y, data.noise),
    )


def _with_spread(
    search: Search, best: Draw, draws: tuple[Draw, ...], seed: int
) -> tuple[Draw, tuple[Draw, ...], list[Decision]]:
    """With the spread that left-out rows of large tasks show, and the decision; none without such tasks.

    Other noise has no variance to scale, and parameters that were given stay as they are.
    """
    scalable = search.optimize and search.likelihood.gaussian and bool(search.likelihood.learn)
    # Rows of its own generator: how many numbers the choice of a basis draws depends on rounding.
    rng = np.random.default_rng(seed)
    made = choose_spread(best.posterior, search.conditioning, rng) if scalable else None
    if made is None:
        return best, draws, []
    spread = {name: made.numbers[name] for name in ("spread", "usual_rows")}
    several = [replace(d, posterior=d.posterior.extended(**spread)) for d in (best, *draws)]
    return several[0], tuple(several[1:]), [made]


def lost_evidence(search: Search, learnt: Learnt, data: Data, log_evidence: float) -> bool:
    """Whether all rows have far less evidence under the prior of predictions than they had in learning.

    Learning leaves out most of the covariance between neighbourhoods. With next to no noise, parameters under
    which the left-out part matters can have the most evidence there, and very little here.
    """
    on_neighbourhoods = learnt.n_rows == len(data) > search.learning.n_together
    if not (search.optimize and search.likelihood.gaussian and on_neighbourhoods):
        return False
    return log_evidence < learnt.evidence_per_row * learnt.n_rows - search.learning.hopeless


def _compete(
    candidates: Sequence[Search], data: Data, seed: int
) -> tuple[Search, list[Learnt], list[Decision]]:
    """The search with the most evidence, what it learnt, and the decisions."""
    alone, found = candidates[0], [race(candidates[0], data, seed)]
    if len(candidates) == 1:
        learnt_alone, decided = learn(alone, data, found[0], seed)
        return alone, learnt_alone, [Decision("coupling", alone.name, {}, alone.reason), *decided]
    # What one start is better for, short length scales and little noise, others have in common with it.
    start = [found[0].objective.start]
    found += [race(replace(c, starts=start), data, seed, ahead=found[0]) for c in candidates[1:]]
    learnt: list[tuple[list[Learnt], list[Decision]]] = [([f], []) for f in found]

    def evidence() -> list[float]:
        pairs = zip(candidates, learnt, strict=True)
        return [max(f.evidence_per_row for f in forms) * len(data) - c.penalty for c, (forms, _) in pairs]

    # With many rows, a few steps on some of them decide. Else all that may still win are learnt to the end.
    scores = evidence()
    finished = all(f.n_rows == len(data) for f in found)
    if finished:
        for k, c in enumerate(candidates):
            if scores[k] >= max(scores) - c.learning.hopeless:
                learnt[k] = learn(c, data, found[k], seed)
        scores = evidence()
    which = int(np.argmax(scores))
    search = candidates[which]
    text = f"the log evidence, less what its weights cost, is the highest for {search.name!r}"
    numbers = {c.name: float(score) for c, score in zip(candidates, scores, strict=True)}
    winner, decided = learnt[which] if finished else learn(search, data, found[which], seed)
    return search, winner, [Decision("coupling", search.name, numbers, text), *decided]


@dataclass(frozen=True, eq=False)
class Mode:
    """The Laplace approximation at what was learnt."""

    learnt: Learnt
    free: IntArray  # (k,) parameters that draws vary
    root: FloatArray  # (k, k) of the inverse of the Hessian
    log_mass: float


def _modes(search: Search, learnt: list[Learnt], n_rows: int) -> list[Mode]:
    """Laplace approximations, the most probable form first; none if predictions do not average over draws."""
    if not search.draws(n_rows) or not len(_free(learnt[0])):
        return []
    most = min(form.optimum.value for form in learnt) + search.learning.hopeless
    modes = [_mode_of(form, search.learning, hopeless=form.optimum.value > most) for form in learnt]
    return sorted(modes, key=attrgetter("log_mass"), reverse=True)


def _mode_of(learnt: Learnt, learning: Learning, *, hopeless: bool) -> Mode:
    """The Laplace approximation of the free parameters, with the Hessian by differences of the gradient.

    An eigenvalue below `least_curvature` is raised to it, so that no draw leaves the region of the
    approximation. The root is the symmetric one, as rounding can change the signs of eigenvectors, and turn
    those of equal eigenvalues. A form that is `hopeless` has no mass and no draws.
    """
    objective, z, free = learnt.objective, learnt.optimum.theta, _free(learnt)
    hessian = np.zeros((len(free), len(free)))
    if hopeless:
        return Mode(learnt, free, hessian, -np.inf)
    at = objective(z)[1][free]
    for k, i in enumerate(free):
        moved = z.copy()
        moved[i] += learning.step
        hessian[k] = (objective(moved)[1][free] - at) / learning.step
    values, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T))
    values = np.maximum(values, learning.least_curvature)
    log_mass = -learnt.optimum.value + 0.5 * float(np.sum(np.log(2.0 * np.pi / values)))
    return Mode(learnt, free, (vectors / np.sqrt(values)) @ vectors.T, log_mass)


def _free(learnt: Learnt) -> IntArray:
    """(k,) the parameters that draws vary; those of a slot by size, as columns and tasks may have any order.

    Not z_t, whose uncertainty the likelihood has in closed form. Of labels not the noise: cut-points are on
    the scale of the latent function, and the same in all draws.
    """
    objective, z = learnt.objective, learnt.optimum.theta
    of_labels, parts = objective.likelihood.of_labels, [np.zeros(0, dtype=np.intp)]
    for name, part in objective.slots.where.items():
        if not (name == "z" or (of_labels and name.startswith("noise__"))):
            parts.append(part.start + np.argsort(z[part], kind="stable"))
    return np.concatenate(parts)


def _decided_forms(modes: list[Mode]) -> list[Decision]:
    """Smoothness and warping with their probabilities, where there was a choice."""
    if not modes:
        return []
    shares, made = softmax([mode.log_mass for mode in modes]), []
    for what, of, text in (
        ("smoothness", "kernel", "The most probable model has the kernel {}"),
        ("warping", "inputs", "The most probable model sees inputs {}"),
    ):
        names: list[str] = [getattr(mode.learnt.objective.form, of) for mode in modes]
        numbers: dict[str, float] = {}
        for name, share in zip(names, shares, strict=True):
            numbers[name] = numbers.get(name, 0.0) + float(share)
        if len(numbers) > 1:
            reason = f"{text.format(names[0])} (posterior probability {numbers[names[0]]:.2f})."
            made.append(Decision(what, names[0], numbers, reason))
    return made


def _draws(search: Search, modes: list[Mode], data: Data, rng) -> tuple[Draw, ...]:
    """The posterior at draws of the hyperparameters; none if the progress function leaves them out.

    Antithetic pairs, of every mode in proportion to its probability. A draw is left out where a covariance
    has no factor, as with hardly any noise.
    """
    learning = search.learning
    stage = Stage("draws", learning.n_draws, data.n_tasks, len(data))
    if search.progress(stage, 0, None):
        return ()
    several: list[Draw] = []
    up_to, n_pairs = np.cumsum(softmax([mode.log_mass for mode in modes])), learning.n_draws // 2
    # Always the same points, as in a quadrature: a fit of few rows does not depend on a seed.
    half = np.random.default_rng(0).standard_normal((n_pairs, max(len(mode.free) for mode in modes)))
    for k, normal in enumerate([*half, *-half]):
        place = int(np.searchsorted(up_to, (k % n_pairs + 0.5) / n_pairs))
        mode = modes[min(place, len(modes) - 1)]
        z = _drawn(mode, normal[: len(mode.free)], learning)
        try:
            several.append(_posterior(search, mode.learnt, data, z, rng)[0])
        except NotPositiveDefiniteError:
            continue
        search.progress(stage, len(several), None)
    return tuple(several)


def _drawn(mode: Mode, normal: FloatArray, learning: Learning) -> FloatArray:
    """The draw at that step from the mode, shortened until the log posterior falls about as expected.

    Where the log posterior is far from quadratic, as with next to no noise, a full step can lead to
    parameters that the data exclude.
    """
    objective, z = mode.learnt.objective, mode.learnt.optimum.theta
    step, expected = mode.root @ normal, 0.5 * float(normal @ normal)
    low, high = objective.slots.bounds.T
    for _ in range(learning.most_halvings):
        drawn = z.copy()
        drawn[mode.free] += step
        drawn = np.clip(drawn, low, high)
        if objective.value(drawn) - mode.learnt.optimum.value <= expected + learning.slack:
            return drawn
        step, expected = 0.5 * step, 0.25 * expected
    return z.copy()


def _posterior(
    search: Search, learnt: Learnt, data: Data, z: FloatArray, rng: np.random.Generator
) -> tuple[Draw, IntArray, int]:
    """The posterior of all rows at z, the rows that are its basis, and the number without information."""
    objective, likelihood, how = learnt.objective, search.likelihood, search.conditioning
    slots, sites = objective.slots, objective.sites(np.arange(len(data)))
    terms, W = _terms(objective, data, z), search.inputs(data.X, objective.warp(z))
    rows, basis = arrange(terms, W, data, search.choose_basis, how, rng)
    if likelihood.varies and learnt.n_rows < len(data):
        # As many basis points as while learning will do: the noise is what is left within blocks.
        Z = rows.Z[: search.learning.stages[-1].n_basis]
        prior = BlockPrior(terms, W, rows.layout, Z, where_blocks_are(), gradients=False)
        z = _noise_of_tasks(search, slots, prior, rows, z, sites)
        terms = _terms(objective, data, z)
    prior = BlockPrior(terms, W, rows.layout, rows.Z, where_blocks_are(), gradients=False)
    settled = likelihood.settle(prior, rows, slots, z, sites, gradient=False)
    posterior = local_posterior(prior, rows, settled.q, settled.sites, settled.evidence, how)
    draw = Draw(posterior, objective.warp(z), likelihood.predictive_variance(slots, z))
    return draw, basis, settled.sites.n_silent


def _terms(objective: LogPosterior, data: Data, z: FloatArray) -> list[Term]:
    """At z, to keep; with average weights of tasks that have no rows, because theirs were not learnt."""
    terms, empty = [], data.sizes == 0
    for term in objective.terms(z):
        loadings, own = term.loadings.copy(), term.own.copy()
        if empty.any() and not empty.all():
            loadings[empty], own[empty] = loadings[~empty].mean(axis=0), own[~empty].mean()
        terms.append(Term(clone(term.kernel), loadings, own))
    return terms


def _noise_of_tasks(search: Search, slots: Slots, prior: BlockPrior, rows: Rows, z: FloatArray, sites):
    """z with the noise of every task, by scoring steps at the other parameters.

    The curvature of the evidence in the log variance of a task is about its information I_t.
    """
    learning, likelihood = search.learning, search.likelihood
    z, part = z.copy(), slots.where["z"]
    tau, rho = float(np.exp(slots.get(z, "tau")[0])), slots.get(z, "rho")[0]
    curvature = np.maximum(likelihood.information(rho), 0.5)
    for _ in range(learning.noise_passes):
        slope, sites = likelihood.slope_of_tasks(prior, rows, slots, z, sites)
        step = (tau * slope - z[part]) / (1.0 + tau**2 * curvature)
        z[part] = np.clip(z[part] + np.clip(step, -1.0, 1.0), -6.0, 6.0)
        if np.abs(step).max() < learning.noise_step:
            break
    return z


def arrange(
    terms: Sequence[Term], W: FloatArray, data: Data, choose_basis: Any, how: Conditioning, rng
) -> tuple[Rows, IntArray]:
    """All rows in blocks, with a basis, and the rows it is made of; inputs W as the kernels see them."""
    basis, every = np.zeros(0, dtype=np.intp), np.arange(len(data))
    if len(data) <= how.n_together:
        return Rows(W, data.y, data.noise, lay_out(data.codes, [every]), W[:0], every), basis
    blocks = blocks_of_tasks(data.codes, W / length_scales(terms[0].kernel, W.shape[1]), how.block)
    layout = lay_out(data.codes, blocks, own_bases(terms, data, W, blocks, how.n_own_basis, rng))
    shared = [t for t in terms if t.loadings.shape[1]]
    if shared and len(blocks) > 1:
        pool = some_of(len(data), how.pool * how.n_basis, rng)
        chosen = choose_basis(shared[0].kernel, W[pool], data.at(pool), how.n_basis, rng)
        basis = pool[np.asarray(chosen, dtype=np.intp)]
    return Rows(W, data.y, data.noise, layout, W[basis], every), basis


def local_posterior(
    prior: BlockPrior, rows: Rows, q: Conditioned, sites: RowSites, evidence: float, how: Conditioning
) -> LocalPosterior:
    """What prediction needs, from the settled sites of all rows."""
    n, computed = len(rows.y), {}
    own: dict[int, Any] = {}  # known of the basis at need: `computed` has it
    for group, known in zip(rows.layout.groups, q.groups, strict=True):
        if group.task is not None:
            own[group.task] = group.Z, None
            computed["group", group.task] = known
    posterior = LocalPosterior(
        terms=tuple(prior.terms),
        X=prior.X,
        codes=rows.layout.codes,
        precision=sites.precision,
        site_mean=sites.mean,
        together=n <= how.n_together,
        n_learnt=n,
        block_size=2 * how.block,
        Z=rows.Z,
        common=q.common,
        own=own,
        log_evidence=evidence,
        jitter=max(prior.jitter, q.jitter),
        n_tasks_learnt=len(prior.terms[0].own),
    )
    posterior.computed.update(computed)
    return posterior
