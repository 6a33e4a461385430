"""From what an estimator was given to what is learnt: couplings, terms, inputs, likelihood, starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process.kernels import Kernel

from gleangp._typing import FloatArray, IntArray
from gleangp.data.tasks import blocks_of_rows
from gleangp.inference.block import Block
from gleangp.models.defaults import MIXTURES, PRIORS, PriorWidths, Start
from gleangp.models.inputs import identity_map, map_inputs
from gleangp.models.likelihood import Likelihood
from gleangp.models.local.data import Data
from gleangp.models.local.learn import Form, Search
from gleangp.models.terms import (
    CoregionCoupling,
    FunctionCoupling,
    TermSpec,
    coupled_terms,
    hierarchical_terms,
    with_priors,
)
from gleangp.noise import Gaussian
from gleangp.selection.selectors import ResidualSelector

_REASONS = {
    "auto": "one model of all tasks: a common function, and offset, slopes and own function of each",
    "function": "as asked: a common function and own ones",
    "kernel": "as asked: tasks share the parameters of the kernel",
    "coregion": "as asked: tasks are mixtures of shared functions",
}


@dataclass(frozen=True, eq=False)
class Candidate:
    """A coupling that competes by the evidence of all rows, less a penalty in nats."""

    name: str
    search: Search
    reason: str  # why it is taken, where it is the only one
    penalty: float = 0.0


def plan_couplings(
    data: Data, likelihood: Likelihood, coupling: Any = "auto", *, outputs: bool = False, **how: Any
) -> list[Candidate]:
    """The coupling that was asked for; if it is open, mixtures of functions compete with the hierarchy.

    `outputs`: whether tasks are outputs of the same rows, of which two may also be mirror images of each
    other. The rest is for `plan_search`.
    """
    if data.n_tasks == 1:
        search = plan_search(data.X, 1, likelihood, **how)
        return [Candidate("kernel", search, "with one task there is nothing to couple")]
    name = getattr(coupling, "name", coupling)
    search = plan_search(data.X, data.n_tasks, likelihood, coupling=coupling, **how)
    first = Candidate("function" if name == "auto" else name, search, _REASONS.get(name, "as asked"))
    sizes = data.sizes[data.sizes > 0]
    few = len(sizes) < (2 if outputs else 3)
    if coupling != "auto" or not (search.optimize and likelihood.gaussian) or few:
        return [first]
    if len(sizes) > MIXTURES.most_tasks or sizes.mean() < MIXTURES.rows_per_task:
        return [first]
    rank = MIXTURES.rank if len(sizes) >= MIXTURES.rank_two_tasks else 1
    search = plan_search(data.X, data.n_tasks, likelihood, coupling=CoregionCoupling(rank), **how)
    # Schwarz's penalty of the weights of every task.
    return [first, Candidate("coregion", search, "", 0.5 * (rank + 1) * np.log1p(sizes).sum())]


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

    `kernel` is the user's, on inputs as they are; None: the hierarchical model, on warped inputs. `coupling`
    is "auto", "function", "kernel", "coregion" or an object with `terms(kernel, priors, n_tasks)`. `priors`,
    by the names of `sum_of_terms`, replace those of the default model. Features with one number in `groups`
    (p,) have one length scale in the default model; None: each has its own.
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


def choose_basis_of(selector: Any) -> Any:
    """The selector as a function (kernel, W, pool, count, rng) -> rows; None: the default.

    W are the rows of `pool` as the kernel sees them. A selector that weighs tasks against each other sees
    each of them with its targets, any other selector one block.
    """
    if isinstance(selector, ResidualSelector):
        return None

    def choose(kernel: Any, W: FloatArray, pool: Data, count: int, rng: np.random.Generator) -> IntArray:
        parts, y = [np.arange(len(W))], np.zeros(len(W))
        if hasattr(selector, "alone"):
            parts = [rows for rows in blocks_of_rows(pool.codes, pool.n_tasks) if len(rows)]
            y = pool.y
        blocks = [Block(W[rows], y[rows], Gaussian(0.1)) for rows in parts]
        active = selector.select(kernel, blocks, min(count, len(W)), rng=rng).active
        return np.concatenate([rows[chosen] for rows, chosen in zip(parts, active, strict=True)])

    return choose
