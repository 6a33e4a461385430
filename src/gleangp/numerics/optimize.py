"""The one optimiser: L-BFGS-B on log-parameters within bounds, with restarts drawn inside them.

Objectives return (value, gradient) and are minimised. A parameter vector whose covariance has no Cholesky
factor is an infeasible point, not a failure: the line search gets a large value and turns back.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize as scipy_minimize

from gleangp._typing import FloatArray
from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.numerics.parallel import freed_memory_kept

Objective = Callable[[FloatArray], tuple[float, FloatArray]]

# Restarts are drawn uniformly in the log-bounds, but no further than this from the first start:
# bounds of (1e-5, 1e5) would otherwise send nearly all of them to flat regions.
_RESTART_REACH = 3.0


@dataclass(frozen=True, slots=True, eq=False)
class Optimum:
    """Where an optimisation ended."""

    theta: FloatArray  # (q,)
    value: float
    converged: bool
    n_iterations: int = 0
    last_change: float = 0.0  # of the value, in the last iteration
    stopped: bool = False  # whether the progress function asked for it
    values: tuple[float, ...] = ()  # after every iteration


def minimize(
    objective: Objective,
    start: FloatArray,
    bounds: FloatArray,
    *,
    max_iter: int = 100,
    tol: float = 1e-5,
    n_restarts: int = 0,
    rng: Any = None,
    report: Callable[[int, float], bool | None] | None = None,
    scale: float = 1.0,
    unit: float = 1.0,
    settled: float = 0.0,
) -> Optimum:
    """Minimise within bounds; the best of `1 + n_restarts` starts.

    The objective gives value and gradient at theta (q,); bounds are (q, 2). The first start is clipped into
    the bounds; others are drawn uniformly inside them around it, by `rng`.

    * `tol`: change of the value at which a start has converged: relative, or in units of `scale` where the
      value is smaller than that.
    * `report`: called with the number and the value of every iteration. If it returns True, the search ends
      there with the best point found, not converged, and no further start is tried.
    * `scale`: size of value and gradient, by which both are divided. For a log evidence it is the number of
      rows: what a parameter is worth is counted in nats per row, and a first step as long as the gradient of
      a thousand rows leads out to the bounds.
    * `unit`: length of a usual step; the search runs in this unit.
    * `settled`: gain in value by three iterations together below which a start has converged. One alone may
      gain little on its way to more.
    """
    bounds = np.asarray(bounds, dtype=np.float64).reshape(len(start), 2)
    start = np.clip(start, bounds[:, 0], bounds[:, 1])
    starts = [start]
    if n_restarts:
        low = np.maximum(bounds[:, 0], start - _RESTART_REACH)
        high = np.minimum(bounds[:, 1], start + _RESTART_REACH)
        starts += [rng.uniform(low, high) for _ in range(n_restarts)]
    runs = []
    with freed_memory_kept():
        for s in starts:
            runs.append(_minimize_from(objective, s, bounds, max_iter, tol, report, scale, unit, settled))
            if runs[-1].stopped:
                break
    return min(runs, key=lambda run: run.value)


class _Guarded:
    """An objective that is a flat ceiling where it has no finite value, and the best point it has seen."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.theta: FloatArray | None = None
        self.value = np.inf
        self.first = np.nan  # finite value
        self.ceiling = 1e25  # where the start itself has none: a flat floor would end the run
        self.reason: NotPositiveDefiniteError | None = None

    def __call__(self, theta: FloatArray) -> tuple[float, FloatArray]:
        try:
            value, gradient = self.objective(theta)
        except NotPositiveDefiniteError as error:
            value, gradient, self.reason = np.inf, np.zeros_like(theta), error
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            return self.ceiling, np.zeros_like(theta)
        if np.isnan(self.first):
            self.first = value
        if value < self.value:
            self.theta, self.value = theta.copy(), value
        self.ceiling = max(value, self.value) + 1e3 * (1.0 + abs(self.value))
        return value, gradient


def _minimize_from(objective, start, bounds, max_iter, tol, report, scale, unit, settled) -> Optimum:
    if len(start) == 0:
        return Optimum(start, objective(start)[0], True)
    guarded, values, ended = _Guarded(objective), [], None  # or "stopped" by the report, or "settled"

    def scaled(in_units):
        value, gradient = guarded(unit * in_units)
        return value / scale, gradient * (unit / scale)

    def after_iteration(intermediate_result):
        nonlocal ended
        values.append(scale * float(intermediate_result.fun))
        if report is not None and report(len(values), values[-1]):
            ended = "stopped"
        elif len(values) > 3 and values[-4] - values[-1] < settled:
            ended = "settled"
        if ended:
            raise StopIteration

    how: dict = {"jac": True, "method": "L-BFGS-B", "bounds": bounds / unit, "callback": after_iteration}
    options = {"maxiter": max_iter, "ftol": tol, "gtol": 1e-5, "maxls": 30}
    found = scipy_minimize(scaled, start / unit, options=options, **how)
    # An "abnormal" line search at the floor of rounding error has still converged.
    finished = bool(found.success) or "ABNORMAL" in str(found.message).upper()
    converged = finished if ended is None else ended == "settled"
    if guarded.theta is None:
        at = np.array2string(start, precision=3)
        found = f"no finite value at the start {at} nor near it: {guarded.reason or 'it overflows'}"
        advice = "Check the kernel and its initial parameters."
        raise NotPositiveDefiniteError(f"the objective has {found}\n{advice}") from guarded.reason
    last_change = float(abs(np.diff([guarded.first, *values])[-1])) if values else 0.0
    value, n = float(guarded.value), len(values)
    return Optimum(guarded.theta, value, converged, n, last_change, ended == "stopped", tuple(values))
