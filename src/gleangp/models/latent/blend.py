"""Label mappings with several parts: functions of the latent positions, and of the features themselves.

A latent space can be a poor place for a new task, and a few labels do not show it. So the function of a
task is a sum of parts, and the variance of each is learnt where it can be measured: on the source
tasks. Each source task is placed in a space that was learnt without its rows. There, one kernel

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

from gleangp._typing import FloatArray
from gleangp.kernels import ScaledInputs
from gleangp.models.defaults import LATENT_SPACE
from gleangp.models.latent.model import Blend, Labels, LatentModel, fit_latent_model, label_term, locate
from gleangp.models.latent.space import Settings, fit_shared_kernel
from gleangp.models.latent.terms import Mapping, Term, choose_basis
from gleangp.models.parameters import Parameters
from gleangp.models.priors import LogNormal

_WIDE, _NARROW = 1.0, 0.3  # spread of the priors: of the kernel of all source tasks, and of one task
_FEW, _MOST_PARTS = 10, 20  # labels from which the others of a source task are predicted, and how often
_AMPLITUDE, _LENGTH = (1e-4, 1e3), (0.03, 30.0)
_BIAS = 0.01, (1e-6, 1e2)  # variance of the constant at the start, and its bounds


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """The labelled rows of a task, as its label mapping sees them."""

    inputs: FloatArray  # (n, q + p)
    targets: FloatArray  # (n, S)
    settings: Settings

    def term(self, offset: float) -> Term:
        """What it adds to the objective, where its labels have that prior mean."""
        n, basis = len(self.inputs), None
        if not self.settings.is_dense(n):
            basis = choose_basis(RBF(), self.inputs, self.settings.n_active, np.random.default_rng(0))
        return label_term(Labels(np.arange(n), self.targets - offset), self.settings, basis)

    def fit_map(self, kernel: Kernel, offset: float) -> Mapping:
        """The mapping of this task; without rows it is the prior, where all classes are as probable."""
        if len(self.inputs) == 0:
            return Mapping(clone(kernel), self.inputs, self.targets, (), 0.0)
        return replace(self.term(offset).fit_map(kernel, self.inputs), offset=offset)


def fit_blended_model(
    X: FloatArray, labels: list[Labels], settings: Settings, rng: np.random.Generator
) -> LatentModel:
    """The latent space of all rows, and label mappings with a part of the features."""
    model = fit_latent_model(X, labels, settings, rng)
    inputs = _join(model, model.positions, X)
    tasks = [_Task(inputs[task.rows], task.targets, settings) for task in labels]
    start, offset = _kernel(model, settings, 0.0), 0.0
    features_kernel = _learn(tasks, start, _WIDE, offset)
    if settings.signs and not settings.probit:
        offset = _shared_offset(features_kernel, tasks)
        features_kernel = _learn(tasks, start, _WIDE, offset, features_kernel)
    if len(labels) == 1:
        kernel, theta = _kernel(model, settings, LATENT_SPACE.unmeasured), features_kernel.theta
        kernel = kernel.clone_with_theta(np.r_[kernel.theta[0] + theta[0], kernel.theta[1], theta])
        blend = Blend(kernel, features_kernel, True, offset, np.full((1, 2), np.nan))
    else:
        inputs[:, : settings.n_components] = _positions_left_out(X, labels, settings, rng)
        away = [_Task(inputs[task.rows], task.targets, settings) for task in labels]
        kernel = _learn(away, _kernel(model, settings, 0.5), _WIDE, offset)
        both = (kernel, features_kernel)
        scores = np.array([[_held_out(k, offset, task, few=True) for k in both] for task in away])
        gain = np.mean(scores[:, 0] - scores[:, 1])
        blend = Blend(kernel, features_kernel, bool(gain >= LATENT_SPACE.least_gain), offset, scores)
    start = kernel if blend.used else features_kernel
    maps = [task.fit_map(_learn([task], start, _NARROW, offset), offset) for task in tasks]
    return replace(model, label_maps=tuple(maps), blend=blend)


def add_task(model: LatentModel, X: FloatArray, targets: FloatArray, settings: Settings) -> LatentModel:
    """The model with one more label mapping (UQD07 section 3.2); all else is as it was."""
    task, blend = _Task(label_inputs(model, X), targets, settings), model.blend
    if blend is None:
        if len(X):
            kernel = fit_shared_kernel([(task.term(0.0), task.inputs)], settings.label_parameters)
        else:
            thetas = [m.kernel.theta for m in model.label_maps]
            kernel = model.label_maps[0].kernel.clone_with_theta(np.mean(thetas, axis=0))
        return replace(model, label_maps=(*model.label_maps, task.fit_map(kernel, 0.0)))
    own, scores = [blend.kernel, blend.features_kernel], [np.nan, np.nan]
    if len(X):
        own = [_learn([task], kernel, _NARROW, blend.offset) for kernel in own]
        scores = [_held_out(kernel, blend.offset, task, few=False) for kernel in own]
    mapping = task.fit_map(own[0 if blend.used else 1], blend.offset)
    blend = replace(blend, scores=np.vstack([blend.scores, scores]))
    return replace(model, label_maps=(*model.label_maps, mapping), blend=blend)


def label_inputs(model: LatentModel, X: FloatArray) -> FloatArray:
    """What label mappings are functions of: latent positions, and with them the features in a blend."""
    positions = locate(model, X)
    return positions if model.blend is None else _join(model, positions, X)


def most_folds(n_tasks: int) -> int:
    """Spaces that are learnt without some of the tasks; none where there is but one task."""
    return min(n_tasks, LATENT_SPACE.n_folds) if n_tasks > 1 else 0


def _join(model: LatentModel, positions: FloatArray, X: FloatArray) -> FloatArray:
    """Positions and features side by side, each with the spread of two features of unit variance."""
    seen = model.observations
    features = (X - seen.mean) / (seen.scale * np.sqrt(0.5 * X.shape[1]))
    return np.hstack([_in_unit(positions, model.positions), features])


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


def _learn(tasks: list[_Task], kernel: Kernel, spread: float, offset: float, first: Any = None) -> Kernel:
    """One kernel for all tasks, near the given one. The search starts there, or from `first`."""
    values = kernel.get_params()
    priors = {h.name: LogNormal(values[h.name], spread) for h in kernel.hyperparameters if not h.fixed}
    parts = [(task.term(offset), task.inputs) for task in tasks]
    return fit_shared_kernel(parts, Parameters(first or kernel, None, (), priors))


def _shared_offset(kernel: Kernel, tasks: list[_Task]) -> float:
    """The most probable prior mean of signs that all tasks share, at this kernel.

    Rows far from all labels of a new task are more often of the class that varies more: "another digit".
    Minus the log evidence is a parabola in the offset, which three of its values give. One task more,
    whose offset is zero, stands for what is known before: a single task does not show what others have.
    """
    low, middle, high = (
        sum(task.term(offset)(kernel, task.inputs)[0] for task in tasks) for offset in (-1.0, 0.0, 1.0)
    )
    curvature = (low + high - 2.0 * middle) * (1.0 + 1.0 / len(tasks))
    return float(np.clip(0.5 * (low - high) / curvature, -1.0, 1.0))


def _positions_left_out(X, labels: list[Labels], settings: Settings, rng) -> FloatArray:
    """Positions (n, q) of all labelled rows in spaces that were learnt without the rows of their tasks."""
    positions = np.zeros((len(X), settings.n_components))
    count = most_folds(len(labels))
    for fold, stream in enumerate(rng.spawn(count)):
        left_out = np.concatenate([task.rows for task in labels[fold::count]])
        keep = np.setdiff1d(np.arange(len(X)), left_out)
        others = [
            replace(task, rows=np.searchsorted(keep, task.rows))
            for number, task in enumerate(labels)
            if number % count != fold
        ]

        def progress(stage, step, value, name=f"tasks left out {fold + 1}: "):
            return settings.progress(replace(stage, name=name + stage.name), step, value)

        own = replace(settings, n_init=1, tol=LATENT_SPACE.earlier * settings.tol, progress=progress)
        space = fit_latent_model(X[keep], others, own, stream)
        positions[left_out] = _in_unit(locate(space, X[left_out]), space.positions)
    return positions


def _held_out(kernel: Kernel, offset: float, task: _Task, *, few: bool) -> float:
    """Mean log probability of signs, or log density of numbers, predicted from few others or most of them."""
    n, settings = len(task.inputs), task.settings
    count = max(2, n // _FEW) if few else min(n, LATENT_SPACE.n_parts)
    part_of = np.random.default_rng(0).permutation(np.arange(n) % count)
    scores = []
    for part in range(min(count, _MOST_PARTS)):
        known = (part_of == part) == few
        some = _Task(task.inputs[known], task.targets[known], settings)
        (mean, var), targets = some.fit_map(kernel, offset).predict(task.inputs[~known]), task.targets[~known]
        if settings.signs:
            score = log_ndtr(targets * mean / np.sqrt(var + (1.0 if settings.probit else 0.0)))
        else:
            score = -0.5 * (np.log(2.0 * np.pi * var) + (targets - mean) ** 2 / var)
        scores.append(np.mean(score))
    return float(np.mean(scores))
