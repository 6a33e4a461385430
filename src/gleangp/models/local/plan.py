"""From what an estimator was given to what is learnt: terms, inputs, likelihood, starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process.kernels import Kernel, Sum

from gleangp._typing import FloatArray, IntArray
from gleangp.models.couplings import FunctionCoupling
from gleangp.models.defaults import PRIORS, PriorWidths, Start
from gleangp.models.inputs import identity_map, map_inputs
from gleangp.models.likelihood import Likelihood
from gleangp.models.local.learn import Form, Search
from gleangp.models.terms import (
    TermSpec,
    hierarchical_terms,
    independent,
    mixture,
    prefixes,
    with_own_copy,
)


def plan_search(
    X: FloatArray,
    n_tasks: int,
    likelihood: Likelihood,
    *,
    kernel: Kernel | None = None,
    coupling: Any = "auto",
    priors: Mapping[str, Any] | None = None,
    optimize: bool = True,
    n_restarts: int = 0,
    progress: Any = None,
    widths: PriorWidths = PRIORS,
    groups: IntArray | None = None,
) -> Search:
    """What to learn, for inputs X (n, p) of all rows.

    Parameters
    ----------
    X : ndarray of shape (n, p)
        Inputs.
    n_tasks : int
        Number of tasks.
    likelihood : Likelihood
        How targets enter.
    kernel : Kernel, default=None
        The user's kernel, on inputs as they are. None: the hierarchical model, on warped inputs.
    coupling : {"auto", "function", "kernel", "coregion"} or object, default="auto"
        What tasks share; an object has `terms(kernel, priors, n_tasks)`.
    priors : mapping, default=None
        Priors by the names of `sum_of_terms`; they replace those of the default model.
    groups : ndarray of shape (p,), default=None
        Features of one number have one length scale in the default model. None: each has its own.
    """
    if kernel is None and isinstance(coupling, FunctionCoupling) and coupling.own_kernel is None:
        coupling = "function"
    inputs = map_inputs(X) if kernel is None and X.shape[1] else identity_map(X.shape[1])
    learning = likelihood.learning
    forms, starts = [Form(np.nan)], learning.starts
    if kernel is not None:
        starts = learning.starts[:1]
    else:
        kinds = (True, False) if inputs.n_parameters else (True,)
        smoothness = learning.smoothness if n_tasks == 1 else learning.task_smoothness
        forms = [Form(nu, warped) for warped in kinds for nu in smoothness]

    def make_terms(start: Start, nu: float) -> list[TermSpec]:
        if kernel is None:
            several = n_tasks if coupling in ("auto", "function") else 1
            terms = hierarchical_terms(X.shape[1], several, start, nu, widths)
            if several == 1 and n_tasks > 1:
                terms = coupled_terms(coupling, terms[0].kernel, terms[0].priors, n_tasks)
            terms = [replace(term, groups=groups) for term in terms]
        else:
            terms = coupled_terms(coupling, clone(kernel), {}, n_tasks)
        return with_priors(terms, priors or {})

    more = {} if progress is None else {"progress": progress}
    return Search(
        make_terms, likelihood, inputs, forms, starts, learning, widths, optimize, n_restarts, **more
    )


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
