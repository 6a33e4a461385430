"""The common part of the sparse estimators: parameters, and the settings of learning made from them."""

from __future__ import annotations

import warnings
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import CompoundKernel, Kernel

from gleangp._compat import HasMethods, Interval, StrOptions
from gleangp.estimators._defaults import default_kernel, default_n_active
from gleangp.estimators._progress import FitProgress, ProgressMixin
from gleangp.estimators._random import generator_from as generator_from
from gleangp.estimators._training_rows import LocalRows
from gleangp.exceptions import KernelError
from gleangp.invariances import check_invariances
from gleangp.models.active.model import SparseModel
from gleangp.models.active.settings import Settings, most_stages
from gleangp.models.choice import Choice
from gleangp.models.decisions import Decision
from gleangp.models.local.model import LocalModel
from gleangp.models.parameters import Parameters
from gleangp.noise import Ordered
from gleangp.selection.selectors import SELECTORS, ResidualSelector

SHARED_CONSTRAINTS = {
    "kernel": [Kernel, None],
    "n_active": [
        Interval(Integral, 1, None, closed="left"),
        Interval(Real, 0, 1, closed="right"),
        None,
    ],
    "coupling": [StrOptions({"auto", "kernel", "function", "coregion"}), HasMethods(["terms"])],
    "selector": [StrOptions(set(SELECTORS)), HasMethods(["select"])],
    "posterior": [StrOptions({"local", "projected", "active"})],
    "optimizer": [StrOptions({"l-bfgs-b"}), None],
    "n_rounds": [Interval(Integral, 1, None, closed="left")],
    "n_restarts": [Interval(Integral, 0, None, closed="left")],
    "priors": [dict, None],
    "task": [str, Integral, None],
    "new_tasks": [StrOptions({"prior", "error"})],
    "n_jobs": [Integral, None],
    "random_state": ["random_state", np.random.Generator],
    "verbose": ["verbose"],
}
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


