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
TOLERANCE = 0.02  # of the prior at which rounds end: absolute in m, relative in the variances


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """Values of everything that is learnt but the prior covariance."""

    mean: FloatArray  # (q,) of the prior
    log_width: float  # of the noise of order constraints, per term
    theta: FloatArray  # (M, q)
    log_alpha: FloatArray  # (M,) meaningless for tasks without a graph


@dataclass(frozen=True, slots=True, eq=False)
class HierarchyFit:
    """The tasks at their most probable parameters under a prior covariance."""

    point: Point
    prior_cov: FloatArray  # (q, q)
    theta_cov: FloatArray  # (M, q, q) Laplace's, of each theta_i; m is integrated out at the end
    log_evidence: FloatArray  # (M,) theta_i integrated out by Laplace
    hessian: FloatArray | None = None  # (M, q, q) H_i; None: nothing was learnt
    converged: bool = True
    loss: float = np.nan  # minus the log evidence of all tasks and the log density of the hyperpriors
    mean_cov: FloatArray | None = None  # (q, q) posterior covariance of m, where it is learnt
    n_rounds: int = 0
    last_change: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Learner:
    """Learns the prior and every task's parameters; each task has at least one label or constraint."""

    terms: TaskTerms
    start: Point  # where to begin; its mean is also the centre of the hyperprior of the mean
    mean_bounds: FloatArray | None  # (q, 2) of the prior mean; None: it and the width are known (a new task)
    fixed_cov: FloatArray | None = None  # (q, q) the prior covariance; None: learnt
    progress: Progress = silent  # told of every iteration; may ask to stop

    def learn(self, max_rounds: int) -> HierarchyFit:
        """The better of two starts, then rounds that update the prior covariance; none: all as it starts."""
        if max_rounds == 0:
            n_tasks, q = self.start.theta.shape
            cov = np.zeros((q, q)) if self.fixed_cov is None else self.fixed_cov
            return HierarchyFit(self.start, cov, np.zeros((n_tasks, q, q)), np.full(n_tasks, np.nan))
        best: Any = None
        for number, (point, cov) in enumerate(self._starts()):
            stage = self._stage(f"start {number + 1}")
            if self.progress(stage, 0, None) and best is not None:
                break
            found = self._round(point, cov, stage)
            if best is None or found.loss < best.loss:
                best = found
        n_rounds, change, moved, cov = 1, 0.0, np.inf, best.prior_cov
        while True:
            if self.fixed_cov is None and len(cov):
                cov = _updated_cov(best.point, best.theta_cov)
                ratio = np.abs(np.log(np.diagonal(cov) / np.diagonal(best.prior_cov)))
                change = max(float(np.max(ratio)), moved)
            converged = best.converged and change <= TOLERANCE
            stage = self._stage(f"round {n_rounds}")
            if converged or n_rounds == max_rounds or self.progress(stage, 0, -best.loss):
                break
            before = best.point.mean
            best = self._round(best.point, cov, stage)
            moved = float(np.max(np.abs(best.point.mean - before)))
            n_rounds += 1
        if self.mean_bounds is not None:
            mean_cov, theta_cov = mean_uncertainty(best.hessian, best.theta_cov)
            best = replace(best, mean_cov=mean_cov, theta_cov=theta_cov)
        return replace(best, n_rounds=n_rounds, converged=converged, last_change=change)

    def _stage(self, name: str) -> Stage:
        return Stage(name, _MOST_STEPS, self.terms.n_tasks)

    def _starts(self) -> list[tuple[Point, FloatArray]]:
        """Where learning begins: at one kernel for all tasks, and at tasks that are nearly independent.

        The first finds the region where tasks have few rows. It can be a trap: a task unlike the others is
        explained by noise, which all share. The second avoids it. The better of the two goes on.
        """
        start, (n_tasks, q) = self.start, self.start.theta.shape
        cov = HIERARCHY.start_variance * np.eye(q) if self.fixed_cov is None else self.fixed_cov
        froms = [start]
        if self.terms.has_graph.any():  # the evidence often has two peaks in alpha: graph or no graph
            froms.append(replace(start, log_alpha=np.full(n_tasks, HIERARCHY.large_alpha)))
        if self.mean_bounds is None:
            return [(point, cov) for point in froms]
        one_kernel: list[tuple[Point, Optimum]] = []
        for point in froms:
            stage = self._stage("one kernel")
            if self.progress(stage, 0, None) and one_kernel:
                break
            one_kernel.append(self._search(point, np.zeros((q, q)), stage, HIERARCHY.start_tol))
        shared, _ = min(one_kernel, key=lambda found: found[1].value)
        stage = self._stage("tasks apart")
        if n_tasks == 1 or not cov.any() or self.progress(stage, 0, None):
            return [(shared, cov)]
        wide = np.sqrt(HIERARCHY.wide_variance) * np.eye(q)
        apart, _ = self._search(replace(start, log_alpha=shared.log_alpha), wide, stage, HIERARCHY.start_tol)
        if self.fixed_cov is not None:
            return [(shared, cov), (apart, cov)]
        return [(shared, cov), (apart, _updated_cov(apart, _theta_cov(self._hessian(apart), wide)[0]))]

    def _round(self, point: Point, cov: FloatArray, stage: Stage) -> HierarchyFit:
        """The most probable parameters under this prior covariance, from a point."""
        root = matrix_root(cov)
        point, optimum = self._search(point, root, stage, 1e-6)
        hessian = self._hessian(point)
        theta_cov, log_det = _theta_cov(hessian, root)
        z = _whitened(point.theta - point.mean, root)
        values = self.terms(point.theta, point.log_alpha, point.log_width).value
        log_evidence = values - 0.5 * np.sum(z * z, axis=1) - 0.5 * log_det
        loss = optimum.value + 0.5 * log_det.sum()
        if self.fixed_cov is None:  # less the log density of S, without its constant
            q, nu0 = len(cov), len(cov) + 2
            scatter = nu0 * HIERARCHY.start_variance * np.trace(np.linalg.inv(cov))
            loss -= -0.5 * ((nu0 + q + 1) * np.linalg.slogdet(cov)[1] + scatter)
        return HierarchyFit(point, cov, theta_cov, log_evidence, hessian, optimum.converged, float(loss))

    def _search(self, point: Point, root: FloatArray, stage: Stage, tol: float) -> tuple[Point, Optimum]:
        """Minimise J for a given root of the prior covariance, from a point.

        Its slots are the prior mean and the width, if these are learnt, z of all tasks unless the root is
        zero, and log alpha of tasks with a graph. Log densities of priors are relative to their peaks.
        """
        terms, graph, own = self.terms, self.terms.has_graph, []
        if self.mean_bounds is not None:
            own.append(_slot("mean", point.mean, self.mean_bounds.T, self.start.mean, HIERARCHY.mean_spread))
            if terms.has_order:
                own.append(_slot("log_width", point.log_width, HIERARCHY.width_bounds, *HIERARCHY.width))
        if root.any():
            z = _whitened(point.theta - point.mean, root)
            own.append(_slot("z", z, HIERARCHY.z_bounds, 0.0, 1.0))
        own.append(_slot("log_alpha", point.log_alpha[graph], HIERARCHY.alpha_bounds, *HIERARCHY.alpha))
        slots = Slots(own)
        priors = [(s.prior, s.prior.mean + 0.0 * s.start) for s in slots.slots.values()]
        peak = sum(float(np.sum(prior.log_prob(mean)[0])) for prior, mean in priors)

        def at(x: FloatArray) -> Point:
            mean = point.mean if self.mean_bounds is None else slots.get(x, "mean")
            width = float(slots.get(x, "log_width")[0]) if "log_width" in slots.where else point.log_width
            z = slots.get(x, "z") if "z" in slots.where else np.zeros(point.theta.size)
            log_alpha = point.log_alpha.copy()
            log_alpha[graph] = slots.get(x, "log_alpha")
            return Point(mean, width, mean + z.reshape(point.theta.shape) @ root.T, log_alpha)

        def objective(x: FloatArray) -> tuple[float, FloatArray]:
            now = at(x)
            evidence = terms(now.theta, now.log_alpha, now.log_width)
            log_prior, gradient = slots.log_prior(x)
            slopes = {
                "mean": evidence.d_theta.sum(axis=0),
                "log_width": evidence.d_log_width.sum(),
                "z": (evidence.d_theta @ root).ravel(),
                "log_alpha": evidence.d_log_alpha[graph],
            }
            for name, part in slots.where.items():
                gradient[part] += slopes[name]
            return -float(evidence.value.sum() + log_prior - peak), -gradient

        report = report_to(self.progress, stage)
        optimum = minimize(objective, slots.start, slots.bounds, max_iter=_MOST_STEPS, tol=tol, report=report)
        return at(optimum.theta), optimum

    def _hessian(self, point: Point) -> FloatArray:
        """H (M, q, q), zero in directions in which the evidence curves the wrong way.

        The rows of the task are then not taken to decide anything about them.
        """
        n_tasks, q = point.theta.shape
        hessian = np.empty((n_tasks, q, q))
        for j, step in enumerate(_DIFFERENCE * np.eye(q)):
            above, below = (
                self.terms(theta, point.log_alpha, point.log_width).d_theta
                for theta in (point.theta + step, point.theta - step)
            )
            hessian[:, j] = (below - above) / (2.0 * _DIFFERENCE)
        values, vectors = np.linalg.eigh(0.5 * (hessian + hessian.swapaxes(1, 2)))
        return (vectors * np.maximum(values, 0.0)[:, None, :]) @ vectors.swapaxes(1, 2)


def _slot(name: str, start: Any, bounds: Any, mean: Any, spread: float) -> Slot:
    low, high = bounds
    return Slot(name, np.ravel(start), low, high, Normal(mean, spread), "identity")


def _theta_cov(hessian: FloatArray, root: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Posterior covariance (M, q, q) of each theta_i, and log |1 + root^T H_i root| (M,)."""
    precision = np.eye(len(root)) + root.T @ hessian @ root  # of z_i
    return root @ np.linalg.inv(precision) @ root.T, np.linalg.slogdet(precision)[1]


def _updated_cov(point: Point, theta_cov: FloatArray) -> FloatArray:
    """The expectation-maximisation step for S, under the inverse-Wishart prior."""
    n_tasks, q = point.theta.shape
    deviation = point.theta - point.mean
    scatter = deviation.T @ deviation + theta_cov.sum(axis=0)
    nu0 = q + 2
    return (nu0 * HIERARCHY.start_variance * np.eye(q) + scatter) / (n_tasks + nu0 + q + 1)


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


def _whitened(deviation: FloatArray, root: FloatArray) -> FloatArray:
    """z (M, q) with root z = deviation, zero in directions that the root does not span."""
    return deviation @ np.linalg.pinv(root).T
