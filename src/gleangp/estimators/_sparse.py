"""The common part of the sparse estimators: problems and the models that are fitted to them, files."""

from abc import ABC
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.gaussian_process.kernels import CompoundKernel, Kernel
from sklearn.utils.validation import check_is_fitted

from gleangp._typing import FloatArray, IntArray
from gleangp.data.tables import feature_groups
from gleangp.data.tasks import blocks_of_rows
from gleangp.estimators._base import TaskEstimator
from gleangp.estimators._parameters import SparseParameters, check_count, generator_from
from gleangp.exceptions import KernelError, TaskError, warn_user
from gleangp.inference import evidence, local, posterior, prior
from gleangp.inference.block import Block
from gleangp.invariances import Invariance, check_invariances
from gleangp.io.classes import register
from gleangp.models import priors
from gleangp.models.active.learn import Settings, TaskBlocks
from gleangp.models.active.model import SparseModel, fit_sparse_model
from gleangp.models.decisions import Choice, Decision, decisions_on_copies
from gleangp.models.default_kernel import default_n_active
from gleangp.models.defaults import MOST_REPORTS, PRIORS, START_KERNEL, PriorWidths
from gleangp.models.local import upgrade
from gleangp.models.local.answers import TaskTransfer, choose_informative, noise_of_labels, transfer_report
from gleangp.models.local.data import Data, canonical_order, choose_basis_of
from gleangp.models.local.fit import fit_local
from gleangp.models.local.learn import plan_couplings
from gleangp.models.local.model import Draw, LocalModel
from gleangp.models.objective import Likelihood
from gleangp.models.parameters import Parameters
from gleangp.models.units import InputMap
from gleangp.noise import Gaussian, Noise
from gleangp.numerics.parallel import in_parallel, on_one_thread
from gleangp.progress import FitProgress, Given, Progress, silent, warn_about_fit
from gleangp.selection.selectors import SELECTORS, ResidualSelector

# What model files contain; the last two lines: coupled models of version 0.1.
register(Choice, Decision, Parameters, priors.Exponential, priors.Gamma, priors.HalfCauchy, priors.HalfNormal)
register(priors.LogNormal, priors.Normal, priors.Tied, SparseModel, posterior.Sites, posterior.TaskPosterior)
register(Draw, InputMap, LocalModel, local.LocalPosterior, evidence.RowSites, prior.Term)
register(evidence.GroupKnowledge, BasisKnowledge=evidence.Knowledge)
register(upgrade.CoupledModel, upgrade.CoupledParameters, upgrade.CoupledPosterior)
register(upgrade.Knowledge, upgrade.OwnRows, upgrade.Pareto)

FittedModel = SparseModel | LocalModel
# Attribute of an estimator -> of its model; with several models a list.
_ATTRIBUTES = {"active_gain_": "gain", "active_virtual_": "virtual"}
_ATTRIBUTES |= {f"{n}_": n for n in ("noise", "active", "site_mean", "site_precision")}


@dataclass(frozen=True, eq=False)
class Problem:
    """What one model is fitted to; several classes have a problem each."""

    data: Data  # the rows to learn from; targets in the coding of the noise
    numbers: IntArray  # (n,) of these rows among the rows of `fit`
    n_rows: int  # of `fit`
    rng: np.random.Generator
    start: Any  # `Parameters` of a model of active points, `Likelihood` of one of blocks and a basis
    kernel: Kernel | None = None  # of blocks and a basis; None: the default model
    widths: PriorWidths = PRIORS


def rows_to_learn(X: FloatArray, y: np.ndarray, codes: IntArray, keep: Any = slice(None)) -> IntArray:
    """Numbers of the rows to keep, sorted by task and content: results do not depend on their order."""
    kept = np.arange(len(X))[keep]
    return kept[canonical_order(X[kept], y[kept], codes[kept])]


