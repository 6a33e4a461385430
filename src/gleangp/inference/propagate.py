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
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.inference.block import Block
from gleangp.inference.evidence import LOG_TWO_PI, condition, row_variance
from gleangp.inference.prior import BlockPrior
from gleangp.numerics.linalg import cholesky

MAX_SWEEPS = 60
TOLERANCE = 1e-10  # nats per row that the evidence may still change by where the sites have settled
_FULL_STEPS = 15.0  # sweeps after which steps shrink, where rows can take turns in being silent
_LEAST_LEFT = 1e-12  # share of a variance with or without a site: never nothing, whatever rounding says
_UNSETTLED = 1e-3  # the same, relative to the evidence, from which it is not one
_NO_VARIANCE = 1e-10  # of a function that is known
# Share of its variance that a row explains at least: little enough to change nothing, and enough to get the
# variance of the row from its site. With labels that would widen the posterior it also gives room to a shift.
_LEAST_EXPLAINED = {True: 1e-8, False: 1e-4}  # by whether the noise is log-concave


@dataclass(frozen=True, slots=True, eq=False)
class RowSites:
    """Sites of all rows, in natural form."""

    precision: FloatArray  # (n,)
    shift: FloatArray  # (n,) precision * site mean
    n_silent: int = 0  # rows without effect because the noise model would widen the posterior

    def at(self, rows) -> RowSites:
        """The sites of some rows."""
        return RowSites(self.precision[rows], self.shift[rows])

    @property
    def mean(self) -> FloatArray:
        """(n,) where each would have the function; zero for a row that says nothing."""
        return np.divide(
            self.shift, self.precision, out=np.zeros_like(self.shift), where=self.precision > 0.0
        )

    def __sub__(self, other: RowSites) -> RowSites:
        return RowSites(self.precision - other.precision, self.shift - other.shift)

    def moved(self, move: RowSites, step: float) -> RowSites:
        """Part of the way of a move, which is a difference of sites."""
        return RowSites(self.precision + step * move.precision, self.shift + step * move.shift)


@dataclass(frozen=True, slots=True, eq=False)
class Marginals:
    """Marginals of all rows under the present sites."""

    mean: FloatArray  # (n,)
    var: FloatArray  # (n,)
    log_det: float  # log |I + K diag(precision)|
    state: Any  # whatever the caller wants back at the end

    def change_by(self, move: RowSites) -> float:
        """About the change of the evidence by a small move of all sites.

        The evidence is stationary where the sites have settled. It changes by the Kullback-Leibler
        divergences between the marginals before and after, here in second order (Fisher metric).
        """
        along = move.shift - self.mean * move.precision
        return float(np.sum(self.var * along**2 + 0.5 * (self.var * move.precision) ** 2)) / 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Swept:
    """Sites at their fixed point, and the noise model there."""

    sites: RowSites
    marginals: Marginals
    evidence: float
    cavity_mean: FloatArray  # (n,)
    cavity_var: FloatArray  # (n,)
    g: FloatArray  # (n,)
    nu: FloatArray  # (n,)
    of_rows: FloatArray  # (n,) parts of the evidence; the rest is -1/2 log_det


def sweep_rows(
    block: Block,
    marginals: Callable[[RowSites], Marginals],
    start: RowSites | None = None,
    *,
    tol: float = TOLERANCE,
    max_sweeps: int = MAX_SWEEPS,
) -> Swept:
    """Move all sites until the evidence settles: the next move would change it by less than `tol` per row."""
    noise = block.noise
    sites = RowSites(np.zeros(len(block)), np.zeros(len(block))) if start is None else start
    may_be_silent = not noise.log_concave and hasattr(noise, "is_labeled")
    least = 0.0 if may_be_silent else _LEAST_EXPLAINED[noise.log_concave]
    steps = Steps(noise.log_concave)
    for _ in range(max_sweeps):
        now = marginals(sites)
        cavities = leave_out(sites, now.mean, now.var)
        log_z, g, nu = noise.log_partition(block.y, cavities.mean, cavities.var)
        of_rows = cavities.log_evidence(log_z) + 0.5 * sites.shift * now.mean
        evidence = float(of_rows.sum() - 0.5 * now.log_det)
        move = cavities.wanted_sites(g, nu, least) - sites
        change = now.change_by(move)
        if change <= tol * len(block):
            break
        sites = sites.moved(move, steps.next(move.precision))
        if not (np.isfinite(sites.precision).all() and np.isfinite(sites.shift).all()):
            raise NotPositiveDefiniteError(
                f"expectation propagation does not end at finite numbers: a row has the variance "
                f"{np.max(now.var):.3g}. Use inputs in other units, or a kernel of smaller variance."
            )
    if may_be_silent:
        sites = replace(sites, n_silent=int(np.sum(nu < 0.0)))
    if not (noise.log_concave or change <= _UNSETTLED * (1.0 + abs(evidence))):
        evidence = np.nan
    return Swept(sites, now, evidence, cavities.mean, cavities.var, g, nu, of_rows)


