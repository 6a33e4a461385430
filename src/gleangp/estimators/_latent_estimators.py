"""`SharedLatentGPClassifier` and `SharedLatentGPRegressor`: tasks in one latent space of few dimensions."""

from typing import Any

import numpy as np
from scipy.special import log_ndtr
from sklearn.base import BaseEstimator

from gleangp._compat import StrOptions
from gleangp._state import check_codes
from gleangp._typing import FloatArray, IntArray
from gleangp.data.labels import check_regression_target, encode_classes, lookup_classes
from gleangp.data.tasks import blocks_of_rows
from gleangp.estimators._base import TaskClassifierMixin
from gleangp.estimators._observations import TaskRegressorMixin
from gleangp.estimators._parameters import given, parameters
from gleangp.estimators._shared_latent import SharedLatentMixin, in_words
from gleangp.exceptions import LabelError
from gleangp.models.latent.model import Labels
from gleangp.models.units import own_units
from gleangp.noise.classes import class_log_probabilities


@parameters
class SharedLatentGPClassifier(SharedLatentMixin, TaskClassifierMixin, BaseEstimator):
    """Classification in a latent space of few dimensions that all tasks share.

    Every row has a position in the latent space. One Gaussian process maps positions to the features of
    all rows; for every task another maps them to the labels. Positions and mappings are learnt together, so
    that the space describes the data *and* separates the classes. A perceptron from features to positions
    (a back-constraint) places new rows without a search.

    Parameters
    ----------
    label_noise : {"gaussian", "probit"}, default="gaussian"
        "gaussian": least squares on labels -1 and +1, as in the paper. "probit": expectation propagation.
    unlabeled : object, default=None
        Label that means "no label"; such rows help to find the latent space. None: every label is a class.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        Class labels of all tasks.

    See Also
    --------
    SharedLatentGPRegressor : The same for numbers.
    SparseGPClassifier : Tasks that share a kernel over the features themselves.

    Notes
    -----
    All features share one unit: standardise those that are in different ones. Training costs O(n^3). Tasks
    with more than two classes have one label mapping against the rest for each class, with one kernel; their
    probabilities are proportional to p / (1 - p).

    References
    ----------
    Urtasun, Quattoni & Darrell 2007; Lawrence & Quiñonero-Candela 2006.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from gleangp import SharedLatentGPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SharedLatentGPClassifier(random_state=0).fit(X[::2], y[::2])
    >>> model.predict(X[[0, 60, 120]]).tolist(), model.score(X[1::2], y[1::2]) > 0.9
    ([0, 1, 2], True)
    >>> model.transform(X).shape, model.inverse_transform(model.transform(X[:3])).shape
    ((150, 2), (3, 4))
    >>> model.predict_proba(X[:3]).shape, model.decision_function(X[:3]).shape
    ((3, 3), (3, 3))

    Two tasks in one space, and a third one from six rows:

    >>> tasks = np.where(np.arange(75) % 2, "a", "b")
    >>> model = SharedLatentGPClassifier(random_state=0).fit(X[::2], y[::2] == 0, tasks)
    >>> few = [1, 3, 5, 61, 63, 65]
    >>> model.add_task(X[few], y[few] == 0, task="c").tasks_.tolist()
    ['a', 'b', 'c']
    """

    label_noise: str = given([StrOptions({"gaussian", "probit"})], default="gaussian")
    unlabeled: Any = given("no_validation", default=None)

    _targets_are_signs = True
    _fitted_parts = ("_model", "embedding_", "basis_", "_task_classes")

    def decision_function(self, X: Any, tasks: Any = None) -> FloatArray:
        """Mean of the label mapping, in units of its predictive deviation.

        Minus infinity for classes that the row's task does not have.
        """
        X, codes = self._encode_inputs(X, tasks)
        out = np.full((len(X), len(self.classes_)), -np.inf)
        for rows, present, margins in self._margins(X, codes):
            both = np.column_stack([-margins, margins])
            out[np.ix_(rows, present)] = both if margins.shape[1] == 1 else margins
        return out[:, 1] if len(self.classes_) == 2 else out

    def predict_proba(self, X: Any, tasks: Any = None) -> FloatArray:
        """Probability of every class; zero for classes that the row's task does not have."""
        X, codes = self._encode_inputs(X, tasks)
        out = np.zeros((len(X), len(self.classes_)))
        for rows, present, margins in self._margins(X, codes):
            found = [(log_ndtr(-margin), log_ndtr(margin)) for margin in margins.T]
            out[np.ix_(rows, present)] = np.exp(class_log_probabilities(found))
        return out

    def _margins(self, X: FloatArray, codes: IntArray) -> list[tuple[IntArray, IntArray, FloatArray]]:
        """Rows, class codes and margins (rows, columns) of every task that occurs."""
        unit = float(self.label_noise == "probit")  # variance of the probit noise; Gaussian noise is in var
        return [
            (rows, self._task_classes[t], mean / np.sqrt(var + unit))
            for t, rows, mean, var in self._label_predictions(X, codes)
        ]

    def _read_targets(self, y: Any, n_rows: int) -> IntArray:
        self.classes_, y_codes = encode_classes(y, n_rows, self.unlabeled)
        return y_codes

    def _labels(self, y: IntArray, codes: IntArray) -> list[Labels]:
        rows = [r[y[r] >= 0] for r in blocks_of_rows(codes, self._n_tasks)]
        present = [self._check_classes(y[r], self._task_name(t)) for t, r in enumerate(rows)]
        self._task_classes = tuple(present)
        return [Labels(r, _signs(y[r], p)) for r, p in zip(rows, present, strict=True)]

    def _labels_of_new_task(self, y: Any, n_rows: int, task: Any) -> Labels:
        y_codes = lookup_classes(self.classes_, y, n_rows, self.unlabeled)
        rows = np.flatnonzero(y_codes >= 0)
        present = self._check_classes(y_codes[rows], task) if n_rows else np.arange(len(self.classes_))
        self._task_classes = (*self._task_classes, present)
        return Labels(rows, _signs(y_codes[rows], present))

    def _check_classes(self, y_codes: IntArray, task: Any) -> IntArray:
        """Codes of the classes of one task, which are two at least."""
        self._check_rows(len(y_codes), task)
        present = np.unique(y_codes)
        if len(present) < 2:
            raise LabelError(
                f"{in_words(task)} has 1 class: {self.classes_[present].tolist()}. "
                "Two are needed to tell apart. Give rows of another class, or leave the task out."
            )
        return present

    def _label_columns(self) -> list[int]:
        for present in self._task_classes:
            check_codes("classes of a task", present, len(self.classes_))
            if present.ndim != 1 or not (np.diff(present) > 0).all() or len(present) < 2:
                raise ValueError("classes of a task that are not different.")
        return [1 if len(present) == 2 else len(present) for present in self._task_classes]


