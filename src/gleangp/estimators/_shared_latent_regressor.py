"""`SharedLatentGPRegressor`: tasks regressed in one low-dimensional latent space that they share."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gleangp._compat import fit_context
from gleangp._typing import FloatArray
from gleangp.data.labels import check_regression_target
from gleangp.data.tasks import blocks_of_rows
from gleangp.estimators._shared_latent import SHARED_CONSTRAINTS, SharedLatentMixin
from gleangp.estimators._targets import TargetUnits, own_units
from gleangp.estimators._tasks_mixin import TaskRegressorMixin
from gleangp.models.latent.blend import label_inputs
from gleangp.models.latent.model import Labels
from gleangp.numerics.parallel import threads_for


class SharedLatentGPRegressor(SharedLatentMixin, TaskRegressorMixin, BaseEstimator):
    """Regression in a latent space of few dimensions that all tasks share.

    The same model as `SharedLatentGPClassifier`, with numbers for labels: one Gaussian process maps latent
    positions to the features of all rows, and for every task another maps them to its targets.

    Parameters
    ----------
    n_components : int, default=2
        Dimensions of the latent space.
    kernel : sklearn.gaussian_process.kernels.Kernel, default=None
        Covariance over the latent space from which every mapping of the joint objective starts; each learns
        its own parameters. With ``transfer="blend"`` labels have other kernels: `label_kernels_`.
        None: `C * RBF + C`. White noise is added if it has none.
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
    label_weight : float, default=1.0
        Weight of the targets against the observations; 0 gives a latent space without targets.
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
    tasks_ : ndarray or None
        Names of the tasks.
    embedding_ : ndarray of shape (n, n_components)
        Latent positions of the training rows.
    basis_ : ndarray of shape (d,)
        Training rows whose positions are the basis of the mappings: all rows, or `n_active` of them.
    kernel_ : Kernel
        Of the map to the features, with its learnt parameters.
    label_kernels_ : list of Kernel
        Of the mapping to every task's standardised targets, in the order of `tasks_`.
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
    SharedLatentGPClassifier : The same for classes.
    SparseGPRegressor : Tasks that share a kernel over the features themselves.

    Notes
    -----
    All features share one unit: standardise those that are in different ones. Targets are standardised
    task by task. Rows without a target (NaN) help to find the latent space. Training costs O(n^3).

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
    >>> model.score(X[1::2], t[1::2] ** 2) > 0.95
    True
    >>> model.predict(X[:4]).shape, model.transform(X[:4]).shape
    ((4,), (4, 1))
    >>> model.inverse_transform(model.transform(X[:4])).shape
    (4, 3)

    Two tasks in one space, and a third one from four rows:

    >>> tasks = np.where(np.arange(60) % 2, "a", "b")
    >>> model = SharedLatentGPRegressor(1, hidden_units=10, random_state=0)
    >>> model = model.fit(X, t**2, tasks)
    >>> model = model.add_task(X[::15], -t[::15], task="c")
    >>> model.tasks_.tolist()
    ['a', 'b', 'c']
    """

    _parameter_constraints: dict = {**SHARED_CONSTRAINTS}

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
        label_weight: float = 1.0,
        weight_decay: float = 20.0,
        max_iter: int = 300,
        tol: float = 3e-4,
        n_init: int = 1,
        transfer: str = "blend",
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
        self.label_weight = label_weight
        self.weight_decay = weight_decay
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.transfer = transfer
        self.task = task
        self.new_tasks = new_tasks
        self.random_state = random_state
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, tasks: Any = None) -> Self:
        """Learn the latent space and every task's mapping to its targets.

        Parameters
        ----------
        X : frame or array-like of shape (n, p)
            Inputs, with the task column if `task` names one.
        y : array-like of shape (n,)
            Targets; NaN where there is none. Every task needs two.
        tasks : array-like of shape (n,), default=None
            Task of each row. None, and no task column: one task.

        Returns
        -------
        self
        """
        given = X, y, tasks
        X, self.tasks_, codes = self._resolve(X, tasks, reset=True)
        y, labeled = check_regression_target(y, len(X))
        n_tasks = 1 if self.tasks_ is None else len(self.tasks_)
        rows = [r[labeled[r]] for r in blocks_of_rows(codes, n_tasks)]
        for t, r in enumerate(rows):
            self._check_rows(len(r), self._task_name(t))
        self._units = own_units([y[r] for r in rows])
        standard = self._units.to_standard(y, codes)
        self._learn(X, [Labels(r, standard[r, None]) for r in rows], given)
        return self

    def add_task(self, X: Any, y: Any, task: Any) -> Self:
        """Learn one more task from few rows in the latent space of the other tasks.

        Its rows are placed by the learnt map, and only the mapping to its targets is fitted. The latent space
        and the other tasks stay as they are.

        Parameters
        ----------
        X : frame or array-like of shape (m, p)
            Its rows, with or without the task column. None or no rows: the task is predicted from
            the prior.
        y : array-like of shape (m,)
            Its targets, two at least; rows where it is NaN are left out.
        task : str, int or bool
            Its name.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        X, names = self._rows_of_new_task(X, task)
        if len(X):
            y, labeled = check_regression_target(y, len(X))
            self._check_rows(int(labeled.sum()), task)
            X, y = X[labeled], y[labeled]
        else:
            y = np.zeros(0)
        units: TargetUnits = self._units.with_task(y)
        self._learn_new_task(X, ((y - units.mean[-1]) / units.scale[-1])[:, None])
        self.tasks_, self._units = names, units
        return self

    def predict(self, X: Any, tasks: Any = None, return_std: bool = False) -> Any:
        """Mean of the targets, with their standard deviation if asked for.

        Parameters
        ----------
        X : frame or array-like of shape (n, p)
            Inputs.
        tasks : array-like of shape (n,), default=None
            Task of each row, if the model was fitted with tasks and names no column for them.
        return_std : bool, default=False
            Return the standard deviation of a new target as well, its noise included.

        Returns
        -------
        mean : ndarray of shape (n,)
        std : ndarray of shape (n,)
            Only if asked for.
        """
        check_is_fitted(self)
        X, _, codes = self._resolve(X, tasks, reset=False)
        mean: FloatArray = np.empty(len(X))
        std: FloatArray = np.empty(len(X))
        with threads_for([len(X)]):
            inputs = label_inputs(self._model, X)
            for t, rows in enumerate(blocks_of_rows(codes, len(self._model.label_maps))):
                if len(rows):
                    m, v = self._model.label_maps[t].predict(inputs[rows])
                    mean[rows], std[rows] = m[:, 0], np.sqrt(v[:, 0])
        mean = self._units.from_standard(mean, codes)
        return (mean, std * self._units.scale[codes]) if return_std else mean

    def _probit(self) -> bool:
        return False
