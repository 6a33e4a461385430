"""`HierarchicalGPRegressor`: every task its own kernel, one prior, unlabelled rows, order constraints."""

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from gleangp._compat import StrOptions, fit_context
from gleangp._state import LARGEST, check_arrays
from gleangp._typing import FloatArray, IntArray
from gleangp.constraints import constraints_of_tasks
from gleangp.data.labels import check_regression_target
from gleangp.data.tasks import blocks_of_rows
from gleangp.estimators._observations import Latent, ObservationsMixin
from gleangp.estimators._parameters import (
    COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    PartsParameters,
    generator_from,
    given,
    parameters,
)
from gleangp.estimators._sparse import rows_to_learn
from gleangp.estimators._sparse_regressor import SparseGPRegressor
from gleangp.exceptions import KernelError, warn_user
from gleangp.io.classes import register
from gleangp.kernels import has_white
from gleangp.models.decisions import Decision
from gleangp.models.default_kernel import linear_plus_rbf
from gleangp.models.defaults import HIERARCHY
from gleangp.models.hierarchical import model as hierarchy
from gleangp.models.hierarchical.learn import TOLERANCE
from gleangp.models.hierarchical.model import FittedTask, HierarchicalModel
from gleangp.models.hierarchical.task import DataDependentPosterior, RowsOfTasks, TaskRows
from gleangp.models.units import natural_units, units_of_hierarchy
from gleangp.noise import Gaussian
from gleangp.numerics.parallel import on_one_thread
from gleangp.progress import FitProgress, warn_about_fit

NO_TASK = -1  # the task of the common model that has no rows: the common function itself

register(DataDependentPosterior, FittedTask, HierarchicalModel)


