"""How tasks are coupled: from a kernel and noise to the terms of `inference.coupled`, and back.

A coupling says which terms the model has and which of their loadings and own weights are learnt.
`CoupledParameters` is the one vector of all that is learnt: kernel and noise (`Parameters`), then for
couplings that learn them the loadings W and the logarithms of the own weights kappa.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.gaussian_process.kernels import ConstantKernel, Kernel, Sum

from gleangp._typing import FloatArray
from gleangp.exceptions import TaskError
from gleangp.inference.coupled import CoupledGradient, Term
from gleangp.kernels import signal_diag
from gleangp.learning.parameters import Parameters
from gleangp.learning.priors import LogNormal, Pareto

_LOADING_BOUND = 30.0
_LOADING_SPREAD = 0.5
_LEAST_OWN, _MOST_OWN = 1e-6, 1e3
_COREGION_OWN = LogNormal(0.3, 2.0)


@dataclass(frozen=True)
class Choice:
    """Which coupling a model has, and why.

    Attributes
    ----------
    name : str
        "kernel", "function" or "coregion".
    scores : dict
        Log evidence of each coupling that was tried, less what its parameters cost (nats).
    reason : str
        The choice in words.
    """

    name: str
    scores: dict[str, float]
    reason: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class CoupledParameters:
    """Kernel, noise, and how tasks share the kernel's terms."""

    base: Parameters  # its kernel is the sum of the terms' kernels
    loadings: tuple[FloatArray, ...]  # per term (M, R)
    own: tuple[FloatArray, ...]  # per term (M,)
    learn_loadings: bool = False
    own_priors: tuple[LogNormal | Pareto | None, ...] = ()  # per term; with one, own weights are learnt

    @property
    def n_base(self) -> int:
        """Length of the kernel and noise part."""
        return self.base.n_free

    def learnt_alone(self) -> FloatArray:
        """(M,) how many numbers were learnt for each task alone; one left at its least value was not."""
        count = np.zeros(len(self.own[0]))
        for q, of_loadings, _ in self._shares():
            if of_loadings:
                count += self.loadings[q].shape[1]
            else:
                count += self.own[q] > 1.001 * getattr(self.own_priors[q], "least", 0.0)
        return count

    def terms(self, kernel: Kernel | None = None) -> list[Term]:
        """The terms at the present values, with the kernel's parts or those of another one."""
        kernels = split_sum(self.base.kernel if kernel is None else kernel, len(self.own))
        return [Term(k, W, kappa) for k, W, kappa in zip(kernels, self.loadings, self.own, strict=True)]

    def start(self) -> FloatArray:
        """The present values."""
        shares = [
            self.loadings[q].ravel() if of_loadings else np.log(self.own[q])
            for q, of_loadings, _ in self._shares()
        ]
        return np.concatenate([self.base.start(), *shares])

    def bounds(self) -> FloatArray:
        """(q, 2) on the free scale."""
        rows = [self.base.bounds()]
        for q, of_loadings, part in self._shares():
            least = getattr(self.own_priors[q], "least", _LEAST_OWN)
            limits = (-_LOADING_BOUND, _LOADING_BOUND) if of_loadings else np.log([least, _MOST_OWN])
            rows.append(np.tile(limits, (part.stop - part.start, 1)))
        return np.vstack(rows)

    def with_shares(self, z: FloatArray) -> CoupledParameters:
        """The same with the loadings and own weights of z; kernel and noise as they are."""
        loadings, own = list(self.loadings), list(self.own)
        for q, of_loadings, part in self._shares():
            if of_loadings:
                loadings[q] = z[part].reshape(loadings[q].shape)
            else:
                own[q] = np.exp(z[part])
        return replace(self, loadings=tuple(loadings), own=tuple(own))

    def with_values(self, z: FloatArray) -> CoupledParameters:
        """The same, at the values z."""
        return replace(self.with_shares(z), base=self.base.with_values(z[: self.n_base]))

    def gradient(self, z: FloatArray, grad: CoupledGradient) -> FloatArray:
        """Gradient on the free scale, from that of the evidence at z."""
        theta = np.concatenate(grad.theta)
        parts = [theta, self.base.noise_gradient(z[: self.n_base], grad.noise)]
        for q, of_loadings, part in self._shares():
            parts.append(grad.loadings[q].ravel() if of_loadings else grad.own[q] * np.exp(z[part]))
        return np.concatenate(parts)

    def log_prior(self, z: FloatArray) -> tuple[float, FloatArray]:
        """Priors of kernel and noise; loadings are normal around equal tasks, own weights log-normal.

        Around zero instead, tasks with few rows would be drawn away from the others.
        """
        value, base_grad = self.base.log_prior(z[: self.n_base])
        gradient = np.concatenate([base_grad, np.zeros(len(z) - self.n_base)])
        for q, of_loadings, part in self._shares():
            if of_loadings:
                W = z[part].reshape(self.loadings[q].shape)
                away = (W - _alike(W.shape[1])) / _LOADING_SPREAD
                value -= 0.5 * float(np.sum(away**2))
                value -= W.size * np.log(_LOADING_SPREAD * np.sqrt(2.0 * np.pi))
                gradient[part] -= away.ravel() / _LOADING_SPREAD
            else:
                kappa = np.exp(z[part])
                log_p, slope = self.own_priors[q].log_prob(kappa)
                value += float(np.sum(log_p))
                gradient[part] += slope * kappa
        return value, gradient

    def _shares(self) -> list[tuple[int, bool, slice]]:
        """Term, whether loadings (else own weights), and place in the vector, of what tasks learn."""
        shares, at = [], self.n_base
        for q, W in enumerate(self.loadings):
            if self.learn_loadings and W.size:
                shares.append((q, True, slice(at, at + W.size)))
                at += W.size
            if self.own_priors and self.own_priors[q] is not None:
                shares.append((q, False, slice(at, at + len(W))))
                at += len(W)
        return shares

    def at_tasks(self, tasks) -> CoupledParameters:
        """For some of the tasks only."""
        return replace(
            self, loadings=tuple(W[tasks] for W in self.loadings), own=tuple(k[tasks] for k in self.own)
        )

    def with_average_task(self) -> CoupledParameters:
        """With one more task, which has the mean loadings and own weights of the others."""
        return replace(
            self,
            loadings=tuple(np.vstack([W, W.mean(axis=0)]) for W in self.loadings),
            own=tuple(np.append(k, k.mean()) for k in self.own),
        )

    def average_at(self, tasks: list[int]) -> CoupledParameters:
        """With the mean loadings and own weights of the other tasks at these: tasks without labels."""
        if not tasks or not self._shares():
            return self
        others = np.setdiff1d(np.arange(len(self.own[0])), tasks)
        loadings, own = [np.array(W) for W in self.loadings], [np.array(k) for k in self.own]
        for W, kappa in zip(loadings, own, strict=True):
            W[tasks], kappa[tasks] = W[others].mean(axis=0), kappa[others].mean()
        return replace(self, loadings=tuple(loadings), own=tuple(own))

    def correlation(self, X: FloatArray) -> FloatArray:
        """(M, M) prior correlation of the tasks' functions; terms weigh by their mean variance at X."""
        B = sum(q.between() * np.mean(signal_diag(q.kernel, X)) for q in self.terms())
        scale = np.sqrt(np.diagonal(B))
        return B / np.outer(scale, scale)


