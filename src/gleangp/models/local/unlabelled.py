"""Rows without a label: the null category over all rows, and whether it helps.

The parameters of the kernels are given. The posterior of all rows is formed under them: labelled rows
settle first, and the others join them. With several classes an unlabelled row has exactly one of them
(`inference.exclusive`).

Unlabelled rows help where classes are clusters, and do harm elsewhere. `held_out_scores` decides: labels are
held out in turn, and predicted with and without the unlabelled rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import log_softmax

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block, lay_out
from gleangp.inference.exclusive import settle_exclusive
from gleangp.inference.prior import BlockPrior, Term
from gleangp.inference.propagate import Marginals, PriorOfRows, RowSites, Swept, dense_marginals, marginals_of
from gleangp.models.defaults import CONDITIONING, PRIORS, UNLABELLED, Start
from gleangp.models.inputs import InputMap
from gleangp.models.likelihood import Likelihood, Settled
from gleangp.models.local.data import Data
from gleangp.models.local.fit import arrange, local_posterior
from gleangp.models.local.model import Draw, LocalModel, active_points
from gleangp.models.parameters import Slots
from gleangp.noise import NullCategory
from gleangp.numerics.optimize import minimize


class ClassPrior(PriorOfRows):
    """The prior of a class over the rows of `data`, under given terms and inputs."""

    def __init__(
        self,
        terms: Sequence[Term],
        inputs: InputMap,
        warp: FloatArray,
        data: Data,
        choose_basis: Any,
        n_basis: int | None,
        rng: np.random.Generator,
    ):
        self.data, self.inputs, self.warp = data, inputs, warp
        W = inputs(data.X, warp)
        n_together = UNLABELLED.n_together
        if n_basis is None:
            n_basis = UNLABELLED.n_basis
        elif n_basis < len(data):
            n_together = 0  # few points were asked for
        self.conditioning = replace(CONDITIONING, n_together=n_together)
        self.rows, self.basis = arrange(terms, W, data, n_basis, choose_basis, self.conditioning, rng)
        self.prior = BlockPrior(terms, W, self.rows.layout, self.rows.Z)
        super().__init__(marginals_of(self.prior))
        if len(data) <= n_together:  # one block without a basis
            self._among = self._marginals_among

    def _marginals_among(self, rows: IntArray) -> Callable[[RowSites], Marginals]:
        """As if these were all rows."""
        layout = lay_out(self.data.codes[rows], [np.arange(len(rows))])
        return marginals_of(BlockPrior(self.prior.terms, self.prior.X[rows], layout, self.rows.Z))

    def posterior(self, model: LocalModel, swept: Swept, evidence: float, noise: Any) -> LocalModel:
        """A model with this prior, given the sites of all rows; `model` has what else is known of it."""
        sites = swept.sites
        settled = Settled(
            swept.marginals.state, evidence, sites.precision, sites.shift, lambda _: {}, sites.n_silent
        )
        posterior = local_posterior(self.prior, self.rows, self.data, settled, self.conditioning)
        return replace(
            model,
            inputs=self.inputs,
            best=Draw(posterior, self.warp, np.zeros(0)),
            draws=(),
            noise=noise,
            row_numbers=np.arange(len(self.data)),
            **active_points(posterior, self.basis),
            n_rows=len(self.data),
            n_silent=sites.n_silent,
            targets=None,
        )


def null_categories(noises: Sequence[Any], y: IntArray) -> list[NullCategory]:
    """The null category of each class, with the bias of its noise and the share of rows without a label."""
    missing = float(np.mean(y < 0))
    return [NullCategory(noise.bias, missing, missing, variance=UNLABELLED.soft) for noise in noises]


def signs_of(y: IntArray, n_models: int) -> list[FloatArray]:
    """Of every binary problem: +1 for its class, -1 for others, 0 for rows without a label."""
    positives = range(1, 2) if n_models == 1 else range(n_models)
    return [np.where(y < 0, 0.0, np.where(y == c, 1.0, -1.0)) for c in positives]


def propagate_classes(
    priors: Sequence[PriorOfRows], noises: Sequence[Any], y: IntArray
) -> list[tuple[Swept, float]]:
    """Settled sites of every binary problem and its evidence; y are codes of classes, -1 without a label."""
    none = np.zeros((len(y), 0))  # the priors have the inputs
    blocks = [Block(none, s, n) for s, n in zip(signs_of(y, len(priors)), noises, strict=True)]
    starts: list[Any] | None = None
    if priors[0].first is not None:
        starts = [s.sites for s, _ in propagate_classes([p.first for p in priors], noises, y)]
    if len(blocks) > 1 and np.any(y < 0) and isinstance(noises[0], NullCategory):
        return settle_exclusive(priors, blocks, starts)
    if starts is None:
        starts = [p.labelled_first(b) for p, b in zip(priors, blocks, strict=True)]
    swept = [p.sweep(b, s) for p, b, s in zip(priors, blocks, starts, strict=True)]
    return [(s, s.evidence) for s in swept]


def learn_noise(
    priors: Sequence[PriorOfRows], noises: Sequence[Any], y: IntArray, names: tuple[str, ...]
) -> tuple[list[Any], list[tuple[Swept, float]]]:
    """The noises with the parameters that are named learnt, and what `propagate_classes` finds with them.

    In turn: sites are settled, then the sum of log Z over all rows is maximised, cavities held.
    """
    noises, found = list(noises), propagate_classes(priors, noises, y)
    for _ in range(UNLABELLED.n_passes if names else 0):
        for c, signs in enumerate(signs_of(y, len(priors))):
            noises[c] = _noise_at(noises[c], names, signs, found[c][0])
        found = propagate_classes(priors, noises, y)
    return noises, found


def _noise_at(noise: Any, names: tuple[str, ...], signs: FloatArray, swept: Swept) -> Any:
    """The noise with the parameters that maximise the sum of log Z at given cavities."""
    likelihood, at = Likelihood(noise, names), (signs, swept.cavity_mean, swept.cavity_var)
    slots = Slots(likelihood.slots(Start(), PRIORS))

    def objective(z: FloatArray) -> tuple[float, FloatArray]:
        moved = likelihood.noise_model(slots, z)
        slopes = moved.log_partition_grad(*at)
        parts = [np.sum(slopes[name]) * slots.slope(z, f"noise__{name}") for name in names]
        return -float(np.sum(moved.log_partition(*at)[0])), -np.concatenate(parts)

    best = minimize(objective, slots.start, slots.bounds, scale=float(len(signs)))
    return likelihood.noise_model(slots, best.theta)


def held_out_scores(
    priors: Sequence[PriorOfRows], noises: Sequence[Any], y: IntArray, labelled: IntArray
) -> FloatArray:
    """Log probabilities (l,) of the classes of labelled rows, held out in turn.

    Rows without a label are silent unless the noise is the null category.
    """
    scores, silent = np.zeros(len(labelled)), not isinstance(noises[0], NullCategory)
    n_folds = min(UNLABELLED.n_folds, len(labelled))
    # Of every class in turn: folds have about the same share of each.
    fold = np.empty(len(labelled), dtype=np.intp)
    fold[np.argsort(y[labelled], kind="stable")] = np.arange(len(labelled)) % n_folds
    for k in range(n_folds):
        out = labelled[fold == k]
        known = y.copy()
        known[out] = -1
        if silent:
            signs = signs_of(known, len(priors))
            at = [_silent_sweep(p, n, s) for p, n, s in zip(priors, noises, signs, strict=True)]
        else:
            at = [(s.cavity_mean, s.cavity_var) for s, _ in propagate_classes(priors, noises, known)]
        found = [n.class_log_prob(m[out], v[out]) for n, (m, v) in zip(noises, at, strict=True)]
        scores[fold == k] = class_log_probabilities(found)[np.arange(len(out)), y[out]]
    return scores


def _silent_sweep(prior: PriorOfRows, noise: Any, signs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Marginals of all rows given the labelled ones alone."""
    block = Block(np.zeros((len(signs), 0)), signs, noise)
    sites: Any = prior.labelled_first(block, signs != 0.0)
    now = prior._marginals(sites)
    return now.mean, now.var


