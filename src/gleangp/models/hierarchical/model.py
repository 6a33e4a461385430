"""A fitted hierarchy: what all tasks share, and the posterior of each.

Prediction uses theta_i at its most probable value or, to account for its uncertainty, averages over the
2 q points theta_i +- sqrt(q) times the columns of a root of its posterior covariance (the spherical
cubature rule, exact for cubic functions of theta): the law of total variance then adds what the means
disagree about to what each is uncertain of.

Whether constraints, unlabelled rows and other tasks help is checked on labels that are held out in turn.
Parameters stay as they were learnt, so a check costs a few posteriors of each task.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gleangp._state import check_arrays, check_kernel
from gleangp._typing import FloatArray, IntArray
from gleangp.exceptions import warn_user
from gleangp.inference.posterior import KernelPosterior, MeanAndVar, predict_tasks
from gleangp.kernels.evaluate import MovingKernel
from gleangp.models.decisions import Decision, in_standard_errors
from gleangp.models.defaults import HELD_OUT, HIERARCHY
from gleangp.models.hierarchical.evidence import TaskTerms
from gleangp.models.hierarchical.learn import HierarchyFit, Learner, Point, matrix_root
from gleangp.models.hierarchical.task import TaskRows, task_posterior
from gleangp.noise import Gaussian
from gleangp.progress import Stage


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
        check_arrays(self, theta="q", theta_cov="q q", alpha=">=0", noise=">0 ?")
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
        if len({task.n_inputs for task in self.tasks}) != 1:
            raise ValueError("HierarchicalModel has no tasks, or tasks of different inputs.")
        check_kernel("HierarchicalModel.kernel", self.kernel, self.tasks[0].n_inputs)
        q = self.kernel.n_dims + self.own_noise
        check_arrays(self, {"q": q}, prior_cov="q q", noise=">0", width=">0 ?", mean_cov="q q ?")

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

    @property
    def log_width(self) -> float:
        """Of the noise of order constraints; where there were none, that at which a search starts."""
        return HIERARCHY.width[0] if self.width is None else float(np.log(self.width))

    def noise_of(self, codes: IntArray) -> FloatArray:
        """Variance of the noise of rows of these tasks."""
        return np.array([self.noise if t.noise is None else t.noise for t in self.tasks])[codes]

    @property
    def jitter(self) -> float:
        """Largest jitter that a factor needed."""
        return max((getattr(p, "jitter", 0.0) for t in self.tasks for _, p in t.nodes), default=0.0)

    def predict(self, X: FloatArray, codes: IntArray, *, joint: bool = False) -> MeanAndVar:
        """Mean (n,) and variance (n,), or covariance (n, n), of the function at rows of any tasks."""
        return predict_tasks([task.nodes for task in self.tasks], X, codes, joint=joint)

    def add_task(self, task: TaskRows, *, optimize: bool = True) -> HierarchicalModel:
        """The model with one more task: its most probable parameters under the learnt prior.

        Zhang & Yeung 2009, section 2.2, but for the noise, which has its prior too: its maximum likelihood
        from five rows is zero.
        """
        fit, width = None, self.width
        if task.n_labelled or task.order is not None:
            start = Point(self.mean, self.log_width, self.mean[None], np.array([HIERARCHY.alpha[0]]))
            terms = TaskTerms(self.kernel, [task], None if self.own_noise else self.noise)
            fit = Learner(terms, start, None, self.new_task_cov).learn(int(optimize))
        if task.order is not None:
            width = float(np.exp(self.log_width)) if width is None else width
        return replace(self, width=width, tasks=(*self.tasks, _fitted_task(self, task, fit)))


def fit_hierarchical_model(
    kernel, tasks: list[TaskRows], *, noise, prior_cov, average_theta, max_rounds: int, n_jobs, progress
) -> HierarchicalModel:
    """Learn from all tasks, in standard units; one without labels and constraints has the prior's kernel.

    `kernel` is where to start; its bounds are those of the prior mean. `noise` is the variance of the labels,
    `prior_cov` (q, q) that of the kernel's log-parameters; None: learnt. With a given `prior_cov`, noise that
    is learnt is one for all tasks. `average_theta` is whether predictions account for the uncertainty of
    theta; None: in small tasks. `max_rounds` are updates of the prior covariance; 0: kernel and noise stay as
    they are given. `n_jobs` are threads for tasks that are not evaluated in stacks.
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
    fit = Learner(terms, start, bounds, prior_cov, progress).learn(max_rounds)
    mean_kernel, mean_noise = _split(MovingKernel(kernel), fit.point.mean, noise)
    width = float(np.exp(fit.point.log_width)) if terms.has_order else None
    model = HierarchicalModel(
        kernel=mean_kernel,
        prior_cov=fit.prior_cov,
        noise=mean_noise,
        width=width,
        tasks=(),
        average_theta=average_theta,
        n_rounds=fit.n_rounds,
        converged=fit.converged,
        last_change=fit.last_change,
        mean_cov=fit.mean_cov,
    )
    fitted = [_fitted_task(model, t) for t in tasks]
    stage = Stage("posterior", len(filled), len(filled))
    progress(stage, 0, None)
    for k, i in enumerate(filled):
        fitted[i] = _fitted_task(model, tasks[i], fit, k)
        progress(stage, k + 1, None)
    return replace(model, tasks=tuple(fitted))


