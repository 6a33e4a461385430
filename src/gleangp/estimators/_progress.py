"""What a fit says: to scikit-learn's callbacks, from the plain progress function below; `verbose`; warnings.

The tree of contexts that a callback sees: `fit`; below it one `class` for each binary problem, if there are
several; below that the stages of learning (`round 1`, `posterior`, ...); and in each its steps (iterations of
the optimiser, or tasks). A context of a stage or step has two attributes beside scikit-learn's own: `stage`
(`gleangp.progress.Stage`: how many tasks and active points) and `objective` (the log evidence or, for latent
spaces, minus the objective, so far; None before there is one).
"""

from __future__ import annotations

from typing import Any

from sklearn.exceptions import ConvergenceWarning

from gleangp._compat import CallbackContext, callbacks_of
from gleangp.exceptions import warn_user
from gleangp.progress import Stage, silent

Given = tuple[Any, Any, Any]  # X, y and tasks as `fit` got them


class FitProgress:
    """A progress function (`gleangp.progress`) that speaks to the callbacks of an estimator."""

    def __init__(self, estimator: Any, context: CallbackContext, data: dict[str, Any]) -> None:
        self._estimator = estimator
        self._context = context
        self._data = data  # what hooks may ask for: X, y, metadata
        self._heard = bool(callbacks_of(estimator))
        self._verbose = bool(getattr(estimator, "verbose", 0))
        self._stage_context: CallbackContext | None = None
        self._last: tuple[Stage, int, float | None] | None = None
        self._stopped = False
        if self._heard:
            context.call_on_fit_task_begin(estimator=estimator, **data)

    def __call__(self, stage: Stage, step: int, value: float | None) -> bool:
        """Begin a stage (step 0) or tell of a step; whether to stop."""
        if not (self._heard or self._verbose):
            return False
        if step == 0:
            return self._begin_stage(stage, value)
        if self._last is not None:
            self._last = (stage, step, value)
        if self._stage_context is None:
            return self._stopped
        context = self._stage_context.subcontext("step")
        return self._tell(context, stage, value, begin=True)

    def __reduce__(self) -> Any:
        return _nobody, ()  # in another process there is nobody to tell

    def binary_problem(self, most_stages: int) -> FitProgress:
        """The progress of the next of several binary problems."""
        context = self._context.subcontext("class", max_subtasks=most_stages)
        return FitProgress(self._estimator, context, self._data)

    def end(self, *, fitted: bool = False) -> None:
        """The fit, or a binary problem of it, is done."""
        self._end_stage()
        if self._heard:
            # Scorers hand no tasks on: of a fit with `tasks=` there is no estimator that they could score.
            scorable = fitted and "metadata" not in self._data
            ready: dict[str, Any] = {"reconstruction_attributes": dict} if scorable else {}
            self._context.call_on_fit_task_end(estimator=self._estimator, **self._data, **ready)

    def _begin_stage(self, stage: Stage, value: float | None) -> bool:
        self._stopped |= self._end_stage()
        if self._stopped:
            return True
        self._last = (stage, 0, value)
        if self._heard:
            self._stage_context = self._context.subcontext(stage.name, max_subtasks=stage.most)
            self._stage_context.stage, self._stage_context.objective = stage, value
            self._stage_context.call_on_fit_task_begin(estimator=self._estimator, **self._data)
        return False

    def _end_stage(self) -> bool:
        """Tell that the present stage is over; whether a callback wants no more of them."""
        if self._last is None:
            return False
        stage, step, value = self._last
        self._last = None
        if self._verbose:
            reached = "" if value is None else f": log evidence {value:.3f}"
            print(f"[{type(self._estimator).__name__}] {stage.name}{reached} ({step} steps)")
        if self._stage_context is None:
            return False
        context, self._stage_context = self._stage_context, None
        return self._tell(context, stage, value)

    def _tell(self, context: Any, stage: Stage, value: float | None, *, begin: bool = False) -> bool:
        context.stage, context.objective = stage, value
        if begin:
            context.call_on_fit_task_begin(estimator=self._estimator, **self._data)
        return context.call_on_fit_task_end(estimator=self._estimator, **self._data)


def _nobody() -> Any:
    return silent


def warn_about_fit(name: str, model: Any, stopped: str, remedy: str) -> None:
    """Warn if the model did not converge, or if a matrix was singular.

    `stopped` says when the estimator stopped and what to do, `remedy` what to do about a singular matrix.
    """
    if not model.converged:
        warn_user(f"{name} stopped {stopped}", ConvergenceWarning)
    if model.jitter > 0.0:
        warn_user(
            f"{name}: a covariance matrix was singular in floating point; {model.jitter:.3g} was added to "
            f"its diagonal. {remedy}",
            RuntimeWarning,
        )
