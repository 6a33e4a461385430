"""From what a sparse estimator was given to the models: of blocks and a basis, or of active points."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from gleangp._typing import FloatArray, IntArray
from gleangp.data.tables import feature_groups
from gleangp.data.tasks import blocks_of_rows
from gleangp.estimators._observations import check_fields, check_rows
from gleangp.estimators._parameters import generator_from
from gleangp.inference.block import Block
from gleangp.inference.evidence import GroupKnowledge, Knowledge
from gleangp.inference.local import LocalPosterior
from gleangp.inference.posterior import Sites, TaskPosterior
from gleangp.inference.prior import Term
from gleangp.inference.propagate import RowSites
from gleangp.io.classes import register
from gleangp.kernels import has_white
from gleangp.models import priors
from gleangp.models.active.learn import Settings, TaskBlocks
from gleangp.models.active.model import SparseModel, fit_sparse_model
from gleangp.models.decisions import Choice, Decision
from gleangp.models.default_kernel import default_kernel, default_priors, noise_prior, task_priors
from gleangp.models.defaults import LINKED_PRIORS, PRIORS, START_KERNEL, UNITS, PriorWidths
from gleangp.models.inputs import InputMap
from gleangp.models.likelihood import Likelihood
from gleangp.models.local import upgrade
from gleangp.models.local.data import Data, canonical_order
from gleangp.models.local.fit import fit_local
from gleangp.models.local.model import Draw, LocalModel
from gleangp.models.local.plan import plan_couplings
from gleangp.models.parameters import Parameters
from gleangp.models.priors import LogNormal
from gleangp.models.units import TargetUnits, natural_units, own_units, standard_units, total_units
from gleangp.noise import Gaussian, noise_from_name
from gleangp.progress import Progress, silent
from gleangp.selection.selectors import ResidualSelector

# Rows from which the spread of the features is computed: more make no difference to where a search starts.
_MOST_SAMPLED = 50_000


# What model files contain
register(Choice, Decision, Parameters)
register(priors.Exponential, priors.Gamma, priors.HalfCauchy, priors.HalfNormal)
register(priors.LogNormal, priors.Normal, priors.Tied)
# posterior="local" and "active"
register(Draw, GroupKnowledge, InputMap, LocalModel, LocalPosterior, RowSites, Term, BasisKnowledge=Knowledge)
register(SparseModel, Sites, TaskPosterior)
# Coupled models of version 0.1
register(upgrade.CoupledModel, upgrade.CoupledParameters, upgrade.CoupledPosterior)
register(upgrade.Knowledge, upgrade.OwnRows, upgrade.Pareto)


@dataclass(frozen=True, eq=False)
class Problem:
    """What one model is fitted from; several classes have a problem each."""

    data: Data  # the rows to learn from; targets in the coding of the noise
    numbers: IntArray  # (n,) of these rows among the rows of `fit`
    rng: np.random.Generator


@dataclass(frozen=True, eq=False)
class ActiveProblem(Problem):
    """Of a model of active points."""

    parameters: Parameters
    n_rows: int  # of `fit`


@dataclass(frozen=True, eq=False)
class LocalProblem(Problem):
    """Of a model of blocks and a basis."""

    likelihood: Likelihood
    kernel: Kernel | None = None  # None: the default model
    widths: PriorWidths = PRIORS


def rows_to_learn(X: FloatArray, y: np.ndarray, codes: IntArray, keep: Any = slice(None)) -> IntArray:
    """Numbers of the rows to keep, sorted by task and content: results do not depend on their order."""
    kept = np.arange(len(X))[keep]
    return kept[canonical_order(X[kept], y[kept], codes[kept])]


def some_inputs(data: Data) -> FloatArray:
    """Inputs of at most 50 000 rows, evenly spaced."""
    return data.X[:: max(1, -(-len(data) // _MOST_SAMPLED))]


def active_regression(
    estimator: Any, rows: Data, at: IntArray, fields: dict[str, FloatArray]
) -> tuple[ActiveProblem, TargetUnits]:
    """What active points of a regressor are learnt from: the rows `at` in standard units, and these units."""
    asked = [f"{name}=" for name in fields] + [f"noise={estimator.noise!r}"] * (estimator.noise != "gaussian")
    if asked:
        raise ValueError(
            f"{asked[0]} needs posterior='local' without invariances; this fit has "
            f"posterior={estimator.posterior!r}."
        )
    n_tasks, data = rows.n_tasks, rows.at(at)
    units = standard_units(_parts(data)) if estimator.normalize_y else natural_units(n_tasks)
    several = n_tasks > 1
    kernel = estimator._given_kernel() or default_kernel(
        some_inputs(data), offset=several, linear=several, n_rows=len(data)
    )
    priors = estimator.priors
    if priors is None:
        own = task_priors(kernel, data.X.shape[1]) if several else default_priors(kernel)
        priors = {**noise_prior(), **(own if estimator.kernel is None else {})}
    variance = estimator._known_variance(len(rows))
    if estimator.noise_variance is not None:
        start = float(estimator.noise_variance) if variance is None else variance
    else:
        start = START_KERNEL.no_noise if has_white(kernel) else UNITS.noise
    learn = ("variance",) if estimator.noise_variance is None and not has_white(kernel) else ()
    noise = Gaussian(start)
    parameters = estimator._check_priors(Parameters(kernel, noise, learn, priors))
    data = replace(data, y=units.to_standard(data.y, data.codes), noise=noise.at(at))
    return ActiveProblem(data, at, generator_from(estimator.random_state), parameters, len(rows)), units


def local_regression(
    estimator: Any, rows: Data, at: IntArray, fields: dict[str, FloatArray]
) -> tuple[LocalProblem, TargetUnits]:
    """The same of blocks and a basis."""
    data, model, noise = rows.at(at), _noise_model(estimator, fields), rows.noise
    real = model is None or model.support == "real"
    likelihood: Any
    if model is None:
        variance, known = estimator._known_variance(len(rows)), None
        if estimator.noise_variance is not None:
            known = 1.0 if variance is not None else float(estimator.noise_variance)
        elif estimator.kernel is not None and has_white(estimator.kernel):
            known = START_KERNEL.no_noise
        noise = (np.ones(len(rows)) if variance is None else variance) / fields.get("sample_weight", 1.0)
        learn, start = (("variance",), 1.0) if known is None else ((), known)
        noise, likelihood = noise[at], Likelihood(Gaussian(start), learn, sizes=data.sizes)
    else:
        check_rows(model, rows.y, at)
        noise = model.at(at)
        noise = replace(noise, bias=noise.typical_bias(data.y))
        learn = tuple(name for name in noise.transforms if name != "bias")
        of_noise = {name: LogNormal(*noise.priors[name]) for name in learn if name in noise.priors}
        # What belongs to the training rows is not kept.
        shared = replace(noise, **dict.fromkeys(fields, 1.0))
        likelihood = Likelihood(shared, learn, of_noise, data.sizes)
    if not (estimator.normalize_y and real):
        units = natural_units(rows.n_tasks)
    else:  # outputs are in units of their own
        units = own_units(_parts(data)) if estimator._n_outputs else total_units(_parts(data))
    data = replace(data, y=units.to_standard(data.y, data.codes), noise=noise)
    rng, widths = generator_from(estimator.random_state), PRIORS if real else LINKED_PRIORS
    return LocalProblem(data, at, rng, likelihood, estimator._given_kernel(), widths), units


def _noise_model(estimator: Any, fields: dict[str, FloatArray]) -> Any:
    """The noise model of all rows; None for Gaussian noise, which has a closed form."""
    if isinstance(estimator.noise, Gaussian):
        raise ValueError("noise is a Gaussian object. Use noise='gaussian' and noise_variance=.")
    if estimator.noise == "gaussian":
        check_fields(Gaussian(), **{**fields, "sample_weight": None})
        return None
    model: Any = noise_from_name(estimator.noise) if isinstance(estimator.noise, str) else estimator.noise
    if getattr(model, "support", "label") == "label":
        raise ValueError(
            f"noise is a {type(model).__name__} object, which is not for numbers. For labels use "
            "SparseGPClassifier or SparseGPOrdinal; your own model inherits from gleangp.noise.Noise."
        )
    if estimator.noise_variance is not None:
        raise ValueError(f"noise_variance= is given with noise={estimator.noise!r}. It is for 'gaussian'.")
    check_fields(model, **fields)
    return replace(model, **fields)


def _parts(data: Data) -> list[FloatArray]:
    """Targets of every task, sorted."""
    return [np.sort(data.y[rows]) for rows in blocks_of_rows(data.codes, data.n_tasks)]


def fit_active_rows(settings: Settings, problem: ActiveProblem, progress: Progress = silent) -> SparseModel:
    """Fit the model of active points to the rows of a problem."""
    settings, data = replace(settings, progress=progress), problem.data
    parts = blocks_of_rows(data.codes, data.n_tasks)
    blocks = [Block(data.X[r], data.y[r], data.noise_at(r)) for r in parts]
    tasks = TaskBlocks(blocks, [problem.numbers[r] for r in parts])
    return fit_sparse_model(problem.parameters, tasks, problem.n_rows, settings, problem.rng)


def fit_local_rows(
    estimator: Any, n_basis: int | None, problem: LocalProblem, progress: Progress = silent
) -> LocalModel:
    """Fit the model of blocks and a basis to the rows of a problem."""
    data, priors = problem.data, estimator.priors or {}
    selector = estimator._chosen_selector()
    if hasattr(selector, "check_tasks"):
        selector.check_tasks(int(np.sum(data.sizes > 0)))
    of_noise = {n.removeprefix("noise__"): p for n, p in priors.items() if n.startswith("noise__")}
    likelihood = replace(problem.likelihood, priors={**problem.likelihood.priors, **of_noise})
    candidates = plan_couplings(
        data,
        likelihood,
        estimator.coupling,
        outputs=bool(getattr(estimator, "_n_outputs", 0)),
        kernel=problem.kernel,
        priors=estimator.priors,
        optimize=estimator.optimizer is not None,
        n_restarts=estimator.n_restarts,
        progress=progress,
        widths=problem.widths,
        groups=feature_groups(getattr(estimator, "columns_", None)),
    )
    names = [*candidates[0].search.names, *(f"noise__{name}" for name in likelihood.names)]
    estimator._check_prior_names(names)
    model = fit_local(candidates, data, problem.rng, n_basis=n_basis, choose_basis=choose_basis_of(selector))
    at = problem.numbers
    return replace(model, row_numbers=at, active=at[model.active])


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
