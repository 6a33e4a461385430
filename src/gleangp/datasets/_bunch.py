"""What every loader takes and returns, and sets that are columns of one table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from sklearn.utils import Bunch

from gleangp.datasets._places import locate
from gleangp.datasets._tables import Table, read_table
from gleangp.estimators._docs import describe

_OPTIONS = """
as_frame : bool, default=False
    Give pandas objects instead of arrays.
return_X_y : bool, default=False
    Give (data, target), or (data, target, tasks) if there are tasks, instead of a Bunch.
"""
_Loader = TypeVar("_Loader", bound=Callable[..., Any])


def loader(function: _Loader) -> _Loader:
    """A public loader: its docstring is completed by the options that all have."""
    describe(function, _OPTIONS)
    return function


@dataclass(frozen=True)
class Columns:
    """A set whose file has a column for each input and target, and perhaps one for the task."""

    path: str
    description: str
    inputs: Sequence[str]
    targets: Sequence[str]
    tasks: str | None = None
    classes: bool = False  # targets are whole numbers

    def read(self) -> Table:
        """The whole table."""
        return read_table(locate(self.path))

    def bunch(self, table: Table, as_frame: bool, return_X_y: bool, kept: Any = ..., **more: Any) -> Any:
        """What the loader returns of the rows that are kept; `more` goes to `make_bunch`."""
        y = np.column_stack([table[name] for name in self.targets])
        y = y if len(self.targets) > 1 else y[:, 0]
        names = {"feature_names": list(self.inputs), "target_names": list(self.targets)}
        return make_bunch(
            np.column_stack([table[name] for name in self.inputs])[kept],
            (y.astype(int) if self.classes else y)[kept],
            None if self.tasks is None else table[self.tasks][kept].astype(int),
            description=self.description,
            as_frame=as_frame,
            return_X_y=return_X_y,
            **(names | more),
        )

    def load(self, as_frame: bool, return_X_y: bool) -> Any:
        """What the loader returns of all rows."""
        return self.bunch(self.read(), as_frame, return_X_y)


def make_bunch(
    data: np.ndarray,
    target: np.ndarray,
    tasks: np.ndarray | None,
    *,
    feature_names: list[str],
    target_names: list[str],
    description: str,
    as_frame: bool,
    return_X_y: bool,
    raw: dict[str, np.ndarray] | None = None,
    **more: Any,
) -> Any:
    """A Bunch, or (X, y), or (X, y, tasks) where there are tasks.

    `raw` are the inputs in their own types, for the data frame; left out, they are the columns of `data`.
    """
    frame = None
    X: Any = data
    y: Any = target
    t: Any = tasks
    if as_frame:
        import pandas as pd

        X = pd.DataFrame(raw if raw is not None else data, columns=None if raw is not None else feature_names)
        y = (
            pd.Series(target, name=target_names[0])
            if target.ndim == 1
            else pd.DataFrame(target, columns=target_names)
        )
        parts = [X, y]
        if tasks is not None:
            t = pd.Series(tasks, name="task")
            parts.insert(0, t)
        frame = pd.concat(parts, axis=1)
    if return_X_y:
        return (X, y) if tasks is None else (X, y, t)
    return Bunch(
        data=X,
        target=y,
        tasks=t,
        feature_names=list(X.columns) if as_frame else feature_names,
        target_names=target_names,
        frame=frame,
        DESCR=description,
        **more,
    )
