"""The HTML of a report. One file: styles and the few lines of script are inside, nothing is fetched."""

from __future__ import annotations

import os
from base64 import b64encode
from hashlib import sha256
from html import escape
from typing import Any

import numpy as np

from gleangp._version import __version__
from gleangp.io import replacing
from gleangp.report import charts
from gleangp.report.facts import Facts, TaskFacts, gather

_STYLE = """
:root{color-scheme:light dark;--ink:#1c2330;--soft:#5b6575;--line:#d9dee6;--paper:#fff;--panel:#f5f7fa;
--blue:#0072b2;--red:#b34700}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#a0a9b8;--line:#333c4a;--paper:#14181f;
--panel:#1c222c;--blue:#56b4e9;--red:#ff9a57}}
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1040px;margin:0 auto;padding:24px 16px 60px}h1{font-size:1.6rem;margin:.2em 0}
h2{font-size:1.15rem;margin:2em 0 .5em;border-bottom:1px solid var(--line);padding-bottom:.2em}
p,li{max-width:70ch}.soft{color:var(--soft)}.cards{display:grid;gap:12px;
grid-template-columns:repeat(auto-fit,minmax(150px,1fr));margin:16px 0}
.card{background:var(--panel);border-radius:8px;padding:10px 14px}.card b{display:block;font-size:1.35rem}
.card span{color:var(--soft);font-size:.85rem}.charts{display:grid;gap:28px 32px;margin:20px 0;
grid-template-columns:repeat(auto-fit,minmax(min(400px,100%),1fr))}figure{margin:0;max-width:520px}
figcaption{font-weight:600;margin-bottom:4px}svg{width:100%;height:auto;display:block}
.tick{font-size:13px;fill:var(--soft)}.axis{font-size:13px;fill:var(--ink)}
.grid{stroke:var(--line);stroke-width:.7}.guide{stroke:var(--soft);stroke-dasharray:4 4}
.dot{fill:var(--blue);fill-opacity:.75}.dot:hover{fill:var(--red)}
.line{fill:none;stroke:var(--blue);stroke-width:2}
.bar{fill:var(--blue)}.bar:hover{fill:var(--red)}.wide{overflow:auto;max-height:80vh}
thead th{position:sticky;top:0;background:var(--paper)}
#tip{position:fixed;z-index:9;pointer-events:none;background:var(--ink);color:var(--paper);padding:4px 9px;
border-radius:5px;font-size:.85rem;max-width:min(320px,90vw);overflow-wrap:anywhere}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:5px 10px;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:8em}
th button{all:unset;cursor:pointer;font-weight:600}th button:focus-visible{outline:2px solid var(--blue)}
th button::after{content:" \\2195";color:var(--soft)}th[aria-sort=ascending] button::after{content:" \\2191"}
th[aria-sort=descending] button::after{content:" \\2193"}tr:hover td{background:var(--panel)}
code{background:var(--panel);padding:1px 5px;border-radius:4px;overflow-wrap:anywhere}
.good{color:var(--blue);font-weight:600}
@media(max-width:600px){th,td{padding:5px 6px;font-size:.85rem}th:first-child,td:first-child{min-width:6em}}
@media print{.wide{max-height:none;overflow:visible}}
"""

_SEEN = "The kernel had seen these rows, the predictions had not; expect slightly larger errors on new data."
_UNSEEN = "The model behind these numbers was fitted anew and had seen nothing of these rows."

