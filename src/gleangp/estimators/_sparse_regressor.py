"""`SparseGPRegressor`: Gaussian noise, one task or many, any selector."""

from __future__ import annotations

from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gleangp._compat import Interval, StrOptions, fit_context
from gleangp._typing import FloatArray
from gleangp.estimators._defaults import default_priors, noise_prior, task_priors
from gleangp.estimators._sparse import SHARED_CONSTRAINTS, SparseGPMixin, generator_from
from gleangp.estimators._targets import natural_units, standard_units
from gleangp.estimators._tasks_mixin import TaskRegressorMixin
from gleangp.estimators._training_rows import LocalRows, StandardTargets, TrainingRows
from gleangp.exceptions import LabelError
from gleangp.inference.block import Block
from gleangp.invariances import check_invariances
from gleangp.kernels import has_white
from gleangp.labels import check_regression_target
from gleangp.learning.coupled_model import fit_tasks
from gleangp.learning.parameters import Parameters
from gleangp.learning.sparse_model import (
    absorb_rows,
    add_task,
    predict_tasks,
    predict_tasks_cov,
)
from gleangp.learning.virtual_vectors import add_virtual_vectors, add_virtual_vectors_to_last
from gleangp.noise import Gaussian
from gleangp.parallel import threads_for
from gleangp.tasks import blocks_of_rows

# Where all noise is in the kernel's white part, the rest only keeps matrices factorable (the
# default of scikit-learn's exact regressor).
_NO_OTHER_NOISE = 1e-10
_NOISE_START = 0.1


