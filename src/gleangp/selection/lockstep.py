"""Greedy selection in many small blocks at once: every step is made in all of them together.

In hundreds of tasks of a few dozen rows the plain loop of `selection.greedy` spends its time in Python.
Blocks do not interact, so their states can stand in one array, padded to the largest block. Sums run over
the points of one block in their order and nothing else, so that a block's picks do not depend, to the last
bit, on the company it is in: wherever and in whatever groups tasks are dealt with, the choice is the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.filtering import Filter, Inclusion, include_moments
from gleangp.kernels import kernel_columns
from gleangp.selection.greedy import GreedyRun

LARGEST_BLOCK = 256  # rows; larger ones keep the processor busy on their own
_GROUP_ENTRIES = 4_000_000  # of the kernel matrices of one group: 32 MB


def is_small(run: object) -> bool:
    """Whether a run is better made together with others of its kind."""
    if type(run) is not GreedyRun or len(run) > LARGEST_BLOCK or len(run.filters) != 1:
        return False
    noise = run.filters[0].noise
    return noise.at(slice(0, 1)) is noise  # nothing that differs from row to row


def extend_together(runs: Sequence[GreedyRun], wanted: Sequence[int]) -> None:
    """Take the run t to `wanted[t]` picks, as `GreedyRun.extend` would; all runs are small."""
    groups: list[list[int]] = []
    for t, run in enumerate(runs):  # the runs of one selection are all alike
        group = next((g for g in groups if _alike(runs[g[0]], run)), None)
        if group is None:
            groups.append(group := [])
        group.append(t)
    for members in groups:
        members.sort(key=lambda t: len(runs[t]))
        most = max(1, _GROUP_ENTRIES // len(runs[members[-1]]) ** 2)
        for start in range(0, len(members), most):
            part = members[start : start + most]
            _march([runs[t] for t in part], [min(wanted[t], len(runs[t])) for t in part])


def _alike(run: GreedyRun, other: GreedyRun) -> bool:
    return (
        type(run.criterion) is type(other.criterion)
        and run.kernel is other.kernel
        and run.filters[0].noise == other.filters[0].noise
    )


def _march(runs: list[GreedyRun], wanted: list[int]) -> None:
    counts = np.array([w - len(run.picks) for run, w in zip(runs, wanted, strict=True)])
    company = _Company(runs, int(counts.max()))
    for step in range(1, int(counts.max()) + 1):
        company.step()
        done = counts == step
        if done.any():
            company.dismiss(done)
            counts = counts[~done]


class _Company:
    """The filters of several runs as arrays over (run, row), padded with rows that are never taken."""

    def __init__(self, runs: list[GreedyRun], n_steps: int):
        T, n = len(runs), max(len(run) for run in runs)
        self.runs = runs
        self.noise, self.criterion = runs[0].filters[0].noise, runs[0].criterion
        self.K = np.zeros((T, n, n))
        self.y, self.mean, self.var = np.ones((T, n)), np.zeros((T, n)), np.ones((T, n))
        self.taken = np.ones((T, n), dtype=bool)
        self.least = np.array([run.filters[0].least_var for run in runs])
        self.size = max(run.filters[0].size for run in runs)  # shorter factors have zeros in front
        self.rows = np.zeros((T, self.size + n_steps, n))
        for t, run in enumerate(runs):
            f, m = run.filters[0], len(run)
            self.K[t, :m, :m] = kernel_columns(run.kernel, run.X, run.X)
            self.K[t, np.arange(m), np.arange(m)] += run.white
            self.y[t, :m], self.mean[t, :m], self.var[t, :m] = f.y, f.mean, f.var
            self.y[t, m:] = f.y[0]
            self.taken[t, :m] = run.is_active
            self.rows[t, self.size - f.size : self.size, :m] = f.rows[: f.size]
        self.books: list[list[tuple[float, Inclusion]]] = [[] for _ in runs]

    def step(self) -> None:
        """Take in the best row of every run."""
        t = np.arange(len(self.runs))
        keys, row = self._heads()
        mean, var = self.mean[t, row], self.var[t, row]
        g, nu, silent = include_moments(self.noise, self.y[t, row], mean, var)
        done = self.rows[:, : self.size]
        s = self.K[t, row] - np.einsum("tk,tkn->tn", done[t, :, row], done)  # LPJ05 eq. 21
        s *= np.sqrt(nu)[:, None]
        self.rows[:, self.size] = s
        self.size += 1
        self.var -= s * s  # LPJ05 eqs. 24 and 25
        self.mean += (g / np.sqrt(nu))[:, None] * s
        self.taken[t, row] = True
        moments = zip(*(a.tolist() for a in (row, mean, var, g, nu, silent)), strict=True)
        for book, key, inclusion in zip(self.books, keys.tolist(), moments, strict=True):
            book.append((key, Inclusion(*inclusion)))
        for t in np.flatnonzero(~np.all(self.var >= self.least[:, None], axis=1)):
            self._give_back(t).check()  # raises

    def dismiss(self, done: np.ndarray) -> None:
        """Write the states of some runs back to them, and go on without these."""
        keys, rows = self._heads()
        for t in np.flatnonzero(done):
            run, m = self.runs[t], len(self.runs[t])
            run.picks += [inclusion.row for _, inclusion in self.books[t]]
            run.keys += [key for key, _ in self.books[t]]
            run.is_active = self.taken[t, :m].copy()
            run._head = (float(keys[t]), int(rows[t]))
            self._give_back(t)
        left = np.flatnonzero(~done)
        self.runs, self.books = [self.runs[t] for t in left], [self.books[t] for t in left]
        for name in ("K", "y", "mean", "var", "taken", "least", "rows"):
            setattr(self, name, getattr(self, name)[left])

    def _give_back(self, t: int) -> Filter:
        """The filter of a run in the state that it has reached here."""
        f, m = self.runs[t].filters[0], len(self.runs[t])
        f.history += [inclusion for _, inclusion in self.books[t]]
        f.size += len(self.books[t])
        f.rows = self.rows[t, self.size - f.size : self.size, :m].copy()
        f.mean, f.var = self.mean[t, :m].copy(), self.var[t, :m].copy()
        return f

    def _heads(self) -> tuple[FloatArray, IntArray]:
        """Key and row of the next pick of every run; ties go to the lowest row."""
        flat = (a.reshape(-1) for a in (self.y, self.mean, self.var))
        keys = self.criterion.key(self.noise, *flat).reshape(self.var.shape)
        keys[self.taken] = -np.inf
        row = np.argmax(keys, axis=1)
        return keys[np.arange(len(row)), row], row
