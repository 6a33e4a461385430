"""The posterior of one task: sites of some of its rows by filtering, and what prediction needs.

Assumed-density filtering absorbs rows one by one (Lawrence & Platt 2004, section 2; Lawrence, Platt & Jordan
2005, sections 2.2 and 3.1-3.2). The posterior covariance of all rows is never formed: it is
`K - rows.T @ rows`, one row per absorbed point. White noise of the kernel belongs to the latent value of its
own row: it counts in the diagonal of K and so in the column of the point itself.

Policy for precisions that are not positive ("silent sites"). A log-concave noise model can give a
`nu` that underflows; it is floored at 2**-52, where the site is as good as absent and its mean is
still finite. For a model that is not log-concave, `nu <= 0` with `g` of order one has no Gaussian
site at all, and a `nu` just above zero has one whose mean g / nu is absurdly far away. The sites
stand in for probabilities, so the test is their peak, log_z + (log(1 + precision var) + g^2 / nu) / 2:
log-concave models stay below e, and a site that would peak higher is no stand-in. Such a point is
taken in with g = 0 and the floor, so that it has no effect, is counted in `n_silent`, and selection
prefers any point that has information.

Prediction needs a few points, their weights, and one or two triangular factors:

    mean(x) = k(x)^T weights,    var(x) = k(x, x) - |chol^-1 k(x)|^2 + |inner^-1 chol^-1 k(x)|^2

with k(x) the covariances to the kept points. For `posterior="active"` chol is the factor of
K_dd + 1 / site_precision and there is no inner factor; on a basis chol is the factor of K_dd and inner that
of the precision of the basis variables.

On a basis, rows are blocks of one (`inference.prior`): every row contributes through the basis; what it has
beyond is independent of all others (FITC; Snelson & Ghahramani 2006). O(n d^2), and a posterior of d points.
With every row in the basis it is exact.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gleangp._state import check_arrays, check_factor
from gleangp._typing import FloatArray, IntArray
from gleangp.data.tasks import filled_blocks
from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.inference.block import Block, Group, Layout, Stack
from gleangp.inference.evidence import Knowledge, condition
from gleangp.inference.prior import BlockPrior, Term
from gleangp.inference.propagate import marginals_of, sweep_rows
from gleangp.kernels import has_white, kernel_columns, white_diag
from gleangp.noise import NoiseModel
from gleangp.numerics.linalg import cholesky, inverse_from_cholesky, row_chunks, solve_cholesky, solve_lower

MeanAndVar = tuple[FloatArray, FloatArray]  # mean and variance of rows, or their covariance
PRECISION_FLOOR = 2.0**-52
_HIGHEST_PEAK = 1.0  # log of the largest value of a site that stands in for a probability
_ROUNDING = 1e-6  # how far below zero rounding can take a variance, relative to the largest prior variance


@dataclass(frozen=True, slots=True, eq=False)
class Sites:
    """Gaussian stand-ins N(site_mean | f, 1 / site_precision) for the noise at the active points."""

    mean: FloatArray  # (d,)
    precision: FloatArray  # (d,)
    n_silent: int = 0

    def __len__(self) -> int:
        return len(self.mean)

    def _check_state(self) -> None:
        check_arrays(self, mean="d derived", precision="d >=0 derived")


NO_SITES = Sites(np.zeros(0), np.zeros(0))


class Filter:
    """The running posterior of one output over the n rows of a block.

    `mean` and `var` are the marginals of all rows, `rows` (capacity, n) holds the factor; only its
    first `size` rows count. `moments` has the marginal mean and variance of every absorbed row just
    before, and g and nu of its noise there.
    """

    def __init__(self, y: FloatArray, noise: NoiseModel, prior_var: FloatArray, mean: Any = None):
        self.y, self.noise, self.prior_var = y, noise, prior_var
        self.mean = np.zeros(len(y)) if mean is None else mean.copy()
        self.var = np.array(prior_var, dtype=np.float64)
        self.rows = np.empty((0, len(y)))
        self.moments: list[tuple[float, float, float, float]] = []
        self.n_silent, self.log_evidence = 0, 0.0  # of the absorbed rows, each given those before it

    @property
    def size(self) -> int:
        """Number of absorbed rows."""
        return len(self.moments)

    def include(self, n: int, prior_column: FloatArray) -> None:
        """Absorb row n; `prior_column` (n,) is column n of K, white included. O(n size)."""
        one, size = slice(n, n + 1), self.size
        mean, var = self.mean[one], self.var[one]
        log_z, g, nu, silent = include_moments(self.noise.at(one), self.y[one], mean, var)
        root = np.sqrt(nu.item())
        self.moments.append((mean.item(), var.item(), g.item(), nu.item()))
        self.n_silent += silent.item()
        self.log_evidence += log_z.item()
        if size == len(self.rows):
            rows = np.empty((max(16, 2 * size), len(self.y)))
            rows[:size] = self.rows
            self.rows = rows
        new = prior_column - self.rows[:size, n] @ self.rows[:size]  # LPJ05 eq. 21
        new *= root
        self.rows[size] = new
        self.var -= new * new  # LPJ05 eqs. 24 and 25
        self.mean += (g.item() / root) * new
        if not np.min(self.var, initial=0.0) >= -_ROUNDING * np.max(self.prior_var, initial=0.0):
            row = int(np.argmin(self.var))
            raise NotPositiveDefiniteError(
                f"the covariance matrix of {len(self.var)} rows is not positive definite: {self.size} of "
                f"them leave row {row} a variance of {self.var[row]:.3g}. Use a kernel that is a covariance "
                "function."
            )

    def sites(self) -> Sites:
        """The sites of the absorbed points."""
        moments = np.reshape(self.moments, (-1, 4)).T
        return Sites(*site_moments(*moments), self.n_silent)

    @property
    def gains(self) -> FloatArray:
        """(size,) information of each absorbed row, nats: the fall of the entropy at its marginal then."""
        _, var, _, nu = np.reshape(self.moments, (-1, 4)).T
        explained = nu * var
        return -0.5 * np.log1p(-np.minimum(explained, 1.0 - 2.0**-53))


def include_moments(
    noise: NoiseModel, y: FloatArray, mean: FloatArray, var: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, np.ndarray]:
    """log_z, g and nu with which rows would be absorbed, and which of them are silent (see above)."""
    log_z, g, nu = noise.log_partition(y, mean, var)
    if noise.log_concave:
        return log_z, g, np.maximum(nu, PRECISION_FLOOR), np.zeros(len(nu), dtype=bool)
    silent = ~informs(log_z, g, nu, var)
    return log_z, np.where(silent, 0.0, g), np.where(silent, PRECISION_FLOOR, nu), silent


def informs(log_z: FloatArray, g: FloatArray, nu: FloatArray, var: FloatArray) -> np.ndarray:
    """Which rows of a model that is not log-concave have a sound Gaussian site (see above)."""
    positive = nu > PRECISION_FLOOR
    safe = np.where(positive, nu, 1.0)
    # 1 + precision var = 1 / (1 - nu var), by LPJ05 eq. 17
    peak = log_z + 0.5 * (g * g / safe - np.log1p(-np.minimum(safe * var, 1.0 - 2.0**-53)))
    return positive & (peak <= _HIGHEST_PEAK)


def site_moments(mean, var, g: FloatArray, nu: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and precision of the sites of rows that were absorbed at these moments."""
    # LPJ05 eqs. 17 and 18; a prior variance of 1e16 times the noise leaves nothing of 1 - nu var.
    return mean + g / nu, nu / np.maximum(1.0 - nu * var, 2.0**-53)


