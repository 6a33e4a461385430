"""Expectation propagation with all sites moved at once, for any way of getting marginals from sites.

Minka 2001; the parallel schedule costs one factorisation a sweep. Sites are kept in natural form,
exp(shift g - precision g^2 / 2), where a row that says nothing is simply zero.

Noise that is not log-concave: a row whose moments would widen the posterior (nu <= 0) is silent, its site
zero, until others have moved it to one side (Lawrence, Platt & Jordan 2005, section 4.3: "set a
negative variance to zero"). Such a model has several fixed points, and which one is found depends on the
start; sites that do not settle give no evidence at all (NaN) rather than a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gleangp._typing import FloatArray
from gleangp.inference.block import Block

MAX_SWEEPS = 60
TOLERANCE = 1e-7  # of the evidence, relative, for the sites to have settled
_FULL_STEPS = 15.0  # sweeps after which steps shrink, where rows can take turns in being silent
_UNSETTLED = 1e-3  # change of the evidence, relative, from which it is not one


@dataclass(frozen=True, slots=True, eq=False)
class RowSites:
    """Sites of all rows, in natural form."""

    precision: FloatArray  # (n,)
    shift: FloatArray  # (n,) precision * site mean
    n_silent: int = 0  # rows that say nothing because the noise model would widen the posterior

    def at(self, rows) -> RowSites:
        """The sites of some rows."""
        return RowSites(self.precision[rows], self.shift[rows])


@dataclass(frozen=True, slots=True, eq=False)
class Marginals:
    """Marginals of all rows under the present sites."""

    mean: FloatArray  # (n,)
    var: FloatArray  # (n,)
    log_det: float  # log |I + K diag(precision)|
    state: Any  # whatever the caller wants back at the end


@dataclass(frozen=True, slots=True, eq=False)
class Swept:
    """Sites at their fixed point, and the noise model there."""

    sites: RowSites
    marginals: Marginals
    evidence: float
    cavity_mean: FloatArray  # (n,)
    cavity_var: FloatArray  # (n,) with the spread in it
    g: FloatArray  # (n,)
    nu: FloatArray  # (n,)


def sweep_rows(
    block: Block,
    marginals: Callable[[RowSites], Marginals],
    spread: FloatArray | float = 0.0,
    start: RowSites | None = None,
    *,
    tol: float = TOLERANCE,
    nats: float = 0.0,
    max_sweeps: int = MAX_SWEEPS,
) -> Swept:
    """Move all sites until the evidence settles; `spread` is variance of a row that no other row shares.

    It has where it changes by less than `tol` of itself, or less than `nats`.

    A full step to the sites that the cavities ask for can overshoot: where the precisions swing, the
    length of the swings gives the step that damps them. Marginalising the spread widens the cavity by it.
    """
    n = len(block)
    sites = RowSites(np.zeros(n), np.zeros(n)) if start is None else start
    step, last_move, last_evidence = 1.0, None, np.inf
    for sweep in range(max_sweeps):
        now = marginals(sites)
        # What is left of a marginal without its own site; never quite nothing, whatever rounding says.
        left = np.maximum(1.0 - sites.precision * now.var, 1e-12)
        cavity_var = now.var / left
        cavity_mean = (now.mean - now.var * sites.shift) / left
        log_z, g, nu = block.noise.log_partition(block.y, cavity_mean, cavity_var + spread)
        evidence = _log_evidence(sites, now, cavity_mean, cavity_var, log_z)
        change, last_evidence = evidence - last_evidence, evidence
        if abs(change) <= max(nats, tol * (1.0 + abs(evidence))):
            break
        target = _wanted_sites(g, nu, cavity_mean, cavity_var)
        move = target.precision - sites.precision
        if last_move is not None:
            kept = float(move @ last_move) / max(float(last_move @ last_move), 1e-300)
            step = min(max(step / max(1.0 - kept, 0.5), 0.25), 1.0)
        if not block.noise.log_concave:
            step *= min(1.0, _FULL_STEPS / (sweep + 1.0))
        sites = RowSites(sites.precision + step * move, sites.shift + step * (target.shift - sites.shift))
        last_move = move
    if not block.noise.log_concave:
        sites = replace(sites, n_silent=int(np.sum(nu < 0.0)))
        if not abs(change) <= _UNSETTLED * (1.0 + abs(evidence)):
            evidence = np.nan
    return Swept(sites, now, evidence, cavity_mean, cavity_var + spread, g, nu)


def _wanted_sites(g, nu, cavity_mean, cavity_var) -> RowSites:
    """Sites that match the moments of every row; a row that would widen the posterior says nothing."""
    left = 1.0 - nu * cavity_var
    speaks = nu > 0.0
    precision = np.divide(nu, left, out=np.zeros_like(nu), where=speaks)
    shift = np.divide(g + nu * cavity_mean, left, out=np.zeros_like(nu), where=speaks)
    return RowSites(precision, shift)


def _log_evidence(sites: RowSites, now: Marginals, cavity_mean, cavity_var, log_z) -> float:
    """log Z of EP: every site is scaled to give its row the right log_z under its cavity."""
    grown = 1.0 + sites.precision * cavity_var
    exponent = (
        sites.shift**2 * cavity_var + 2.0 * sites.shift * cavity_mean - sites.precision * cavity_mean**2
    )
    local = np.sum(log_z + 0.5 * np.log(grown) - 0.5 * exponent / grown)
    return float(local + 0.5 * (sites.shift @ now.mean - now.log_det))
