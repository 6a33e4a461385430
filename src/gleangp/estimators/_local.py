"""From the parameters of a sparse estimator to the model of blocks and a basis (`models.local`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.data.tasks import blocks_of_rows
from gleangp.estimators._training_rows import LocalRows
from gleangp.inference.block import Block
from gleangp.models.choice import Choice
from gleangp.models.couplings import CoregionCoupling
from gleangp.models.decisions import Decision
from gleangp.models.defaults import MIXTURES, PRIORS, PriorWidths
from gleangp.models.likelihood import GaussianNoise, Likelihood
from gleangp.models.local.data import Data, canonical_order
from gleangp.models.local.fit import Candidate, fit_local
from gleangp.models.local.model import LocalModel
from gleangp.models.local.plan import plan_search
from gleangp.noise import Gaussian
from gleangp.selection.selectors import ResidualSelector

_REASONS = {
    "auto": "one model of all tasks: a common function, and offset, slopes and own function of each",
    "function": "as asked: a common function and own ones",
    "kernel": "as asked: tasks share the parameters of the kernel",
    "coregion": "as asked: tasks are mixtures of shared functions",
}


def fit_local_rows(
    estimator: Any,
    rows: LocalRows,
    y: FloatArray,
    likelihood: Likelihood,
    noise: Any,
    rng: np.random.Generator,
    kernel: Any = None,
    priors: dict[str, Any] | None = None,
    progress: Any = None,
    widths: PriorWidths = PRIORS,
    *,
    warn: bool = True,
) -> LocalModel:
    """Fit the rows of an estimator.

    `y` are the targets of all rows in the coding of the noise, and `noise` is as in `Data.noise`, for all
    rows. `warn` if more active points are asked for than there are rows.
    """
    kept = np.arange(len(rows.X)) if rows.keep is None else np.flatnonzero(rows.keep)
    X = np.asarray(rows.X[kept], dtype=np.float64)
    order = canonical_order(X, y[kept], rows.codes[kept])
    kept = kept[order]
    everything = Data(rows.X, y, rows.codes, rows.n_tasks, noise)
    data = Data(X[order], y[kept], rows.codes[kept], rows.n_tasks, everything.noise_at(kept))
    selector = estimator._chosen_selector()
    if hasattr(selector, "check_tasks"):
        selector.check_tasks(int(np.sum(data.sizes > 0)))
    coupling = estimator.coupling if rows.n_tasks > 1 else "auto"
    of_noise = {n.removeprefix("noise__"): p for n, p in (priors or {}).items() if n.startswith("noise__")}
    likelihood = likelihood.with_priors(of_noise)

    def candidate(name: Any, penalty: float = 0.0) -> Candidate:
        search = plan_search(
            data.X,
            rows.n_tasks,
            likelihood,
            kernel=kernel,
            coupling=name,
            priors=priors,
            optimize=estimator.optimizer is not None,
            n_restarts=estimator.n_restarts,
            progress=progress,
            widths=widths,
        )
        return Candidate("function" if name == "auto" else getattr(name, "name", name), search, penalty)

    candidates = [candidate(coupling)]
    estimator._check_prior_names(
        [*candidates[0].search.names, *(f"noise__{name}" for name in likelihood.names)]
    )
    sizes = data.sizes[data.sizes > 0]
    # Outputs of the same rows may be mirror images of each other, two of them also.
    least = 1 if getattr(estimator, "_n_outputs", 0) else 2
    several = least < len(sizes) <= MIXTURES.most_tasks and sizes.mean() >= MIXTURES.rows_per_task
    if (
        coupling == "auto"
        and several
        and isinstance(likelihood, GaussianNoise)
        and candidates[0].search.optimize
    ):
        # Schwarz's penalty of the weights of every task.
        rank = MIXTURES.rank if len(sizes) >= MIXTURES.rank_two_tasks else 1
        candidates.append(candidate(CoregionCoupling(rank), 0.5 * (rank + 1) * np.log1p(sizes).sum()))
    model = fit_local(
        candidates,
        data,
        rng,
        n_basis=n_basis_of(estimator, len(data), warn=warn),
        choose_basis=choose_basis_of(estimator),
    )
    if len(candidates) > 1:
        made = model.decisions[0]
        choice, decisions = Choice(made.chosen, dict(made.numbers), made.reason), model.decisions
    else:
        choice = _choice(coupling, rows.n_tasks)
        decisions = (Decision("coupling", choice.name, {}, choice.reason), *model.decisions)
    return replace(model, row_numbers=kept, active=kept[model.active], choice=choice, decisions=decisions)


def _choice(coupling: Any, n_tasks: int) -> Choice:
    if n_tasks == 1:
        return Choice("kernel", {}, "with one task there is nothing to couple")
    name = getattr(coupling, "name", coupling)
    return Choice("function" if name == "auto" else name, {}, _REASONS.get(name, "as asked"))


def n_basis_of(estimator: Any, n_rows: int, *, warn: bool = True) -> int | None:
    """Basis points that were asked for; None: the default."""
    return None if estimator.n_active is None else estimator._count_active([n_rows], warn=warn)


def choose_basis_of(estimator: Any) -> Any:
    """The selector of the estimator as a function (kernel, W, pool, count, rng) -> rows; None: the default.

    W are the rows of `pool` as the kernel sees them. A selector that weighs tasks against each other sees
    each of them with its targets, any other selector one block.
    """
    selector = estimator._chosen_selector()
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
