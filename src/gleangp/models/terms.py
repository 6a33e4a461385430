"""The terms of a model: what tasks share, and what each has of its own; couplings as objects.

The default is one hierarchical model of related tasks, under proper priors:

    f_t(w) = m + g(w) + o_t + s_t' w + h_t(w),
    g = alpha_lin^2 w w' + alpha_g^2 k(w; l_g),   o_t ~ N(0, alpha_o^2),   s_t ~ N(0, alpha_s^2 I),
    h_t = alpha_h^2 k(w; l_h).

It contains pooled regression (alpha_o = alpha_s = alpha_h = 0), random intercepts, random slopes and
independent tasks (alpha_g = alpha_lin = 0). The priors, maximised in the logarithms, decide between them. One
task has m and g alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Kernel, Matern, Sum

from gleangp._typing import FloatArray, IntArray
from gleangp.exceptions import TaskError
from gleangp.inference.prior import Term
from gleangp.kernels.evaluate import MovingKernel
from gleangp.models.defaults import PRIORS, PriorWidths, Start
from gleangp.models.parameters import Slot, kernel_slots
from gleangp.models.priors import HalfCauchy, HalfNormal, LogNormal, Normal, Tied

_AMPLITUDE = tuple(np.exp([-12.0, 8.0]))  # bounds of a variance
_LENGTH = tuple(np.exp([-3.0, 7.0]))
_LOADING_SPREAD = 0.5  # of the loadings of a mixture, around those of equal tasks
_OWN_WEIGHT = LogNormal(0.3, 2.0)  # of the share of a mixture that is a task's own


@dataclass(frozen=True, eq=False)
class TermSpec:
    """A term to be learnt: the kernel with its start values, its priors, and which tasks share it."""

    kernel: Kernel
    priors: dict[str, Any]
    loadings: FloatArray  # (M, R)
    own: FloatArray  # (M,)
    mixture: bool = False  # whether loadings and own weights are learnt
    groups: IntArray | None = None  # (p,) features of one number have one length scale; None: each its own

    def slots(self, prefix: str) -> list[Slot]:
        """One slot for each free hyperparameter of the kernel, then those of the tasks' weights."""
        slots = kernel_slots(self.kernel, self.priors, prefix, self.groups)
        if self.mixture:
            alike = np.broadcast_to(np.eye(1, self.loadings.shape[1])[0], self.loadings.shape).ravel()
            prior = Normal(alike, _LOADING_SPREAD)
            slots.append(Slot(prefix + "loadings", self.loadings.ravel(), -30.0, 30.0, prior, "identity"))
            slots.append(Slot(prefix + "own", np.log(self.own), np.log(1e-6), np.log(1e3), _OWN_WEIGHT))
        return slots


class MovingTerm:
    """A term that moves with the vector of parameters; its kernel is one object that is changed."""

    def __init__(self, spec: TermSpec, prefix: str, where: Mapping[str, slice]):
        self._kernel, self._spec, numbers = MovingKernel(spec.kernel), spec, [np.zeros(0, dtype=np.intp)]
        for name, size in self._kernel.layout:
            part = where[prefix + name]
            of_slot = np.arange(part.start, part.stop)
            numbers.append(of_slot if len(of_slot) == size else of_slot[spec.groups])
        self._theta = np.concatenate(numbers)  # of the vector, for every hyperparameter of the kernel
        self._loadings, self._own = (where.get(prefix + name, slice(0)) for name in ("loadings", "own"))

    def at(self, z: FloatArray) -> Term:
        """The term at z; use it before it is moved again."""
        spec, kernel = self._spec, self._kernel.at(z[self._theta])
        if not spec.mixture:
            return Term(kernel, spec.loadings, spec.own)
        return Term(kernel, z[self._loadings].reshape(spec.loadings.shape), np.exp(z[self._own]))

    def add_gradient(self, gradient, theta, loadings, own, z) -> None:
        """Add the gradient of the evidence in the term to that of the vector."""
        np.add.at(gradient, self._theta, theta)
        if self._spec.mixture:
            gradient[self._loadings] += loadings.ravel()
            gradient[self._own] += own * np.exp(z[self._own])


