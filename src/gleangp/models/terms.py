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
from gleangp.kernels.parameters import MovingKernel
from gleangp.models.defaults import PRIORS, PriorWidths, Start
from gleangp.models.parameters import Slot, Slots, kernel_slots
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
        slots = []
        for slot in kernel_slots(self.kernel, self.priors):
            start, low, high = slot.start, slot.low, slot.high
            if self._shares(slot.name, slot.size):
                first = np.unique(np.asarray(self.groups), return_index=True)[1]
                start, low, high = start[first], np.asarray(low)[first], np.asarray(high)[first]
            slots.append(Slot(prefix + slot.name, start, low, high, slot.prior))
        if self.mixture:
            alike = np.broadcast_to(np.eye(1, self.loadings.shape[1])[0], self.loadings.shape).ravel()
            prior = Normal(alike, _LOADING_SPREAD)
            slots.append(Slot(prefix + "loadings", self.loadings.ravel(), -30.0, 30.0, prior, "identity"))
            slots.append(Slot(prefix + "own", np.log(self.own), np.log(1e-6), np.log(1e3), _OWN_WEIGHT))
        return slots

    def _shares(self, name: str, size: int) -> bool:
        """Whether features of one group share this hyperparameter; not if a prior has a number for each."""
        if self.groups is None or size != len(self.groups) or not name.endswith("length_scale"):
            return False
        return not any(np.ndim(v) for v in getattr(self.priors.get(name), "__dict__", {}).values())


class MovingTerm:
    """A term that moves with the vector of parameters; its kernel is one object that is changed."""

    def __init__(self, spec: TermSpec, prefix: str, slots: Slots):
        self._kernel, self._spec, self._slots, self._prefix = MovingKernel(spec.kernel), spec, slots, prefix
        numbers = [np.zeros(0, dtype=np.intp)]
        for name, size in self._kernel.layout:
            part = slots.where[prefix + name]
            of_slot = np.arange(part.start, part.stop)
            numbers.append(of_slot if len(of_slot) == size else of_slot[spec.groups])
        self._theta = np.concatenate(numbers)  # of the vector, for every hyperparameter of the kernel

    def at(self, z: FloatArray) -> Term:
        """The term at z; use it before it is moved again."""
        spec, kernel = self._spec, self._kernel.at(z[self._theta])
        if not spec.mixture:
            return Term(kernel, spec.loadings, spec.own)
        loadings = self._slots.get(z, self._prefix + "loadings").reshape(spec.loadings.shape)
        return Term(kernel, loadings, np.exp(self._slots.get(z, self._prefix + "own")))

    def add_gradient(self, gradient, theta, loadings, own, z) -> None:
        """Add the gradient of the evidence in the term to that of the vector."""
        np.add.at(gradient, self._theta, theta)
        if self._spec.mixture:
            gradient[self._slots.where[self._prefix + "loadings"]] += loadings.ravel()
            gradient[self._slots.where[self._prefix + "own"]] += own * np.exp(
                self._slots.get(z, self._prefix + "own")
            )


def shape_kernel(smoothness: float, length: FloatArray) -> Kernel:
    """The correlation function: `Matern` of that smoothness, `RBF` for infinity."""
    scale = length if len(length) > 1 else float(length[0])
    return RBF(scale, _LENGTH) if np.isinf(smoothness) else Matern(scale, _LENGTH, nu=smoothness)


def hierarchical_terms(
    n_features: int, n_tasks: int, start: Start, smoothness: float, widths: PriorWidths = PRIORS
) -> list[TermSpec]:
    """The common function; with several tasks also the offset and the own function of each."""
    median = widths.length * np.sqrt(n_features)
    length = np.full(n_features, start.length * median)
    line = DotProduct(0.0, "fixed")

    smooth = HalfCauchy if widths.heavy else HalfNormal

    def amplitude(deviation: float) -> Kernel:
        return ConstantKernel(deviation**2, _AMPLITUDE)

    common = Sum(
        Sum(ConstantKernel(widths.mean**2, "fixed"), amplitude(start.linear) * line),
        amplitude(start.common) * shape_kernel(smoothness, length),
    )
    of_length: Any = LogNormal(median, widths.length_spread)
    if widths.length_tie is not None:
        of_length = Tied(median, widths.length_spread, widths.length_tie)
    priors = {
        "k1__k2__k1__constant_value": HalfNormal(widths.linear),
        "k2__k1__constant_value": smooth(widths.common),
        "k2__k2__length_scale": of_length,
    }
    terms = [TermSpec(common, priors, np.ones((n_tasks, 1)), np.zeros(n_tasks))]
    if n_tasks > 1:
        alone = np.zeros((n_tasks, 0)), np.ones(n_tasks)
        terms.append(TermSpec(amplitude(start.offset), {"constant_value": HalfCauchy(widths.offset)}, *alone))
        own = Sum(amplitude(start.slope) * line, amplitude(start.own) * shape_kernel(smoothness, length))
        priors = {
            "k1__k1__constant_value": HalfNormal(widths.slope),
            "k2__k1__constant_value": smooth(widths.own),
            "k2__k2__length_scale": of_length,
        }
        terms.append(TermSpec(own, priors, *alone))
    return terms


