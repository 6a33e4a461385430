"""Every task its own kernel parameters, under one prior that the tasks teach (Zhang & Yeung 2009).

The log-parameters theta_i of task i have the prior N(m, S). Unless it is given, the logarithm of the task's
noise variance is the last of them. What is minimised is

    J = sum_i -log p(y_i | theta_i) + 1/2 sum_i |z_i|^2 + hyperpriors,      theta_i = m + root z_i,

with root root^T = S. Departures from the paper, with reasons:

* The prior is on the logarithms, which are what is optimised; the sign of ln |S| is corrected.
* m and z are optimised together. As printed, with m the mean of the theta_i and the theta_i held near m
  by S, the mean cannot move once S is small.
* S is not the scatter of the point estimates: J falls without limit as S vanishes. It is updated by
  expectation-maximisation, with Laplace's approximation of each theta_i's posterior and a weak
  inverse-Wishart prior,

      S = (nu0 S0 + sum_i [(theta_i - m)(theta_i - m)^T + H_i^-1]) / (M + nu0 + q + 1),

  nu0 = q + 2, S0 = 0.25, H_i the curvature of task i's term of J in theta_i, from differences of gradients.

In the coordinates z the posterior precision is 1 + root^T H root, which also serves S = 0 (one kernel for
all tasks) without a special case.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gleangp._typing import FloatArray
from gleangp.models.defaults import HIERARCHY
from gleangp.models.hierarchical.evidence import TaskTerms
from gleangp.models.parameters import Slot, Slots
from gleangp.models.priors import Normal
from gleangp.numerics.optimize import Optimum, minimize
from gleangp.progress import Progress, Stage, report_to, silent

_MOST_STEPS = 100  # of a search
_DIFFERENCE = 1e-4  # of parameters, for derivatives of gradients


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """Values of everything that is learnt but the prior covariance."""

    mean: FloatArray  # (q,) of the prior
    log_width: float  # of the noise of order constraints, per term
    theta: FloatArray  # (M, q)
    log_alpha: FloatArray  # (M,) meaningless for tasks without a graph


@dataclass(frozen=True, slots=True, eq=False)
class LearningPlan:
    """What is learnt and for how long."""

    mean_bounds: FloatArray  # (q, 2)
    learn_shared: bool = True  # prior mean and width; False for a new task
    fixed_cov: FloatArray | None = None  # (q, q); None: learnt
    max_rounds: int = 30
    tol: float = 0.02  # of the prior: absolute in m, relative in the variances
    progress: Progress = silent  # told of every round and iteration; may ask to stop


@dataclass(frozen=True, slots=True, eq=False)
class HierarchyFit:
    """The tasks at their most probable parameters under a prior covariance."""

    point: Point
    prior_cov: FloatArray  # (q, q)
    theta_cov: FloatArray  # (M, q, q) Laplace's, of each theta_i; m is integrated out at the end
    log_evidence: FloatArray  # (M,) theta_i integrated out by Laplace
    converged: bool = True
    loss: float = np.nan  # minus the log evidence of all tasks and the log density of the hyperpriors
    mean_cov: FloatArray | None = None  # (q, q) posterior covariance of m, where it is learnt
    n_rounds: int = 0
    last_change: float = 0.0


class HierarchyObjective:
    """J and its gradient for a given prior covariance, as a function of one vector that begins at a point.

    Its slots are the prior mean and the width, if these are learnt, z of all tasks unless the root is zero,
    and log alpha of tasks with a graph. Log densities of priors are relative to their peaks.
    """

    def __init__(self, terms: TaskTerms, centre, point: Point, root: FloatArray, plan: LearningPlan):
        self.terms, self.begin, self.root = terms, point, root
        shared, z = plan.learn_shared, whitened(point.theta - point.mean, root)
        ordered = shared and terms.has_order
        slots = [
            _slot("mean", point.mean, plan.mean_bounds.T, (centre, HIERARCHY.mean_spread), shared),
            _slot("log_width", point.log_width, HIERARCHY.width_bounds, HIERARCHY.width, ordered),
            _slot("z", z, HIERARCHY.z_bounds, (0.0, 1.0), bool(root.any())),
            _slot("log_alpha", point.log_alpha[terms.has_graph], HIERARCHY.alpha_bounds, HIERARCHY.alpha),
        ]
        self.slots = Slots(slots)
        self._peak = sum(
            float(np.sum(s.prior.log_prob(s.prior.mean + 0.0 * s.start)[0])) for s in self.slots.slots
        )

    def point(self, x: FloatArray) -> Point:
        """The point of a vector."""
        get, where, begin = self.slots.get, self.slots.where, self.begin
        mean = get(x, "mean") if "mean" in where else begin.mean
        width = float(get(x, "log_width")[0]) if "log_width" in where else begin.log_width
        log_alpha = begin.log_alpha.copy()
        log_alpha[self.terms.has_graph] = get(x, "log_alpha")
        return Point(mean, width, mean + self._z(x) @ self.root.T, log_alpha)

    def _z(self, x: FloatArray) -> FloatArray:
        """(M, q)."""
        shape = self.begin.theta.shape
        return self.slots.get(x, "z").reshape(shape) if "z" in self.slots.where else np.zeros(shape)

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray]:
        point = self.point(x)
        evidence = self.terms(point.theta, point.log_alpha, point.log_width)
        log_prior, gradient = self.slots.log_prior(x)
        slopes = {
            "mean": evidence.d_theta.sum(axis=0),
            "log_width": evidence.d_log_width.sum(),
            "z": (evidence.d_theta @ self.root).ravel(),
            "log_alpha": evidence.d_log_alpha[self.terms.has_graph],
        }
        for name, part in self.slots.where.items():
            gradient[part] += slopes[name]
        return -float(evidence.value.sum() + log_prior - self._peak), -gradient


def _slot(name: str, start: Any, bounds: Any, prior: tuple[Any, float], learnt: bool = True) -> Slot:
    """A slot with a normal prior; an empty one if it is not learnt."""
    values = np.ravel(start) if learnt else np.zeros(0)
    low, high = bounds
    return Slot(name, values, low, high, Normal(*prior), "identity")


def most_stages(max_rounds: int) -> int:
    """Most stages that learning a hierarchy has: three ways to begin, two starts, the rounds, the tasks."""
    return 3 + 2 + max_rounds + 1


def learn_hierarchy(terms: TaskTerms, start: Point, plan: LearningPlan) -> HierarchyFit:
    """Learn the prior and every task's parameters; each task has at least one label or constraint.

    `start` is where to begin; `start.mean` is also the centre of the hyperprior of the mean.
    """
    best: Any = None
    for number, (point, cov) in enumerate(_starts(terms, start, plan)):
        stage = Stage(f"start {number + 1}", _MOST_STEPS, len(terms))
        if plan.progress(stage, 0, None) and best is not None:
            break
        found = _round(terms, start, point, cov, plan, stage)
        if best is None or found.loss < best.loss:
            best = found
    n_rounds, change, moved, converged = 1, 0.0, np.inf, best.converged
    while plan.fixed_cov is None and len(best.prior_cov):
        updated = update_cov(best.point, best.theta_cov)
        ratio = np.abs(np.log(np.diagonal(updated) / np.diagonal(best.prior_cov)))
        change = max(float(np.max(ratio)), moved)
        converged = best.converged and change <= plan.tol
        if converged or n_rounds == plan.max_rounds:
            break
        stage = Stage(f"round {n_rounds}", _MOST_STEPS, len(terms))
        if plan.progress(stage, 0, -best.loss):
            break
        before = best.point.mean
        best = _round(terms, start, best.point, updated, plan, stage)
        moved = float(np.max(np.abs(best.point.mean - before)))
        n_rounds += 1
    if plan.learn_shared:
        mean_cov, theta_cov = mean_uncertainty(curvatures(terms, best.point), best.theta_cov)
        best = replace(best, mean_cov=mean_cov, theta_cov=theta_cov)
    return replace(best, n_rounds=n_rounds, converged=converged, last_change=change)


def _starts(terms, start: Point, plan: LearningPlan) -> list[tuple[Point, FloatArray]]:
    """Where learning begins: at one kernel for all tasks, and at tasks that are nearly independent.

    The first finds the region where tasks have few rows. It can be a trap: a task unlike the others is
    explained by noise, which all share. The second avoids it. The better of the two goes on.
    """
    q = start.theta.shape[1]
    cov = HIERARCHY.start_variance * np.eye(q) if plan.fixed_cov is None else plan.fixed_cov
    if not plan.learn_shared:
        graph = replace(start, log_alpha=np.full(len(terms), HIERARCHY.large_alpha))
        return [(start, cov), (graph, cov)] if terms.has_graph.any() else [(start, cov)]
    froms = [start]
    if terms.has_graph.any():  # the evidence often has two peaks in alpha: graph or no graph
        froms.append(replace(start, log_alpha=np.full(len(terms), HIERARCHY.large_alpha)))
    one_kernel: list[tuple[Point, Any]] = []
    for p in froms:
        stage = Stage("one kernel", _MOST_STEPS, len(terms))
        if plan.progress(stage, 0, None) and one_kernel:
            break
        one_kernel.append(_optimize(terms, start, p, np.zeros((q, q)), plan, stage, tol=HIERARCHY.start_tol))
    shared, _ = min(one_kernel, key=lambda found: found[1].value)
    starts = [(shared, cov)]
    stage = Stage("tasks apart", _MOST_STEPS, len(terms))
    if len(terms) > 1 and cov.any() and not plan.progress(stage, 0, None):
        wide = np.sqrt(HIERARCHY.wide_variance) * np.eye(q)
        begin = replace(start, log_alpha=shared.log_alpha)
        apart, _ = _optimize(terms, start, begin, wide, plan, stage, tol=HIERARCHY.start_tol)
        if plan.fixed_cov is None:
            precision = whitened_precision(curvatures(terms, apart), wide)
            cov = update_cov(apart, wide @ np.linalg.inv(precision) @ wide.T)
        starts.append((apart, cov))
    return starts


def _round(
    terms, start: Point, point: Point, cov: FloatArray, plan: LearningPlan, stage: Stage
) -> HierarchyFit:
    root = matrix_root(cov)
    point, optimum = _optimize(terms, start, point, root, plan, stage)
    precision = whitened_precision(curvatures(terms, point), root)
    theta_cov = root @ np.linalg.inv(precision) @ root.T
    z = whitened(point.theta - point.mean, root)
    values = terms(point.theta, point.log_alpha, point.log_width).value
    log_det = np.linalg.slogdet(precision)[1]
    log_evidence = values - 0.5 * np.sum(z * z, axis=1) - 0.5 * log_det
    loss = optimum.value + 0.5 * log_det.sum()
    if plan.fixed_cov is None:
        loss -= log_inverse_wishart(cov)
    return HierarchyFit(point, cov, theta_cov, log_evidence, optimum.converged, float(loss))


def log_inverse_wishart(cov: FloatArray) -> float:
    """Log density of the prior of S, without its constant."""
    q = len(cov)
    nu0 = q + 2
    return -0.5 * (
        (nu0 + q + 1) * np.linalg.slogdet(cov)[1]
        + nu0 * HIERARCHY.start_variance * np.trace(np.linalg.inv(cov))
    )


def _optimize(terms, start, point, root, plan, stage, tol=1e-6) -> tuple[Point, Optimum]:
    objective = HierarchyObjective(terms, start.mean, point, root, plan)
    optimum = minimize(
        objective,
        objective.slots.start,
        objective.slots.bounds,
        max_iter=_MOST_STEPS,
        tol=tol,
        report=report_to(plan.progress, stage),
    )
    return objective.point(optimum.theta), optimum


def update_cov(point: Point, theta_cov: FloatArray) -> FloatArray:
    """The expectation-maximisation step for S, under the inverse-Wishart prior."""
    n_tasks, q = point.theta.shape
    deviation = point.theta - point.mean
    scatter = deviation.T @ deviation + theta_cov.sum(axis=0)
    nu0 = q + 2
    return (nu0 * HIERARCHY.start_variance * np.eye(q) + scatter) / (n_tasks + nu0 + q + 1)


def curvatures(terms: TaskTerms, point: Point) -> FloatArray:
    """H (M, q, q), zero in directions in which the evidence curves the wrong way.

    The rows of the task are then not taken to decide anything about them.
    """
    n_tasks, q = point.theta.shape
    hessian = np.empty((n_tasks, q, q))
    for j in range(q):
        step = _DIFFERENCE * np.eye(q)[j]
        above = replace(point, theta=point.theta + step)
        below = replace(point, theta=point.theta - step)
        slopes = [terms(p.theta, p.log_alpha, p.log_width).d_theta for p in (above, below)]
        hessian[:, j] = (slopes[1] - slopes[0]) / (2.0 * _DIFFERENCE)
    values, vectors = np.linalg.eigh(0.5 * (hessian + hessian.swapaxes(1, 2)))
    return (vectors * np.maximum(values, 0.0)[:, None, :]) @ vectors.swapaxes(1, 2)


def whitened_precision(hessian: FloatArray, root: FloatArray) -> FloatArray:
    """Posterior precision (M, q, q) of z_i: 1 + root^T H_i root."""
    return np.eye(len(root)) + root.T @ hessian @ root


def mean_uncertainty(hessian: FloatArray, theta_cov: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Posterior covariances of m (q, q), and of theta_i (M, q, q) with m integrated out.

    Given m, theta_i has the covariance C_i = (H_i + S^-1)^-1 and moves by (1 - C_i H_i) dm. Rows of task i
    have the precision H_i - H_i C_i H_i = (H_i^-1 + S)^-1 about m.
    """
    q = len(theta_cov[0])
    precision = np.eye(q) / HIERARCHY.mean_spread**2 + np.sum(hessian - hessian @ theta_cov @ hessian, axis=0)
    mean_cov = np.linalg.inv(precision)
    moves = np.eye(q) - theta_cov @ hessian
    return mean_cov, theta_cov + moves @ mean_cov @ moves.swapaxes(1, 2)


def matrix_root(cov: FloatArray) -> FloatArray:
    """root with root root^T = cov, for any positive semi-definite matrix."""
    values, vectors = np.linalg.eigh(cov)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def whitened(deviation: FloatArray, root: FloatArray) -> FloatArray:
    """z (M, q) with root z = deviation, zero in directions that the root does not span."""
    return deviation @ np.linalg.pinv(root).T
