"""Probit noise, for two classes (Lawrence, Platt & Jordan 2005, section 2.4)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import log_ndtr

from gleangp._typing import FloatArray
from gleangp.noise import quadrature
from gleangp.noise.base import Rows, field_values, restrict, same_model
from gleangp.special import log_ndtr_curvature, log_ndtr_derivatives


@dataclass(frozen=True, eq=False)
class Probit:
    """p(y | f) = Phi(y slope (f + bias)) for y in {-1, +1}.

    Parameters
    ----------
    bias : float or ndarray of shape (n,)
        Offset added to the latent function.
    slope : float or ndarray of shape (n,)
        lambda of the paper; 1 / slope is the standard deviation of the Gaussian by which a step
        function was convolved. It trades off against the scale of the kernel and its white noise,
        so learn at most one of them.

    Examples
    --------
    >>> log_z, g, nu = Probit().log_partition(y=1.0, mean=0.0, var=3.0)
    >>> float(np.exp(log_z)), float(g.round(4)), float(nu.round(4))
    (0.5, 0.3989, 0.1592)
    """

    bias: float | FloatArray = 0.0
    slope: float | FloatArray = 1.0

    log_concave: ClassVar[bool] = True
    precision_depends_on_mean: ClassVar[bool] = True
    transforms: ClassVar[Mapping[str, str]] = {"bias": "identity", "slope": "log"}

    def __eq__(self, other: object) -> bool:
        return same_model(self, other)

    @property
    def parameters(self) -> dict[str, Any]:
        """`bias` and `slope`."""
        return field_values(self)

    def log_prob(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """log Phi(y slope (f + bias))."""
        return log_ndtr(y * (f + self.bias) * self.slope)

    def log_prob_derivatives(
        self, y: FloatArray, f: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """log p(y | f) and its first and second derivative in f."""
        y_slope = y * np.asarray(self.slope, dtype=np.float64)
        log_p, h, curvature = log_ndtr_derivatives((f + self.bias) * y_slope)
        return log_p, h * y_slope, curvature * (-self.slope * self.slope)

    def log_partition(
        self, y: FloatArray, mean: FloatArray, var: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """log E[p(y | f)] under N(mean, var), with g and nu."""
        total = var + self._variance
        c = y / np.sqrt(total)  # Lawrence, Platt & Jordan 2005, eq. 13
        log_z, h, curvature = log_ndtr_derivatives((mean + self.bias) * c)
        return log_z, h * c, curvature / total  # Lawrence, Platt & Jordan 2005, eqs. 14-15

    def precision(self, y: FloatArray, mean: FloatArray, var: FloatArray) -> FloatArray:
        """nu of `log_partition`, without the rest."""
        total = var + self._variance
        return log_ndtr_curvature(y * (mean + self.bias) / np.sqrt(total)) / total

    def expected_log_prob(
        self, y: FloatArray, mean: FloatArray, var: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """E[log p(y | f)] under N(mean, var), and its derivatives in mean and in var."""
        return quadrature.expected_log_prob(self, y, mean, var, width=1.0 / self.slope)

    def log_partition_grad(
        self, y: FloatArray, mean: FloatArray, var: FloatArray
    ) -> dict[str, FloatArray]:
        """d log_z / d bias and d slope, per row."""
        total = var + self._variance
        c = y / np.sqrt(total)
        u = (mean + self.bias) * c
        _, h, _ = log_ndtr_derivatives(u)
        return {"bias": h * c, "slope": h * u / total * self.slope**-3.0}

    def expected_log_prob_grad(
        self, y: FloatArray, mean: FloatArray, var: FloatArray
    ) -> dict[str, FloatArray]:
        """d E[log p(y | f)] / d bias and d slope, per row."""
        d_variance = self.absorbed_grad(y, mean, var)
        _, d_mean, _ = self.expected_log_prob(y, mean, var)
        return {"bias": d_mean, "slope": -2.0 * self.slope**-3.0 * d_variance}

    def absorb(self, variance: float | FloatArray) -> Self:
        """The model when Gaussian noise of that variance is added to f."""
        # Below eq. 15 of Lawrence, Platt & Jordan 2005: lambda**-2 adds to the latent variance.
        return replace(self, slope=1.0 / np.sqrt(self._variance + variance))

    def absorbed_grad(self, y: FloatArray, mean: FloatArray, var: FloatArray) -> FloatArray:
        """d E[log p(y | f)] / d absorbed variance, per row."""
        return quadrature.absorbed_grad(self, y, mean, var, width=1.0 / self.slope)

    def at(self, rows: Rows) -> Self:
        """The model of those rows."""
        return restrict(self, rows)

    @property
    def _variance(self) -> float | FloatArray:
        return 1.0 / (self.slope * self.slope)
