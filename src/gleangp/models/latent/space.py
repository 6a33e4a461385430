"""A latent space that all tasks share: positions from which observations and labels are explained.

Urtasun, Quattoni & Darrell 2007, eq. 9. With X the latent positions of all rows, Y their observations and
Z_p the labels of task p, we minimise over the positions (or the weights of the back-constraint) and
the parameters of every mapping's kernel

    -log p(Y | X, beta) - label_weight sum_p log p(Z_p | X_p, gamma_p)
        + 0.005 |X|^2 + weight_decay / 2 |weights|^2 - sum_p log prior(gamma_p).

Departures. The printed sums of log parameters are left out: they are unbounded below (the bias goes to
0), and a prior 1 / beta is flat in the logarithms in which we optimise. The weak pull of X to the
origin settles the scale that positions and length scales would otherwise trade; the weak log-normal
priors on gamma matter only to tasks of a few rows. The paper's conjugate gradients are L-BFGS-B here.

The back-constraint is a perceptron with one hidden layer, x = V' sigmoid(U' y + b) + c (section 2.2), so that
the position of a new row needs no optimisation. Departures: eq. 7 prints the output weight outside of the sum
over hidden units, where it belongs inside; both layers have offsets, and both are learnt.

Observations are centred, in one unit, along their leading components. All features share one unit, so
features in different units are for the user to standardise. The rotation to principal components makes the
inputs of the back-constraint well conditioned, and the cost of a fit independent of the number of features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy.linalg import eigh
from scipy.special import expit

from gleangp._state import LARGEST, check_arrays
from gleangp._typing import FloatArray
from gleangp.kernels.evaluate import MovingKernel
from gleangp.models.defaults import LATENT_SPACE
from gleangp.models.latent.terms import Term
from gleangp.models.parameters import Parameters, Slot, Slots
from gleangp.numerics.linalg import cholesky, solve_cholesky
from gleangp.numerics.optimize import Optimum, minimize
from gleangp.progress import Progress, Stage, report_to, silent

# Of the hidden layer at the start, with offsets of one: sigmoids are spread over inputs of unit deviation.
_SLOPE = 2.0
_OUTPUT_RIDGE = 1e-4  # of the start's output layer, per row
_RIDGE = 0.1  # per row, of the discriminants that start the positions
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
    leading: float  # deviation of the first score: unit of the back-constraint, where weak scores stay weak
    left_out: FloatArray  # (p,) variance of each feature outside the components

    def _check_state(self) -> None:
        check_arrays(self, mean="p", components="p k", scale=">0", leading=">0", left_out="p >=0 square")

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
class Perceptron:
    """Weights of the two layers."""

    hidden: FloatArray  # (k, h) U
    hidden_offset: FloatArray  # (h,) b
    output: FloatArray  # (h, q) V
    output_offset: FloatArray  # (q,) c

    def _check_state(self) -> None:
        check_arrays(self, hidden="k h", hidden_offset="h", output="h q", output_offset="q")

    def activations(self, inputs: FloatArray) -> FloatArray:
        """(n, h) outputs of the hidden units."""
        return expit(inputs @ self.hidden + self.hidden_offset)

    def __call__(self, inputs: FloatArray) -> FloatArray:
        """(n, q) latent positions of inputs (n, k)."""
        return self.activations(inputs) @ self.output + self.output_offset

    def pack(self) -> FloatArray:
        """All weights in one vector."""
        return np.concatenate([getattr(self, f.name).ravel() for f in fields(self)])

    def unpack(self, weights: FloatArray) -> Perceptron:
        """A perceptron of this shape with other weights."""
        own = [getattr(self, f.name) for f in fields(self)]
        parts = np.split(weights, np.cumsum([part.size for part in own])[:-1])
        return Perceptron(*(new.reshape(part.shape) for new, part in zip(parts, own, strict=True)))

    def backward(self, inputs: FloatArray, activations: FloatArray, dL_dX: FloatArray) -> FloatArray:
        """dL/dweights, packed, from dL/dpositions (n, q)."""
        dL_dsum = (dL_dX @ self.output.T) * activations * (1.0 - activations)
        parts = (inputs.T @ dL_dsum, dL_dsum.sum(axis=0), activations.T @ dL_dX, dL_dX.sum(axis=0))
        return np.concatenate([part.ravel() for part in parts])


def start_perceptron(
    inputs: FloatArray, positions: FloatArray, n_hidden: int, rng: np.random.Generator
) -> Perceptron:
    """Random hidden units, and the output layer that brings rows nearest to `positions` (n, q)."""
    n, k = inputs.shape
    hidden = rng.normal(size=(k, n_hidden)) * (_SLOPE / np.sqrt(k))
    hidden_offset = rng.normal(size=n_hidden)
    A = np.column_stack([expit(inputs @ hidden + hidden_offset), np.ones(n)])
    output = _ridge_solution(A, positions, _OUTPUT_RIDGE)
    return Perceptron(hidden, hidden_offset, output[:-1], output[-1])


def _ridge_solution(A: FloatArray, targets: FloatArray, ridge: float) -> FloatArray:
    """(A^T A + n ridge)^-1 A^T targets."""
    normal = A.T @ A
    normal.flat[:: len(normal) + 1] += ridge * len(A)
    return solve_cholesky(cholesky(normal)[0], A.T @ targets)


@dataclass(frozen=True, eq=False)
class Settings:
    """How to learn; the estimators fill it in from their constructor."""

    observation_kernel: Any  # with white noise
    label_parameters: Parameters  # kernel to start every task's from, with its priors
    probit: bool
    n_components: int
    n_scores: int
    n_hidden: int | None  # None: no back-constraint
    n_active: Any = None  # int: rows whose positions are the basis of all mappings; None: all rows
    label_weight: float = 1.0
    weight_decay: float = 5.0
    max_iter: int = 300
    tol: float = 1e-4
    n_init: int = 1
    signs: bool = False  # targets are signs -1 and +1, and not numbers
    progress: Progress = silent  # told of every iteration and mapping; may ask to stop

    def is_dense(self, n_rows: int) -> bool:
        """Whether the positions of all rows are the basis."""
        return self.n_active is None or self.n_active >= n_rows


@dataclass(frozen=True, eq=False)
class Weighted:
    """A mapping's part of the objective, its kernel's parameters, and how much it counts."""

    term: Term
    parameters: Parameters
    weight: float = 1.0


class LatentObjective:
    """The objective and its exact gradient in one vector: positions first, then every mapping's theta.

    Positions (n, q) are optimised themselves or, with a perceptron, read off the `inputs` (n, k) by it: then
    its weights are optimised, under a penalty (UQD07 eqs. 6 and 7).
    """

    def __init__(self, start: FloatArray, perceptron: Perceptron | None, inputs, decay: float, parts):
        self.shape, self.inputs, self.decay, self.parts = start.shape, inputs, decay, parts
        self.perceptron, maps = perceptron, [p.parameters for p in parts]
        first = start.ravel() if perceptron is None else perceptron.pack()
        slots = [Slot("positions", first, -np.inf, np.inf, transform="identity")]
        slots += [
            replace(s, name=f"{k}__{s.name}") for k, m in enumerate(maps) for s in m.slots.slots.values()
        ]
        self.slots = Slots(slots)
        self._edges = np.cumsum([len(first), *(m.slots.size for m in maps)])[:-1]
        self._kernels = [MovingKernel(m.kernel) for m in maps]

    def __call__(self, z: FloatArray) -> tuple[float, FloatArray]:
        """Value and gradient."""
        own, *thetas = np.split(z, self._edges)
        if self.perceptron is None:
            X = own.reshape(self.shape)
        else:
            perceptron = self.perceptron.unpack(own)
            activations = perceptron.activations(self.inputs)
            X = activations @ perceptron.output + perceptron.output_offset
        log_prior, prior_gradient = self.slots.log_prior(z)
        value = 0.5 * LATENT_SPACE.pull * float(np.vdot(X, X)) - log_prior
        dL_dX, gradients = LATENT_SPACE.pull * X, []
        for part, kernel, theta in zip(self.parts, self._kernels, thetas, strict=True):
            if part.weight == 0.0:  # its kernel is fitted afterwards
                gradients.append(np.zeros(len(theta)))
                continue
            v, g_theta, g_X = part.term(kernel.at(theta), X)
            value += part.weight * v
            dL_dX += part.weight * g_X
            gradients.append(part.weight * g_theta)
        first = dL_dX.ravel()
        if self.perceptron is not None:
            value += 0.5 * self.decay * float(own @ own)
            first = perceptron.backward(self.inputs, activations, dL_dX) + self.decay * own
        return value, np.concatenate([first, *gradients]) - prior_gradient

    def minimize(self, settings: Settings, max_iter: int, stage: Stage) -> LatentFit:
        """Where the search from the start ends. The first of the parts is the mapping to the observations."""
        # In nats per observed number, so that `tol` means the same for any number of rows.
        optimum = minimize(
            self,
            self.slots.start,
            self.slots.bounds,
            max_iter=max_iter,
            tol=settings.tol,
            report=report_to(settings.progress, stage),
            scale=float(self.parts[0].term.targets.size),
        )
        own, *thetas = np.split(optimum.theta, self._edges)
        kernels = tuple(p.parameters.kernel_at(t) for p, t in zip(self.parts, thetas, strict=True))
        perceptron = None if self.perceptron is None else self.perceptron.unpack(own)
        positions = own.reshape(self.shape).copy() if perceptron is None else perceptron(self.inputs)
        return LatentFit(positions, perceptron, kernels, optimum)


@dataclass(frozen=True, eq=False)
class LatentFit:
    """Where the optimisation ended."""

    positions: FloatArray  # (n, q)
    perceptron: Perceptron | None
    kernels: tuple  # of the observations, then of every task
    optimum: Optimum


def fit_shared_kernel(parts: Sequence[tuple[Term, FloatArray]], parameters: Parameters) -> Any:
    """One kernel for several terms, each at its own fixed positions."""

    def log_evidence(kernel: Any, none: dict[str, Any]) -> tuple[float, FloatArray, dict[str, FloatArray]]:
        values, slopes, _ = zip(*(term(kernel, positions) for term, positions in parts), strict=True)
        return -sum(values), -np.sum(slopes, axis=0), {}

    return parameters.maximize(log_evidence)[0].kernel


def start_positions(inputs: FloatArray, labels: Sequence[Any], n_components: int) -> FloatArray:
    """Positions to begin with: ridge discriminants of all tasks' labels, then principal components.

    More discriminants than dimensions are reduced to their own leading components. Every dimension
    has unit variance.
    """
    A = np.column_stack([inputs, np.ones(len(inputs))])
    found = [A @ _ridge_solution(A[task.rows], task.targets, _RIDGE) for task in labels]
    X = np.column_stack([np.zeros((len(A), 0)), *found])
    X = X - X.mean(axis=0)
    X = X[:, X.std(axis=0) > 1e-9]
    if X.shape[1] > n_components:
        left, singular, _ = np.linalg.svd(X, full_matrices=False)
        X = (left * singular)[:, :n_components]
    X = np.column_stack([X, inputs])[:, :n_components]
    spread = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(spread > 1e-12, spread, 1.0)
