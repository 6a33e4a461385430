"""The sections of a report: each turns facts into HTML, or into nothing where there is nothing to show."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from gleangp.report.charts import Chart, dot_rows, number, shown, span
from gleangp.report.effects import InputEffect
from gleangp.report.facts import ColumnFacts, Facts
from gleangp.report.pieces import error_text, figure, figures, table
from gleangp.report.single_tasks import MOST_CURVES, MOST_ODD, Curve
from gleangp.report.words import noise_text

_MOST_EFFECTS = 24  # inputs that are drawn
_MOST_LEVELS = 20  # categories that are drawn
_MOST_UNUSUAL = 20  # tasks that are listed
CURVES = ' id="curves"'


def tasks(facts: Facts) -> str:
    """Curves of single tasks, and the table of all of them."""
    if not facts.curves:
        return _task_table(facts) if facts.many_tasks else ""
    c = facts.classify
    drawn = [_curve(facts, curve) for curve in facts.curves]
    kind = (
        "Dots: whether the row is of the class."
        if c
        else (
            "Dots: data"
            + ("" if len(facts.columns) == 1 else ", moved by what the model attributes to the other inputs")
            + "."
        )
    )
    band = "" if c else " Band: 95 % of new values."
    what = f"{escape(facts.response.label)} along {escape(facts.curves[0].along.name)}"
    text = f"<p>{what}, the most important input that is a number. {kind}{band}</p>"
    if not facts.many_tasks:
        return text + figures(drawn)
    tools = (
        '<div class="tools"><label>Order<select id="order"><option value="worst">worst first</option>'
        '<option value="best">best first</option></select></label>'
        '<label>Find a task<input id="find" type="search" autocomplete="off"></label>'
        '<span id="found" role="status" class="soft"></span></div>'
    )
    most = "" if len(facts.tasks) <= MOST_CURVES else f"<p>The first {MOST_CURVES} tasks are drawn.</p>"
    return (
        f"{text}{most}{tools}{figures(drawn, CURVES)}"
        '<button type="button" class="plain" id="more" hidden>Show more tasks</button>'
        f"{_task_table(facts)}"
    )


def _task_table(facts: Facts) -> str:
    c = facts.classify
    heads = ["task", "rows", "held out", "error", "error alone", "active points"]
    lines = (
        [
            t.name,
            t.rows,
            t.held_out,
            (t.error, error_text(t.error, c)),
            (t.error_alone, error_text(t.error_alone, c)),
            t.active,
        ]
        for t in facts.tasks
    )
    caption = "Held-out error of every task by this model, and by a model of the task alone (first 20 tasks)"
    return table("tasks", caption, heads, lines)


def _curve(facts: Facts, curve: Curve) -> str:
    task = facts.tasks[curve.task]
    low, high = (curve.mean, curve.mean) if curve.band is None else curve.band.T
    y = (-0.05, 1.05) if facts.classify else span(low, high, curve.data_y)
    title = f"{task.name}: {facts.response.label} from {number(curve.mean[0])} to {number(curve.mean[-1])}"
    chart = Chart(
        span(curve.x, curve.data_x, margin=0.02),
        y,
        x_label=curve.along.name,
        y_label=facts.response.label,
        title=title,
        first=curve.along.first,
    )
    if curve.band is not None:
        chart.band(curve.x, low, high)
    chart.line(curve.x, curve.mean).specks(curve.data_x, curve.data_y)
    error = f"held-out error {error_text(task.error, facts.classify)}, {task.rows} rows"
    others = f"; {curve.others}" if curve.others else ""
    name = escape(task.name, quote=True)
    return figure(
        task.name, chart.svg(), error + others, f' data-name="{name}" data-error="{task.error:.6g}"'
    )


def inputs(facts: Facts) -> str:
    """Importance and effect of every input."""
    what = "minus the log probability of held-out labels" if facts.classify else "the held-out error"
    found = facts.inputs
    top = found[:_MOST_EFFECTS]
    picture = ""
    if np.isfinite([e.importance for e in top]).all():
        picture = dot_rows(
            np.array([e.importance for e in top]),
            [e.name for e in top],
            errors=np.array([e.std_error for e in top]),
            texts=[_signed(e.importance) for e in top],
            title=f"Growth of {what} if a column is permuted, the most important first",
            zero=True,
        )
    ranges = [span(e.mean, e.low, e.high) for e in top]
    common = (min(r[0] for r in ranges), max(r[1] for r in ranges))
    heads = ["input", "importance", "standard error", "beyond chance", "least effect", "largest effect"]
    lines = (
        [
            e.name,
            (e.importance, _signed(e.importance)),
            (e.std_error, error_text(e.std_error, False)),
            "yes" if e.importance > 2 * e.std_error else "no",
            float(e.mean.min()),
            float(e.mean.max()),
        ]
        for e in found
    )
    note = (
        ""
        if len(found) <= _MOST_EFFECTS
        else f" The {_MOST_EFFECTS} most important of {len(found)} are drawn."
    )
    return (
        f"<p>Importance: growth of {what} if the values of the column are permuted. "
        f"Effect: the average {escape(facts.response.label)} if all rows have this value.{note}</p>"
        + figures(
            [
                figure("Importance (lines: two standard errors)", picture),
                *(_effect(facts, e, common) for e in top),
            ]
        )
        + table("inputs", "Importance of every input, and the range of its average effect", heads, lines)
    )


def _signed(value: float) -> str:
    return f"{value:+.3g}" if np.isfinite(value) else "–"


def _effect(facts: Facts, effect: InputEffect, y: tuple[float, float]) -> str:
    title = (
        f"Effect of {effect.name}: average {facts.response.label} between {number(effect.mean.min())} and "
        f"{number(effect.mean.max())}"
    )
    levels = list(effect.column.categories)
    if levels:
        some = slice(_MOST_LEVELS)
        texts = [number(v) for v in effect.mean[some]]
        more = "" if len(levels) <= _MOST_LEVELS else f"the first {_MOST_LEVELS} of {len(levels)}"
        return figure(effect.name, dot_rows(effect.mean[some], levels[some], title=title, texts=texts), more)
    x = effect.values
    chart = Chart(
        span(x, margin=0.02),
        y,
        x_label=effect.name,
        y_label=facts.response.label,
        title=title,
        first=effect.column.first,
    )
    if len(x) > 1:
        chart.band(x, effect.low, effect.high).line(x, effect.mean)
    if len(x) <= 12:
        pairs = zip(x, effect.mean, strict=True)
        tips = [f"{effect.name} {shown(a, effect.column)}: {number(b)}" for a, b in pairs]
        chart.dots(x, effect.mean, tips)
    return figure(effect.name, chart.svg(), "band: the middle 80 % of rows")


def transfer(facts: Facts) -> str:
    """Who helps whom, as the model reports it."""
    if not facts.transfer:
        return ""
    heads = list(facts.transfer[0])
    lines = [[_plain(line.get(h)) for h in heads] for line in facts.transfer]
    caption = "For every task: its score with and without the other tasks, and which of them help or harm it"
    return table(
        "who-helps-whom", caption, [str(h).removeprefix("n_").replace("_", " ") for h in heads], lines
    )


def _plain(value: Any) -> Any:
    """A cell: a number, or text; lists and mappings with commas between their parts."""
    if isinstance(value, dict):
        return ", ".join(f"{k} ({v:.2g})" if isinstance(v, float) else f"{k} ({v})" for k, v in value.items())
    if isinstance(value, list | tuple | np.ndarray):
        return ", ".join(map(str, value))
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    return value if isinstance(value, int | float | np.number) else "" if value is None else str(value)


def unusual(facts: Facts) -> str:
    """Tasks that differ, rows that do not fit."""
    parts = []
    if facts.distances is not None:
        d = facts.distances
        order = np.argsort(-d.distance, kind="stable")[:_MOST_UNUSUAL]
        names = [facts.tasks[i].name for i in np.flatnonzero(d.unusual)]
        found = (
            f"{len(names)} of {len(facts.tasks)} tasks differ clearly from most."
            if names
            else "No task differs clearly from the others."
        )
        lines = (
            [facts.tasks[i].name, float(d.distance[i]), float(d.offset[i]), "yes" if d.unusual[i] else "no"]
            for i in order
        )
        heads = ["task", "distance", "offset", "unusual"]
        caption = (
            "Difference of a task's predictions from the median over tasks, at the same rows (largest first)"
        )
        parts.append(
            f"<h3>Tasks that differ</h3><p>{found}</p>{table('tasks-that-differ', caption, heads, lines)}"
        )
    if facts.held.spread is not None:
        parts.append(_odd_rows(facts))
    return "".join(parts)


def _odd_rows(facts: Facts) -> str:
    c, n = facts.classify, len(facts.held.rows)
    if c:
        text = "Held-out rows whose label had a probability below 5 %."
        head = "probability of the label"
    else:
        chance = f"By chance about {0.0027 * n:.2g} of {n} rows are."
        text = f"Held-out rows beyond three standard deviations. {chance}"
        head = "standard deviations"
    if not facts.odd:
        return f"<h3>Rows that do not fit</h3><p>{text} There are none.</p>"
    many = facts.many_tasks
    lines = (
        [
            facts.row_numbers[o.row],
            *([facts.tasks[facts.task_of_row[o.row]].name] if many else []),
            str(o.measured) if c else float(o.measured),
            str(o.predicted) if c else float(o.predicted),
            o.score,
        ]
        for o in facts.odd[:MOST_ODD]
    )
    heads = ["row", *(["task"] if many else []), "measured", "predicted", head]
    caption = "Rows of the table are counted from 1; the worst first, at most 20"
    return f"<h3>Rows that do not fit</h3><p>{text}</p>{table('rows-that-do-not-fit', caption, heads, lines)}"


def learnt(facts: Facts) -> str:
    """What tasks share, the kernel in words, the noise."""
    sentences = [f"Tasks share {text}." for text in facts.shared if text]
    sentences += [f"Shares of the variance: {facts.variance}."] if facts.variance else []
    words = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences + facts.kernel_words)
    noise = ""
    if facts.noise_std is not None:
        noise = f"<li>Noise: {escape(noise_text(facts.noise_std, facts.target))}.</li>"
    kept = f"{facts.n_active} of {facts.rows} rows are active points."
    units = {"labels": "the latent function", "counts": "the logarithm of the mean"}.get(
        facts.measure, "standardised targets"
    )
    return (
        f"<ul>{words}{noise}<li>{kept}</li><li>Log evidence: {facts.log_evidence:.2f}.</li></ul>"
        f"<p class='soft'>Kernel, in units of {units}: <code>{escape(facts.kernel)}</code></p>"
    )


def data(facts: Facts) -> str:
    """What was read and what was left out."""
    where = f" from {escape(facts.source)}" if facts.source else ""
    without = f" {facts.n_unlabeled} of them have no target." if facts.n_unlabeled else ""
    lines = (
        [
            k.encoding.name,
            _kind(k),
            k.unique,
            k.n_missing,
            *((v, "–" if np.isnan(v) else shown(v, k.encoding)) for v in (k.low, k.median, k.high)),
        ]
        for k in facts.columns
    )
    heads = ["column", "kind", "different values", "missing", "least", "median", "largest"]
    left = ""
    if facts.dropped:
        left = "<h3>Left out</h3>" + table(
            "left-out", "What was not used, and why", ["what", "why"], facts.dropped.items()
        )
    return (
        f"<p>{facts.rows} rows{where}, {len(facts.tasks)} {'tasks' if facts.many_tasks else 'task'}, "
        f"{len(facts.columns)} input columns.{without}</p>"
        f"{table('columns', 'Input columns as they were read', heads, lines)}{left}"
    )


def _kind(column: ColumnFacts) -> str:
    names = column.encoding.categories
    if not names:
        return column.encoding.kind if column.unique > 1 else "constant"
    return f"categories: {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"
