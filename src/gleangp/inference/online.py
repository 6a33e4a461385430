"""New rows of a task that is already fitted, absorbed one by one without starting again.

Assumed-density filtering goes on where it stopped: every new row becomes an active point.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gleangp._typing import FloatArray
from gleangp.inference.block import Block
from gleangp.inference.filtering import PRECISION_FLOOR, Sites
from gleangp.inference.posterior import TaskPosterior
from gleangp.kernels import kernel_columns
from gleangp.numerics.linalg import grow_cholesky, solve_cholesky, solve_lower


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
        site = _site(block, i, float(v @ solve_lower(chol, means)), prior_var[i] - v @ v)
        chol = grow_cholesky(chol, k, prior_var[i] + 1.0 / site.precision)
        X = np.vstack([X, block.X[i]])
        means = np.append(means, site.mean)
        new.append(site)
    posterior = TaskPosterior(X, solve_cholesky(chol, means), chol, None, posterior.jitter)
    return _absorbed(posterior, new, list(range(len(block))), sum(s.log_z for s in new))


def _absorbed(posterior, new: list[_Site], active: list[int], log_evidence: float) -> Absorbed:
    mean, precision, gain = np.array([s[:3] for s in new], dtype=np.float64).reshape(-1, 3).T
    sites = Sites(mean, precision, sum(s.silent for s in new))
    return Absorbed(posterior, sites, active, gain, float(log_evidence))


def _site(block: Block, i: int, mean: float, var: float) -> _Site:
    """Site of a value N(mean, var) seen through noise."""
    one = np.array([i])
    moments = block.noise.at(one).log_partition(block.y[one], np.array([mean]), np.array([var]))
    log_z, g, nu = (float(m[0]) for m in moments)
    silent = nu < PRECISION_FLOOR and not block.noise.log_concave  # the policy of `inference.filtering`
    if nu < PRECISION_FLOOR:
        g, nu = (0.0 if silent else g), PRECISION_FLOOR
    gain = -0.5 * np.log1p(-min(nu * var, 1.0 - 2.0**-53))
    return _Site(mean + g / nu, nu / (1.0 - nu * var), float(gain), log_z, silent)
