"""The fitted latent-space model: how it is learnt, how new rows find their place, how tasks are added.

`fit_latent_model` learns; `locate` gives latent positions of rows; `fit_new_task` learns one more label
mapping at fixed positions (Discriminative Transfer, Urtasun, Quattoni & Darrell 2007, section 3.2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.learning.back_constraint import Perceptron
from gleangp.learning.latent_search import search_positions
from gleangp.learning.latent_space import (
    LatentFit,
    Weighted,
    fit_kernel,
    learn_positions,
    start_positions,
)
from gleangp.learning.latent_terms import GaussianTerm, Mapping, ProbitTerm, Term
from gleangp.learning.observations import Observations, observe
from gleangp.learning.parameters import Parameters


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """The labelled rows of one task: columns of targets, or of signs for probit noise."""

    rows: IntArray  # (n,) of the training set
    targets: FloatArray  # (n, S)


@dataclass(frozen=True, eq=False)
class Settings:
    """How to learn; the estimators fill it in from their constructor."""

    observation_kernel: Any  # with white noise
    label_parameters: Parameters  # kernel to start every task's from, with its priors
    probit: bool
    n_components: int
    n_scores: int
    n_hidden: int | None  # None: no back-constraint
    label_weight: float = 1.0
    weight_decay: float = 1.0
    max_iter: int = 100
    tol: float = 1e-3
    n_init: int = 1
    report: Callable[[int, float], None] | None = None


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
    n_iterations: int
    converged: bool
    last_change: float  # of the objective, in nats per observed number

    @property
    def jitter(self) -> float:
        """Largest jitter that a factor needed."""
        return max(m.jitter for m in (self.observation_map, *self.label_maps))


def fit_latent_model(
    X: FloatArray, labels: list[Labels], settings: Settings, rng: np.random.Generator
) -> LatentModel:
    """Learn the latent space of all rows and every task's label mapping; the best of `n_init` starts."""
    observations = observe(X, settings.n_scores)
    scores = observations.scores(X)
    inputs = perceptron_inputs(observations, scores)
    observation = Weighted(
        GaussianTerm(scores, np.arange(len(X))), Parameters(settings.observation_kernel, None)
    )
    tasks = [
        Weighted(_label_term(task, settings), settings.label_parameters, settings.label_weight)
        for task in labels
    ]
    speaking = [part.term for part in tasks] if settings.label_weight > 0.0 else []
    start = start_positions(inputs, speaking, settings.n_components)
    parts = [observation, *tasks]
    fits = [_learn(inputs, start, parts, settings, stream) for stream in rng.spawn(settings.n_init)]
    best = min(fits, key=lambda fit: fit.objective)
    return _finish(observations, scores, best, observation, tasks, settings)


def perceptron_inputs(observations: Observations, scores: FloatArray) -> FloatArray:
    """Scores in units of the leading one's deviation: not whitened, so that weak ones stay weak."""
    return scores / observations.leading


def locate(model: LatentModel, X: FloatArray) -> FloatArray:
    """Latent positions (m, q) of rows (m, p): by the back-constraint, or by search where there is none."""
    scores = model.observations.scores(X)
    if model.perceptron is not None:
        return model.perceptron(perceptron_inputs(model.observations, scores))
    return search_positions(model.observation_map, scores, model.scores, model.positions)


def reconstruct(model: LatentModel, positions: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance (m, p) of the features at latent positions (m, q), noise included."""
    mean, var = model.observation_map.predict(positions)
    return model.observations.restore(mean), model.observations.restored_variance(var[:, 0])


def fit_new_task(
    model: LatentModel, X: FloatArray, targets: FloatArray, settings: Settings
) -> tuple[LatentModel, FloatArray]:
    """The model with one more label mapping, and the positions of its rows; all else is as it was."""
    positions = locate(model, X)
    term = _label_term(Labels(np.arange(len(X)), targets), settings)
    part = fit_kernel(Weighted(term, settings.label_parameters), positions)
    mapping = term.fit_map(part.parameters.kernel, positions)
    return replace(model, label_maps=(*model.label_maps, mapping)), positions


def relevance(model: LatentModel, length_scales: list[FloatArray]) -> FloatArray:
    """(q,) length scales that the training rows span in each dimension, the most of any mapping.

    `length_scales` has one array, of shape () or (q,), for each mapping whose kernel has them.
    """
    spread = model.positions.std(axis=0)
    return np.max([spread / scale for scale in length_scales], axis=0)


def _label_term(labels: Labels, settings: Settings) -> Term:
    make = ProbitTerm if settings.probit else GaussianTerm
    return make(labels.targets, labels.rows)


def _learn(inputs, start, parts, settings: Settings, rng) -> LatentFit:
    return learn_positions(
        inputs,
        start,
        parts,
        n_hidden=settings.n_hidden,
        weight_decay=settings.weight_decay,
        max_iter=settings.max_iter,
        tol=settings.tol,
        rng=rng,
        report=settings.report,
    )


def _finish(observations, scores, fit: LatentFit, observation, tasks, settings) -> LatentModel:
    kernel, *label_kernels = fit.kernels
    maps = []
    for part, label_kernel in zip(tasks, label_kernels, strict=True):
        if settings.label_weight == 0.0:  # labels had no say in the positions: learn their kernels now
            label_kernel = fit_kernel(part, fit.positions).parameters.kernel
        maps.append(part.term.fit_map(label_kernel, fit.positions))
    return LatentModel(
        observations,
        fit.perceptron,
        fit.positions,
        scores,
        observation.term.fit_map(kernel, fit.positions),
        tuple(maps),
        fit.objective,
        fit.optimum.n_iterations,
        fit.optimum.converged,
        fit.optimum.last_change,
    )
