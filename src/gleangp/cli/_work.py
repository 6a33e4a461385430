"""What the commands on tables do. Options are parsed in `_app`; printing is here, on one console."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.base import is_classifier

from gleangp import load, save
from gleangp._version import __version__
from gleangp.cli._encoding import TableEncoding, learn_encoding, target_of
from gleangp.cli._models import named_model, rivals, sharing_model
from gleangp.cli._table_model import TableModel
from gleangp.cli._tables import read_chunks, read_table, table_writer
from gleangp.cli._validation import HeldOut, choose_folds, fit_quietly, held_out, task_folds
from gleangp.exceptions import LabelError, TaskError

_MOST_CLASSES = 50


@dataclass(frozen=True, eq=False)
class Problem:
    """A table, encoded: what all models are given."""

    encoding: TableEncoding
    X: np.ndarray
    y: np.ndarray
    tasks: np.ndarray | None
    classify: bool

    @property
    def n_tasks(self) -> int:
        """Number of tasks; one if there is no task column."""
        return 1 if self.tasks is None else len(np.unique(self.tasks))


def read_problem(
    path: str,
    target: str,
    task: str | None,
    *,
    drop: list[str],
    impute: bool,
    classify: bool | None,
    unlabeled: str | None,
) -> Problem:
    """Read a table, decide what its columns are, and take the rows that have a target."""
    frame = read_table(path, () if task is None else (task,))
    encoding = learn_encoding(frame, target, task, drop=drop, impute=impute)
    kind = frame[target].dtype.kind
    if classify is None:
        classify = kind not in "iuf"
    y = target_of(frame, target, classify=classify, unlabeled=unlabeled)
    labeled = y != unlabeled if classify else ~np.isnan(y)
    if not labeled.any():
        raise LabelError(f"no row has a target in the column {target!r}.")
    if classify and len(np.unique(y[labeled])) > _MOST_CLASSES:
        raise LabelError(
            f"the target {target!r} has {len(np.unique(y[labeled]))} different values: too many for classes. "
            "If they are numbers, use --regress."
        )
    frame = frame[labeled]
    return Problem(encoding, encoding.inputs(frame), y[labeled], encoding.tasks(frame), classify)


@contextmanager
def _status(console: Console, text: str) -> Any:
    """A spinner with what is being done, on terminals only."""
    if console.is_terminal:
        with console.status(text):
            yield
    else:
        yield


def fit_table(
    problem: Problem,
    output: Path,
    *,
    model_name: str,
    n_active: int | None,
    folds: int | None,
    seed: int,
    n_jobs: int | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """Hold-out score, then the model of all rows, saved with its encoding."""
    console = Console(stderr=True)
    model = named_model(model_name, problem.classify, seed=seed, n_active=n_active, n_jobs=n_jobs)
    if report is not None and model_name != "sparse":
        raise ValueError(f"--report is for --model sparse, not yet for {model_name}. Leave it out.")
    start = time.perf_counter()
    score = None
    if folds != 0:
        with _status(console, "held-out score"):
            score = validate(problem, model, folds, seed)
    with _status(console, "fitting all rows"):
        if model_name == "sparse" and score is not None and len(np.unique(score.fold)) == 1:
            model = _taught_by(score.last, model)
        fit_quietly(model, problem.X, problem.y, problem.tasks)
    summary = summarize(problem, score, time.perf_counter() - start)
    fitted = TableModel(model, problem.encoding, summary)
    save(fitted, output)
    if report is not None:
        from gleangp.report import write

        encoding = problem.encoding
        with _status(console, "writing the report"):
            write(
                model,
                problem.X,
                problem.y,
                problem.tasks,
                report,
                feature_names=encoding.feature_names,
                target_name=encoding.target,
            )
    if as_json:
        print(json.dumps({**describe(fitted), "model_file": str(output)}))
    else:
        print_description(fitted, Console())
        print(f"model: {output}" + ("" if report is None else f"   report: {report}"))


def _taught_by(held_out_model: Any, model: Any) -> Any:
    """For large tables: kernel and noise as four fifths of the rows taught them, not learnt again.

    Of a classifier the kernel alone is taken, as a start: its noise has a bias that must be learnt.
    """
    if is_classifier(model):
        one = len(held_out_model.classes_) == 2
        return model.set_params(kernel=held_out_model.kernel_) if one else model
    noise = held_out_model.noise_.variance
    return model.set_params(kernel=held_out_model.kernel_, noise_variance=noise, optimizer=None)


def validate(problem: Problem, model: Any, folds: int | None, seed: int) -> HeldOut:
    """Task-aware cross-validation, or one hold-out for large tables."""
    n_folds, n_used = choose_folds(len(problem.y), folds)
    fold = task_folds(problem.tasks, len(problem.y), n_folds, np.random.default_rng(seed))
    return held_out(model, problem.X, problem.y, problem.tasks, fold, n_used)


def summarize(problem: Problem, score: HeldOut | None, seconds: float) -> dict[str, Any]:
    """Plain values that are kept in the model file."""
    summary: dict[str, Any] = {
        "gleangp": __version__,
        "rows": len(problem.y),
        "tasks": problem.n_tasks,
        "seconds": round(seconds, 3),
        "kind": "classification" if problem.classify else "regression",
    }
    if score is None:
        return summary
    held = problem.y[score.rows]
    if problem.classify:
        share = float(np.max(np.unique(held, return_counts=True)[1]) / len(held))
        summary["held_out"] = {"error": score.error, "error_of_most_frequent": 1.0 - share, "rows": len(held)}
    else:
        r2 = 1.0 - score.error**2 / float(np.var(held)) if np.var(held) > 0 else float("nan")
        summary["held_out"] = {"rmse": score.error, "r2": r2, "rows": len(held)}
    return summary


def describe(model: TableModel) -> dict[str, Any]:
    """A model in plain values."""
    inner = model.estimator
    known = model.known_tasks
    out: dict[str, Any] = {
        "estimator": type(inner).__name__,
        "target": model.encoding.target,
        "task": model.encoding.task,
        "tasks": known,
        "inputs": model.encoding.feature_names,
        "kernel": str(inner.kernel_),
        "summary": model.summary,
    }
    active = getattr(inner, "active_", None)
    if active is not None:
        out["active_points"] = int(sum(map(len, active)) if isinstance(active, list) else len(active))
    if hasattr(inner, "log_evidence_"):
        out["log_evidence"] = float(inner.log_evidence_)
    if is_classifier(inner):
        out["classes"] = [str(c) for c in inner.classes_]
    elif hasattr(inner, "noise_"):
        out["noise"] = str(inner.noise_)
    return out


def print_description(model: TableModel, console: Console) -> None:
    """For people."""
    facts = describe(model)
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    summary = facts["summary"]
    table.add_row("model", f"{facts['estimator']}, {summary.get('kind', '')} of {facts['target']!r}")
    table.add_row("learnt from", f"{summary.get('rows', '?')} rows, {len(facts['tasks']) or 1} tasks")
    if facts["tasks"]:
        shown = ", ".join(facts["tasks"][:8]) + (", ..." if len(facts["tasks"]) > 8 else "")
        table.add_row("tasks", f"{facts['task']}: {shown}")
    if "classes" in facts:
        table.add_row("classes", ", ".join(facts["classes"]))
    table.add_row("inputs", ", ".join(facts["inputs"]))
    table.add_row("kernel", facts["kernel"])
    if "noise" in facts:
        table.add_row("noise", facts["noise"])
    if "active_points" in facts:
        table.add_row("active points", str(facts["active_points"]))
    if "log_evidence" in facts:
        table.add_row("log evidence", f"{facts['log_evidence']:.2f}")
    table.add_row("held-out", _held_out_text(summary.get("held_out")))
    if "seconds" in summary:
        table.add_row("time", f"{summary['seconds']:.1f} s")
    console.print(table)


def _held_out_text(score: dict[str, Any] | None) -> str:
    if score is None:
        return "not measured"
    if "rmse" in score:
        return f"RMSE {score['rmse']:.4g}, R² {score['r2']:.3f} ({score['rows']} rows)"
    return (
        f"error {score['error']:.1%}; always the most frequent class: "
        f"{score['error_of_most_frequent']:.1%} ({score['rows']} rows)"
    )


def load_table_model(path: Path) -> TableModel:
    """A model file that `gleangp fit` wrote."""
    model = load(path)
    if not isinstance(model, TableModel):
        raise ValueError(
            f"{path.name!r} holds a {type(model).__name__} that was saved from Python, without the columns "
            "of a table. Load it there with gleangp.load."
        )
    return model


def predict_table(model_path: Path, table: str, output: str, *, new_tasks_from_prior: bool) -> None:
    """Predict a table chunk by chunk."""
    model = load_table_model(model_path)
    text = () if model.encoding.task is None else (model.encoding.task,)
    with table_writer(output) as write:
        for chunk in read_chunks(table, text=text):
            if new_tasks_from_prior and text:
                _add_from_prior(model, model.encoding.tasks(chunk))
            write(model.predict(chunk))


def _add_from_prior(model: TableModel, tasks: np.ndarray | None) -> None:
    for task in sorted(set(np.asarray(tasks).tolist()) - set(model.known_tasks)):
        model.estimator.add_task(None, None, task=task)


def add_tasks(model_path: Path, table: str, output: Path) -> None:
    """Teach a model the new tasks of a table."""
    model = load_table_model(model_path)
    encoding = model.encoding
    if encoding.task is None:
        raise TaskError("this model was fitted without tasks (--task), so none can be added.")
    frame = read_table(table, (encoding.task,))
    X, tasks = encoding.inputs(frame), encoding.tasks(frame)
    y = target_of(frame, encoding.target, classify=is_classifier(model.estimator), unlabeled=None)
    names = sorted(set(np.asarray(tasks).tolist()))
    known = [name for name in names if name in model.known_tasks]
    if known:
        raise TaskError(f"the model knows the task {known[0]!r} already. Leave its rows out.")
    for name in names:
        rows = tasks == name
        model.estimator.add_task(X[rows], y[rows], task=name)
    save(model, output)
    print(f"added {', '.join(names)}: {output} now has {len(model.known_tasks)} tasks")


def compare_table(problem: Problem, *, folds: int | None, seed: int, as_json: bool) -> None:
    """Held-out errors of our model and of simple rivals, the best one named."""
    console = Console(stderr=True)
    models = rivals(problem.classify, with_tasks=problem.tasks is not None, seed=seed)
    ours = "gleangp, tasks share a kernel" if problem.tasks is not None else "gleangp"
    models[ours] = sharing_model(problem.classify, seed=seed)
    scores = {}
    for name, model in models.items():
        with _status(console, name):
            scores[name] = validate(problem, model, folds, seed)
    best = min(scores, key=lambda name: scores[name].error)
    measure = "share of errors" if problem.classify else "RMSE"
    if as_json:
        rows = {
            name: {"error": s.error, "std_error": _or_none(s.std_error), "seconds": s.seconds}
            for name, s in scores.items()
        }
        print(json.dumps({"measure": measure, "models": rows, "best": best}))
        return
    table = Table(title=f"{len(problem.y)} rows, {problem.n_tasks} tasks: held-out {measure}")
    table.add_column("model")
    for column in ("error", "± s.e.", "fit (s)"):
        table.add_column(column, justify="right")
    for name, score in scores.items():
        spread = "" if np.isnan(score.std_error) else f"{score.std_error:.2g}"
        style = "bold" if name == best else None
        table.add_row(name, f"{score.error:.4g}", spread, f"{score.seconds:.1f}", style=style)
    Console().print(table)
    print(_advice(scores, best, ours))


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else value


def _advice(scores: dict[str, HeldOut], best: str, ours: str) -> str:
    """Which to use: the best; the simplest of those it does not beat by more than their spread."""
    margin = scores[best].std_error
    close = [
        name for name, s in scores.items() if not np.isnan(margin) and s.error <= scores[best].error + margin
    ]
    advice = f"Least error: {best}."
    if close and close[0] != best:
        advice += f" Within one standard error of it and simpler: {close[0]}."
    if best == ours or ours in close:
        advice += " gleangp also gives standard deviations and takes new tasks with `gleangp add-task`."
    return advice
