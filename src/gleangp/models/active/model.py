"""A fitted sparse Gaussian process over all tasks: what every sparse estimator holds.

`fit_sparse_model` learns. `add_task` and `absorb` give a new model that has learnt more and shares everything
else with the old one.

Virtual informative vectors (Lawrence, Platt & Jordan 2005, section 6) are transformed copies of the active
points. The model is fitted as usual; every invariance is applied to its active points; points are selected
again from these and their copies, without learning the kernel again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gleangp._state import check_arrays, check_codes, check_kernel, check_noise
from gleangp._typing import FloatArray, IntArray
from gleangp.exceptions import ModelFileError
from gleangp.inference.block import Block
from gleangp.inference.posterior import (
    NO_SITES,
    MeanAndVar,
    Sites,
    TaskPosterior,
    absorb_rows,
    predict_tasks,
    prior_only,
)
from gleangp.invariances import apply_invariances
from gleangp.models.active.learn import Learner, Settings, TaskBlocks, TaskFits
from gleangp.models.decisions import Choice, in_standard_errors
from gleangp.models.defaults import HELD_OUT
from gleangp.models.parameters import Parameters
from gleangp.progress import Stage
from gleangp.selection.base import Selection, in_order


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
        """Active points whose noise had no Gaussian stand-in (see `inference.posterior`)."""
        return sum(s.n_silent for s in self.sites)

    def rows_of_task(self, task: int) -> FloatArray:
        """(d, p) the active points of a task."""
        return self.posteriors[task].X

    def noise_of_rows(self, X: FloatArray, codes: IntArray, noise: Any = None, factor: Any = None) -> Any:
        """The noise model of new rows, all tasks having the same: `noise`, if that is known of the rows."""
        return self.noise if noise is None else noise

    def predict(self, X: FloatArray, codes: IntArray, *, with_var: bool = True) -> MeanAndVar:
        """Latent mean and variance (n,) of rows of any tasks (the variance is empty unless asked for)."""
        return predict_tasks([[(self.kernel, p)] for p in self.posteriors], X, codes, with_var=with_var)

    def predict_each(self, X: FloatArray, codes: IntArray) -> list[MeanAndVar]:
        """The same at every setting of the parameters: there is one."""
        return [self.predict(X, codes)]

    def predict_cov(self, X: FloatArray, codes: IntArray) -> MeanAndVar:
        """Latent mean (n,) and covariance (n, n); rows of different tasks are independent."""
        return predict_tasks([[(self.kernel, p)] for p in self.posteriors], X, codes, joint=True)

    def with_points(self, tasks: TaskBlocks, selection: Selection, fit: TaskFits) -> SparseModel:
        """The model with active points of some tasks in place of those that they had.

        `fit` is what `TaskBlocks.fit` made of the points; the log evidence is that of these tasks.
        """
        posteriors, sites = list(self.posteriors), list(self.sites)
        for task, posterior, site in zip(tasks.codes, *fit[:2], strict=True):
            posteriors[task], sites[task] = posterior, site
        others = ~np.isin(self.active_task, tasks.codes)
        return replace(
            self,
            posteriors=tuple(posteriors),
            sites=tuple(sites),
            active=np.append(self.active[others], selection.rows(tasks.rows)),
            active_task=np.append(self.active_task[others], tasks.codes[selection.order]),
            gain=np.append(self.gain[others], selection.gain),
            log_evidence=fit[2],
        )

    def add_task(self, block: Block, settings: Settings, seed: int) -> SparseModel:
        """The model with one more task, under the kernel and noise that the others taught."""
        posteriors, sites = (*self.posteriors, prior_only(block.X.shape[1])), (*self.sites, NO_SITES)
        grown = replace(self, posteriors=posteriors, sites=sites, n_rows=self.n_rows + len(block))
        if len(block) == 0:
            return grown
        tasks = TaskBlocks([block], [self.n_rows + np.arange(len(block))], [self.n_tasks])
        selection = tasks.choose(self.kernel, settings, seed)
        more = grown.with_points(tasks, selection, tasks.fit(self.kernel, selection, settings))
        if settings.invariances:
            more = add_virtual_vectors(more, tasks, settings, seed)
        return replace(more, log_evidence=self.log_evidence + more.log_evidence)

    def absorb(self, blocks: dict[int, Block], block_rows: dict[int, IntArray], n_rows: int) -> SparseModel:
        """The model after new rows of known tasks, absorbed one by one."""
        posteriors, sites, gains = list(self.posteriors), list(self.sites), []
        log_evidence = self.log_evidence
        for task, block in blocks.items():
            if posteriors[task].inner is not None:
                raise ModelFileError(
                    "The model was fitted by an earlier version with posterior='projected': it predicts, but "
                    "learns no more rows. Fit it again."
                )
            known = posteriors[task], sites[task]
            posteriors[task], sites[task], new = absorb_rows(self.kernel, *known, block)
            gains.append(new.gains)
            log_evidence += new.log_evidence
        tasks = np.repeat(np.array(list(blocks), dtype=np.intp), [len(block) for block in blocks.values()])
        return replace(
            self,
            posteriors=tuple(posteriors),
            sites=tuple(sites),
            active=np.concatenate([self.active, *(self.n_rows + block_rows[task] for task in blocks)]),
            active_task=np.append(self.active_task, tasks),
            gain=np.concatenate([self.gain, *gains]),
            n_rows=self.n_rows + n_rows,
            log_evidence=log_evidence,
        )

    def _check_state(self) -> None:
        n_tasks = len(self.posteriors)
        if not 0 < n_tasks == len(self.sites):
            raise ValueError("a sparse model whose posteriors and sites are not one for each task.")
        if len({p.X.shape[1] for p in self.posteriors}) != 1:
            raise ValueError("a sparse model whose tasks have different numbers of features.")
        check_arrays(self, {"k": 3}, active="d", active_task="d", gain="d any", virtual_scores="k any ?")
        check_codes("SparseModel.active_task", self.active_task, n_tasks)
        check_kernel("SparseModel.kernel", self.kernel, self.n_inputs)
        check_noise("SparseModel.noise", self.noise)
        if np.bincount(self.active_task, minlength=n_tasks).tolist() != [len(s) for s in self.sites]:
            raise ValueError("a sparse model whose active points are not those of its sites.")


def fit_sparse_model(
    parameters: Parameters, tasks: TaskBlocks, n_tasks: int, n_rows: int, settings: Settings, rng
) -> SparseModel:
    """Learn from the rows of all tasks; a task without rows is known but has only the prior."""
    fit, n_filled = Learner(tasks, settings, rng).learn(parameters), len(tasks.sizes)
    no_rows, no_points = np.zeros(0, dtype=np.intp), prior_only(tasks.blocks[0].X.shape[1])
    empty = SparseModel(
        fit.parameters.kernel,
        fit.parameters.noise,
        (no_points,) * n_tasks,
        (NO_SITES,) * n_tasks,
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
    stage = Stage("posterior", n_filled, n_filled, len(fit.selection.order))
    settings.progress(stage, 0, None)
    found = tasks.at(fit.parameters).fit(fit.parameters.kernel, fit.selection, settings)
    settings.progress(stage, n_filled, None)
    model = empty.with_points(tasks, fit.selection, found)
    if not settings.invariances:
        return model
    seed = int(rng.integers(2**31))
    wider = add_virtual_vectors(model, tasks, settings, seed)
    return replace(wider, virtual_scores=virtual_scores(wider, model, tasks, seed))


def add_virtual_vectors(model: SparseModel, tasks: TaskBlocks, settings: Settings, seed: int) -> SparseModel:
    """The model with active points of some tasks chosen from points and transformed copies.

    Kernel, noise and the points of other tasks stay. In the result `active` has the row that a point came
    from, and `virtual` the number of the invariance that made it; the log evidence is that of these tasks.
    """
    given = [
        task
        for task in zip(tasks.codes, tasks.blocks, tasks.rows, strict=True)
        if np.any(model.active_task == task[0])
    ]
    blocks, rows, made = zip(*(_pool(model, *task, settings.invariances) for task in given), strict=True)
    codes = [code for code, _, _ in given]
    wider = TaskBlocks(blocks, rows, codes)
    settings = replace(settings, n_active=min(settings.n_active, sum(wider.sizes)), optimize=False)
    selection = wider.choose(model.kernel, settings, seed)
    stage = Stage("virtual points", len(blocks), len(blocks), len(selection.order))
    settings.progress(stage, 0, None)
    made_by = in_order(selection.order, [m[a] for m, a in zip(made, selection.active, strict=True)])
    others = model.virtual[~np.isin(model.active_task, codes)]
    fit = wider.fit(model.kernel, selection, settings)
    settings.progress(stage, len(blocks), None)
    return replace(
        model.with_points(wider, selection, fit),
        selection_objective=selection.objective,
        active_virtual=np.append(others, made_by),
    )


def _pool(model: SparseModel, task: int, block: Block, rows, invariances) -> tuple[Block, IntArray, IntArray]:
    """What may become active in a task: a block, the row each came from, and which invariance made it."""
    position = np.empty(int(rows.max()) + 1, dtype=np.intp)
    position[rows] = np.arange(len(rows))
    active = position[model.active[model.active_task == task]]
    copies = apply_invariances(invariances, block.X[active])
    source = np.tile(active, 1 + len(copies))
    made_by = np.repeat(np.arange(-1, len(copies)), len(active))  # -1: the row itself
    pool = replace(_with_learnt_noise(model, block).at(source), X=np.vstack([block.X[active], *copies]))
    return pool, rows[source], made_by


def virtual_scores(wider: SparseModel, model: SparseModel, tasks: TaskBlocks, seed: int) -> FloatArray | None:
    """What `virtual_scores` is, from rows that neither model has seen as an active point."""
    seen = np.union1d(wider.active, model.active)
    left = [np.flatnonzero(~np.isin(rows, seen)) for rows in tasks.rows]
    pairs = [(k, row) for k, rows in enumerate(left) for row in rows]
    if len(pairs) < HELD_OUT.least_rows:
        return None
    chosen = np.random.default_rng(seed).permutation(len(pairs))[: HELD_OUT.most_rows]
    block_of, rows = np.array(pairs, dtype=np.intp)[chosen].T
    scores = np.zeros((2, len(rows)))
    for found, one in zip(scores, (wider, model), strict=True):
        for k in np.unique(block_of):
            at = block_of == k
            part = _with_learnt_noise(one, tasks.blocks[k]).at(rows[at])
            latent = one.posteriors[tasks.codes[k]].predict(one.kernel, part.X)
            found[at] = part.noise.log_partition(part.y, *latent)[0]
    return np.append(scores.mean(axis=1), in_standard_errors(scores[0] - scores[1]))


def _with_learnt_noise(model: SparseModel, block: Block) -> Block:
    """The rows under the noise parameters of the model, but for those that are the rows' own."""
    own, learnt = block.noise.parameters, model.noise.parameters
    shared = {name: value for name, value in learnt.items() if np.shape(value) == np.shape(own[name])}
    return replace(block, noise=replace(block.noise, **shared))