class FunctionCoupling(BaseEstimator):
    """Tasks are a common function plus one of their own.

    f_task(x) = common(x) + own_task(x), with kernels k_common and k_own; the estimator's `kernel` is the
    common one. How much is common is learnt with the kernels' amplitudes. A new task starts from the
    common function.

    Parameters
    ----------
    own_kernel : sklearn.gaussian_process.kernels.Kernel, default=None
        Covariance of the tasks' own functions. None: `C * RBF + C` if the common kernel is the default one
        too, else a scaled copy of the common kernel plus a constant, the offset of a task.
    own_priors : dict, default=None
        Hyperparameter name of `own_kernel` -> prior.
    outlier_cost : float, default=1.0
        Nats that it costs a task to have an own function of e times the variance of the others'. A task
        unlike all others pays and then leaves the common function alone; the rest stay as they are.
        `numpy.inf`: own functions of the same size for all.

    Examples
    --------
    >>> from gleangp import FunctionCoupling, SparseGPRegressor
    >>> SparseGPRegressor(coupling=FunctionCoupling()).coupling
    FunctionCoupling()
    """

    name = "function"

    def __init__(
        self,
        own_kernel: Any = None,
        own_priors: dict[str, Any] | None = None,
        outlier_cost: float = 1.0,
    ):
        self.own_kernel = own_kernel
        self.own_priors = own_priors
        self.outlier_cost = outlier_cost

    def parameters(self, base: Parameters, n_tasks: int) -> CoupledParameters:
        """Start values for `n_tasks` tasks, from the common kernel and the noise."""
        if self.own_kernel is None:
            own = ConstantKernel(0.1, (1e-6, 1e3)) * clone(base.kernel) + ConstantKernel(0.1, (1e-6, 1e3))
        else:
            own = clone(self.own_kernel)
        outliers = Pareto(1.0, self.outlier_cost) if np.isfinite(self.outlier_cost) else None
        priors = {f"k2__{name}": prior for name, prior in (self.own_priors or {}).items()}
        for name, prior in base.priors.items():
            priors[name if name.startswith("noise__") else f"k1__{name}"] = prior
        return CoupledParameters(
            replace(base, kernel=Sum(clone(base.kernel), own), priors=priors),
            (np.ones((n_tasks, 1)), np.zeros((n_tasks, 0))),
            (np.zeros(n_tasks), np.ones(n_tasks)),
            own_priors=(None, outliers),
        )