def marginals_of(prior: BlockPrior) -> Callable[[RowSites], Marginals]:
    """From the sites of all rows to their marginals."""

    def marginals(now: RowSites) -> Marginals:
        q = condition(prior, now.precision, now.shift, also=row_variance)
        site_square = float(np.sum(now.shift * now.mean))
        log_det = q.log_det + q.misfit - site_square + float(now.shift @ q.mean)
        return Marginals(q.mean, q.also, log_det, q)

    return marginals


def labelled_first(
    block: Block,
    marginals: Callable[[RowSites], Marginals],
    labelled: Any = None,
    among: Callable[[IntArray], Callable[[RowSites], Marginals]] | None = None,
) -> RowSites | None:
    """Sites to start from: those of rows with a label without the others, which are silent.

    Were all to move at once, rows without a label would take the side of the prior mean (with one class in
    ten that of the many) before a label has an effect, and stay there. None: the noise has no such rows,
    unless `labelled` (a mask) names those with a label. `among` gives the marginals of some rows without the
    others, where that is cheaper.
    """
    if labelled is None:
        if not hasattr(block.noise, "is_labeled"):
            return None
        labelled = block.noise.is_labeled(block.y)
    labelled = np.flatnonzero(labelled)

    def all_rows(sites: RowSites) -> RowSites:
        precision, shift = np.zeros(len(block)), np.zeros(len(block))
        precision[labelled], shift[labelled] = sites.precision, sites.shift
        return RowSites(precision, shift)

    def of_labelled(sites: RowSites) -> Marginals:
        now = marginals(all_rows(sites))
        return replace(now, mean=now.mean[labelled], var=now.var[labelled])

    own = of_labelled if among is None else among(labelled)
    return all_rows(sweep_rows(block.at(labelled), own).sites)


class PriorOfRows:
    """What expectation propagation needs of a prior: marginals from sites.

    `first` is a prior under which sites settle before they do under this one.
    """

    first: Any = None
    _among: Any = None

    def __init__(self, marginals: Callable[[RowSites], Marginals]):
        self._marginals = marginals

    def sweep(self, block: Block, start: RowSites | None, **how: Any) -> Swept:
        """Expectation propagation over the rows, whose targets and noise `block` has."""
        return sweep_rows(block, self._marginals, start=start, **how)

    def labelled_first(self, block: Block, labelled: Any = None) -> RowSites | None:
        """Sites to start from: those of the labelled rows without the others, which are silent."""
        return labelled_first(block, self._marginals, labelled, among=self._among)


@dataclass(frozen=True, slots=True, eq=False)
class Cavities:
    """What is left of the marginals of some rows without their own sites."""

    sites: RowSites
    mean: FloatArray  # (n,)
    var: FloatArray  # (n,)

    def log_evidence(self, log_z: FloatArray) -> FloatArray:
        """(n,) the rows' parts of log Z of EP: a site is scaled to give its row the right log_z here."""
        sites = self.sites
        grown = 1.0 + sites.precision * self.var
        exponent = sites.shift**2 * self.var + 2.0 * sites.shift * self.mean - sites.precision * self.mean**2
        return log_z + 0.5 * np.log(grown) - 0.5 * exponent / grown

    def wanted_sites(self, g: FloatArray, nu: FloatArray, least: float = 0.0) -> RowSites:
        """Those that match the moments; where less than `least` of a variance is explained, the mean alone.

        With `least` zero, a row that would widen the posterior says nothing.
        """
        if least:
            nu = np.maximum(nu, least / np.maximum(self.var, _NO_VARIANCE))
        left = np.maximum(1.0 - nu * self.var, _LEAST_LEFT)
        speaks = nu > 0.0
        precision = np.divide(nu, left, out=np.zeros_like(nu), where=speaks)
        shift = np.divide(g + nu * self.mean, left, out=np.zeros_like(nu), where=speaks)
        return RowSites(precision, shift)


