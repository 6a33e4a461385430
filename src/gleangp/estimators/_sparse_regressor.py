"""`SparseGPRegressor`: regression for one task or many, with a choice of noise models."""

from __future__ import annotations

from dataclasses import replace
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
from gleangp.data.tasks import blocks_of_rows
from gleangp.estimators._defaults import default_priors, noise_prior, task_priors
from gleangp.estimators._local import fit_local_rows
from gleangp.estimators._observations import ObservationMixin
from gleangp.estimators._outputs import count_outputs, every_output, names_of_outputs
from gleangp.estimators._sparse import SHARED_CONSTRAINTS, SparseGPMixin, generator_from
from gleangp.estimators._targets import natural_units, own_units, standard_units, total_units
from gleangp.estimators._tasks_mixin import TaskRegressorMixin
from gleangp.estimators._training_rows import LocalRows, StandardTargets
from gleangp.exceptions import LabelError, TaskError
from gleangp.inference.block import Block
from gleangp.invariances import check_invariances
from gleangp.kernels import has_white
from gleangp.models.active.model import fit_sparse_model
from gleangp.models.active.virtual_vectors import add_virtual_vectors, add_virtual_vectors_to_last
from gleangp.models.defaults import LEARNING, LINKED_PRIORS, PRIORS
from gleangp.models.likelihood import GaussianNoise, PropagatedNoise
from gleangp.models.parameters import Parameters
from gleangp.models.priors import LogNormal
from gleangp.noise import Gaussian, noise_from_name
from gleangp.numerics.parallel import threads_for

# Where all noise is in the kernel's white part, the rest only keeps matrices factorable (the
# default of scikit-learn's exact regressor).
_NO_OTHER_NOISE = 1e-10
_NOISE_START = 0.1


