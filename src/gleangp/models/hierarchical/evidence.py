"""Log evidence of tasks that each have their own kernel parameters, and its gradients.

With C_i = Ktilde_i + noise over the labelled rows of task i, log N(y_i | 0, C_i). Without unlabelled
rows Ktilde is the kernel matrix (Zhang & Yeung 2009, eq. 1); with them it is the labelled block of

    Ktilde = K R,   R = (1 + alpha L K)^-1                               (Zhang & Yeung 2009, eqs. 5, 6)

over all rows of the task, L being the graph Laplacian. K^-1 is never formed. With order constraints the
prior of u = Q f is N(0, Q Ktilde Q^T), Q picking the labelled rows and combining the rows of each
constraint, so pairs, four-point constraints and labels are one mechanism; the evidence is Laplace's. With
G = R Q^T (Q^T without a graph)

    K_uu = Q K G,    dK_uu = G^T dK G,    dK_uu / d ln alpha = -alpha (K G)^T L (K G).

Small tasks are sorted by size and evaluated in padded stacks: small matrices cost overhead, not arithmetic.
Large ones and those with order constraints are evaluated one by one, in threads if wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from joblib import parallel_config
from scipy.sparse import issparse

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import lay_out
from gleangp.inference.evidence import LOG_TWO_PI, condition, evidence_gradient, gaussian_evidence
from gleangp.inference.posterior import fitc_prior
from gleangp.kernels.evaluate import MovingKernel, evaluate_apart
from gleangp.models.defaults import HIERARCHY
from gleangp.models.hierarchical.task import LaplaceFit, OrderSites, TaskRows, find_mode, with_jitter
from gleangp.models.local.data import Data, canonical_order, exact_copies
from gleangp.noise import Gaussian
from gleangp.numerics.linalg import inverse_factors, inverse_of, solve_general, solve_lower
from gleangp.numerics.parallel import in_parallel

# A task with more rows fills the arithmetic units alone; padding would only add to it.
_LARGEST_STACKED = 128


class TaskEvidence(NamedTuple):
    """Log evidence of B tasks and its derivatives."""

    value: FloatArray  # (B,)
    d_theta: FloatArray  # (B, q)
    d_log_noise: FloatArray  # (B,) in the log of the noise variance
    d_log_alpha: FloatArray  # (B,)
    d_log_width: FloatArray  # (B,) in the log of the noise of order constraints


class TaskTerms:
    """Log evidence of every task and its gradients, at theta (M, q) and log_alpha (M,) of the tasks.

    With `noise=None` every task has its own: its logarithm is the last column of theta. Labels that repeat
    another one of their task (`exact_copies`) then have no part in the evidence. The difference of such a
    label from its first has mean zero and the variance of the noise, whatever the function is, so its density
    has no bound as the noise goes to zero.
    """

    def __init__(self, kernel, tasks: Sequence[TaskRows], noise: float | None, n_jobs: int | None = None):
        self.noise, self.n_tasks, self.n_jobs = noise, len(tasks), n_jobs
        self.has_graph = np.array([t.laplacian is not None for t in tasks], dtype=bool)
        self.has_order = any(t.order is not None for t in tasks)
        self.groups: list[tuple[list[int], TaskStack | TaskOnBasis]] = []
        for at in _grouped(tasks):
            kind = TaskStack if tasks[at[0]].basis is None else TaskOnBasis
            self.groups.append((at, kind(kernel, [tasks[i] for i in at])))
        self._order = np.argsort(np.concatenate([at for at, _ in self.groups]))
        self.n_copies = _count_copies(tasks)

    def __call__(self, theta, log_alpha, log_width) -> TaskEvidence:
        if self.noise is None:
            own = np.exp(theta[:, -1])
            theta, log_noise = theta[:, :-1], np.log(own + HIERARCHY.least_noise)
        else:
            log_noise = np.full(len(theta), np.log(self.noise))
        calls = [(term, theta[at], log_noise[at], log_alpha[at], log_width) for at, term in self.groups]
        far = np.errstate(over="ignore", invalid="ignore", divide="ignore")  # of a search in a wide prior
        with parallel_config(backend="threading"), far:
            parts = in_parallel(lambda term, *at: term(*at), calls, self.n_jobs)
        total = TaskEvidence(*(np.concatenate(part)[self._order] for part in zip(*parts, strict=True)))
        if self.noise is not None:
            return total
        d_log_noise = (total.d_log_noise + 0.5 * self.n_copies) * own / (own + HIERARCHY.least_noise)
        value = total.value + 0.5 * self.n_copies * (log_noise + LOG_TWO_PI)
        return total._replace(value=value, d_theta=np.column_stack([total.d_theta, d_log_noise]))


def _count_copies(tasks: Sequence[TaskRows]) -> IntArray:
    """(M,) labels of each task that repeat another one; on a basis rows have variances of their own."""
    dense = [t if t.basis is None else TaskRows(t.X[:0], t.y[:0]) for t in tasks]
    X, y = np.concatenate([t.X[: t.n_labelled] for t in dense]), np.concatenate([t.y for t in dense])
    codes = np.repeat(np.arange(len(tasks)), [t.n_labelled for t in dense])
    data = Data(X, y, codes, len(tasks), Gaussian()).at(canonical_order(X, y, codes))
    return data.at(np.flatnonzero(exact_copies(data))).sizes


def _grouped(tasks: Sequence[TaskRows]) -> list[list[int]]:
    """Task numbers, by kind and size; each group is evaluated as one stack."""
    alike: dict[bool, list[int]] = {}
    groups = []
    for i, task in enumerate(tasks):
        if task.order is not None or task.basis is not None or len(task.X) > _LARGEST_STACKED:
            groups.append([i])
        else:
            alike.setdefault(task.laplacian is not None, []).append(i)
    for members in alike.values():
        codes = np.repeat(members, [len(tasks[i].X) for i in members])
        rows = np.split(np.arange(len(codes)), np.flatnonzero(np.diff(codes)) + 1)
        groups += [
            stack.codes[:, 0].tolist() for group in lay_out(codes, rows).groups for stack in group.stacks
        ]
    return groups


class TaskStack:
    """Tasks as one stack, with or without a graph; one with order constraints is a stack of its own.

    Labelled rows come first, then the others, either padded to the most that a task has. Padding has no
    target, no noise and no edge in the graph: sites of precision zero, as in `inference.evidence`. The mode
    of one call starts the search of the next.
    """

    def __init__(self, kernel: Any, tasks: Sequence[TaskRows]):
        k = max(t.n_labelled for t in tasks)
        B, n = len(tasks), k + max(len(t.X) - t.n_labelled for t in tasks)
        self.kernel, self.X = MovingKernel(kernel), np.zeros((B, n, tasks[0].X.shape[1]))
        self.y, self.labelled = np.zeros((B, k)), np.zeros((B, k), dtype=bool)
        self.ordered = tasks[0] if tasks[0].order is not None else None
        self.Q: Any = None if self.ordered is None else self.ordered.combinations()
        self._dual: FloatArray | None = None
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
        K, white, vjp = evaluate_apart(self.kernel.at(theta), self.X)
        alpha = np.exp(log_alpha)
        noise = np.exp(log_noise)[:, None] + (0.0 if white is None else white[:, :k])
        noise = np.broadcast_to(noise, (B, k))
        G = None if self.laplacian is None and self.Q is None else self._spread(K, alpha)
        KG = K if G is None else K @ G
        d_log_width, d_log_alpha = np.zeros(B), np.zeros(B)
        if self.ordered is None:
            value, dK_uu, d_noise = self._gaussian(KG[:, :k], noise)
        else:
            K_uu, sites = with_jitter(self.Q @ KG[0]), self.ordered.sites(noise[0], log_width)
            fit = find_mode(K_uu, sites, self._dual)
            self._dual, value = fit.dual, np.array([fit.log_evidence])
            dK_uu, d_noise, d_log_width = _laplace_gradients(K_uu, sites, fit)
        d_white = np.zeros(self.X.shape[:2])
        d_white[:, :k] = d_noise
        if self.laplacian is not None:
            rough = KG.swapaxes(1, 2) @ self._times_laplacian(KG)
            d_log_alpha = -alpha * np.einsum("bij,bij->b", dK_uu, rough)
        dK = dK_uu if G is None else G @ dK_uu @ G.swapaxes(1, 2)
        d_log_noise = np.exp(log_noise) * d_noise.sum(axis=1)
        d_theta = vjp(dK, d_white).reshape(theta.shape)
        return TaskEvidence(value, d_theta, d_log_noise, d_log_alpha, d_log_width)

    def _spread(self, K: FloatArray, alpha: FloatArray) -> FloatArray:
        """G = (1 + alpha L K)^-1 Q^T (B, n, N), or Q^T without a graph."""
        B, n = K.shape[:2]
        Q_T = np.eye(n)[:, : self.y.shape[1]] if self.Q is None else self.Q.T.toarray()
        Q_T = np.broadcast_to(Q_T, (B, *Q_T.shape))
        if self.laplacian is None:
            return Q_T
        A = alpha[:, None, None] * self._times_laplacian(K)
        np.einsum("bii->bi", A)[...] += 1.0
        return solve_general(A, Q_T)

    def _gaussian(self, K_ll: FloatArray, noise: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Log evidence (B,), and its derivatives in the covariance (B, k, k) and the noise (B, k)."""
        K_ll = 0.5 * (K_ll + K_ll.swapaxes(1, 2))
        root = np.where(self.labelled, noise**-0.5, 0.0)
        half, _, _ = inverse_factors(K_ll * (root[:, :, None] * root[:, None, :]))
        C_inv = inverse_of(half, root)
        weights = (C_inv @ self.y[:, :, None])[:, :, 0]
        log_det = -2.0 * np.log(np.einsum("bii->bi", half)).sum(axis=1)
        constant = np.where(self.labelled, np.log(noise) + LOG_TWO_PI, 0.0).sum(axis=1)
        value = -0.5 * (np.einsum("bl,bl->b", self.y, weights) + log_det + constant)
        dC = 0.5 * (weights[:, :, None] * weights[:, None, :] - C_inv)
        return value, dC, np.einsum("bii->bi", dC)

    def _times_laplacian(self, stack: FloatArray) -> FloatArray:
        sparse = issparse(self.laplacian)  # then there is one task
        return (self.laplacian @ stack[0])[None] if sparse else self.laplacian @ stack