class SparseGPMixin(TaskEstimator, SparseParameters, ABC):
    """Models from problems; bookkeeping of tasks; warnings. An estimator declares four attributes."""

    _most_active = START_KERNEL.most_points  # of a task, by default
    _one_per_class = False  # whether `_models` has a model for each class, or `_model` is the only one
    _kind_of_noise: type = Noise
    _former_attributes = ("task_correlation_",)  # of files up to version 0.2

    sites = "adf"  # a parameter of classifiers
    noise_: Any  # set with the other `_ATTRIBUTES`
    _model: FittedModel
    _models: list[FittedModel]

    @property
    def _fitted_models(self) -> list[FittedModel]:
        return self._models if self._one_per_class else [self._model]

    @property
    def task_correlation_(self) -> Any:
        """Computed at need: (M, M) of many tasks is far more than the rest of the model."""
        check_is_fitted(self)
        several = [model.task_correlation for model in self._fitted_models]
        return several[0] if len(several) == 1 else several

    @property
    def _is_active(self) -> bool:
        """Whether predictions use the active points only: `posterior="active"`, or there are invariances."""
        return self.posterior == "active" or bool(self._checked_invariances)

    @property
    def _checked_invariances(self) -> list[Invariance]:
        return [] if self.invariances is None else check_invariances(self.invariances)

    def _fit(
        self, problems: Sequence[Problem], given: Given, then: Callable[[list[Any]], list[Any]] = list
    ) -> None:
        """Fit a model to every problem; `given` are X, y and tasks, for callbacks.

        `then` makes the final models from them. Fits in other processes do not report their stages.
        """
        fit: Callable[..., Any]
        one, sizes = len(problems) == 1, problems[0].data.sizes.tolist()
        if self._is_active:
            reason, n_jobs = self._why_uncoupled(len(sizes)), self.n_jobs if one else None
            settings = replace(self._settings(sizes), uncoupled=reason, n_jobs=n_jobs)
            fit, most = partial(self._fit_active, settings), settings.n_rounds + 2  # posteriors twice
        else:
            if self.posterior == "projected":
                warn_user(
                    "posterior='projected' is gone and is taken as 'local', which is more accurate; a later "
                    "version will not accept it. Use posterior='local', or 'active' for predictions from "
                    "active points alone.",
                    FutureWarning,
                )
            n_basis = self._count_active(sum(sizes), warn=then is list)
            fit, most = partial(self._fit_local, n_basis), MOST_REPORTS
        models, parallel = [], not one and self.n_jobs not in (None, 1)
        progress = FitProgress(self, given, most if one else len(problems))
        with on_one_thread():
            if parallel:
                models = in_parallel(fit, [(problem,) for problem in problems], self.n_jobs)
            for problem in problems:
                own = progress if one else progress.binary_problem(0 if parallel else most)
                if not parallel:
                    models.append(fit(problem, progress=own))
                if not one:
                    own.end()
            models = then(models)
        self._store(models)
        for model in models:
            warn_about_fit(
                self,
                model,
                f"learning while the log evidence still changed by {model.last_change:.3g} in a step. Raise "
                "n_rounds, or start from a better kernel.",
                "Rows may be repeated, or length scales very long; a larger noise variance makes the model "
                "well-posed.",
            )
        progress.end(fitted=True)

    def _fit_active(self, settings: Settings, problem: Problem, progress: Progress = silent) -> SparseModel:
        """The model of active points of the rows of a problem."""
        start, data = problem.start, problem.data
        if self.priors:
            self._check_priors([h.name for h in start.kernel.hyperparameters], start.noise.parameters)
        parts = blocks_of_rows(data.codes, data.n_tasks)
        blocks = [Block(data.X[r], data.y[r], data.noise.at(r)) for r in parts]
        tasks = TaskBlocks(blocks, [problem.numbers[r] for r in parts])
        settings = replace(settings, progress=progress)
        return fit_sparse_model(start, tasks, data.n_tasks, problem.n_rows, settings, problem.rng)

    def _fit_local(self, n_basis: int | None, problem: Problem, progress: Progress = silent) -> LocalModel:
        """The model of blocks and a basis of the rows of a problem."""
        data, selector, priors = problem.data, self._chosen_selector(), self.priors or {}
        if hasattr(selector, "check_tasks"):
            selector.check_tasks(int(np.sum(data.sizes > 0)))
        of_noise = {n.removeprefix("noise__"): p for n, p in priors.items() if n.startswith("noise__")}
        likelihood: Likelihood = replace(problem.start, priors=of_noise)
        candidates = plan_couplings(
            data,
            likelihood,
            self.coupling,
            outputs=self._outputs_asked_for(None) > 0,
            kernel=problem.kernel,
            priors=priors,
            optimize=self.optimizer is not None,
            n_restarts=self.n_restarts,
            progress=progress,
            widths=problem.widths,
            groups=None if self.columns_ is None else feature_groups(self.columns_),
            n_basis=n_basis,
            choose_basis=choose_basis_of(selector),
        )
        if self.priors:
            self._check_priors(candidates[0].names, likelihood.names)
        model, at = fit_local(candidates, data, problem.rng), problem.numbers
        return replace(model, row_numbers=at, active=at[model.active])

    def _add_blocks(self, blocks: list[Block]) -> list[FittedModel]:
        """Models with one more task, whose rows are a block for each of them."""
        n_rows = len(blocks[0])
        settings = replace(self._settings([n_rows], warn=False), optimize=False)
        seed = int(generator_from(self.random_state).integers(2**31))
        with on_one_thread():
            pairs = zip(self._fitted_models, blocks, strict=True)
            return [model.add_task(block, settings, seed) for model, block in pairs]

    def _absorb(
        self, X: FloatArray, codes: IntArray, kept: np.ndarray, targets: list[FloatArray], noises: list[Any]
    ) -> None:
        """Take in the new rows to keep; every model has targets in the coding of its noise."""
        blocks = blocks_of_rows(codes, self._n_tasks)
        rows = {t: r[kept[r]] for t, r in enumerate(blocks) if kept[r].any()}
        models = []
        with on_one_thread():
            for model, y, noise in zip(self._fitted_models, targets, noises, strict=True):
                new = {t: Block(X[r], y[r], noise.at(r)) for t, r in rows.items()}
                models.append(model.absorb(new, rows, len(X)))
        self._store(models)

    def _settings(self, sizes: list[int], *, warn: bool = True) -> Settings:
        """The settings of learning; `sizes` are the numbers of labeled rows of the tasks."""
        n_active = self._count_active(sum(sizes), warn=warn)
        if n_active is None:
            n_active = default_n_active(sizes, self._most_active)
        return Settings(
            self._chosen_selector(),
            n_active,
            optimize=self.optimizer is not None,
            n_rounds=self.n_rounds,
            n_restarts=self.n_restarts,
            propagate=self.sites == "ep",
            n_jobs=self.n_jobs,
            invariances=self._checked_invariances,
        )

    def _chosen_selector(self) -> Any:
        if self.selector is None:
            return SELECTORS["entropy"]() if self._is_active else ResidualSelector(weight="variance")
        return super()._chosen_selector()

    def _count_active(self, n_rows: int, *, warn: bool = True) -> int | None:
        """Basis or active points that were asked for; None: the default."""
        if self.n_active is None:
            return None
        if not isinstance(self.n_active, Integral):
            return max(1, round(self.n_active * n_rows))
        if warn and int(self.n_active) > n_rows:
            warn_user(
                f"n_active={self.n_active} is more than the {n_rows} labeled rows; all of them are kept.",
                UserWarning,
            )
        return min(int(self.n_active), n_rows)

    def _why_uncoupled(self, n_tasks: int) -> str:
        """Why the tasks of a fit that is not local share the kernel only; raises if `coupling` needs more."""
        if self.coupling == "kernel":
            return "as asked"
        if n_tasks == 1:
            return "with one task there is nothing to couple"
        cause, other = "invariances are given", "no invariances"
        if self.posterior == "active":
            cause, other = "posterior='active'", "posterior='local'"
        reason = f"tasks share the kernel alone, because {cause}"
        if self.coupling != "auto":
            raise ValueError(f"coupling={self.coupling!r}, but {reason}. Use coupling='kernel', or {other}.")
        return reason

    def _check_priors(self, names: Iterable[str], of_noise: Iterable[str]) -> None:
        """Raise if a prior was given for another name than these."""
        names = [*names, *(f"noise__{name}" for name in of_noise)]
        unknown = sorted(set(self.priors or ()) - set(names))
        if unknown:
            raise KernelError(
                f"priors are given for {', '.join(map(repr, unknown))}, which the model does not have. "
                f"It has {', '.join(map(repr, names))}."
            )

    def _store(self, models: list[FittedModel]) -> None:
        """Keep the fitted models, and set the attributes that show them."""
        one = len(models) == 1
        if self._one_per_class:
            self._models = models
        else:
            (self._model,) = models
        self._n_inputs = models[0].n_inputs  # which version 0.2 expects in a model file
        for attribute, name in _ATTRIBUTES.items():
            values = [getattr(m, name) for m in models]
            setattr(self, attribute, values[0] if one else values)
        self.kernel_ = models[0].kernel if one else CompoundKernel([m.kernel for m in models])
        self.log_evidence_ = float(sum(m.log_evidence for m in models))
        self.n_rounds_ = max(m.n_rounds for m in models)
        self.selection_objective_ = models[0].selection_objective
        self.decisions_ = [*getattr(models[0], "decisions", ())]
        if self._checked_invariances:
            self.decisions_ += decisions_on_copies(models, asked=self.posterior == "active")
        choices = [m.choice or Choice("kernel", {}, "as asked") for m in models]
        self.coupling_ = choices[0] if one else choices

    def _check_parts(self, n_inputs: int) -> None:
        if self.posterior == "projected":  # of version 0.1
            self.posterior = "local"
        for model in self._fitted_models:
            if not isinstance(model, SparseModel | LocalModel) or model.n_tasks != self._n_tasks:
                raise ValueError(f"no fitted model for the {self._n_tasks} tasks.")
            if model.n_inputs != n_inputs:
                raise ValueError(f"a model of other inputs than the {n_inputs} it says.")
            if not isinstance(model.noise, self._kind_of_noise):
                raise ValueError(f"{type(model.noise).__name__} noise, which does not suit {type(self)}.")
        self._store(self._fitted_models)

    def suggest(self, X_pool: Any, n: int = 1, tasks: Any = None) -> np.ndarray:
        """Which rows to label next: those whose labels would reduce the uncertainty of all rows most.

        For classes, those whose labels bring most information about the latent functions. Rows are chosen
        one after the other, each given those before it. The tasks of the first rows need labels most.

        Parameters
        ----------
        X_pool : frame or array-like of shape (m, p)
            Rows that could be labelled; at most a few thousand.
        n : int, default=1
            How many to choose.

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
        n = check_count("n", n)
        X, codes = self._encode_inputs(X_pool, tasks, joint=True)
        covs, noises = [], []  # (k, m, m) of the latent functions, (k, m) of labels
        with on_one_thread():
            for model in self._fitted_models:
                mean, cov = model.predict_cov(X, codes)
                noise = model.noise_of_rows(X, codes)
                normal = isinstance(noise, Gaussian)
                if normal and not isinstance(model, LocalModel):
                    raise ValueError("suggest is for posterior='local'. Fit again with it.")
                covs.append(cov)
                noises.append(np.asarray(noise.variance) if normal else noise_of_labels(noise, mean, cov))
        chosen = choose_informative(np.array(covs), np.array(noises), n, of_classes=is_classifier(self))
        if q := self._outputs_asked_for(tasks):
            n_rows = len(X) // q
            return np.column_stack([chosen % n_rows, chosen // n_rows])
        return chosen

    def transfer_report(self) -> list[TaskTransfer]:
        """What every task gains from the others: left-out log scores with and without them.

        All scores are in closed form, under the parameters of the fit; where the noise is not Gaussian, given
        the sites of the expectation propagation. With more than two classes the scores of all classes add
        up. Names come from up to 3000 rows, evenly chosen; a task of which none is chosen has no names. A
        task of one row is predicted as a new task would be: a low score means that it is unlike the others.
        Tasks that were added later are left out, as their rows do not inform other tasks.

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
