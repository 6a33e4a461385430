"""Learning a kernel that all tasks share: rounds of "select points, then maximise the evidence".

Lawrence & Platt 2004, section 4; Lawrence, Platt & Jordan 2005, algorithm 2. Departures: L-BFGS-B in
place of scaled conjugate gradients; the best round is kept; rounds end when the evidence no longer
rises.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from sklearn.gaussian_process.kernels import ConstantKernel

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.filtering import Sites
from gleangp.inference.posterior import TaskPosterior
from gleangp.kernels.parameters import MovingKernel
from gleangp.models.active.settings import Settings
from gleangp.models.active.task_store import LocalTasks, is_exact
from gleangp.models.parameters import Parameters
from gleangp.numerics.optimize import Optimum, minimize
from gleangp.numerics.parallel import on_one_thread
from gleangp.progress import Stage, Steps, report_to
from gleangp.selection.base import Chosen, Selection

# With many rows, the first parameters are learnt on random parts of them: some tasks, and of each not
# more rows than leave room for four tasks.
_FIRST_PART = 400
_SECOND_PART = 800
# With more rows than the first number, parameters are learnt on as many random ones as the second says: their
# error is then far below what any prediction notices.
MOST_LEARNT_ON, _LARGE_PART = 100_000, 50_000
_LITTLE = 10.0
# The first step of a search, in log-parameters: one as short as the gradient per row looks like the last.
_FIRST_STEP = 3.0
# A step of the noise parameters asks for new points, which cost more than all else in a round: it is cut once
# before it is not taken, and not tried where it promises less than a tenth of what ends the rounds.
_NOISE_STEPS = 1.0, 0.25
_PROMISING = 0.1


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
    parameters: Parameters,
    tasks: LocalTasks,
    settings: Settings,
    rng: np.random.Generator,
) -> SharedKernelFit:
    """Select points and learn the kernel and noise they share, then form every task's posterior.

    Parameters
    ----------
    parameters : Parameters
        Kernel and noise to start from, and which noise parameters are free.
    tasks : LocalTasks
        The rows of all tasks.
    settings : Settings
        How to learn.
    rng : numpy.random.Generator
        For selectors that sample, restarts and the rows of a part.

    Returns
    -------
    SharedKernelFit
        The best round.
    """
    seed = int(rng.integers(2**63))  # every round draws the same numbers: rounds stay comparable
    if hasattr(settings.selector, "check_tasks"):
        settings.selector.check_tasks(len(tasks.sizes))
    if getattr(settings.selector, "model_free", False):
        settings = replace(settings, selector=Chosen(tasks.choose(parameters.kernel, settings, seed)))
    if not (settings.optimize and (parameters.n_kernel or parameters.learn_noise)):
        return _finish(parameters, tasks, None, settings, seed, _Course(0, True, 0.0))
    if is_exact(tasks.noise, tasks.sizes, settings):
        return _climb(parameters, tasks, settings, seed, rng)
    return _alternate(parameters, tasks, settings, seed, rng)


@dataclass(frozen=True, slots=True)
class _Course:
    """How the rounds went."""

    n_rounds: int
    converged: bool
    last_change: float


_UNTAUGHT = _Course(0, False, 0.0)  # asked to stop before the first round


def _stage(name: str, tasks: LocalTasks, settings: Settings, selection: Selection | None = None) -> Stage:
    n_active = min(settings.n_active, sum(tasks.sizes)) if selection is None else len(selection.order)
    return Stage(name, settings.max_iter * (1 + settings.n_restarts), len(tasks.sizes), n_active)


def _climb(parameters, tasks: LocalTasks, settings, seed, rng) -> SharedKernelFit:
    """All rows are active and noise is Gaussian: one search on the exact evidence.

    With many rows, parameters are learnt on random parts of them first; with very many, on a part alone.
    """
    units, n_rows, learnt_on = None, sum(tasks.sizes), tasks
    for part in (part for part, times in ((_FIRST_PART, 2), (_SECOND_PART, 4)) if n_rows > times * part):
        if settings.progress(_stage(f"{part} rows", tasks, settings), 0, None):
            break
        parameters, units = _learn_on_part(parameters, tasks, part, settings, rng, units)
    if n_rows > MOST_LEARNT_ON:
        learnt_on = LocalTasks(_with_noise(tasks, parameters).take(_some_rows(tasks, _LARGE_PART, rng)))
    stage, course = _stage("round 1", learnt_on, settings), _UNTAUGHT
    if not settings.progress(stage, 0, None):
        evidence = _with_noise(learnt_on, parameters).evidence(parameters.kernel, None, settings)
        n_restarts, n_learnt = settings.n_restarts, sum(learnt_on.sizes)
        optimum = _maximize(parameters, evidence, settings, rng, n_restarts, stage, n_learnt, units)
        parameters = parameters.with_values(optimum.theta)
        course = _Course(1, optimum.converged, np.inf)
    return _finish(parameters, tasks, None, settings, seed, course)


def _alternate(parameters, tasks: LocalTasks, settings, seed, rng) -> SharedKernelFit:
    """Rounds of LPJ05 algorithm 2: each climbs the evidence of its own active points.

    The evidence of different points is not comparable. Rounds are compared by the sum of log Z over all rows
    (eq. 28), and the best is kept. Greedily selected points are far apart, so they carry little information
    about the noise, which drifts from round to round while the evidence rises.
    """
    n_rows = sum(tasks.sizes)
    best, best_value, value, change, settled, n_rounds = parameters, -np.inf, -np.inf, np.inf, False, 0
    points, best_points = None, None  # chosen with the present parameters, where that was done already
    while n_rounds < settings.n_rounds and not settled:
        stage = _stage(f"round {n_rounds + 1}", tasks, settings)
        if settings.progress(stage, 0, best_value if n_rounds else None):
            break
        n_rounds += 1
        optimum, parameters, points = _learn_once(
            parameters, tasks, settings, seed, rng, n_rounds, stage, selection=points
        )
        change, value = -optimum.value - value, -optimum.value
        if value > best_value:
            best, best_value, best_points = parameters, value, points
        settled = optimum.converged and change <= settings.tol * n_rows
    if n_rounds == 0:
        return _finish(best, tasks, None, settings, seed, _UNTAUGHT)
    settled = settled or change <= _LITTLE * settings.tol * n_rows or settings.n_rounds == 1
    course = _Course(n_rounds, settled and optimum.converged, change)
    return _finish(best, tasks, best_points, settings, seed, course)


def _learn_once(
    parameters, tasks, settings, seed, rng, round_, stage: Stage, units=None, selection=None
) -> tuple[Optimum, Parameters, Selection | None]:
    """Select, then learn: kernel and noise together, or one after the other where sites are held.

    Also gives the points that the learnt parameters choose, where learning the noise asked for them.
    """
    tasks = _with_noise(tasks, parameters)
    n_restarts = settings.n_restarts if round_ == 1 else 0
    if selection is None and not is_exact(tasks.noise, tasks.sizes, settings):
        selection = tasks.choose(parameters.kernel, settings, seed)
    evidence = tasks.evidence(parameters.kernel, selection, settings)
    n_rows = min(sum(tasks.sizes), settings.n_active)
    if not evidence.holds_sites:
        optimum = _maximize(parameters, evidence, settings, rng, n_restarts, stage, n_rows, units)
        learnt = parameters.with_values(optimum.theta)
        if is_exact(tasks.noise, tasks.sizes, settings):
            return optimum, learnt, None
        return _judged(optimum, learnt, tasks, settings, seed)
    # Sites held, the evidence does not know the noise: LPJ05 algorithm 2 learns it in a step of its own.
    kernel_only = replace(parameters, learn_noise=())
    short = np.ones(kernel_only.n_kernel)  # the evidence of other sites is another one: no far steps
    optimum = _maximize(kernel_only, evidence, settings, rng, n_restarts, stage, 1, short)
    learnt = replace(parameters, kernel=kernel_only.with_values(optimum.theta).kernel)
    if not parameters.learn_noise:
        return _judged(optimum, learnt, tasks, settings, seed)
    learnt, sum_log_z, selection = _learn_noise(learnt, tasks, settings, seed)
    return replace(optimum, value=-sum_log_z), learnt, selection


def _judged(optimum: Optimum, learnt: Parameters, tasks, settings, seed):
    """The same with the sum of log Z as the value, and the points that the parameters choose."""
    sum_log_z, points = _sum_log_z(learnt, tasks, settings, seed)
    return replace(optimum, value=-sum_log_z(learnt.noise_values(learnt.start()))[0]), learnt, points


def _learn_noise(parameters, tasks, settings, seed) -> tuple[Parameters, float, Selection]:
    """Noise parameters that maximise the sum of log Z over all rows after reselection, that sum, the points.

    Lawrence, Platt & Jordan 2005, eq. 28. The posterior is held while they move, and steeper noise may then
    choose other points, which explain the rows worse: a step that lowers the sum once points are chosen anew
    is cut back. Unlike the evidence of active points and held sites, the sum can be compared between rounds.
    """
    sum_log_z, points_before = _sum_log_z(parameters, tasks, settings, seed)
    noise_only = replace(parameters, kernel=ConstantKernel(1.0, "fixed"))

    def objective(z):
        total, grads = sum_log_z(noise_only.noise_values(z))
        return -total, -noise_only.noise_gradient(z, grads)

    start = noise_only.start()
    before = -objective(start)[0]
    optimum = minimize(objective, start, noise_only.bounds(), max_iter=settings.max_iter)
    promising = -optimum.value - before > _PROMISING * settings.tol * sum(tasks.sizes)
    for share in _NOISE_STEPS if promising else ():
        z = start + share * (optimum.theta - start)
        learnt = replace(noise_only.with_values(z), kernel=parameters.kernel)
        again, points = _sum_log_z(learnt, tasks, settings, seed)
        after = again(noise_only.noise_values(z))[0]
        if after > before:
            return learnt, after, points
    return parameters, before, points_before


def _sum_log_z(parameters, tasks, settings, seed):
    """Sum of log Z over all rows as a function of noise values, and the points chosen at present ones."""
    tasks = _with_noise(tasks, parameters)
    selection = tasks.choose(parameters.kernel, settings, seed)
    posteriors = None
    if selection.seen is None or settings.propagate:  # or sites that the selection has not seen
        posteriors, _, _ = tasks.fit(parameters.kernel, selection, settings)
    return tasks.noise_objective(parameters.kernel, selection, posteriors), selection


def _maximize(parameters, evidence, settings, rng, n_restarts, stage: Stage, n_rows, units=None) -> Optimum:
    moving = MovingKernel(parameters.kernel)

    def objective(z):
        kernel = moving.at(z[: parameters.n_kernel])
        value, theta_grad, noise_grads = evidence(kernel, parameters.noise_values(z))
        noise_grad = parameters.noise_gradient(z, noise_grads)
        log_prior, prior_grad = parameters.log_prior(z)
        return -(value + log_prior), -(np.concatenate([theta_grad, noise_grad]) + prior_grad)

    return minimize(
        objective,
        parameters.start(),
        parameters.bounds(),
        max_iter=settings.max_iter,
        tol=settings.precision,
        n_restarts=n_restarts,
        rng=rng,
        report=report_to(settings.progress, stage),
        scale=n_rows,
        units=np.full(len(parameters.start()), _FIRST_STEP) if units is None else units,
    )


@on_one_thread()  # of many rows, these are few
def _learn_on_part(
    parameters, tasks: LocalTasks, n_part, settings, rng, units=None
) -> tuple[Parameters, FloatArray | None]:
    """Parameters learnt exactly on a random part of the rows, and units in which the next search may run."""
    part = LocalTasks(_with_noise(tasks, parameters).take(_some_rows(tasks, n_part, rng)))
    small = replace(settings, n_active=sum(part.sizes), n_rounds=1)
    stage = _stage(f"{n_part} rows", tasks, settings)
    seed = int(rng.integers(2**63))
    optimum, learnt, _ = _learn_once(parameters, part, small, seed, rng, 1, stage, units)
    return learnt, optimum.units


def _some_rows(tasks: LocalTasks, n_part: int, rng) -> list[tuple[int, IntArray]]:
    """Random rows of random tasks, at most a quarter of them from one task where the others have enough."""
    n_rows, sizes = sum(tasks.sizes), tasks.sizes
    most = n_part if len(sizes) == 1 else n_part // 4
    part, left = [], n_part
    for t in rng.permutation(len(sizes)):
        take = min(sizes[t], max(most, n_part - (n_rows - sizes[t])), left)
        rows = rng.permutation(sizes[t])
        part.append((t, np.sort(rows[:take])))
        left -= take
        if left == 0:
            break
    return part


def _finish(parameters, tasks: LocalTasks, selection, settings, seed, course: _Course) -> SharedKernelFit:
    tasks = _with_noise(tasks, parameters)
    if selection is None:
        selection = tasks.choose(parameters.kernel, settings, seed)
    stage = Stage("posterior", len(tasks.sizes), len(tasks.sizes), len(selection.order))
    settings.progress(stage, 0, None)
    settings = replace(settings, task_done=Steps(settings.progress, stage))
    posteriors, sites, log_evidence = tasks.fit(parameters.kernel, selection, settings)
    return SharedKernelFit(
        parameters,
        selection,
        posteriors,
        sites,
        log_evidence,
        course.n_rounds,
        course.converged,
        course.last_change,
    )


def _with_noise(tasks: LocalTasks, parameters: Parameters) -> LocalTasks:
    return tasks.with_noise({name: parameters.noise.parameters[name] for name in parameters.learn_noise})
