"""Predictions over one input, with their uncertainty and the points that carry them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np

from gleangp._typing import FloatArray
from gleangp.plots._base import (
    COLORS,
    Display,
    active_points,
    at_task,
    check_kind,
    held_rows,
    held_values,
    input_names,
    inputs_of,
    is_date,
    position_of,
    rows_of_task,
    target_name,
    task_code,
    values_of,
)


@dataclass(eq=False, repr=False)
class PredictionDisplay(Display):
    """Mean and bands of two standard deviations over one input.

    Parameters
    ----------
    x : ndarray of shape (m,)
        Where the model was asked.
    mean, std : ndarray of shape (m,)
        What it said of the function.
    std_with_noise : ndarray of shape (m,), default=None
        Standard deviation of new observations, if known.
    X, y : ndarray of shape (n,), default=None
        Data to show.
    active : ndarray of shape (d,), default=None
        Positions of the active points.
    label : str, default=None
        Name of the task.
    x_label, y_label : str
        Names of the input and of the target.
    others : str, default=""
        Values at which the other inputs are held.
    least : float, default=-inf
        Least value of the target, at which bands end: zero for counts and positive targets.

    Examples
    --------
    >>> import numpy as np
    >>> from gleangp import SparseGPRegressor
    >>> from gleangp.plots import PredictionDisplay
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = SparseGPRegressor(n_active=8, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> display = PredictionDisplay.from_estimator(model, X, np.sin(X[:, 0]))
    >>> display = display.plot()  # again, on new axes
    >>> display.mean.shape
    (300,)
    """

    x: FloatArray
    mean: FloatArray
    std: FloatArray
    _: KW_ONLY
    std_with_noise: FloatArray | None = None
    X: FloatArray | None = None
    y: FloatArray | None = None
    active: FloatArray | None = None
    label: str | None = None
    x_label: str = "input"
    y_label: str = "target"
    others: str = ""
    least: float = -np.inf

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        X: Any,
        y: Any = None,
        *,
        task: Any = None,
        feature: int | str = 0,
        n_points: int = 300,
        margin: float = 0.1,
        feature_names: Sequence[str] | None = None,
        target: str | None = None,
        ax: Any = None,
    ) -> Self:
        """Predict along one input and draw.

        Parameters
        ----------
        model : estimator
            A fitted regressor.
        X : frame or array-like of shape (n, p)
            Inputs of the task that is shown: they give the range, and the medians (or most frequent
            categories) at which the other inputs are held. Of a frame with the task column, the rows of other
            tasks are left out.
        y : array-like of shape (n,), default=None
            Their targets, to be shown.
        feature : int or str, default=0
            Which input, by its position or its name.
        n_points : int, default=300
            Points along it.
        margin : float, default=0.1
            How far to go beyond the data, as a share of their range.
        target : str, default=None
            Name of the target. None: that of y, if it has one.
        """
        check_kind(cls.__name__, model, of_classes=False, instead="DecisionDisplay")
        names = input_names(model, X, feature_names)
        feature = position_of(feature, names)
        y_label = target_name(y, target)
        code = task_code(model, task)
        X, y = rows_of_task(model, X, y, code)
        X = inputs_of(model, X)
        dates = is_date(X, feature)
        values = X.iloc[:, feature].to_numpy("M8[ns]") if dates else values_of(X, feature, names)
        low, high = np.nanmin(values), np.nanmax(values)
        x = low + (high - low) * np.linspace(-margin, 1.0 + margin, n_points)
        grid = held_rows(X, {feature: x})
        where = at_task(model, grid, code)
        mean, std = model.predict(**where, return_std=True)
        try:
            std_with_noise = model.predict(**where, return_std=True, include_noise=True)[1]
        except (TypeError, ValueError):  # no such option, or noise known per training row only
            std_with_noise = None
        active = None if dates else active_points(model, code, [feature])
        noise = getattr(model, "noise_", None)
        display = cls(
            x,
            mean,
            std,
            std_with_noise=std_with_noise,
            X=values,
            y=None if y is None else np.asarray(y, dtype=np.float64),
            active=None if active is None else active[:, 0],
            label=None if model.tasks_ is None else str(model.tasks_[code]),
            x_label=names[feature],
            y_label=y_label,
            others=held_values(grid, names, [feature]),
            least=-np.inf if getattr(noise, "support", "real") == "real" else 0.0,
        )
        return display.plot(ax=ax)

    def plot(self, ax: Any = None, *, color: str = COLORS[0]) -> Self:
        """Draw.

        Parameters
        ----------
        color : str
            Of the line and the bands.
        """
        ax = self._start(ax)
        if self.std_with_noise is not None:
            self._band(ax, self.std_with_noise, color, 0.12, "observations, ± 2 sd")
        self._band(ax, self.std, color, 0.28, "function, ± 2 sd")
        ax.plot(self.x, self.mean, color=color, lw=2, label="mean")
        if self.X is not None and self.y is not None:
            ax.plot(self.X, self.y, ".", color="0.3", ms=4, alpha=0.6, label="data", zorder=1.5)
        if self.active is not None and len(self.active):
            ax.plot(
                self.active,
                np.full(len(self.active), 0.02),
                "|",
                color=COLORS[1],
                ms=10,
                mew=1.5,
                transform=ax.get_xaxis_transform(),
                label="active points",
            )
        at = f"\nat {self.others}" if self.others else ""
        ax.set(xlabel=self.x_label + at, ylabel=self.y_label, title=self.label or "")
        ax.margins(x=0)
        self._legend(ax)
        return self

    def _band(self, ax: Any, std: FloatArray, color: str, alpha: float, label: str) -> None:
        low, high = np.maximum(self.mean - 2 * std, self.least), self.mean + 2 * std
        ax.fill_between(self.x, low, high, color=color, alpha=alpha, lw=0, label=label)
