"""Which points came in: the gain of each inclusion, and how tasks share the budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.plots._base import COLORS, Display, active_tasks, shortened, submodels, task_names


@dataclass(eq=False, repr=False)
class ActiveGainDisplay(Display):
    """The score of every active point when it came in, in order of inclusion.

    Parameters
    ----------
    gains : list of ndarray of shape (d,)
        Scores in nats, one array per class (one in all for regression and two classes).
    labels : list of str, default=None
        Names of the classes.

    Examples
    --------
    >>> import numpy as np
    >>> from gleangp import SparseGPRegressor
    >>> from gleangp.plots import ActiveGainDisplay
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = SparseGPRegressor(n_active=8, posterior="active", selector="entropy")
    >>> model = model.fit(X, np.sin(X[:, 0]))
    >>> display = ActiveGainDisplay.from_estimator(model)
    >>> display = display.plot()  # again, on new axes
    >>> len(display.gains[0])
    8
    """

    gains: list[FloatArray]
    labels: list[str] | None = None

    @classmethod
    def from_estimator(cls, model: Any, *, ax: Any = None) -> Self:
        """Draw the gains of a fitted model.

        Parameters
        ----------
        model : estimator
            A fitted sparse estimator.
        """
        active_tasks(model)  # says what is wrong where there are none
        gains = [m.gain for m in submodels(model)]
        labels = [str(c) for c in model.classes_] if len(gains) > 1 else None
        return cls(gains, labels).plot(ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw."""
        ax = self._start(ax)
        for i, gain in enumerate(self.gains):
            label = None if self.labels is None else self.labels[i]
            steps = np.arange(1, len(gain) + 1)
            ax.plot(steps, gain, ".-", color=COLORS[i % len(COLORS)], lw=1, ms=4, label=label)
        values = np.concatenate(self.gains)
        positive = values[np.isfinite(values) & (values > 0)]
        if len(positive) and positive.max() > 50 * positive.min():
            ax.set_yscale("log")
        else:
            ax.set_ylim(bottom=0)
        ax.set(xlabel="active points, in order of inclusion", ylabel="gain (nats)")
        if self.labels is not None:
            self._legend(ax, title="class")
        return self


@dataclass(eq=False, repr=False)
class BudgetDisplay(Display):
    """How many active points every task has.

    Parameters
    ----------
    counts : ndarray of shape (M,)
        Active points of every task.
    names : list of str
        Names of the tasks.

    Examples
    --------
    >>> import numpy as np
    >>> from gleangp import SparseGPRegressor
    >>> from gleangp.plots import BudgetDisplay
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = SparseGPRegressor(n_active=9, posterior="local", random_state=0)
    >>> model = model.fit(X, np.sin(X[:, 0]), tasks=["a", "b"] * 20)
    >>> display = BudgetDisplay.from_estimator(model)
    >>> display = display.plot()  # again, on new axes
    >>> int(display.counts.sum())
    9
    """

    counts: IntArray
    names: list[str]

    @classmethod
    def from_estimator(cls, model: Any, *, ax: Any = None) -> Self:
        """Count the active points of a fitted model and draw.

        Parameters
        ----------
        model : estimator
            A fitted sparse estimator.
        """
        names = task_names(model)
        return cls(np.bincount(active_tasks(model), minlength=len(names)), names).plot(ax=ax)

    def plot(self, ax: Any = None, *, most: int = 20) -> Self:
        """Draw.

        Parameters
        ----------
        most : int, default=20
            With more tasks than this, a histogram replaces the bars.
        """
        ax = self._start(ax)
        if len(self.counts) > most:
            top = int(self.counts.max()) + 1
            ax.hist(self.counts, bins=np.linspace(-0.5, top + 0.5, min(top + 2, 30)), color=COLORS[0])
            ax.set(xlabel="active points of a task", ylabel="tasks")
            return self
        order = np.argsort(-self.counts, kind="stable")
        places = np.arange(len(order))
        ax.barh(places, self.counts[order], color=COLORS[0])
        ax.set_yticks(places, [shortened(self.names[i]) for i in order])
        ax.invert_yaxis()
        total = max(1, int(self.counts.sum()))
        for place, count in zip(places, self.counts[order], strict=True):
            ax.annotate(f" {count / total:.0%}", (count, place), va="center", fontsize="small")
        ax.margins(x=0.12)
        ax.set_xlabel("active points (share of the budget)")
        return self
