"""The evidence of all tasks as one function of their parameters.

Small tasks are sorted by size and evaluated in padded stacks; large ones and those with order constraints
are evaluated one by one, in threads if wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from joblib import parallel_config

from gleangp.inference.prior import lay_out
from gleangp.inference.task_evidence import TaskEvidence, TaskOnBasis, TaskStack
from gleangp.inference.task_rows import TaskRows
from gleangp.models.defaults import HIERARCHY
from gleangp.numerics.parallel import in_parallel

# A task with more rows fills the arithmetic units alone; padding would only add to it.
_LARGEST_STACKED = 128


class TaskTerms:
    """Log evidence of every task and its gradients, at theta (M, q) and log_alpha (M,) of the tasks.

    With `noise=None` every task has its own: its logarithm is the last column of theta.
    """

    def __init__(
        self, kernel, tasks: Sequence[TaskRows], noise: float | None = None, n_jobs: int | None = None
    ):
        self.noise = noise
        self.tasks = list(tasks)
        self.n_jobs = n_jobs
        self.has_graph = np.array([t.laplacian is not None for t in tasks], dtype=bool)
        self.has_order = any(t.order is not None for t in tasks)
        self.groups: list[tuple[np.ndarray, TaskStack | TaskOnBasis]] = []
        for members in _grouped(tasks):
            chosen = [tasks[i] for i in members]
            term = TaskStack(kernel, chosen) if chosen[0].basis is None else TaskOnBasis(kernel, chosen[0])
            self.groups.append((np.array(members), term))

    def __len__(self) -> int:
        return len(self.tasks)

    def __call__(self, theta, log_alpha, log_width) -> TaskEvidence:
        if self.noise is None:
            own = np.exp(theta[:, -1])
            theta, log_noise = theta[:, :-1], np.log(own + HIERARCHY.least_noise)
        else:
            log_noise = np.full(len(theta), np.log(self.noise))
        calls = [(term, theta[at], log_noise[at], log_alpha[at], log_width) for at, term in self.groups]
        with parallel_config(backend="threading"), np.errstate(over="ignore", invalid="ignore"):
            parts = in_parallel(_evaluate, calls, self.n_jobs)
        n_tasks, q = theta.shape
        total = TaskEvidence(
            np.empty(n_tasks), np.empty((n_tasks, q)), np.empty(n_tasks), np.empty(n_tasks), np.empty(n_tasks)
        )
        for (at, _), part in zip(self.groups, parts, strict=True):
            for name in TaskEvidence.__dataclass_fields__:
                getattr(total, name)[at] = getattr(part, name)
        if self.noise is not None:
            return total
        d_log_noise = total.d_log_noise * own / (own + HIERARCHY.least_noise)
        return replace(total, d_theta=np.column_stack([total.d_theta, d_log_noise]), d_log_noise=d_log_noise)


def _evaluate(term, *arguments):
    return term(*arguments)


def _grouped(tasks: Sequence[TaskRows]) -> list[list[int]]:
    """Task numbers, by kind and size; each group is evaluated as one stack."""
    alike: dict[bool, list[int]] = {}
    groups = []
    for i, task in enumerate(tasks):
        if task.order is not None or task.basis is not None or len(task.X) > _LARGEST_STACKED:
            groups.append([i])
        else:
            alike.setdefault(task.laplacian is not None, []).append(i)
    for members in alike.values():
        codes = np.repeat(members, [len(tasks[i].X) for i in members])
        rows = np.split(np.arange(len(codes)), np.flatnonzero(np.diff(codes)) + 1)
        groups += [stack.tasks.tolist() for group in lay_out(codes, rows).groups for stack in group.stacks]
    return groups
