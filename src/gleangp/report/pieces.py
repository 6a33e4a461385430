"""Pieces of HTML: tables that sort and download as CSV, charts with captions, errors as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

from gleangp.report.charts import number


def table(name: str, caption: str, heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table of text and numbers.

    Parameters
    ----------
    name : str
        Identifies it on the page, and is the name of the CSV file.
    caption : str
        What is in it.
    heads : sequence of str
        Headings.
    rows : iterable of sequences
        Cells: text, a number, or a pair (number, text shown in its place). A column is one of numbers if it
        has no text.
    """
    lines = [list(row) for row in rows]
    words = [any(isinstance(row[i], str) for row in lines) or not lines for i in range(len(heads))]
    head = "".join(
        f'<th scope="col"{_class(w)}><button type="button">{escape(h)}</button></th>'
        for h, w in zip(heads, words, strict=True)
    )
    body = "".join(
        f"<tr>{''.join(_cell(c, w) for c, w in zip(row, words, strict=True))}</tr>" for row in lines
    )
    label = escape(caption, quote=True)
    return (
        f'<p class="soft caption" id="{name}-caption">{escape(caption)}</p><div class="wide" tabindex="0" '
        f'role="region" aria-labelledby="{name}-caption"><table id="{name}" aria-labelledby="{name}-caption">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        f'<button type="button" class="plain" data-csv="{name}">Download as CSV'
        f'<span class="away">: {label}</span></button>'
    )


def _class(words: bool) -> str:
    return ' class="words"' if words else ""


def _cell(cell: Any, words: bool) -> str:
    value, text = cell if isinstance(cell, tuple) else (cell, None)
    if isinstance(value, str):
        plain = value
        text = value if text is None else text
    elif not np.isfinite(value):
        plain, text = "", "–"
    else:
        whole = isinstance(value, int | np.integer)
        plain = str(value) if whole else f"{value:.10g}"
        text = text or (plain if whole else number(value))
    return f'<td{_class(words)} data-value="{escape(plain, quote=True)}">{escape(text)}</td>'


def error_text(value: float, classify: bool) -> str:
    """An error as it is shown everywhere."""
    if not np.isfinite(value):
        return "–"
    return f"{value:.1%}" if classify else f"{value:.4g}"


def figure(caption: str, svg: str, more: str = "", attributes: str = "") -> str:
    """A chart with its caption; nothing without a chart."""
    if not svg:
        return ""
    note = f'<span class="soft">{escape(more)}</span>' if more else ""
    return f"<figure{attributes}><figcaption>{escape(caption)}{note}</figcaption>{svg}</figure>"


def figures(shown: list[str], attributes: str = "") -> str:
    """Charts side by side."""
    return f'<div class="charts"{attributes}>{"".join(shown)}</div>' if any(shown) else ""