def filter_all(block: Block, K: FloatArray, mean: FloatArray | None = None) -> Filter:
    """The filter after all rows of a block, in their order, from the prior N(mean, K). O(n^3)."""
    state = Filter(block.y, block.noise, np.diagonal(K), mean)
    for n in range(len(block)):
        state.include(n, K[n])
    return state


def filter_in_order(kernel, block: Block) -> Sites:
    """Sites of all rows: what turns points chosen by any rule into an active set with sites."""
    return filter_all(block, kernel(block.X)).sites()


class KernelPosterior(ABC):
    """A posterior with mean(x) = k(x)^T weights, k(x) being the covariances of x with the points kept."""

    __slots__ = ()
    X: FloatArray  # (d, p)
    weights: FloatArray  # (d,)

    @abstractmethod
    def taken(self, K: FloatArray, *, joint: bool = False) -> FloatArray:
        """What the data take off the prior variance (n,), or covariance (n, n), of rows.

        K (d, n) are their covariances with the points kept.
        """

    def predict(
        self, kernel: Any, X: FloatArray, *, joint: bool = False, with_var: bool = True
    ) -> MeanAndVar:
        """Mean and variance (n,), or covariance (n, n), of the function, the kernel's white noise in it.

        Without the variance, which is empty then, it costs O(n d).
        """
        if joint:
            K = kernel_columns(kernel, self.X, X)
            return self.weights @ K, kernel(X) - self.taken(K, joint=True)
        mean, var = np.zeros(len(X)), kernel.diag(X).astype(np.float64) if with_var else np.zeros(0)
        for part in row_chunks(len(X), len(self.X)):
            K = kernel_columns(kernel, self.X, X[part])
            mean[part] = self.weights @ K
            if with_var:
                var[part] -= self.taken(K)
        return mean, np.maximum(var, 0.0)  # rounding can leave a known point with a variance of -1e-17


