"""Do constraints, unlabelled rows and other tasks help a hierarchy? Labels are held out in turn.

Parameters stay as they were learnt, so a check costs a few posteriors of each task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.exceptions import warn_user
from gleangp.inference.data_dependent import TaskRows, task_posterior
from gleangp.models.decisions import Decision, in_standard_errors
from gleangp.models.defaults import HELD_OUT, HIERARCHY
from gleangp.models.hierarchical.model import FittedTask, HierarchicalModel
from gleangp.noise import Gaussian


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
            warn_user(
                f"{name}labels that are held out have a lower density with the constraints "
                f"({numbers['constraints']:.3g} nats each) than without ({numbers['none']:.3g}). They may be "
                "wrong: check them, or leave them out.",
                UserWarning,
            )
    return made


def alone_if_better(
    before: HierarchicalModel, model: HierarchicalModel, block: TaskRows, name: str
) -> tuple[HierarchicalModel, list[Decision]]:
    """The model whose last task has its own kernel where the prior of the others is clearly worse."""
    if block.n_labelled < HELD_OUT.least_labels:
        return model, []
    wide = replace(before, prior_cov=HIERARCHY.wide_variance * np.eye(len(before.prior_cov)))
    alone = wide.add_task(block)
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
    return numbers, in_standard_errors(scores[1] - scores[0])


def _reason(numbers: dict[str, float], worse: float) -> str:
    if not numbers:
        return "There are too few labels to hold some out."
    without = "better" if worse > HELD_OUT.clear else "not clearly better"
    return f"Labels that are held out are predicted {without} without."


def held_out_scores(model: HierarchicalModel, blocks: Sequence[TaskRows]) -> FloatArray:
    """Log density of every label of the tasks, which are the last of the model, without those of its fold."""
    tasks = model.tasks[len(model.tasks) - len(blocks) :]
    scores = [_scores(model, task, block) for task, block in zip(tasks, blocks, strict=True)]
    return np.concatenate([np.zeros(0), *scores])


def _scores(model: HierarchicalModel, task: FittedTask, block: TaskRows) -> FloatArray:
    n = block.n_labelled
    n_folds = min(HELD_OUT.n_folds, n)
    fold = np.random.default_rng(0).permutation(np.arange(n) % max(1, n_folds))
    scores, noise = np.zeros(n), model.noise if task.noise is None else task.noise
    for k in range(n_folds):
        known, out = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        kernel: Any = task.kernel
        width = HIERARCHY.width[0] if model.width is None else np.log(model.width)
        posterior = task_posterior(kernel, _thinned(block, known, out), noise, task.alpha, width)
        mean, var = posterior.predict(kernel, block.X[out])
        scores[out] = Gaussian(noise).log_density(block.y[out], mean, var)
    return scores


def _thinned(block: TaskRows, known: IntArray, out: IntArray) -> TaskRows:
    """The task with the labels of `known` rows; the others stay if graph or constraints name them."""
    if block.laplacian is None and block.order is None:
        return TaskRows(block.X[known], block.y[known])
    rows = np.concatenate([known, out, np.arange(block.n_labelled, len(block.X))])
    laplacian, order = block.laplacian, block.order
    if laplacian is not None:
        laplacian = laplacian[rows][:, rows]
    if order is not None:
        order = replace(order, coefficients=order.coefficients[:, rows])
    return TaskRows(block.X[rows], block.y[known], laplacian, order)