class CoregionCoupling(BaseEstimator):
    """Tasks are mixtures of shared functions, with learnt weights.

    cov(f_t(x), f_t'(x')) = B[t, t'] k(x, x') with B = W W^T + diag(kappa), W of shape (tasks, rank): the
    intrinsic model of coregionalisation; with several terms, each with its own copy of the kernel, the
    linear model.

    Parameters
    ----------
    rank : int, default=1
        Shared functions per term, at most the number of tasks.
    n_terms : int, default=1
        Terms B_q k_q that are added up.
    kernel : sklearn.gaussian_process.kernels.Kernel, default=None
        Covariance k. A white part is weighed by B too: noise in proportion to each task's variance. None:
        the estimator's; for `SparseGPRegressor`, if that is the default one, `C * RBF + C + White`.
    priors : dict, default=None
        Hyperparameter name of `kernel` -> prior.

    Examples
    --------
    >>> from gleangp import CoregionCoupling, SparseGPRegressor
    >>> SparseGPRegressor(coupling=CoregionCoupling(rank=2)).coupling
    CoregionCoupling(rank=2)
    """

    name = "coregion"

    def __init__(
        self, rank: int = 1, n_terms: int = 1, kernel: Any = None, priors: dict[str, Any] | None = None
    ):
        self.rank = rank
        self.n_terms = n_terms
        self.kernel = kernel
        self.priors = priors

    def parameters(self, base: Parameters, n_tasks: int) -> CoupledParameters:
        """Start values: tasks alike in the first shared function, the others told apart by small weights."""
        if not 1 <= self.rank <= n_tasks:
            raise TaskError(
                f"CoregionCoupling(rank={self.rank}) with {n_tasks} tasks; a rank from 1 to the number of "
                "tasks is expected. Lower the rank."
            )
        if self.n_terms < 1:
            raise TaskError(f"CoregionCoupling(n_terms={self.n_terms}); at least one term is needed.")
        if self.kernel is not None:
            of_noise = {name: prior for name, prior in base.priors.items() if name.startswith("noise__")}
            base = replace(base, kernel=clone(self.kernel), priors={**(self.priors or {}), **of_noise})
        kernel, priors = clone(base.kernel), dict(base.priors)
        for _ in range(self.n_terms - 1):
            kernel = Sum(kernel, clone(base.kernel))
            priors = {n if n.startswith("noise__") else f"k1__{n}": p for n, p in priors.items()}
            priors |= {f"k2__{n}": p for n, p in base.priors.items() if not n.startswith("noise__")}
        # Fixed and different signs per term and rank: a symmetric start would stay symmetric.
        phase = np.arange(n_tasks)[:, None] + 1.0
        loadings = []
        for term in range(self.n_terms):
            W = 0.3 * np.cos(phase * (1.0 + np.arange(self.rank) + 0.7 * term))
            W[:, 0] += 0.7
            loadings.append(W / np.sqrt(self.n_terms))
        own = tuple(np.full(n_tasks, 0.3) for _ in range(self.n_terms))
        base = replace(base, kernel=kernel, priors=priors)
        return CoupledParameters(base, tuple(loadings), own, True, (_COREGION_OWN,) * self.n_terms)


class KernelCoupling(BaseEstimator):
    """Tasks share a kernel and are otherwise independent (Lawrence & Platt 2004): the limit of the others.

    Examples
    --------
    >>> KernelCoupling().name
    'kernel'
    """

    name = "kernel"

    def parameters(self, base: Parameters, n_tasks: int) -> CoupledParameters:
        """One term without loadings."""
        return CoupledParameters(base, (np.zeros((n_tasks, 0)),), (np.ones(n_tasks),))


def _alike(rank: int) -> FloatArray:
    """(R,) loadings of a task that is like all others: one shared function, and nothing of the rest."""
    return np.eye(1, rank)[0]


def split_sum(kernel: Kernel, n_parts: int) -> list[Kernel]:
    """The last `n_parts` summands of a left-leaning sum, in order."""
    parts = []
    for _ in range(n_parts - 1):
        parts.insert(0, kernel.k2)
        kernel = kernel.k1
    return [kernel, *parts]
