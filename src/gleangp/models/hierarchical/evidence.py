"""The evidence of all tasks as one function of their parameters.

Small tasks are sorted by size and evaluated in padded stacks; large ones and those with order constraints
are evaluated one by one, in threads if wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from joblib import parallel_config

from gleangp.inference.task_evidence import TaskEvidence, TaskOnBasis, TaskStack
from gleangp.inference.task_rows import TaskRows
from gleangp.models.defaults import HIERARCHY
from gleangp.numerics.parallel import in_parallel

# A task with more rows fills the arithmetic units alone; padding would only add to it.
_LARGEST_STACKED = 128
_STACK_ENTRIES = 400_000  # of one stack of matrices: it stays in the cache


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
    """Task numbers by kind and padded size; each group is evaluated as one stack."""
    by_size: dict[tuple, list[int]] = {}
    groups = []
    for i, task in enumerate(tasks):
        n_other = len(task.X) - task.n_labelled
        special = task.order is not None or task.basis is not None
        if special or len(task.X) > _LARGEST_STACKED:
            groups.append([i])
        else:
            key = (task.laplacian is not None, _padded(task.n_labelled), _padded(n_other))
            by_size.setdefault(key, []).append(i)
    for (_, n_labelled, n_other), members in by_size.items():
        most = max(1, _STACK_ENTRIES // max(1, (n_labelled + n_other) ** 2))
        groups += [members[start : start + most] for start in range(0, len(members), most)]
    return groups


def _padded(size: int) -> int:
    """The next of 0, 1, 2, 3, 4, 6, 8, 12, 16, 24, ...: at most half is padding."""
    if size <= 4:
        return size
    power = 1 << (size - 1).bit_length()
    return 3 * power // 4 if size <= 3 * power // 4 else power
