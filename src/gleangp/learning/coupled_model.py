"""A fitted model of coupled tasks; what `sparse_model` is for tasks that share a kernel alone.

`fit_tasks` is the way in for estimators: it asks the coupling which of the two a fit is to be. The
functions of `sparse_model` (`predict_tasks`, `add_task`, ...) serve both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.coupled_posterior import (
    CoupledPosterior,
    absorb_blocks,
    add_block,
    fit_coupled,
    predict_coupled,
    predict_coupled_cov,
)
from gleangp.inference.row_ep import RowSites
from gleangp.kernels import white_diag
from gleangp.learning.coupled_tasks import learn_coupled, pool_blocks, with_noise
from gleangp.learning.coupling_choice import Chosen, choose_coupling
from gleangp.learning.couplings import Choice, CoupledParameters
from gleangp.learning.parameters import Parameters
from gleangp.learning.settings import Settings
from gleangp.learning.sparse_model import (
    absorb_rows,
    add_task,
    filled_blocks,
    fit_sparse_model,
    predict_tasks,
    predict_tasks_cov,
)
from gleangp.learning.task_store import TaskStore
from gleangp.progress import Stage


@dataclass(frozen=True, eq=False)
class CoupledModel:
    """Parameters and the posterior of all tasks."""

    parameters: CoupledParameters
    posterior: CoupledPosterior
    choice: Choice
    active: IntArray  # (d,) training rows of the common basis, in order of inclusion
    active_task: IntArray  # (d,)
    gain: FloatArray  # (d,)
    site_mean: FloatArray  # (d,)
    site_precision: FloatArray  # (d,)
    n_rows: int  # training rows seen so far
    n_rounds: int
    converged: bool
    last_change: float
    selection_objective: float | None = None

    @property
    def kernel(self):
        """The learnt kernel: the sum of the terms' kernels."""
        return self.parameters.base.kernel

    @property
    def noise(self):
        """The learnt noise."""
        return self.parameters.base.noise

    @property
    def n_tasks(self) -> int:
        """Tasks known, those added later too."""
        return len(self.posterior.own)

    @property
    def n_inputs(self) -> int:
        """Features of a row."""
        return self.posterior.Z.shape[1]

    @property
    def log_evidence(self) -> float:
        """Of all rows."""
        return self.posterior.log_evidence

    @property
    def jitter(self) -> float:
        """Largest jitter that a factor of the basis needed beyond the nugget."""
        return self.posterior.jitter

    @property
    def n_silent(self) -> int:
        """Active points whose noise had no Gaussian stand-in: such rows have a site of zero here."""
        return 0

    @property
    def virtual(self) -> IntArray:
        """(d,) -1: no active point is a transformed copy."""
        return np.full(len(self.active), -1, dtype=np.intp)

    @property
    def task_correlation(self) -> FloatArray:
        """(M, M) correlation of the tasks' functions under the learnt prior."""
        return self.parameters.correlation(self.posterior.Z)

    def white_var(self, X: FloatArray, codes: IntArray) -> FloatArray:
        """(n,) the part of the latent variance that is white noise of the kernel."""
        return sum(q.within[codes] * white_diag(q.kernel, X) for q in self.posterior.terms)

    def predict(
        self, X: FloatArray, codes: IntArray, *, with_var: bool = True
    ) -> tuple[FloatArray, FloatArray]:
        """Latent mean and variance (n,) of rows of any tasks (the variance is empty unless asked for)."""
        return predict_tasks(self, X, codes, with_var=with_var)

    def predict_cov(self, X: FloatArray, codes: IntArray) -> tuple[FloatArray, FloatArray]:
        """Latent mean (n,) and covariance (n, n)."""
        return predict_tasks_cov(self, X, codes)

    def add_task(self, block: Any, settings: Settings, seed: int) -> CoupledModel:
        """The model with one more task."""
        return add_task(self, block, settings, seed)

    def absorb(self, blocks: dict[int, Any], block_rows: dict[int, IntArray], n_rows: int) -> CoupledModel:
        """The model after new rows of known tasks."""
        return absorb_rows(self, blocks, block_rows, n_rows)

    def _check_state(self) -> None:
        """Raise if the parts do not fit together (a damaged model file)."""
        posterior, d, n_tasks = self.posterior, len(self.active), self.n_tasks
        if not isinstance(posterior, CoupledPosterior) or not isinstance(self.parameters, CoupledParameters):
            raise ValueError("a model of coupled tasks without its posterior or parameters.")
        if any(len(q.own) != n_tasks or len(q.loadings) != n_tasks for q in posterior.terms):
            raise ValueError(f"weights of other tasks than the {n_tasks} of the posterior.")
        D = len(posterior.known.m)
        features = [o.F.shape == (D, len(o.X)) for o in posterior.own if o.F is not None]
        weights = [o.weights.shape == (D,) for o in posterior.own]
        if posterior.known.inner.shape != (D, D) or not all(features + weights):
            raise ValueError(f"tasks that do not fit the {D} features they share.")
        if any(o.inverse.shape != (len(o.alpha),) * 2 for o in posterior.own):
            raise ValueError("a task whose rows and weights differ in number.")
        aligned = (self.active_task, self.gain, self.site_mean, self.site_precision)
        if len(posterior.Z) != d or any(len(a) != d for a in aligned):
            raise ValueError(f"other than {d} basis points.")


