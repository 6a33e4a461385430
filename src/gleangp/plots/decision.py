"""Class probabilities over two inputs, with the active points and, where there is one, the null band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np

from gleangp._typing import FloatArray
from gleangp.plots._base import (
    DIVERGING,
    MARKERS,
    Display,
    active_points,
    at_task,
    check_kind,
    color_of,
    held_rows,
    held_values,
    input_names,
    inputs_of,
    position_of,
    rows_of_task,
    submodels,
    task_code,
    values_of,
)

_MANY = 60  # active points from which they are marked lightly


@dataclass(eq=False, repr=False)
class DecisionDisplay(Display):
    """Probabilities (two classes) or winning classes (more) over two inputs.

    Parameters
    ----------
    xx, yy : ndarray of shape (m, m)
        The grid.
    proba : ndarray of shape (m, m, c)
        Class probabilities.
    classes : ndarray of shape (c,)
        Class labels.
    null : ndarray of shape (m, m), default=None
        Latent mean in units of half the null category's width: the band is where it is within ±1.
    X, y : ndarray, default=None
        Data to show.
    active : ndarray of shape (d, 2), default=None
        The active points.
    labels : pair of str
        Names of the two inputs.
    others : str, default=""
        Values at which the other inputs are held.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from gleangp import SparseGPClassifier
    >>> from gleangp.plots import DecisionDisplay
    >>> X, y = make_moons(60, noise=0.2, random_state=0)
    >>> model = SparseGPClassifier(n_active=10, random_state=0).fit(X, y)
    >>> display = DecisionDisplay.from_estimator(model, X, y, n_points=20)
    >>> display = display.plot()  # again, on new axes
    >>> display.proba.shape
    (20, 20, 2)
    """

    xx: FloatArray
    yy: FloatArray
    proba: FloatArray
    classes: np.ndarray
    _: KW_ONLY
    null: FloatArray | None = None
    X: FloatArray | None = None
    y: np.ndarray | None = None
    active: FloatArray | None = None
    labels: tuple[str, str] = ("first input", "second input")
    others: str = ""

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        X: Any,
        y: Any = None,
        *,
        task: Any = None,
        features: tuple[int | str, int | str] = (0, 1),
        n_points: int = 120,
        feature_names: Sequence[str] | None = None,
        ax: Any = None,
    ) -> Self:
        """Predict over a grid and draw.

        Parameters
        ----------
        model : estimator
            A fitted classifier.
        X : frame or array-like of shape (n, p)
            Inputs of the task that is shown: they give the range, and the medians (or most frequent
            categories) at which other inputs are held. Of a frame with the task column, the rows of other
            tasks are left out.
        y : array-like of shape (n,), default=None
            Their labels, to be shown; values that are no class are drawn as unlabelled.
        features : pair of int or str, default=(0, 1)
            Which inputs, by their positions or names.
        n_points : int, default=120
            Points along each.
        """
        check_kind(cls.__name__, model, of_classes=True, instead="PredictionDisplay")
        names = input_names(model, X, feature_names)
        one, two = (position_of(f, names) for f in features)
        code = task_code(model, task)
        X, y = rows_of_task(model, X, y, code)
        X = inputs_of(model, X)
        data = np.column_stack([values_of(X, feature, names) for feature in (one, two)])
        sides = []
        for low, high in zip(np.nanmin(data, axis=0), np.nanmax(data, axis=0), strict=True):
            pad = 0.08 * (high - low)
            sides.append(np.linspace(low - pad, high + pad, n_points))
        xx, yy = np.meshgrid(*sides)
        grid = held_rows(X, {one: xx.ravel(), two: yy.ravel()})
        proba = model.predict_proba(**at_task(model, grid, code))
        null = _null_coordinate(model, at_task(model, grid, code))
        display = cls(
            xx,
            yy,
            proba.reshape(*xx.shape, -1),
            model.classes_,
            null=None if null is None else null.reshape(xx.shape),
            X=data,
            y=None if y is None else np.asarray(y),
            active=active_points(model, code, [one, two]),
            labels=(names[one], names[two]),
            others=held_values(grid, names, [one, two]),
        )
        return display.plot(ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw."""
        ax = self._start(ax)
        if len(self.classes) == 2:
            self._draw_probability(ax)
        else:
            self._draw_winners(ax)
        if self.null is not None:
            self._draw_null_band(ax)
        self._draw_data(ax)
        if self.active is not None and len(self.active):
            many = len(self.active) > _MANY  # large rings would hide what they mark
            size, width = (6, 0.5) if many else (9, 1.2)
            ax.plot(*self.active.T, "o", mfc="none", mec="k", ms=size, mew=width, label="active")
        at = f"\nat {self.others}" if self.others else ""
        ax.set(xlabel=self.labels[0] + at, ylabel=self.labels[1])
        self._legend(ax, above=True)
        return self

    def _draw_null_band(self, ax: Any) -> None:
        band = ax.contourf(self.xx, self.yy, self.null, levels=[-1, 1], colors="none", hatches=["////"])
        band.set(edgecolor="0.35", linewidth=0.0)
        lines = ax.contour(self.xx, self.yy, self.null, levels=[-1, 1], colors="k", linestyles=":")
        lines.set_linewidth(1.2)
        ax.fill([], [], fc="none", ec="0.35", hatch="////", lw=0, label="null category")

    def _draw_probability(self, ax: Any) -> None:
        p = self.proba[..., 1]
        shades = ax.contourf(self.xx, self.yy, p, levels=np.linspace(0, 1, 11), cmap=DIVERGING, alpha=0.6)
        ax.contour(self.xx, self.yy, p, levels=[0.5], colors="k", linewidths=1.5)
        self.figure_.colorbar(shades, ax=ax, label=f"probability of {self.classes[1]}")

    def _draw_winners(self, ax: Any) -> None:
        from matplotlib.colors import ListedColormap

        winner = self.proba.argmax(axis=-1)
        n = len(self.classes)
        cmap = ListedColormap([color_of(i) for i in range(n)])
        ax.pcolormesh(
            self.xx, self.yy, winner, cmap=cmap, vmin=-0.5, vmax=n - 0.5, alpha=0.3, rasterized=True, lw=0
        )
        for i in range(n):
            ax.contour(self.xx, self.yy, winner == i, levels=[0.5], colors="k", linewidths=1.0)

    def _draw_data(self, ax: Any) -> None:
        if self.X is None or self.y is None:
            return
        two = len(self.classes) == 2
        for i, label in enumerate(self.classes):
            rows = self.y == label
            color = ("#7F3B08", "#2D004B")[i] if two else color_of(i)  # the ends of PuOr, or the regions'
            ax.plot(
                *self.X[rows].T,
                MARKERS[i % len(MARKERS)],
                color=color,
                ms=4,
                mec="w",
                mew=0.3,
                label=str(label),
            )
        rest = ~np.isin(self.y, self.classes)
        if rest.any():
            ax.plot(*self.X[rest].T, ".", color="0.45", ms=3, label="unlabelled", zorder=1.5)


def _null_coordinate(model: Any, where: dict[str, Any]) -> FloatArray | None:
    """Latent mean in units of half the null category's width, for two classes with that noise."""
    parts = submodels(model)
    width = getattr(getattr(model, "noise_", None), "width", None)
    if width is None or len(parts) != 1 or not hasattr(model, "_latent"):
        return None
    _, mean, _ = model._latent(where["X"], where.get("tasks"))[0]
    return (mean + model.noise_.bias) / (0.5 * width)
