"""Regression targets in units in which one kernel serves all tasks.

One task: mean and standard deviation, as scikit-learn's `normalize_y`. Several tasks: one centre and
one scale for all, the scale being the standard deviation within tasks, so that offsets between tasks
are the kernel's to explain (a `ConstantKernel` term carries them, and their uncertainty). Where most
tasks are not in the same units (scales differ by more than a factor of six, beyond what chance explains, or
offsets by more than ten of the deviations within tasks), each gets its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import polygamma

from gleangp._state import check_arrays
from gleangp._typing import FloatArray, IntArray
from gleangp.io.classes import register
from gleangp.models import defaults
from gleangp.models.defaults import HIERARCHY, UNITS
from gleangp.numerics.linalg import deviation

_CONSTANT = 1e-13  # standard deviation, of the largest target, below which targets are constant
_BITS = 24  # left of the units of one task whose rows may lie, and be summed, in many places
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


def total_units(moments: TargetMoments) -> TargetUnits:
    """One mean and one standard deviation over the rows of all tasks.

    In units of the largest target, so that squares do not overflow.
    """
    share = moments.size / max(1, moments.size.sum())
    largest = float(np.max(moments.largest, initial=0.0)) or 1.0
    means, deviations = moments.mean / largest, moments.deviation / largest
    mean = float(share @ means)
    scale = float(np.sqrt(share @ (deviations**2 + (means - mean) ** 2)))
    scale = scale * largest if scale > _CONSTANT else 1.0
    n_tasks = len(moments.size)
    return TargetUnits(np.full(n_tasks, mean * largest), np.full(n_tasks, scale), shared=True)


def own_units(parts: list[FloatArray]) -> TargetUnits:
    """Every task's own mean and standard deviation, from its targets."""
    mean = np.array([np.mean(part) if len(part) else 0.0 for part in parts])
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
    numbers = [(len(y), np.mean(y), deviation(y), np.max(np.abs(y))) if len(y) else (0,) * 4 for y in parts]
    size, *others = np.array(numbers, dtype=np.float64).T
    return TargetMoments(size.astype(np.intp), *others)


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
        one_scale = _or_one(float(all_in_all), largest)
        if size.sum() > defaults.MANY_ROWS:
            centre, one_scale = _rounded(centre, one_scale)
        return _shared_units(n_tasks, centre, one_scale)
    if (
        not _scales_apart(size, deviations, UNITS.scales_apart)
        and np.std(means) <= UNITS.offsets_apart * within
    ):
        return _shared_units(n_tasks, centre, within)
    return _own_units(moments, within)


def units_of_hierarchy(moments: TargetMoments) -> TargetUnits:
    """One unit for tasks whose kernels and noise are their own, unless their scales are far apart.

    Scale and centre of a task are not known from a few of its labels; the kernel has both, with their
    uncertainty.
    """
    total = total_units(moments)
    if not _scales_apart(moments.size, moments.deviation, HIERARCHY.scales_apart):
        return total
    return _own_units(moments, float(total.scale[0]))


def _own_units(moments: TargetMoments, otherwise: float) -> TargetUnits:
    """Of every task; `otherwise` is the scale where a task has none."""
    filled, mean = moments.size > 0, moments.mean.copy()
    mean[~filled] = np.median(mean[filled])
    each = zip(moments.deviation, moments.largest, strict=True)
    scale = np.array([_or_one(float(s), float(m), otherwise) for s, m in each])
    return TargetUnits(mean, scale, shared=False)


def _shared_units(n_tasks: int, centre: float, scale: float) -> TargetUnits:
    return TargetUnits(np.full(n_tasks, centre), np.full(n_tasks, scale), shared=True)


def _rounded(centre: float, scale: float) -> tuple[float, float]:
    """Both on the grid of the scale's leading bits.

    A search for parameters makes much of rounding, and a point is drawn or not. Units that are the same
    to the last bit keep a fit the same wherever the sums were taken.
    """
    grid = float(np.ldexp(1.0, int(np.frexp(scale)[1]) - _BITS))
    return grid * float(np.rint(centre / grid)), grid * float(np.rint(scale / grid))


def _scales_apart(size, deviations, factor: float) -> bool:
    several = (size > 2) & (deviations > 0)
    logs, freedom = np.log(deviations[several]), size[several] - 1.0
    return _scale_variance(logs, freedom) > (np.log(factor) / _MIDDLE) ** 2


def _scale_variance(logs: FloatArray, freedom: FloatArray) -> float:
    """Variance of the log scales of tasks, less what sampling alone makes of it.

    The logarithm of a deviation estimated with d degrees of freedom varies by trigamma(d / 2) / 4. The
    variance of M such logarithms is known to a share of sqrt(2 / (M - 1)), which is granted to chance too.
    """
    if len(logs) < 2:
        return 0.0
    # One task in other units is its own affair: the extremes do not count.
    seen = (np.diff(np.quantile(logs, [0.1, 0.9]))[0] / _MIDDLE) ** 2
    chance = np.mean(polygamma(1, freedom / 2.0)) / 4.0
    return float(seen - chance * (1.0 + np.sqrt(2.0 / (len(logs) - 1))))


def _spread(y: FloatArray, *, otherwise: float = 1.0) -> float:
    """Standard deviation; `otherwise` for targets that are constant up to rounding, or none."""
    return _or_one(float(deviation(y)), float(np.max(np.abs(y))), otherwise) if len(y) else otherwise


def _or_one(spread: float, largest: float, otherwise: float = 1.0) -> float:
    """The spread, unless it is rounding error of targets as large as `largest`."""
    return spread if spread > 10.0 * np.finfo(float).eps * largest else otherwise
