"""`gleangp compare`: held-out errors of our models and of simple rivals on one table."""

from __future__ import annotations

import json
from contextlib import nullcontext

import numpy as np
from rich.console import Console
from rich.table import Table

from gleangp.cli._fit import validate
from gleangp.cli._models import our_models, rivals
from gleangp.cli._problem import Problem
from gleangp.cli._validation import HeldOut


def compare_table(problem: Problem, *, folds: int | None, seed: int, as_json: bool) -> None:
    """Held-out errors of our model and of simple rivals, the best one named."""
    console = Console(stderr=True)
    labeled = problem.labeled_only()
    simple = rivals(problem.classify, with_tasks=problem.tasks is not None, seed=seed)
    ours = our_models(problem, seed=seed)
    models = {**{name: (model, labeled) for name, model in simple.items()}, **ours}
    scores: dict[str, HeldOut] = {}
    for number, (name, (model, given)) in enumerate(models.items()):
        text = f"{number + 1} of {len(models)}: {name}"
        with console.status(text) if console.is_terminal else nullcontext():
            score = validate(given, model, folds, seed)
        if score is not None:
            scores[name] = score
    best = min(scores, key=lambda name: scores[name].error)
    measure = "share of errors" if problem.classify else "RMSE"
    if as_json:
        rows = {
            name: {"error": s.error, "std_error": _or_none(s.std_error), "seconds": s.seconds}
            for name, s in scores.items()
        }
        print(json.dumps({"measure": measure, "models": rows, "best": best}))
        return
    table = Table(title=f"{len(labeled.y)} rows, {problem.n_tasks} tasks: held-out {measure}")
    table.add_column("model")
    for column in ("error", "± s.e.", "fit (s)"):
        table.add_column(column, justify="right")
    for name, score in scores.items():
        spread = "" if np.isnan(score.std_error) else f"{score.std_error:.2g}"
        style = "bold" if name == best else None
        table.add_row(name, f"{score.error:.4g}", spread, f"{score.seconds:.1f}", style=style)
    Console().print(table)
    print(_advice(scores, best, set(ours)))


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else value


def _advice(scores: dict[str, HeldOut], best: str, ours: set[str]) -> str:
    """Which to use: the best; the simplest of those it does not beat by more than their spread."""
    margin = scores[best].std_error
    close = [
        name for name, s in scores.items() if not np.isnan(margin) and s.error <= scores[best].error + margin
    ]
    advice = f"Least error: {best}."
    if close and close[0] != best:
        advice += f" Within one standard error of it and simpler: {close[0]}."
    if ours & {best, *close}:
        advice += " gleangp also gives standard deviations and takes new tasks with `gleangp add-task`."
    return advice
