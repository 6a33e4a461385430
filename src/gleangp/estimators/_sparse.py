"""The common part of the sparse estimators: from parameters to models, new tasks and rows, files."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import CompoundKernel

from gleangp._typing import FloatArray, IntArray
from gleangp.data.tasks import blocks_of_rows
from gleangp.estimators._base import TaskEstimator
from gleangp.estimators._parameters import SparseParameters, generator_from
from gleangp.estimators._problems import fit_active_rows, fit_local_rows
from gleangp.estimators._progress import Given, warn_about_fit
from gleangp.exceptions import KernelError, TaskError, warn_user
from gleangp.inference.block import Block
from gleangp.invariances import check_invariances
from gleangp.models.active.learn import Settings, most_stages
from gleangp.models.active.model import SparseModel
from gleangp.models.decisions import Choice, Decision
from gleangp.models.default_kernel import default_n_active
from gleangp.models.defaults import LEARNING, START_KERNEL
from gleangp.models.local.answers import TaskTransfer, choose_informative, noise_of_labels, transfer_report
from gleangp.models.local.model import LocalModel
from gleangp.models.parameters import Parameters
from gleangp.noise import Gaussian, Noise
from gleangp.numerics.parallel import in_parallel, threads_for
from gleangp.selection.selectors import SELECTORS, ResidualSelector

FittedModel = SparseModel | LocalModel
# Attribute of an estimator -> of its model; with several models a list.
_ATTRIBUTES = {
    "noise_": "noise",
    "active_": "active",
    "active_gain_": "gain",
    "active_virtual_": "virtual",
    "site_mean_": "site_mean",
    "site_precision_": "site_precision",
    "task_correlation_": "task_correlation",
}


class SparseGPMixin(TaskEstimator, SparseParameters, ABC):
    """Models from parameters; bookkeeping of tasks; warnings. An estimator declares four attributes."""

    _most_active = START_KERNEL.most_points  # of a task, by default
    _one_per_class = False  # whether `_models` has a model for each class, or `_model` is the only one
    _of_classes = False  # whether targets are labels
    _kind_of_noise: type = Noise

    sites = "adf"  # a parameter of classifiers, as is the next
    learn_noise: Any
    noise_: Any  # set with the other `_ATTRIBUTES`
    _model: FittedModel
    _models: list[FittedModel]

    @property
    def _fitted_models(self) -> list[FittedModel]:
        return self._models if self._one_per_class else [self._model]

    @property
    def _is_active(self) -> bool:
        """Whether predictions use the active points only: `posterior="active"`, or there are invariances."""
        given = self.invariances is not None and check_invariances(self.invariances)
        return self.posterior == "active" or bool(given)

    def _fit(
        self, problems: Sequence[Any], given: Given, then: Callable[[list[Any]], list[Any]] = list
    ) -> None:
        """Fit a model to every problem; `given` are X, y and tasks, for callbacks.

        `then` makes the final models from them. Fits in other processes do not tell of their stages.
        """
        fit: Callable[..., Any]
        sizes = problems[0].data.sizes.tolist()
        if self._is_active:
            n_jobs = self.n_jobs if len(problems) == 1 else None
            settings = self._settings(sizes, uncoupled=self._why_uncoupled(len(sizes)), n_jobs=n_jobs)
            fit, most = partial(fit_active_rows, settings), most_stages(settings)
        else:
            if self.posterior == "projected":
                warn_user(
                    "posterior='projected' is gone and is taken as 'local', which is more accurate; a later "
                    "version will not accept it. Use posterior='local', or 'active' for predictions from "
                    "active points alone.",
                    FutureWarning,
                )
            n_basis = self._count_active(sum(sizes), warn=then is list)
            fit, most = partial(fit_local_rows, self, n_basis), LEARNING.most_reports
        one, models = len(problems) == 1, []
        progress = self._begin_progress(given, most if one else len(problems))
        with threads_for(sizes):
            if not one and self.n_jobs not in (None, 1):
                models = in_parallel(fit, [(problem,) for problem in problems], self.n_jobs)
                for _ in problems:
                    progress.binary_problem(0).end()
            for problem in problems[len(models) :]:
                own = progress if one else progress.binary_problem(most)
                models.append(fit(problem, progress=own))
                if not one:
                    own.end()
            models = then(models)
        self._store(models)
        for model in models:
            warn_about_fit(
                type(self).__name__,
                model,
                f"learning while the log evidence still changed by {model.last_change:.3g} in a step. Raise "
                "n_rounds, or start from a better kernel.",
                "Rows may be repeated, or length scales very long; a larger noise variance makes the model "
                "well-posed.",
            )
        progress.end(fitted=True)

    def _add_blocks(self, blocks: list[Block]) -> list[FittedModel]:
        """Models with one more task, whose rows are a block for each of them."""
        n_rows = len(blocks[0])
        settings = self._settings([n_rows], warn=False, optimize=False)
        seed = int(generator_from(self.random_state).integers(2**31))
        with threads_for([n_rows]):
            pairs = zip(self._fitted_models, blocks, strict=True)
            return [model.add_task(block, settings, seed) for model, block in pairs]

    def _absorb(
        self,
        X: FloatArray,
        codes: IntArray,
        labeled: np.ndarray,
        targets: list[FloatArray],
        noises: list[Any],
    ) -> None:
        """Take in the labelled ones of new rows; every model has targets in the coding of its noise."""
        blocks = blocks_of_rows(codes, self._fitted_models[0].n_tasks)
        rows = {t: r[labeled[r]] for t, r in enumerate(blocks) if labeled[r].any()}
        models = []
        with threads_for(map(len, rows.values())):
            for model, y, noise in zip(self._fitted_models, targets, noises, strict=True):
                new = {t: Block(X[r], y[r], noise.at(r)) for t, r in rows.items()}
                models.append(model.absorb(new, rows, len(X)))
        self._store(models)

    def _settings(self, sizes: list[int], *, warn: bool = True, **more: Any) -> Settings:
        """The settings of learning; `sizes` are the numbers of labeled rows of the tasks."""
        n_active = self._count_active(sum(sizes), warn=warn)
        if n_active is None:
            n_active = default_n_active(sizes, self._most_active)
        asked: dict[str, Any] = {"optimize": self.optimizer is not None, "n_jobs": self.n_jobs}
        asked |= {"n_rounds": self.n_rounds, "n_restarts": self.n_restarts, "propagate": self.sites == "ep"}
        asked["invariances"] = check_invariances(self.invariances)
        return Settings(self._chosen_selector(), n_active, **(asked | more))

    def _chosen_selector(self) -> Any:
        if self.selector is None:
            return SELECTORS["entropy"]() if self._is_active else ResidualSelector(weight="variance")
        return super()._chosen_selector()

    def _why_uncoupled(self, n_tasks: int) -> str:
        """Why the tasks of a fit that is not local share the kernel only; raises if `coupling` needs more."""
        if self.coupling == "kernel":
            return "as asked"
        if n_tasks == 1:
            return "with one task there is nothing to couple"
        cause = "posterior='active'" if self.posterior == "active" else "invariances are given"
        reason = f"tasks share the kernel alone, because {cause}"
        if self.coupling != "auto":
            other = ", or posterior='local'" if self.posterior == "active" else ", or no invariances"
            raise ValueError(f"coupling={self.coupling!r}, but {reason}. Use coupling='kernel'{other}.")
        return reason

    def _store(self, models: list[FittedModel]) -> None:
        """Keep the fitted models, and set the attributes that show them."""
        one = len(models) == 1
        if self._one_per_class:
            self._models = models
        else:
            (self._model,) = models
        self._n_inputs = self._count_inputs()
        for attribute, name in _ATTRIBUTES.items():
            values = [getattr(m, name) for m in models]
            setattr(self, attribute, values[0] if one else values)
        self.kernel_ = models[0].kernel if one else CompoundKernel([m.kernel for m in models])
        self.log_evidence_ = float(sum(m.log_evidence for m in models))
        self.n_rounds_ = max(m.n_rounds for m in models)
        self.selection_objective_ = models[0].selection_objective
        made = _decision_on_copies(models)
        if self.posterior != "active" and self._is_active:
            reason = "Transformed copies compete for the active set, from which alone predictions are made."
            made.insert(0, Decision("posterior", "active", {}, reason))
        self.decisions_ = [*made, *getattr(models[0], "decisions", ())]
        choices = [m.choice or Choice("kernel", {}, "as asked") for m in models]
        self.coupling_ = choices[0] if one else choices

    def _count_active(self, n_rows: int, *, warn: bool = True) -> int | None:
        """Basis or active points that were asked for; None: the default."""
        if self.n_active is None:
            return None
        if isinstance(self.n_active, Integral):
            if warn and int(self.n_active) > n_rows:
                warn_user(
                    f"n_active={self.n_active} is more than the {n_rows} labeled rows; all of them are kept.",
                    UserWarning,
                )
            return min(int(self.n_active), n_rows)
        return max(1, round(self.n_active * n_rows))

    def _check_priors(self, parameters: Parameters) -> Parameters:
        """The parameters; raises if a prior was given for another name."""
        names = [h.name for h in parameters.kernel.hyperparameters]
        self._check_prior_names([*names, *(f"noise__{name}" for name in parameters.noise.parameters)])
        return parameters

    def _check_prior_names(self, names: list[str]) -> None:
        """Raise if a prior was given for another name than these."""
        unknown = sorted(set(self.priors or ()) - set(names))
        if unknown:
            raise KernelError(
                f"priors are given for {', '.join(map(repr, unknown))}, which the model does not have. "
                f"It has {', '.join(map(repr, names))}."
            )

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

    def _check_parts(self, n_inputs: int) -> None:
        if self.posterior == "projected":  # of version 0.1
            self.posterior = "local"
        # Coupled models of version 0.1 are of another class, which knows its successor.
        models = [m.upgraded() if hasattr(m, "upgraded") else m for m in self._fitted_models]
        for model in models:
            if not isinstance(model, SparseModel | LocalModel) or model.n_tasks != self._n_tasks:
                raise ValueError(f"no fitted model for the {self._n_tasks} tasks.")
            if model.n_inputs != n_inputs or self._n_inputs != n_inputs:
                raise ValueError(f"a model of other inputs than the {n_inputs} it says.")
            if not isinstance(model.noise, self._kind_of_noise):
                raise ValueError(f"{type(model.noise).__name__} noise, which does not suit {type(self)}.")
        self._store(models)

    def suggest(self, X_pool: Any, n: int = 1, tasks: Any = None) -> np.ndarray:
        """Which rows to label next: those whose labels would reduce the uncertainty of all rows most.

        For classes, those whose labels bring most information about the latent functions. Rows are chosen
        one after the other, each given those before it, so that they do not repeat each other. The tasks of
        the first rows are those that need labels most.

        Parameters
        ----------
        X_pool : frame or array-like of shape (m, p)
            Rows that could be labelled; at most a few thousand.
        n : int, default=1
            How many to choose.
        tasks : array-like of shape (m,), default=None
            Task of each row, if the model was fitted with tasks and names no column for them.

        Returns
        -------
        ndarray of shape (n,)
            Positions in `X_pool`, the most useful first. If the model has several outputs, shape (n, 2): the
            position, and the number of the output to measure.

        Examples
        --------
        >>> import numpy as np
        >>> from gleangp import SparseGPRegressor
        >>> X = np.linspace(0, 1, 20)[:, None]
        >>> model = SparseGPRegressor(random_state=0).fit(X, np.sin(9 * X[:, 0]))
        >>> model.suggest([[0.5], [3.0], [0.2]], n=1).tolist()  # far from all rows
        [1]
        """
        if n < 1:
            raise ValueError(f"n={n}; at least one row is to be chosen.")
        X, codes = self._encode_inputs(X_pool, tasks, joint=True)
        with threads_for(np.bincount(codes)):
            cov, noise = self._uncertainty(X, codes)
        chosen = choose_informative(cov, noise, n, of_classes=self._of_classes)
        if q := self._outputs_asked_for(tasks):
            n_rows = len(X) // q
            return np.column_stack([chosen % n_rows, chosen // n_rows])
        return chosen

    def transfer_report(self) -> list[TaskTransfer]:
        """What every task gains from the others: left-out log scores with and without them.

        All scores are in closed form, under the parameters of the fit; where the noise is not Gaussian, given
        the sites of the expectation propagation. With more than two classes the scores of all classes add
        up. Names come from up to 3000 rows, evenly chosen; a task of which none is chosen has no names.

        Returns
        -------
        list of TaskTransfer
            One for each task with rows, in the order of `tasks_`: its name `task` and `n_rows`; the mean log
            score of its rows, each left out (in nats per row), `with_others` and `alone`, and the
            difference `gain`; the names of up to three tasks that it `leans_on`, whose rows move its
            predictions most; and those of them it is `better_without`, on which it should not lean.

        Examples
        --------
        >>> import numpy as np
        >>> from gleangp import SparseGPRegressor
        >>> rng = np.random.default_rng(0)
        >>> X, tasks = rng.uniform(0, 6, (60, 1)), np.repeat(np.arange(10), 6)
        >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)
        >>> report = SparseGPRegressor(random_state=0).fit(X, y, tasks=tasks).transfer_report()
        >>> len(report), report[0].gain > 0.0
        (10, True)
        """
        if self.tasks_ is None:
            raise TaskError("transfer_report is about several tasks, and the model was fitted without tasks.")
        models = [m for m in self._fitted_models if isinstance(m, LocalModel) and (m.gaussian or m.targets)]
        if not models:
            raise ValueError(
                "transfer_report is for posterior='local' and labelled rows. The file of a model that an "
                "earlier version fitted to classes, categories or counts has no targets. Fit again."
            )
        units = getattr(self, "_units", None)
        log_units = None if units is None else np.log(units.scale)
        return transfer_report(models, self.tasks_.tolist(), log_units)

    def _uncertainty(self, X: FloatArray, codes: IntArray) -> tuple[FloatArray, FloatArray]:
        """Covariance of the latent functions at rows (k, m, m) and noise of their labels (k, m)."""
        covs, noises = [], []
        for model in self._fitted_models:
            mean, cov = model.predict_cov(X, codes)
            covs.append(cov)
            noise = model.noise_of_rows(X, codes) if isinstance(model, LocalModel) else model.noise
            if not isinstance(noise, Gaussian):
                noises.append(noise_of_labels(noise, mean, cov))
            elif isinstance(model, LocalModel):
                noises.append(np.asarray(noise.variance))
            else:
                raise ValueError("suggest is for posterior='local'. Fit again with it.")
        return np.array(covs), np.array(noises)


def _decision_on_copies(models: list[Any]) -> list[Decision]:
    """Whether transformed copies help rows that are not active, where it was measured."""
    found = [s for m in models if (s := getattr(m, "virtual_scores", None)) is not None]
    if not found:
        return []
    with_copies, alone, errors = np.mean(found, axis=0)
    worse = errors * np.sqrt(len(found)) < -2.0  # of the mean over binary problems
    reason = "They were asked for. Rows that are not active are predicted "
    reason += "worse with them: rows alone may be better." if worse else "no worse with them."
    numbers = {"copies": float(with_copies), "rows alone": float(alone)}
    return [Decision("invariances", "copies", numbers, reason)]
