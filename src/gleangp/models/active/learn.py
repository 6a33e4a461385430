"""Learning a kernel that all tasks share: rounds of "select points, then maximise the evidence".

Lawrence & Platt 2004, section 4; Lawrence, Platt & Jordan 2005, algorithm 2. Departures: L-BFGS-B in
place of scaled conjugate gradients; the best round is kept; rounds end when the evidence no longer
rises.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from sklearn.gaussian_process.kernels import ConstantKernel

from gleangp.inference.filtering import Sites
from gleangp.inference.posterior import TaskPosterior
from gleangp.kernels.parameters import MovingKernel
from gleangp.models.active.tasks import ActiveEvidence, NoiseObjective, Settings, TaskBlocks
from gleangp.models.defaults import ACTIVE
from gleangp.models.parameters import Parameters
from gleangp.numerics.optimize import Optimum, minimize
from gleangp.progress import Stage, report_to
from gleangp.selection.base import Selection


@dataclass(frozen=True, eq=False)
class SharedKernelFit:
    """What was learnt."""

    parameters: Parameters
    selection: Selection
    posteriors: list[TaskPosterior]
    sites: list[Sites]
    log_evidence: float
    n_rounds: int
    converged: bool
    last_change: float

    @property
    def kernel(self):
        """The learnt kernel."""
        return self.parameters.kernel


def learn_shared_kernel(
    parameters: Parameters, tasks: TaskBlocks, settings: Settings, rng: np.random.Generator
) -> SharedKernelFit:
    """Select points and learn the kernel and noise they share, then form every task's posterior.

    `parameters` has kernel and noise to start from, and which noise parameters are free. The best round is
    kept.
    """
    seed = int(rng.integers(2**63))  # every round draws the same numbers: rounds stay comparable
    if hasattr(settings.selector, "check_tasks"):
        settings.selector.check_tasks(len(tasks.sizes))
    learner = _Learner(tasks, settings, seed, rng)
    if settings.optimize and (parameters.n_kernel or parameters.learn_noise):
        return learner.alternate(parameters)
    return learner.finish(parameters, None, 0, True, 0.0)


class _Learner:
    """Rounds over the same rows with the same random numbers."""

    def __init__(self, tasks: TaskBlocks, settings: Settings, seed: int, rng: np.random.Generator):
        self.tasks, self.settings, self.seed, self.rng = tasks, settings, seed, rng
        self.n_rows, self.exact = sum(tasks.sizes), tasks.is_exact(settings)
        self._chosen: Selection | None = None  # by a selector whose choice depends on no parameter

    def alternate(self, parameters: Parameters) -> SharedKernelFit:
        """Rounds of LPJ05 algorithm 2: each climbs the evidence of its own active points.

        The evidence of different points is not comparable. Rounds are compared by the sum of log Z over all
        rows (eq. 28), and the best is kept. Greedily selected points are far apart, so they carry little
        information about the noise, which drifts from round to round while the evidence rises. If all rows
        are active and noise is Gaussian there is one round, on the exact evidence.
        """
        settings, most = self.settings, 1 if self.exact else self.settings.n_rounds
        best, best_value, value, change, settled, n_rounds = parameters, -np.inf, -np.inf, np.inf, False, 0
        points, best_points = None, None  # chosen with the present parameters, where that was done already
        while n_rounds < most and not settled:
            n_active = min(settings.n_active, self.n_rows)
            most_steps = settings.max_iter * (1 + settings.n_restarts)
            stage = Stage(f"round {n_rounds + 1}", most_steps, len(self.tasks.sizes), n_active)
            if settings.progress(stage, 0, best_value if n_rounds else None):
                break
            n_rounds += 1
            optimum, parameters, points = self.learn_once(parameters, points, stage, n_rounds == 1)
            change, value = -optimum.value - value, -optimum.value
            if value > best_value:
                best, best_value, best_points = parameters, value, points
            settled = optimum.converged and change <= settings.tol * self.n_rows
        if n_rounds == 0:  # asked to stop before the first
            return self.finish(best, None, 0, False, 0.0)
        settled = settled or change <= ACTIVE.little * settings.tol * self.n_rows or most == 1
        return self.finish(best, best_points, n_rounds, settled and optimum.converged, change)

    def learn_once(
        self, parameters: Parameters, selection: Selection | None, stage: Stage, first: bool
    ) -> tuple[Optimum, Parameters, Selection | None]:
        """Select, then learn: kernel and noise together, or one after the other where sites are held.

        Also gives the points that the learnt parameters choose, where learning asked for them.
        """
        settings, tasks = self.settings, self._at(parameters)
        if selection is None and not self.exact:
            selection = self._choose(parameters)
        evidence = tasks.evidence(parameters.kernel, selection, settings)
        n_restarts = settings.n_restarts if first else 0
        if not evidence.holds_sites:
            optimum = self._maximize(parameters, evidence, n_restarts, stage)
            learnt = parameters.with_values(optimum.theta)
            return (optimum, learnt, None) if self.exact else self._judged(optimum, learnt)
        # Sites held, the evidence does not know the noise: LPJ05 algorithm 2 learns it in a step of its own.
        kernel_only = replace(parameters, learn_noise=())
        optimum = self._maximize(kernel_only, evidence, n_restarts, stage)
        learnt = replace(parameters, kernel=kernel_only.with_values(optimum.theta).kernel)
        if not parameters.learn_noise:
            return self._judged(optimum, learnt)
        learnt, sum_log_z, selection = self._learn_noise(learnt)
        return replace(optimum, value=-sum_log_z), learnt, selection

    def finish(
        self, parameters: Parameters, points: Selection | None, n_rounds: int, converged: bool, change: float
    ) -> SharedKernelFit:
        """The posteriors at the learnt parameters."""
        tasks, settings = self._at(parameters), self.settings
        selection = self._choose(parameters) if points is None else points
        n_tasks = len(tasks.sizes)
        stage = Stage("posterior", n_tasks, n_tasks, len(selection.order))
        settings.progress(stage, 0, None)
        found = tasks.fit(parameters.kernel, selection, settings)
        settings.progress(stage, n_tasks, None)
        return SharedKernelFit(parameters, selection, *found, n_rounds, converged, change)

    def _maximize(
        self, parameters: Parameters, evidence: ActiveEvidence, n_restarts: int, stage: Stage
    ) -> Optimum:
        moving, settings = MovingKernel(parameters.kernel), self.settings

        def objective(z):
            kernel = moving.at(z[: parameters.n_kernel])
            value, theta_grad, noise_grads = evidence(kernel, parameters.noise_values(z))
            noise_grad = parameters.noise_gradient(z, noise_grads)
            log_prior, prior_grad = parameters.slots.log_prior(z)
            return -(value + log_prior), -(np.concatenate([theta_grad, noise_grad]) + prior_grad)

        # With sites held, those of other parameters have another evidence: no far steps.
        held = evidence.holds_sites
        return minimize(
            objective,
            parameters.slots.start,
            parameters.slots.bounds,
            max_iter=settings.max_iter,
            tol=settings.precision,
            n_restarts=n_restarts,
            rng=self.rng,
            report=report_to(settings.progress, stage),
            scale=1 if held else min(self.n_rows, settings.n_active),
            unit=1.0 if held else ACTIVE.first_step,
        )

    def _judged(self, optimum: Optimum, learnt: Parameters) -> tuple[Optimum, Parameters, Selection]:
        """The same with the sum of log Z as the value, and the points that the parameters choose."""
        sum_log_z, points = self._sum_log_z(learnt)
        return replace(optimum, value=-sum_log_z(learnt.noise_values(learnt.slots.start))[0]), learnt, points

    def _learn_noise(self, parameters: Parameters) -> tuple[Parameters, float, Selection]:
        """Noise parameters that maximise the sum of log Z over all rows after reselection; that sum; points.

        Lawrence, Platt & Jordan 2005, eq. 28. The posterior is held while they move, and steeper noise may
        then choose other points, which explain the rows worse: a step that lowers the sum once points are
        chosen anew is cut back. Unlike the evidence of active points and held sites, the sum can be compared
        between rounds.
        """
        sum_log_z, points_before = self._sum_log_z(parameters)
        noise_only = replace(parameters, kernel=ConstantKernel(1.0, "fixed"))

        def objective(z):
            total, grads = sum_log_z(noise_only.noise_values(z))
            return -total, -noise_only.noise_gradient(z, grads)

        start = noise_only.slots.start
        before = -objective(start)[0]
        optimum = minimize(objective, start, noise_only.slots.bounds, max_iter=self.settings.max_iter)
        promising = -optimum.value - before > ACTIVE.promising * self.settings.tol * self.n_rows
        for share in ACTIVE.noise_steps if promising else ():
            z = start + share * (optimum.theta - start)
            learnt = replace(noise_only.with_values(z), kernel=parameters.kernel)
            again, points = self._sum_log_z(learnt)
            after = again(noise_only.noise_values(z))[0]
            if after > before:
                return learnt, after, points
        return parameters, before, points_before

    def _sum_log_z(self, parameters: Parameters) -> tuple[NoiseObjective, Selection]:
        """Sum of log Z over all rows as a function of noise values, and the points chosen at present ones."""
        tasks, kernel = self._at(parameters), parameters.kernel
        selection = self._choose(parameters)
        posteriors = tasks.fit(kernel, selection, self.settings)[0]
        return tasks.noise_objective(kernel, selection, posteriors), selection

    def _choose(self, parameters: Parameters) -> Selection:
        if self._chosen is not None:
            return self._chosen
        chosen = self._at(parameters).choose(parameters.kernel, self.settings, self.seed)
        if getattr(self.settings.selector, "model_free", False):
            self._chosen = chosen
        return chosen

    def _at(self, parameters: Parameters) -> TaskBlocks:
        values = {name: parameters.noise.parameters[name] for name in parameters.learn_noise}
        return self.tasks.with_noise(values)
