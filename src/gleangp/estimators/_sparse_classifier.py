"""`SparseGPClassifier`: two classes or more, one task or many, all rows labelled or only some."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gleangp._compat import StrOptions, fit_context
from gleangp._typing import FloatArray
from gleangp.data.labels import check_class_target, encode_classes, split_unlabeled
from gleangp.estimators._classification import ClassificationMixin
from gleangp.estimators._docs import SPARSE, documented
from gleangp.estimators._parameters import CLASS_CONSTRAINTS, parameters
from gleangp.estimators._sparse import local_models
from gleangp.estimators._tasks_mixin import TaskClassifierMixin
from gleangp.estimators._training_rows import LocalRows
from gleangp.exceptions import LabelError
from gleangp.inference.block import Block
from gleangp.models.local.unlabelled import add_unlabelled_task
from gleangp.numerics.parallel import threads_for


@documented(SPARSE)
@parameters
class SparseGPClassifier(ClassificationMixin, TaskClassifierMixin, BaseEstimator):
    """Gaussian-process classification for one task or many related ones.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel, default=None
        Covariance function of the latent function, of the inputs as they are. None: the hierarchical model
        of `SparseGPRegressor`. With more than two classes a `CompoundKernel` has one kernel for each of
        `classes_`, such as the `kernel_` of another fit.
    {coupling, n_active, selector, posterior}
    noise : {"probit", "logit", "robust", "null_category"}, default="probit"
        Distribution of the labels given the latent function. "robust" is a probit with a learnt share of
        flipped labels. "logit" and "robust" need `posterior="local"` and a label in every row.
        "null_category" always uses the rows without a label; "probit" uses them only if they help.
    {sites, optimizer}
    learn_noise : bool or sequence of str, default=True
        Whether to learn the parameters of the noise model, or the names of those to learn, such as
        ("bias", "gamma_minus", "gamma_plus"). The slope of the probit is learnt with `posterior="active"`
        only; otherwise the variance of the kernel has the same effect.
    {n_rounds, n_restarts, priors}
    unlabeled : object, default=None
        The label of rows that have none (-1 in scikit-learn's semi-supervised estimators). None: every label
        is a class. See Notes.
    {invariances, task, new_tasks}
    n_jobs : int, default=None
        Processes for the classes, or for the selection of many tasks.
    {random_state, verbose}

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        Class labels.
    kernel_ : Kernel
        The kernel with the learnt parameters; with more than two classes a `CompoundKernel` of one per class.
    noise_ : object of gleangp.noise, or list
        The fitted noise model; with more than two classes a list of one per class.
    {tasks_, coupling_, decisions_, task_correlation_}
    active_ : ndarray of shape (d,) or list
        Basis or active points as row numbers of the training set, in order of inclusion. With more than two
        classes a list of one array per class. The following four attributes likewise.
    {active_gain_}
    {site_mean_, site_precision_}
    {active_virtual_}
    n_silent_ : int
        Number of rows without a label that have no influence, because they could belong to either side: of
        all rows, or of the active points for "active". With more than two classes, the sum over classes.
    log_evidence_ : float
        Log evidence; the sum over classes.
    n_rounds_ : int
        Number of rounds of learning, the maximum over classes.
    {selection_objective_, columns_, n_features_in_, feature_names_in_}

    See Also
    --------
    SparseGPRegressor : The same for numbers.
    SparseGPOrdinal : The same for ordered categories.

    Notes
    -----
    More than two classes are learnt one against the rest, in parallel with `n_jobs`. Their probabilities are
    proportional to p / (1 - p): those of independent detectors, given that exactly one is positive. A task
    may have rows of one class only.

    Rows without a label use the null-category noise model (LPJ05, section 4). There is a region between the
    classes, of width one in the latent function, that contains no rows. An unlabelled row near the boundary
    therefore moves the boundary to where rows are rare. Labelled rows are used first, then the others. A row
    that could still belong to either side has no influence and is counted in `n_silent_`. With more than two
    classes a row without a label belongs to exactly one of them.

    Unlabelled rows help if classes are clusters, and increase the error otherwise. So labels are held out in
    turn and predicted in three ways: from the labelled rows alone, from all rows under the kernel that was
    given (None: its length scale is the distance of neighbours), and from all rows under the kernel of the
    labelled ones. The highest mean log probability decides; `decisions_` has the numbers. With
    `posterior="active"` all rows are used, and process variances get an exponential prior, which keeps the
    region from shrinking to nothing. If all rows of `y` have a label, the noise is probit.

    References
    ----------
    Lawrence & Platt 2004; Lawrence, Platt & Jordan 2005; Hensman, Matthews & Ghahramani 2015.

    Examples
    --------
    >>> import numpy as np
    >>> from gleangp import SparseGPClassifier
    >>> X = np.linspace(-3, 3, 40)[:, None]
    >>> y = np.where(X[:, 0] > 0, "warm", "cold")
    >>> model = SparseGPClassifier(random_state=0).fit(X, y)
    >>> model.predict([[-2.0], [2.0]]).tolist()
    ['cold', 'warm']
    >>> model.predict_proba([[-2.0], [2.0]]).shape
    (2, 2)
    >>> bool(model.decision_function([[2.0]])[0] > 0.0)
    True
    >>> bool(model.score(X, y) > 0.95)
    True

    Several tasks, more rows of a known task, and one more task:

    >>> tasks = np.tile(["a", "b"], 20)
    >>> model = SparseGPClassifier(random_state=0).fit(X, y, tasks=tasks)
    >>> model = model.partial_fit([[3.5]], ["warm"], tasks=["b"])
    >>> model = model.add_task([[-1.0], [1.0]], ["cold", "warm"], task="c")
    >>> model.tasks_.tolist()
    ['a', 'b', 'c']
    """

    noise: str = "probit"

    _parameter_constraints = {
        **CLASS_CONSTRAINTS,
        "noise": [StrOptions({"probit", "logit", "robust", "null_category"})],
    }

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, tasks: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        {X}
        y : array-like of shape (n,)
            Class labels; the value of `unlabeled` for rows without one.
        {tasks}

        Returns
        -------
        self
        """
        given = X, y, tasks
        X, self.tasks_, codes = self._resolve(X, tasks, reset=True, keep_float32=self._keeps_float32())
        y = check_class_target(y, len(X))
        labeled = split_unlabeled(y, self.unlabeled)
        self.classes_, y_codes = encode_classes(y, labeled, self.unlabeled)
        n_tasks = 1 if self.tasks_ is None else len(self.tasks_)
        rows = LocalRows(X, y_codes, codes, n_tasks)
        counts = rows.counts(len(self.classes_))
        self._check_noise(int(sum(rows.sizes) - counts.sum()))
        if self._is_active:
            self._fit_active(self._active_problems(rows, counts), given, propagate=self.sites == "ep")
        else:
            self._fit_local_problems(rows, counts, given)
        return self

    def predict_proba(self, X: Any, tasks: Any = None) -> FloatArray:
        """Probability of every class.

        Parameters
        ----------
        {X, tasks}

        Returns
        -------
        ndarray of shape (n, c)
            Rows sum to one; columns in the order of `classes_`.
        """
        log_p, log_q = self._log_probabilities(X, tasks)
        if len(self.classes_) == 2:
            return np.exp(np.column_stack([log_q[:, 0], log_p[:, 0]]))
        return softmax(log_p - log_q, axis=1)

    def decision_function(self, X: Any, tasks: Any = None) -> FloatArray:
        """Mean of the latent function, divided by its predictive standard deviation.

        Parameters
        ----------
        {X, tasks}

        Returns
        -------
        ndarray of shape (n,) or (n, c)
            Positive for the second of two classes. With more classes, one column for each.
        """
        margins = np.column_stack(
            [model.noise.margin(mean, var) for model, mean, var in self._latent(X, tasks)]
        )
        return margins[:, 0] if len(self.classes_) == 2 else margins

    def predict(self, X: Any, tasks: Any = None) -> np.ndarray:
        """The most probable class.

        Parameters
        ----------
        {X, tasks}

        Returns
        -------
        ndarray of shape (n,)
        """
        margins = self.decision_function(X, tasks=tasks)
        winner = (margins > 0).astype(np.intp) if margins.ndim == 1 else margins.argmax(axis=1)
        return self.classes_[winner]

    def add_task(self, X: Any, y: Any, task: Any) -> Self:
        """Add one more task, from few rows. The kernel and the noise stay as they are.

        Parameters
        ----------
        {X}
        y : array-like of shape (m,)
            Its labels, of classes seen in `fit`; they may be all the same.
        {task}

        Returns
        -------
        self
        """
        check_is_fitted(self)
        X, names = self._rows_of_new_task(X, task)
        y_codes = self._known_classes(y, len(X))
        kept = self._kept(y_codes)
        X, y_codes = X[kept], y_codes[kept]
        blocks = [
            Block(X, signs, model.noise)
            for model, signs in zip(self._models, self._signs(y_codes), strict=True)
        ]
        models = self._add_blocks(blocks, propagate=self.sites == "ep")
        if len(blocks) > 1 and np.any(y_codes < 0) and (local := local_models(models)):
            with threads_for([len(X)]):
                models = [*add_unlabelled_task(local_models(self._models), local, y_codes)]
        self.tasks_ = names
        self._store(models)
        return self

    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any, tasks: Any = None, classes: Any = None) -> Self:
        """Update the model with new rows of known tasks; on a new estimator, `fit`.

        The kernel and the noise stay as they are.

        Parameters
        ----------
        X : frame or array-like of shape (n, p)
            New rows.
        y : array-like of shape (n,)
            Their labels, of classes seen in `fit`.
        {tasks}
        classes : array-like, default=None
            All classes. The first call must contain rows of each of them.

        Returns
        -------
        self
        """
        if not hasattr(self, "_models"):
            return self._first_part(X, y, tasks, classes)
        X, _, codes = self._resolve(X, tasks, reset=False, learn=True)
        y_codes = self._known_classes(y, len(X))
        self._absorb(X, codes, self._kept(y_codes), self._signs(y_codes))
        return self

    def _first_part(self, X: Any, y: Any, tasks: Any, classes: Any) -> Self:
        if classes is not None:
            missing = np.setdiff1d(np.asarray(classes), np.asarray(y))
            if len(missing):
                raise LabelError(
                    f"the first call of partial_fit has no row of the classes {missing.tolist()}. "
                    "The kernel is learnt from it, so give it rows of every class."
                )
        return self.fit(X, y, tasks)
