"""Log evidence of tasks that each have their own kernel parameters, and its gradients.

With C_i = Ktilde_i + noise over the labelled rows of task i, log N(y_i | 0, C_i). Without unlabelled
rows Ktilde is the kernel matrix (Zhang & Yeung 2009, eq. 1); with them it is the labelled block of

    Ktilde = K R,   R = (1 + alpha L K)^-1                               (Zhang & Yeung 2009, eqs. 5, 6)

over all rows of the task, L being the graph Laplacian. K^-1 is never formed. With R_l the columns of
the labelled rows and Kt = K R_l,

    dKtilde_ll = R_l^T dK R_l,      dKtilde_ll / d ln alpha = -alpha Kt^T L Kt.

Tasks are evaluated in stacks of one padded size: small matrices cost overhead, not arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse

from gleangp._typing import FloatArray
from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.inference.task_rows import TaskRows
from gleangp.kernels.own_theta import prepare_stack
from gleangp.numerics.linalg import solve_general


@dataclass(frozen=True, slots=True, eq=False)
class TaskEvidence:
    """Log evidence of B tasks and its derivatives."""

    value: FloatArray  # (B,)
    d_theta: FloatArray  # (B, q)
    d_log_noise: FloatArray  # (B,) in the log of the noise variance
    d_log_alpha: FloatArray  # (B,)
    d_log_width: FloatArray  # (B,) in the log of the noise of order constraints


class GaussianStack:
    """Tasks with Gaussian noise alone, with or without a graph, as one stack."""

    def __init__(self, kernel, tasks: Sequence[TaskRows]):
        n_labelled = max(t.n_labelled for t in tasks)
        n_other = max(len(t.X) - t.n_labelled for t in tasks)
        B, n = len(tasks), n_labelled + n_other
        X = np.zeros((B, n, tasks[0].X.shape[1]))
        self.y = np.zeros((B, n_labelled))
        self.real = np.zeros((B, n), dtype=bool)  # rows that are not padding
        with_graph = any(t.laplacian is not None for t in tasks)
        alone = B == 1 and with_graph
        self.laplacian: Any = None
        if with_graph:
            self.laplacian = tasks[0].laplacian if alone else np.zeros((B, n, n))
        for b, task in enumerate(tasks):
            at = np.concatenate(
                [np.arange(task.n_labelled), n_labelled + np.arange(len(task.X) - task.n_labelled)]
            )
            X[b] = task.X[0]
            X[b, at] = task.X
            self.y[b, : task.n_labelled] = task.y
            self.real[b, at] = True
            if with_graph and not alone and task.laplacian is not None:
                L: Any = task.laplacian
                self.laplacian[b][np.ix_(at, at)] = L.toarray() if issparse(L) else L
        self.n_labelled = n_labelled
        self.padded = not self.real.all()
        self.both_real: Any = self.real[:, :, None] & self.real[:, None, :] if self.padded else None
        self.kernels = prepare_stack(kernel, X)

    def __call__(self, theta, log_noise, log_alpha, log_width) -> TaskEvidence:
        B, k = self.y.shape
        labelled = self.real[:, :k]
        kernels = self.kernels(theta)
        K = kernels.value if self.both_real is None else np.where(self.both_real, kernels.value, 0.0)
        noise = np.repeat(np.exp(log_noise)[:, None], k, axis=1)
        if kernels.white is not None:
            noise = noise + kernels.white[:, :k]
        alpha = np.exp(log_alpha)[:, None, None]
        R_l: Any = None
        Kt: Any = None
        if self.laplacian is None:
            K_ll = K
        else:
            A = alpha * self._times_laplacian(K)
            A[:, range(A.shape[1]), range(A.shape[1])] += 1.0
            R_l = solve_general(A, np.broadcast_to(np.eye(A.shape[1])[:, :k], (B, A.shape[1], k)))
            Kt = K @ R_l
            K_ll = 0.5 * (Kt[:, :k] + Kt[:, :k].swapaxes(1, 2))
        # Padding has unit variance of its own: no part in the determinant nor in the quadratic form.
        C = K_ll + np.where(labelled, noise, 1.0)[:, :, None] * np.eye(k)
        log_det, C_inv = _factored(C)
        weights = (C_inv @ self.y[:, :, None])[:, :, 0]
        value = -0.5 * (
            np.einsum("bl,bl->b", self.y, weights) + log_det + labelled.sum(axis=1) * np.log(2.0 * np.pi)
        )
        dC = 0.5 * (weights[:, :, None] * weights[:, None, :] - C_inv)
        if self.padded:
            dC = dC * self.both_real[:, :k, :k]
        d_noise = np.diagonal(dC, axis1=1, axis2=2)
        if self.laplacian is None:
            dK, d_log_alpha = dC, np.zeros(B)
        else:
            dK = R_l @ dC @ R_l.swapaxes(1, 2)
            rough = Kt.swapaxes(1, 2) @ self._times_laplacian(Kt)
            d_log_alpha = -alpha[:, 0, 0] * np.einsum("bij,bij->b", dC, rough)
            if self.padded:
                dK = dK * self.both_real
        d_white = np.zeros(self.real.shape)
        d_white[:, :k] = d_noise
        return TaskEvidence(
            value,
            kernels.theta_vjp(dK, d_white),
            np.exp(log_noise) * d_noise.sum(axis=1),
            d_log_alpha,
            np.zeros(B),
        )

    def _times_laplacian(self, stack):
        if issparse(self.laplacian):
            return (self.laplacian @ stack[0])[None]
        return self.laplacian @ stack


def _factored(C: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Log determinants (B,) and inverses (B, l, l)."""
    if not np.isfinite(C).all():
        raise NotPositiveDefiniteError("a covariance matrix has entries that are not finite.")
    try:
        chol = np.linalg.cholesky(C)
        half = np.linalg.inv(chol)  # of C itself it fails where rounding alone let the factor be
    except np.linalg.LinAlgError as error:
        raise NotPositiveDefiniteError(f"a covariance matrix of a task: {error}.") from error
    log_det = 2.0 * np.log(np.diagonal(chol, axis1=1, axis2=2)).sum(axis=1)
    return log_det, half.swapaxes(1, 2) @ half
