"""The fitted latent-space model: how it is learnt, and what labels depend on.

`fit_latent_model` learns a space and label mappings of the positions alone. A latent space can be a poor
place for a new task, and a few labels do not show it. So in a blend (`fit_blended_model`) the function of a
task is a sum of parts, functions of the positions and of the features themselves, and the variance of each is
learnt where it can be measured: on the source tasks. Each source task is placed in a space that was learnt
without its rows. There, one kernel

    a RBF(positions) + b RBF(features) + d features . features + c (+ noise)

is learnt for all source tasks together, by their evidence. A new task starts from it, with narrow priors.
Where this does not predict source tasks from few labels better than a kernel of the features alone, labels
depend on the features alone. A single task cannot be left out: positions then have a small fixed share
of the variance. Classes have a prior mean that is learnt from the source tasks too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import log_ndtr
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Kernel, WhiteKernel

from gleangp._state import check_arrays, check_codes, check_kernel
from gleangp._typing import FloatArray, IntArray
from gleangp.kernels import ScaledInputs
from gleangp.models.defaults import LATENT_SPACE
from gleangp.models.latent import space
from gleangp.models.latent.space import LatentObjective, Observations, Perceptron, Settings, Weighted
from gleangp.models.latent.terms import Mapping, Term, choose_basis, make_term, search_positions
from gleangp.models.parameters import Parameters
from gleangp.models.priors import LogNormal
from gleangp.progress import Stage

_WIDE, _NARROW = 1.0, 0.3  # spread of the priors: of the kernel of all source tasks, and of one task
_FEW, _MOST_PARTS = 10, 20  # labels from which the others of a source task are predicted, and how often
_AMPLITUDE, _LENGTH = (1e-4, 1e3), (0.03, 30.0)
_BIAS = 0.01, (1e-6, 1e2)  # variance of the constant at the start, and its bounds


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """The labelled rows of one task: columns of targets, or of signs for probit noise."""

    rows: IntArray  # (n,) of the training set
    targets: FloatArray  # (n, S)


@dataclass(frozen=True, eq=False)
class Blend:
    """Label mappings of positions and features: what new tasks start from, and what the space gained."""

    kernel: Any  # of positions and features
    features_kernel: Any  # of features alone
    used: bool  # whether labels depend on the positions; if not, on the features alone
    offset: float  # prior mean of the labels of every task
    scores: FloatArray  # (tasks, 2) log score of held-out labels with and without the space; NaN: unknown

    def _check_state(self) -> None:
        check_arrays(self, offset="", scores="t two any")


@dataclass(frozen=True, eq=False)
class LatentModel:
    """The latent space, its maps, and how learning ended."""

    observations: Observations
    perceptron: Perceptron | None
    positions: FloatArray  # (n, q) of the training rows
    scores: FloatArray  # (n, k) of the training rows
    observation_map: Mapping
    label_maps: tuple[Mapping, ...]  # by task
    objective: float
    basis: IntArray | None  # (d,) training rows whose positions are the basis; None: all
    n_iterations: int
    converged: bool
    last_change: float  # of the objective, in nats per observed number
    blend: Blend | None = None  # None: labels are functions of the positions alone

    def _check_state(self) -> None:
        n_features, k = self.observations.components.shape
        sizes = check_arrays(self, {"k": k}, positions="n q", scores="n k")
        q = sizes["q"]
        width = q if self.blend is None else q + n_features
        check_arrays(self.observation_map, {"q": q, "k": k}, points="d q", weights="d k derived")
        for label_map in self.label_maps:
            check_arrays(label_map, {"q": width}, points="d q")
        if sizes["n"] < 1 or not self.label_maps:
            raise ValueError("LatentModel has no rows, or no label maps.")
        if self.perceptron is not None:
            check_arrays(self.perceptron, {"q": q, "k": k}, hidden="k h", output="h q")
        if self.blend is not None:
            for kernel in (self.blend.kernel, self.blend.features_kernel):
                check_kernel("a kernel of Blend", kernel, width)
        if self.basis is not None:
            check_codes("LatentModel.basis", self.basis, sizes["n"])

    @property
    def jitter(self) -> float:
        """Largest jitter that a factor needed."""
        return max(m.jitter for m in (self.observation_map, *self.label_maps))

    def locate(self, X: FloatArray) -> FloatArray:
        """Latent positions (m, q) of rows (m, p): by the back-constraint, or without one by search."""
        scores = self.observations.scores(X)
        if self.perceptron is not None:
            return self.perceptron(scores / self.observations.leading)
        return search_positions(self.observation_map, scores, self.scores, self.positions)

    def reconstruct(self, positions: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance (m, p) of the features at latent positions (m, q), noise included."""
        (mean, var), seen = self.observation_map.predict(positions), self.observations
        weights = seen.scale**2 * np.sum(seen.components**2, axis=1)
        return seen.restore(mean), np.outer(var[:, 0], weights) + seen.left_out

    def label_inputs(self, X: FloatArray) -> FloatArray:
        """What label mappings are functions of: latent positions, and with them the features in a blend."""
        positions = self.locate(X)
        return positions if self.blend is None else self.beside_features(positions, X)

    def beside_features(self, positions: FloatArray, X: FloatArray) -> FloatArray:
        """Positions and features side by side, each with the spread of two features of unit variance."""
        seen = self.observations
        features = (X - seen.mean) / (seen.scale * np.sqrt(0.5 * X.shape[1]))
        return np.hstack([_in_unit(positions, self.positions), features])


