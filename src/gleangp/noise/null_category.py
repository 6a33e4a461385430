"""Null-category noise, for two classes with unlabelled rows.

Lawrence, Platt & Jordan 2005, sections 4.1-4.2. Between the two classes lies a region of f from which no data
come: a label is missing with probability `gamma_minus` or `gamma_plus` in either class, and never in the
region. An unlabelled row therefore pushes the latent function out of the region, to one side or to both. In
this way unlabelled rows move the decision boundary to where data are thin.

The factors 1 - gamma of labelled rows, which do not matter to the latent function, are kept in log_z because
the gammas are learnt from them. Negative nu (section 4.3) is returned as it is.
"""

from dataclasses import dataclass

import numpy as np

from gleangp._typing import FloatArray
from gleangp.noise.base import Floats, Mixture, Three
from gleangp.noise.classes import Probit, TwoClasses

_STEP_VARIANCE = 2.0**-52


@dataclass(frozen=True, eq=False)
class NullCategory(TwoClasses, Mixture):
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
        Width of the null category. The paper fixes it to one: it trades off against the scale of the kernel.
    variance : float or ndarray of shape (n,)
        Of the Gaussian by which the steps were convolved. The default leaves them steps, as in the paper,
        where white noise of the kernel, which adds to the latent variance, softens them.

    Examples
    --------
    p(0 | f) is not log-concave: an unlabelled row in the middle widens the latent distribution.

    >>> log_z, g, nu = NullCategory().log_partition(y=0.0, mean=0.0, var=1.0)
    >>> float(g.round(4)), float(nu.round(4))
    (0.0, -0.5705)
    """

    bias: Floats = 0.0
    gamma_minus: Floats = 0.5
    gamma_plus: Floats = 0.5
    width: float = 1.0
    variance: Floats = _STEP_VARIANCE

    transforms = {
        "bias": "identity",
        "gamma_minus": "logit",
        "gamma_plus": "logit",
        "width": "log",
        "variance": "log",
    }

    def log_partition_grad(self, y: Floats, mean: Floats, var: Floats) -> dict[str, FloatArray]:
        (log_z, _, _), (p_minus, p_plus), (minus, plus) = self._mixed(y, mean, var)

        def of_gamma(log_phi: FloatArray, gamma: Floats, label: int) -> FloatArray:
            if_missing = np.exp(np.where(np.equal(y, 0), log_phi - log_z, -np.inf))
            return np.where(np.equal(y, label), -1.0 / (1.0 - gamma), if_missing)

        return {
            **super().log_partition_grad(y, mean, var),
            "gamma_minus": of_gamma(minus[0], self.gamma_minus, -1),
            "gamma_plus": of_gamma(plus[0], self.gamma_plus, 1),
            "width": 0.5 * (p_minus * minus[1] - p_plus * plus[1]),
        }

    def log_sides(self, mean: Floats, var: Floats) -> tuple[FloatArray, FloatArray]:
        """log of the probabilities that f ~ N(mean, var) is below and above the null category.

        A new row is not in between. Whether labels are missing does not matter, so gammas do not enter.
        """
        minus, plus = self._sides(mean, var)
        return minus[0], plus[0]

    def margin(self, mean: Floats, var: Floats) -> FloatArray:
        """Distance from the boundary in predictive deviations; positive for +1."""
        return (mean + self.bias) / np.sqrt(var + self.variance)

    @staticmethod
    def is_labeled(y: FloatArray) -> np.ndarray:
        """Which targets are labels: learning on part of the rows takes those first."""
        return y != 0.0

    def _sides(self, mean: Floats, var: Floats) -> tuple[Three, Three]:
        """log_z, g and nu of the half-line of either class: a step at its edge of the null category."""
        half, slope = 0.5 * self.width, np.asarray(self.variance) ** -0.5
        minus = Probit(self.bias + half, slope).log_partition(-1.0, mean, var)
        return minus, Probit(self.bias - half, slope).log_partition(1.0, mean, var)

    def _parts(self, y: Floats, mean: Floats, var: Floats) -> tuple[list[FloatArray], tuple[Three, Three]]:
        """What the label leaves of either class, and their half-lines."""
        missing, sides = np.equal(y, 0), ((self.gamma_minus, -1), (self.gamma_plus, 1))
        with np.errstate(divide="ignore"):  # a gamma of 1 or 0 excludes a class: log -inf
            log_weights = [
                np.where(missing, np.log(gamma), np.where(np.equal(y, label), np.log1p(-gamma), -np.inf))
                for gamma, label in sides
            ]
        return log_weights, self._sides(mean, var)
