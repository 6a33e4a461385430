"""`HierarchicalGPRegressor`: every task its own kernel, one prior, unlabelled rows, order constraints."""

from __future__ import annotations

from contextlib import ExitStack
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gleangp._compat import Interval, StrOptions, fit_context
from gleangp._state import LARGEST
from gleangp.constraints import check_possible, encode_constraints
from gleangp.data.labels import check_regression_target
from gleangp.data.tasks import blocks_of_rows
from gleangp.estimators._docs import documented
from gleangp.estimators._hierarchical_checks import alone_if_better, decisions_on
from gleangp.estimators._hierarchy import (
    BlockMaker,
    HierarchyMixin,
    common_mean,
    input_units,
    linear_plus_rbf,
)
from gleangp.estimators._normal_answers import NormalAnswersMixin
from gleangp.estimators._parameters import PARTS_CONSTRAINTS, parameters
from gleangp.estimators._targets import natural_units, target_moments, units_of_hierarchy
from gleangp.estimators._tasks_mixin import TaskRegressorMixin
from gleangp.estimators._training_rows import in_canonical_order
from gleangp.models.defaults import HIERARCHY
from gleangp.models.hierarchical.learn import most_stages
from gleangp.models.hierarchical.model import add_task, predict_hierarchy, predict_hierarchy_cov
from gleangp.numerics.parallel import threads_for


