"""Answers about observations: intervals, quantiles, log densities and draws, in the units of the targets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri
from sklearn.utils.validation import check_is_fitted

from gleangp._typing import FloatArray
from gleangp.estimators._answers import AnswersMixin
from gleangp.estimators._docs import documented
from gleangp.estimators._one_step import reading
from gleangp.estimators._random import generator_from
from gleangp.estimators._regression import RegressionMixin, check_fields, check_rows
from gleangp.models.local.answers import leave_one_out, without_site
from gleangp.models.local.model import LocalModel
from gleangp.noise import Gaussian
from gleangp.numerics.parallel import threads_for


class Latent(NamedTuple):
    """The latent function at new rows."""

    X: FloatArray
    codes: np.ndarray
    mean: FloatArray  # (n,) in standard units
    var: FloatArray  # (n,), empty if not asked for
    noise: Any  # the noise model of these rows


@documented()
class ObservationMixin(RegressionMixin, AnswersMixin):
    """For regressors with `_model`, `_units` and `noise_`."""

    def predict_interval(
        self, X: Any, coverage: float = 0.95, tasks: Any = None, exposure: Any = None, trials: Any = None
    ) -> FloatArray:
        """Central interval of a new observation of every row, noise included.

        Parameters
        ----------
        {X}
        coverage : float, default=0.95
            Probability that an observation lies in its interval.
        {tasks}
        {exposure, trials}

        Returns
        -------
        ndarray of shape (n, 2)
            Lower and upper ends; of several outputs (n, q, 2).

        Examples
        --------
        >>> import numpy as np
        >>> from gleangp import SparseGPRegressor
        >>> X = np.linspace(0, 6, 50)[:, None]
        >>> model = SparseGPRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
        >>> low, high = model.predict_interval([[1.0]])[0]
        >>> bool(low < np.sin(1.0) < high)
        True
        """
        ends = interval_ends(coverage)
        return self.predict_quantiles(X, ends, tasks=tasks, exposure=exposure, trials=trials)

    @reading
    def predict_quantiles(
        self, X: Any, quantiles: Any, tasks: Any = None, exposure: Any = None, trials: Any = None
    ) -> FloatArray:
        """Quantiles of a new observation of every row, noise included.

        Parameters
        ----------
        {X}
        quantiles : float or sequence of float
            Probabilities between 0 and 1.
        {tasks}
        {exposure, trials}

        Returns
        -------
        ndarray of shape (n, k)
            One column for each quantile; of several outputs (n, q, k).

        Examples
        --------
        >>> import numpy as np
        >>> from gleangp import SparseGPRegressor
        >>> X = np.linspace(0, 6, 50)[:, None]
        >>> model = SparseGPRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
        >>> model.predict_quantiles([[1.0]], [0.1, 0.5, 0.9]).shape
        (1, 3)
        """
        levels = check_quantiles(quantiles)
        latent = self._latent(X, tasks, exposure=exposure, trials=trials)
        if self._has_normal_noise:
            std = self._observed_std(latent, include_noise=True)
            found = self._observed_mean(latent)[:, None] + std[:, None] * ndtri(levels)
            return self._by_row(found, tasks)
        columns = [latent.noise.regular.predict_quantile(latent.mean, latent.var, level) for level in levels]
        found = np.column_stack([self._units.from_standard(column, latent.codes) for column in columns])
        return self._by_row(found, tasks)

    @reading
    def predict_cdf(
        self, X: Any, y: Any, tasks: Any = None, exposure: Any = None, trials: Any = None
    ) -> FloatArray:
        """Probability that a new observation of a row is at most y, noise included.

        Parameters
        ----------
        {X}
        y : array-like of shape (n,) or (n, q)
            One value for each row; the probability of NaN is NaN.
        {tasks}
        {exposure, trials}

        Returns
        -------
        ndarray of shape (n,) or (n, q)

        Examples
        --------
        >>> import numpy as np
        >>> from gleangp import SparseGPRegressor
        >>> X = np.linspace(0, 6, 50)[:, None]
        >>> model = SparseGPRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
        >>> model.predict_cdf([[1.0], [1.0]], [0.0, 2.0]).round(3).tolist()
        [0.0, 1.0]
        """
        latent = self._latent(X, tasks, exposure=exposure, trials=trials)
        y, _ = self._check_targets(y, len(latent.mean), tasks)
        if self._has_normal_noise:
            std = self._observed_std(latent, include_noise=True)
            return self._by_row(ndtr((y - self._observed_mean(latent)) / std), tasks)
        noise, standard = latent.noise.regular, self._units.to_standard(y, latent.codes)
        if noise.support == "real":
            return self._by_row(noise.predict_cdf(standard, latent.mean, latent.var), tasks)
        # Counts take whole numbers alone; below zero is nothing.
        at = np.floor(standard) if noise.support == "count" else standard
        cdf = noise.predict_cdf(np.maximum(at, 0.0), latent.mean, latent.var)
        return self._by_row(np.where(np.isnan(at), np.nan, np.where(at < 0.0, 0.0, cdf)), tasks)

    @reading
    def log_density(
        self, X: Any, y: Any, tasks: Any = None, exposure: Any = None, trials: Any = None
    ) -> float:
        """Mean log predictive density (counts: probability) of observations; higher is better.

        Parameters
        ----------
        {X}
        y : array-like of shape (n,) or (n, q)
            Observations; rows or cells where it is NaN do not count.
        {tasks}
        {exposure, trials}

        Returns
        -------
        float
            In nats per row, in the units of y.

        Examples
        --------
        >>> import numpy as np
        >>> from gleangp import SparseGPRegressor
        >>> X = np.linspace(0, 6, 50)[:, None]
        >>> model = SparseGPRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
        >>> bool(model.log_density(X, np.sin(X[:, 0])) > 1.0)
        True
        """
        latent = self._latent(X, tasks, exposure=exposure, trials=trials)
        y, labeled = self._check_targets(y, len(latent.mean), tasks)
        if self._has_normal_noise:
            std = self._observed_std(latent, include_noise=True)
            error = (y - self._observed_mean(latent)) / std
            values = -0.5 * (np.log(2.0 * np.pi) + error**2) - np.log(std)
        else:
            check_rows(latent.noise, y, labeled)
            standard = self._units.to_standard(np.where(labeled, y, self._units.mean[0]), latent.codes)
            values = latent.noise.log_density(standard, latent.mean, latent.var)
            values = values - np.log(self._units.scale[latent.codes])
        return float(np.mean(values[labeled]))

    @reading
    def sample_y(
        self,
        X: Any,
        n_samples: int = 1,
        tasks: Any = None,
        random_state: Any = 0,
        observations: bool = False,
        exposure: Any = None,
        trials: Any = None,
    ) -> FloatArray:
        """Draws of the function, or of new observations, at new rows.

        Parameters
        ----------
        {X}
        n_samples : int, default=1
            How many draws.
        {tasks}
        random_state : int, RandomState, Generator or None, default=0
            For the draws.
        observations : bool, default=False
            Draw observations, with noise, in place of functions.
        {exposure, trials}

        Returns
        -------
        ndarray of shape (n, n_samples), or (n, q, n_samples) of several outputs

        Examples
        --------
        >>> import numpy as np
        >>> from gleangp import SparseGPRegressor
        >>> X = np.linspace(0, 6, 50)[:, None]
        >>> model = SparseGPRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
        >>> model.sample_y([[1.0], [2.0]], n_samples=3).shape
        (2, 3)
        """
        check_is_fitted(self)
        rng = generator_from(random_state)
        if self._has_normal_noise:
            check_fields(self.noise_, exposure=exposure, trials=trials)
            mean, cov = self._joint(X, tasks, include_noise=observations)
            # NumPy's check of the covariance is absolute; rounding is relative to the units of the target.
            drawn = rng.multivariate_normal(mean, cov, n_samples, method="eigh", check_valid="ignore").T
            return self._by_row(drawn, tasks)
        X, _, codes = self._resolve(X, tasks, reset=False, joint=True)
        with threads_for(np.bincount(codes)):
            mean, cov = self._model.predict_cov(X, codes)
        f = rng.multivariate_normal(mean, cov, n_samples, method="eigh", check_valid="ignore")
        noise = self._noise_of_rows(len(X), exposure, trials).regular
        drawn = noise.sample(f, rng) if observations else noise.mean_given(f)
        return self._by_row(self._units.from_standard(drawn, codes).T, tasks)

    @reading
    def leave_one_out(self) -> tuple[FloatArray, FloatArray]:
        """Predictions of the training targets, each from all other rows, in closed form.

        They show errors and calibration without another fit. Parameters are those of the fit; with noise that
        is not Gaussian the sites of the other rows are too. Rows of tasks that were added later, and rows
        without a target, are NaN.

        Returns
        -------
        mean, std : ndarray of shape (n,), or (n, q) of several outputs
            Of every target of `fit`, noise included.

        Examples
        --------
        >>> import numpy as np
        >>> from gleangp import SparseGPRegressor
        >>> X = np.linspace(0, 6, 50)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.cos(37 * X[:, 0])
        >>> mean, std = SparseGPRegressor(random_state=0).fit(X, y).leave_one_out()
        >>> bool(np.mean(np.abs(y - mean) < 1.96 * std) > 0.85)
        True
        """
        check_is_fitted(self)
        model = self._model
        if not isinstance(model, LocalModel):
            raise ValueError("leave_one_out is for posterior='local'. Fit again with it.")
        rows = np.arange(len(model.row_numbers))
        means, variances = [], []
        for draw in model.all_draws:
            mean, var = leave_one_out(draw.posterior)
            means.append(mean[rows])
            variances.append(var[rows] if model.gaussian else without_site(draw.posterior, rows, var[rows]))
        codes = model.best.posterior.codes[rows]
        mean, var = np.mean(means, axis=0), np.mean(variances, axis=0) + np.var(means, axis=0)
        if not model.gaussian:
            known = {name: values[rows] for name, values in (model.targets or {}).items() if name != "y"}
            noise = replace(self.noise_, **known)
            mean, var = noise.predict_mean(mean, var), noise.regular.predict_var(mean, var)
        n_rows = getattr(self, "_n_rows", int(model.row_numbers.max(initial=-1)) + 1)  # not in older files
        left_out = np.full((2, n_rows), np.nan)
        left_out[0, model.row_numbers] = self._units.from_standard(mean, codes)
        left_out[1, model.row_numbers] = np.sqrt(var) * self._units.scale[codes]
        mean, std = left_out
        if n_outputs := getattr(self, "_n_outputs", 0):
            return mean.reshape(n_outputs, -1).T, std.reshape(n_outputs, -1).T
        return mean, std

    def _uncertainty(self, X: FloatArray, codes: np.ndarray) -> tuple[FloatArray, FloatArray]:
        """Covariance of rows (1, m, m) and variance of their noise (1, m), in standard units."""
        if not self._has_normal_noise:
            return super()._uncertainty(X, codes)
        model = self._model
        if not isinstance(model, LocalModel):
            raise ValueError("suggest is for posterior='local'. Fit again with it.")
        noise = model.noise_variance(np.minimum(codes, len(model.best.noise) - 1))
        return model.predict_cov(X, codes)[1][None], noise[None]

    @property
    def _has_normal_noise(self) -> bool:
        return isinstance(self.noise_, Gaussian)

    def _latent(
        self, X: Any, tasks: Any, *, with_var: bool = True, exposure: Any = None, trials: Any = None
    ) -> Latent:
        """The latent function at new rows, and their noise."""
        check_is_fitted(self)
        X, _, codes = self._resolve(X, tasks, reset=False)
        noise = self._noise_of_rows(len(X), exposure, trials)
        with threads_for(np.bincount(codes)):
            mean, var = self._model.predict(X, codes, with_var=with_var)
        return Latent(X, codes, mean, var, noise)

    def _joint(self, X: Any, tasks: Any, include_noise: bool) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance of all rows (of all outputs), in the units of y."""
        X, _, codes = self._resolve(X, tasks, reset=False, joint=True)
        scale = self._units.scale[codes]
        with threads_for(np.bincount(codes)):
            mean, cov = self._model.predict_cov(X, codes)
        cov = np.array(cov)
        cov.flat[:: len(cov) + 1] += self._noise_to_add(X, codes, include_noise)
        return self._units.from_standard(mean, codes), cov * np.outer(scale, scale)

    def _observed_mean(self, latent: Latent) -> FloatArray:
        """Mean of an observation, in the units of y."""
        mean = latent.mean if self._has_normal_noise else latent.noise.predict_mean(latent.mean, latent.var)
        return self._units.from_standard(mean, latent.codes)

    def _observed_std(self, latent: Latent, include_noise: bool) -> FloatArray:
        """Standard deviation of the function, or of an observation, in the units of y."""
        scale = self._units.scale[latent.codes]
        if self._has_normal_noise:
            var = latent.var + self._noise_to_add(latent.X, latent.codes, include_noise)
        elif include_noise:
            var = latent.noise.regular.predict_var(latent.mean, latent.var)
        else:
            var = function_var(latent.noise, latent.mean, latent.var)
        return np.sqrt(np.maximum(var, 0.0)) * scale


def interval_ends(coverage: float) -> list[float]:
    """Quantiles at which the central interval of a coverage ends."""
    if not 0.0 < coverage < 1.0:
        raise ValueError(f"coverage={coverage!r}; a probability between 0 and 1 is expected, such as 0.95.")
    tail = 0.5 * (1.0 - coverage)
    return [tail, 1.0 - tail]


def check_quantiles(quantiles: Any) -> FloatArray:
    """Probabilities (k,) between 0 and 1."""
    levels = np.atleast_1d(np.asarray(quantiles, dtype=np.float64))
    if levels.ndim != 1 or not ((levels > 0.0) & (levels < 1.0)).all():
        raise ValueError(f"quantiles={quantiles!r}; probabilities between 0 and 1 are expected.")
    return levels


def function_var(noise: Any, mean: FloatArray, var: FloatArray) -> FloatArray:
    """Variance of E[y | f] for f ~ N(mean, var): the part of the spread that more data would reduce."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    weights = weights / weights.sum()
    values = np.array([noise.mean_given(mean + np.sqrt(var) * node) for node in nodes])
    centre = weights @ values
    return weights @ (values - centre) ** 2
