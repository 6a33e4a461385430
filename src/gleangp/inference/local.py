"""The posterior of a `BlockPrior`, and prediction from it: the basis, and rows near the new one.

The posterior keeps the rows with their sites, and what is known of the basis variables u ~ N(mean, S). A new
row has a set N of training rows, its neighbours: the rows of its block, or, in a task of several blocks, the
nearest rows of the task, so that there is no step between blocks. With H the residual covariance of `prior`,

    C = (H_N + 1 / precision)^-1 H_N*,    g = F_* - F_N^T C,
    mean = F_*^T E u + C^T (m_N - F_N E u),    var = H_** - H_*N C + g^T S g.

Rows of a task that was added later have not informed u. They enter with the covariance H + F S F^T in place
of H, and g = 0.

One kernel and one noise variance do not fit every part of a large table. With `spread`, the variances of a
neighbourhood (of the function and of the noise) have a factor that its k rows show,

    spread (nu + r^T (H_N + 1 / precision)^-1 r) / (nu + k),    r = m_N - F_N E u,

as in a Student process (Shah, Wilson & Ghahramani 2014), whose scale is drawn anew in every neighbourhood. nu
is the number of rows that what is usual counts for: `usual_rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import cKDTree
from sklearn.neighbors import NearestNeighbors

from gleangp._state import LARGEST, check_arrays, check_codes, check_kernel
from gleangp._typing import FloatArray, IntArray
from gleangp.data.neighbourhoods import neighbourhoods
from gleangp.inference.evidence import GroupKnowledge, Knowledge, condition, inverse_factors
from gleangp.inference.prior import Basis, BlockPrior, Term, lay_out
from gleangp.kernels import has_white, white_diag
from gleangp.kernels.evaluate import evaluate
from gleangp.numerics.linalg import inverse_from_cholesky

_LEARNT = -1  # key of the rows learnt from, where these are one block
N_NEAREST = 60  # training rows near a new row of a large task
_LEAST_LEFT = 1e-6  # of its variance, that a row leaves when it is taken out: rounding can leave less
_TREE_COLUMNS = 15  # with more columns a tree has to look at most rows
_CHUNK_ENTRIES = 4_000_000  # of the largest array at a time: 32 MB


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
        """Raise if the parts do not fit together (a damaged model file)."""
        if not self.terms or not all(isinstance(term, Term) for term in self.terms):
            raise ValueError("LocalPosterior has no terms.")
        if not isinstance(self.common, Knowledge) or not isinstance(self.own, dict):
            raise ValueError("LocalPosterior has no knowledge of its basis.")
        n_tasks, shared = len(self.terms[0].own), sum(t.loadings.shape[1] for t in self.terms)
        if any(len(t.own) != n_tasks for t in self.terms):
            raise ValueError(f"LocalPosterior has terms of other tasks than {n_tasks}.")
        sizes = check_arrays(
            self, X="n p", codes="n", precision="n >=0 derived", site_mean="n any", Z="d p", jitter=">=0"
        )
        shift = np.abs(self.precision * self.site_mean)  # a mean alone may be anywhere
        if not (shift <= LARGEST**1.5).all():
            raise ValueError("LocalPosterior has sites that are not finite, or too large.")
        check_codes("LocalPosterior.codes", self.codes, n_tasks)
        n_common = len(self.common.mean)
        if not self.together and n_common != shared * len(self.Z):
            raise ValueError(f"LocalPosterior knows {n_common} variables of {shared} x {len(self.Z)}.")
        for task, (Z, known) in self.own.items():
            n_own = sum(t.own[task] > 0.0 for t in self.terms) * len(Z)
            if not 0 <= task < n_tasks or Z.ndim != 2 or Z.shape[1] != sizes["p"]:
                raise ValueError(f"LocalPosterior has a basis of task {task!r} of {n_tasks}.")
            if not np.isfinite(Z).all() or (known and known.back.shape != (n_own, n_common)):
                raise ValueError(f"LocalPosterior has a basis of task {task!r} of another size.")
        for number, term in enumerate(self.terms):
            check_kernel(f"kernel {number}", term.kernel, sizes["p"])
        if not 0 <= self.n_learnt <= sizes["n"] or self.block_size < 0:
            raise ValueError(f"LocalPosterior learnt from {self.n_learnt} of {sizes['n']} rows.")
        if self.n_tasks_learnt is not None and not 1 <= self.n_tasks_learnt <= n_tasks:
            raise ValueError(f"LocalPosterior learnt from {self.n_tasks_learnt} of {n_tasks} tasks.")
        if not (0.0 < (self.spread or 1.0) < LARGEST and 0.0 < self.usual_rows < LARGEST):
            raise ValueError(f"LocalPosterior has spread={self.spread!r}, usual_rows={self.usual_rows!r}.")

    def __getstate__(self) -> dict[str, Any]:
        """Without what is computed at need."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def extended(self, **changes: Any) -> LocalPosterior:
        """With more tasks, and perhaps rows of theirs, or a spread; what was computed for others is kept."""
        after = replace(self, **changes)
        kept = ("_common_bases", "_own_bases", "_common_knowledge", "_groups")
        after.__dict__.update({name: self.__dict__[name] for name in kept if name in self.__dict__})
        after._trees.update({} if "X" in changes else self._trees)
        if self.together and self.n_learnt:
            after._solved[_LEARNT] = self._solve(np.arange(self.n_learnt)[None], 0, cache=True)
        return after

    @cached_property
    def rows_of_task(self) -> list[IntArray]:
        """Row numbers of every task."""
        n_tasks = len(self.terms[0].own)
        order = np.argsort(self.codes, kind="stable")
        ends = np.cumsum(np.bincount(self.codes, minlength=n_tasks)).tolist()
        return [order[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    @cached_property
    def _common_bases(self) -> list[Basis | None]:
        shared = [t.loadings.shape[1] > 0 and len(self.Z) > 0 for t in self.terms]
        return [Basis(t.kernel, self.Z) if s else None for t, s in zip(self.terms, shared, strict=True)]

    @cached_property
    def _own_bases(self) -> dict[int, list[Basis | None]]:
        return {
            task: [Basis(t.kernel, Z) if t.own[task] > 0.0 else None for t in self.terms]
            for task, (Z, _) in self.own.items()
        }

    @cached_property
    def _common_knowledge(self) -> tuple[FloatArray, FloatArray]:
        cov = inverse_from_cholesky(self.common.inner) if len(self.common.inner) else self.common.inner
        return self.common.mean, cov

    @cached_property
    def _groups(self) -> dict[int, GroupKnowledge]:
        return {}

    @cached_property
    def _last_known(self) -> dict[int, tuple[FloatArray, FloatArray]]:
        return {}

    @cached_property
    def _trees(self) -> dict[int, Callable[[FloatArray], IntArray]]:
        return {}

    @cached_property
    def _solved(self) -> dict[int, Solved]:
        return {}

    def knowledge(self, task: int) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance of the basis variables that rows of a task depend on."""
        mean, cov = self._common_knowledge
        if task not in self.own:
            return mean, cov
        known = self._last_known.get(task)
        if known is None:
            own = self.group(task)
            known = own.mean(mean), own.cov(cov)
            self._last_known.clear()  # of one task at a time: a covariance is large
            self._last_known[task] = known
        return known

    def group(self, task: int) -> GroupKnowledge:
        """What is known of the own basis variables of a task with several blocks, given the common ones."""
        Z, known = self.own[task]
        if known is None and task not in self._groups:
            rows = self.rows_of_task[task]
            X, precision = self.X[rows], self.precision[rows]
            blocks = neighbourhoods(X / length_scales(self.terms[0].kernel, X.shape[1]), self.block_size // 2)
            layout = lay_out(self.codes[rows], blocks, {task: Z})
            prior = BlockPrior(self.terms, X, layout, self.Z, gradients=False)
            found = condition(prior, precision, precision * self.site_mean[rows], rows=False)
            [self._groups[task]] = found.groups
        return known or self._groups[task]

    def features(self, X: FloatArray, task: int) -> FloatArray:
        """F (n, D) of rows of one task."""
        parts = [np.zeros((len(X), 0))]
        for term, basis in zip(self.terms, self._common_bases, strict=True):
            if basis is not None:
                Phi = basis.features(X)[1]
                parts += [weight * Phi for weight in term.loadings[task]]
        for term, basis in zip(self.terms, self._own_bases.get(task, []), strict=False):
            if basis is not None:
                parts.append(np.sqrt(term.own[task]) * basis.features(X)[1])
        return np.concatenate(parts, axis=1)

    def has_neighbourhoods(self, task: int) -> bool:
        """Whether new rows of a task have neighbours of their own: it has several blocks."""
        return not self.together and len(self.rows_of_task[task]) > self.block_size

    def neighbours(self, X: FloatArray, task: int) -> IntArray:
        """Training rows that new rows of a task depend on: one set (k,), or one for each row (n, k)."""
        rows = self.rows_of_task[task]
        if self.together:
            return np.concatenate([np.arange(self.n_learnt), rows[rows >= self.n_learnt]])
        return self._nearest(X, task)[:, :N_NEAREST] if self.has_neighbourhoods(task) else rows

    def _nearest(self, X: FloatArray, task: int) -> IntArray:
        """(n, k) the nearest rows of a task, one more than a prediction uses."""
        rows, lengths = self.rows_of_task[task], length_scales(self.terms[0].kernel, X.shape[1])
        if task not in self._trees:
            self._trees[task] = _finder(self.X[rows] / lengths, min(N_NEAREST + 1, len(rows)))
        return rows[self._trees[task](X / lengths)]

    def predict(
        self, X: FloatArray, codes: IntArray, *, with_var: bool = True
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Latent mean and variance (n,) of new rows, as the kernels see them, and the factor of their noise.

        The variance is empty without `with_var`.
        """
        mean, var, factor = np.empty(len(X)), np.empty(len(X) if with_var else 0), np.ones(len(X))
        for rows, found in self._conditionals(X, codes, self.neighbours, with_var):
            mean[rows] = found.mean.ravel()
            if self.spread is not None and self.has_neighbourhoods(int(codes[rows[0]])):
                factor[rows] = self.spread * found.scale(self.usual_rows)
            if with_var:
                var[rows] = np.maximum((found.of_rows + found.of_basis).ravel(), 0.0) * factor[rows]
        return mean, var, factor

    def left_out(self, rows: IntArray, levels: Sequence[float]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Residuals and variances (n,) of sites in neighbourhoods, each predicted from the others.

        Also the scales of their neighbourhoods (len(levels), n), at levels of `usual_rows`. The variance is
        that of `predict` and the noise, without spread. Let t be the variance of the site given its
        neighbours and u, and s = g^T S g. The site has informed u. Taking it out again divides the residual
        by 1 - s / t, and the variance t + s becomes t / (1 - s / t).
        """

        def others(X: FloatArray, task: int) -> IntArray:
            near = self._nearest(X, task)
            keep = near != rows[self.codes[rows] == task, None]
            keep[keep.all(axis=1), -1] = False  # it has as many rows with the same inputs
            return near[keep].reshape(len(near), -1)

        residual, var = np.empty((2, len(rows)))
        scales = np.empty((len(levels), len(rows)))
        for part, found in self._conditionals(self.X[rows], self.codes[rows], others, True):
            at = rows[part]
            given = found.of_rows.ravel() + 1.0 / self.precision[at]
            left = np.maximum(1.0 - found.of_basis.ravel() / given, _LEAST_LEFT)
            residual[part] = (self.site_mean[at] - found.mean.ravel()) / left
            var[part] = given / left
            scales[:, part] = [found.scale(nu) for nu in levels]
        return residual, var, scales

    @property
    def in_neighbourhoods(self) -> IntArray:
        """Rows of the tasks that have several blocks."""
        large = [t for t in range(len(self.terms[0].own)) if self.has_neighbourhoods(t)]
        return np.flatnonzero(np.isin(self.codes, large))

    def _conditionals(self, X, codes, neighbours, with_var: bool) -> Iterator[tuple[IntArray, Conditional]]:
        """Rows of X in parts, and what is known of them given their `neighbours(X, task)`."""
        for task in map(int, np.unique(codes)):
            rows = np.flatnonzero(codes == task)
            near = neighbours(X[rows], task)
            width = near.shape[-1] ** near.ndim + len(self.knowledge(task)[0]) * near.shape[-1] ** (
                near.ndim - 1
            )
            step = max(1, _CHUNK_ENTRIES // (width + 1))
            # New rows that lie together have neighbours in common, whose features are computed once.
            lengths = length_scales(self.terms[0].kernel, X.shape[1])
            for part in neighbourhoods(X[rows] / lengths, step):
                solved = self._solve(near[part] if near.ndim == 2 else near[None], task, cache=near.ndim == 1)
                new = X[rows[part]]
                new = new[:, None] if near.ndim == 2 else new[None]
                yield rows[part], self._conditional(solved, new, task, with_var)

    def predict_cov(self, X: FloatArray, codes: IntArray) -> tuple[FloatArray, FloatArray]:
        """Latent mean (n,) and covariance (n, n) of new rows.

        Rows of a task with several blocks take the union of their nearest rows as neighbours. A task that was
        added later has informed no other: its rows and those of others are correlated as far as the others'
        posterior says.
        """
        mean, cov, known = np.empty(len(X)), np.empty((len(X), len(X))), {}
        parts = [(int(task), np.flatnonzero(codes == task)) for task in np.unique(codes)]
        for task, rows in parts:
            near = np.unique(self.neighbours(X[rows], task))
            solved = self._solve(near[None], task, cache=self.together)
            known[task] = solved, self._seen(solved, X[rows][None], task)
            mean[rows] = self._mean(*known[task], task).ravel()
        for i, (task, rows) in enumerate(parts):
            for other, others in parts[i:]:
                block = self._joint(X[rows], task, X[others], other, known)
                cov[np.ix_(rows, others)], cov[np.ix_(others, rows)] = block, block.T
            cov[rows, rows] += self._white(X[rows], np.full(len(rows), task))
        root = np.sqrt(self.factor(X, codes))
        return mean, cov * np.outer(root, root)

    def factor(self, X: FloatArray, codes: IntArray) -> FloatArray:
        """(n,) of the variances, of the noise too, in the neighbourhoods of new rows."""
        if self.spread is None or not any(self.has_neighbourhoods(int(task)) for task in np.unique(codes)):
            return np.ones(len(X))
        return self.predict(X, codes, with_var=False)[2]

    def _joint(self, X, task, X_other, other, known):
        """Posterior covariance between new rows of two tasks, or of one."""
        prior = self._kernel(X[None], np.array([[task]]), X_other[None], np.array([[other]]))[0]
        if self.together:
            one, two = known[task][0], known[other][0]
            if task != other and one.base is not None and two.base is not None:
                given = one.base
            else:
                given = two if one.base is None else one
            left, right = (
                (known[t][1] if given is known[t][0] else self._seen(given, x[None], t))[0][0]
                for x, t in ((X, task), (X_other, other))
            )
            return prior - left.T @ right
        (T, F, g), (_, _, g_other) = known[task][1], known[other][1]
        if task != other:  # residuals of different blocks are independent
            P_inv = self._common_knowledge[1]
            return (g[0] @ self._of_common(task)) @ P_inv @ (g_other[0] @ self._of_common(other)).T
        S, J = self.knowledge(task)[1], g[0] if self._informed(task) else F[0]
        return prior - F[0] @ F[0].T - T[0].T @ T[0] + J @ S @ J.T

    def _of_common(self, task: int) -> FloatArray:
        """(D, d) how the mean of a task's basis variables moves with the common ones."""
        d = len(self.common.mean)
        return np.vstack([np.eye(d), -self.group(task).back]) if task in self.own else np.eye(d)

    def _informed(self, task: int) -> bool:
        """Whether the rows of the task have informed the basis variables."""
        rows = self.rows_of_task[task]
        return len(rows) == 0 or bool(rows[0] < self.n_learnt)

    def _solve(self, near: IntArray, task: int, *, cache: bool) -> Solved:
        """The factors of sets of neighbours (B, k) of rows of a task."""
        key, base, n = task, None, self.n_learnt
        if self.together and near.shape[1] == n:
            key = _LEARNT
        if cache and key in self._solved:
            return self._solved[key]
        if self.together and near.shape[1] > n > 0:
            base, near = self._solve(np.arange(n)[None], task, cache=True), near[:, n:]
        X, codes = self.X[near], self.codes[near]
        if near.shape[0] == 1:
            F = np.zeros((*near.shape, 0)) if self.together else self.features(X[0], task)[None]
        else:
            some, places = np.unique(near, return_inverse=True)
            F = self.features(self.X[some], task)[places.reshape(near.shape)]
        H = self._kernel(X, codes, X, codes) - F @ F.transpose(0, 2, 1)
        if not self._informed(task) and not self.together:
            H += F @ self.knowledge(task)[1] @ F.transpose(0, 2, 1)
        white = self._white(X.reshape(-1, X.shape[-1]), codes.ravel())
        np.einsum("bii->bi", H)[...] += white.reshape(near.shape)
        root = np.sqrt(self.precision[near])
        if base is not None:
            seen = self._seen(base, X, task)[0]  # L_0^-1 R_0 H_0 of these rows
            H -= seen.transpose(0, 2, 1) @ seen
        half, _, _ = inverse_factors(H * (root[:, :, None] * root[:, None, :]))
        half = half * root[:, None, :]
        back = None if base is None else half @ seen.transpose(0, 2, 1)
        solved = Solved(near, F, half, base, back)
        residual = self.site_mean[solved.all_rows]
        if F.shape[2]:
            residual = residual - F @ self.knowledge(task)[0]
        solved = replace(solved, weights=solved.whitened(residual[:, :, None]))
        if cache:
            self._solved[key] = solved
        return solved

    def _seen(
        self, solved: Solved, X: FloatArray, task: int, *, with_g: bool = True
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """L^-1 R H_N* (B, k, j), F_* (B, j, D) and g (B, j, D), if asked for, of new rows X (B, j, p)."""
        B, j, p = X.shape
        F = (
            np.zeros((B, j, 0))
            if self.together
            else self.features(X.reshape(B * j, p), task).reshape(B, j, -1)
        )
        rows = solved.all_rows
        H = self._kernel(self.X[rows], self.codes[rows], X, np.full((B, 1), task))
        if F.shape[2]:
            H -= solved.F @ F.transpose(0, 2, 1)
            if not self._informed(task):
                H += solved.F @ self.knowledge(task)[1] @ F.transpose(0, 2, 1)
        T = solved.whitened(H)
        g = F
        if with_g and F.shape[2]:
            C = solved.half.transpose(0, 2, 1) @ T  # few columns: before the product with many features
            g = F - C.transpose(0, 2, 1) @ solved.F
        return T, F, g

    def _conditional(self, solved: Solved, X: FloatArray, task: int, with_var: bool) -> Conditional:
        """What is known of new rows X (B, j, p) given their neighbours."""
        seen = T, F, g = self._seen(solved, X, task, with_g=with_var)
        mean = self._mean(solved, seen, task)
        of_neighbours = np.sum(solved.weights**2, axis=(1, 2)), solved.weights.shape[1]
        if not with_var:
            return Conditional(mean, *of_neighbours)
        var = self._prior_var(X.reshape(-1, X.shape[-1]), task).reshape(mean.shape)
        var = var - np.einsum("bjd,bjd->bj", F, F) - np.einsum("bkj,bkj->bj", T, T)
        cov = self.knowledge(task)[1] if F.shape[2] else np.zeros((0, 0))
        J = g if self._informed(task) else F
        return Conditional(mean, *of_neighbours, var, np.einsum("bjd,bjd->bj", J @ cov, J))

    def _mean(self, solved: Solved, seen: tuple[FloatArray, ...], task: int) -> FloatArray:
        """(B, j) of new rows, from what is seen of them."""
        T, F, _ = seen
        mean = (T * solved.weights).sum(axis=1)
        return mean + F @ self.knowledge(task)[0] if F.shape[2] else mean

    def _kernel(self, A, codes_A, B, codes_B) -> FloatArray:
        """Prior covariance between rows A (..., n, p) and B (..., m, p) of the tasks given (broadcast)."""
        total: Any = 0.0
        for term in self.terms:
            L_A, L_B = term.loadings[codes_A], term.loadings[codes_B]
            weight = L_A @ L_B.swapaxes(-1, -2)
            weight = weight + np.where(
                codes_A[..., :, None] == codes_B[..., None, :], term.own[codes_A][..., :, None], 0.0
            )
            if weight.any():
                total = total + weight * evaluate(term.kernel, A, B).value
        shape = (*np.broadcast_shapes(A.shape[:-2], B.shape[:-2]), A.shape[-2], B.shape[-2])
        return np.zeros(shape) if np.ndim(total) == 0 else total

    def _white(self, X: FloatArray, codes: IntArray) -> FloatArray:
        """(n,) white variance of the kernels, which belongs to each row alone."""
        parts = [t.within[codes] * white_diag(t.kernel, X) for t in self.terms if has_white(t.kernel)]
        return np.sum(parts, axis=0) if parts else np.zeros(len(X))

    def _prior_var(self, X: FloatArray, task: int) -> FloatArray:
        return sum(t.within[task] * t.kernel.diag(X) for t in self.terms)


def _finder(rows: FloatArray, count: int) -> Callable[[FloatArray], IntArray]:
    """A function from points (n, p) to the numbers (n, count) of the nearest rows."""
    if rows.shape[1] > _TREE_COLUMNS:
        brute = NearestNeighbors(n_neighbors=count, algorithm="brute").fit(rows)
        return lambda X: brute.kneighbors(X, return_distance=False)
    # Splits in the middle of a cell: half the time of medians, and queries are as fast.
    tree = cKDTree(rows, balanced_tree=False, compact_nodes=False)
    return lambda X: tree.query(X, k=np.arange(1, count + 1))[1]


def length_scales(kernel: Any, n_features: int) -> FloatArray:
    """(p,) the shortest length scale of every input over the parts of a kernel; 1 where it has none."""
    found = [
        np.broadcast_to(value, n_features)
        for name, value in kernel.get_params().items()
        if name.split("__")[-1] == "length_scale"
    ]
    return np.min(found, axis=0) if found else np.ones(n_features)