class SparseGPRegressor(SparseGPMixin, ObservationMixin, TaskRegressorMixin, BaseEstimator):
    """Gaussian-process regression for one task or many related ones.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel, default=None
        Covariance function of the inputs, which are then used as they are. None: the hierarchical model of
        the Notes, with a learnt warping of the inputs.
    coupling : {"auto", "kernel", "function", "coregion"} or object, default="auto"
        What tasks share. "function": a common function, and for each task an offset, slopes and an own
        function, whose sizes are learnt. "kernel": the parameters of the kernel alone. "coregion": tasks are
        mixtures of shared functions with learnt weights (`CoregionCoupling(rank=...)`). "auto": "function",
        or "coregion" if it has more evidence. `coupling_` has the choice. Ignored with one task.
    n_active : int or float, default=None
        Number of basis points, or their share of the rows. None: all rows if there are at most 2000, else
        400.
    selector : {"residual", "entropy", "information", "random", "graph"} or object, default="residual"
        How basis points are selected. "residual" samples rows with the variance that is still unexplained.
        "entropy" prefers the periphery if there are many features. "random" misses small clusters.
    posterior : {"local", "active"}, default="local"
        "local": the covariance is exact within neighbourhoods of rows and goes through the basis between
        them. A new row is predicted from the basis and the rows near it. "active": predictions use the active
        points only (the method of LP04). With `invariances` it is always "active".
    noise : {"gaussian", "outliers", "poisson", "negative_binomial", "binomial", "gamma"} or object, \
            default="gaussian"
        Distribution of the targets given the function, by name or as an object of `gleangp.noise`.
        With "outliers", a learnt share of the rows are wrong measurements, and intervals are those of the
        other rows. The link is logarithmic for "poisson", "negative_binomial" and "gamma",
        and the logit for "binomial". All but "gaussian" need `posterior="local"`.
    move_basis : bool or "auto", default="auto"
        Has no effect. Model files of version 0.1 contain it.
    optimizer : {"l-bfgs-b"} or None, default="l-bfgs-b"
        If None, the kernel parameters and the noise are not learnt.
    n_rounds : int, default=5
        For `posterior="active"`: maximum number of rounds of selecting points and learning the kernel.
    n_restarts : int, default=0
        Further starts of the optimiser, drawn within the bounds of the parameters.
    priors : dict, default=None
        Priors by name of the hyperparameter (as in `kernel_.hyperparameters`, or "noise__variance"), such as
        `gleangp.models.priors.LogNormal`. They replace those of the default model.
    normalize_y : bool, default=True
        Standardise the targets before the fit. Kernel and noise parameters are then in units of the
        standardised target. No effect on counts and on "gamma".
    noise_variance : float or array-like of shape (n,), default=None
        Variance of Gaussian noise, in the units of the kernel. None: learnt, with several tasks for each of
        them; if the kernel has a `WhiteKernel`, that is the noise. A number fixes it. An array gives the
        known variance of every row.
    invariances : callable or list of callables, default=None
        Functions that take rows, without the task column, and return as many transformed rows that have the
        same target. Transformed copies of the active points (virtual informative vectors; LPJ05, section 6)
        compete for the active set.
    task : str or int, default=None
        Name or position of the column of X that holds the task.
    new_tasks : {"prior", "error"}, default="prior"
        How rows of tasks that were not seen are predicted. "prior": from what the tasks share, as after
        `add_task(None, None, task)`, with a `NewTaskWarning`. "error": they raise a `TaskError`.
    n_jobs : int, default=None
        Processes for the selection of many tasks.
    random_state : int, RandomState, Generator or None, default=None
        For selectors that sample, for restarts, and for `sample_y`.
    verbose : int, default=0
        If positive, print the result of every stage of learning.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with the learnt parameters.
    noise_ : object of gleangp.noise
        The fitted noise model, in units of the standardised target. It has one variance per row if
        `noise_variance` is an array.
    tasks_ : ndarray or None
        Names of the tasks. With several outputs: the names or numbers of the columns of `y`.
    coupling_ : Choice
        The coupling of the model (`.name`), with `.reason` and `.scores`.
    decisions_ : list of Decision
        Every choice that was made in the fit, as numbers and in words.
    variance_shares_ : dict
        Shares of the variance of the targets: "common", "task" and "noise"; with several tasks also
        "intraclass_correlation".
    task_correlation_ : ndarray of shape (M, M)
        Correlation of the tasks' functions under the learnt prior; the identity for "kernel".
    active_ : ndarray of shape (d,)
        Basis or active points as row numbers of the training set, in order of inclusion. Rows that are added
        later are numbered on from its end.
    active_gain_ : ndarray of shape (d,)
        Score of each point when it was included, in nats (`GraphSelector`: its degree).
    active_virtual_ : ndarray of shape (d,)
        Number of the invariance that made the point from the row in `active_`; -1 for the row itself.
    site_mean_, site_precision_ : ndarray of shape (d,)
        Gaussian approximations of the noise at the active points.
    log_evidence_ : float
        Log evidence, in units of the standardised targets.
    n_rounds_ : int
        Number of rounds of learning.
    selection_objective_ : float or None
        Objective of the selector after `fit`; None for selectors without one. `GraphSelector`: the mean over
        other rows of the strongest link to a selected one.
    columns_ : tuple of ColumnEncoding, or None
        If X was a frame: name, kind, encoding and number of missing cells of every input column.
    n_features_in_ : int
        Number of features in `fit`, the task column included.
    feature_names_in_ : ndarray
        Names of the features, if all are strings.

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
    length scales have proper priors. With one task it is m + g(w) + noise. Up to 1000 rows, predictions
    average over draws of the hyperparameters from their posterior.

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

    _parameter_constraints: dict = {
        **SHARED_CONSTRAINTS,
        "move_basis": ["boolean", StrOptions({"auto"})],
        "normalize_y": ["boolean"],
        "invariances": [callable, "array-like", None],
        "noise_variance": [Interval(Real, 0, None, closed="neither"), "array-like", None],
        "noise": [
            StrOptions(
                {"gaussian", "outliers", "student", "poisson", "negative_binomial", "binomial", "gamma"}
            ),
            HasMethods(["log_partition"]),
        ],
    }

    _fitted_parts = ("_model", "_units")

    def __init__(
        self,
        kernel: Any = None,
        *,
        coupling: Any = "auto",
        n_active: int | float | None = None,
        selector: Any = "residual",
        posterior: str = "local",
        noise: Any = "gaussian",
        move_basis: bool | str = "auto",
        optimizer: str | None = "l-bfgs-b",
        n_rounds: int = 5,
        n_restarts: int = 0,
        priors: dict[str, Any] | None = None,
        normalize_y: bool = True,
        noise_variance: Any = None,
        invariances: Any = None,
        task: str | int | None = None,
        new_tasks: str = "prior",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.kernel = kernel
        self.coupling = coupling
        self.n_active = n_active
        self.selector = selector
        self.posterior = posterior
        self.noise = noise
        self.move_basis = move_basis
        self.optimizer = optimizer
        self.n_rounds = n_rounds
        self.n_restarts = n_restarts
        self.priors = priors
        self.normalize_y = normalize_y
        self.noise_variance = noise_variance
        self.invariances = invariances
        self.task = task
        self.new_tasks = new_tasks
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

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
        X : frame or array-like of shape (n, p)
            Inputs, with the task column if `task` names one.
        y : array-like of shape (n,) or (n, q)
            Targets; NaN if a target is missing. Several columns are q outputs of every row. They are learnt
            as coupled tasks, each in its own units.
        tasks : array-like of shape (n,), default=None
            Task of each row. None, and no task column: one task.
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
        self._fit_rows(rows, given, fields)
        return self

    def _fit_rows(
        self, rows: LocalRows, given: tuple[Any, Any, Any], fields: dict[str, FloatArray] | None = None
    ) -> None:
        """Learn from rows whose targets are numbers; `given` is for callbacks."""
        invariances = check_invariances(self.invariances)
        fields = fields or {}
        self._n_rows = rows.n_rows
        if self._is_local():
            self._fit_local(rows, given, fields)
            return
        self._needs_local(fields)
        self._units = standard_units(rows.moments()) if self.normalize_y else natural_units(rows.n_tasks)
        uncoupled = self._why_uncoupled(rows)
        parameters = self._parameters(rows)
        variance = self._known_variance(rows.n_rows)
        tasks: Any = rows.tasks(StandardTargets(self._units), parameters.noise, variance)
        settings = self._settings(rows.sizes, uncoupled=uncoupled)
        rng = generator_from(self.random_state)
        settings, progress = self._with_progress(settings, given)
        with threads_for(rows.sizes):
            model: Any = fit_sparse_model(parameters, tasks, rows.n_rows, settings, rng)
            if invariances:
                seed = int(rng.integers(2**31))
                model = add_virtual_vectors(model, tasks, invariances, settings, seed)
        self._store(model)
        self._warn_about(self._model)
        progress.end(fitted=True)

    def _fit_local(self, rows: Any, given: tuple[Any, Any, Any], fields: dict[str, FloatArray]) -> None:
        """Fit the model of blocks and a basis."""
        model = self._noise_model(fields)
        real = model is None or model.support == "real"
        kept = slice(None) if rows.keep is None else rows.keep
        if model is not None:
            model.at(kept).check_target(rows.y[kept])
        scaled = self.normalize_y and real
        if scaled and self._n_outputs:  # each in its own units
            self._units = own_units([rows.y[r] for r in rows.block_rows])
        else:
            self._units = total_units(rows.moments()) if scaled else natural_units(rows.n_tasks)
        y = self._units.to_standard(rows.y, rows.codes)
        likelihood: Any
        if model is None:
            variance, known = self._known_variance(rows.n_rows), None
            if self.noise_variance is not None:
                known = 1.0 if variance is not None else float(self.noise_variance)
            elif self.kernel is not None and has_white(self.kernel):
                known = _NO_OTHER_NOISE
            noise: Any = np.ones(rows.n_rows) if variance is None else variance
            noise = noise / fields.get("sample_weight", 1.0)
            likelihood = GaussianNoise(np.array(rows.sizes), known)
        else:
            noise = replace(model, bias=model.at(kept).typical_bias(rows.y[kept]))
            learn = tuple(name for name in noise.transforms if name != "bias")
            of_noise = {name: LogNormal(*noise.priors[name]) for name in learn if name in noise.priors}
            # What belongs to the training rows is not kept.
            likelihood = PropagatedNoise(replace(noise, **dict.fromkeys(fields, 1.0)), learn, of_noise)
        progress = self._begin_progress(*given, LEARNING.most_reports)
        with threads_for(rows.sizes):
            fitted = fit_local_rows(
                self,
                rows,
                y,
                likelihood,
                noise,
                generator_from(self.random_state),
                kernel=None if self.kernel is None else self._start_kernel(lambda: None),
                priors=self.priors,
                progress=progress,
                widths=PRIORS if real else LINKED_PRIORS,
            )
        self._store(fitted)
        self._warn_about(fitted)
        progress.end(fitted=True)

    def _noise_model(self, fields: dict[str, FloatArray]) -> Any:
        """The noise model of all rows; None for Gaussian noise, which has a closed form."""
        if isinstance(self.noise, Gaussian):
            raise ValueError("noise is a Gaussian object. Use noise='gaussian' and noise_variance=.")
        if self.noise == "gaussian":
            for name in ("exposure", "trials"):
                if name in fields:
                    raise ValueError(f"{name}= is given with noise='gaussian'. It is for counts: set noise=.")
            return None
        model: Any = noise_from_name(self.noise) if isinstance(self.noise, str) else self.noise
        if getattr(model, "support", "label") == "label":
            raise ValueError(
                f"noise is a {type(model).__name__} object, which is not for numbers. For labels use "
                "SparseGPClassifier or SparseGPOrdinal; your own model inherits from gleangp.noise.Noise."
            )
        if self.noise_variance is not None:
            raise ValueError(f"noise_variance= is given with noise={self.noise!r}. It is for 'gaussian'.")
        wrong = [name for name in fields if not hasattr(model, name)]
        if wrong:
            raise ValueError(f"{wrong[0]}= is given, but {type(model).__name__} noise has no {wrong[0]}.")
        return replace(model, **fields)

    def _row_fields(self, n_rows: int, *given: Any) -> dict[str, FloatArray]:
        """What was given for every row, by name."""
        fields = {}
        for name, values in zip(("sample_weight", "exposure", "trials"), given, strict=True):
            if values is None:
                continue
            array = self._of_cells(np.asarray(values, dtype=np.float64), n_rows)
            may_be_zero = name == "sample_weight"
            allowed = np.isfinite(array) & ((array >= 0.0) if may_be_zero else (array > 0.0))
            if array.shape != (n_rows,) or not allowed.all() or not array.any():
                raise LabelError(
                    f"{name} has shape {array.shape} and least value {np.min(array, initial=np.inf):.3g}; "
                    f"one positive number is expected for each of the {n_rows} rows"
                    f"{', or zero for some of them' if may_be_zero else ''}."
                )
            if name != "sample_weight" or (array != 1.0).any():
                fields[name] = array
        return fields

    def _needs_local(self, fields: dict[str, FloatArray]) -> None:
        """Raise if something was asked for that the other posteriors do not have."""
        asked = [f"{name}=" for name in fields]
        if self.noise != "gaussian":
            asked.append(f"noise={self.noise!r}")
        if asked:
            raise ValueError(
                f"{asked[0]} needs posterior='local' without invariances; this fit has "
                f"posterior={self.posterior!r}."
            )

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
        X : frame or array-like of shape (n, p)
            Inputs.
        tasks : array-like of shape (n,), default=None
            Task of each row, if the model was fitted with tasks and names no column for them.
        return_std : bool, default=False
            Also return the standard deviation of the function. It leaves out the noise, as in scikit-learn;
            only a `WhiteKernel` in a kernel of your own counts.
        return_cov : bool, default=False
            Return the joint covariance of the function instead (of the latent one for counts).
        include_noise : bool, default=False
            Return the standard deviation of a new observation: function and noise. See also
            `predict_interval`.
        exposure, trials : array-like of shape (n,), default=None
            Of the rows, for counts; None: 1.

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

    def _joint(self, X: Any, tasks: Any, include_noise: bool) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance of all rows (of all outputs), in the units of y."""
        X, _, codes = self._resolve(X, tasks, reset=False, joint=True)
        scale = self._units.scale[codes]
        with threads_for(np.bincount(codes)):
            mean, cov = self._model.predict_cov(X, codes)
        cov = np.array(cov)
        cov.flat[:: len(cov) + 1] += self._noise_to_add(X, codes, include_noise)
        return self._units.from_standard(mean, codes), cov * np.outer(scale, scale)

    def add_task(self, X: Any, y: Any, task: Any, exposure: Any = None, trials: Any = None) -> Self:
        """Add one more task, from few rows. The kernel and the noise stay as they are.

        Parameters
        ----------
        X : frame or array-like of shape (m, p)
            Its rows, with or without the task column. None or no rows: the task is predicted from
            the prior.
        y : array-like of shape (m,)
            Its targets.
        task : str, int or bool
            Its name.
        exposure, trials : array-like of shape (m,), default=None
            Of the rows, for counts; None: 1.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        X, y, names = self._new_task(X, y, task)
        labeled = np.flatnonzero(~np.isnan(y))
        units = self._units.with_task(y[labeled])
        codes = np.full(len(labeled), len(names) - 1)
        noise = self._noise_of_new_rows(len(y), labeled, exposure, trials) if len(labeled) else self.noise_
        noise.check_target(y[labeled])
        block = Block(X[labeled], units.to_standard(y[labeled], codes), noise)
        settings = self._settings_for_new_task(len(labeled))
        seed = int(generator_from(self.random_state).integers(2**31))
        with threads_for([len(block)]):
            model = self._model.add_task(block, settings, seed)
            if invariances := check_invariances(self.invariances):
                model = add_virtual_vectors_to_last(
                    model, block, invariances, settings, seed, self._model.log_evidence
                )
        self.tasks_, self._units = names, units
        self._store(model)
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
        tasks : array-like of shape (n,), default=None
            Task of each row, if the model was fitted with tasks and names no column for them.
        exposure, trials : array-like of shape (n,), default=None
            Of the rows, for counts; None: 1.
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
        if weights and not getattr(self._model, "gaussian", False):
            raise ValueError("sample_weight= needs posterior='local' and noise='gaussian'.")
        weight = weights.get("sample_weight", np.ones(len(X)))
        labeled &= weight > 0.0
        if not self._has_normal_noise:
            self._noise_of_new_rows(len(X), labeled, exposure, trials).check_target(y[labeled])
        standard = self._units.to_standard(y, codes)
        rows = [r[labeled[r]] for r in blocks_of_rows(codes, self._model.n_tasks)]
        filled = {t: r for t, r in enumerate(rows) if len(r)}
        blocks = {
            t: Block(X[r], standard[r], self._noise_of_new_rows(len(X), r, exposure, trials, weight))
            for t, r in filled.items()
        }
        with threads_for(map(len, blocks.values())):
            self._store(self._model.absorb(blocks, filled, len(X)))
        return self

    @property
    def variance_shares_(self) -> dict[str, float]:
        """Shares of the variance of the targets: "common", "task", "noise", "intraclass_correlation"."""
        check_is_fitted(self)
        if not hasattr(self._model, "variance_shares"):
            raise AttributeError(f"variance_shares_ is for posterior='local', not {self.posterior!r}.")
        return self._model.variance_shares(generator_from(0))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _new_task(self, X: Any, y: Any, task: Any) -> tuple[FloatArray, FloatArray, np.ndarray]:
        X, names = self._rows_of_new_task(X, task)
        if len(X) == 0:
            return X, np.zeros(0), names
        return X, check_regression_target(y, len(X))[0], names

    def _parameters(self, rows: LocalRows) -> Parameters:
        several = rows.n_tasks > 1
        kernel = self._start_kernel(lambda: self._default_kernel(rows, offset=several, linear=several))
        learn: tuple[str, ...] = ()
        priors = self.priors
        if priors is None:
            n_features = rows.inputs.shape[1]
            own = task_priors(kernel, n_features) if several else default_priors(kernel)
            priors = {**noise_prior(), **(own if self.kernel is None else {})}
        if self.noise_variance is not None:
            number = np.ndim(self.noise_variance) == 0
            noise = Gaussian(float(self.noise_variance) if number else np.asarray(self.noise_variance, float))
        elif has_white(kernel):
            noise = Gaussian(_NO_OTHER_NOISE)
        else:
            noise, learn = Gaussian(_NOISE_START), ("variance",)
        return self._check_priors(Parameters(kernel, noise, learn, priors))

    def _known_variance(self, n_rows: int) -> FloatArray | None:
        if self.noise_variance is None or np.ndim(self.noise_variance) == 0:
            return None
        variance = self._of_cells(np.asarray(self.noise_variance, dtype=np.float64), n_rows)
        if variance.shape != (n_rows,) or not (variance > 0).all():
            raise LabelError(
                f"noise_variance has shape {variance.shape} and least value {variance.min():.3g}; "
                f"one positive number is expected for each of the {n_rows} rows, or a single one."
            )
        return variance

    def _noise_to_add(self, X: FloatArray, codes: np.ndarray, include_noise: bool) -> FloatArray | float:
        """To the latent variance of new rows; less than nothing where it has noise that was not asked for."""
        if include_noise:
            return self._noise_of_tasks(codes)
        if self.kernel is None and has_white(self.kernel_):
            return -self._model.white_var(X, codes)
        return 0.0

    def _noise_of_new_rows(
        self, n_rows: int, rows: Any, exposure: Any, trials: Any, weight: FloatArray | None = None
    ) -> Any:
        """The noise of some of the new rows."""
        fields = self._row_fields(n_rows, None, exposure, trials)
        if not isinstance(self.noise_, Gaussian):
            return replace(self.noise_, **{name: values[rows] for name, values in fields.items()})
        variance = self._noise_at_new_rows()
        if weight is None or (weight[rows] == 1.0).all():
            return Gaussian(variance)
        return Gaussian(variance / weight[rows])

    def _noise_at_new_rows(self) -> float:
        if np.ndim(self.noise_variance):
            raise ValueError(
                "noise_variance was given per training row, so the noise of new rows is not known. Fit "
                "again with the new rows; in predict, leave include_noise=False and add it yourself."
            )
        return self.noise_.variance

    def _noise_of_tasks(self, codes: np.ndarray) -> FloatArray | float:
        """Variance of Gaussian noise of new rows, in standard units."""
        if not hasattr(self._model, "noise_variance"):
            return self._noise_at_new_rows()
        if np.ndim(self.noise_variance):
            self._noise_at_new_rows()
        return self._model.noise_variance(codes)


def _numbers(y: Any, n_rows: int) -> FloatArray:
    return check_regression_target(y, n_rows)[0]
