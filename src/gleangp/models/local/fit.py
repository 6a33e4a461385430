"""Fitting the model of blocks and a basis: learn the parameters, then form the posterior of all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.inference.evidence import condition, row_inverse
from gleangp.inference.local import LocalPosterior, length_scales
from gleangp.inference.prior import BlockPrior, Term, lay_out
from gleangp.models.decisions import Decision
from gleangp.models.defaults import CONDITIONING, Conditioning, Learning
from gleangp.models.likelihood import GaussianNoise, Settled
from gleangp.models.local.data import Data, blocks_of_tasks, some_of
from gleangp.models.local.draws import laplace_draws
from gleangp.models.local.learn import Learnt, Search, learn, pivots_of, race
from gleangp.models.local.model import Draw, LocalModel
from gleangp.models.objective import Rows
from gleangp.numerics.parallel import where_blocks_are
from gleangp.progress import Stage


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model that competes by the evidence of all rows, less a penalty in nats."""

    name: str
    search: Search
    penalty: float = 0.0


def fit_local(
    candidates: Sequence[Candidate],
    data: Data,
    rng: np.random.Generator,
    *,
    n_basis: int | None = None,
    choose_basis: Any = None,
    conditioning: Conditioning = CONDITIONING,
) -> LocalModel:
    """Learn the parameters and form the posterior of all rows, of the candidate with the most evidence.

    `choose_basis(kernel, W, pool, count, rng)` gives numbers of rows of `pool`, of which W are the inputs as
    the kernel sees them; None: those that leave little unexplained.
    """
    if n_basis is None:
        n_basis = conditioning.n_basis
    elif n_basis < len(data):
        conditioning = replace(conditioning, n_together=0)  # few points were asked for
    seed = int(rng.integers(2**62))
    raced = [race(candidate.search, data, seed) for candidate in candidates]
    scores, which, finished = [0.0], 0, False
    if len(candidates) > 1:
        # Few rows: all are learnt to the end. With more, a few steps on some of the rows decide.
        if all(found[0].n_rows == len(data) for found in raced):
            raced = [[learn(c.search, data, r, seed)] for c, r in zip(candidates, raced, strict=True)]
            finished = True
        pairs = zip(candidates, raced, strict=True)
        scores = [max(f.evidence_per_row for f in r) * len(data) - c.penalty for c, r in pairs]
        which = int(np.argmax(scores))
    search = candidates[which].search
    gaussian = isinstance(search.likelihood, GaussianNoise)
    learnt = raced[which][0] if finished else learn(search, data, raced[which], seed)
    finish = _Finish(search, learnt, data, n_basis, choose_basis or pivots_of, conditioning)
    stage = Stage("posterior", 1, data.n_tasks, len(data))
    search.progress(stage, 0, None)
    best, basis, n_silent = finish(learnt.z, rng)
    search.progress(stage, 1, best.posterior.log_evidence)
    several: tuple[Draw, ...] = ()
    decisions = list(learnt.decisions)
    if len(candidates) > 1:
        name = candidates[which].name
        text = f"the log evidence, less what its weights cost, is the highest for {name!r}"
        numbers = {c.name: float(score) for c, score in zip(candidates, scores, strict=True)}
        decisions.insert(0, Decision("coupling", name, numbers, text))
    if search.optimize and learnt.slots.size and gaussian:
        few = len(data) <= search.learning.draws_rows
        if few:
            several = _draws(finish, rng)
        reason = (
            "Predictions average over draws of the hyperparameters."
            if few
            else "Hyperparameters are well known."
        )
        decisions.append(Decision("draws", str(len(several)), {"rows": float(len(data))}, reason))
    noise = search.likelihood.noise_model(learnt.slots, learnt.z)
    active = np.arange(len(data)) if len(basis) == 0 else basis
    return LocalModel(
        search.inputs,
        best,
        several,
        noise,
        np.arange(len(data)),
        active,
        data.codes[active],
        best.posterior.site_mean[active],
        best.posterior.precision[active],
        len(data),
        tuple(decisions),
        _has_converged(learnt, search.learning),
        learnt.optimum.last_change,
        n_silent,
    )


