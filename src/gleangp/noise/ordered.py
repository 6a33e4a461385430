"""Noise of ordered categories."""

from dataclasses import dataclass

import numpy as np

from gleangp._typing import FloatArray
from gleangp.noise.base import Floats, NoiseModel, Three
from gleangp.numerics.special import log_diff_ndtr_derivatives


@dataclass(frozen=True, eq=False)
class Ordered(NoiseModel):
    """p(y | f) = Phi((f + bias - b_y) c) - Phi((f + bias - b_{y+1}) c) for y in 0, ..., C - 1.

    The latent function plus Gaussian noise lies between two of C - 1 ordered edges: b_0 = -inf, b_1 = 0, then
    the running sum of `widths`, and b_C = inf. Here c = 1 / sqrt(variance). Lawrence, Platt & Jordan 2005,
    sections 3.4 and 4.1, have three categories.

    Parameters
    ----------
    bias : float or ndarray of shape (n,)
        Offset added to the latent function.
    widths : array-like of shape (C - 2,)
        Widths of the inner categories; the outer two have no end.
    variance : float or ndarray of shape (n,)
        Of the Gaussian by which the steps were convolved. It trades off against the scale of the kernel.

    Examples
    --------
    >>> noise = Ordered(bias=0.5, widths=[1.0])
    >>> np.exp(noise.log_prob(np.array([0, 1, 2]), 0.0)).round(4)
    array([0.3085, 0.3829, 0.3085])
    """

    bias: Floats = 0.0
    widths: FloatArray = (1.0,)  # type: ignore[assignment]
    variance: Floats = 1.0

    transforms = {"bias": "identity", "widths": "log", "variance": "log"}
    of_all_rows = ("widths",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", np.array(self.widths, dtype=np.float64))

    @property
    def n_categories(self) -> int:
        """C."""
        return len(self.widths) + 2

    @property
    def edges(self) -> FloatArray:
        """b_0 = -inf, b_1 = 0, ..., b_C = inf: category y lies between edges y and y + 1."""
        return np.concatenate([[-np.inf, 0.0], np.cumsum(self.widths), [np.inf]])

    def log_partition(self, y: Floats, mean: Floats, var: Floats) -> Three:
        (log_z, _, _, slope, curvature), total = self._interval(y, mean, var)
        return log_z, slope / np.sqrt(total), curvature / total

    def log_partition_grad(self, y: Floats, mean: Floats, var: Floats) -> dict[str, FloatArray]:
        (_, _, at_upper_edge, slope, curvature), total = self._interval(y, mean, var)
        c = 1.0 / np.sqrt(total)
        # Width j shifts both edges of the categories above j + 1, and the upper one of j + 1.
        above = np.subtract(y, 1)[..., np.newaxis] - np.arange(len(self.widths))
        d_shift, d_upper = (-slope * c)[..., np.newaxis], (at_upper_edge * c)[..., np.newaxis]
        return {
            "bias": slope * c,
            "widths": np.where(above > 0, d_shift, np.where(above == 0, d_upper, 0.0)),
            "variance": 0.5 * (slope**2 - curvature) / total,
        }

    def _interval(self, y: Floats, mean: Floats, var: Floats) -> tuple[tuple[FloatArray, ...], Floats]:
        """`log_diff_ndtr_derivatives` between the two edges of y, and the variance with that of the noise."""
        total, category = var + self.variance, np.asarray(y).astype(np.intp)
        edges, centred, c = self.edges, mean + self.bias, 1.0 / np.sqrt(total)
        lower, upper = (centred - edges[category]) * c, (centred - edges[category + 1]) * c
        return log_diff_ndtr_derivatives(lower, upper), total
