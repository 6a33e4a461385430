"""What learning says while it runs, and how it is asked to stop: one plain function, passed down.

A progress function is called with a stage, the number of the step and the objective so far, higher being
better. Step 0 announces the stage: if the answer is True, the stage is left out where learning can do
without it. A later step says that it was made: if the answer is True, the stage ends there and goes on
with the best that it has found. So a fit that is asked to stop still ends with a whole model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of learning whose steps are alike."""

    name: str  # "round", "posterior", ...
    most: int | None = None  # steps that it can take; None: not known
    n_tasks: int | None = None  # tasks that it learns from
    n_active: int | None = None  # active points of all of them


Progress = Callable[[Stage, int, float | None], bool]


def silent(stage: Stage, step: int, value: float | None) -> bool:
    """Says nothing and never asks to stop."""
    return False


def report_to(progress: Progress, stage: Stage) -> Callable[[int, float], bool]:
    """What `optimize.minimize` calls after every iteration: its value is minimised, so the sign turns."""
    return lambda iteration, value: progress(stage, iteration, -value)
