"""Rows without a label: whether they are used, and under which kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process.kernels import Kernel

from gleangp._typing import FloatArray
from gleangp.inference.prior import Term
from gleangp.models.decisions import Decision
from gleangp.models.default_kernel import null_category_kernel
from gleangp.models.defaults import UNLABELLED
from gleangp.models.inputs import InputMap
from gleangp.models.likelihood import Likelihood
from gleangp.models.local.data import Data, canonical_order, some_of
from gleangp.models.local.learn import pivots_of
from gleangp.models.local.model import LocalModel
from gleangp.models.local.plan import plan_search
from gleangp.models.local.unlabelled import ClassPrior, held_out_scores, learn_noise, null_categories

ALONE, START, LABELLED = "labelled rows alone", "all rows", "all rows, kernel of the labelled rows"


@dataclass(frozen=True, eq=False)
class _Kernel:
    """Terms of a class, and the inputs as they see them."""

    terms: tuple[Term, ...]
    inputs: InputMap
    warp: FloatArray
    first: _Kernel | None = None  # under which sites settle before


@dataclass(frozen=True, eq=False)
class Asked:
    """How rows without a label shall be used."""

    kernels: list[Kernel] | None  # of every class; None: the default one
    coupling: Any  # of several tasks
    always: bool  # they are used, whether they help or not
    learnt: bool  # the kernels of the labelled rows differ from those given
    noise_names: tuple[str, ...]  # parameters of the null category to learn
    n_basis: int | None  # None: the default
    choose_basis: Any  # as in `fit_local`


class UnlabelledRows:
    """Rows of which some have no label, and the models of the labelled ones.

    In `data`, y are codes of classes, -1 without a label. `models` are those of every binary problem, learnt
    from the labelled rows.
    """

    def __init__(self, asked: Asked, data: Data, models: list[LocalModel], rng: np.random.Generator):
        self.asked, self.models, self.seed = asked, models, int(rng.integers(2**63))
        self.order = canonical_order(data.X, data.y, data.codes)
        self.data = data.at(self.order)
        self.y = self.data.y.astype(np.intp)
        self.noises = null_categories([m.noise for m in models], self.y)

    def fit(self) -> list[LocalModel]:
        """The models with or without the rows that have no label, whatever predicts held-out labels best."""
        kernels = {START: self._start_kernels, LABELLED: self._labelled_kernels}
        if not self.asked.learnt:
            del kernels[LABELLED]  # the same
        if self.asked.always and len(kernels) == 1:
            return self._with_decision(self._fit_all(self._start_kernels), START, {}, "As asked.")
        scores = self._scores(kernels)
        means = {name: float(np.mean(found)) for name, found in scores.items()}
        best = max(kernels, key=lambda name: means[name])
        if best == LABELLED and means[START] > means[LABELLED] - UNLABELLED.level:
            best = START
        reason = "It gives labels that are held out the highest mean log probability."
        if self.asked.always:
            del means[ALONE]
        elif not _clearly_better(scores[best], scores[ALONE]):
            reason = "The other rows do not make labels that are held out clearly more probable."
            best = ALONE
        models = self.models if best == ALONE else self._fit_all(kernels[best])
        return self._with_decision(models, best, means, reason)

    def _scores(self, kernels: dict[str, list[_Kernel]]) -> dict[str, FloatArray]:
        """Log probabilities of held-out labels, on some of the rows."""
        rng = np.random.default_rng(self.seed)
        labelled, others = np.flatnonzero(self.y >= 0), np.flatnonzero(self.y < 0)
        n = max(UNLABELLED.n_checked // 2, UNLABELLED.n_checked - len(others))
        labelled = labelled[some_of(len(labelled), n, rng)]
        others = others[some_of(len(others), UNLABELLED.n_checked - len(labelled), rng)]
        rows = np.sort(np.concatenate([labelled, others]))
        data, y, has_label = self.data.at(rows), self.y[rows], np.flatnonzero(self.y[rows] >= 0)
        scores: dict[str, FloatArray] = {}
        noises = [model.noise for model in self.models]
        of_labelled = self._priors(self._labelled_kernels, data, None)
        scores[ALONE] = held_out_scores(of_labelled, noises, y, has_label)
        for name, of_classes in kernels.items():
            priors = of_labelled if name == LABELLED else self._priors(of_classes, data, None)
            scores[name] = held_out_scores(priors, self.noises, y, has_label)
        return scores

    def _fit_all(self, kernels: list[_Kernel]) -> list[LocalModel]:
        """The models of all rows under given kernels."""
        priors = self._priors(kernels, self.data, self.asked.n_basis)
        noises, found = learn_noise(priors, self.noises, self.y, self.asked.noise_names)
        models = []
        for model, prior, noise, (swept, evidence) in zip(self.models, priors, noises, found, strict=True):
            model = prior.posterior(model, swept, evidence, noise)
            models.append(replace(model, row_numbers=self.order, active=self.order[model.active]))
        return models

    def _priors(self, kernels: list[_Kernel], data: Data, n_basis: int | None) -> list[ClassPrior]:
        """Of every class; classes with the same kernel share one."""
        choose, made = self.asked.choose_basis or pivots_of, {}

        def make(k: _Kernel) -> ClassPrior:
            rng = np.random.default_rng(self.seed)
            prior = ClassPrior(k.terms, k.inputs, k.warp, data, choose, n_basis, rng)
            prior.first = None if k.first is None else make(k.first)
            return prior

        for k in kernels:
            if id(k) not in made:
                made[id(k)] = make(k)
        return [made[id(k)] for k in kernels]

    @cached_property
    def _labelled_kernels(self) -> list[_Kernel]:
        return [_Kernel(m.terms, m.inputs, m.best.warp) for m in self.models]

    @cached_property
    def _start_kernels(self) -> list[_Kernel]:
        """Those given, or the default ones, with the distance of neighbours as length scale."""
        if self.asked.kernels is None:
            first = null_category_kernel(self.data.X)
            length = first.k2.kernel.length_scale
            then = clone(first).set_params(
                k1__constant_value=UNLABELLED.variance, k2__kernel__length_scale=UNLABELLED.stretch * length
            )
            first.set_params(k1__constant_value=UNLABELLED.first_variance)
            return [replace(self._made(then), first=self._made(first))] * len(self.models)
        return [self._made(kernel) for kernel in self.asked.kernels]

    def _made(self, kernel: Any) -> _Kernel:
        data, coupling = self.data, self.asked.coupling if self.data.n_tasks > 1 else "auto"
        search = plan_search(
            data.X, data.n_tasks, Likelihood(self.noises[0]), kernel=kernel, coupling=coupling
        )
        specs = search.make_terms(search.starts[0], search.forms[0].smoothness)
        terms = tuple(Term(s.kernel, s.loadings, s.own) for s in specs)
        return _Kernel(terms, search.inputs, np.zeros(0))

    def _with_decision(
        self, models: list[LocalModel], chosen: str, scores: dict[str, float], reason: str
    ) -> list[LocalModel]:
        made = Decision("unlabelled rows", chosen, scores, reason)
        n_rows = len(self.data)
        return [replace(m, decisions=(*m.decisions, made), n_rows=n_rows) for m in models]


def _clearly_better(scores: FloatArray, others: FloatArray) -> bool:
    """Whether the mean is higher by more than its standard error, from paired differences."""
    d = scores - others
    return bool(np.mean(d) > np.std(d) / np.sqrt(max(1, len(d) - 1)))
