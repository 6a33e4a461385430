"""New rows of a task that is already fitted, absorbed one by one without starting again.

Assumed-density filtering goes on where it stopped: every new row becomes an active point.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gleangp._typing import FloatArray
from gleangp.inference.block import Block
from gleangp.inference.filtering import Sites, include_moments, site_moments
from gleangp.inference.posterior import TaskPosterior
from gleangp.kernels import kernel_columns
from gleangp.numerics.linalg import grow_cholesky, solve_cholesky, solve_lower


class Absorbed(NamedTuple):
    """A task after new rows."""

    posterior: TaskPosterior
    sites: Sites  # of the new rows, all of which became active
    gain: FloatArray  # what each of them told, nats
    log_evidence: float  # what all new rows add to the log evidence


def absorb_active(kernel, posterior: TaskPosterior, sites: Sites, block: Block) -> Absorbed:
    """Every row of `block` becomes one more active point of a posterior made from `sites`."""
    chol, X, means = posterior.chol, posterior.X, sites.mean
    prior_var = kernel.diag(block.X)
    new = np.zeros((len(block), 5))  # mean and precision of the site, gain, log_z, whether it is silent
    for i in range(len(block)):
        one = slice(i, i + 1)
        k = kernel_columns(kernel, X, block.X[one])[:, 0] if len(X) else np.zeros(0)
        v = solve_lower(chol, k)
        mean, var = np.array([v @ solve_lower(chol, means)]), np.array([prior_var[i] - v @ v])
        log_z, g, nu, silent = include_moments(block.noise.at(one), block.y[one], mean, var)
        site_mean, precision = site_moments(mean, var, g, nu)
        gain = -0.5 * np.log1p(-np.minimum(nu * var, 1.0 - 2.0**-53))  # fall of the entropy
        new[i] = np.concatenate([site_mean, precision, gain, log_z, silent])
        chol = grow_cholesky(chol, k, prior_var[i] + 1.0 / precision[0])
        X = np.vstack([X, block.X[i]])
        means = np.append(means, site_mean)
    posterior = TaskPosterior(X, solve_cholesky(chol, means), chol, None, posterior.jitter)
    site_means, precisions, gains, log_zs, silent = new.T
    added = Sites(site_means, precisions, int(silent.sum()))
    return Absorbed(posterior, added, gains, float(log_zs.sum()))
