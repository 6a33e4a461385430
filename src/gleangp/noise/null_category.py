"""Null-category noise, for two classes with unlabelled rows.

Lawrence, Platt & Jordan 2005, sections 4.1-4.2. Between the two classes lies a region of f from
which no data come: a label is missing with probability `gamma_minus` or `gamma_plus` in either
class, and never in the region. An unlabelled row therefore pushes the latent function out of the
region, to one side or to both, which is how unlabelled rows move the decision boundary to where
data are thin.

Departure from the paper: none in the model; the factors 1 - gamma of labelled rows, which do not
matter to the latent function, are kept in log_z because the gammas are learnt from them. Negative
nu (Lawrence, Platt & Jordan 2005, section 4.3) is returned as it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import log_ndtr

from gleangp._typing import FloatArray
from gleangp.noise.base import Floats, Partition, TwoClasses
from gleangp.numerics.special import log_ndtr_derivatives

_STEP_VARIANCE = 2.0**-52


@dataclass(frozen=True, eq=False)
class NullCategory(TwoClasses):
    """Two classes, -1 and +1, and 0 for a missing label, with a region between that excludes data.

    With c = 1 / sqrt(variance), Phi_minus = Phi(-(f + bias + width / 2) c) and
    Phi_plus = Phi((f + bias - width / 2) c)::

        p(-1 | f) = (1 - gamma_minus) Phi_minus
        p(+1 | f) = (1 - gamma_plus) Phi_plus
        p( 0 | f) = gamma_minus Phi_minus + gamma_plus Phi_plus

    Parameters
    ----------
    bias : float or ndarray of shape (n,)
        Offset added to the latent function.
    gamma_minus, gamma_plus : float or ndarray of shape (n,)
        Probability that a row of class -1, +1 is unlabelled. One per row, up to a common factor, where other
        classes have a say in it (`inference.exclusive`).
    width : float
        Width of the null category. The paper fixes it to one: it trades off against the scale of
        the kernel.
    variance : float or ndarray of shape (n,)
        Variance of the Gaussian by which the steps were convolved. The default leaves them steps,
        as in the paper, where white noise of the kernel, which adds to the latent variance,
        softens them.

    Notes
    -----
    p(0 | f) is not log-concave: nu is negative where f ~ N(mean, var) spans the null category.

    Examples
    --------
    An unlabelled row in the middle of the null category widens the latent distribution:

    >>> log_z, g, nu = NullCategory().log_partition(y=0.0, mean=0.0, var=1.0)
    >>> float(g.round(4)), float(nu.round(4))
    (0.0, -0.5705)

    The log probabilities of both classes, and the latent mean in deviations:

    >>> noise = NullCategory()
    >>> log_no, log_yes = noise.class_log_prob(mean=1.0, var=3.0)
    >>> float(np.exp(log_yes).round(2)), float(noise.margin(mean=1.0, var=3.0).round(2))
    (0.76, 0.58)
    """

    bias: Floats = 0.0
    gamma_minus: Floats = 0.5
    gamma_plus: Floats = 0.5
    width: float = 1.0
    variance: Floats = _STEP_VARIANCE

    log_concave: ClassVar[bool] = False
    transforms: ClassVar[Mapping[str, str]] = {
        "bias": "identity",
        "gamma_minus": "logit",
        "gamma_plus": "logit",
        "width": "log",
        "variance": "log",
    }

    def log_prob(self, y: Floats, f: Floats) -> FloatArray:  # also where a gamma of 1 or 0 forbids a label
        weights, arguments = self._log_weights(y), self._arguments(f, 0.0)
        return np.logaddexp(*(weight + log_ndtr(u) for weight, u in zip(weights, arguments, strict=True)))

    def log_partition(self, y: Floats, mean: Floats, var: Floats) -> Partition:
        log_z, minus, plus = self._sides(y, mean, var)
        total = var + self.variance
        g = (plus.share * plus.h - minus.share * minus.h) / np.sqrt(total)
        # -d**2 log Z / d mean**2 of a mixture: the mean curvature of its parts less the variance
        # of their slopes.
        within = minus.share * minus.curvature + plus.share * plus.curvature
        between = minus.share * plus.share * (minus.h + plus.h) ** 2
        return log_z, g, (within - between) / total

    def log_partition_grad(self, y: Floats, mean: Floats, var: Floats) -> dict[str, FloatArray]:
        log_z, minus, plus = self._sides(y, mean, var)
        c = 1.0 / np.sqrt(var + self.variance)
        minus_slope, plus_slope = minus.share * minus.h, plus.share * plus.h
        return {
            "bias": (plus_slope - minus_slope) * c,
            "gamma_minus": self._gamma_grad(y, log_z, minus, self.gamma_minus, -1),
            "gamma_plus": self._gamma_grad(y, log_z, plus, self.gamma_plus, 1),
            "width": -0.5 * (minus_slope + plus_slope) * c,
            "variance": -0.5 * (minus_slope * minus.u + plus_slope * plus.u) * c**2,
        }

    def class_log_prob(self, mean: Floats, var: Floats) -> tuple[FloatArray, FloatArray]:
        """log of the probabilities of -1 and of +1 of a new row, which is not in the null category.

        Whether labels are missing does not matter to the class, so the gammas do not enter.
        """
        minus, plus = self.log_sides(mean, var)
        total = np.logaddexp(minus, plus)
        return minus - total, plus - total

    def log_sides(self, mean: Floats, var: Floats) -> tuple[FloatArray, FloatArray]:
        """log of the probabilities that f ~ N(mean, var) is below and above the null category."""
        minus, plus = self._arguments(mean, var)
        return log_ndtr(minus), log_ndtr(plus)

    def margin(self, mean: Floats, var: Floats) -> FloatArray:
        """Distance from the boundary in predictive deviations; positive for +1."""
        return (mean + self.bias) / np.sqrt(var + self.variance)

    @staticmethod
    def is_labeled(y: FloatArray) -> np.ndarray:
        """Which targets are labels: learning on part of the rows takes those first."""
        return y != 0.0

    def _arguments(self, mean: Floats, var: Floats) -> tuple[FloatArray, FloatArray]:
        """How far the mean is inside the half-lines of either class, in deviations."""
        c, centred = 1.0 / np.sqrt(var + self.variance), np.add(mean, self.bias)
        return -(centred + 0.5 * self.width) * c, (centred - 0.5 * self.width) * c

    def _log_weights(self, y: Floats) -> tuple[FloatArray, FloatArray]:
        """Logarithms of what the label leaves of either class."""
        missing = np.equal(y, 0)
        with np.errstate(divide="ignore"):  # a gamma of 1 or 0 excludes a class: log -inf
            minus, plus = (
                np.where(missing, np.log(gamma), np.where(np.equal(y, label), np.log1p(-gamma), -np.inf))
                for gamma, label in ((self.gamma_minus, -1), (self.gamma_plus, 1))
            )
        return minus, plus

    def _sides(self, y: Floats, mean: Floats, var: Floats) -> tuple[FloatArray, "_Side", "_Side"]:
        """log_z, and what each class contributes to it given what is known of the label."""
        arguments = self._arguments(mean, var)
        found = [log_ndtr_derivatives(u) for u in arguments]
        logs = [weight + part[0] for weight, part in zip(self._log_weights(y), found, strict=True)]
        log_z = np.logaddexp(*logs)
        minus, plus = (
            _Side(u, *part, np.exp(log - log_z)) for u, part, log in zip(arguments, found, logs, strict=True)
        )
        return log_z, minus, plus

    @staticmethod
    def _gamma_grad(y: Floats, log_z: FloatArray, side: "_Side", gamma: Floats, label: int) -> FloatArray:
        missing, is_label = np.equal(y, 0), np.equal(y, label)
        if_missing = np.exp(np.where(missing, side.log_phi - log_z, -np.inf))
        return np.where(is_label, -1.0 / (1.0 - gamma), if_missing)


class _Side(NamedTuple):
    """One class: the argument of Phi, log Phi and its derivatives, and its posterior share."""

    u: FloatArray
    log_phi: FloatArray
    h: FloatArray
    curvature: FloatArray
    share: FloatArray
