"""The log posterior of everything that is learnt, and its gradient, on given rows in blocks with a basis.

Slots of the vector, in order: the kernels of the terms with the weights of tasks that are learnt
("term0__..."), those of the likelihood, and the warping of the inputs ("warp").
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from gleangp._typing import FloatArray, IntArray
from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.inference.block import Layout
from gleangp.inference.evidence import evidence_gradient
from gleangp.inference.prior import BlockPrior, Term
from gleangp.inference.propagate import RowSites
from gleangp.models.defaults import PRIORS, PriorWidths, Start
from gleangp.models.inputs import InputMap
from gleangp.models.likelihood import Likelihood, Settled
from gleangp.models.parameters import Slot, Slots
from gleangp.models.priors import Normal
from gleangp.models.terms import MovingTerm, TermSpec


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows to learn from, in blocks, with a basis; inputs in their own units, targets standardised."""

    X: FloatArray  # (n, p)
    y: FloatArray  # (n,)
    noise: Any  # Gaussian: (n,) known factors of the variance; else the noise model of these rows
    layout: Layout  # groups with a basis of their own have it in `Z`, in the units of X
    Z: FloatArray  # (d, p) common basis
    numbers: IntArray | None = None  # (n,) of these rows in the data; None: all of them in order

    @property
    def all_inputs(self) -> FloatArray:
        """X, Z and the bases of the groups, one below the other."""
        return np.vstack([self.X, self.Z, *(g.Z for g in self.layout.groups if g.Z is not None)])

    def seen_as(self, W: FloatArray) -> tuple[FloatArray, FloatArray, Layout]:
        """X, Z and the layout with inputs as the kernels see them, from `all_inputs` so seen."""
        n, at, groups = len(self.X), len(self.X) + len(self.Z), []
        for g in self.layout.groups:
            if g.Z is not None:
                size = len(g.Z)
                g, at = replace(g, Z=W[at : at + size]), at + size
            groups.append(g)
        return W[:n], W[n : n + len(self.Z)], replace(self.layout, groups=groups)


class LogPosterior:
    """Minus the log posterior of the parameters, and its gradient.

    Sites of noise that is not Gaussian start from those of the call before.
    """

    def __init__(
        self,
        specs: Sequence[TermSpec],
        likelihood: Likelihood,
        inputs: InputMap,
        rows: Any,
        start: Start,
        widths: PriorWidths = PRIORS,
        *,
        warped: bool = True,
    ):
        self.specs, self.likelihood, self.inputs = list(specs), likelihood, inputs
        self.start, self.rows = start, rows  # None until there are some rows
        of_terms = [spec.slots(f"term{k}__") for k, spec in enumerate(specs)]
        n_warps = inputs.n_parameters if warped else 0
        warp = Slot("warp", np.zeros(n_warps), -2.5, 2.5, Normal(0.0, widths.warp_spread), "identity")
        self.slots = Slots(
            [*(s for slots in of_terms for s in slots), *likelihood.slots(start, widths), warp]
        )
        self._moving = [MovingTerm(spec, f"term{k}__", self.slots) for k, spec in enumerate(specs)]
        self._sites: RowSites | None = None
        self._warping: Any = None  # of the rows: from parameters to inputs as the kernels see them

    def sites(self, n_rows: int) -> RowSites | None:
        """Sites of all rows of the data at the last call, in order; zero for rows that were not used."""
        if self._sites is None or self.rows.numbers is None:
            return self._sites
        precision, shift = np.zeros(n_rows), np.zeros(n_rows)
        precision[self.rows.numbers], shift[self.rows.numbers] = self._sites.precision, self._sites.shift
        return RowSites(precision, shift)

    def on(self, rows: Rows, n_rows: int) -> LogPosterior:
        """The same on other rows of the data, starting from the sites of rows that both have."""
        other, sites = copy(self), self.sites(n_rows)
        other.rows = rows
        other._sites = sites if sites is None or rows.numbers is None else sites.at(rows.numbers)
        return other

    def warp(self, z: FloatArray) -> FloatArray:
        """Parameters of the input map at z; zeros if inputs are not warped."""
        return self.slots.get(z, "warp") if "warp" in self.slots.where else np.zeros(self.inputs.n_parameters)

    def terms(self, z: FloatArray) -> list[Term]:
        """The terms at z; use them before they are moved again."""
        terms, scale = [term.at(z) for term in self._moving], self.likelihood.own_scale(self.slots, z)
        if scale is None:
            return terms
        # What is a task's own is in the scale of the task.
        return [t if t.loadings.shape[1] else replace(t, own=t.own * scale) for t in terms]

    def frozen_terms(self, z: FloatArray) -> list[Term]:
        """The terms at z, for good."""
        return [replace(term, kernel=clone(term.kernel)) for term in self.terms(z)]

    def settle(self, z: FloatArray) -> tuple[BlockPrior, Settled, Any]:
        """The prior at z, the settled sites, and the warped inputs."""
        rows = self.rows
        if self._warping is None or self._warping[0] is not rows:
            self._warping = rows, self.inputs.linearize(rows.all_inputs)
        warped = self._warping[1](self.warp(z))
        W, Z, layout = rows.seen_as(warped.value)
        prior = BlockPrior(self.terms(z), W, layout, Z)
        settled = self.likelihood.settle(prior, rows, self.slots, z, self._sites)
        self._sites = RowSites(settled.precision, settled.shift)
        return prior, settled, warped

    def __call__(self, z: FloatArray) -> tuple[float, FloatArray]:
        """Value and gradient."""
        slots = self.slots
        prior, settled, warped = self.settle(z)
        scale = self.likelihood.own_scale(slots, z)
        scaled = [scale is not None and not spec.loadings.shape[1] for spec in self.specs]
        of_weights = [spec.mixture or s for spec, s in zip(self.specs, scaled, strict=True)]
        found = evidence_gradient(prior, settled.q, of_weights)
        value, gradient = slots.log_prior(z)
        for k, term in enumerate(self._moving):
            term.add_gradient(gradient, found.theta[k], found.loadings[k], found.own[k], z)
        for name, part in settled.slot_gradients(found).items():
            gradient[slots.where[name]] += part
        own = [d_own for d_own, s in zip(found.own, scaled, strict=True) if s]
        if scale is not None and own:
            for name, part in self.likelihood.own_scale_gradients(slots, z, scale * sum(own)).items():
                gradient[slots.where[name]] += part
        if "warp" in slots.where:
            bases = [of_basis for of_basis in found.own_Z if of_basis is not None]
            gradient[slots.where["warp"]] += warped.vjp(np.vstack([found.X, found.Z, *bases]))
        return -(value + settled.evidence), -gradient

    def value(self, z: FloatArray) -> float:
        """Without the gradient; infinite where a covariance has no factor."""
        try:
            return -(self.slots.log_prior(z)[0] + self.settle(z)[1].evidence)
        except NotPositiveDefiniteError:
            return np.inf
