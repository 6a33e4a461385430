"""What a candidate point is worth: scores of points that are not yet in the active set.

A criterion gives a `key` that orders the candidates of one filter, and turns keys into nats.
`key_bound` is an upper bound of the key while the marginals move inside a box; it lets many picks
be made at once and still be exactly the greedy ones (`selection.greedy`).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from gleangp._typing import FloatArray
from gleangp.inference.filtering import Look, look_at_rows
from gleangp.noise import NoiseModel


def _sound(look: Look, var):
    """nu var and g, neither of which is more than zero for rows without a sound site (`filtering.speaks`)."""
    q = look.nu * var
    return np.where(look.sound, q, np.minimum(q, 0.0)), np.where(look.sound, look.g, 0.0)


class Criterion(Protocol):
    """How much a point would tell, from the noise model's moments at its marginal."""

    def key(self, noise: NoiseModel, y: FloatArray, mean: FloatArray, var: FloatArray) -> FloatArray:
        """Any increasing function of the gain, comparable between points and tasks."""

    def key_seen(self, look: Look, var: FloatArray) -> FloatArray:
        """The same for noise that is not log-concave, from its moments."""

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
            return self.key_seen(look_at_rows(noise, y, mean, var), var)
        key = noise.precision(y, mean, var)
        return np.multiply(key, var, out=key)

    def key_seen(self, look, var):
        return _sound(look, var)[0]

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
        if not noise.log_concave:
            return self.key_seen(look_at_rows(noise, y, mean, var), var)
        _, g, nu = noise.log_partition(y, mean, var)
        return _information(nu * var, g, var)

    def key_seen(self, look, var):
        return _information(*_sound(look, var), var)

    def gain(self, key):
        return key

    def key_bound(self, noise, y, mean_low, mean_high, var_low, var_high):
        return None


def _information(q, g, var):
    return 0.5 * (-np.log1p(-np.minimum(q, 1.0 - 2.0**-53)) - q + g * g * var)
