"""Reports of a fit: to scikit-learn's callbacks, from the plain progress function below; `verbose`; warnings.

The tree of contexts that a callback sees: `fit`; below it one `class` for each binary problem, if there are
several; below that the stages of learning (`round 1`, `posterior`, ...); and in each its steps (iterations of
the optimiser, or tasks). A context of a stage or step has two attributes beside scikit-learn's own: `stage`
(`gleangp.progress.Stage`: how many tasks and active points) and `objective` (the log evidence or, for latent
spaces, minus the objective, so far; None before there is one).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from gleangp._compat import CallbackContext, callbacks_of
from gleangp.exceptions import warn_user
from gleangp.progress import Stage, silent

Given = tuple[Any, Any, Any]  # X, y and tasks as `fit` got them


class FitProgress:
    """A progress function (`gleangp.progress`) that calls the callbacks of an estimator."""

    def __init__(self, estimator: Any, context: CallbackContext, data: dict[str, Any]) -> None:
        self._estimator, self._context = estimator, context
        self._data = data  # that hooks may use: X, y, metadata
        self._heard = bool(callbacks_of(estimator))
        self._verbose = bool(estimator.verbose)
        self._stage_context: Any = None
        self._last: tuple[Stage, int, float | None] | None = None  # of the present stage
        self._stopped = False
        if self._heard:
            context.call_on_fit_task_begin(estimator=estimator, **data)

    def __call__(self, stage: Stage, step: int, value: float | None) -> bool:
        """Begin a stage (step 0) or report a step; whether to stop."""
        if step == 0:
            self._stopped |= self._end_stage()
            if not self._stopped:
                self._last = (stage, 0, value)
                if self._heard:
                    self._stage_context = self._context.subcontext(stage.name, max_subtasks=stage.most)
                    self._begin(self._stage_context, stage, value)
            return self._stopped
        if self._last is not None:
            self._last = (stage, step, value)
        if self._stage_context is None:
            return self._stopped
        context = self._stage_context.subcontext("step")
        self._begin(context, stage, value)
        return context.call_on_fit_task_end(estimator=self._estimator, **self._data)

    def __reduce__(self) -> Any:
        return partial, (silent,)  # no reports from another process

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

    def _begin(self, context: Any, stage: Stage, value: float | None) -> None:
        context.stage, context.objective = stage, value
        context.call_on_fit_task_begin(estimator=self._estimator, **self._data)

    def _end_stage(self) -> bool:
        """End the present stage; whether a callback wants no more of them."""
        if self._last is None:
            return False
        (stage, step, value), self._last = self._last, None
        if self._verbose:
            reached = "" if value is None else f": log evidence {value:.3f}"
            print(f"[{type(self._estimator).__name__}] {stage.name}{reached} ({step} steps)")
        if self._stage_context is None:
            return False
        context, self._stage_context = self._stage_context, None
        context.stage, context.objective = stage, value
        return context.call_on_fit_task_end(estimator=self._estimator, **self._data)


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
