"""Do constraints, unlabelled rows and other tasks help a hierarchy? Labels are held out in turn.

Parameters stay as they were learnt, so a check costs a few posteriors of each task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.data_dependent import predict_task, task_posterior
from gleangp.inference.task_rows import TaskRows
from gleangp.models.defaults import HELD_OUT, HIERARCHY
from gleangp.models.hierarchical.model import FittedTask, HierarchicalModel
from gleangp.noise import Gaussian


def held_out_scores(model: HierarchicalModel, blocks: Sequence[TaskRows]) -> FloatArray:
    """Log density of every label of the tasks, which are the last of the model, without those of its fold."""
    tasks = model.tasks[len(model.tasks) - len(blocks) :]
    scores = [_scores(model, task, block) for task, block in zip(tasks, blocks, strict=True)]
    return np.concatenate([np.zeros(0), *scores])


def gain(better: FloatArray, than: FloatArray) -> tuple[float, float]:
    """Mean difference of log densities of the same labels, and its standard error."""
    d = better - than
    return float(np.mean(d)), float(np.std(d, ddof=1) / np.sqrt(len(d))) if len(d) > 1 else float("inf")


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
        mean, var = predict_task(kernel, posterior, block.X[out])
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
