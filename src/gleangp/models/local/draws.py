"""Draws of the hyperparameters from the Laplace approximation at their mode."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gleangp._typing import FloatArray
from gleangp.models.defaults import Learning
from gleangp.models.local.learn import Learnt


def laplace_draws(learnt: Learnt, learning: Learning) -> Iterator[FloatArray]:
    """Antithetic draws of everything but z_t, whose uncertainty the likelihood has in closed form.

    The Hessian is that of the negative log posterior in the free parameters, by differences of the gradient.
    An eigenvalue below `least_curvature` is raised to it, so that no draw leaves the region of the
    approximation.
    """
    objective, z, slots = learnt.objective, learnt.z, learnt.slots
    free = np.concatenate(
        [np.arange(part.start, part.stop) for name, part in slots.where.items() if name != "z"]
    )
    at = objective(z)[1][free]
    hessian = np.empty((len(free), len(free)))
    for k, i in enumerate(free):
        moved = z.copy()
        moved[i] += learning.step
        hessian[k] = (objective(moved)[1][free] - at) / learning.step
    values, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T))
    root = vectors / np.sqrt(np.maximum(values, learning.least_curvature))
    # Always the same points, as in a quadrature: a fit of few rows does not depend on a seed.
    half = np.random.default_rng(0).standard_normal((learning.n_draws // 2, len(free)))
    for normal in np.vstack([half, -half]):
        yield _within_reach(objective, z, free, root @ normal, 0.5 * float(normal @ normal), learning)


def _within_reach(objective, z, free, step, expected, learning) -> FloatArray:
    """The draw at that step from the mode, shortened until the log posterior falls about as expected.

    Where the log posterior is far from quadratic, as with next to no noise, a full step can lead to
    parameters that the data exclude.
    """
    low, high = objective.slots.bounds.T
    at_mode = objective.value(z)
    for _ in range(learning.most_halvings):
        drawn = z.copy()
        drawn[free] += step
        drawn = np.clip(drawn, low, high)
        if objective.value(drawn) - at_mode <= expected + learning.slack:
            return drawn
        step, expected = 0.5 * step, 0.25 * expected
    return z.copy()
