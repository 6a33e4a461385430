"""`SparseGPRegressor`: regression for one task or many, with a choice of noise models."""

from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gleangp._compat import HasMethods, StrOptions, fit_context
from gleangp._typing import FloatArray, IntArray
from gleangp.data.labels import check_regression_target
from gleangp.data.tasks import blocks_of_rows, stack_outputs
from gleangp.estimators._observations import Latent, ObservationsMixin, check_fields, check_rows
from gleangp.estimators._parameters import POSITIVE, generator_from, given, parameters
from gleangp.estimators._sparse import Problem, SparseGPMixin, rows_to_learn
from gleangp.exceptions import LabelError, TaskError
from gleangp.inference.block import Block
from gleangp.kernels import has_white
from gleangp.models.default_kernel import default_kernel, default_priors, noise_prior, task_priors
from gleangp.models.defaults import LINKED_PRIORS, PRIORS, START_KERNEL, UNITS
from gleangp.models.local.answers import left_out_predictions
from gleangp.models.local.data import Data, exact_copies, rounding_variance
from gleangp.models.local.model import LocalModel
from gleangp.models.objective import Likelihood
from gleangp.models.parameters import Parameters
from gleangp.models.units import natural_units, own_units, standard_units, total_units
from gleangp.noise import Gaussian, noise_from_name
from gleangp.numerics.parallel import on_one_thread

_NOISES = {"gaussian", "outliers", "student", "poisson", "negative_binomial", "binomial", "gamma"}


