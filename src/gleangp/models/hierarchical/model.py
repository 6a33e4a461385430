"""A fitted hierarchy: what all tasks share, and the posterior of each.

Prediction uses theta_i at its most probable value or, to account for its uncertainty, averages over the
2 q points theta_i +- sqrt(q) times the columns of a root of its posterior covariance (the spherical
cubature rule, exact for cubic functions of theta): the law of total variance then adds what the means
disagree about to what each is uncertain of.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from gleangp._state import check_arrays, check_kernel
from gleangp._typing import FloatArray, IntArray
from gleangp.data.tasks import blocks_of_rows
from gleangp.inference.data_dependent import AnyPosterior, predict_task, predict_task_cov, task_posterior
from gleangp.inference.task_rows import TaskRows
from gleangp.models.hierarchical.evidence import TaskTerms
from gleangp.models.hierarchical.learn import (
    ALPHA,
    WIDTH,
    HierarchyFit,
    LearningPlan,
    Point,
    learn_hierarchy,
    matrix_root,
)
from gleangp.progress import Progress, Stage, silent


@dataclass(frozen=True, slots=True, eq=False)
class FittedTask:
    """One task: its parameters and, for each node of the average over theta, kernel and posterior."""

    theta: FloatArray  # (q,)
    theta_cov: FloatArray  # (q, q)
    alpha: float  # 0.0 without a graph
    kernel: Any  # at theta
    nodes: tuple[tuple[Any, AnyPosterior], ...]
    log_evidence: float

    def _check_state(self) -> None:
        """Raise if the parts do not fit together (a damaged model file)."""
        check_arrays(self, theta="q", theta_cov="q q", alpha=">=0")
        for kernel, posterior in self.nodes:
            if not isinstance(posterior, AnyPosterior):
                raise ValueError("FittedTask has a node without a posterior.")
            check_kernel("a kernel of FittedTask", kernel, posterior.X.shape[1])
        if not self.nodes or len({posterior.X.shape[1] for _, posterior in self.nodes}) != 1:
            raise ValueError("FittedTask has no nodes, or nodes of different inputs.")
        check_kernel("FittedTask.kernel", self.kernel, self.n_inputs)

    @property
    def n_inputs(self) -> int:
        """Features of a row."""
        return self.nodes[0][1].X.shape[1]


@dataclass(frozen=True, slots=True, eq=False)
class HierarchicalModel:
    """What is learnt, in standard units."""

    kernel: Any  # at the prior mean
    prior_cov: FloatArray  # (q, q)
    noise: float
    width: float | None  # epsilon of the order constraints; None if there were none
    tasks: tuple[FittedTask, ...]
    average_theta: bool
    n_rounds: int
    converged: bool
    last_change: float

    def _check_state(self) -> None:
        """Raise if the parts do not fit together (a damaged model file)."""
        if not self.tasks or not all(isinstance(task, FittedTask) for task in self.tasks):
            raise ValueError("HierarchicalModel has no tasks, or tasks that are none.")
        if len({task.n_inputs for task in self.tasks}) != 1:
            raise ValueError("HierarchicalModel has tasks of different inputs.")
        check_kernel("HierarchicalModel.kernel", self.kernel, self.tasks[0].n_inputs)
        check_arrays(self, {"q": self.kernel.n_dims}, prior_cov="q q", noise=">0")
        if self.width is not None:
            check_arrays(self, width=">0")

    @property
    def jitter(self) -> float:
        """Largest jitter that a factor needed."""
        return max((getattr(p, "jitter", 0.0) for t in self.tasks for _, p in t.nodes), default=0.0)


def fit_hierarchical_model(
    kernel,
    tasks: list[TaskRows],
    *,
    optimize: bool = True,
    noise: float | None = None,
    prior_cov: FloatArray | None = None,
    average_theta: bool = False,
    max_rounds: int = 30,
    n_jobs: int | None = None,
    progress: Progress = silent,
) -> HierarchicalModel:
    """Learn from all tasks; one without labels and constraints has the prior's kernel.

    Parameters
    ----------
    kernel : Kernel
        Where to start; its bounds are those of the prior mean.
    tasks : list of TaskRows
        In standard units.
    optimize : bool, default=True
        False: kernel and noise stay as they are given.
    noise : float, default=None
        Variance of the labels; None: learnt.
    prior_cov : ndarray of shape (q, q), default=None
        None: learnt.
    average_theta : bool, default=False
        Whether predictions account for the uncertainty of theta.
    max_rounds : int, default=30
        Most updates of the prior covariance.
    n_jobs : int, default=None
        Threads for tasks that are not evaluated in stacks.
    progress : callable
        See `gleangp.progress`.
    """
    filled = [i for i, t in enumerate(tasks) if t.n_labelled or t.order is not None]
    terms = TaskTerms(kernel, [tasks[i] for i in filled], n_jobs)
    start = _starting_point(kernel, len(filled), noise)
    plan = LearningPlan(
        _bounds(kernel),
        learn_noise=noise is None,
        fixed_cov=prior_cov,
        max_rounds=max_rounds,
        progress=progress,
    )
    fit = learn_hierarchy(terms, start, plan) if optimize else _not_learnt(start, prior_cov)
    mean_kernel = _at(kernel, fit.point.mean)
    model = HierarchicalModel(
        mean_kernel,
        fit.prior_cov,
        float(np.exp(fit.point.log_noise)),
        float(np.exp(fit.point.log_width)) if terms.has_order else None,
        (),
        average_theta,
        fit.n_rounds,
        fit.converged,
        fit.last_change,
    )
    fitted = [_prior_task(model, t.X.shape[1]) for t in tasks]
    stage = Stage("posterior", len(filled), len(filled))
    progress(stage, 0, None)
    for k, i in enumerate(filled):
        fitted[i] = _fitted_task(model, tasks[i], fit, k)
        progress(stage, k + 1, None)
    return replace(model, tasks=tuple(fitted))


def add_task(model: HierarchicalModel, task: TaskRows, *, optimize: bool = True) -> HierarchicalModel:
    """The model with one more task: its most probable parameters under the learnt prior.

    Zhang & Yeung 2009, section 2.2, but for the noise, which stays the shared one: its maximum
    likelihood from five rows is zero.
    """
    if task.n_labelled == 0 and task.order is None:
        return replace(model, tasks=(*model.tasks, _prior_task(model, task.X.shape[1])))
    width = WIDTH[0] if model.width is None else np.log(model.width)
    mean = model.kernel.theta
    start = Point(mean, np.log(model.noise), width, mean[None], np.array([ALPHA[0]]))
    plan = LearningPlan(np.zeros((0, 2)), learn_shared=False, fixed_cov=model.prior_cov)
    if optimize:
        fit = learn_hierarchy(TaskTerms(model.kernel, [task]), start, plan)
    else:
        fit = _not_learnt(start, model.prior_cov)
    if model.width is None and task.order is not None:
        model = replace(model, width=float(np.exp(width)))
    return replace(model, tasks=(*model.tasks, _fitted_task(model, task, fit, 0)))


def predict_hierarchy(
    model: HierarchicalModel, X: FloatArray, codes: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Mean and variance (n,) of the function at rows of any tasks."""
    mean, var = np.empty(len(X)), np.empty(len(X))
    for task, rows in enumerate(blocks_of_rows(codes, len(model.tasks))):
        if len(rows):
            nodes = [predict_task(*node, X[rows]) for node in model.tasks[task].nodes]
            means = np.array([m for m, _ in nodes])
            mean[rows] = means.mean(axis=0)
            var[rows] = np.mean([v for _, v in nodes], axis=0) + means.var(axis=0)
    return mean, var


