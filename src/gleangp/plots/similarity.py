"""How alike tasks are: the correlation of what the model predicts for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from gleangp._typing import FloatArray
from gleangp.plots._base import DIVERGING, Display, at_task, inputs_of, shortened, task_names


@dataclass(eq=False, repr=False)
class TaskSimilarityDisplay(Display):
    """A matrix over tasks, such as the correlation of their predictions or a relevance between them.

    Parameters
    ----------
    matrix : ndarray of shape (M, M)
        Entry (s, t): how alike tasks s and t are.
    names : list of str
        Names of the tasks.
    label : str, default="correlation of predictions"
        What the numbers are.

    Examples
    --------
    >>> import numpy as np
    >>> from gleangp import SparseGPRegressor
    >>> from gleangp.plots import TaskSimilarityDisplay
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> tasks = np.array(["a", "b"] * 20)
    >>> y = np.sin(X[:, 0]) * np.where(tasks == "a", 1, -1)
    >>> model = SparseGPRegressor(random_state=0).fit(X, y, tasks=tasks)
    >>> display = TaskSimilarityDisplay.from_estimator(model, X)
    >>> display = display.plot()  # again, on new axes
    >>> display.matrix.round(1)
    array([[ 1., -1.],
           [-1.,  1.]])
    """

    matrix: FloatArray
    names: list[str]
    label: str = "correlation of predictions"

    @classmethod
    def from_estimator(cls, model: Any, X: Any, *, ax: Any = None) -> Self:
        """Correlate the predictions of all tasks at the same rows and draw.

        Parameters
        ----------
        model : estimator
            A fitted model of several tasks.
        X : frame or array-like of shape (n, p)
            Inputs at which tasks are compared. A task column is left out.
        """
        X = inputs_of(model, X)
        names = task_names(model)
        value = getattr(model, "decision_function", None) or model.predict
        curves = np.array([np.ravel(value(**at_task(model, X, code))) for code in range(len(names))])
        return cls(_correlation(curves), names).plot(ax=ax)

    def plot(self, ax: Any = None, *, cmap: str = DIVERGING, most_names: int = 25) -> Self:
        """Draw, tasks that are alike side by side.

        Parameters
        ----------
        cmap : str
            Colour map; the default is symmetric about zero.
        most_names : int, default=25
            With more tasks than this their names are left out.
        """
        ax = self._start(ax)
        order = _by_likeness(self.matrix)
        shown = self.matrix[np.ix_(order, order)]
        most = float(np.abs(shown).max(initial=0.0)) or 1.0
        least = -most if shown.min(initial=0.0) < 0 else 0.0
        image = ax.imshow(shown, cmap=cmap if least < 0 else "viridis", vmin=least, vmax=most)
        self.figure_.colorbar(image, ax=ax, label=self.label)
        if len(order) <= most_names:
            labels = [shortened(self.names[i], 14) for i in order]
            ax.set_xticks(range(len(order)), labels, rotation=90)
            ax.set_yticks(range(len(order)), labels)
        else:
            ax.set(xticks=[], yticks=[], xlabel=f"{len(order)} tasks", ylabel="")
        return self


def _correlation(curves: FloatArray) -> FloatArray:
    """Correlation of the rows; a constant row is like nothing but itself."""
    centred = curves - curves.mean(axis=1, keepdims=True)
    norm = np.linalg.norm(centred, axis=1)
    norm[norm <= 1e-12 * np.abs(curves).max(axis=1)] = np.inf
    out = (centred / norm[:, None]) @ (centred / norm[:, None]).T
    np.fill_diagonal(out, 1.0)
    return out


def _by_likeness(matrix: FloatArray) -> np.ndarray:
    """An order in which tasks that are alike are neighbours: leaves of an average-linkage tree."""
    if len(matrix) < 3:
        return np.arange(len(matrix))
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    distance = np.maximum(matrix.max() - (matrix + matrix.T) / 2, 0.0)
    np.fill_diagonal(distance, 0.0)
    return leaves_list(linkage(squareform(distance, checks=False), "average", optimal_ordering=True))