def hierarchical_terms(
    n_features: int, n_tasks: int, start: Start, smoothness: float, widths: PriorWidths = PRIORS
) -> list[TermSpec]:
    """The common function; with several tasks also the offset and the own function of each.

    The correlation function is `Matern` of that smoothness, `RBF` for infinity.
    """
    median = widths.length * float(np.sqrt(n_features))
    length = np.full(n_features, start.length * median) if n_features > 1 else start.length * median
    line, smooth = DotProduct(0.0, "fixed"), HalfCauchy if widths.heavy else HalfNormal

    def amplitude(deviation: float) -> Kernel:
        return ConstantKernel(deviation**2, _AMPLITUDE)

    shape = RBF(length, _LENGTH) if np.isinf(smoothness) else Matern(length, _LENGTH, nu=smoothness)
    of_length: Any = LogNormal(median, widths.length_spread)
    if widths.length_tie is not None:
        of_length = Tied(median, widths.length_spread, widths.length_tie)
    linear = Sum(ConstantKernel(widths.mean**2, "fixed"), amplitude(start.linear) * line)
    common = Sum(linear, amplitude(start.common) * shape)
    priors = {
        "k1__k2__k1__constant_value": HalfNormal(widths.linear),
        "k2__k1__constant_value": smooth(widths.common),
        "k2__k2__length_scale": of_length,
    }
    terms = [TermSpec(common, priors, np.ones((n_tasks, 1)), np.zeros(n_tasks))]
    if n_tasks > 1:
        alone = np.zeros((n_tasks, 0)), np.ones(n_tasks)
        terms.append(TermSpec(amplitude(start.offset), {"constant_value": HalfCauchy(widths.offset)}, *alone))
        own = Sum(amplitude(start.slope) * line, amplitude(start.own) * shape)
        priors = {
            "k1__k1__constant_value": HalfNormal(widths.slope),
            "k2__k1__constant_value": smooth(widths.own),
            "k2__k2__length_scale": of_length,
        }
        terms.append(TermSpec(own, priors, *alone))
    return terms


def prefixes(n_terms: int) -> list[str]:
    """What the names of each term's hyperparameters begin with in the sum of all terms."""
    return ["k1__" * (n_terms - 1 - k) + "k2__" * (k > 0) for k in range(n_terms)]


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
        self, own_kernel: Any = None, own_priors: dict[str, Any] | None = None, outlier_cost: float = 1.0
    ):
        self.own_kernel = own_kernel
        self.own_priors = own_priors
        self.outlier_cost = outlier_cost

    def terms(self, kernel: Kernel, priors: dict[str, Any], n_tasks: int) -> list[TermSpec]:
        """The terms of the model, from the common kernel and its priors."""
        own, own_priors = self.own_kernel, dict(self.own_priors or {})
        if own is None:
            own = ConstantKernel(0.1, (1e-6, 1e3)) * kernel + ConstantKernel(0.1, (1e-6, 1e3))
            own_priors = {f"k1__k2__{name}": prior for name, prior in priors.items()}
        return [
            TermSpec(kernel, priors, np.ones((n_tasks, 1)), np.zeros(n_tasks)),
            TermSpec(clone(own), own_priors, np.zeros((n_tasks, 0)), np.ones(n_tasks)),
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
        # Loadings start alike in the first shared function; the others have small ones of different signs,
        # because a symmetric start would stay symmetric.
        phase, terms = np.arange(n_tasks)[:, None] + 1.0, []
        for term in range(self.n_terms):
            L = 0.3 * np.cos(phase * (1.0 + np.arange(self.rank) + 0.7 * term))
            L[:, 0] += 0.7
            weights = L / np.sqrt(self.n_terms), np.full(n_tasks, 0.3)
            terms.append(TermSpec(clone(kernel), priors, *weights, mixture=True))
        return terms


def coupled_terms(coupling: Any, kernel: Kernel, priors: dict[str, Any], n_tasks: int) -> list[TermSpec]:
    """The terms of one kernel for several tasks."""
    if hasattr(coupling, "terms"):
        return coupling.terms(kernel, priors, n_tasks)
    if coupling == "kernel":  # tasks share the parameters of the kernel, and no function
        return [TermSpec(kernel, priors, np.zeros((n_tasks, 0)), np.ones(n_tasks))]
    if n_tasks == 1:
        return [TermSpec(kernel, priors, np.ones((1, 1)), np.zeros(1))]
    named = CoregionCoupling() if coupling == "coregion" else FunctionCoupling()
    return named.terms(kernel, priors, n_tasks)


def with_priors(terms: list[TermSpec], priors: Mapping[str, Any]) -> list[TermSpec]:
    """The terms with priors given by name in place of their own."""
    changed = []
    for term, prefix in zip(terms, prefixes(len(terms)), strict=True):
        names = [h.name for h in term.kernel.hyperparameters if prefix + h.name in priors]
        changed.append(replace(term, priors={**term.priors, **{n: priors[prefix + n] for n in names}}))
    return changed