_SCRIPT = """
for (const head of document.querySelectorAll('th')) {
  head.querySelector('button').addEventListener('click', () => {
    const body = head.closest('table').tBodies[0], at = head.cellIndex;
    const down = head.getAttribute('aria-sort') !== 'descending';
    const key = row => row.cells[at].dataset.value;
    const value = row => at === 0 ? key(row) : (key(row) === '' ? NaN : Number(key(row)));
    const rows = [...body.rows].sort((a, b) => {
      const x = value(a), y = value(b);
      if (at === 0) return down ? y.localeCompare(x) : x.localeCompare(y);
      if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y);
      return down ? y - x : x - y;
    });
    for (const other of head.parentElement.cells) other.removeAttribute('aria-sort');
    head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
    body.append(...rows);
  });
}
const tip = document.body.appendChild(document.createElement('div'));
tip.id = 'tip';
tip.hidden = true;
const show = event => {
  const text = event.target.dataset ? event.target.dataset.tip : undefined;
  tip.hidden = text === undefined;
  if (tip.hidden) return;
  tip.textContent = text;
  const box = tip.getBoundingClientRect(), edge = document.documentElement.clientWidth - box.width - 8;
  tip.style.left = Math.max(8, Math.min(event.clientX + 12, edge)) + 'px';
  tip.style.top = Math.max(8, event.clientY - box.height - 12) + 'px';
};
for (const kind of ['pointerover', 'pointermove', 'click']) document.addEventListener(kind, show);
addEventListener('scroll', () => { tip.hidden = true; }, true);
"""


# Nothing is fetched or sent, and no script but the one above runs.
_POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; style-src 'unsafe-inline'; "
    f"script-src 'sha256-{b64encode(sha256(_SCRIPT.encode()).digest()).decode()}'"
)


def write(
    model: Any,
    X: Any,
    y: Any,
    tasks: Any,
    path: str | os.PathLike[str],
    *,
    feature_names: list[str] | None = None,
    target_name: str = "target",
) -> None:
    """Write a report of a fitted model.

    Parameters
    ----------
    model : estimator of gleangp
        Fitted on arrays with `tasks=` (or without tasks).
    X : array-like of shape (n, p)
        The rows it was fitted on.
    y : array-like of shape (n,)
        Their targets; NaN, or the model's `unlabeled`, in rows without one.
    tasks : array-like of shape (n,) or None
        Their tasks.
    path : str or path
        The HTML file, replaced in one step.
    feature_names : list of str, default=None
        Names of the columns of X.
    target_name : str, default="target"
        What is predicted.

    Notes
    -----
    Held-out errors come from a second model fitted to four fifths of every task's labelled rows (sparse
    regressors and binary classifiers with the kernel of the first). Baselines are the average of the task, a
    sparse model without tasks (of at most 2000 rows), and one for each task alone (of the first 20 tasks).

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from gleangp import SparseGPRegressor, report
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> tasks = ["a", "b"] * 20
    >>> model = SparseGPRegressor(random_state=0).fit(X, np.sin(X[:, 0]), tasks=tasks)
    >>> path = Path(tempfile.mkdtemp()) / "report.html"
    >>> report.write(model, X, np.sin(X[:, 0]), tasks, path)
    >>> path.read_text()[:15]
    '<!doctype html>'
    """
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y)
    given = None if tasks is None else np.asarray(tasks)
    facts = gather(model, X, y, given, feature_names=feature_names, target_name=target_name)
    with replacing(path) as temporary:
        temporary.write_text(render(facts), encoding="utf-8")


def render(facts: Facts) -> str:
    """The page."""
    title = f"gleangp: {facts.target}"
    body = [_summary(facts), _quality(facts), _learnt(facts), _tasks(facts), _next_steps(facts)]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name="generator" content="gleangp {escape(__version__)}"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<link rel="icon" href="data:,"><style>{_STYLE}</style></head><body><main>'
        f"{''.join(body)}"
        f'<p class="soft">Written by gleangp {escape(__version__)}.</p></main>'
        f"<script>{_SCRIPT}</script></body></html>\n"
    )


def _text(value: float, classify: bool) -> str:
    if not np.isfinite(value):
        return "–"
    return f"{value:.1%}" if classify else f"{value:.4g}"


def _summary(facts: Facts) -> str:
    kind = "classes" if facts.classify else "numbers"
    many = f"{len(facts.tasks)} tasks" if len(facts.tasks) > 1 else "one task"
    cards = [
        (f"{facts.rows}", f"rows, {facts.n_unlabeled} without a target" if facts.n_unlabeled else "rows"),
        (f"{len(facts.tasks)}", "tasks"),
        (_text(facts.error, facts.classify), "held-out error" + ("" if facts.classify else " (RMSE)")),
        (f"{facts.n_active}", "active points"),
    ]
    shown = "".join(f'<div class="card"><b>{escape(a)}</b><span>{escape(b)}</span></div>' for a, b in cards)
    return (
        f"<h1>{escape(facts.target)}</h1><p class='soft'>{escape(facts.estimator)}: {kind}, {many}.</p>"
        f'<div class="cards">{shown}</div>'
    )


