"""What the sparse estimators share: their parameters, and the way from them to the learning below."""

from __future__ import annotations

import warnings
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import clone, is_regressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import CompoundKernel, Kernel
from sklearn.utils import check_random_state

from gleangp._compat import HasMethods, Interval, StrOptions
from gleangp.estimators._defaults import (
    default_kernel,
    default_n_active,
    default_own_kernel,
    default_own_priors,
    mixed_kernel,
    mixed_priors,
)
from gleangp.estimators._progress import FitProgress, ProgressMixin
from gleangp.estimators._training_rows import TrainingRows
from gleangp.exceptions import KernelError
from gleangp.learning.coupled_model import CoupledModel
from gleangp.learning.couplings import Choice, CoregionCoupling, FunctionCoupling, KernelCoupling
from gleangp.learning.parameters import Parameters
from gleangp.learning.settings import Settings, most_stages
from gleangp.learning.sparse_model import SparseModel
from gleangp.selection.selectors import SELECTORS, ResidualSelector

SHARED_CONSTRAINTS = {
    "kernel": [Kernel, None],
    "n_active": [
        Interval(Integral, 1, None, closed="left"),
        Interval(Real, 0, 1, closed="right"),
        None,
    ],
    "coupling": [StrOptions({"auto", "kernel", "function", "coregion"}), HasMethods(["parameters"])],
    "selector": [StrOptions(set(SELECTORS)), HasMethods(["select"])],
    "posterior": [StrOptions({"projected", "active"})],
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


def generator_from(random_state) -> np.random.Generator:
    """The one generator of a fit, from scikit-learn's kinds of `random_state`."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(check_random_state(random_state).randint(2**31, size=4))


# Rows of one task: its own function is exact, which costs their square in memory and their cube in time.
_MOST_ROWS_AUTO = 1000
_MOST_ROWS_COUPLED = 8000
# Two shared functions and an own weight for each of fewer tasks are more numbers than their covariances.
_LEAST_TASKS_OF_RANK_2 = 5


class SparseGPMixin(ProgressMixin):
    """Settings from constructor parameters; bookkeeping of tasks; warnings."""

    _most_active = 1000  # of a task, by default
    _most_basis = 300  # of all tasks, where these are coupled
    _fitted_parts: tuple[str, ...] = ()  # what a fitted estimator has beside the names all have

    def _settings(self, sizes: list[int], **more) -> Settings:
        """What `fit` asks of learning; `sizes` are the numbers of labeled rows of the tasks."""
        settings = {
            "n_basis": self._count_basis(sizes),
            "posterior": self.posterior,
            "optimize": self.optimizer is not None,
            "n_rounds": self.n_rounds,
            "n_restarts": self.n_restarts,
            "n_jobs": self.n_jobs,
        }
        if "n_active" not in more:
            more["n_active"] = self._count_active(sizes)
        return Settings(selector=self._chosen_selector(), **{**settings, **more})

    def _with_progress(self, settings: Settings, given: tuple) -> tuple[Settings, FitProgress]:
        """The settings, and the progress that they now tell callbacks of; `given` are X, y and tasks."""
        progress = self._begin_progress(*given, most_stages(settings))
        return replace(settings, progress=progress), progress

    def _settings_for_new_task(self, n_rows: int, **more) -> Settings:
        """What `add_task` asks: the kernel is known, and a few rows may be less than n_active."""
        n_active = self._count_active([n_rows], warn=False)
        return self._settings([n_rows], n_active=n_active, optimize=False, **more)

    def _keeps_float32(self) -> bool:
        """Whether very many float32 rows of one task may stay as they are: blocks of them are converted."""
        every_row_once = self.invariances is None and getattr(self, "unlabeled", None) is None
        return self.posterior == "projected" and every_row_once

    def _chosen_selector(self):
        if self.selector is None:
            if self.posterior == "active":
                return SELECTORS["entropy"]()
            return ResidualSelector(weight="variance")
        return SELECTORS[self.selector]() if isinstance(self.selector, str) else self.selector

    def _plan_coupling(self, rows: TrainingRows, **apart: bool) -> dict[str, Any]:
        """Settings of the coupling: what to choose from, or why tasks share the kernel alone.

        `apart` names what only tasks that share the kernel alone can have, and whether it is asked for.
        """
        sizes = rows.sizes
        if self.coupling == "kernel" or rows.n_tasks == 1:
            one = "as asked" if self.coupling == "kernel" else "with one task there is nothing to couple"
            return {"couplings": (), "uncoupled": one}
        reason = self._why_apart(sizes, {**apart, "rows on a cluster": not rows.can_travel})
        if self.coupling == "auto" and not reason:
            reason = self._why_not_choose(sizes)
        if self.coupling == "auto" and reason:
            return {"couplings": (), "uncoupled": reason}
        if reason:
            raise ValueError(f"coupling={self.coupling!r}, but {reason}. Use coupling='kernel'.")
        if self.coupling == "auto":
            rank = 2 if is_regressor(self) and rows.n_tasks >= _LEAST_TASKS_OF_RANK_2 else 1
            asked = (KernelCoupling(), FunctionCoupling(), CoregionCoupling(rank))
        elif isinstance(self.coupling, str):
            asked = (FunctionCoupling() if self.coupling == "function" else CoregionCoupling(),)
        else:
            asked = (self.coupling,)
        return {"couplings": tuple(self._with_default_kernel(coupling, rows) for coupling in asked)}

    def _with_default_kernel(self, coupling: Any, rows: TrainingRows) -> Any:
        """The coupling, with a default kernel of its own where none was given, nor to the estimator."""
        if self.kernel is not None:
            return coupling
        measured, n_features = is_regressor(self), rows.inputs.shape[1]
        if isinstance(coupling, FunctionCoupling) and coupling.own_kernel is None:
            own, priors = (
                default_own_kernel(rows.inputs, rows.n_tasks, measured=measured),
                coupling.own_priors,
            )
            if priors is None:
                priors = default_own_priors(own, n_features, measured=measured)
            return FunctionCoupling(own, priors, coupling.outlier_cost)
        # Noise of each task, unless noise is known, or priors name parts of the estimator's kernel.
        noisy = measured and self.noise_variance is None and self.priors is None
        if noisy and isinstance(coupling, CoregionCoupling) and coupling.kernel is None:
            smooth, priors = self._default_kernel(rows, offset=True, coupled=True), coupling.priors
            if priors is None:
                priors = mixed_priors(smooth, n_features)
            return CoregionCoupling(coupling.rank, coupling.n_terms, mixed_kernel(smooth), priors)
        return coupling

    def _why_apart(self, sizes: list[int], apart: dict[str, bool]) -> str:
        """Why these tasks cannot be coupled; empty if they can."""
        for name, asked in apart.items():
            if asked:
                return (
                    f"{name} need tasks that share the kernel alone: coupled ones have one basis for all, "
                    "which neither grows by virtual points nor keeps rows silent"
                )
        if self.posterior == "active":
            return "posterior='active' keeps tasks apart: each is predicted from its active points alone"
        if hasattr(self._chosen_selector(), "alone"):
            return "the selector shares points between tasks that share the kernel alone"
        if max(sizes) > _MOST_ROWS_COUPLED:
            most = _MOST_ROWS_COUPLED
            return f"a task has {max(sizes)} rows, and own functions are exact, which is for {most} at most"
        return ""

    def _why_not_choose(self, sizes: list[int]) -> str:
        """Why "auto" leaves tasks uncoupled without a trial; empty if it does not."""
        if self.optimizer is None:
            return "optimizer=None learns nothing, so there is no evidence to weigh"
        if max(sizes) > _MOST_ROWS_AUTO:
            return f"a task has {max(sizes)} labels, with which the others have little to tell it"
        return ""

    def _default_kernel(
        self, rows: TrainingRows, *, offset: bool, coupled: bool, linear: bool = False
    ) -> Kernel:
        return default_kernel(
            rows.inputs,
            offset=offset,
            coupled=coupled,
            measured=is_regressor(self),
            linear=linear,
            n_rows=sum(rows.sizes),
        )

    def _store_coupling(self, models: list) -> None:
        choices = [m.choice or Choice("kernel", {}, "as asked") for m in models]
        correlations = [m.task_correlation for m in models]
        self.coupling_ = choices[0] if len(models) == 1 else choices
        self.task_correlation_ = correlations[0] if len(models) == 1 else correlations

    def _count_basis(self, sizes: list[int]) -> int:
        """Points of the common basis, where tasks are coupled."""
        if self.n_active is None:
            return min(sum(sizes), self._most_basis)
        if isinstance(self.n_active, Integral):
            return min(sum(sizes), int(self.n_active))
        return max(1, round(self.n_active * sum(sizes)))

    def _count_active(self, sizes: list[int], *, warn: bool = True) -> int:
        n_rows = sum(sizes)
        if self.n_active is None:
            return default_n_active(sizes, self._most_active)
        if isinstance(self.n_active, Integral):
            if warn and self.n_active > n_rows:
                warnings.warn(
                    f"n_active={self.n_active} is more than the {n_rows} labeled rows; all of them are kept.",
                    UserWarning,
                    stacklevel=4,
                )
            return min(int(self.n_active), n_rows)
        return max(1, round(self.n_active * n_rows))

    def _start_kernel(self, default, which: int = 0, n_models: int = 1) -> Kernel:
        """The kernel to start from, of one of the binary problems."""
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
        """The parameters, if every prior that was given is for one of them."""
        names = [h.name for h in parameters.kernel.hyperparameters]
        names += [f"noise__{name}" for name in parameters.noise.parameters]
        unknown = sorted(set(self.priors or ()) - set(names))
        if unknown:
            raise KernelError(
                f"priors are given for {', '.join(map(repr, unknown))}, which the model does not have. "
                f"It has {', '.join(map(repr, names))}."
            )
        return parameters

    def _warn_about(self, model: SparseModel) -> None:
        name = type(self).__name__
        if not model.converged:
            warnings.warn(
                f"{name} stopped after {model.n_rounds} rounds while the log evidence still changed "
                f"by {model.last_change:.3g}. Raise n_rounds, or start from a better kernel.",
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
        missing = {*self._fitted_parts, "tasks_", "n_features_in_", "_n_inputs"} - fitted
        if missing:
            raise ValueError(f"no {min(missing)}.")
        models = self._models if "_models" in fitted else [self._model]
        n_tasks = 1 if self.tasks_ is None else len(self.tasks_)
        for model in models:
            if not isinstance(model, SparseModel | CoupledModel) or model.n_tasks != n_tasks:
                raise ValueError(f"no fitted model for the {n_tasks} tasks.")
            if model.n_inputs != self._n_inputs:
                raise ValueError(f"a model of other inputs than the {self._n_inputs} it says.")
        if self._count_inputs() != self._n_inputs:
            raise ValueError(f"n_features_in_={self.n_features_in_!r} with {self._n_inputs} inputs.")
        if "_models" in fitted and len(models) != self._n_models:
            raise ValueError(f"{len(models)} models for {len(self.classes_)} classes.")
        if "_units" in fitted and len(self._units.mean) != n_tasks:
            raise ValueError(f"target units of {len(self._units.mean)} tasks, not {n_tasks}.")
        self._store(self._models if "_models" in fitted else self._model)
