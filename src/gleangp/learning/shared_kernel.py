"""Learning a kernel that all tasks share: rounds of "select points, then maximise the evidence".

Lawrence & Platt 2004, section 4; Lawrence, Platt & Jordan 2005, algorithm 2. Departures: L-BFGS-B in
place of scaled conjugate gradients; the best round is kept; rounds end when the evidence no longer
rises; with `posterior="projected"` the evidence is the bound of all rows, and learning starts on a
random part of them, where each step is cheap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from sklearn.gaussian_process.kernels import ConstantKernel

from gleangp._typing import FloatArray, IntArray
from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.inference.block import Block
from gleangp.inference.filtering import Sites
from gleangp.inference.posterior import TaskPosterior
from gleangp.learning.parameters import MovingKernel, Parameters
from gleangp.learning.settings import Settings
from gleangp.learning.task_store import LocalTasks, TaskStore, is_exact
from gleangp.optimize import Optimum, minimize
from gleangp.parallel import one_thread
from gleangp.progress import Stage, Steps, report_to
from gleangp.selection.base import Chosen, Selection
from gleangp.selection.selectors import RandomSelector

# With many rows, the first parameters are learnt on random parts of them: some tasks, and of each not
# more rows than leave room for four tasks.
_FIRST_PART = 400
_SECOND_PART = 800
# With more rows than the first number, parameters are learnt on as many random ones as the second says: their
# error is then far below what any prediction notices.
MOST_LEARNT_ON, _LARGE_PART = 100_000, 50_000
_LITTLE = 10.0
# A collapsed bound often leaves the parameters of the last part as they are, so these are learnt more finely
# (the protein data: NLPD 1.106 without it, 1.096 with it).
_FINE = 0.2
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
    tasks: TaskStore | list[Block],
    settings: Settings,
    rng: np.random.Generator,
    units: FloatArray | None = None,
) -> SharedKernelFit:
    """Select points and learn the kernel and noise they share, then form every task's posterior.

    Parameters
    ----------
    parameters : Parameters
        Kernel and noise to start from, and which noise parameters are free.
    tasks : TaskStore or list of Block
        The rows of all tasks.
    settings : Settings
        How to learn.
    rng : numpy.random.Generator
        For selectors that sample, restarts and the warm-up's rows.
    units : ndarray of shape (q,), optional
        Of the search that the parameters come from (`learn_on_few`), which was on a few hundred rows already.

    Returns
    -------
    SharedKernelFit
        The best round.
    """
    if isinstance(tasks, list):
        tasks = LocalTasks(tasks)
    seed = int(rng.integers(2**63))  # every round draws the same numbers: rounds stay comparable
    if hasattr(settings.selector, "check_tasks"):
        settings.selector.check_tasks(len(tasks.sizes))
    if getattr(settings.selector, "model_free", False):
        settings = replace(settings, selector=Chosen(tasks.choose(parameters.kernel, settings, seed)))
    exact = is_exact(tasks.noise, tasks.sizes, settings)
    if not (settings.optimize and (parameters.n_kernel or parameters.learn_noise)):
        return _finish(parameters, tasks, None, settings, seed, _Course(0, True, 0.0))
    if settings.posterior == "projected" or exact:
        start, first = tasks.start_sites(parameters.kernel, settings, seed), parameters
        parts = _parts(tasks, exact)[0 if units is None else 1 :]
        if start is not None:  # a far step ends in another labelling
            units = np.ones(len(parameters.start()))
        for part in parts:
            if settings.progress(_stage(f"{part} rows", tasks, settings), 0, None):
                break
            last = part == parts[-1] and not (exact or tasks.noise.precision_depends_on_mean)
            how = replace(settings, precision=_FINE * settings.precision) if last else settings
            try:
                parameters, learnt = _learn_on_part(parameters, tasks, part, how, rng, start, units)
                units = learnt if start is None else units
            except NotPositiveDefiniteError:
                if start is None:
                    raise
                # What few rows taught leads more of them into another labelling than they start in.
                parameters = first
        if sum(tasks.sizes) > MOST_LEARNT_ON and start is None:
            return _climb_on_part(parameters, tasks, settings, seed, rng, units)
        try:
            climbed = _climb(parameters, tasks, settings, seed, rng, start, units)
        except NotPositiveDefiniteError:
            if start is None:
                raise
            climbed = _climb(first, tasks, settings, seed, rng, start, units)
        parameters, selection, course, start = climbed
        return _finish(parameters, tasks, selection, settings, seed, course, start)
    return _alternate(parameters, tasks, settings, seed, rng)


def learn_on_few(
    parameters: Parameters, blocks: list[Block], settings: Settings, rng: np.random.Generator, name: str
) -> tuple[Optimum, Parameters]:
    """Parameters of few rows with Gaussian noise, all of them active; `name` is what progress calls it."""
    tasks = LocalTasks(blocks)
    everything = replace(settings, n_active=sum(tasks.sizes), n_rounds=1)
    return _learn_once(parameters, tasks, everything, 0, rng, 1, _stage(name, tasks, everything))[:2]


@dataclass(frozen=True, slots=True)
class _Course:
    """How the rounds went."""

    n_rounds: int
    converged: bool
    last_change: float


_UNTAUGHT = _Course(0, False, 0.0)  # asked to stop before the first round


def _stage(name: str, tasks: TaskStore, settings: Settings, selection: Selection | None = None) -> Stage:
    n_active = min(settings.n_active, sum(tasks.sizes)) if selection is None else len(selection.order)
    return Stage(name, settings.max_iter * (1 + settings.n_restarts), len(tasks.sizes), n_active)


def _climb(parameters, tasks: TaskStore, settings, seed, rng, start=None, units=None):
    """Rounds whose evidence is that of all rows, so that it can only rise.

    A new selection is taken only if it raises the evidence at the parameters learnt so far. Where the
    basis is too small for the bound to guide, the parameters learnt exactly on a part are kept. Gives the
    parameters, the selection, the course, and the sites to start from.
    """
    n_rows = sum(tasks.sizes)
    value, change, selection, n_rounds, settled = -np.inf, np.inf, None, 0, False
    while n_rounds < settings.n_rounds and not settled:
        tasks = _with_noise(tasks, parameters)
        candidate = _choose_to_learn(parameters, tasks, settings, seed)
        evidence = tasks.evidence(parameters.kernel, candidate, settings, start)
        if n_rounds == 0 and evidence.slack(parameters.kernel) > _allowed_slack(parameters) * n_rows:
            return parameters, candidate, _Course(1, True, 0.0), start
        if n_rounds > 0 and not _value_at(parameters, evidence) > value + settings.tol * n_rows:
            settled = True
            break
        stage = _stage(f"round {n_rounds + 1}", tasks, settings, candidate)
        if settings.progress(stage, 0, value if n_rounds else None):
            if n_rounds == 0:
                return parameters, candidate, _UNTAUGHT, start
            break
        n_rounds += 1
        selection = candidate
        n_restarts = settings.n_restarts if n_rounds == 1 else 0
        optimum = _maximize(parameters, evidence, settings, rng, n_restarts, stage, n_rows, units)
        parameters, units = parameters.with_values(optimum.theta), optimum.units
        if start is not None:
            start = evidence.sites
        change, value = -optimum.value - value, -optimum.value
        settled = optimum.converged and evidence.is_exact
    # Rounds that ran out while each still gained a little are not worth a warning.
    settled = settled or change <= _LITTLE * settings.tol * n_rows or settings.n_rounds == 1
    return parameters, selection, _Course(n_rounds, settled and optimum.converged, change), start


def _choose_to_learn(parameters, tasks: TaskStore, settings, seed) -> Selection | None:
    """The active points on which to learn; None where all rows are, whose order matters at the end alone."""
    if is_exact(tasks.noise, tasks.sizes, settings):
        return None
    return tasks.choose(parameters.kernel, settings, seed)


def _allowed_slack(parameters) -> float:
    """Nats per row that the basis may leave unexplained for the collapsed bound to be a guide.

    A loose bound is raised by calling noise what the basis cannot express. q parameters learnt exactly on m
    rows cost about q / (2 m) nats a row on new ones; a bound that is looser than that has nothing to add.
    """
    return 0.5 * len(parameters.start()) / _SECOND_PART


def _climb_on_part(parameters, tasks: TaskStore, settings, seed, rng, units) -> SharedKernelFit:
    """Rounds on a random part of very many rows; then all rows, with what was learnt."""
    part = LocalTasks(_with_noise(tasks, parameters).take(_some_rows(tasks, _LARGE_PART, rng)))
    share = sum(part.sizes) / sum(tasks.sizes)
    n_active = settings.n_active if len(tasks.sizes) == 1 else max(1, round(share * settings.n_active))
    if is_exact(tasks.noise, tasks.sizes, settings):
        n_active = sum(part.sizes)
    fewer = replace(settings, n_active=min(n_active, sum(part.sizes)))
    parameters, _, course, _ = _climb(parameters, part, fewer, seed, rng, None, units)
    return _finish(parameters, tasks, None, settings, seed, course)


def _alternate(parameters, tasks: TaskStore, settings, seed, rng) -> SharedKernelFit:
    """Rounds of LPJ05 algorithm 2: each climbs the evidence of its own active points.

    The evidence of other points is another one. Rounds are compared by what the points that their parameters
    choose say of all rows (the sum of log Z, eq. 28), and the best is kept: points chosen greedily lie far
    apart and hardly know the noise, which drifts from round to round while the evidence rises.
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
    parameters, tasks, settings, seed, rng, round_, stage: Stage, start=None, units=None, selection=None
) -> tuple[Optimum, Parameters, Selection | None]:
    """Select, then learn: kernel and noise together, or one after the other where sites are held.

    Also gives the points that the learnt parameters choose, where learning the noise asked for them.
    """
    tasks = _with_noise(tasks, parameters)
    n_restarts = settings.n_restarts if round_ == 1 else 0
    if selection is None:
        selection = _choose_to_learn(parameters, tasks, settings, seed)
    evidence = tasks.evidence(parameters.kernel, selection, settings, start)
    n_rows = sum(tasks.sizes)
    if settings.posterior == "active":
        n_rows = min(n_rows, settings.n_active)  # those that speak
    if not evidence.holds_sites:
        optimum = _maximize(parameters, evidence, settings, rng, n_restarts, stage, n_rows, units)
        learnt = parameters.with_values(optimum.theta)
        if settings.posterior != "active" or is_exact(tasks.noise, tasks.sizes, settings):
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
    settings = tasks.under_kernel(parameters.kernel, settings)
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