def fit_tasks(
    parameters: Parameters,
    tasks: TaskStore,
    n_rows: int,
    settings: Settings,
    rng: np.random.Generator,
    chosen: Chosen | None = None,
) -> Any:
    """The `SparseModel` or `CoupledModel` of all tasks, coupled as `settings.couplings` says.

    With fewer than two tasks that have rows there is nothing to couple. Coupled ones are in this process.
    `chosen` is the coupling where it was chosen already, together with other problems.
    """
    choice, start, units = Choice("kernel", {}, settings.uncoupled), None, None
    if len(tasks.filled) < 2:
        choice = Choice("kernel", {}, "fewer than two tasks have labels, so there is nothing to couple")
    elif settings.couplings:
        if chosen is None:
            chosen = choose_coupling(settings.couplings, parameters, tasks.all_blocks, settings, rng)
        choice, start, units = chosen.choice, chosen.start, chosen.units
        parameters = start.base if choice.name == "kernel" else parameters
    if start is None or choice.name == "kernel":
        model = fit_sparse_model(parameters, tasks, n_rows, settings, rng, units)
        return replace(model, choice=choice)
    blocks, block_rows = tasks.all_blocks, tasks.all_rows
    basis_settings = replace(settings, n_active=settings.n_basis)
    fit = learn_coupled(start, blocks, basis_settings, rng, first_part=len(settings.couplings) == 1)
    learnt = fit.parameters
    blocks = with_noise(blocks, learnt.base.noise_values(learnt.start()))
    pooled, basis = pool_blocks(blocks), fit.basis.active[0]
    stage = Stage("posterior", 1, len(blocks), len(basis))
    settings.progress(stage, 0, None)
    posterior = fit_coupled(learnt.terms(), blocks, pooled.X[basis], fit.sites)
    settings.progress(stage, 1, posterior.log_evidence)
    precision, mean = _sites_at(posterior, basis)
    return CoupledModel(
        learnt,
        posterior,
        choice,
        np.concatenate(block_rows)[basis],
        np.repeat(np.arange(len(blocks)), [len(b) for b in blocks])[basis],
        fit.basis.gain,
        mean,
        precision,
        n_rows,
        fit.n_rounds,
        fit.converged,
        fit.last_change,
        fit.basis.objective,
    )


def _sites_at(posterior: CoupledPosterior, basis: IntArray) -> tuple[FloatArray, FloatArray]:
    precision = np.concatenate([o.sites.precision for o in posterior.own])[basis]
    shift = np.concatenate([o.sites.shift for o in posterior.own])[basis]
    return precision, RowSites(precision, shift).mean


@predict_tasks.register(CoupledModel)
def _(model, X, codes, *, with_var=True):
    mean, var = np.empty(len(X)), np.empty(len(X) if with_var else 0)
    for task, rows in filled_blocks(codes):
        mean[rows], part = predict_coupled(model.posterior, task, X[rows], with_var=with_var)
        if with_var:
            var[rows] = part
    return mean, var


@predict_tasks_cov.register(CoupledModel)
def _(model, X, codes):
    return predict_coupled_cov(model.posterior, X, codes)


@add_task.register(CoupledModel)
def _(model, block, settings, seed):
    parameters = model.parameters.with_average_task()
    posterior = add_block(model.posterior, parameters.terms(), block)
    return replace(model, parameters=parameters, posterior=posterior, n_rows=model.n_rows + len(block))


@absorb_rows.register(CoupledModel)
def _(model, blocks, block_rows, n_rows):
    return replace(model, posterior=absorb_blocks(model.posterior, blocks), n_rows=model.n_rows + n_rows)
