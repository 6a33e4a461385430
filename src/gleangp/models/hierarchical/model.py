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

from gleangp._state import check_arrays, check_kernel
from gleangp._typing import FloatArray, IntArray
from gleangp.data.tasks import filled_blocks
from gleangp.inference.data_dependent import TaskRows, task_posterior
from gleangp.inference.posterior import KernelPosterior
from gleangp.kernels.parameters import MovingKernel
from gleangp.models.defaults import HIERARCHY
from gleangp.models.hierarchical.evidence import TaskTerms
from gleangp.models.hierarchical.learn import HierarchyFit, LearningPlan, Point, learn_hierarchy, matrix_root
from gleangp.progress import Progress, Stage, silent


@dataclass(frozen=True, slots=True, eq=False)
class FittedTask:
    """One task: its parameters and, for each node of the average over theta, kernel and posterior."""

    theta: FloatArray  # (q,) log-parameters of the kernel, and then of the noise if it is the task's own
    theta_cov: FloatArray  # (q, q)
    alpha: float  # 0.0 without a graph
    kernel: Any  # at theta
    nodes: tuple[tuple[Any, KernelPosterior], ...]
    log_evidence: float
    noise: float | None = None  # variance, mean over the nodes; None in older files: that of the model

    def _check_state(self) -> None:
        """Raise if the parts do not fit together (a damaged model file)."""
        check_arrays(self, theta="q", theta_cov="q q", alpha=">=0")
        if self.noise is not None:
            check_arrays(self, noise=">0")
        for kernel, posterior in self.nodes:
            if not isinstance(posterior, KernelPosterior):
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
    prior_cov: FloatArray  # (q, q), with the log of the noise if every task has its own
    noise: float  # at the prior mean
    width: float | None  # epsilon of the order constraints; None if there were none
    tasks: tuple[FittedTask, ...]
    average_theta: bool | None  # None: in small tasks
    n_rounds: int
    converged: bool
    last_change: float
    mean_cov: FloatArray | None = None  # (q, q) uncertainty of the prior mean; None: none, or an older file

    def _check_state(self) -> None:
        """Raise if the parts do not fit together (a damaged model file)."""
        if not self.tasks or not all(isinstance(task, FittedTask) for task in self.tasks):
            raise ValueError("HierarchicalModel has no tasks, or tasks that are none.")
        if len({task.n_inputs for task in self.tasks}) != 1:
            raise ValueError("HierarchicalModel has tasks of different inputs.")
        check_kernel("HierarchicalModel.kernel", self.kernel, self.tasks[0].n_inputs)
        check_arrays(self, {"q": self.kernel.n_dims + self.own_noise}, prior_cov="q q", noise=">0")
        if self.width is not None:
            check_arrays(self, width=">0")
        if self.mean_cov is not None:
            check_arrays(self, {"q": len(self.prior_cov)}, mean_cov="q q")

    @property
    def own_noise(self) -> bool:
        """Whether every task has its own noise."""
        return len(self.prior_cov) == self.kernel.n_dims + 1

    @property
    def mean(self) -> FloatArray:
        """Of the prior (q,)."""
        theta = self.kernel.theta
        return np.append(theta, np.log(self.noise)) if self.own_noise else theta

    @property
    def new_task_cov(self) -> FloatArray:
        """Of the parameters of a new task (q, q): spread between tasks, and uncertainty of the mean."""
        return self.prior_cov if self.mean_cov is None else self.prior_cov + self.mean_cov

    def noise_of(self, codes: IntArray) -> FloatArray:
        """Variance of the noise of rows of these tasks."""
        return np.array([self.noise if t.noise is None else t.noise for t in self.tasks])[codes]

    @property
    def jitter(self) -> float:
        """Largest jitter that a factor needed."""
        return max((getattr(p, "jitter", 0.0) for t in self.tasks for _, p in t.nodes), default=0.0)

    def predict(self, X: FloatArray, codes: IntArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance (n,) of the function at rows of any tasks."""
        mean, var = np.empty(len(X)), np.empty(len(X))
        for task, rows in filled_blocks(codes):
            found = [posterior.predict(kernel, X[rows]) for kernel, posterior in self.tasks[task].nodes]
            means = np.array([m for m, _ in found])
            mean[rows] = means.mean(axis=0)
            var[rows] = np.mean([v for _, v in found], axis=0) + means.var(axis=0)
        return mean, var

    def predict_cov(self, X: FloatArray, codes: IntArray) -> tuple[FloatArray, FloatArray]:
        """Mean (n,) and covariance (n, n); rows of different tasks are independent."""
        mean, cov = np.empty(len(X)), np.zeros((len(X), len(X)))
        for task, rows in filled_blocks(codes):
            found = [posterior.predict_cov(kernel, X[rows]) for kernel, posterior in self.tasks[task].nodes]
            means = np.array([m for m, _ in found])
            deviation = means - means.mean(axis=0)
            mean[rows], within = means.mean(axis=0), np.mean([c for _, c in found], axis=0)
            cov[np.ix_(rows, rows)] = within + deviation.T @ deviation / len(means)
        return mean, cov

    def add_task(self, task: TaskRows, *, optimize: bool = True) -> HierarchicalModel:
        """The model with one more task: its most probable parameters under the learnt prior.

        Zhang & Yeung 2009, section 2.2, but for the noise, which has its prior too: its maximum likelihood
        from five rows is zero.
        """
        if task.n_labelled == 0 and task.order is None:
            return replace(self, tasks=(*self.tasks, _prior_task(self, task.X.shape[1])))
        width = HIERARCHY.width[0] if self.width is None else np.log(self.width)
        start = Point(self.mean, width, self.mean[None], np.array([HIERARCHY.alpha[0]]))
        plan = LearningPlan(np.zeros((0, 2)), learn_shared=False, fixed_cov=self.new_task_cov)
        if optimize:
            terms = TaskTerms(self.kernel, [task], None if self.own_noise else self.noise)
            fit = learn_hierarchy(terms, start, plan)
        else:
            fit = _not_learnt(start, self.prior_cov)
        model = self
        if self.width is None and task.order is not None:
            model = replace(self, width=float(np.exp(width)))
        return replace(model, tasks=(*self.tasks, _fitted_task(model, task, fit, 0)))


def fit_hierarchical_model(
    kernel,
    tasks: list[TaskRows],
    *,
    optimize: bool = True,
    noise: float | None = None,
    prior_cov: FloatArray | None = None,
    average_theta: bool | None = False,
    max_rounds: int = 30,
    n_jobs: int | None = None,
    progress: Progress = silent,
) -> HierarchicalModel:
    """Learn from all tasks, in standard units; one without labels and constraints has the prior's kernel.

    `kernel` is where to start; its bounds are those of the prior mean. Without `optimize`, kernel and noise
    stay as they are given. `noise` is the variance of the labels, `prior_cov` (q, q) that of the kernel's
    log-parameters; None: learnt. With a given `prior_cov`, noise that is learnt is one for all tasks.
    `average_theta` is whether predictions account for the uncertainty of theta; None: in small tasks.
    `max_rounds` are updates of the prior covariance, `n_jobs` threads for tasks that are not evaluated in
    stacks.
    """
    filled = [i for i, t in enumerate(tasks) if t.n_labelled or t.order is not None]
    terms = TaskTerms(kernel, [tasks[i] for i in filled], noise, n_jobs)
    mean, bounds = kernel.theta, np.asarray(kernel.bounds, dtype=np.float64).reshape(-1, 2)
    if noise is None:
        mean = np.append(mean, np.log(HIERARCHY.noise))
        bounds = np.vstack([bounds, np.log(HIERARCHY.noise_bounds)])
        prior_cov = None if prior_cov is None else np.pad(prior_cov, (0, 1))
    thetas, alphas = np.tile(mean, (len(filled), 1)), np.full(len(filled), HIERARCHY.alpha[0])
    start = Point(mean, HIERARCHY.width[0], thetas, alphas)
    plan = LearningPlan(bounds, True, prior_cov, max_rounds, progress=progress)
    fit = learn_hierarchy(terms, start, plan) if optimize else _not_learnt(start, prior_cov)
    mean_kernel, mean_noise = _split(MovingKernel(kernel), fit.point.mean, noise)
    model = HierarchicalModel(
        mean_kernel,
        fit.prior_cov,
        mean_noise,
        float(np.exp(fit.point.log_width)) if terms.has_order else None,
        (),
        average_theta,
        fit.n_rounds,
        fit.converged,
        fit.last_change,
        fit.mean_cov,
    )
    fitted = [_prior_task(model, t.X.shape[1]) for t in tasks]
    stage = Stage("posterior", len(filled), len(filled))
    progress(stage, 0, None)
    for k, i in enumerate(filled):
        fitted[i] = _fitted_task(model, tasks[i], fit, k)
        progress(stage, k + 1, None)
    return replace(model, tasks=tuple(fitted))


def _fitted_task(model: HierarchicalModel, task: TaskRows, fit: HierarchyFit, k: int) -> FittedTask:
    theta, theta_cov = fit.point.theta[k], fit.theta_cov[k]
    alpha = float(np.exp(fit.point.log_alpha[k])) if task.laplacian is not None else 0.0
    return _with_nodes(model, task, theta, theta_cov, alpha, fit.point.log_width, float(fit.log_evidence[k]))


def _prior_task(model: HierarchicalModel, n_features: int) -> FittedTask:
    nothing = TaskRows(np.zeros((0, n_features)), np.zeros(0))
    return _with_nodes(model, nothing, model.mean, model.new_task_cov, 0.0, 0.0, 0.0)


def _with_nodes(
    model: HierarchicalModel, task: TaskRows, theta, theta_cov, alpha, log_width, log_evidence
) -> FittedTask:
    noise, average = None if model.own_noise else model.noise, model.average_theta
    if average is None:
        average = len(task.X) <= HIERARCHY.average_rows
    moving = MovingKernel(model.kernel)
    parts = [_split(moving, t, noise) for t in _nodes(theta, theta_cov, average)]
    nodes = tuple((k, task_posterior(k, task, noise, alpha, log_width)) for k, noise in parts)
    own, _ = _split(moving, theta, noise)
    mean_noise = float(np.mean([noise for _, noise in parts]))
    return FittedTask(theta, theta_cov, alpha, own, nodes, log_evidence, mean_noise)


def _nodes(theta: FloatArray, theta_cov: FloatArray, average: bool) -> list[FloatArray]:
    if not average or len(theta) == 0:
        return [theta]
    offsets = np.sqrt(len(theta)) * matrix_root(theta_cov).T
    return [theta + sign * offset for offset in offsets for sign in (1.0, -1.0)]


def _not_learnt(start: Point, prior_cov: FloatArray | None) -> HierarchyFit:
    n_tasks, q = start.theta.shape
    cov = np.zeros((q, q)) if prior_cov is None else prior_cov
    none = np.zeros((n_tasks, q, q))
    return HierarchyFit(start, cov, none, np.full(n_tasks, np.nan))


def _split(moving: MovingKernel, theta: FloatArray, noise: float | None) -> tuple[Any, float]:
    """The kernel at theta, and the variance of the noise: the one given, else the last of theta."""
    kernel = moving.copy_at(theta[: moving.n_dims])
    return kernel, float(np.exp(theta[-1])) + HIERARCHY.least_noise if noise is None else noise
