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
from scipy.spatial.distance import cdist

from gleangp._state import LARGEST, check_arrays, check_codes, check_kernel
from gleangp._typing import FloatArray, IntArray
from gleangp.kernels.evaluate import evaluate, evaluate_diag
from gleangp.models.defaults import LATENT_SPACE
from gleangp.models.latent.space import (
    LatentObjective,
    Perceptron,
    Settings,
    Weighted,
    fit_shared_kernel,
    start_perceptron,
    start_positions,
)
from gleangp.models.latent.terms import Mapping, SignsTerm, Term, choose_basis, numbers_term
from gleangp.models.parameters import Parameters
from gleangp.numerics.linalg import row_chunks, solve_cholesky, solve_lower
from gleangp.progress import Stage

# A component with less than this share of the leading one's deviation is rounding error.
_NEGLIGIBLE = 1e-7
# Features that differ by less than this share of their size are equal up to rounding.
_ROUNDING = 1e-12
_NEAREST = 3  # training rows whose positions are tried as starts of a search
_SUFFICIENT = 1e-4  # share of the predicted decrease that a step must give (Armijo)
_HALVINGS = 12
_MOST_STEPS, _TOLERANCE = 50, 1e-8  # of a row; the gain, relative to the value, after which it stops


@dataclass(frozen=True, slots=True, eq=False)
class Observations:
    """Where the rows lie: the way from features to scores and back."""

    mean: FloatArray  # (p,)
    components: FloatArray  # (p, k) orthonormal columns
    scale: float  # root mean square of the centred features: the unit of the scores
    leading: float  # deviation of the first score: unit of the back-constraint, where weak scores stay weak
    left_out: FloatArray  # (p,) variance of each feature outside the components

    def _check_state(self) -> None:
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


def observe(X: FloatArray, n_scores: int) -> Observations:
    """The leading `n_scores` principal components of the rows, or as many as there are.

    Rows that are all equal have no component. The largest entry of each component is positive.
    """
    n, p = X.shape
    mean = X.mean(axis=0)
    centred = X - mean
    variance = np.einsum("ij,ij->j", centred, centred) / n
    scale = float(np.sqrt(variance.mean()))
    if not scale > _ROUNDING * np.max(np.abs(X), initial=0.0):
        return Observations(mean, np.zeros((p, 0)), 1.0, 1.0, np.zeros(p))
    centred, count = centred / scale, min(n_scores, n, p)
    if p <= n:
        values, axes = eigh(centred.T @ centred / n, subset_by_index=(p - count, p - 1))
        deviations, axes = np.sqrt(np.maximum(values[::-1], 0.0)), axes[:, ::-1]
    else:
        _, singular, right = np.linalg.svd(centred, full_matrices=False)
        deviations, axes = singular[:count] / np.sqrt(n), right[:count].T
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(count)])
    keep = deviations > _NEGLIGIBLE * deviations[0]
    components = axes[:, keep]
    explained = (components * (scale * deviations[keep])) ** 2
    left_out = np.maximum(variance - explained.sum(axis=1), 0.0)
    return Observations(mean, components, scale, float(deviations[0]), left_out)


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
        net = self.perceptron
        if net is not None and (len(net.hidden), net.output.shape[1]) != (k, q):
            raise ValueError(
                f"LatentModel has a back-constraint that is not from {k} scores to {q} dimensions."
            )
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
    inputs = scores / observations.leading
    labelled = labels if settings.label_weight > 0.0 else []
    start = start_positions(inputs, [label_term(task, settings) for task in labelled], settings.n_components)
    fits: list[Any] = []
    for number, stream in enumerate(rng.spawn(settings.n_init)):
        stage = Stage(f"start {number + 1}", settings.max_iter, len(labels), settings.n_active)
        if settings.progress(stage, 0, None) and fits:
            break
        fits.append(_learn(inputs, start, scores, labels, settings, stream, stage))
    fit, parts, basis = min(fits, key=lambda found: found[0].objective)
    maps: list[Mapping] = []
    stage = Stage("mappings", len(parts), len(labels), settings.n_active)
    settings.progress(stage, 0, None)
    for part, kernel in zip(parts, fit.kernels, strict=True):
        if part.weight == 0.0:  # these labels had no say in the positions: learn their kernel now
            kernel = fit_shared_kernel([(part.term, fit.positions)], part.parameters)
        maps.append(part.term.fit_map(kernel, fit.positions))
        settings.progress(stage, len(maps), None)
    space = (
        observations,
        fit.perceptron,
        fit.positions,
        scores,
        maps[0],
        tuple(maps[1:]),
        fit.objective,
        basis,
    )
    return LatentModel(*space, fit.optimum.n_iterations, fit.optimum.converged, fit.optimum.last_change)


