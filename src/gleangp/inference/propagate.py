"""Expectation propagation with all sites moved at once, for any way of getting marginals from sites.

Minka 2001; the parallel schedule costs one factorisation a sweep. Sites are kept in natural form,
exp(shift g - precision g^2 / 2), where a row that says nothing is simply zero.

Noise that is not log-concave: the moments of a row may widen the posterior (nu <= 0), which no site can do
here. A row with a label then has next to no precision, and a shift that gives the row its mean. A row without
one is silent, its site zero, until others have moved it to one side (Lawrence, Platt & Jordan 2005,
section 4.3: "set a negative variance to zero"). Such a model has several fixed points, and which one is found
depends on the start; sites that do not settle give no evidence at all (NaN) rather than a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gleangp._typing import BoolArray, FloatArray, IntArray
from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.inference.block import Block
from gleangp.inference.evidence import LOG_TWO_PI, RowSites, condition, row_variance
from gleangp.inference.prior import BlockPrior
from gleangp.numerics.linalg import inverse_factors

_FULL_STEPS = 15.0  # sweeps after which steps shrink, where rows can take turns in being silent
_LEAST_LEFT = 1e-12  # share of a variance with or without a site: never nothing, whatever rounding says
_UNSETTLED = 1e-3  # change of the evidence in the next sweep, relative to it, from which it is not one
_NO_VARIANCE = 1e-10  # of a function that is known
# Share of its variance that a row explains at least: little enough to change nothing, and enough to get the
# variance of the row from its site. With labels that would widen the posterior it also gives room to a shift.
_LEAST_EXPLAINED = {True: 1e-8, False: 1e-4}  # by whether the noise is log-concave


@dataclass(frozen=True, slots=True, eq=False)
class Marginals:
    """Marginals of all rows under the present sites."""

    mean: FloatArray  # (n,)
    var: FloatArray  # (n,)
    log_det: float  # log |I + K diag(precision)|
    state: Any  # whatever the caller wants back at the end


MarginalsOfSites = Callable[[RowSites], Marginals]


@dataclass(frozen=True, slots=True, eq=False)
class Swept:
    """Sites at their fixed point, and the noise model there."""

    sites: RowSites
    marginals: Marginals
    evidence: float
    cavity_mean: FloatArray  # (n,)
    cavity_var: FloatArray  # (n,)
    of_rows: FloatArray  # (n,) parts of the evidence; the rest is -1/2 log_det


def sweep_rows(
    block: Block, marginals: MarginalsOfSites, start: RowSites | None = None, *, tol=1e-10, max_sweeps=60
) -> Swept:
    """Move all sites until the evidence settles: the next move would change it by less than `tol` per row.

    Without `start`, rows without a label join the settled others (`labelled_first`).
    """
    noise = block.noise
    may_be_silent = hasattr(noise, "is_labeled")
    if start is None and may_be_silent:
        start = labelled_first(block, marginals, noise.is_labeled(block.y))
    sites = RowSites(*np.zeros((2, len(block)))) if start is None else start
    least = 0.0 if may_be_silent else _LEAST_EXPLAINED[noise.log_concave]
    length, last = 1.0, np.zeros(len(block))
    for sweep in range(1, max_sweeps + 1):
        now = marginals(sites)
        left = np.maximum(1.0 - sites.precision * now.var, _LEAST_LEFT)
        mean, var = (now.mean - now.var * sites.shift) / left, now.var / left  # without the own site
        log_z, g, nu = noise.log_partition(block.y, mean, var)
        # A site is scaled so that its row has the right log_z in its cavity.
        grown = 1.0 + sites.precision * var
        exponent = sites.shift**2 * var + 2.0 * sites.shift * mean - sites.precision * mean**2
        of_rows = log_z + 0.5 * np.log(grown) - 0.5 * exponent / grown + 0.5 * sites.shift * now.mean
        evidence = float(of_rows.sum() - 0.5 * now.log_det)
        precision, shift = _matched(mean, var, g, nu, least)
        move, d_shift = precision - sites.precision, shift - sites.shift
        # The evidence is stationary where the sites have settled. It changes by the Kullback-Leibler
        # divergences between the marginals before and after, here in second order (Fisher metric).
        along = d_shift - now.mean * move
        change = float(np.sum(now.var * along**2 + 0.5 * (now.var * move) ** 2)) / 2.0
        if change <= tol * len(block):
            break
        # A full step can overshoot. Where the precisions swing, the length of the swings gives the step that
        # damps them.
        kept = float(np.sum(move * last)) / max(float(np.sum(np.square(last))), 1e-300)
        length = min(max(length / max(1.0 - kept, 0.5), 0.25), 1.0)
        if not noise.log_concave:
            length *= min(1.0, _FULL_STEPS / sweep)
        last = move
        sites = RowSites(sites.precision + length * move, sites.shift + length * d_shift)
        if not (np.isfinite(sites.precision).all() and np.isfinite(sites.shift).all()):
            raise NotPositiveDefiniteError(
                f"expectation propagation does not end at finite numbers: a row has the variance "
                f"{np.max(now.var):.3g}. Use inputs in other units, or a kernel of smaller variance."
            )
    if may_be_silent:
        sites = replace(sites, n_silent=int(np.sum(nu < 0.0)))
    settled = noise.log_concave or change <= _UNSETTLED * (1.0 + abs(evidence))
    return Swept(sites, now, evidence if settled else np.nan, mean, var, of_rows)


def _matched(mean, var, g, nu, least: float) -> tuple[FloatArray, FloatArray]:
    """Precision and shift that match the moments; where less than `least` is explained, the mean alone.

    With `least` zero, a row that would widen the posterior says nothing.
    """
    if least:
        nu = np.maximum(nu, least / np.maximum(var, _NO_VARIANCE))
    left, informs = np.maximum(1.0 - nu * var, _LEAST_LEFT), nu > 0.0
    precision = np.divide(nu, left, out=np.zeros_like(nu), where=informs)
    return precision, np.divide(g + nu * mean, left, out=np.zeros_like(nu), where=informs)


def marginals_of(prior: BlockPrior) -> MarginalsOfSites:
    """From the sites of all rows to their marginals."""

    def marginals(now: RowSites) -> Marginals:
        q = condition(prior, now.precision, now.shift, also=row_variance)
        site_square = float(np.sum(now.shift * now.mean))
        log_det = q.log_det + q.misfit - site_square + float(now.shift @ q.mean)
        return Marginals(q.mean, q.also, log_det, q)

    return marginals


def labelled_first(
    block: Block,
    marginals: MarginalsOfSites,
    labelled: BoolArray,
    among: Callable[[IntArray], MarginalsOfSites] | None = None,
) -> RowSites:
    """Sites to start from: those of the rows `labelled` (n,) without the others, which are silent.

    Were all to move at once, rows without a label would take the side of the prior mean (with one class in
    ten that of the many) before a label has an effect, and stay there. `among` gives the marginals of some
    rows without the others, where that is cheaper.
    """
    rows = np.flatnonzero(labelled)

    def all_rows(sites: RowSites) -> RowSites:
        precision, shift = np.zeros((2, len(block)))
        precision[rows], shift[rows] = sites.precision, sites.shift
        return RowSites(precision, shift)

    def of_labelled(sites: RowSites) -> Marginals:
        now = marginals(all_rows(sites))
        return replace(now, mean=now.mean[rows], var=now.var[rows])

    own = of_labelled if among is None else among(rows)
    return all_rows(sweep_rows(block.at(rows), own, RowSites(*np.zeros((2, len(rows))))).sites)


def log_normal(y: FloatArray, means: FloatArray, covs: FloatArray, precisions: FloatArray) -> FloatArray:
    """(V,) log evidence of targets y (n,) with V latent priors N(mean, cov) and noise precisions (V, n)."""
    half, log_det = _whitening(covs, precisions)
    white = half @ (np.sqrt(precisions) * (y - means))[:, :, None]
    log_noise = np.sum(np.log(precisions) - LOG_TWO_PI, axis=1)
    return 0.5 * (log_noise - log_det - np.einsum("vij,vij->v", white, white))


def _whitening(covs: FloatArray, precisions: FloatArray) -> tuple[FloatArray, FloatArray]:
    """L^-1 (V, n, n) with L L^T = I + R cov R, R = diag(sqrt(precision)), and log |L L^T| (V,)."""
    root = np.sqrt(precisions)
    half, _, _ = inverse_factors(root[:, :, None] * covs * root[:, None, :])
    return half, -2.0 * np.log(np.einsum("vii->vi", half)).sum(axis=1)


def propagate_dense(
    means: FloatArray, covs: FloatArray, y: FloatArray, noise: Any, variances: FloatArray | None = None
) -> tuple[RowSites, FloatArray]:
    """Sites (V, n) of a few rows under V latent priors N(mean, cov), and the log evidences (V,).

    `variances` (V,) are those of the noise (`NoiseModel.of_tasks`); None: that of `noise`.
    """
    rows = np.tile(np.arange(len(y)), len(means))  # one problem of V n rows
    noise = noise.at(rows)
    if variances is not None:
        noise = noise.with_variance(np.repeat(variances, len(y)))
    block, marginals = Block(np.zeros((len(rows), 0)), y[rows], noise), dense_marginals(means, covs)
    swept = sweep_rows(block, marginals)
    evidences = swept.of_rows.reshape(means.shape).sum(axis=1) - 0.5 * swept.marginals.state
    precision, shift = (v.reshape(means.shape) for v in (swept.sites.precision, swept.sites.shift))
    return RowSites(precision, shift, swept.sites.n_silent), evidences


def dense_marginals(means: FloatArray, covs: FloatArray) -> MarginalsOfSites:
    """From sites to marginals of rows with latent priors N(mean, cov), one below the other.

    `means` is (V, n) or (n,), `covs` (V, n, n) or (n, n); the state are the V log determinants.
    """
    means, covs = np.atleast_2d(means), np.reshape(covs, (-1, *np.shape(covs)[-2:]))

    def marginals(sites: RowSites) -> Marginals:
        precision, shift = (values.reshape(means.shape) for values in (sites.precision, sites.shift))
        L_inverse, log_det_B = _whitening(covs, precision)
        half = L_inverse @ (np.sqrt(precision)[:, :, None] * covs)
        var = np.einsum("vii->vi", covs) - np.einsum("vij,vij->vj", half, half)
        moved = shift - precision * means
        after = means + np.einsum("vij,vj->vi", covs, moved)
        after -= np.einsum("vij,vi->vj", half, np.einsum("vij,vj->vi", half, moved))
        # shift^T E f - log_det is twice log Z of the sites; with a prior mean it has two more parts.
        log_z2 = np.sum(moved * (after - means) + 2.0 * shift * means - precision * means**2, axis=1)
        log_det = np.sum(shift * after, axis=1) - (log_z2 - log_det_B)
        return Marginals(after.ravel(), np.maximum(var, 1e-300).ravel(), float(log_det.sum()), log_det)

    return marginals
