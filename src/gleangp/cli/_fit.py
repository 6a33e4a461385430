"""`gleangp fit`: a held-out score, then the model of all rows, saved with its encoding."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from gleangp import SparseGPClassifier, save
from gleangp._version import __version__
from gleangp.cli._counts import looks_like_counts
from gleangp.cli._describe import describe, print_description
from gleangp.cli._models import learns_from_unlabeled, named_model, simple_baselines, with_fields
from gleangp.cli._problem import Problem
from gleangp.cli._progress import Watch
from gleangp.cli._table_model import TableModel
from gleangp.cli._usage import note
from gleangp.cli._validation import fit_rows, held_out
from gleangp.numerics.parallel import on_one_thread
from gleangp.report.held_out import Score, choose_folds

_FITTING = "learning ends here with the best found so far"


@dataclass(frozen=True)
class FitOptions:
    """What the user asked of `gleangp fit`."""

    model: str = "sparse"
    n_active: int | None = None
    folds: int | None = None
    seed: int = 0
    n_jobs: int | None = None
    report: Path | None = None
    as_json: bool = False
    verbose: bool = False


def fit_table(problem: Problem, output: Path, options: FitOptions) -> None:
    """Fit, save, and say what was learnt."""
    console = Console(stderr=True)
    if problem.noise is None and looks_like_counts(problem.y):
        note(
            f"the target {problem.encoding.target!r} has whole numbers from 0 on, and few different ones. If "
            "they are counts, use --noise negative_binomial (and --exposure COLUMN for time or area)."
        )
    candidates = _candidates(problem, options)
    start = time.perf_counter()
    n_folds = 0 if options.folds == 0 else choose_folds(problem.labeled, problem.tasks, options.folds)[1]
    can_stop = options.n_jobs in (None, 1)
    with Watch(console, n_folds * len(candidates) + 1, can_stop=can_stop) as watch:
        for candidate in candidates.values():
            candidate.model.set_callbacks(watch)
        chosen = ""
        scores: dict[str, Score] = {}
        if n_folds:
            chosen, scores = _best_of(candidates, options, watch)
        chosen = chosen or next(iter(candidates))
        model, problem, score = *candidates[chosen], scores.get(chosen)
        watch.begin("all rows", _FITTING)
        fit_rows(model, problem)
        watch.end()
        stopped = watch.stopping
    model.set_callbacks()
    seconds = time.perf_counter() - start
    simple = None if score is None else _best_baseline(problem.labeled_only(), score, options)
    summary = summarize(problem, score, seconds, stopped=stopped, baseline=simple)
    if len(scores) > 1:
        summary["unlabelled_rows"] = {name: s.error for name, s in scores.items()}
    inner = model.estimator if problem.encoding.fields else model
    fitted = TableModel(inner, replace(problem.encoding, columns=()), summary)
    save(fitted, output)
    if options.report is not None:
        _write_report(model, problem, score, simple, options.report, console)
    if options.as_json:
        print(json.dumps({**describe(fitted), "model_file": str(output)}))
    else:
        print_description(fitted, Console(), verbose=options.verbose)
        print(f"model: {output}" + ("" if options.report is None else f"   report: {options.report}"))


class Candidate(NamedTuple):
    """A model that may be fitted, and the rows it is given."""

    model: Any
    problem: Problem


def _candidates(problem: Problem, options: FitOptions) -> dict[str, Candidate]:
    """The model that was asked for, first with the rows without a target if it can learn from them.

    A classifier learns from them by the null category, which helps where classes are clusters and can do
    harm elsewhere; so there it is tried without them too, and the held-out error decides. The hierarchy
    weighs them by its evidence, and a latent space only places them.
    """
    model, labeled = _asked_model(problem, options), problem.labeled_only()
    if problem.labeled.all() or not learns_from_unlabeled(options.model, problem.classify):
        problem.say_left_out()
        return {"left out": Candidate(model, labeled)}
    found = {"learnt from": Candidate(model, problem)}
    if isinstance(model, SparseGPClassifier):
        model.set_params(unlabeled=problem.unlabeled)
        found["left out"] = Candidate(_asked_model(problem, options), labeled)
    elif problem.classify:
        model.set_params(unlabeled=problem.unlabeled)
    return found


def _best_of(
    candidates: dict[str, Candidate], options: FitOptions, watch: Watch
) -> tuple[str, dict[str, Score]]:
    """Name of the candidate of least held-out error, and the scores of all that were measured."""
    scores: dict[str, Score] = {}
    for name, (model, problem) in candidates.items():
        given = (options.folds, options.seed, watch)
        score = held_out(model, problem, *given, for_report=options.report is not None)
        if score is not None:
            scores[name] = score
        if watch.stopping:
            break
    return min(scores, key=lambda name: scores[name].error, default=""), scores


def _asked_model(problem: Problem, options: FitOptions) -> Any:
    more: dict[str, Any] = {"n_active": options.n_active, "n_jobs": options.n_jobs}
    if options.model == "ordinal":
        more["categories"] = list(problem.order or ())
    if problem.constraints is not None and options.model != "hierarchical":
        raise ValueError("--constraints are for --model hierarchical. Leave them out, or choose that model.")
    model = named_model(options.model, problem.classify, seed=options.seed, noise=problem.noise, **more)
    return with_fields(model, problem)


def _write_report(
    model: Any,
    problem: Problem,
    score: Score | None,
    simple: tuple[str, Score] | None,
    path: Path,
    console: Console,
) -> None:
    from gleangp.report import write

    with on_one_thread(), console.status("writing the report") if console.is_terminal else nullcontext():
        write(
            model,
            problem.X,
            problem.y,
            problem.tasks,
            path,
            target_name=problem.encoding.target,
            held_out=score,
            source=problem.source,
            dropped=problem.dropped,
            simpler=None if simple is None else {simple[0]: simple[1].predicted},
            encodings=[column for column in problem.columns if problem.X[column.name].notna().any()],
            row_numbers=problem.row_numbers.tolist(),
        )


def _best_baseline(labeled: Problem, score: Score, options: FitOptions) -> tuple[str, Score]:
    """The simple model of least error on the rows that the model was measured on, and its name."""
    n_used = int(score.fold.max()) + 1  # fewer after Ctrl-C; folds of small tables may be empty
    found: dict[str, Score] = {}
    for name, model in simple_baselines(labeled).items():
        measured = held_out(model, labeled, options.folds, options.seed, n_used=n_used)
        assert measured is not None  # nobody can cut it short
        found[name] = measured
    best = min(found, key=lambda name: found[name].error)
    return best, found[best]


def summarize(
    problem: Problem,
    score: Score | None,
    seconds: float,
    *,
    stopped: bool = False,
    baseline: tuple[str, Score] | None = None,
) -> dict[str, Any]:
    """Plain values that are kept in the model file."""
    summary: dict[str, Any] = {
        "gleangp": __version__,
        "rows": len(problem.y),
        "tasks": problem.n_tasks,
        "seconds": round(seconds, 3),
        "kind": _kind(problem),
        "stopped_early": stopped,
        "ranges": _ranges(problem),
    }
    without = int((~problem.labeled).sum())
    if without:
        summary["rows_without_target"] = without
    if score is None:
        return summary
    held = problem.y[score.rows]
    if problem.classify:
        share = float(np.max(np.unique(held, return_counts=True)[1]) / len(held))
        summary["held_out"] = {"error": score.error, "error_of_most_frequent": 1.0 - share, "rows": len(held)}
    else:
        rmse = score.by("numbers", held).error
        r2 = 1.0 - rmse**2 / float(np.var(held)) if np.var(held) > 0 else float("nan")
        summary["held_out"] = {"rmse": rmse, "r2": r2, "rows": len(held)}
        if score.measure == "counts":
            summary["held_out"]["deviance"] = score.error
    summary["held_out"]["std_error"] = or_none(score.std_error)
    if baseline is not None:
        name, simple = baseline
        behind, spread = simple.behind(score)
        summary["held_out"]["baseline"] = {
            "name": name,
            "error": simple.error,
            "std_error": or_none(simple.std_error),
            "behind": behind,
            "behind_std_error": or_none(spread),
        }
    return summary


def _ranges(problem: Problem) -> dict[str, list[float]]:
    """Least, median and largest value of every column of numbers, over the cells that are not missing."""
    found = {}
    for column in problem.encoding.columns:
        if column.kind == "number":
            found[column.name] = problem.X[column.name].quantile([0.0, 0.5, 1.0]).tolist()
    return found


def or_none(value: float) -> float | None:
    """A number for JSON, which has no nan."""
    return None if np.isnan(value) else value


def _kind(problem: Problem) -> str:
    if problem.order is not None:
        return "ordered categories"
    return "classification" if problem.classify else "regression"
