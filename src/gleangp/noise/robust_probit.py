"""Probit noise with a share of wrong labels."""

from dataclasses import dataclass

import numpy as np
from scipy.special import erf, log_ndtr

from gleangp._typing import FloatArray
from gleangp.noise.base import Floats, Three, TwoClasses
from gleangp.numerics.special import log_ndtr_derivatives

_SQRT_HALF = np.sqrt(0.5)


@dataclass(frozen=True, eq=False)
class RobustProbit(TwoClasses):
    """p(y | f) = flip + (1 - 2 flip) Phi(y (f + bias)) for y in {-1, +1}.

    Parameters
    ----------
    flip : float or ndarray of shape (n,)
        Probability that a label was changed to that of the other class, below one half.
    bias : float or ndarray of shape (n,)
        Offset added to the latent function.

    Notes
    -----
    Not log-concave: a label far on the wrong side of the boundary has nu < 0, and further out no influence.

    Examples
    --------
    >>> log_z, g, nu = RobustProbit(flip=0.1).log_partition(y=1.0, mean=-4.0, var=0.5)
    >>> float(np.exp(log_z).round(4)), float(g.round(4)), float(nu.round(4))
    (0.1004, 0.0125, -0.0332)
    """

    flip: Floats = 0.05
    bias: Floats = 0.0

    log_concave = False
    transforms = {"flip": "logit", "bias": "identity"}
    priors = {"flip": (0.01, 1.5)}

    def log_partition(self, y: Floats, mean: Floats, var: Floats) -> Three:
        c = y / np.sqrt(1.0 + np.asarray(var))
        z = (mean + self.bias) * c
        log_phi, h, curvature = log_ndtr_derivatives(z)
        # A sum over both classes is also right for a flip above one half, where a search may pass.
        with np.errstate(divide="ignore"):  # log 0 = -inf is right where no label is flipped
            log_z = np.logaddexp(np.log(self.flip) + log_ndtr(-z), np.log1p(-self.flip) + log_phi)
        true = (1.0 - 2.0 * self.flip) * np.exp(log_phi - log_z)  # share of labels that are not flipped
        return log_z, true * h * c, true * (curvature - (1.0 - true) * h**2) * c**2

    def log_partition_grad(self, y: Floats, mean: Floats, var: Floats) -> dict[str, FloatArray]:
        log_z, g, _ = self.log_partition(y, mean, var)
        z = y * (mean + self.bias) / np.sqrt(1.0 + np.asarray(var))
        return {"flip": -erf(z * _SQRT_HALF) * np.exp(-log_z), "bias": g}
