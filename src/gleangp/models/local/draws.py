"""Draws of the hyperparameters from Laplace approximations at their modes.

Few rows do not determine the form of the model either. Every form has a mode. The posterior probability of a
form is proportional to the mass of its Laplace approximation,

    log mass = log posterior density - 1/2 log |H| + k/2 log 2 pi,   H = -d2 log posterior / dz2 (k, k),

which depends on how much of the parameter space fits the data, and not only on the best point of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from gleangp._typing import FloatArray, IntArray
from gleangp.models.defaults import Learning
from gleangp.models.local.learn import Learnt


@dataclass(frozen=True, eq=False)
class Mode:
    """The Laplace approximation at what was learnt."""

    learnt: Learnt
    free: IntArray  # (k,) everything but z_t, whose uncertainty the likelihood has in closed form
    root: FloatArray  # (k, k) of the inverse of the Hessian
    log_mass: float


def mode_of(learnt: Learnt, learning: Learning, *, hopeless: bool = False) -> Mode:
    """The Laplace approximation of the free parameters, with the Hessian by differences of the gradient.

    An eigenvalue below `least_curvature` is raised to it, so that no draw leaves the region of the
    approximation. A form that is `hopeless` has no mass and no draws.
    """
    objective, z, slots = learnt.objective, learnt.z, learnt.slots
    free = np.concatenate(
        [np.arange(part.start, part.stop) for name, part in slots.where.items() if name != "z"]
    )
    if hopeless:
        return Mode(learnt, free, np.zeros((len(free), len(free))), -np.inf)
    at = objective(z)[1][free]
    hessian = np.empty((len(free), len(free)))
    for k, i in enumerate(free):
        moved = z.copy()
        moved[i] += learning.step
        hessian[k] = (objective(moved)[1][free] - at) / learning.step
    values, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T))
    values = np.maximum(values, learning.least_curvature)
    log_mass = -learnt.value + 0.5 * float(np.sum(np.log(2.0 * np.pi / values)))
    return Mode(learnt, free, vectors / np.sqrt(values), log_mass)


def probabilities(modes: Sequence[Mode]) -> FloatArray:
    """(number of modes,) posterior probabilities."""
    return softmax([mode.log_mass for mode in modes])


def laplace_draws(modes: Sequence[Mode], learning: Learning) -> Iterator[tuple[Learnt, FloatArray]]:
    """Antithetic pairs of draws, of every mode in proportion to its probability."""
    up_to = np.cumsum(probabilities(modes))
    n_pairs = learning.n_draws // 2
    # Always the same points, as in a quadrature: a fit of few rows does not depend on a seed.
    half = np.random.default_rng(0).standard_normal((n_pairs, max(len(mode.free) for mode in modes)))
    for normals in (half, -half):
        for k, normal in enumerate(normals):
            mode = modes[min(int(np.searchsorted(up_to, (k + 0.5) / n_pairs)), len(modes) - 1)]
            yield mode.learnt, _draw(mode, normal[: len(mode.free)], learning)


def _draw(mode: Mode, normal: FloatArray, learning: Learning) -> FloatArray:
    """The draw at that step from the mode, shortened until the log posterior falls about as expected.

    Where the log posterior is far from quadratic, as with next to no noise, a full step can lead to
    parameters that the data exclude.
    """
    objective, z = mode.learnt.objective, mode.learnt.z
    step, expected = mode.root @ normal, 0.5 * float(normal @ normal)
    low, high = objective.slots.bounds.T
    for _ in range(learning.most_halvings):
        drawn = z.copy()
        drawn[mode.free] += step
        drawn = np.clip(drawn, low, high)
        if objective.value(drawn) - mode.learnt.value <= expected + learning.slack:
            return drawn
        step, expected = 0.5 * step, 0.25 * expected
    return z.copy()