def most_stages(settings: Settings) -> int:
    """Most stages that learning has: two for every start, and the mappings."""
    return 2 * settings.n_init + 1


def _learn(inputs, start, scores, labels, settings: Settings, rng, stage: Stage):
    """A fit from one start, its parts, and the basis.

    A basis is chosen twice: at the start, and where half of the iterations led.
    """
    dense, decay = settings.is_dense(len(inputs)), settings.weight_decay
    basis = None if dense else choose_basis(settings.observation_kernel, start, settings.n_active, rng)
    parts, perceptron = _parts(scores, labels, settings, basis), None
    if settings.n_hidden is not None:
        perceptron = start_perceptron(inputs, start, settings.n_hidden, rng)
    objective = LatentObjective(start, perceptron, inputs, decay, parts)
    if dense:
        return objective.minimize(settings, settings.max_iter, stage), parts, None
    first = objective.minimize(settings, max(1, settings.max_iter // 2), stage)
    stage = replace(stage, name=f"{stage.name}, second basis")
    settings.progress(stage, 0, -first.objective)
    basis = choose_basis(first.kernels[0], first.positions, settings.n_active, rng)
    parts = [
        replace(part, parameters=replace(part.parameters, kernel=kernel))
        for part, kernel in zip(_parts(scores, labels, settings, basis), first.kernels, strict=True)
    ]
    objective = LatentObjective(first.positions, first.perceptron, inputs, decay, parts)
    fit = objective.minimize(settings, max(1, settings.max_iter - first.optimum.n_iterations), stage)
    n_iterations = first.optimum.n_iterations + fit.optimum.n_iterations
    return replace(fit, optimum=replace(fit.optimum, n_iterations=n_iterations)), parts, basis


def _parts(scores, labels: list[Labels], settings: Settings, basis: IntArray | None = None) -> list[Weighted]:
    """The mappings of the objective, that to the observations first."""
    first = numbers_term(scores, np.arange(len(scores)), basis)
    weight, of_labels = settings.label_weight, settings.label_parameters
    parts = [Weighted(label_term(task, settings, basis), of_labels, weight) for task in labels]
    return [Weighted(first, Parameters(settings.observation_kernel, None)), *parts]


def label_term(labels: Labels, settings: Settings, basis: IntArray | None = None) -> Term:
    """The term of the labels of a task: dense, or through a basis."""
    if settings.probit:
        return SignsTerm(labels.targets, labels.rows, labels.rows if basis is None else basis)
    return numbers_term(labels.targets, labels.rows, basis)


def locate(model: LatentModel, X: FloatArray) -> FloatArray:
    """Latent positions (m, q) of rows (m, p): by the back-constraint, or by search where there is none."""
    scores = model.observations.scores(X)
    if model.perceptron is not None:
        return model.perceptron(scores / model.observations.leading)
    return search_positions(model.observation_map, scores, model.scores, model.positions)


def reconstruct(model: LatentModel, positions: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance (m, p) of the features at latent positions (m, q), noise included."""
    mean, var = model.observation_map.predict(positions)
    seen = model.observations
    of_features = np.outer(var[:, 0], seen.scale**2 * np.sum(seen.components**2, axis=1)) + seen.left_out
    return seen.restore(mean), of_features


def search_positions(
    mapping: Mapping, scores: FloatArray, known_scores: FloatArray, known_positions: FloatArray
) -> FloatArray:
    """Positions (m, q) of rows with the given scores (m, k), from training rows with known positions.

    For every row -log p(y | x) + 0.005 |x|^2 is minimised over its own position x, where p(y | x) is the
    prediction of the map to the observations: a short search from the best of the nearest training rows. All
    rows are searched at once and none sees another: each has its own quasi-Newton matrix (q x q) and step.
    """
    out = np.empty((len(scores), known_positions.shape[1]))
    for rows in row_chunks(len(scores), len(known_scores)):
        some = scores[rows]
        near = np.argsort(cdist(some, known_scores), axis=1, kind="stable")[:, :_NEAREST]
        values = [row_objective(mapping, some, known_positions[column])[0] for column in near.T]
        best = near[np.arange(len(some)), np.argmin(values, axis=0)]
        out[rows] = _descend(mapping, some, known_positions[best].copy())
    return out


def row_objective(mapping: Mapping, scores: FloatArray, X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Minus log p(y | x) up to a constant, plus the pull, per row (m,); and its gradient (m, q)."""
    n_scores = scores.shape[1]
    chol, inner = mapping.factors[0]
    K = evaluate(mapping.kernel, X, mapping.points)
    diag = evaluate_diag(mapping.kernel, X)
    v = solve_lower(chol, K.value.T)
    w = v if inner is None else v - solve_cholesky(inner, v)
    var = diag.value - np.einsum("dm,dm->m", v, w)
    error = scores - K.value @ mapping.weights
    square = np.einsum("mk,mk->m", error, error)
    value = 0.5 * (n_scores * np.log(var) + square / var + LATENT_SPACE.pull * np.einsum("mq,mq->m", X, X))
    d_var = 0.5 * (n_scores - square / var) / var
    dL_dK = -(error / var[:, None]) @ mapping.weights.T
    dL_dK -= 2.0 * d_var[:, None] * solve_lower(chol, w, transposed=True).T
    return value, K.vjp(dL_dK)[1] + diag.vjp(d_var)[1] + LATENT_SPACE.pull * X


def _descend(mapping, scores, X) -> FloatArray:
    """BFGS in every row on its own (Nocedal & Wright 2006, eq. 6.17), with backtracking."""
    value, gradient = row_objective(mapping, scores, X)
    H = np.tile(np.eye(X.shape[1]), (len(X), 1, 1))
    H /= np.maximum(1.0, np.linalg.norm(gradient, axis=1))[:, None, None]  # a first step of at most one
    going = np.arange(len(X))
    for _ in range(_MOST_STEPS):
        direction = -np.einsum("mij,mj->mi", H[going], gradient[going])
        moved, new_value, new_gradient = _backtrack(
            mapping, scores[going], X[going], value[going], gradient[going], direction
        )
        change = new_gradient - gradient[going]
        curvature = np.einsum("mi,mi->m", moved, change)
        usable = curvature > 1e-12 * np.linalg.norm(moved, axis=1) * np.linalg.norm(change, axis=1)
        rho = np.divide(1.0, curvature, out=np.zeros_like(curvature), where=usable)[:, None, None]
        V = np.eye(X.shape[1]) - rho * np.einsum("mi,mj->mij", moved, change)
        updated = V @ H[going] @ V.transpose(0, 2, 1) + rho * np.einsum("mi,mj->mij", moved, moved)
        H[going] = np.where(usable[:, None, None], updated, H[going])
        gain = value[going] - new_value
        X[going] += moved
        value[going], gradient[going] = new_value, new_gradient
        going = going[gain > _TOLERANCE * (1.0 + np.abs(new_value))]
        if len(going) == 0:
            break
    return X


def _backtrack(mapping, scores, X, value, gradient, direction):
    """The first of the halved steps that decreases enough; a row that finds none does not move."""
    slope = np.einsum("mi,mi->m", gradient, direction)
    moved, new_value, new_gradient = np.zeros_like(X), value.copy(), gradient.copy()
    left, length = np.arange(len(X)), 1.0
    for _ in range(_HALVINGS):
        v, g = row_objective(mapping, scores[left], X[left] + length * direction[left])
        fine = v <= value[left] + _SUFFICIENT * length * slope[left]
        rows = left[fine]
        moved[rows] = length * direction[rows]
        new_value[rows], new_gradient[rows] = v[fine], g[fine]
        left = left[~fine]
        if len(left) == 0:
            break
        length *= 0.5
    return moved, new_value, new_gradient
