"""Memory that is used again: evaluations of one objective follow each other in the same arrays.

The system takes large arrays back when they are freed, and clears their pages when it hands them out
again; a kernel matrix of some hundreds of rows then costs as much to fetch as to fill. So kernels ask
`room` for their matrices, and the optimiser evaluates its objective by `reusing` memory: every call gets
the arrays of the call before, in the order in which it asks. Elsewhere `room` is `numpy.empty`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from math import prod
from threading import local
from typing import Any

import numpy as np

from gleangp._typing import FloatArray

_LARGE = 2**14  # numbers: smaller arrays the allocator keeps at hand itself

_here = local()  # of a thread: the workspace of the call that is running, if it has one


class Workspace:
    """The arrays of one call, in the order in which they were asked for."""

    def __init__(self) -> None:
        self._arrays: list[FloatArray] = []
        self._given = 0

    def start_again(self) -> None:
        """What was given so far may be overwritten."""
        self._given = 0

    def room(self, shape: tuple[int, ...]) -> FloatArray:
        """An array of any content that nobody else has been given since the start."""
        size = prod(shape)
        if self._given == len(self._arrays):
            self._arrays.append(np.empty(size))
        elif self._arrays[self._given].size < size:
            self._arrays[self._given] = np.empty(size)
        array = self._arrays[self._given]
        self._given += 1
        return array[:size].reshape(shape)


def room(shape: tuple[int, ...]) -> FloatArray:
    """An array of any content, in C order."""
    workspace: Workspace | None = getattr(_here, "workspace", None)
    if workspace is None or prod(shape) < _LARGE:
        return np.empty(shape)
    return workspace.room(shape)


def reusing(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, computing in the memory of its last call.

    What it returns, or keeps until the next call, must not be an array from `room`.

    Examples
    --------
    >>> @reusing
    ... def total(x):
    ...     scratch = room((200, 200))
    ...     scratch[:] = x
    ...     return float(scratch.sum())
    >>> total(1.0), total(2.0)
    (40000.0, 80000.0)
    """
    workspace = Workspace()

    @wraps(function)
    def in_workspace(*arguments: Any, **options: Any) -> Any:
        outer = getattr(_here, "workspace", None)
        workspace.start_again()
        _here.workspace = workspace
        try:
            return function(*arguments, **options)
        finally:
            _here.workspace = outer

    return in_workspace