def fit_latent_model(
    X: FloatArray, labels: list[Labels], settings: Settings, rng: np.random.Generator
) -> LatentModel:
    """Learn the latent space of all rows and every task's label mapping; the best of `n_init` starts."""
    observations = space.observe(X, settings.n_scores)
    scores = observations.scores(X)
    inputs = scores / observations.leading
    labelled = labels if settings.label_weight > 0.0 else []
    start = space.start_positions(inputs, labelled, settings.n_components)
    fits: list[Any] = []
    for number, stream in enumerate(rng.spawn(settings.n_init)):
        stage = Stage(f"start {number + 1}", settings.max_iter, len(labels), settings.n_active)
        if settings.progress(stage, 0, None) and fits:
            break
        fits.append(_fit_space(inputs, start, scores, labels, settings, stream, stage))
    fit, parts, basis = min(fits, key=lambda found: found[0].optimum.value)
    maps: list[Mapping] = []
    stage = Stage("mappings", len(parts), len(labels), settings.n_active)
    settings.progress(stage, 0, None)
    for part, kernel in zip(parts, fit.kernels, strict=True):
        if part.weight == 0.0:  # these labels had no say in the positions: learn their kernel now
            kernel = space.fit_shared_kernel([(part.term, fit.positions)], part.parameters)
        maps.append(part.term.fit_map(kernel, fit.positions))
        settings.progress(stage, len(maps), None)
    return LatentModel(
        observations=observations,
        perceptron=fit.perceptron,
        positions=fit.positions,
        scores=scores,
        observation_map=maps[0],
        label_maps=tuple(maps[1:]),
        objective=fit.optimum.value,
        basis=basis,
        n_iterations=fit.optimum.n_iterations,
        converged=fit.optimum.converged,
        last_change=fit.optimum.last_change / scores.size,
    )


