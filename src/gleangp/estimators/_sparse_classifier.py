"""`SparseGPClassifier`, and `LabelsMixin`: what it shares with `SparseGPOrdinal`."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator

from gleangp._compat import StrOptions, fit_context
from gleangp._state import check_arrays
from gleangp._typing import FloatArray, IntArray
from gleangp.data.labels import encode_classes, lookup_classes
from gleangp.estimators._base import TaskClassifierMixin
from gleangp.estimators._parameters import SELECTOR, generator_from, given, parameters
from gleangp.estimators._sparse import FittedModel, Problem, SparseGPMixin, rows_to_learn
from gleangp.exceptions import LabelError
from gleangp.inference.block import Block
from gleangp.models.default_kernel import class_priors, default_kernel, null_category_kernel, variance_priors
from gleangp.models.defaults import LINKED_PRIORS, START_KERNEL, UNLABELLED
from gleangp.models.local.answers import independence_of_classes
from gleangp.models.local.data import Data, choose_basis_of
from gleangp.models.local.model import LocalModel
from gleangp.models.local.unlabelled import UnlabelledRows, add_unlabelled_task, signs_of
from gleangp.models.objective import Likelihood
from gleangp.models.parameters import Parameters
from gleangp.noise import NullCategory, Probit, noise_from_name
from gleangp.noise.classes import (
    N_POWERS,
    TwoClasses,
    averaged_over_powers,
    class_log_probabilities,
    log_mean,
    mean_margin,
)
from gleangp.numerics.parallel import on_one_thread
from gleangp.progress import Given


@parameters
class LabelsMixin(SparseGPMixin, TaskClassifierMixin):
    """For an estimator of classes, or of ordered categories.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel, default=None
        Of the latent function, over the inputs as they are. None: the model of `SparseGPRegressor`. Of more
        than two classes, a `CompoundKernel` has one for each of them, such as the `kernel_` of another fit.
    selector : {"residual", "entropy", "information", "random", "graph"} or object, default=None
        How points are selected. None: `ResidualSelector(weight="variance")`, on which wrong labels have no
        effect; "entropy" for `posterior="active"`.
    sites : {"adf", "ep"}, default="adf"
        For `posterior="active"`: sites from filtering alone, or refined by expectation propagation.
    """

    selector: Any = given([*SELECTOR, None], default=None)
    sites: str = given([StrOptions({"adf", "ep"})], default="adf")
    learn_noise: Any = given(["boolean", "array-like"], default=True)
    unlabeled: Any = given("no_validation", default=None)

    @abstractmethod
    def _fit_classes(self, X: FloatArray, y_codes: IntArray, codes: IntArray, given: Given) -> None:
        """Fit rows of which `y_codes` are the numbers of the classes; -1 without a label."""

    @abstractmethod
    def _targets(self, y_codes: IntArray) -> list[FloatArray]:
        """Targets of every model, in the coding of its noise."""

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, tasks: Any = None) -> Self:
        """Fit the model."""
        given = X, y, tasks
        X, codes = self._learn_inputs(X, tasks)
        self.classes_, y_codes = self._encode(y, len(X))
        self._fit_classes(X, y_codes, codes, given)
        return self

    def add_task(self, X: Any, y: Any, task: Any) -> Self:
        """Add one more task, from few rows. The kernel and the noise stay as they are."""
        X = self._rows_of_new_task(X, task)
        y_codes, kept = self._known_classes(y, len(X))
        X, y_codes = X[kept], y_codes[kept]
        before: list[Any] = self._fitted_models
        pairs = zip(before, self._targets(y_codes), strict=True)
        models: list[Any] = self._add_blocks([Block(X, y, m.noise) for m, y in pairs])
        if len(models) > 1 and isinstance(models[0], LocalModel) and np.any(y_codes < 0):
            with on_one_thread():
                models = add_unlabelled_task(before, models, y_codes)
        self._store(models)
        return self

    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any, tasks: Any = None, classes: Any = None) -> Self:
        """Update the model with new rows of known tasks; on a new estimator, `fit`.

        The kernel and the noise stay as they are.

        Parameters
        ----------
        classes : array-like, default=None
            All classes. The first call must contain rows of each of them.
        """
        if not hasattr(self, "classes_"):
            missing = np.setdiff1d([] if classes is None else np.asarray(classes), np.asarray(y))
            if len(missing):
                raise LabelError(
                    f"the first call of partial_fit has no row of the classes {missing.tolist()}. "
                    "The kernel is learnt from it, so give it rows of every class."
                )
            return self.fit(X, y, tasks)
        X, codes = self._encode_inputs(X, tasks, learn=True)
        y_codes, kept = self._known_classes(y, len(X))
        self._absorb(X, codes, kept, self._targets(y_codes), [m.noise for m in self._fitted_models])
        return self

    def _at_draws(self, X: Any, tasks: Any, given: Callable[..., Any]) -> list[list[Any]]:
        """Of every model, `given(noise, mean, var)` where f ~ N(mean, var), at each of its draws."""
        X, codes = self._encode_inputs(X, tasks)
        with on_one_thread():
            return [
                [given(model.noise, *part[:2]) for part in model.predict_each(X, codes)]
                for model in self._fitted_models
            ]

    def _encode(self, y: Any, n_rows: int) -> tuple[np.ndarray, IntArray]:
        """The classes, and the number of the class of each row (-1 without a label)."""
        return encode_classes(y, n_rows, self.unlabeled)

    def _known_classes(self, y: Any, n_rows: int) -> tuple[IntArray, np.ndarray]:
        """Numbers of the classes of new rows, and mask of those to learn from."""
        y_codes = lookup_classes(self.classes_, y, n_rows, self.unlabeled)
        return y_codes, y_codes >= 0

    def _names_to_learn(self, noise: Any, usual: tuple[str, ...], known: Any = None) -> tuple[str, ...]:
        """Parameters of the noise to learn: `usual`, or those that were named, which `known` noise has."""
        if isinstance(self.learn_noise, bool | np.bool_):
            return usual if self.learn_noise else ()
        known = noise if known is None else known
        unknown = [name for name in self.learn_noise if name not in known.parameters]
        if unknown:
            raise ValueError(
                f"learn_noise has {unknown}, but {type(known).__name__} has the parameters "
                f"{list(known.parameters)}. Name some of those, or give True or False."
            )
        return tuple(name for name in self.learn_noise if name in noise.parameters)


@parameters
class SparseGPClassifier(LabelsMixin, BaseEstimator):
    """Gaussian-process classification for one task or many related ones.

    Parameters
    ----------
    noise : {"probit", "logit", "robust", "null_category"}, default="probit"
        Distribution of the labels given the latent function. "robust" is a probit with a learnt share of
        flipped labels. "logit" and "robust" need `posterior="local"` and a label in every row.
        "null_category" always uses the rows without a label; "probit" uses them only if they help.
    learn_noise : bool or sequence of str, default=True
        Whether to learn the parameters of the noise model, or the names of those to learn, such as
        ("bias", "gamma_minus", "gamma_plus"). The slope of the probit is learnt for "active" only; otherwise
        the variance of the kernel has the same effect.
    unlabeled : object, default=None
        The label of rows that have none (-1 in scikit-learn's semi-supervised estimators). None: every label
        is a class. See Notes.
    n_jobs : int, default=None
        Processes for the classes, or for the selection of many tasks.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        Class labels.
    kernel_, noise_ : Kernel, object of gleangp.noise
        As learnt; with more than two classes a `CompoundKernel`, and a list, of one per class.
    n_silent_ : int
        Number of rows without a label that have no influence, because they could belong to either side: of
        all rows, or of the active points for "active"; the sum over classes.

    See Also
    --------
    SparseGPRegressor : The same for numbers.
    SparseGPOrdinal : The same for ordered categories.

    Notes
    -----
    More than two classes are learnt one against the rest, in parallel with `n_jobs`. Their probabilities are
    proportional to p / (1 - p)^t. With t = 1 they are those of independent detectors, given that exactly one
    is positive; with t = 0 every p already is the probability of its class, as where classes overlap. The t
    between them under which left-out labels are most probable is taken; it is 1 for `posterior="active"` and
    with rows without a label. A task may have rows of one class only. Up to 300 labelled rows,
    probabilities are means over draws of the hyperparameters from their posterior.

    Rows without a label use the null-category noise model (LPJ05, section 4): a region between the classes,
    of width one in the latent function, contains no rows. An unlabelled row therefore moves the boundary to
    where rows are rare. This helps if classes are clusters, and increases the error otherwise. So labels are
    held out in turn and predicted in three ways: from the labelled rows alone, from all rows under the kernel
    that was given (None: its length scale is the distance of neighbours), and from all rows under the kernel
    of the labelled ones. The highest mean log probability decides; `decisions_` has the numbers.

    The null category makes probabilities too certain where classes overlap. They are therefore averaged over
    powers of them between 0 and 1, each weighted by how probable it makes the labels that were held out. With
    `posterior="active"` all rows are used, and probabilities are those of the null category.

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
    >>> model.predict([[-2.0], [2.0]]).tolist(), bool(model.score(X, y) > 0.95)
    (['cold', 'warm'], True)
    >>> model.predict_proba([[2.0]]).shape, bool(model.decision_function([[2.0]])[0] > 0.0)
    ((1, 2), True)

    Several tasks, more rows of a known task, and one more task:

    >>> model = SparseGPClassifier(random_state=0).fit(X, y, tasks=np.tile(["a", "b"], 20))
    >>> model = model.partial_fit([[3.5]], ["warm"], tasks=["b"])
    >>> model.add_task([[-1.0], [1.0]], ["cold", "warm"], task="c").tasks_.tolist()
    ['a', 'b', 'c']
    """

    noise: str = given([StrOptions({"probit", "logit", "robust", "null_category"})], default="probit")

    _most_active = START_KERNEL.most_points_of_classes
    _one_per_class = True
    _fitted_parts = ("_models", "classes_")
    _kind_of_noise = TwoClasses

    def predict_proba(self, X: Any, tasks: Any = None) -> FloatArray:
        """Probability of every class."""
        several = self._at_draws(X, tasks, lambda noise, *f: noise.class_log_prob(*f))
        log_p = class_log_probabilities(list(map(log_mean, several)), self._independence)
        return averaged_over_powers(log_p, self._weights) if len(self._weights) else np.exp(log_p)

    def decision_function(self, X: Any, tasks: Any = None) -> FloatArray:
        """Mean of the latent function, divided by its predictive standard deviation.

        Where predictions average over draws, it is the normal quantile of the mean probability.
        """
        several = self._at_draws(X, tasks, lambda noise, *f: noise.margin(*f))
        margins = [mean_margin(each) for each in several]
        return margins[0] if len(self.classes_) == 2 else np.column_stack(margins)

    @property
    def _n_models(self) -> int:
        """One for two classes, else one for each class against the rest."""
        return 1 if len(self.classes_) == 2 else len(self.classes_)

    def _targets(self, y_codes: IntArray) -> list[FloatArray]:
        return signs_of(y_codes, self._n_models)

    def _fit_classes(self, X: FloatArray, y_codes: IntArray, codes: IntArray, given: Given) -> None:
        counts = np.bincount(y_codes[y_codes >= 0], minlength=len(self.classes_))
        n_unlabeled, n_models = len(y_codes) - int(counts.sum()), self._n_models
        self._check_noise(n_unlabeled)
        *streams, last = generator_from(self.random_state).spawn(n_models + 1)
        at = rows_to_learn(X, y_codes, codes, (y_codes >= 0) | self._is_active)
        data = Data(X[at], y_codes[at].astype(np.float64), codes[at], self._n_tasks, None)
        start_of = self._active_start if self._is_active else self._local_start
        problems = []
        for k, (signs, rng) in enumerate(zip(self._targets(y_codes[at]), streams, strict=True)):
            kernel = self._given_kernel(k, n_models)
            # The latent function starts where the share of a class is its probability.
            bias = float(ndtri((counts[k if n_models > 1 else 1] + 1.0) / (counts.sum() + 2.0)))
            noise, start = start_of(data, kernel, bias, n_unlabeled)
            of_class = replace(data, y=signs, noise=noise)
            problems.append(Problem(of_class, at, len(X), rng, start, kernel, LINKED_PRIORS))

        every = Data(X, y_codes.astype(np.float64), codes, self._n_tasks, None)
        then, self._weights = partial(self._with_unlabelled, every, last), np.zeros(0)
        self._fit(problems, given, then if n_unlabeled and not self._is_active else list)
        labelled = [m for m in self._models if isinstance(m, LocalModel) and m.targets]
        self._independence = 1.0
        if len(labelled) > 1:
            self._independence = independence_of_classes(labelled)

    def _active_start(
        self, data: Data, kernel: Any, bias: float, n_unlabeled: int
    ) -> tuple[NullCategory | Probit, Parameters]:
        """Noise, and where the model of active points starts."""
        noise: Any
        usual: tuple[str, ...]
        if n_unlabeled:
            missing = 1.0 - (len(data) - n_unlabeled) / len(data)
            noise, usual = NullCategory(bias, missing, missing, variance=UNLABELLED.soft), ("bias",)
            kernel = kernel or null_category_kernel(data.X)
            own_priors = variance_priors(kernel)
        else:
            # Sites held, the evidence of active points cannot tell how steep the noise is: LPJ05 3.4 can.
            noise, usual = Probit(bias), ("bias", "slope")
            own_priors = {}
            if kernel is None:
                kernel = default_kernel(data.X, offset=True)
                own_priors = class_priors(kernel)
        priors = own_priors if self.priors is None else self.priors
        return noise, Parameters(kernel, noise, self._names_to_learn(noise, usual), priors)

    def _local_start(self, data: Data, kernel: Any, bias: float, n_unlabeled: int) -> tuple[Any, Likelihood]:
        """Noise, and where the model of blocks and a basis starts."""
        noise: Any = Probit() if self.noise == "null_category" else noise_from_name(self.noise)
        noise = replace(noise, bias=bias)
        usual = tuple(name for name in noise.transforms if name not in ("bias", "slope"))
        if kernel is not None:
            usual = ("bias", *usual)  # the default kernel has a constant
        learn = self._names_to_learn(noise, usual, NullCategory() if n_unlabeled else noise)
        return noise, Likelihood(noise, learn)

    def _with_unlabelled(self, every: Data, rng: np.random.Generator, models: list[Any]) -> list[Any]:
        """Models of all rows, if those without a label help."""
        n, names = self._n_models, self.learn_noise
        kernels = None if self.kernel is None else [self._given_kernel(k, n) for k in range(n)]
        rows = UnlabelledRows(
            replace(every, noise=models[0].noise),
            models,
            rng,
            kernels=kernels,
            coupling=self.coupling,
            always=self.noise == "null_category",
            learnt=kernels is None or self.optimizer is not None,
            noise_names=() if isinstance(names, bool | np.bool_) else tuple(n for n in names if n != "bias"),
            n_basis=self._count_active(len(every)),
            choose_basis=choose_basis_of(self._chosen_selector()),
        )
        models = rows.fit()
        self._weights = rows.weights
        return models

    def _check_noise(self, n_unlabeled: int) -> None:
        """Raise if the noise that was asked for does not go with the rows or the posterior."""
        if self.noise not in ("logit", "robust"):
            return
        if n_unlabeled:
            raise ValueError(
                f"noise={self.noise!r} needs a label in every row, and {n_unlabeled} have none. Use "
                "noise='probit', or leave those rows out."
            )
        if self._is_active:
            raise ValueError(
                f"noise={self.noise!r} needs posterior='local', without invariances; this fit has "
                f"posterior={self.posterior!r}."
            )

    def _known_classes(self, y: Any, n_rows: int) -> tuple[IntArray, np.ndarray]:
        codes, labeled = super()._known_classes(y, n_rows)
        if isinstance(self._models[0].noise, NullCategory):
            return codes, np.ones(n_rows, dtype=bool)
        n_unlabeled, left_out = int(np.sum(~labeled)), "unlabelled rows" in [d.what for d in self.decisions_]
        if n_unlabeled and not left_out:
            raise LabelError(
                f"y has {n_unlabeled} unlabeled rows (unlabeled={self.unlabeled!r}), but fit had none, "
                "so the model has no null category. Fit again with unlabeled rows."
            )
        return codes, labeled

    def _check_parts(self, n_inputs: int) -> None:
        if len(self._models) != self._n_models:
            raise ValueError(f"{len(self._models)} models for {len(self.classes_)} classes.")
        self._independence = getattr(self, "_independence", 1.0)  # older files have none
        if not (isinstance(self._independence, float) and 0.0 <= self._independence <= 1.0):
            raise ValueError(f"_independence={self._independence!r}.")
        self._weights = getattr(self, "_weights", np.zeros(0))  # of older files too
        if len(self._weights) not in (0, N_POWERS):
            raise ValueError(f"{len(self._weights)} weights of powers.")
        check_arrays(self, _weights="k >=0")
        super()._check_parts(n_inputs)

    def _store(self, models: list[FittedModel]) -> None:
        super()._store(models)
        self.n_silent_ = sum(m.n_silent for m in models)
