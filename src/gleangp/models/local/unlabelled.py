"""Rows without a label: the null category over all rows, whether it helps, and under which kernel.

The parameters of the kernels are given. The posterior of all rows is formed under them: labelled rows
settle first, and the others join them. With several classes an unlabelled row has exactly one of them
(`inference.exclusive`).

Unlabelled rows help where classes are clusters, and do harm elsewhere. `held_out_scores` decides: labels are
held out in turn, and predicted with and without the unlabelled rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process.kernels import ConstantKernel, Kernel

from gleangp._typing import BoolArray, FloatArray, IntArray
from gleangp.inference.block import Block, lay_out
from gleangp.inference.evidence import RowSites
from gleangp.inference.exclusive import settle_exclusive
from gleangp.inference.prior import BlockPrior, Term
from gleangp.inference.propagate import (
    MarginalsOfSites,
    Swept,
    dense_marginals,
    labelled_first,
    marginals_of,
    sweep_rows,
)
from gleangp.models.decisions import Decision, in_standard_errors
from gleangp.models.default_kernel import null_category_kernel
from gleangp.models.defaults import UNLABELLED
from gleangp.models.local.data import Data, canonical_order, some_of, with_points
from gleangp.models.local.fit import arrange, local_posterior
from gleangp.models.local.model import Draw, LocalModel, active_points
from gleangp.models.parameters import Parameters, sum_log_z
from gleangp.models.terms import coupled_terms
from gleangp.models.units import InputMap, identity_map
from gleangp.noise import NullCategory
from gleangp.noise.classes import class_log_probabilities, weights_of_powers

ALONE, START, LABELLED = "labelled rows alone", "all rows", "all rows, kernel of the labelled rows"


@dataclass(frozen=True, eq=False)
class _Kernel:
    """Terms of a class, and the inputs as they see them."""

    terms: tuple[Term, ...]
    inputs: InputMap
    warp: FloatArray


Kernels = Sequence[Sequence[_Kernel]]  # of every class, under which sites settle one after the other


class ClassPrior:
    """The prior of a class over the rows of `data`, under a given kernel."""

    def __init__(self, kernel: _Kernel, data: Data, choose_basis: Any, n_basis: int | None, seed: int):
        self.kernel, self.how = kernel, with_points(UNLABELLED.conditioning, n_basis, len(data))
        W, rng = kernel.inputs(data.X, kernel.warp), np.random.default_rng(seed)
        self.rows, self.basis = arrange(kernel.terms, W, data, choose_basis, self.how, rng)
        self.prior = BlockPrior(kernel.terms, W, self.rows.layout, self.rows.Z)
        self.marginals = marginals_of(self.prior)

        def among(rows: IntArray) -> MarginalsOfSites:  # as if these were all rows
            layout = lay_out(data.codes[rows], [np.arange(len(rows))])
            return marginals_of(BlockPrior(kernel.terms, W[rows], layout, W[:0]))

        self._among = among if len(data) <= self.how.n_together else None  # of one block without a basis

    def labelled_first(self, block: Block, labelled: BoolArray) -> RowSites:
        """As `propagate.labelled_first`."""
        return labelled_first(block, self.marginals, labelled, self._among)


Stages = Sequence[Sequence[ClassPrior]]  # as `Kernels`


def signs_of(y: IntArray, n_models: int) -> list[FloatArray]:
    """Of every binary problem: +1 for its class, -1 for others, 0 for rows without a label."""
    positives = range(1, 2) if n_models == 1 else range(n_models)
    return [np.where(y < 0, 0.0, np.where(y == c, 1.0, -1.0)) for c in positives]


def _blocks(noises, y: IntArray) -> list[Block]:
    """The binary problems; y are codes of classes, -1 without a label. The inputs are in the priors."""
    none = np.zeros((len(y), 0))
    return [Block(none, signs, noise) for signs, noise in zip(signs_of(y, len(noises)), noises, strict=True)]


def propagate_classes(stages: Stages, noises, y: IntArray) -> list[tuple[Swept, float]]:
    """Settled sites of every binary problem under the null category, and its evidence."""
    blocks, found = _blocks(noises, y), []
    starts = [p.labelled_first(b, y >= 0) for p, b in zip(stages[0], blocks, strict=True)]
    for priors in stages:
        found = _settle([p.marginals for p in priors], blocks, starts)
        starts = [s.sites for s, _ in found]
    return found


def _settle(marginals: Sequence[MarginalsOfSites], blocks, starts) -> list[tuple[Swept, float]]:
    """Settled sites of every binary problem and its evidence; rows without a label have exactly one class."""
    if len(blocks) > 1 and isinstance(blocks[0].noise, NullCategory) and np.any(blocks[0].y == 0.0):
        return settle_exclusive(marginals, blocks, starts)
    swept = [sweep_rows(*problem) for problem in zip(blocks, marginals, starts, strict=True)]
    return [(s, s.evidence) for s in swept]


def _noise_at(noise: Any, names: tuple[str, ...], signs: FloatArray, swept: Swept) -> Any:
    """The noise with the named parameters that maximise the sum of log Z at given cavities."""
    noise_only = Parameters(ConstantKernel(1.0, "fixed"), noise, names)
    objective = sum_log_z(noise, signs, swept.cavity_mean, swept.cavity_var)
    return noise_only.maximize(objective, scale=float(len(signs)))[0].noise


def held_out_scores(stages: Stages, noises, y: IntArray, labelled: IntArray) -> FloatArray:
    """Log probabilities (l, c) of all classes at labelled rows, which are held out in turn.

    Rows without a label are silent unless the noise is the null category.
    """
    scores = np.zeros((len(labelled), max(2, len(noises))))
    n_folds = min(UNLABELLED.n_folds, len(labelled))
    # Of every class in turn: folds have about the same share of each.
    fold = np.empty(len(labelled), dtype=np.intp)
    fold[np.argsort(y[labelled], kind="stable")] = np.arange(len(labelled)) % n_folds
    for k in range(n_folds):
        out = labelled[fold == k]
        known = y.copy()
        known[out] = -1
        if isinstance(noises[0], NullCategory):
            at = [(s.cavity_mean, s.cavity_var) for s, _ in propagate_classes(stages, noises, known)]
        else:
            at = []
            for prior, block in zip(stages[0], _blocks(noises, known), strict=True):
                now = prior.marginals(prior.labelled_first(block, known >= 0))
                at.append((now.mean, now.var))
        found = [n.class_log_prob(m[out], v[out]) for n, (m, v) in zip(noises, at, strict=True)]
        scores[fold == k] = class_log_probabilities(found)
    return scores


def add_unlabelled_task(before: list[LocalModel], after: list[LocalModel], y: IntArray) -> list[LocalModel]:
    """The models of several classes with one more task, whose unlabelled rows have exactly one class.

    `after` are the models with the task as each class sees it alone; its sites are settled again.
    """
    n, models, marginals = len(y), [], []
    for model in after:
        q = model.best.posterior
        silent = replace(q, precision=np.append(q.precision[:-n], np.zeros(n)))
        marginals.append(dense_marginals(*silent.predict_cov(q.X[-n:], q.codes[-n:])))
    found = _settle(marginals, _blocks([m.noise for m in after], y), [None] * len(after))
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


@dataclass(eq=False)
class UnlabelledRows:
    """Rows of which some have no label, and the models of the labelled ones; `fit` uses them if they help.

    Their null category makes probabilities too certain where classes overlap: a row that joined a class is
    evidence of its place. So probabilities are averaged over powers of them, with the `weights` that labels
    which are held out give these.
    """

    data: Data  # y are codes of classes, -1 without a label
    models: list[LocalModel]  # of every binary problem, learnt from the labelled rows
    rng: np.random.Generator
    _: KW_ONLY
    kernels: list[Kernel] | None  # of every class; None: the default one
    coupling: Any  # of several tasks
    always: bool  # they are used, whether they help or not
    learnt: bool  # the kernels of the labelled rows differ from those given
    noise_names: tuple[str, ...]  # parameters of the null category to learn
    n_basis: int | None  # None: the default
    choose_basis: Any  # as in `Search`
    weights: FloatArray = field(init=False)  # (k,) of `weights_of_powers`; empty: labelled rows alone

    def __post_init__(self) -> None:
        self.seed = int(self.rng.integers(2**63))
        self.order = canonical_order(self.data.X, self.data.y, self.data.codes)
        self.data = self.data.at(self.order)
        self.y = self.data.y.astype(np.intp)
        missing, soft = float(np.mean(self.y < 0)), UNLABELLED.soft
        self.noises = [NullCategory(m.noise.bias, missing, missing, variance=soft) for m in self.models]
        self.of_labelled = [[_Kernel(m.terms, m.inputs, m.best.warp) for m in self.models]]

    def fit(self) -> list[LocalModel]:
        """The models with or without the rows that have no label, whatever predicts held-out labels best."""
        kernels = {START: self._start_kernels()}
        if self.learnt:  # else they are the same
            kernels[LABELLED] = self.of_labelled
        best, means, reason = START, {}, "As asked."
        held_out, y = self._held_out(kernels)
        if not self.always or len(kernels) > 1:
            scores = {name: found[np.arange(len(y)), y] for name, found in held_out.items()}
            means = {name: float(np.mean(found)) for name, found in scores.items()}
            best = max(kernels, key=lambda name: means[name])
            if best == LABELLED and means[START] > means[LABELLED] - UNLABELLED.level:
                best = START
            reason = "It gives labels that are held out the highest mean log probability."
            if self.always:
                del means[ALONE]
            elif not in_standard_errors(scores[best] - scores[ALONE]) > 1.0:
                reason = "The other rows do not make labels that are held out clearly more probable."
                best = ALONE
        models = self.models if best == ALONE else self._fit_all(kernels[best])
        self.weights = np.zeros(0) if best == ALONE else weights_of_powers(held_out[best], y)
        # What was decided for the labelled rows alone, as far as it holds for all rows.
        gone = {ALONE: (), LABELLED: ("draws",), START: ("draws", "smoothness", "warping")}[best]
        made, n = Decision("unlabelled rows", best, means, reason), len(self.y)
        return [
            replace(m, decisions=(*(d for d in m.decisions if d.what not in gone), made), n_rows=n)
            for m in models
        ]

    def _held_out(self, kernels: dict[str, Kernels]) -> tuple[dict[str, FloatArray], IntArray]:
        """Log probabilities (l, c) of labels that are held out, on some of the rows, and the labels (l,)."""
        rng = np.random.default_rng(self.seed)
        labelled, others = np.flatnonzero(self.y >= 0), np.flatnonzero(self.y < 0)
        n = max(UNLABELLED.n_checked // 2, UNLABELLED.n_checked - len(others))
        labelled = labelled[some_of(len(labelled), n, rng)]
        others = others[some_of(len(others), UNLABELLED.n_checked - len(labelled), rng)]
        rows = np.sort(np.concatenate([labelled, others]))
        data, y, has_label = self.data.at(rows), self.y[rows], np.flatnonzero(self.y[rows] >= 0)
        of_labelled = self._stages(self.of_labelled, data, None)
        scores = {ALONE: held_out_scores(of_labelled, [m.noise for m in self.models], y, has_label)}
        for name, of_classes in kernels.items():
            stages = of_labelled if name == LABELLED else self._stages(of_classes, data, None)
            scores[name] = held_out_scores(stages, self.noises, y, has_label)
        return scores, y[has_label]

    def _fit_all(self, kernels: Kernels) -> list[LocalModel]:
        """The models of all rows under given kernels.

        Parameters of the null category are learnt in turn: sites are settled, then the sum of log Z over all
        rows is maximised, cavities held.
        """
        stages, noises, names = self._stages(kernels, self.data, self.n_basis), self.noises, self.noise_names
        found = propagate_classes(stages, noises, self.y)
        for _ in range(UNLABELLED.n_passes if names else 0):
            parts = zip(noises, signs_of(self.y, len(noises)), found, strict=True)
            noises = [_noise_at(noise, names, signs, swept) for noise, signs, (swept, _) in parts]
            found = propagate_classes(stages, noises, self.y)
        models = []
        for model, p, noise, (swept, evidence) in zip(self.models, stages[-1], noises, found, strict=True):
            posterior = local_posterior(p.prior, p.rows, swept.marginals.state, swept.sites, evidence, p.how)
            points = active_points(posterior, p.basis)
            points["active"] = self.order[points["active"]]
            best = Draw(posterior, p.kernel.warp, np.zeros(0))
            model = replace(model, inputs=p.kernel.inputs, best=best, draws=(), noise=noise, targets=None)
            model = replace(model, row_numbers=self.order, n_silent=swept.sites.n_silent, **points)
            models.append(model)
        return models

    def _stages(self, kernels: Kernels, data: Data, n_basis: int | None) -> Stages:
        """Classes with the same kernel share a prior."""
        every = dict.fromkeys(kernel for stage in kernels for kernel in stage)
        priors = {k: ClassPrior(k, data, self.choose_basis, n_basis, self.seed) for k in every}
        return [[priors[kernel] for kernel in stage] for stage in kernels]

    def _start_kernels(self) -> Kernels:
        """Those given, or the default ones, with the distance of neighbours as length scale."""
        if self.kernels is not None:
            return [[self._made(kernel) for kernel in self.kernels]]
        first = null_category_kernel(self.data.X)
        stretched = UNLABELLED.stretch * first.k2.kernel.length_scale
        then = clone(first).set_params(
            k1__constant_value=UNLABELLED.variance, k2__kernel__length_scale=stretched
        )
        first.set_params(k1__constant_value=UNLABELLED.first_variance)
        return [[self._made(kernel)] * len(self.models) for kernel in (first, then)]

    def _made(self, kernel: Kernel) -> _Kernel:
        n_tasks, inputs = self.data.n_tasks, identity_map(self.data.X.shape[1])
        specs = coupled_terms(self.coupling if n_tasks > 1 else "auto", clone(kernel), {}, n_tasks)
        return _Kernel(tuple(Term(s.kernel, s.loadings, s.own) for s in specs), inputs, np.zeros(0))
