"""The base of all estimators: tasks, inputs as numbers, changes in one step, progress.

`fit` begins with `X, codes = self._learn_inputs(X, tasks)`, every other method with
`X, codes = self._encode_inputs(X, tasks)`: inputs as numbers, without the task column, and the number of the
task of each row. `tasks_` is None for a model fitted without tasks; its codes are all 0.

A method that changes an estimator (`fit`, `partial_fit`, `add_task`) works on a copy of it that shares all
arrays. When it has succeeded, the attributes of the copy become those of the estimator, by one assignment;
such methods exclude each other. If it raises, the estimator stays as it was. Methods that read (`predict`,
...) work on a copy too: they see the state before or after a change, never a mixture, and what they do to the
copy is not kept. Attributes are replaced, not written into: a method must set new arrays and objects.
"""

from collections.abc import Callable
from copy import copy
from functools import wraps
from inspect import isfunction, signature
from threading import Lock, RLock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from gleangp._compat import CallbackSupportMixin
from gleangp.data import columns, labels, tables
from gleangp.data.tasks import (
    append_task,
    encode_tasks,
    list_names,
    lookup_tasks,
    match_tasks,
    take_task_column,
    take_task_of_all,
)
from gleangp.estimators._docs import describe_methods
from gleangp.estimators._parameters import TaskParameters
from gleangp.exceptions import InputError, LabelError, NewTaskWarning, TaskError, warn_user

_CHANGING = ("fit", "partial_fit", "add_task")
_READING = """
predict predict_proba predict_latent decision_function score leave_one_out predict_interval predict_quantiles
predict_cdf log_density sample_y suggest transfer_report transform inverse_transform
""".split()
_ROUTED = ("fit", "partial_fit", "predict", "predict_proba", "decision_function", "score")

# Beside the estimators rather than in them: a lock cannot be pickled or saved, and a copy needs its own.
_LOCKS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_ADDING_A_LOCK = Lock()