def _quality(facts: Facts) -> str:
    c = facts.classify
    rows = [("this model", facts.error)]
    if len(facts.tasks) > 1:
        rows.append(("tasks ignored", facts.error_pooled))
        rows.append(("most frequent class" if c else "mean of the task", facts.error_average))
    else:
        rows.append(("most frequent class" if c else "mean", facts.error_average))
    compared = charts.bars(
        np.array([value for _, value in rows]),
        [name for name, _ in rows],
        title="held-out errors",
        ordered=False,
        texts=[_text(value, c) for _, value in rows],
    )
    alone = ""
    if np.isfinite(facts.error_alone):
        alone = (
            f"<p>Mean over tasks, against one model for each task alone: "
            f"<span class='good'>{_text(facts.error_where_alone, c)}</span> sharing, "
            f"{_text(facts.error_alone, c)} alone.</p>"
        )
    names = [t.name for t in facts.tasks]
    pictures = [
        (
            "Are its uncertainties right? (on the line: yes)",
            charts.curve(
                facts.promised,
                facts.observed,
                x_label="stated confidence" if c else "promised coverage",
                y_label="share that was right" if c else "share of targets inside",
                title="calibration",
                unit=True,
            ),
        ),
        (
            "Sharing against alone (below the line: sharing is better)",
            charts.scatter(
                np.array([t.error_alone for t in facts.tasks]),
                np.array([t.error for t in facts.tasks]),
                names,
                x_label="error alone",
                y_label="error sharing",
                title="errors of tasks",
                diagonal=True,
            ),
        ),
    ]
    return (
        f'<h2>How good it is</h2><div class="charts"><div><p>Error on {facts.n_held_out} rows that were held '
        f"out ({'share of wrong labels' if c else 'root mean square'}): "
        f"<span class='good'>{_text(facts.error, c)}</span>.</p>{alone}</div>"
        "<figure><figcaption>Against simpler models (shorter is better)</figcaption>"
        f"{compared}</figure></div>{_figures(pictures)}"
        f'<p class="soft">{_SEEN if facts.seen else _UNSEEN}</p>'
    )


def _figures(pictures: list[tuple[str, str]]) -> str:
    shown = [
        f"<figure><figcaption>{escape(caption)}</figcaption>{svg}</figure>"
        for caption, svg in pictures
        if svg
    ]
    return f'<div class="charts">{"".join(shown)}</div>'


def _learnt(facts: Facts) -> str:
    words = "".join(f"<li>{escape(sentence)}</li>" for sentence in facts.kernel_words)
    noise = ""
    if facts.noise_share is not None and np.isfinite(facts.noise_share):
        noise = f"<li>Noise: {facts.noise_share:.1%} of the variance of the targets within tasks.</li>"
    pictures = [
        (
            "Which inputs matter (relative to the most important)",
            charts.bars(facts.relevance, facts.features, title="relevance of inputs")
            if len(facts.relevance)
            else "",
        ),
        (
            "What each active point brought",
            charts.curve(
                np.arange(1.0, len(facts.gain) + 1),
                np.asarray(facts.gain, dtype=float),
                x_label="active points, in order",
                y_label="gain (nats)",
                title="gain by inclusion",
                unit=False,
            ),
        ),
    ]
    if len(facts.tasks) > 1 and facts.n_active < facts.rows:
        share = np.array([t.active / max(1, facts.n_active) for t in facts.tasks])
        picture = charts.bars(
            share,
            [t.name for t in facts.tasks],
            title="share of the active points by task",
            texts=[f"{s:.1%}" for s in share],
            tips=[f"{t.active} of {t.rows} rows are active" for t in facts.tasks],
        )
        most = "" if len(facts.tasks) <= charts.MOST_BARS else f" (the {charts.MOST_BARS} largest)"
        pictures.append((f"Share of the active points, by task{most}", picture))
    kept = "All rows are active points." if facts.n_active >= facts.rows else _kept(facts)
    return (
        f"<h2>What was learnt</h2><ul>{words}{noise}<li>{kept}</li>"
        f"<li>Log evidence: {facts.log_evidence:.2f}.</li></ul>"
        f"<p class='soft'>In units of {'the latent function' if facts.classify else 'standardised targets'}. "
        "As a formula: "
        f"<code>{escape(facts.kernel)}</code></p>"
        f"{_figures(pictures)}"
    )


