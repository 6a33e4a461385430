"""Greedy selection over many small tasks at once, from nothing to the order over all of them.

What `selection.merge` does with one run per task, `selection.lockstep` steps and all: here nothing is kept
run by run, because with tasks of a few dozen rows that costs more than the steps. All tasks go on until the
merge has enough of each, and what the steps wrote down becomes the selection in a few operations on arrays.
The result is that of the runs, to the last bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.inference.filtering import Sites, site_moments, without_site
from gleangp.kernels import kernel_columns
from gleangp.selection.base import Selection, in_order
from gleangp.selection.criteria import Criterion
from gleangp.selection.greedy import prior_variances
from gleangp.selection.lockstep import GROUP_ENTRIES, LARGEST_BLOCK, Company, same_in_all_rows
from gleangp.selection.merge import merge_known

_FIRST_SHARE = 1.5  # of an equal share of the budget, taken from every task at first
_GROWTH = 1.25


@dataclass(frozen=True, slots=True, eq=False)
class PriorOfTasks:
    """What selection must know of the kernel, of small tasks: padded arrays."""

    sizes: list[int]
    K: FloatArray  # (T, n, n), white included
    var: FloatArray  # (T, n)


def prior_of_tasks(kernel, inputs: list[FloatArray]) -> PriorOfTasks | None:
    """The covariances of the rows of every task; None where tasks are not small, too many, or one alone."""
    sizes = [len(X) for X in inputs]
    T, n = len(sizes), max(sizes)
    if T == 1 or min(sizes) == 0 or n > LARGEST_BLOCK or T * n**2 > GROUP_ENTRIES:
        return None
    K, var = np.zeros((T, n, n)), np.ones((T, n))
    total, white = (np.split(v, np.cumsum(sizes)[:-1]) for v in prior_variances(kernel, np.vstack(inputs)))
    for t, (X, m) in enumerate(zip(inputs, sizes, strict=True)):
        K[t, :m, :m] = kernel_columns(kernel, X, X)  # one by one: bits must not depend on the company
        np.einsum("ii->i", K[t, :m, :m])[:] += white[t]
        var[t, :m] = total[t]
    return PriorOfTasks(sizes, K, var)


def select_together(
    criterion: Criterion, prior: PriorOfTasks | None, blocks: list[Block], n_active: int
) -> Selection | None:
    """The greedy choice over all blocks; None where they need runs of their own.

    Parameters
    ----------
    criterion : Criterion
        What a point is worth.
    prior : PriorOfTasks, optional
        Covariances of the rows.
    blocks : list of Block
        Rows of every task, under one noise model.
    n_active : int
        Budget over all tasks, at most the number of rows.

    Returns
    -------
    Selection or None
        Ties between tasks go to the lowest.
    """
    noise = blocks[0].noise
    alike = all(b.noise is noise or b.noise == noise for b in blocks)
    if prior is None or not alike or not same_in_all_rows(noise):
        return None
    most = max(prior.sizes)
    share = min(math.ceil(_FIRST_SHARE * n_active / len(blocks)), most)
    company = _CompanyOfBlocks(criterion, prior, blocks, share)
    while True:
        while company.size < share:
            company.step()
        order, counts, starved = merge_known(company.weights(), n_active)
        if starved is None:
            return company.selection(order, np.array(counts))
        share = min(max(share + 1, math.ceil(_GROWTH * share)), most)
        company.reserve(share)


class _CompanyOfBlocks(Company):
    """Blocks that all stay until the end."""

    def __init__(self, criterion: Criterion, prior: PriorOfTasks, blocks: list[Block], n_steps: int):
        super().__init__(criterion, blocks[0].noise, prior.sizes, prior.K, n_steps)
        self.prior_var = prior.var
        for t, block in enumerate(blocks):
            self.enter(t, block.y, prior.var[t, : len(block)])
        self.look()

    def reserve(self, n_steps: int) -> None:
        """Make room for as many steps from the start."""
        T, more = len(self.sizes), n_steps - self.rows.shape[1]
        self.rows = np.concatenate([self.rows, np.zeros((T, more, self.rows.shape[2]))], axis=1)
        self.books = np.concatenate([self.books, np.empty((T, more, 7))], axis=1)

    def weights(self) -> list[list[float]]:
        """Keys of the picks of every task, then that of its next."""
        keys = np.column_stack([self.books[:, : self.size, 0], self.head_keys]).tolist()
        return [of_task[: n + 1] for of_task, n in zip(keys, self.sizes, strict=True)]

    def selection(self, order: IntArray, counts: IntArray) -> Selection:
        """The first `counts` picks of every task."""
        longest = int(counts.max())
        key, row, mean, var, g, nu, silent = np.moveaxis(self.books[:, :longest], 2, 0)
        row, used = row.astype(np.intp), np.arange(longest) < counts[:, None]
        gain = self.criterion.gain(key)
        site_mean, precision = site_moments(mean, var, g, nu)
        n_silent = np.sum(silent * used, axis=1).astype(int).tolist()
        each = list(enumerate(counts.tolist()))
        active = tuple(row[t, :c] for t, c in each)
        sites = tuple(Sites(site_mean[t, :c], precision[t, :c], n_silent[t]) for t, c in each)
        seen = None
        if self.noise.precision_depends_on_mean:
            seen = self._seen(row, used, np.where(used, g / np.sqrt(nu), 0.0), site_mean, precision)
        return Selection(order, active, in_order(order, [gain[t, :c] for t, c in each]), sites, seen)

    def _seen(self, row: IntArray, used: np.ndarray, steps: FloatArray, site_mean, precision):
        """`Filter.seen_by_others` of every task."""
        rows = self.rows[:, : used.shape[1]] * used[:, :, None]
        mean = np.einsum("tk,tkn->tn", steps, rows)
        var = np.maximum(self.prior_var - np.einsum("tkn,tkn->tn", rows, rows), 0.0)
        own = np.nonzero(used)[0], row[used]
        mean[own], var[own] = without_site(
            mean[own], var[own], self.prior_var[own], site_mean[used], precision[used]
        )
        return tuple((mean[t, :n], var[t, :n]) for t, n in enumerate(self.sizes))
