"""The fitted model of blocks and a basis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from sklearn.gaussian_process.kernels import Sum

from gleangp._state import check_arrays, check_codes, check_noise
from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.inference.local import LocalPosterior
from gleangp.inference.prior import Term
from gleangp.kernels import signal_diag
from gleangp.models.decisions import Choice, Decision
from gleangp.models.local.data import known_of_rows, some_of
from gleangp.models.units import InputMap
from gleangp.noise import Gaussian
from gleangp.numerics.parallel import on_one_thread

_SHARE_ROWS = 1000  # from which shares of variance are computed

Prediction = tuple[FloatArray, FloatArray, FloatArray]


@dataclass(frozen=True, eq=False)
class Draw:
    """One setting of the hyperparameters, and the posterior under it."""

    posterior: LocalPosterior
    warp: FloatArray  # parameters of the input map
    # (M + 1,) noise variance of the tasks (`NoiseModel.of_tasks`); last, of a new task; empty: tasks share
    # all parameters of the noise.
    noise: FloatArray

    def _check_state(self) -> None:
        check_arrays(self, warp="w", noise="m >0")
        if np.abs(self.warp).max(initial=0.0) > 100.0:
            raise ValueError("a draw whose warping overflows.")


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
    # Of the rows learnt from, by name (`targets_of`). None: Gaussian noise, whose sites are the targets; rows
    # without a label; files of older versions.
    targets: dict[str, FloatArray] | None = None

    n_rounds: ClassVar[int] = 1
    selection_objective: ClassVar[None] = None

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms at the best hyperparameters."""
        return self.best.posterior.terms

    @property
    def kernel(self) -> Any:
        """The sum of the kernels of the terms."""
        return reduce(Sum, [term.kernel for term in self.terms])

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
        tasks = np.arange(self.n_tasks)
        B = sum(t.between(tasks, tasks) * float(signal_diag(t.kernel, x)[0]) for t in self.terms)
        root = np.sqrt(np.diagonal(B))
        return B / np.outer(root, root)

    def _check_state(self) -> None:
        n_tasks = self.n_tasks
        for draw in (self.best, *self.draws):
            if draw.posterior.X.shape[1] != self.n_inputs or len(draw.posterior.terms[0].own) != n_tasks:
                raise ValueError(f"a draw of other rows than {n_tasks} tasks with {self.n_inputs} inputs.")
            if len(draw.warp) != self.inputs.n_parameters or draw.noise.size not in (0, n_tasks + 1):
                raise ValueError("a warping or noise of another size than that of the model.")
            if draw.noise.size != self.best.noise.size or (self.gaussian and not draw.noise.size):
                raise ValueError("draws with different kinds of noise.")
        check_arrays(self, active="d", active_task="d", site_mean="d any", site_precision="d >=0 derived")
        check_codes("LocalModel.active_task", self.active_task, n_tasks)
        check_noise("LocalModel.noise", self.noise)
        if self.targets is not None:
            if set(self.targets) != {"y", *known_of_rows(self.noise)}:
                raise ValueError(f"LocalModel has the targets {sorted(self.targets)}.")
            n = {"n": self.best.posterior.n_learnt}
            check_arrays(SimpleNamespace(**self.targets), n, **dict.fromkeys(self.targets, "n"))

    @on_one_thread()
    def variance_shares(self, rng: np.random.Generator) -> dict[str, float]:
        """Shares of the variance of the training targets: common function, task, noise.

        The common part is the variance over rows of the mean that a new task would have; the task's part is
        that of what its rows add to it; the noise is its variance in the median row, since a task of few rows
        can have any noise (none if it is not Gaussian).
        """
        q = self.best.posterior
        rows = some_of(len(q.X), _SHARE_ROWS, rng)
        W, codes = q.X[rows], q.codes[rows]
        mean = common = q.predict(W, codes, with_var=False)[0]
        if self.n_tasks > 1:
            alike = [with_average_task(term, q.n_tasks_learnt) for term in self.terms]
            new = replace(q, terms=tuple(replace(t, own=np.append(t.own[:-1], 0.0)) for t in alike))
            common = new.predict(W, np.full(len(rows), self.n_tasks), with_var=False)[0]
        noise = float(np.median(1.0 / q.precision[rows])) if self.gaussian else 0.0
        parts = {"common": float(np.var(common)), "task": float(np.var(mean - common)), "noise": noise}
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
        if len(self.active) >= len(self.row_numbers):
            return np.zeros((0, self.n_inputs))
        rows = self.best.posterior.rows_of_task[task]
        is_basis = np.isin(rows, np.flatnonzero(np.isin(self.row_numbers, self.active)))
        return self.rows_of_task(task)[is_basis]

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
        return isinstance(self.noise, Gaussian)

    def noise_of_rows(self, X: FloatArray, codes: IntArray, noise: Any = None, factor: Any = None) -> Any:
        """The noise model of new rows, with the mean over the draws of the variance of their tasks.

        `noise` has what else is known of the rows, such as the exposure; `factor` is that of `predict`.
        """
        noise = self.noise if noise is None else noise
        if not self.best.noise.size:
            return noise
        variance = np.mean([draw.noise[codes] for draw in self.all_draws], axis=0)
        if self.gaussian:
            if factor is None:
                factors = [draw.posterior.factor(self.inputs(X, draw.warp), codes) for draw in self.all_draws]
                factor = np.mean(factors, axis=0)
            variance = factor * variance
        return noise.with_variance(variance)

    @on_one_thread()
    def predict_each(self, X: FloatArray, codes: IntArray, *, with_var: bool = True) -> list[Prediction]:
        """Latent mean and variance (n,) of new rows and the factor of their noise variance, at every draw."""
        pairs = [(draw.posterior, self.inputs(X, draw.warp)) for draw in self.all_draws]
        return [posterior.predict(W, codes, with_var=with_var) for posterior, W in pairs]

    def predict(self, X: FloatArray, codes: IntArray, *, with_var: bool = True) -> Prediction:
        """The same of the mixture of all draws."""
        found = self.predict_each(X, codes, with_var=with_var)
        means, variances, factors = (np.array(values) for values in zip(*found, strict=True))
        var = variances.mean(axis=0) + np.var(means, axis=0) if with_var else np.zeros(0)
        return means.mean(axis=0), var, factors.mean(axis=0)

    @on_one_thread()
    def add_task(self, block: Block, settings: Any = None, seed: int = 0) -> LocalModel:
        """The model with one more task (`new_task`)."""
        from gleangp.models.local.new_task import with_task

        def added(draw: Draw, quantile: float | None) -> Draw:
            return with_task(draw, self.inputs(block.X, draw.warp), block.y, self.noise_in(block), quantile)

        draws = tuple(added(draw, (k + 0.5) / len(self.draws)) for k, draw in enumerate(self.draws))
        return replace(self, best=added(self.best, None), draws=draws, n_rows=self.n_rows + len(block))

    @on_one_thread()
    def absorb(self, blocks: dict[int, Block], block_rows: Any = None, n_rows: int = 0) -> LocalModel:
        """The model after new rows of known tasks (`absorb`)."""
        from gleangp.models.local.new_task import absorb

        return replace(absorb(self, blocks), n_rows=self.n_rows + n_rows)

    def noise_in(self, block: Block) -> Any:
        """The noise of new rows, as in `Data`: Gaussian noise of rows with weights has factors."""
        return Gaussian(block.noise.variance / self.noise.variance) if self.gaussian else block.noise

    def predict_cov(self, X: FloatArray, codes: IntArray) -> tuple[FloatArray, FloatArray]:
        """Latent mean (n,) and covariance (n, n) of new rows."""
        means, total = [], np.zeros((len(X), len(X)))
        for draw in self.all_draws:
            mean, cov = draw.posterior.predict_cov(self.inputs(X, draw.warp), codes)
            means.append(mean)
            total = total + cov / len(self.all_draws)
        off = np.array(means) - np.mean(means, axis=0)
        return np.mean(means, axis=0), total + off.T @ off / len(means)


def active_points(posterior: LocalPosterior, basis: IntArray) -> dict[str, Any]:
    """Fields of a model on its active points: rows of the basis, or all rows if there is none."""
    q, rows = posterior, basis if len(basis) else np.arange(len(posterior.codes))
    sites = {"site_mean": q.site_mean[rows], "site_precision": q.precision[rows]}
    return {"active": rows, "active_task": q.codes[rows], **sites}


def with_average_task(term: Term, n_learnt: int | None) -> Term:
    """The term with one more task, whose weights are the average of the tasks of the fit.

    Tasks that were added later have weights of their own, which say nothing of others.
    """
    average = term.loadings[:n_learnt].mean(axis=0, keepdims=True)
    own = np.append(term.own, term.own[:n_learnt].mean())
    return replace(term, loadings=np.vstack([term.loadings, average]), own=own)
