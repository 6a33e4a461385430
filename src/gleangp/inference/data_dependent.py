"""Posterior of one task under the data-dependent kernel, with or without order constraints.

With K_x = k(X, x) over all rows of the task, G = R Q^T and Rm = (K_uu + W^-1)^-1 at the sites,

    mean(x) = K_x^T G a,      var(x) = k(x, x) - K_x^T P K_x,      P = alpha R L + G Rm G^T,

which is Zhang & Yeung 2009, eq. 6, put into the usual posterior. A task that has neither unlabelled
rows nor constraints is an ordinary Gaussian process (`inference.posterior`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gleangp._state import check_arrays
from gleangp._typing import FloatArray
from gleangp.inference.block import Block
from gleangp.inference.filtering import Sites
from gleangp.inference.fitc import fit_on_basis
from gleangp.inference.laplace import find_mode
from gleangp.inference.posterior import KernelPosterior, posterior_from_sites, prior_only
from gleangp.inference.task_rows import TaskRows, with_jitter
from gleangp.kernels import has_white, kernel_columns, white_diag
from gleangp.noise import Gaussian
from gleangp.numerics.linalg import solve_general


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
