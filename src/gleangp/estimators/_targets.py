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


def standard_units(y: FloatArray, blocks: list[IntArray]) -> TargetUnits:
    """Units that standardise targets `y`; each block is the labelled rows of one task."""
    filled = [y[rows] for rows in blocks if len(rows)]
    labelled = np.concatenate(filled)
    means = np.array([np.mean(part) for part in filled])
    sizes = np.array([len(part) for part in filled])
    deviations = np.concatenate([part - m for part, m in zip(filled, means, strict=True)])
    n_tasks = len(blocks)
    if n_tasks == 1 or (sizes == 1).all():
        return _shared_units(n_tasks, labelled, _spread(labelled))
    within = _spread(deviations, centred=True)
    if _share_units(filled, means, within):
        return _shared_units(n_tasks, labelled, within)
    mean, scale = np.full(n_tasks, np.median(means)), np.full(n_tasks, within)
    for task, rows in enumerate(blocks):
        if len(rows):
            mean[task], scale[task] = np.mean(y[rows]), _spread(y[rows], otherwise=within)
    return TargetUnits(mean, scale, shared=False)


def _shared_units(n_tasks: int, y: FloatArray, scale: float) -> TargetUnits:
    return TargetUnits(np.full(n_tasks, np.mean(y)), np.full(n_tasks, scale), shared=True)


def _share_units(filled, means, within) -> bool:
    spreads = [(np.std(part), len(part) - 1) for part in filled if len(part) > 2]
    scales, freedom = np.array([(s, d) for s, d in spreads if s > 0]).reshape(-1, 2).T
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


def _spread(y: FloatArray, *, centred: bool = False, otherwise: float = 1.0) -> float:
    """Standard deviation; `otherwise` for targets that are constant up to rounding, or none."""
    if len(y) == 0:
        return otherwise
    spread = float(np.sqrt(np.mean(y**2)) if centred else np.std(y))
    tiny = 10.0 * np.finfo(float).eps * float(np.max(np.abs(y), initial=0.0))
    return spread if spread > tiny else otherwise