def _laplace_gradients(K: FloatArray, sites: OrderSites, fit: LaplaceFit) -> tuple[FloatArray, ...]:
    """Derivatives of the evidence of one task in K_uu, the noise of labels, and the log width.

    They follow the mode as it moves. With g the gradient of log p at the mode, Rm = (K + W^-1)^-1,
    s = 1/2 diag(posterior covariance) * (third derivative of log p) and h = (1 - Rm K) s,

        d ln Z = tr[ (1/2 g g^T - 1/2 Rm + 1/2 (g h^T + h g^T)) dK ]

    (Rasmussen & Williams 2006, section 5.5.1). Zhang & Yeung 2009 leave the terms in h out, which can turn
    the sign of the gradient.
    """
    values, Rm, k = fit.sites, fit.reduction(), sites.n_labelled
    half = solve_lower(fit.chol, np.sqrt(values.precision)[:, None] * K)
    variance = np.diagonal(K) - np.einsum("ij,ij->j", half, half)  # of u, posterior
    s, g = 0.5 * variance * values.third, values.gradient
    h = s - Rm @ (K @ s)
    dK = 0.5 * (np.outer(fit.dual, fit.dual) - Rm + np.outer(g, h) + np.outer(h, g))
    # Sites are functions of r / width; those of labels are densities, with 1 / width besides. The width acts
    # through log p, through its gradient (the mode moves) and through the curvature.
    r = fit.u - sites.centre
    d_log_p = -r * g - (np.arange(len(r)) < k)
    d_gradient, d_precision = r * values.precision - g, r * values.third - 2.0 * values.precision
    d_log_width = d_log_p + (K @ h) * d_gradient - 0.5 * variance * d_precision
    d_noise = 0.5 * d_log_width[:k] / sites.width[:k] ** 2
    return dK[None], d_noise[None], np.array([d_log_width[k:].sum()])


class TaskOnBasis:
    """One task whose labels contribute through a basis of few rows, O(l d^2)."""

    def __init__(self, kernel: Any, tasks: Sequence[TaskRows]):
        self.kernel, [self.task] = MovingKernel(kernel), tasks

    def __call__(self, theta, log_noise, log_alpha, log_width) -> TaskEvidence:
        task, nothing = self.task, np.zeros(1)
        assert task.basis is not None
        prior = fitc_prior(self.kernel.at(theta[0]), task.X, task.basis)
        precision = np.full(len(task.y), np.exp(-log_noise[0]))
        q = condition(prior, precision, precision * task.y)
        found, value = evidence_gradient(prior, q, [False]), np.array([gaussian_evidence(q, precision)])
        d_log_noise = np.exp(log_noise) * np.sum(found.noise_variance)
        return TaskEvidence(value, found.theta[0][None], d_log_noise, nothing, nothing)
