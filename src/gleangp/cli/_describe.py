"""What a fitted model is, for machines and for people."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text
from sklearn.base import is_classifier

from gleangp.cli._table_model import TableModel
from gleangp.cli._usage import printable
from gleangp.report.single_tasks import noise_std
from gleangp.report.words import noise_text, shares_text, variance_shares, what_is_shared


def describe(model: Any) -> dict[str, Any]:
    """A model in plain values: what `gleangp fit` wrote, or an estimator that was saved from Python."""
    inner = model.estimator if isinstance(model, TableModel) else model
    names = getattr(inner, "tasks_", None)
    tasks = [] if names is None else [str(name) for name in names]
    out: dict[str, Any] = {"estimator": type(inner).__name__, "tasks": tasks}
    if isinstance(model, TableModel):
        encoding = model.encoding
        columns = [column.name for column in model.columns]
        out.update(target=encoding.target, task=encoding.task, inputs=columns)
        out["summary"] = model.summary
    else:
        names_in = getattr(inner, "feature_names_in_", None)
        count = getattr(inner, "n_features_in_", 0)
        found = [f"column {k}" for k in range(count)] if names_in is None else [str(c) for c in names_in]
        task = getattr(inner, "task", None)
        out.update(target=None, task=task, inputs=[c for c in found if c not in (task, f"column {task}")])
        out["summary"] = {"kind": "classification" if is_classifier(inner) else "regression"}
        fitted = getattr(inner, "_model", None) or getattr(inner, "_models", [None])[0]
        if hasattr(fitted, "n_rows"):
            out["summary"]["rows"] = int(fitted.n_rows)
    if len(tasks) > 1:
        out["shared"] = what_is_shared(inner)
    if shares := variance_shares(inner):
        out["variance_shares"] = shares
    if getattr(inner, "decisions_", ()):
        out["decisions"] = [str(decision) for decision in inner.decisions_]
    if hasattr(inner, "kernel_"):
        out["kernel"] = str(inner.kernel_)
    active = getattr(inner, "active_", None)
    if active is not None:
        out["active_points"] = int(sum(map(len, active)) if isinstance(active, list) else len(active))
    if hasattr(inner, "log_evidence_"):
        out["log_evidence"] = float(inner.log_evidence_)
    if is_classifier(inner):
        out["classes"] = [str(c) for c in inner.classes_]
    elif getattr(inner, "noise", "gaussian") != "gaussian":
        out["noise"] = _noise_words(inner.noise_)
    else:
        noise = out["summary"].get("noise_std") or noise_std(inner)
        if noise is not None:
            out["noise_std"] = noise
    return out


def _noise_words(noise: Any) -> str:
    """The kind of noise, and what was learnt of it."""
    learnt = {key: value for key, value in noise.parameters.items() if key != "bias" and np.ndim(value) == 0}
    name = "".join(f" {c.lower()}" if c.isupper() else c for c in type(noise).__name__).strip()
    return ", ".join([name, *(f"{key.replace('_', ' ')} {value:.3g}" for key, value in learnt.items())])


def print_description(model: Any, console: Console, *, verbose: bool = False) -> None:
    """For people."""
    facts = describe(model)
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")

    def line(name: str, value: str) -> None:
        table.add_row(name, Text(printable(value)))  # not markup: names come from a table

    summary = facts["summary"]
    of = "" if facts["target"] is None else f" of {facts['target']!r}"
    line("model", f"{facts['estimator']}, {summary.get('kind', '')}{of}")
    many = f"{len(facts['tasks'])} tasks" if len(facts["tasks"]) > 1 else "one task"
    line("learnt from", f"{_rows_text(summary)}{many}")
    if facts["tasks"]:
        shown = ", ".join(facts["tasks"][:8]) + (", ..." if len(facts["tasks"]) > 8 else "")
        line("tasks", shown if facts["task"] is None else f"{facts['task']}: {shown}")
    if "classes" in facts:
        line("classes", ", ".join(facts["classes"]))
    line("inputs", ", ".join(facts["inputs"]))
    for number, text in enumerate(facts.get("shared", ())):
        line("tasks share" if number == 0 else "", text)
    if "variance_shares" in facts:
        line("variance", shares_text(facts["variance_shares"]))
    if "noise" in facts:
        line("noise", facts["noise"])
    if "noise_std" in facts:
        line("noise", noise_text(facts["noise_std"], facts["target"]))
    score = summary.get("held_out")
    line("held-out", _held_out_text(score))
    if score is not None and "baseline" in score:
        line("simple model", _baseline_text(score["baseline"], percent="error" in score))
    if "unlabelled_rows" in summary:
        errors = summary["unlabelled_rows"]
        chosen = min(errors, key=errors.__getitem__)
        tried = ", ".join(f"{error:.1%} {name}" for name, error in errors.items())
        line("without target", f"{chosen} (held-out error: {tried})")
    if summary.get("stopped_early"):
        line("stopped", "early, by Ctrl-C: the best found until then")
    if verbose:
        for number, text in enumerate(facts.get("decisions", ())):
            line("decided" if number == 0 else "", text)
        for name in ("kernel", "active_points", "log_evidence"):
            if name in facts:
                value = facts[name]
                line(name.replace("_", " "), f"{value:.2f}" if isinstance(value, float) else str(value))
    if "seconds" in summary:
        line("time", f"{summary['seconds']:.1f} s")
    console.print(table)


def _rows_text(summary: dict[str, Any]) -> str:
    if "rows" not in summary:
        return ""
    without, added = summary.get("rows_without_target"), summary.get("rows_added")
    more = [f"{without} without a target"] if without else []
    more += [f"and {added} that were added since"] if added else []
    return f"{summary['rows']} rows" + (f" ({', '.join(more)})" if more else "") + ", "


def _held_out_text(score: dict[str, Any] | None) -> str:
    if score is None:
        return "not measured"
    spread = score.get("std_error")
    if "deviance" in score:
        error = f"Poisson deviance {score['deviance']:.4g}" + ("" if spread is None else f" ± {spread:.2g}")
        return f"{error}, RMSE {score['rmse']:.4g} ({score['rows']} rows)"
    if "rmse" in score:
        error = f"RMSE {score['rmse']:.4g}" + ("" if spread is None else f" ± {spread:.2g}")
        return f"{error}, R² {score['r2']:.3f} ({score['rows']} rows)"
    error = f"error {score['error']:.1%}" + ("" if spread is None else f" ± {spread:.1%}")
    return f"{error} ({score['rows']} rows)"


def _baseline_text(simple: dict[str, Any], *, percent: bool) -> str:
    """The best simple model, and whether ours is better by more than a standard error."""

    def number(value: float, digits: str = ".4g") -> str:
        return f"{value:.1%}" if percent else format(value, digits)

    behind, spread = simple["behind"], simple["behind_std_error"]
    own = "" if simple["std_error"] is None else f" ± {number(simple['std_error'], '.2g')}"
    if spread is None or abs(behind) <= spread:
        verdict = "no clear difference"
    else:
        verdict = f"this model is {'better' if behind > 0 else 'worse'}"
    paired = "" if spread is None else f" ± {number(spread, '.2g')}"
    return f"{simple['name']}: {number(simple['error'])}{own}; {verdict} ({number(behind, '.2g')}{paired})"