@documented()
@parameters
class HierarchicalGPRegressor(HierarchyMixin, NormalAnswersMixin, TaskRegressorMixin, BaseEstimator):
    """Gaussian-process regression in which every task has its own kernel, under a prior they share.

    The logarithms of the kernel parameters of all tasks have a common Gaussian prior, which is learnt.
    Rows without a target (NaN) shape the function through a neighbour graph, and statements about the
    order of values at any rows can be added (`Order`, `DifferenceOrder`).

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel, default=None
        Covariance function; its parameters are where the prior mean starts, its bounds are those of the
        prior mean. None: linear plus `RBF`, each with a variance of its own, plus a constant for
        the offset of a task where there are several. A `WhiteKernel` in it gives every task its
        own noise, and there is no other then.
    mean : {"common"} or None, default=None
        "common": tasks are deviations from a common function, learnt from the labels of all of them
        (`SparseGPRegressor(coupling="function")`) and then held; `kernel` and its prior are those of the
        deviations. A task without labels is predicted by the common function. None: zero, the centre of
        the targets. With one task it is ignored.
    prior_cov : float or array-like of shape (q, q), default=None
        Covariance of the log-parameters between tasks; the noise is then one for all tasks. None: learnt,
        and the noise of every task is its own, under a prior that is learnt too. 0: all tasks share one
        kernel; a large number: tasks do not help each other.
    n_neighbors : int or None, default=5
        Neighbours in the graph of each task that has unlabelled rows. None: these rows are left out.
    n_landmarks : int, default=500
        Maximum number of unlabelled rows in the graph of a task; a larger graph is condensed on them.
    n_active : int or float, default=None
        Maximum number of labelled rows of a task that are kept, or their share of its labels. In a task
        without unlabelled rows and constraints all labels contribute through the rows kept (projection);
        else the other labels are left out. None: all of tasks with up to 500 labels, 500 of larger ones.
    selector : {"residual", "entropy", "information", "random", ...} or object, default="residual"
        Which labelled rows to keep.
    theta_uncertainty : bool or None, default=None
        Whether predictions average over the posterior of each task's kernel parameters and noise instead of
        taking the most probable ones. Wider, and better calibrated, where tasks have few labels. None: in
        tasks of up to 128 rows; in larger ones it changes little and costs memory.
    optimizer : {"l-bfgs-b"} or None, default="l-bfgs-b"
        If None, the kernel parameters are not optimised.
    n_rounds : int, default=50
        Maximum number of updates of the prior covariance.
    normalize_X : bool, default=True
        Standardise the inputs inside, over the rows of all tasks; kernel parameters are then in these
        units, and the graph sees all features alike.
    normalize_y : bool, default=True
        Standardise the targets inside: tasks are scaled together unless their scales are far apart.
    noise_variance : float, default=None
        Variance of the labels in all tasks, in units of the standardised target. None: learnt.
    {task, new_tasks}
    n_jobs : int, default=None
        Threads for large tasks.
    random_state : int, RandomState, Generator or None, default=None
        For the choice of landmarks and active rows.
    {verbose}

    Attributes
    ----------
    kernels_ : dict
        Task -> kernel with its parameters; the one key is None in a model without tasks.
    kernel_ : Kernel
        At the prior mean: what a task without rows has.
    prior_mean_ : ndarray of shape (q,)
        Mean of the log-parameters over tasks, in the order of `kernel_.theta`.
    prior_cov_ : ndarray of shape (q, q)
        Their covariance.
    theta_cov_ : dict
        Task -> posterior covariance of its log-parameters.
    alpha_ : dict
        Task -> weight of its graph; 0.0 for a task without unlabelled rows.
    noise_variance_ : float
        Of the labels of a typical task (at the prior mean), in units of the standardised target.
    noise_variances_ : dict
        Task -> variance of its labels, same units.
    constraint_noise_ : float or None
        Standard deviation of the noise of each term of an order constraint, same units.
    log_evidence_ : float
        Log evidence of the labels and constraints of all tasks, kernel parameters integrated out by
        Laplace's approximation, standardised units.
    common_ : SparseGPRegressor or None
        For `mean="common"`, the model whose common function is the mean, in standardised units.
    {tasks_}
    active_ : ndarray of shape (d,)
        Labelled rows of the training set that were kept, task by task.
    n_rounds_ : int
        Updates of the prior covariance.
    decisions_ : list of Decision
        Whether unlabelled rows, constraints and, for tasks that were added with eight labels or more, the
        prior of the others help: mean log density of labels that are held out, with and without them. A
        task for which the prior is clearly worse has a kernel learnt from its own labels.
    {columns_, n_features_in_, feature_names_in_}

    See Also
    --------
    SparseGPRegressor : Tasks that share one kernel, with few active points.

    Notes
    -----
    Tasks share kernel parameters, not function values: with two labels per task little can be learnt
    about a task, however many tasks there are.

    A fit costs O(sum over tasks of n^3), n being the labelled rows of a task that are kept, the
    constrained ones and up to `n_landmarks` others if it has unlabelled rows. Small tasks are
    evaluated together.

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
    >>> low, high = model.predict_interval([[1.0]], tasks=["a"])[0]
    >>> bool(low < np.sin(1.0) < high)
    True
    >>> model.predict_quantiles([[1.0]], [0.1, 0.5, 0.9], tasks=["a"]).shape
    (1, 3)
    >>> model.log_density(X, y, tasks=tasks) > 0.0
    True
    >>> model.score(X[[0, 4, 8]], y[[0, 4, 8]], tasks=tasks[[0, 4, 8]]) > 0.9
    True
    >>> model = model.add_task(X[:4], np.sin(X[:4, 0] + 0.5), task="c")
    >>> model.sample_y([[1.0], [2.0]], n_samples=3, tasks=["c", "c"]).shape
    (2, 3)
    """

    mean: str | None = None
    prior_cov: Any = None
    n_neighbors: int | None = 5
    n_landmarks: int = 500
    theta_uncertainty: bool | None = None
    n_rounds: int = 50
    normalize_X: bool = True
    normalize_y: bool = True
    noise_variance: float | None = None

    _parameter_constraints = {
        **PARTS_CONSTRAINTS,
        "mean": [StrOptions({"common"}), None],
        "prior_cov": [Interval(Real, 0, None, closed="left"), "array-like", None],
        "n_neighbors": [Interval(Integral, 1, None, closed="left"), None],
        "n_landmarks": [Interval(Integral, 1, None, closed="left")],
        "theta_uncertainty": ["boolean", None],
        "normalize_X": ["boolean"],
        "normalize_y": ["boolean"],
        "noise_variance": [Interval(Real, 0, None, closed="neither"), None],
    }

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, tasks: Any = None, constraints: Any = None) -> Self:
        """Learn the prior and every task.

        Parameters
        ----------
        {X}
        y : array-like of shape (n,)
            Targets; NaN in unlabelled rows.
        {tasks}
        constraints : list of Order and DifferenceOrder, default=None
            What is known about the order of values at rows of X, labelled or not.

        Returns
        -------
        self
        """
        given = X, y, tasks
        with ExitStack() as stack:
            X, self.tasks_, codes = self._resolve(X, tasks, reset=True)
            stack.enter_context(threads_for(np.bincount(codes)))
            y, labeled = check_regression_target(y, len(X))
            n_tasks = 1 if self.tasks_ is None else len(self.tasks_)
            rows = [in_canonical_order(X, y, r) for r in blocks_of_rows(codes, n_tasks)]
            self._center, self._spread = input_units(X, self.normalize_X)
            labeled_rows = [r[labeled[r]] for r in rows]
            moments = target_moments([y[r] for r in labeled_rows])
            self._units = units_of_hierarchy(moments) if self.normalize_y else natural_units(n_tasks)
            encoded = None if constraints is None else encode_constraints(constraints, codes)
            if encoded is not None:
                check_possible(encoded, y, float(np.max(self._units.scale)))
            self.common_ = self._learn_common(X, y, codes, labeled_rows)
            kernel = self._start_kernel(lambda: linear_plus_rbf(X.shape[1], offset=n_tasks > 1))
            make = BlockMaker(self, X, y, codes, rows, encoded)
            blocks = make([kernel] * n_tasks, HIERARCHY.noise)
            times = 2 if make.left_some_out else 1
            progress = self._begin_progress(*given, times * most_stages(self.n_rounds))
            model = self._learn(kernel, blocks, progress)
            if make.left_some_out:  # once more, with the kernels just learnt
                blocks = make([t.kernel for t in model.tasks], model.noise)
                model = self._learn(model.kernel, blocks, progress)
            self.decisions_ = decisions_on(model, blocks)
            self.active_ = make.active
            self._store(model)
            self._warn(blocks)
            progress.end(fitted=True)
        return self

    def predict(
        self,
        X: Any,
        tasks: Any = None,
        return_std: bool = False,
        return_cov: bool = False,
        include_noise: bool = False,
    ) -> Any:
        """Mean of the function at any rows, with its uncertainty if asked for.

        Parameters
        ----------
        X : frame or array-like of shape (n, p)
            Inputs: new rows, or the unlabelled ones of `fit`.
        {tasks}
        return_std : bool, default=False
            Return the standard deviation of the function as well.
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
        X = np.clip((X - self._center) / self._spread, -LARGEST, LARGEST)
        scale = self._units.scale[codes]
        noise = self._model.noise_of(codes) if include_noise else 0.0
        predict: Any = predict_hierarchy_cov if return_cov else predict_hierarchy
        with threads_for(np.bincount(codes)):
            mean, spread = predict(self._model, X, codes)
        mean = self._units.from_standard(mean + common_mean(self, X), codes)
        if return_cov:
            spread.flat[:: len(X) + 1] += noise
            return mean, spread * np.outer(scale, scale)
        return (mean, np.sqrt(spread + noise) * scale) if return_std else mean

    def add_task(self, X: Any, y: Any, task: Any, constraints: Any = None) -> Self:
        """Learn one more task from few rows, under the prior learnt from the others.

        Parameters
        ----------
        {X}
        y : array-like of shape (m,)
            Its targets, NaN in unlabelled rows.
        {task}
        constraints : list of Order and DifferenceOrder, default=None
            About rows of this X.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        X, y, names = self._targets_of_new_task(X, y, task)
        units = self._units.with_task(y[~np.isnan(y)])
        codes = np.full(len(X), len(names) - 1)
        encoded = encode_constraints(constraints, codes) if constraints is not None else None
        if encoded is not None:
            check_possible(encoded, y, float(units.scale[-1]))
        self.tasks_, self._units = names, units
        make = BlockMaker(self, X, y, codes, [np.arange(len(X))], encoded)
        with threads_for([len(X)]):
            [block] = make([self.kernel_], self.noise_variance_)
            optimize = self.optimizer is not None
            model = add_task(self._model, block, optimize=optimize)
            made = decisions_on(model, [block], f"task {task!r}: ")
            if optimize and self.prior_cov is None:
                model, alone = alone_if_better(self._model, model, block, f"task {task!r}")
                made += alone
            self.decisions_ = [*self.decisions_, *made]
            self._store(model)
        return self
