"""One task with labelled and unlabelled rows, and the order of some of them: its rows, and its posterior.

Under the data-dependent kernel, with K_x = k(X, x) over all rows of the task, G = R Q^T and
Rm = (K_uu + W^-1)^-1 at the sites,

    mean(x) = K_x^T G a,      var(x) = k(x, x) - K_x^T P K_x,      P = alpha R L + G Rm G^T,

which is Zhang & Yeung 2009, eq. 6, put into the usual posterior. A task that has neither unlabelled
rows nor constraints is an ordinary Gaussian process (`inference.posterior`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, eye_array, vstack

from gleangp._state import check_arrays
from gleangp._typing import FloatArray
from gleangp.inference.block import Block
from gleangp.inference.filtering import Sites
from gleangp.inference.laplace import find_mode
from gleangp.inference.posterior import KernelPosterior, fit_on_basis, posterior_from_sites, prior_only
from gleangp.kernels import has_white, kernel_columns, white_diag
from gleangp.noise import Gaussian
from gleangp.noise.order import OrderSites
from gleangp.numerics.linalg import solve_general

# Added to the diagonal of K_uu, in standard units: constraints on labelled rows are combinations of them.
JITTER = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class OrderRows:
    """Statements that coefficients @ f is at least `margin`, one per row.

    A pair has the coefficients +1 -1, a comparison of two differences +1 -1 -1 +1; where a row of X
    occurs twice its coefficients add up.
    """

    coefficients: csr_array  # (c, n) over the rows of the task
    margin: FloatArray  # (c,)
    norm: FloatArray  # (c,) Euclidean norm of each row: the noise of its terms adds up to it

    def __len__(self) -> int:
        return len(self.margin)


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
        if self.order is None:
            return OrderSites(self.y, noise, np.zeros(0), np.zeros(0))
        return OrderSites(self.y, noise, self.order.margin, np.exp(log_width) * self.order.norm)


def with_jitter(K_uu: FloatArray) -> FloatArray:
    """The prior covariance of Q f as a symmetric matrix that has a factor: constraints repeat rows."""
    K_uu = 0.5 * (K_uu + K_uu.T)
    K_uu.flat[:: len(K_uu) + 1] += JITTER
    return K_uu


@dataclass(frozen=True, slots=True, eq=False)
class DataDependentPosterior(KernelPosterior):
    """What prediction needs of a task with a graph or constraints."""

    X: FloatArray  # (n, p) all rows of the task
    weights: FloatArray  # (n,)
    reduction: FloatArray  # (n, n) P, by which the prior covariance is reduced

    def taken(self, K: FloatArray) -> FloatArray:
        """k^T P k of every column."""
        return np.einsum("dn,dn->n", K, self.reduction @ K)

    def taken_cov(self, K: FloatArray) -> FloatArray:
        """The same with all products."""
        return K.T @ self.reduction @ K

    def _check_state(self) -> None:
        """Raise if the parts do not fit together (a damaged model file)."""
        check_arrays(self, X="n p", weights="n derived", reduction="n n")


def task_posterior(kernel, task: TaskRows, noise: float, alpha: float, log_width: float) -> KernelPosterior:
    """Posterior of a task at given parameters; `noise` is the variance of the labels."""
    if task.basis is not None:
        return fit_on_basis(kernel, Block(task.X, task.y, Gaussian(noise)), task.basis)
    if task.laplacian is None and task.order is None:
        if task.n_labelled == 0:
            return prior_only(task.X.shape[1])
        return posterior_from_sites(kernel, task.X, Sites(task.y, np.full(task.n_labelled, 1.0 / noise)))
    K = kernel_columns(kernel, task.X, task.X)
    variance = np.full(task.n_labelled, noise)
    if has_white(kernel):
        variance += white_diag(kernel, task.X[: task.n_labelled])
    Q = task.combinations()
    R = np.eye(len(K))
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
