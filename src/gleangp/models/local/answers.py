"""Questions to a fitted model: left-out predictions, who helps whom, which rows to label next."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.evidence import condition, row_inverse
from gleangp.inference.local import LocalPosterior, length_scales
from gleangp.inference.prior import BlockPrior, Term, lay_out
from gleangp.models.local.data import Data, blocks_of_tasks

_LOG_TWO_PI = np.log(2.0 * np.pi)


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
        Mean log density of its rows, each predicted from all other rows of all tasks (nats per row).
    alone : float
        The same from its own other rows only, under the same parameters.
    gain : float
        `with_others - alone`: positive where the other tasks help.
    leans_on : tuple
        Names of the tasks whose rows move its predictions most, the largest first.
    """

    task: object
    n_rows: int
    with_others: float
    alone: float
    gain: float
    leans_on: tuple[object, ...]


def leave_one_out(
    posterior: LocalPosterior, terms: tuple[Term, ...] | None = None
) -> tuple[FloatArray, FloatArray]:
    """Mean and variance (n,) of every site that informed the posterior, predicted from all others.

    With C the covariance of the sites and alpha = C^-1 m, leaving out row i gives the mean
    m_i - alpha_i / c_i and the variance 1 / c_i, c_i the i-th diagonal entry of C^-1 (Rasmussen & Williams
    2006, eq. 5.12). `terms` replace those of the posterior.
    """
    n = posterior.n_learnt
    X, codes = posterior.X[:n], posterior.codes[:n]
    precision, mean = posterior.precision[:n], posterior.site_mean[:n]
    terms = posterior.terms if terms is None else terms
    if posterior.together:
        layout, Z = lay_out(codes, [np.arange(n)]), posterior.Z
    else:
        data = Data(X, mean, codes, len(terms[0].own), np.ones(n))
        scaled = X / length_scales(terms[0].kernel, X.shape[1])
        blocks = blocks_of_tasks(data, scaled, posterior.block_size // 2)
        layout = lay_out(codes, blocks, {task: Z for task, (Z, _) in posterior.own.items()})
        Z = posterior.Z
    prior = BlockPrior(terms, X, layout, Z)
    q = condition(prior, precision, precision * mean, also=row_inverse)
    return mean - q.alpha / q.also, 1.0 / q.also


def transfer_report(posterior: LocalPosterior, names: list[object], n_named: int = 3) -> list[TaskTransfer]:
    """What every task with rows gains from the others, by left-out log densities."""
    n, codes = posterior.n_learnt, posterior.codes[: posterior.n_learnt]
    y = posterior.site_mean[:n]

    def density(terms: tuple[Term, ...] | None) -> FloatArray:
        mean, var = leave_one_out(posterior, terms)
        return -0.5 * (_LOG_TWO_PI + np.log(var) + (y - mean) ** 2 / var)

    apart = tuple(replace(t, loadings=t.loadings[:, :0], own=t.within) for t in posterior.terms)
    together, alone = density(None), density(apart)
    influence = _influence(posterior)
    report = []
    for task in np.unique(codes):
        rows = codes == task
        order = np.argsort(-influence[task], kind="stable")
        leans = [names[other] for other in order[:n_named] if influence[task, other] > 0.0]
        both = float(together[rows].mean()), float(alone[rows].mean())
        report.append(TaskTransfer(names[task], int(rows.sum()), *both, both[0] - both[1], tuple(leans)))
    return report


def _influence(posterior: LocalPosterior) -> FloatArray:
    """(M, M) how far the rows of a task (column) move the mean of another (row), on average over its rows.

    The part of the mean that is due to rows of task s is K(., X_s) alpha_s over the shared functions.
    """
    n, codes = posterior.n_learnt, posterior.codes[: posterior.n_learnt]
    n_tasks = len(posterior.terms[0].own)
    some = np.unique(np.linspace(0, n - 1, min(n, 1000)).astype(np.intp))
    X, at = posterior.X[some], codes[some]
    precision, mean = posterior.precision[some], posterior.site_mean[some]
    K = sum(t.between()[np.ix_(at, at)] * t.kernel(X) for t in posterior.terms)
    alpha = np.linalg.solve(K + np.diag(1.0 / np.maximum(precision, 1e-12)), mean)
    shared = sum((t.loadings @ t.loadings.T)[np.ix_(at, at)] * t.kernel(X) for t in posterior.terms)
    moved = np.zeros((len(some), n_tasks))
    for task in np.unique(at):
        moved[:, task] = shared[:, at == task] @ alpha[at == task]
    influence = np.zeros((n_tasks, n_tasks))
    for task in np.unique(at):
        influence[task] = np.abs(moved[at == task]).mean(axis=0)
    np.fill_diagonal(influence, 0.0)
    return influence


def choose_informative(
    cov: FloatArray, noise: FloatArray, count: int, *, of_classes: bool = False
) -> IntArray:
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