def _kept(facts: Facts) -> str:
    return f"{facts.n_active} of {facts.rows} rows ({facts.n_active / facts.rows:.1%}) are active points."


def _tasks(facts: Facts) -> str:
    if len(facts.tasks) < 2:
        return ""
    heads = ["task", "error", "alone", "average", "rows", "active"]
    head = "".join(f'<th scope="col"><button type="button">{h}</button></th>' for h in heads)
    return (
        '<h2>Tasks</h2><p class="soft">Held-out error of this model, of a model of the task alone and of '
        "the task's average; click a heading to sort.</p>"
        '<div class="wide" tabindex="0" role="region" aria-label="table of tasks">'
        '<table id="tasks"><thead>'
        f"<tr>{head}</tr></thead><tbody>{''.join(_line(t, facts) for t in facts.tasks)}</tbody>"
        "</table></div>"
    )


def _line(task: TaskFacts, facts: Facts) -> str:
    cells = [f'<td data-value="{escape(task.name, quote=True)}">{escape(task.name)}</td>']
    # As many decimals in all rows as show three digits of the error of all of them.
    decimals = int(np.clip(2 - np.floor(np.log10(facts.error)), 0, 6)) if facts.error > 0 else 3
    for value in (task.error, task.error_alone, task.error_average):
        number = f"{value:.6g}" if np.isfinite(value) else ""
        plain = not facts.classify and np.isfinite(value)
        text = f"{value:.{decimals}f}" if plain else _text(value, facts.classify)
        cells.append(f'<td data-value="{number}">{text}</td>')
    for count in (task.rows, task.active):
        cells.append(f'<td data-value="{count}">{count}</td>')
    return f"<tr>{''.join(cells)}</tr>"


def _next_steps(facts: Facts) -> str:
    steps = []
    if len(facts.tasks) > 1 and facts.error_pooled < facts.error:
        steps.append(
            "The model without tasks is better on held-out rows: tasks are nearly the same, so leave out the "
            "task column, or use it as an input."
        )
    if np.isfinite(facts.error_alone) and facts.error_alone < facts.error_where_alone:
        steps.append(
            "Models of single tasks are better: the tasks need kernels of their own. Try "
            "HierarchicalGPRegressor, or separate fits."
        )
    if facts.error >= facts.error_average:
        steps.append(
            "It does not beat the average: the inputs say little about the target, or rows are too few."
        )
    miss = float(np.max(np.abs(facts.promised - facts.observed))) if len(facts.promised) else 0.0
    if miss > 0.15:
        steps.append(
            f"Stated and observed shares differ by up to {miss:.0%}: do not rely on the uncertainties before "
            "looking for outliers or a transformation of the target."
        )
    weak = [f for f, r in zip(facts.features, facts.relevance, strict=False) if r < 0.02]
    if weak:
        steps.append("These inputs hardly matter and could be left out: " + ", ".join(weak[:10]) + ".")
    small = [t.name for t in facts.tasks if t.rows < 5]
    if small and len(facts.tasks) > 1:
        steps.append(
            "Tasks with fewer than five rows gain most from more labels: " + ", ".join(small[:10]) + "."
        )
    if not steps:
        steps.append("Nothing stands out: the model is better than its baselines and its uncertainties hold.")
    return "<h2>What to do next</h2><ul>" + "".join(f"<li>{escape(s)}</li>" for s in steps) + "</ul>"