@dataclass(frozen=True, slots=True, eq=False)
class TaskPosterior(KernelPosterior):
    """Gaussian approximation to the posterior of one task."""

    X: FloatArray  # (d, p) the kept points
    weights: FloatArray  # (d,)
    chol: FloatArray  # (d, d)
    inner: FloatArray | None  # (d, d), or None
    jitter: float  # added to the diagonal of what `chol` factorises, beyond the nugget

    def taken(self, K: FloatArray, *, joint: bool = False) -> FloatArray:
        """|chol^-1 k|^2 - |inner^-1 chol^-1 k|^2 of every column."""
        return factors_take(K, self.chol, self.inner, joint)

    def _check_state(self) -> None:
        sizes = check_arrays(self, X="d p", weights="d derived", jitter=">=0 square")
        check_arrays(self, sizes, chol="d d derived", inner="d d derived ?")
        check_factor("TaskPosterior.chol", self.chol)
        if self.inner is not None:
            check_factor("TaskPosterior.inner", self.inner)


def prior_only(n_features: int) -> TaskPosterior:
    """The posterior of a task that has no labelled row: the prior."""
    empty = np.zeros((0, 0))
    return TaskPosterior(np.zeros((0, n_features)), np.zeros(0), empty, None, 0.0)


def predict_tasks(
    nodes: Sequence[Sequence[tuple[Any, KernelPosterior]]], X, codes, *, joint=False, with_var=True
) -> MeanAndVar:
    """Mean and variance (n,), or covariance (n, n), of rows X (n, p) of the tasks `codes` (n,).

    A task is an equal mixture of its nodes, each a kernel and a posterior: what their means disagree about
    adds to what each is uncertain of. Rows of different tasks are independent.
    """
    n = len(X)
    mean, spread = np.empty(n), np.zeros((n, n)) if joint else np.empty(n if with_var else 0)
    for task, rows in filled_blocks(codes):
        found = [p.predict(kernel, X[rows], joint=joint, with_var=with_var) for kernel, p in nodes[task]]
        means, spreads = (np.array(part) for part in zip(*found, strict=True))
        mean[rows] = means.mean(axis=0)
        if joint:
            away = means - mean[rows]
            spread[np.ix_(rows, rows)] = spreads.mean(axis=0) + away.T @ away / len(means)
        elif with_var:
            spread[rows] = spreads.mean(axis=0) + means.var(axis=0)
    return mean, spread


def factors_take(
    K: FloatArray, chol: FloatArray, inner: FloatArray | None = None, joint: bool = False
) -> FloatArray:
    """`KernelPosterior.taken` of triangular factors."""
    v = solve_lower(chol, K)
    taken = _products(v, joint)
    if inner is not None:
        w = solve_lower(inner, v)
        taken -= _products(w, joint)
    return taken


def _products(v: FloatArray, joint: bool) -> FloatArray:
    """Products of columns (d, n): of each with itself (n,), or of all with all (n, n)."""
    return v.T @ v if joint else np.einsum("dn,dn->n", v, v)


def posterior_from_sites(kernel, X: FloatArray, sites: Sites) -> TaskPosterior:
    """The papers' compression scheme: active points and their sites alone (LPJ05 eq. 22).

    `X` (d, p) are the active points in the order of the sites.
    """
    if len(sites) == 0:
        return prior_only(X.shape[1])
    K = kernel(X)
    K.flat[:: len(K) + 1] += 1.0 / sites.precision
    chol, jitter = cholesky(K)
    return TaskPosterior(X, solve_cholesky(chol, sites.mean), chol, None, jitter)


