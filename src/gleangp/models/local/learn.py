"""Learning the parameters: what is learnt (`plan_couplings`), and how (`race`, then `learn`).

Parameters are learnt on all rows as one block, or on neighbourhoods from all over the data.
With few rows, the best start of every form of the model (its smoothness, and whether inputs are warped) is
learnt to the end, and predictions average over the forms. With many rows, the evidence of whole
neighbourhoods under a small basis is a sample of that of all rows. Few of them choose the start and the
smoothness; the winner goes on with more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process.kernels import Kernel

from gleangp._typing import FloatArray, IntArray
from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.inference.block import lay_out
from gleangp.kernels.evaluate import length_scales
from gleangp.models import defaults
from gleangp.models.decisions import Decision
from gleangp.models.defaults import MIXTURES, PRIORS, Conditioning, Learning, PriorWidths, Start
from gleangp.models.local.data import Data, blocks_of_tasks, own_bases, pivots_of, with_points
from gleangp.models.objective import Likelihood, LogPosterior, Rows
from gleangp.models.terms import (
    CoregionCoupling,
    FunctionCoupling,
    TermSpec,
    coupled_terms,
    hierarchical_terms,
    prefixes,
    with_priors,
)
from gleangp.models.units import InputMap, identity_map, map_inputs
from gleangp.numerics.optimize import Optimum, minimize
from gleangp.progress import Progress, Stage, report_to, silent

_REASONS = {
    "auto": "one model of all tasks: a common function, and offset, slopes and own function of each",
    "function": "as asked: a common function and own ones",
    "kernel": "as asked: tasks share the parameters of the kernel",
    "coregion": "as asked: tasks are mixtures of shared functions",
}


@dataclass(frozen=True)
class Form:
    """What is decided besides numbers: the smoothness of the kernel, and whether inputs are warped."""

    smoothness: float
    warped: bool = True

    @property
    def kernel(self) -> str:
        """The name of the kernel."""
        return "RBF" if np.isinf(self.smoothness) else f"Matern {self.smoothness:g}"

    @property
    def inputs(self) -> str:
        """How the kernel sees its inputs."""
        return "warped" if self.warped else "as they are"


@dataclass(frozen=True, eq=False)
class Search:
    """What to learn, and how."""

    n_tasks: int
    likelihood: Likelihood
    inputs: InputMap
    forms: Sequence[Form]
    starts: Sequence[Start]
    learning: Learning
    conditioning: Conditioning
    kernel: Kernel | None  # the user's, on inputs as they are; None: the default model, on warped inputs
    coupling: Any  # "auto", "function", "kernel", "coregion", or an object with `terms`
    priors: Mapping[str, Any] = field(default_factory=dict)  # in place of the default ones, as in `names`
    widths: PriorWidths = PRIORS
    groups: IntArray | None = None  # (p,) features of one number share a length scale in the default model
    # (kernel, W, pool, count, rng) -> rows of `pool`, of which W are the inputs as the kernel sees them
    choose_basis: Any = pivots_of
    optimize: bool = True
    n_restarts: int = 0
    progress: Progress = silent
    name: str = ""  # of the coupling, which competes by the evidence of all rows, less a penalty in nats
    reason: str = ""  # why it is taken, where it is the only one
    penalty: float = 0.0

    def terms(self, start: Start, form: Form) -> list[TermSpec]:
        """The terms, where a search starts."""
        if self.kernel is None:
            several = self.n_tasks if self.coupling in ("auto", "function") else 1
            n_features = len(self.inputs.center)
            terms = hierarchical_terms(n_features, several, start, form.smoothness, self.widths)
            if several < self.n_tasks:
                terms = coupled_terms(self.coupling, terms[0].kernel, terms[0].priors, self.n_tasks)
            terms = [replace(term, groups=self.groups) for term in terms]
        else:
            terms = coupled_terms(self.coupling, clone(self.kernel), {}, self.n_tasks)
        return with_priors(terms, self.priors)

    @property
    def names(self) -> list[str]:
        """Of the hyperparameters of the kernels, in the sum of all terms."""
        terms = self.terms(self.starts[0], self.forms[0])
        pairs = zip(terms, prefixes(len(terms)), strict=True)
        return [prefix + h.name for term, prefix in pairs for h in term.kernel.hyperparameters]

    def draws(self, n_rows: int) -> bool:
        """Whether predictions average over draws of the hyperparameters.

        Most of all with Gaussian noise, where the posterior at a draw has a closed form.
        """
        averages = self.likelihood.of_labels or self.likelihood.model.support == "real"
        most = self.learning.draws_rows_propagated if averages else 0
        return self.optimize and n_rows <= (self.learning.draws_rows if self.likelihood.gaussian else most)

    def objective(self, start: Start, form: Form) -> LogPosterior:
        """The log posterior of terms of that start and form."""
        terms = self.terms(start, form)
        return LogPosterior(terms, self.likelihood, self.inputs, start, self.widths, form)


def plan_couplings(
    data: Data, likelihood: Likelihood, coupling: Any = "auto", *, outputs: bool = False, **how: Any
) -> list[Search]:
    """The coupling that was asked for; if it is open, mixtures of functions compete with the hierarchy.

    `outputs`: whether tasks are outputs of the same rows, of which two may also be mirror images of each
    other. The rest is for `plan_search`.
    """
    if data.n_tasks == 1:
        alone = plan_search(data.X, 1, likelihood, **how)
        return [replace(alone, name="kernel", reason="with one task there is nothing to couple")]
    name = getattr(coupling, "name", coupling)
    first = plan_search(data.X, data.n_tasks, likelihood, coupling=coupling, **how)
    reason = _REASONS.get(name, "as asked")
    first = replace(first, name="function" if name == "auto" else name, reason=reason)
    sizes = data.sizes[data.sizes > 0]
    few = len(sizes) < (2 if outputs else 3) or sizes.mean() < MIXTURES.rows_per_task
    compete = coupling == "auto" and first.optimize and likelihood.gaussian
    if not compete or few or len(sizes) > MIXTURES.most_tasks:
        return [first]
    rank = MIXTURES.rank if len(sizes) >= MIXTURES.rank_two_tasks else 1
    second = plan_search(data.X, data.n_tasks, likelihood, coupling=CoregionCoupling(rank), **how)
    penalty = 0.5 * (rank + 1) * np.log1p(sizes).sum()  # Schwarz's, of the weights of every task
    return [first, replace(second, name="coregion", penalty=penalty)]


def plan_search(
    X: FloatArray,
    n_tasks: int,
    likelihood: Likelihood,
    *,
    kernel: Kernel | None = None,
    coupling: Any = "auto",
    n_basis: int | None = None,
    **asked: Any,
) -> Search:
    """What to learn, for inputs X (n, p) of all rows.

    `n_basis` are basis points that were asked for; None: the default. All else is as in `Search`.
    """
    if kernel is None and isinstance(coupling, FunctionCoupling) and coupling.own_kernel is None:
        coupling = "function"
    inputs = map_inputs(X) if kernel is None and X.shape[1] else identity_map(X.shape[1])
    # Labels and categories carry less information than counts and numbers.
    learning, conditioning = defaults.LEARNING, defaults.CONDITIONING
    if likelihood.of_labels:
        learning, conditioning = defaults.LABELS_LEARNING, defaults.LABELS_CONDITIONING
    conditioning = with_points(conditioning, n_basis, len(X))
    if n_basis is not None and n_basis < len(X):  # as many rows as they are worth; of two stages at least
        most = max(learning.stages[1].n_rows, learning.rows_per_point * n_basis)
        learning = replace(learning, most_rows=most)
    forms, starts = [Form(np.nan)], learning.starts[:1]
    if kernel is None:
        kinds = (True, False) if inputs.n_parameters else (True,)
        smoothness = learning.smoothness if n_tasks == 1 else learning.task_smoothness
        forms, starts = [Form(nu, warped) for warped in kinds for nu in smoothness], learning.starts

    return Search(
        n_tasks, likelihood, inputs, forms, starts, learning, conditioning, kernel, coupling, **asked
    )


@dataclass(frozen=True, eq=False)
class Learnt:
    """What was learnt."""

    objective: LogPosterior
    optimum: Optimum  # of minus the log posterior
    n_rows: int  # learnt on

    @property
    def evidence_per_row(self) -> float:
        """Without the log prior density of the parameters."""
        return -(self.optimum.value + self.objective.slots.log_prior(self.optimum.theta)[0]) / self.n_rows


_VALUE = attrgetter("optimum.value")


def race(search: Search, data: Data, seed: int, ahead: Learnt | None = None) -> Learnt:
    """The best of a few steps from every start on a few rows, of the first form.

    With many rows, a later start goes on for as long as it is ahead of the best one so far after as many
    steps; so does any start, if there is another model `ahead` on the same rows.
    """
    learning, form, n = search.learning, search.forms[0], len(data)
    if not search.optimize:
        objective = search.objective(search.starts[0], form)
        return Learnt(objective, Optimum(objective.slots.start, np.nan, True), 0)
    first, rng = _stages(learning, n)[0], np.random.default_rng(seed)
    found: list[Learnt] = []
    for k, start in enumerate(search.starts):
        draw = np.random.default_rng(seed)  # the same rows for all
        objective = search.objective(start, form)
        objective = objective.on(some_rows(objective, objective.slots.start, data, first, learning, draw))
        found += _climb(search, objective, None, first.max_iter, rng, ahead, number=k + 1, needed=not found)
        ahead = min(found, key=_VALUE) if n > learning.n_together else ahead
    return min(found, key=_VALUE)


def _from_there(search: Search, found: Learnt, form: Form, max_iter: int, rng) -> list[Learnt]:
    """Another form on the same rows, from where the first has ended: most parameters stay about there."""
    objective = search.objective(found.objective.start, form).on(found.objective.rows)
    z = objective.slots.start.copy()
    for name, part in objective.slots.where.items():
        if name in found.objective.slots.where:
            z[part] = found.objective.slots.get(found.optimum.theta, name)
    return _climb(search, objective, z, max_iter, rng)


def learn(search: Search, data: Data, best: Learnt, seed: int) -> tuple[list[Learnt], list[Decision]]:
    """Go on from the winner of the race: all forms if predictions average, else the best, and why."""
    if not search.optimize:
        return [best], []
    (first, *later), rng = _stages(search.learning, len(data)), np.random.default_rng(seed + 1)
    others = search.forms[1:]
    if search.draws(len(data)) and len(data) <= search.learning.n_together:
        # Predictions average over forms too: few rows do not determine the form.
        if not best.optimum.converged:
            best = _go_on(search, best, best.objective.rows, later[0].max_iter, rng)
        found = [best]
        for form in others:
            found += _from_there(search, best, form, later[0].max_iter, rng)
        return found, []
    found = [best]
    for form in (form for form in others if form.warped):
        alone = replace(search, forms=[form])  # from the starts again, if it has no value there
        found += _from_there(search, best, form, first.max_iter, rng) or [race(alone, data, seed)]
    # Twice as far behind as on all rows: of 79 choices (simulated, and seven joints of a robot) five turned
    # round later from 15 nats on 500 rows, and one from 30, by 5 nats in 1000 rows.
    least = min(f.optimum.value for f in found) + 2.0 * search.learning.hopeless
    values = {f.objective.form.kernel: f.optimum.value / f.n_rows for f in found}
    rivals = sorted((f for f in found if f.optimum.value <= least), key=_VALUE)
    for stage in (stage for stage in later if stage.n_rows <= search.learning.most_rows):
        rows = some_rows(rivals[0].objective, rivals[0].optimum.theta, data, stage, search.learning, rng)
        found = []
        for learnt in rivals:
            ahead = min(found, key=_VALUE, default=None)
            found.append(_go_on(search, learnt, rows, stage.max_iter, rng, ahead))
        found = [f for f in found if f.n_rows == len(rows.y)] or rivals[:1]  # without those that stayed
        if len(found) > 1:
            values = {f.objective.form.kernel: f.optimum.value / f.n_rows for f in found}
        best = min(found, key=_VALUE)
        if best.n_rows == len(data):
            break
        rivals = [best]
    kernel = best.objective.form.kernel
    if len(values) == 1:
        return [best], []
    numbers = {name: -float(value) for name, value in values.items()}
    reason = f"The kernel is {kernel}: its log evidence per row is the highest ({numbers[kernel]:.3f})."
    return [best], [Decision("smoothness", kernel, numbers, reason)]


def learn_on_all(search: Search, learnt: Learnt, data: Data, rng: np.random.Generator) -> Learnt:
    """Go on under the prior with which predictions are made, on all rows."""
    n, learning, how = len(data), search.learning, search.conditioning
    block, n_basis = (n, 0) if n <= how.n_together else (how.block, how.n_basis)
    stage = defaults.Stage(n, block, n_basis, learning.stages[-1].max_iter)
    rows = some_rows(learnt.objective, learnt.optimum.theta, data, stage, learning, rng)
    return _go_on(search, learnt, rows, stage.max_iter, rng)


def _stages(learning: Learning, n_rows: int) -> Sequence[defaults.Stage]:
    """Of a fit of so many rows."""
    together = [defaults.Stage(n_rows, n_rows, 0, max_iter) for max_iter in learning.together]
    return learning.stages if n_rows > learning.n_together else together


def some_rows(objective, z, data, stage, learning, rng) -> Rows:
    """Neighbourhoods in the units of the length scales at z, with a basis chosen under the kernels there."""
    if len(data) <= stage.block:
        every = np.arange(len(data))
        return Rows(data.X, data.y, data.noise, lay_out(data.codes, [every]), data.X[:0], every)
    terms = objective.terms(z)
    W = objective.inputs(data.X, objective.warp(z))
    blocks = blocks_of_tasks(data.codes, W / length_scales(terms[0].kernel, W.shape[1]), stage.block)
    if len(data) > 1.5 * stage.n_rows:  # some of them, evenly spread over the list
        count = max(1, round(len(blocks) * stage.n_rows / len(data)))
        spread = (np.arange(count) + rng.random()) * (len(blocks) / count)
        blocks = [blocks[int(k)] for k in spread]
    rows = np.concatenate(blocks)
    part, places = data.at(rows), np.split(np.arange(len(rows)), np.cumsum([len(b) for b in blocks])[:-1])
    own = own_bases(terms, part, part.X, places, learning.n_own_basis, rng)
    Z = data.X[:0]
    shared = [t for t in terms if t.loadings.shape[1]]
    if shared and len(blocks) > 1:
        pool = rng.choice(len(data), min(len(data), 20 * stage.n_basis), replace=False)
        Z = data.X[pool[pivots_of(shared[0].kernel, W[pool], None, stage.n_basis, rng)]]
    return Rows(part.X, part.y, part.noise, lay_out(part.codes, places, own), Z, rows)


def _climb(
    search, objective, z, max_iter, rng, ahead: Learnt | None = None, *, number: int = 0, needed: bool = False
) -> list[Learnt]:
    """What the search finds from z, or from the start itself, the number of which is given.

    Nothing, if it is not needed, where the progress function leaves it out or where there is no value at z:
    propagation need not settle on other rows or under another kernel, as with very many outliers. A search
    that has a rival `ahead` ends where it falls behind it, after the steps that all searches have.
    """
    n_rows = len(objective.rows.y)
    name = f"{n_rows} rows" if z is not None else f"start {number}"
    n_tasks, n_restarts = len(np.unique(objective.rows.layout.codes)), search.n_restarts if number == 1 else 0
    stage = Stage(name, max_iter * (1 + n_restarts), n_tasks, len(objective.rows.Z) or n_rows)
    if search.progress(stage, 0, None) and not needed:
        return []
    asked, pace = report_to(search.progress, stage), ahead.optimum.values if ahead else ()

    def report(step: int, value: float) -> bool:
        behind = pace and step >= search.learning.least_steps and value >= pace[min(step, len(pace)) - 1]
        return asked(step, value) or bool(behind)

    try:
        found = minimize(
            objective,
            objective.slots.start if z is None else z,
            objective.slots.bounds,
            max_iter=max_iter,
            tol=search.learning.tol,
            n_restarts=n_restarts,
            rng=rng,
            report=report,
            scale=float(n_rows),
            settled=search.learning.settled,
        )
    except NotPositiveDefiniteError:
        if needed:
            raise
        return []
    return [Learnt(objective, found, n_rows)]


def _go_on(search, learnt, rows: Rows, max_iter: int, rng, ahead=None) -> Learnt:
    """The same search on other rows, for as long as it is not behind the one `ahead`.

    It stays at what was learnt if there is no value.
    """
    objective = learnt.objective.on(rows)
    z = _with_enough_noise(objective, learnt.optimum.theta, search.learning)
    return min(_climb(search, objective, z, max_iter, rng, ahead) or [learnt], key=_VALUE)


def _with_enough_noise(objective: LogPosterior, z: FloatArray, learning: Learning) -> FloatArray:
    """The same parameters, with more Gaussian noise if that is more probable.

    Some rows can be free of noise although others are not. At the noise of the first, the others have such
    gradients that a short search ends far from any optimum.
    """
    noise = objective.slots.where.get("noise__variance") if objective.likelihood.gaussian else None
    if noise is None:
        return z
    at_noise = np.arange(len(z)) == noise.start  # the logarithm of the variance
    several = [z + np.log(factor) * at_noise for factor in learning.noise_factors]
    return min(several, key=objective.value)
