"""Observations as a latent space explains them: centred, in one unit, along their leading components.

All features share one unit, so features in different units are for the user to standardise. The
rotation to principal components loses nothing but what the components left out carry; it makes the
inputs of the back-constraint well conditioned, and the cost of a fit independent of the number of features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh

from gleangp._state import LARGEST, check_arrays
from gleangp._typing import FloatArray

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
