"""A task added to a fitted model, and new rows of known tasks.

A new task takes what the others taught, as far as its own rows agree. Its offset and its own function may
be larger than those of other tasks, by factors exp(o) and exp(f) with densities exp(-o) and exp(-f) (Pareto
tails), and it may share no function at all: then its common function is a fresh draw of the prior. None of
the M tasks of the fit needed a larger own function or a fresh one, so the odds of each are 1 to M.

Its noise is that of one of the others. Where all of these have the same (the dispersion of counts), it may
be larger by a factor exp(n) with density exp(-n): unexpected counts can be a new level or more noise. Where
tasks are mixtures of shared functions, a new one has weights near those of one of the others.

The evidence of its rows weighs these variants. Every draw of the hyperparameters takes one of them, in
proportion; without draws it is the one in the middle of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import logsumexp

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block, lay_out
from gleangp.inference.evidence import condition, gaussian_evidence
from gleangp.inference.local import LocalPosterior
from gleangp.inference.prior import BlockPrior, Term
from gleangp.inference.propagate import log_normal, propagate_dense
from gleangp.models.defaults import NEW_TASK
from gleangp.models.local.data import blocks_of_tasks, targets_of
from gleangp.models.local.model import Draw, LocalModel, with_average_task
from gleangp.noise import Gaussian


def with_task(draw: Draw, W: FloatArray, y: FloatArray, noise: Any, quantile: float | None) -> Draw:
    """The draw with the new task as the variant at that quantile of the weights; None: in their middle."""
    before, variances, n_learnt = draw.posterior, draw.noise, draw.posterior.n_tasks_learnt
    alike = tuple(with_average_task(term, n_learnt) for term in before.terms)
    if len(W) == 0:  # nothing to weigh: the task is like the others
        posterior, variance = before.extended(terms=alike), variances[-1] if variances.size else 0.0
    else:
        task = len(before.terms[0].own)
        codes = np.full(len(W), task)
        mixture = any(np.ptp(t.loadings[:n_learnt], axis=0).any() for t in before.terms)
        alone = draw, alike, W, codes
        several = _like_one(*alone) if mixture else _like_all(*alone, noise.tasks_alike)
        covs = several.cov + np.einsum("vk,kij->vij", several.own, np.array([t.kernel(W) for t in alike]))
        evidences, precisions, site_means = _settle(several.mean, covs, y, noise, several.noise)
        weights = several.log_prior + evidences
        weights = np.exp(weights - logsumexp(weights))
        if quantile is None:
            chosen = several.middle(weights)
        else:
            chosen = min(int(np.searchsorted(np.cumsum(weights), quantile)), len(weights) - 1)
        variance = several.noise[chosen]
        posterior = before.extended(terms=_last_as(alike, several.loadings[chosen], several.own[chosen]))
        found = precisions[chosen], site_means[chosen], float(evidences[chosen])
        posterior = posterior.extended(**_grown(posterior, len(posterior.X), W, codes, *found))
    if variances.size:  # that of a further new task stays last
        variances = np.append(variances[:-1], [float(variance), variances[-1]])
    return Draw(posterior, draw.warp, variances)


@dataclass(frozen=True, slots=True, eq=False)
class Variants:
    """What a new task may be: V variants of K terms."""

    log_prior: FloatArray  # (V,)
    loadings: FloatArray  # (V, D) weights of what it shares, those of the first term first
    own: FloatArray  # (V, K) weights of what is its own
    mean: FloatArray  # (V, n) of what it shares, at its rows
    cov: FloatArray  # (V, n, n)
    noise: FloatArray  # (V,) variance; zero: tasks share all parameters of the noise

    def middle(self, weights: FloatArray) -> int:
        """The variant nearest to the medians of all, among those that share or those that do not."""
        alone = ~self.loadings.any(axis=1)
        group = np.flatnonzero(alone == (weights[alone].sum() > 0.5))
        logs = np.log(np.maximum(np.column_stack([self.own, self.noise]), 1e-100))
        places = np.column_stack([self.loadings, logs])[group]
        order = np.argsort(places, axis=0)
        share = np.cumsum(weights[group][order], axis=0) / weights[group].sum()
        at = np.take_along_axis(order, (share < 0.5).sum(axis=0)[None], axis=0)
        medians = np.take_along_axis(places, at, axis=0)
        return int(group[np.argmin(((places - medians) ** 2).sum(axis=1))])


def _like_one(draw: Draw, alike: tuple[Term, ...], W: FloatArray, codes: IntArray) -> Variants:
    """The task is like one of those of the fit, or it shares no function.

    Its noise and what is its own are those of that task. Its weights are near: they are draws of a kernel
    density estimate of the weights of the fit, with Scott's width, drawn together so that the estimate has
    their covariance (West 1993).
    """
    before, rng = draw.posterior, np.random.default_rng(0)
    n_tasks = before.n_tasks_learnt or len(before.terms[0].own)
    tasks = rng.integers(n_tasks, size=NEW_TASK.n_mixtures)
    learnt = np.hstack([t.loadings[:n_tasks] for t in before.terms])
    D, centre = learnt.shape[1], learnt.mean(axis=0)
    width = n_tasks ** (-1.0 / (D + 4.0))
    weights = rng.multivariate_normal(np.zeros(D), np.atleast_2d(np.cov(learnt.T, bias=True)), len(tasks))
    weights = centre + np.sqrt(1.0 - width**2) * (learnt[tasks] - centre) + width * weights
    # f = sum_r w_r u_r: the mean is linear in the weights, the covariance quadratic.
    means, covs = np.zeros((D, len(W))), np.zeros((D, D, len(W), len(W)))
    for r in range(D):
        for s in [r, *range(r)]:
            unit = np.zeros(D)
            unit[[r, s]] = 1.0
            terms = _last_as(alike, unit, np.zeros(len(alike)))
            mean, cov = before.extended(terms=terms).predict_cov(W, codes)
            if r == s:
                means[r], covs[r, r] = mean, cov
            else:  # cov(u_r + u_s) = cov(u_r) + cov(u_s) + 2 cov(u_r, u_s), its symmetric part
                covs[r, s] = covs[s, r] = 0.5 * (cov - covs[r, r] - covs[s, s])
    log_prior = np.append(np.zeros(len(tasks)), np.log(len(tasks) / n_tasks))  # odds of 1 to M: no sharing
    fresh = _shared_variances(alike, n_tasks) + [t.own[-1] for t in alike]
    own = np.vstack([np.column_stack([t.own[tasks] for t in before.terms]), fresh])
    weights = np.vstack([weights, np.zeros(D)])
    cov = np.einsum("vr,vs,rsij->vij", weights, weights, covs, optimize=True)
    noise = draw.noise[[*tasks, -1]] if draw.noise.size else np.zeros(len(own))
    return Variants(log_prior, weights, own, weights @ means, cov, noise)


def _like_all(draw: Draw, alike: tuple[Term, ...], W: FloatArray, codes: IntArray, noisier: bool) -> Variants:
    """Factors of the offset and of the own function of the task, or it shares no function.

    Its noise, and the size of what is its own, are those of one of the tasks of the fit, at quantiles of the
    noise; if `noisier`, its noise is that of all, or larger. A hierarchy has one shared term, then the offset
    and the own function; a model of one task has the shared term alone. Tasks that share no function have
    nothing to vary.
    """
    before, K = draw.posterior, len(alike)
    n_learnt = before.n_tasks_learnt or len(before.terms[0].own)
    shared = _shared_variances(alike, n_learnt)
    sharing = [t.loadings.shape[1] > 0 for t in alike]
    hierarchy = sharing[0] and not any(sharing[1:]) and not alike[0].own[:n_learnt].any()
    functions = np.array(NEW_TASK.function_factors if hierarchy and K > 1 else (0.0,))
    offsets = NEW_TASK.offset_factors if hierarchy and K == 3 else (0.0,)
    log_odds, of_function = -np.log(n_learnt), -functions
    if len(functions) > 1:  # all that are larger together: with odds of 1 to M
        of_function[1:] += log_odds - logsumexp(of_function[1:])
    # Levels of the noise, with the weights of what is a task's own, and their log density.
    weights, noises, of_noise = np.array([[t.own[-1] for t in alike]]), np.zeros(1), np.zeros(1)
    if draw.noise.size and noisier:
        of_noise = -np.array(NEW_TASK.noise_factors)
        noises = draw.noise[-1] * np.exp(-of_noise)
        weights = np.repeat(weights, len(noises), axis=0)
    elif draw.noise.size:
        places = np.linspace(0.0, n_learnt - 1.0, 2 * NEW_TASK.n_levels + 1)[1::2].round().astype(int)
        tasks = np.argsort(draw.noise[:n_learnt], kind="stable")[np.unique(places)]
        weights, noises = np.column_stack([t.own[tasks] for t in alike]), draw.noise[tasks]
        of_noise = np.zeros(len(tasks))
    variants: list[Any] = []  # log prior, own weights, whether it shares a function, and noise
    for own, variance, of_level in zip(weights, noises, of_noise, strict=True):
        for o in offsets:
            own_of_offset = own.copy()
            if K == 3:
                own_of_offset[1] *= np.exp(o)
            for f, log_p in zip(functions, of_function, strict=True):
                own_of_function = own_of_offset.copy()
                own_of_function[-1] *= np.exp(f)
                variants.append((log_p - o + of_level, own_of_function, True, variance))
            if hierarchy:  # a task that shares nothing has the shared variance as its own
                variants.append((log_odds - o + of_level, own_of_offset + shared, False, variance))
    log_prior, weights, shares, noise = map(np.array, zip(*variants, strict=True))
    together = np.concatenate([t.loadings[-1] for t in alike])
    mean, cov = before.extended(terms=_last_as(alike, together, np.zeros(K))).predict_cov(W, codes)
    mean, cov = np.multiply.outer(shares, mean), np.multiply.outer(shares, cov)
    return Variants(log_prior, np.outer(shares, together), weights, mean, cov, noise)


def _shared_variances(terms: tuple[Term, ...], n_learnt: int) -> FloatArray:
    """(K,) what tasks share on average: a task that shares nothing has it as its own."""
    return np.array([np.mean(t.within[:n_learnt] - t.own[:n_learnt]) for t in terms])


def _last_as(terms: tuple[Term, ...], loadings: FloatArray, own: FloatArray) -> tuple[Term, ...]:
    """The terms with weights (D,) of what the last task shares, and (K,) of what is its own."""
    parts = np.split(loadings, np.cumsum([t.loadings.shape[1] for t in terms])[:-1])
    return tuple(
        replace(t, loadings=np.vstack([t.loadings[:-1], part]), own=np.append(t.own[:-1], weight))
        for t, part, weight in zip(terms, parts, own, strict=True)
    )


def _settle(means: FloatArray, covs: FloatArray, y: FloatArray, noise: Any, variances: FloatArray) -> Any:
    """Log evidence (V,) of new rows under V latent priors, and precision and mean (V, n) of their sites.

    `variances` (V,) are those of the noise; zero: tasks share all parameters of the noise.
    """
    if isinstance(noise, Gaussian):
        precisions = 1.0 / np.outer(variances, np.broadcast_to(noise.variance, len(y)))
        return log_normal(y, means, covs, precisions), precisions, np.broadcast_to(y, precisions.shape)
    sites, evidences = propagate_dense(means, covs, y, noise, variances if variances.any() else None)
    return evidences, sites.precision, sites.mean


def _grown(posterior: LocalPosterior, at: int, W, codes, precision, site_mean, evidence) -> dict[str, Any]:
    """Fields of the posterior with rows of tasks in the place `at`, and more evidence."""
    new = {"X": W, "codes": codes, "precision": precision, "site_mean": site_mean}
    fields = {name: np.insert(getattr(posterior, name), at, rows, axis=0) for name, rows in new.items()}
    return {**fields, "log_evidence": posterior.log_evidence + evidence}


def absorb(model: LocalModel, blocks: dict[int, Block]) -> LocalModel:
    """The model after new rows of known tasks; sites of the rows before stay.

    The new rows are blocks of their own: nothing else is computed again. With Gaussian noise those of all
    tasks that inform the basis variables are taken in at once. Rows of a task that was added later inform
    this task alone, and other sites are found task by task.
    """
    at_once: list[int] = []
    groups: list[list[int]] = []
    for task in blocks:
        if model.gaussian and model.best.posterior._informed(task):
            at_once.append(task)
        else:
            groups.append([task])
    for tasks in [at_once, *groups] if at_once else groups:
        model = _with_rows(model, tasks, [blocks[task] for task in tasks])
    return model


def _with_rows(model: LocalModel, tasks: list[int], blocks: list[Block]) -> LocalModel:
    """The model after new rows of tasks that all inform the basis variables, or of one task."""
    codes, block, targets = np.repeat(tasks, [len(b) for b in blocks]), blocks[0], model.targets
    if len(blocks) > 1:
        variance = np.concatenate([np.broadcast_to(b.noise.variance, len(b)) for b in blocks])
        X, y = np.vstack([b.X for b in blocks]), np.concatenate([b.y for b in blocks])
        block = Block(X, y, replace(block.noise, variance=variance))
    noise = model.noise_in(block)
    best = _absorbed(model, model.best, codes, block, noise)
    draws = tuple(_absorbed(model, draw, codes, block, noise) for draw in model.draws)
    if targets is not None and model.best.posterior._informed(tasks[0]):
        new = targets_of(block.y, noise)
        targets = {name: np.append(values, new[name]) for name, values in targets.items()}
    return replace(model, best=best, draws=draws, targets=targets)


def _absorbed(model: LocalModel, draw: Draw, codes: IntArray, block: Block, noise: Any) -> Draw:
    """The draw after new rows.

    Rows of a task that was added later do not inform the basis variables. They come after all rows that do.
    """
    before, y = draw.posterior, block.y
    W, informs = model.inputs(block.X, draw.warp), before._informed(int(codes[0]))
    in_blocks = informs and not before.together
    if model.gaussian:
        noise, variance = Gaussian(draw.noise[codes] * noise.variance), np.ones(1)
    else:  # of one task
        variance = draw.noise[codes[:1]] if draw.noise.size else np.zeros(1)
    if model.gaussian and (in_blocks or draw is not model.best):  # only the evidence of the best one is shown
        precision = 1.0 / noise.variance
        site_mean, evidence = y, 0.0
    else:
        mean, cov = before.predict_cov(W, codes)
        [evidence], [precision], [site_mean] = _settle(mean[None], cov[None], y, noise, variance)
    common, own = before.common, before.own
    if in_blocks:
        layout = lay_out(codes, blocks_of_tasks(codes, W, before.block_size))
        prior = BlockPrior(before.terms, W, layout, before.Z)
        q = condition(prior, precision, precision * site_mean, common, rows=False)
        common = q.common
        evidence += gaussian_evidence(q, precision) if model.gaussian else 0.0
    for task in np.intersect1d(codes, [*own]).astype(int).tolist():
        own = {**own, task: (own[task][0], before.group(task))}  # new rows inform the common variables alone
    at = before.n_learnt if informs else len(before.X)
    n_learnt = before.n_learnt + (len(y) if informs else 0)
    grown = _grown(before, at, W, codes, precision, site_mean, evidence)
    return replace(draw, posterior=replace(before, **grown, n_learnt=n_learnt, common=common, own=own))
