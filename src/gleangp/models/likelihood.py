"""How targets enter the log posterior: Gaussian noise in closed form, any other noise by propagation.

A likelihood gives the slots of its parameters, and settles the sites of all rows of a `BlockPrior`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import softmax

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.inference.evidence import Conditioned, condition, gaussian_evidence, row_inverse
from gleangp.inference.prior import BlockPrior
from gleangp.inference.propagate import RowSites, labelled_first, marginals_of, sweep_rows
from gleangp.models.defaults import LABELS_LEARNING, LEARNING, Learning, PriorWidths, Start
from gleangp.models.parameters import Slot, Slots, unconstrain
from gleangp.models.priors import Exponential, LogNormal, Normal
from gleangp.noise import Gaussian

_NOISE_BOUNDS = (-20.0, 4.0)  # of the log variance of Gaussian noise in standard units
_LEAST = np.exp(_NOISE_BOUNDS[0])  # of the variance of a task: with less, covariances have no digits left
_LEVELS = np.linspace(-6.0, 6.0, 121)  # of z_t, standard normal a priori, for sums in place of integrals
_FINE_TOLERANCE = 1e-9  # nats per row, of propagation where gradients must be exact
_BOUNDS = {"identity": (-10.0, 10.0), "log": (-9.0, 7.0), "logit": (-9.0, 9.0)}


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """Sites at their fixed point, and what follows from them."""

    q: Conditioned
    evidence: float
    precision: FloatArray  # (n,)
    shift: FloatArray  # (n,)
    slot_gradients: Callable[[Any], dict[str, FloatArray]]  # from an `EvidenceGradient`
    n_silent: int = 0  # rows without information because their noise would widen the posterior


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The noise of all tasks: of variance v exp(tau z_t), z_t ~ N(0, 1), under a learnt tau.

    `model` has the values to start from, `learn` names the parameters that are learnt, and `priors` are
    theirs. Tasks share them but for the one that the model names in `of_tasks`, if it is learnt and `sizes`
    are given. Gaussian noise of a row may have a known factor (`rows.noise`, for example 1 / weight).

    v is the variance, or what stands for it in the noise model (`NoiseModel.of_tasks`), such as the squared
    coefficient of variation. Tasks with more noise can also differ more from the others: large shops sell and
    vary more. The variance of what is a task's own (offset, slopes, function) has the factor
    exp(rho tau z_t), rho in [0, 1] learnt.

    z_t is maximised with a Laplace correction: with I_t, the information that the n_t rows of a task carry
    about its log variance, the objective has -1/2 log(1 + tau^2 I_t). Differences between rows carry
    (n_t - 1) / 2. Their mean carries rho^2 / 2: its variance is that of the offset, which has that factor.
    Counts carry less: then tau is learnt smaller, and tasks are more alike.
    """

    model: Any
    learn: tuple[str, ...] = ()
    priors: Mapping[str, Any] = field(default_factory=dict)
    sizes: IntArray = ()  # type: ignore[assignment]  # (M,) rows of the tasks
    tol: float = 1e-6  # nats per row, of propagation: a tenth of that at which the search stops

    @property
    def gaussian(self) -> bool:
        """Whether sites are the targets with their noise, in closed form."""
        return isinstance(self.model, Gaussian)

    @property
    def varies(self) -> bool:
        """Whether tasks have their own noise."""
        own = self.model.of_tasks
        return len(self.sizes) > 1 and own is not None and own[0] in self.learn

    @property
    def learning(self) -> Learning:
        """Short for labels and categories: these carry less information than counts and numbers."""
        return LABELS_LEARNING if self.model.support == "label" else LEARNING

    @property
    def names(self) -> tuple[str, ...]:
        """Of the parameters that can have a prior."""
        return ("variance",) if self.gaussian else tuple(self.model.parameters)

    def draws_rows(self, learning: Learning) -> int:
        """Rows up to which predictions average over draws of the hyperparameters.

        Most of all with Gaussian noise, where the posterior at a draw has a closed form.
        """
        if self.gaussian:
            return learning.draws_rows
        return learning.draws_rows_propagated if self.model.support == "real" else 0

    def slots(self, start: Start, widths: PriorWidths) -> list[Slot]:
        """One for each parameter that is learnt; of tau, z and rho, where tasks have their own noise."""
        slots = []
        for name in self.learn:
            transform, prior = self.model.transforms[name], self.priors.get(name)
            value = np.atleast_1d(np.asarray(self.model.parameters[name], dtype=np.float64))
            bounds = _BOUNDS[transform]
            if self.gaussian:
                # The prior is on the deviation: the log of the variance has twice the spread.
                value, bounds = np.array([start.noise**2]), _NOISE_BOUNDS
                prior = prior or LogNormal(widths.noise**2, 2.0 * widths.noise_spread)
            elif transform == "logit":
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
        values = {}
        for name in self.learn:
            part = slots.natural(z, f"noise__{name}")
            values[name] = part if np.ndim(self.model.parameters[name]) else float(part[0])
        return replace(self.model, **values)

    def settle(
        self, prior: BlockPrior, rows: Any, slots: Slots, z: FloatArray, sites: Any, *, gradient: bool = True
    ) -> Settled:
        """Sites of all rows at the parameters z; `sites` are those to start from.

        Without a gradient the result need not have the quantities of every row.
        """
        if not self.gaussian:
            return self._propagated(prior, rows, slots, z, sites)
        precision: Any = self.precision(slots, z, rows.layout.codes, rows.noise)
        q = condition(prior, precision, precision * rows.y, rows=gradient)

        def slot_gradients(found: Any) -> dict[str, FloatArray]:
            if not self.learn:
                return {}
            by_log = self._by_log(rows, slots, z, found.noise_variance)
            return {"noise__variance": np.array([by_log.sum()]), **self._gradients_of_tasks(slots, z, by_log)}

        evidence = gaussian_evidence(q, precision) + self._correction(slots, z)
        return Settled(q, evidence, precision, precision * rows.y, slot_gradients)

    def _propagated(self, prior: BlockPrior, rows: Any, slots: Slots, z: FloatArray, sites: Any) -> Settled:
        """By expectation propagation over all rows."""
        shared, codes = self.noise_model(slots, z), rows.layout.codes
        noise = replace(rows.noise, **{name: getattr(shared, name) for name in self.learn})
        if self.varies:
            noise = noise.with_variance(self.variance(slots, z)[codes])
        problem = Block(rows.X, rows.y, noise)

        marginals = marginals_of(prior)
        if sites is None and not noise.log_concave:
            sites = labelled_first(problem, marginals)
        # Draws of the parameters, which real numbers have, need the gradient of the gradient. Where noise is
        # not log-concave, searches stopped up to eight nats early by gradients of sites that had not settled.
        fine = self.model.support == "real" or not noise.log_concave
        tol = min(self.tol, _FINE_TOLERANCE) if fine else self.tol
        swept = sweep_rows(problem, marginals, start=sites, tol=tol)
        by_name = noise.log_partition_grad(rows.y, swept.cavity_mean, swept.cavity_var) if self.learn else {}

        by_log: FloatArray = np.zeros(len(self.sizes))
        if self.varies:
            by_name, by_row = noise.grad_of_shared(by_name, shared)
            by_log = np.bincount(codes, by_row, len(self.sizes)) * self._moves(slots, z)

        def slot_gradients(found: Any) -> dict[str, FloatArray]:
            parts = self._gradients_of_tasks(slots, z, by_log)
            for name in self.learn:
                of_all = np.atleast_1d(np.sum(by_name[name], axis=0))
                parts[f"noise__{name}"] = of_all * slots.slope(z, f"noise__{name}")
            return parts

        sites = swept.sites
        return Settled(
            swept.marginals.state,
            swept.evidence + self._correction(slots, z),
            sites.precision,
            sites.shift,
            slot_gradients,
            sites.n_silent,
        )

    def slope_of_tasks(
        self, prior: BlockPrior, rows: Any, slots: Slots, z: FloatArray, sites: Any
    ) -> tuple[FloatArray, Any]:
        """(M,) derivatives of the evidence in the log variances of the tasks, and the sites there."""
        if self.gaussian:  # from the residuals of all rows, without their covariances
            precision: Any = self.precision(slots, z, rows.layout.codes, rows.noise)
            q = condition(prior, precision, precision * rows.y, also=row_inverse)
            return self._by_log(rows, slots, z, 0.5 * (q.alpha**2 - q.also)), None
        settled = self.settle(prior, rows, slots, z, sites)
        slope = settled.slot_gradients(None)["z"] / np.exp(slots.get(z, "tau")[0])
        return slope, RowSites(settled.precision, settled.shift)

    def _by_log(self, rows: Any, slots: Slots, z: FloatArray, by_row: FloatArray) -> FloatArray:
        """(M,) derivatives in the log variances of tasks, from those in the variance of each row."""
        of_task = np.bincount(rows.layout.codes, by_row * rows.noise, len(self.sizes))
        return self.variance(slots, z) * of_task * self._moves(slots, z)

    def precision(self, slots: Slots, z: FloatArray, codes: IntArray, noise: Any) -> FloatArray | None:
        """(n,) of the sites of rows, where nothing else determines them; None: they must be settled.

        `noise` has the known factors of the variance.
        """
        return 1.0 / (self.variance(slots, z)[codes] * noise) if self.gaussian else None

    def variance(self, slots: Slots, z: FloatArray) -> FloatArray:
        """(M,) of the noise of each task."""
        shared = np.full(len(self.sizes), self.noise_model(slots, z).variance_of_task)
        return np.maximum(shared * np.exp(self._log_factors(slots, z)), _LEAST) if self.varies else shared

    def _moves(self, slots: Slots, z: FloatArray) -> Any:
        """(M,) whether the variance of a task depends on its parameters: not where it is the least."""
        return self.variance(slots, z) > _LEAST if self.varies else True

    def own_scale(self, slots: Slots, z: FloatArray) -> FloatArray | None:
        """(M,) exp(rho tau z_t), the factor of the variance of what is a task's own; None: all alike."""
        if not self.varies:
            return None
        return np.exp(slots.get(z, "rho")[0] * self._log_factors(slots, z))

    def own_scale_gradients(self, slots: Slots, z: FloatArray, by_log: FloatArray) -> dict[str, FloatArray]:
        """Of the slots, from that in the logarithms of `own_scale` (M,)."""
        rho, tau, levels = slots.get(z, "rho")[0], np.exp(slots.get(z, "tau")[0]), slots.get(z, "z")
        along = tau * float(by_log @ levels)
        return {"z": rho * tau * by_log, "tau": np.array([rho * along]), "rho": np.array([along])}

    def information(self, slots: Slots, z: FloatArray) -> FloatArray:
        """(M,) I_t."""
        rho = slots.get(z, "rho")[0]
        return np.where(self.sizes > 0, self.sizes - 1.0 + rho**2, 0.0) / 2.0

    def predictive_variance(self, slots: Slots, z: FloatArray) -> FloatArray:
        """(M + 1,) expected noise of each task, the uncertainty of z_t included; last, of a new task.

        Empty if it is not Gaussian and tasks have none of their own.

        The residuals of a task have nu = 2 I_t degrees of freedom. With c their sum of squares in units of
        the noise at the mode of z_t, which is where -z - tau nu / 2 + tau c / 2 = 0, the posterior of z_t is

            p(u) ~ exp(-u^2 / 2 - tau nu u / 2 - c exp(-tau (u - z)) / 2).
        """
        if not (self.varies or self.gaussian):
            return np.zeros(0)
        shared = self.noise_model(slots, z).variance_of_task
        if not self.varies:
            return np.full(len(self.sizes) + 1, shared)
        tau, mode = np.exp(slots.get(z, "tau")[0]), slots.get(z, "z")
        nu = 2.0 * self.information(slots, z)
        squares = np.maximum(nu + 2.0 * mode / tau, 0.0)
        log_density = -0.5 * (
            _LEVELS**2
            + tau * np.outer(nu, _LEVELS)
            + squares[:, None] * np.exp(-tau * (_LEVELS - mode[:, None]))
        )
        mean = softmax(log_density, axis=1) @ np.exp(tau * _LEVELS)
        return np.maximum(shared * np.append(mean, np.exp(0.5 * tau**2)), _LEAST)

    def _log_factors(self, slots: Slots, z: FloatArray) -> FloatArray:
        """(M,) tau z_t."""
        return np.exp(slots.get(z, "tau")[0]) * slots.get(z, "z")

    def _correction(self, slots: Slots, z: FloatArray) -> float:
        """-1/2 sum log(1 + tau^2 I_t)."""
        if not self.varies:
            return 0.0
        return -0.5 * float(np.log1p(np.exp(2.0 * slots.get(z, "tau")[0]) * self.information(slots, z)).sum())

    def _gradients_of_tasks(self, slots: Slots, z: FloatArray, by_log: FloatArray) -> dict[str, FloatArray]:
        """Of tau, z and rho, the correction included, from that in the log variances (M,)."""
        if not self.varies:
            return {}
        tau, rho = np.exp(slots.get(z, "tau")[0]), slots.get(z, "rho")[0]
        square = tau**2 * self.information(slots, z)
        of_rho = -0.5 * tau**2 * rho * np.sum((self.sizes > 0) / (1.0 + square))
        of_tau = tau * (by_log @ slots.get(z, "z")) - np.sum(square / (1.0 + square))
        return {"tau": np.array([of_tau]), "z": tau * by_log, "rho": np.array([of_rho])}
