"""Every private name of scikit-learn that gleangp uses, so that a release of it breaks one file.

scikit-learn has callbacks since version 1.9. For older versions this module has the part of them that our
estimators use: `set_callbacks`, and contexts that call the hooks. There, a pipeline or a search does not pass
its callbacks on to its steps.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Any, Self

from sklearn.base import _clone_parametrized, _fit_context
from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import HasMethods as HasMethods
from sklearn.utils._param_validation import Interval as Interval
from sklearn.utils._param_validation import StrOptions as StrOptions

try:
    from sklearn import callback as _callback
except ImportError:
    _callback = None

safe_indexing = _safe_indexing
CALLBACKS = "_skl_callbacks"  # the attribute of an estimator that has callbacks
_HOOKS = ("setup", "on_fit_task_begin", "on_fit_task_end", "teardown")


def callbacks_of(estimator: Any) -> list[Any]:
    """The callbacks that the estimator has."""
    return getattr(estimator, CALLBACKS, [])


@dataclass(eq=False)
class _Context:
    """A task of a fit, or a part of one: what hooks get as `context`."""

    callbacks: list[Any]
    task_name: str
    max_subtasks: int | None
    parent: Self | None = None
    task_id: int = 0
    n_children: int = 0

    def subcontext(self, task_name: str = "", max_subtasks: int | None = 0) -> Self:
        """The next part of this task."""
        self.n_children += 1
        return type(self)(self.callbacks, task_name, max_subtasks, self, self.n_children - 1)

    def call_on_fit_task_begin(self, estimator: Any, **data: Any) -> None:
        """Tell the callbacks that this task begins."""
        self._call("on_fit_task_begin", estimator, data)

    def call_on_fit_task_end(self, estimator: Any, **data: Any) -> bool:
        """Tell the callbacks that this task is done; whether one of them asks to stop."""
        if data.pop("reconstruction_attributes", None) is not None:
            data["fitted_estimator"] = estimator
        return any([bool(stop) for stop in self._call("on_fit_task_end", estimator, data)])

    def propagate_callback_context(self, estimator: Any) -> nullcontext[None]:
        """The callbacks of an outer estimator stay there."""
        return nullcontext()

    def _call(self, name: str, estimator: Any, data: dict[str, Any]) -> list[Any]:
        """Call the hooks with what their signatures name of the data; None for what there is not."""
        answers = []
        for hook in [getattr(callback, name) for callback in self.callbacks]:
            named = [p.name for p in signature(hook).parameters.values() if p.kind is Parameter.KEYWORD_ONLY]
            answers.append(hook(estimator, self, **{name: data.get(name) for name in named}))
        return answers


class _SupportMixin:
    """An estimator that has callbacks."""

    def set_callbacks(self, *callbacks: Any) -> Self:
        """Set the callbacks, objects with the methods of `_HOOKS`, in place of those that it has."""
        for callback in callbacks:
            missing = [name for name in _HOOKS if not callable(getattr(callback, name, None))]
            if missing or isinstance(callback, type):
                wrong = f"has no method {missing[0]!r}" if missing else "is a class, not an instance"
                raise TypeError(f"The callback {callback!r} {wrong}. A callback is an object with {_HOOKS}.")
        vars(self).pop(CALLBACKS, None)
        if callbacks:
            setattr(self, CALLBACKS, list(callbacks))
        return self

    def _init_callback_context(self, max_subtasks: int | None = 0) -> _Context:
        self._callback_fit_ctx = _Context(callbacks_of(self), "fit", max_subtasks)
        self._skl_callbacks_to_teardown: list[Any] = []
        for callback in callbacks_of(self):
            self._skl_callbacks_to_teardown.append(callback)
            callback.setup(self, self._callback_fit_ctx)
        return self._callback_fit_ctx

    def __sklearn_clone__(self) -> Self:
        return _clone_parametrized(self).set_callbacks(*callbacks_of(self))


def _fit_context_with_teardown(*, prefer_skip_nested_validation: bool) -> Callable[..., Any]:
    """What `fit` is decorated with: parameters are checked before it, callbacks are torn down after it."""

    def decorate(fit: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(fit)
        def torn_down(estimator: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return fit(estimator, *args, **kwargs)
            finally:
                context = vars(estimator).pop("_callback_fit_ctx", None)
                for callback in vars(estimator).pop("_skl_callbacks_to_teardown", ()):
                    callback.teardown(estimator, context)

        return _fit_context(prefer_skip_nested_validation=prefer_skip_nested_validation)(torn_down)

    return decorate


CallbackSupportMixin: Any = _SupportMixin if _callback is None else _callback.CallbackSupportMixin
fit_context = _fit_context_with_teardown if _callback is None else _fit_context
