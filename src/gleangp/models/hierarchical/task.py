"""One task of the hierarchy: its rows with graph and constraints, and its posterior.

Under the data-dependent kernel, with K_x = k(X, x) over all rows of the task, G = R Q^T (`evidence`) and
Rm = (K_uu + W^-1)^-1 at the sites,

    mean(x) = K_x^T G a,      var(x) = k(x, x) - K_x^T P K_x,      P = alpha R L + G Rm G^T,

which is Zhang & Yeung 2009, eq. 6, put into the usual posterior. A task that has neither unlabelled
rows nor constraints is an ordinary Gaussian process (`inference.posterior`).

The likelihood (Zhang & Yeung 2009, section 4) depends on the function only through u = Q f: the values at the
labelled rows, and one linear combination for each constraint. In u the sites are independent:

    labelled:    N(y | u, variance)
    constraint:  Phi((u - margin) / width),   width = epsilon * norm of its coefficients.

With four different points the norm is 2 and with a pair sqrt(2), as in the paper; where a point is shared
(v = w) its one noise term counts with its coefficient, sqrt(6).

The sites are approximated by Laplace's method. Their mode is found by Newton's method in
a = K_uu^-1 u, damped so that the objective never falls; the sites are log-concave, so it is unique and
contradictory sites converge too (Zhang & Yeung 2009, section 4.1, descend its gradient).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csgraph, csr_array, eye_array, vstack
from sklearn.cluster import kmeans_plusplus

from gleangp._state import check_arrays
from gleangp._typing import FloatArray, IntArray
from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.graph import condense_laplacian, local_scaling_graph
from gleangp.inference.block import Block
from gleangp.inference.evidence import LOG_TWO_PI
from gleangp.inference.posterior import KernelPosterior, Sites, fit_on_basis, posterior_from_sites
from gleangp.kernels import has_white, kernel_columns, white_diag
from gleangp.models.defaults import HIERARCHY
from gleangp.noise import Gaussian
from gleangp.numerics.linalg import cholesky, log_determinant, solve_cholesky, solve_general, solve_lower
from gleangp.numerics.special import log_ndtr_derivatives

# Added to the diagonal of K_uu, in standard units: constraints on labelled rows are combinations of them.
_JITTER = 1e-6
_MAX_STEPS, _LEAST_STEP = 100, 1e-8  # of Newton's method
_TOLERANCE = 1e-11  # of the objective, relative
_FAR_LEFT = -300.0  # beyond it the third derivative of log Phi is below 1e-7 and cancels to noise


@dataclass(frozen=True, slots=True, eq=False)
class OrderRows:
    """Statements that coefficients @ f is at least `margin`, one per row.

    A pair has the coefficients +1 -1, a comparison of two differences +1 -1 -1 +1; where a row of X occurs
    twice its coefficients add up.
    """

    coefficients: csr_array  # (c, n) over the rows of the task
    margin: FloatArray  # (c,)
    norm: FloatArray  # (c,) Euclidean norm of each row: the noise of its terms adds up to it


@dataclass(frozen=True, slots=True, eq=False)
class TaskRows:
    """One task, in standard units. The labelled rows come first."""

    X: FloatArray  # (n, p)
    y: FloatArray  # (l,), l <= n
    laplacian: csr_array | FloatArray | None = None  # (n, n), over all rows
    order: OrderRows | None = None
    basis: FloatArray | None = None  # (d, p) rows through which labels contribute; no graph or order then

    @property
    def n_labelled(self) -> int:
        """Number of labelled rows."""
        return len(self.y)

    def combinations(self) -> csr_array:
        """Q (l + c, n): the labelled rows, then the constraints."""
        labelled = eye_array(self.n_labelled, len(self.X), format="csr")
        return labelled if self.order is None else csr_array(vstack([labelled, self.order.coefficients]))

    def sites(self, noise: FloatArray, log_width: float) -> OrderSites:
        """The sites of Q f, `noise` (l,) being the variance of each label."""
        centre, width = self.y, np.sqrt(noise)
        if self.order is not None:
            centre = np.append(centre, self.order.margin)
            width = np.append(width, np.exp(log_width) * self.order.norm)
        return OrderSites(centre, width, self.n_labelled)


@dataclass(frozen=True, slots=True, eq=False)
class RowsOfTasks:
    """The rows of all tasks in standard units, and what is made of them."""

    X: FloatArray  # (n, p)
    y: FloatArray  # (n,) less a mean function; NaN in unlabelled rows
    by_task: list[IntArray]
    constraints: list[tuple[csr_array, FloatArray] | None]  # coefficients (c, n), margins (c,)
    n_active: int | float | None  # labels of a task that are kept, or their share; None: the default
    selector: Any
    n_neighbors: int | None
    n_landmarks: int
    n_jobs: int | None

    @property
    def leave_some_out(self) -> bool:
        """Whether a task has more labels than are kept."""
        labelled = [int(np.sum(~np.isnan(self.y[rows]))) for rows in self.by_task]
        return any(n > self._most(n) for n in labelled)

    def _most(self, n_labelled: int) -> int:
        if self.n_active is None:
            return n_labelled if n_labelled <= HIERARCHY.dense_labels else HIERARCHY.n_basis
        whole = isinstance(self.n_active, Integral)
        return int(self.n_active) if whole else max(1, round(self.n_active * n_labelled))

    def choose(
        self, kernels: list[Any], noise: float, rng: np.random.Generator
    ) -> tuple[list[TaskRows], IntArray]:
        """Every task as the hierarchy learns from it, with a kernel for each, and the labelled rows kept."""
        blocks, kept = [], []
        for rows, kernel, constraints in zip(self.by_task, kernels, self.constraints, strict=True):
            X, y, active = self.X[rows], self.y[rows], None
            labelled = np.flatnonzero(~np.isnan(y))
            most = self._most(len(labelled))
            if len(labelled) > most:
                block = Block(X[labelled], y[labelled], Gaussian(noise))
                active = labelled[self.selector.select(kernel, [block], most, rng=rng).active[0]]
            kept.append(rows[labelled if active is None else active])
            blocks.append(self._task(X, y, constraints, active, rng))
        return blocks, np.concatenate(kept)

    def _task(
        self, X: FloatArray, y: FloatArray, constraints: Any, active: IntArray | None, rng: Any
    ) -> TaskRows:
        """One task, labelled rows first, from all its rows.

        `active` (d,) are labelled rows that stand for all of them: in a task with neither graph nor
        constraints the other labels contribute through these rows; else they are set aside, and the rows stay
        in the graph as unlabelled ones.

        The graph is over all rows; with `n_neighbors=None` there is none. With more unlabelled rows than
        landmarks, it is condensed (`condense_laplacian`) on the labelled rows, the constrained ones and
        landmarks spread over the others, so that the cost of learning is that of the landmarks.
        """
        labelled = ~np.isnan(y)
        n_neighbors = None if labelled.all() else self.n_neighbors
        if active is not None and n_neighbors is None and constraints is None:
            return TaskRows(X[labelled], y[labelled], basis=X[active])
        if active is not None:
            labelled = np.isin(np.arange(len(y)), active)
        constrained = np.zeros(len(X), dtype=bool)
        if constraints is not None:
            constrained[np.unique(constraints[0].indices)] = True
        kept = np.concatenate([np.flatnonzero(labelled), np.flatnonzero(constrained & ~labelled)])
        laplacian, order = None, None
        if n_neighbors is not None and len(kept):
            free = np.flatnonzero(~labelled & ~constrained)
            if len(free) > self.n_landmarks:
                _, chosen = kmeans_plusplus(X[free], self.n_landmarks, random_state=int(rng.integers(2**31)))
                free = free[np.unique(chosen)]
            kept = np.concatenate([kept, free])
            W = local_scaling_graph(X, n_neighbors, n_jobs=self.n_jobs)
            whole = csr_array(csgraph.laplacian(W, normed=True))
            laplacian = whole[kept][:, kept] if len(kept) == len(X) else condense_laplacian(whole, kept)
        if constraints is not None:
            coefficients = csr_array(constraints[0][:, kept])
            norm = np.sqrt(np.asarray(coefficients.multiply(coefficients).sum(axis=1)).ravel())
            order = OrderRows(coefficients, constraints[1], norm)
        return TaskRows(X[kept], y[labelled], laplacian, order)


@dataclass(frozen=True, slots=True, eq=False)
class DataDependentPosterior(KernelPosterior):
    """What prediction needs of a task with a graph or constraints."""

    X: FloatArray  # (n, p) all rows of the task
    weights: FloatArray  # (n,)
    reduction: FloatArray  # (n, n) P, by which the prior covariance is reduced

    def taken(self, K: FloatArray, *, joint: bool = False) -> FloatArray:
        """k^T P k of every column."""
        return K.T @ self.reduction @ K if joint else np.einsum("dn,dn->n", K, self.reduction @ K)

    def _check_state(self) -> None:
        check_arrays(self, X="n p", weights="n derived", reduction="n n")


def task_posterior(kernel, task: TaskRows, noise: float, alpha: float, log_width: float) -> KernelPosterior:
    """Posterior of a task at given parameters; `noise` is the variance of the labels."""
    if task.basis is not None:
        return fit_on_basis(kernel, Block(task.X, task.y, Gaussian(noise)), task.basis)
    if task.laplacian is None and task.order is None:
        return posterior_from_sites(kernel, task.X, Sites(task.y, np.full(task.n_labelled, 1.0 / noise)))
    K = kernel_columns(kernel, task.X, task.X)
    variance = np.full(task.n_labelled, noise)
    if has_white(kernel):
        variance += white_diag(kernel, task.X[: task.n_labelled])
    Q, R = task.combinations(), np.eye(len(K))
    if task.laplacian is not None:
        A = alpha * (task.laplacian @ K)
        A.flat[:: len(A) + 1] += 1.0
        R = solve_general(A, R)
    G = R @ Q.T
    fit = find_mode(with_jitter(Q @ (K @ G)), task.sites(variance, log_width))
    reduction = G @ fit.reduction() @ G.T
    if task.laplacian is not None:
        reduction += alpha * (task.laplacian @ R.T).T
    return DataDependentPosterior(task.X, G @ fit.dual, 0.5 * (reduction + reduction.T))


def with_jitter(K_uu: FloatArray) -> FloatArray:
    """The prior covariance of Q f as a symmetric matrix that has a factor: constraints repeat rows."""
    K_uu = 0.5 * (K_uu + K_uu.T)
    K_uu.flat[:: len(K_uu) + 1] += _JITTER
    return K_uu


class SiteValues(NamedTuple):
    """log p(sites | u) and its derivatives in u, (l + c,) each but the first."""

    log_prob: float
    gradient: FloatArray
    precision: FloatArray  # minus the second derivative, never negative
    third: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class OrderSites:
    """Gaussian sites of the labelled rows, then probit sites of the constraints."""

    centre: FloatArray  # (l + c,) targets, then margins
    width: FloatArray  # (l + c,) deviations
    n_labelled: int

    def __call__(self, u: FloatArray) -> SiteValues:
        """The sites at u (l + c,)."""
        z, labels = (u - self.centre) / self.width, slice(self.n_labelled)
        # log Phi, its derivative h, minus its second w = h (h + z), the third w (h + z) - h (1 - w)
        log_p, slope, curvature = log_ndtr_derivatives(z)
        third = np.where(z < _FAR_LEFT, 0.0, curvature * (slope + z) - slope * (1.0 - curvature))
        log_p[labels] = -0.5 * (z[labels] ** 2 + LOG_TWO_PI) - np.log(self.width[labels])
        slope[labels], curvature[labels], third[labels] = -z[labels], 1.0, 0.0
        w = self.width
        return SiteValues(float(log_p.sum()), slope / w, curvature / w**2, third / w**3)


@dataclass(frozen=True, slots=True, eq=False)
class LaplaceFit:
    """The mode and the curvature there."""

    dual: FloatArray  # (N,) a = K^-1 u, which at the mode is the gradient of log p
    u: FloatArray  # (N,)
    sites: SiteValues
    chol: FloatArray  # (N, N) lower factor of 1 + W^1/2 K W^1/2
    log_evidence: float

    def reduction(self) -> FloatArray:
        """Rm = (K + W^-1)^-1 (N, N): by how much of it the sites reduce the prior covariance."""
        half = solve_lower(self.chol, np.diag(np.sqrt(self.sites.precision)))
        return half.T @ half


def find_mode(
    K: FloatArray, sites: Callable[[FloatArray], SiteValues], start: FloatArray | None = None
) -> LaplaceFit:
    """Damped Newton to the mode of log p(sites | u) - 1/2 u^T K^-1 u.

    `start` (N,) is a dual vector to begin from, used only if it beats zero.
    """
    if not np.isfinite(K).all():
        raise NotPositiveDefiniteError("a prior covariance has entries that are not finite.")

    def at(a: FloatArray) -> tuple[FloatArray, FloatArray, SiteValues, float]:
        u = K @ a
        values = sites(u)
        return a, u, values, float(values.log_prob - 0.5 * a @ u)

    def factor(values: SiteValues) -> FloatArray:
        root = np.sqrt(values.precision)
        B = root[:, None] * K * root
        B.flat[:: len(B) + 1] += 1.0
        return cholesky(B)[0]

    now = at(np.zeros(len(K)))
    if start is not None:
        started = at(start)
        now = started if np.isfinite(started[3]) and started[3] > now[3] else now
    chol = factor(now[2])
    for _ in range(_MAX_STEPS):
        a, u, values, objective = now
        root = np.sqrt(values.precision)
        b = values.precision * u + values.gradient
        target = b - root * solve_cholesky(chol, root * (K @ b))  # Rasmussen & Williams 2006, alg. 3.1
        least = objective - 1e-13 * abs(objective)
        step, new = 1.0, at(a + (target - a))
        while not new[3] >= least and step >= _LEAST_STEP:
            step *= 0.5
            new = at(a + step * (target - a))
        if not new[3] >= least:
            break  # rounding error is all that is left
        now, chol = new, factor(new[2])
        if step == 1.0 and abs(new[3] - objective) <= _TOLERANCE * (1.0 + abs(objective)):
            break
    a, u, values, objective = now
    return LaplaceFit(a, u, values, chol, objective - 0.5 * log_determinant(chol))
