"""What a candidate point is worth: scores of points that are not yet in the active set.

A criterion gives a `key` that orders the candidates of one filter, and turns keys into nats.
`key_bound` is an upper bound of the key while the marginals move inside a box; it lets many picks
be made at once and still be exactly the greedy ones (`selection.greedy`).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from gleangp._typing import FloatArray
from gleangp.inference.filtering import speaks
from gleangp.noise import NoiseModel


def _sound(noise, y, mean, var):
    """nu var and g, neither of which is more than zero for rows without a sound site (`filtering.speaks`)."""
    log_z, g, nu = noise.log_partition(y, mean, var)
    sound = speaks(log_z, g, nu, var)
    return np.where(sound, nu * var, np.minimum(nu * var, 0.0)), np.where(sound, g, 0.0)


class Criterion(Protocol):
    """How much a point would tell, from the noise model's moments at its marginal."""

    def key(self, noise: NoiseModel, y: FloatArray, mean: FloatArray, var: FloatArray) -> FloatArray:
        """Any increasing function of the gain, comparable between points and tasks."""

    def gain(self, key: FloatArray) -> FloatArray:
        """The gain in nats that belongs to a key."""

    def key_bound(
        self,
        noise: NoiseModel,
        y: FloatArray,
        mean_low: FloatArray,
        mean_high: FloatArray,
        var_low: FloatArray,
        var_high: FloatArray,
    ) -> FloatArray | None:
        """Upper bound of the key over a box of marginals; None where none is known."""


class EntropyReduction:
    """Fall of the entropy of the posterior process: -1/2 log(1 - nu var) (LPJ05 eq. 19)."""

    def key(self, noise, y, mean, var):
        if not noise.log_concave:
            return _sound(noise, y, mean, var)[0]
        key = noise.precision(y, mean, var)
        return np.multiply(key, var, out=key)

    def gain(self, key):
        return -0.5 * np.log1p(-np.minimum(key, 1.0 - 2.0**-53))

    def key_bound(self, noise, y, mean_low, mean_high, var_low, var_high):
        if not hasattr(noise, "precision_bound"):
            return None
        return noise.precision_bound(y, mean_low, mean_high, var_low, var_high) * var_high


class InformationGain:
    """Kullback-Leibler divergence of the posterior with the point from the one without.

    At the point's own marginal: 1/2 [-log(1 - nu var) - nu var + g^2 var] (Lawrence, Seeger &
    Herbrich 2003). Unlike the entropy it also counts how far the mean moves.
    """

    def key(self, noise, y, mean, var):
        if noise.log_concave:
            _, g, nu = noise.log_partition(y, mean, var)
            q = nu * var
        else:
            q, g = _sound(noise, y, mean, var)
        return 0.5 * (-np.log1p(-np.minimum(q, 1.0 - 2.0**-53)) - q + g * g * var)

    def gain(self, key):
        return key

    def key_bound(self, noise, y, mean_low, mean_high, var_low, var_high):
        return None