def absorb_rows(
    kernel, posterior: TaskPosterior, sites: Sites, block: Block
) -> tuple[TaskPosterior, Sites, Filter]:
    """Posterior and sites after the rows of a block, each one more active point; and their filter.

    Assumed-density filtering goes on where it stopped: the posterior is the prior of the new rows.
    """
    mean, K = posterior.predict(kernel, block.X, joint=True)
    new = filter_all(block, K, mean)
    more = new.sites()
    means, precisions = np.append(sites.mean, more.mean), np.append(sites.precision, more.precision)
    sites = Sites(means, precisions, sites.n_silent + more.n_silent)
    return posterior_from_sites(kernel, np.vstack([posterior.X, block.X]), sites), sites, new


def training_marginals(kernel, posterior: TaskPosterior, X: FloatArray, active: IntArray) -> MeanAndVar:
    """Marginals (n,) of training rows, of which `active` are the kept points, after filtering.

    Unlike `TaskPosterior.predict`, an active row shares its own white noise with itself, as in the filter.
    For `posterior="active"` only.
    """
    mean, var = posterior.predict(kernel, X)
    if has_white(kernel) and len(active):
        K = kernel_columns(kernel, posterior.X, posterior.X) + np.diag(white_diag(kernel, posterior.X))
        mean[active] = posterior.weights @ K
        var[active] = np.maximum(kernel.diag(posterior.X) - posterior.taken(K), 0.0)
    return mean, var


def without_own_site(kernel, posterior: TaskPosterior, X: FloatArray, active: IntArray) -> MeanAndVar:
    """Marginals (n,) of training rows as the other rows see them: an active one without its own site.

    With C = K + 1 / beta of the active points and C weights = site means, a marginal N(m, v) whose site is
    removed becomes N(m - w weights_i, w), w = v / (1 - beta v) = v beta / (C^-1)_ii (Rasmussen & Williams
    2006, eq. 5.12, for the latent function). Where a site is nearly exact v is all rounding, and w is what
    the left-out variance 1 / (C^-1)_ii has beyond 1 / beta. The rest is as for `training_marginals`.
    """
    mean, var = training_marginals(kernel, posterior, X, active)
    if len(active) == 0:
        return mean, var
    prior_var = kernel.diag(posterior.X)
    site_var = np.einsum("ij,ij->i", posterior.chol, posterior.chol) - prior_var
    site_var = np.maximum(site_var, np.finfo(float).eps * prior_var)  # rounding of nearly exact sites
    left_out = 1.0 / np.diagonal(inverse_from_cholesky(posterior.chol))
    share_left = np.minimum(site_var / left_out, 1.0)  # 1 - beta v, never above 1
    cavity_var = np.where(share_left < 0.5, left_out - site_var, var[active] / share_left)
    cavity_var = np.minimum(cavity_var, prior_var)
    mean[active] -= cavity_var * posterior.weights
    var[active] = cavity_var
    return mean, var


def fitc_prior(kernel: Any, X: FloatArray, Z: FloatArray) -> BlockPrior:
    """The prior of rows X (n, p) on the basis Z (d, p)."""
    codes = np.zeros(len(X), dtype=np.intp)
    layout = Layout(codes, [Group([Stack(np.arange(len(X))[:, None], codes[:, None])])])
    return BlockPrior([Term(kernel, np.ones((1, 1)), np.zeros(1))], X, layout, Z)


def on_basis(prior: BlockPrior, known: Knowledge) -> TaskPosterior:
    """What prediction needs, from what is known of the basis variables."""
    basis = prior.common[0].basis
    weights = solve_lower(basis.chol, known.mean, transposed=True)
    return TaskPosterior(basis.Z, weights, basis.chol, known.inner, basis.jitter)


def fit_on_basis(kernel: Any, block: Block, Z: FloatArray) -> TaskPosterior:
    """Posterior of a block on the basis Z (d, p)."""
    prior, noise = fitc_prior(kernel, block.X, Z), block.noise
    if noise.precision_depends_on_mean:
        return on_basis(prior, sweep_rows(block, marginals_of(prior)).marginals.state.common)
    precision = np.broadcast_to(1.0 / noise.variance, len(block))
    return on_basis(prior, condition(prior, precision, precision * (block.y - noise.bias), rows=False).common)
