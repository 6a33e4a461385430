"""Parameters with bounds, on scales without: identity, logarithm, logit."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit

from gleangp._typing import FloatArray

# From the free scale to the parameter; back; and the slope of the first, from the parameter.
_TRANSFORMS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = {
    "identity": (lambda free: free[()], lambda value: value[()], lambda value: np.ones_like(value)[()]),
    "log": (np.exp, np.log, lambda value: value[()]),
    "logit": (expit, logit, lambda value: value * (1.0 - value)),
}


def constrain(transform: str, free: ArrayLike) -> FloatArray:
    """Parameter in natural units from its value on the unbounded scale.

    Examples
    --------
    >>> float(constrain("logit", 0.0))
    0.5
    """
    return _functions(transform)[0](np.asarray(free, dtype=np.float64))


def unconstrain(transform: str, value: ArrayLike) -> FloatArray:
    """Parameter on the scale on which it is unbounded, from its value in natural units.

    Examples
    --------
    >>> float(unconstrain("log", 1.0))
    0.0
    """
    return _functions(transform)[1](np.asarray(value, dtype=np.float64))


def constrain_slope(transform: str, value: ArrayLike) -> FloatArray:
    """d value / d free: turns a gradient in natural units into one on the unbounded scale.

    Examples
    --------
    >>> float(constrain_slope("logit", 0.5))
    0.25
    """
    return _functions(transform)[2](np.asarray(value, dtype=np.float64))


def _functions(transform: str) -> tuple[Callable[..., Any], ...]:
    if transform not in _TRANSFORMS:
        raise ValueError(
            f"unknown transform {transform!r}: expected 'identity', 'log' or 'logit', as in the "
            "`transforms` of a noise model."
        )
    return _TRANSFORMS[transform]
