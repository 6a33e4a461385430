"""New rows of a task that is already fitted, absorbed one by one without starting again.

Assumed-density filtering goes on where it stopped. In the papers' scheme every new row becomes an
active point. On a projection basis a new row only adds its site to the coefficients, O(d^2); for
Gaussian noise the result is then the projection of all rows, old and new, on the same basis. A row that
the basis cannot express becomes a basis point itself: old rows say nothing about the new direction.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gleangp._typing import FloatArray
from gleangp.inference.block import Block
from gleangp.inference.filtering import PRECISION_FLOOR, Sites
from gleangp.inference.posterior import TaskPosterior
from gleangp.inference.projected import NUGGET
from gleangp.kernels import kernel_columns, signal_diag, white_diag
from gleangp.linalg import grow_cholesky, rank_one_update, solve_cholesky, solve_lower

# Share of a row's prior variance outside the span of the basis from which it joins the basis.
_NOVEL = 1e-2


class Absorbed(NamedTuple):
    """A task after new rows."""

    posterior: TaskPosterior
    sites: Sites  # of the rows that became active
    active: list[int]  # rows of the new block that became active
    gain: FloatArray  # what each of them told, nats
    log_evidence: float  # what all new rows add to the log evidence


class _Site(NamedTuple):
    mean: float
    precision: float
    gain: float  # fall of the entropy, -1/2 log(1 - nu var), white noise in var
    log_z: float
    silent: bool


def absorb_active(kernel, posterior: TaskPosterior, sites: Sites, block: Block) -> Absorbed:
    """Every row of `block` becomes one more active point of a posterior made from `sites`."""
    chol, X, means = posterior.chol, posterior.X, sites.mean
    prior_var = kernel.diag(block.X)
    new = []
    for i in range(len(block)):
        k = kernel_columns(kernel, X, block.X[i : i + 1])[:, 0] if len(X) else np.zeros(0)
        v = solve_lower(chol, k)
        site = _site(block, i, v @ solve_lower(chol, means), prior_var[i] - v @ v)
        chol = grow_cholesky(chol, k, prior_var[i] + 1.0 / site.precision)
        X = np.vstack([X, block.X[i]])
        means = np.append(means, site.mean)
        new.append(site)
    posterior = TaskPosterior(X, solve_cholesky(chol, means), chol, None, posterior.jitter)
    return _absorbed(posterior, new, list(range(len(block))), sum(s.log_z for s in new))


def absorb_projected(kernel, posterior: TaskPosterior, block: Block) -> Absorbed:
    """The rows of `block` speak through the basis; those that it cannot express join it."""
    chol, inner, X = posterior.chol, posterior.inner, posterior.X
    shift = inner @ (inner.T @ (chol.T @ posterior.weights))
    prior_var, white = signal_diag(kernel, block.X), white_diag(kernel, block.X)
    joined, new, log_evidence = [], [], 0.0
    for i in range(len(block)):
        k = kernel_columns(kernel, X, block.X[i : i + 1])[:, 0]
        phi = solve_lower(chol, k)
        outside = max(prior_var[i] - phi @ phi, 0.0)
        if outside > _NOVEL * prior_var[i]:
            chol = grow_cholesky(chol, k, prior_var[i] * (1.0 + NUGGET))
            inner = np.pad(inner, ((0, 1), (0, 1)))
            inner[-1, -1] = 1.0
            shift = np.append(shift, 0.0)
            phi = np.append(phi, np.sqrt(outside))
            X = np.vstack([X, block.X[i]])
            joined.append(i)
            outside = 0.0
        spread = solve_lower(inner, phi)
        site = _projected_site(
            block, i, phi @ solve_cholesky(inner, shift), spread @ spread, outside, white[i]
        )
        new.append(site)
        log_evidence += site.log_z
        inner = rank_one_update(inner, np.sqrt(site.precision) * phi)
        shift = shift + site.precision * site.mean * phi
    weights = solve_lower(chol, solve_cholesky(inner, shift), transposed=True)
    posterior = TaskPosterior(X, weights, chol, inner, posterior.jitter)
    return _absorbed(posterior, [new[i] for i in joined], joined, log_evidence)


def _absorbed(posterior, new: list[_Site], active: list[int], log_evidence: float) -> Absorbed:
    mean, precision, gain = np.array([s[:3] for s in new], dtype=np.float64).reshape(-1, 3).T
    sites = Sites(mean, precision, sum(s.silent for s in new))
    return Absorbed(posterior, sites, active, gain, float(log_evidence))


def _projected_site(block: Block, i: int, mean, var, outside, white) -> _Site:
    """Site of phi^T v, as in `inference.projected`, where `outside` is what the basis leaves out."""
    if block.noise.precision_depends_on_mean:  # marginalised, like white noise
        return _site(block, i, mean, var, outside + white)
    site = _site(block, i, mean, var, white)
    return site._replace(log_z=site.log_z - 0.5 * site.precision * outside)  # Titsias 2009, eq. 9


def _site(block: Block, i: int, mean: float, var: float, extra: float = 0.0) -> _Site:
    """Site of a value N(mean, var) seen through noise and independent variance `extra`."""
    one = np.array([i])
    moments = block.noise.at(one).log_partition(block.y[one], np.array([mean]), np.array([var + extra]))
    log_z, g, nu = (float(m[0]) for m in moments)
    silent = nu < PRECISION_FLOOR and not block.noise.log_concave  # the policy of `inference.filtering`
    if nu < PRECISION_FLOOR:
        g, nu = (0.0 if silent else g), PRECISION_FLOOR
    gain = -0.5 * np.log1p(-min(nu * (var + extra), 1.0 - 2.0**-53))
    return _Site(mean + g / nu, nu / (1.0 - nu * var), float(gain), log_z, silent)
