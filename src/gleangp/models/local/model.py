"""The fitted model of blocks and a basis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from gleangp._state import check_arrays, check_codes, check_noise
from gleangp._typing import FloatArray, IntArray
from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.inference.block import Block
from gleangp.inference.evidence import condition, row_inverse
from gleangp.inference.local import LocalPosterior, length_scales
from gleangp.inference.prior import BlockPrior, Term, lay_out
from gleangp.kernels import signal_diag, white_diag
from gleangp.models.choice import Choice
from gleangp.models.decisions import Decision
from gleangp.models.defaults import CONDITIONING, Conditioning, Learning
from gleangp.models.inputs import InputMap
from gleangp.models.likelihood import GaussianNoise, Settled
from gleangp.models.local.data import Data, blocks_of_tasks
from gleangp.models.local.draws import laplace_draws
from gleangp.models.local.learn import Learnt, Search, learn, pivots_of, race
from gleangp.models.local.plan import sum_of_terms
from gleangp.models.objective import Rows
from gleangp.numerics.parallel import where_blocks_are
from gleangp.progress import Stage

_SHARE_ROWS = 1000  # from which shares of variance are computed


@dataclass(frozen=True, eq=False)
class Draw:
    """One setting of the hyperparameters, and the posterior under it."""

    posterior: LocalPosterior
    warp: FloatArray  # parameters of the input map
    noise: FloatArray  # (M + 1,) noise variance of the tasks; last, of a new task; empty: not Gaussian

    def _check_state(self) -> None:
        """Raise if the parts do not fit together (a damaged model file)."""
        check_arrays(self, warp="w", noise="m >0")
        if not isinstance(self.posterior, LocalPosterior) or np.abs(self.warp).max(initial=0.0) > 100.0:
            raise ValueError("a draw without a posterior, or whose warping overflows.")


@dataclass(frozen=True, eq=False)
class LocalModel:
    """The best hyperparameters, and draws from their posterior, over which predictions average."""

    inputs: InputMap
    best: Draw
    draws: tuple[Draw, ...]  # empty: `best` alone
    noise: Any  # the noise model, with what was learnt
    row_numbers: IntArray  # (n,) training row of every row that the posterior learnt from in `fit`
    active: IntArray  # (d,) rows of the training set that are the common basis; all rows if there is none
    active_task: IntArray  # (d,)
    site_mean: FloatArray  # (d,) of the active points, after the fit
    site_precision: FloatArray  # (d,)
    n_rows: int  # training rows seen so far
    decisions: tuple[Decision, ...]
    converged: bool
    last_change: float
    n_silent: int = 0
    choice: Choice | None = None  # what tasks share

    n_rounds: ClassVar[int] = 1
    selection_objective: ClassVar[None] = None

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms at the best hyperparameters."""
        return self.best.posterior.terms

    @property
    def kernel(self) -> Any:
        """The sum of the kernels of the terms."""
        return sum_of_terms([term.kernel for term in self.terms])

    @property
    def gain(self) -> FloatArray:
        """(d,) NaN: the basis is not chosen by a gain."""
        return np.full(len(self.active), np.nan)

    @property
    def virtual(self) -> IntArray:
        """(d,) -1: no point is a transformed copy."""
        return np.full(len(self.active), -1, dtype=np.intp)

    @property
    def task_correlation(self) -> FloatArray:
        """(M, M) correlation of the tasks' functions under the prior, at the mean input."""
        x = self.inputs(self.inputs.center[None], self.best.warp)
        B = sum(term.between() * float(signal_diag(term.kernel, x)[0]) for term in self.terms)
        root = np.sqrt(np.diagonal(B))
        return B / np.outer(root, root)

    def _check_state(self) -> None:
        """Raise if the parts do not fit together (a damaged model file)."""
        if not all(isinstance(draw, Draw) for draw in (self.best, *self.draws)):
            raise ValueError("LocalModel has draws that are none.")
        n_tasks = self.n_tasks
        for draw in (self.best, *self.draws):
            if draw.posterior.X.shape[1] != self.n_inputs or len(draw.posterior.terms[0].own) != n_tasks:
                raise ValueError(f"a draw of other rows than {n_tasks} tasks with {self.n_inputs} inputs.")
            if len(draw.warp) != self.inputs.n_parameters or draw.noise.size not in (0, n_tasks + 1):
                raise ValueError("a warping or noise of another size than that of the model.")
            if draw.noise.size != self.best.noise.size:
                raise ValueError("draws with different kinds of noise.")
        check_arrays(self, active="d", active_task="d", site_mean="d any", site_precision="d >=0 derived")
        check_codes("LocalModel.active_task", self.active_task, n_tasks)
        check_noise("LocalModel.noise", self.noise)
        if not all(isinstance(decision, Decision) for decision in self.decisions):
            raise ValueError("LocalModel has decisions that are none.")

    def variance_shares(self, rng: np.random.Generator) -> dict[str, float]:
        """Shares of the variance of the training targets: common function, task, noise.

        The common part is the variance over rows of the mean that a new task would have; the task's part is
        that of what its rows add to it; the noise is its variance in the median row, since a task of few rows
        can have any noise (none if it is not Gaussian).
        """
        posterior = self.best.posterior
        rows = _some(len(posterior.X), _SHARE_ROWS, rng)
        W, codes = posterior.X[rows], posterior.codes[rows]
        mean = posterior.predict(W, codes, with_var=False)[0]
        terms = tuple(
            replace(with_average_task(t, posterior.n_tasks_learnt), own=np.append(t.own, 0.0))
            for t in self.terms
        )
        new = replace(posterior, terms=terms)
        common = new.predict(W, np.full(len(rows), self.n_tasks), with_var=False)[0]
        parts = {"common": float(np.var(common)), "task": float(np.var(mean - common)), "noise": 0.0}
        if self.n_tasks == 1:
            parts = {"common": float(np.var(mean)), "task": 0.0, "noise": 0.0}
        if self.gaussian:
            parts["noise"] = float(np.median(self.best.noise[codes]))
        total = sum(parts.values()) or 1.0
        shares = {name: value / total for name, value in parts.items()}
        if self.n_tasks > 1:
            rest = shares["task"] + shares["noise"]
            shares["intraclass_correlation"] = shares["task"] / rest if rest else 0.0
        return shares

    def rows_of_task(self, task: int) -> FloatArray:
        """(n, p) the training rows of a task, in their own units."""
        posterior = self.best.posterior
        return self.inputs.inverse(posterior.X[posterior.rows_of_task[task]], self.best.warp)

    def active_of_task(self, task: int) -> FloatArray:
        """(d, p) the basis points among the rows of a task, in their own units; none without a basis."""
        n_rows = len(self.row_numbers)
        if len(self.active) >= n_rows:
            return np.zeros((0, self.n_inputs))
        in_fit = np.zeros(len(self.best.posterior.codes), dtype=bool)
        in_fit[:n_rows] = np.isin(self.row_numbers, self.active)
        return self.rows_of_task(task)[in_fit[self.best.posterior.rows_of_task[task]]]

    def white_var(self, X: FloatArray, codes: IntArray) -> FloatArray:
        """(n,) the part of the latent variance that is white noise of the kernel."""
        parts = [term.within[codes] * white_diag(term.kernel, X) for term in self.terms]
        return np.sum(parts, axis=0)

    @property
    def n_tasks(self) -> int:
        """Tasks known, those added later too."""
        return len(self.terms[0].own)

    @property
    def n_inputs(self) -> int:
        """Features of a row."""
        return len(self.inputs.center)

    @property
    def all_draws(self) -> tuple[Draw, ...]:
        """What predictions average over."""
        return self.draws or (self.best,)

    @property
    def log_evidence(self) -> float:
        """Of all rows, at the best hyperparameters."""
        return self.best.posterior.log_evidence

    @property
    def jitter(self) -> float:
        """Largest jitter that a factor of the basis needed."""
        return self.best.posterior.jitter

    @property
    def gaussian(self) -> bool:
        """Whether the noise is Gaussian."""
        return self.best.noise.size > 0

    def noise_variance(self, codes: IntArray) -> FloatArray:
        """(n,) mean over the draws of the noise variance of rows of these tasks."""
        return np.mean([draw.noise[codes] for draw in self.all_draws], axis=0)

    def predict(
        self, X: FloatArray, codes: IntArray, *, with_var: bool = True
    ) -> tuple[FloatArray, FloatArray]:
        """Latent mean and variance (n,) of new rows."""
        means, variances = [], []
        for draw in self.all_draws:
            mean, var = draw.posterior.predict(self.inputs(X, draw.warp), codes, with_var=with_var)
            means.append(mean)
            variances.append(var)
        if len(means) == 1:
            return means[0], variances[0]
        mean = np.mean(means, axis=0)
        return mean, np.mean(variances, axis=0) + np.var(means, axis=0) if with_var else np.zeros(0)

    def add_task(self, block: Block, settings: Any = None, seed: int = 0) -> LocalModel:
        """The model with one more task (`new_task`)."""
        from gleangp.models.local.new_task import add_task

        return add_task(self, block.X, block.y, self._noise_of(block))

    def absorb(
        self, blocks: dict[int, Block], block_rows: Any = None, n_rows: int | None = None
    ) -> LocalModel:
        """The model after new rows of known tasks (`absorb`)."""
        from gleangp.models.local.absorb import absorb

        model = self
        for task, block in blocks.items():
            codes = np.full(len(block), task)
            model = absorb(model, block.X, block.y, codes, self._noise_of(block))
        return replace(model, n_rows=self.n_rows + (n_rows or 0))

    def _noise_of(self, block: Block) -> Any:
        if not self.gaussian:
            return block.noise
        variance, usual = (getattr(noise, "variance") for noise in (block.noise, self.noise))  # noqa: B009
        if not len(block) or variance is usual:
            return np.ones(len(block))
        return np.full(len(block), variance) / usual  # rows may have weights

    def predict_cov(self, X: FloatArray, codes: IntArray) -> tuple[FloatArray, FloatArray]:
        """Latent mean (n,) and covariance (n, n) of new rows."""
        means, total = [], np.zeros((len(X), len(X)))
        for draw in self.all_draws:
            mean, cov = draw.posterior.predict_cov(self.inputs(X, draw.warp), codes)
            means.append(mean)
            total = total + cov / len(self.all_draws)
        off = np.array(means) - np.mean(means, axis=0)
        return np.mean(means, axis=0), total + off.T @ off / len(means)


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
                own[int(task)] = W[of_task[_some(len(of_task), c.n_own_basis, rng)]]
    shared = [t for t in terms if t.loadings.shape[1]]
    if shared and len(blocks) > 1:
        pool = _some(len(data), c.pool * n_basis, rng)
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


def with_average_task(term: Term, n_learnt: int | None) -> Term:
    """The term with one more task, whose weights are the average of the tasks of the fit.

    Tasks that were added later have weights of their own, which say nothing of others.
    """
    average = term.loadings[:n_learnt].mean(axis=0, keepdims=True)
    own = np.append(term.own, term.own[:n_learnt].mean())
    return replace(term, loadings=np.vstack([term.loadings, average]), own=own)


def _average_where_empty(term: Term, empty: Any) -> Term:
    """The term with average weights of tasks that have no rows: theirs were not learnt."""
    if not empty.any() or empty.all():
        return term
    loadings, own = term.loadings.copy(), term.own.copy()
    loadings[empty], own[empty] = loadings[~empty].mean(axis=0), own[~empty].mean()
    return replace(term, loadings=loadings, own=own)


def _some(n: int, count: int, rng: np.random.Generator) -> IntArray:
    return np.arange(n) if n <= count else np.sort(rng.choice(n, count, replace=False))


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
