"""What a fitted model of a table is, for machines and for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from sklearn.base import is_classifier

from gleangp.cli._table_model import TableModel
from gleangp.cli._usage import printable


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

    def line(name: str, value: str) -> None:
        table.add_row(name, Text(printable(value)))  # not markup: names come from a table

    summary = facts["summary"]
    line("model", f"{facts['estimator']}, {summary.get('kind', '')} of {facts['target']!r}")
    without = summary.get("rows_without_target")
    rows = f"{summary.get('rows', '?')} rows" + (f" ({without} without a target)" if without else "")
    many = len(facts["tasks"])
    line("learnt from", f"{rows}, " + (f"{many} tasks" if many > 1 else "one task"))
    if facts["tasks"]:
        shown = ", ".join(facts["tasks"][:8]) + (", ..." if len(facts["tasks"]) > 8 else "")
        line("tasks", f"{facts['task']}: {shown}")
    if "classes" in facts:
        line("classes", ", ".join(facts["classes"]))
    line("inputs", ", ".join(facts["inputs"]))
    line("kernel", facts["kernel"])
    if "noise" in facts:
        line("noise", facts["noise"])
    if "active_points" in facts:
        line("active points", str(facts["active_points"]))
    if "log_evidence" in facts:
        line("log evidence", f"{facts['log_evidence']:.2f}")
    line("held-out", _held_out_text(summary.get("held_out")))
    if "unlabelled_rows" in summary:
        errors = summary["unlabelled_rows"]
        chosen = min(errors, key=errors.__getitem__)
        tried = ", ".join(f"{error:.1%} {name}" for name, error in errors.items())
        line("without target", f"{chosen} (held-out error: {tried})")
    if summary.get("stopped_early"):
        line("stopped", "early, by Ctrl-C: the best found until then")
    if "seconds" in summary:
        line("time", f"{summary['seconds']:.1f} s")
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
