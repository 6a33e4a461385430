"""Second thoughts about an active set: its least useful points are swapped for better ones.

The first points of a greedy choice were taken when little was known; later ones may have made them
superfluous (Lawrence, Platt & Jordan 2005, section 3.5, who suggest to remove points again). A swap
takes out the point that would be missed least and puts in the best of all rows outside, of any task,
if that one tells more. The number of active points stays the same, and so does the site of every
other point.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gleangp._typing import FloatArray
from gleangp.inference.block import Block
from gleangp.inference.filtering import PRECISION_FLOOR, Filter, Sites, site_moments
from gleangp.kernels import kernel_columns, signal_diag, white_diag
from gleangp.numerics.linalg import cholesky, solve_lower
from gleangp.selection.base import Selection, best_row
from gleangp.selection.criteria import Criterion

_MARGIN = 1e-9  # nats by which a newcomer must be better: equal points are not swapped to and fro


def swap_points(
    criterion: Criterion, kernel, blocks: list[Block], selection: Selection, n_swaps: int
) -> Selection:
    """The selection after at most `n_swaps` swaps; a newcomer counts as the last to be included.

    It ends early when no swap is an improvement. A swap costs O(n d) for each active point that is
    looked at, least missed first, and O(d^3).
    """
    states = [
        ActiveState(criterion, kernel, block, active, sites)
        for block, active, sites in zip(blocks, selection.active, selection.sites or (), strict=True)
    ]
    order, gain = selection.order.tolist(), selection.gain.tolist()
    for _ in range(n_swaps):
        swap = _find_swap(states, order)
        if swap is None:
            break
        place, position, newcomer_task, row, newcomer_gain = swap
        states[order[place]].remove(position)
        states[newcomer_task].include(row)
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
    offers = [_best(state.candidate_gains()) for state in states]
    for place in np.argsort(missed, kind="stable"):
        task = order[place]
        trial = [*offers[:task], _best(states[task].gains_without(positions[place])), *offers[task + 1 :]]
        newcomer_task = int(np.argmax([gain for gain, _ in trial]))
        gain, row = trial[newcomer_task]
        if gain > missed[place] + _MARGIN:
            return int(place), int(positions[place]), newcomer_task, row, gain
    return None


def _best(gains: FloatArray) -> tuple[float, int]:
    row = best_row(gains)
    return float(gains[row]), row


class ActiveState:
    """The posterior of one block under the sites of its active points, open to change.

    `chol` (d, d) is the lower factor of K_dd + 1 / site_precision, the filter's rows are
    chol^-1 K_dn and `steps` is chol^-1 site_mean; white noise is on every point's own entry.
    """

    def __init__(self, criterion: Criterion, kernel, block: Block, active, sites: Sites):
        self.criterion, self.kernel, self.block = criterion, kernel, block
        self.active = [int(row) for row in active]
        self.site_mean, self.site_precision = list(sites.mean), list(sites.precision)
        self.white = white_diag(kernel, block.X)
        self.filter = Filter(block.y, block.noise, signal_diag(kernel, block.X) + self.white)
        prior = self._prior_columns(self.active)
        self.chol, _ = cholesky(prior[:, self.active] + np.diag(1.0 / sites.precision))
        self.steps = solve_lower(self.chol, sites.mean)
        rows = solve_lower(self.chol, prior)
        self.filter.rows, self.filter.size = rows, len(rows)
        self.filter.mean = self.steps @ rows
        self.filter.var -= np.einsum("dn,dn->n", rows, rows)
        self._left_out: Any = None

    def sites(self) -> Sites:
        """Sites of the active points, in order of inclusion."""
        precision = np.array(self.site_precision)
        n_silent = 0 if self.block.noise.log_concave else int(np.sum(precision < 2.0 * PRECISION_FLOOR))
        return Sites(np.array(self.site_mean), precision, n_silent)

    def candidate_gains(self) -> FloatArray:
        """Gain of every row outside the active set, nats; -inf for those inside."""
        return self._gains(self.filter.mean, self.filter.var)

    def gains_without(self, position: int) -> FloatArray:
        """The same, were one active point not in (its own gain is left out)."""
        f = self.filter
        inverse, spread, weights = self._leave_one_out()
        # Without point i the covariance has u u^T / (C^-1)_ii more, u = K_nd (C^-1)_:i.
        u = inverse[:, position] @ f.rows[: f.size]
        mean = f.mean - u * (weights[position] * spread[position])
        return self._gains(mean, f.var + u * u * spread[position])

    def _gains(self, mean: FloatArray, var: FloatArray) -> FloatArray:
        noise, y = self.block.noise, self.block.y
        gains = self.criterion.gain(self.criterion.key(noise, y, mean, var))
        gains[self.active] = -np.inf
        return gains

    def removal_gains(self) -> FloatArray:
        """Gain (d,) that each active point would have now, were it not in: at its cavity."""
        f, kept = self.filter, self.block.at(np.array(self.active, dtype=np.intp))
        inverse, spread, weights = self._leave_one_out()
        u = np.einsum("kd,kd->d", inverse, f.rows[: f.size, self.active])
        mean = f.mean[self.active] - u * weights * spread
        var = f.var[self.active] + u * u * spread
        return self.criterion.gain(self.criterion.key(kept.noise, kept.y, mean, var))

    def _leave_one_out(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """chol^-1 (d, d); with C = chol chol^T, 1 / (C^-1)_ii and C^-1 site_mean, (d,) each."""
        if self._left_out is None:
            inverse = solve_lower(self.chol, np.eye(len(self.chol)))
            spread = 1.0 / np.einsum("kd,kd->d", inverse, inverse)
            self._left_out = inverse, spread, self.steps @ inverse
        return self._left_out

    def remove(self, position: int) -> None:
        """Take an active point out, the sites of the others held. O(n d)."""
        f, d = self.filter, len(self.active)
        chol, rows, steps = np.delete(self.chol, position, axis=0), f.rows[: f.size].copy(), self.steps.copy()
        for k in range(position, d - 1):  # rotations that make the factor triangular again
            r = np.hypot(chol[k, k], chol[k, k + 1])
            rotation = np.array([[chol[k, k], chol[k, k + 1]], [-chol[k, k + 1], chol[k, k]]]) / r
            pair = slice(k, k + 2)
            chol[:, pair] = chol[:, pair] @ rotation.T
            rows[pair] = rotation @ rows[pair]
            steps[pair] = rotation @ steps[pair]
        last, last_step = rows[-1], steps[-1]
        f.rows, f.size = rows[:-1], d - 1
        f.mean = f.mean - last_step * last
        f.var = f.var + last * last
        self.chol, self.steps = np.tril(chol[:, :-1]), steps[:-1]
        for values in (self.active, self.site_mean, self.site_precision):
            del values[position]
        self._left_out = None

    def include(self, row: int) -> None:
        """Filter a row in. O(n d)."""
        f, d = self.filter, len(self.active)
        now = f.moments(row)
        border = np.append(f.rows[:d, row], now.nu**-0.5)  # LPJ05 eq. 23
        f.include(row, self._prior_columns([row])[0])
        self.chol = np.vstack([np.pad(self.chol, ((0, 0), (0, 1))), border])
        self.steps = np.append(self.steps, now.g / np.sqrt(now.nu))
        self.active.append(row)
        site_mean, precision = site_moments(*np.array(now[1:5]))
        self.site_mean.append(site_mean)
        self.site_precision.append(precision)
        self._left_out = None

    def _prior_columns(self, rows: list[int]) -> FloatArray:
        columns = kernel_columns(self.kernel, self.block.X[rows], self.block.X)
        columns[np.arange(len(rows)), rows] += self.white[rows]
        return columns
