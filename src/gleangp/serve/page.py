"""The page of a served model: a form made from the model's inputs, a chart, and an upload."""

from __future__ import annotations

from html import escape
from typing import Any

from gleangp._version import __version__
from gleangp.report.style import SCRIPT, STYLE, policy

_SERVE = """
const form = document.getElementById('inputs'), picture = document.getElementById('picture');
const result = document.getElementById('result'), problem = document.getElementById('problem');
const near = document.getElementById('near'), along = document.getElementById('along');
const digits = v => typeof v === 'number' ? Number(v.toPrecision(4)).toString() : String(v);
const post = async (path, body, type, signal) => {
  const answer = await fetch(path, {method: 'POST', body, signal, headers: {'Content-Type': type}});
  if (!answer.ok) throw new Error((await answer.json()).error);
  return answer;
};
const row = () => Object.fromEntries([...form.querySelectorAll('[name]')].map(
  f => [f.name, f.type === 'number' ? f.valueAsNumber : f.value]));
const list = (body, values) => {
  body.replaceChildren(...values.map(line => {
    const out = document.createElement('tr');
    for (const cell of line) out.insertCell().textContent = digits(cell);
    return out;
  }));
};
let running = new AbortController();
const update = async () => {
  running.abort();
  running = new AbortController();
  try {
    const body = JSON.stringify({row: row(), along: along.value});
    const found = await (await post('/api/curve', body, 'application/json', running.signal)).json();
    problem.textContent = '';
    result.textContent = found.words;
    picture.innerHTML = found.svg;  // drawn by the server, which escapes names
    const rows = found.svg ? [] : found.x.map((x, i) => [x === '' ? '(missing)' : x, found.mean[i]]);
    list(document.getElementById('levels').tBodies[0], rows);
    document.getElementById('levels').hidden = rows.length === 0;
    list(near.tBodies[0], found.nearest.map(n => [...near.tHead.rows[0].cells].map(c => n[c.dataset.name])));
    document.getElementById('nearest').hidden = found.nearest.length === 0;
  } catch (error) {
    if (error.name !== 'AbortError') problem.textContent = error.message;
  }
};
let waiting;
const soon = () => { clearTimeout(waiting); waiting = setTimeout(update, 60); };
for (const slider of form.querySelectorAll('input[type=range]')) {
  const field = slider.closest('fieldset').querySelector('input[type=number]');
  slider.addEventListener('input', () => { field.value = slider.value; });
  field.addEventListener('input', () => { slider.value = field.value; });
}
form.addEventListener('input', soon);
form.addEventListener('submit', event => event.preventDefault());
document.getElementById('file').addEventListener('change', async event => {
  const file = event.target.files[0], status = document.getElementById('uploaded');
  if (!file) return;
  status.textContent = 'predicting ...';
  try {
    const most = Number(event.target.dataset.most);
    if (file.size > most) throw new Error('More than ' + most / 1e6 + ' MB; use gleangp predict.');
    const answer = await post('/api/table', file, 'text/csv'), text = await answer.text();
    const note = decodeURIComponent(answer.headers.get('X-Note') || '');
    save(text, file.name.replace(/\\.[^.]*$/, '') + '-predicted.csv');
    status.textContent = 'Saved ' + (text.trim().split('\\n').length - 1) + ' rows with predictions. ' + note;
  } catch (error) {
    status.textContent = error.message;
  }
  event.target.value = '';
});
update();
"""

MAX_UPLOAD = 20_000_000  # bytes
SERVE_SCRIPT = SCRIPT + _SERVE
POLICY = policy(SERVE_SCRIPT, "; connect-src 'self'; frame-ancestors 'none'")
_STYLE = """
.two{display:grid;gap:8px 32px;grid-template-columns:repeat(auto-fit,minmax(min(300px,100%),1fr))}
fieldset{border:0;padding:0;margin:0 0 12px;min-width:0}label,legend{display:block;font-size:.9rem;padding:0}
.pair{display:grid;grid-template-columns:1fr 8.5em;gap:10px;align-items:center}
input[type=range]{padding:0;width:100%;accent-color:var(--blue)}select{width:100%}input[type=number],input[type=date]{width:100%}
#problem{color:var(--red)}#result{font-weight:600;min-height:1.5em}
"""