def _fitted_task(model, task: TaskRows, fit: HierarchyFit | None = None, k: int = 0) -> FittedTask:
    """Task k of a fit with its posterior at each node of the average over theta; without a fit, the prior."""
    theta, theta_cov, alpha, log_width, log_evidence = model.mean, model.new_task_cov, 0.0, 0.0, 0.0
    if fit is None:
        task = TaskRows(task.X[:0], np.zeros(0))
    else:
        theta, theta_cov, log_evidence = fit.point.theta[k], fit.theta_cov[k], float(fit.log_evidence[k])
        alpha = 0.0 if task.laplacian is None else float(np.exp(fit.point.log_alpha[k]))
        log_width = fit.point.log_width
    thetas, average = [theta], model.average_theta
    if len(theta) and (len(task.X) <= HIERARCHY.average_rows if average is None else average):
        offsets = np.sqrt(len(theta)) * matrix_root(theta_cov).T
        thetas = [theta + sign * offset for offset in offsets for sign in (1.0, -1.0)]
    noise, moving = None if model.own_noise else model.noise, MovingKernel(model.kernel)
    parts = [_split(moving, t, noise) for t in thetas]
    nodes = tuple((k, task_posterior(k, task, own, alpha, log_width)) for k, own in parts)
    mean_noise = float(np.mean([own for _, own in parts]))
    kernel, _ = _split(moving, theta, noise)
    return FittedTask(theta, theta_cov, alpha, kernel, nodes, log_evidence, mean_noise)


def _split(moving: MovingKernel, theta: FloatArray, noise: float | None) -> tuple[Any, float]:
    """The kernel at theta, and the variance of the noise: the one given, else the last of theta."""
    kernel = deepcopy(moving.at(theta[: moving.n_dims]))
    return kernel, float(np.exp(theta[-1])) + HIERARCHY.least_noise if noise is None else noise


def decisions_on(model: HierarchicalModel, blocks: list[TaskRows], name: str = "") -> list[Decision]:
    """Whether unlabelled rows and constraints help the tasks, which are the last of the model."""
    made: list[Decision] = []
    if any(b.laplacian is not None for b in blocks):
        scores = _with_and_without(model, blocks, "laplacian")
        numbers, _, reason = _decided(scores, ("all rows", "labelled rows alone"))
        reason = f"The weight of their graph is learnt. {reason}"
        made.append(Decision(f"{name}unlabelled rows", "all rows", numbers, reason))
    if any(b.order is not None for b in blocks):
        numbers, worse, reason = _decided(_with_and_without(model, blocks, "order"), ("constraints", "none"))
        made.append(Decision(f"{name}constraints", "used", numbers, f"They were given. {reason}"))
        if worse:
            warn_user(
                f"{name}labels that are held out have a lower density with the constraints "
                f"({numbers['constraints']:.3g} nats each) than without ({numbers['none']:.3g}). They may be "
                "wrong: check them, or leave them out.",
                UserWarning,
            )
    return made


