"""The page: our number next to the paper's, cell by cell. One file, nothing is fetched."""

from __future__ import annotations

import re
from html import escape

from gleangp.reproduce.runner import Results
from gleangp.reproduce.summary import (
    BETTER,
    UNKNOWN,
    WITHIN,
    WORSE,
    cells_by_method,
    comparisons,
    format_cell,
    format_lead,
    format_printed,
    format_seconds,
    leads,
)

_STYLE = """
:root{color-scheme:light dark;--ink:#1c2330;--soft:#5b6575;--line:#d9dee6;--paper:#fff;--panel:#f5f7fa;
--blue:#0072b2;--red:#b34700;--green:#00704f}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#a0a9b8;--line:#333c4a;--paper:#14181f;
--panel:#1c222c;--blue:#56b4e9;--red:#ff9a57;--green:#4cc9a0}}
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1100px;margin:0 auto;padding:24px 16px 60px}h1{font-size:1.6rem;margin:.2em 0}
h2{font-size:1.25rem;margin:2.4em 0 .3em;border-bottom:1px solid var(--line);padding-bottom:.2em}
h3{font-size:1rem;margin:1.4em 0 .3em}p,li{max-width:75ch}.soft{color:var(--soft)}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}
th,td{padding:4px 10px;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th.name,td.name{text-align:left;white-space:normal;min-width:8em}tr:hover td{background:var(--panel)}
a{color:var(--blue)}code{background:var(--panel);padding:1px 5px;border-radius:4px;overflow-wrap:anywhere}
.better{color:var(--green);font-weight:600}.within{color:var(--blue)}.worse{color:var(--red);font-weight:600}
figure{margin:14px 0}figure svg{max-width:100%;height:auto;fill:currentColor}
details{margin:.6em 0}summary{cursor:pointer;color:var(--soft)}
"""
_CLASSES = {BETTER: "better", WITHIN: "within", WORSE: "worse"}


def render(
    results: list[Results], pictures: dict[str, dict[str, str]], date: str, versions: dict[str, str]
) -> str:
    """The whole page."""
    made = ", ".join(f"{name} {number}" for name, number in versions.items())
    body = [
        "<h1>The papers, measured again</h1>",
        f'<p class="soft">{escape(date)}; {escape(made)}.</p>',
        "<p>Each number is a mean over runs with its standard deviation. The verdict is computed: "
        "<b>within the spread</b> if the means differ by no more than the standard deviation that the paper "
        "prints (ours where it prints none), otherwise <b>better</b> or <b>worse</b>. “Default” is "
        "what this library does when nothing is set.</p>",
        _overview(results),
    ]
    body += [_section(r, pictures.get(r.experiment.name, {})) for r in results]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>gleangp: reproduction</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<link rel="icon" href="data:,"><style>{_STYLE}</style></head><body><main>'
        f"{''.join(body)}</main></body></html>\n"
    )


def _overview(results: list[Results]) -> str:
    rows = []
    for r in results:
        found = comparisons(r)
        said = [c.ours.verdict for c in found]
        ours = [c.default_verdict for c in found if c.default is not None]
        seconds = sum(record.processor_seconds for record in r.records)
        name = r.experiment.name
        rows.append(
            f'<tr><td class="name"><a href="#{escape(name)}">{escape(name)}</a></td>'
            f'<td class="name">{escape(r.experiment.source)}</td><td>{r.n_runs} of {r.experiment.n_runs}</td>'
            f"<td>{_counts(said)}</td><td>{_counts(ours)}</td><td>{seconds:.0f} s</td></tr>"
        )
    head = (
        '<tr><th class="name">experiment</th><th class="name">source</th><th>runs</th>'
        "<th>paper’s setting*</th><th>default*</th>"
        "<th>time</th></tr>"
    )
    return (
        f'<div class="wide"><table><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table></div>'
        '<p class="soft">* printed numbers than which ours are better / within the spread / worse. Runs: '
        "here, of the paper’s protocol. Time is that of the processor.</p>"
    )


def _counts(verdicts: list[str]) -> str:
    if not verdicts:
        return "–"
    return " / ".join(str(verdicts.count(kind)) for kind in (BETTER, WITHIN, WORSE))


