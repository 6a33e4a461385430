"""What a sparse classifier learns from: one class against the rest, and the rows without a label."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from gleangp._typing import FloatArray, IntArray
from gleangp.data.labels import lookup_classes
from gleangp.estimators._active import ActiveProblem
from gleangp.estimators._answers import AnswersMixin
from gleangp.estimators._defaults import class_priors, null_category_kernel, variance_priors
from gleangp.estimators._local import LocalProblem
from gleangp.estimators._parameters import ClassParameters
from gleangp.estimators._random import generator_from
from gleangp.estimators._sparse import FittedModel, SparseGPMixin
from gleangp.estimators._training_rows import ClassSigns, LocalRows
from gleangp.estimators._unlabelled import UnlabelledRows
from gleangp.exceptions import LabelError
from gleangp.models.defaults import LINKED_PRIORS, UNLABELLED
from gleangp.models.likelihood import PropagatedNoise
from gleangp.models.parameters import Parameters
from gleangp.models.priors import LogNormal
from gleangp.noise import NullCategory, Probit, noise_from_name
from gleangp.noise.base import ClassNoise
from gleangp.numerics.parallel import threads_for


class ClassificationMixin(ClassParameters, SparseGPMixin, AnswersMixin):
    """For a classifier with the parameter `noise`."""

    _most_active = 400  # sites of all rows are swept over many times
    _one_per_class = True
    _fitted_parts = ("_models", "classes_")
    _kind_of_noise = ClassNoise

    classes_: np.ndarray
    noise: str

    def _check_noise(self, n_unlabeled: int) -> None:
        """Raise if the noise that was asked for does not go with the rows or the posterior."""
        if self.noise not in ("logit", "robust"):
            return
        if n_unlabeled:
            raise ValueError(
                f"noise={self.noise!r} needs a label in every row, and {n_unlabeled} have none. Use "
                "noise='probit', or leave those rows out."
            )
        if self._is_active:
            raise ValueError(
                f"noise={self.noise!r} needs posterior='local', without invariances; this fit has "
                f"posterior={self.posterior!r}."
            )

    def _active_problems(self, rows: LocalRows, counts: IntArray) -> list[ActiveProblem]:
        """What the models of active points are learnt from, one for each binary problem."""
        streams = generator_from(self.random_state).spawn(self._n_models)
        return [
            ActiveProblem(self._parameters(rows, counts, c), rows, ClassSigns(c), stream)
            for c, stream in zip(self._positives(), streams, strict=True)
        ]

    def _fit_local_problems(self, rows: LocalRows, counts: IntArray, given: tuple[Any, Any, Any]) -> None:
        """Fit the models of blocks and a basis: to the labelled rows, then to all if the others help."""
        *streams, last = generator_from(self.random_state).spawn(self._n_models + 1)
        unlabelled = bool(counts.sum() < len(rows.y))
        labelled = rows
        if unlabelled:
            labelled = LocalRows(rows.X, rows.y, rows.codes, rows.n_tasks, keep=rows.y >= 0)
        problems = []
        for k, (positive, stream) in enumerate(zip(self._positives(), streams, strict=True)):
            share = (counts[positive] + 1.0) / (counts.sum() + 2.0)
            noise: Any = Probit() if self.noise == "null_category" else noise_from_name(self.noise)
            noise = replace(noise, bias=float(ndtri(share)))
            usual = tuple(name for name in noise.transforms if name not in ("bias", "slope"))
            if self.kernel is not None:
                usual = ("bias", *usual)  # the default kernel has a constant
            learn = self._names_to_learn(noise, usual, NullCategory() if unlabelled else noise)
            of_noise = {n: LogNormal(*noise.priors[n]) for n in learn if n in noise.priors}
            problems.append(
                LocalProblem(
                    labelled,
                    ClassSigns(positive)(rows.y, 0),
                    PropagatedNoise(noise, learn, of_noise),
                    noise,
                    stream,
                    self._given_kernel(k, self._n_models),
                    LINKED_PRIORS,
                    warn=not unlabelled,
                )
            )
        if unlabelled:
            self._fit_local(problems, given, lambda models: UnlabelledRows(self, rows, models, last).fit())
        else:
            self._fit_local(problems, given)

    @property
    def _n_models(self) -> int:
        return 1 if len(self.classes_) == 2 else len(self.classes_)

    def _signs(self, y_codes: IntArray) -> list[FloatArray]:
        """Targets -1 / +1 of every binary problem, 0 in unlabeled rows."""
        return [ClassSigns(c)(y_codes, 0) for c in self._positives()]

    def _positives(self) -> range:
        """The class that is +1 in every binary problem."""
        return range(1, 2) if len(self.classes_) == 2 else range(len(self.classes_))

    def _parameters(self, rows: LocalRows, counts: IntArray, positive: int) -> Parameters:
        n_labeled = int(counts.sum())
        missing = 1.0 - n_labeled / sum(rows.sizes)
        bias = float(ndtri((counts[positive] + 1.0) / (n_labeled + 2.0)))
        noise: Any
        if missing > 0.0:
            kernel = self._start_kernel(lambda: null_category_kernel(rows.X), positive, self._n_models)
            own_priors = variance_priors(kernel)
            noise = NullCategory(bias, missing, missing, variance=UNLABELLED.soft)
            usual: tuple[str, ...] = ("bias",)
        else:
            kernel = self._start_kernel(
                lambda: self._default_kernel(rows, offset=True), positive, self._n_models
            )
            own_priors = {} if self.kernel is not None else class_priors(kernel)
            noise = Probit(bias)
            # Sites held, the evidence of active points cannot tell how steep the noise is: LPJ05 3.4 can.
            usual = ("bias", "slope")
        priors = own_priors if self.priors is None else self.priors
        return self._check_priors(Parameters(kernel, noise, self._names_to_learn(noise, usual), priors))

    def _latent(self, X: Any, tasks: Any) -> list[tuple[Any, FloatArray, FloatArray]]:
        check_is_fitted(self)
        X, _, codes = self._resolve(X, tasks, reset=False)
        with threads_for(np.bincount(codes)):
            return [(model, *model.predict(X, codes)) for model in self._models]

    def _log_probabilities(self, X: Any, tasks: Any) -> tuple[FloatArray, FloatArray]:
        """log p and log (1 - p) of every binary problem, (n, number of problems)."""
        parts = [model.noise.class_log_prob(mean, var) for model, mean, var in self._latent(X, tasks)]
        log_q, log_p = zip(*parts, strict=True)
        return np.column_stack(log_p), np.column_stack(log_q)

    def _kept(self, y_codes: IntArray) -> Any:
        """Mask of the rows to learn from: all, or the labelled ones where the others do not help."""
        return (y_codes >= 0) | isinstance(self._models[0].noise, NullCategory)

    def _known_classes(self, y: Any, n_rows: int) -> IntArray:
        codes = lookup_classes(self.classes_, y, n_rows, self.unlabeled)
        n_unlabeled = int(np.sum(codes < 0))
        null_category = isinstance(self._models[0].noise, NullCategory)
        left_out = any(made.what == "unlabelled rows" for made in self.decisions_)
        if n_unlabeled and not null_category and not left_out:
            raise LabelError(
                f"y has {n_unlabeled} unlabeled rows (unlabeled={self.unlabeled!r}), but fit had none, "
                "so the model has no null category. Fit again with unlabeled rows."
            )
        return codes

    def _check_own_state(self, models: list[FittedModel], n_tasks: int) -> None:
        if len(models) != self._n_models:
            raise ValueError(f"{len(models)} models for {len(self.classes_)} classes.")

    def _store(self, models: list[FittedModel]) -> None:
        super()._store(models)
        self.n_silent_ = sum(m.n_silent for m in models)
