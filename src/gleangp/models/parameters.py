"""One vector for everything that is learnt: the kernel's log-parameters, then the noise model's.

Noise parameters enter on the scale on which they are unbounded ("log", "logit" or as they are).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.kernels.parameters import KernelParameters, MovingKernel
from gleangp.models.priors import LogNormal, Prior
from gleangp.numerics.transforms import constrain, constrain_slope, unconstrain

_NOISE_BOUNDS = {"identity": (-10.0, 10.0), "log": (np.log(1e-6), np.log(1e3)), "logit": (-9.0, 9.0)}


@dataclass(frozen=True, eq=False)
class Parameters:
    """Packs and unpacks what is learnt.

    `noise` carries the present values; `learn_noise` names those that are free.
    """

    kernel: Any
    noise: Any
    learn_noise: tuple[str, ...] = ()
    priors: Mapping[str, Prior] = field(default_factory=dict)
    noise_bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # natural units

    @cached_property
    def _of_kernel(self) -> KernelParameters:
        return KernelParameters(self.kernel)

    @cached_property
    def n_kernel(self) -> int:
        """Number of free kernel parameters."""
        return self._of_kernel.n_dims

    def start(self) -> FloatArray:
        """The present values."""
        return np.concatenate(
            [self._of_kernel.theta, *(self._free(n, self.noise.parameters[n]) for n in self.learn_noise)]
        )

    def bounds(self) -> FloatArray:
        """(q, 2) on the free scale."""
        rows = [self._of_kernel.bounds]
        for name in self.learn_noise:
            size = np.size(self.noise.parameters[name])
            rows.append(np.tile(self._bounds_of(name), (size, 1)))
        return np.vstack(rows)

    def unpack(self, z: FloatArray):
        """Kernel and noise values at z."""
        return MovingKernel(self.kernel).at(z[: self.n_kernel]), self.noise_values(z)

    def noise_values(self, z: FloatArray) -> dict[str, float | FloatArray]:
        """The free noise parameters in natural units."""
        values, at = {}, self.n_kernel
        for name in self.learn_noise:
            size = np.size(self.noise.parameters[name])
            part = constrain(self.noise.transforms[name], z[at : at + size])
            values[name] = float(part[0]) if np.ndim(self.noise.parameters[name]) == 0 else part
            at += size
        return values

    def noise_gradient(self, z: FloatArray, natural: Mapping[str, FloatArray]) -> FloatArray:
        """Gradient on the free scale from per-row gradients in natural units."""
        parts, values = [], self.noise_values(z)
        for name in self.learn_noise:
            grad = np.atleast_1d(np.sum(natural[name], axis=0))
            parts.append(grad * constrain_slope(self.noise.transforms[name], np.atleast_1d(values[name])))
        return np.concatenate(parts) if parts else np.empty(0)

    def log_prior(self, z: FloatArray) -> tuple[float, FloatArray]:
        """Log density of the priors, and its gradient on the free scale."""
        gradient = np.zeros(len(z))
        if not self.priors:
            return 0.0, gradient
        (entries, log_median, spread, constant), others = self._priors_by_kind
        off = (z[entries] - log_median) / spread
        value = constant - 0.5 * float(off @ off)
        gradient[entries] = -off / spread
        for name, part, prior in others:
            x, dx_dz = self._natural(name, z[part])
            log_p, slope = prior.log_prob(x)
            value += float(np.sum(log_p))
            gradient[part] += slope * dx_dz
        return value, gradient

    def with_values(self, z: FloatArray) -> Parameters:
        """The same, at the values z."""
        kernel, values = self.unpack(z)
        return replace(self, kernel=kernel, noise=replace(self.noise, **values))

    @cached_property
    def _priors_by_kind(self) -> tuple[tuple[IntArray, FloatArray, FloatArray, float], list[tuple]]:
        """Normal priors of logarithms (entries, log medians, spreads, log normaliser), and the others.

        The first are most, and one formula for all: a search asks for them at every step.
        """
        normal, others, at = [], [], 0
        for name, size in self._layout:
            prior, part = self.priors.get(name), slice(at, at + size)
            at += size
            if type(prior) is LogNormal and self._is_log(name):
                log_median = np.broadcast_to(np.log(prior.median), size)
                normal.append((np.arange(part.start, part.stop), log_median, np.full(size, prior.spread)))
            elif prior is not None:
                others.append((name, part, prior))
        columns = zip(*normal, strict=True) if normal else ([np.zeros(0, dtype=np.intp)], [], [])
        entries, log_median, spread = (np.concatenate([*parts, []]) for parts in columns)
        constant = -float(np.sum(np.log(spread))) - 0.5 * len(spread) * np.log(2.0 * np.pi)
        return (entries.astype(np.intp), log_median, spread, constant), others

    def _is_log(self, name: str) -> bool:
        """Whether a parameter named as in `priors` is searched by its logarithm, as kernel parameters are."""
        noise = name.removeprefix("noise__")
        return noise == name or self.noise.transforms[noise] == "log"

    @cached_property
    def _layout(self) -> list[tuple[str, int]]:
        of_noise = [(f"noise__{n}", np.size(self.noise.parameters[n])) for n in self.learn_noise]
        return self._of_kernel.layout + of_noise

    def _bounds_of(self, name: str) -> tuple[float, float]:
        transform = self.noise.transforms[name]
        if name in self.noise_bounds:
            low, high = self.noise_bounds[name]
            return float(unconstrain(transform, low)), float(unconstrain(transform, high))
        return _NOISE_BOUNDS[transform]

    def _natural(self, name: str, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Values of a parameter named as in `priors`, and their slope on the free scale."""
        if not name.startswith("noise__"):
            return np.exp(z), np.exp(z)  # kernel parameters are all on the log scale
        name = name.removeprefix("noise__")
        x = constrain(self.noise.transforms[name], z)
        return x, constrain_slope(self.noise.transforms[name], x)

    def _free(self, name: str, value: FloatArray | float) -> FloatArray:
        """A noise parameter (k,) on its free scale."""
        return np.atleast_1d(unconstrain(self.noise.transforms[name], value))
