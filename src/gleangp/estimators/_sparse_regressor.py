"""`SparseGPRegressor`: regression for one task or many, with a choice of noise models."""

from __future__ import annotations

from functools import partial
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gleangp._compat import HasMethods, Interval, StrOptions, fit_context
from gleangp._typing import FloatArray
from gleangp.data.labels import check_regression_target
from gleangp.data.tables import is_table
from gleangp.estimators._docs import SPARSE, documented
from gleangp.estimators._observations import ObservationMixin
from gleangp.estimators._outputs import count_outputs, every_output, names_of_outputs
from gleangp.estimators._parameters import SPARSE_CONSTRAINTS, parameters
from gleangp.estimators._random import generator_from
from gleangp.estimators._regression import check_rows
from gleangp.estimators._sparse import FittedModel
from gleangp.estimators._tasks_mixin import TaskRegressorMixin
from gleangp.estimators._training_rows import LocalRows
from gleangp.exceptions import TaskError
from gleangp.inference.block import Block
from gleangp.models.local.model import LocalModel


@documented(SPARSE)
@parameters
class SparseGPRegressor(ObservationMixin, TaskRegressorMixin, BaseEstimator):
    """Gaussian-process regression for one task or many related ones.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel, default=None
        Covariance function of the inputs, which are then used as they are. None: the hierarchical model of
        the Notes, with a learnt warping of the inputs.
    {coupling, n_active}
    selector : {"residual", "entropy", "information", "random", "graph"} or object, default="residual"
        How basis points are selected. "residual" samples rows with the variance that is still unexplained.
        "entropy" prefers the periphery if there are many features. "random" misses small clusters.
    {posterior}
    noise : {"gaussian", "outliers", "poisson", "negative_binomial", "binomial", "gamma"} or object, \
            default="gaussian"
        Distribution of the targets given the function, by name or as an object of `gleangp.noise`.
        With "outliers", a learnt share of the rows are wrong measurements, and intervals are those of the
        other rows. The link is logarithmic for "poisson", "negative_binomial" and "gamma",
        and the logit for "binomial". All but "gaussian" need `posterior="local"`.
    {optimizer, n_rounds, n_restarts, priors}
    normalize_y : bool, default=True
        Standardise the targets before the fit. Kernel and noise parameters are then in units of the
        standardised target. No effect on counts and on "gamma".
    noise_variance : float or array-like of shape (n,), default=None
        Variance of Gaussian noise, in the units of the kernel. None: learnt, with several tasks for each of
        them; if the kernel has a `WhiteKernel`, that is the noise. A number fixes it. An array gives the
        known variance of every row.
    {invariances, task, new_tasks}
    n_jobs : int, default=None
        Processes for the selection of many tasks.
    {random_state, verbose}

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with the learnt parameters.
    noise_ : object of gleangp.noise
        The fitted noise model, in units of the standardised target. It has one variance per row if
        `noise_variance` is an array.
    tasks_ : ndarray or None
        Names of the tasks. With several outputs: the names or numbers of the columns of `y`.
    {coupling_, decisions_}
    variance_shares_ : dict
        Shares of the variance of the targets: "common", "task" and "noise"; with several tasks also
        "intraclass_correlation".
    {task_correlation_, active_, active_gain_, active_virtual_}
    {site_mean_, site_precision_}
    log_evidence_ : float
        Log evidence, in units of the standardised targets.
    n_rounds_ : int
        Number of rounds of learning.
    {selection_objective_, columns_, n_features_in_, feature_names_in_}

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

    Several tasks, more rows of a known task, and one more task:

    >>> tasks = np.repeat(["a", "b"], 25)
    >>> model = SparseGPRegressor(random_state=0).fit(X, np.sin(X[:, 0]), tasks=tasks)
    >>> model = model.partial_fit([[6.5]], [np.sin(6.5)], tasks=["b"])
    >>> model = model.add_task([[1.0], [4.0]], np.sin([1.0, 4.0]), task="c")
    >>> model.tasks_.tolist()
    ['a', 'b', 'c']
    """

    noise: Any = "gaussian"
    normalize_y: bool = True
    noise_variance: Any = None

    _parameter_constraints = {
        **SPARSE_CONSTRAINTS,
        "normalize_y": ["boolean"],
        "noise_variance": [Interval(Real, 0, None, closed="neither"), "array-like", None],
        "noise": [
            StrOptions(
                {"gaussian", "outliers", "student", "poisson", "negative_binomial", "binomial", "gamma"}
            ),
            HasMethods(["log_partition"]),
        ],
    }

    _fitted_parts = ("_model", "_units")
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
        {X}
        y : array-like of shape (n,) or (n, q)
            Targets; NaN if a target is missing. Several columns are q outputs of every row. They are learnt
            as coupled tasks, each in its own units.
        {tasks}
        sample_weight : array-like of shape (n,), default=None
            For Gaussian noise. The noise variance of a row is divided by its weight w, as for the mean of w
            rows. Rows of weight zero are left out.
        exposure : array-like of shape (n,), default=None
            For counts: the factor of the rate, such as time or area. None: 1.
        trials : array-like of shape (n,), default=None
            For "binomial": the number of trials of each count. None: 1.

        Returns
        -------
        self
        """
        given = X, y, tasks
        self._n_outputs = count_outputs(y)
        target = None if self._n_outputs or not is_table(X) else partial(_numbers, y, len(X))
        keep = self._keeps_float32()
        X, self.tasks_, codes = self._resolve(X, tasks, reset=True, keep_float32=keep, target=target)
        if self._n_outputs:
            if self.tasks_ is not None:
                raise TaskError(
                    f"y has shape {np.shape(y)}, and there are tasks too. Give one target per row with "
                    "tasks, or several outputs without. To have both, name a task for each pair."
                )
            self.tasks_ = names_of_outputs(y, len(X))
            X, codes = every_output(X, len(self.tasks_))
        y, labeled = self._check_targets(y, len(X), None)
        n_tasks = 1 if self.tasks_ is None else len(self.tasks_)
        fields = self._row_fields(len(X), sample_weight, exposure, trials)
        if "sample_weight" in fields:
            heard = fields["sample_weight"] > 0.0
            labeled, fields["sample_weight"] = labeled & heard, np.where(heard, fields["sample_weight"], 1.0)
        rows = LocalRows(X, y, codes, n_tasks, None if labeled.all() else labeled)
        self._n_rows = rows.n_rows
        if self._is_active:
            self._needs_local(fields)
            self._fit_active([self._active_problem(rows)], given)
        else:
            self._fit_local([self._local_problem(rows, fields)], given)
        return self

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
        {X, tasks}
        return_std : bool, default=False
            Also return the standard deviation of the function. It leaves out the noise, as in scikit-learn;
            only a `WhiteKernel` in a kernel of your own counts.
        return_cov : bool, default=False
            Return the joint covariance of the function instead (of the latent one for counts).
        include_noise : bool, default=False
            Return the standard deviation of a new observation: function and noise. See also
            `predict_interval`.
        {exposure, trials}

        Returns
        -------
        mean : ndarray of shape (n,), or (n, q) of several outputs
        std : ndarray of the same shape, or covariance of shape (n, n) or (n, q, n, q)
            Only with `return_std` or `return_cov`.
        """
        check_is_fitted(self)
        if return_std and return_cov:
            raise ValueError("return_std and return_cov are both True. Ask for one of them.")
        if return_cov:
            mean, cov = self._joint(X, tasks, include_noise)
            mean = self._by_row(mean, tasks)
            if mean.ndim == 2:
                cov = cov.reshape(*mean.T.shape, *mean.T.shape).transpose(1, 0, 3, 2)
            return mean, cov
        with_var = return_std or not self._has_normal_noise
        latent = self._latent(X, tasks, with_var=with_var, exposure=exposure, trials=trials)
        mean = self._by_row(self._observed_mean(latent), tasks)
        if not return_std:
            return mean
        return mean, self._by_row(self._observed_std(latent, include_noise), tasks)

    def add_task(self, X: Any, y: Any, task: Any, exposure: Any = None, trials: Any = None) -> Self:
        """Add one more task, from few rows. The kernel and the noise stay as they are.

        Parameters
        ----------
        {X}
        y : array-like of shape (m,)
            Its targets.
        {task}
        exposure, trials : array-like of shape (m,), default=None
            Of the rows, for counts; None: 1.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        X, y, names = self._targets_of_new_task(X, y, task)
        labeled = np.flatnonzero(~np.isnan(y))
        units = self._units.with_task(y[labeled])
        codes = np.full(len(labeled), len(names) - 1)
        noise = self._noise_of_new_rows(len(y), labeled, exposure, trials) if len(labeled) else self.noise_
        if len(labeled) and not self._has_normal_noise:
            check_rows(self._noise_of_new_rows(len(y), slice(None), exposure, trials), y, ~np.isnan(y))
        block = Block(X[labeled], units.to_standard(y[labeled], codes), noise)
        models = self._add_blocks([block])
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
        X : frame or array-like of shape (n, p)
            New rows.
        y : array-like of shape (n,) or (n, q)
            Their targets; rows or cells where it is NaN are left out.
        {tasks}
        {exposure, trials}
        sample_weight : array-like of shape (n,), default=None
            As in `fit`.

        Returns
        -------
        self
        """
        if not hasattr(self, "_model"):
            return self.fit(X, y, tasks, sample_weight, exposure, trials)
        X, _, codes = self._resolve(X, tasks, reset=False, learn=True)
        y, labeled = self._check_targets(y, len(X), tasks)
        weights = self._row_fields(len(X), sample_weight, None, None)
        if weights and not (isinstance(self._model, LocalModel) and self._model.gaussian):
            raise ValueError("sample_weight= needs posterior='local' and noise='gaussian'.")
        weight = weights.get("sample_weight", np.ones(len(X)))
        labeled &= weight > 0.0
        if not self._has_normal_noise:
            check_rows(self._noise_of_new_rows(len(X), slice(None), exposure, trials), y, labeled)
        standard = self._units.to_standard(y, codes)
        self._absorb(
            X,
            codes,
            labeled,
            [standard],
            lambda rows: self._noise_of_new_rows(len(X), rows, exposure, trials, weight),
        )
        return self

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

    def _check_own_state(self, models: list[FittedModel], n_tasks: int) -> None:
        if len(self._units.mean) != n_tasks:
            raise ValueError(f"target units of {len(self._units.mean)} tasks, not {n_tasks}.")


def _numbers(y: Any, n_rows: int) -> FloatArray:
    return check_regression_target(y, n_rows)[0]
