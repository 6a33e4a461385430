"""New rows of a task that is already fitted, absorbed one by one without starting again.

Assumed-density filtering goes on where it stopped. In the papers' scheme every new row becomes an
active point. On a projection basis a new row only adds its site to the coefficients, O(d^2); for
Gaussian noise the result is then the projection of all rows, old and new, on the same basis. A row that
the basis cannot express becomes a basis point itself: old rows say nothing about the new direction.
"""

from __future__ import annotations

import numpy as np

from gleangp.inference.block import Block
from gleangp.inference.filtering import PRECISION_FLOOR, Sites
from gleangp.inference.posterior import TaskPosterior
from gleangp.inference.projected import NUGGET
from gleangp.kernels import has_white, kernel_columns, signal_diag, white_diag
from gleangp.linalg import grow_cholesky, rank_one_update, solve_cholesky, solve_lower

# Share of a row's prior variance outside the span of the basis from which it joins the basis.
_NOVEL = 1e-2


def absorb_active(
    kernel, posterior: TaskPosterior, sites: Sites, block: Block
) -> tuple[TaskPosterior, Sites]:
    """Posterior and sites with every row of `block` as one more active point."""
    chol, X = posterior.chol, posterior.X
    means, precisions = list(sites.mean), list(sites.precision)
    prior_var = kernel.diag(block.X)
    for i in range(len(block)):
        k = kernel_columns(kernel, X, block.X[i : i + 1])[:, 0] if len(X) else np.zeros(0)
        v = solve_lower(chol, k)
        mean = v @ solve_lower(chol, np.array(means))
        site_mean, site_precision = _site(block, i, mean, prior_var[i] - v @ v)
        chol = grow_cholesky(chol, k, prior_var[i] + 1.0 / site_precision)
        X = np.vstack([X, block.X[i]])
        means.append(site_mean)
        precisions.append(site_precision)
    sites = Sites(np.array(means), np.array(precisions), sites.n_silent)
    weights = solve_cholesky(chol, sites.mean)
    return TaskPosterior(X, weights, chol, None, posterior.jitter), sites


def absorb_projected(
    kernel, posterior: TaskPosterior, block: Block
) -> tuple[TaskPosterior, list[int], Sites]:
    """Posterior with the rows of `block` absorbed, which of them joined the basis, and their sites."""
    chol, inner, X = posterior.chol, posterior.inner, posterior.X
    m = chol.T @ posterior.weights
    shift = inner @ (inner.T @ m)
    prior_var = signal_diag(kernel, block.X)
    # White noise is not part of the function: it widens what the noise model sees.
    white = white_diag(kernel, block.X) if has_white(kernel) else np.zeros(len(block))
    joined, sites = [], []
    for i in range(len(block)):
        k = kernel_columns(kernel, X, block.X[i : i + 1])[:, 0]
        phi = solve_lower(chol, k)
        outside = prior_var[i] - phi @ phi
        if outside > _NOVEL * prior_var[i]:
            chol = grow_cholesky(chol, k, prior_var[i] * (1.0 + NUGGET))
            inner = np.pad(inner, ((0, 1), (0, 1)))
            inner[-1, -1] = 1.0
            shift = np.append(shift, 0.0)
            phi = np.append(phi, np.sqrt(outside))
            X = np.vstack([X, block.X[i]])
            joined.append(i)
        spread = solve_lower(inner, phi)
        mean = phi @ solve_cholesky(inner, shift)
        site_mean, site_precision = _site(block, i, mean, spread @ spread, white[i])
        sites.append((site_mean, site_precision))
        inner = rank_one_update(inner, np.sqrt(site_precision) * phi)
        shift = shift + site_precision * site_mean * phi
    weights = solve_lower(chol, solve_cholesky(inner, shift), transposed=True)
    kept = np.array([sites[i] for i in joined]).reshape(-1, 2)
    posterior = TaskPosterior(X, weights, chol, inner, posterior.jitter)
    return posterior, joined, Sites(kept[:, 0], kept[:, 1])


def _site(block: Block, i: int, mean: float, var: float, white: float = 0.0) -> tuple[float, float]:
    """Site of row i, whose function value has this mean and variance; `white` noise comes on top."""
    one = np.array([i])
    _, g, nu = block.noise.at(one).log_partition(block.y[one], np.array([mean]), np.array([var + white]))
    g, nu = float(g[0]), float(nu[0])
    if nu < PRECISION_FLOOR:
        g, nu = (g if block.noise.log_concave else 0.0), PRECISION_FLOOR
    return mean + g / nu, nu / (1.0 - nu * var)
