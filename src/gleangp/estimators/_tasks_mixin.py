"""What an estimator needs to take tasks: as a column of X (`task=`) or as an argument (`tasks=`).

`_resolve` is the one way in; `unchanged_on_failure` keeps a promise of all estimators: a failed
`fit`, `add_task` or `partial_fit` leaves the estimator as it was. An estimator reads::

    class Model(TaskRegressorMixin, BaseEstimator):
        def __init__(self, *, task=None):
            self.task = task

        def fit(self, X, y, tasks=None):
            with unchanged_on_failure(self):
                X, self.tasks_, codes = self._resolve(X, tasks, reset=True)
                y, labeled = check_regression_target(y, len(X))
                ...
            return self

        def predict(self, X, tasks=None):
            check_is_fitted(self)
            X, _, codes = self._resolve(X, tasks, reset=False)
            ...

`tasks_` is None for a model fitted without tasks; its codes are all 0.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import isfunction, signature
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_array, validate_data

from gleangp._compat import callbacks_at_work
from gleangp.exceptions import LabelError, TaskError
from gleangp.labels import check_class_target, check_regression_target, split_unlabeled
from gleangp.learning import shared_kernel
from gleangp.tasks import append_task, encode_tasks, lookup_tasks, take_task_column

__all__ = ["TaskClassifierMixin", "TaskMixin", "TaskRegressorMixin", "unchanged_on_failure"]


_ROUTED = ("fit", "partial_fit", "predict", "predict_proba", "decision_function", "score")


@contextmanager
def unchanged_on_failure(estimator: BaseEstimator) -> Iterator[None]:
    """Give the estimator its attributes back if the block raises.

    What is restored is which object each attribute refers to: the block must set new arrays and
    objects, not write into the old ones.
    """
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:  # an interrupted fit too
        at_work = callbacks_at_work(estimator)
        vars(estimator).clear()
        vars(estimator).update(before | at_work)
        raise


class TaskMixin:
    """Tasks by the column named in `task=` or by `tasks=`, and requested by default when routed.

    The estimator has the constructor parameter `task` and sets `tasks_` in `fit`.
    """

    task: str | int | None
    tasks_: np.ndarray | None
    n_features_in_: int

    def __init_subclass__(cls, **kwargs: Any) -> None:
        # Requested at class level, so that users of metadata routing only switch it on. Set here,
        # because scikit-learn would add a request for a parameter that a method does not have.
        # What `predict` shall return is requested too: a Pipeline that routes would refuse it.
        for method in _ROUTED:
            function = getattr(cls, method, None)
            if isfunction(function):
                names = {"tasks", "return_std", "return_cov"} & set(signature(function).parameters)
                if names:
                    setattr(cls, f"__metadata_request__{method}", dict.fromkeys(names, True))
        super().__init_subclass__(**kwargs)

    def _resolve(
        self, X: Any, tasks: Any, *, reset: bool, keep_float32: bool = False
    ) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """Inputs, names of the tasks, and code of the task of each row.

        Parameters
        ----------
        X : frame or array-like of shape (n, p)
            Inputs, with the task column if the estimator names one.
        tasks : array-like of shape (n,) or None
            The argument of that name.
        reset : bool
            True in `fit`: names are those found, and `n_features_in_` and `feature_names_in_`
            (which count the task column) are set. False afterwards: X must have the same features
            and tasks are looked up in `tasks_`.
        keep_float32 : bool, default=False
            Leave very many float32 rows of one task as they are.

        Returns
        -------
        X : ndarray of shape (n, p), without the task column
            float64 (see `keep_float32`) and finite.
        names : ndarray of shape (M,) or None
            None if there are no tasks.
        codes : ndarray of shape (n,)
            Zero in all rows if there are no tasks.
        """
        if self.task is not None and tasks is not None:
            raise TaskError(
                f"tasks were given twice: by the column task={self.task!r} of X and by tasks=. "
                "Give one; for tasks= leave the parameter task=None."
            )
        with unchanged_on_failure(self):
            if self.task is None:
                keep = keep_float32 and tasks is None and _is_large_float32(X)
                dtype = np.float32 if keep else np.float64
                X = validate_data(self, X, dtype=dtype, reset=reset)
            else:
                validate_data(self, X, reset=reset, skip_check_array=True)  # names and number only
                X, tasks = take_task_column(X, self.task)
                X = check_array(X, dtype=np.float64, estimator=self, input_name="X")
            X = np.ascontiguousarray(X)  # sums depend on the layout; results shall not
            if reset:
                return X, *_encoded(tasks, len(X))
            self._check_same_kind(tasks)
            if self.tasks_ is None:
                return X, None, np.zeros(len(X), dtype=np.intp)
            return X, self.tasks_, lookup_tasks(self.tasks_, tasks, len(X))

    def _check_same_kind(self, tasks: Any) -> None:
        """Raise if the model was fitted with tasks and now there are none, or the reverse."""
        name = type(self).__name__
        if self.tasks_ is not None and tasks is None:
            raise TaskError(
                f"this {name} was fitted with tasks, and now there are none. Pass tasks= here too; "
                "in cross-validation name the column of X that holds them (task= or TaskColumn)."
            )
        if self.tasks_ is None and tasks is not None:
            raise TaskError(
                f"this {name} was fitted without tasks, and now tasks= is given. Leave it out, or "
                "fit with tasks."
            )

    def _rows_of_new_task(self, X: Any, task: Any) -> tuple[Any, np.ndarray]:
        """Inputs of `add_task` without the task column, and the task names with the new one."""
        if self.tasks_ is None:
            raise TaskError(
                f"this {type(self).__name__} was fitted without tasks, so {task!r} cannot be added. "
                "Fit with tasks first."
            )
        names = append_task(self.tasks_, task)
        has_column = hasattr(X, "columns") and self.task in list(X.columns)
        if self.task is not None and (has_column or np.shape(X)[1:] == (self.n_features_in_,)):
            X, given = take_task_column(X, self.task)
            if any(g != task for g in given):
                other = np.asarray(next(g for g in given if g != task)).item()
                raise TaskError(
                    f"add_task was asked to add {task!r}, but its rows say {other!r} in the task "
                    "column. Give the rows of one task, or leave the column out."
                )
        return X, names


class TaskRegressorMixin(TaskMixin, RegressorMixin):
    """A regressor with tasks."""

    def score(self, X: Any, y: Any, tasks: Any = None, sample_weight: Any = None) -> float:
        """Coefficient of determination over the rows that have a target.

        Parameters
        ----------
        X : frame or array-like of shape (n, p)
            Inputs.
        y : array-like of shape (n,)
            Targets; rows where it is NaN do not count.
        tasks : array-like of shape (n,), default=None
            Task of each row, if the model was fitted with tasks and names no column for them.
        sample_weight : array-like of shape (n,), default=None
            Weight of each row.

        Returns
        -------
        float
            R^2 of `predict(X, tasks)`.
        """
        predicted = self.predict(X, tasks=tasks)
        y, labeled = check_regression_target(y, len(predicted))
        weight = None if sample_weight is None else np.asarray(sample_weight)[labeled]
        return r2_score(y[labeled], predicted[labeled], sample_weight=weight)


class TaskClassifierMixin(TaskMixin, ClassifierMixin):
    """A classifier with tasks."""

    unlabeled: Any = None

    def score(self, X: Any, y: Any, tasks: Any = None, sample_weight: Any = None) -> float:
        """Accuracy over the labeled rows.

        Parameters
        ----------
        X : frame or array-like of shape (n, p)
            Inputs.
        y : array-like of shape (n,)
            Class labels; unlabeled rows do not count.
        tasks : array-like of shape (n,), default=None
            Task of each row, if the model was fitted with tasks and names no column for them.
        sample_weight : array-like of shape (n,), default=None
            Weight of each row.

        Returns
        -------
        float
            Share of rows for which `predict(X, tasks)` is right.
        """
        predicted = self.predict(X, tasks=tasks)
        y = check_class_target(y, len(predicted))
        labeled = split_unlabeled(y, self.unlabeled)
        if not labeled.any():
            raise LabelError("y has no labeled row. At least one is needed for a score.")
        weight = None if sample_weight is None else np.asarray(sample_weight)[labeled]
        return float(np.average(y[labeled] == predicted[labeled], weights=weight))


def _is_large_float32(X: Any) -> bool:
    """Whether learning will only ever look at parts of these rows, which are converted one by one."""
    return isinstance(X, np.ndarray) and X.dtype == np.float32 and len(X) > shared_kernel.MOST_LEARNT_ON


def _encoded(tasks: Any, n_rows: int) -> tuple[np.ndarray | None, np.ndarray]:
    if tasks is None:
        return None, np.zeros(n_rows, dtype=np.intp)
    return encode_tasks(tasks, n_rows)