def _value_at(parameters, evidence) -> float:
    """Objective (evidence and priors) at the present parameters."""
    z = parameters.start()
    return evidence(parameters.kernel, parameters.noise_values(z))[0] + parameters.log_prior(z)[0]


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


def _parts(tasks: TaskStore, exact: bool) -> list[int]:
    """Numbers of rows on which to learn before all of them speak.

    An exact evidence of all rows, or one of another noise model, only needs a cheaper start. The collapsed
    bound needs parameters that are right already: all rows if they are few.
    """
    n_rows = sum(tasks.sizes)
    if exact or tasks.noise.precision_depends_on_mean:
        return [part for part, times in ((_FIRST_PART, 2), (_SECOND_PART, 4)) if n_rows > times * part]
    return sorted({min(n_rows, _FIRST_PART), min(n_rows, _SECOND_PART)})


@one_thread  # of many rows, these are few
def _learn_on_part(
    parameters, tasks: TaskStore, n_part, settings, rng, start=None, units=None
) -> tuple[Parameters, FloatArray | None]:
    """Parameters learnt on a random part of the rows: exactly for Gaussian noise, else on a small basis.

    Also gives the units in which the next search may run.
    """
    chosen = _some_rows(tasks, n_part, rng)
    part = LocalTasks(_with_noise(tasks, parameters).take(chosen))
    if start is not None:
        start = [start[t].at(rows) for t, rows in chosen]
    gaussian = not part.noise.precision_depends_on_mean
    n_active = sum(part.sizes) if gaussian else min(settings.n_active, n_part // 2)
    # Other selectors may ask more of a task than its few rows here can give.
    small = replace(settings, selector=RandomSelector(), n_active=n_active, n_rounds=1)
    stage = _stage(f"{n_part} rows", tasks, settings)
    seed = int(rng.integers(2**63))
    optimum, learnt, _ = _learn_once(parameters, part, small, seed, rng, 1, stage, start, units)
    return learnt, optimum.units


def _some_rows(tasks: TaskStore, n_part: int, rng) -> list[tuple[int, IntArray]]:
    """Random rows of random tasks, at most a quarter of them from one task where the others have enough.

    Where the noise model knows rows without a label, those with one come first.
    """
    n_rows, sizes = sum(tasks.sizes), tasks.sizes
    most = n_part if len(sizes) == 1 else n_part // 4
    part, left = [], n_part
    for t in rng.permutation(len(sizes)):
        take = min(sizes[t], max(most, n_part - (n_rows - sizes[t])), left)
        rows = tasks.labeled_first(t, rng.permutation(sizes[t]))
        part.append((t, np.sort(rows[:take])))
        left -= take
        if left == 0:
            break
    return part


def _finish(
    parameters, tasks: TaskStore, selection, settings, seed, course: _Course, start=None
) -> SharedKernelFit:
    tasks = _with_noise(tasks, parameters)
    if selection is None:
        selection = tasks.choose(parameters.kernel, settings, seed)
    stage = Stage("posterior", len(tasks.sizes), len(tasks.sizes), len(selection.order))
    settings.progress(stage, 0, None)
    settings = replace(settings, task_done=Steps(settings.progress, stage))
    posteriors, sites, log_evidence = tasks.fit(parameters.kernel, selection, settings, start)
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


def _with_noise(tasks: TaskStore, parameters: Parameters) -> TaskStore:
    return tasks.with_noise({name: parameters.noise.parameters[name] for name in parameters.learn_noise})
