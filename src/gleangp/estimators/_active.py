"""From the parameters of a sparse estimator to the model of active points (`models.active`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gleangp._typing import FloatArray
from gleangp.estimators._training_rows import Coder, LocalRows
from gleangp.models.active.model import fit_sparse_model
from gleangp.models.active.settings import Settings
from gleangp.models.active.virtual_vectors import add_virtual_vectors, virtual_scores
from gleangp.models.parameters import Parameters
from gleangp.progress import Progress, silent


@dataclass(frozen=True, eq=False)
class ActiveProblem:
    """What one model is fitted from; a classifier of several classes has a problem for each of them."""

    parameters: Parameters
    rows: LocalRows
    code: Coder
    rng: np.random.Generator
    variance: FloatArray | None = None  # known noise of every row


def fit_active_rows(
    settings: Settings, invariances: list, problem: ActiveProblem, progress: Progress = silent
) -> Any:
    """Fit the model, with transformed copies of its active points if there are invariances."""
    settings, rows, rng = replace(settings, progress=progress), problem.rows, problem.rng
    tasks = rows.tasks(problem.code, problem.parameters.noise, problem.variance)
    model: Any = fit_sparse_model(problem.parameters, tasks, rows.n_rows, settings, rng)
    if not invariances:
        return model
    seed = int(rng.integers(2**31))
    wider = add_virtual_vectors(model, tasks, list(range(tasks.n_tasks)), invariances, settings, seed)
    return replace(wider, virtual_scores=virtual_scores(wider, model, tasks, seed))
