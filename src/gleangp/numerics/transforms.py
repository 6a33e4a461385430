"""Parameters with bounds, on scales without: identity, logarithm, logit."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit

from gleangp._typing import FloatArray


def constrain(transform: str, free: ArrayLike) -> FloatArray:
    """Parameter value of an unbounded one: the inverse of `unconstrain`.

    Parameters
    ----------
    transform : {"identity", "log", "logit"}
        Scale on which the parameter is unbounded.
    free : array-like
        Value on that scale.

    Returns
    -------
    ndarray
        The value in natural units.

    Examples
    --------
    >>> float(constrain("logit", 0.0))
    0.5
    """
    match transform:
        case "identity":
            return np.asarray(free, dtype=np.float64)[()]
        case "log":
            return np.exp(free)
        case "logit":
            return expit(free)
    raise _unknown_transform(transform)


def unconstrain(transform: str, value: ArrayLike) -> FloatArray:
    """Parameter on the scale on which it is unbounded.

    Parameters
    ----------
    transform : {"identity", "log", "logit"}
        That scale.
    value : array-like
        Value in natural units.

    Returns
    -------
    ndarray
        The value on that scale.

    Examples
    --------
    >>> float(unconstrain("log", 1.0))
    0.0
    """
    match transform:
        case "identity":
            return np.asarray(value, dtype=np.float64)[()]
        case "log":
            return np.log(value)
        case "logit":
            return logit(value)
    raise _unknown_transform(transform)


def constrain_slope(transform: str, value: ArrayLike) -> FloatArray:
    """d value / d free: turns a gradient in natural units into one on the unbounded scale.

    Parameters
    ----------
    transform : {"identity", "log", "logit"}
        Scale on which the parameter is unbounded.
    value : array-like
        Value in natural units.

    Returns
    -------
    ndarray
        Factor for the gradient.

    Examples
    --------
    >>> float(constrain_slope("logit", 0.5))
    0.25
    """
    value = np.asarray(value, dtype=np.float64)
    match transform:
        case "identity":
            return np.ones_like(value)[()]
        case "log":
            return value[()]
        case "logit":
            return value * (1.0 - value)
    raise _unknown_transform(transform)


def _unknown_transform(transform: str) -> ValueError:
    return ValueError(
        f"unknown transform {transform!r}: expected 'identity', 'log' or 'logit', as in the "
        "`transforms` of a noise model."
    )
