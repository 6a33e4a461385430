"""Looks and script of the pages: colours for light and dark, tables that sort and download, tooltips."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256

STYLE = """
:root{color-scheme:light dark;--ink:#1c2330;--soft:#5b6575;--line:#d9dee6;--paper:#fff;--panel:#f5f7fa;
--blue:#0072b2;--red:#b34700}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#a0a9b8;--line:#333c4a;--paper:#14181f;
--panel:#1c222c;--blue:#56b4e9;--red:#ff9a57}}
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1040px;margin:0 auto;padding:24px 16px 60px}
h1{font-size:1.6rem;margin:.2em 0;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2em 0 .5em;border-bottom:1px solid var(--line);padding-bottom:.2em}
.away{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
h3{font-size:1rem;margin:1.4em 0 .3em}a{color:var(--blue)}[hidden]{display:none!important}
nav ul{display:flex;flex-wrap:wrap;gap:2px 18px;list-style:none;padding:0;margin:12px 0}
p,li{max-width:70ch;overflow-wrap:anywhere}.soft{color:var(--soft)}.cards{display:grid;gap:12px;
grid-template-columns:repeat(auto-fit,minmax(150px,1fr));margin:16px 0}
.card{background:var(--panel);border-radius:8px;padding:10px 14px}.card b{display:block;font-size:1.35rem}
.card span{color:var(--soft);font-size:.85rem}.charts{display:grid;gap:28px 32px;margin:20px 0;
grid-template-columns:repeat(auto-fill,minmax(min(400px,100%),1fr))}
figure{margin:0;max-width:520px;min-width:0}
figcaption{font-weight:600;margin-bottom:4px;overflow-wrap:anywhere}
figcaption .soft{font-weight:400;display:block;font-size:.85rem}svg{width:100%;height:auto;display:block}
.tick{font-size:13px;fill:var(--soft)}.axis{font-size:13px;fill:var(--ink)}
.grid{stroke:var(--line);stroke-width:.7}.guide{stroke:var(--soft);stroke-dasharray:4 4}
.dot{fill:var(--blue);fill-opacity:.85}.dot:hover{fill:var(--red)}.specks{stroke:var(--ink);stroke-opacity:.5}
.line{fill:none;stroke:var(--blue);stroke-width:2}.whisker{stroke:var(--blue)}
.band{fill:var(--blue);fill-opacity:.2}.wide{overflow:auto;max-height:80vh;
background:linear-gradient(to left,var(--paper) 30%,transparent) right/48px 100% no-repeat local,
linear-gradient(to left,var(--line),transparent) right/14px 100% no-repeat scroll}
thead th{position:sticky;top:0;background:var(--paper);vertical-align:bottom}
#tip{position:fixed;z-index:9;pointer-events:none;background:var(--ink);color:var(--paper);padding:4px 9px;
border-radius:5px;font-size:.85rem;max-width:min(320px,90vw);overflow-wrap:anywhere}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
.caption{margin:1em 0 2px}
th,td{padding:5px 10px;border-bottom:1px solid var(--line);text-align:right}td{white-space:nowrap}
.words,th:first-child,td:first-child{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:8em}
thead th{overflow-wrap:normal!important}th button{all:unset;cursor:pointer;font-weight:600}
:is(button,input,select,a,.wide):focus-visible{outline:2px solid var(--blue)}
th button::after{content:"\\00a0\\2195";color:var(--soft)}
th[aria-sort=ascending] button::after{content:"\\00a0\\2191"}
th[aria-sort=descending] button::after{content:"\\00a0\\2193"}tr:hover td{background:var(--panel)}
.plain{font:inherit;font-size:.9rem;color:var(--ink);background:var(--panel);border:1px solid var(--line);
border-radius:6px;padding:5px 12px;margin:6px 0;cursor:pointer}
.tools{display:flex;flex-wrap:wrap;gap:10px 20px;align-items:end;margin:12px 0}
.tools label{display:grid;font-size:.85rem;color:var(--soft)}
input,select{font:inherit;color:var(--ink);background:var(--paper);border:1px solid var(--line);
border-radius:6px;padding:5px 8px;max-width:100%}
code{background:var(--panel);padding:1px 5px;border-radius:4px;overflow-wrap:anywhere}
.good{color:var(--blue);font-weight:600}
@media(max-width:600px){th,td{padding:5px 6px;font-size:.85rem}
.words,th:first-child,td:first-child{min-width:6em}.plain,input,select{min-height:40px}}
@media print{.wide{max-height:none;overflow:visible}.plain,.tools,nav{display:none}}
"""

_TABLES = """
for (const head of document.querySelectorAll('th button')) head.addEventListener('click', () => {
  const cell = head.closest('th'), body = cell.closest('table').tBodies[0], at = cell.cellIndex;
  const words = cell.classList.contains('words');
  const down = cell.getAttribute('aria-sort') !== 'descending';
  const value = row => words ? row.cells[at].dataset.value : parseFloat(row.cells[at].dataset.value);
  const rows = [...body.rows].sort((a, b) => {
    const x = value(a), y = value(b);
    if (words) return (down ? -1 : 1) * x.localeCompare(y, undefined, {numeric: true});
    if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y);
    return down ? y - x : x - y;
  });
  for (const other of cell.parentElement.cells) other.removeAttribute('aria-sort');
  cell.setAttribute('aria-sort', down ? 'descending' : 'ascending');
  body.append(...rows);
});
const save = (text, name) => {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], {type: 'text/csv'}));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
};
const inert = text => /^[=+\\-@\\t\\r]/.test(text) && isNaN(Number(text)) ? "'" + text : text;
const quoted = text => '"' + inert(text).replaceAll('"', '""') + '"';
for (const button of document.querySelectorAll('button[data-csv]')) button.addEventListener('click', () => {
  const table = document.getElementById(button.dataset.csv);
  const cells = row => [...row.cells].map(c => quoted(c.dataset.value ?? c.innerText.trim())).join(',');
  save([...table.rows].map(cells).join('\\n') + '\\n', button.dataset.csv + '.csv');
});
"""

_TIPS = """
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

_CURVES = """
const list = document.getElementById('curves');
if (list) {
  const order = document.getElementById('order'), find = document.getElementById('find');
  const more = document.getElementById('more'), found = document.getElementById('found');
  const all = [...list.children], few = 6;
  let count = few;
  const draw = () => {
    const sign = order.value === 'worst' ? -1 : 1, query = find.value.trim().toLowerCase();
    const error = figure => parseFloat(figure.dataset.error);
    const kept = all.filter(f => f.dataset.name.toLowerCase().includes(query));
    kept.sort((a, b) => {
      const x = error(a), y = error(b);
      return isNaN(x) || isNaN(y) ? isNaN(x) - isNaN(y) : sign * (x - y);
    });
    for (const figure of all) figure.hidden = true;
    list.append(...kept);
    for (const figure of kept.slice(0, count)) figure.hidden = false;
    more.hidden = kept.length <= count;
    found.textContent = Math.min(count, kept.length) + ' of ' + kept.length + ' tasks shown';
  };
  for (const tool of [order, find]) tool.addEventListener('input', () => { count = few; draw(); });
  more.addEventListener('click', () => { count += 12; draw(); });
  draw();
}
"""

SCRIPT = _TABLES + _TIPS
REPORT_SCRIPT = SCRIPT + _CURVES


def policy(script: str, more: str = "") -> str:
    """A Content-Security-Policy under which no script but this one runs, and nothing else is loaded."""
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'{more}"
    )
