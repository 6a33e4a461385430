"""The log posterior of everything that is learnt, and its gradient, on given rows in blocks with a basis.

`Likelihood` is how targets enter: Gaussian noise in closed form, any other noise by propagation. Slots of the
vector, in order: the kernels of the terms with the weights of tasks that are learnt ("term0__..."), those of
the likelihood, and the warping of the inputs ("warp").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import softmax

from gleangp._typing import FloatArray, IntArray
from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.inference.block import Block, Layout
from gleangp.inference.evidence import RowSites, condition, evidence_gradient, gaussian_evidence, row_inverse
from gleangp.inference.prior import BlockPrior, Term
from gleangp.inference.propagate import marginals_of, sweep_rows
from gleangp.models.defaults import PriorWidths, Start
from gleangp.models.parameters import Slot, Slots, noise_values, unconstrain
from gleangp.models.priors import Exponential, LogNormal, Normal
from gleangp.models.terms import MovingTerm
from gleangp.models.units import InputMap
from gleangp.noise import Gaussian

_NOISE_BOUNDS = np.array([-20.0, 4.0])  # of the log variance of Gaussian noise in standard units
_LEAST = float(np.exp(_NOISE_BOUNDS[0]))  # variance of a task: with less, covariances have no digits left
_LEVELS = np.linspace(-6.0, 6.0, 121)  # of z_t, standard normal a priori, for sums in place of integrals
_FINE_TOLERANCE = 1e-9  # nats per row, of propagation where gradients must be exact
_BOUNDS = {"identity": (-10.0, 10.0), "log": (-9.0, 7.0), "logit": (-9.0, 9.0)}


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows to learn from, in blocks, with a basis; inputs in their own units, targets standardised."""

    X: FloatArray  # (n, p)
    y: FloatArray  # (n,)
    noise: Any  # the noise model of these rows, as in `Data`
    layout: Layout  # groups with a basis of their own have it in `Z`, in the units of X
    Z: FloatArray  # (d, p) common basis
    numbers: IntArray  # (n,) of these rows in the data


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """Sites at their fixed point, and what follows from them."""

    q: Any  # `Conditioned`
    evidence: float
    sites: RowSites
    slot_gradients: Callable[[Any], dict[str, FloatArray]]  # from an `EvidenceGradient`


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The noise of all tasks: of variance v exp(tau z_t), z_t ~ N(0, 1), under a learnt tau.

    `model` has the values to start from, `learn` names the parameters that are learnt, and `priors` replace
    those that the model has for them. Tasks share them but for the one that the model names in `of_tasks`, if
    it is learnt and `sizes` are given. Gaussian noise of a row may have a known factor, the variance in
    `rows.noise` (1 / weight). Where it is learnt, `model` has the usual weight as its variance: start, prior
    and limits are those of the noise of a row of that weight.

    v is the variance, or what stands for it in the noise model (`NoiseModel.of_tasks`), such as the squared
    coefficient of variation. Tasks with more noise can also differ more from the others: large shops sell and
    vary more. The variance of what is a task's own (offset, slopes, function) has the factor
    exp(rho tau z_t), rho in [0, 1] learnt.

    z_t is maximised with a Laplace correction: with I_t, the information that the n_t rows of a task carry
    about its log variance, the objective has -1/2 log(1 + tau^2 I_t). Differences between rows carry
    (n_t - 1) / 2. Their mean carries rho^2 / 2: its variance is that of the offset, which has that factor.
    Counts carry less: then tau is learnt smaller, and tasks are more alike.

    Of `copies`, rows that repeat another one with Gaussian noise (`exact_copies`), the evidence has no part:
    the difference of each from its first has mean zero and the variance of the noise, whatever the function.
    """

    model: Any
    learn: tuple[str, ...] = ()
    priors: Mapping[str, Any] = field(default_factory=dict)
    sizes: IntArray = ()  # type: ignore[assignment]  # (M,) rows of the tasks, without copies
    tol: float = 1e-6  # nats per row, of propagation: a tenth of that at which the search stops
    copies: np.ndarray = ()  # type: ignore[assignment]  # (n,) of all rows of the data; empty: none
    rounding: Any = 0.0  # (M,) variance of errors of rounding: the least noise of predictions for a task

    @property
    def gaussian(self) -> bool:
        """Whether sites are the targets with their noise, in closed form."""
        return isinstance(self.model, Gaussian)

    @property
    def of_labels(self) -> bool:
        """Whether targets are classes or ordered categories."""
        return self.model.support == "label"

    @property
    def varies(self) -> bool:
        """Whether tasks have their own noise."""
        return self._may_vary and not self.model.tasks_alike

    @property
    def _may_vary(self) -> bool:
        """Whether a task may have its own noise, be it one that is added."""
        own = self.model.of_tasks
        return len(self.sizes) > 1 and own is not None and own[0] in self.learn

    @property
    def _least(self) -> float:
        """Variance that the noise of a task has at least."""
        return _LEAST * float(self.model.variance) if self.gaussian else _LEAST

    @property
    def names(self) -> tuple[str, ...]:
        """Of the parameters that can have a prior."""
        return ("variance",) if self.gaussian else tuple(self.model.parameters)

    def slots(self, start: Start, widths: PriorWidths) -> list[Slot]:
        """One for each parameter that is learnt; of tau, z and rho, where tasks have their own noise."""
        slots = []
        for name in self.learn:
            transform, prior = self.model.transforms[name], self.priors.get(name)
            value = np.atleast_1d(np.asarray(self.model.parameters[name], dtype=np.float64))
            bounds = _BOUNDS[transform]
            if self.gaussian:
                # The prior is on the deviation: the log of the variance has twice the spread.
                usual = float(self.model.variance)
                value, bounds = np.array([usual * start.noise**2]), _NOISE_BOUNDS + np.log(usual)
                prior = prior or LogNormal(usual * widths.noise**2, 2.0 * widths.noise_spread)
            elif prior is None and name in self.model.priors:
                prior = LogNormal(*self.model.priors[name])
            if transform == "logit":
                value = start.wrong * value
            slots.append(Slot(f"noise__{name}", unconstrain(transform, value), *bounds, prior, transform))
        if self.varies:
            of_rho = Normal(0.0, widths.scale_with_noise)
            slots += [
                Slot("tau", np.log([start.noise_ratio]), -5.0, 1.5, Exponential(widths.noise_ratio)),
                Slot("z", np.zeros(len(self.sizes)), -6.0, 6.0, Normal(0.0, 1.0), "identity"),
                Slot("rho", np.array([start.scale_with_noise]), 0.0, 1.0, of_rho, "identity"),
            ]
        return slots

    def noise_model(self, slots: Slots, z: FloatArray) -> Any:
        """The noise model at z, with the values that all tasks share."""
        return replace(self.model, **noise_values(self.model, self.learn, slots, z))

    def variance(self, slots: Slots, z: FloatArray) -> FloatArray:
        """(M,) of the noise of each task."""
        shared = np.full(len(self.sizes), self.noise_model(slots, z).variance_of_task)
        if not self.varies:
            return shared
        tau, _, levels = _of_tasks(slots, z)
        return np.maximum(shared * np.exp(tau * levels), self._least)

    def _gaussian_sites(self, rows: Rows, slots: Slots, z: FloatArray) -> tuple[FloatArray, RowSites]:
        """The variance (M,), and the targets with their noise, of known factors of it."""
        variance = self.variance(slots, z)
        precision = 1.0 / (variance[rows.layout.codes] * rows.noise.variance)
        return variance, RowSites(precision, precision * rows.y)

    def settle(self, prior, rows: Rows, slots: Slots, z: FloatArray, sites, *, gradient=True) -> Settled:
        """Sites of all rows at the parameters z; `sites` are those to start from.

        Without a gradient the result need not have the quantities of every row.
        """
        if not self.gaussian:
            return self._propagated(prior, rows, slots, z, sites)
        variance, found = self._gaussian_sites(rows, slots, z)
        q = condition(prior, found.precision, found.shift, rows=gradient)

        def slot_gradients(of_evidence: Any) -> dict[str, FloatArray]:
            if not self.learn:
                return {}
            by_log = self._by_log(rows, variance, of_evidence.noise_variance)
            return {"noise__variance": np.array([by_log.sum()]), **self._gradients_of_tasks(slots, z, by_log)}

        of_copies = -0.5 * float(self._copies(rows) @ np.log(2.0 * np.pi * variance))
        evidence = gaussian_evidence(q, found.precision) - of_copies + self._correction(slots, z)
        return Settled(q, evidence, found, slot_gradients)

    def _propagated(self, prior, rows: Rows, slots: Slots, z: FloatArray, sites) -> Settled:
        """By expectation propagation over all rows."""
        shared, codes = self.noise_model(slots, z), rows.layout.codes
        noise = replace(rows.noise, **{name: getattr(shared, name) for name in self.learn})
        if self.varies:
            noise = noise.with_variance(self.variance(slots, z)[codes])
        # Draws of the parameters, which real numbers have, need the gradient of the gradient. Where noise is
        # not log-concave, searches stopped up to eight nats early by gradients of sites that had not settled.
        fine = self.model.support == "real" or not noise.log_concave
        tol = min(self.tol, _FINE_TOLERANCE) if fine else self.tol
        swept = sweep_rows(Block(rows.X, rows.y, noise), marginals_of(prior), sites, tol=tol)
        by_name = noise.log_partition_grad(rows.y, swept.cavity_mean, swept.cavity_var) if self.learn else {}
        by_log: Any = 0.0
        if self.varies:
            by_name, by_row = noise.grad_of_shared(by_name, shared)
            moves = self.variance(slots, z) > self._least
            by_log = np.bincount(codes, by_row, len(self.sizes)) * moves

        def slot_gradients(of_evidence: Any) -> dict[str, FloatArray]:
            parts = self._gradients_of_tasks(slots, z, by_log)
            for name in self.learn:
                of_all = np.atleast_1d(np.sum(by_name[name], axis=0))
                parts[f"noise__{name}"] = of_all * slots.slope(z, f"noise__{name}")
            return parts

        evidence = swept.evidence + self._correction(slots, z)
        return Settled(swept.marginals.state, evidence, swept.sites, slot_gradients)

    def slope_of_tasks(self, prior, rows: Rows, slots: Slots, z: FloatArray, sites) -> tuple[FloatArray, Any]:
        """(M,) derivatives of the evidence in the log variances of the tasks, and the sites there."""
        if self.gaussian:  # from the residuals of all rows, without their covariances
            variance, found = self._gaussian_sites(rows, slots, z)
            q = condition(prior, found.precision, found.shift, also=row_inverse)
            return self._by_log(rows, variance, 0.5 * (q.alpha**2 - q.also)), None
        settled = self.settle(prior, rows, slots, z, sites)
        return settled.slot_gradients(None)["z"] / _of_tasks(slots, z)[0], settled.sites

    def _by_log(self, rows: Rows, variance: FloatArray, by_row: FloatArray) -> FloatArray:
        """(M,) derivatives in the log variances of tasks, from those in the variance of each row.

        They are zero where a task has the least variance: it does not depend on the parameters then.
        """
        of_task = np.bincount(rows.layout.codes, by_row * rows.noise.variance, len(self.sizes))
        by_log = variance * of_task + 0.5 * self._copies(rows)
        return by_log * (variance > self._least if self.varies else True)

    def _copies(self, rows: Rows) -> IntArray:
        """(M,) rows of each task that repeat another one."""
        copied = self.copies[rows.numbers] if len(self.copies) else np.zeros(len(rows.y), dtype=bool)
        return np.bincount(rows.layout.codes[copied], minlength=len(self.sizes))

    def own_scale(self, slots: Slots, z: FloatArray) -> FloatArray:
        """(M,) exp(rho tau z_t), the factor of the variance of what is a task's own."""
        tau, rho, levels = _of_tasks(slots, z)
        return np.exp(rho * (tau * levels))

    def information(self, rho: float) -> FloatArray:
        """(M,) I_t."""
        return np.where(self.sizes > 0, self.sizes - 1.0 + rho**2, 0.0) / 2.0

    def _correction(self, slots: Slots, z: FloatArray) -> float:
        """-1/2 sum log(1 + tau^2 I_t)."""
        if not self.varies:
            return 0.0
        tau_square, rho = np.exp(2.0 * slots.get(z, "tau")[0]), slots.get(z, "rho")[0]
        return -0.5 * float(np.log1p(tau_square * self.information(rho)).sum())

    def _gradients_of_tasks(self, slots: Slots, z: FloatArray, by_log: FloatArray) -> dict[str, FloatArray]:
        """Of tau, z and rho, the correction included, from that in the log variances (M,)."""
        if not self.varies:
            return {}
        tau, rho, levels = _of_tasks(slots, z)
        square = tau**2 * self.information(rho)
        of_rho = -0.5 * tau**2 * rho * np.sum((self.sizes > 0) / (1.0 + square))
        of_tau = tau * (by_log @ levels) - np.sum(square / (1.0 + square))
        return {"tau": np.array([of_tau]), "z": tau * by_log, "rho": np.array([of_rho])}

    def predictive_variance(self, slots: Slots, z: FloatArray) -> FloatArray:
        """(M + 1,) expected noise of each task, the uncertainty of z_t included; last, of a new task.

        Empty if it is not Gaussian and no task may have its own. With next to no noise in a task, as where
        all targets are zero, an error of `rounding` would be impossible.

        The residuals of a task have nu = 2 I_t degrees of freedom. With c their sum of squares in units of
        the noise at the mode of z_t, which is where -z - tau nu / 2 + tau c / 2 = 0, the posterior of z_t is

            p(u) ~ exp(-u^2 / 2 - tau nu u / 2 - c exp(-tau (u - z)) / 2).
        """
        if not (self._may_vary or self.gaussian):
            return np.zeros(0)
        shared = self.noise_model(slots, z).variance_of_task
        if not self.varies:
            return np.full(len(self.sizes) + 1, shared)
        tau, rho, mode = _of_tasks(slots, z)
        nu = 2.0 * self.information(rho)
        squares = np.maximum(nu + 2.0 * mode / tau, 0.0)[:, None]
        log_density = _LEVELS**2 + tau * np.outer(nu, _LEVELS)
        log_density = -0.5 * (log_density + squares * np.exp(-tau * (_LEVELS - mode[:, None])))
        mean = softmax(log_density, axis=1) @ np.exp(tau * _LEVELS)
        of_known = np.maximum(shared * mean, np.maximum(self.rounding, self._least))
        return np.append(of_known, shared * np.exp(0.5 * tau**2))


