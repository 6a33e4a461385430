"""Sparse estimators of labels: from labels to targets of the models, new tasks and new rows."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin

from gleangp._compat import fit_context
from gleangp._typing import FloatArray, IntArray
from gleangp.data.labels import check_class_target, encode_classes, lookup_classes, split_unlabeled
from gleangp.estimators._base import TaskEstimator
from gleangp.estimators._docs import documented
from gleangp.estimators._parameters import ClassParameters
from gleangp.estimators._progress import Given
from gleangp.estimators._sparse import SparseGPMixin
from gleangp.exceptions import LabelError
from gleangp.inference.block import Block
from gleangp.models.local.model import LocalModel
from gleangp.models.local.unlabelled import add_unlabelled_task
from gleangp.numerics.parallel import threads_for


@documented()
class TaskClassifierMixin(TaskEstimator, ClassifierMixin):
    """A classifier with tasks and a `decision_function`."""

    classes_: np.ndarray
    unlabeled: Any = None

    def predict(self, X: Any, tasks: Any = None) -> np.ndarray:
        """The most probable class of each row's task.

        Returns
        -------
        ndarray of shape (n,)
        """
        margins = self.decision_function(X, tasks=tasks)
        winner = (margins > 0).astype(np.intp) if margins.ndim == 1 else margins.argmax(axis=1)
        return self.classes_[winner]

    def score(self, X: Any, y: Any, tasks: Any = None, sample_weight: Any = None) -> float:
        """Accuracy over the labeled rows.

        Parameters
        ----------
        y : array-like of shape (n,)
            Class labels; unlabeled rows are left out.

        Returns
        -------
        float
            Share of rows for which `predict(X, tasks)` equals `y`.
        """
        predicted = self.predict(X, tasks=tasks)
        y = check_class_target(y, len(predicted))
        labeled = split_unlabeled(y, self.unlabeled)
        if not labeled.any():
            raise LabelError("y has no labeled row. At least one is needed for a score.")
        weight = None if sample_weight is None else np.asarray(sample_weight)[labeled]
        return float(np.average(y[labeled] == predicted[labeled], weights=weight))


@documented()
class LabelsMixin(ClassParameters, SparseGPMixin, TaskClassifierMixin):
    """For an estimator of classes, or of ordered categories."""

    @abstractmethod
    def _fit_classes(self, X: FloatArray, y_codes: IntArray, codes: IntArray, given: Given) -> None:
        """Fit rows of which `y_codes` are the numbers of the classes; -1 without a label."""

    @abstractmethod
    def _targets(self, y_codes: IntArray) -> list[FloatArray]:
        """Targets of every model, in the coding of its noise."""

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, tasks: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        y : array-like of shape (n,)
            Labels; the value of `unlabeled` for rows without one.
        """
        given = X, y, tasks
        X, codes = self._learn_inputs(X, tasks)
        self.classes_, y_codes = self._encode(y, len(X))
        self._fit_classes(X, y_codes, codes, given)
        return self

    def add_task(self, X: Any, y: Any, task: Any) -> Self:
        """Add one more task, from few rows. The kernel and the noise stay as they are.

        Parameters
        ----------
        y : array-like of shape (m,)
            Its labels, of classes seen in `fit`; they may be all the same.
        """
        X, names = self._rows_of_new_task(X, task)
        y_codes = self._known_classes(y, len(X))
        kept = self._kept(y_codes)
        X, y_codes, before = X[kept], y_codes[kept], self._fitted_models
        targets = self._targets(y_codes)
        blocks = [Block(X, y, m.noise) for m, y in zip(before, targets, strict=True)]
        models = self._add_blocks(blocks)
        local = [m for m in models if isinstance(m, LocalModel)]
        if len(local) > 1 and np.any(y_codes < 0):
            with threads_for([len(X)]):
                old = [m for m in before if isinstance(m, LocalModel)]
                models = [*add_unlabelled_task(old, local, y_codes)]
        self.tasks_ = names
        self._store(models)
        return self

    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any, tasks: Any = None, classes: Any = None) -> Self:
        """Update the model with new rows of known tasks; on a new estimator, `fit`.

        The kernel and the noise stay as they are.

        Parameters
        ----------
        y : array-like of shape (n,)
            Their labels, of classes seen in `fit`.
        classes : array-like, default=None
            All classes. The first call must contain rows of each of them.
        """
        if not hasattr(self, "classes_"):
            missing = np.setdiff1d([] if classes is None else np.asarray(classes), np.asarray(y))
            if len(missing):
                raise LabelError(
                    f"the first call of partial_fit has no row of the classes {missing.tolist()}. "
                    "The kernel is learnt from it, so give it rows of every class."
                )
            return self.fit(X, y, tasks)
        X, codes = self._encode_inputs(X, tasks, learn=True)
        y_codes = self._known_classes(y, len(X))
        noises = [model.noise for model in self._fitted_models]
        self._absorb(X, codes, self._kept(y_codes), self._targets(y_codes), noises)
        return self

    def _latent(self, X: Any, tasks: Any) -> list[tuple[Any, FloatArray, FloatArray]]:
        """Every model, with mean and variance (n,) of its function."""
        X, codes = self._encode_inputs(X, tasks)
        with threads_for(np.bincount(codes)):
            return [(model, *model.predict(X, codes)[:2]) for model in self._fitted_models]

    def _encode(self, y: Any, n_rows: int) -> tuple[np.ndarray, IntArray]:
        """The classes, and the number of the class of each row (-1 without a label)."""
        return encode_classes(y, n_rows, self.unlabeled)

    def _known_classes(self, y: Any, n_rows: int) -> IntArray:
        """The same of new rows."""
        return lookup_classes(self.classes_, y, n_rows, self.unlabeled)

    def _kept(self, y_codes: IntArray) -> np.ndarray:
        """Mask of the new rows to learn from."""
        return y_codes >= 0
