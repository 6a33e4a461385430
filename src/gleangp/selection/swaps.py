"""Second thoughts about an active set: its least useful points are swapped for better ones.

The first points of a greedy choice were taken when little was known; later ones may have made them
superfluous (Lawrence, Platt & Jordan 2005, section 3.5, who suggest to remove points again). A swap
takes out the point that would be missed least and puts in the best of all rows outside, of any task,
if that one is worth more. The number of active points stays the same, and so does the site of every
other point.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gleangp._typing import FloatArray
from gleangp.inference.block import Block
from gleangp.inference.filtering import PRECISION_FLOOR, Sites, include_moments, site_moments
from gleangp.kernels import kernel_columns
from gleangp.numerics.linalg import cholesky, solve_lower
from gleangp.selection.base import Selection
from gleangp.selection.greedy import Criterion, prior_variances

_MARGIN = 1e-9  # nats by which a newcomer must be better: equal points are not swapped to and fro


def swap_points(
    criterion: Criterion, kernel: Any, blocks: list[Block], selection: Selection, n_swaps: int
) -> Selection:
    """The selection after at most `n_swaps` swaps; a newcomer counts as the last to be included.

    It ends early when no swap is an improvement. A swap costs O(n d) for each active point that is
    looked at, least missed first, and O(n d^2).
    """
    if n_swaps == 0:
        return selection
    states = [
        ActiveState(criterion, kernel, block, active.tolist(), sites.mean, sites.precision)
        for block, active, sites in zip(blocks, selection.active, selection.sites or (), strict=True)
    ]
    order, gain = selection.order.tolist(), selection.gain.tolist()
    for _ in range(n_swaps):
        swap = _find_swap(states, order)
        if swap is None:
            break
        place, position, newcomer_task, row, newcomer_gain = swap
        states[order[place]] = states[order[place]].without(position)
        states[newcomer_task] = states[newcomer_task].with_row(row)
        del order[place], gain[place]
        order.append(newcomer_task)
        gain.append(newcomer_gain)
    return Selection(
        np.array(order, dtype=np.intp),
        tuple(np.array(state.active, dtype=np.intp) for state in states),
        np.array(gain),
        tuple(state.sites() for state in states),
    )


def _find_swap(states: list[ActiveState], order: list[int]) -> tuple[int, int, int, int, float] | None:
    """Place and position of the point to take out; task, row and gain of the one to put in.

    Active points are tried from the least missed on, of equal ones the earliest first.
    """
    positions = np.empty(len(order), dtype=np.intp)
    missed = np.empty(len(order))
    for task, state in enumerate(states):
        mine = np.flatnonzero(np.array(order) == task)
        positions[mine] = np.arange(len(mine))
        missed[mine] = state.removal_gains()
    offers = [_best(state.gains(state.mean, state.var)) for state in states]
    for place in np.argsort(missed, kind="stable"):
        task = order[place]
        trial = [*offers[:task], _best(states[task].gains_without(positions[place])), *offers[task + 1 :]]
        newcomer_task = int(np.argmax([gain for gain, _ in trial]))
        gain, row = trial[newcomer_task]
        if gain > missed[place] + _MARGIN:
            return int(place), int(positions[place]), newcomer_task, row, gain
    return None


def _best(gains: FloatArray) -> tuple[float, int]:
    row = int(np.argmax(gains))
    return float(gains[row]), row


class ActiveState:
    """The posterior of one block under the sites of its active points.

    With C = K_dd + 1 / site_precision = chol chol^T, the factor's rows are chol^-1 K_dn. White noise is on
    every point's own entry.
    """

    def __init__(
        self,
        criterion: Criterion,
        kernel: Any,
        block: Block,
        active: list[int],
        site_mean: FloatArray,
        site_precision: FloatArray,
    ):
        self.criterion, self.kernel, self.block, self.active = criterion, kernel, block, active
        self.site_mean, self.site_precision = site_mean, site_precision
        prior_var, white = prior_variances(kernel, block.X)
        columns = kernel_columns(kernel, block.X[active], block.X)
        columns[np.arange(len(active)), active] += white[active]
        chol, _ = cholesky(columns[:, active] + np.diag(1.0 / site_precision))
        self.rows, steps = solve_lower(chol, columns), solve_lower(chol, site_mean)
        self.mean = steps @ self.rows
        self.var = prior_var - np.einsum("dn,dn->n", self.rows, self.rows)
        self.inverse = solve_lower(chol, np.eye(len(chol)))
        self.spread = 1.0 / np.einsum("kd,kd->d", self.inverse, self.inverse)  # 1 / (C^-1)_ii
        self.weights = steps @ self.inverse  # C^-1 site_mean

    def sites(self) -> Sites:
        """Sites of the active points, in order of inclusion."""
        silent = np.sum(self.site_precision < 2.0 * PRECISION_FLOOR)
        n_silent = 0 if self.block.noise.log_concave else int(silent)
        return Sites(self.site_mean, self.site_precision, n_silent)

    def gains(self, mean: FloatArray, var: FloatArray) -> FloatArray:
        """Gain of every row at these marginals, nats; -inf for those in the active set."""
        gains = self.criterion(self.block.noise, self.block.y, mean, var)
        gains[self.active] = -np.inf
        return gains

    def gains_without(self, position: int) -> FloatArray:
        """The same, were one active point not in (its own gain is left out)."""
        # Without point i the covariance has u u^T / (C^-1)_ii more, u = K_nd (C^-1)_:i.
        u = self.inverse[:, position] @ self.rows
        mean = self.mean - u * (self.weights[position] * self.spread[position])
        return self.gains(mean, self.var + u * u * self.spread[position])

    def removal_gains(self) -> FloatArray:
        """Gain (d,) that each active point would have now, were it not in: at its cavity."""
        kept = self.block.at(np.array(self.active, dtype=np.intp))
        u = np.einsum("kd,kd->d", self.inverse, self.rows[:, self.active])
        mean = self.mean[self.active] - u * self.weights * self.spread
        var = self.var[self.active] + u * u * self.spread
        return self.criterion(kept.noise, kept.y, mean, var)

    def without(self, position: int) -> ActiveState:
        """The state without an active point, the sites of the others held."""
        active = [row for k, row in enumerate(self.active) if k != position]
        return self._with(
            active, np.delete(self.site_mean, position), np.delete(self.site_precision, position)
        )

    def with_row(self, row: int) -> ActiveState:
        """The state after a row was filtered in."""
        one, at = self.block.at(np.array([row])), slice(row, row + 1)
        _, g, nu, _ = include_moments(one.noise, one.y, self.mean[at], self.var[at])
        mean, precision = site_moments(self.mean[at], self.var[at], g, nu)
        more = np.append(self.site_mean, mean), np.append(self.site_precision, precision)
        return self._with([*self.active, row], *more)

    def _with(self, active: list[int], site_mean: FloatArray, site_precision: FloatArray) -> ActiveState:
        return ActiveState(self.criterion, self.kernel, self.block, active, site_mean, site_precision)
