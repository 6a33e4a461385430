"""Left-out predictions and what follows from them: the spread of intervals, who helps whom; rows to label.

Spread. One kernel and one noise variance do not fit every part of a large table. The variances of a
neighbourhood (of the function and of the noise) have a factor that its k rows show,

    spread (nu + r^T (H_N + 1 / precision)^-1 r) / (nu + k),    r = m_N - F_N E u,

as in a Student process (Shah, Wilson & Ghahramani 2014), whose scale is drawn anew in every neighbourhood. nu
is the number of rows that what is usual counts for: `usual_rows`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats
from scipy.optimize import brentq

from gleangp._typing import FloatArray, IntArray
from gleangp.data.tasks import filled_blocks
from gleangp.inference.block import lay_out
from gleangp.inference.evidence import LOG_TWO_PI, condition, row_inverse
from gleangp.inference.local import LocalPosterior
from gleangp.inference.prior import BlockPrior, Term, covariance, white_variance
from gleangp.kernels.evaluate import length_scales
from gleangp.models.decisions import Decision, in_standard_errors
from gleangp.models.defaults import ANSWERS, HELD_OUT, Conditioning
from gleangp.models.local.data import blocks_of_tasks, known_of_rows, some_of
from gleangp.models.local.model import LocalModel
from gleangp.noise.classes import class_log_probabilities, log_mean
from gleangp.numerics.linalg import cholesky, inverse_from_cholesky
from gleangp.numerics.parallel import on_one_thread

_LEAST_LEFT = 1e-6  # of its variance, that a row leaves when it is taken out: rounding can leave less


def choose_spread(posterior: LocalPosterior, conditioning: Conditioning, rng) -> Decision | None:
    """The spread with which left-out rows of large tasks lie in their intervals; None without such tasks.

    At every level of `usual_rows`, the spread is that with which 95 % of the rows, each predicted from the
    others, lie in their 95 % intervals. The level is that with the narrowest intervals, on average of their
    logarithms.
    """
    c, covered, rows = conditioning, conditioning.coverage, in_neighbourhoods(posterior)
    if not len(rows):
        return None
    rows = rows[some_of(len(rows), c.left_out, rng)]
    residual, var, scales = left_out(posterior, rows, c.usual_rows)
    ratio, limit = residual**2 / var, stats.chi2.ppf(covered, 1)
    spreads = np.maximum(np.quantile(ratio / scales, covered, axis=1) / limit, c.least_spread)
    best = int(np.argmin(np.log(spreads) + np.mean(np.log(scales), axis=1)))
    spread = float(spreads[best])
    before = float(np.mean(ratio <= limit))
    reason = (
        f"Of {len(rows)} left-out rows {covered:.0%} lie in their intervals with this factor of the "
        f"variances, and {before:.1%} without. A neighbourhood has a factor of its own, from its rows."
    )
    numbers = {"spread": spread, "usual_rows": c.usual_rows[best], "rows": float(len(rows))}
    return Decision("spread", f"{spread:.3g}", {**numbers, "covered without": before}, reason)


def in_neighbourhoods(posterior: LocalPosterior) -> IntArray:
    """Rows of the tasks that have several blocks."""
    large = [t for t in range(len(posterior.terms[0].own)) if posterior.has_neighbourhoods(t)]
    return np.flatnonzero(np.isin(posterior.codes, large))


def left_out(q: LocalPosterior, rows: IntArray, levels: Sequence[float]) -> tuple[FloatArray, ...]:
    """Residuals and variances (n,) of sites in neighbourhoods, each predicted from the others.

    Also the scales of their neighbourhoods (len(levels), n), at levels of `usual_rows`. The variance is
    that of `predict` and the noise, without spread. Let t be the variance of the site given its
    neighbours and u, and s = g^T S g. The site has informed u. Taking it out again divides the residual
    by 1 - s / t, and the variance t + s becomes t / (1 - s / t).
    """

    def others(X: FloatArray, task: int) -> IntArray:
        near = q.nearest(X, task)
        keep = near != rows[q.codes[rows] == task, None]
        keep[keep.all(axis=1), -1] = False  # it has as many rows with the same inputs
        return near[keep].reshape(len(near), -1)

    (residual, var), scales = np.empty((2, len(rows))), np.empty((len(levels), len(rows)))
    for part, found in q.conditionals(q.X[rows], q.codes[rows], others, True):
        at = rows[part]
        given = found.of_rows.ravel() + 1.0 / q.precision[at]
        left = np.maximum(1.0 - found.of_basis.ravel() / given, _LEAST_LEFT)
        residual[part] = (q.site_mean[at] - found.mean.ravel()) / left
        var[part] = given / left
        scales[:, part] = [found.scale(nu) for nu in levels]
    return residual, var, scales


@dataclass(frozen=True)
class TaskTransfer:
    """What the other tasks contribute to the predictions of one task.

    Attributes
    ----------
    task : object
        Its name.
    n_rows : int
        Its rows.
    with_others : float
        Mean log score of its rows, each predicted from all other rows of all tasks (nats per row): the log
        density of a measurement, the log probability of a label.
    alone : float
        The same from its own other rows only, under the same parameters.
    gain : float
        `with_others - alone`: positive where the other tasks help.
    leans_on : tuple
        Names of up to three tasks whose rows move its left-out predictions most, the largest first.
    better_without : tuple
        Those of them on which it should not lean: without their rows, the left-out log score of its rows is
        higher by more than two standard errors.
    """

    task: object
    n_rows: int
    with_others: float
    alone: float
    gain: float
    leans_on: tuple[object, ...]
    better_without: tuple[object, ...]


def leave_one_out(q: LocalPosterior, terms: Sequence[Term] | None = None) -> tuple[FloatArray, FloatArray]:
    """Mean and variance (n,) of every site that informed the posterior, predicted from all others.

    With C the covariance of the sites and alpha = C^-1 m, leaving out row i gives the mean
    m_i - alpha_i / c_i and the variance 1 / c_i, c_i the i-th diagonal entry of C^-1 (Rasmussen & Williams
    2006, eq. 5.12). `terms` replace those of the posterior.
    """
    n, terms = q.n_learnt, q.terms if terms is None else terms
    X, codes, precision, mean = q.X[:n], q.codes[:n], site_precision(q)[:n], q.site_mean[:n]
    blocks = [np.arange(n)]
    if not q.together:
        blocks = blocks_of_tasks(codes, X / length_scales(terms[0].kernel, X.shape[1]), q.block_size // 2)
    layout = lay_out(codes, blocks, {task: Z for task, (Z, _) in q.own.items()})
    found = condition(BlockPrior(terms, X, layout, q.Z), precision, precision * mean, also=row_inverse)
    return mean - found.alpha / found.also, 1.0 / found.also


@on_one_thread()
def left_out_predictions(model: LocalModel) -> tuple[FloatArray, FloatArray, IntArray]:
    """Mean and variance (n,) of the targets of the rows of the fit, each from all others, and their tasks."""
    rows = np.arange(len(model.row_numbers))
    means, variances = (np.array(values) for values in zip(*_left_out_functions(model, rows), strict=True))
    mean, var = means.mean(axis=0), variances.mean(axis=0) + means.var(axis=0)
    if not model.gaussian:
        noise = _noise_at(model, rows)
        mean, var = noise.predict_mean(mean, var), noise.regular.predict_var(mean, var)
    return mean, var, model.best.posterior.codes[rows]


def _left_out_functions(model: LocalModel, rows: IntArray) -> list[tuple[FloatArray, FloatArray]]:
    """Mean and variance (n,) of the function at rows of the fit, each from all others, at every draw.

    Gaussian noise is included.
    """
    found = []
    for draw in model.all_draws:
        q = draw.posterior
        mean, var = leave_one_out(q)
        if q.spread is not None:  # as predictions are: from the nearest of the others
            large = np.intersect1d(in_neighbourhoods(q), rows)
            residual, own_var, [scale] = left_out(q, large, [q.usual_rows])
            mean[large], var[large] = q.site_mean[large] - residual, q.spread * scale * own_var
        found.append((mean[rows], var[rows] if model.gaussian else without_site(q, rows, var[rows])))
    return found


@on_one_thread()
def independence_of_classes(models: Sequence[LocalModel]) -> float:
    """The power of 1 - p in the probabilities of classes under which left-out labels are most probable.

    Of models of each class against the rest. The log probability sum_i log P_i,y_i is concave in the power t:
    its slope is sum_i (sum_c P_ic log(1 - p_ic) - log(1 - p_i,y_i)), by `class_log_probabilities`.
    """
    rows = np.arange(len(models[0].row_numbers))
    y = np.argmax([model.targets["y"] for model in models if model.targets], axis=0)
    found = []
    for model in models:
        noise, functions = _noise_at(model, rows), _left_out_functions(model, rows)
        found.append(log_mean([noise.class_log_prob(*function) for function in functions]))
    log_rest = np.column_stack([log_q for log_q, _ in found])

    def slope(t: float) -> float:
        shares = np.exp(class_log_probabilities(found, t))
        return float(np.sum(shares * log_rest) - np.sum(log_rest[rows, y]))

    if slope(0.0) <= 0.0:
        return 0.0
    return 1.0 if slope(1.0) >= 0.0 else float(brentq(slope, 0.0, 1.0))


def without_site(posterior: LocalPosterior, rows: IntArray, var: FloatArray) -> FloatArray:
    """Variance of the function at rows, from that of their left-out sites."""
    return np.maximum(var - 1.0 / site_precision(posterior)[rows], 1e-12)


def site_precision(posterior: LocalPosterior) -> FloatArray:
    """(n,) above zero: a site without information has next to none."""
    return np.maximum(posterior.precision, 1e-12)


def _noise_at(model: LocalModel, rows: IntArray) -> Any:
    """The noise of rows that were learnt from, which is not Gaussian."""
    q = model.best.posterior
    known = {name: values[rows] for name, values in (model.targets or {}).items() if name != "y"}
    return model.noise_of_rows(q.X[rows], q.codes[rows], replace(model.noise, **known))


def left_out_scores(model: LocalModel, rows: IntArray, residual: FloatArray, precision: Any) -> FloatArray:
    """Log scores of targets that are left out, from the residual of their sites and its precision.

    With Gaussian noise the site is the target. With any other, v being the variance of the left-out site, the
    latent value has the variance v - 1 / precision of the site, and the score is the log partition function.
    """
    if model.targets is None:
        return 0.5 * (np.log(precision) - LOG_TWO_PI - precision * residual**2)
    q = model.best.posterior
    at = q.site_mean[rows] - residual, without_site(q, rows, 1.0 / precision)
    return _noise_at(model, rows).log_partition(model.targets["y"][rows], *at)[0]


@on_one_thread()
def transfer_report(models: Sequence[LocalModel], names: list, log_units: Any = None) -> list[TaskTransfer]:
    """What every task with rows gains from the others, by left-out log scores; those of models add up.

    `log_units` (M,) is the logarithm of the unit of the targets of each task; None: there is none.
    """
    first = models[0].best.posterior
    codes = first.codes[: first.n_learnt]
    some, every = _some_rows(codes), np.arange(len(codes))
    together, alone = np.zeros((2, len(codes)))
    for model in models:
        q = model.best.posterior
        apart = tuple(replace(t, loadings=t.loadings[:, :0], own=t.within) for t in q.terms)
        for total, terms in ((together, q.terms), (alone, apart)):
            mean, var = leave_one_out(q, terms)
            total += left_out_scores(model, every, q.site_mean[: len(codes)] - mean, 1.0 / var)
    parts = [without_each_task(model, some) for model in models]
    siblings = parts[0][0]
    gained, moved = (np.sum([part[i] for part in parts], axis=0) for i in (1, 2))
    report = []
    for task in np.unique(codes):
        rows, at = codes == task, codes[some] == task
        leans = []
        if at.any():
            shift = moved[at].mean(axis=0)
            leans = [s for s in np.argsort(-shift, kind="stable")[: ANSWERS.n_named] if shift[s] > 0.0]
        harmed = [s for s in leans if _clearly_negative(gained[at, s])]
        unit = 0.0 if log_units is None else log_units[task]
        both = float(together[rows].mean() - unit), float(alone[rows].mean() - unit)
        named = (tuple(names[siblings[s]] for s in tasks) for tasks in (leans, harmed))
        report.append(TaskTransfer(names[task], int(rows.sum()), *both, both[0] - both[1], *named))
    return report


def without_each_task(model: LocalModel, some: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
    """What the rows of every task contribute to the left-out prediction of every row of another.

    Gives the k tasks that have rows, and two arrays (len(some), k): the log score with the task minus that
    without it, and how far the mean moves. Only the rows `some` are used. With P = C^-1, leaving out the rows
    S of a task turns P into P - P_.S P_SS^-1 P_S. and alpha into alpha - P_.S P_SS^-1 alpha_S.
    """
    q = model.best.posterior
    X, codes = q.X[some], q.codes[some]
    C = covariance(q.terms, X, codes, X, codes)
    C.flat[:: len(C) + 1] += 1.0 / site_precision(q)[some] + white_variance(q.terms, X, codes)
    P = inverse_from_cholesky(cholesky(C)[0])
    alpha, diagonal = P @ q.site_mean[some], np.diagonal(P)
    tasks = np.unique(codes)
    gained, moved = np.zeros((2, len(some), len(tasks)))
    for k, task in enumerate(tasks):
        S, rest = codes == task, codes != task
        back = np.linalg.solve(P[np.ix_(S, S)], P[np.ix_(S, rest)])
        after = alpha[rest] - alpha[S] @ back
        left = diagonal[rest] - np.einsum("sr,sr->r", P[np.ix_(S, rest)], back)
        before, rows = alpha[rest] / diagonal[rest], some[rest]
        gained[rest, k] = left_out_scores(model, rows, before, diagonal[rest])
        gained[rest, k] -= left_out_scores(model, rows, after / left, left)
        moved[rest, k] = np.abs(before - after / left)
    return tasks, gained, moved


def _some_rows(codes: IntArray, most: int = ANSWERS.most_rows, least: int = ANSWERS.least_rows) -> IntArray:
    """Up to `most` rows, evenly from every task; from fewer tasks where that gives under `least` of each."""
    rows = [part for _, part in filled_blocks(codes)]
    share = min(max(least, most // len(rows)), max(map(len, rows)))
    return np.sort(np.concatenate([_evenly(part, share) for part in _evenly(rows, most // share)]))


def _evenly(values: Any, count: int) -> list[Any]:
    """So many of the values, evenly spread; all if there are fewer."""
    return [values[int(k)] for k in np.linspace(0, len(values) - 1, min(len(values), count))]


def _clearly_negative(d: FloatArray) -> bool:
    """Whether a mean is below zero by two standard errors; with few values, by as much as is as rare."""
    if len(d) < 2:
        return False
    limit = stats.t.isf(stats.norm.sf(HELD_OUT.clear), len(d) - 1)
    return in_standard_errors(d) < -limit


def choose_informative(cov: FloatArray, noise: FloatArray, count: int, *, of_classes=False) -> IntArray:
    """Rows whose labels, not known yet, would be most useful, the most useful first.

    `cov` (k, m, m) and `noise` (k, m) are of k functions, all of which a label of a row informs. Greedy: a
    label of row i with noise variance s_i reduces the sum of the variances of all rows by
    sum_j cov_ij^2 / (cov_ii + s_i), and the covariance is updated before the next choice, so that rows do
    not repeat each other. Of classes what counts is the information on the functions, log(1 + cov_ii / s_i),
    since variances far from a boundary matter little.
    """
    cov = np.array(cov)
    chosen: list[int] = []
    for _ in range(min(count, cov.shape[1])):
        total = np.maximum(np.diagonal(cov, axis1=1, axis2=2) + noise, np.finfo(float).tiny)
        if of_classes:
            left = np.maximum(total - noise, 0.0)
            gain = np.sum(np.log1p(left / np.maximum(noise, np.finfo(float).tiny)), axis=0)
        else:
            gain = np.sum(np.einsum("kij,kij->ki", cov, cov) / total, axis=0)
        gain[chosen] = -np.inf
        best = int(np.argmax(gain))
        column = cov[:, :, best] / np.sqrt(total[:, best, None])
        cov -= column[:, :, None] * column[:, None, :]
        chosen.append(best)
    return np.array(chosen, dtype=np.intp)


def noise_of_labels(noise: Any, mean: FloatArray, cov: FloatArray) -> FloatArray:
    """Noise (m,) of a label, category or count on the scale of the latent function.

    A target that is not known yet changes the latent variance v by v^2 nu, where nu is expected under the
    predictive probabilities: that of a measurement with the noise variance 1 / nu - v.
    """
    noise = replace(noise, **dict.fromkeys(known_of_rows(noise), 1.0))
    var = np.diagonal(cov)
    outcomes: list[tuple[Any, FloatArray]]  # with their probabilities; of numbers, middles of equal parts
    if hasattr(noise, "class_log_prob"):
        outcomes = [*zip((-1.0, 1.0), np.exp(noise.class_log_prob(mean, var)), strict=True)]
    elif hasattr(noise, "n_categories"):
        ranks = range(noise.n_categories)
        outcomes = [(y, np.exp(noise.log_partition(y, mean, var)[0])) for y in ranks]
    else:
        n = ANSWERS.n_outcomes
        levels = (np.arange(n) + 0.5) / n
        outcomes = [(noise.predict_quantile(mean, var, q), np.full(len(mean), 1.0 / n)) for q in levels]
    nu = np.sum([share * noise.precision(y, mean, var) for y, share in outcomes], axis=0)
    return np.maximum(1.0 / np.maximum(nu, np.finfo(float).tiny) - var, 0.0)
