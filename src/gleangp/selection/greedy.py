"""Greedy selection on one block: always the point that a criterion values most.

Lawrence & Platt 2004, algorithm 1; Lawrence, Platt & Jordan 2005, algorithm 1. Ties go to the lowest
row. The plain loop reads the whole factor once per pick, so memory bandwidth is its limit. On large
blocks picks are made in **speculative blocks** instead:

1. run the same greedy on a small pool of the best and most promising rows, which predicts the next picks;
2. make the columns of those picks with one matrix product (those of picks that fail below are kept:
   most of them are picked a block later);
3. bound the score of every other row over all the steps at once; rows whose bound reaches a pick's
   score are looked at exactly, and the picks from the first one that such a row would have beaten are
   thrown away.

The picks are those of the plain loop; only the order of summation differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.inference.filtering import Filter, Sites, mean_steps
from gleangp.kernels import has_white, kernel_columns, signal_diag
from gleangp.noise import NoiseModel
from gleangp.numerics.linalg import solve_lower
from gleangp.selection.base import TaskChoice, best_row
from gleangp.selection.criteria import Criterion

# Speculation starts when a plain step reads this many numbers, of the factor and of the inputs: below, the
# pool costs more than it saves. Measured on 2 000 to 100 000 rows.
_SPECULATE_FROM = 600_000
_SPECULATE_FROM_PICKS = 32  # the first picks scatter too widely for a pool to foretell them
_LEAST_POOL, _MOST_POOL = 512, 2048  # rows; a 64th of all in between
_HOPEFUL = 0.25  # share of the pool for rows that are silent but may become the best (`GreedyRun._pool`)
_REACH = 0.4  # standard deviations that a mean may move in a block, for a guess
_LEAST_PICKS, _MOST_PICKS = 8, 32  # of a block; the number follows how well the last one held


class GreedyRun:
    """A greedy selection that can be taken further: the state of one block.

    Several outputs may share the active set (`outputs` has one (y, noise) pair each): a point's
    gain is then the sum over the outputs.

    Attributes
    ----------
    picks : list of int
        Rows in order of inclusion.
    keys : list of float
        The criterion's key (one output) or gain (several) of each pick at its inclusion.
    """

    def __init__(
        self,
        kernel,
        X: FloatArray,
        outputs: Sequence[tuple[FloatArray, NoiseModel]],
        criterion: Criterion,
        variances: tuple[FloatArray, FloatArray] | None = None,  # `prior_variances`, where they are known
    ):
        self.kernel = kernel
        self.X = X
        self.criterion = criterion
        prior_var, self.white = prior_variances(kernel, X) if variances is None else variances
        self.filters = [Filter(y, noise, prior_var) for y, noise in outputs]
        self.is_active = np.zeros(len(X), dtype=bool)
        self.picks: list[int] = []
        self.keys: list[float] = []
        self._head: tuple[float, int] | None = None
        self._foresight = _LEAST_PICKS
        self._spare: _Spare | None = None

    def __len__(self) -> int:
        return len(self.X)

    def __getstate__(self):
        # Travels between processes; columns are cheaper to make again.
        return {**self.__dict__, "_spare": None}

    @property
    def head(self) -> tuple[float, int]:
        """Key and row of the next pick; the key is -inf when no row is left."""
        if self._head is None:
            self._head = _largest(self._candidate_keys())
        return self._head

    def extend(self, count: int) -> GreedyRun:
        """Make `count` more picks, or as many as there are rows."""
        target = min(len(self.picks) + count, len(self))
        for f in self.filters:
            f.reserve(target - len(self.picks))
        can_speculate = self._can_bound()
        while len(self.picks) < target:
            left = target - len(self.picks)
            size = self.filters[0].size
            reads = (size + self.X.shape[1]) * len(self)
            if can_speculate and size >= _SPECULATE_FROM_PICKS and reads >= _SPECULATE_FROM:
                count = min(left, self._foresight)
                held = self._block(count)
                self._foresight = 2 * count if held == count else held + held // 2
                self._foresight = min(max(self._foresight, _LEAST_PICKS), _MOST_PICKS)
            else:
                self._step()
        return self

    def force(self, row: int) -> None:
        """Include a row of the caller's choice, keeping the books as for a pick."""
        self._include(row, float(self._candidate_keys()[row]))

    def candidate_gains(self) -> FloatArray:
        """Gain of every row in nats; zero for rows that are active or would not help."""
        keys = self._candidate_keys()
        keys[keys == -np.inf] = 0.0
        return np.maximum(self._in_nats(keys), 0.0)

    def scores(self) -> FloatArray:
        """Gain of every row in nats; -inf for rows that are active."""
        return np.where(self.is_active, -np.inf, self.candidate_gains())

    def choose(self, scores: FloatArray) -> int:
        """The best row; the lowest of several."""
        return best_row(scores)

    def task_sites(self) -> Sites:
        """Sites of the picks, of the first output."""
        return self.sites()[0]

    def sites(self, count: int | None = None) -> list[Sites]:
        """Sites of the first `count` picks, per output."""
        return [f.sites(count) for f in self.filters]

    def gains(self) -> FloatArray:
        """Gain of every pick at its inclusion, in nats."""
        return self._in_nats(np.array(self.keys))

    def choice(self, count: int, block: Block) -> TaskChoice:
        """The first `count` picks."""
        active, f = np.array(self.picks[:count], dtype=np.intp), self.filters[0]
        alone = len(self.filters) == 1 and f.noise.precision_depends_on_mean
        sites = f.sites(count)
        seen = f.seen_by_others(sites) if alone else None
        return TaskChoice(active, self.gains()[:count], sites, seen)

    def at(self, rows: IntArray) -> GreedyRun:
        """The same run seen by some of the rows only."""
        part = object.__new__(GreedyRun)
        part.kernel, part.X, part.criterion = self.kernel, self.X[rows], self.criterion
        part.white = self.white[rows]
        part.filters = [f.at(rows) for f in self.filters]
        part.is_active = self.is_active[rows]
        part.picks, part.keys, part._head = [], [], None
        part._foresight = _LEAST_PICKS
        part._spare = None
        return part

    def _prior_columns(self, rows: IntArray) -> FloatArray:
        """Rows `rows` of K, (len(rows), n), white on their own positions."""
        columns = kernel_columns(self.kernel, self.X[rows], self.X)
        columns[np.arange(len(rows)), rows] += self.white[rows]
        return columns

    def _candidate_keys(self) -> FloatArray:
        keys = self._sum_keys(
            [
                self.criterion.key(f.noise, f.y, f.mean, f.var)
                if f.noise.log_concave
                else self.criterion.key_seen(f.look(), f.var)  # and including the best needs no other look
                for f in self.filters
            ]
        )
        keys[self.is_active] = -np.inf
        return keys

    def _in_nats(self, keys: FloatArray) -> FloatArray:
        return self.criterion.gain(keys) if len(self.filters) == 1 else keys

    def _sum_keys(self, keys: list[Any]) -> FloatArray:
        if len(keys) == 1:
            return keys[0]
        return np.sum([self.criterion.gain(key) for key in keys], axis=0)

    def _can_bound(self) -> bool:
        first = np.zeros(1, dtype=np.intp)
        return all(
            self.criterion.key_bound(f.noise.at(first), f.y[:1], f.mean[:1], f.mean[:1], f.var[:1], f.var[:1])
            is not None
            for f in self.filters
        )

    def _step(self) -> None:
        key, row = self.head
        self._include(row, key)

    def _include(self, row: int, key: float) -> None:
        column = self._prior_columns(np.array([row]))[0]
        for f in self.filters:
            f.include(row, column)
        self.is_active[row] = True
        self.picks.append(row)
        self.keys.append(key)
        self._head = None

    def _block(self, count: int) -> int:
        """Speculate on the next `count` picks, include those that hold, and say how many."""
        keys = self._candidate_keys()
        self._head = _largest(keys)
        size = min(max(_LEAST_POOL, len(self) // 64), _MOST_POOL)
        pool = self._pool(keys, min(size, len(self) - len(self.picks)))
        forecast = self.at(pool)
        for _ in range(min(count, len(pool))):
            forecast._step()
        picks = pool[forecast.picks]
        if picks[0] != self._head[1]:  # rounding broke a tie the other way
            self._step()
            return 1
        columns = self._posterior_columns(picks)
        new_rows = self._prospective_rows(columns, forecast)
        held = self._first_beaten(pool, picks, forecast, new_rows)
        self._spare = _Spare(picks[held:], [c[held:] for c in columns], self.filters[0].size)
        for f, seen, new in zip(self.filters, forecast.filters, new_rows, strict=True):
            inclusions = [h._replace(row=int(pool[h.row])) for h in seen.history[:held]]
            f.append(new[:held], inclusions)
        self.is_active[picks[:held]] = True
        self.picks += picks[:held].tolist()
        self.keys += forecast.keys[:held]
        self._head = None
        return held

    def _pool(self, keys: FloatArray, count: int) -> IntArray:
        """Rows among which the next picks are expected: the best, and some that may become so.

        Where noise is not log-concave, a row that spans two sides says nothing until a neighbour moves it to
        one of them, and then it is among the best.
        """
        if all(f.noise.log_concave for f in self.filters):
            return _best_rows(keys, count)
        silent = np.flatnonzero((keys <= 0.0) & ~self.is_active)
        hopes = []
        for f in self.filters:
            mean, var = f.mean[silent], f.var[silent]
            reach = _REACH * np.sqrt(np.maximum(var, 0.0))
            box = mean - reach, mean + reach, (1.0 - _REACH) * var, var
            hopes.append(self.criterion.key_bound(f.noise.at(silent), f.y[silent], *box))
        hopeful = silent[_best_rows(self._sum_keys(hopes), int(_HOPEFUL * count))]
        others = keys.copy()
        others[hopeful] = -np.inf
        return np.sort(np.concatenate([hopeful, _best_rows(others, count - len(hopeful))]))

    def _posterior_columns(self, picks: IntArray) -> list[FloatArray]:
        """Columns (count, n) of the present posterior covariance at some rows, one array per filter."""
        known, places = np.zeros(len(picks), dtype=bool), np.zeros(0, dtype=np.intp)
        if self._spare is not None:
            place = {row: k for k, row in enumerate(self._spare.rows.tolist())}
            known = np.array([row in place for row in picks.tolist()])
            places = np.array([place[row] for row in picks[known].tolist()], dtype=np.intp)
        fresh = picks[~known]
        prior = self._prior_columns(fresh) if len(fresh) else np.empty((0, len(self)))
        found = []
        for k, f in enumerate(self.filters):
            columns = np.empty((len(picks), len(self)))
            columns[~known] = prior - f.rows[: f.size, fresh].T @ f.rows[: f.size]  # LPJ05 eq. 21
            if self._spare is not None:
                since = f.rows[self._spare.size : f.size]
                columns[known] = self._spare.columns[k][places] - since[:, picks[known]].T @ since
            found.append(columns)
        return found

    def _prospective_rows(self, columns: list[FloatArray], forecast: GreedyRun) -> list[FloatArray]:
        """New factor rows (count, n) of every filter, were all picks to hold.

        With T_jk = row k of the factor at pick j and T_jj = nu_j^-1/2 (LPJ05 eq. 23), the rows solve
        T rows = columns of the posterior covariance before the block.
        """
        new_rows = []
        for f, seen, own in zip(self.filters, forecast.filters, columns, strict=True):
            T = np.tril(seen.rows[f.size : seen.size, forecast.picks].T, -1)
            T[np.diag_indices_from(T)] = [h.nu**-0.5 for h in seen.history]
            new_rows.append(solve_lower(T, own))
        return new_rows

    def _first_beaten(self, pool, picks, forecast, new_rows) -> int:
        """Number of leading picks that no row outside the pool would have beaten at its step."""
        steps = [mean_steps(seen.history) for seen in forecast.filters]
        bound = self._sum_keys(
            [
                self.criterion.key_bound(f.noise, f.y, *_box(f, step[:-1], new[:-1]))
                for f, step, new in zip(self.filters, steps, new_rows, strict=True)
            ]
        )
        bound[self.is_active] = -np.inf
        bound[pool] = -np.inf
        suspects = np.flatnonzero(bound >= min(forecast.keys))
        if len(suspects) == 0:
            return len(picks)
        keys = self._sum_keys(
            [
                self.criterion.key(f.noise.at(suspects), f.y[suspects], *_path(f, step, new, suspects))
                for f, step, new in zip(self.filters, steps, new_rows, strict=True)
            ]
        )
        mine = np.array(forecast.keys)[:, None]
        beaten = (keys > mine) | ((keys == mine) & (suspects < picks[:, None]))
        failed = np.flatnonzero(beaten.any(axis=1))
        return max(1, int(failed[0])) if len(failed) else len(picks)


class _Spare(NamedTuple):
    """Columns of the posterior covariance at rows that were foretold but not picked."""

    rows: IntArray  # (k,)
    columns: list[FloatArray]  # (k, n) per filter
    size: int  # of the factor when they were made


def prior_variances(kernel, X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Prior variance of every row, and what of it is white."""
    signal = signal_diag(kernel, X)
    white = kernel.diag(X) - signal if has_white(kernel) else np.zeros(len(X))
    return signal + white, white


def _largest(keys: FloatArray) -> tuple[float, int]:
    """Largest key and its row; ties go to the lowest row."""
    row = int(np.argmax(keys))
    return float(keys[row]), row


def _best_rows(keys: FloatArray, count: int) -> IntArray:
    """The rows with the `count` largest keys, ascending; among ties the lowest rows."""
    if count >= len(keys):
        return np.arange(len(keys))
    if count == 0:
        return np.zeros(0, dtype=np.intp)
    threshold = np.partition(keys, len(keys) - count)[len(keys) - count]
    above = np.flatnonzero(keys > threshold)
    ties = np.flatnonzero(keys == threshold)[: count - len(above)]
    return np.sort(np.concatenate([above, ties]))


def _box(f: Filter, steps: FloatArray, new_rows: FloatArray):
    """Least and largest mean, least and largest variance of every row while the steps are made."""
    mean, low, high = f.mean.copy(), f.mean.copy(), f.mean.copy()
    scratch = np.empty_like(mean)
    for step, row in zip(steps, new_rows, strict=True):
        mean += np.multiply(row, step, out=scratch)
        np.minimum(low, mean, out=low)
        np.maximum(high, mean, out=high)
    return low, high, f.var - np.einsum("kn,kn->n", new_rows, new_rows), f.var


def _path(f: Filter, steps: FloatArray, new_rows: FloatArray, rows: IntArray):
    """Mean and variance (count, len(rows)) of some rows just before each of the steps."""
    new = new_rows[:, rows]
    moves = np.cumsum(steps[:, None] * new, axis=0) - steps[:, None] * new
    falls = np.cumsum(new * new, axis=0) - new * new
    return f.mean[rows] + moves, f.var[rows] - falls
