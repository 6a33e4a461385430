"""The fitted latent-space model: how it is learnt, and how new rows find their place.

`fit_latent_model` learns; `locate` gives latent positions of rows. `models.latent.blend` adds tasks.

Observations are centred, in one unit, along their leading components. All features share one unit, so
features in different units are for the user to standardise. The rotation to principal components makes the
inputs of the back-constraint well conditioned, and the cost of a fit independent of the number of features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import eigh
from sklearn.gaussian_process.kernels import RBF

from gleangp._state import LARGEST, check_arrays, check_codes, check_kernel
from gleangp._typing import FloatArray, IntArray
from gleangp.models.latent.search import search_positions
from gleangp.models.latent.space import (
    LatentFit,
    Perceptron,
    Settings,
    Weighted,
    fit_shared_kernel,
    learn_positions,
    start_positions,
)
from gleangp.models.latent.terms import CollapsedTerm, GaussianTerm, Mapping, SignsTerm, Term, choose_basis
from gleangp.models.parameters import Parameters
from gleangp.progress import Stage

# A component with less than this share of the leading one's deviation is rounding error.
_NEGLIGIBLE = 1e-7
# Features that differ by less than this share of their size are equal up to rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Observations:
    """Where the rows lie: the way from features to scores and back."""

    mean: FloatArray  # (p,)
    components: FloatArray  # (p, k) orthonormal columns
    scale: float  # root mean square of the centred features: the unit of the scores
    leading: float  # standard deviation of the first score
    left_out: FloatArray  # (p,) variance of each feature outside the components

    def _check_state(self) -> None:
        """Raise if the parts do not fit together (a damaged model file)."""
        check_arrays(self, mean="p", components="p k", scale=">0", leading=">0", left_out="p >=0 square")

    @property
    def n_scores(self) -> int:
        """Number of components kept."""
        return self.components.shape[1]

    def scores(self, X: FloatArray) -> FloatArray:
        """(n, k) what the map from the latent space has to explain."""
        return np.clip((X - self.mean) @ self.components / self.scale, -LARGEST, LARGEST)

    def restore(self, scores: FloatArray) -> FloatArray:
        """(n, p) features of scores."""
        return scores @ (self.components.T * self.scale) + self.mean

    def restored_variance(self, var: FloatArray) -> FloatArray:
        """(n, p) variance of features whose scores have variance `var` (n,) each."""
        return np.outer(var, self.scale**2 * np.sum(self.components**2, axis=1)) + self.left_out


def observe(X: FloatArray, n_scores: int) -> Observations:
    """The leading `n_scores` principal components of the rows, or as many as there are.

    Rows that are all equal have no component.
    """
    n, p = X.shape
    mean = X.mean(axis=0)
    centred = X - mean
    variance = np.einsum("ij,ij->j", centred, centred) / n
    scale = float(np.sqrt(variance.mean()))
    if not scale > _ROUNDING * np.max(np.abs(X), initial=0.0):
        return Observations(mean, np.zeros((p, 0)), 1.0, 1.0, np.zeros(p))
    deviations, components = _principal_axes(centred / scale, min(n_scores, n, p))
    keep = deviations > _NEGLIGIBLE * deviations[0]
    components = components[:, keep]
    explained = (components * (scale * deviations[keep])) ** 2
    left_out = np.maximum(variance - explained.sum(axis=1), 0.0)
    return Observations(mean, components, scale, float(deviations[0]), left_out)


def _principal_axes(centred: FloatArray, count: int) -> tuple[FloatArray, FloatArray]:
    """Standard deviations, falling, and axes as columns, each with its largest entry positive."""
    n, p = centred.shape
    if p <= n:
        values, axes = eigh(centred.T @ centred / n, subset_by_index=(p - count, p - 1))
        deviations, axes = np.sqrt(np.maximum(values[::-1], 0.0)), axes[:, ::-1]
    else:
        _, singular, right = np.linalg.svd(centred, full_matrices=False)
        deviations, axes = singular[:count] / np.sqrt(n), right[:count].T
    largest = np.abs(axes).argmax(axis=0)
    return deviations, axes * np.sign(axes[largest, np.arange(count)])


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
        """Raise if the parts do not fit together (a damaged model file)."""
        check_arrays(self, offset="", scores="t two any")

    @property
    def start(self) -> Any:
        """The kernel from which tasks start."""
        return self.kernel if self.used else self.features_kernel


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
        """Raise if the parts do not fit together (a damaged model file)."""
        maps = (self.observation_map, *self.label_maps)
        if not isinstance(self.observations, Observations) or not all(isinstance(m, Mapping) for m in maps):
            raise ValueError("LatentModel has no observations, or maps that are none.")
        if not isinstance(self.perceptron, Perceptron | None) or not isinstance(self.blend, Blend | None):
            raise ValueError("LatentModel has a back-constraint or a blend that is none.")
        n_features, k = self.observations.components.shape
        sizes = check_arrays(self, {"k": k}, positions="n q", scores="n k")
        q, first = sizes["q"], self.observation_map
        width = q if self.blend is None else q + n_features
        if first.points.shape[1] != q or first.weights.shape[1] != k or sizes["n"] < 1:
            raise ValueError(f"LatentModel has a map of {q} dimensions to {k} scores that is another one.")
        if any(m.points.shape[1] != width for m in self.label_maps) or not self.label_maps:
            raise ValueError(f"LatentModel has label maps of other inputs than {width}.")
        if self.perceptron is not None and self.perceptron.hidden.shape[0] != k:
            raise ValueError(f"LatentModel has a back-constraint of other inputs than {k} scores.")
        if self.perceptron is not None and self.perceptron.output.shape[1] != q:
            raise ValueError(f"LatentModel has a back-constraint to other positions than {q} dimensions.")
        if self.blend is not None:
            for kernel in (self.blend.kernel, self.blend.features_kernel):
                check_kernel("a kernel of Blend", kernel, width)
        if self.basis is not None:
            check_codes("LatentModel.basis", self.basis, sizes["n"])

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
    speaking = labels if settings.label_weight > 0.0 else []
    start = start_positions(inputs, [_label_term(task, settings) for task in speaking], settings.n_components)
    fits: list[Any] = []
    for number, stream in enumerate(rng.spawn(settings.n_init)):
        stage = Stage(f"start {number + 1}", settings.max_iter, len(labels), settings.n_active)
        if settings.progress(stage, 0, None) and fits:
            break
        fits.append(_learn(inputs, start, scores, labels, settings, stream, stage))
    best, parts, basis = min(fits, key=lambda found: found[0].objective)
    return _finish(observations, scores, best, parts, basis, settings)


def most_stages(settings: Settings) -> int:
    """Most stages that learning has: two for every start, and the mappings."""
    return 2 * settings.n_init + 1


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


def relevance(model: LatentModel, length_scales: list[FloatArray]) -> FloatArray:
    """(q,) length scales that the training rows span in each dimension, the most of any mapping.

    `length_scales` has one array, of shape () or (q,), for each mapping whose kernel has them.
    """
    spread = model.positions.std(axis=0)
    return np.max([spread / scale for scale in length_scales], axis=0)


def label_term(inputs: FloatArray, targets: FloatArray, settings: Settings) -> Term:
    """The term of one task whose rows have these inputs: dense, or through a basis."""
    basis = None
    if not _is_dense(settings, len(inputs)):
        basis = choose_basis(RBF(), inputs, settings.n_active, np.random.default_rng(0))
    return _label_term(Labels(np.arange(len(inputs)), targets), settings, basis)


def _is_dense(settings: Settings, n_rows: int) -> bool:
    return settings.n_active is None or settings.n_active >= n_rows


def _label_term(labels: Labels, settings: Settings, basis: IntArray | None = None) -> Any:
    if settings.probit:
        return SignsTerm(labels.targets, labels.rows, labels.rows if basis is None else basis)
    return _numbers_term(labels.targets, labels.rows, basis)


def _numbers_term(targets: FloatArray, rows: IntArray, basis: IntArray | None) -> Any:
    return GaussianTerm(targets, rows) if basis is None else CollapsedTerm(targets, rows, basis)


def _parts(scores, labels: list[Labels], settings: Settings, basis=None, kernels=None) -> list[Weighted]:
    """The mappings of the objective, that to the observations first, at given kernels or the start's."""
    first = _numbers_term(scores, np.arange(len(scores)), basis)
    parts = [Weighted(first, Parameters(settings.observation_kernel, None))]
    parts += [
        Weighted(_label_term(task, settings, basis), settings.label_parameters, settings.label_weight)
        for task in labels
    ]
    if kernels is None:
        return parts
    return [
        replace(part, parameters=replace(part.parameters, kernel=kernel))
        for part, kernel in zip(parts, kernels, strict=True)
    ]


