"""How targets enter the log posterior: Gaussian noise in closed form, any other noise by propagation.

A likelihood gives the slots of its parameters, and settles the sites of all rows of a `BlockPrior`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from scipy.special import softmax

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.inference.evidence import (
    Conditioned,
    EvidenceGradient,
    Knowledge,
    condition,
    gaussian_evidence,
)
from gleangp.inference.prior import BlockPrior
from gleangp.inference.propagate import labelled_first, marginals_of, sweep_rows
from gleangp.models.defaults import LABELS_LEARNING, LEARNING, Learning, PriorWidths, Start
from gleangp.models.priors import Exponential, LogNormal, Normal
from gleangp.models.slots import Slot, Slots
from gleangp.noise import Gaussian
from gleangp.numerics.transforms import unconstrain

_NOISE_BOUNDS = (-20.0, 4.0)  # of a log variance in standard units
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
    slot_gradients: Callable[[EvidenceGradient], dict[str, FloatArray]]
    n_silent: int = 0  # rows without information because their noise would widen the posterior


class Likelihood(Protocol):
    """The noise of all tasks."""

    @property
    def learning(self) -> Learning:
        """How parameters are learnt under it."""

    def slots(self, start: Start, widths: PriorWidths) -> list[Slot]:
        """What is learnt."""

    def settle(
        self,
        prior: BlockPrior,
        rows: Any,
        slots: Slots,
        z: FloatArray,
        sites: Any,
        *,
        gradient: bool = True,
    ) -> Settled:
        """Sites of all rows at the parameters z; `sites` are those to start from.

        Without a gradient the result need not have the quantities of every row.
        """

    def noise_model(self, slots: Slots, z: FloatArray) -> Any:
        """The noise model at z, with the values that all tasks share."""

    def precision(self, slots: Slots, z: FloatArray, codes: IntArray, noise: Any) -> FloatArray | None:
        """(n,) of the sites of rows, where nothing else determines them; None: they must be settled."""

    def predictive_variance(self, slots: Slots, z: FloatArray) -> FloatArray:
        """(M + 1,) noise variance of the tasks, last that of a new one; empty if it is not Gaussian."""

    def draws_rows(self, learning: Learning) -> int:
        """Rows up to which predictions average over draws of the hyperparameters."""

    @property
    def varies(self) -> bool:
        """Whether tasks have their own noise."""

    def own_scale(self, slots: Slots, z: FloatArray) -> FloatArray | None:
        """(M,) factor of the variance of what is a task's own; None: all tasks alike."""

    def own_scale_gradients(self, slots: Slots, z: FloatArray, by_log: FloatArray) -> dict[str, FloatArray]:
        """Of the slots, from that in the logarithms of `own_scale` (M,)."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the parameters that can have a prior."""

    def with_priors(self, priors: Mapping[str, Any]) -> Likelihood:
        """With these in place of the default ones."""