def render(facts: dict[str, Any], name: str) -> str:
    """The page for what `Answers.describe` gives."""
    fields = [_input(i, column) for i, column in enumerate(facts["inputs"])]
    if facts["task"] is not None:
        fields.insert(0, _choice("task", facts["task"], facts["tasks"]))
    names = [column["name"] for column in facts["inputs"]]
    heads = "".join(f'<th scope="col" data-name="{_safe(n)}">{escape(n)}</th>' for n in [*names, "distance"])
    options = "".join(f'<option value="{_safe(n)}">{escape(n)}</option>' for n in facts["curves"])
    band = "" if facts["classes"] else "Band: 95 % of new values. "
    of_task = "" if facts["task"] is None else " of the task"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(facts['target'])}</title>"
        f'<link rel="icon" href="data:,"><style>{STYLE}{_STYLE}</style></head><body><main>'
        f"<h1>{escape(facts['target'])}</h1>"
        f"<p class='soft'>{escape(name)}, served by gleangp {__version__}</p>"
        f'<div class="two"><form id="inputs" aria-label="Inputs">{"".join(fields)}'
        f'<label for="along">Show the curve along</label><select id="along">{options}</select></form>'
        '<div><p id="result" role="status"></p><p id="problem" role="alert"></p><div id="picture"></div>'
        '<table id="levels" hidden aria-label="Prediction of every category"><thead><tr><th scope="col">value'
        '</th><th scope="col">prediction</th></tr></thead><tbody></tbody></table>'
        f'<p class="soft">{band}Dots at the bottom: rows{of_task} that the model keeps.</p>'
        '</div></div><section id="nearest" hidden><h2>Nearest rows that the model keeps</h2>'
        '<div class="wide" tabindex="0" role="region" aria-label="Nearest rows">'
        f'<table id="near"><thead><tr>{heads}'
        "</tr></thead><tbody></tbody></table></div></section>"
        '<h2>Predict a table</h2><p><label for="file">A CSV file with the columns of the inputs'
        f"{escape(' and ' + facts['task']) if facts['task'] else ''}; the predictions are saved beside your "
        'columns.</label><input id="file" type="file" accept=".csv,text/csv" '
        f'data-most="{MAX_UPLOAD}"></p>'
        f'<p id="uploaded" role="status"></p></main><script>{SERVE_SCRIPT}</script></body></html>'
    )


def _safe(text: str) -> str:
    return escape(text, quote=True)


def _choice(key: str, name: str, values: list[str]) -> str:
    options = "".join(f'<option value="{_safe(v)}">{escape(v or "(missing)")}</option>' for v in values)
    return (
        f'<fieldset><label for="{key}">{escape(name)}</label>'
        f'<select id="{key}" name="{_safe(name)}">{options}</select></fieldset>'
    )


def _input(number: int, column: dict[str, Any]) -> str:
    name, key = column["name"], f"input-{number}"
    if column["kind"] == "category":
        return _choice(key, name, column["categories"])
    if column["kind"] == "boolean":
        return _choice(key, name, ["false", "true"])
    low, middle, high = column["low"], column["middle"], column["high"]
    if column["kind"] == "date":
        return (
            f'<fieldset><label for="{key}">{escape(name)}</label><input type="date" id="{key}" '
            f'name="{_safe(name)}" value="{middle}"></fieldset>'
        )
    return (
        f'<fieldset><legend>{escape(name)}</legend><div class="pair">'
        f'<input type="range" aria-label="{_safe(name)}, slider" min="{low:.6g}" max="{high:.6g}" '
        f'step="any" value="{middle:.6g}">'
        f'<input type="number" aria-label="{_safe(name)}" id="{key}" name="{_safe(name)}" step="any" '
        f'value="{middle:.6g}"></div></fieldset>'
    )
