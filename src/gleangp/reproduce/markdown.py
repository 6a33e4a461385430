"""The same tables as Markdown, for documents and notes."""

from __future__ import annotations

from gleangp.reproduce.runner import Results
from gleangp.reproduce.summary import (
    cells_by_method,
    comparisons,
    format_cell,
    format_lead,
    format_printed,
    format_seconds,
    leads,
)


def render_markdown(results: list[Results]) -> str:
    """A section for each experiment: the paper's numbers beside ours, then all methods."""
    return "\n".join(_section(r) for r in results)


def _section(results: Results) -> str:
    e = results.experiment
    seconds = sum(r.processor_seconds for r in results.records)
    lines = [
        f"## {e.name}: {e.source}",
        "",
        f"{e.shows} {_runs(results)}; {seconds:.0f} processor seconds"
        f"{'; quick form' if results.quick else ''}.",
        "",
    ]
    for note in e.notes:
        lines += [f"* {note}"]
    lines.append("")
    lines += _compared(results)
    lines += _everything(results)
    lines += _leads(results)
    for failure in results.failures:
        lines += [f"Failed: {failure}", ""]
    return "\n".join(lines)


def _runs(results: Results) -> str:
    """How many runs: asked for, or had by each unit where an early end left fewer."""
    counts: dict[tuple[str, str], int] = {}
    for r in results.records:
        counts[r.setting, r.method] = counts.get((r.setting, r.method), 0) + 1
    least, most = (min(counts.values()), max(counts.values())) if counts else (0, 0)
    found = f"{most}" if least == most else f"{least} to {most}"
    return f"{found} run{'s' if most != 1 else ''} of the paper's {results.experiment.n_runs}"


def _compared(results: Results) -> list[str]:
    e = results.experiment
    found = comparisons(results)
    if not found:
        return []
    digits = {c.name: c.digits for c in e.columns}
    several = len(e.settings) > 1
    head = [e.setting_name] * several + ["method", "measure", "paper", "here", "verdict"]
    if e.default is not None:
        head += ["default", "verdict"]
    lines = [_row(head), _row(["---"] * len(head))]
    for c in found:
        d = digits[c.ours.column]
        row = [c.ours.setting] * several
        row += [c.ours.method, c.ours.column, format_printed(c.printed, d)]
        row += [format_cell(c.ours, d), c.ours.verdict]
        if e.default is not None:
            row += ["" if c.default is None else format_cell(c.default, d), c.default_verdict]
        lines.append(_row(row))
    return [*lines, ""]


def _everything(results: Results) -> list[str]:
    e = results.experiment
    digits = {c.name: c.digits for c in e.columns}
    columns, groups = cells_by_method(results)
    several = len(e.settings) > 1
    head = [e.setting_name] * several + ["method", "runs", *columns, "seconds"]
    lines = [_row(head), _row(["---"] * len(head))]
    for (setting, method), group in groups.items():
        first = next(iter(group.values()))
        row = [setting] * several + [method, str(first.n)]
        row += [format_cell(group[c], digits[c]) if c in group else "" for c in columns]
        lines.append(_row([*row, format_seconds(first.seconds)]))
    return [*lines, ""]


def _leads(results: Results) -> list[str]:
    digits = {c.name: c.digits for c in results.experiment.columns}
    lines = [f"* {format_lead(lead, digits[lead.column] + 1)}" for lead in leads(results)]
    return [*lines, ""] if lines else []


def _row(texts: list[str]) -> str:
    return "| " + " | ".join(text.replace("|", "/") for text in texts) + " |"
