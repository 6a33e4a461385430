"""The normal distribution function in its tails, and the transforms of positive parameters.

Noise models need log Phi(z), its first two derivatives, and the same for the mass of an interval,
Phi(u) - Phi(v). Written naively these lose all digits a few standard deviations out. Here every
function is right in both tails: ratios are formed from scaled functions (`erfcx`), differences of
nearly equal numbers are avoided or replaced by a series, and nothing is clipped.

N and Phi are the density and the distribution function of the standard normal.
"""

from typing import Final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx, log_ndtr

from gleangp._typing import FloatArray

_SQRT_HALF: Final = np.sqrt(0.5)
_SQRT_TWO_OVER_PI: Final = np.sqrt(2.0 / np.pi)

# h (h + z) as z -> -inf in powers of 1 / z**2, from the expansion of the Mills ratio (Abramowitz &
# Stegun 1964, 26.2.12). Below _FAR_LEFT the sum h + z has lost more digits than this series drops.
_FAR_LEFT: Final = -20.0
_FAR_LEFT_SERIES: Final = (
    1.0, -1.0, 6.0, -50.0, 518.0, -6354.0, 89782.0, -1435330.0, 25625910.0, -505785122.0
)  # fmt: skip


def hazard(z: ArrayLike) -> FloatArray:
    """N(z) / Phi(z), the first derivative of log Phi(z).

    Parameters
    ----------
    z : array-like

    Returns
    -------
    ndarray
        About -z for z << 0; underflows to 0 for z > 38.

    Examples
    --------
    >>> hazard([-1e4, 0.0, 40.0]).round(4)
    array([1.00000001e+04, 7.97900000e-01, 0.00000000e+00])
    """
    return _SQRT_TWO_OVER_PI / erfcx(np.multiply(z, -_SQRT_HALF))


def log_ndtr_curvature(z: ArrayLike) -> FloatArray:
    """h (h + z) with h = N(z) / Phi(z): minus the second derivative of log Phi(z).

    Parameters
    ----------
    z : array-like

    Returns
    -------
    ndarray
        In (0, 1]: it falls from 1 on the far left, which it reaches by rounding, to 0 on the right.

    Examples
    --------
    >>> log_ndtr_curvature([-1e9, -3.0, 0.0, 50.0]).round(4)
    array([1.    , 0.9294, 0.6366, 0.    ])
    """
    z = np.asarray(z, dtype=np.float64)
    return _curvature(z, hazard(z))


def log_ndtr_derivatives(z: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """log Phi(z), its first derivative, and minus its second.

    Parameters
    ----------
    z : array-like

    Returns
    -------
    log_phi, h, curvature : ndarray
        log Phi(z), `hazard(z)` and `log_ndtr_curvature(z)`.

    Examples
    --------
    >>> [float(a.round(4)) for a in log_ndtr_derivatives(0.0)]
    [-0.6931, 0.7979, 0.6366]
    """
    z = np.asarray(z, dtype=np.float64)
    h = hazard(z)
    return log_ndtr(z), h, _curvature(z, h)


def _curvature(z: FloatArray, h: FloatArray) -> FloatArray:
    out = np.asarray(h + z)
    out *= h
    far = z < _FAR_LEFT
    if far.any():
        z_far = z[far]
        out[far] = np.polynomial.polynomial.polyval(1.0 / (z_far * z_far), _FAR_LEFT_SERIES)
    return out[()]