def alone_if_better(
    before: HierarchicalModel, model: HierarchicalModel, block: TaskRows, name: str
) -> tuple[HierarchicalModel, list[Decision]]:
    """The model whose last task has its own kernel where the prior of the others is clearly worse."""
    if block.n_labelled < HELD_OUT.least_labels:
        return model, []
    wide = replace(before, prior_cov=HIERARCHY.wide_variance * np.eye(len(before.prior_cov)))
    alone = wide.add_task(block)
    scores = [_held_out(m, m.tasks[-1], block) for m in (model, alone)]
    numbers, worse, reason = _decided(scores, ("prior of the others", "alone"))
    if worse:
        model = replace(model, tasks=(*model.tasks[:-1], alone.tasks[-1]))
    return model, [Decision(name, list(numbers)[worse], numbers, reason)]


def _decided(scores: list[FloatArray], names: tuple[str, str]) -> tuple[dict[str, float], bool, str]:
    """Means by name, whether the second is clearly better, and that in words."""
    if len(scores[0]) < HELD_OUT.least_labels:
        return {}, False, "There are too few labels to hold some out."
    numbers = {name: float(np.mean(s)) for name, s in zip(names, scores, strict=True)}
    worse = in_standard_errors(scores[1] - scores[0]) > HELD_OUT.clear
    without = "better" if worse else "not clearly better"
    return numbers, worse, f"Labels that are held out are predicted {without} without."


def _with_and_without(model: HierarchicalModel, blocks: list[TaskRows], part: str) -> list[FloatArray]:
    """Log densities of held-out labels of the tasks that have a part, with and without it."""
    pairs = zip(model.tasks[len(model.tasks) - len(blocks) :], blocks, strict=True)
    having = [(t, b) for t, b in pairs if getattr(b, part) is not None and b.n_labelled > 1]
    nothing: dict[str, Any] = {part: None}
    scores = [(_held_out(model, t, b), _held_out(model, t, replace(b, **nothing))) for t, b in having]
    return [np.concatenate([np.zeros(0), *(pair[k] for pair in scores)]) for k in range(2)]


def _held_out(model: HierarchicalModel, task: FittedTask, block: TaskRows) -> FloatArray:
    """Log density (l,) of every label of a task without those of its fold."""
    n = block.n_labelled
    n_folds = min(HELD_OUT.n_folds, n)
    fold = np.random.default_rng(0).permutation(np.arange(n) % max(1, n_folds))
    scores, noise = np.zeros(n), model.noise if task.noise is None else task.noise
    for k in range(n_folds):
        known, out = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        some = _with_labels(block, known, out)
        posterior = task_posterior(task.kernel, some, noise, task.alpha, model.log_width)
        mean, var = posterior.predict(task.kernel, block.X[out])
        scores[out] = Gaussian(noise).log_density(block.y[out], mean, var)
    return scores


def _with_labels(block: TaskRows, known: IntArray, out: IntArray) -> TaskRows:
    """The task with the labels of `known` rows; the others stay if graph or constraints name them."""
    rows, laplacian, order = known, block.laplacian, block.order
    if laplacian is not None or order is not None:
        rows = np.concatenate([known, out, np.arange(block.n_labelled, len(block.X))])
    if laplacian is not None:
        laplacian = laplacian[rows][:, rows]
    if order is not None:
        order = replace(order, coefficients=order.coefficients[:, rows])
    return TaskRows(block.X[rows], block.y[known], laplacian, order)