def predict_hierarchy_cov(
    model: HierarchicalModel, X: FloatArray, codes: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Mean (n,) and covariance (n, n); rows of different tasks are independent."""
    mean, cov = np.empty(len(X)), np.zeros((len(X), len(X)))
    for task, rows in enumerate(blocks_of_rows(codes, len(model.tasks))):
        if len(rows):
            nodes = [predict_task_cov(*node, X[rows]) for node in model.tasks[task].nodes]
            means = np.array([m for m, _ in nodes])
            deviation = means - means.mean(axis=0)
            mean[rows] = means.mean(axis=0)
            cov[np.ix_(rows, rows)] = np.mean([c for _, c in nodes], axis=0) + deviation.T @ deviation / len(
                nodes
            )
    return mean, cov


def _fitted_task(model: HierarchicalModel, task: TaskRows, fit: HierarchyFit, k: int) -> FittedTask:
    theta, theta_cov = fit.point.theta[k], fit.theta_cov[k]
    alpha = float(np.exp(fit.point.log_alpha[k])) if task.laplacian is not None else 0.0
    log_width = fit.point.log_width
    kernels = [_at(model.kernel, t) for t in _nodes(theta, theta_cov, model.average_theta)]
    nodes = tuple((k, task_posterior(k, task, model.noise, alpha, log_width)) for k in kernels)
    own = _at(model.kernel, theta)
    return FittedTask(theta, theta_cov, alpha, own, nodes, float(fit.log_evidence[k]))


def _prior_task(model: HierarchicalModel, n_features: int) -> FittedTask:
    theta = model.kernel.theta
    nothing = TaskRows(np.zeros((0, n_features)), np.zeros(0))
    kernels = [_at(model.kernel, t) for t in _nodes(theta, model.prior_cov, model.average_theta)]
    nodes = tuple((k, task_posterior(k, nothing, model.noise, 0.0, 0.0)) for k in kernels)
    return FittedTask(theta, model.prior_cov, 0.0, model.kernel, nodes, 0.0)


def _nodes(theta: FloatArray, theta_cov: FloatArray, average: bool) -> list[FloatArray]:
    if not average or len(theta) == 0:
        return [theta]
    offsets = np.sqrt(len(theta)) * matrix_root(theta_cov).T
    return [theta + sign * offset for offset in offsets for sign in (1.0, -1.0)]


def _starting_point(kernel, n_tasks: int, noise: float | None) -> Point:
    theta = kernel.theta
    log_noise = np.log(0.25) if noise is None else np.log(noise)
    return Point(theta, float(log_noise), WIDTH[0], np.tile(theta, (n_tasks, 1)), np.full(n_tasks, ALPHA[0]))


def _not_learnt(start: Point, prior_cov: FloatArray | None) -> HierarchyFit:
    n_tasks, q = start.theta.shape
    cov = np.zeros((q, q)) if prior_cov is None else prior_cov
    return HierarchyFit(start, cov, np.zeros((n_tasks, q, q)), np.full(n_tasks, np.nan), 0, True, 0.0)


def _bounds(kernel) -> FloatArray:
    return np.asarray(kernel.bounds, dtype=np.float64).reshape(-1, 2)


def _at(kernel, theta: FloatArray):
    kernel = clone(kernel)
    kernel.theta = theta
    return kernel
