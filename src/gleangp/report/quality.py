"""How good a model is: its errors beside those of simpler models, and whether its uncertainties are right."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from gleangp._typing import FloatArray
from gleangp.report.charts import Chart, number, span
from gleangp.report.facts import Facts
from gleangp.report.pieces import error_text, figure, figures, table
from gleangp.report.single_tasks import MOST_ODD

MEASURES = {"labels": "share of errors", "counts": "Poisson deviance", "numbers": "RMSE"}
_MOST_SPECKS = 1000  # points of a scatter


def overview(facts: Facts) -> str:
    """The cards under the title."""
    c, held = facts.classify, facts.held
    cards = [
        (str(facts.rows), f"rows, {facts.n_unlabeled} without a target" if facts.n_unlabeled else "rows")
    ]
    if facts.many_tasks:
        cards.append((str(len(facts.tasks)), "tasks"))
    cards.append((error_text(held.error, c), f"held-out {MEASURES[facts.measure]}"))
    simple = min(facts.rivals, key=lambda r: r.error - r.ours, default=None)
    if simple is not None:
        cards.append((error_text(simple.error, c), f"best simpler model: {simple.name}"))
    if not c and len(held.rows) > 1:
        share = _explained(facts.y[held.rows], held.predicted)
        cards.append(("–" if np.isnan(share) else f"{share:.0%}", "of the variance explained"))
    shown = "".join(f'<div class="card"><b>{escape(a)}</b><span>{escape(b)}</span></div>' for a, b in cards)
    return f'<div class="cards">{shown}</div>'


def _explained(y: Any, predicted: FloatArray) -> float:
    y = np.asarray(y, dtype=float)
    return float(1 - np.mean((y - predicted) ** 2) / np.var(y)) if np.var(y) > 0 else float("nan")


def quality(facts: Facts) -> str:
    """Error beside those of simpler models, predictions against measurements, coverage."""
    c, held = facts.classify, facts.held
    if len(held.rows) == 0:
        return "<p>No row could be held out: there are too few.</p>"
    heads = [
        "model",
        "error",
        "error of this model",
        "difference",
        "standard error",
        "rows",
        "which is better",
    ]
    lines: list[list[Any]] = []
    for r in facts.rivals:
        verdict = (
            "the simpler model" if r.is_better else "this model" if r.is_worse else "not distinguishable"
        )
        shown = [(v, error_text(v, c)) for v in (r.error, r.ours, r.error - r.ours, r.std_error)]
        lines.append([r.name, *shown, r.rows, verdict])
    caption = "Simpler models on the same held-out rows (difference: from the paired rows)"
    measure = MEASURES[facts.measure]
    spread = "" if np.isnan(held.std_error) else f" ± {error_text(held.std_error, c)} (standard error)"
    return (
        f"<p>Error on {len(held.rows)} rows that were held out ({measure}): "
        f"<span class='good'>{error_text(held.error, c)}</span>{spread}. The models behind this number had "
        "not seen these rows. Simpler models were fitted and tested on the same rows.</p>"
        f"{table('simpler-models', caption, heads, lines)}"
        f"{_confusion(facts) if c else ''}{figures([*([] if c else _scatters(facts)), _coverage(facts)])}"
    )


def _some(n: int) -> np.ndarray:
    return np.sort(np.random.default_rng(0).permutation(n)[:_MOST_SPECKS])


def _scatters(facts: Facts) -> list[str]:
    held = facts.held
    truth = np.asarray(facts.y[held.rows], dtype=float)
    at = _some(len(truth))
    note = f"{len(at)} of {len(truth)} held-out rows" if len(at) < len(truth) else "all held-out rows"
    both = span(truth, held.predicted)
    correlation = np.corrcoef(truth, held.predicted)[0, 1] if np.ptp(truth) * np.ptp(held.predicted) else 0.0
    first = Chart(
        both,
        both,
        x_label=f"predicted {facts.target}",
        y_label=f"measured {facts.target}",
        title=f"Measured against predicted values; their correlation is {correlation:.2f}",
    )
    first.guide(both, both).specks(held.predicted[at], truth[at])
    residual = truth - held.predicted
    title = (
        f"Residuals against predicted values; their standard deviation is {number(float(np.std(residual)))}"
    )
    second = Chart(
        span(held.predicted),
        span(residual),
        x_label=f"predicted {facts.target}",
        y_label="residual",
        title=title,
    )
    second.guide(span(held.predicted), (0.0, 0.0)).specks(held.predicted[at], residual[at])
    odd = [o for o in facts.odd[:MOST_ODD]]
    tips = [_row_name(facts, o.row) for o in odd]
    for chart, y in ((first, [o.measured for o in odd]), (second, [o.measured - o.predicted for o in odd])):
        chart.dots(np.array([o.predicted for o in odd]), np.array(y), tips)
    marked = note + ("; large dots do not fit (see below)" if odd else "")
    return [
        figure("Predicted against measured (on the line: equal)", first.svg(), marked),
        figure("Residuals: measured less predicted", second.svg(), marked),
    ]


def _row_name(facts: Facts, row: int) -> str:
    task = f" of {facts.tasks[facts.task_of_row[row]].name}" if facts.many_tasks else ""
    return f"row {facts.row_numbers[row]}{task}"


def _confusion(facts: Facts) -> str:
    truth, predicted = facts.y[facts.held.rows], facts.held.predicted
    classes = np.unique(np.concatenate([truth, predicted]))
    lines = [[str(a), *(int(np.sum((truth == a) & (predicted == b))) for b in classes)] for a in classes]
    heads = ["measured", *(f"predicted {b}" for b in classes)]
    return table("confusion", "Held-out rows by measured and predicted class", heads, lines)


def _coverage(facts: Facts) -> str:
    c = facts.calibration
    if c is None:
        return ""
    unit = (0.0, 1.0)
    chart = Chart(
        unit,
        unit,
        x_label="stated confidence" if facts.classify else "promised coverage",
        y_label="share that was right" if facts.classify else "share of targets inside",
        title="Stated against observed shares; "
        + ("they differ by more than chance" if c.misses else "they agree within chance"),
    )
    tips = [f"stated {s:.0%}: observed {o:.0%}" for s, o in zip(c.stated, c.observed, strict=True)]
    chart.guide(unit, unit).band(c.stated, c.low, c.high).line(c.stated, c.observed)
    chart.dots(c.stated, c.observed, tips)
    note = "band: where 95 % of the shares are by chance alone, if the stated ones are right"
    return figure("Are its uncertainties right? They are if all dots are within the band", chart.svg(), note)
