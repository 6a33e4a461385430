"""Pipelines with a task column: taken off X before any step sees it, handed on as `tasks`."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn import config_context
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, get_routing_for_object
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from gleangp._compat import CallbackSupportMixin, HasMethods, fit_context
from gleangp.data.columns import check_headings
from gleangp.data.tasks import take_task_column, take_task_of_all
from gleangp.estimators._base import changing, check_task_column, reading
from gleangp.estimators._docs import describe_methods
from gleangp.exceptions import ModelFileError, TaskError

_OF_METHODS = """
X : DataFrame or array-like of shape (n, p)
    Inputs with the task column.
**params : dict
    Handed on to the method of the wrapped estimator, for example `return_std=True` or `sample_weight`. A
    pipeline routes them to the steps that request them.
"""
_METHODS = ("fit", "predict", "predict_proba", "decision_function", "score")


def _last_step(estimator: Any) -> Any:
    return estimator[-1] if isinstance(estimator, Pipeline) else estimator


def _has(method: str, of: Callable[[Any], Any] = lambda estimator: estimator) -> Callable[[Any], bool]:
    """Whether the wrapped estimator (the fitted one where there is one), or a part of it, has the method."""

    def check(self: Any) -> bool:
        getattr(of(getattr(self, "estimator_", self.estimator)), method)  # its own AttributeError
        return True

    return check


class TaskColumn(CallbackSupportMixin, MetaEstimatorMixin, BaseEstimator):
    """Give a pipeline the tasks of its last step from a column of X.

    Scalers and encoders must not see the task column, and scikit-learn's scorers do not pass `tasks=` to
    `predict`. This takes the column off X, and the wrapped pipeline (or estimator) gets it as `tasks=`.

    Parameters
    ----------
    estimator : estimator
        A `Pipeline` whose last step takes `tasks`, or such an estimator itself. It is cloned in
        `fit`, and its own `task` parameter must be None.
    task : str or int
        Name of the column of X that holds the task (frames), or its position.

    Attributes
    ----------
    estimator_ : estimator
        The fitted clone.
    classes_ : ndarray
        Of the wrapped estimator, if it is a classifier.
    n_features_in_ : int
        Number of columns of X, the task column included.
    feature_names_in_ : ndarray
        Their names, if all are strings.

    Notes
    -----
    `add_task` and `partial_fit` change the last step alone: the steps before it transform the new rows as
    they were fitted. `gleangp.save` lists the transformers of scikit-learn that a model file may hold.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from gleangp import SparseGPClassifier, TaskColumn
    >>> X = np.column_stack([np.repeat([7, 8], 20), np.tile(np.linspace(-2, 2, 20), 2)])
    >>> y = X[:, 1] > 0
    >>> pipeline = make_pipeline(StandardScaler(), SparseGPClassifier(random_state=0))
    >>> model = TaskColumn(pipeline, task=0).fit(X, y)
    >>> model.predict([[7, 1.5]]).tolist(), model.predict_proba([[7, 1.5]]).round().tolist()
    ([True], [[0.0, 1.0]])
    >>> bool(model.decision_function([[7, 1.5]])[0] > 0), model.score(X, y) > 0.9
    (True, True)
    >>> model = model.add_task([[9, -1.0], [9, 1.0]], [False, True], 9)
    >>> model = model.partial_fit([[9, -2.0], [9, 2.0]], [False, True])
    >>> model.predict([[9, 1.5]])
    array([ True])
    """

    _parameter_constraints = {"estimator": [HasMethods(["fit", "predict"])], "task": [str, int, np.integer]}

    def __init__(self, estimator: Any, task: str | int) -> None:
        self.estimator = estimator
        self.task = task

    @changing
    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any = None, **params: Any) -> Self:
        """Fit a clone of the wrapped estimator on X without the task column."""
        self._check_columns(X, reset=True)
        self.estimator_ = clone(self.estimator)
        context = self._init_callback_context(max_subtasks=1)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        inner = context.subcontext("fit without the task column")
        with inner.propagate_callback_context(self.estimator_):
            inner.call_on_fit_task_begin(estimator=self, X=X, y=y)
            self._call("fit", X, y, **params)
            inner.call_on_fit_task_end(estimator=self, X=X, y=y)
        context.call_on_fit_task_end(estimator=self, X=X, y=y, reconstruction_attributes=dict)
        return self

    @available_if(_has("partial_fit", _last_step))
    def partial_fit(self, X: Any, y: Any, **params: Any) -> Self:
        """Absorb new rows of known tasks into the last step; on a new estimator, `fit`."""
        if not hasattr(self, "estimator_"):
            return self.fit(X, y, **params)
        self._check_columns(X)
        X, tasks = take_task_column(X, self.task)
        _last_step(self.estimator_).partial_fit(self._transformed(X), y, tasks=tasks, **params)
        return self

    @available_if(_has("add_task", _last_step))
    def add_task(self, X: Any, y: Any, task: Any) -> Self:
        """Teach the last step one more task."""
        check_is_fitted(self)
        if X is not None:
            check_headings(X)
            X = self._transformed(take_task_of_all(X, self.task, task, self.n_features_in_))
        _last_step(self.estimator_).add_task(X, y, task)
        return self

    @available_if(_has("predict"))
    def predict(self, X: Any, **params: Any) -> Any:
        """Predict with the wrapped estimator."""
        return self._check_and_call("predict", X, **params)

    @available_if(_has("predict_proba"))
    def predict_proba(self, X: Any, **params: Any) -> Any:
        """Probabilities of the classes from the wrapped estimator."""
        return self._check_and_call("predict_proba", X, **params)

    @available_if(_has("decision_function"))
    def decision_function(self, X: Any, **params: Any) -> Any:
        """Decision values from the wrapped estimator."""
        return self._check_and_call("decision_function", X, **params)

    @available_if(_has("score"))
    def score(self, X: Any, y: Any = None, **params: Any) -> float:
        """Score of the wrapped estimator."""
        return self._check_and_call("score", X, y, **params)

    @property
    def classes_(self) -> np.ndarray:
        """Classes of the fitted wrapped estimator."""
        return self.estimator_.classes_

    def get_metadata_routing(self) -> MetadataRouter:
        """Everything but the tasks is for the wrapped estimator, method by method.

        Returns
        -------
        MetadataRouter
        """
        mapping = MethodMapping()
        for method in _METHODS:
            mapping.add(caller=method, callee=method)
        return MetadataRouter(owner=self).add(estimator=self.estimator, method_mapping=mapping)

    def __sklearn_tags__(self) -> Tags:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type, tags.non_deterministic = inner.estimator_type, inner.non_deterministic
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.target_tags = inner.target_tags
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        tags.input_tags.string = True  # the task column
        return tags

    def _transformed(self, X: Any) -> Any:
        """Rows as the last step of a pipeline gets them."""
        several = isinstance(self.estimator_, Pipeline) and len(self.estimator_) > 1
        return self.estimator_[:-1].transform(X) if several else X

    def _check_state(self) -> None:
        """Raise if the fitted estimator is none (a damaged model file)."""
        if "estimator_" not in vars(self):
            return
        if not isinstance(self.estimator_, BaseEstimator):
            raise ModelFileError(f"a TaskColumn of a {type(self.estimator_).__name__}.")
        if type(self.estimator) is not type(self.estimator_) or not hasattr(self.estimator_, "predict"):
            raise ModelFileError(f"a TaskColumn whose {type(self.estimator_).__name__} is another one.")
        check_task_column(self)
        n_columns = self.n_features_in_ - 1
        if getattr(self.estimator_, "n_features_in_", n_columns) != n_columns:
            raise ModelFileError(f"a TaskColumn of other columns than {self.n_features_in_}.")

    def _check_columns(self, X: Any, *, reset: bool = False) -> None:
        """Names and number of columns; `fit` sets them."""
        check_headings(X)
        validate_data(self, X, reset=reset, skip_check_array=True)

    @reading
    def _check_and_call(self, method: str, X: Any, *args: Any, **params: Any) -> Any:
        self._check_columns(X)
        return self._call(method, X, *args, **params)

    def _call(self, method: str, X: Any, *args: Any, **params: Any) -> Any:
        """Call a method of `estimator_` on X without the task column, with that as `tasks`."""
        if "tasks" in params:
            raise TaskError(
                f"tasks were given twice: by the column task={self.task!r} of X and by tasks=. "
                "Leave out tasks=, or fit the wrapped estimator directly."
            )
        X, tasks = take_task_column(X, self.task)
        with config_context(enable_metadata_routing=True):
            if not get_routing_for_object(self.estimator_).consumes(method, ["tasks"]):
                raise TaskError(
                    f"{type(self.estimator_).__name__}.{method} has no use for tasks (the column "
                    f"task={self.task!r}). The last step must take tasks=; if the estimator is a "
                    "search, a calibration or a stack, put TaskColumn inside it."
                )
            return getattr(self.estimator_, method)(X, *args, tasks=tasks, **params)


describe_methods(TaskColumn, _OF_METHODS)