def independent(kernel: Kernel, priors: dict[str, Any], n_tasks: int) -> list[TermSpec]:
    """Tasks share the parameters of the kernel, and no function."""
    return [TermSpec(kernel, priors, np.zeros((n_tasks, 0)), np.ones(n_tasks))]


def with_own_copy(kernel: Kernel, priors: dict[str, Any], n_tasks: int) -> list[TermSpec]:
    """A common function under the kernel, and own ones under `C * kernel + C`."""
    terms = [TermSpec(kernel, priors, np.ones((n_tasks, 1)), np.zeros(n_tasks))]
    if n_tasks > 1:
        own: Kernel = ConstantKernel(0.1, (1e-6, 1e3)) * clone(kernel) + ConstantKernel(0.1, (1e-6, 1e3))
        own_priors = {f"k1__k2__{name}": prior for name, prior in priors.items()}
        terms.append(TermSpec(own, own_priors, np.zeros((n_tasks, 0)), np.ones(n_tasks)))
    return terms


def mixture(
    kernel: Kernel, priors: dict[str, Any], n_tasks: int, rank: int, n_terms: int = 1
) -> list[TermSpec]:
    """Tasks are mixtures of shared functions: cov = (L L^T + diag(kappa)) k, L and kappa learnt.

    Loadings start alike in the first shared function; the others have small ones of different signs, because
    a symmetric start would stay symmetric.
    """
    phase, terms = np.arange(n_tasks)[:, None] + 1.0, []
    for term in range(n_terms):
        L = 0.3 * np.cos(phase * (1.0 + np.arange(rank) + 0.7 * term))
        L[:, 0] += 0.7
        spec = TermSpec(clone(kernel), priors, L / np.sqrt(n_terms), np.full(n_tasks, 0.3), mixture=True)
        terms.append(spec)
    return terms


def prefixes(n_terms: int) -> list[str]:
    """What the names of each term's hyperparameters begin with in the sum of all terms."""
    if n_terms == 1:
        return [""]
    return ["k1__" * (n_terms - 1)] + ["k1__" * (n_terms - 1 - k) + "k2__" for k in range(1, n_terms)]


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


def coupled_terms(coupling: Any, kernel: Kernel, priors: dict[str, Any], n_tasks: int) -> list[TermSpec]:
    """The terms of one kernel for several tasks."""
    if hasattr(coupling, "terms"):
        return coupling.terms(kernel, priors, n_tasks)
    if coupling == "kernel":
        return independent(kernel, priors, n_tasks)
    if coupling == "coregion":
        return mixture(kernel, priors, n_tasks, rank=1)
    return with_own_copy(kernel, priors, n_tasks)


def sum_of_terms(kernels: list[Kernel]) -> Kernel:
    """The sum of the kernels of the terms: the prior covariance within a task of weight one."""
    total = kernels[0]
    for kernel in kernels[1:]:
        total = Sum(total, kernel)
    return total


def with_priors(terms: list[TermSpec], priors: Mapping[str, Any]) -> list[TermSpec]:
    """The terms with priors given by name in place of their own."""
    changed = []
    for term, prefix in zip(terms, prefixes(len(terms)), strict=True):
        given = {n.removeprefix(prefix): p for n, p in priors.items() if n.startswith(prefix)}
        names = {h.name for h in term.kernel.hyperparameters}
        changed.append(
            replace(term, priors={**term.priors, **{n: p for n, p in given.items() if n in names}})
        )
    return changed
