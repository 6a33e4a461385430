"""`SparseGPClassifier`: two classes or more, one task or many, all rows labelled or only some."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from scipy.special import ndtri, softmax
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gleangp._compat import StrOptions, fit_context
from gleangp._typing import FloatArray, IntArray
from gleangp.data.labels import check_class_target, encode_classes, split_unlabeled
from gleangp.data.tasks import blocks_of_rows
from gleangp.estimators._binary_problems import (
    BinaryProblem,
    fit_binary_problems,
    fit_each,
)
from gleangp.estimators._defaults import (
    class_priors,
    null_category_kernel,
    variance_priors,
)
from gleangp.estimators._local import fit_local_rows
from gleangp.estimators._sparse import SHARED_CONSTRAINTS, SparseGPMixin, generator_from
from gleangp.estimators._suggest import SuggestMixin
from gleangp.estimators._tasks_mixin import TaskClassifierMixin
from gleangp.estimators._training_rows import ClassSigns, LocalRows
from gleangp.estimators._transfer import TransferMixin
from gleangp.estimators._unlabelled import UnlabelledRows
from gleangp.exceptions import LabelError
from gleangp.inference.block import Block
from gleangp.invariances import check_invariances
from gleangp.models.active.settings import most_stages
from gleangp.models.active.virtual_vectors import add_virtual_vectors_to_last
from gleangp.models.defaults import LEARNING, LINKED_PRIORS
from gleangp.models.likelihood import PropagatedNoise
from gleangp.models.local.model import LocalModel
from gleangp.models.local.unlabelled import add_unlabelled_task
from gleangp.models.parameters import Parameters
from gleangp.models.priors import LogNormal
from gleangp.noise import NullCategory, Probit, noise_from_name
from gleangp.numerics.parallel import threads_for

# Variance that softens the steps of the null category at the start: a tenth of its width. Sharper steps
# make expectation propagation swing, softer ones let rows stay inside.
_SOFT_STEP = 0.01


class SparseGPClassifier(SparseGPMixin, SuggestMixin, TransferMixin, TaskClassifierMixin, BaseEstimator):
    """Gaussian-process classification for one task or many related ones.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel, default=None
        Covariance function of the latent function, of the inputs as they are. None: the hierarchical model
        of `SparseGPRegressor`. With more than two classes a `CompoundKernel` has one kernel for each of
        `classes_`, such as the `kernel_` of another fit.
    coupling : {"auto", "kernel", "function", "coregion"} or object, default="auto"
        What tasks share. "function": a common function, and for each task an offset, slopes and an own
        function, whose sizes are learnt. "kernel": the parameters of the kernel alone. "coregion": tasks are
        mixtures of shared functions with learnt weights (`CoregionCoupling(rank=...)`). "auto" is "function",
        or "kernel" if the posterior is "active". `coupling_` has the choice. Ignored with one task.
    n_active : int or float, default=None
        Number of basis points, or their share of the rows. None: all rows if there are at most 2000, else
        400. For `posterior="active"`: the number of active points over all tasks; None: at most 400 per task.
    selector : {"residual", "entropy", "information", "random", "graph"} or object, default=None
        How points are selected. None: `ResidualSelector(weight="variance")`, which does not use the labels,
        so wrong labels have no effect on it; "entropy" for `posterior="active"`.
    posterior : {"local", "active"}, default="local"
        "local": the covariance is exact within neighbourhoods of rows and goes through the basis between
        them. A new row is predicted from the basis and the rows near it. "active": predictions use the active
        points only (the method of LP04). With `invariances` it is always "active".
    sites : {"adf", "ep"}, default="adf"
        For `posterior="active"`: sites from filtering alone, or refined by expectation propagation.
    noise : {"probit", "logit", "robust", "null_category"}, default="probit"
        Distribution of the labels given the latent function. "robust" is a probit with a learnt share of
        flipped labels. "logit" and "robust" need `posterior="local"` and a label in every row.
        "null_category" always uses the rows without a label; "probit" uses them only if they help.
    optimizer : {"l-bfgs-b"} or None, default="l-bfgs-b"
        If None, the kernel parameters and the noise are not learnt.
    learn_noise : bool or sequence of str, default=True
        Whether to learn the parameters of the noise model, or the names of those to learn, such as
        ("bias", "gamma_minus", "gamma_plus"). The slope of the probit is learnt with `posterior="active"`
        only; otherwise the variance of the kernel has the same effect.
    n_rounds : int, default=5
        For `posterior="active"`: maximum number of rounds of selecting points and learning the kernel.
    n_restarts : int, default=0
        Further starts of the optimiser, drawn within the bounds of the parameters.
    priors : dict, default=None
        Priors by name of the hyperparameter (as in `kernel_.hyperparameters`). They replace those of the
        default model.
    unlabeled : object, default=None
        The label of rows that have none (-1 in scikit-learn's semi-supervised estimators). None: every label
        is a class. See Notes.
    invariances : callable or list of callables, default=None
        Functions that take rows, without the task column, and return as many transformed rows of the same
        class, such as `translations((16, 16))`. Transformed copies of the active points (virtual informative
        vectors) compete for the active set.
    task : str or int, default=None
        Name or position of the column of X that holds the task.
    new_tasks : {"prior", "error"}, default="prior"
        How rows of tasks that were not seen are predicted. "prior": from what the tasks share, as after
        `add_task(None, None, task)`, with a `NewTaskWarning`. "error": they raise a `TaskError`.
    n_jobs : int, default=None
        Processes for the classes, or for the selection of many tasks.
    random_state : int, RandomState, Generator or None, default=None
        For selectors that sample and for restarts.
    verbose : int, default=0
        If positive, print the result of every stage of learning.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        Class labels.
    kernel_ : Kernel
        The kernel with the learnt parameters; with more than two classes a `CompoundKernel` of one per class.
    noise_ : object of gleangp.noise, or list
        The fitted noise model; with more than two classes a list of one per class.
    tasks_ : ndarray or None
        Names of the tasks.
    coupling_ : Choice
        The coupling of the model (`.name`), with `.reason` and `.scores`.
    decisions_ : list of Decision
        Every choice that was made in the fit, as numbers and in words.
    task_correlation_ : ndarray of shape (M, M)
        Correlation of the tasks' functions under the learnt prior; the identity for "kernel".
    active_ : ndarray of shape (d,) or list
        Basis or active points as row numbers of the training set, in order of inclusion. With more than two
        classes a list of one array per class. The following four attributes likewise.
    active_gain_ : ndarray of shape (d,)
        Score of each point when it was included, in nats (`GraphSelector`: its degree).
    site_mean_, site_precision_ : ndarray of shape (d,)
        Gaussian approximations of the noise at the active points.
    active_virtual_ : ndarray of shape (d,)
        Number of the invariance that made the point from the row in `active_`; -1 for the row itself.
    n_silent_ : int
        Number of rows without a label that have no influence, because they could belong to either side: of
        all rows, or of the active points for "active". With more than two classes, the sum over classes.
    log_evidence_ : float
        Log evidence; the sum over classes.
    n_rounds_ : int
        Number of rounds of learning, the maximum over classes.
    selection_objective_ : float or None
        Objective of the selector after `fit`; None for selectors without one. `GraphSelector`: the mean over
        other rows of the strongest link to a selected one.
    columns_ : tuple of ColumnEncoding, or None
        If X was a frame: name, kind, encoding and number of missing cells of every input column.
    n_features_in_ : int
        Number of features in `fit`, the task column included.
    feature_names_in_ : ndarray
        Names of the features, if all are strings.

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

    _most_active = 400  # sites of all rows are swept over many times

    _parameter_constraints: dict = {
        **SHARED_CONSTRAINTS,
        "selector": [*SHARED_CONSTRAINTS["selector"], None],
        "sites": [StrOptions({"adf", "ep"})],
        "learn_noise": ["boolean", "array-like"],
        "noise": [StrOptions({"probit", "logit", "robust", "null_category"})],
        "unlabeled": "no_validation",
        "invariances": [callable, "array-like", None],
    }

    _fitted_parts = ("_models", "classes_")
    _needs_of_noise = "class_log_prob"

    def __init__(
        self,
        kernel: Any = None,
        *,
        coupling: Any = "auto",
        n_active: int | float | None = None,
        selector: Any = None,
        posterior: str = "local",
        noise: str = "probit",
        sites: str = "adf",
        optimizer: str | None = "l-bfgs-b",
        learn_noise: Any = True,
        n_rounds: int = 5,
        n_restarts: int = 0,
        priors: dict[str, Any] | None = None,
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
        self.noise = noise
        self.sites = sites
        self.optimizer = optimizer
        self.learn_noise = learn_noise
        self.n_rounds = n_rounds
        self.n_restarts = n_restarts
        self.priors = priors
        self.unlabeled = unlabeled
        self.invariances = invariances
        self.task = task
        self.new_tasks = new_tasks
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, tasks: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : frame or array-like of shape (n, p)
            Inputs, with the task column if `task` names one.
        y : array-like of shape (n,)
            Class labels; the value of `unlabeled` for rows without one.
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
        self.classes_, y_codes = encode_classes(y, labeled, self.unlabeled)
        n_tasks = 1 if self.tasks_ is None else len(self.tasks_)
        self._fit_rows(LocalRows(X, y_codes, codes, n_tasks), given)
        return self

    def _fit_rows(self, rows: LocalRows, given: tuple[Any, Any, Any]) -> None:
        """Learn from rows whose targets are codes of `classes_` (-1 without a label).

        `given` is for callbacks.
        """
        counts = rows.counts(len(self.classes_))
        missing = int(sum(rows.sizes) - counts.sum())
        if self.noise in ("logit", "robust") and missing:
            raise ValueError(
                f"noise={self.noise!r} needs a label in every row, and {missing} have none. Use "
                "noise='probit', or leave those rows out."
            )
        if self._is_local():
            self._fit_local(rows, given, counts)
            return
        if self.noise in ("logit", "robust"):
            raise ValueError(
                f"noise={self.noise!r} needs posterior='local', without invariances; this fit has "
                f"posterior={self.posterior!r}."
            )
        uncoupled = self._why_uncoupled(rows)
        invariances = check_invariances(self.invariances)
        settings = self._settings(
            rows.sizes,
            propagate=self.sites == "ep",
            uncoupled=uncoupled,
            **self._inner_jobs(),
        )
        streams = generator_from(self.random_state).spawn(self._n_models)
        jobs = [
            BinaryProblem(self._parameters(rows, counts, c), rows, ClassSigns(c), stream, invariances)
            for c, stream in zip(self._positives(), streams, strict=True)
        ]
        most = most_stages(settings) if self._n_models == 1 else self._n_models
        progress = self._begin_progress(*given, most)
        with threads_for(rows.sizes):
            models = fit_binary_problems(jobs, settings, progress, self.n_jobs)
        self._store(models)
        for model in self._models:
            self._warn_about(model)
        progress.end(fitted=True)

    def _fit_local(self, rows: Any, given: tuple[Any, Any, Any], counts: IntArray) -> None:
        """Fit the model of blocks and a basis, one for each binary problem."""
        *streams, last = generator_from(self.random_state).spawn(self._n_models + 1)
        progress = self._begin_progress(
            *given, LEARNING.most_reports if self._n_models == 1 else self._n_models
        )
        unlabelled = bool(counts.sum() < len(rows.y))
        all_rows = rows
        if unlabelled:
            rows = LocalRows(rows.X, rows.y, rows.codes, rows.n_tasks, keep=rows.y >= 0)
        jobs = []
        for k, (positive, stream) in enumerate(zip(self._positives(), streams, strict=True)):
            share = (counts[positive] + 1.0) / (counts.sum() + 2.0)
            noise: Any = Probit() if self.noise == "null_category" else noise_from_name(self.noise)
            noise = replace(noise, bias=float(ndtri(share)))
            usual = tuple(name for name in noise.transforms if name not in ("bias", "slope"))
            if self.kernel is not None:
                usual = ("bias", *usual)  # the default kernel has a constant
            learn = self._names_to_learn(noise, usual, unlabelled=unlabelled)
            of_noise = {n: LogNormal(*noise.priors[n]) for n in learn if n in getattr(noise, "priors", {})}
            kernel = None if self.kernel is None else self._start_kernel(lambda: None, k, self._n_models)
            y = ClassSigns(positive)(rows.y, 0)
            likelihood = PropagatedNoise(noise, learn, of_noise)
            jobs.append((self, rows, y, likelihood, noise, stream, kernel, self.priors))
        with threads_for(rows.sizes):
            fit = partial(fit_local_rows, widths=LINKED_PRIORS, warn=not unlabelled)
            models = fit_each(fit, jobs, LEARNING.most_reports, progress, self.n_jobs)
            if unlabelled:
                models = UnlabelledRows(self, all_rows, models, last).fit()
        self._store(models)
        for model in self._models:
            self._warn_about(model)
        progress.end(fitted=True)

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
        X : frame or array-like of shape (n, p)
            Inputs.
        tasks : array-like of shape (n,), default=None
            Task of each row, if the model was fitted with tasks and names no column for them.

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

    def add_task(self, X: Any, y: Any, task: Any) -> Self:
        """Add one more task, from few rows. The kernel and the noise stay as they are.

        Parameters
        ----------
        X : frame or array-like of shape (m, p)
            Its rows, with or without the task column. None or no rows: the task is predicted from
            the prior.
        y : array-like of shape (m,)
            Its labels, of classes seen in `fit`; they may be all the same.
        task : str, int or bool
            Its name.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        with ExitStack() as stack:
            X, names = self._rows_of_new_task(X, task)
            stack.enter_context(threads_for([len(X)]))
            y_codes = self._known_classes(y, len(X))
            kept = self._kept(y_codes)
            X, y_codes = X[kept], y_codes[kept]
            settings = self._settings_for_new_task(len(X), propagate=self.sites == "ep")
            seed = int(generator_from(self.random_state).integers(2**31))
            blocks = [
                Block(X, signs, model.noise)
                for model, signs in zip(self._models, self._signs(y_codes), strict=True)
            ]
            models = [
                model.add_task(block, settings, seed)
                for model, block in zip(self._models, blocks, strict=True)
            ]
            before = [m.log_evidence for m in self._models]
            if len(blocks) > 1 and np.any(y_codes < 0) and isinstance(models[0], LocalModel):
                models = add_unlabelled_task(self._models, models, y_codes)
            if invariances := check_invariances(self.invariances):
                models = [
                    add_virtual_vectors_to_last(model, block, invariances, settings, seed, evidence)
                    for model, block, evidence in zip(models, blocks, before, strict=True)
                ]
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
        tasks : array-like of shape (n,), default=None
            Task of each row, if the model was fitted with tasks and names no column for them.
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
        kept = self._kept(y_codes)
        rows = [r[kept[r]] for r in blocks_of_rows(codes, self._models[0].n_tasks)]
        filled = {t: r for t, r in enumerate(rows) if len(r)}
        models = []
        with threads_for(map(len, rows)):
            for model, signs in zip(self._models, self._signs(y_codes), strict=True):
                blocks = {t: Block(X[r], signs[r], model.noise) for t, r in filled.items()}
                models.append(model.absorb(blocks, filled, len(X)))
        self._store(models)
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

    @property
    def _n_models(self) -> int:
        return 1 if len(self.classes_) == 2 else len(self.classes_)

    def _inner_jobs(self) -> dict:
        return {"n_jobs": self.n_jobs if self._n_models == 1 else None}

    def _signs(self, y_codes: IntArray) -> list[FloatArray]:
        """Targets -1 / +1 of every binary problem, 0 in unlabeled rows."""
        return [ClassSigns(c)(y_codes, 0) for c in self._positives()]

    def _positives(self) -> range:
        """The class that is +1 in every binary problem."""
        return range(1, 2) if len(self.classes_) == 2 else range(len(self.classes_))

    def _parameters(self, rows: LocalRows, counts: IntArray, positive: int) -> Parameters:
        n_labeled = int(counts.sum())
        missing = 1.0 - n_labeled / sum(rows.sizes)
        bias = float(ndtri((counts[positive] + 1.0) / (n_labeled + 2.0)))
        noise: Any
        if missing > 0.0:
            kernel = self._start_kernel(lambda: null_category_kernel(rows.X), positive, self._n_models)
            own_priors = variance_priors(kernel)
            noise = NullCategory(bias, missing, missing, variance=_SOFT_STEP)
            usual: tuple[str, ...] = ("bias",)
        else:
            kernel = self._start_kernel(
                lambda: self._default_kernel(rows, offset=True), positive, self._n_models
            )
            own_priors = {} if self.kernel is not None else class_priors(kernel)
            noise = Probit(bias)
            # Sites held, the evidence of active points cannot tell how steep the noise is: LPJ05 3.4 can.
            usual = ("bias", "slope")
        priors = own_priors if self.priors is None else self.priors
        return self._check_priors(Parameters(kernel, noise, self._names_to_learn(noise, usual), priors))

    def _names_to_learn(
        self, noise: Any, usual: tuple[str, ...], *, unlabelled: bool = False
    ) -> tuple[str, ...]:
        """Parameters of the noise to learn; with unlabelled rows those of the null category may be named."""
        if isinstance(self.learn_noise, bool | np.bool_):
            return usual if self.learn_noise else ()
        known = NullCategory() if unlabelled else noise
        names = tuple(self.learn_noise)
        unknown = [name for name in names if name not in known.parameters]
        if unknown:
            raise ValueError(
                f"learn_noise has {unknown}, but {type(known).__name__} has the parameters "
                f"{list(known.parameters)}. Name some of those, or give True or False."
            )
        return tuple(name for name in names if name in noise.parameters)

    def _latent(self, X: Any, tasks: Any) -> list[tuple[Any, FloatArray, FloatArray]]:
        check_is_fitted(self)
        X, _, codes = self._resolve(X, tasks, reset=False)
        with threads_for(np.bincount(codes)):
            return [(model, *model.predict(X, codes)) for model in self._models]

    def _log_probabilities(self, X: Any, tasks: Any) -> tuple[FloatArray, FloatArray]:
        """log p and log (1 - p) of every binary problem, (n, number of problems)."""
        parts = [model.noise.class_log_prob(mean, var) for model, mean, var in self._latent(X, tasks)]
        log_q, log_p = zip(*parts, strict=True)
        return np.column_stack(log_p), np.column_stack(log_q)

    def _kept(self, y_codes: IntArray) -> Any:
        """Mask of the rows to learn from: all, or the labelled ones where the others do not help."""
        return (y_codes >= 0) | isinstance(self._models[0].noise, NullCategory)

    def _known_classes(self, y: Any, n_rows: int) -> IntArray:
        if n_rows == 0:
            return np.zeros(0, dtype=np.intp)
        y = check_class_target(y, n_rows)
        labeled = split_unlabeled(y, self.unlabeled)
        null_category = isinstance(self._models[0].noise, NullCategory)
        left_out = any(made.what == "unlabelled rows" for made in self.decisions_)
        if not labeled.all() and not null_category and not left_out:
            raise LabelError(
                f"y has {np.sum(~labeled)} unlabeled rows (unlabeled={self.unlabeled!r}), but fit had none, "
                "so the model has no null category. Fit again with unlabeled rows."
            )
        codes = np.full(n_rows, -1)
        y = y[labeled]
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise LabelError(
                f"y has classes that fit did not see: {unknown.tolist()}. Known classes: "
                f"{self.classes_.tolist()}. Fit again with rows of the new ones."
            )
        codes[labeled] = np.searchsorted(self.classes_, y)
        return codes

    def _store(self, fitted: list[Any]) -> None:
        super()._store(fitted)
        self.n_silent_ = sum(m.n_silent for m in fitted)
