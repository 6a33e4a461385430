"""What a hierarchy is better without: unlabelled rows, constraints, the prior of the other tasks."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from gleangp._typing import FloatArray
from gleangp.estimators._warnings import level_of_caller
from gleangp.inference.task_rows import TaskRows
from gleangp.models.decisions import Decision
from gleangp.models.defaults import HELD_OUT, HIERARCHY
from gleangp.models.hierarchical.checks import gain, held_out_scores
from gleangp.models.hierarchical.model import HierarchicalModel, add_task


def decisions_on(model: HierarchicalModel, blocks: list[TaskRows], name: str = "") -> list[Decision]:
    """Whether unlabelled rows and constraints help the tasks, which are the last of the model."""
    made: list[Decision] = []
    if any(b.laplacian is not None for b in blocks):
        numbers, worse = _compared(model, blocks, ("all rows", "labelled rows alone"), "laplacian")
        reason = f"The weight of their graph is learnt. {_reason(numbers, worse)}"
        made.append(Decision(f"{name}unlabelled rows", "all rows", numbers, reason))
    if any(b.order is not None for b in blocks):
        numbers, worse = _compared(model, blocks, ("constraints", "none"), "order")
        made.append(
            Decision(f"{name}constraints", "used", numbers, f"They were given. {_reason(numbers, worse)}")
        )
        if worse > HELD_OUT.clear:
            warnings.warn(
                f"{name}labels that are held out have a lower density with the constraints "
                f"({numbers['constraints']:.3g} nats each) than without ({numbers['none']:.3g}). They may be "
                "wrong: check them, or leave them out.",
                UserWarning,
                stacklevel=level_of_caller(),
            )
    return made


def alone_if_better(
    before: HierarchicalModel, model: HierarchicalModel, block: TaskRows, name: str
) -> tuple[HierarchicalModel, list[Decision]]:
    """The model whose last task has its own kernel where the prior of the others is clearly worse."""
    if block.n_labelled < HELD_OUT.least_labels:
        return model, []
    wide = replace(before, prior_cov=HIERARCHY.wide_variance * np.eye(len(before.prior_cov)))
    alone = add_task(wide, block)
    scores = [held_out_scores(m, [block]) for m in (model, alone)]
    numbers, worse = _decided(scores, ("prior of the others", "alone"))
    if worse > HELD_OUT.clear:
        model = replace(model, tasks=(*model.tasks[:-1], alone.tasks[-1]))
    chosen = list(numbers)[worse > HELD_OUT.clear]
    return model, [Decision(name, chosen, numbers, _reason(numbers, worse))]


def _compared(
    model: HierarchicalModel, blocks: list[TaskRows], names: tuple[str, str], part: str
) -> tuple[dict[str, float], float]:
    """Mean log densities with and without a part of the tasks that have it; by how much it is worse."""
    first = len(model.tasks) - len(blocks)
    at = [i for i, b in enumerate(blocks) if getattr(b, part) is not None and b.n_labelled > 1]
    own = replace(model, tasks=tuple(model.tasks[first + i] for i in at)) if at else model
    some = [blocks[i] for i in at]
    nothing: dict[str, Any] = {part: None}
    without = [replace(b, **nothing) for b in some]
    return _decided([held_out_scores(own, b) for b in (some, without)], names)


def _decided(scores: list[FloatArray], names: tuple[str, str]) -> tuple[dict[str, float], float]:
    """Means by name, and by how many standard errors the second is better (0 of few labels)."""
    if len(scores[0]) < HELD_OUT.least_labels:
        return {}, 0.0
    numbers = {name: float(np.mean(s)) for name, s in zip(names, scores, strict=True)}
    mean, error = gain(scores[1], scores[0])
    return numbers, mean / error if error > 0.0 else 0.0


def _reason(numbers: dict[str, float], worse: float) -> str:
    if not numbers:
        return "There are too few labels to hold some out."
    without = "better" if worse > HELD_OUT.clear else "not clearly better"
    return f"Labels that are held out are predicted {without} without."
