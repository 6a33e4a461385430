"""Central differences, with which tests compare gradients."""

import numpy as np


def central(function, at, step=1e-5):
    """Gradient of a scalar function of an array, or of a number."""
    at = np.asarray(at, dtype=float)
    gradient = np.empty(at.shape)
    for place in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[place] += step
        down[place] -= step
        gradient[place] = (function(up) - function(down)) / (2.0 * step)
    return gradient
