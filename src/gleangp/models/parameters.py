"""Everything that is learnt as one vector: named slots with starts, bounds and priors.

A positive parameter enters by its logarithm, one between 0 and 1 by its logit, others as they are.
`Parameters` are those of one kernel and one noise model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import expit, logit

from gleangp._typing import FloatArray
from gleangp.kernels.evaluate import MovingKernel
from gleangp.numerics.optimize import Optimum, minimize

# From the free scale to the parameter; back; and the slope of the first, from the parameter.
_TRANSFORMS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = {
    "identity": (np.positive, np.positive, np.ones_like),
    "log": (np.exp, np.log, np.positive),
    "logit": (expit, logit, lambda value: value * (1.0 - value)),
}


def constrain(transform: str, free: Any) -> FloatArray:
    """Parameter in natural units from its value on the unbounded scale."""
    return _TRANSFORMS[transform][0](np.asarray(free, dtype=np.float64))


def unconstrain(transform: str, value: Any) -> FloatArray:
    """Parameter on the scale on which it is unbounded, from its value in natural units."""
    return _TRANSFORMS[transform][1](np.asarray(value, dtype=np.float64))


def constrain_slope(transform: str, value: Any) -> FloatArray:
    """d value / d free: turns a gradient in natural units into one on the unbounded scale."""
    return _TRANSFORMS[transform][2](np.asarray(value, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class Slot:
    """A parameter: its free values, their bounds, and its prior in natural units."""

    name: str
    start: FloatArray  # (k,) on the free scale
    low: float | FloatArray
    high: float | FloatArray
    prior: Any = None
    transform: str = "log"


def kernel_slots(kernel: Any, priors: Mapping[str, Any], prefix: str = "", groups: Any = None) -> list[Slot]:
    """One slot for each free hyperparameter of a kernel.

    Features of one number in `groups` (p,) share their length scale, unless a prior has a number for each.
    """
    free, slots, at = [h for h in kernel.hyperparameters if not h.fixed], [], 0
    with np.errstate(divide="ignore"):  # a bound of zero is no bound
        theta, bounds = kernel.theta, np.reshape(kernel.bounds, (-1, 2))
    for h in free:
        part, prior = np.arange(at, at + h.n_elements), priors.get(h.name)
        if groups is not None and len(part) == len(groups) and h.name.endswith("length_scale"):
            if not any(np.ndim(value) for value in getattr(prior, "__dict__", {}).values()):
                part = part[np.unique(groups, return_index=True)[1]]
        slots.append(Slot(prefix + h.name, theta[part], bounds[part, 0], bounds[part, 1], prior))
        at += h.n_elements
    return slots


class Slots:
    """Slots side by side in one vector."""

    def __init__(self, slots: Sequence[Slot]):
        self.slots = {slot.name: slot for slot in slots if len(slot.start)}
        starts = [np.zeros(0), *(slot.start for slot in self.slots.values())]
        ends = np.cumsum([len(start) for start in starts])
        self.where = {n: slice(*ends[k : k + 2]) for k, n in enumerate(self.slots)}
        self.start, self.size = np.concatenate(starts), int(ends[-1])  # (q,) where a search begins

    @property
    def bounds(self) -> FloatArray:
        """(q, 2) on the free scale."""
        rows = [np.column_stack(np.broadcast_arrays(s.low, s.high, s.start)[:2]) for s in self.slots.values()]
        return np.vstack([np.zeros((0, 2)), *rows])

    def get(self, z: FloatArray, name: str) -> FloatArray:
        """The free values of a slot; empty if there is none of that name."""
        return z[self.where[name]] if name in self.where else np.zeros(0)

    def natural(self, z: FloatArray, name: str) -> FloatArray:
        """The values of a slot in natural units."""
        return constrain(self.slots[name].transform, z[self.where[name]])

    def slope(self, z: FloatArray, name: str) -> FloatArray:
        """Derivative of the natural values of a slot in the free ones."""
        return constrain_slope(self.slots[name].transform, self.natural(z, name))

    def log_prior(self, z: FloatArray) -> tuple[float, FloatArray]:
        """Log density of all slots, and its gradient."""
        value, gradient = 0.0, np.zeros(self.size)
        for slot in self.slots.values():
            if slot.prior is not None:
                natural = self.natural(z, slot.name)
                density, slope = slot.prior.log_prob(natural)
                value += float(np.sum(density))
                gradient[self.where[slot.name]] = slope * constrain_slope(slot.transform, natural)
        return value, gradient


def noise_values(noise: Any, names: Sequence[str], slots: Slots, z: FloatArray) -> dict[str, Any]:
    """Parameters of the noise that are in slots, in natural units at z."""
    values = {name: slots.natural(z, f"noise__{name}") for name in names}
    return {n: v if np.ndim(noise.parameters[n]) else float(v[0]) for n, v in values.items()}


# From a kernel and noise values to the value, the gradient in the free parameters of the kernel, and those in
# the parameters of the noise (for each row, or their sum).
LogEvidence = Callable[[Any, dict[str, Any]], tuple[float, FloatArray, Mapping[str, FloatArray]]]


def sum_log_z(noise: Any, y: FloatArray, mean: FloatArray, var: FloatArray) -> LogEvidence:
    """The sum of log Z over rows with latent N(mean, var), as a function of noise values alone."""

    def total(kernel: Any, values: dict[str, Any]) -> tuple[float, FloatArray, Mapping[str, FloatArray]]:
        moved = replace(noise, **values)
        gradient = moved.log_partition_grad(y, mean, var) if values else {}
        return float(np.sum(moved.log_partition(y, mean, var)[0])), np.zeros(0), gradient

    return total


_NOISE_BOUNDS = {"identity": (-10.0, 10.0), "log": (np.log(1e-6), np.log(1e3)), "logit": (-9.0, 9.0)}


@dataclass(frozen=True, eq=False)
class Parameters:
    """What is learnt, and its priors, named as the slots are: noise parameters begin with "noise__".

    `noise` carries the present values; `learn_noise` names those that are free.
    """

    kernel: Any
    noise: Any
    learn_noise: tuple[str, ...] = ()
    priors: Mapping[str, Any] = field(default_factory=dict)
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

    def kernel_at(self, z: FloatArray) -> Any:
        """The kernel at z."""
        moving = MovingKernel(self.kernel)
        return moving.at(z[: moving.n_dims])

    def noise_values(self, z: FloatArray) -> dict[str, float | FloatArray]:
        """The free noise parameters in natural units."""
        return noise_values(self.noise, self.learn_noise, self.slots, z)

    def noise_gradient(self, z: FloatArray, natural: Mapping[str, FloatArray]) -> FloatArray:
        """Gradient on the free scale from per-row gradients in natural units."""
        slopes = [self.slots.slope(z, f"noise__{name}") for name in self.learn_noise]
        sums = [np.sum(natural[name], axis=0) for name in self.learn_noise]
        return np.concatenate([np.zeros(0), *(s * slope for s, slope in zip(sums, slopes, strict=True))])

    def with_values(self, z: FloatArray) -> Parameters:
        """The same, at the values z."""
        noise = replace(self.noise, **self.noise_values(z)) if self.learn_noise else self.noise
        return replace(self, kernel=self.kernel_at(z), noise=noise)

    def maximize(self, log_evidence: LogEvidence, **how: Any) -> tuple[Parameters, Optimum]:
        """The most probable values, and the optimum of minus the log posterior; `how` is for `minimize`."""
        moving = MovingKernel(self.kernel)

        def objective(z: FloatArray) -> tuple[float, FloatArray]:
            kernel = moving.at(z[: moving.n_dims])
            value, of_kernel, of_noise = log_evidence(kernel, self.noise_values(z))
            log_prior, slope = self.slots.log_prior(z)
            gradient = np.concatenate([of_kernel, self.noise_gradient(z, of_noise)])
            return -(value + log_prior), -(gradient + slope)

        optimum = minimize(objective, self.slots.start, self.slots.bounds, **how)
        return self.with_values(optimum.theta), optimum
