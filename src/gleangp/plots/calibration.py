"""Can the stated uncertainty be believed: coverage of intervals, reliability of probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import Any, Self

import numpy as np
from scipy.special import ndtr, ndtri

from gleangp._typing import FloatArray
from gleangp.noise import Gaussian
from gleangp.plots._base import COLORS, Display, check_kind

_LEVELS = np.linspace(0.05, 0.95, 19)


@dataclass(eq=False, repr=False)
class CoverageDisplay(Display):
    """Share of targets within the central intervals of a regression, against what was promised.

    Parameters
    ----------
    levels : ndarray of shape (m,)
        Promised coverage.
    coverage : ndarray of shape (m,)
        Share of targets in the interval.
    n_rows : int
        How many targets.
    by_task : dict of task -> ndarray of shape (m,), default=None
        The same share within each task. The figure has a band for the middle 80 % of the tasks.

    Examples
    --------
    >>> import numpy as np
    >>> from gleangp.plots import CoverageDisplay
    >>> y = np.random.default_rng(0).standard_normal(4000)
    >>> display = CoverageDisplay.from_predictions(y, np.zeros(4000), np.ones(4000))
    >>> display = display.plot()  # again, on new axes
    >>> bool(np.abs(display.coverage - display.levels).max() < 0.03)
    True

    Of a model, with rows that it has not seen:

    >>> from gleangp import SparseGPRegressor
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> model = SparseGPRegressor(random_state=0).fit(X[::2], np.sin(X[::2, 0]))
    >>> CoverageDisplay.from_estimator(model, X[1::2], np.sin(X[1::2, 0])).n_rows
    30
    """

    levels: FloatArray
    coverage: FloatArray
    n_rows: int
    by_task: dict[Any, FloatArray] | None = None

    @classmethod
    def from_estimator(cls, model: Any, X: Any, y: Any, *, tasks: Any = None, ax: Any = None) -> Self:
        """Predict held-out rows and draw.

        With other than Gaussian noise intervals are those of `predict_interval`; the place of a count
        within its step is drawn.

        Parameters
        ----------
        model : estimator
            A fitted regressor.
        X : array-like of shape (n, p)
            Inputs that it has not seen, as it takes them.
        y : array-like of shape (n,)
            Their targets.
        """
        given = {} if tasks is None else {"tasks": tasks}
        check_kind(cls.__name__, model, of_classes=False, instead="CalibrationDisplay")
        if not isinstance(getattr(model, "noise_", Gaussian()), Gaussian):
            scores = scores_of_noise(model, X, y, given, np.random.default_rng(0))
            zeros = np.zeros(len(scores))
            return cls.from_predictions(scores, zeros, zeros + 1.0, tasks=tasks, ax=ax)
        options = signature(model.predict).parameters
        if "include_noise" in options or "return_std" not in options:  # else the noise is always in
            given["include_noise"] = True
        mean, std = model.predict(X, return_std=True, **given)
        return cls.from_predictions(y, mean, std, tasks=tasks, ax=ax)

    @classmethod
    def from_predictions(cls, y: Any, mean: Any, std: Any, *, tasks: Any = None, ax: Any = None) -> Self:
        """Draw for given predictions.

        Parameters
        ----------
        y, mean, std : array-like of shape (n,)
            Targets, and mean and standard deviation of their predictions, noise included. Rows where
            the target is NaN do not count.
        tasks : array-like of shape (n,), default=None
            Task of each row.
        """
        y, mean, std = (np.asarray(a, dtype=np.float64) for a in (y, mean, std))
        known = ~np.isnan(y)
        # A target lies in the central interval of level l if |2 Phi(z) - 1| <= l.
        needed = np.abs(2.0 * ndtr((y - mean)[known] / std[known]) - 1.0)
        inside, by_task = needed[:, None] <= _LEVELS, {}
        if tasks is not None:
            names = np.asarray(tasks)[known]
            by_task = {task: inside[names == task].mean(axis=0) for task in np.unique(names)}
        return cls(_LEVELS, inside.mean(axis=0), int(known.sum()), by_task).plot(ax=ax)

    def plot(self, ax: Any = None, *, label: str | None = None) -> Self:
        """Draw."""
        ax = _diagonal(self._start(ax))
        spread = 2 * np.sqrt(self.levels * (1 - self.levels) / self.n_rows)
        ax.fill_between(
            self.levels,
            self.levels - spread,
            self.levels + spread,
            color="0.85",
            lw=0,
            label="chance, ± 2 sd",
        )
        if self.by_task and len(self.by_task) > 1:
            low, high = np.quantile(list(self.by_task.values()), [0.1, 0.9], axis=0)
            ax.fill_between(self.levels, low, high, color=COLORS[0], alpha=0.2, lw=0, label="80 % of tasks")
        ax.plot(self.levels, self.coverage, "o-", color=COLORS[0], ms=4, label=label or "observed")
        ax.set(xlabel="promised coverage", ylabel="share of targets inside")
        self._legend(ax)
        return self


@dataclass(eq=False, repr=False)
class CalibrationDisplay(Display):
    """Observed frequency against predicted probability, in bins of equal numbers of rows.

    Parameters
    ----------
    predicted, observed : ndarray of shape (m,)
        Mean probability and share of positives of every bin.
    counts : ndarray of shape (m,)
        Rows of every bin.

    Examples
    --------
    >>> import numpy as np
    >>> from gleangp.plots import CalibrationDisplay
    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(size=5000)
    >>> display = CalibrationDisplay.from_predictions(rng.uniform(size=5000) < p, p)
    >>> display = display.plot()  # again, on new axes
    >>> bool(np.abs(display.observed - display.predicted).max() < 0.06)
    True

    Of a model, with rows that it has not seen:

    >>> from gleangp import SparseGPClassifier
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> model = SparseGPClassifier(random_state=0).fit(X[::2], np.sin(X[::2, 0]) > 0)
    >>> display = CalibrationDisplay.from_estimator(model, X[1::2], np.sin(X[1::2, 0]) > 0)
    >>> int(display.counts.sum())
    30
    """

    predicted: FloatArray
    observed: FloatArray
    counts: FloatArray

    @classmethod
    def from_estimator(cls, model: Any, X: Any, y: Any, *, tasks: Any = None, ax: Any = None) -> Self:
        """Predict held-out rows and draw; with more than two classes all of them count alike.

        Parameters
        ----------
        model : estimator
            A fitted classifier.
        X : array-like of shape (n, p)
            Inputs that it has not seen, as it takes them.
        y : array-like of shape (n,)
            Their labels.
        """
        given = {} if tasks is None else {"tasks": tasks}
        check_kind(cls.__name__, model, of_classes=True, instead="CoverageDisplay")
        proba = model.predict_proba(X, **given)
        hits = np.asarray(y)[:, None] == model.classes_
        if len(model.classes_) == 2:
            hits, proba = hits[:, 1:], proba[:, 1:]
        return cls.from_predictions(hits.ravel(), proba.ravel(), ax=ax)

    @classmethod
    def from_predictions(cls, hit: Any, proba: Any, *, n_bins: int = 10, ax: Any = None) -> Self:
        """Draw for given probabilities.

        Parameters
        ----------
        hit : array-like of bool, shape (n,)
            Whether the class occurred.
        proba : array-like of shape (n,)
            Its predicted probability.
        n_bins : int, default=10
            Most bins; each has at least ten rows where there are so many.
        """
        hit, proba = np.asarray(hit, dtype=np.float64), np.asarray(proba, dtype=np.float64)
        order = np.argsort(proba, kind="stable")
        bins = np.array_split(order, max(1, min(n_bins, len(order) // 10)))
        predicted = np.array([proba[rows].mean() for rows in bins])
        observed = np.array([hit[rows].mean() for rows in bins])
        return cls(predicted, observed, np.array([len(rows) for rows in bins], dtype=float)).plot(ax=ax)

    def plot(self, ax: Any = None, *, label: str | None = None) -> Self:
        """Draw."""
        ax = _diagonal(self._start(ax))
        # Wilson's interval: right also where no row or every row is a hit.
        n, z = self.counts, 2.0
        centre = (self.observed + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z * np.sqrt(self.observed * (1 - self.observed) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
        ax.vlines(self.predicted, centre - half, centre + half, color=COLORS[0], alpha=0.5)
        ax.plot(
            self.predicted, self.observed, "o-", color=COLORS[0], ms=5, label=label or "observed (± 2 sd)"
        )
        ax.set(xlabel="predicted probability", ylabel="observed frequency")
        self._legend(ax)
        return self


def scores_of_noise(
    model: Any, X: Any, y: Any, given: dict[str, Any], rng: np.random.Generator
) -> FloatArray:
    """Normal scores (n,) of the predictive probabilities of targets: standard normal if the model is right.

    The probability of a count is drawn between those of less than it and of at most it: it is then uniform,
    as that of a number is (Dunn & Smyth 1996).
    """
    y = np.asarray(y, dtype=np.float64)
    probability = model.predict_cdf(X, y, **given)
    if model.noise_.support == "count":
        below = np.where(y > 0.0, model.predict_cdf(X, y - 1.0, **given), 0.0)
        probability = below + rng.uniform(size=len(below)) * (probability - below)
    return ndtri(np.clip(probability, 1e-12, 1.0 - 1e-12))


def _diagonal(ax: Any) -> Any:
    ax.plot([0, 1], [0, 1], color="0.5", lw=1, ls="--", label="perfect")
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")  # whole markers at the ends
    return ax