@dataclass(frozen=True, eq=False)
class GaussianNoise:
    """Gaussian noise of variance sigma^2 exp(tau z_t), z_t ~ N(0, 1), under a learnt tau.

    Tasks with more noise can also differ more from the others: large shops sell and vary more. The variance
    of what is a task's own (offset, slopes, function) has the factor exp(rho tau z_t), rho in [0, 1] learnt.

    z_t is maximised with a Laplace correction: with I_t, the information that the n_t rows of a task carry
    about its log variance, the objective has -1/2 log(1 + tau^2 I_t). Differences between rows carry
    (n_t - 1) / 2. Their mean carries rho^2 / 2: its variance is that of the offset, which has that factor.

    A row may have a known factor of its variance (`rows.noise`, for example 1 / weight). `known` fixes
    sigma^2, and then no task has a variance of its own.
    """

    sizes: IntArray  # (M,) rows of the tasks
    known: float | None = None
    prior: Any = None  # of sigma^2; None: by the widths

    names: ClassVar[tuple[str, ...]] = ("variance",)

    @property
    def learning(self) -> Learning:
        """To the end: a number carries much information."""
        return LEARNING

    def with_priors(self, priors: Mapping[str, Any]) -> GaussianNoise:
        """With another prior of sigma^2, if there is one."""
        return replace(self, prior=priors.get("variance", self.prior))

    def draws_rows(self, learning: Learning) -> int:
        """Most of all: the posterior at a draw has a closed form."""
        return learning.draws_rows

    @property
    def varies(self) -> bool:
        """Whether tasks have their own noise."""
        return len(self.sizes) > 1 and self.known is None

    def information(self, slots: Slots, z: FloatArray) -> FloatArray:
        """(M,) I_t."""
        rho = slots.get(z, "rho")[0]
        return np.where(self.sizes > 0, self.sizes - 1.0 + rho**2, 0.0) / 2.0

    def slots(self, start: Start, widths: PriorWidths) -> list[Slot]:
        """Of the shared variance, and of tau and z with several tasks."""
        if self.known is not None:
            return []
        # The prior is on the deviation: the log of the variance has twice the spread.
        prior = self.prior or LogNormal(widths.noise**2, 2.0 * widths.noise_spread)
        slots = [Slot("noise", np.log([start.noise**2]), *_NOISE_BOUNDS, prior)]
        if self.varies:
            slots.append(Slot("tau", np.log([start.noise_ratio]), -5.0, 1.5, Exponential(widths.noise_ratio)))
            slots.append(Slot("z", np.zeros(len(self.sizes)), -6.0, 6.0, Normal(0.0, 1.0), "identity"))
            prior = Normal(0.0, widths.scale_with_noise)
            slots.append(Slot("rho", np.array([start.scale_with_noise]), 0.0, 1.0, prior, "identity"))
        return slots

    def noise_model(self, slots: Slots, z: FloatArray) -> Gaussian:
        """Of the shared variance."""
        return Gaussian(self.shared_variance(slots, z))

    def shared_variance(self, slots: Slots, z: FloatArray) -> float:
        """sigma^2."""
        return float(np.exp(slots.get(z, "noise")[0])) if self.known is None else self.known

    def variance(self, slots: Slots, z: FloatArray) -> FloatArray:
        """(M,) of the noise of each task."""
        shared = self.shared_variance(slots, z)
        if not self.varies:
            return np.full(len(self.sizes), shared)
        return shared * np.exp(np.exp(slots.get(z, "tau")[0]) * slots.get(z, "z"))

    def own_scale(self, slots: Slots, z: FloatArray) -> FloatArray | None:
        """(M,) exp(rho tau z_t)."""
        if not self.varies:
            return None
        return np.exp(slots.get(z, "rho")[0] * np.exp(slots.get(z, "tau")[0]) * slots.get(z, "z"))

    def own_scale_gradients(self, slots: Slots, z: FloatArray, by_log: FloatArray) -> dict[str, FloatArray]:
        """By the chain rule."""
        rho, tau, levels = slots.get(z, "rho")[0], np.exp(slots.get(z, "tau")[0]), slots.get(z, "z")
        along = tau * float(by_log @ levels)
        return {"z": rho * tau * by_log, "tau": np.array([rho * along]), "rho": np.array([along])}

    def predictive_variance(self, slots: Slots, z: FloatArray) -> FloatArray:
        """(M + 1,) expected noise of each task, the uncertainty of z_t included; last, of a new task.

        The residuals of a task have nu = 2 I_t degrees of freedom. With c their sum of squares in units of
        the noise at the mode of z_t, which is where -z - tau nu / 2 + tau c / 2 = 0, the posterior of z_t is

            p(u) ~ exp(-u^2 / 2 - tau nu u / 2 - c exp(-tau (u - z)) / 2).
        """
        shared = self.shared_variance(slots, z)
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
        return shared * np.append(mean, np.exp(0.5 * tau**2))

    def precision(self, slots: Slots, z: FloatArray, codes: IntArray, factors: FloatArray) -> FloatArray:
        """(n,) of the noise of rows of these tasks, with known factors of its variance."""
        return 1.0 / (self.variance(slots, z)[codes] * factors)

    def settle(self, prior, rows, slots, z, sites=None, *, gradient=True) -> Settled:
        """At once: sites are the targets with their noise."""
        by_task, precision = self.variance(slots, z), self.precision(slots, z, rows.layout.codes, rows.noise)
        q = condition(prior, precision, precision * rows.y, rows=gradient)
        correction, of_tau, of_rho = self._correction(slots, z)

        def slot_gradients(found: EvidenceGradient) -> dict[str, FloatArray]:
            if self.known is not None:
                return {}
            weighted = found.noise_variance * rows.noise
            by_log = by_task * np.bincount(rows.layout.codes, weighted, len(by_task))
            parts = {"noise": np.array([by_log.sum()])}
            if self.varies:
                tau = np.exp(slots.get(z, "tau")[0])
                parts["tau"] = np.array([tau * (by_log @ slots.get(z, "z")) + of_tau])
                parts["z"] = tau * by_log
                parts["rho"] = np.array([of_rho])
            return parts

        evidence = gaussian_evidence(q, precision) + correction
        return Settled(q, evidence, precision, precision * rows.y, slot_gradients)

    def _correction(self, slots, z) -> tuple[float, float, float]:
        """-1/2 sum log(1 + tau^2 I_t), and its derivatives in log tau and in rho."""
        if not self.varies:
            return 0.0, 0.0, 0.0
        tau2, rho = np.exp(2.0 * slots.get(z, "tau")[0]), slots.get(z, "rho")[0]
        square = tau2 * self.information(slots, z)
        of_rho = -0.5 * tau2 * rho * float(np.sum((self.sizes > 0) / (1.0 + square)))
        return -0.5 * float(np.log1p(square).sum()), -float((square / (1.0 + square)).sum()), of_rho


