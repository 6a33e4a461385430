"""The posterior of a `BlockPrior`, and prediction from it: the basis, and rows near the new one.

The posterior keeps the rows with their sites, and what is known of the basis variables u ~ N(mean, S). A new
row has a set N of training rows, its neighbours: the rows of its block, or, in a task of several blocks, the
nearest rows of the task, so that there is no step between blocks. With H the residual covariance of `prior`,

    C = (H_N + 1 / precision)^-1 H_N*,    g = F_* - F_N^T C,
    mean = F_*^T E u + C^T (m_N - F_N E u),    var = H_** - H_*N C + g^T S g.

Rows of a task that was added later have not informed u. They enter with the covariance H + F S F^T in place
of H, and g = 0.

With `spread`, the variances in a neighbourhood have a factor of their own (`models.local.spread`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from gleangp._state import LARGEST, check_arrays, check_codes, check_kernel
from gleangp._typing import FloatArray, IntArray
from gleangp.data.neighbourhoods import finder, neighbourhoods
from gleangp.data.tasks import blocks_of_rows, filled_blocks
from gleangp.inference.block import lay_out
from gleangp.inference.evidence import GroupKnowledge, Knowledge, condition
from gleangp.inference.joint import predict_cov
from gleangp.inference.prior import (
    BlockPrior,
    Part,
    Term,
    covariance,
    parts_on,
    stacked_features,
    white_variance,
)
from gleangp.kernels.evaluate import length_scales
from gleangp.numerics.linalg import CHUNK_ENTRIES, inverse_factors, inverse_from_cholesky

_LEARNT = -1  # key of the rows learnt from, where these are one block
N_NEAREST = 60  # training rows near a new row of a large task


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """Sets of neighbours (B, k), and what does not depend on the new rows."""

    rows: IntArray  # (B, k)
    F: FloatArray  # (B, k, D)
    half: FloatArray  # (B, k, k) L^-1 R with L L^T = I + R H R, R = sqrt(precision)
    # Rows of an added task in a model of one block: the rows learnt from, and L^-1 of these times S of
    # [[L_0, 0], [S, L]], the factor of both.
    base: Solved | None = None
    back: FloatArray | None = None  # (1, k, n)
    weights: Any = None  # (B, k, 1) L^-1 R times what the basis does not explain of the sites
    alpha: Any = None  # (B, k, 1) (L^-1 R)^T times the weights: a mean is H_*N alpha

    @property
    def all_rows(self) -> IntArray:
        """(B, k) with those of the base before them."""
        return self.rows if self.base is None else np.concatenate([self.base.rows, self.rows], axis=1)

    def whitened(self, values: FloatArray) -> FloatArray:
        """L^-1 R times values (B, k, j) of all rows."""
        if self.base is None or self.back is None:
            return self.half @ values
        n = self.base.rows.shape[1]
        first = self.base.half @ values[:, :n]
        return np.concatenate([first, self.half @ values[:, n:] - self.back @ first], axis=1)

    def with_residual(self, residual: FloatArray) -> Solved:
        """With the weights of a residual (B, k, 1) of all rows."""
        weights = self.whitened(residual)
        if self.base is None or self.back is None:
            return replace(self, weights=weights, alpha=self.half.transpose(0, 2, 1) @ weights)
        first, last = np.split(weights, [self.base.rows.shape[1]], axis=1)
        first = self.base.half.transpose(0, 2, 1) @ (first - self.back.transpose(0, 2, 1) @ last)
        alpha = np.concatenate([first, self.half.transpose(0, 2, 1) @ last], axis=1)
        return replace(self, weights=weights, alpha=alpha)


class Conditional(NamedTuple):
    """New rows (B, j) given their neighbours."""

    mean: FloatArray
    misfit: FloatArray  # (B,) r^T (H_N + 1 / precision)^-1 r of the neighbours
    n_near: int
    of_rows: Any = None  # (B, j) variance given the basis variables; None: not asked for
    of_basis: Any = None  # (B, j) variance of the mean by the basis variables

    def scale(self, usual_rows: float) -> FloatArray:
        """(B,) of the variances in each set of neighbours, about one."""
        return (usual_rows + self.misfit) / (usual_rows + self.n_near)


@dataclass(frozen=True, eq=False)
class LocalPosterior:
    """The posterior of all tasks given Gaussian sites."""

    terms: tuple[Term, ...]
    X: FloatArray  # (n, p) training rows, as the kernels see them
    codes: IntArray  # (n,)
    precision: FloatArray  # (n,) of the sites
    site_mean: FloatArray  # (n,)
    together: bool  # whether the first rows are one block of all tasks
    n_learnt: int  # rows that informed the basis variables; later ones belong to added tasks
    block_size: int  # a task with more rows has several blocks
    Z: FloatArray  # (d, p) common basis
    common: Knowledge
    # Of tasks with several blocks: basis, and what is known of it. None: it follows from rows of the task.
    own: dict[int, tuple[FloatArray, GroupKnowledge | None]]
    log_evidence: float
    jitter: float = 0.0
    n_tasks_learnt: int | None = None  # tasks of the fit; later ones were added. None: all
    spread: float | None = None  # None: variances of neighbourhoods are those of the prior
    usual_rows: float = 1.0

    def _check_state(self) -> None:
        if not self.terms:
            raise ValueError("LocalPosterior has no terms.")
        n_tasks, shared = len(self.terms[0].own), sum(t.loadings.shape[1] for t in self.terms)
        if any(len(t.own) != n_tasks for t in self.terms):
            raise ValueError(f"LocalPosterior has terms of other tasks than {n_tasks}.")
        sizes = check_arrays(
            self, X="n p", codes="n", precision="n >=0 derived", site_mean="n any", Z="d p", jitter=">=0"
        )
        n, p, D = sizes["n"], sizes["p"], len(self.common.mean)
        check_codes("LocalPosterior.codes", self.codes, n_tasks)
        for number, term in enumerate(self.terms):
            check_kernel(f"kernel {number}", term.kernel, p)

        def fits_own(task: int, Z: FloatArray, known: GroupKnowledge | None) -> bool:
            if not (0 <= task < n_tasks and Z.shape == (len(Z), p) and np.isfinite(Z).all()):
                return False
            n_own = sum(t.own[task] > 0.0 for t in self.terms) * len(Z)
            return known is None or known.back.shape == (n_own, D)

        fits = {
            # A mean alone may be anywhere.
            "site_mean": (np.abs(self.precision * self.site_mean) <= LARGEST**1.5).all(),
            "common": self.together or D == shared * len(self.Z),
            "n_learnt": 0 <= self.n_learnt <= n,
            "block_size": self.block_size >= 0,
            "n_tasks_learnt": self.n_tasks_learnt is None or 1 <= self.n_tasks_learnt <= n_tasks,
            "spread": 0.0 < (self.spread or 1.0) < LARGEST,
            "usual_rows": 0.0 < self.usual_rows < LARGEST,
            "own": all(fits_own(task, *own) for task, own in self.own.items()),
        }
        for name, fine in fits.items():
            if not fine:
                raise ValueError(f"LocalPosterior.{name} does not fit the other parts, or is too large.")

    def __getstate__(self) -> dict[str, Any]:
        """Without what is computed at need."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def extended(self, **changes: Any) -> LocalPosterior:
        """With more tasks, and perhaps rows of theirs, or a spread; what was computed for others is kept."""
        after = replace(self, **changes)
        kept = ("_parts", "_common_knowledge")
        after.__dict__.update({name: self.__dict__[name] for name in kept if name in self.__dict__})
        same = ("group",) if "X" in changes else ("group", "tree")
        after.computed.update({key: value for key, value in self.computed.items() if key[0] in same})
        if self.together and self.n_learnt:
            after.computed["solved", _LEARNT] = self._solve(np.arange(self.n_learnt)[None], 0, cache=True)
        return after

    @cached_property
    def computed(self) -> dict[tuple, Any]:
        """What was computed at need: by its name ("group", "known", "tree", "solved") and task."""
        return {}

    @cached_property
    def rows_of_task(self) -> list[IntArray]:
        """Row numbers of every task."""
        return blocks_of_rows(self.codes, len(self.terms[0].own))

    @cached_property
    def _parts(self) -> dict[int | None, list[Part]]:
        """Features on the common basis (None), and on that of a task which has its own."""
        parts: dict[int | None, list[Part]] = {None: parts_on(self.terms, self.Z)}
        return parts | {task: parts_on(self.terms, Z, task) for task, (Z, _) in self.own.items()}

    @cached_property
    def _common_knowledge(self) -> tuple[FloatArray, FloatArray]:
        return self.common.mean, inverse_from_cholesky(self.common.inner)

    def knowledge(self, task: int) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance of the basis variables that rows of a task depend on."""
        mean, cov = self._common_knowledge
        if task not in self.own:
            return mean, cov
        last, known = self.computed.get(("known",), (None, None))  # of one task: a covariance is large
        if last != task:
            own = self.group(task)
            known = own.mean(mean), own.cov(cov)
            self.computed["known",] = task, known
        return known

    def group(self, task: int) -> GroupKnowledge:
        """What is known of the own basis variables of a task with several blocks, given the common ones."""
        Z, known = self.own[task]
        if known is None and ("group", task) not in self.computed:
            rows = self.rows_of_task[task]
            X, precision = self.X[rows], self.precision[rows]
            blocks = neighbourhoods(self._scaled(X), self.block_size // 2)
            layout = lay_out(self.codes[rows], blocks, {task: Z})
            prior = BlockPrior(self.terms, X, layout, self.Z, gradients=False)
            found = condition(prior, precision, precision * self.site_mean[rows], rows=False)
            [self.computed["group", task]] = found.groups
        return known or self.computed["group", task]

    def _scaled(self, X: FloatArray) -> FloatArray:
        """Rows in length scales of the first term, in which the nearest ones are found."""
        return X / length_scales(self.terms[0].kernel, X.shape[1])

    def features(self, X: FloatArray, task: Any) -> FloatArray:
        """F (n, D) of rows of one task, or of tasks (n,) without a basis; none in a model of one block."""
        features, tasks = [np.zeros((len(X), 0))], np.atleast_1d(task)
        own = self._parts.get(int(tasks[0]), []) if len(tasks) else []
        for part in [] if self.together else [*self._parts[None], *own]:
            weights = part.weights(self.terms)[tasks]
            features.append(stacked_features(weights, part.basis.features(X)[1]))
        return np.concatenate(features, axis=1)

    def has_neighbourhoods(self, task: int) -> bool:
        """Whether new rows of a task have neighbours of their own: it has several blocks."""
        return not self.together and len(self.rows_of_task[task]) > self.block_size

    def neighbours(self, X: FloatArray, task: int) -> IntArray:
        """Training rows that new rows of a task depend on: one set (k,), or one for each row (n, k)."""
        rows = self.rows_of_task[task]
        if self.together:
            return np.concatenate([np.arange(self.n_learnt), rows[rows >= self.n_learnt]])
        return self.nearest(X, task)[:, :N_NEAREST] if self.has_neighbourhoods(task) else rows

    def nearest(self, X: FloatArray, task: int) -> IntArray:
        """(n, k) the nearest rows of a task, one more than a prediction uses."""
        rows = self.rows_of_task[task]
        if ("tree", task) not in self.computed:
            self.computed["tree", task] = finder(self._scaled(self.X[rows]), min(N_NEAREST + 1, len(rows)))
        return rows[self.computed["tree", task](self._scaled(X))]

    def predict(
        self, X: FloatArray, codes: IntArray, *, with_var: bool = True
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Latent mean and variance (n,) of new rows, as the kernels see them, and the factor of their noise.

        The variance is empty without `with_var`.
        """
        mean, var, factor = np.empty(len(X)), np.empty(len(X) if with_var else 0), np.ones(len(X))
        for rows, found in self.conditionals(X, codes, self.neighbours, with_var):
            mean[rows] = found.mean.ravel()
            if self.spread is not None and self.has_neighbourhoods(int(codes[rows[0]])):
                factor[rows] = self.spread * found.scale(self.usual_rows)
            if with_var:
                var[rows] = np.maximum((found.of_rows + found.of_basis).ravel(), 0.0) * factor[rows]
        return mean, var, factor

    def conditionals(self, X, codes, neighbours, with_var: bool) -> Iterator[tuple[IntArray, Conditional]]:
        """Rows of X in parts, and what is known of them given their `neighbours(X, task)`."""
        for at, near, cache in self._sets(X, codes, neighbours):
            tasks, task = codes[at], int(codes[at[0, 0]])
            solved = self._solve(near, task, cache=cache)
            T, F, g, mean = self._seen(solved, X[at], tasks, with_var)
            found = Conditional(mean, np.sum(solved.weights**2, axis=(1, 2)), solved.weights.shape[1])
            if with_var:
                diagonals = [t.kernel.diag(X[at.ravel()]).reshape(at.shape) for t in self.terms]
                var = sum(t.within[tasks] * d for t, d in zip(self.terms, diagonals, strict=True))
                var = var - np.einsum("bjd,bjd->bj", F, F) - np.einsum("bkj,bkj->bj", T, T)
                of_basis = np.zeros_like(var)
                if F.shape[2]:
                    J = g if self._informed(task) else F
                    of_basis = np.einsum("bjd,bjd->bj", J @ self.knowledge(task)[1], J)
                found = found._replace(of_rows=var, of_basis=of_basis)
            yield at.ravel(), found

    def _sets(self, X, codes, neighbours) -> Iterator[tuple[IntArray, IntArray, bool]]:
        """Sets of new rows (B, j) and the neighbours (B, k) of each; whether to keep what these give.

        Small tasks are stacked with others that have as many rows and new rows: a loop over many tasks would
        take far longer than their products.
        """
        small: dict[tuple, list[tuple[IntArray, IntArray]]] = {}
        for task, rows in self._alike(codes):
            near, D = neighbours(X[rows], task), len(self.knowledge(task)[0])
            k, n_sets = near.shape[-1], near.ndim - 1  # none: one set for all rows
            if not n_sets and not self.together and max(k, len(rows)) <= N_NEAREST and task not in self.own:
                small.setdefault((k, len(rows), self._informed(task), D), []).append((rows, near))
                continue
            step = max(1, CHUNK_ENTRIES // (k**near.ndim + D * k**n_sets + 1))
            # New rows that lie together have neighbours in common, whose features are computed once.
            for part in neighbourhoods(self._scaled(X[rows]), step):
                at = rows[part]
                yield (at[:, None], near[part], False) if n_sets else (at[None], near[None], True)
        for (k, j, _, D), several in small.items():
            at, near = (np.array(values) for values in zip(*several, strict=True))
            step = max(1, CHUNK_ENTRIES // ((k + j) * (k + D) + 1))
            for start in range(0, len(at), step):
                yield at[start : start + step], near[start : start + step], len(at) == 1

    def predict_cov(self, X: FloatArray, codes: IntArray) -> tuple[FloatArray, FloatArray]:
        """Latent mean (n,) and covariance (n, n) of new rows (`inference.joint`)."""
        return predict_cov(self, X, codes)

    def factor(self, X: FloatArray, codes: IntArray) -> FloatArray:
        """(n,) of the variances, of the noise too, in the neighbourhoods of new rows."""
        if self.spread is None or not any(self.has_neighbourhoods(int(task)) for task in np.unique(codes)):
            return np.ones(len(X))
        return self.predict(X, codes, with_var=False)[2]

    def _alike(self, codes: IntArray) -> list[tuple[int, IntArray]]:
        """Tasks and their new rows. Tasks with the same neighbours are one part, named by the first of them.

        In a model of one block these are the tasks without rows beyond those learnt from: one large product
        is faster than one for each task.
        """
        if self.together:
            same = ~np.isin(codes, self.codes[self.n_learnt :])
            codes = np.where(same, codes[same].min(initial=len(self.rows_of_task)), codes)
        return list(filled_blocks(codes))

    def _informed(self, task: int) -> bool:
        """Whether the rows of the task have informed the basis variables."""
        rows = self.rows_of_task[task]
        return len(rows) == 0 or bool(rows[0] < self.n_learnt)

    def _solve(self, near: IntArray, task: int, *, cache: bool) -> Solved:
        """The factors of sets of neighbours (B, k) of rows of a task."""
        n, base, back = self.n_learnt, None, None
        key = "solved", _LEARNT if self.together and near.shape[1] == n else task
        if cache and key in self.computed:
            return self.computed[key]
        if self.together and near.shape[1] > n > 0:
            base, near = self._solve(np.arange(n)[None], task, cache=True), near[:, n:]
        X, codes = self.X[near], self.codes[near]
        some, places = (near[0], ...) if len(near) == 1 else np.unique(near, return_inverse=True)
        F = self.features(self.X[some], self.codes[some])
        F = F[places].reshape(*near.shape, F.shape[1])
        H = covariance(self.terms, X, codes, X, codes) - F @ F.transpose(0, 2, 1)
        if not self._informed(task) and not self.together:
            H += F @ self.knowledge(task)[1] @ F.transpose(0, 2, 1)
        white = white_variance(self.terms, X.reshape(-1, X.shape[-1]), codes.ravel())
        np.einsum("bii->bi", H)[...] += white.reshape(near.shape)
        root = np.sqrt(self.precision[near])
        if base is not None:
            seen = self._seen(base, X, task)[0]  # L_0^-1 R_0 H_0 of these rows
            H -= seen.transpose(0, 2, 1) @ seen
        half = inverse_factors(H * (root[:, :, None] * root[:, None, :]))[0] * root[:, None, :]
        if base is not None:
            back = half @ seen.transpose(0, 2, 1)
        solved = Solved(near, F, half, base, back)
        residual = self.site_mean[solved.all_rows]
        if F.shape[2]:
            residual = residual - F @ self.knowledge(task)[0]
        solved = solved.with_residual(residual[:, :, None])
        if cache:
            self.computed[key] = solved
        return solved

    def _seen(self, solved: Solved, X: FloatArray, task: Any, with_var: bool = True) -> tuple:
        """L^-1 R H_N* (B, k, j), F_* (B, j, D), g (B, j, D) and the mean (B, j) of new rows.

        Without `with_var` the first and g are None: they take most of the time. The rows X (B, j, p) are of
        one task, or of tasks (j,) or (B, j) that have no basis of their own.
        """
        B, j, p = X.shape
        F = self.features(X.reshape(B * j, p), np.ravel(task)).reshape(B, j, -1)
        rows = solved.all_rows
        H = covariance(self.terms, self.X[rows], self.codes[rows], X, np.atleast_2d(task))
        if F.shape[2]:
            task = int(np.ravel(task)[0])
            H -= solved.F @ F.transpose(0, 2, 1)
            if not self._informed(task):
                H += solved.F @ self.knowledge(task)[1] @ F.transpose(0, 2, 1)
        mean = (solved.alpha.transpose(0, 2, 1) @ H)[:, 0]
        if F.shape[2]:
            mean = mean + F @ self.knowledge(task)[0]
        if not with_var:
            return None, F, None, mean
        T, g = solved.whitened(H), F
        if F.shape[2]:
            C = solved.half.transpose(0, 2, 1) @ T  # few columns: before the product with many features
            g = F - C.transpose(0, 2, 1) @ solved.F
        return T, F, g, mean
