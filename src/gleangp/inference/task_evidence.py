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
from gleangp.inference.block import Block
from gleangp.inference.evidence import LOG_TWO_PI, inverse_factors, inverse_of
from gleangp.inference.projected import projected_evidence
from gleangp.inference.task_rows import TaskRows
from gleangp.kernels.evaluate import evaluate_apart
from gleangp.kernels.parameters import MovingKernel
from gleangp.noise import Gaussian
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
    """Tasks with Gaussian noise alone, with or without a graph, as one stack.

    Labelled rows come first, then the others, either padded to the most that a task has. Padding has no
    target, no noise and no edge in the graph: sites of precision zero, as in `inference.evidence`.
    """

    def __init__(self, kernel, tasks: Sequence[TaskRows]):
        k = self.n_labelled = max(t.n_labelled for t in tasks)
        B, n = len(tasks), k + max(len(t.X) - t.n_labelled for t in tasks)
        self.kernel, self.X = MovingKernel(kernel), np.zeros((B, n, tasks[0].X.shape[1]))
        self.y, self.labelled = np.zeros((B, k)), np.zeros((B, k), dtype=bool)
        self.laplacian: Any = None
        if B == 1:
            self.laplacian = tasks[0].laplacian
        elif any(t.laplacian is not None for t in tasks):
            self.laplacian = np.zeros((B, n, n))
        for b, task in enumerate(tasks):
            at = np.arange(len(task.X))
            at[task.n_labelled :] += k - task.n_labelled
            self.X[b] = task.X[0]
            self.X[b, at] = task.X
            self.y[b, : task.n_labelled] = task.y
            self.labelled[b, : task.n_labelled] = True
            if B > 1 and task.laplacian is not None:
                L: Any = task.laplacian
                self.laplacian[b][np.ix_(at, at)] = L.toarray() if issparse(L) else L

    def __call__(self, theta, log_noise, log_alpha, log_width) -> TaskEvidence:
        B, k = self.y.shape
        kernels = evaluate_apart(self.kernel.at(theta), self.X)
        K, alpha = kernels.value, np.exp(log_alpha)[:, None, None]
        R_l: Any = None
        Kt: Any = None
        if self.laplacian is None:
            K_ll = K
        else:
            A = alpha * self._times_laplacian(K)
            np.einsum("bii->bi", A)[...] += 1.0
            R_l = solve_general(A, np.broadcast_to(np.eye(A.shape[1])[:, :k], (B, A.shape[1], k)))
            Kt = K @ R_l
            K_ll = 0.5 * (Kt[:, :k] + Kt[:, :k].swapaxes(1, 2))
        noise = np.exp(log_noise)[:, None] + (0.0 if kernels.white is None else kernels.white[:, :k])
        noise = np.broadcast_to(noise, (B, k))
        root = np.where(self.labelled, noise**-0.5, 0.0)
        half, _, _ = inverse_factors(K_ll * (root[:, :, None] * root[:, None, :]))
        C_inv = inverse_of(half, root)
        weights = (C_inv @ self.y[:, :, None])[:, :, 0]
        log_det = -2.0 * np.log(np.einsum("bii->bi", half)).sum(axis=1)
        constant = np.where(self.labelled, np.log(noise) + LOG_TWO_PI, 0.0).sum(axis=1)
        value = -0.5 * (np.einsum("bl,bl->b", self.y, weights) + log_det + constant)
        dC = 0.5 * (weights[:, :, None] * weights[:, None, :] - C_inv)
        d_noise = np.einsum("bii->bi", dC)
        d_white = np.zeros(self.X.shape[:2])
        d_white[:, :k] = d_noise
        dK, d_log_alpha = dC, np.zeros(B)
        if self.laplacian is not None:
            dK = R_l @ dC @ R_l.swapaxes(1, 2)
            rough = Kt.swapaxes(1, 2) @ self._times_laplacian(Kt)
            d_log_alpha = -alpha[:, 0, 0] * np.einsum("bij,bij->b", dC, rough)
        return TaskEvidence(
            value,
            kernels.vjp(dK, d_white),
            np.exp(log_noise) * d_noise.sum(axis=1),
            d_log_alpha,
            np.zeros(B),
        )

    def _times_laplacian(self, stack):
        if issparse(self.laplacian):
            return (self.laplacian @ stack[0])[None]
        return self.laplacian @ stack


class ProjectedTask:
    """One task whose labels contribute through a basis of few rows: the collapsed bound, O(l d^2)."""

    def __init__(self, kernel, task: TaskRows):
        self.kernel, self.task = MovingKernel(kernel), task

    def __call__(self, theta, log_noise, log_alpha, log_width) -> TaskEvidence:
        noise, nothing = float(np.exp(log_noise[0])), np.zeros(1)
        block = Block(self.task.X, self.task.y, Gaussian(noise))
        assert self.task.basis is not None
        found = projected_evidence(self.kernel.at(theta[0]), block, self.task.basis)
        d_noise = np.array([noise * np.sum(found.d_noise)])
        return TaskEvidence(np.array([found.value]), found.theta[None], d_noise, nothing, nothing)
