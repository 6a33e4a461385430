"""Charts as SVG: drawn by hand, so that they need no script and follow the colours of the page.

Attributes give colours and sizes for viewers that do not apply the page's styles, which override them.
"""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from gleangp._typing import FloatArray

_W, _H, _LEFT, _BOTTOM, _TOP, _RIGHT = 420, 260, 60, 44, 14, 16
MOST_BARS = 15


def _number(value: float) -> str:
    """Three digits, and no powers of ten where a plain number is as short."""
    if value != 0 and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.2e}"
    text = f"{value:.3g}"
    return f"{value:.0f}" if "e" in text else text


def _ticks(low: float, high: float) -> FloatArray:
    """Four to six round numbers."""
    step = 10.0 ** np.floor(np.log10((high - low) / 4))
    step *= max(m for m in (1.0, 2.0, 2.5, 5.0) if m * step <= (high - low) / 4)
    return np.arange(np.ceil(low / step) * step, high + 1e-9 * step, step)


def _frame(low: tuple[float, float], high: tuple[float, float], x: str, y: str) -> tuple[list[str], Any]:
    """Axes with ticks, and the map from data to the picture."""

    def place(a: float, b: float) -> tuple[float, float]:
        u = _LEFT + (a - low[0]) / (high[0] - low[0]) * (_W - _LEFT - _RIGHT)
        v = _H - _BOTTOM - (b - low[1]) / (high[1] - low[1]) * (_H - _BOTTOM - _TOP)
        return round(u, 1), round(v, 1)

    parts = []
    for t in _ticks(low[0], high[0]):
        u, v = place(t, low[1])
        parts.append(
            f'<text class="tick" font-size="13" x="{u}" y="{v + 17}" text-anchor="middle">{_number(t)}</text>'
        )
    for t in _ticks(low[1], high[1]):
        u, v = place(low[0], t)
        parts.append(f'<line class="grid" stroke="#ccc" x1="{u}" y1="{v}" x2="{_W - _RIGHT}" y2="{v}"/>')
        parts.append(
            f'<text class="tick" font-size="13" x="{u - 6}" y="{v + 4}" text-anchor="end">{_number(t)}</text>'
        )
    parts.append(
        f'<text class="axis" font-size="13" x="{(_W + _LEFT) / 2}" y="{_H - 8}" '
        f'text-anchor="middle">{escape(x)}</text>'
    )
    parts.append(
        f'<text class="axis" font-size="13" transform="rotate(-90)" x="{-(_H - _BOTTOM) / 2}" y="13" '
        f'text-anchor="middle">{escape(y)}</text>'
    )
    return parts, place


def _svg(parts: list[str], title: str) -> str:
    return (
        f'<svg viewBox="0 0 {_W} {_H}" role="img" aria-label="{escape(title, quote=True)}">'
        + "".join(parts)
        + "</svg>"
    )


def _tip(text: str) -> str:
    """What the page's script shows at the pointer, and what a screen reader says."""
    safe = escape(text, quote=True)
    return f' data-tip="{safe}" aria-label="{safe}"'


def scatter(
    x: FloatArray, y: FloatArray, names: list[str], *, x_label: str, y_label: str, title: str, diagonal: bool
) -> str:
    """Points with their names as tooltips."""
    kept = np.isfinite(x) & np.isfinite(y)
    if not kept.any():
        return ""
    top = 1.08 * float(max(x[kept].max(), y[kept].max())) or 1.0
    low, high = (0.0, 0.0), (top, top)
    if not diagonal:
        high = (1.05 * float(x[kept].max()) or 1.0, 1.08 * float(y[kept].max()) or 1.0)
    parts, place = _frame(low, high, x_label, y_label)
    if diagonal:
        (a, b), (c, d) = place(0, 0), place(top, top)
        parts.append(f'<line class="guide" stroke="#888" x1="{a}" y1="{b}" x2="{c}" y2="{d}"/>')
    for i in np.flatnonzero(kept):
        u, v = place(x[i], y[i])
        tip = f"{names[i]}: {x_label} {_number(x[i])}, {y_label} {_number(y[i])}"
        parts.append(f'<circle class="dot" fill="#0072b2" cx="{u}" cy="{v}" r="5.5"{_tip(tip)}/>')
    return _svg(parts, title)


def curve(x: FloatArray, y: FloatArray, *, x_label: str, y_label: str, title: str, unit: bool) -> str:
    """A line with points; `unit` draws it in the unit square with its diagonal."""
    kept = np.isfinite(y)
    if not kept.any():
        return ""
    x, y = x[kept], y[kept]
    high = (1.0, 1.0) if unit else (float(x.max()) or 1.0, 1.08 * float(y.max()) or 1.0)
    parts, place = _frame((0.0, 0.0), high, x_label, y_label)
    if unit:
        (a, b), (c, d) = place(0, 0), place(1, 1)
        parts.append(f'<line class="guide" stroke="#888" x1="{a}" y1="{b}" x2="{c}" y2="{d}"/>')
    places = [place(a, b) for a, b in zip(x, y, strict=True)]
    path = " ".join(f"{u},{v}" for u, v in places)
    parts.append(f'<polyline class="line" fill="none" stroke="#0072b2" points="{path}"/>')
    if len(places) <= 60:
        for (u, v), a, b in zip(places, x, y, strict=True):
            tip = f"{x_label} {_number(a)}: {y_label} {_number(b)}"
            parts.append(f'<circle class="dot" fill="#0072b2" cx="{u}" cy="{v}" r="5"{_tip(tip)}/>')
    return _svg(parts, title)


def bars(
    values: FloatArray,
    names: list[str],
    *,
    title: str,
    ordered: bool = True,
    texts: list[str] | None = None,
    tips: list[str] | None = None,
) -> str:
    """Horizontal bars, the longest first (`ordered`) or as they come; at most `MOST_BARS`.

    `texts` stand beside the bars in place of their values, `tips` in the tooltips.
    """
    values = np.asarray(values, dtype=float)
    order = (np.argsort(-values, kind="stable") if ordered else np.arange(len(values)))[:MOST_BARS]
    if len(order) == 0:
        return ""
    height = 26 * len(order) + 10
    top = float(np.max(values)) or 1.0
    parts = []
    for line, i in enumerate(order):
        v = 6 + 26 * line
        width = round(max(1.0, 210 * float(values[i]) / top), 1)
        name = names[i] if len(names[i]) <= 20 else names[i][:13] + "…" + names[i][-6:]
        shown = _number(values[i]) if texts is None else texts[i]
        parts.append(
            f'<text class="tick" font-size="13" x="142" y="{v + 14}" text-anchor="end">{escape(name)}</text>'
        )
        parts.append(
            f'<rect class="bar" fill="#0072b2" x="148" y="{v}" width="{width}" height="19" rx="2"'
            f"{_tip(f'{names[i]}: {shown if tips is None else tips[i]}')}/>"
        )
        parts.append(
            f'<text class="tick" font-size="13" x="{154 + width}" y="{v + 14}">{escape(shown)}</text>'
        )
    label = escape(title, quote=True)
    return f'<svg viewBox="0 0 {_W} {height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
