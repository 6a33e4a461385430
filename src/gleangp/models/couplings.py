"""Couplings with parameters of their own: what tasks share, as objects for `coupling=`."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.gaussian_process.kernels import Kernel

from gleangp.exceptions import TaskError
from gleangp.models.terms import TermSpec, mixture, with_own_copy

__all__ = ["CoregionCoupling", "FunctionCoupling"]


class FunctionCoupling(BaseEstimator):
    """A common function, and for each task an own one: f_t = common + own_t.

    Parameters
    ----------
    own_kernel : sklearn.gaussian_process.kernels.Kernel, default=None
        Covariance of the own functions. None: a small multiple of the estimator's kernel and an offset.
    own_priors : dict, default=None
        Hyperparameter name of `own_kernel` -> prior.
    outlier_cost : float, default=1.0
        Without effect: noise and own functions of single tasks are learnt under their priors. It will be
        removed in version 0.4.

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

    def terms(self, kernel: Kernel, priors: dict[str, Any], n_tasks: int) -> list[TermSpec]:
        """The terms of the model, from the common kernel and its priors."""
        if self.own_kernel is None:
            return with_own_copy(kernel, priors, n_tasks)
        return [
            TermSpec(kernel, priors, np.ones((n_tasks, 1)), np.zeros(n_tasks)),
            TermSpec(
                clone(self.own_kernel), dict(self.own_priors or {}), np.zeros((n_tasks, 0)), np.ones(n_tasks)
            ),
        ]


class CoregionCoupling(BaseEstimator):
    """Tasks are mixtures of shared functions, with learnt weights.

    cov(f_t(x), f_t'(x')) = B[t, t'] k(x, x') with B = L L^T + diag(kappa), L of shape (tasks, rank): the
    intrinsic model of coregionalisation; with several terms, each with its own copy of the kernel, the
    linear model.

    Parameters
    ----------
    rank : int, default=1
        Shared functions per term, at most the number of tasks.
    n_terms : int, default=1
        Terms B_q k_q that are added up.
    kernel : sklearn.gaussian_process.kernels.Kernel, default=None
        Covariance k, on the inputs as the estimator's kernel has them. A white part is weighted by B too.
        None: the estimator's.
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

    def terms(self, kernel: Kernel, priors: dict[str, Any], n_tasks: int) -> list[TermSpec]:
        """The terms of the model, from the estimator's kernel and its priors."""
        if not 1 <= self.rank <= n_tasks:
            raise TaskError(
                f"CoregionCoupling(rank={self.rank}) with {n_tasks} tasks; a rank from 1 to the number of "
                "tasks is expected. Lower the rank."
            )
        if self.n_terms < 1:
            raise TaskError(f"CoregionCoupling(n_terms={self.n_terms}); at least one term is needed.")
        if self.kernel is not None:
            kernel, priors = clone(self.kernel), dict(self.priors or {})
        return mixture(kernel, priors, n_tasks, self.rank, self.n_terms)
