"""A fitted sparse Gaussian process over all tasks: what every sparse estimator holds.

`fit_sparse_model` learns. `add_task` and `absorb` give a new model that has learnt more and shares everything
else with the old one.

Virtual informative vectors (Lawrence, Platt & Jordan 2005, section 6) are transformed copies of the active
points. The model is fitted as usual; every invariance is applied to its active points; points are selected
again from these and their copies, without learning the kernel again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gleangp._state import check_arrays, check_codes, check_kernel, check_noise
from gleangp._typing import FloatArray, IntArray
from gleangp.data.tasks import filled_blocks
from gleangp.exceptions import ModelFileError
from gleangp.inference.block import Block
from gleangp.inference.filtering import NO_SITES, Sites
from gleangp.inference.posterior import TaskPosterior, absorb_rows, prior_only
from gleangp.invariances import apply_invariances
from gleangp.models.active.learn import learn_shared_kernel
from gleangp.models.active.tasks import Settings, TaskBlocks
from gleangp.models.decisions import Choice, in_standard_errors
from gleangp.models.defaults import HELD_OUT
from gleangp.models.parameters import Parameters
from gleangp.progress import Stage
from gleangp.selection.base import Selection, in_order

ORIGINAL = -1  # in place of the number of an invariance


@dataclass(frozen=True, eq=False)
class SparseModel:
    """Kernel, noise and the posterior of every task."""

    kernel: Any
    noise: Any  # shared parameters; per-row fields of the training data are not kept
    posteriors: tuple[TaskPosterior, ...]  # by task
    sites: tuple[Sites, ...]  # of each task's active points
    active: IntArray  # (d,) training rows in order of inclusion
    active_task: IntArray  # (d,)
    gain: FloatArray  # (d,)
    n_rows: int  # training rows seen so far
    log_evidence: float
    n_rounds: int
    converged: bool
    last_change: float
    selection_objective: float | None = None  # what the choice of points achieved, for selectors with a goal
    choice: Choice | None = None  # why tasks are not coupled, where that was a choice
    active_virtual: IntArray | None = None  # of the first active points, see `virtual`
    # Mean log density of rows that are not active, with copies and without, and its difference in
    # standard errors; None where it was not measured.
    virtual_scores: FloatArray | None = None

    @property
    def n_tasks(self) -> int:
        """Tasks known, those added later too."""
        return len(self.posteriors)

    @property
    def n_inputs(self) -> int:
        """Features of a row."""
        return self.posteriors[0].X.shape[1]

    @property
    def task_correlation(self) -> FloatArray:
        """(M, M) identity: tasks share the kernel, not values."""
        return np.eye(self.n_tasks)

    @property
    def site_mean(self) -> FloatArray:
        """(d,) aligned with `active`."""
        return in_order(self.active_task, [s.mean for s in self.sites])

    @property
    def site_precision(self) -> FloatArray:
        """(d,) aligned with `active`."""
        return in_order(self.active_task, [s.precision for s in self.sites])

    @property
    def virtual(self) -> IntArray:
        """(d,) which invariance made each active point of its row; -1 for the row itself."""
        known = np.zeros(0, dtype=np.intp) if self.active_virtual is None else self.active_virtual
        return np.append(known, np.full(len(self.active) - len(known), -1, dtype=np.intp))

    @property
    def jitter(self) -> float:
        """Largest jitter that a Cholesky factor needed beyond the nugget."""
        return max(p.jitter for p in self.posteriors)

    @property
    def n_silent(self) -> int:
        """Active points whose noise had no Gaussian stand-in (see `inference.filtering`)."""
        return sum(s.n_silent for s in self.sites)

    def rows_of_task(self, task: int) -> FloatArray:
        """(d, p) the active points of a task."""
        return self.posteriors[task].X

    def predict(
        self, X: FloatArray, codes: IntArray, *, with_var: bool = True
    ) -> tuple[FloatArray, FloatArray]:
        """Latent mean and variance (n,) of rows of any tasks (the variance is empty unless asked for)."""
        mean, var = np.empty(len(X)), np.empty(len(X) if with_var else 0)
        for task, rows in filled_blocks(codes):
            found = self.posteriors[task].predict(self.kernel, X[rows], with_var=with_var)
            mean[rows] = found[0]
            if with_var:
                var[rows] = found[1]
        return mean, var

    def predict_cov(self, X: FloatArray, codes: IntArray) -> tuple[FloatArray, FloatArray]:
        """Latent mean (n,) and covariance (n, n); rows of different tasks are independent."""
        mean, cov = np.empty(len(X)), np.zeros((len(X), len(X)))
        for task, rows in filled_blocks(codes):
            mean[rows], cov[np.ix_(rows, rows)] = self.posteriors[task].predict_cov(self.kernel, X[rows])
        return mean, cov

    def with_points(
        self, tasks: TaskBlocks, numbers: list[int], selection: Selection, fit: tuple[list, list, float]
    ) -> SparseModel:
        """The model with active points of some tasks in place of those that they had.

        `numbers` are those of the tasks, and `fit` what `TaskBlocks.fit` made of the points; the log evidence
        is that of these tasks.
        """
        posteriors, sites, filled = list(self.posteriors), list(self.sites), np.array(numbers)[tasks.filled]
        for task, posterior, site in zip(filled, *fit[:2], strict=True):
            posteriors[task], sites[task] = posterior, site
        others = ~np.isin(self.active_task, numbers)
        return replace(
            self,
            posteriors=tuple(posteriors),
            sites=tuple(sites),
            active=np.append(self.active[others], tasks.row_numbers(selection)),
            active_task=np.append(self.active_task[others], filled[selection.order]),
            gain=np.append(self.gain[others], selection.gain),
            log_evidence=fit[2],
        )

    def add_task(self, block: Block, settings: Settings, seed: int) -> SparseModel:
        """The model with one more task, under the kernel and noise that the others taught."""
        grown = replace(
            self,
            posteriors=(*self.posteriors, prior_only(block.X.shape[1])),
            sites=(*self.sites, NO_SITES),
            n_rows=self.n_rows + len(block),
        )
        if len(block) == 0:
            return grown
        tasks = TaskBlocks([block], [self.n_rows + np.arange(len(block))])
        own = replace(settings, selector=getattr(settings.selector, "alone", settings.selector))
        selection = tasks.choose(self.kernel, own, seed)
        fit = tasks.fit(self.kernel, selection, own)
        more = grown.with_points(tasks, [self.n_tasks], selection, fit)
        more = replace(more, log_evidence=self.log_evidence + fit[2])
        if not settings.invariances:
            return more
        return add_virtual_vectors(more, tasks, [self.n_tasks], settings, seed, self.log_evidence)

    def absorb(self, blocks: dict[int, Block], block_rows: dict[int, IntArray], n_rows: int) -> SparseModel:
        """The model after new rows of known tasks, absorbed one by one."""
        posteriors, all_sites = list(self.posteriors), list(self.sites)
        active, active_task, gain = [self.active], [self.active_task], [self.gain]
        log_evidence = self.log_evidence
        for task, block in blocks.items():
            if posteriors[task].inner is not None:
                raise ModelFileError(
                    "The model was fitted by an earlier version with posterior='projected': it predicts, but "
                    "learns no more rows. Fit it again."
                )
            given = posteriors[task], all_sites[task]
            posteriors[task], all_sites[task], new = absorb_rows(self.kernel, *given, block)
            active.append(self.n_rows + block_rows[task])
            active_task.append(np.full(len(block), task, dtype=np.intp))
            gain.append(new.gains)
            log_evidence += new.log_evidence
        return replace(
            self,
            posteriors=tuple(posteriors),
            sites=tuple(all_sites),
            active=np.concatenate(active),
            active_task=np.concatenate(active_task),
            gain=np.concatenate(gain),
            n_rows=self.n_rows + n_rows,
            log_evidence=log_evidence,
        )

    def _check_state(self) -> None:
        """Raise if the parts do not fit together (a damaged model file)."""
        n_tasks, d = len(self.posteriors), len(self.active)
        parts = [*self.posteriors, *self.sites]
        kinds = [TaskPosterior] * n_tasks + [Sites] * n_tasks
        if n_tasks == 0 or [type(p) for p in parts] != kinds:
            raise ValueError("a sparse model whose posteriors and sites are not one for each task.")
        if len({p.X.shape[1] for p in self.posteriors}) != 1:
            raise ValueError("a sparse model whose tasks have different numbers of features.")
        check_arrays(self, {"d": d}, active="d", active_task="d", gain="d any")
        check_codes("SparseModel.active_task", self.active_task, n_tasks)
        check_kernel("SparseModel.kernel", self.kernel, self.n_inputs)
        check_noise("SparseModel.noise", self.noise)
        counts = np.bincount(self.active_task, minlength=n_tasks)
        if self.virtual_scores is not None:
            check_arrays(self, {"k": 3}, virtual_scores="k any")
        if counts.tolist() != [len(s) for s in self.sites]:
            raise ValueError("a sparse model whose active points are not those of its sites.")


def fit_sparse_model(
    parameters: Parameters, tasks: TaskBlocks, n_rows: int, settings: Settings, rng: np.random.Generator
) -> SparseModel:
    """Learn from the rows of all tasks; a task without rows is known but has only the prior."""
    fit = learn_shared_kernel(parameters, tasks, settings, rng)
    no_rows = np.zeros(0, dtype=np.intp)
    empty = SparseModel(
        fit.kernel,
        fit.parameters.noise,
        (prior_only(tasks.n_inputs),) * tasks.n_tasks,
        (NO_SITES,) * tasks.n_tasks,
        active=no_rows,
        active_task=no_rows,
        gain=np.zeros(0),
        n_rows=n_rows,
        log_evidence=0.0,
        n_rounds=fit.n_rounds,
        converged=fit.converged,
        last_change=fit.last_change,
        selection_objective=fit.selection.objective,
        choice=Choice("kernel", {}, settings.uncoupled),
    )
    found, numbers = (fit.posteriors, fit.sites, fit.log_evidence), list(range(tasks.n_tasks))
    model = empty.with_points(tasks, numbers, fit.selection, found)
    if not settings.invariances:
        return model
    seed = int(rng.integers(2**31))
    wider = add_virtual_vectors(model, tasks, numbers, settings, seed)
    return replace(wider, virtual_scores=virtual_scores(wider, model, tasks, seed))


def add_virtual_vectors(
    model: SparseModel,
    tasks: TaskBlocks,
    numbers: list[int],
    settings: Settings,
    seed: int,
    other_evidence: float = 0.0,
) -> SparseModel:
    """The model with active points of some tasks chosen from points and transformed copies.

    Kernel, noise and the points of other tasks stay. `tasks` has the rows of the tasks with these numbers. In
    the result `active` has the row that a point came from, and `virtual` the number of the invariance that
    made it; `other_evidence` is the log evidence of the other tasks.
    """
    pools = [
        _pool(model, t, block, rows, settings.invariances)
        for t, block, rows in zip(numbers, tasks.all_blocks, tasks.all_rows or [], strict=True)
        if np.any(model.active_task == t)
    ]
    numbers = [t for t in numbers if np.any(model.active_task == t)]
    if not pools:
        return model
    wider = TaskBlocks([pool[0] for pool in pools], [pool[1] for pool in pools])
    selector = settings.selector if len(pools) > 1 else getattr(settings.selector, "alone", settings.selector)
    n_active = min(settings.n_active, sum(wider.sizes))
    settings = replace(settings, selector=selector, n_active=n_active, optimize=False)
    selection = wider.choose(model.kernel, settings, seed)
    stage = Stage("virtual points", len(pools), len(pools), len(selection.order))
    settings.progress(stage, 0, None)
    made_by = in_order(selection.order, [pool[2][a] for pool, a in zip(pools, selection.active, strict=True)])
    others = model.virtual[~np.isin(model.active_task, numbers)]
    fit = wider.fit(model.kernel, selection, settings)
    settings.progress(stage, len(pools), None)
    return replace(
        model.with_points(wider, numbers, selection, fit),
        log_evidence=other_evidence + fit[2],
        selection_objective=selection.objective,
        active_virtual=np.append(others, made_by),
    )


def virtual_scores(wider: SparseModel, model: SparseModel, tasks: TaskBlocks, seed: int) -> FloatArray | None:
    """What `virtual_scores` is, from rows that neither model has seen as an active point."""
    seen = np.union1d(wider.active, model.active)
    left = [np.flatnonzero(~np.isin(rows, seen)) for rows in tasks.all_rows or []]
    pairs = [(t, row) for t, rows in enumerate(left) for row in rows]
    if len(pairs) < HELD_OUT.least_rows:
        return None
    chosen = np.random.default_rng(seed).permutation(len(pairs))[: HELD_OUT.most_rows]
    codes, rows = np.array(pairs, dtype=np.intp)[chosen].T
    scores = []
    for one in (wider, model):
        found = np.zeros(len(rows))
        for t in np.unique(codes):
            block, at = tasks.all_blocks[t], codes == t
            noise = replace(block.noise, **_learnt(one, block))
            part = Block(block.X, block.y, noise).at(rows[at])
            mean, var = one.predict(part.X, codes[at])
            found[at] = part.noise.log_partition(part.y, mean, var)[0]
        scores.append(found)
    return np.array([*(s.mean() for s in scores), in_standard_errors(scores[0] - scores[1])])


def _pool(
    model: SparseModel, task: int, block: Block, rows: IntArray, invariances: Sequence[Any]
) -> tuple[Block, IntArray, IntArray]:
    """What may become active in a task: a block, the row each came from, and which invariance made it."""
    position = np.empty(int(rows.max()) + 1, dtype=np.intp)
    position[rows] = np.arange(len(rows))
    active = position[model.active[model.active_task == task]]
    copies = apply_invariances(invariances, block.X[active])
    source = np.concatenate([active, np.tile(active, len(copies))])
    virtual = np.concatenate([np.full(len(active), ORIGINAL), np.repeat(np.arange(len(copies)), len(active))])
    X: FloatArray = np.vstack([block.X[active], *copies])
    noise = replace(block.noise, **_learnt(model, block))
    pool = replace(Block(block.X, block.y, noise).at(source), X=X)
    return pool, rows[source], virtual


def _learnt(model: SparseModel, block: Block) -> dict[str, Any]:
    """Values of noise parameters that the model has and that are not the rows' own."""
    own = block.noise.parameters
    names = [n for n, value in model.noise.parameters.items() if np.shape(value) == np.shape(own[n])]
    return {name: model.noise.parameters[name] for name in names}
