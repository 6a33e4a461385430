"""Estimators that several threads use: changes exclude each other and show in one step.

A method that changes an estimator (`fit`, `partial_fit`, `add_task`) works on a copy of it that shares all
arrays. When it has succeeded, the attributes of the copy become those of the estimator, by one assignment.
If it raises, the estimator stays as it was. Methods that read (`predict`, ...) work on a copy too: they see
the state before or after a change, never a mixture, and what they do to the copy is not kept.

Attributes are replaced, not written into: a method must set new arrays and objects.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import Lock, RLock
from typing import Any
from weakref import WeakKeyDictionary

from sklearn.utils.validation import check_is_fitted

__all__ = ["changing", "in_one_step", "reading"]

# Beside the estimators rather than in them: a lock cannot be pickled or saved, and a copy needs its own.
_LOCKS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_ADDING_A_LOCK = Lock()


@contextmanager
def in_one_step(estimator: Any) -> Iterator[Any]:
    """A copy to change. The estimator becomes what the copy then is, unless the block raises."""
    with _ADDING_A_LOCK:
        lock = _LOCKS.setdefault(estimator, RLock())
    with lock:
        draft = _shallow_copy(estimator)
        yield draft
        estimator.__dict__ = vars(draft)


def changing(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, which returns its estimator, run `in_one_step`."""

    @wraps(method)
    def change(self: Any, *args: Any, **kwargs: Any) -> Any:
        with in_one_step(self) as draft:
            method(draft, *args, **kwargs)
        return self

    return change


def reading(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, run on a copy of its estimator, which must be fitted."""

    @wraps(method)
    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        check_is_fitted(self)
        return method(_shallow_copy(self), *args, **kwargs)

    return read


def _shallow_copy(estimator: Any) -> Any:
    copy = object.__new__(type(estimator))
    copy.__dict__ = dict(vars(estimator))
    return copy
