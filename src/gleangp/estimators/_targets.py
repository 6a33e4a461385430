"""Regression targets in units in which one kernel serves all tasks.

One task: mean and standard deviation, as scikit-learn's `normalize_y`. Several tasks: one centre and
one scale for all, the scale being the standard deviation within tasks, so that offsets between tasks
are the kernel's to explain (a `ConstantKernel` term carries them, and their uncertainty). Where most
tasks are not in the same units (scales or offsets differ by more than a factor of ten, and by more than
chance explains where targets are few), each gets its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import polygamma

from gleangp._typing import FloatArray, IntArray

_OWN_UNITS = 10.0


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
        if self.mean.ndim != 1 or self.scale.shape != self.mean.shape:
            raise ValueError(f"target units of shapes {self.mean.shape} and {self.scale.shape}.")

    def with_task(self, y: FloatArray) -> TargetUnits:
        """Units with one more task: the shared ones, or the new task's own."""
        if self.shared:
            mean, scale = self.mean[0], self.scale[0]
        else:
            mean = np.mean(y) if len(y) else np.median(self.mean)
            scale = _spread(y, otherwise=float(np.median(self.scale)))  # one row has no spread
        return TargetUnits(np.append(self.mean, mean), np.append(self.scale, scale), self.shared)


def natural_units(n_tasks: int) -> TargetUnits:
    """The user's own units: nothing is done to the targets."""
    return TargetUnits(np.zeros(n_tasks), np.ones(n_tasks), shared=True)


def own_units(parts: list[FloatArray]) -> TargetUnits:
    """Every task's own mean and standard deviation, from its targets."""
    mean = np.array([np.mean(part) for part in parts])
    scale = np.array([_spread(part) for part in parts])
    return TargetUnits(mean, scale, shared=False)


@dataclass(frozen=True, slots=True, eq=False)
class TargetMoments:
    """What units are made from: a few numbers of every task, zero where it has no targets."""

    size: IntArray  # (M,) number of targets
    mean: FloatArray  # (M,)
    deviation: FloatArray  # (M,) standard deviation
    largest: FloatArray  # (M,) absolute value


def target_moments(parts: list[FloatArray]) -> TargetMoments:
    """Of the targets of every task."""
    numbers = [(len(y), np.mean(y), np.std(y), np.max(np.abs(y))) if len(y) else (0,) * 4 for y in parts]
    size, mean, deviation, largest = np.array(numbers, dtype=np.float64).T
    return TargetMoments(size.astype(np.intp), mean, deviation, largest)


def standard_units(moments: TargetMoments) -> TargetUnits:
    """Units that standardise targets with these moments."""
    n_tasks, filled = len(moments.size), moments.size > 0
    size, means, deviations = (getattr(moments, n)[filled] for n in ("size", "mean", "deviation"))
    largest = float(np.max(moments.largest))
    share = size / size.sum()
    centre = float(share @ means)
    within = _or_one(float(np.sqrt(share @ deviations**2)), largest)
    if n_tasks == 1 or (size == 1).all():
        all_in_all = np.sqrt(share @ deviations**2 + share @ (means - centre) ** 2)
        return _shared_units(n_tasks, centre, _or_one(float(all_in_all), largest))
    if _share_units(size, deviations, means, within):
        return _shared_units(n_tasks, centre, within)
    mean, scale = np.full(n_tasks, np.median(means)), np.full(n_tasks, within)
    mean[filled] = means
    scale[filled] = [
        _or_one(float(s), float(m), within) for s, m in zip(deviations, moments.largest[filled], strict=True)
    ]
    return TargetUnits(mean, scale, shared=False)


def _shared_units(n_tasks: int, centre: float, scale: float) -> TargetUnits:
    return TargetUnits(np.full(n_tasks, centre), np.full(n_tasks, scale), shared=True)


def _share_units(size, deviations, means, within) -> bool:
    several = (size > 2) & (deviations > 0)
    scales, freedom = deviations[several], size[several] - 1.0
    logs = np.log(scales)
    # One task in other units is its own affair: the extremes do not count.
    alike = len(logs) < 2 or np.diff(np.quantile(logs, [0.1, 0.9]))[0] <= np.log(_OWN_UNITS)
    alike = alike or _by_chance(scales, freedom)
    return bool(alike and np.std(means) <= _OWN_UNITS * within)


def _by_chance(scales: FloatArray, freedom: FloatArray) -> bool:
    """Whether sampling alone explains that the scales of tasks with few targets differ so much.

    The logarithm of a variance estimated with d degrees of freedom varies by trigamma(d / 2).
    """
    centred = 2.0 * np.log(scales) - polygamma(0, freedom / 2.0) + np.log(freedom / 2.0)
    return bool(np.var(centred, ddof=1) <= 2.0 * np.mean(polygamma(1, freedom / 2.0)))


def _spread(y: FloatArray, *, otherwise: float = 1.0) -> float:
    """Standard deviation; `otherwise` for targets that are constant up to rounding, or none."""
    return _or_one(float(np.std(y)), float(np.max(np.abs(y))), otherwise) if len(y) else otherwise


def _or_one(spread: float, largest: float, otherwise: float = 1.0) -> float:
    """The spread, unless it is rounding error of targets as large as `largest`."""
    return spread if spread > 10.0 * np.finfo(float).eps * largest else otherwise
