"""The HTML of a report. One file: styles and the few lines of script are inside, nothing is fetched."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from gleangp._version import __version__
from gleangp.data.tables import ColumnEncoding
from gleangp.exceptions import LabelError
from gleangp.io import replacing
from gleangp.report import quality, sections
from gleangp.report.facts import Facts, gather
from gleangp.report.held_out import HeldOutRows
from gleangp.report.inputs import tasks_apart
from gleangp.report.pieces import error_text
from gleangp.report.style import REPORT_SCRIPT, STYLE, policy


def write(
    model: Any,
    X: Any,
    y: Any,
    tasks: Any,
    path: str | os.PathLike[str],
    *,
    feature_names: Sequence[str] | None = None,
    target_name: str = "target",
    held_out: HeldOutRows | None = None,
    source: str | None = None,
    dropped: Mapping[str, str] | None = None,
    simpler: Mapping[str, np.ndarray] | None = None,
    encodings: Sequence[ColumnEncoding] | None = None,
    row_numbers: Sequence[int] | None = None,
) -> None:
    """Write a report of a fitted model.

    Parameters
    ----------
    model : estimator of gleangp
        Fitted to one target per row.
    X : array-like or DataFrame of shape (n, p)
        The rows it was fitted on, in the form in which it was fitted.
    y : array-like of shape (n,)
        Their targets; NaN, or the model's `unlabeled`, in rows without one.
    tasks : array-like of shape (n,) or None
        Their tasks; None if they are a column of X, or if there are none.
    path : str or path
        The HTML file, replaced in one step.
    feature_names : sequence of str, default=None
        Names of the columns of an array.
    target_name : str, default="target"
        What is predicted.
    held_out : HeldOutRows, default=None
        Predictions of rows that were held out, if they were made before. None: they are made here, in five
        folds within every task (above 2000 rows: one of the five).
    source : str, default=None
        Name of the file that the rows come from.
    dropped : dict, default=None
        What was left out of the table -> why.
    simpler : dict, default=None
        Name of another simple model -> its predictions of the rows of `held_out`.
    encodings : sequence of ColumnEncoding, default=None
        What the columns of a frame are. None: `columns_` of the model.
    row_numbers : sequence of int, default=None
        Number of every row in the file. None: rows are counted from 1.

    Notes
    -----
    Simpler models are fitted to the same folds: the average of the task, a sparse model without tasks (of at
    most 2000 rows), and one for each task alone (of the first 20 tasks). All differences are paired.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from gleangp import SparseGPRegressor, report
    >>> X = np.linspace(0, 6, 12)[:, None]
    >>> tasks = ["a", "b"] * 6
    >>> model = SparseGPRegressor(random_state=0).fit(X, np.sin(X[:, 0]), tasks=tasks)
    >>> path = Path(tempfile.mkdtemp()) / "report.html"
    >>> report.write(model, X, np.sin(X[:, 0]), tasks, path)
    >>> path.read_text()[:15]
    '<!doctype html>'
    """
    y = np.asarray(y)
    if y.ndim != 1:
        raise LabelError(
            f"y has shape {y.shape}, and a report is about one target per row. Fit tasks, not outputs: "
            "gleangp.stack_outputs makes X, y and tasks of them."
        )
    model, X, tasks = tasks_apart(model, X, tasks)
    facts = gather(
        model,
        X,
        y,
        None if tasks is None else np.asarray(tasks),
        feature_names=feature_names,
        target_name=target_name,
        held_out=held_out,
        source=source,
        dropped=dropped,
        simpler=simpler,
        encodings=encodings,
        row_numbers=row_numbers,
    )
    with replacing(path) as temporary:
        temporary.write_text(render(facts), encoding="utf-8")


def render(facts: Facts) -> str:
    """The page."""
    title = f"gleangp: {facts.target}"
    parts = {
        "In short": _list(advice(facts)),
        "How good it is": quality.quality(facts),
        "Tasks" if facts.many_tasks else "The curve": sections.tasks(facts),
        "Inputs": sections.inputs(facts),
        "Who helps whom": sections.transfer(facts),
        "What is unusual": sections.unusual(facts),
        "What was learnt": sections.learnt(facts),
        "Data": sections.data(facts),
    }
    shown = {name: html for name, html in parts.items() if html}
    links = "".join(f'<li><a href="#{_anchor(name)}">{name}</a></li>' for name in shown)
    body = "".join(
        f'<section aria-labelledby="{_anchor(n)}"><h2 id="{_anchor(n)}">{n}</h2>{html}</section>'
        for n, html in shown.items()
    )
    kind = "classes" if facts.classify else "numbers"
    source = f"{facts.source}. " if facts.source else ""
    when = facts.written.strftime("%Y-%m-%d %H:%M %Z")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(REPORT_SCRIPT)}">'
        f'<meta name="generator" content="gleangp {escape(__version__)}"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<link rel="icon" href="data:,"><style>{STYLE}</style></head><body><main>'
        f"<h1>{escape(facts.target)}</h1><p class='soft'>{escape(source)}{escape(facts.estimator)}, {kind}. "
        f"Written by gleangp {escape(__version__)} on {when}.</p>"
        f'{quality.overview(facts)}<nav aria-label="Sections"><ul>{links}</ul></nav>{body}</main>'
        f"<script>{REPORT_SCRIPT}</script></body></html>\n"
    )


def _anchor(name: str) -> str:
    return "s-" + name.lower().replace(" ", "-")


def _list(sentences: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(s)}</li>" for s in sentences) + "</ul>"


def advice(facts: Facts) -> list[str]:
    """What follows from the numbers; a comparison counts beyond two standard errors."""
    return [*_beside_simpler_models(facts), *_of_uncertainties(facts), *_of_inputs_and_tasks(facts)]


def _beside_simpler_models(facts: Facts) -> list[str]:
    c = facts.classify
    said = []
    average = next((r for r in facts.rivals if r.name.startswith(("mean", "most frequent"))), None)
    if average is None:
        said.append("No row was held out, so nothing is known about the errors on new rows.")
    elif average.is_worse:
        text = f"{error_text(average.ours, c)} against {error_text(average.error, c)}"
        said.append(f"The model is better than the {average.name}: held-out error {text}.")
    else:
        beyond = "Beyond the task, the inputs" if facts.many_tasks else "The inputs"
        said.append(
            f"The model is {'worse than' if average.is_better else 'not distinguishable from'} the "
            f"{average.name} on held-out rows. {beyond} contain little about the target, or there are too "
            "few rows: do not use it for decisions yet."
        )
    for rival in facts.rivals:
        if rival.is_better and rival is not average:
            what = "It is simpler: use it."
            if "ignored" in rival.name:
                what = "The tasks are nearly the same: leave out the task column, or use it as an input."
            elif "alone" in rival.name:
                what = "The tasks have little in common: fit them separately, or try HierarchicalGPRegressor."
            said.append(f"Better on the same rows: {rival.name}. {what}")
    whole = [r for r in facts.rivals if r.rows == len(facts.held.rows) and r is not average]
    equal = [r.name for r in whole if not (r.is_better or r.is_worse)]
    if equal:
        said.append(f"Not distinguishable from it on the same rows: {_some(equal)}.")
    return said


def _of_uncertainties(facts: Facts) -> list[str]:
    said = []
    if facts.calibration is not None:
        if facts.calibration.misses and facts.calibration.overall is not None:
            stated, right, _ = facts.calibration.overall
            said.append(
                f"Its probabilities differ from the held-out rows by more than chance: {right:.0%} of the "
                f"labels are right, where it states {stated:.0%} on average."
            )
        elif facts.calibration.misses:
            said.append(
                "Stated and observed shares differ by more than chance. Before you rely on the uncertainties,"
                f" look for outliers{'' if facts.measure == 'counts' else ', or transform the target'}."
            )
        else:
            said.append("Its uncertainties agree with the held-out rows within chance.")
    expected = 0.0027 * len(facts.held.rows)
    if not facts.classify and len(facts.odd) > expected + 2 * np.sqrt(expected) + 1:
        said.append(
            f"{len(facts.odd)} rows are beyond three standard deviations, where {expected:.2g} are expected "
            "by chance: see the rows that do not fit."
        )
    return said


def _of_inputs_and_tasks(facts: Facts) -> list[str]:
    said = []
    strong = [e.name for e in facts.inputs if e.importance > 2 * e.std_error]
    weak = [e.name for e in facts.inputs if not e.importance > 2 * e.std_error]
    if strong:
        said.append("Inputs that matter: " + _some(strong) + ".")
    if weak and len(facts.held.rows) >= 50:
        said.append("No effect beyond chance was found for: " + _some(weak) + ".")
    if facts.distances is not None and facts.distances.unusual.any():
        names = [facts.tasks[i].name for i in np.flatnonzero(facts.distances.unusual)]
        said.append("Tasks that differ from the others: " + _some(names) + ".")
    small = [t.name for t in facts.tasks if t.rows < 5]
    if small and facts.many_tasks:
        said.append("Tasks with fewer than five rows gain most from more labels: " + _some(small) + ".")
    return said


def _some(names: list[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
