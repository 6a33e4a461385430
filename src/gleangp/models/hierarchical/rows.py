"""From the rows of a task to what the hierarchy learns from: graph, landmarks, constraints."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.cluster import kmeans_plusplus

from gleangp._typing import FloatArray, IntArray
from gleangp.graph import condense_laplacian, local_scaling_graph, normalized_laplacian
from gleangp.inference.block import Block
from gleangp.inference.data_dependent import OrderRows, TaskRows
from gleangp.models.defaults import HIERARCHY
from gleangp.noise import Gaussian


@dataclass(frozen=True, slots=True, eq=False)
class GraphSettings:
    """How unlabelled rows enter."""

    n_neighbors: int | None = 5  # None: they do not
    n_landmarks: int = 500  # unlabelled rows that carry the graph of a task
    n_jobs: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RowsOfTasks:
    """The rows of all tasks in standard units, and what is made of them."""

    X: FloatArray  # (n, p)
    y: FloatArray  # (n,) less a mean function; NaN in unlabelled rows
    by_task: list[IntArray]
    constraints: list[tuple[csr_array, FloatArray] | None]  # of every task, over its rows
    n_active: int | float | None  # labels of a task that are kept, or their share; None: the default
    settings: GraphSettings
    selector: Any

    @property
    def leave_some_out(self) -> bool:
        """Whether a task has more labels than are kept."""
        labelled = [int(np.sum(~np.isnan(self.y[rows]))) for rows in self.by_task]
        return any(n > self._most(n) for n in labelled)

    def _most(self, n_labelled: int) -> int:
        if self.n_active is None:
            return HIERARCHY.dense_labels
        whole = isinstance(self.n_active, Integral)
        return int(self.n_active) if whole else max(1, round(self.n_active * n_labelled))

    def choose(
        self, kernels: list[Any], noise: float, rng: np.random.Generator
    ) -> tuple[list[TaskRows], IntArray]:
        """Every task as the hierarchy learns from it, with a kernel for each, and the labelled rows kept."""
        blocks, active = [], []
        for rows, kernel, constraints in zip(self.by_task, kernels, self.constraints, strict=True):
            X, y = self.X[rows], self.y[rows]
            most = self._most(int(np.sum(~np.isnan(y))))
            chosen = choose_active(kernel, X, y, most, noise, self.selector, rng)
            active.append(rows[~np.isnan(y) if chosen is None else chosen])
            blocks.append(task_rows(X, y, constraints, self.settings, rng, chosen))
        return blocks, np.concatenate(active)


def task_rows(
    X: FloatArray,
    y: FloatArray,
    constraints: tuple[csr_array, FloatArray] | None,
    settings: GraphSettings,
    rng: np.random.Generator,
    active: IntArray | None = None,
) -> TaskRows:
    """One task, labelled rows first, from all its rows X (n, p) and targets y (n,).

    Targets are standardised, NaN where there is none. `constraints` are coefficients (c, n) over its rows and
    margins (c,) in standard units. `active` (d,) are labelled rows that stand for all of them: in a task with
    neither graph nor constraints the other labels contribute through these rows; else they are set aside, and
    the rows stay in the graph as unlabelled ones.

    The graph is over all rows. With more unlabelled rows than landmarks, it is condensed
    (`condense_laplacian`) on the labelled rows, the constrained ones and landmarks spread over the others, so
    that the cost of learning is that of the landmarks.
    """
    labelled = ~np.isnan(y)
    n_neighbors = None if labelled.all() else settings.n_neighbors  # None: no graph
    if active is not None and n_neighbors is None and constraints is None:
        return TaskRows(X[labelled], y[labelled], basis=X[active])
    if active is not None:
        labelled = np.isin(np.arange(len(y)), active)
    constrained = np.zeros(len(X), dtype=bool)
    if constraints is not None:
        constrained[np.unique(constraints[0].indices)] = True
    kept = np.concatenate([np.flatnonzero(labelled), np.flatnonzero(constrained & ~labelled)])
    laplacian = None
    if n_neighbors is not None and len(kept):
        free = np.flatnonzero(~labelled & ~constrained)
        kept = np.concatenate([kept, _landmarks(X, free, settings.n_landmarks, rng)])
        whole = normalized_laplacian(local_scaling_graph(X, n_neighbors, n_jobs=settings.n_jobs))
        laplacian = whole[kept][:, kept] if len(kept) == len(X) else condense_laplacian(whole, kept)
    order = None if constraints is None else _order_rows(constraints, kept)
    return TaskRows(X[kept], y[labelled], laplacian, order)


def _landmarks(X: FloatArray, rows: IntArray, n_landmarks: int, rng: np.random.Generator) -> IntArray:
    if len(rows) <= n_landmarks:
        return rows
    _, chosen = kmeans_plusplus(X[rows], n_landmarks, random_state=int(rng.integers(2**31)))
    return rows[np.sort(np.unique(chosen))]


def choose_active(
    kernel, X: FloatArray, y: FloatArray, n_active: int, noise: float, selector, rng: np.random.Generator
) -> IntArray | None:
    """The `n_active` labelled rows to keep, in order of inclusion; None if there are no more than that."""
    labelled = np.flatnonzero(~np.isnan(y))
    if len(labelled) <= n_active:
        return None
    block = Block(X[labelled], y[labelled], Gaussian(noise))
    return labelled[selector.select(kernel, [block], n_active, rng=rng).active[0]]


def _order_rows(constraints: tuple[csr_array, FloatArray], kept: IntArray) -> OrderRows:
    coefficients, margin = constraints
    coefficients = csr_array(coefficients[:, kept])
    norm = np.sqrt(np.asarray(coefficients.multiply(coefficients).sum(axis=1)).ravel())
    return OrderRows(coefficients, margin, norm)
