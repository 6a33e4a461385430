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
from gleangp.inference.laplace import find_mode
from gleangp.inference.posterior import (
    TaskPosterior,
    posterior_from_sites,
    predict_latent,
    predict_latent_cov,
    prior_only,
)
from gleangp.inference.projected import fit_projection
from gleangp.inference.task_rows import TaskRows, with_jitter
from gleangp.kernels import has_white, kernel_columns, white_diag
from gleangp.noise import Gaussian
from gleangp.numerics.linalg import solve_general
from gleangp.numerics.memory import row_chunks


@dataclass(frozen=True, slots=True, eq=False)
class DataDependentPosterior:
    """What prediction needs of a task with a graph or constraints."""

    X: FloatArray  # (n, p) all rows of the task
    weights: FloatArray  # (n,)
    reduction: FloatArray  # (n, n) P, by which the prior covariance is reduced

    def _check_state(self) -> None:
        """Raise if the parts do not fit together (a damaged model file)."""
        check_arrays(self, X="n p", weights="n derived", reduction="n n")


AnyPosterior = TaskPosterior | DataDependentPosterior


def task_posterior(kernel, task: TaskRows, noise: float, alpha: float, log_width: float) -> AnyPosterior:
    """Posterior of a task at given parameters; `noise` is the variance of the labels."""
    if task.basis is not None:
        return fit_projection(kernel, Block(task.X, task.y, Gaussian(noise)), task.basis)
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


def predict_task(kernel, posterior: AnyPosterior, X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance (n,) of the function at new rows, the kernel's white noise included."""
    if isinstance(posterior, TaskPosterior):
        return predict_latent(kernel, posterior, X)
    mean, var = np.empty(len(X)), np.array(kernel.diag(X), dtype=np.float64)
    for part in row_chunks(len(X), len(posterior.X)):
        K_star = kernel_columns(kernel, posterior.X, X[part])
        mean[part] = posterior.weights @ K_star
        var[part] -= np.einsum("dn,dn->n", K_star, posterior.reduction @ K_star)
    return mean, np.maximum(var, 0.0)  # rounding can leave -1e-12 where all is known


def predict_task_cov(kernel, posterior: AnyPosterior, X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean (n,) and joint covariance (n, n)."""
    if isinstance(posterior, TaskPosterior):
        return predict_latent_cov(kernel, posterior, X)
    K_star = kernel_columns(kernel, posterior.X, X)
    return posterior.weights @ K_star, kernel(X) - K_star.T @ posterior.reduction @ K_star