@dataclass(frozen=True, eq=False)
class PropagatedNoise:
    """Any noise model of `gleangp.noise`, by expectation propagation.

    `model` has the values to start from; `learn` names the parameters that are learnt, one value for all
    tasks.
    """

    model: Any
    learn: tuple[str, ...] = ()
    priors: dict[str, Any] | None = None
    tol: float = 1e-6  # nats per row: a tenth of that at which the search stops

    varies: ClassVar[bool] = False

    @property
    def learning(self) -> Learning:
        """Short for labels and categories: these carry less information than counts and numbers."""
        return LABELS_LEARNING if getattr(self.model, "support", "label") == "label" else LEARNING

    @property
    def _is_real(self) -> bool:
        return getattr(self.model, "support", None) == "real"

    def draws_rows(self, learning: Learning) -> int:
        """Those of real numbers; other targets do not average."""
        return learning.draws_rows_propagated if self._is_real else 0

    def precision(self, slots: Slots, z: FloatArray, codes: IntArray, noise: Any) -> None:
        """None: sites depend on each other."""

    def predictive_variance(self, slots: Slots, z: FloatArray) -> FloatArray:
        """None: the variance of an observation depends on the function."""
        return np.zeros(0)

    def own_scale(self, slots: Slots, z: FloatArray) -> None:
        """None: tasks have no noise of their own."""

    def own_scale_gradients(self, slots: Slots, z: FloatArray, by_log: FloatArray) -> dict[str, FloatArray]:
        """None."""
        return {}

    @property
    def names(self) -> tuple[str, ...]:
        """Of the parameters of the noise model."""
        return tuple(self.model.parameters)

    def with_priors(self, priors: Mapping[str, Any]) -> PropagatedNoise:
        """With other priors of what is learnt."""
        return replace(self, priors={**(self.priors or {}), **priors})

    def slots(self, start: Start, widths: PriorWidths) -> list[Slot]:
        """One for each parameter that is learnt."""
        slots = []
        for name in self.learn:
            transform = self.model.transforms[name]
            value = np.atleast_1d(np.asarray(self.model.parameters[name], dtype=np.float64))
            if transform == "logit":
                value = start.wrong * value
            low, high = _BOUNDS[transform]
            values = unconstrain(transform, value)
            prior = (self.priors or {}).get(name)
            slots.append(Slot(f"noise__{name}", values, low, high, prior, transform))
        return slots

    def noise_model(self, slots: Slots, z: FloatArray) -> Any:
        """The noise model at z."""
        values = {}
        for name in self.learn:
            part = slots.natural(z, f"noise__{name}")
            values[name] = part if np.ndim(self.model.parameters[name]) else float(part[0])
        return replace(self.model, **values)

    def settle(
        self, prior, rows, slots, z, sites=None, known: Knowledge | None = None, *, gradient=True
    ) -> Settled:
        """Expectation propagation over all rows."""
        values = {name: getattr(self.noise_model(slots, z), name) for name in self.learn}
        noise = replace(rows.noise, **values)
        problem = Block(rows.X, rows.y, noise)

        marginals = marginals_of(prior, known)
        if sites is None and not noise.log_concave:
            sites = labelled_first(problem, marginals)
        # Draws of the parameters, which real numbers have, need the gradient of the gradient. Where noise is
        # not log-concave, searches stopped up to eight nats early by gradients of sites that had not settled.
        fine = self._is_real or not noise.log_concave
        tol = min(self.tol, _FINE_TOLERANCE) if fine else self.tol
        swept = sweep_rows(problem, marginals, start=sites, tol=tol)
        by_name = noise.log_partition_grad(rows.y, swept.cavity_mean, swept.cavity_var) if self.learn else {}

        def slot_gradients(found: EvidenceGradient) -> dict[str, FloatArray]:
            return {
                f"noise__{name}": np.atleast_1d(np.sum(by_name[name], axis=0))
                * slots.slope(z, f"noise__{name}")
                for name in self.learn
            }

        sites = swept.sites
        return Settled(
            swept.marginals.state,
            swept.evidence,
            sites.precision,
            sites.shift,
            slot_gradients,
            sites.n_silent,
        )
