"""Kernel and noise as one vector: log-parameters of the kernel, then free ones of the noise model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from gleangp._typing import FloatArray
from gleangp.kernels.parameters import MovingKernel
from gleangp.models.priors import Prior
from gleangp.models.slots import Slot, Slots, kernel_slots
from gleangp.numerics.transforms import unconstrain

_NOISE_BOUNDS = {"identity": (-10.0, 10.0), "log": (np.log(1e-6), np.log(1e3)), "logit": (-9.0, 9.0)}


@dataclass(frozen=True, eq=False)
class Parameters:
    """What is learnt, and its priors, named as the slots are: noise parameters begin with "noise__".

    `noise` carries the present values; `learn_noise` names those that are free.
    """

    kernel: Any
    noise: Any
    learn_noise: tuple[str, ...] = ()
    priors: Mapping[str, Prior] = field(default_factory=dict)
    noise_bounds: Mapping[str, Any] = field(default_factory=dict)  # of files of version 0.1; not used

    @cached_property
    def slots(self) -> Slots:
        """The vector, which starts at the present values."""
        slots = kernel_slots(self.kernel, self.priors)
        for name in self.learn_noise:
            transform, key = self.noise.transforms[name], f"noise__{name}"
            start = np.atleast_1d(unconstrain(transform, self.noise.parameters[name]))
            slots.append(Slot(key, start, *_NOISE_BOUNDS[transform], self.priors.get(key), transform))
        return Slots(slots)

    @cached_property
    def n_kernel(self) -> int:
        """Number of free kernel parameters."""
        return self.slots.size - sum(np.size(self.noise.parameters[n]) for n in self.learn_noise)

    def kernel_at(self, z: FloatArray) -> Any:
        """The kernel at z."""
        return MovingKernel(self.kernel).at(z[: self.n_kernel])

    def noise_values(self, z: FloatArray) -> dict[str, float | FloatArray]:
        """The free noise parameters in natural units."""
        values = {name: self.slots.natural(z, f"noise__{name}") for name in self.learn_noise}
        return {n: v if np.ndim(self.noise.parameters[n]) else float(v[0]) for n, v in values.items()}

    def noise_gradient(self, z: FloatArray, natural: Mapping[str, FloatArray]) -> FloatArray:
        """Gradient on the free scale from per-row gradients in natural units."""
        slopes = [self.slots.slope(z, f"noise__{name}") for name in self.learn_noise]
        sums = [np.sum(natural[name], axis=0) for name in self.learn_noise]
        return np.concatenate([np.zeros(0), *(s * slope for s, slope in zip(sums, slopes, strict=True))])

    def with_values(self, z: FloatArray) -> Parameters:
        """The same, at the values z."""
        return replace(self, kernel=self.kernel_at(z), noise=replace(self.noise, **self.noise_values(z)))