@parameters
class SparseGPRegressor(SparseGPMixin, ObservationsMixin, BaseEstimator):
    """Gaussian-process regression for one task or many related ones.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel, default=None
        Covariance function of the inputs, which are then used as they are. None: the hierarchical model of
        the Notes, with a learnt warping of the inputs.
    selector : {"residual", "entropy", "information", "random", "graph"} or object, default="residual"
        How basis points are selected. "residual" samples rows with the variance that is still unexplained.
        "entropy" prefers the periphery if there are many features. "random" misses small clusters.
    noise : {"gaussian", "outliers", "poisson", "negative_binomial", "binomial", "gamma"} or object, \
            default="gaussian"
        Distribution of the targets given the function, by name or as an object of `gleangp.noise`. With
        "outliers", a learnt share of the rows are wrong measurements, and intervals are those of the other
        rows. The link is logarithmic for "poisson", "negative_binomial" and "gamma", and the logit for
        "binomial". All but "gaussian" need `posterior="local"`.
    normalize_y : bool, default=True
        Standardise the targets before the fit. Kernel and noise parameters are then in units of the
        standardised target. No effect on counts and on "gamma".
    noise_variance : float or array-like of shape (n,), default=None
        Variance of Gaussian noise, in the units of the kernel: one number, or one for every row. None:
        learnt, with several tasks for each of them; if the kernel has a `WhiteKernel`, that is the noise.

    Attributes
    ----------
    noise_ : object of gleangp.noise
        The fitted noise model, in units of the standardised target.
    variance_shares_ : dict
        Shares of the variance of the targets: "common", "task" and "noise"; with several tasks also
        "intraclass_correlation".

    See Also
    --------
    SparseGPClassifier : The same for classes.
    HierarchicalGPRegressor : A kernel of its own for every task.

    Notes
    -----
    The default model of several tasks is

        y = m + g(w) + o_t + s_t' w + h_t(w) + noise_t,

    with a common function g (linear and smooth), offsets o_t, slopes s_t, own functions h_t and noise of each
    task, on inputs w that are warped by a learnt monotone function of each numeric column. All sizes and
    length scales have proper priors. With one task it is m + g(w) + noise. Up to 1000 rows (300 with
    outliers), predictions average over draws of the hyperparameters from their posterior; with counts and
    "gamma" they do not. The posterior is exact up to 2000 rows. With more, the time of learning does not
    depend on the number of rows, and that of the posterior is linear in it. Rows whose target is NaN are left
    out.

    References
    ----------
    Lawrence & Platt 2004; Lawrence, Platt & Jordan 2005; Snelson & Ghahramani 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from gleangp import SparseGPRegressor
    >>> X = np.linspace(0, 6, 50)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.cos(37 * X[:, 0])
    >>> model = SparseGPRegressor(random_state=0).fit(X, y)
    >>> mean, std = model.predict([[1.0]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.0)) < 0.1), bool(model.score(X, y) > 0.9)
    (True, True)

    A new observation, noise included, draws of the function, and every row predicted from all others:

    >>> low, high = model.predict_interval([[1.0]])[0]
    >>> bool(low < np.sin(1.0) < high)
    True
    >>> model.predict_quantiles([[1.0]], [0.1, 0.9]).shape, model.sample_y([[1.0]], 3).shape
    ((1, 2), (1, 3))
    >>> model.predict_cdf([[1.0], [1.0]], [0.0, 2.0]).round(3).tolist()
    [0.0, 1.0]
    >>> mean, std = model.leave_one_out()
    >>> float(np.mean(np.abs(y - mean) < 1.96 * std)) > 0.85, model.log_density(X, y) > 0.5
    (True, True)

    Several tasks, more rows of a known task, and one more task:

    >>> model = SparseGPRegressor(random_state=0).fit(X, y, tasks=np.repeat(["a", "b"], 25))
    >>> model = model.partial_fit([[6.5]], [np.sin(6.5)], tasks=["b"])
    >>> model = model.add_task([[1.0], [4.0]], np.sin([1.0, 4.0]), task="c")
    >>> model.tasks_.tolist()
    ['a', 'b', 'c']
    """

    noise: Any = given([StrOptions(_NOISES), HasMethods(["log_partition"])], default="gaussian")
    normalize_y: bool = given(["boolean"], default=True)
    noise_variance: Any = given([POSITIVE, "array-like", None], default=None)

    _fitted_parts = ("_model", "_units")
    _former_parameters = ("move_basis",)  # of version 0.1

    @fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: Any,
        y: Any,
        tasks: Any = None,
        sample_weight: Any = None,
        exposure: Any = None,
        trials: Any = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        y : array-like of shape (n,) or (n, q)
            Targets; NaN if a target is missing. Several columns are q outputs of every row, learnt as coupled
            tasks, each in its own units.
        sample_weight : array-like of shape (n,), default=None
            For Gaussian noise. The noise variance of a row is divided by its weight w, as for the mean of w
            rows. Rows of weight zero are left out.
        exposure, trials : array-like of shape (n,), default=None
            For counts: the factor of the rate, such as time or area, and the trials of "binomial". None: 1.
        """
        given = X, y, tasks
        shape = np.shape(y) if hasattr(y, "shape") else np.array(y, dtype=object).shape
        self._n_outputs = shape[1] if len(shape) == 2 and shape[1] > 1 else 0  # 0: one target per row
        X, codes = self._learn_inputs(X, tasks, target=None if self._n_outputs else y)
        if self._n_outputs:
            if self.tasks_ is not None:
                raise TaskError(
                    f"y has shape {shape}, and there are tasks too. Give one target per row with "
                    "tasks, or several outputs without. To have both, name a task for each pair."
                )
            n_rows = len(X)
            X, _, names = stack_outputs(X, y)
            self.tasks_, codes = names[::n_rows], np.repeat(np.arange(self._n_outputs), n_rows)
        y = self._check_targets(y, len(X), None)
        labeled = ~np.isnan(y)
        fields = self._row_fields(len(X), sample_weight=sample_weight, exposure=exposure, trials=trials)
        if "sample_weight" in fields:
            heard = fields["sample_weight"] > 0.0
            labeled, fields["sample_weight"] = labeled & heard, np.where(heard, fields["sample_weight"], 1.0)
        self._n_rows = len(X)
        rows, at = Data(X, y, codes, self._n_tasks, Gaussian()), rows_to_learn(X, y, codes, labeled)
        problem_of = self._active_problem if self._is_active else self._local_problem
        self._fit([problem_of(rows, at, fields)], given)
        return self

    def add_task(self, X: Any, y: Any, task: Any, exposure: Any = None, trials: Any = None) -> Self:
        """Add one more task, from few rows. The kernel and the noise stay as they are."""
        X = self._rows_of_new_task(X, task)
        y = check_regression_target(y, len(X))
        labeled, noise = ~np.isnan(y), self.noise_
        if labeled.any():
            noise = self._noise_of_new_rows(len(y), exposure, trials)
            check_rows(noise, y, labeled)
        self._units = self._units.with_task(y[labeled])
        y = self._units.to_standard(y, np.full(len(y), self._n_tasks - 1))
        self._store(self._add_blocks([Block(X[labeled], y[labeled], noise.at(labeled))]))
        return self

    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self,
        X: Any,
        y: Any,
        tasks: Any = None,
        exposure: Any = None,
        trials: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Update the model with new rows of known tasks; on a new estimator, `fit`.

        The kernel and the noise stay as they are. For Gaussian noise and up to 2000 rows the result is the
        posterior of all rows.

        Parameters
        ----------
        y : array-like of shape (n,) or (n, q)
            Their targets; rows or cells where it is NaN are left out.
        """
        if not hasattr(self, "_model"):
            return self.fit(X, y, tasks, sample_weight, exposure, trials)
        X, codes = self._encode_inputs(X, tasks, learn=True)
        y = self._check_targets(y, len(X), tasks)
        labeled = ~np.isnan(y)
        weight = self._row_fields(len(X), sample_weight=sample_weight).get("sample_weight")
        if weight is not None:
            if not (isinstance(self._model, LocalModel) and self._model.gaussian):
                raise ValueError("sample_weight= needs posterior='local' and noise='gaussian'.")
            labeled, weight = labeled & (weight > 0.0), np.where(weight > 0.0, weight, 1.0)
        noise = self._noise_of_new_rows(len(X), exposure, trials, weight)
        check_rows(noise, y, labeled)
        self._absorb(X, codes, labeled, [self._units.to_standard(y, codes)], [noise])
        return self

    def leave_one_out(self) -> tuple[FloatArray, FloatArray]:
        """Predictions of the training targets, each from all other rows, in closed form.

        Parameters are those of the fit; with noise that is not Gaussian the sites of the other rows are too.
        Rows of tasks that were added later, and rows without a target, are NaN.

        Returns
        -------
        mean, std : ndarray of shape (n,), or (n, q) of several outputs
            Of every target of `fit`, noise included.
        """
        model = self._model
        if not isinstance(model, LocalModel):
            raise ValueError("leave_one_out is for posterior='local'. Fit again with it.")
        mean, var, codes = left_out_predictions(model)
        n_rows = getattr(self, "_n_rows", int(model.row_numbers.max(initial=-1)) + 1)  # older files
        left_out = np.full((2, n_rows), np.nan)
        left_out[0, model.row_numbers] = self._units.from_standard(mean, codes)
        left_out[1, model.row_numbers] = np.sqrt(var) * self._units.scale[codes]
        mean, std = left_out.reshape(2, self._n_outputs, -1) if self._n_outputs else left_out
        return mean.T, std.T

    @property
    def variance_shares_(self) -> dict[str, float]:
        """Shares of the variance of the targets: "common", "task", "noise", "intraclass_correlation"."""
        check_is_fitted(self)
        if not isinstance(self._model, LocalModel):
            raise AttributeError(f"variance_shares_ is for posterior='local', not {self.posterior!r}.")
        return self._model.variance_shares(generator_from(0))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _outputs_asked_for(self, tasks: Any) -> int:
        return self._n_tasks if tasks is None and self._n_outputs else 0

    def _check_parts(self, n_inputs: int) -> None:
        super()._check_parts(n_inputs)
        self._n_outputs = getattr(self, "_n_outputs", 0)  # older files have none

    def _active_problem(self, rows: Data, at: IntArray, fields: dict[str, FloatArray]) -> Problem:
        """The rows `at` in standard units, and where learning from active points starts; sets the units."""
        asked = [f"{name}=" for name in fields] + [f"noise={self.noise!r}"] * (self.noise != "gaussian")
        if asked:
            raise ValueError(
                f"{asked[0]} needs posterior='local' without invariances; this fit has "
                f"posterior={self.posterior!r}."
            )
        data, several = rows.at(at), rows.n_tasks > 1
        self._units = standard_units(_parts(data)) if self.normalize_y else natural_units(rows.n_tasks)
        kernel = self._given_kernel() or default_kernel(data.X, offset=several, linear=several)
        priors = self.priors
        if priors is None:
            own = task_priors(kernel, data.X.shape[1]) if several else default_priors(kernel)
            priors = {**noise_prior(), **(own if self.kernel is None else {})}
        known = self._known_variance(len(rows))
        noise, learn = (Gaussian(UNITS.noise), ("variance",)) if known is None else (Gaussian(known), ())
        data = replace(data, y=self._units.to_standard(data.y, data.codes), noise=noise.at(at))
        start = Parameters(kernel, noise, learn, priors)
        return Problem(data, at, len(rows), generator_from(self.random_state), start)

    def _local_problem(self, rows: Data, at: IntArray, fields: dict[str, FloatArray]) -> Problem:
        """The same of blocks and a basis."""
        noise, shared, learn = self._noise_of_fit(len(rows), fields)
        check_rows(noise, rows.y, at)
        data, noise, real = rows.at(at), noise.at(at), noise.support == "real"
        bias = {"bias": noise.typical_bias(data.y)}
        likelihood = Likelihood(replace(shared, **bias), learn, sizes=data.sizes)
        if likelihood.gaussian:
            copies = exact_copies(data)
            sizes = data.at(np.flatnonzero(~copies)).sizes
            likelihood = replace(likelihood, sizes=sizes, copies=copies)
            if learn:  # in another unit of the weights the same is learnt
                usual = Gaussian(1.0 / np.median(noise.variance), **bias)
                likelihood = replace(likelihood, model=usual)
        if not (self.normalize_y and real):
            self._units = natural_units(rows.n_tasks)
        else:  # outputs are in units of their own
            self._units = (own_units if self._n_outputs else total_units)(_parts(data))
        data = replace(data, y=self._units.to_standard(data.y, data.codes), noise=replace(noise, **bias))
        if likelihood.gaussian and learn:  # gaps are those of one unit; copies repeat any target
            parts = blocks_of_rows(data.codes, data.n_tasks) if self._n_outputs else [np.arange(len(data))]
            different = [part[~likelihood.copies[part]] for part in parts]
            rounding = sum(rounding_variance(data.at(part)) for part in different)
            likelihood = replace(likelihood, rounding=rounding)
        rng, widths = generator_from(self.random_state), PRIORS if real else LINKED_PRIORS
        return Problem(data, at, len(rows), rng, likelihood, self._given_kernel(), widths)

    def _noise_of_fit(self, n_rows: int, fields: dict[str, FloatArray]) -> tuple[Any, Any, tuple[str, ...]]:
        """The noise of all rows; that of tasks, without what belongs to rows; and what of it is learnt."""
        if isinstance(self.noise, Gaussian):
            raise ValueError("noise is a Gaussian object. Use noise='gaussian' and noise_variance=.")
        if self.noise == "gaussian":
            check_fields(Gaussian(), **{**fields, "sample_weight": None})
            known = self._known_variance(n_rows)
            factor: Any = known if isinstance(known, np.ndarray) else 1.0  # of the shared variance
            shared = Gaussian(known if isinstance(known, float) else 1.0)
            learn = ("variance",) if known is None else ()
            return Gaussian(factor / fields.get("sample_weight", 1.0)), shared, learn
        model: Any = noise_from_name(self.noise) if isinstance(self.noise, str) else self.noise
        if getattr(model, "support", "label") == "label":
            raise ValueError(
                f"noise is a {type(model).__name__} object, which is not for numbers. For labels use "
                "SparseGPClassifier or SparseGPOrdinal; your own model inherits from gleangp.noise.Noise."
            )
        if self.noise_variance is not None:
            raise ValueError(f"noise_variance= is given with noise={self.noise!r}. It is for 'gaussian'.")
        check_fields(model, **fields)
        return replace(model, **fields), model, tuple(name for name in model.transforms if name != "bias")

    def _known_variance(self, n_rows: int) -> FloatArray | float | None:
        """Variance of Gaussian noise, one number or (n,) as it was given; None: it is learnt."""
        if np.ndim(self.noise_variance):
            return self._of_rows("noise_variance", self.noise_variance, n_rows)
        if self.noise_variance is None and self.kernel is not None and has_white(self.kernel):
            return START_KERNEL.no_noise
        return None if self.noise_variance is None else float(self.noise_variance)

    def _row_fields(self, n_rows: int, **given: Any) -> dict[str, FloatArray]:
        """What was given for every row, by name; not weights that are all one."""
        fields = {k: self._of_rows(k, values, n_rows) for k, values in given.items() if values is not None}
        return {k: values for k, values in fields.items() if k != "sample_weight" or (values != 1.0).any()}

    def _of_rows(self, name: str, given: Any, n_rows: int) -> FloatArray:
        """Positive numbers that were given for every row, or every cell of Y: one per encoded row."""
        values, q = np.asarray(given, dtype=np.float64), self._outputs_asked_for(None)
        if q and values.shape == (n_rows // q, q):
            values = values.ravel(order="F")
        elif q and values.shape == (n_rows // q,):
            values = np.tile(values, q)
        else_allowed = {"sample_weight": ", or zero for some of them", "noise_variance": ", or a single one"}
        allowed = np.isfinite(values) & ((values >= 0.0) if name == "sample_weight" else (values > 0.0))
        if values.shape != (n_rows,) or not allowed.all() or not values.any():
            raise LabelError(
                f"{name} has shape {values.shape} and least value {np.min(values, initial=np.inf):.3g}; one "
                f"positive number is expected for each of the {n_rows} rows{else_allowed.get(name, '')}."
            )
        return values

    def _latent(self, X: Any, tasks: Any, *, joint: bool = False, with_var: bool = True) -> Latent:
        X, codes = self._encode_inputs(X, tasks, joint=joint)
        with on_one_thread():
            if joint:
                return Latent(X, codes, *self._model.predict_cov(X, codes))
            return Latent(X, codes, *self._model.predict(X, codes, with_var=with_var))

    def _noise_of_rows(self, f: Latent, exposure: Any, trials: Any) -> Any:
        noise = self._noise_of_new_rows(len(f.X), exposure, trials)
        return self._model.noise_of_rows(f.X, f.codes, noise, f.factor)

    def _noise_of_new_rows(
        self, n_rows: int, exposure: Any, trials: Any, weight: FloatArray | None = None
    ) -> Any:
        """The noise model of rows; an exposure or trials that are not given are one."""
        check_fields(self.noise_, exposure=exposure, trials=trials)
        if not self._has_normal_noise:
            known = {name: 1.0 for name in ("exposure", "trials") if name in self.noise_.row_fields}
            return replace(self.noise_, **known | self._row_fields(n_rows, exposure=exposure, trials=trials))
        if np.ndim(self.noise_variance):
            raise ValueError(
                "noise_variance was given per training row, so the noise of new rows is not known. Fit "
                "again with the new rows; in predict, leave include_noise=False and add it yourself."
            )
        return self.noise_ if weight is None else Gaussian(self.noise_.variance / weight)


def _parts(data: Data) -> list[FloatArray]:
    """Targets of every task, sorted."""
    return [np.sort(data.y[rows]) for rows in blocks_of_rows(data.codes, data.n_tasks)]
