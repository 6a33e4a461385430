"""Fitting the model of blocks and a basis: learn the parameters, then form the posterior of all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.inference.block import Layout, lay_out
from gleangp.inference.local import LocalPosterior
from gleangp.inference.prior import BlockPrior, Term
from gleangp.kernels.parameters import length_scales
from gleangp.models.decisions import Choice, Decision
from gleangp.models.defaults import CONDITIONING, Conditioning, Learning
from gleangp.models.likelihood import Settled
from gleangp.models.local.data import Data, blocks_of_tasks, some_of, targets_of
from gleangp.models.local.draws import Mode, laplace_draws, mode_of, probabilities
from gleangp.models.local.learn import Learnt, Search, learn, pivots_of, race
from gleangp.models.local.model import Draw, LocalModel, active_points
from gleangp.models.local.plan import Candidate
from gleangp.models.local.spread import choose_spread
from gleangp.models.objective import Rows
from gleangp.numerics.parallel import freed_memory_kept, where_blocks_are
from gleangp.progress import Stage


@freed_memory_kept()
def fit_local(
    candidates: Sequence[Candidate],
    data: Data,
    rng: np.random.Generator,
    *,
    n_basis: int | None = None,
    choose_basis: Any = None,
) -> LocalModel:
    """Learn the parameters and form the posterior of all rows, of the candidate with the most evidence.

    `choose_basis(kernel, W, pool, count, rng)` gives numbers of rows of `pool`, of which W are the inputs as
    the kernel sees them; None: those that leave little unexplained.
    """
    conditioning = CONDITIONING
    if n_basis is None:
        n_basis = conditioning.n_basis
    elif n_basis < len(data):
        conditioning = replace(conditioning, n_together=0)  # few points were asked for
        candidates = [replace(c, search=c.search.for_points(n_basis)) for c in candidates]
    search, learnt, decisions = _compete(candidates, data, int(rng.integers(2**62)))
    modes = _modes(search, learnt, len(data))
    best = modes[0].learnt if modes else learnt[0]
    finish = _Finish(search, best, data, n_basis, choose_basis or pivots_of, conditioning)
    stage = Stage("posterior", 1, data.n_tasks, len(data))
    search.progress(stage, 0, None)
    at_best, basis, n_silent = finish(best.z, rng)
    search.progress(stage, 1, at_best.posterior.log_evidence)
    draws = _draws(finish, modes, at_best.posterior, rng) if modes else ()
    decisions += [*best.decisions, *_decided_forms(modes)]
    # Other noise has no variance to scale, and parameters that were given stay as they are.
    if search.optimize and search.likelihood.gaussian and search.likelihood.learn:
        spread, decided = choose_spread(at_best.posterior, conditioning, rng)
        decisions += decided
        if spread:
            at_best = replace(at_best, posterior=at_best.posterior.extended(**spread))
            draws = tuple(replace(d, posterior=d.posterior.extended(**spread)) for d in draws)
    if modes:
        reason = "Predictions average over draws of the hyperparameters."
        decisions.append(Decision("draws", str(len(draws)), {"rows": float(len(data))}, reason))
    return LocalModel(
        search.inputs,
        at_best,
        draws,
        search.likelihood.noise_model(best.slots, best.z),
        np.arange(len(data)),
        **active_points(at_best.posterior, basis),
        n_rows=len(data),
        decisions=tuple(decisions),
        converged=_has_converged(best, search.learning),
        last_change=best.optimum.last_change,
        n_silent=n_silent,
        choice=Choice(decisions[0].chosen, dict(decisions[0].numbers), decisions[0].reason),
        targets=None if search.likelihood.gaussian else targets_of(data.y, data.noise),
    )


def _compete(
    candidates: Sequence[Candidate], data: Data, seed: int
) -> tuple[Search, list[Learnt], list[Decision]]:
    """The search with the most evidence, what it learnt, and the decision."""
    alone, first = candidates[0], race(candidates[0].search, data, seed)
    if len(candidates) == 1:
        made = Decision("coupling", alone.name, {}, alone.reason)
        return alone.search, learn(alone.search, data, first, seed), [made]
    # What one start is better for, short length scales and little noise, others have in common with it.
    start = [first.objective.start]
    others = [race(replace(c.search, starts=start), data, seed, ahead=first) for c in candidates[1:]]
    found = [first, *others]
    learnt = [[f] for f in found]

    def evidence() -> list[float]:
        pairs = zip(candidates, learnt, strict=True)
        return [max(f.evidence_per_row for f in several) * len(data) - c.penalty for c, several in pairs]

    # With many rows, a few steps on some of them decide. Else all that may still win are learnt to the end.
    scores = evidence()
    finished = all(f.n_rows == len(data) for f in found)
    if finished:
        for k, c in enumerate(candidates):
            if scores[k] >= max(scores) - c.search.learning.hopeless:
                learnt[k] = learn(c.search, data, found[k], seed)
        scores = evidence()
    which = int(np.argmax(scores))
    search, name = candidates[which].search, candidates[which].name
    text = f"the log evidence, less what its weights cost, is the highest for {name!r}"
    numbers = {c.name: float(score) for c, score in zip(candidates, scores, strict=True)}
    winner = learnt[which] if finished else learn(search, data, found[which], seed)
    return search, winner, [Decision("coupling", name, numbers, text)]


def _modes(search: Search, learnt: list[Learnt], n_rows: int) -> list[Mode]:
    """Laplace approximations, the most probable form first; none if predictions do not average over draws."""
    if not search.draws(n_rows) or not learnt[0].slots.size:
        return []
    most = min(form.value for form in learnt) + search.learning.hopeless
    modes = [mode_of(form, search.learning, hopeless=form.value > most) for form in learnt]
    return sorted(modes, key=lambda mode: -mode.log_mass)


def _decided_forms(modes: list[Mode]) -> list[Decision]:
    """Smoothness and warping with their probabilities, where there was a choice."""
    if len(modes) < 2:
        return []
    shares, made, best = probabilities(modes), [], modes[0].learnt.form
    for what, of, text in (
        ("smoothness", lambda form: form.kernel, "The most probable model has the kernel {}"),
        ("warping", lambda form: form.inputs, "The most probable model sees inputs {}"),
    ):
        numbers: dict[str, float] = {}
        for mode, share in zip(modes, shares, strict=True):
            name = of(mode.learnt.form)
            numbers[name] = numbers.get(name, 0.0) + float(share)
        if len(numbers) > 1:
            reason = f"{text.format(of(best))} (posterior probability {numbers[of(best)]:.2f})."
            made.append(Decision(what, of(best), numbers, reason))
    return made


def _draws(
    finish: _Finish, modes: list[Mode], best: LocalPosterior, rng: np.random.Generator
) -> tuple[Draw, ...]:
    """The posterior at draws of the hyperparameters; none if the progress function leaves them out.

    A draw is left out where a covariance has no factor, as with hardly any noise.
    """
    search, learning = finish.search, finish.search.learning
    stage = Stage("draws", learning.n_draws, finish.data.n_tasks, len(finish.data))
    if search.progress(stage, 0, None):
        return ()
    several: list[Draw] = []
    for learnt, z in laplace_draws(modes, learning):
        try:
            several.append(replace(finish, learnt=learnt).draw(z, best, rng))
        except NotPositiveDefiniteError:
            continue
        search.progress(stage, len(several), None)
    return tuple(several)


@dataclass(frozen=True, eq=False)
class _Finish:
    """The posterior of all rows at given parameters."""

    search: Search
    learnt: Learnt
    data: Data
    n_basis: int
    choose_basis: Any
    conditioning: Conditioning

    def _terms(self, z: FloatArray) -> list[Term]:
        empty = self.data.sizes == 0
        return [_average_where_empty(term, empty) for term in self.learnt.objective.frozen_terms(z)]

    def _prior(self, terms: list[Term], W: FloatArray, layout: Layout, Z: FloatArray) -> BlockPrior:
        return BlockPrior(terms, W, layout, Z, elsewhere=where_blocks_are(), gradients=False)

    def draw(self, z: FloatArray, best: LocalPosterior, rng: np.random.Generator) -> Draw:
        """The posterior at a draw; of one block as at the best, its factor when predictions need it."""
        data, slots, likelihood = self.data, self.learnt.slots, self.search.likelihood
        precision = likelihood.precision(slots, z, data.codes, data.noise)
        if precision is None or not best.together or self.learnt.n_rows < len(data):
            return self(z, rng)[0]
        warp = self.learnt.objective.warp(z)
        posterior = replace(
            best,
            terms=tuple(self._terms(z)),
            X=self.search.inputs(data.X, warp),
            precision=precision,
            log_evidence=np.nan,
        )
        return Draw(posterior, warp, likelihood.predictive_variance(slots, z))

    def __call__(self, z: FloatArray, rng: np.random.Generator) -> tuple[Draw, IntArray, int]:
        data, slots, likelihood = self.data, self.learnt.slots, self.search.likelihood
        warp = self.learnt.objective.warp(z)
        terms, sites = self._terms(z), self.learnt.objective.sites(len(data))
        W = self.search.inputs(data.X, warp)
        rows, basis = arrange(terms, W, data, self.n_basis, self.choose_basis, self.conditioning, rng)
        if likelihood.varies and self.learnt.n_rows < len(data):
            # As many basis points as while learning will do: the noise is what is left within blocks.
            learning = self.search.learning
            few = self._prior(terms, W, rows.layout, rows.Z[: learning.stages[-1].n_basis])
            z = _noise_of_tasks(few, rows, likelihood, slots, z, sites, learning)
            terms = self._terms(z)
        prior = self._prior(terms, W, rows.layout, rows.Z)
        settled = likelihood.settle(prior, rows, slots, z, sites, gradient=False)
        posterior = local_posterior(prior, rows, data, settled, self.conditioning)
        return Draw(posterior, warp, likelihood.predictive_variance(slots, z)), basis, settled.n_silent


def arrange(
    terms: Sequence[Term],
    W: FloatArray,
    data: Data,
    n_basis: int,
    choose_basis: Any,
    conditioning: Conditioning,
    rng: np.random.Generator,
) -> tuple[Rows, IntArray]:
    """All rows in blocks, with a basis, and the rows it is made of; inputs W as the kernels see them."""
    c, none = conditioning, np.zeros(0, dtype=np.intp)
    if len(data) <= c.n_together:
        layout = lay_out(data.codes, [np.arange(len(data))])
        return Rows(W, data.y, data.noise, layout, W[:0]), none
    scaled = W / length_scales(terms[0].kernel, W.shape[1])
    blocks = blocks_of_tasks(data, scaled, c.block)
    own, basis = {}, none
    if data.n_tasks > 1:
        for task in np.flatnonzero(data.sizes > 2 * c.block):
            if any(t.own[task] > 0.0 for t in terms):
                of_task = np.flatnonzero(data.codes == task)
                own[int(task)] = W[of_task[some_of(len(of_task), c.n_own_basis, rng)]]
    shared = [t for t in terms if t.loadings.shape[1]]
    if shared and len(blocks) > 1:
        pool = some_of(len(data), c.pool * n_basis, rng)
        chosen = choose_basis(shared[0].kernel, W[pool], data.at(pool), n_basis, rng)
        basis = pool[np.asarray(chosen, dtype=np.intp)]
    return Rows(W, data.y, data.noise, lay_out(data.codes, blocks, own), W[basis]), basis


def local_posterior(
    prior: BlockPrior, rows: Rows, data: Data, settled: Settled, conditioning: Conditioning
) -> LocalPosterior:
    """What prediction needs, from the settled sites of all rows."""
    q = settled.q
    site_mean = np.divide(
        settled.shift, settled.precision, out=np.zeros(len(data)), where=settled.precision > 0.0
    )
    pairs = zip(rows.layout.groups, q.groups, strict=True)
    groups: list[Any] = [(g.task, g.Z, known) for g, known in pairs if g.task is not None]
    posterior = LocalPosterior(
        tuple(prior.terms),
        prior.X,
        data.codes,
        settled.precision,
        site_mean,
        len(data) <= conditioning.n_together,
        len(data),
        2 * conditioning.block,
        rows.Z,
        q.common,
        {task: (Z, None) for task, Z, _ in groups},
        settled.evidence,
        max(prior.jitter, q.jitter),
        data.n_tasks,
    )
    posterior.computed.update({("group", task): known for task, _, known in groups})
    return posterior


def _has_converged(learnt: Learnt, learning: Learning) -> bool:
    """Whether more steps would hardly change the parameters; later stages are short on purpose."""
    if learnt.optimum.stopped:
        return False
    if learnt.optimum.converged or learnt.n_rows > learning.n_together:
        return True
    return learnt.optimum.last_change <= learning.settled


def _average_where_empty(term: Term, empty: Any) -> Term:
    """The term with average weights of tasks that have no rows: theirs were not learnt."""
    if not empty.any() or empty.all():
        return term
    loadings, own = term.loadings.copy(), term.own.copy()
    loadings[empty], own[empty] = loadings[~empty].mean(axis=0), own[~empty].mean()
    return replace(term, loadings=loadings, own=own)


def _noise_of_tasks(prior, rows, likelihood, slots, z, sites, learning: Learning) -> FloatArray:
    """z with the noise of every task, by scoring steps at the other parameters.

    The curvature of the evidence in the log variance of a task is about its information I_t.
    """
    z = z.copy()
    part = slots.where["z"]
    curvature = np.maximum(likelihood.information(slots, z), 0.5)
    tau = float(np.exp(slots.get(z, "tau")[0]))
    for _ in range(learning.noise_passes):
        slope, sites = likelihood.slope_of_tasks(prior, rows, slots, z, sites)
        step = (tau * slope - z[part]) / (1.0 + tau**2 * curvature)
        z[part] = np.clip(z[part] + np.clip(step, -1.0, 1.0), -6.0, 6.0)
        if np.abs(step).max() < learning.noise_step:
            break
    return z