def _fit_space(inputs, start, scores, labels, settings: Settings, rng, stage: Stage):
    """A fit from one start, its parts, and the basis.

    A basis is chosen twice: at the start, and where half of the iterations led.
    """
    dense, decay = settings.is_dense(len(inputs)), settings.weight_decay
    basis = None if dense else choose_basis(settings.observation_kernel, start, settings.n_active, rng)
    parts, perceptron = _parts(scores, labels, settings, basis), None
    if settings.n_hidden is not None:
        perceptron = space.start_perceptron(inputs, start, settings.n_hidden, rng)
    objective = LatentObjective(start, perceptron, inputs, decay, parts)
    if dense:
        return objective.minimize(settings, settings.max_iter, stage), parts, None
    first = objective.minimize(settings, max(1, settings.max_iter // 2), stage)
    stage = replace(stage, name=f"{stage.name}, second basis")
    settings.progress(stage, 0, -first.optimum.value)
    basis = choose_basis(first.kernels[0], first.positions, settings.n_active, rng)
    parts = [
        replace(part, parameters=replace(part.parameters, kernel=kernel))
        for part, kernel in zip(_parts(scores, labels, settings, basis), first.kernels, strict=True)
    ]
    objective = LatentObjective(first.positions, first.perceptron, inputs, decay, parts)
    fit = objective.minimize(settings, max(1, settings.max_iter - first.optimum.n_iterations), stage)
    n_iterations = first.optimum.n_iterations + fit.optimum.n_iterations
    return replace(fit, optimum=replace(fit.optimum, n_iterations=n_iterations)), parts, basis


def _parts(scores, labels: list[Labels], settings: Settings, basis: IntArray | None) -> list[Weighted]:
    """The mappings of the objective, that to the observations first."""
    observed = make_term(scores, np.arange(len(scores)), basis)
    terms = [make_term(task.targets, task.rows, basis, probit=settings.probit) for task in labels]
    of_labels = [Weighted(term, settings.label_parameters, settings.label_weight) for term in terms]
    return [Weighted(observed, Parameters(settings.observation_kernel, None)), *of_labels]


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """The labelled rows of a task, as its label mapping sees them."""

    inputs: FloatArray  # (n, q + p)
    targets: FloatArray  # (n, S)
    settings: Settings
    offset: float = 0.0  # prior mean of the targets

    def term(self) -> Term:
        """What it adds to the objective."""
        n, basis = len(self.inputs), None
        if not self.settings.is_dense(n):
            basis = choose_basis(RBF(), self.inputs, self.settings.n_active, np.random.default_rng(0))
        return make_term(self.targets - self.offset, np.arange(n), basis, probit=self.settings.probit)

    def fit_map(self, kernel: Kernel) -> Mapping:
        """The mapping of this task; without rows it is the prior, where all classes are as probable."""
        if len(self.inputs) == 0:
            return Mapping(clone(kernel), self.inputs, self.targets, (), 0.0)
        return replace(self.term().fit_map(kernel, self.inputs), offset=self.offset)


def fit_blended_model(
    X: FloatArray, labels: list[Labels], settings: Settings, rng: np.random.Generator
) -> LatentModel:
    """The latent space of all rows, and label mappings with a part of the features."""
    model = fit_latent_model(X, labels, settings, rng)
    inputs = model.beside_features(model.positions, X)
    tasks = [_Task(inputs[task.rows], task.targets, settings) for task in labels]
    start, offset = _kernel(model, settings, 0.0), 0.0
    features_kernel = _learn_kernel(tasks, start, _WIDE)
    if settings.signs and not settings.probit:
        offset = _shared_offset(features_kernel, tasks)
        tasks = [replace(task, offset=offset) for task in tasks]
        features_kernel = _learn_kernel(tasks, start, _WIDE, features_kernel)
    if len(labels) == 1:
        kernel, theta = _kernel(model, settings, LATENT_SPACE.unmeasured), features_kernel.theta
        kernel = kernel.clone_with_theta(np.r_[kernel.theta[0] + theta[0], kernel.theta[1], theta])
        blend = Blend(kernel, features_kernel, True, offset, np.full((1, 2), np.nan))
    else:
        inputs[:, : settings.n_components] = _positions_left_out(X, labels, settings, rng)
        away = [replace(t, inputs=inputs[task.rows]) for t, task in zip(tasks, labels, strict=True)]
        kernel = _learn_kernel(away, _kernel(model, settings, 0.5), _WIDE)
        scores = np.array([[_held_out(k, t, few=True) for k in (kernel, features_kernel)] for t in away])
        gain = np.mean(scores[:, 0] - scores[:, 1])
        blend = Blend(kernel, features_kernel, bool(gain >= LATENT_SPACE.least_gain), offset, scores)
    start = kernel if blend.used else features_kernel
    maps = [task.fit_map(_learn_kernel([task], start, _NARROW)) for task in tasks]
    return replace(model, label_maps=tuple(maps), blend=blend)


def add_task(model: LatentModel, X: FloatArray, targets: FloatArray, settings: Settings) -> LatentModel:
    """The model with one more label mapping (UQD07 section 3.2); all else is as it was."""
    blend, maps = model.blend, model.label_maps
    task = _Task(model.label_inputs(X), targets, settings, 0.0 if blend is None else blend.offset)
    if blend is None:
        if len(X):
            kernel = space.fit_shared_kernel([(task.term(), task.inputs)], settings.label_parameters)
        else:
            kernel = maps[0].kernel.clone_with_theta(np.mean([m.kernel.theta for m in maps], axis=0))
        return replace(model, label_maps=(*maps, task.fit_map(kernel)))
    own, scores = [blend.kernel, blend.features_kernel], [np.nan, np.nan]
    if len(X):
        own = [_learn_kernel([task], kernel, _NARROW) for kernel in own]
        scores = [_held_out(kernel, task, few=False) for kernel in own]
    blend = replace(blend, scores=np.vstack([blend.scores, scores]))
    return replace(model, label_maps=(*maps, task.fit_map(own[0 if blend.used else 1])), blend=blend)


def most_stages(settings: Settings, n_tasks: int) -> int:
    """Most stages that learning has: two for every start, and the mappings; folds start once."""
    return 2 * settings.n_init + 1 + 3 * _n_folds(n_tasks)


def _n_folds(n_tasks: int) -> int:
    """Spaces that are learnt without some of the tasks; none where there is but one task."""
    return min(n_tasks, LATENT_SPACE.n_folds) if n_tasks > 1 else 0


def _in_unit(positions: FloatArray, of: FloatArray) -> FloatArray:
    spread = np.sqrt(0.5 * of.var(axis=0).sum())
    return (positions - of.mean(axis=0)) / (spread if spread > 0.0 else 1.0)


def _kernel(model: LatentModel, settings: Settings, share: float) -> Kernel:
    """Of joined inputs, with a share of the variance for the positions."""
    n_latent, n_features = model.positions.shape[1], len(model.observations.mean)
    own = np.repeat([1.0, 0.0], [n_latent, n_features])
    kernel = _part(1.0 - share, RBF(1.0, _LENGTH), 1.0 - own)
    if share > 0.0:
        kernel = _part(share, RBF(1.0, _LENGTH), own) + kernel
    kernel += _part(LATENT_SPACE.linear, DotProduct(0.0, "fixed"), 1.0 - own) + ConstantKernel(*_BIAS)
    return kernel if settings.probit else kernel + WhiteKernel(*LATENT_SPACE.white)


def _part(variance: float, kernel: Kernel, columns: FloatArray) -> Kernel:
    return ConstantKernel(variance, _AMPLITUDE) * ScaledInputs(kernel, columns, "fixed")


def _learn_kernel(tasks: list[_Task], kernel: Kernel, spread: float, first: Any = None) -> Kernel:
    """One kernel for all tasks, near the given one. The search starts there, or from `first`."""
    values = kernel.get_params()
    priors = {h.name: LogNormal(values[h.name], spread) for h in kernel.hyperparameters if not h.fixed}
    parts = [(task.term(), task.inputs) for task in tasks]
    return space.fit_shared_kernel(parts, Parameters(first or kernel, None, (), priors))


def _shared_offset(kernel: Kernel, tasks: list[_Task]) -> float:
    """The most probable prior mean of signs that all tasks share, at this kernel.

    Rows far from all labels of a new task are more often of the class that varies more: "another digit".
    Minus the log evidence is a parabola in the offset, which three of its values give. One task more,
    whose offset is zero, stands for what is known before: a single task does not show what others have.
    """
    low, middle, high = (
        sum(replace(task, offset=offset).term()(kernel, task.inputs)[0] for task in tasks)
        for offset in (-1.0, 0.0, 1.0)
    )
    curvature = (low + high - 2.0 * middle) * (1.0 + 1.0 / len(tasks))
    return float(np.clip(0.5 * (low - high) / curvature, -1.0, 1.0))


def _positions_left_out(X, labels: list[Labels], settings: Settings, rng) -> FloatArray:
    """Positions (n, q) of all labelled rows in spaces that were learnt without the rows of their tasks."""
    positions, count = np.zeros((len(X), settings.n_components)), _n_folds(len(labels))
    for fold, stream in enumerate(rng.spawn(count)):
        left_out = np.concatenate([task.rows for task in labels[fold::count]])
        keep = np.setdiff1d(np.arange(len(X)), left_out)
        kept = [task for number, task in enumerate(labels) if number % count != fold]
        others = [replace(task, rows=np.searchsorted(keep, task.rows)) for task in kept]

        def progress(stage, step, value, name=f"tasks left out {fold + 1}: "):
            return settings.progress(replace(stage, name=name + stage.name), step, value)

        own = replace(settings, n_init=1, tol=LATENT_SPACE.earlier * settings.tol, progress=progress)
        away = fit_latent_model(X[keep], others, own, stream)
        positions[left_out] = _in_unit(away.locate(X[left_out]), away.positions)
    return positions


def _held_out(kernel: Kernel, task: _Task, *, few: bool) -> float:
    """Mean log probability of signs, or log density of numbers, predicted from few others or most of them.

    Parts are dealt out by the distance of rows from the centre, which no order of the columns changes.
    """
    n, settings = len(task.inputs), task.settings
    count, part_of = max(2, n // _FEW) if few else min(n, LATENT_SPACE.n_parts), np.empty(n, dtype=np.intp)
    outwards = np.argsort(np.sum(task.inputs**2, axis=1), kind="stable")
    part_of[outwards] = np.random.default_rng(0).permutation(np.arange(n) % count)
    scores = []
    for part in range(min(count, _MOST_PARTS)):
        known = (part_of == part) == few
        some = replace(task, inputs=task.inputs[known], targets=task.targets[known])
        (mean, var), targets = some.fit_map(kernel).predict(task.inputs[~known]), task.targets[~known]
        if settings.signs:
            score = log_ndtr(targets * mean / np.sqrt(var + (1.0 if settings.probit else 0.0)))
        else:
            score = -0.5 * (np.log(2.0 * np.pi * var) + (targets - mean) ** 2 / var)
        scores.append(np.mean(score))
    return float(np.mean(scores))
