"""Latent positions of the rows, by task or by class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from gleangp._typing import FloatArray
from gleangp.plots._base import MARKERS, Display, color_of, shortened


@dataclass(eq=False, repr=False)
class LatentSpaceDisplay(Display):
    """Two latent dimensions of every row.

    Parameters
    ----------
    positions : ndarray of shape (n, q)
        Latent positions; with one dimension the other axis is the row number.
    groups : ndarray of shape (n,), default=None
        What colour and marker show: labels or tasks.
    dimensions : pair of int, default=(0, 1)
        Which two dimensions.

    Examples
    --------
    >>> import numpy as np
    >>> from gleangp.plots import LatentSpaceDisplay
    >>> display = LatentSpaceDisplay(np.eye(3), np.array(["a", "b", "b"])).plot()
    >>> len(display.ax_.lines)
    2

    Of a model:

    >>> from gleangp import SharedLatentGPRegressor
    >>> X = np.random.default_rng(0).normal(size=(20, 3))
    >>> model = SharedLatentGPRegressor(2, hidden_units=5, random_state=0)
    >>> model = model.fit(X, X[:, 0], tasks=["a", "b"] * 10)
    >>> LatentSpaceDisplay.from_estimator(model).positions.shape
    (20, 2)
    """

    positions: FloatArray
    groups: np.ndarray | None = None
    dimensions: tuple[int, int] = (0, 1)

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        X: Any = None,
        groups: Any = None,
        *,
        dimensions: tuple[int, int] | None = None,
        ax: Any = None,
    ) -> Self:
        """Place rows in the latent space and draw.

        Parameters
        ----------
        model : estimator
            A fitted model with `transform` and `embedding_`.
        X : array-like of shape (n, p), default=None
            Rows, as the model takes them. None: those it was fitted on.
        groups : array-like of shape (n,), default=None
            Labels or tasks of the rows.
        dimensions : pair of int, default=None
            Which two dimensions. None: the most relevant ones, by `relevance_`.
        """
        if not hasattr(model, "transform"):
            needed = "Fit a SharedLatentGPClassifier or a SharedLatentGPRegressor."
            raise TypeError(
                f"{type(model).__name__} has no latent space, so there is nothing to draw. {needed}"
            )
        positions = model.embedding_ if X is None else np.asarray(model.transform(X))
        if dimensions is None:
            relevance = np.asarray(getattr(model, "relevance_", np.ones(positions.shape[1])))
            if relevance.shape != (positions.shape[1],):
                relevance = np.ones(positions.shape[1])
            order = np.argsort(-relevance, kind="stable")
            dimensions = (int(order[0]), int(order[min(1, len(order) - 1)]))
        return cls(positions, None if groups is None else np.asarray(groups), dimensions).plot(ax=ax)

    def plot(self, ax: Any = None, *, most_groups: int = 8) -> Self:
        """Draw.

        Parameters
        ----------
        most_groups : int, default=8
            With more groups than this the smallest are drawn in grey.
        """
        ax = self._start(ax)
        first, second = self.dimensions
        one = self.positions.shape[1] == 1
        x = self.positions[:, first]
        y = np.arange(len(x), dtype=float) if one else self.positions[:, second]
        if self.groups is None:
            ax.plot(x, y, ".", color=color_of(0), ms=5)
        else:
            self._draw_groups(ax, x, y, most_groups)
        ax.set(
            xlabel=f"latent dimension {first + 1}",
            ylabel="row" if one else f"latent dimension {second + 1}",
        )
        return self

    def _draw_groups(self, ax: Any, x: FloatArray, y: FloatArray, most: int) -> None:
        names, codes, counts = np.unique(np.asarray(self.groups), return_inverse=True, return_counts=True)
        large = np.sort(np.argsort(-counts, kind="stable")[:most])
        rest = ~np.isin(codes, large)
        if rest.any():
            ax.plot(x[rest], y[rest], ".", color="0.7", ms=4, label=f"{len(names) - most} others")
        for i, code in enumerate(large):
            rows = codes == code
            ax.plot(
                x[rows],
                y[rows],
                MARKERS[i % len(MARKERS)],
                color=color_of(i),
                ms=5,
                alpha=0.8,
                mec="none",
                label=shortened(str(names[code])),
            )
        self._legend(ax)
