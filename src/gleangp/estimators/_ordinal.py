"""`SparseGPOrdinal`: ordered categories, one task or many."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gleangp._compat import fit_context
from gleangp._typing import FloatArray, IntArray
from gleangp.data.labels import check_class_target, encode_classes, lookup_classes, split_unlabeled
from gleangp.estimators._active import ActiveProblem
from gleangp.estimators._answers import AnswersMixin
from gleangp.estimators._defaults import default_priors
from gleangp.estimators._docs import SPARSE, documented
from gleangp.estimators._local import LocalProblem
from gleangp.estimators._parameters import CLASS_CONSTRAINTS, ClassParameters, parameters
from gleangp.estimators._random import generator_from
from gleangp.estimators._sparse import FittedModel, SparseGPMixin
from gleangp.estimators._tasks_mixin import TaskClassifierMixin
from gleangp.estimators._training_rows import LocalRows, Ranks
from gleangp.estimators._warnings import level_of_caller
from gleangp.exceptions import LabelError
from gleangp.inference.block import Block
from gleangp.models.defaults import ORDERED_PRIORS, UNITS
from gleangp.models.likelihood import PropagatedNoise
from gleangp.models.parameters import Parameters
from gleangp.noise import Ordered
from gleangp.numerics.parallel import threads_for


@documented(SPARSE)
@parameters
class SparseGPOrdinal(ClassParameters, SparseGPMixin, AnswersMixin, TaskClassifierMixin, BaseEstimator):
    """Gaussian-process regression on ordered categories, for one task or many related ones.

    A latent function plus Gaussian noise falls between two of C - 1 ordered cut-points; which two is
    the category.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel, default=None
        Covariance function of the latent function, of the inputs as they are. None: the hierarchical model
        of `SparseGPRegressor`.
    {coupling, n_active, selector, posterior, sites, optimizer}
    learn_noise : bool or sequence of str, default=True
        Learn the cut-points: the bias and the widths of the inner categories. Or the names of what to
        learn, of "bias", "widths" and "variance"; see Notes.
    {n_rounds, n_restarts, priors}
    categories : array-like, default=None
        The categories in their order, at least three. None: those that occur, sorted.
    unlabeled : object, default=None
        The label of rows that carry none. They are left out: this model has nothing to learn from
        them. None: every label is a category.
    {invariances, task, new_tasks}
    n_jobs : int, default=None
        Processes for the selection of many tasks.
    {random_state, verbose}

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
    {tasks_, coupling_, decisions_, task_correlation_, active_, active_gain_, active_virtual_}
    {site_mean_, site_precision_}
    log_evidence_ : float
        Log evidence.
    n_rounds_ : int
        Rounds of learning.
    {selection_objective_, columns_, n_features_in_, feature_names_in_}

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

    Tasks share the cut-points. Fewer than three `categories` are refused. Without `categories`, a target in
    which two occur is taken with a warning, because scikit-learn's checks require it of every classifier; the
    model is then a probit classifier.

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

    categories: Any = None

    _parameter_constraints = {**CLASS_CONSTRAINTS, "categories": ["array-like", None]}

    _fitted_parts = ("_model", "classes_")
    _kind_of_noise = Ordered

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, tasks: Any = None) -> Self:
        """Select active points and learn the kernel and the cut-points.

        Parameters
        ----------
        {X}
        y : array-like of shape (n,)
            Categories; `unlabeled` in rows without one.
        {tasks}

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
        rows = LocalRows(X, ranks, codes, n_tasks, None if labeled.all() else labeled)
        parameters, rng = self._parameters(rows), generator_from(self.random_state)
        if self._is_active:
            problem = ActiveProblem(parameters, rows, Ranks(), rng)
            self._fit_active([problem], given, propagate=self.sites == "ep")
            return self
        # The default kernel has a constant, which does the work of the bias.
        learn = tuple(n for n in parameters.learn_noise if self.kernel is not None or n != "bias")
        kernel = None if self.kernel is None else parameters.kernel
        noise = parameters.noise
        likelihood = PropagatedNoise(noise, learn)
        y = np.asarray(ranks, dtype=np.float64)
        self._fit_local([LocalProblem(rows, y, likelihood, noise, rng, kernel, ORDERED_PRIORS)], given)
        return self

    def predict_proba(self, X: Any, tasks: Any = None) -> FloatArray:
        """Probability of every category.

        Parameters
        ----------
        {X, tasks}

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
        {X, tasks}

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
        {X, tasks}

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
        {X}
        y : array-like of shape (m,)
            Its categories, of those known from `fit`.
        {task}

        Returns
        -------
        self
        """
        check_is_fitted(self)
        X, names = self._rows_of_new_task(X, task)
        ranks = lookup_classes(self.classes_, y, len(X), self.unlabeled)
        labeled = ranks >= 0
        block = Block(X[labeled], ranks[labeled].astype(np.float64), self._model.noise)
        models = self._add_blocks([block], propagate=self.sites == "ep")
        self.tasks_ = names
        self._store(models)
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
        {tasks}
        classes : array-like, default=None
            Taken for the sake of other estimators' signature; the first call must have every category.

        Returns
        -------
        self
        """
        if not hasattr(self, "_model"):
            return self.fit(X, y, tasks)
        X, _, codes = self._resolve(X, tasks, reset=False, learn=True)
        ranks = lookup_classes(self.classes_, y, len(X), self.unlabeled)
        self._absorb(X, codes, ranks >= 0, [ranks.astype(np.float64)])
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
                    stacklevel=level_of_caller(),
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
        edges = np.sqrt(1.0 + UNITS.noise) * ndtri(np.cumsum(counts)[:-1] / counts.sum())
        noise = Ordered(-float(edges[0]), np.diff(edges), UNITS.noise)
        names = self._names_to_learn(noise, ("bias", "widths"))
        names = tuple(n for n in names if np.size(noise.parameters[n]))
        return self._check_priors(Parameters(kernel, noise, names, priors))

    def _check_own_state(self, models: list[FittedModel], n_tasks: int) -> None:
        if models[0].noise.n_categories != len(self.classes_):
            raise ValueError(f"noise of other classes than the {len(self.classes_)} it says.")

    def _store(self, models: list[FittedModel]) -> None:
        super()._store(models)
        self.cut_points_ = self.noise_.edges[1:-1] - self.noise_.bias
