"""Greedy selection in many small blocks at once: every step is made in all of them together.

In hundreds of tasks of a few dozen rows the plain loop of `selection.greedy` spends its time in Python.
Blocks do not interact, so their states can stand in one array, padded to the largest block. Sums run over
the points of one block in their order and nothing else, so that a block's picks do not depend, to the last
bit, on the company it is in: wherever and in whatever groups tasks are dealt with, the choice is the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gleangp._typing import FloatArray
from gleangp.inference.filtering import Inclusion, include_moments, indefinite, least_variance
from gleangp.kernels import kernel_columns
from gleangp.noise import NoiseModel
from gleangp.selection.criteria import Criterion
from gleangp.selection.greedy import GreedyRun

LARGEST_BLOCK = 256  # rows; larger ones keep the processor busy on their own
GROUP_ENTRIES = 4_000_000  # of the kernel matrices of one group: 32 MB


def is_small(run: object) -> bool:
    """Whether a run is better made together with others of its kind."""
    if type(run) is not GreedyRun or len(run) > LARGEST_BLOCK or len(run.filters) != 1:
        return False
    return same_in_all_rows(run.filters[0].noise)


def same_in_all_rows(noise: NoiseModel) -> bool:
    """Whether a noise model has nothing that differs from row to row."""
    return noise.at(slice(0, 1)) is noise


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
        most = max(1, GROUP_ENTRIES // len(runs[members[-1]]) ** 2)
        for start in range(0, len(members), most):
            part = members[start : start + most]
            _march([runs[t] for t in part], [min(wanted[t], len(runs[t])) for t in part])


def _alike(run: GreedyRun, other: GreedyRun) -> bool:
    return (
        type(run.criterion) is type(other.criterion)
        and run.kernel is other.kernel
        and (run.filters[0].noise is other.filters[0].noise or run.filters[0].noise == other.filters[0].noise)
    )


def _march(runs: list[GreedyRun], wanted: list[int]) -> None:
    counts = np.array([w - len(run.picks) for run, w in zip(runs, wanted, strict=True)])
    company = _CompanyOfRuns(runs, int(counts.max()))
    for step in range(1, int(counts.max()) + 1):
        company.step()
        done = counts == step
        if done.any():
            company.dismiss(done)
            counts = counts[~done]


class Company:
    """Filters of several blocks as arrays over (block, row), padded with rows that are never taken.

    `books` (T, steps, 7) has key, row, mean, variance, g, nu and silence of every pick. A block without any
    row left stands still, with keys of -inf.
    """

    def __init__(
        self,
        criterion: Criterion,
        noise: NoiseModel,
        sizes: list[int],
        K: FloatArray,  # (T, n, n), white included
        n_steps: int,
        n_before: int = 0,
    ):
        T, n = len(sizes), max(sizes)
        self.criterion, self.noise, self.sizes, self.K = criterion, noise, sizes, K
        self.y, self.mean, self.var = np.ones((T, n)), np.zeros((T, n)), np.ones((T, n))
        self.taken = np.ones((T, n), dtype=bool)
        self.least = np.zeros((T, 1))
        self.before = self.size = n_before
        self.rows = np.zeros((T, n_before + n_steps, n))
        self.books = np.empty((T, n_steps, 7))

    def enter(self, t: int, y: FloatArray, var: FloatArray) -> None:
        """Put in a block that nothing was taken of."""
        m = len(y)
        self.y[t, :m], self.var[t, :m], self.taken[t, :m] = y, var, False
        self.y[t, m:] = y[0]
        self.least[t] = least_variance(var)

    def look(self) -> None:
        """Find key and row of the next pick of every block; ties go to the lowest row."""
        flat = (a.reshape(-1) for a in (self.y, self.mean, self.var))
        keys = self.criterion.key(self.noise, *flat).reshape(self.var.shape)
        keys[self.taken] = -np.inf
        self.index = np.arange(len(keys))
        self.head_rows = keys.argmax(axis=1)
        self.head_keys = keys[self.index, self.head_rows]

    def step(self) -> None:
        """Take in the best row of every block, and look for the next."""
        t, row = self.index, self.head_rows
        place = t * self.var.shape[1] + row  # in the arrays flattened, which is the faster way to read them
        y, mean, var = (a.reshape(-1)[place] for a in (self.y, self.mean, self.var))
        g, nu, silent = include_moments(self.noise, y, mean, var)
        root = np.sqrt(nu)
        done = self.rows[:, : self.size]
        s = self.K[t, row]
        s -= np.einsum("tk,tkn->tn", done[t, :, row], done)  # LPJ05 eq. 21
        s *= root[:, None]
        if self.head_keys.min() == -np.inf:
            s[self.head_keys == -np.inf] = 0.0
        self.rows[:, self.size] = s
        self.mean += (g / root)[:, None] * s  # LPJ05 eqs. 24 and 25
        self.var -= np.multiply(s, s, out=s)
        self.taken[t, row] = True
        for column, values in enumerate((self.head_keys, row, mean, var, g, nu, silent)):
            self.books[:, self.size - self.before, column] = values
        self.size += 1
        if not (self.var >= self.least).all():
            t = np.flatnonzero(~np.all(self.var >= self.least, axis=1))[0]
            m = self.sizes[t]
            raise indefinite(self.var[t, :m], np.count_nonzero(self.taken[t, :m]))
        self.look()


class _CompanyOfRuns(Company):
    """Runs that may have made some picks already, and that leave when they have made theirs."""

    def __init__(self, runs: list[GreedyRun], n_steps: int):
        before = max(run.filters[0].size for run in runs)  # shorter factors have zeros in front
        sizes = [len(run) for run in runs]
        K = np.zeros((len(runs), max(sizes), max(sizes)))
        super().__init__(runs[0].criterion, runs[0].filters[0].noise, sizes, K, n_steps, before)
        self.runs = runs
        for t, run in enumerate(runs):
            f, m = run.filters[0], len(run)
            K[t, :m, :m] = kernel_columns(run.kernel, run.X, run.X)
            np.einsum("ii->i", K[t, :m, :m])[:] += run.white
            self.enter(t, f.y, f.prior_var)
            self.mean[t, :m], self.var[t, :m], self.taken[t, :m] = f.mean, f.var, run.is_active
            self.rows[t, before - f.size : before, :m] = f.rows[: f.size]
        self.look()

    def dismiss(self, done: np.ndarray) -> None:
        """Write the states of some runs back to them, and go on without these."""
        for t in np.flatnonzero(done):
            self._give_back(t)
        left = np.flatnonzero(~done)
        self.runs, self.sizes = [self.runs[t] for t in left], [self.sizes[t] for t in left]
        arrays = ("K", "y", "mean", "var", "taken", "least", "rows", "books", "head_keys", "head_rows")
        for name in arrays if len(left) else ():
            setattr(self, name, getattr(self, name)[left])
        self.index = np.arange(len(left))

    def _give_back(self, t: int) -> None:
        run, m, book = self.runs[t], self.sizes[t], self.books[t, : self.size - self.before]
        f, rows, silent = run.filters[0], book[:, 1].astype(np.intp).tolist(), (book[:, 6] > 0.0).tolist()
        run.keys += book[:, 0].tolist()
        run.picks += rows
        run.is_active = self.taken[t, :m].copy()
        run._head = (float(self.head_keys[t]), int(self.head_rows[t]))
        f.history += map(Inclusion, rows, *book[:, 2:6].T.tolist(), silent)
        f.size += len(book)
        f.rows = self.rows[t, self.size - f.size : self.size, :m].copy()
        f.mean, f.var = self.mean[t, :m].copy(), self.var[t, :m].copy()
