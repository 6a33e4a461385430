"""One class against the rest: the binary problems of a classifier, each a sparse model of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gleangp.estimators._progress import FitProgress
from gleangp.estimators._training_rows import ClassSigns, LocalRows
from gleangp.models.active.model import fit_sparse_model
from gleangp.models.active.settings import Settings, most_stages
from gleangp.models.active.virtual_vectors import add_virtual_vectors
from gleangp.models.parameters import Parameters
from gleangp.numerics.parallel import in_parallel
from gleangp.progress import Progress, silent


@dataclass(frozen=True, eq=False)
class BinaryProblem:
    """What one of them is fitted from."""

    parameters: Parameters
    rows: LocalRows
    code: ClassSigns
    rng: np.random.Generator
    invariances: list


def fit_binary_problems(
    problems: list[BinaryProblem], settings: Settings, progress: FitProgress, n_jobs: int | None
) -> list[Any]:
    """The models of all problems."""
    return fit_each(
        _fit, [(settings, problem) for problem in problems], most_stages(settings), progress, n_jobs
    )


def fit_each(
    fit: Callable[..., Any], jobs: list[tuple], most_stages: int, progress: FitProgress, n_jobs: int | None
) -> list[Any]:
    """`fit(*job, progress=...)` of all jobs; in other processes they do not tell of their stages."""
    if len(jobs) == 1:
        return [fit(*jobs[0], progress=progress)]
    if n_jobs not in (None, 1):
        models = in_parallel(fit, jobs, n_jobs)
        for _ in jobs:
            progress.binary_problem(0).end()
        return models
    models = []
    for job in jobs:
        own = progress.binary_problem(most_stages)
        models.append(fit(*job, progress=own))
        own.end()
    return models


def _fit(settings: Settings, problem: BinaryProblem, progress: Progress = silent) -> Any:
    settings, rows, rng = replace(settings, progress=progress), problem.rows, problem.rng
    tasks: Any = rows.tasks(problem.code, problem.parameters.noise)
    model: Any = fit_sparse_model(problem.parameters, tasks, rows.n_rows, settings, rng)
    if not problem.invariances:
        return model
    return add_virtual_vectors(model, tasks, problem.invariances, settings, int(rng.integers(2**31)))
