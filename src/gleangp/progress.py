"""What learning reports while it runs, and how it is asked to stop: one plain function, passed down.

A progress function is called with a stage, the number of the step and the objective so far, higher being
better. Step 0 announces the stage: if the answer is True, the stage is left out where learning can do
without it. A later step says that it was made: if the answer is True, the stage ends there and goes on
with the best that it has found. So a fit that is asked to stop still ends with a whole model.

`FitProgress` is such a function that calls scikit-learn's callbacks. They see a tree of contexts: `fit`;
below it one `class` for each binary problem, if there are several; below that the stages of learning
(`round 1`, `posterior`, ...); and in each its steps (iterations of the optimiser, or tasks). A context of a
stage or step has two attributes beside scikit-learn's own: `stage` (a `Stage`) and `objective` (the log
evidence or, for latent spaces, minus the objective, so far; None before there is one).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from gleangp._compat import CALLBACKS
from gleangp.exceptions import warn_user


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of learning whose steps are alike."""

    name: str  # "round", "posterior", ...
    most: int | None = None  # steps that it can take; None: not known
    n_tasks: int | None = None  # tasks that it learns from
    n_active: int | None = None  # active points of all of them


Progress = Callable[[Stage, int, float | None], bool]
Given = tuple[Any, Any, Any]  # X, y and tasks as `fit` got them


def silent(stage: Stage, step: int, value: float | None) -> bool:
    """Says nothing and never asks to stop."""
    return False


def report_to(progress: Progress, stage: Stage) -> Callable[[int, float], bool]:
    """What `optimize.minimize` calls after every iteration: its value is minimised, so the sign turns."""
    return lambda iteration, value: progress(stage, iteration, -value)


class FitProgress:
    """A progress function that calls the callbacks of an estimator, and prints its stages if it is verbose.

    `most_stages` is how many stages (or binary problems) there can be at most.
    """

    def __init__(self, estimator: Any, given: Given, most_stages: int, parent: Any = None) -> None:
        X, y, tasks = given
        self._estimator, self._given = estimator, given
        self._data = {"X": X, "y": y} | ({} if tasks is None else {"metadata": {"tasks": tasks}})
        if parent is None:
            self._context = estimator._init_callback_context(max_subtasks=most_stages)
        else:
            self._context = parent.subcontext("class", max_subtasks=most_stages)
        # Contexts below this one are made for callbacks alone: scikit-learn raises if one has more parts than
        # were announced, and no fit shall depend on that.
        self._heard = bool(getattr(estimator, CALLBACKS, ()))
        self._stage_context: Any = None
        self._last: tuple[Stage, int, float | None] | None = None  # of the present stage
        self._stopped = False
        if self._heard:
            self._context.call_on_fit_task_begin(estimator=estimator, **self._data)

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
        return FitProgress(self._estimator, self._given, most_stages, self._context)

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
        if self._estimator.verbose:
            reached = "" if value is None else f": log evidence {value:.3f}"
            print(f"[{type(self._estimator).__name__}] {stage.name}{reached} ({step} steps)")
        if self._stage_context is None:
            return False
        context, self._stage_context = self._stage_context, None
        context.stage, context.objective = stage, value
        return context.call_on_fit_task_end(estimator=self._estimator, **self._data)


def warn_about_fit(estimator: Any, model: Any, stopped: str, remedy: str) -> None:
    """Warn if the model did not converge, or if a matrix was singular.

    `stopped` says when the estimator stopped and what to do, `remedy` what to do about a singular matrix.
    """
    name = type(estimator).__name__
    if not model.converged:
        warn_user(f"{name} stopped {stopped}", ConvergenceWarning)
    if model.jitter > 0.0:
        found = f"{name}: a covariance matrix was singular in floating point; {model.jitter:.3g} was added to"
        warn_user(f"{found} its diagonal. {remedy}", RuntimeWarning)