def _of_tasks(slots: Slots, z: FloatArray) -> tuple[float, float, FloatArray]:
    """tau, rho and z_t (M,)."""
    return np.exp(slots.get(z, "tau")[0]), slots.get(z, "rho")[0], slots.get(z, "z")


class LogPosterior:
    """Minus the log posterior of the parameters of terms (`TermSpec`), and its gradient.

    `form` says whether inputs are warped. Sites of noise that is not Gaussian start from those of the last
    call.
    """

    rows: Rows  # set by `on`, as all that depends on them
    _seen: Callable[[FloatArray], tuple[FloatArray, Any]]  # `InputMap.linearize` of the rows and all bases

    def __init__(self, specs, likelihood: Likelihood, inputs: InputMap, start: Start, widths, form):
        self.likelihood, self.inputs, self.start, self.form = likelihood, inputs, start, form
        slots = [slot for k, spec in enumerate(specs) for slot in spec.slots(f"term{k}__")]
        no_warp, of_warp = np.zeros(inputs.n_parameters), Normal(0.0, widths.warp_spread)
        warp = [Slot("warp", no_warp, -2.5, 2.5, of_warp, "identity")] if form.warped else []
        self.slots = Slots([*slots, *likelihood.slots(start, widths), *warp])
        self._moving = [MovingTerm(spec, f"term{k}__", self.slots.where) for k, spec in enumerate(specs)]
        # Terms that are a task's own are in the scale of the task.
        self._scaled = [likelihood.varies and not spec.loadings.shape[1] for spec in specs]
        self._of_weights = [spec.mixture or s for spec, s in zip(specs, self._scaled, strict=True)]
        self._sites: RowSites | None = None

    def sites(self, numbers: IntArray) -> RowSites | None:
        """Sites of rows of the data at the last call; zero for rows that were not used."""
        if self._sites is None:
            return None
        used = self.rows.numbers
        precision, shift = np.zeros((2, 1 + max(numbers.max(), used.max())))
        precision[used], shift[used] = self._sites.precision, self._sites.shift
        return RowSites(precision, shift).at(numbers)

    def on(self, rows: Rows) -> LogPosterior:
        """The same on other rows of the data, starting from the sites of rows that both have."""
        other, bases = copy(self), [g.Z for g in rows.layout.groups if g.Z is not None]
        other.rows, other._seen = rows, self.inputs.linearize(np.vstack([rows.X, rows.Z, *bases]))
        other._sites = self.sites(rows.numbers)
        return other

    def warp(self, z: FloatArray) -> FloatArray:
        """Parameters of the input map at z; zeros if inputs are not warped."""
        return self.slots.get(z, "warp") if "warp" in self.slots.where else np.zeros(self.inputs.n_parameters)

    def terms(self, z: FloatArray) -> list[Term]:
        """The terms at z; use them before they are moved again."""
        terms = [term.at(z) for term in self._moving]
        if not any(self._scaled):
            return terms
        scale = self.likelihood.own_scale(self.slots, z)
        pairs = zip(terms, self._scaled, strict=True)
        return [replace(term, own=term.own * scale) if scaled else term for term, scaled in pairs]

    def settle(self, z: FloatArray) -> tuple[BlockPrior, Settled, Any]:
        """The prior at z, the settled sites, and the gradient of the warping from that of all inputs.

        These are X, Z and the bases of the groups, one below the other.
        """
        rows = self.rows
        W, vjp = self._seen(self.warp(z))
        sizes = [len(g.Z) for g in rows.layout.groups if g.Z is not None]
        X, Z, *bases = np.split(W, np.cumsum([len(rows.X), len(rows.Z), *sizes[:-1]]))
        groups = [g if g.Z is None else replace(g, Z=bases.pop(0)) for g in rows.layout.groups]
        prior = BlockPrior(self.terms(z), X, replace(rows.layout, groups=groups), Z)
        settled = self.likelihood.settle(prior, rows, self.slots, z, self._sites)
        self._sites = settled.sites
        return prior, settled, vjp

    def __call__(self, z: FloatArray) -> tuple[float, FloatArray]:
        """Value and gradient."""
        slots = self.slots
        prior, settled, vjp = self.settle(z)
        found = evidence_gradient(prior, settled.q, self._of_weights)
        value, gradient = slots.log_prior(z)
        for k, term in enumerate(self._moving):
            term.add_gradient(gradient, found.theta[k], found.loadings[k], found.own[k], z)
        parts = [settled.slot_gradients(found)]
        if any(self._scaled):
            own = sum(d_own for d_own, scaled in zip(found.own, self._scaled, strict=True) if scaled)
            by_log, (tau, rho, levels) = self.likelihood.own_scale(slots, z) * own, _of_tasks(slots, z)
            along = tau * float(by_log @ levels)
            parts.append({"z": rho * tau * by_log, "tau": np.array([rho * along]), "rho": np.array([along])})
        if "warp" in slots.where:
            parts.append({"warp": vjp(np.vstack([found.X, found.Z, *found.own_Z.values()]))})
        for named in parts:
            for name, part in named.items():
                gradient[slots.where[name]] += part
        return -(value + settled.evidence), -gradient

    def value(self, z: FloatArray) -> float:
        """Without the gradient; infinite where a covariance has no factor."""
        try:
            return -(self.slots.log_prior(z)[0] + self.settle(z)[1].evidence)
        except NotPositiveDefiniteError:
            return np.inf
