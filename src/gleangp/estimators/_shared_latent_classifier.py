"""`SharedLatentGPClassifier`: tasks classified in one low-dimensional latent space that they share."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.special import log_ndtr, softmax
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gleangp._compat import StrOptions, fit_context
from gleangp._typing import FloatArray, IntArray
from gleangp.data.labels import check_class_target, encode_classes, split_unlabeled
from gleangp.data.tasks import blocks_of_rows
from gleangp.estimators._shared_latent import SHARED_CONSTRAINTS, SharedLatentMixin
from gleangp.estimators._tasks_mixin import TaskClassifierMixin
from gleangp.exceptions import LabelError
from gleangp.models.latent.blend import label_inputs
from gleangp.models.latent.model import Labels
from gleangp.numerics.parallel import threads_for


class SharedLatentGPClassifier(SharedLatentMixin, TaskClassifierMixin, BaseEstimator):
    """Classification in a latent space of few dimensions that all tasks share.

    Every row has a position in the latent space. One Gaussian process maps positions to the features of
    all rows; for every task another maps them to the labels. Positions and mappings are learnt together, so
    that the space describes the data *and* separates the classes. A perceptron from features to positions
    (a back-constraint) places new rows without a search. `add_task` learns a new task from a few rows in
    milliseconds, because only its label mapping is fitted.

    Parameters
    ----------
    n_components : int, default=2
        Dimensions of the latent space.
    kernel : sklearn.gaussian_process.kernels.Kernel, default=None
        Covariance over the latent space from which every mapping of the joint objective starts; each learns
        its own parameters. With ``transfer="blend"`` labels have other kernels: `label_kernels_`.
        None: `C * RBF + C`. White noise is added to the mappings with Gaussian noise if it has none.
    ard : bool, default=False
        One length scale per latent dimension in the default kernel; see `relevance_`.
    back_constraint : {"mlp"} or None, default="mlp"
        "mlp": a perceptron with one hidden layer gives the positions. None: positions are optimised freely,
        and new rows are placed by a short search from the nearest training rows.
    n_active : int, default=None
        Number of informative rows whose positions are the basis of every mapping. All rows contribute
        through it. Training costs O(n n_active^2). None: all rows up to 2000, else 200.
    hidden_units : int, default=50
        Of the perceptron.
    n_observed : int, default=None
        Leading principal components of the features that the latent space explains and the perceptron
        sees; None means 100. All of them are kept where there are fewer features.
    label_noise : {"gaussian", "probit"}, default="gaussian"
        "gaussian": least squares on labels -1 and +1, as in the paper. "probit": expectation propagation.
    label_weight : float, default=1.0
        Weight of the labels against the observations; 0 gives a latent space without labels.
    weight_decay : float, default=20.0
        Penalty on the perceptron's weights. Urtasun, Quattoni & Darrell (2007) are reproduced with 5.
    max_iter : int, default=300
        Maximum number of iterations of the optimiser.
    tol : float, default=3e-4
        Learning stops when an iteration changes the objective by less than this many nats per observed
        number (rows times components of the features), or by less than this share of it if that is more.
    n_init : int, default=1
        Starts with other hidden units; the best objective is kept.
    transfer : {"blend", "latent"}, default="blend"
        "blend": the function of a task is the sum of a function of the latent positions and one of the
        features. The variance of each part is learnt from the tasks of `fit`, placed in spaces that are
        learnt without them. If this does not predict them better from few labels, labels depend on the
        features alone; see `transfer_report`. "latent": a function of the latent positions
        alone, as in Urtasun, Quattoni & Darrell (2007); `fit` takes about half the time.
    unlabeled : object, default=None
        Label that means "no label"; such rows help to find the latent space. None: every label is a class.
    task : str or int, default=None
        Name or position of the column of X that holds the task.
    new_tasks : {"prior", "error"}, default="prior"
        Rows of tasks that were not seen. "prior": they are predicted from what the tasks share, as after
        `add_task(None, None, task)`, with a `NewTaskWarning`. "error": they raise a `TaskError`.
    random_state : int, RandomState, Generator or None, default=None
        Draws the hidden units.
    verbose : int, default=0
        Print how every stage of learning ended.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        Class labels of all tasks.
    tasks_ : ndarray or None
        Names of the tasks.
    embedding_ : ndarray of shape (n, n_components)
        Latent positions of the training rows.
    basis_ : ndarray of shape (d,)
        Training rows whose positions are the basis of the mappings: all rows, or `n_active` of them.
    kernel_ : Kernel
        Of the map to the features, with its learnt parameters.
    label_kernels_ : list of Kernel
        Of the label mapping of every task, in the order of `tasks_`.
    relevance_ : ndarray of shape (n_components,)
        Length scales that the training rows span in each dimension, in the mapping that uses it most. A
        dimension far below the others is not used.
    objective_ : float
        What was minimised: minus the log posterior, up to a constant.
    n_iter_ : int
        Iterations of the best start.
    columns_ : tuple of ColumnEncoding, or None
        If X was a frame: name, kind, encoding and number of missing cells of every input column.
    n_features_in_ : int
        Features seen in `fit`, the task column included.
    feature_names_in_ : ndarray
        Their names, where X had string names.

    See Also
    --------
    SharedLatentGPRegressor : The same for numbers.
    SparseGPClassifier : Tasks that share a kernel over the features themselves.

    Notes
    -----
    All features share one unit: standardise those that are in different ones. Training costs O(n^3) for n
    rows. Tasks with more than two classes have one label mapping against the rest for each class, with
    one kernel; their probabilities are proportional to p / (1 - p).

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
    >>> model.score(X[1::2], y[1::2]) > 0.9
    True
    >>> model.transform(X).shape
    (150, 2)
    >>> model.inverse_transform(model.transform(X[:3])).shape
    (3, 4)
    >>> model.predict_proba(X[:3]).shape, model.decision_function(X[:3]).shape
    ((3, 3), (3, 3))
    >>> model.predict(X[[0, 60, 120]]).tolist()
    [0, 1, 2]

    Two tasks in one space, and a third one from six rows:

    >>> tasks = np.where(np.arange(75) % 2, "a", "b")
    >>> model = SharedLatentGPClassifier(random_state=0).fit(X[::2], y[::2] == 0, tasks)
    >>> few = [1, 3, 5, 61, 63, 65]
    >>> model = model.add_task(X[few], y[few] == 0, task="c")
    >>> model.tasks_.tolist()
    ['a', 'b', 'c']
    """

    _parameter_constraints: dict = {
        **SHARED_CONSTRAINTS,
        "label_noise": [StrOptions({"gaussian", "probit"})],
        "unlabeled": "no_validation",
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        kernel: Any = None,
        ard: bool = False,
        back_constraint: str | None = "mlp",
        n_active: int | None = None,
        hidden_units: int = 50,
        n_observed: int | None = None,
        label_noise: str = "gaussian",
        label_weight: float = 1.0,
        weight_decay: float = 20.0,
        max_iter: int = 300,
        tol: float = 3e-4,
        n_init: int = 1,
        transfer: str = "blend",
        unlabeled: Any = None,
        task: str | int | None = None,
        new_tasks: str = "prior",
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.n_components = n_components
        self.kernel = kernel
        self.ard = ard
        self.back_constraint = back_constraint
        self.n_active = n_active
        self.hidden_units = hidden_units
        self.n_observed = n_observed
        self.label_noise = label_noise
        self.label_weight = label_weight
        self.weight_decay = weight_decay
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.transfer = transfer
        self.unlabeled = unlabeled
        self.task = task
        self.new_tasks = new_tasks
        self.random_state = random_state
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, tasks: Any = None) -> Self:
        """Learn the latent space and every task's label mapping.

        Parameters
        ----------
        X : frame or array-like of shape (n, p)
            Inputs, with the task column if `task` names one.
        y : array-like of shape (n,)
            Class labels. Every task needs two classes.
        tasks : array-like of shape (n,), default=None
            Task of each row. None, and no task column: one task.

        Returns
        -------
        self
        """
        given = X, y, tasks
        X, self.tasks_, codes = self._resolve(X, tasks, reset=True)
        y = check_class_target(y, len(X))
        labeled = split_unlabeled(y, self.unlabeled)
        self.classes_, y_codes = encode_classes(y, labeled, self.unlabeled)
        n_tasks = 1 if self.tasks_ is None else len(self.tasks_)
        rows = [r[labeled[r]] for r in blocks_of_rows(codes, n_tasks)]
        self._task_classes = tuple(
            self._check_classes(y_codes[r], self._task_name(t)) for t, r in enumerate(rows)
        )
        labels = [
            Labels(r, _signs(y_codes[r], present))
            for r, present in zip(rows, self._task_classes, strict=True)
        ]
        self._learn(X, labels, given)
        return self

    def add_task(self, X: Any, y: Any, task: Any) -> Self:
        """Learn one more task from few rows in the latent space of the other tasks.

        Its rows are placed by the learnt map, and only its label mapping is fitted (Discriminative
        Transfer). The latent space and the other tasks stay as they are.

        Parameters
        ----------
        X : frame or array-like of shape (m, p)
            Its rows, with or without the task column. None or no rows: the task is predicted from
            the prior.
        y : array-like of shape (m,)
            Its labels, of at least two of the classes seen in `fit`.
        task : str, int or bool
            Its name.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        X, names = self._rows_of_new_task(X, task)
        if len(X):
            y = check_class_target(y, len(X))
            labeled = split_unlabeled(y, self.unlabeled)
            X, y_codes = X[labeled], self._known_classes(y[labeled])
            present = self._check_classes(y_codes, task)
        else:
            y_codes, present = np.zeros(0, dtype=np.intp), np.arange(len(self.classes_))
        self._learn_new_task(X, _signs(y_codes, present))
        self.tasks_ = names
        self._task_classes = (*self._task_classes, present)
        return self

    def decision_function(self, X: Any, tasks: Any = None) -> FloatArray:
        """Mean of the label mapping, in units of its predictive deviation.

        Parameters
        ----------
        X : frame or array-like of shape (n, p)
            Inputs.
        tasks : array-like of shape (n,), default=None
            Task of each row, if the model was fitted with tasks and names no column for them.

        Returns
        -------
        ndarray of shape (n,) or (n, c)
            Positive for the second of two classes; one column per class with more of them, minus infinity
            for classes that the row's task does not have.
        """
        check_is_fitted(self)
        X, _, codes = self._resolve(X, tasks, reset=False)
        out = np.full((len(X), len(self.classes_)), -np.inf)
        for rows, present, margins in self._margins(X, codes):
            if margins.shape[1] == 1:
                margins = np.column_stack([-margins, margins])
            out[np.ix_(rows, present)] = margins
        return out[:, 1] if len(self.classes_) == 2 else out

    def predict_proba(self, X: Any, tasks: Any = None) -> FloatArray:
        """Probability of every class.

        Parameters
        ----------
        X : frame or array-like of shape (n, p)
            Inputs.
        tasks : array-like of shape (n,), default=None
            Task of each row, if the model was fitted with tasks and names no column for them.

        Returns
        -------
        ndarray of shape (n, c)
            Rows sum to one; zero for classes that the row's task does not have.
        """
        check_is_fitted(self)
        X, _, codes = self._resolve(X, tasks, reset=False)
        out = np.zeros((len(X), len(self.classes_)))
        for rows, present, margins in self._margins(X, codes):
            log_p, log_q = log_ndtr(margins), log_ndtr(-margins)
            if margins.shape[1] == 1:
                probabilities = np.exp(np.column_stack([log_q, log_p]))
            else:
                probabilities = softmax(log_p - log_q, axis=1)
            out[np.ix_(rows, present)] = probabilities
        return out

    def predict(self, X: Any, tasks: Any = None) -> np.ndarray:
        """The most probable class of each row's task.

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
        margins = self.decision_function(X, tasks=tasks)
        winner = (margins > 0).astype(np.intp) if margins.ndim == 1 else margins.argmax(axis=1)
        return self.classes_[winner]

    def _margins(self, X: FloatArray, codes: IntArray) -> list[tuple[IntArray, IntArray, FloatArray]]:
        """Rows, class codes and margins (rows, columns) of every task that occurs."""
        unit = 1.0 if self._probit() else 0.0  # variance of the probit noise; Gaussian noise is in var
        out = []
        with threads_for([len(X)]):
            inputs = label_inputs(self._model, X)
            for t, rows in enumerate(blocks_of_rows(codes, len(self._model.label_maps))):
                if len(rows):
                    mean, var = self._model.label_maps[t].predict(inputs[rows])
                    out.append((rows, self._task_classes[t], mean / np.sqrt(var + unit)))
        return out

    def _probit(self) -> bool:
        return self.label_noise == "probit"

    def _check_classes(self, y_codes: IntArray, task: Any) -> IntArray:
        """Codes of the classes of one task, which are two at least."""
        self._check_rows(len(y_codes), task)
        present = np.unique(y_codes)
        if len(present) < 2:
            of_task = "y" if task is None else f"task {task!r}"
            raise LabelError(
                f"{of_task} has 1 class: {self.classes_[present].tolist()}. Two are needed to tell apart. "
                "Give rows of another class, or leave the task out."
            )
        return present

    def _known_classes(self, y: np.ndarray) -> IntArray:
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise LabelError(
                f"y has classes that fit did not see: {unknown.tolist()}. Known classes: "
                f"{self.classes_.tolist()}. Fit again with rows of the new ones."
            )
        return np.searchsorted(self.classes_, y)


def _signs(y_codes: IntArray, present: IntArray) -> FloatArray:
    """Targets -1 / +1: one column for two classes, else one for each class against the rest."""
    positives = present[1:] if len(present) == 2 else present
    return np.where(y_codes[:, None] == positives, 1.0, -1.0)
