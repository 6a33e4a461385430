"""`SparseGPOrdinal`: ordered categories, one task or many."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gleangp._compat import StrOptions, fit_context
from gleangp._typing import FloatArray, IntArray
from gleangp.data.labels import check_class_target, encode_classes, split_unlabeled
from gleangp.data.tasks import blocks_of_rows
from gleangp.estimators._defaults import default_priors
from gleangp.estimators._local import fit_local_rows
from gleangp.estimators._sparse import SHARED_CONSTRAINTS, SparseGPMixin, generator_from
from gleangp.estimators._suggest import SuggestMixin
from gleangp.estimators._tasks_mixin import TaskClassifierMixin
from gleangp.estimators._training_rows import LocalRows, Ranks
from gleangp.estimators._transfer import TransferMixin
from gleangp.exceptions import LabelError
from gleangp.inference.block import Block
from gleangp.invariances import check_invariances
from gleangp.models.active.model import fit_sparse_model
from gleangp.models.active.virtual_vectors import add_virtual_vectors, add_virtual_vectors_to_last
from gleangp.models.defaults import LEARNING, ORDERED_PRIORS
from gleangp.models.likelihood import PropagatedNoise
from gleangp.models.parameters import Parameters
from gleangp.noise import Ordered
from gleangp.numerics.parallel import threads_for

_NOISE_VARIANCE = 0.1  # beside a latent function of variance one under the default kernel


class SparseGPOrdinal(SparseGPMixin, SuggestMixin, TransferMixin, TaskClassifierMixin, BaseEstimator):
    """Gaussian-process regression on ordered categories with few active points, for one task or many.

    A latent function plus Gaussian noise falls between two of C - 1 ordered cut-points; which two is
    the category.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel, default=None
        Covariance function of the latent function, shared by all tasks. None: `C * RBF + C`, as in
        `SparseGPClassifier`.
    coupling : {"auto", "kernel", "function", "coregion"} or object, default="auto"
        What tasks share. "kernel": kernel parameters alone. "function": f_task = common + own_task, so
        that tasks inform each other's values and a new one starts from the common function
        (`FunctionCoupling`). "coregion": tasks are mixtures of shared functions with learnt weights
        (`CoregionCoupling(rank=...)`). "auto": the one with the most evidence on a part of the rows, and
        "kernel" if tasks cannot be coupled; `coupling_` has the choice and its reason. Ignored with one task.
        Tasks share the cut-points in any case.
    n_active : int or float, default=None
        Number of active points over all tasks, or their share of the rows; None as in
        `SparseGPClassifier`.
    selector : {"residual", "entropy", "information", "random", "graph"} or object, default=None
        Which points to keep; None as in `SparseGPClassifier`.
    posterior : {"local", "active"}, default="local"
        "local": exact within neighbourhoods of rows, through the basis between them; a new row is predicted
        from the basis and the rows near it. "active": predictions use the active points only (the papers'
        compression scheme), which is also what is done with `invariances`.
    sites : {"adf", "ep"}, default="adf"
        For `posterior="active"`: sites from filtering alone, or refined by expectation propagation.
    optimizer : {"l-bfgs-b"} or None, default="l-bfgs-b"
        If None, kernel and noise are not optimised.
    learn_noise : bool or sequence of str, default=True
        Learn the cut-points: the bias and the widths of the inner categories. Or the names of what to
        learn, of "bias", "widths" and "variance"; see Notes.
    n_rounds : int, default=5
        Maximum number of rounds of selecting points and learning the kernel.
    n_restarts : int, default=0
        Further starts of the optimiser, drawn within the bounds of the parameters.
    priors : dict, default=None
        Hyperparameter name (as in `kernel.hyperparameters`) -> prior. None: weak ones on the default
        kernel.
    categories : array-like, default=None
        The categories in their order, at least three. None: those that occur, sorted.
    unlabeled : object, default=None
        The label of rows that carry none. They are left out: this model has nothing to learn from
        them. None: every label is a category.
    invariances : callable or list of callables, default=None
        Transformations of rows that keep the category, as in `SparseGPClassifier`.
    task : str or int, default=None
        Name or position of the column of X that holds the task.
    new_tasks : {"prior", "error"}, default="prior"
        Rows of tasks that were not seen. "prior": they are predicted from what the tasks share, as after
        `add_task(None, None, task)`, with a `NewTaskWarning`. "error": they raise a `TaskError`.
    n_jobs : int, default=None
        Processes for the selection of many tasks.
    random_state : int, RandomState, Generator or None, default=None
        For selectors that sample and for restarts.
    verbose : int, default=0
        Print how every stage of learning ended, rounds with their evidence.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        The categories in their order.
    cut_points_ : ndarray of shape (C - 1,)
        Values of the latent function at which one category follows the other.
    kernel_ : Kernel
        With the learnt parameters.
    noise_ : gleangp.noise.Ordered
        The fitted noise.
    tasks_ : ndarray or None
        Names of the tasks.
    coupling_ : Choice
        Which coupling the model has (`.name`), and why (`.reason`, `.scores`).
    task_correlation_ : ndarray of shape (M, M)
        Correlation of the tasks' functions under the learnt prior; the identity for "kernel".
    active_ : ndarray of shape (d,)
        Rows of the training set in order of inclusion.
    active_gain_ : ndarray of shape (d,)
        Score of each when it was included.
    active_virtual_ : ndarray of shape (d,)
        Which invariance made each active point of the row in `active_`; -1 for the row itself.
    site_mean_, site_precision_ : ndarray of shape (d,)
        Gaussian stand-ins of the noise at the active points.
    log_evidence_ : float
        Log evidence.
    n_rounds_ : int
        Rounds of learning.
    selection_objective_ : float or None
        Value of the selector's own objective, if it has one.
    columns_ : tuple of ColumnEncoding, or None
        If X was a frame: name, kind, encoding and number of missing cells of every input column.
    n_features_in_ : int
        Features seen in `fit`, the task column included.
    feature_names_in_ : ndarray
        Their names, where X had string names.

    See Also
    --------
    SparseGPClassifier : Classes without an order.
    SparseGPRegressor : Numbers.

    Notes
    -----
    Lawrence, Platt & Jordan 2005, sections 3.4 and 4.1. The variance of the noise (the slope of the steps
    is its inverse root), the widths and the scale of the kernel trade off against each other exactly;
    the variance is therefore held at a tenth unless `learn_noise` names it. With `posterior="active"` the
    noise is learnt by the sum of log Z over all rows after each selection (eq. 28), else by the evidence.
    Fewer than three `categories` are refused. Without `categories`, a target in which two occur is taken
    with a warning, because scikit-learn's checks require it of every classifier; the model is then a probit
    classifier.

    Examples
    --------
    >>> import numpy as np
    >>> from gleangp import SparseGPOrdinal
    >>> X = np.linspace(-3, 3, 60)[:, None]
    >>> y = np.array(["low", "medium", "high"])[np.digitize(X[:, 0], [-1, 1])]
    >>> model = SparseGPOrdinal(categories=["low", "medium", "high"], random_state=0)
    >>> model = model.fit(X, y)
    >>> model.predict([[-2.0], [0.0], [2.0]]).tolist()
    ['low', 'medium', 'high']
    >>> model.predict_proba([[0.0]]).round().tolist()
    [[0.0, 1.0, 0.0]]
    >>> mean, var = model.predict_latent([[0.0]])
    >>> bool(model.cut_points_[0] < mean[0] < model.cut_points_[1])
    True
    >>> model = model.partial_fit([[-2.5], [2.5]], ["low", "high"])
    >>> model.score(X, y) > 0.9
    True

    With tasks, and one more of three rows:

    >>> y, tasks = np.digitize(X[:, 0], [-1, 1]), np.arange(60) % 2
    >>> model = SparseGPOrdinal(random_state=0).fit(X, y, tasks)
    >>> model = model.add_task([[-2.0], [0.0], [2.0]], [0, 1, 2], task=2)
    >>> model.predict([[2.0]], tasks=[2]).tolist()
    [2]
    """

    _parameter_constraints: dict = {
        **SHARED_CONSTRAINTS,
        "selector": [*SHARED_CONSTRAINTS["selector"], None],
        "sites": [StrOptions({"adf", "ep"})],
        "learn_noise": ["boolean", "array-like"],
        "categories": ["array-like", None],
        "unlabeled": "no_validation",
        "invariances": [callable, "array-like", None],
    }

    _fitted_parts = ("_model", "classes_")
    _needs_of_noise = "n_categories"

    def __init__(
        self,
        kernel: Any = None,
        *,
        coupling: Any = "auto",
        n_active: int | float | None = None,
        selector: Any = None,
        posterior: str = "local",
        sites: str = "adf",
        optimizer: str | None = "l-bfgs-b",
        learn_noise: Any = True,
        n_rounds: int = 5,
        n_restarts: int = 0,
        priors: dict[str, Any] | None = None,
        categories: Any = None,
        unlabeled: Any = None,
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
        self.sites = sites
        self.optimizer = optimizer
        self.learn_noise = learn_noise
        self.n_rounds = n_rounds
        self.n_restarts = n_restarts
        self.priors = priors
        self.categories = categories
        self.unlabeled = unlabeled
        self.invariances = invariances
        self.task = task
        self.new_tasks = new_tasks
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, tasks: Any = None) -> Self:
        """Select active points and learn the kernel and the cut-points.

        Parameters
        ----------
        X : frame or array-like of shape (n, p)
            Inputs, with the task column if `task` names one.
        y : array-like of shape (n,)
            Categories; `unlabeled` in rows without one.
        tasks : array-like of shape (n,), default=None
            Task of each row. None, and no task column: one task.

        Returns
        -------
        self
        """
        given = X, y, tasks
        X, self.tasks_, codes = self._resolve(X, tasks, reset=True, keep_float32=self._keeps_float32())
        y = check_class_target(y, len(X))
        labeled = split_unlabeled(y, self.unlabeled)
        self.classes_, ranks = self._ordered_categories(y, labeled)
        n_tasks = 1 if self.tasks_ is None else len(self.tasks_)
        self._fit_rows(LocalRows(X, ranks, codes, n_tasks, None if labeled.all() else labeled), given)
        return self

    def _fit_rows(self, rows: LocalRows, given: tuple[Any, Any, Any]) -> None:
        """Learn from rows whose targets are ranks in `classes_`; `given` is for callbacks."""
        invariances = check_invariances(self.invariances)
        if self._is_local():
            self._fit_local(rows, given)
            return
        uncoupled = self._why_uncoupled(rows)
        settings = self._settings(rows.sizes, propagate=self.sites == "ep", uncoupled=uncoupled)
        parameters = self._parameters(rows)
        rng = generator_from(self.random_state)
        tasks: Any = rows.tasks(Ranks(), parameters.noise)
        settings, progress = self._with_progress(settings, given)
        with threads_for(rows.sizes):
            model: Any = fit_sparse_model(parameters, tasks, rows.n_rows, settings, rng)
            if invariances:
                seed = int(rng.integers(2**31))
                model = add_virtual_vectors(model, tasks, invariances, settings, seed)
        self._store(model)
        self._warn_about(model)
        progress.end(fitted=True)

    def _fit_local(self, rows: Any, given: tuple[Any, Any, Any]) -> None:
        """Fit the model of blocks and a basis."""
        parameters = self._parameters(rows)
        # The default kernel has a constant, which does the work of the bias.
        learn = tuple(n for n in parameters.learn_noise if self.kernel is not None or n != "bias")
        kernel = None if self.kernel is None else parameters.kernel
        progress = self._begin_progress(*given, LEARNING.most_reports)
        with threads_for(rows.sizes):
            model = fit_local_rows(
                self,
                rows,
                np.asarray(rows.y, dtype=np.float64),
                PropagatedNoise(parameters.noise, learn),
                parameters.noise,
                generator_from(self.random_state),
                kernel,
                self.priors,
                progress,
                ORDERED_PRIORS,
            )
        self._store(model)
        self._warn_about(model)
        progress.end(fitted=True)

    def predict_proba(self, X: Any, tasks: Any = None) -> FloatArray:
        """Probability of every category.

        Parameters
        ----------
        X : frame or array-like of shape (n, p)
            Inputs.
        tasks : array-like of shape (n,), default=None
            Task of each row, if the model was fitted with tasks and names no column for them.

        Returns
        -------
        ndarray of shape (n, C)
            Rows sum to one; columns in the order of `classes_`.
        """
        mean, var = self.predict_latent(X, tasks)
        ranks = np.arange(len(self.classes_))
        return np.exp(self.noise_.log_partition(ranks, mean[:, np.newaxis], var[:, np.newaxis])[0])

    def predict(self, X: Any, tasks: Any = None) -> np.ndarray:
        """The most probable category.

        Parameters
        ----------
        X : frame or array-like of shape (n, p)
            Inputs.
        tasks : array-like of shape (n,), default=None
            Task of each row, if the model was fitted with tasks and names no column for them.

        Returns
        -------
        ndarray of shape (n,)
        """
        best = self.predict_proba(X, tasks=tasks).argmax(axis=1)
        return self.classes_[best]

    def predict_latent(self, X: Any, tasks: Any = None) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the latent function, on the scale of `cut_points_`.

        Parameters
        ----------
        X : frame or array-like of shape (n, p)
            Inputs.
        tasks : array-like of shape (n,), default=None
            Task of each row, if the model was fitted with tasks and names no column for them.

        Returns
        -------
        mean, var : ndarray of shape (n,)
        """
        check_is_fitted(self)
        X, _, codes = self._resolve(X, tasks, reset=False)
        with threads_for(np.bincount(codes)):
            return self._model.predict(X, codes)

    def add_task(self, X: Any, y: Any, task: Any) -> Self:
        """Learn one more task from few rows, under the kernel and cut-points of the others.

        Parameters
        ----------
        X : frame or array-like of shape (m, p)
            Its rows, with or without the task column. None or no rows: the task is predicted from
            the prior.
        y : array-like of shape (m,)
            Its categories, of those known from `fit`.
        task : str, int or bool
            Its name.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        X, names = self._rows_of_new_task(X, task)
        ranks, labeled = self._known_ranks(y, len(X))
        block = Block(X[labeled], ranks[labeled], self._model.noise)
        settings = self._settings_for_new_task(len(block), propagate=self.sites == "ep")
        seed = int(generator_from(self.random_state).integers(2**31))
        with threads_for([len(block)]):
            model = self._model.add_task(block, settings, seed)
            if invariances := check_invariances(self.invariances):
                model = add_virtual_vectors_to_last(
                    model, block, invariances, settings, seed, self._model.log_evidence
                )
        self.tasks_ = names
        self._store(model)
        return self

    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any, tasks: Any = None, classes: Any = None) -> Self:
        """Absorb new rows of known tasks by filtering, without starting again; on a new estimator, `fit`.

        Parameters
        ----------
        X : frame or array-like of shape (n, p)
            New rows.
        y : array-like of shape (n,)
            Their categories, of those known from `fit`.
        tasks : array-like of shape (n,), default=None
            Task of each row, if the model was fitted with tasks and names no column for them.
        classes : array-like, default=None
            Taken for the sake of other estimators' signature; the first call must have every category.

        Returns
        -------
        self
        """
        if not hasattr(self, "_model"):
            return self.fit(X, y, tasks)
        X, _, codes = self._resolve(X, tasks, reset=False, learn=True)
        ranks, labeled = self._known_ranks(y, len(X))
        rows = [r[labeled[r]] for r in blocks_of_rows(codes, self._model.n_tasks)]
        filled = {t: r for t, r in enumerate(rows) if len(r)}
        blocks = {t: Block(X[r], ranks[r], self._model.noise) for t, r in filled.items()}
        with threads_for(map(len, blocks.values())):
            self._store(self._model.absorb(blocks, filled, len(X)))
        return self

    def _ordered_categories(self, y: np.ndarray, labeled: np.ndarray) -> tuple[np.ndarray, IntArray]:
        """The categories in order, and the rank of each row (-1 without a label)."""
        found, codes = encode_classes(y, labeled, self.unlabeled)
        if self.categories is None:
            if len(found) < 3:
                warnings.warn(
                    f"y has two categories, {found.tolist()}; with nothing between them the model is a "
                    "probit classifier. Name all of them in categories=, or use SparseGPClassifier.",
                    UserWarning,
                    stacklevel=5,
                )
            return found, codes
        order = np.asarray(self.categories)
        if order.ndim != 1 or len(order) < 3 or len(np.unique(order)) < len(order):
            raise LabelError(
                f"categories={order.tolist()}: at least three different categories are expected, in their "
                "order. For two classes use SparseGPClassifier."
            )
        unknown = np.setdiff1d(found, order)
        if len(unknown):
            raise LabelError(
                f"y has {unknown.tolist()}, which categories={order.tolist()} does not name. Name every "
                "category, or set unlabeled to the label of rows without one."
            )
        empty = np.setdiff1d(order, found)
        if len(empty):
            raise LabelError(
                f"no row of y is of the categories {empty.tolist()}, so their cut-points cannot be learnt. "
                "Leave them out of categories, or merge them with a neighbour."
            )
        rank_of_found = np.array([np.flatnonzero(order == c)[0] for c in found])
        return order, np.where(codes < 0, -1, rank_of_found[codes])

    def _parameters(self, rows: LocalRows) -> Parameters:
        kernel = self._start_kernel(lambda: self._default_kernel(rows, offset=False))
        priors = self.priors
        if priors is None:
            priors = default_priors(kernel) if self.kernel is None else {}
        # First cut-points where the prior would give every category its share of the rows.
        counts = rows.counts(len(self.classes_)) + 0.5
        edges = np.sqrt(1.0 + _NOISE_VARIANCE) * ndtri(np.cumsum(counts)[:-1] / counts.sum())
        noise = Ordered(-float(edges[0]), np.diff(edges), _NOISE_VARIANCE)
        names: tuple[str, ...] = ("bias", "widths") if self.learn_noise is True else ()
        if not isinstance(self.learn_noise, bool | np.bool_):
            names = tuple(self.learn_noise)
        unknown = [name for name in names if name not in noise.parameters]
        if unknown:
            raise ValueError(
                f"learn_noise has {unknown}; the noise has the parameters {list(noise.parameters)}."
            )
        names = tuple(n for n in names if np.size(noise.parameters[n]))
        return self._check_priors(Parameters(kernel, noise, names, priors))

    def _known_ranks(self, y: Any, n_rows: int) -> tuple[FloatArray, np.ndarray]:
        """Ranks of new rows, and which of them have one."""
        if n_rows == 0:
            return np.zeros(0), np.zeros(0, dtype=bool)
        y = check_class_target(y, n_rows)
        labeled = split_unlabeled(y, self.unlabeled)
        unknown = np.setdiff1d(y[labeled], self.classes_)
        if len(unknown):
            raise LabelError(
                f"y has categories that fit did not see: {unknown.tolist()}. Known, in order: "
                f"{self.classes_.tolist()}. Fit again with rows of the new ones."
            )
        ranks = np.full(n_rows, -1.0)
        ranks[labeled] = [np.flatnonzero(self.classes_ == c)[0] for c in y[labeled]]
        return ranks, labeled

    def _store(self, fitted: Any) -> None:
        super()._store(fitted)
        self.cut_points_ = fitted.noise.edges[1:-1] - fitted.noise.bias
