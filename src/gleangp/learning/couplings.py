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
from gleangp.learning.priors import LogNormal

_LOADING_BOUND = 30.0
_LOADING_SPREAD = 0.5
_OWN_BOUNDS = (np.log(1e-6), np.log(1e3))
_OWN_PRIOR = LogNormal(0.3, 2.0)


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
    free: bool  # loadings and own weights are learnt

    @property
    def n_base(self) -> int:
        """Length of the kernel and noise part."""
        return len(self.base.start())

    def terms(self, kernel: Kernel | None = None) -> list[Term]:
        """The terms at the present values, with the kernel's parts or those of another one."""
        kernels = split_sum(self.base.kernel if kernel is None else kernel, len(self.own))
        return [Term(k, W, kappa) for k, W, kappa in zip(kernels, self.loadings, self.own, strict=True)]

    def start(self) -> FloatArray:
        """The present values."""
        if not self.free:
            return self.base.start()
        shares = [x for W, k in zip(self.loadings, self.own, strict=True) for x in (W.ravel(), np.log(k))]
        return np.concatenate([self.base.start(), *shares])

    def bounds(self) -> FloatArray:
        """(q, 2) on the free scale."""
        rows = [self.base.bounds()]
        for W, kappa in zip(self.loadings, self.own, strict=True) if self.free else ():
            rows.append(np.tile([-_LOADING_BOUND, _LOADING_BOUND], (W.size, 1)))
            rows.append(np.tile(_OWN_BOUNDS, (len(kappa), 1)))
        return np.vstack(rows)

    def with_shares(self, z: FloatArray) -> CoupledParameters:
        """The same with the loadings and own weights of z; kernel and noise as they are."""
        if not self.free:
            return self
        at, loadings, own = self.n_base, [], []
        for W, kappa in zip(self.loadings, self.own, strict=True):
            loadings.append(z[at : at + W.size].reshape(W.shape))
            at += W.size
            own.append(np.exp(z[at : at + len(kappa)]))
            at += len(kappa)
        return replace(self, loadings=tuple(loadings), own=tuple(own))

    def with_values(self, z: FloatArray) -> CoupledParameters:
        """The same, at the values z."""
        return replace(self.with_shares(z), base=self.base.with_values(z[: self.n_base]))

    def gradient(self, z: FloatArray, grad: CoupledGradient) -> FloatArray:
        """Gradient on the free scale, from that of the evidence at z."""
        theta = np.concatenate(grad.theta)
        noise = self.base.noise_gradient(z[: self.n_base], grad.noise)
        parts = [theta, noise]
        if self.free:
            kappas = self.with_shares(z).own
            for dW, d_own, kappa in zip(grad.loadings, grad.own, kappas, strict=True):
                parts += [dW.ravel(), d_own * kappa]
        return np.concatenate(parts)

    def log_prior(self, z: FloatArray) -> tuple[float, FloatArray]:
        """Priors of kernel and noise; loadings are normal around equal tasks, own weights log-normal.

        Around zero instead, tasks with few rows would be drawn away from the others.
        """
        value, base_grad = self.base.log_prior(z[: self.n_base])
        gradient = np.concatenate([base_grad, np.zeros(len(z) - self.n_base)])
        at = self.n_base
        for W, kappa in zip(self.loadings, self.own, strict=True) if self.free else ():
            away = z[at : at + W.size].reshape(W.shape) - _alike(W.shape[1])
            value -= 0.5 * float(np.sum((away / _LOADING_SPREAD) ** 2))
            value -= W.size * np.log(_LOADING_SPREAD * np.sqrt(2.0 * np.pi))
            gradient[at : at + W.size] -= away.ravel() / _LOADING_SPREAD**2
            at += W.size
            k = np.exp(z[at : at + len(kappa)])
            log_p, slope = _OWN_PRIOR.log_prob(k)
            value += float(np.sum(log_p))
            gradient[at : at + len(kappa)] += slope * k
            at += len(kappa)
        return value, gradient

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
        if not tasks or not self.free:
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

    Examples
    --------
    >>> from gleangp import FunctionCoupling, SparseGPRegressor
    >>> SparseGPRegressor(coupling=FunctionCoupling()).coupling
    FunctionCoupling()
    """

    name = "function"

    def __init__(self, own_kernel: Any = None, own_priors: dict[str, Any] | None = None):
        self.own_kernel = own_kernel
        self.own_priors = own_priors

    def parameters(self, base: Parameters, n_tasks: int) -> CoupledParameters:
        """Start values for `n_tasks` tasks, from the common kernel and the noise."""
        if self.own_kernel is None:
            own = ConstantKernel(0.1, (1e-6, 1e3)) * clone(base.kernel) + ConstantKernel(0.1, (1e-6, 1e3))
        else:
            own = clone(self.own_kernel)
        priors = {f"k2__{name}": prior for name, prior in (self.own_priors or {}).items()}
        for name, prior in base.priors.items():
            priors[name if name.startswith("noise__") else f"k1__{name}"] = prior
        return CoupledParameters(
            replace(base, kernel=Sum(clone(base.kernel), own), priors=priors),
            (np.ones((n_tasks, 1)), np.zeros((n_tasks, 0))),
            (np.zeros(n_tasks), np.ones(n_tasks)),
            free=False,
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

    Examples
    --------
    >>> from gleangp import CoregionCoupling, SparseGPRegressor
    >>> SparseGPRegressor(coupling=CoregionCoupling(rank=2)).coupling
    CoregionCoupling(rank=2)
    """

    name = "coregion"

    def __init__(self, rank: int = 1, n_terms: int = 1):
        self.rank = rank
        self.n_terms = n_terms

    def parameters(self, base: Parameters, n_tasks: int) -> CoupledParameters:
        """Start values: tasks alike in the first shared function, the others told apart by small weights."""
        if not 1 <= self.rank <= n_tasks:
            raise TaskError(
                f"CoregionCoupling(rank={self.rank}) with {n_tasks} tasks; a rank from 1 to the number of "
                "tasks is expected. Lower the rank."
            )
        if self.n_terms < 1:
            raise TaskError(f"CoregionCoupling(n_terms={self.n_terms}); at least one term is needed.")
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
        return CoupledParameters(replace(base, kernel=kernel, priors=priors), tuple(loadings), own, free=True)


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
        return CoupledParameters(base, (np.zeros((n_tasks, 0)),), (np.ones(n_tasks),), free=False)


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