class SparseGPRegressor(SparseGPMixin, TaskRegressorMixin, BaseEstimator):
    """Gaussian-process regression with few active points, for one task or many that share a kernel.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel, default=None
        Covariance function, shared by all tasks. None: `C * RBF` with one length scale per feature
        where there are at least ten rows for each, started at the spread of the features, with weak
        priors; with several tasks a linear part is added, and a constant, the offset of a task.
    coupling : {"auto", "kernel", "function", "coregion"} or object, default="auto"
        What tasks share. "kernel": kernel parameters alone. "function": f_task = common + own_task, so
        that tasks inform each other's values and a new one starts from the common function
        (`FunctionCoupling`). "coregion": tasks are mixtures of shared functions with learnt weights
        (`CoregionCoupling(rank=...)`). "auto": the one with the most evidence on a part of the rows, and
        "kernel" where tasks cannot be coupled; `coupling_` says which and why. With one task it is ignored.
    n_active : int or float, default=None
        Number of active points over all tasks, or their share of the rows. None: all rows of tasks
        with up to 1000, 1000 of larger ones (down to 200 where there are more than 20 000 rows).
    selector : {"residual", "entropy", "information", "random", "graph"} or object, default="residual"
        Which points to keep. Residual sampling is the default because it is never far from the best:
        greedy entropy runs to the periphery in many dimensions, uniform sampling misses clusters.
    posterior : {"projected", "active"}, default="projected"
        "projected": all rows speak through the active points. "active": predictions use the active
        points only (the papers' compression scheme).
    move_basis : bool or "auto", default="auto"
        With "projected": let the basis points leave the rows they were chosen from, uphill on the
        evidence. "auto" does so where they leave more than 0.1 nats per row unexplained and the work
        (rows times points squared) is at most 1e9.
    optimizer : {"l-bfgs-b"} or None, default="l-bfgs-b"
        None keeps the kernel and the noise as they are given.
    n_rounds : int, default=5
        Most rounds of "select points, then learn the kernel".
    n_restarts : int, default=0
        Further starts of the optimiser, drawn within the bounds of the parameters.
    priors : dict, default=None
        Hyperparameter name (as in `kernel.hyperparameters`, or "noise__variance") -> prior, e.g.
        `gleangp.learning.priors.LogNormal`. None: weak ones on the noise and on the default kernel.
    normalize_y : bool, default=True
        Standardise the targets inside. Kernel and noise parameters are then in units of the
        standardised target. Several tasks are scaled together unless they are in different units.
    noise_variance : float or array-like of shape (n,), default=None
        None: learnt; but if the kernel has a `WhiteKernel`, that is the noise. A number fixes it;
        an array gives every row its own known variance. In the units of the kernel.
    invariances : callable or list of callables, default=None
        Each takes rows and gives as many transformed rows that have the same target. Transformed copies
        of the active points (virtual informative vectors; LPJ05, section 6) compete for the active set.
        Rows come without the task column.
    task : str or int, default=None
        Name or position of the column of X that holds the task.
    new_tasks : {"prior", "error"}, default="prior"
        Rows of tasks that were not seen. "prior": they are predicted from what the tasks share, as after
        `add_task(None, None, task)`, with a `NewTaskWarning`. "error": they raise a `TaskError`.
    n_jobs : int, default=None
        Processes for the selection of many tasks.
    random_state : int, RandomState, Generator or None, default=None
        For selectors that sample, for restarts, and for `sample_y`.
    verbose : int, default=0
        Print how every stage of learning ended, rounds with their evidence.

    Attributes
    ----------
    kernel_ : Kernel
        With the learnt parameters.
    noise_ : gleangp.noise.Gaussian
        The fitted noise, in units of the standardised target; with a known variance per row, all of them.
    tasks_ : ndarray or None
        Names of the tasks.
    coupling_ : Choice
        Which coupling the model has (`.name`), and why (`.reason`, `.scores`).
    task_correlation_ : ndarray of shape (M, M)
        Correlation of the tasks' functions under the learnt prior; the identity for "kernel".
    active_ : ndarray of shape (d,)
        Rows of the training set in order of inclusion; rows added later count on from its end.
    active_gain_ : ndarray of shape (d,)
        Score of each when it was included: nats, or with `GraphSelector` its degree.
    active_virtual_ : ndarray of shape (d,)
        Which invariance made each active point of the row in `active_`; -1 for the row itself.
    site_mean_, site_precision_ : ndarray of shape (d,)
        Gaussian stand-ins of the noise at the active points.
    log_evidence_ : float
        Log evidence (for "projected", the lower bound over all rows), standardised units.
    n_rounds_ : int
        Rounds of learning.
    selection_objective_ : float or None
        What the selector says its choice achieved, in `fit`; None for selectors without a goal of their
        own. For `GraphSelector` the mean strongest link of a left-out row to a kept one.
    columns_ : tuple of ColumnEncoding, or None
        If X was a frame: name, kind, encoding and number of missing cells of every input column.
    n_features_in_ : int
        Features seen in `fit`, the task column included.
    feature_names_in_ : ndarray
        Their names, where X had string names.

    See Also
    --------
    SparseGPClassifier : The same for classes.

    Notes
    -----
    Rows whose target is NaN are left out; a task that has no other rows is predicted from the prior.
    Learning costs O(n d^2), prediction O(d) for the mean and O(d^2) for the deviation of a row.
    With all rows active the model is the exact Gaussian process.

    References
    ----------
    Lawrence & Platt 2004; Lawrence, Platt & Jordan 2005; Titsias 2009.

    Examples
    --------
    >>> import numpy as np
    >>> from gleangp import SparseGPRegressor
    >>> X = np.linspace(0, 6, 50)[:, None]
    >>> model = SparseGPRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict([[1.0]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.0)) < 0.01)
    True
    """

    _parameter_constraints: dict = {
        **SHARED_CONSTRAINTS,
        "move_basis": ["boolean", StrOptions({"auto"})],
        "normalize_y": ["boolean"],
        "invariances": [callable, "array-like", None],
        "noise_variance": [Interval(Real, 0, None, closed="neither"), "array-like", None],
    }

    _fitted_parts = ("_model", "_units")

    def __init__(
        self,
        kernel: Any = None,
        *,
        coupling: Any = "auto",
        n_active: int | float | None = None,
        selector: Any = "residual",
        posterior: str = "projected",
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
    def fit(self, X: Any, y: Any, tasks: Any = None) -> Self:
        """Select active points and learn the kernel.

        Parameters
        ----------
        X : frame or array-like of shape (n, p)
            Inputs, with the task column if `task` names one.
        y : array-like of shape (n,)
            Targets; NaN where there is none.
        tasks : array-like of shape (n,), default=None
            Task of each row. None, and no task column: one task.

        Returns
        -------
        self
        """
        given = X, y, tasks
        X, self.tasks_, codes = self._resolve(X, tasks, reset=True, keep_float32=self._keeps_float32())
        y, labeled = check_regression_target(y, len(X))
        n_tasks = 1 if self.tasks_ is None else len(self.tasks_)
        self._fit_rows(LocalRows(X, y, codes, n_tasks, None if labeled.all() else labeled), given)
        return self

    def _fit_rows(self, rows: TrainingRows, given: tuple[Any, Any, Any]) -> None:
        """Learn from rows whose targets are numbers, wherever they are; `given` is for callbacks."""
        self._units = standard_units(rows.moments()) if self.normalize_y else natural_units(rows.n_tasks)
        invariances = check_invariances(self.invariances)
        plan = self._plan_coupling(rows, invariances=bool(invariances))
        parameters = self._parameters(rows, coupled=bool(plan["couplings"]))
        variance = self._known_variance(rows.n_rows)
        tasks: Any = rows.tasks(StandardTargets(self._units), parameters.noise, variance)
        settings = self._settings(rows.sizes, move_basis=self.move_basis, **plan)
        rng = generator_from(self.random_state)
        settings, progress = self._with_progress(settings, given)
        with threads_for(rows.sizes):
            model: Any = fit_tasks(parameters, tasks, rows.n_rows, settings, rng)
            if invariances:
                seed = int(rng.integers(2**31))
                model = add_virtual_vectors(model, tasks, invariances, settings, seed)
        self._store(model)
        self._warn_about(self._model)
        progress.end(fitted=True)

    def predict(
        self,
        X: Any,
        tasks: Any = None,
        return_std: bool = False,
        return_cov: bool = False,
        include_noise: bool = False,
    ) -> Any:
        """Mean of the function at new rows, with its uncertainty if asked for.

        Parameters
        ----------
        X : frame or array-like of shape (n, p)
            Inputs.
        tasks : array-like of shape (n,), default=None
            Task of each row, if the model was fitted with tasks and names no column for them.
        return_std : bool, default=False
            Return the standard deviation of the function as well (as in scikit-learn: white noise of
            a kernel that was given counts; `noise_variance` and what the default kernel has do not).
        return_cov : bool, default=False
            Return the joint covariance instead; rows of different tasks are independent.
        include_noise : bool, default=False
            Add the noise variance: the spread of new observations rather than of the function.

        Returns
        -------
        mean : ndarray of shape (n,)
        std : ndarray of shape (n,), or covariance of shape (n, n)
            Only if asked for.
        """
        check_is_fitted(self)
        if return_std and return_cov:
            raise ValueError("return_std and return_cov are both True. Ask for one of them.")
        X, _, codes = self._resolve(X, tasks, reset=False, joint=return_cov)
        scale = self._units.scale[codes]
        if return_cov:
            with threads_for(np.bincount(codes)):
                mean, cov = predict_tasks_cov(self._model, X, codes)
            cov.flat[:: len(cov) + 1] += self._noise_to_add(X, codes, include_noise)
            return self._units.from_standard(mean, codes), cov * np.outer(scale, scale)
        with threads_for(np.bincount(codes)):
            mean, var = predict_tasks(self._model, X, codes, with_var=return_std)
        mean = self._units.from_standard(mean, codes)
        if not return_std:
            return mean
        var = np.maximum(var + self._noise_to_add(X, codes, include_noise), 0.0)
        return mean, np.sqrt(var) * scale

    def sample_y(self, X: Any, n_samples: int = 1, tasks: Any = None, random_state: Any = 0) -> FloatArray:
        """Functions drawn from the posterior at new rows.

        Parameters
        ----------
        X : frame or array-like of shape (n, p)
            Inputs.
        n_samples : int, default=1
            How many functions.
        tasks : array-like of shape (n,), default=None
            Task of each row, if the model was fitted with tasks and names no column for them.
        random_state : int, RandomState, Generator or None, default=0
            For the draws.

        Returns
        -------
        ndarray of shape (n, n_samples)
        """
        mean, cov = self.predict(X, tasks=tasks, return_cov=True)
        rng = generator_from(random_state)
        # NumPy's check of the covariance is absolute; rounding is relative to the units of the target.
        return rng.multivariate_normal(mean, cov, n_samples, method="eigh", check_valid="ignore").T

    def add_task(self, X: Any, y: Any, task: Any) -> Self:
        """Learn one more task from few rows, under the kernel and noise that the others taught.

        Parameters
        ----------
        X : frame or array-like of shape (m, p)
            Its rows, with or without the task column. None or no rows: the task is predicted from
            the prior.
        y : array-like of shape (m,)
            Its targets.
        task : str, int or bool
            Its name.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        X, y, names = self._new_task(X, y, task)
        labeled = np.flatnonzero(~np.isnan(y))
        units = self._units.with_task(y[labeled])
        codes = np.full(len(labeled), len(names) - 1)
        noise = Gaussian(self._noise_at_new_rows()) if len(labeled) else self.noise_
        block = Block(X[labeled], units.to_standard(y[labeled], codes), noise)
        settings = self._settings_for_new_task(len(labeled), move_basis=self.move_basis)
        seed = int(generator_from(self.random_state).integers(2**31))
        with threads_for([len(block)]):
            model = add_task(self._model, block, settings, seed)
            if invariances := check_invariances(self.invariances):
                model = add_virtual_vectors_to_last(
                    model, block, invariances, settings, seed, self._model.log_evidence
                )
        self.tasks_, self._units = names, units
        self._store(model)
        return self

    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any, tasks: Any = None) -> Self:
        """Absorb new rows of known tasks, without starting again; on a new estimator, `fit`.

        Kernel and noise stay as they are. For Gaussian noise the result is what the projection of old
        and new rows on the same active points would give; rows that these cannot express become
        active points themselves.

        Parameters
        ----------
        X : frame or array-like of shape (n, p)
            New rows.
        y : array-like of shape (n,)
            Their targets; rows where it is NaN are left out.
        tasks : array-like of shape (n,), default=None
            Task of each row, if the model was fitted with tasks and names no column for them.

        Returns
        -------
        self
        """
        if not hasattr(self, "_model"):
            return self.fit(X, y, tasks)
        X, _, codes = self._resolve(X, tasks, reset=False, learn=True)
        y, labeled = check_regression_target(y, len(X))
        standard = self._units.to_standard(y, codes)
        rows = [r[labeled[r]] for r in blocks_of_rows(codes, self._model.n_tasks)]
        filled = {t: r for t, r in enumerate(rows) if len(r)}
        noise = Gaussian(self._noise_at_new_rows())
        blocks = {t: Block(X[r], standard[r], noise) for t, r in filled.items()}
        with threads_for(map(len, blocks.values())):
            self._store(absorb_rows(self._model, blocks, filled, len(X)))
        return self

    def _new_task(self, X: Any, y: Any, task: Any) -> tuple[FloatArray, FloatArray, np.ndarray]:
        X, names = self._rows_of_new_task(X, task)
        if len(X) == 0:
            return X, np.zeros(0), names
        return X, check_regression_target(y, len(X))[0], names

    def _parameters(self, rows: TrainingRows, coupled: bool) -> Parameters:
        several = rows.n_tasks > 1
        kernel = self._start_kernel(
            lambda: self._default_kernel(rows, offset=several, linear=several, coupled=coupled)
        )
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
        variance = np.asarray(self.noise_variance, dtype=np.float64)
        if variance.shape != (n_rows,) or not (variance > 0).all():
            raise LabelError(
                f"noise_variance has shape {variance.shape} and least value {variance.min():.3g}; "
                f"one positive number is expected for each of the {n_rows} rows, or a single one."
            )
        return variance

    def _noise_to_add(self, X: FloatArray, codes: np.ndarray, include_noise: bool) -> FloatArray | float:
        """To the latent variance of new rows; less than nothing where it has noise that was not asked for."""
        if include_noise:
            return self._noise_at_new_rows()
        if self.kernel is None and has_white(self.kernel_):
            return -self._model.white_var(X, codes)
        return 0.0

    def _noise_at_new_rows(self) -> float:
        if np.ndim(self.noise_variance):
            raise ValueError(
                "noise_variance was given per training row, so the noise of new rows is not known. Fit "
                "again with the new rows; in predict, leave include_noise=False and add it yourself."
            )
        return self.noise_.variance

    def _store(self, model: Any) -> None:
        self._model = model
        self._n_inputs = self._count_inputs()
        self.kernel_ = model.kernel
        self.noise_ = model.noise
        self.active_ = model.active
        self.active_gain_ = model.gain
        self.active_virtual_ = model.virtual
        self.site_mean_ = model.site_mean
        self.site_precision_ = model.site_precision
        self.log_evidence_ = model.log_evidence
        self.n_rounds_ = model.n_rounds
        self.selection_objective_ = model.selection_objective
        self._store_coupling([model])
