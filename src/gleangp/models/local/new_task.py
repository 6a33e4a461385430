"""A task added to a fitted model, and new rows of known tasks.

A new task takes what the others taught, as far as its own rows agree. Its offset and its own function may
be larger than those of other tasks, by factors exp(o) and exp(f) with densities exp(-o) and exp(-f) (Pareto
tails), and it may share no function at all: then its common function is a fresh draw of the prior. None of
the M tasks of the fit did, so the odds of that are 1 to M. Where tasks are mixtures of shared functions, a
new one has the weights of one of the others. The evidence of its rows weighs these variants. Every draw of
the hyperparameters takes one of them, in proportion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import logsumexp

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.inference.local import LocalPosterior
from gleangp.inference.prior import Term
from gleangp.inference.row_ep import Marginals, RowSites, labelled_first, sweep_rows
from gleangp.models.defaults import NEW_TASK
from gleangp.models.local.model import Draw, LocalModel, with_average_task
from gleangp.numerics.linalg import cholesky, log_determinant, solve_lower

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
    if len(W) == 0:  # nothing to weigh: the task is like the others
        alike = tuple(with_average_task(term, before.n_tasks_learnt) for term in before.terms)
        return Draw(before.extended(terms=alike), draw.warp, _with_noise(draw, None))
    codes = np.full(len(W), len(before.terms[0].own))
    several = list((_like_one if _is_mixture(before) else _like_all)(before, W, codes))
    found = _settle(draw, np.array([v.mean for v in several]), np.array([v.cov for v in several]), y, noise)
    weights = np.array([v.log_prior for v in several]) + [evidence for evidence, *_ in found]
    weights = np.exp(weights - logsumexp(weights))
    if quantile is None:
        chosen = int(np.argmax(weights))
    else:
        chosen = min(int(np.searchsorted(np.cumsum(weights), quantile)), len(weights) - 1)
    evidence, precision, site_mean, variance = found[chosen]
    posterior = before.extended(terms=several[chosen].terms)
    posterior = with_rows(posterior, W, codes, precision, site_mean, evidence)
    return Draw(posterior, draw.warp, _with_noise(draw, variance))


@dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """What a new task may be."""

    log_prior: float
    terms: tuple[Term, ...]  # with the weights of the new task last
    mean: FloatArray  # (n,) of its rows
    cov: FloatArray  # (n, n)


def _count_learnt(posterior: LocalPosterior) -> int:
    """Tasks of the fit."""
    return len(posterior.terms[0].own) if posterior.n_tasks_learnt is None else posterior.n_tasks_learnt


def _is_mixture(posterior: LocalPosterior) -> bool:
    """Whether tasks differ in how they share functions."""
    learnt = [t.loadings[: posterior.n_tasks_learnt] for t in posterior.terms]
    return any(np.ptp(loadings, axis=0).any() for loadings in learnt)


def _like_one(before: LocalPosterior, W: FloatArray, codes: IntArray) -> Iterator[Variant]:
    """The task has the weights of one of those of the fit, or it shares no function."""
    n_tasks = _count_learnt(before)
    for task in np.unique(np.linspace(0, n_tasks - 1, NEW_TASK.most_like).astype(int)):
        like = tuple(
            replace(t, loadings=np.vstack([t.loadings, t.loadings[task]]), own=np.append(t.own, t.own[task]))
            for t in before.terms
        )
        yield Variant(0.0, like, *before.extended(terms=like).predict_cov(W, codes))
    yield _fresh(before, W, 0.0)


def _like_all(before: LocalPosterior, W: FloatArray, codes: IntArray) -> Iterator[Variant]:
    """Factors of the offset and of the own function of the task, or it shares no function.

    A hierarchy has one shared term, then the offset and the own function; a model of one task has the shared
    term alone. Tasks that share no function have nothing to vary.
    """
    alike = tuple(with_average_task(term, before.n_tasks_learnt) for term in before.terms)
    # Mean and covariance of what the task shares, and prior covariances of what is its own.
    shared = before.extended(terms=tuple(_with_weight(t, 0.0) for t in alike))
    mean, cov = shared.predict_cov(W, codes)
    own = [t.own[-1] * t.kernel(W) for t in alike]
    sharing = [t.loadings.shape[1] > 0 for t in alike]
    hierarchy = sharing[0] and not any(sharing[1:]) and not alike[0].own[: before.n_tasks_learnt].any()
    functions = NEW_TASK.function_factors if hierarchy and len(alike) > 1 else (0.0,)
    offsets = NEW_TASK.offset_factors if hierarchy and len(alike) == 3 else (0.0,)
    # All tasks of the fit were like the others, so the odds of all factors but one are 1 to M.
    tails = {(f, o): -f - o for f in functions for o in offsets}
    if len(tails) > 1:
        unlike = logsumexp(list(tails.values())[1:]) + np.log(_count_learnt(before))
        tails = {at: weight - unlike * (at != (0.0, 0.0)) for at, weight in tails.items()}
    for (f, o), log_prior in tails.items():
        factors = [1.0, np.exp(f)] if len(alike) == 2 else [1.0, np.exp(o), np.exp(f)]
        pairs = list(zip(factors[: len(alike)], alike, strict=False))
        total = cov + sum(factor * K for factor, K in zip(factors, own, strict=False))
        terms = tuple(_with_weight(t, factor * t.own[-1]) for factor, t in pairs)
        yield Variant(log_prior, terms, mean, total)
    if hierarchy:
        for o in offsets:
            weight = logsumexp([tails[f, o] for f in functions])
            fresh = _fresh(before, W, weight - np.log(_count_learnt(before)))
            if len(alike) == 3:
                common, offset, function = fresh.terms
                terms = (common, _with_weight(offset, np.exp(o) * offset.own[-1]), function)
                fresh = replace(fresh, terms=terms, cov=fresh.cov + (np.exp(o) - 1.0) * own[1])
            yield fresh


def _fresh(before: LocalPosterior, W: FloatArray, log_prior: float) -> Variant:
    """The task shares no function: everything of it is a fresh draw of the prior."""
    terms = []
    for term in (with_average_task(t, before.n_tasks_learnt) for t in before.terms):
        within = float(np.mean(term.within[: before.n_tasks_learnt]))
        loadings = np.vstack([term.loadings[:-1], np.zeros((1, term.loadings.shape[1]))])
        terms.append(_with_weight(replace(term, loadings=loadings), within))
    cov = sum((t.own[-1] * t.kernel(W) for t in terms), np.zeros((len(W), len(W))))
    return Variant(log_prior, tuple(terms), np.zeros(len(W)), cov)


def _with_weight(term: Term, weight: float) -> Term:
    """The term with another own weight of the last task."""
    return replace(term, own=np.append(term.own[:-1], weight))


def _settle(draw, means, covs, y, noise) -> list[tuple[float, FloatArray, FloatArray, float | None]]:
    """For every prior of the new rows: log evidence, precision and mean of sites, and the noise variance."""
    if draw.noise.size:
        variance = draw.noise[-1]
        row_variance = variance * noise
        evidences = log_normal(y, means, covs + np.diag(row_variance))
        return [(float(e), 1.0 / row_variance, y, variance) for e in evidences]
    found: list[tuple[float, FloatArray, FloatArray, float | None]] = []
    sites = None
    for mean, cov in zip(means, covs, strict=True):  # neighbours on the grid have nearly the same sites
        sites, evidence = propagate_dense(mean, cov, y, noise, sites)
        found.append((evidence, sites.precision, sites.mean, None))
    return found


def log_normal(y: FloatArray, means: FloatArray, covs: FloatArray) -> FloatArray:
    """(B,) log N(y | mean, cov) of a stack of means (B, n) and covariances (B, n, n)."""
    try:
        chol = np.linalg.cholesky(covs)
    except np.linalg.LinAlgError:  # singular in floating point
        chol = np.array([cholesky(cov)[0] for cov in covs])
    white = np.linalg.solve(chol, (y - means)[:, :, None])[:, :, 0]
    log_det = 2.0 * np.log(np.einsum("bii->bi", chol)).sum(axis=1)
    return -0.5 * ((white * white).sum(axis=1) + log_det + len(y) * _LOG_TWO_PI)


def propagate_dense(
    mean: FloatArray, cov: FloatArray, y: FloatArray, noise: Any, start: RowSites | None = None
) -> tuple[RowSites, float]:
    """Sites of a few rows with latent prior N(mean, cov), and the log evidence."""
    block, marginals = Block(np.zeros((len(y), 0)), y, noise), dense_marginals(mean, cov)
    swept = sweep_rows(block, marginals, start=labelled_first(block, marginals) if start is None else start)
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
    return posterior.extended(
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
