"""The spread of predictions in a large table: intervals that cover left-out rows as often as they should.

One kernel and one noise variance do not fit every part of a large table. The variances of a neighbourhood (of
the function and of the noise) have a factor that its k rows show,

    spread (nu + r^T (H_N + 1 / precision)^-1 r) / (nu + k),    r = m_N - F_N E u,

as in a Student process (Shah, Wilson & Ghahramani 2014), whose scale is drawn anew in every neighbourhood. nu
is the number of rows that what is usual counts for: `usual_rows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import chi2

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.local import LocalPosterior
from gleangp.models.decisions import Decision
from gleangp.models.defaults import Conditioning
from gleangp.models.local.data import some_of

_LEAST_LEFT = 1e-6  # of its variance, that a row leaves when it is taken out: rounding can leave less


def choose_spread(
    posterior: LocalPosterior, conditioning: Conditioning, rng: np.random.Generator
) -> tuple[dict[str, Any], list[Decision]]:
    """Fields of the posterior with which left-out rows of large tasks lie in their intervals; none of others.

    At every level of `usual_rows`, the spread is that with which 95 % of the rows, each predicted from the
    others, lie in their 95 % intervals. The level is that with the narrowest intervals, on average of their
    logarithms.
    """
    c, covered, rows = conditioning, conditioning.coverage, in_neighbourhoods(posterior)
    if not len(rows):
        return {}, []
    rows = rows[some_of(len(rows), c.left_out, rng)]
    residual, var, scales = left_out(posterior, rows, c.usual_rows)
    ratio = residual**2 / var
    spreads = np.quantile(ratio / scales, covered, axis=1) / chi2.ppf(covered, 1)
    spreads = np.maximum(spreads, c.least_spread)
    best = int(np.argmin(np.log(spreads) + np.mean(np.log(scales), axis=1)))
    found: dict[str, Any] = {"spread": float(spreads[best]), "usual_rows": c.usual_rows[best]}
    before = float(np.mean(ratio <= chi2.ppf(covered, 1)))
    reason = (
        f"Of {len(rows)} left-out rows {covered:.0%} lie in their intervals with this factor of the "
        f"variances, and {before:.1%} without. A neighbourhood has a factor of its own, from its rows."
    )
    numbers = {**found, "rows": float(len(rows)), "covered without": before}
    return found, [Decision("spread", f"{found['spread']:.3g}", numbers, reason)]


def in_neighbourhoods(posterior: LocalPosterior) -> IntArray:
    """Rows of the tasks that have several blocks."""
    large = [t for t in range(len(posterior.terms[0].own)) if posterior.has_neighbourhoods(t)]
    return np.flatnonzero(np.isin(posterior.codes, large))


def left_out(
    posterior: LocalPosterior, rows: IntArray, levels: Sequence[float]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Residuals and variances (n,) of sites in neighbourhoods, each predicted from the others.

    Also the scales of their neighbourhoods (len(levels), n), at levels of `usual_rows`. The variance is
    that of `predict` and the noise, without spread. Let t be the variance of the site given its
    neighbours and u, and s = g^T S g. The site has informed u. Taking it out again divides the residual
    by 1 - s / t, and the variance t + s becomes t / (1 - s / t).
    """
    q = posterior

    def others(X: FloatArray, task: int) -> IntArray:
        near = q.nearest(X, task)
        keep = near != rows[q.codes[rows] == task, None]
        keep[keep.all(axis=1), -1] = False  # it has as many rows with the same inputs
        return near[keep].reshape(len(near), -1)

    residual, var = np.empty((2, len(rows)))
    scales = np.empty((len(levels), len(rows)))
    for part, found in q.conditionals(q.X[rows], q.codes[rows], others, True):
        at = rows[part]
        given = found.of_rows.ravel() + 1.0 / q.precision[at]
        left = np.maximum(1.0 - found.of_basis.ravel() / given, _LEAST_LEFT)
        residual[part] = (q.site_mean[at] - found.mean.ravel()) / left
        var[part] = given / left
        scales[:, part] = [found.scale(nu) for nu in levels]
    return residual, var, scales
