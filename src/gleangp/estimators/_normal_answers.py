"""Answers about observations of a regressor whose predictions are normal distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import norm

from gleangp._typing import FloatArray
from gleangp.data.labels import check_regression_target
from gleangp.estimators._docs import documented
from gleangp.estimators._observations import check_quantiles, interval_ends
from gleangp.estimators._random import generator_from


@documented()
class NormalAnswersMixin:
    """For a regressor whose `predict` has `return_std`, `return_cov` and `include_noise`."""

    predict: Any

    def predict_interval(self, X: Any, coverage: float = 0.95, tasks: Any = None) -> FloatArray:
        """Central interval of a new observation of every row, noise included.

        Parameters
        ----------
        {X}
        coverage : float, default=0.95
            Probability that an observation lies in its interval.
        {tasks}

        Returns
        -------
        ndarray of shape (n, 2)
            Lower and upper ends.
        """
        return self.predict_quantiles(X, interval_ends(coverage), tasks=tasks)

    def predict_quantiles(self, X: Any, quantiles: Any, tasks: Any = None) -> FloatArray:
        """Quantiles of a new observation of every row, noise included.

        Parameters
        ----------
        {X}
        quantiles : float or sequence of float
            Probabilities between 0 and 1.
        {tasks}

        Returns
        -------
        ndarray of shape (n, k)
            One column for each quantile.
        """
        levels = check_quantiles(quantiles)
        mean, std = self.predict(X, tasks=tasks, return_std=True, include_noise=True)
        return mean[:, None] + std[:, None] * norm.ppf(levels)

    def log_density(self, X: Any, y: Any, tasks: Any = None) -> float:
        """Mean log predictive density of observations; higher is better.

        Parameters
        ----------
        {X}
        y : array-like of shape (n,)
            Observations; rows where it is NaN do not count.
        {tasks}

        Returns
        -------
        float
            In nats per row, in the units of y.
        """
        mean, std = self.predict(X, tasks=tasks, return_std=True, include_noise=True)
        y, labeled = check_regression_target(y, len(mean))
        return float(np.mean(norm.logpdf(y[labeled], mean[labeled], std[labeled])))

    def sample_y(self, X: Any, n_samples: int = 1, tasks: Any = None, random_state: Any = 0) -> FloatArray:
        """Functions drawn from the posterior.

        Parameters
        ----------
        {X}
        n_samples : int, default=1
            How many functions.
        {tasks}
        random_state : int, RandomState, Generator or None, default=0
            For the draws.

        Returns
        -------
        ndarray of shape (n, n_samples)
        """
        mean, cov = self.predict(X, tasks=tasks, return_cov=True)
        rng = generator_from(random_state)
        return rng.multivariate_normal(mean, cov, n_samples, method="eigh").T
