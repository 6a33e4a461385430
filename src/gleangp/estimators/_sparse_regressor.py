"""`SparseGPRegressor`: regression for one task or many, with a choice of noise models."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gleangp._compat import HasMethods, StrOptions, fit_context
from gleangp._typing import FloatArray
from gleangp.data.outputs import stack_outputs
from gleangp.estimators._docs import documented
from gleangp.estimators._observations import check_rows
from gleangp.estimators._parameters import POSITIVE, generator_from, given, parameters
from gleangp.estimators._problems import rows_to_learn
from gleangp.estimators._regression import RegressionMixin
from gleangp.estimators._sparse import FittedModel
from gleangp.exceptions import TaskError
from gleangp.inference.block import Block
from gleangp.models.local.answers import left_out_predictions
from gleangp.models.local.data import Data
from gleangp.models.local.model import LocalModel
from gleangp.noise import Gaussian

_NOISES = {"gaussian", "outliers", "student", "poisson", "negative_binomial", "binomial", "gamma"}


@documented()
@parameters
class SparseGPRegressor(RegressionMixin, BaseEstimator):
    """Gaussian-process regression for one task or many related ones.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel, default=None
        Covariance function of the inputs, which are then used as they are. None: the hierarchical model of
        the Notes, with a learnt warping of the inputs.
    selector : {"residual", "entropy", "information", "random", "graph"} or object, default="residual"
        How basis points are selected. "residual" samples rows with the variance that is still unexplained.
        "entropy" prefers the periphery if there are many features. "random" misses small clusters.
    noise : {"gaussian", "outliers", "poisson", "negative_binomial", "binomial", "gamma"} or object, \
            default="gaussian"
        Distribution of the targets given the function, by name or as an object of `gleangp.noise`.
        With "outliers", a learnt share of the rows are wrong measurements, and intervals are those of the
        other rows. The link is logarithmic for "poisson", "negative_binomial" and "gamma",
        and the logit for "binomial". All but "gaussian" need `posterior="local"`.
    normalize_y : bool, default=True
        Standardise the targets before the fit. Kernel and noise parameters are then in units of the
        standardised target. No effect on counts and on "gamma".
    noise_variance : float or array-like of shape (n,), default=None
        Variance of Gaussian noise, in the units of the kernel. None: learnt, with several tasks for each of
        them; if the kernel has a `WhiteKernel`, that is the noise. A number fixes it. An array gives the
        known variance of every row.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with the learnt parameters.
    noise_ : object of gleangp.noise
        The fitted noise model, in units of the standardised target. It has one variance per row if
        `noise_variance` is an array.
    tasks_ : ndarray or None
        Names of the tasks. With several outputs: the names or numbers of the columns of `y`.
    variance_shares_ : dict
        Shares of the variance of the targets: "common", "task" and "noise"; with several tasks also
        "intraclass_correlation".

    See Also
    --------
    SparseGPClassifier : The same for classes.
    HierarchicalGPRegressor : A kernel of its own for every task.

    Notes
    -----
    The default model of several tasks is

        y = m + g(w) + o_t + s_t' w + h_t(w) + noise_t,

    with a common function g (linear and smooth), offsets o_t, slopes s_t, own functions h_t and noise of each
    task, on inputs w that are warped by a learnt monotone function of each numeric column. All sizes and
    length scales have proper priors. With one task it is m + g(w) + noise. Up to 1000 rows (300 with
    outliers), predictions average over draws of the hyperparameters from their posterior. Those of counts
    and positive numbers do not.

    Rows whose target is NaN are left out. A task without other rows is predicted from the prior. The
    posterior is exact up to 2000 rows. With more, the time of learning does not depend on the number of rows,
    and that of the posterior is linear in it.

    References
    ----------
    Lawrence & Platt 2004; Lawrence, Platt & Jordan 2005; Snelson & Ghahramani 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from gleangp import SparseGPRegressor
    >>> X = np.linspace(0, 6, 50)[:, None]
    >>> model = SparseGPRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict([[1.0]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.0)) < 0.01)
    True
    >>> bool(model.score(X, np.sin(X[:, 0])) > 0.99)
    True

    A new observation, noise included, and draws of the function:

    >>> low, high = model.predict_interval([[1.0]])[0]
    >>> bool(low < np.sin(1.0) < high)
    True
    >>> model.predict_quantiles([[1.0]], [0.1, 0.5, 0.9]).shape
    (1, 3)
    >>> model.sample_y([[1.0]], n_samples=3).shape
    (1, 3)
    >>> model.predict_cdf([[1.0], [1.0]], [0.0, 2.0]).round(3).tolist()
    [0.0, 1.0]
    >>> bool(model.log_density(X, np.sin(X[:, 0])) > 1.0)
    True

    The training rows, each predicted from all others:

    >>> y = np.sin(X[:, 0]) + 0.1 * np.cos(37 * X[:, 0])
    >>> mean, std = SparseGPRegressor(random_state=0).fit(X, y).leave_one_out()
    >>> bool(np.mean(np.abs(y - mean) < 1.96 * std) > 0.85)
    True

    Several tasks, more rows of a known task, and one more task:

    >>> tasks = np.repeat(["a", "b"], 25)
    >>> model = SparseGPRegressor(random_state=0).fit(X, np.sin(X[:, 0]), tasks=tasks)
    >>> model = model.partial_fit([[6.5]], [np.sin(6.5)], tasks=["b"])
    >>> model = model.add_task([[1.0], [4.0]], np.sin([1.0, 4.0]), task="c")
    >>> model.tasks_.tolist()
    ['a', 'b', 'c']
    """

    noise: Any = given([StrOptions(_NOISES), HasMethods(["log_partition"])], default="gaussian")
    normalize_y: bool = given(["boolean"], default=True)
    noise_variance: Any = given([POSITIVE, "array-like", None], default=None)

    _fitted_parts = ("_model", "_n_inputs", "_units")
    _former_parameters = ("move_basis",)  # of version 0.1

    @fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: Any,
        y: Any,
        tasks: Any = None,
        sample_weight: Any = None,
        exposure: Any = None,
        trials: Any = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        y : array-like of shape (n,) or (n, q)
            Targets; NaN if a target is missing. Several columns are q outputs of every row. They are learnt
            as coupled tasks, each in its own units.
        sample_weight : array-like of shape (n,), default=None
            For Gaussian noise. The noise variance of a row is divided by its weight w, as for the mean of w
            rows. Rows of weight zero are left out.
        exposure : array-like of shape (n,), default=None
            For counts: the factor of the rate, such as time or area. None: 1.
        trials : array-like of shape (n,), default=None
            For "binomial": the number of trials of each count. None: 1.
        """
        given = X, y, tasks
        shape = np.shape(y) if hasattr(y, "shape") else np.array(y, dtype=object).shape
        self._n_outputs = shape[1] if len(shape) == 2 and shape[1] > 1 else 0
        target = None if self._n_outputs else y
        X, codes = self._learn_inputs(X, tasks, target=target)
        if self._n_outputs:
            if self.tasks_ is not None:
                raise TaskError(
                    f"y has shape {shape}, and there are tasks too. Give one target per row with "
                    "tasks, or several outputs without. To have both, name a task for each pair."
                )
            n_rows = len(X)
            X, _, names = stack_outputs(X, y)
            self.tasks_, codes = names[::n_rows], np.repeat(np.arange(self._n_outputs), n_rows)
        y, labeled = self._check_targets(y, len(X), None)
        fields = self._row_fields(len(X), sample_weight, exposure, trials)
        if "sample_weight" in fields:
            heard = fields["sample_weight"] > 0.0
            labeled, fields["sample_weight"] = labeled & heard, np.where(heard, fields["sample_weight"], 1.0)
        self._n_rows = len(X)
        rows, at = Data(X, y, codes, self._n_tasks, Gaussian()), rows_to_learn(X, y, codes, labeled)
        problem = self._active_problem if self._is_active else self._local_problem
        self._fit([problem(rows, at, fields)], given)
        return self

    def add_task(self, X: Any, y: Any, task: Any, exposure: Any = None, trials: Any = None) -> Self:
        """Add one more task, from few rows. The kernel and the noise stay as they are.

        Parameters
        ----------
        y : array-like of shape (m,)
            Its targets.
        """
        X, y, names = self._targets_of_new_task(X, y, task)
        labeled = ~np.isnan(y)
        units = self._units.with_task(y[labeled])
        noise = self.noise_
        if labeled.any():
            noise = self._noise_of_new_rows(len(y), exposure, trials)
            check_rows(noise, y, labeled)
        standard = units.to_standard(y, np.full(len(y), len(names) - 1))
        models = self._add_blocks([Block(X[labeled], standard[labeled], noise.at(labeled))])
        self.tasks_, self._units = names, units
        self._store(models)
        return self

    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self,
        X: Any,
        y: Any,
        tasks: Any = None,
        exposure: Any = None,
        trials: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Update the model with new rows of known tasks; on a new estimator, `fit`.

        The kernel and the noise stay as they are. For Gaussian noise and up to 2000 rows the result is the
        posterior of all rows.

        Parameters
        ----------
        y : array-like of shape (n,) or (n, q)
            Their targets; rows or cells where it is NaN are left out.
        sample_weight : array-like of shape (n,), default=None
            As in `fit`.
        """
        if not hasattr(self, "_model"):
            return self.fit(X, y, tasks, sample_weight, exposure, trials)
        X, codes = self._encode_inputs(X, tasks, learn=True)
        y, labeled = self._check_targets(y, len(X), tasks)
        weight = self._row_fields(len(X), sample_weight, None, None).get("sample_weight")
        if weight is not None:
            if not (isinstance(self._model, LocalModel) and self._model.gaussian):
                raise ValueError("sample_weight= needs posterior='local' and noise='gaussian'.")
            labeled, weight = labeled & (weight > 0.0), np.where(weight > 0.0, weight, 1.0)
        noise = self._noise_of_new_rows(len(X), exposure, trials, weight)
        check_rows(noise, y, labeled)
        self._absorb(X, codes, labeled, [self._units.to_standard(y, codes)], [noise])
        return self

    def leave_one_out(self) -> tuple[FloatArray, FloatArray]:
        """Predictions of the training targets, each from all other rows, in closed form.

        They show errors and calibration without another fit. Parameters are those of the fit; with noise that
        is not Gaussian the sites of the other rows are too. Rows of tasks that were added later, and rows
        without a target, are NaN.

        Returns
        -------
        mean, std : ndarray of shape (n,), or (n, q) of several outputs
            Of every target of `fit`, noise included.
        """
        model = self._model
        if not isinstance(model, LocalModel):
            raise ValueError("leave_one_out is for posterior='local'. Fit again with it.")
        mean, var, codes = left_out_predictions(model)
        n_rows = getattr(self, "_n_rows", int(model.row_numbers.max(initial=-1)) + 1)  # not in older files
        left_out = np.full((2, n_rows), np.nan)
        left_out[0, model.row_numbers] = self._units.from_standard(mean, codes)
        left_out[1, model.row_numbers] = np.sqrt(var) * self._units.scale[codes]
        mean, std = left_out
        if n_outputs := getattr(self, "_n_outputs", 0):
            return mean.reshape(n_outputs, -1).T, std.reshape(n_outputs, -1).T
        return mean, std

    @property
    def variance_shares_(self) -> dict[str, float]:
        """Shares of the variance of the targets: "common", "task", "noise", "intraclass_correlation"."""
        check_is_fitted(self)
        if not isinstance(self._model, LocalModel):
            raise AttributeError(f"variance_shares_ is for posterior='local', not {self.posterior!r}.")
        return self._model.variance_shares(generator_from(0))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _check_own_state(self, models: list[FittedModel]) -> None:
        if len(self._units.mean) != self._n_tasks:
            raise ValueError(f"target units of {len(self._units.mean)} tasks, not {self._n_tasks}.")
