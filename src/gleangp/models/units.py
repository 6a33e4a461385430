"""Inputs and targets in the units in which the model sees them.

Inputs: a numeric column x is mapped to u in (0, 1) by its range and warped by Kumaraswamy's distribution
function, whose parameters are learnt,

    v(u) = 1 - (1 - u^a)^b,

the identity at a = b = 1, then standardised over the training rows. Outside the training range v goes on as a
straight line, as steep as at that end of the range or as on average over the range, whichever is less: at its
ends v can be ten times as steep by chance, if the column means little. Where it levels off, as a logarithm
does, a row at ten times the largest value is near that one. A column with two values is an indicator: it
becomes 0 / 1 less its mean, and is not warped. A few wild values would leave nothing of the range to all
others. Where they make up the deviation of a column, values are cut off at some distance from the middle nine
tenths.

Targets of one task: mean and standard deviation, as scikit-learn's `normalize_y`. Several tasks: one centre
and one scale for all, so that offsets between tasks are the model's to explain, with their uncertainty. Where
most tasks are not in the same units, each gets its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import polygamma

from gleangp._state import LARGEST, check_arrays, check_codes
from gleangp._typing import FloatArray, IntArray
from gleangp.io.classes import register
from gleangp.models.defaults import HIERARCHY, UNITS
from gleangp.numerics.linalg import deviation

_MIDDLE = 2.563  # distance of the 10 % and 90 % quantiles of a normal variable in standard deviations
_MARGIN = 0.02  # of the range, kept free at both ends, where the slope of v can be zero or infinite
_MOST_REFERENCE = 2000  # rows from which the units of a warped column are computed


@dataclass(frozen=True, eq=False)
class InputMap:
    """Units and warping of the columns; the parameters of the warping are given to `__call__`."""

    center: FloatArray  # (p,)
    scale: FloatArray  # (p,)
    warped: IntArray  # (c,) columns that are warped
    low: FloatArray  # (c,)
    width: FloatArray  # (c,)
    reference: FloatArray  # (r, c) training rows from which the units of warped columns are computed
    floor: FloatArray  # (p,) smaller values count as this; -inf without wild values
    ceiling: FloatArray  # (p,) larger values count as this

    def _check_state(self) -> None:
        columns = {"center": "p", "scale": "p >0", "floor": "p any", "ceiling": "p any"}
        columns["reference"] = "r c" if len(self.warped) else "r s"
        sizes = check_arrays(self, None, **columns, warped="c", low="c", width="c >0")
        check_codes("InputMap.warped", self.warped, sizes["p"])
        if not (self.floor <= self.ceiling).all() or (len(self.warped) and not len(self.reference)):
            raise ValueError("InputMap has limits that are none, or no rows to take its units from.")

    @property
    def n_parameters(self) -> int:
        """log a and log b of every warped column."""
        return 2 * len(self.warped)

    def __call__(self, X: FloatArray, parameters: FloatArray) -> FloatArray:
        """The rows X (n, p) as the kernels see them; outside the training range too."""
        return np.clip(self.linearize(X)(parameters)[0], -LARGEST, LARGEST)

    def linearize(self, X: FloatArray) -> Callable[[FloatArray], tuple[FloatArray, Any]]:
        """From the parameters to the rows X (n, p), and from dL/drows (n, p) to dL/dparameters (2 c,).

        The derivatives are those of training rows. What does not depend on the parameters is computed once: a
        search asks for many of them.
        """
        X = np.clip(X, self.floor, self.ceiling)
        unwarped = (X - self.center) / self.scale
        if not len(self.warped):
            return lambda parameters: (unwarped, lambda dW: np.zeros(0))
        x, ends = X[:, self.warped], np.vstack([self.low, self.low + self.width])
        beyond = (x - self.low) / self.width
        beyond = beyond - np.clip(beyond, 0.0, 1.0)  # where v goes on as a straight line; else zero
        log_rows, log_ends, log_reference = map(self._log_u, (x, ends, self.reference))

        def at(parameters: FloatArray) -> tuple[FloatArray, Any]:
            v, dv_da, dv_db = _kumaraswamy(log_rows, parameters)
            (first, last), by_log_a, _ = _kumaraswamy(log_ends, parameters)
            slopes = by_log_a / (log_ends * np.exp(log_ends) * (1.0 + 2.0 * _MARGIN))  # dv / dx, width one
            slopes = np.minimum(slopes, last - first)
            r, dr_da, dr_db = _kumaraswamy(log_reference, parameters)
            mean, spread = _units(r)
            v = v + np.where(beyond < 0.0, slopes[0], slopes[1]) * beyond
            w, W = (v - mean) / spread, unwarped.copy()
            W[:, self.warped] = w

            def vjp(dW):
                dv = dW[:, self.warped] / spread
                # The units move too: d mean and d spread go to the reference rows.
                dr = -(dv.sum(0) + (dv * w).sum(0) * (r - mean) / spread) / len(r)
                of_a = (dv * dv_da).sum(0) + (dr * dr_da).sum(0)
                of_b = (dv * dv_db).sum(0) + (dr * dr_db).sum(0)
                return np.concatenate([of_a, of_b])

            return W, vjp

        return at

    def inverse(self, W: FloatArray, parameters: FloatArray) -> FloatArray:
        """Training rows (n, p) in their own units, from what the kernels see of them."""
        X = W * self.scale + self.center
        if len(self.warped):
            mean, spread = _units(_kumaraswamy(self._log_u(self.reference), parameters)[0])
            a, b = np.exp(parameters.reshape(2, -1))
            v = W[:, self.warped] * spread + mean
            u = (1.0 - np.clip(1.0 - v, 0.0, 1.0) ** (1.0 / b)) ** (1.0 / a)
            X[:, self.warped] = self.low + self.width * (u * (1.0 + 2.0 * _MARGIN) - _MARGIN)
        return X

    def _log_u(self, x: FloatArray) -> FloatArray:
        return np.log((np.clip((x - self.low) / self.width, 0.0, 1.0) + _MARGIN) / (1.0 + 2.0 * _MARGIN))


def map_inputs(X: FloatArray) -> InputMap:
    """The map for training rows X (n, p)."""
    low, high = np.quantile(X, [0.05, 0.95], axis=0)
    middle = (high - low) / 3.29  # of a normal column: its deviation
    wild = (middle > 0.0) & (deviation(X) > UNITS.wild * middle)
    reach = np.where(wild, UNITS.wild * middle, np.inf)
    floor, ceiling = low - reach, high + reach
    X = np.clip(X, floor, ceiling)
    low, high = X.min(0), X.max(0)
    two_values = np.all((X == low) | (X == high), axis=0)
    scale = np.where(two_values, high - low, deviation(X))
    scale = np.where(scale > 1e-12 * np.maximum(np.abs(low), np.abs(high)), scale, 1.0)
    warped = np.flatnonzero(~two_values)
    step = max(1, -(-len(X) // _MOST_REFERENCE))
    width = np.maximum(high - low, 1e-300)[warped]
    reference = X[::step][:, warped]
    return InputMap(X.mean(0), scale, warped, low[warped], width, reference, floor, ceiling)


def identity_map(n_features: int) -> InputMap:
    """Inputs as they are."""
    none, ones, no_columns = np.zeros(0), np.ones(n_features), np.zeros(0, dtype=np.intp)
    limits = -np.inf * ones, np.inf * ones
    return InputMap(0.0 * ones, ones, no_columns, none, none, np.zeros((0, 0)), *limits)


def _kumaraswamy(log_u, parameters):
    """v and its derivatives in log a and log b, each (n, c)."""
    a, b = np.exp(parameters.reshape(2, -1))
    a_log_u = a * log_u
    power = np.exp(a_log_u)
    log_rest = b * np.log1p(-power)
    rest = np.exp(log_rest)
    d_log_a = b * rest * power * a_log_u / (1.0 - power)  # u stays off 0 and 1
    return 1.0 - rest, d_log_a, -log_rest * rest


def _units(r):
    """Mean and deviation of columns."""
    return r.mean(0), np.maximum(r.std(0), 1e-9)


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
    return TargetUnits(np.full(len(parts), np.mean(y)), np.full(len(parts), _spread(y)), shared=True)


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
    if apart:
        return own_units(parts, within)
    return TargetUnits(np.full(len(parts), np.mean(y)), np.full(len(parts), within), shared=True)


def units_of_hierarchy(parts: list[FloatArray]) -> TargetUnits:
    """One unit for tasks whose kernels and noise are their own, unless their scales are far apart.

    Scale and centre of a task are not known from a few of its labels; the kernel has both, with their
    uncertainty.
    """
    total = total_units(parts)
    apart = _scales_apart(parts, HIERARCHY.scales_apart)
    return own_units(parts, float(total.scale[0])) if apart else total


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