def leave_out(sites: RowSites, mean: FloatArray, var: FloatArray) -> Cavities:
    """The cavities of rows with these sites and marginals."""
    left = np.maximum(1.0 - sites.precision * var, _LEAST_LEFT)
    return Cavities(sites, (mean - var * sites.shift) / left, var / left)


@dataclass(slots=True)
class Steps:
    """Length of the next step of the sweeps over all rows.

    A full step to the sites of the cavities can overshoot: where the precisions swing, the
    length of the swings gives the step that damps them.
    """

    log_concave: bool
    _length: float = field(default=1.0, init=False)
    _count: int = field(default=0, init=False)
    _last: Any = field(default=0.0, init=False)

    def next(self, move: FloatArray) -> float:
        """From the move of the precisions and the last one."""
        kept = float(np.sum(move * self._last)) / max(float(np.sum(np.square(self._last))), 1e-300)
        self._length = min(max(self._length / max(1.0 - kept, 0.5), 0.25), 1.0)
        self._count, self._last = self._count + 1, move
        if not self.log_concave:
            self._length *= min(1.0, _FULL_STEPS / self._count)
        return self._length


def log_normal(y: FloatArray, means: FloatArray, covs: FloatArray) -> FloatArray:
    """(B,) log N(y | mean, cov) of a stack of means (B, n) and covariances (B, n, n)."""
    chol = _stacked_cholesky(covs)
    white = np.linalg.solve(chol, (y - means)[:, :, None])[:, :, 0]
    log_det = 2.0 * np.log(np.einsum("bii->bi", chol)).sum(axis=1)
    return -0.5 * ((white * white).sum(axis=1) + log_det + len(y) * LOG_TWO_PI)


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
    swept = sweep_rows(block, marginals, start=labelled_first(block, marginals))
    precision, shift, of_rows = (
        values.reshape(means.shape) for values in (swept.sites.precision, swept.sites.shift, swept.of_rows)
    )
    evidences = of_rows.sum(axis=1) - 0.5 * swept.marginals.state
    return RowSites(precision, shift, swept.sites.n_silent), evidences


def dense_marginals(means: FloatArray, covs: FloatArray) -> Callable[[RowSites], Marginals]:
    """From sites to marginals of rows with latent priors N(mean, cov), one below the other.

    `means` is (V, n) or (n,), `covs` (V, n, n) or (n, n); the state are the V log determinants.
    """
    means, covs = np.atleast_2d(means), np.reshape(covs, (-1, *np.shape(covs)[-2:]))

    def marginals(sites: RowSites) -> Marginals:
        precision, shift = (values.reshape(means.shape) for values in (sites.precision, sites.shift))
        root = np.sqrt(precision)
        chol = _stacked_cholesky(np.eye(means.shape[1]) + root[:, :, None] * covs * root[:, None, :])
        half = np.linalg.solve(chol, root[:, :, None] * covs)
        var = np.einsum("vii->vi", covs) - np.einsum("vij,vij->vj", half, half)
        moved = shift - precision * means
        after = means + np.einsum("vij,vj->vi", covs, moved)
        after -= np.einsum("vij,vi->vj", half, np.einsum("vij,vj->vi", half, moved))
        # shift^T E f - log_det is twice log Z of the sites; with a prior mean it has two more parts.
        log_z2 = np.sum(moved * (after - means) + 2.0 * shift * means - precision * means**2, axis=1)
        log_z2 -= 2.0 * np.log(np.einsum("vii->vi", chol)).sum(axis=1)
        log_det = np.sum(shift * after, axis=1) - log_z2
        return Marginals(after.ravel(), np.maximum(var, 1e-300).ravel(), float(log_det.sum()), log_det)

    return marginals


def _stacked_cholesky(matrices: FloatArray) -> FloatArray:
    """Lower factors of a stack of matrices."""
    try:
        return np.asarray(np.linalg.cholesky(matrices), dtype=np.float64)
    except np.linalg.LinAlgError:  # singular in floating point
        return np.array([cholesky(matrix)[0] for matrix in matrices])