def _learn(inputs, start, scores, labels, settings: Settings, rng, stage: Stage):
    """A fit from one start, its parts, and the basis.

    A basis is chosen twice: at the start, and where half of the iterations led.
    """
    if _is_dense(settings, len(inputs)):
        parts = _parts(scores, labels, settings)
        return learn_positions(inputs, start, parts, settings, settings.max_iter, rng, stage), parts, None
    basis = choose_basis(settings.observation_kernel, start, settings.n_active, rng)
    parts, half = _parts(scores, labels, settings, basis), max(1, settings.max_iter // 2)
    first = learn_positions(inputs, start, parts, settings, half, rng, stage)
    stage = replace(stage, name=f"{stage.name}, second basis")
    settings.progress(stage, 0, -first.objective)
    basis = choose_basis(first.kernels[0], first.positions, settings.n_active, rng)
    parts = _parts(scores, labels, settings, basis, first.kernels)
    left = max(1, settings.max_iter - first.optimum.n_iterations)
    fit = learn_positions(inputs, first.positions, parts, settings, left, rng, stage, first.perceptron)
    n_iterations = first.optimum.n_iterations + fit.optimum.n_iterations
    return replace(fit, optimum=replace(fit.optimum, n_iterations=n_iterations)), parts, basis


def _finish(observations, scores, fit: LatentFit, parts, basis, settings) -> LatentModel:
    maps = []
    stage = Stage("mappings", len(parts), len(parts) - 1, settings.n_active)
    settings.progress(stage, 0, None)
    for part, kernel in zip(parts, fit.kernels, strict=True):
        if part.weight == 0.0:  # these labels had no say in the positions: learn their kernel now
            kernel = fit_shared_kernel([(part.term, fit.positions)], part.parameters)
        maps.append(part.term.fit_map(kernel, fit.positions))
        settings.progress(stage, len(maps), None)
    return LatentModel(
        observations,
        fit.perceptron,
        fit.positions,
        scores,
        maps[0],
        tuple(maps[1:]),
        fit.objective,
        basis,
        fit.optimum.n_iterations,
        fit.optimum.converged,
        fit.optimum.last_change,
    )
