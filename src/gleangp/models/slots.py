"""One vector for everything that is learnt, as named slots with starts, bounds and priors.

A positive parameter enters by its logarithm, one between 0 and 1 by its logit, others as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gleangp._typing import FloatArray
from gleangp.kernels.parameters import KernelParameters
from gleangp.numerics.transforms import constrain, constrain_slope


@dataclass(frozen=True, eq=False)
class Slot:
    """A parameter: its free values, their bounds, and its prior in natural units."""

    name: str
    start: FloatArray  # (k,) on the free scale
    low: float | FloatArray
    high: float | FloatArray
    prior: Any = None
    transform: str = "log"

    @property
    def size(self) -> int:
        """Number of values."""
        return len(self.start)

    def natural(self, z: FloatArray) -> FloatArray:
        """The values in natural units."""
        return constrain(self.transform, z)

    def slope(self, z: FloatArray) -> FloatArray:
        """Derivative of the natural values in the free ones."""
        return constrain_slope(self.transform, self.natural(z))

    def log_prior(self, z: FloatArray) -> tuple[float, FloatArray]:
        """Log density, and its gradient on the free scale."""
        if self.prior is None:
            return 0.0, np.zeros(len(z))
        natural = self.natural(z)
        value, slope = self.prior.log_prob(natural)
        return float(np.sum(value)), slope * constrain_slope(self.transform, natural)


def kernel_slots(kernel: Any, priors: Mapping[str, Any]) -> list[Slot]:
    """One slot for each free hyperparameter of a kernel."""
    of_kernel, slots, at = KernelParameters(kernel), [], 0
    theta, bounds = of_kernel.theta, of_kernel.bounds
    for name, size in of_kernel.layout:
        part = slice(at, at + size)
        slots.append(Slot(name, theta[part], bounds[part, 0], bounds[part, 1], priors.get(name)))
        at += size
    return slots


class Slots:
    """Slots side by side in one vector."""

    def __init__(self, slots: Sequence[Slot]):
        self.slots = tuple(slot for slot in slots if slot.size)
        ends = np.cumsum([slot.size for slot in self.slots], dtype=int)
        self.where = {s.name: slice(end - s.size, end) for s, end in zip(self.slots, ends, strict=True)}
        self._by_name = {slot.name: slot for slot in self.slots}
        self.size = int(ends[-1]) if len(ends) else 0

    @property
    def start(self) -> FloatArray:
        """(q,) where a search begins."""
        return np.concatenate([np.zeros(0), *(slot.start for slot in self.slots)])

    @property
    def bounds(self) -> FloatArray:
        """(q, 2) on the free scale."""
        rows = [np.column_stack(np.broadcast_arrays(s.low, s.high, s.start)[:2]) for s in self.slots]
        return np.vstack([np.zeros((0, 2)), *rows])

    def get(self, z: FloatArray, name: str) -> FloatArray:
        """The free values of a slot; empty if there is none of that name."""
        return z[self.where[name]] if name in self.where else np.zeros(0)

    def natural(self, z: FloatArray, name: str) -> FloatArray:
        """The values of a slot in natural units."""
        return self._by_name[name].natural(z[self.where[name]])

    def slope(self, z: FloatArray, name: str) -> FloatArray:
        """Derivative of the natural values of a slot in the free ones."""
        return self._by_name[name].slope(z[self.where[name]])

    def log_prior(self, z: FloatArray) -> tuple[float, FloatArray]:
        """Log density of all slots, and its gradient."""
        value, gradient = 0.0, np.zeros(self.size)
        for slot in self.slots:
            part = self.where[slot.name]
            of_slot, gradient[part] = slot.log_prior(z[part])
            value += of_slot
        return value, gradient
