"""How to learn: what the sparse estimators ask of everything below them."""

from __future__ import annotations

from dataclasses import dataclass

from gleangp.progress import Progress, silent
from gleangp.selection.base import Selector


@dataclass(frozen=True, eq=False)
class Settings:
    """How to learn; the estimators fill it in from their constructor."""

    selector: Selector
    n_active: int
    optimize: bool = True
    n_rounds: int = 5
    max_iter: int = 100
    precision: float = 1e-5  # relative change of the objective at which the optimiser stops
    n_restarts: int = 0
    tol: float = 1e-3  # a round that gains less than this share of a nat per row is the last
    propagate: bool = False  # expectation propagation over the active points, after filtering
    n_jobs: int | None = None
    progress: Progress = silent  # told of every stage and step of learning; may ask to stop
    uncoupled: str = "as asked"  # why tasks share the kernel alone


def most_stages(settings: Settings) -> int:
    """Most stages of a fit: rounds, posteriors twice."""
    return settings.n_rounds + 2
