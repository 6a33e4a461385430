"""Swaps: the least useful points of an active set are exchanged for better ones.

Later points of a greedy choice may make the first ones superfluous (Lawrence, Platt & Jordan 2005, section
3.5, who suggest to remove points again). A swap takes out the point that would be missed least and puts in
the best of all rows outside, of any task, if that one is worth more. The sites of all other points stay.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.inference.posterior import PRECISION_FLOOR, Sites, include_moments, site_moments
from gleangp.kernels import kernel_columns
from gleangp.numerics.linalg import cholesky, inverse_from_cholesky
from gleangp.selection.base import Selection, in_order
from gleangp.selection.runs import entropy_reduction, prior_variances

_MARGIN = 1e-9  # nats by which a newcomer must be better: equal points are not swapped to and fro


def swap_points(kernel: Any, blocks: list[Block], selection: Selection, n_swaps: int) -> Selection:
    """The selection after at most `n_swaps` swaps, fewer if none improves it; newcomers come last.

    A swap costs O(n d) for each active point that is looked at, least missed first, and O(n d^2).
    """
    if n_swaps == 0:
        return selection
    given = zip(blocks, selection.active, selection.sites or (), strict=True)
    states = [ActiveState(kernel, block, active, sites) for block, active, sites in given]
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
    active, sites = tuple(state.active for state in states), tuple(state.sites for state in states)
    return Selection(np.array(order, dtype=np.intp), active, np.array(gain), sites)


def _find_swap(states: list[ActiveState], order: list[int]) -> tuple[int, int, int, int, float] | None:
    """Place and position of the point to take out; task, row and gain of the one to put in."""
    positions = in_order(np.array(order), [np.arange(len(state.active)) for state in states])
    missed = in_order(np.array(order), [state.removal_gains() for state in states])
    offers = [state.best() for state in states]
    for place in np.argsort(missed, kind="stable"):
        task = order[place]
        trial = [*offers[:task], states[task].best(positions[place]), *offers[task + 1 :]]
        newcomer_task = int(np.argmax([gain for gain, _ in trial]))
        gain, row = trial[newcomer_task]
        if gain > missed[place] + _MARGIN:
            return int(place), int(positions[place]), newcomer_task, row, gain
    return None


class ActiveState:
    """The posterior of one block under the sites of its active points.

    With C = K_dd + 1 / site_precision, white noise being on every point's own entry, a row has the mean
    K_nd C^-1 site_mean and the variance K_nn - K_nd C^-1 K_dn. Without point i the covariance has
    u u^T / (C^-1)_ii more, u = K_nd (C^-1)_:i, and the mean u (C^-1 site_mean)_i / (C^-1)_ii less.
    """

    def __init__(self, kernel: Any, block: Block, active: IntArray, sites: Sites):
        self.kernel, self.block, self.active, self.sites = kernel, block, active, sites
        prior_var, white = prior_variances(kernel, block.X)
        K = kernel_columns(kernel, block.X[active], block.X)
        K[np.arange(len(active)), active] += white[active]
        inverse = inverse_from_cholesky(cholesky(K[:, active] + np.diag(1.0 / sites.precision))[0])
        self.pulls, self.weights, self.spread = inverse @ K, inverse @ sites.mean, 1.0 / np.diagonal(inverse)
        self.mean, self.var = self.weights @ K, prior_var - np.einsum("dn,dn->n", K, self.pulls)

    def best(self, without: int | None = None) -> tuple[float, int]:
        """Gain (nats) and number of the best row outside; `without` an active point, which stays outside."""
        mean, var = self.mean, self.var
        if without is not None:
            u, spread = self.pulls[without], self.spread[without]
            mean, var = mean - u * (self.weights[without] * spread), var + u * u * spread
        gains = entropy_reduction(self.block.noise, self.block.y, mean, var)
        gains[self.active] = -np.inf
        return float(np.max(gains)), int(np.argmax(gains))

    def removal_gains(self) -> FloatArray:
        """Gain (d,) that each active point would have now, were it not in: at its cavity."""
        kept, u = self.block.at(self.active), self.pulls[np.arange(len(self.active)), self.active]
        mean = self.mean[self.active] - u * self.weights * self.spread
        return entropy_reduction(kept.noise, kept.y, mean, self.var[self.active] + u * u * self.spread)

    def without(self, position: int) -> ActiveState:
        """The state without an active point, the sites of the others held."""
        left = np.delete(np.arange(len(self.active)), position)
        return self._with(self.active[left], self.sites.mean[left], self.sites.precision[left])

    def with_row(self, row: int) -> ActiveState:
        """The state after a row was filtered in."""
        one, at = self.block.at(np.array([row])), slice(row, row + 1)
        _, g, nu, _ = include_moments(one.noise, one.y, self.mean[at], self.var[at])
        mean, precision = site_moments(self.mean[at], self.var[at], g, nu)
        more = np.append(self.sites.mean, mean), np.append(self.sites.precision, precision)
        return self._with(np.append(self.active, row), *more)

    def _with(self, active: IntArray, mean: FloatArray, precision: FloatArray) -> ActiveState:
        silent = 0 if self.block.noise.log_concave else int(np.sum(precision < 2.0 * PRECISION_FLOOR))
        return ActiveState(self.kernel, self.block, active, Sites(mean, precision, silent))
