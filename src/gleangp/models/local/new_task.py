"""A task added to a fitted model, and new rows of known tasks.

A new task takes what the others taught, as far as its own rows agree. Its offset and its own function may be
larger than those of other tasks, by factors exp(o) and exp(f) with densities exp(-o) and exp(-f) (Pareto
tails), and with a small probability it shares no function at all: then its common function is a fresh draw
of the prior. The evidence of its rows weighs these variants. Every draw of the hyperparameters takes one of
them, in proportion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import logsumexp

from gleangp._typing import FloatArray
from gleangp.inference.block import Block
from gleangp.inference.local import LocalPosterior
from gleangp.inference.prior import Term
from gleangp.inference.row_ep import Marginals, RowSites, labelled_first, sweep_rows
from gleangp.linalg import cholesky, log_determinant, solve_lower
from gleangp.models.defaults import NEW_TASK
from gleangp.models.local.model import Draw, LocalModel, with_average_task

_LOG_TWO_PI = np.log(2.0 * np.pi)


def add_task(model: LocalModel, X: FloatArray, y: FloatArray, noise: Any) -> LocalModel:
    """The model with one more task; `noise` is that of its rows, as in `Data.noise`."""
    draws = model.all_draws
    added = [
        _with_task(draw, model.inputs(X, draw.warp), y, noise, (k + 0.5) / len(draws))
        for k, draw in enumerate(draws)
    ]
    best = (
        added[0]
        if not model.draws
        else _with_task(model.best, model.inputs(X, model.best.warp), y, noise, None)
    )
    return replace(model, best=best, draws=tuple(added) if model.draws else (), n_rows=model.n_rows + len(y))


def _with_task(draw: Draw, W: FloatArray, y: FloatArray, noise: Any, quantile: float | None) -> Draw:
    """The draw with the new task as the variant at that quantile of the weights; None: the best one."""
    before = draw.posterior
    alike = tuple(with_average_task(term, before.n_tasks_learnt) for term in before.terms)
    if len(W) == 0:  # nothing to weigh: the task is like the others
        return Draw(replace(before, terms=alike), draw.warp, _with_noise(draw, None))
    codes = np.full(len(W), len(before.terms[0].own))
    # Mean and covariance of what the task shares, and prior covariances of what is its own.
    shared = replace(before, terms=tuple(_with_weight(t, 0.0) for t in alike))
    mean, cov = shared.predict_cov(W, codes)
    own = [t.own[-1] * t.kernel(W) for t in alike]
    found = []
    for log_prior, factors, fresh in variants(alike, before.n_tasks_learnt):
        centre, spread = (
            (np.zeros(len(W)), alike[0].within[-1] * alike[0].kernel(W)) if fresh else (mean, cov)
        )
        total = spread + sum(f * K for f, K in zip(factors, own, strict=True))
        result = _settle(draw, centre, total, y, noise)
        found.append((log_prior + result[0], factors, fresh, result))
    weights = np.array([f[0] for f in found])
    weights = np.exp(weights - logsumexp(weights))
    if quantile is None:
        chosen = int(np.argmax(weights))
    else:
        chosen = min(int(np.searchsorted(np.cumsum(weights), quantile)), len(weights) - 1)
    _, factors, fresh, (evidence, precision, site_mean, variance) = found[chosen]
    terms = [_with_weight(t, f * t.own[-1]) for t, f in zip(alike, factors, strict=True)]
    if fresh:
        terms[0] = _with_weight(
            replace(alike[0], loadings=_without_last(alike[0].loadings)), alike[0].within[-1]
        )
    posterior = with_rows(replace(before, terms=tuple(terms)), W, codes, precision, site_mean, evidence)
    return Draw(posterior, draw.warp, _with_noise(draw, variance))


def variants(terms: tuple[Term, ...], n_learnt: int | None) -> Iterator[tuple[float, list[float], bool]]:
    """Log prior weight, factors of the own weights of the terms, and whether no function is shared.

    A hierarchy has one shared term, then the offset and the own function; a model of one task has the shared
    term alone. Tasks that share no function, or are mixtures of several, have nothing to vary.
    """
    shared = [t.loadings.shape[1] > 0 for t in terms]
    if not shared[0] or any(shared[1:]) or terms[0].own[:n_learnt].any():
        yield 0.0, [1.0] * len(terms), False
        return
    functions = NEW_TASK.function_factors if len(terms) > 1 else (0.0,)
    offsets = NEW_TASK.offset_factors if len(terms) == 3 else (0.0,)
    grid = [(f, o) for f in functions for o in offsets]
    for f, o in grid:
        factors = {1: [1.0], 2: [1.0, np.exp(f)], 3: [1.0, np.exp(o), np.exp(f)]}[len(terms)]
        yield np.log1p(-NEW_TASK.fresh) - f - o, factors, False
    total = logsumexp([-f - o for f, o in grid])
    yield np.log(NEW_TASK.fresh) + total, [1.0] * len(terms), True


def _with_weight(term: Term, weight: float) -> Term:
    """The term with another own weight of the last task."""
    return replace(term, own=np.append(term.own[:-1], weight))


def _without_last(loadings: FloatArray) -> FloatArray:
    return np.vstack([loadings[:-1], np.zeros((1, loadings.shape[1]))])


def _settle(draw, mean, cov, y, noise) -> tuple[float, FloatArray, FloatArray, float | None]:
    """Log evidence of the new rows, precision and mean of their sites, and the noise variance."""
    if draw.noise.size:
        variance = draw.noise[-1]
        row_variance = variance * noise
        return log_normal(y, mean, cov + np.diag(row_variance)), 1.0 / row_variance, y, variance
    sites, evidence = propagate_dense(mean, cov, y, noise)
    return evidence, sites.precision, sites.mean, None


def log_normal(y: FloatArray, mean: FloatArray, cov: FloatArray) -> float:
    """log N(y | mean, cov)."""
    chol = cholesky(cov)[0]
    white = solve_lower(chol, y - mean)
    return -0.5 * (float(white @ white) + log_determinant(chol) + len(y) * _LOG_TWO_PI)


def propagate_dense(mean: FloatArray, cov: FloatArray, y: FloatArray, noise: Any) -> tuple[RowSites, float]:
    """Sites of a few rows with latent prior N(mean, cov), and the log evidence."""
    block, marginals = Block(np.zeros((len(y), 0)), y, noise), dense_marginals(mean, cov)
    swept = sweep_rows(block, marginals, start=labelled_first(block, marginals))
    return swept.sites, swept.evidence


def dense_marginals(mean: FloatArray, cov: FloatArray) -> Callable[[RowSites], Marginals]:
    """From sites to marginals of rows with latent prior N(mean, cov)."""

    def marginals(sites: RowSites) -> Marginals:
        root = np.sqrt(sites.precision)
        chol = cholesky(np.eye(len(mean)) + root[:, None] * cov * root)[0]
        half = solve_lower(chol, np.ascontiguousarray(root[:, None] * cov))
        var = np.diagonal(cov) - np.einsum("ij,ij->j", half, half)
        moved = sites.shift - sites.precision * mean
        after = mean + cov @ moved - half.T @ (half @ moved)
        # shift^T E f - log_det is twice log Z of the sites; with a prior mean it has two more parts.
        log_z2 = float(moved @ (after - mean) + 2.0 * sites.shift @ mean - sites.precision @ mean**2)
        log_z2 -= log_determinant(chol)
        return Marginals(after, np.maximum(var, 1e-300), float(sites.shift @ after) - log_z2, None)

    return marginals


def with_rows(posterior: LocalPosterior, W, codes, precision, site_mean, evidence) -> LocalPosterior:
    """The posterior with rows that belong to added tasks."""
    return replace(
        posterior,
        X=np.vstack([posterior.X, W]),
        codes=np.append(posterior.codes, codes),
        precision=np.append(posterior.precision, precision),
        site_mean=np.append(posterior.site_mean, site_mean),
        log_evidence=posterior.log_evidence + evidence,
    )


def _with_noise(draw: Draw, variance: float | None) -> FloatArray:
    """Noise variances with that of the new task; that of a further new task stays last."""
    if not draw.noise.size:
        return draw.noise
    return np.append(draw.noise[:-1], [draw.noise[-1] if variance is None else variance, draw.noise[-1]])
