"""Log evidence of one task with order constraints, and its gradients.

The prior of u = Q f is N(0, Q Ktilde Q^T), Q picking the labelled rows and combining the rows of each
constraint, so pairs, four-point constraints and labels are one mechanism and Ktilde may be the plain
kernel or the data-dependent one of Zhang & Yeung 2009, eq. 6. With G = R Q^T (G = Q^T without a graph)

    K_uu = Q K G,    dK_uu = G^T dK G,    dK_uu / d ln alpha = -alpha (K G)^T L (K G).
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array, eye_array, vstack

from gleangp._typing import FloatArray
from gleangp.inference.laplace import LaplaceFit, find_mode, laplace_gradient
from gleangp.inference.task_evidence import TaskEvidence
from gleangp.inference.task_rows import TaskRows
from gleangp.kernels.evaluate import evaluate_apart
from gleangp.kernels.parameters import MovingKernel
from gleangp.noise.order import OrderSites
from gleangp.numerics.linalg import solve_general

# Added to the diagonal of K_uu, in standard units: constraints on labelled rows are combinations of them.
JITTER = 1e-6


def combinations(task: TaskRows) -> csr_array:
    """Q (l + c, n): the labelled rows, then the constraints."""
    labelled = eye_array(task.n_labelled, len(task.X), format="csr")
    return labelled if task.order is None else csr_array(vstack([labelled, task.order.coefficients]))


def spread(K: FloatArray, laplacian, alpha: float, Q: csr_array) -> FloatArray:
    """G = (1 + alpha L K)^-1 Q^T (n, N), or Q^T without a graph."""
    if laplacian is None:
        return Q.T.toarray()
    A = alpha * (laplacian @ K)
    A.flat[:: len(A) + 1] += 1.0
    return solve_general(A, Q.T.toarray())


def sites_of(task: TaskRows, noise: FloatArray, log_width: float) -> OrderSites:
    """The sites of a task, `noise` (l,) being the variance of each label."""
    order = task.order
    if order is None:
        return OrderSites(task.y, noise, np.zeros(0), np.zeros(0))
    return OrderSites(task.y, noise, order.margin, np.exp(log_width) * order.norm)


def prior_of_combinations(K: FloatArray, Q: csr_array, G: FloatArray) -> tuple[FloatArray, FloatArray]:
    """K G (n, N) and K_uu (N, N) with its jitter."""
    KG = K @ G
    K_uu = Q @ KG
    K_uu = 0.5 * (K_uu + K_uu.T)
    K_uu.flat[:: len(K_uu) + 1] += JITTER
    return KG, K_uu


class OrderedTask:
    """One task with order constraints; the mode of one call starts the search of the next."""

    def __init__(self, kernel, task: TaskRows):
        self.task = task
        self.Q = combinations(task)
        self.kernel = MovingKernel(kernel)
        self._dual: FloatArray | None = None

    def __call__(self, theta, log_noise, log_alpha, log_width) -> TaskEvidence:
        task, k = self.task, self.task.n_labelled
        kernels = evaluate_apart(self.kernel.at(theta), task.X[None])
        K, alpha = kernels.value[0], float(np.exp(log_alpha[0]))
        noise = np.full(k, np.exp(log_noise[0]))
        if kernels.white is not None:
            noise = noise + kernels.white[0, :k]
        G = spread(K, task.laplacian, alpha, self.Q)
        KG, K_uu = prior_of_combinations(K, self.Q, G)
        sites = sites_of(task, noise, log_width)
        fit = find_mode(K_uu, sites, self._dual)
        self._dual = fit.dual
        return self._gradients(kernels, sites, fit, K_uu, G, KG, alpha, np.exp(log_noise[0]))

    def _gradients(self, kernels, sites, fit: LaplaceFit, K_uu, G, KG, alpha, noise) -> TaskEvidence:
        task, k = self.task, self.task.n_labelled
        gradient = laplace_gradient(K_uu, fit)
        # Through log p, through its gradient (the mode moves) and through the curvature.
        d_log_p, d_gradient, d_precision = sites.variance_derivatives(fit.u)
        d_noise = d_log_p + gradient.pull[:k] * d_gradient - 0.5 * gradient.variance[:k] * d_precision
        d_log_p, d_gradient, d_precision = sites.width_derivatives(fit.u)
        d_width = d_log_p + gradient.pull[k:] * d_gradient - 0.5 * gradient.variance[k:] * d_precision
        dK = G @ gradient.dK @ G.T
        d_white = np.zeros((1, len(task.X)))
        d_white[0, :k] = d_noise
        d_log_alpha = 0.0
        if task.laplacian is not None:
            d_log_alpha = -alpha * np.sum(gradient.dK * (KG.T @ (task.laplacian @ KG)))
        return TaskEvidence(
            np.array([fit.log_evidence]),
            kernels.vjp(dK[None], d_white),
            np.array([noise * d_noise.sum()]),
            np.array([d_log_alpha]),
            np.array([d_width.sum()]),
        )
