"""What a regressor says of new observations: mean, spread, quantiles, densities and draws, in units of y."""

import re
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from gleangp._typing import FloatArray, IntArray
from gleangp.data.labels import check_regression_target
from gleangp.estimators._base import TaskEstimator
from gleangp.estimators._parameters import check_count, check_probabilities, generator_from
from gleangp.exceptions import LabelError
from gleangp.models.units import TargetUnits
from gleangp.noise import Gaussian
from gleangp.numerics.parallel import on_one_thread

# Noise that takes what is given for every row.
_FIELDS = {
    "exposure": "noise='poisson' and 'negative_binomial'",
    "trials": "noise='binomial'",
    "sample_weight": "noise='gaussian'",
}


class TaskRegressorMixin(TaskEstimator, RegressorMixin):
    """A regressor with tasks."""

    def _check_targets(self, y: Any, n_rows: int, tasks: Any) -> np.ndarray:
        """Targets (n_rows,) of rows as `_encode_inputs` returns them; NaN where there is none."""
        if q := self._outputs_asked_for(tasks):
            Y = np.array(y, dtype=object) if isinstance(y, list | tuple) else np.asarray(y)
            if Y.shape != (n_rows // q, q):
                raise LabelError(
                    f"y has shape {Y.shape}, but the model has {q} outputs and X has {n_rows // q} rows: "
                    f"shape {(n_rows // q, q)} is expected, NaN where an output is not known."
                )
            y = Y.ravel(order="F")
        return check_regression_target(y, n_rows)

    def _by_row(self, values: np.ndarray, tasks: Any) -> np.ndarray:
        """What was found for rows of `_encode_inputs` (q n, ...), in the shape (n, q, ...) of Y."""
        q = self._outputs_asked_for(tasks)
        return values.reshape(q, -1, *values.shape[1:]).swapaxes(0, 1) if q else values

    def score(self, X: Any, y: Any, tasks: Any = None, sample_weight: Any = None) -> float:
        """Coefficient of determination R^2 over the rows with a target; the mean over several outputs."""
        predicted = self.predict(X, tasks=tasks)
        known = self._by_row(self._check_targets(y, predicted.size, tasks), tasks)
        scores = []
        for y_of, f in zip(known.reshape(len(known), -1).T, predicted.reshape(len(known), -1).T, strict=True):
            labeled = ~np.isnan(y_of)
            weight = None if sample_weight is None else np.asarray(sample_weight)[labeled]
            if labeled.any():
                scores.append(r2_score(y_of[labeled], f[labeled], sample_weight=weight))
        return float(np.mean(scores))


class Latent(NamedTuple):
    """The latent function at new rows, in standard units."""

    X: FloatArray
    codes: IntArray  # (n,)
    mean: FloatArray  # (n,)
    spread: FloatArray  # (n,) variances, or the (n, n) covariance; empty if not asked for
    factor: FloatArray | None = None  # (n,) of the noise variance, which differs between neighbourhoods


class ObservationsMixin(TaskRegressorMixin, ABC):
    """For a regressor that knows its latent function, and the noise of an observation, at every row."""

    _units: TargetUnits

    @abstractmethod
    def _latent(self, X: Any, tasks: Any, *, joint: bool = False, with_var: bool = True) -> Latent:
        """The latent function without noise; `joint`: with the covariance of all rows."""

    @abstractmethod
    def _noise_of_rows(self, f: Latent, exposure: Any, trials: Any) -> Any:
        """The noise model of a new observation of every row."""

    @property
    def _has_normal_noise(self) -> bool:
        return isinstance(getattr(self, "noise_", Gaussian()), Gaussian)

    def _observed(
        self, X: Any, tasks: Any, exposure: Any, trials: Any, *, noisy: bool = True, **how: Any
    ) -> tuple[Latent, Any]:
        """The latent function of every row, and the noise of a new observation of it; none if not `noisy`."""
        check_fields(getattr(self, "noise_", Gaussian()), exposure=exposure, trials=trials)
        f = self._latent(X, tasks, **how)
        return f, self._noise_of_rows(f, exposure, trials) if noisy else Gaussian(0.0)

    def _noise_of_tasks(self) -> FloatArray:
        """(M,) deviation of the noise of every task, in units of y, without that of neighbourhoods."""
        scale = self._units.scale
        codes, zeros, ones = np.arange(len(scale)), np.zeros(len(scale)), np.ones(len(scale))
        noise = self._noise_of_rows(Latent(zeros[:, None], codes, zeros, zeros, ones), None, None)
        return np.sqrt(noise.var_given(zeros)) * scale

    def predict(
        self,
        X: Any,
        tasks: Any = None,
        return_std: bool = False,
        return_cov: bool = False,
        include_noise: bool = False,
        exposure: Any = None,
        trials: Any = None,
    ) -> Any:
        """Predict the mean of new rows, and the standard deviation or the covariance.

        Parameters
        ----------
        return_std : bool, default=False
            Also return the standard deviation of the function. It leaves out the noise, as in scikit-learn;
            only a `WhiteKernel` in a kernel of your own counts.
        return_cov : bool, default=False
            Return the joint covariance of the function instead (of the latent one for counts).
        include_noise : bool, default=False
            Return the standard deviation of a new observation: function and noise.

        Returns
        -------
        mean : ndarray of shape (n,), or (n, q) of several outputs
        std : ndarray of the same shape, or covariance of shape (n, n) or (n, q, n, q)
            Only with `return_std` or `return_cov`.
        """
        if return_std and return_cov:
            raise ValueError("return_std and return_cov are both True. Ask for one of them.")
        normal = self._has_normal_noise
        if return_cov and include_noise and not normal:
            raise ValueError("return_cov is that of the latent function of counts: leave include_noise out.")
        noisy, how = include_noise or not (normal or return_cov), {"with_var": return_std or not normal}
        f, noise = self._observed(X, tasks, exposure, trials, noisy=noisy, joint=return_cov, **how)
        scale = self._units.scale[f.codes]
        if return_cov:
            mean = self._by_row(self._units.from_standard(f.mean, f.codes), tasks)
            f.spread.flat[:: len(f.mean) + 1] += noise.var_given(f.mean)
            cov = f.spread * np.outer(scale, scale)
            if mean.ndim == 2:
                cov = cov.reshape(*mean.T.shape, *mean.T.shape).transpose(1, 0, 3, 2)
            return mean, cov
        mean = noise.predict_mean(f.mean, f.spread)
        mean = self._by_row(self._units.from_standard(mean, f.codes), tasks)
        if not return_std:
            return mean
        noise = noise.regular
        var = (noise.predict_var if include_noise else noise.var_of_mean)(f.mean, f.spread)
        return mean, self._by_row(np.sqrt(np.maximum(var, 0.0)) * scale, tasks)

    def predict_interval(
        self, X: Any, coverage: float = 0.95, tasks: Any = None, exposure: Any = None, trials: Any = None
    ) -> FloatArray:
        """Central interval of a new observation of every row, noise included.

        Parameters
        ----------
        coverage : float, default=0.95
            Probability that an observation lies in its interval.

        Returns
        -------
        ndarray of shape (n, 2)
            Lower and upper ends; of several outputs (n, q, 2).
        """
        (share,) = check_probabilities("coverage", coverage, single=True)
        ends = [0.5 * (1.0 - share), 0.5 * (1.0 + share)]
        return self.predict_quantiles(X, ends, tasks=tasks, exposure=exposure, trials=trials)

    def predict_quantiles(
        self, X: Any, quantiles: Any, tasks: Any = None, exposure: Any = None, trials: Any = None
    ) -> FloatArray:
        """Quantiles of a new observation of every row, noise included.

        Parameters
        ----------
        quantiles : float or sequence of float
            Probabilities between 0 and 1.

        Returns
        -------
        ndarray of shape (n, k)
            One column for each quantile; of several outputs (n, q, k).
        """
        levels = check_probabilities("quantiles", quantiles)
        f, noise = self._observed(X, tasks, exposure, trials)
        found = np.array([noise.regular.predict_quantile(f.mean, f.spread, level) for level in levels])
        return self._by_row(self._units.from_standard(found, f.codes).T, tasks)

    def predict_cdf(
        self, X: Any, y: Any, tasks: Any = None, exposure: Any = None, trials: Any = None
    ) -> FloatArray:
        """Probability that a new observation of a row is at most y, noise included.

        Parameters
        ----------
        y : array-like of shape (n,) or (n, q)
            One value for each row; the probability of NaN is NaN.

        Returns
        -------
        ndarray of shape (n,) or (n, q)
        """
        f, noise = self._observed(X, tasks, exposure, trials)
        at = self._units.to_standard(self._check_targets(y, len(f.mean), tasks), f.codes)
        if noise.support == "real":
            return self._by_row(noise.regular.predict_cdf(at, f.mean, f.spread), tasks)
        # Counts take whole numbers alone; below zero is nothing.
        at = np.floor(at) if noise.support == "count" else at
        cdf = noise.regular.predict_cdf(np.maximum(at, 0.0), f.mean, f.spread)
        return self._by_row(np.where(np.isnan(at), np.nan, np.where(at < 0.0, 0.0, cdf)), tasks)

    def log_density(
        self, X: Any, y: Any, tasks: Any = None, exposure: Any = None, trials: Any = None
    ) -> float:
        """Mean log predictive density (counts: probability) of observations; higher is better.

        Returns
        -------
        float
            In nats per row, in the units of y.
        """
        f, noise = self._observed(X, tasks, exposure, trials)
        y = self._check_targets(y, len(f.mean), tasks)
        labeled = ~np.isnan(y)
        check_rows(noise, y, labeled)
        standard = self._units.to_standard(np.where(labeled, y, self._units.mean[0]), f.codes)
        values = noise.log_density(standard, f.mean, f.spread) - np.log(self._units.scale[f.codes])
        return float(np.mean(values[labeled]))

    @on_one_thread()
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
        n_samples : int, default=1
            How many draws.
        observations : bool, default=False
            Draw observations, with noise, in place of functions.

        Returns
        -------
        ndarray of shape (n, n_samples), or (n, q, n_samples) of several outputs
        """
        n_samples = check_count("n_samples", n_samples)
        noisy, rng = observations or not self._has_normal_noise, generator_from(random_state)
        f, noise = self._observed(X, tasks, exposure, trials, noisy=noisy, joint=True)
        drawn = rng.multivariate_normal(f.mean, f.spread, n_samples, method="eigh", check_valid="ignore")
        if noisy:
            drawn = noise.regular.sample(drawn, rng) if observations else noise.regular.mean_given(drawn)
        return self._by_row(self._units.from_standard(drawn, f.codes).T, tasks)


def check_fields(noise: Any, **given: Any) -> None:
    """Raise if something is given for the rows that the noise model does not have."""
    wrong = [name for name, values in given.items() if values is not None and name not in noise.row_fields]
    if wrong:
        name, model = wrong[0], type(noise).__name__
        raise ValueError(f"{name}= is given, but {model} noise has no {name}. It is for {_FIELDS[name]}.")


def check_rows(noise: Any, y: FloatArray, rows: np.ndarray) -> None:
    """Raise `LabelError` if a target of some rows does not fit the noise, with its number among all rows."""
    numbers = np.sort(np.arange(len(y))[rows])
    try:
        noise.at(numbers).check_target(y[numbers])
    except LabelError as error:
        message = re.sub(r"in row (\d+)", lambda found: f"in row {numbers[int(found[1])]}", str(error))
        raise LabelError(message) from None
