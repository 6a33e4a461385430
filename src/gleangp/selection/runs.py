"""Runs of the selectors: greedy filtering with swaps, randomly pivoted Cholesky, greedy choice on a graph."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.random import Generator
from scipy.linalg import lapack
from scipy.sparse import csr_array

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.inference.posterior import PRECISION_FLOOR, Filter, Sites, include_moments, informs, site_moments
from gleangp.kernels import kernel_columns, signal_diag, white_diag
from gleangp.numerics.linalg import cholesky, inverse_from_cholesky, solve_lower
from gleangp.selection.base import Run, Selection, TaskChoice, in_order, join_choices

_MOST_EXPLAINED = 1.0 - 2.0**-53
_PROPOSALS = 32
# A row is explained when this share of its prior variance is left: float64 kernels know no more.
_EXPLAINED = 1e-12
_MARGIN = 1e-9  # nats by which a newcomer must be better: equal points are not swapped to and fro


def entropy_reduction(noise: Any, y: FloatArray, mean: FloatArray, var: FloatArray) -> FloatArray:
    """Fall of the entropy of the posterior process: -1/2 log(1 - nu var) (LPJ05 eq. 19)."""
    share = noise.precision(y, mean, var) * var if noise.log_concave else _moments(noise, y, mean, var)[0]
    return -0.5 * np.log1p(-np.minimum(share, _MOST_EXPLAINED))


def information_gain(noise: Any, y: FloatArray, mean: FloatArray, var: FloatArray) -> FloatArray:
    """Kullback-Leibler divergence of the posterior with the point from the one without, at its marginal.

    1/2 [-log(1 - nu var) - nu var + g^2 var] (Lawrence, Seeger & Herbrich 2003).
    """
    share, g = _moments(noise, y, mean, var)
    return 0.5 * (-np.log1p(-np.minimum(share, _MOST_EXPLAINED)) - share + g * g * var)


def _moments(noise: Any, y, mean, var) -> tuple[FloatArray, FloatArray]:
    """nu var and g, neither above zero for rows without a sound site (`posterior.informs`)."""
    log_z, g, nu = noise.log_partition(y, mean, var)
    share = nu * var
    if noise.log_concave:
        return share, g
    sound = informs(log_z, g, nu, var)
    return np.where(sound, share, np.minimum(share, 0.0)), np.where(sound, g, 0.0)


class GreedyRun(Run):
    """The informative vector machine: rows are filtered in by what they are worth in nats. O(n d) a pick.

    Lawrence & Platt 2004, algorithm 1; Lawrence, Platt & Jordan 2005, algorithm 1.
    """

    def __init__(self, kernel: Any, block: Block, criterion: Any, rng: Generator | None = None):
        super().__init__(len(block), rng)
        self.kernel, self.block, self.criterion = kernel, block, criterion
        self.white = white_diag(kernel, block.X)
        self.filter = Filter(block.y, block.noise, signal_diag(kernel, block.X) + self.white)

    def worth(self) -> FloatArray:
        f = self.filter
        return self.criterion(f.noise, f.y, f.mean, f.var)

    def include(self, row: int) -> None:
        column = kernel_columns(self.kernel, self.block.X[[row]], self.block.X)[0]
        column[row] += self.white[row]
        self.filter.include(row, column)

    def choice(self, count: int, block: Block) -> TaskChoice:
        """All picks, of which none is made ahead, with their sites."""
        return *super().choice(count, block)[:2], self.filter.sites()


def swap(kernel: Any, blocks: list[Block], selection: Selection, n_swaps: int) -> Selection:
    """The selection after at most `n_swaps` swaps, fewer if none improves it; newcomers come last.

    Later points of a greedy choice may make the first ones superfluous (Lawrence, Platt & Jordan 2005,
    section 3.5, who suggest to remove points again). A swap takes out the point that would be missed least
    and puts in the best of all rows outside, of any task, if that one is worth more. The sites of all other
    points stay. It costs O(n d) for each active point that is looked at, least missed first, and O(n d^2).
    """
    given = zip(blocks, selection.active, selection.sites or (), strict=True)
    states = [ActiveState(kernel, block, active, sites) for block, active, sites in given]
    order, gain = selection.order.tolist(), selection.gain.tolist()
    for _ in range(n_swaps):
        found = _find_swap(states, order)
        if found is None:
            break
        place, position, newcomer_task, row, newcomer_gain = found
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
        white = white_diag(kernel, block.X)
        K = kernel_columns(kernel, block.X[active], block.X)
        K[np.arange(len(active)), active] += white[active]
        inverse = inverse_from_cholesky(cholesky(K[:, active] + np.diag(1.0 / sites.precision))[0])
        self.pulls, self.weights, self.spread = inverse @ K, inverse @ sites.mean, 1.0 / np.diagonal(inverse)
        self.mean, taken = self.weights @ K, np.einsum("dn,dn->n", K, self.pulls)
        self.var = signal_diag(kernel, block.X) + white - taken

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


def keep_everything(kernel, blocks: list[Block]) -> Selection:
    """All rows of all blocks, in the order in which greedy entropy would have taken them.

    With Gaussian noise of variance s_n the gain of a point grows with its posterior variance over s_n, so the
    greedy order is that of a Cholesky factorisation with complete pivoting of s^-1/2 K s^-1/2 + 1, and the
    gain of a pick is log(pivot). One LAPACK call per task.
    """
    choices: list[TaskChoice] = []
    for block in blocks:
        root = np.broadcast_to(np.sqrt(block.noise.variance), len(block))
        C = kernel(block.X) / root / root[:, None]
        C.flat[:: len(C) + 1] += 1.0
        factor, pivots, rank, _ = lapack.dpstrf(C, lower=1, tol=0.0, overwrite_a=1)
        gain = np.zeros(len(block))
        gain[:rank] = np.log(np.diagonal(factor)[:rank])
        choices.append((pivots.astype(np.intp) - 1, np.minimum.accumulate(np.maximum(gain, 0.0)), None))
    task = np.repeat(np.arange(len(blocks)), [len(b) for b in blocks])
    gain = np.concatenate([gain for _, gain, _ in choices])  # falls within a task: a stable sort merges
    return join_choices(task[np.lexsort((task, -gain))], choices)


class PivotedRun(Run):
    """Randomly pivoted partial Cholesky of the prior covariance of one block, without white noise.

    Rows are drawn in proportion to their score, the prior variance that those taken leave unexplained
    (Chen, Epperly, Tropp & Webber 2025). It neither runs to the periphery, as the greedy entropy does in many
    dimensions, nor misses small clusters, as uniform sampling does. Blocks of proposals are drawn at once and
    thinned by rejection (Epperly, Tropp & Webber 2024), which leaves the law of the picks unchanged and turns
    the work into matrix products. There may therefore be more picks than were asked for.
    """

    rng: Generator

    def __init__(self, kernel: Any, X: FloatArray, rng: Generator):
        super().__init__(len(X), rng)
        self.kernel, self.X = kernel, X
        self.residual = signal_diag(kernel, X).astype(np.float64)
        self._floor = _EXPLAINED * self.residual
        self._rows = np.empty((0, len(X)))  # of the factor, the first `_size` count
        self._size = 0

    def worth(self) -> FloatArray:
        return self.residual

    def extend(self, count: int) -> Self:
        """Draw at least `count` more rows, or as many as there are."""
        target = min(len(self.picks) + count, len(self))
        self._reserve(target - self._size + _PROPOSALS)
        while len(self.picks) < target:
            if self.residual.any():
                self._propose(min(_PROPOSALS, max(1, len(self) // 8)))
            else:  # everything is explained: rows left are alike
                self.take(self.choose(self.scores()))
        return self

    def include(self, row: int) -> None:
        """Take what the row explains off all others."""
        if self.residual[row] > 0.0:
            step = self._columns(np.array([row])) / np.sqrt(self.residual[row])
            self._append(step)
            self._explain(step[0])

    def choice(self, count: int, block: Block) -> TaskChoice:
        """The first `count` picks, with the entropy that each removed."""
        active, left, _ = super().choice(count, block)
        kept = block.at(active)
        var = left + white_diag(self.kernel, kept.X)
        return active, entropy_reduction(kept.noise, kept.y, np.zeros(count), var), None

    def _propose(self, n_proposals: int) -> None:
        proposals = self.rng.choice(len(self), size=n_proposals, p=self.residual / self.residual.sum())
        thresholds = self.rng.random(n_proposals) * self.residual[proposals]
        columns = self._columns(proposals)
        accepted, factor = _thin(columns[:, proposals], thresholds)
        if not accepted:  # by rounding, a kernel's matrix can deny the variance that its diagonal has
            denied = ~(columns[np.arange(n_proposals), proposals] > self._floor[proposals])
            self.residual[proposals[denied]] = 0.0
        new = solve_lower(factor, columns[accepted])
        for row, step in zip(proposals[accepted].tolist(), new, strict=True):
            self._note(row, self.residual.sum(), self.residual[row])
            self._explain(step)
        self._append(new)

    def _columns(self, rows: IntArray) -> FloatArray:
        """Covariances (k, n) of some rows with all, given those that were taken."""
        done = self._rows[: self._size]
        return kernel_columns(self.kernel, self.X[rows], self.X) - done[:, rows].T @ done

    def _explain(self, step: FloatArray) -> None:
        self.residual -= step * step
        self.residual[(self.residual < self._floor) | ~self.left] = 0.0

    def _append(self, new: FloatArray) -> None:
        self._reserve(len(new))
        self._rows[self._size : self._size + len(new)] = new
        self._size += len(new)

    def _reserve(self, count: int) -> None:
        if self._size + count > len(self._rows):
            rows = np.empty((max(self._size + count, 2 * len(self._rows)), len(self)))
            rows[: self._size] = self._rows[: self._size]
            self._rows = rows


def _thin(K: FloatArray, thresholds: FloatArray) -> tuple[list[int], FloatArray]:
    """Proposals kept by rejection, and the lower factor of their residual covariance.

    A proposal is kept with probability (its variance now) / (its variance when it was drawn).
    """
    K, factor = K.copy(), np.zeros_like(K)
    accepted: list[int] = []
    for i in range(len(K)):
        if K[i, i] > thresholds[i]:
            column = K[:, i] / np.sqrt(K[i, i])
            K -= np.outer(column, column)
            factor[:, len(accepted)] = column
            accepted.append(i)
    return accepted, np.tril(factor[accepted, : len(accepted)])


class GraphRun(Run):
    """A greedy choice on one graph; only the scores that a pick changes are computed again.

    The weights W (n, n) are symmetric, in [0, 1], with zero diagonal. Entries of a row are stored in
    ascending order of weight: rows with equal weights then have equal sums to the last bit, and stay ties.
    """

    def __init__(self, W: csr_array, objective: str = "degree"):
        if objective not in ("degree", "coverage"):
            raise ValueError(f"objective={objective!r} is not known; use 'degree' or 'coverage'.")
        super().__init__(W.shape[0])
        start = np.repeat(np.arange(len(self)), np.diff(W.indptr))
        order = np.lexsort((W.data, start))
        self.W = csr_array((W.data[order], W.indices[order], W.indptr), shape=W.shape)
        self.objective = objective
        self.covered = np.zeros(len(self))  # strongest link of every row to a kept one, 1 for a kept one
        self._worth = self.worth_of(np.arange(len(self)))

    def worth(self) -> FloatArray:
        return self._worth

    def worth_of(self, rows: IntArray) -> FloatArray:
        """Of some rows the degree, d(x) of Zhu & Sun 2013, eq. 13, or the coverage that they would add.

        Coverage is sum_i max_{j kept} W_ij with W_ii = 1. It is (m - t) times Zhu & Sun 2013, eq. 10, plus t,
        so its greedy is the plain greedy on eq. 10; with the diagonal it is monotone submodular.
        """
        W = self.W[rows]
        if self.objective == "degree":
            return W @ self.left.astype(np.float64)
        rise = np.maximum(W.data - self.covered[W.indices], 0.0)
        start = np.repeat(np.arange(len(rows)), np.diff(W.indptr))
        return np.bincount(start, rise, minlength=len(rows)) + (1.0 - self.covered[rows])

    def include(self, row: int) -> None:
        """Remove the row from the graph, or let it cover its neighbours, which changes their gains too."""
        edges = slice(*self.W.indptr[row : row + 2])
        linked = affected = self.W.indices[edges]
        if self.objective == "coverage":
            self.covered[linked] = np.maximum(self.covered[linked], self.W.data[edges])
            self.covered[row] = 1.0
            affected = np.concatenate([linked, self.W[linked].indices])
        affected = np.unique(np.append(affected, row))
        self._worth[affected] = self.worth_of(affected)
