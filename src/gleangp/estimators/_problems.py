"""From what a sparse estimator was given to the models: of blocks and a basis, or of active points."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from gleangp._typing import FloatArray, IntArray
from gleangp.data.tables import feature_groups
from gleangp.data.tasks import blocks_of_rows
from gleangp.inference.block import Block
from gleangp.models.active.model import SparseModel, fit_sparse_model
from gleangp.models.active.settings import Settings
from gleangp.models.active.tasks import TaskBlocks
from gleangp.models.active.virtual_vectors import add_virtual_vectors, virtual_scores
from gleangp.models.choice import Choice
from gleangp.models.couplings import CoregionCoupling
from gleangp.models.decisions import Decision
from gleangp.models.defaults import MIXTURES, PRIORS, PriorWidths
from gleangp.models.likelihood import GaussianNoise, Likelihood
from gleangp.models.local.data import Data, canonical_order
from gleangp.models.local.fit import Candidate, fit_local
from gleangp.models.local.model import LocalModel
from gleangp.models.local.plan import plan_search
from gleangp.models.parameters import Parameters
from gleangp.noise import Gaussian
from gleangp.progress import Progress, silent
from gleangp.selection.selectors import ResidualSelector

# Rows from which the spread of the features is computed: more make no difference to where a search starts.
_MOST_SAMPLED = 50_000
_REASONS = {
    "auto": "one model of all tasks: a common function, and offset, slopes and own function of each",
    "function": "as asked: a common function and own ones",
    "kernel": "as asked: tasks share the parameters of the kernel",
    "coregion": "as asked: tasks are mixtures of shared functions",
}


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Rows of all tasks; those without a target are left out unless the noise model has a place for them."""

    X: FloatArray  # (n, p)
    codes: IntArray  # (n,) task of each row
    n_tasks: int
    keep: np.ndarray  # (n,) mask of the rows to learn from

    @cached_property
    def kept(self) -> IntArray:
        """Numbers of the rows to learn from."""
        return np.flatnonzero(self.keep)

    @cached_property
    def by_task(self) -> list[IntArray]:
        """The same, task by task."""
        return [rows[self.keep[rows]] for rows in blocks_of_rows(self.codes, self.n_tasks)]

    @property
    def sizes(self) -> list[int]:
        """(M,) rows of each task."""
        return [len(rows) for rows in self.by_task]

    @cached_property
    def some_inputs(self) -> FloatArray:
        """Inputs of at most 50 000 of the rows, evenly spaced."""
        return self.X[self.kept[:: max(1, -(-len(self.kept) // _MOST_SAMPLED))]]


@dataclass(frozen=True, eq=False)
class ActiveProblem:
    """What one model of active points is fitted from; several classes have a problem each."""

    rows: TrainingRows
    y: FloatArray  # (n,) targets of all rows, in the coding of the noise
    parameters: Parameters
    rng: np.random.Generator
    variance: FloatArray | None = None  # known noise of every row


def fit_active_rows(
    settings: Settings, invariances: list, problem: ActiveProblem, progress: Progress = silent
) -> SparseModel:
    """Fit the model, with transformed copies of its active points if there are invariances."""
    settings, noise, rng = replace(settings, progress=progress), problem.parameters.noise, problem.rng
    rows, y, variance = problem.rows, problem.y, problem.variance
    by_task = [in_canonical_order(rows.X, y, r) for r in rows.by_task]
    noises = [noise if variance is None else type(noise)(variance[r]) for r in by_task]
    blocks = [Block(rows.X[r], y[r], n) for r, n in zip(by_task, noises, strict=True)]
    tasks = TaskBlocks(blocks, by_task)
    model = fit_sparse_model(problem.parameters, tasks, len(rows.X), settings, rng)
    if not invariances:
        return model
    seed = int(rng.integers(2**31))
    wider = add_virtual_vectors(model, tasks, list(range(tasks.n_tasks)), invariances, settings, seed)
    return replace(wider, virtual_scores=virtual_scores(wider, model, tasks, seed))


def in_canonical_order(X: FloatArray, y: np.ndarray, rows: IntArray) -> IntArray:
    """Row numbers of a task, sorted by what is in the rows: results do not depend on their order."""
    return rows[canonical_order(X[rows], y[rows], np.zeros(len(rows), dtype=np.intp))]


@dataclass(frozen=True, eq=False)
class LocalProblem:
    """What one model of blocks and a basis is fitted from; several classes have a problem each."""

    rows: TrainingRows
    y: FloatArray  # (n,) targets of all rows, in the coding of the noise
    likelihood: Likelihood
    noise: Any  # of all rows, as in `Data.noise`
    rng: np.random.Generator
    kernel: Kernel | None = None  # None: the default model
    widths: PriorWidths = PRIORS
    warn: bool = True  # if more active points are asked for than there are rows


def fit_local_rows(estimator: Any, problem: LocalProblem, progress: Any = None) -> LocalModel:
    """Fit the rows of an estimator."""
    n_tasks, priors = problem.rows.n_tasks, estimator.priors or {}
    kept, data = _in_canonical_order(problem)
    selector = estimator._chosen_selector()
    if hasattr(selector, "check_tasks"):
        selector.check_tasks(int(np.sum(data.sizes > 0)))
    coupling = estimator.coupling if n_tasks > 1 else "auto"
    of_noise = {n.removeprefix("noise__"): p for n, p in priors.items() if n.startswith("noise__")}
    likelihood = problem.likelihood.with_priors(of_noise)

    def candidate(coupling: Any, penalty: float = 0.0) -> Candidate:
        search = plan_search(
            data.X,
            n_tasks,
            likelihood,
            kernel=problem.kernel,
            coupling=coupling,
            priors=estimator.priors,
            optimize=estimator.optimizer is not None,
            n_restarts=estimator.n_restarts,
            progress=progress,
            widths=problem.widths,
            groups=feature_groups(getattr(estimator, "columns_", None)),
        )
        return Candidate(_name(coupling), search, penalty)

    candidates = [candidate(coupling)]
    search = candidates[0].search
    estimator._check_prior_names([*search.names, *(f"noise__{name}" for name in likelihood.names)])
    if coupling == "auto" and search.optimize and isinstance(likelihood, GaussianNoise):
        sizes = data.sizes[data.sizes > 0]
        # Outputs of the same rows may be mirror images of each other, two of them also.
        least = 1 if getattr(estimator, "_n_outputs", 0) else 2
        if least < len(sizes) <= MIXTURES.most_tasks and sizes.mean() >= MIXTURES.rows_per_task:
            # Schwarz's penalty of the weights of every task.
            rank = MIXTURES.rank if len(sizes) >= MIXTURES.rank_two_tasks else 1
            candidates.append(candidate(CoregionCoupling(rank), 0.5 * (rank + 1) * np.log1p(sizes).sum()))
    n_basis = n_basis_of(estimator, len(data), warn=problem.warn)
    choose = choose_basis_of(estimator)
    model = fit_local(candidates, data, problem.rng, n_basis=n_basis, choose_basis=choose)
    decisions = model.decisions
    if len(candidates) == 1:
        decisions = (_decision_on_coupling(coupling, n_tasks), *decisions)
    choice = Choice(decisions[0].chosen, dict(decisions[0].numbers), decisions[0].reason)
    return replace(model, row_numbers=kept, active=kept[model.active], choice=choice, decisions=decisions)


def _in_canonical_order(problem: LocalProblem) -> tuple[IntArray, Data]:
    """Numbers of the rows to learn from, and what is in them; their order does not matter to the fit."""
    rows, y = problem.rows, problem.y
    kept = rows.kept[canonical_order(rows.X[rows.kept], y[rows.kept], rows.codes[rows.kept])]
    return kept, Data(rows.X, y, rows.codes, rows.n_tasks, problem.noise).at(kept)


def _name(coupling: Any) -> str:
    name = getattr(coupling, "name", coupling)
    return "function" if name == "auto" else name


def _decision_on_coupling(coupling: Any, n_tasks: int) -> Decision:
    if n_tasks == 1:
        return Decision("coupling", "kernel", {}, "with one task there is nothing to couple")
    reason = _REASONS.get(getattr(coupling, "name", coupling), "as asked")
    return Decision("coupling", _name(coupling), {}, reason)


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