def _section(results: Results, pictures: dict[str, str]) -> str:
    e = results.experiment
    kind = "quick form" if results.quick else "full form"
    parts = [
        f'<section id="{escape(e.name)}"><h2>{escape(e.name)}: {escape(e.source)}</h2>',
        f"<p>{escape(e.shows)}</p>",
        f'<p class="soft">{results.n_runs} runs (the paper’s protocol: {e.n_runs}), seed {results.seed}, '
        f"{kind}.</p>",
        _compared(results),
        "".join(f"<figure>{_inline(svg)}</figure>" for svg in pictures.values()),
        _everything(results),
        _notes(results),
        "</section>",
    ]
    return "".join(parts)


def _compared(results: Results) -> str:
    found = comparisons(results)
    if not found:
        return ""
    e = results.experiment
    digits = {c.name: c.digits for c in e.columns}
    with_default = any(c.default is not None for c in found)
    with_setting = len(e.settings) > 1
    head = [f'<th class="name">{escape(e.setting_name or "setting")}</th>'] if with_setting else []
    head += ['<th class="name">method</th><th class="name">measure</th><th>paper</th><th>here</th><th></th>']
    if with_default and e.default is not None:
        head.append("<th>default</th><th></th>")
    head.append("<th>seconds</th>")
    lines = []
    for c in found:
        d = digits[c.ours.column]
        cells_ = [f'<td class="name">{escape(c.ours.setting)}</td>'] if with_setting else []
        cells_ += [
            f'<td class="name">{escape(c.ours.method)}</td><td class="name">{escape(c.ours.column)}</td>',
            f"<td>{format_printed(c.printed, d)}</td><td>{format_cell(c.ours, d)}</td>",
            f"<td>{_said(c.ours.verdict)}</td>",
        ]
        if with_default:
            shown = "" if c.default is None else format_cell(c.default, d)
            cells_.append(f"<td>{shown}</td><td>{_said(c.default_verdict)}</td>")
        cells_.append(f"<td>{format_seconds(c.ours.seconds)}</td>")
        lines.append(f"<tr>{''.join(cells_)}</tr>")
    return (
        f'<h3>Against the paper</h3><div class="wide"><table><thead><tr>{"".join(head)}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _everything(results: Results) -> str:
    e = results.experiment
    digits = {c.name: c.digits for c in e.columns}
    columns, groups = cells_by_method(results)
    with_setting = len(e.settings) > 1
    head = f'<th class="name">{escape(e.setting_name or "setting")}</th>' if with_setting else ""
    head += '<th class="name">method</th><th>runs</th>' + "".join(f"<th>{escape(c)}</th>" for c in columns)
    lines = []
    for (setting, method), group in groups.items():
        first = next(iter(group.values()))
        row = f'<td class="name">{escape(setting)}</td>' if with_setting else ""
        row += f'<td class="name">{escape(method)}</td><td>{first.n}</td>'
        row += "".join(f"<td>{format_cell(group[c], digits[c]) if c in group else ''}</td>" for c in columns)
        lines.append(f"<tr>{row}<td>{format_seconds(first.seconds)}</td></tr>")
    leading = "".join(f"<li>{escape(format_lead(x, digits[x.column] + 1))}</li>" for x in leads(results))
    return (
        f'<h3>All methods</h3><div class="wide"><table><thead><tr>{head}<th>seconds</th></tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>" + (f"<ul>{leading}</ul>" if leading else "")
    )


def _notes(results: Results) -> str:
    e = results.experiment
    notes = "".join(f"<li>{escape(note)}</li>" for note in e.notes)
    failures = "".join(f'<li class="worse">Failed: {escape(f)}</li>' for f in results.failures)
    used = {r.method for r in results.records}
    settings = "".join(
        f"<li>{escape(m.name)}: <code>{escape(m.settings)}</code></li>"
        for m in e.methods
        if m.name in used and m.settings
    )
    options = ", ".join(f"{k} = {v}" for k, v in results.options.items())
    said = sorted({w for r in results.records for w in r.warnings})
    if options:
        settings = f"<li>{escape(options)}</li>" + settings
    out = f"<ul>{notes}{failures}</ul>" if notes or failures else ""
    out += f"<details><summary>Settings</summary><ul>{settings}</ul></details>" if settings else ""
    if said:
        lines = "".join(f"<li>{escape(w)}</li>" for w in said[:20])
        out += f"<details><summary>Warnings ({len(said)} different)</summary><ul>{lines}</ul></details>"
    return out


def _said(verdict: str) -> str:
    text = "one run, no spread printed" if verdict == UNKNOWN else verdict
    return f'<span class="{_CLASSES.get(verdict, "")}">{escape(text)}</span>'


def _inline(svg: str) -> str:
    """An SVG document as an element that takes the colour of the page's text where it is black."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    return svg.replace("#000000", "currentColor")
