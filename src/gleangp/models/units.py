"""Regression targets in units in which one kernel serves all tasks.

One task: mean and standard deviation, as scikit-learn's `normalize_y`. Several tasks: one centre and
one scale for all, so that offsets between tasks are the model's to explain, with their uncertainty. Where
most tasks are not in the same units, each gets its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import polygamma

from gleangp._state import check_arrays
from gleangp._typing import FloatArray, IntArray
from gleangp.io.classes import register
from gleangp.models.defaults import HIERARCHY, UNITS
from gleangp.numerics.linalg import deviation

_MIDDLE = 2.563  # distance of the 10 % and 90 % quantiles of a normal variable in standard deviations


@dataclass(frozen=True, slots=True, eq=False)
class TargetUnits:
    """Centre and scale of every task's targets."""

    mean: FloatArray  # (M,)
    scale: FloatArray  # (M,)
    shared: bool  # one for all tasks

    def to_standard(self, y: FloatArray, codes: IntArray) -> FloatArray:
        """From the user's units."""
        return (y - self.mean[codes]) / self.scale[codes]

    def from_standard(self, mean: FloatArray, codes: IntArray) -> FloatArray:
        """To the user's units."""
        return mean * self.scale[codes] + self.mean[codes]

    def _check_state(self) -> None:
        """Raise if the shapes do not fit together (a damaged model file)."""
        check_arrays(self, mean="M", scale="M >0")

    def with_task(self, y: FloatArray) -> TargetUnits:
        """Units with one more task: the shared ones, or the new task's own."""
        if self.shared:
            mean, scale = self.mean[0], self.scale[0]
        else:
            mean = np.mean(y) if len(y) else np.median(self.mean)
            scale = _spread(y, otherwise=float(np.median(self.scale)))  # one row has no spread
        return TargetUnits(np.append(self.mean, mean), np.append(self.scale, scale), self.shared)


register(TargetUnits)


def natural_units(n_tasks: int) -> TargetUnits:
    """The user's own units: nothing is done to the targets."""
    return TargetUnits(np.zeros(n_tasks), np.ones(n_tasks), shared=True)


def total_units(parts: list[FloatArray]) -> TargetUnits:
    """One mean and one standard deviation over the targets of all tasks."""
    y = np.concatenate(parts)
    return _shared_units(len(parts), float(np.mean(y)), _spread(y))


def own_units(parts: list[FloatArray], otherwise: float = 1.0) -> TargetUnits:
    """Mean and standard deviation of each task; `otherwise` is the scale where a task has none."""
    means = [np.mean(y) for y in parts if len(y)]
    typical = np.median(means) if means else 0.0
    mean = np.array([np.mean(y) if len(y) else typical for y in parts])
    return TargetUnits(mean, np.array([_spread(y, otherwise=otherwise) for y in parts]), shared=False)


def standard_units(parts: list[FloatArray]) -> TargetUnits:
    """One centre for all tasks, and the deviation within them, unless scales or offsets are far apart."""
    filled = [y for y in parts if len(y)]
    if len(parts) == 1 or all(len(y) == 1 for y in filled):
        return total_units(parts)
    y, means = np.concatenate(filled), np.array([np.mean(y) for y in filled])
    within = _spread(y - np.repeat(means, list(map(len, filled))), size=float(np.max(np.abs(y))))
    apart = _scales_apart(filled, UNITS.scales_apart) or np.std(means) > UNITS.offsets_apart * within
    return own_units(parts, within) if apart else _shared_units(len(parts), float(np.mean(y)), within)


def units_of_hierarchy(parts: list[FloatArray]) -> TargetUnits:
    """One unit for tasks whose kernels and noise are their own, unless their scales are far apart.

    Scale and centre of a task are not known from a few of its labels; the kernel has both, with their
    uncertainty.
    """
    total = total_units(parts)
    if not _scales_apart(parts, HIERARCHY.scales_apart):
        return total
    return own_units(parts, float(total.scale[0]))


def _shared_units(n_tasks: int, centre: float, scale: float) -> TargetUnits:
    return TargetUnits(np.full(n_tasks, centre), np.full(n_tasks, scale), shared=True)


def _scales_apart(parts: list[FloatArray], factor: float) -> bool:
    """Whether scales differ by more than a factor, beyond what chance explains.

    The logarithm of a deviation estimated with d degrees of freedom varies by trigamma(d / 2) / 4. The
    variance of M such logarithms is known to a share of sqrt(2 / (M - 1)), which is granted to chance too.
    """
    deviations = np.array([float(deviation(y)) for y in parts if len(y) > 2])
    freedom = np.array([len(y) - 1.0 for y in parts if len(y) > 2])[deviations > 0.0]
    if len(freedom) < 2:
        return False
    logs = np.log(deviations[deviations > 0.0])
    # One task in other units is its own affair: the extremes do not count.
    seen = (np.diff(np.quantile(logs, [0.1, 0.9]))[0] / _MIDDLE) ** 2
    chance = np.mean(polygamma(1, freedom / 2.0)) / 4.0
    variance = seen - chance * (1.0 + np.sqrt(2.0 / (len(logs) - 1)))
    return bool(variance > (np.log(factor) / _MIDDLE) ** 2)


def _spread(y: FloatArray, *, otherwise: float = 1.0, size: float | None = None) -> float:
    """Standard deviation; `otherwise` for no targets, and for targets that are constant up to rounding.

    `size` is the largest target, where y is what is left of the targets.
    """
    if len(y) == 0:
        return otherwise
    spread, largest = float(deviation(y)), float(np.max(np.abs(y))) if size is None else size
    return spread if spread > 10.0 * np.finfo(float).eps * largest else otherwise
