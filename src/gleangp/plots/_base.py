"""What all Displays share: axes, colours, and the points that a model has kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gleangp._typing import FloatArray, IntArray
from gleangp.exceptions import TaskError

# Okabe and Ito's colours, in an order in which neighbours are told apart by everyone.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#666666", "#B8A800")
DIVERGING = "PuOr"
SEQUENTIAL = "viridis"
MARKERS = "osD^vP*X"


class Display:
    """Base of the Displays: `ax_`, `figure_`."""

    ax_: Any
    figure_: Any

    def _start(self, ax: Any) -> Any:
        """The axes to draw on: those given, or those of a new figure."""
        if ax is None:
            from matplotlib import pyplot

            _, ax = pyplot.subplots(layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        ax.spines[["top", "right"]].set_visible(False)
        return ax

    def _legend(self, ax: Any, *, above: bool = False, **options: Any) -> None:
        """A legend beside the axes, or above them, where it covers no data."""
        place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0}
        if above:
            place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "ncols": 3, "columnspacing": 1.2}
        ax.legend(frameon=False, fontsize="small", **place, **options)


def input_names(model: Any, X: Any, names: Sequence[str] | None = None) -> list[str]:
    """Names of the inputs: as given, of the columns of X or of the frame of the fit, or x0, x1, ..."""
    if names is None and hasattr(X, "columns"):
        names = [str(c) for c in X.columns]
    if names is None:
        names = [str(f) for f in getattr(model, "feature_names_in_", []) if f != getattr(model, "task", None)]
    return list(names) or [f"x{i}" for i in range(np.shape(X)[1])]


def target_name(y: Any, name: str | None = None) -> str:
    """As given, or the name of a column; "target" where there is none."""
    return name or str(getattr(y, "name", None) or "target")


def position_of(feature: int | str, names: Sequence[str]) -> int:
    """Position of an input, by its name or its number."""
    if isinstance(feature, str):
        if feature not in names:
            raise ValueError(f"there is no input {feature!r}. Inputs: {', '.join(map(repr, names))}.")
        return list(names).index(feature)
    return feature


def held_values(row: FloatArray, names: Sequence[str], shown: Sequence[int], most: int = 4) -> str:
    """At which values the inputs are that a picture does not show."""
    others = [i for i in range(len(row)) if i not in shown]
    text = ", ".join(f"{shortened(names[i])} = {row[i]:.3g}" for i in others[:most])
    return text + (f" and {len(others) - most} more" if len(others) > most else "")


def color_of(index: int) -> str:
    """A colour for the index-th thing of several."""
    return COLORS[index % len(COLORS)]


def task_code(model: Any, task: Any) -> int:
    """Position of a task in the model; a model of one task needs no name."""
    check_is_fitted(model)
    if model.tasks_ is None:
        if task is not None:
            raise TaskError(f"this model was fitted without tasks, and now task={task!r}. Leave it out.")
        return 0
    if task is None and len(model.tasks_) == 1:
        return 0
    found = np.flatnonzero([name == task for name in model.tasks_.tolist()])
    if len(found) == 0:
        known = ", ".join(map(repr, model.tasks_.tolist()[:20]))
        raise TaskError(f"task={task!r} is not a task of this model. Its tasks: {known}.")
    return int(found[0])


def at_task(model: Any, X: FloatArray, code: int) -> dict[str, Any]:
    """Arguments with which the model predicts rows X of one task, however it takes tasks."""
    if model.tasks_ is None:
        return {"X": X}
    names = np.full(len(X), model.tasks_[code], dtype=model.tasks_.dtype)
    if model.task is None:
        return {"X": X, "tasks": names}
    return {"X": _with_column(model, X, names)}


def _with_column(model: Any, X: FloatArray, names: np.ndarray) -> Any:
    if hasattr(model, "feature_names_in_"):
        import pandas as pd

        columns = [c for c in model.feature_names_in_ if c != model.task]
        frame = pd.DataFrame(X, columns=columns)
        frame[model.task] = names
        return frame[list(model.feature_names_in_)]
    out = np.empty((len(X), X.shape[1] + 1), dtype=object)
    position = model.task % out.shape[1]
    out[:, position] = names
    out[:, np.arange(out.shape[1]) != position] = X
    return out


def submodels(model: Any) -> list[Any]:
    """The sparse models inside an estimator: one, or one per class; none for other estimators."""
    found = getattr(model, "_models", None) or [getattr(model, "_model", None)]
    return [m for m in found if hasattr(m, "active_task")]


def kept_points(model: Any, code: int) -> FloatArray | None:
    """Inputs (d, p) of the rows of one task that the model keeps, or None if it keeps none."""
    parts = [m.rows_of_task(code) for m in submodels(model)]
    return np.unique(np.vstack(parts), axis=0) if parts else None


def active_points(model: Any, code: int) -> FloatArray | None:
    """Inputs (d, p) of the active points among the rows of one task, or None if the model has none."""
    parts = [getattr(m, "active_of_task", m.rows_of_task)(code) for m in submodels(model)]
    return np.unique(np.vstack(parts), axis=0) if parts else None


def active_tasks(model: Any) -> IntArray:
    """Task code of every active point, over all classes."""
    parts = [m.active_task for m in submodels(model)]
    if not parts:
        raise TypeError(f"{type(model).__name__} keeps no active points, so there is nothing to draw.")
    return np.concatenate(parts)


def task_names(model: Any) -> list[str]:
    """Names of the tasks, as text."""
    return ["all rows"] if model.tasks_ is None else [str(name) for name in model.tasks_.tolist()]


def shortened(name: str, length: int = 18) -> str:
    """A name that fits beside an axis; both its ends are kept, for names often differ in the last."""
    if len(name) <= length:
        return name
    tail = length // 3
    return name[: length - tail - 1] + "…" + name[-tail:]
