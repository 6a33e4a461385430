"""`gleangp compare`: held-out errors of our models and of simple rivals on one table."""

from __future__ import annotations

import json
from contextlib import nullcontext

import numpy as np
from rich.console import Console
from rich.table import Table

from gleangp.cli._counts import looks_like_counts
from gleangp.cli._fit import or_none
from gleangp.cli._models import our_models, rivals
from gleangp.cli._problem import Problem
from gleangp.cli._validation import held_out
from gleangp.report.held_out import Score
from gleangp.report.quality import MEASURES

_SAME = 0.01  # of the error: predictions that differ by less count as the same


def compare_table(problem: Problem, *, folds: int | None, seed: int, as_json: bool) -> None:
    """Held-out errors of our models and of simple rivals, and which of them are not worse than the best."""
    console = Console(stderr=True)
    problem.say_left_out()
    labeled = problem.labeled_only()
    ours = our_models(problem, seed=seed)
    models = {**{name: (model, labeled) for name, model in rivals(labeled, seed=seed).items()}, **ours}
    scores: dict[str, Score] = {}
    counts = labeled.measure == "counts" or (labeled.noise is None and looks_like_counts(labeled.y))
    same: dict[str, str] = {}  # models that predict what an earlier one predicts
    for number, (name, (model, given)) in enumerate(models.items()):
        text = f"{number + 1} of {len(models)}: {name}"
        with console.status(text) if console.is_terminal else nullcontext():
            score = held_out(model, given, folds, seed)
        if score is None:
            continue
        twin = next((other for other, s in scores.items() if _predict_the_same(score, s)), None)
        if twin is None:
            scores[name] = score
        else:
            same[name] = twin
    if not scores:
        raise ValueError("no row can be held out, because every task has one row only. Give tasks more rows.")
    if counts:
        scores = {name: score.by("counts", labeled.y[score.rows]) for name, score in scores.items()}
    best = min(scores, key=lambda name: scores[name].error)
    behind = {name: score.behind(scores[best]) for name, score in scores.items()}
    close = [name for name, (gap, spread) in behind.items() if not gap > spread]  # nan: not known
    measure = MEASURES["counts" if counts else labeled.measure]
    columns = {
        name: {
            "error": s.error,
            "std_error": s.std_error,
            "behind": behind[name][0],
            "behind_std_error": behind[name][1],
            "seconds": s.seconds,
            **({"rmse": s.by("numbers", labeled.y[s.rows]).error} if counts else {}),
        }
        for name, s in scores.items()
    }
    if as_json:
        rows = {name: {key: or_none(value) for key, value in row.items()} for name, row in columns.items()}
        print(
            json.dumps({"measure": measure, "models": rows, "same": same, "best": best, "not_worse": close})
        )
        return
    tasks = f"{problem.n_tasks} tasks" if problem.n_tasks > 1 else "one task"
    Console().print(_table(f"{len(labeled.y)} rows, {tasks}: held-out {measure}", columns, best, close))
    for name, twin in same.items():
        print(f"Almost the same predictions as {_short(twin)}: {_short(name)}.")
    print(_advice(behind, best, close, set(ours)))


def _table(title: str, columns: dict[str, dict[str, float]], best: str, close: list[str]) -> Table:
    """A row for each model; those in `close` are not worse than the best."""
    table = Table(title=title)
    table.add_column("model", overflow="fold")
    with_root = "rmse" in columns[best]
    for heading in ("error", "± s.e.", "behind", "± s.e.", *(["RMSE"] if with_root else []), "fit (s)"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, row in columns.items():
        paired = ("", "") if name == best else (f"{row['behind']:.2g}", _number(row["behind_std_error"]))
        more = [f"{row['rmse']:.4g}"] if with_root else []
        cells = [f"{row['error']:.4g}", _number(row["std_error"]), *paired, *more, f"{row['seconds']:.1f}"]
        table.add_row(name, *cells, style="bold" if name in close else None)
    return table


def _predict_the_same(a: Score, b: Score) -> bool:
    """Whether two models differ by little beside their error."""
    if a.measure != "labels":
        apart = float(np.sqrt(np.mean((a.predicted - b.predicted) ** 2)))
    else:
        apart = float(np.mean(a.predicted != b.predicted))
    if a.measure == "counts":  # beside the deviation of Poisson counts
        return apart <= _SAME * float(np.sqrt(np.maximum(a.predicted, 0.0).mean()))
    return apart <= _SAME * max(a.error, b.error)


def _short(name: str) -> str:
    """The name without what explains it."""
    return repr(name.split(":")[0])


def _number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.2g}"


def _advice(behind: dict[str, tuple[float, float]], best: str, close: list[str], ours: set[str]) -> str:
    """Which to use: the best if it is clearly ahead, else the simplest of those not clearly worse."""
    if len(close) > 1:
        advice = (
            f"No clear winner: {', '.join(map(_short, close))} are within one standard error of the least "
            f"error (paired differences). The simplest of them is {_short(close[0])}."
        )
    else:
        others = {name: gap for name, (gap, _) in behind.items() if name != best}
        advice = f"Best: {_short(best)}."
        if others:
            second = min(others, key=others.__getitem__)
            gap, spread = behind[second]
            advice = f"Best: {_short(best)}, ahead of {_short(second)} by {gap:.2g} ± {spread:.2g}."
    if ours & set(close):
        advice += " gleangp also gives standard deviations and absorbs new rows with `gleangp update`."
    return advice