def changing(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, which returns its estimator, run on a copy that then replaces its state."""

    @wraps(method)
    def change(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _ADDING_A_LOCK:
            lock = _LOCKS.setdefault(self, RLock())
        with lock:
            draft = copy(self)
            method(draft, *args, **kwargs)
            self.__dict__ = vars(draft)
        return self

    return change


def reading(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, run on a copy of its estimator, which must be fitted."""

    @wraps(method)
    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        check_is_fitted(self)
        return method(copy(self), *args, **kwargs)

    return read


def check_task_column(estimator: Any) -> None:
    """Raise if a file has an estimator with headings of other columns, or without the task column."""
    n_columns, task = estimator.n_features_in_, estimator.task
    headings = getattr(estimator, "feature_names_in_", None)
    if headings is not None and np.shape(headings) != (n_columns,):
        raise ValueError(f"{np.size(headings)} names of {n_columns} columns.")
    known = range(-n_columns, n_columns) if isinstance(task, int) else () if headings is None else headings
    if task is not None and task not in known:
        raise ValueError(f"no column {task!r}, which holds the task.")


class TaskEstimator(TaskParameters, CallbackSupportMixin):
    """Tasks from the column named by `task=` or from `tasks=`; metadata routing requests them by default."""

    tasks_: np.ndarray | None
    columns_: tuple[tables.ColumnEncoding, ...] | None
    n_features_in_: int
    _fitted_parts: tuple[str, ...] = ()  # what a fitted estimator has beside the names all have

    def __init_subclass__(cls, **kwargs: Any) -> None:
        describe_methods(cls)
        for name, method in list(vars(cls).items()):
            if name in _CHANGING:
                setattr(cls, name, changing(method))
            elif name in _READING:
                setattr(cls, name, reading(method))
        # Requested at class level, so that users of metadata routing only switch it on. Set here,
        # because scikit-learn would add a request for a parameter that a method does not have.
        # What `predict` shall return is requested too: a Pipeline that routes would refuse it.
        for name in _ROUTED:
            method = getattr(cls, name, None)
            known = signature(method).parameters if isfunction(method) else ()
            if names := {"tasks", "return_std", "return_cov"}.intersection(known):
                setattr(cls, f"__metadata_request__{name}", dict.fromkeys(names, True))
        super().__init_subclass__(**kwargs)

    def _learn_inputs(self, X: Any, tasks: Any, target: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Inputs (n, p) of `fit`, and code (n,) of the task of each row: zero if there are no tasks.

        Inputs are float64 and finite, without the task column. Sets the names of the tasks (`tasks_`), the
        encoding of the columns of a frame (`columns_`), `n_features_in_` and `feature_names_in_`, the task
        column included. `target` (n,) are numbers that decide whether dates get a yearly or weekly part.
        """
        X, tasks = self._read_inputs(X, tasks, reset=True, target=target)
        self.tasks_, codes = None, np.zeros(len(X), dtype=np.intp)
        if tasks is not None:
            self.tasks_, codes = encode_tasks(tasks, len(X))
        return X, codes

    def _encode_inputs(
        self, X: Any, tasks: Any, *, learn: bool = False, joint: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same of later rows, which must have the features of `fit`; tasks are looked up in `tasks_`.

        If `learn`, a new task is an error for any `new_tasks`. If `joint`, every new task has its own code,
        for a joint covariance; else all have one, because they have the same prediction.
        """
        X, tasks = self._read_inputs(X, tasks, reset=False)
        if q := self._outputs_asked_for(tasks):  # every row once for each of them
            return np.tile(X, (q, 1)), np.repeat(np.arange(q), len(X))
        if self.tasks_ is None and tasks is None:
            return X, np.zeros(len(X), dtype=np.intp)
        if tasks is None or self.tasks_ is None:
            wrong = "without tasks, and now tasks= is given. Leave it out, or fit with tasks."
            if tasks is None:
                wrong = "with tasks, and now there are none. Pass tasks= here too; in cross-validation name "
                wrong += "the column of X that holds them (task= or TaskColumn)."
            raise TaskError(f"this {type(self).__name__} was fitted {wrong}")
        if learn or self.new_tasks == "error":
            return X, lookup_tasks(self.tasks_, tasks, len(X))
        codes, new = match_tasks(self.tasks_, tasks, len(X))
        if len(new):
            self._add_new_tasks(new, joint=joint)
        return X, np.minimum(codes, len(self.tasks_) - 1)

    def _read_inputs(
        self, X: Any, tasks: Any = None, *, reset: bool, target: Any = None
    ) -> tuple[np.ndarray, Any]:
        """Inputs as numbers without the task column, and the tasks: that column, if there is one."""
        if self.task is not None and tasks is not None:
            raise TaskError(
                f"tasks were given twice: by the column task={self.task!r} of X and by tasks=. "
                "Give one; for tasks= leave the parameter task=None."
            )
        columns.check_headings(X)
        if reset:
            self.columns_ = None
        table = columns.is_table(X) if reset else self.columns_ is not None
        if self.task is None and not table:
            X = validate_data(self, X, dtype=np.float64, reset=reset)
        else:
            validate_data(self, X, reset=reset, skip_check_array=True)  # names and number only
            if self.task is not None:
                X, tasks = take_task_column(X, self.task)
            if table and reset:
                check_array(np.zeros(X.shape), estimator=self, input_name="X")  # there are rows and columns
                y = None if target is None else labels.check_regression_target(target, len(X))
                self.columns_ = tables.learn_columns(X, y)
            X = self._as_numbers(X)
        columns.check_magnitude(X, "X", InputError)
        if reset:
            columns.check_columns(X)
        return np.ascontiguousarray(X), tasks  # sums depend on the layout; results shall not

    def _as_numbers(self, X: Any, ensure_min_samples: int = 1) -> np.ndarray:
        """Inputs (n, p) without the task column as numbers."""
        how: Any = {"ensure_min_samples": ensure_min_samples, "estimator": self, "input_name": "X"}
        if self.columns_ is not None:
            if not columns.is_table(X):
                given = None if isinstance(X, np.ndarray) else object  # a list keeps numbers beside text
                X = check_array(X, dtype=given, ensure_all_finite=False, **how)
            X = tables.encode_columns(self.columns_, X)
        return check_array(X, dtype=np.float64, **how)

    @property
    def _n_tasks(self) -> int:
        return 1 if self.tasks_ is None else len(self.tasks_)

    def _count_inputs(self) -> int:
        """Number of columns of inputs as numbers."""
        n_columns = self.n_features_in_ - (self.task is not None)
        return n_columns if self.columns_ is None else tables.count_features(self.columns_)

    def _check_state(self: Any) -> None:
        """Raise if fitted parts are missing or do not fit together (a damaged model file)."""
        if not set(vars(self)) - set(self.get_params(deep=False)):
            return  # not fitted
        missing = {*self._fitted_parts, "tasks_", "n_features_in_"} - set(vars(self))
        if missing:
            raise ValueError(f"no {min(missing)}.")
        if not isinstance(self.n_features_in_, int) or self.n_features_in_ < 1:
            raise ValueError(f"n_features_in_={self.n_features_in_!r}.")
        check_task_column(self)
        encoding = self.columns_ = getattr(self, "columns_", None)  # older files have none
        n_columns = self.n_features_in_ - (self.task is not None)
        if encoding is not None and (
            len(encoding) != n_columns or not all(isinstance(c, tables.ColumnEncoding) for c in encoding)
        ):
            raise ValueError(f"an encoding of {len(encoding)} columns, not {n_columns}.")
        if self.task is not None and self.tasks_ is None:
            raise ValueError("no tasks.")
        if self.tasks_ is not None and len(encode_tasks(self.tasks_, len(self.tasks_))[0]) < self._n_tasks:
            raise ValueError("names of tasks that are not different.")
        classes = getattr(self, "classes_", None)
        if classes is not None and (classes.ndim != 1 or len(np.unique(classes)) != len(classes) > 1):
            raise ValueError("classes that are not different.")
        units = getattr(self, "_units", None)  # of a regressor
        if units is not None and len(units.mean) != self._n_tasks:
            raise ValueError(f"target units of {len(units.mean)} tasks, not {self._n_tasks}.")
        self._check_parts(self._count_inputs())

    def _add_new_tasks(self: Any, new: np.ndarray, *, joint: bool) -> None:
        """Add tasks without rows to this estimator, which is the copy used by one prediction."""
        self.random_state = 0  # without rows nothing is drawn; a generator of the user's stays as it is
        for task in (new if joint else new[:1]).tolist():
            self.add_task(None, None, task)
        were = "tasks were" if len(new) > 1 else "task was"
        warn_user(
            f"{len(new)} {were} not seen by this {type(self).__name__}: {list_names(new)}. Their rows are "
            "predicted from what the known tasks share. Learn new tasks with add_task, or set "
            "new_tasks='error' to refuse them.",
            NewTaskWarning,
        )

    def _outputs_asked_for(self, tasks: Any) -> int:
        """For how many outputs each row stands; 0: for the one of its task."""
        return 0

    def _rows_of_new_task(self, X: Any, task: Any) -> np.ndarray:
        """Inputs of `add_task` as numbers without the task column; the task is the last one of `tasks_`."""
        check_is_fitted(self)
        if self.tasks_ is None:
            raise TaskError(
                f"this {type(self).__name__} was fitted without tasks, so {task!r} cannot be added. "
                "Fit with tasks first."
            )
        self.tasks_, n_inputs = append_task(self.tasks_, task), self._count_inputs()
        if X is None:
            return np.zeros((0, n_inputs))
        X = take_task_of_all(X, self.task, task, self.n_features_in_)
        X = self._as_numbers(X, ensure_min_samples=0)
        columns.check_magnitude(X, "X", InputError)
        if X.shape[1] != n_inputs:
            raise ValueError(
                f"X has {X.shape[1]} features, but {type(self).__name__} is expecting {n_inputs} features "
                "as input."
            )
        return X


class TaskClassifierMixin(TaskEstimator, ClassifierMixin):
    """A classifier with tasks and a `predict_proba`."""

    classes_: np.ndarray
    unlabeled: Any = None

    def predict(self, X: Any, tasks: Any = None) -> np.ndarray:
        """The most probable class of each row's task."""
        return self.classes_[self.predict_proba(X, tasks=tasks).argmax(axis=1)]

    def score(self, X: Any, y: Any, tasks: Any = None, sample_weight: Any = None) -> float:
        """Accuracy over the labeled rows."""
        predicted = self.predict(X, tasks=tasks)
        y = labels.check_class_target(y, len(predicted))
        labeled = labels.split_unlabeled(y, self.unlabeled)
        if not labeled.any():
            raise LabelError("y has no labeled row. At least one is needed for a score.")
        weight = None if sample_weight is None else np.asarray(sample_weight)[labeled]
        return float(np.average(y[labeled] == predicted[labeled], weights=weight))
