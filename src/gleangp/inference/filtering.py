"""Assumed-density filtering: the posterior over all rows after absorbing some of them one by one.

Lawrence & Platt 2004, section 2; Lawrence, Platt & Jordan 2005, sections 2.2 and 3.1-3.2.
The posterior covariance is never formed: it is `K - rows.T @ rows`, one row per absorbed point.

White noise of the kernel belongs to the latent value of its own row: it counts in the diagonal of K
and so in the column of the point itself.

Policy for precisions that are not positive ("silent sites"). A log-concave noise model can give a
`nu` that underflows; it is floored at 2**-52, where the site is as good as absent and its mean is
still finite. For a model that is not log-concave, `nu <= 0` with `g` of order one has no Gaussian
site at all, and a `nu` just above zero has one whose mean g / nu is absurdly far away. The sites
stand in for probabilities, so the test is their peak, log_z + (log(1 + precision var) + g^2 / nu) / 2:
log-concave models stay below e, and a site that would peak higher is no stand-in. Such a point is
taken in with g = 0 and the floor, so that it says nothing, is counted in `n_silent`, and selection
prefers any point that speaks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gleangp._state import check_arrays
from gleangp._typing import FloatArray
from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.inference.block import Block
from gleangp.noise import NoiseModel

PRECISION_FLOOR = 2.0**-52
_HIGHEST_PEAK = 1.0  # log of the largest value of a site that stands in for a probability


def speaks(log_z: FloatArray, g: FloatArray, nu: FloatArray, var: FloatArray) -> np.ndarray:
    """Which rows of a model that is not log-concave have a sound Gaussian site (see above)."""
    positive = nu > PRECISION_FLOOR
    safe = np.where(positive, nu, 1.0)
    # 1 + precision var = 1 / (1 - nu var), by LPJ05 eq. 17
    peak = log_z + 0.5 * (g * g / safe - np.log1p(-np.minimum(safe * var, 1.0 - 2.0**-53)))
    return positive & (peak <= _HIGHEST_PEAK)


# How far below zero rounding can take a variance, relative to the largest prior variance.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Sites:
    """Gaussian stand-ins N(site_mean | f, 1 / site_precision) for the noise at the active points."""

    mean: FloatArray  # (d,)
    precision: FloatArray  # (d,)
    n_silent: int = 0

    def __len__(self) -> int:
        return len(self.mean)

    def followed_by(self, more: Sites) -> Sites:
        """These sites, then those of more points."""
        mean, precision = np.append(self.mean, more.mean), np.append(self.precision, more.precision)
        return Sites(mean, precision, self.n_silent + more.n_silent)

    def _check_state(self) -> None:
        """Raise if the shapes do not fit together (a damaged model file)."""
        check_arrays(self, mean="d derived", precision="d >=0 derived")


NO_SITES = Sites(np.zeros(0), np.zeros(0))


class Inclusion(NamedTuple):
    """A row that was absorbed: its marginal just before, and the moments of its noise there."""

    row: int
    mean: float
    var: float
    g: float
    nu: float
    log_z: float
    silent: bool


class Filter:
    """The running posterior of one output over the n rows of a block.

    `mean` and `var` are the marginals of all rows, `rows` (capacity, n) holds the factor; only its
    first `size` rows count.
    """

    def __init__(
        self, y: FloatArray, noise: NoiseModel, prior_var: FloatArray, mean: FloatArray | None = None
    ):
        self.y = y
        self.noise = noise
        self.mean = np.zeros(len(y)) if mean is None else mean.copy()
        self.var = np.array(prior_var, dtype=np.float64)
        self.prior_var = prior_var
        self.rows = np.empty((0, len(y)))
        self.history: list[Inclusion] = []

    @property
    def size(self) -> int:
        """Number of absorbed rows."""
        return len(self.history)

    def include(self, n: int, prior_column: FloatArray) -> None:
        """Absorb row n; `prior_column` (n,) is column n of K, white included. O(n size)."""
        one, size = slice(n, n + 1), self.size
        mean, var = self.mean[one], self.var[one]
        log_z, g, nu, silent = include_moments(self.noise.at(one), self.y[one], mean, var)
        now = Inclusion(n, mean.item(), var.item(), g.item(), nu.item(), log_z.item(), silent.item())
        if size == len(self.rows):
            rows = np.empty((max(16, 2 * size), len(self.y)))
            rows[:size] = self.rows
            self.rows = rows
        new = prior_column - self.rows[:size, n] @ self.rows[:size]  # LPJ05 eq. 21
        new *= np.sqrt(now.nu)
        self.rows[size] = new
        self.var -= new * new  # LPJ05 eqs. 24 and 25
        self.mean += (now.g / np.sqrt(now.nu)) * new
        self.history.append(now)
        self._check()

    def _check(self) -> None:
        """Raise if a variance is negative beyond rounding."""
        if not np.min(self.var, initial=0.0) >= -_ROUNDING * np.max(self.prior_var, initial=0.0):
            row = int(np.argmin(self.var))
            raise NotPositiveDefiniteError(
                f"the covariance matrix of {len(self.var)} rows is not positive definite: {self.size} of "
                f"them leave row {row} a variance of {self.var[row]:.3g}. Use a kernel that is a covariance "
                "function."
            )

    def sites(self) -> Sites:
        """The sites of the absorbed points."""
        moments = np.array([h[1:5] for h in self.history], dtype=np.float64).reshape(-1, 4).T
        return Sites(*site_moments(*moments), sum(h.silent for h in self.history))

    @property
    def gains(self) -> FloatArray:
        """(size,) what each absorbed row told, nats: the fall of the entropy at its marginal then."""
        explained = np.array([now.nu * now.var for now in self.history])
        return -0.5 * np.log1p(-np.minimum(explained, 1.0 - 2.0**-53))

    @property
    def log_evidence(self) -> float:
        """Of the absorbed rows, each given those before it."""
        return float(sum(now.log_z for now in self.history))


def include_moments(
    noise: NoiseModel, y: FloatArray, mean: FloatArray, var: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, np.ndarray]:
    """log_z, g and nu with which rows would be absorbed, and which of them are silent (see above)."""
    log_z, g, nu = noise.log_partition(y, mean, var)
    if noise.log_concave:
        return log_z, g, np.maximum(nu, PRECISION_FLOOR), np.zeros(len(nu), dtype=bool)
    silent = ~speaks(log_z, g, nu, var)
    return log_z, np.where(silent, 0.0, g), np.where(silent, PRECISION_FLOOR, nu), silent


def site_moments(
    mean: FloatArray, var: FloatArray, g: FloatArray, nu: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean and precision of the sites of rows that were absorbed at these moments."""
    # LPJ05 eqs. 17 and 18; a prior variance of 1e16 times the noise leaves nothing of 1 - nu var.
    left = np.maximum(1.0 - nu * var, 2.0**-53)
    return mean + g / nu, nu / left


def filter_all(block: Block, K: FloatArray, mean: FloatArray | None = None) -> Filter:
    """The filter after all rows of a block, in their order, from the prior N(mean, K). O(n^3)."""
    state = Filter(block.y, block.noise, np.diagonal(K), mean)
    for n in range(len(block)):
        state.include(n, K[n])
    return state


def filter_in_order(kernel, block: Block) -> Sites:
    """Sites of all rows: what turns points chosen by any rule into an active set with sites."""
    return filter_all(block, kernel(block.X)).sites()
