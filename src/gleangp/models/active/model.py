"""A fitted sparse Gaussian process over all tasks: what every sparse estimator holds.

`fit_sparse_model` learns. `add_task` and `absorb` give a new model that has learnt more and shares everything
else with the old one.
"""

from __future__ import annotations

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
from gleangp.models.active.learn import learn_shared_kernel
from gleangp.models.active.tasks import Settings, TaskBlocks
from gleangp.models.active.virtual_vectors import add_virtual_vectors, virtual_scores
from gleangp.models.decisions import Choice
from gleangp.models.parameters import Parameters
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