class SparseGPMixin(ProgressMixin):
    """Settings from constructor parameters; bookkeeping of tasks; warnings."""

    # Of the estimator: constructor parameters, and what a fit sets.
    posterior: str
    selector: Any
    invariances: Any
    n_active: Any
    n_rounds: Any
    n_restarts: int
    n_jobs: int | None
    noise_: Any
    _model: Any
    _models: Any

    _most_active = 1000  # of a task, by default
    _fitted_parts: tuple[str, ...] = ()  # what a fitted estimator has beside the names all have
    _needs_of_noise = "predict_mean"  # a method that the noise model has

    @property
    def _is_active(self) -> bool:
        """Whether predictions use the active points only: `posterior="active"`, or there are invariances."""
        return self.posterior == "active" or bool(check_invariances(self.invariances))

    def _is_local(self) -> bool:
        """Whether the model is that of `models.local`."""
        if self.posterior == "projected":
            warnings.warn(
                "posterior='projected' is gone and is taken as 'local', which is more accurate; a later "
                "version will not accept it. Use posterior='local', or 'active' for predictions from active "
                "points alone.",
                FutureWarning,
                stacklevel=5,
            )
        return not self._is_active

    def _settings(self, sizes: list[int], **more) -> Settings:
        """The settings of learning for `fit`; `sizes` are the numbers of labeled rows of the tasks."""
        settings = {
            "optimize": self.optimizer is not None,
            "n_rounds": self.n_rounds,
            "n_restarts": self.n_restarts,
            "n_jobs": self.n_jobs,
        }
        if "n_active" not in more:
            more["n_active"] = self._count_active(sizes)
        return Settings(selector=self._chosen_selector(), **{**settings, **more})

    def _with_progress(self, settings: Settings, given: tuple) -> tuple[Settings, FitProgress]:
        """The settings with a progress that calls the callbacks; `given` are X, y and tasks."""
        X, y, tasks = given
        progress = self._begin_progress(X, y, tasks, most_stages(settings))
        return replace(settings, progress=progress), progress

    def _settings_for_new_task(self, n_rows: int, **more) -> Settings:
        """The settings of `add_task`: the kernel is not learnt; n_active may exceed the number of rows."""
        n_active = self._count_active([n_rows], warn=False)
        return self._settings([n_rows], n_active=n_active, optimize=False, **more)

    def _keeps_float32(self) -> bool:
        """Whether very many float32 rows of one task stay float32; blocks of them are converted when used."""
        return not self._is_active and getattr(self, "unlabeled", None) is None

    def _chosen_selector(self):
        if self.selector is None:
            return SELECTORS["entropy"]() if self._is_active else ResidualSelector(weight="variance")
        return SELECTORS[self.selector]() if isinstance(self.selector, str) else self.selector

    def _why_uncoupled(self, rows: LocalRows) -> str:
        """Why the tasks of a fit that is not local share the kernel only; raises if `coupling` needs more."""
        if self.coupling == "kernel":
            return "as asked"
        if rows.n_tasks == 1:
            return "with one task there is nothing to couple"
        cause = "posterior='active'" if self.posterior == "active" else "invariances are given"
        reason = f"tasks share the kernel alone, because {cause}"
        if self.coupling != "auto":
            other = ", or posterior='local'" if self.posterior == "active" else ", or no invariances"
            raise ValueError(f"coupling={self.coupling!r}, but {reason}. Use coupling='kernel'{other}.")
        return reason

    def _scheme_decision(self) -> list[Decision]:
        """The decision for active points only, if it follows from invariances."""
        if self.posterior == "active" or not self._is_active:
            return []
        reason = "Transformed copies compete for the active set, from which alone predictions are made."
        return [Decision("posterior", "active", {}, reason)]

    def _default_kernel(self, rows: LocalRows, *, offset: bool, linear: bool = False) -> Kernel:
        return default_kernel(rows.inputs, offset=offset, linear=linear, n_rows=sum(rows.sizes))

    def _store(self, fitted: Any) -> None:
        """Keep a fitted model, or a list of one for each class, and set the attributes that show it."""
        several = isinstance(fitted, list)
        models = fitted if several else [fitted]
        one = len(models) == 1
        setattr(self, "_models" if several else "_model", fitted)
        self._n_inputs = self._count_inputs()
        for attribute, name in _ATTRIBUTES.items():
            values = [getattr(m, name) for m in models]
            setattr(self, attribute, values[0] if one else values)
        self.kernel_ = models[0].kernel if one else CompoundKernel([m.kernel for m in models])
        self.log_evidence_ = float(sum(m.log_evidence for m in models))
        self.n_rounds_ = max(m.n_rounds for m in models)
        self.selection_objective_ = models[0].selection_objective
        made = self._scheme_decision() + _decision_on_copies(models)
        self.decisions_ = [*made, *getattr(models[0], "decisions", ())]
        choices = [m.choice or Choice("kernel", {}, "as asked") for m in models]
        self.coupling_ = choices[0] if one else choices

    def _count_active(self, sizes: list[int], *, warn: bool = True) -> int:
        n_rows = sum(sizes)
        if self.n_active is None:
            return default_n_active(sizes, self._most_active)
        if isinstance(self.n_active, Integral):
            if warn and int(self.n_active) > n_rows:
                warnings.warn(
                    f"n_active={self.n_active} is more than the {n_rows} labeled rows; all of them are kept.",
                    UserWarning,
                    stacklevel=4,
                )
            return min(int(self.n_active), n_rows)
        return max(1, round(self.n_active * n_rows))

    def _start_kernel(self, default, which: int = 0, n_models: int = 1) -> Kernel:
        """The kernel at the start of learning, of one of the binary problems."""
        if isinstance(self.kernel, CompoundKernel):
            kernels = self.kernel.kernels
            if n_models == 1 or len(kernels) != n_models:
                raise KernelError(
                    f"kernel is a CompoundKernel, which holds {len(kernels)} kernels side by side, and "
                    f"{n_models} {'is' if n_models == 1 else 'are'} needed. Give one of them; a sum or "
                    "product of kernels is one. A classifier of more than two classes takes one for each."
                )
            return clone(kernels[which])
        return default() if self.kernel is None else clone(self.kernel)

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

    def _warn_about(self, model: SparseModel | LocalModel) -> None:
        name = type(self).__name__
        if not model.converged:
            warnings.warn(
                f"{name} stopped learning while the log evidence still changed by {model.last_change:.3g} "
                "in a step. Raise n_rounds, or start from a better kernel.",
                ConvergenceWarning,
                stacklevel=4,
            )
        if model.jitter > 0.0:
            warnings.warn(
                f"{name}: a covariance matrix was singular in floating point; {model.jitter:.3g} was "
                "added to its diagonal. Rows may be repeated, or length scales very long; a "
                "larger noise variance makes the model well-posed.",
                RuntimeWarning,
                stacklevel=4,
            )

    def _check_state(self) -> None:
        """Raise if fitted parts are missing or do not fit together (a damaged model file)."""
        fitted = set(vars(self)) - set(self.get_params(deep=False))
        if not fitted:
            return
        n_tasks, n_inputs = self._check_fitted(*self._fitted_parts, "_n_inputs")
        # Coupled models of version 0.1 are of another class, which knows its successor.
        if "_models" in fitted:
            self._models = [getattr(m, "upgraded", lambda m=m: m)() for m in self._models]
        elif hasattr(self._model, "upgraded"):
            self._model = self._model.upgraded()
        models = models_of(self)
        for model in models:
            if not isinstance(model, SparseModel | LocalModel) or model.n_tasks != n_tasks:
                raise ValueError(f"no fitted model for the {n_tasks} tasks.")
            if model.n_inputs != n_inputs or self._n_inputs != n_inputs:
                raise ValueError(f"a model of other inputs than the {n_inputs} it says.")
            if not hasattr(model.noise, self._needs_of_noise):
                raise ValueError(f"{type(model.noise).__name__} noise, which does not suit {type(self)}.")
        if "_models" in fitted and len(models) != self._n_models:
            raise ValueError(f"{len(models)} models for {len(self.classes_)} classes.")
        if isinstance(models[0].noise, Ordered) and models[0].noise.n_categories != len(self.classes_):
            raise ValueError(f"noise of other classes than the {len(self.classes_)} it says.")
        if "_units" in fitted and len(self._units.mean) != n_tasks:
            raise ValueError(f"target units of {len(self._units.mean)} tasks, not {n_tasks}.")
        self._store(self._models if "_models" in fitted else self._model)


def models_of(estimator: Any) -> list[Any]:
    """The fitted model of every function that it has."""
    return estimator._models if hasattr(estimator, "_models") else [estimator._model]


def _decision_on_copies(models: list) -> list[Decision]:
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