@parameters
class HierarchicalGPRegressor(ObservationsMixin, PartsParameters, BaseEstimator):
    """Gaussian-process regression in which every task has its own kernel, under a prior they share.

    The logarithms of the kernel parameters of all tasks have a common Gaussian prior, which is learnt.
    Rows without a target (NaN) shape the function through a neighbour graph, and statements about the
    order of values at any rows can be added (`Order`, `DifferenceOrder`).

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel, default=None
        Covariance function, with start and bounds of the prior mean. None: linear plus `RBF`, and with
        several tasks a constant for their offsets. A `WhiteKernel` in it is the noise of every task.
    mean : {"common"} or None, default=None
        "common": tasks are deviations from a common function, learnt from the labels of all of them
        (`SparseGPRegressor(coupling="function")`) and then held; `kernel` and its prior are those of the
        deviations. None: zero, the centre of the targets. With one task it is ignored.
    prior_cov : float or array-like of shape (q, q), default=None
        Covariance of the log-parameters between tasks; the noise is then one for all tasks. None: learnt,
        and the noise of every task is its own, under a prior that is learnt too. 0: all tasks share one
        kernel; a large number: tasks do not help each other. A variance is at most the square of half the
        range of the kernel's bounds.
    n_neighbors : int or None, default=5
        Neighbours in the graph of each task that has unlabelled rows. None: these rows are left out.
    n_landmarks : int, default=500
        Maximum number of unlabelled rows in the graph of a task; a larger graph is condensed on them.
    n_active : int or float, default=None
        Maximum number of labelled rows of a task that are kept, or their share of its labels; None: all of
        up to 1000, else 500. In a task without unlabelled rows and constraints all labels contribute through
        the rows kept (FITC); else the other labels are left out.
    selector : {"residual", "entropy", "information", "random", ...} or object, default="residual"
        Which labelled rows to keep.
    theta_uncertainty : bool or None, default=None
        Whether predictions average over the posterior of each task's kernel parameters and noise instead of
        taking the most probable ones. Better calibrated where tasks have few labels. None: in tasks of up to
        128 rows; in larger ones it changes little and costs memory.
    n_rounds : int, default=50
        Maximum number of updates of the prior covariance.
    normalize_X : bool, default=True
        Standardise the inputs over the rows of all tasks; kernel parameters are then in these units.
    normalize_y : bool, default=True
        Standardise the targets: tasks are scaled together unless their scales are far apart.
    noise_variance : float, default=None
        Variance of the labels in all tasks, in units of the standardised target. None: learnt.
    n_jobs : int, default=None
        Threads for large tasks.

    Attributes
    ----------
    kernel_ : Kernel
        At the prior mean: what a task without rows has.
    prior_mean_, prior_cov_ : ndarray of shape (q,), (q, q)
        Mean and covariance of the log-parameters over tasks, in the order of `kernel_.theta`.
    kernels_, theta_cov_, alpha_, noise_variances_ : dict
        Task -> kernel with its parameters; posterior covariance of its log-parameters; weight of its graph,
        0.0 without unlabelled rows; variance of its labels. The key is None in a model without tasks.
    noise_variance_ : float
        Of the labels of a typical task (at the prior mean), in units of the standardised target.
    constraint_noise_ : float or None
        Standard deviation of the noise of each term of an order constraint, same units.
    log_evidence_ : float
        Of labels and constraints of all tasks, kernel parameters integrated out by Laplace's approximation.
    common_ : SparseGPRegressor or None
        For `mean="common"`, the model whose common function is the mean, in standardised units.
    active_ : ndarray of shape (d,)
        Labelled rows of the training set that were kept, task by task.
    n_rounds_ : int
        Updates of the prior covariance.
    decisions_ : list of Decision
        Whether unlabelled rows, constraints and, for tasks that were added with eight labels or more, the
        prior of the others help: mean log density of held-out labels, with and without them. A task for which
        the prior is clearly worse has a kernel learnt from its own labels.

    See Also
    --------
    SparseGPRegressor : Tasks that share one kernel, with few active points.

    Notes
    -----
    Tasks share kernel parameters, not function values: with two labels per task little can be learnt
    about a task, however many tasks there are. A fit costs O(sum over tasks of n^3), n being the labelled
    rows of a task that are kept, the constrained ones and up to `n_landmarks` others.

    References
    ----------
    Zhang & Yeung 2009.

    Examples
    --------
    >>> import numpy as np
    >>> from gleangp import HierarchicalGPRegressor, Order
    >>> X = np.tile(np.linspace(0, 6, 12), 2)[:, None]
    >>> tasks = np.repeat(["a", "b"], 12)
    >>> y = np.where(tasks == "a", np.sin(X[:, 0]), np.cos(X[:, 0]))
    >>> y[[3, 5, 15]] = np.nan  # unlabelled rows
    >>> model = HierarchicalGPRegressor().fit(X, y, tasks=tasks, constraints=[Order(3, 5)])
    >>> bool(abs(model.predict([[1.0]], tasks=["a"])[0] - np.sin(1.0)) < 0.1)
    True
    >>> model.score(X, y, tasks=tasks) > 0.9, model.log_density(X, y, tasks=tasks) > 0.0
    (True, True)
    >>> low, high = model.predict_interval([[1.0]], tasks=["a"])[0]
    >>> bool(low < np.sin(1.0) < high)
    True
    >>> model.predict_cdf([[1.0]], [2.0], tasks=["a"]).round(1).tolist()
    [1.0]
    >>> model.predict_quantiles([[1.0]], [0.1, 0.5, 0.9], tasks=["a"]).shape
    (1, 3)

    One more task:

    >>> model = model.add_task(X[:4], np.sin(X[:4, 0] + 0.5), task="c")
    >>> model.sample_y([[1.0], [2.0]], n_samples=3, tasks=["c", "c"]).shape
    (2, 3)
    """

    mean: str | None = given([StrOptions({"common"}), None], default=None)
    prior_cov: Any = given([NOT_NEGATIVE, "array-like", None], default=None)
    n_neighbors: int | None = given([COUNT, None], default=5)
    n_landmarks: int = given([COUNT], default=500)
    theta_uncertainty: bool | None = given(["boolean", None], default=None)
    n_rounds: int = given([COUNT], default=50)
    normalize_X: bool = given(["boolean"], default=True)
    normalize_y: bool = given(["boolean"], default=True)
    noise_variance: float | None = given([POSITIVE, None], default=None)

    _fitted_parts = ("_model", "_units", "_center", "_spread", "active_")

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, tasks: Any = None, constraints: Any = None) -> Self:
        """Learn the prior and every task."""
        given = X, y, tasks
        X, codes = self._learn_inputs(X, tasks)
        with on_one_thread():
            y = check_regression_target(y, len(X))
            order = rows_to_learn(X, y, codes)
            rows = [order[r] for r in blocks_of_rows(codes[order], self._n_tasks)]
            self._center, self._spread = np.zeros(X.shape[1]), np.ones(X.shape[1])
            if self.normalize_X:
                self._center, spread = np.mean(X[order], axis=0), np.std(X[order], axis=0)
                self._spread = np.where(spread > 1e-12 * np.max(np.abs(X), axis=0), spread, 1.0)
            parts = [y[r[~np.isnan(y[r])]] for r in rows]
            self._units = units_of_hierarchy(parts) if self.normalize_y else natural_units(self._n_tasks)
            self.common_ = self._learn_common(X, y, codes)
            kernel = self._given_kernel() or linear_plus_rbf(X.shape[1], offset=self._n_tasks > 1)
            tasks_rows, rng = self._rows_of_tasks(X, y, codes, rows, constraints), self.random_state
            n_passes = 2 if tasks_rows.leave_some_out else 1
            # Stages: three ways to begin, two starts, the rounds, and the tasks.
            progress = FitProgress(self, given, (3 + 2 + self.n_rounds + 1) * n_passes)
            kernels, noise = [kernel] * self._n_tasks, HIERARCHY.noise
            for _ in range(n_passes):  # the second selects rows with the kernels just learnt
                blocks, self.active_ = tasks_rows.choose(kernels, noise, generator_from(rng))
                model = self._learn(kernel, blocks, progress)
                kernel, kernels, noise = model.kernel, [t.kernel for t in model.tasks], model.noise
            self.decisions_ = hierarchy.decisions_on(model, blocks)
            self._store(model)
            self._warn(blocks)
            progress.end(fitted=True)
        return self

    def _latent(self, X: Any, tasks: Any, *, joint: bool = False, with_var: bool = True) -> Latent:
        X, codes = self._encode_inputs(X, tasks, joint=joint)
        X = np.clip((X - self._center) / self._spread, -LARGEST, LARGEST)
        with on_one_thread():
            mean, spread = self._model.predict(X, codes, joint=joint)
        return Latent(X, codes, mean + self._mean_at(X), spread)

    def _noise_of_rows(self, f: Latent, exposure: Any, trials: Any) -> Gaussian:
        return Gaussian(self._model.noise_of(f.codes))

    def add_task(self, X: Any, y: Any, task: Any, constraints: Any = None) -> Self:
        """Learn one more task from few rows, under the prior learnt from the others."""
        X = self._rows_of_new_task(X, task)
        y = check_regression_target(y, len(X), needed=not constraints)
        self._units, codes = self._units.with_task(y[~np.isnan(y)]), np.full(len(X), self._n_tasks - 1)
        rows = self._rows_of_tasks(X, y, codes, [np.arange(len(X))], constraints)
        with on_one_thread():
            rng = generator_from(self.random_state)
            [block], _ = rows.choose([self.kernel_], self.noise_variance_, rng)
            optimize = self.optimizer is not None
            model = self._model.add_task(block, optimize=optimize)
            made = hierarchy.decisions_on(model, [block], f"task {task!r}: ")
            if optimize and self.prior_cov is None:
                model, alone = hierarchy.alone_if_better(self._model, model, block, f"task {task!r}")
                made += alone
            self.decisions_ = [*self.decisions_, *made]
            self._store(model)
        return self

    def _learn_common(self, X: FloatArray, y: FloatArray, codes: IntArray) -> SparseGPRegressor | None:
        """The model whose common function is the mean of all tasks, in standard units; None without one."""
        at = ~np.isnan(y)
        if self.mean is None or len(np.unique(codes[at])) < 2:
            return None
        asked = {"optimizer": self.optimizer, "random_state": self.random_state}
        common = SparseGPRegressor(coupling="function", normalize_y=False, **asked)
        X, y = (X - self._center) / self._spread, self._units.to_standard(y, codes)
        return common.fit(X[at], y[at], tasks=codes[at]).add_task(None, None, NO_TASK)

    def _learn(self, kernel: Any, blocks: list[TaskRows], progress: FitProgress) -> HierarchicalModel:
        noise, cov = self.noise_variance, self.prior_cov
        if noise is None and (has_white(kernel) or self.optimizer is None):
            noise = HIERARCHY.no_noise if has_white(kernel) else HIERARCHY.noise
        return hierarchy.fit_hierarchical_model(
            kernel,
            blocks,
            noise=noise,
            prior_cov=None if cov is None else _as_covariance(cov, kernel),
            average_theta=self.theta_uncertainty,
            max_rounds=0 if self.optimizer is None else self.n_rounds,
            n_jobs=self.n_jobs,
            progress=progress,
        )

    def _store(self, model: HierarchicalModel) -> None:
        self._model = model
        names = [None] if self.tasks_ is None else self.tasks_.tolist()
        tasks, q = dict(zip(names, model.tasks, strict=True)), model.kernel.n_dims
        self.kernels_ = {name: t.kernel for name, t in tasks.items()}
        self.theta_cov_ = {name: t.theta_cov[:q, :q] for name, t in tasks.items()}
        self.alpha_ = {name: t.alpha for name, t in tasks.items()}
        self.noise_variances_ = dict(zip(names, model.noise_of(np.arange(len(names))).tolist(), strict=True))
        self.kernel_, self.noise_variance_, self.n_rounds_ = model.kernel, model.noise, model.n_rounds
        self.prior_mean_, self.prior_cov_ = model.kernel.theta, model.prior_cov[:q, :q]
        self.constraint_noise_ = model.width
        self.log_evidence_ = float(sum(t.log_evidence for t in model.tasks))

    def _warn(self, blocks: list[TaskRows]) -> None:
        model = self._model
        silent = [t for t, b in enumerate(blocks) if b.n_labelled == 0 and b.order is None]
        if silent and self.tasks_ is not None:
            rest = f" and {len(silent) - 1} more" if len(silent) > 1 else ""
            warn_user(
                f"task {self.tasks_[silent[0]].item()!r}{rest} has no labelled row and no constraint; "
                "it is predicted from the prior that the other tasks taught.",
                UserWarning,
            )
        stopped = "before the search for the parameters of the tasks had converged. Raise n_rounds."
        if model.last_change > TOLERANCE:
            stopped = f"while the prior still changed by {model.last_change:.3g} (its limit is {TOLERANCE}). "
            stopped += "Raise n_rounds, or give prior_cov."
        warn_about_fit(
            self,
            model,
            f"after {model.n_rounds} rounds {stopped}",
            "A larger noise variance makes the model well-posed.",
        )

    def _check_parts(self, n_inputs: int) -> None:
        if not isinstance(self._model, HierarchicalModel) or len(self._model.tasks) != self._n_tasks:
            raise ValueError(f"no fitted model for the {self._n_tasks} tasks.")
        check_arrays(self, {"p": n_inputs}, _center="p", _spread="p >0")
        common = self.common_ = getattr(self, "common_", None)  # older files have none, and no decisions
        self.decisions_ = list(getattr(self, "decisions_", ()))
        if not all(isinstance(made, Decision) for made in self.decisions_):
            raise ValueError("decisions that are none.")
        if self._model.tasks[0].n_inputs != n_inputs:
            raise ValueError(f"a model of other inputs than the {n_inputs} it says.")
        if common is not None:
            if type(common) is not SparseGPRegressor or common.tasks_ is None or NO_TASK not in common.tasks_:
                raise ValueError("a common function that is none.")
            if common.n_features_in_ != n_inputs:
                raise ValueError(f"a common function of other inputs than the {n_inputs} it says.")
        self._store(self._model)

    def _mean_at(self, X: FloatArray) -> FloatArray:
        """Common function (n,) of the tasks at rows in standard units; zero where there is none."""
        if self.common_ is None or len(X) == 0:
            return np.zeros(len(X))
        return self.common_.predict(X, tasks=np.full(len(X), NO_TASK))

    def _rows_of_tasks(
        self, X: FloatArray, y: FloatArray, codes: IntArray, by_task: list[IntArray], constraints: Any
    ) -> RowsOfTasks:
        """The rows of tasks in standard units, with what is asked about them."""
        X = (X - self._center) / self._spread
        mean, scale = self._mean_at(X), self._units.scale
        of_tasks: list[Any] = [None] * len(by_task)
        if constraints is not None:
            of_tasks = constraints_of_tasks(constraints, y, codes, by_task, scale, mean)
        y = self._units.to_standard(y, codes) - mean
        graph = self.n_neighbors, self.n_landmarks, self.n_jobs
        return RowsOfTasks(X, y, by_task, of_tasks, self.n_active, self._chosen_selector(), *graph)


def _as_covariance(given: Any, kernel: Any) -> FloatArray:
    """The parameter `prior_cov`, a number or a matrix, as a covariance of the parameters of the kernel.

    No standard deviation is more than half the range that the bounds of the kernel leave a parameter: the
    exponentials of what lies far outside are zero or infinite.
    """
    given, size = np.asarray(given, dtype=np.float64), kernel.n_dims
    cov = given * np.eye(size) if given.ndim == 0 else given
    if cov.shape != (size, size) or not np.isfinite(cov).all():
        raise KernelError(
            f"prior_cov has shape {given.shape}; the kernel has {size} free parameters. Give "
            "one finite number, or a square matrix of that size."
        )
    if not np.allclose(cov, cov.T) or np.linalg.eigvalsh(cov).min(initial=0.0) < -1e-12:
        raise KernelError("prior_cov is not a covariance: it must be symmetric, no eigenvalue negative.")
    ranges = np.diff(np.reshape(kernel.bounds, (-1, 2)))
    most = (0.5 * np.max(ranges, initial=0.0)) ** 2
    values, vectors = np.linalg.eigh(cov)
    return cov if values.max(initial=0.0) <= most else (vectors * np.minimum(values, most)) @ vectors.T
