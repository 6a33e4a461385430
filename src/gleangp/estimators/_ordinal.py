"""`SparseGPOrdinal`: ordered categories, one task or many."""

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator

from gleangp._typing import FloatArray, IntArray
from gleangp.data.labels import ordered_categories
from gleangp.estimators._parameters import generator_from, given, parameters
from gleangp.estimators._sparse import FittedModel, Problem, rows_to_learn
from gleangp.estimators._sparse_classifier import LabelsMixin
from gleangp.exceptions import LabelError, warn_user
from gleangp.models.default_kernel import default_kernel, default_priors
from gleangp.models.defaults import ORDERED_PRIORS, UNITS
from gleangp.models.local.data import Data
from gleangp.models.objective import Likelihood
from gleangp.models.parameters import Parameters
from gleangp.noise import Ordered
from gleangp.noise.classes import log_mean
from gleangp.numerics.parallel import on_one_thread
from gleangp.progress import Given


@parameters
class SparseGPOrdinal(LabelsMixin, BaseEstimator):
    """Gaussian-process regression on ordered categories, for one task or many related ones.

    A latent function plus Gaussian noise falls between two of c - 1 ordered cut-points; which two is
    the category.

    Parameters
    ----------
    learn_noise : bool or sequence of str, default=True
        Learn the cut-points: the bias and the widths of the inner categories. Or what to learn, by name:
        "bias", "widths" and "variance"; see Notes.
    categories : array-like, default=None
        The categories in their order, at least three. None: those that occur, in the order of an ordered
        categorical (pandas) or an Enum (polars), else sorted.
    unlabeled : object, default=None
        The label of rows that have none, which are left out. None: every label is a category.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        The categories in their order.
    cut_points_ : ndarray of shape (c - 1,)
        Values of the latent function at which one category follows the other.
    noise_ : gleangp.noise.Ordered
        The fitted noise.

    See Also
    --------
    SparseGPClassifier : Classes without an order.
    SparseGPRegressor : Numbers.

    Notes
    -----
    Lawrence, Platt & Jordan 2005, sections 3.4 and 4.1. Tasks share the cut-points. The variance of the
    noise, the widths and the scale of the kernel trade off against each other exactly; the variance is
    therefore held at a tenth unless `learn_noise` names it. With `posterior="active"` the noise is learnt by
    the sum of log Z over all rows after each selection (eq. 28), else by the evidence.

    Examples
    --------
    >>> import numpy as np
    >>> from gleangp import SparseGPOrdinal
    >>> X = np.linspace(-3, 3, 60)[:, None]
    >>> y = np.array(["low", "medium", "high"])[np.digitize(X[:, 0], [-1, 1])]
    >>> model = SparseGPOrdinal(categories=["low", "medium", "high"], random_state=0)
    >>> model.fit(X, y).predict([[-2.0], [0.0], [2.0]]).tolist()
    ['low', 'medium', 'high']
    >>> model.predict_proba([[0.0]]).round().tolist()
    [[0.0, 1.0, 0.0]]
    >>> mean, var = model.predict_latent([[0.0]])
    >>> bool(model.cut_points_[0] < mean[0] < model.cut_points_[1])
    True
    >>> model.partial_fit([[-2.5], [2.5]], ["low", "high"]).score(X, y) > 0.9
    True

    With tasks, and one more of three rows:

    >>> y, tasks = np.digitize(X[:, 0], [-1, 1]), np.arange(60) % 2
    >>> model = SparseGPOrdinal(random_state=0).fit(X, y, tasks)
    >>> model = model.add_task([[-2.0], [0.0], [2.0]], [0, 1, 2], task=2)
    >>> model.predict([[2.0]], tasks=[2]).tolist()
    [2]
    """

    categories: Any = given(["array-like", None], default=None)

    _fitted_parts = ("_model", "classes_")
    _kind_of_noise = Ordered

    def predict_proba(self, X: Any, tasks: Any = None) -> FloatArray:
        """Probability of every category."""
        ranks = np.arange(len(self.classes_))[:, np.newaxis]
        [each] = self._at_draws(X, tasks, lambda noise, *f: noise.log_partition(ranks, *f)[0])
        return np.exp(log_mean(each)).T

    def predict_latent(self, X: Any, tasks: Any = None) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the latent function, on the scale of `cut_points_`.

        Returns
        -------
        mean, var : ndarray of shape (n,)
        """
        X, codes = self._encode_inputs(X, tasks)
        with on_one_thread():
            return self._model.predict(X, codes)[:2]

    def _fit_classes(self, X: FloatArray, y_codes: IntArray, codes: IntArray, given: Given) -> None:
        at = rows_to_learn(X, y_codes, codes, y_codes >= 0)
        data = Data(X[at], y_codes[at].astype(np.float64), codes[at], self._n_tasks, None)
        # First cut-points where the prior would give every category its share of the rows.
        counts = np.bincount(y_codes[at], minlength=len(self.classes_)) + 0.5
        variance = UNITS.noise  # beside a latent function of variance one
        edges = np.sqrt(1.0 + variance) * ndtri(np.cumsum(counts)[:-1] / counts.sum())
        noise = Ordered(-float(edges[0]), np.diff(edges), variance)
        learn = self._names_to_learn(noise, ("bias", "widths"))
        learn = tuple(name for name in learn if np.size(noise.parameters[name]))
        kernel, rng = self._given_kernel(), generator_from(self.random_state)
        if self._is_active:
            start_kernel = kernel or default_kernel(data.X, offset=False)
            own_priors = {} if kernel else default_priors(start_kernel)
            priors = own_priors if self.priors is None else self.priors
            start: Any = Parameters(start_kernel, noise, learn, priors)
        else:  # the default model has a constant, which does the work of the bias
            start = Likelihood(noise, tuple(n for n in learn if kernel or n != "bias"))
        data = replace(data, noise=noise)
        self._fit([Problem(data, at, len(X), rng, start, kernel, ORDERED_PRIORS)], given)

    def _targets(self, y_codes: IntArray) -> list[FloatArray]:
        return [y_codes.astype(np.float64)]

    def _encode(self, y: Any, n_rows: int) -> tuple[np.ndarray, IntArray]:
        """The categories in order, and the rank of each row (-1 without a label)."""
        found, codes = super()._encode(y, n_rows)
        if self.categories is None:
            if len(found) < 3:
                warn_user(
                    f"y has two categories, {found.tolist()}; with nothing between them the model is a "
                    "probit classifier. Name all of them in categories=, or use SparseGPClassifier.",
                    UserWarning,
                )
            known = ordered_categories(y)
            if known is None:
                return found, codes
            order = np.array(sorted(found.tolist(), key=known.index))
            return order, np.where(codes < 0, -1, np.argsort(order)[codes])  # `found` is sorted
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

    def _check_parts(self, n_inputs: int) -> None:
        super()._check_parts(n_inputs)
        if self.noise_.n_categories != len(self.classes_):
            raise ValueError(f"noise of other classes than the {len(self.classes_)} it says.")

    def _store(self, models: list[FittedModel]) -> None:
        super()._store(models)
        self.cut_points_ = self.noise_.edges[1:-1] - self.noise_.bias