def _signs(y_codes: IntArray, present: IntArray) -> FloatArray:
    """Targets -1 / +1: one column for two classes, else one for each class against the rest."""
    positives = present[1:] if len(present) == 2 else present
    return np.where(y_codes[:, None] == positives, 1.0, -1.0)


@parameters
class SharedLatentGPRegressor(SharedLatentMixin, TaskRegressorMixin, BaseEstimator):
    """Regression in a latent space of few dimensions that all tasks share.

    The same model as `SharedLatentGPClassifier`, with numbers for labels.

    See Also
    --------
    SharedLatentGPClassifier : The same for classes.
    SparseGPRegressor : Tasks that share a kernel over the features themselves.

    Notes
    -----
    All features share one unit: standardise those that are in different ones. Targets are standardised
    task by task. Rows without a target (NaN) help to find the latent space.

    References
    ----------
    Urtasun, Quattoni & Darrell 2007; Lawrence & Quiñonero-Candela 2006.

    Examples
    --------
    >>> import numpy as np
    >>> from gleangp import SharedLatentGPRegressor
    >>> t = np.linspace(-2, 2, 60)
    >>> X = np.column_stack([t, np.sin(t), np.cos(t)])
    >>> model = SharedLatentGPRegressor(1, hidden_units=10, random_state=0)
    >>> model = model.fit(X[::2], t[::2] ** 2)
    >>> model.predict(X[:4]).shape, model.score(X[1::2], t[1::2] ** 2) > 0.95
    ((4,), True)
    >>> model.transform(X[:4]).shape, model.inverse_transform(model.transform(X[:4])).shape
    ((4, 1), (4, 3))

    Two tasks in one space, and a third one from four rows:

    >>> model = model.fit(X, t**2, tasks=np.where(np.arange(60) % 2, "a", "b"))
    >>> model.add_task(X[::15], -t[::15], task="c").tasks_.tolist()
    ['a', 'b', 'c']
    """

    _targets_are_signs = False
    _fitted_parts = ("_model", "embedding_", "basis_", "_units")

    def predict(self, X: Any, tasks: Any = None, return_std: bool = False) -> Any:
        """Mean of the targets, with their standard deviation if asked for.

        Parameters
        ----------
        return_std : bool, default=False
            Return the standard deviation of a new target as well, its noise included.

        Returns
        -------
        mean, std : ndarray of shape (n,)
            `std` only with `return_std`.
        """
        X, codes = self._encode_inputs(X, tasks)
        mean, std = np.empty(len(X)), np.empty(len(X))
        for _, rows, m, v in self._label_predictions(X, codes):
            mean[rows], std[rows] = m[:, 0], np.sqrt(v[:, 0])
        mean = self._units.from_standard(mean, codes)
        return (mean, std * self._units.scale[codes]) if return_std else mean

    def _read_targets(self, y: Any, n_rows: int) -> FloatArray:
        return check_regression_target(y, n_rows)

    def _labels(self, y: FloatArray, codes: IntArray) -> list[Labels]:
        rows = [r[~np.isnan(y[r])] for r in blocks_of_rows(codes, self._n_tasks)]
        for t, r in enumerate(rows):
            self._check_rows(len(r), self._task_name(t))
        self._units = own_units([y[r] for r in rows])
        standard = self._units.to_standard(y, codes)
        return [Labels(r, standard[r, None]) for r in rows]

    def _labels_of_new_task(self, y: Any, n_rows: int, task: Any) -> Labels:
        y = check_regression_target(y, n_rows)
        rows = np.flatnonzero(~np.isnan(y))
        if n_rows:
            self._check_rows(len(rows), task)
        self._units = self._units.with_task(y[rows])
        return Labels(rows, self._units.to_standard(y[rows], np.full(len(rows), -1))[:, None])

    def _label_columns(self) -> list[int]:
        return [1] * len(self._units.mean)