def _draws(finish: _Finish, rng: np.random.Generator) -> tuple[Draw, ...]:
    """The posterior at draws of the hyperparameters; none if the progress function leaves them out.

    A draw is left out where a covariance has no factor, as with hardly any noise.
    """
    search, learning = finish.search, finish.search.learning
    stage = Stage("draws", learning.n_draws, finish.data.n_tasks, len(finish.data))
    if search.progress(stage, 0, None):
        return ()
    several: list[Draw] = []
    for z in laplace_draws(finish.learnt, learning):
        try:
            several.append(finish(z, rng)[0])
        except NotPositiveDefiniteError:
            continue
        search.progress(stage, len(several), several[-1].posterior.log_evidence)
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
        return [_average_where_empty(term, empty) for term in self.learnt.frozen_terms(z)]

    def __call__(self, z: FloatArray, rng: np.random.Generator) -> tuple[Draw, IntArray, int]:
        data, slots, likelihood = self.data, self.learnt.slots, self.search.likelihood
        warp = slots.get(z, "warp")
        terms = self._terms(z)
        W = self.search.inputs(data.X, warp)
        rows, basis = arrange(terms, W, data, self.n_basis, self.choose_basis, self.conditioning, rng)
        prior = BlockPrior(terms, W, rows.layout, rows.Z, elsewhere=where_blocks_are())
        noise = np.zeros(0)
        if isinstance(likelihood, GaussianNoise):
            if likelihood.varies and self.learnt.n_rows < len(data):
                # As many basis points as while learning will do: the noise is what is left within blocks.
                learning = self.search.learning
                Z = rows.Z[: learning.stages[-1].n_basis]
                few = BlockPrior(terms, W, rows.layout, Z, elsewhere=where_blocks_are())
                z = _noise_of_tasks(few, rows, likelihood, slots, z, learning.noise_passes)
                prior = BlockPrior(self._terms(z), W, rows.layout, rows.Z, elsewhere=where_blocks_are())
            noise = likelihood.predictive_variance(slots, z)
        settled = likelihood.settle(prior, rows, slots, z, None, gradient=False)
        posterior = local_posterior(prior, rows, data, settled, self.conditioning)
        return Draw(posterior, warp, noise), basis, settled.n_silent


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
    known: dict[int, Any] = {
        group.task: (group.Z, q.groups[g])
        for g, group in enumerate(rows.layout.groups)
        if group.task is not None
    }
    return LocalPosterior(
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
        known,
        settled.evidence,
        max(prior.jitter, q.jitter),
        data.n_tasks,
    )


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


def _noise_of_tasks(prior, rows, likelihood, slots, z, n_passes) -> FloatArray:
    """z with the noise of every task, by scoring steps at the other parameters.

    The curvature of the evidence in the log variance of a task is about I_t = (n_t - 1) / 2.
    """
    z = z.copy()
    part = slots.where["z"]
    tau = float(np.exp(slots.get(z, "tau")[0]))
    for _ in range(n_passes):
        by_task = likelihood.variance(slots, z)
        precision = 1.0 / (by_task[rows.layout.codes] * rows.noise)
        q = condition(prior, precision, precision * rows.y, also=row_inverse)
        sensitivity = 0.5 * (q.alpha**2 - q.also)  # of the log evidence to the noise variance of each row
        slope = by_task * np.bincount(rows.layout.codes, sensitivity * rows.noise, len(by_task))
        step = (tau * slope - z[part]) / (1.0 + tau**2 * np.maximum(likelihood.information, 0.5))
        z[part] = np.clip(z[part] + np.clip(step, -1.0, 1.0), -6.0, 6.0)
    return z
