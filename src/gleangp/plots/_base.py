"""What all Displays share: axes, colours, and the points that a model has kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gleangp._typing import FloatArray, IntArray
from gleangp.data.tables import count_features
from gleangp.estimators._docs import describe
from gleangp.exceptions import TaskError

# Okabe and Ito's colours, in an order in which neighbours are told apart by everyone.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#666666", "#B8A800")
DIVERGING = "PuOr"
MARKERS = "osD^vP*X"


_PARAMETERS = """
ax : matplotlib axes, default=None
    Where to draw. None: a new figure.
feature_names : sequence of str, default=None
    Names of the inputs. None: those of the columns of X, or of the frame the model was fitted on.
task : default=None
    Which task, if the model has several.
tasks : array-like of shape (n,), default=None
    Their tasks, if the model takes them so.
label : str, default=None
    For a legend.
"""


class Display:
    """Base of the Displays: `ax_`, `figure_`, and what public methods take and return."""

    ax_: Any
    figure_: Any

    def __init_subclass__(cls) -> None:
        for name in {"from_estimator", "from_predictions", "plot"} & set(vars(cls)):
            method = vars(cls)[name]
            describe(getattr(method, "__func__", method), _PARAMETERS, cls.__name__)

    def _start(self, ax: Any) -> Any:
        """The axes to draw on: those given, or those of a new figure."""
        if ax is None:
            from matplotlib import pyplot

            _, ax = pyplot.subplots(layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        ax.spines[["top", "right"]].set_visible(False)
        return ax

    def _legend(self, ax: Any, *, above: bool = False, **options: Any) -> None:
        """A legend beside the axes, or above them, where it covers no data; none if nothing has a label."""
        place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0}
        if above:
            place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "ncols": 3, "columnspacing": 1.2}
        if not ax.get_legend_handles_labels()[0]:
            return
        ax.legend(frameon=False, fontsize="small", **place, **options)


def check_kind(display: str, model: Any, *, of_classes: bool, instead: str) -> None:
    """Raise if a Display for classes, or for numbers, is given a model of the others."""
    if hasattr(model, "predict_proba") != of_classes:
        wanted, found = ("classes", "numbers") if of_classes else ("numbers", "classes")
        name = type(model).__name__
        raise TypeError(f"{display} is for {wanted}, and {name} predicts {found}. Use {instead}.")


def inputs_of(model: Any, X: Any) -> Any:
    """Inputs without the task column: a pandas frame for models of frames, else an array of numbers."""
    names = [c for c in getattr(model, "feature_names_in_", []) if c != model.task]
    if not names:
        return np.asarray(X, dtype=np.float64)
    import pandas as pd

    if not hasattr(X, "columns"):
        return pd.DataFrame(np.asarray(X), columns=names)
    return (X.to_pandas() if hasattr(X, "to_pandas") else X)[names]


def input_names(model: Any, X: Any, names: Sequence[str] | None = None) -> list[str]:
    """Names of the inputs: as given, of the columns of X or of the frame of the fit, or x0, x1, ..."""
    if names is None:
        columns = X.columns if hasattr(X, "columns") else getattr(model, "feature_names_in_", [])
        names = [str(c) for c in columns if c != getattr(model, "task", None)]
    return list(names) or [f"x{i}" for i in range(np.shape(X)[1])]


def values_of(X: Any, feature: int, names: Sequence[str]) -> FloatArray:
    """One input, which must be a number."""
    cells = X[:, feature] if isinstance(X, np.ndarray) else X.iloc[:, feature]
    try:
        if is_date(X, feature):
            raise ValueError
        return np.asarray(cells, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"the input {names[feature]!r} is not a number, and a picture needs numbers along its axes. "
            "Choose another input."
        ) from None


def is_date(X: Any, feature: int) -> bool:
    """Whether an input is a column of dates of a frame."""
    return not isinstance(X, np.ndarray) and X.dtypes.iloc[feature].kind == "M"


def rows_of_task(model: Any, X: Any, y: Any, code: int) -> tuple[Any, Any]:
    """The rows of one task, where X is a frame with the task column and has some; else all."""
    if model.tasks_ is None or not hasattr(X, "columns") or model.task not in list(X.columns):
        return X, y
    own = np.asarray(X[model.task]) == model.tasks_[code]
    if not own.any():
        return X, y
    rows = X.to_pandas() if hasattr(X, "to_pandas") else X
    return rows[own], None if y is None else np.asarray(y)[own]


def held_rows(X: Any, shown: dict[int, FloatArray]) -> Any:
    """Rows with these values of some inputs, the others at their median or most frequent value."""
    n = len(next(iter(shown.values())))
    if isinstance(X, np.ndarray):
        grid = np.tile(np.median(X, axis=0), (n, 1))
        for feature, values in shown.items():
            grid[:, feature] = values
        return grid
    held = {c: X[c].median() if X[c].dtype.kind in "iufM" else X[c].mode().iloc[0] for c in X.columns}
    return type(X)({**held, **{X.columns[i]: v for i, v in shown.items()}}, index=range(n))


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


def held_values(grid: Any, names: Sequence[str], shown: Sequence[int], most: int = 4) -> str:
    """At which values the inputs of `held_rows` are that a picture does not show."""
    values = list(grid[0] if isinstance(grid, np.ndarray) else grid.iloc[0])
    others = [i for i in range(len(values)) if i not in shown]
    text = ", ".join(f"{shortened(names[i])} = {_cell(values[i])}" for i in others[:most])
    return text + (f" and {len(others) - most} more" if len(others) > most else "")


def _cell(value: Any) -> str:
    if isinstance(value, int | float | np.number) and not isinstance(value, bool):
        return f"{value:.3g}"
    return shortened(str(value).removesuffix(" 00:00:00"))


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


def at_task(model: Any, X: Any, code: int | IntArray) -> dict[str, Any]:
    """Arguments with which the model predicts rows X (of `inputs_of`), however it takes tasks.

    `code` is the task of all rows, or of every row.
    """
    if model.tasks_ is None:
        return {"X": X}
    names = np.broadcast_to(model.tasks_[code], len(X))
    if model.task is None:
        return {"X": X, "tasks": names}
    if not isinstance(X, np.ndarray):
        return {"X": X.assign(**{model.task: names})[list(model.feature_names_in_)]}
    position = model.task % (X.shape[1] + 1)
    return {"X": np.insert(X.astype(object), position, names, axis=1)}


def submodels(model: Any) -> list[Any]:
    """The sparse models inside an estimator: one, or one per class; none for other estimators."""
    found = getattr(model, "_models", None) or [getattr(model, "_model", None)]
    return [m for m in found if hasattr(m, "active_task")]


def kept_points(model: Any, code: int) -> FloatArray | None:
    """Inputs (d, p) of the rows of one task that the model keeps, or None if it keeps none."""
    parts = [m.rows_of_task(code) for m in submodels(model)]
    return np.unique(np.vstack(parts), axis=0) if parts else None


def active_points(model: Any, code: int, features: Sequence[int]) -> FloatArray | None:
    """Some inputs of the active points among the rows of one task, or None if the model has none."""
    parts = [getattr(m, "active_of_task", m.rows_of_task)(code) for m in submodels(model)]
    columns = getattr(model, "columns_", None)
    if columns is not None:  # a column can be several inputs
        features = [count_features(columns[:f]) for f in features]
    return np.unique(np.vstack(parts), axis=0)[:, features] if parts else None


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