def class_log_probabilities(found: list[tuple[FloatArray, FloatArray]]) -> FloatArray:
    """(n, c) from the logarithms of (1 - p, p) of every binary problem."""
    if len(found) == 1:
        return np.column_stack(found[0])
    return log_softmax(np.column_stack([log_p - log_q for log_q, log_p in found]), axis=1)


def add_unlabelled_task(
    before: Sequence[LocalModel], after: Sequence[LocalModel], y: IntArray
) -> list[LocalModel]:
    """The models of several classes with one more task, whose unlabelled rows have exactly one class.

    `after` are the models with the task as each class sees it alone; its sites are settled again.
    """
    n, models, priors = len(y), [], []
    for model in after:
        posterior = model.best.posterior
        W, codes = posterior.X[-n:], posterior.codes[-n:]
        silent = replace(posterior, precision=np.append(posterior.precision[:-n], np.zeros(n)))
        priors.append(PriorOfRows(dense_marginals(*silent.predict_cov(W, codes))))
    found = propagate_classes(priors, [m.noise for m in after], y)
    for old, model, (swept, evidence) in zip(before, after, found, strict=True):
        q, sites = model.best.posterior, swept.sites
        q = replace(
            q,
            precision=np.append(q.precision[:-n], sites.precision),
            site_mean=np.append(q.site_mean[:-n], sites.mean),
            log_evidence=old.log_evidence + evidence,
        )
        models.append(replace(model, best=replace(model.best, posterior=q)))
    return models
