"""Log evidence of a task with many labels, projected on few of its rows (see `inference.projected`)."""

from __future__ import annotations

import numpy as np
from sklearn.base import clone

from gleangp.inference.block import Block
from gleangp.inference.projected import projected_evidence
from gleangp.inference.task_evidence import TaskEvidence
from gleangp.inference.task_rows import TaskRows
from gleangp.noise import Gaussian


class ProjectedTask:
    """One task whose labels contribute through its basis: the collapsed bound of Titsias 2009, O(l d^2)."""

    def __init__(self, kernel, task: TaskRows):
        self.kernel = clone(kernel)
        self.task = task

    def __call__(self, theta, log_noise, log_alpha, log_width) -> TaskEvidence:
        self.kernel.theta = theta[0]
        noise = float(np.exp(log_noise[0]))
        block = Block(self.task.X, self.task.y, Gaussian(noise))
        assert self.task.basis is not None
        evidence = projected_evidence(self.kernel, block, self.task.basis)
        nothing = np.zeros(1)
        return TaskEvidence(
            np.array([evidence.value]),
            evidence.theta_grad[None],
            np.array([noise * np.sum(evidence.noise_grad["variance"])]),
            nothing,
            nothing,
        )
