"""Charts as SVG: drawn by hand, so that they need no script and follow the colours of the page.

Attributes give colours and sizes for viewers that do not apply the page's styles, which override them.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from gleangp._typing import FloatArray
from gleangp.data.tables import ColumnEncoding

_W, _H, _LEFT, _BOTTOM, _TOP, _RIGHT = 420, 260, 64, 44, 14, 16
_MONTHS = (1, 2, 3, 6, 12, 24, 60, 120, 240, 600)  # between two ticks of dates
_LINE = 26  # height of a line of `dot_rows`
Range = tuple[float, float]


def number(value: float) -> str:
    """Three digits, and no powers of ten where a plain number is as short."""
    if value != 0 and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.2e}"
    text = f"{value:.3g}"
    return f"{value:.0f}" if "e" in text else text


def shown(value: float, column: ColumnEncoding) -> str:
    """The cell of an input as the user wrote it: of a date, the day; of a boolean, yes or no."""
    if np.isnan(value):
        return "missing"
    if column.kind == "category":
        return column.categories[int(value)]
    if column.kind == "boolean":
        return "yes" if value else "no"
    return column.cell(value) if column.kind == "date" else number(value)


def span(*values: FloatArray, margin: float = 0.05) -> Range:
    """Least and largest of all finite values, and a margin; never empty."""
    every = np.concatenate([np.ravel(np.asarray(v, dtype=float)) for v in values])
    every = every[np.isfinite(every)]
    low, high = (float(every.min()), float(every.max())) if len(every) else (0.0, 1.0)
    pad = margin * (high - low) or 0.5 * abs(low) or 0.5
    return low - pad, high + pad


def _ticks(low: float, high: float) -> FloatArray:
    """Four to six round numbers."""
    step = 10.0 ** np.floor(np.log10((high - low) / 4))
    step *= max(m for m in (1.0, 2.0, 2.5, 5.0) if m * step <= (high - low) / 4)
    ticks = np.arange(np.ceil(low / step) * step, high + 1e-9 * step, step)
    return np.where(np.abs(ticks) < 1e-9 * step, 0.0, ticks)


def date_ticks(first: str, low: float, high: float) -> list[tuple[float, str]]:
    """Two to four beginnings of months, or days, in days since the first, each with its text; else the ends.

    Examples
    --------
    >>> from gleangp.report.charts import date_ticks
    >>> date_ticks("2019-03-01", 0.0, 400.0)
    [(122.0, '2019-07'), (306.0, '2020-01')]
    >>> date_ticks("2019-03-01T12:00", 0.0, 0.25)
    [(0.0, '03-01 12:00'), (0.25, '03-01 18:00')]
    """
    origin, day = np.datetime64(first, "m"), np.timedelta64(1, "D")
    start = origin.astype("M8[D]")
    shift = (origin - start) / day
    days = start + np.arange(np.ceil(low + shift), np.floor(high + shift) + 1).astype("m8[D]")
    begins = days[days == days.astype("M8[M]").astype("M8[D]")]
    for every, unit, steps in ((begins, "M", _MONTHS), (days, "D", (1, 2, 3, 7, 14))):
        named = every.astype(f"M8[{unit}]")
        chosen = [named.astype(int) % step == 0 for step in steps]  # counted from 1970
        for at in chosen:
            if 2 <= at.sum() <= 4:
                places = (every[at] - start) / day - shift
                return list(zip(places.tolist(), map(str, named[at]), strict=True))
    ends = [(end, origin + np.timedelta64(round(1440 * end), "m")) for end in (low, high)]
    return [(end, str(time)[5:].replace("T", " ")) for end, time in ends]


def _tip(text: str) -> str:
    """What the page's script shows at the pointer."""
    return f' data-tip="{escape(text, quote=True)}"'


def _svg(parts: list[str], title: str, height: float = _H) -> str:
    label = escape(title, quote=True)
    return f'<svg viewBox="0 0 {_W} {height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _text(x: float, y: float, text: str, anchor: str, kind: str = "tick", more: str = "") -> str:
    return (
        f'<text class="{kind}" font-size="13" x="{x:g}" y="{y:g}" text-anchor="{anchor}"{more}>'
        f"{escape(text)}</text>"
    )


class Chart:
    """Axes over two ranges; what is added later lies on top.

    Parameters
    ----------
    x, y : pair of float
        Least and largest value on each axis.
    x_label, y_label : str
        Names of the axes.
    title : str
        What a screen reader reads out.
    first : str, default=None
        The date of which x counts the days; None: x are numbers.
    """

    def __init__(
        self, x: Range, y: Range, *, x_label: str, y_label: str, title: str, first: str | None = None
    ) -> None:
        self._x, self._y, self._title = x, y, title
        self._parts: list[str] = []
        ticks = [(t, number(t)) for t in _ticks(*x)] if first is None else date_ticks(first, *x)
        for t, text in ticks:
            u, v = self._place(t, y[0])
            self._parts.append(_text(u, v + 17, text, "middle"))
        for t in _ticks(*y):
            u, v = self._place(x[0], t)
            self._parts.append(
                f'<line class="grid" stroke="#ccc" x1="{u}" y1="{v}" x2="{_W - _RIGHT}" y2="{v}"/>'
            )
            self._parts.append(_text(u - 6, v + 4, number(t), "end"))
        self._parts.append(_text((_W + _LEFT) / 2, _H - 8, shortened(x_label, 48), "middle", "axis"))
        turned = ' transform="rotate(-90)"'
        self._parts.append(
            _text(-(_H - _BOTTOM + _TOP) / 2, 13, shortened(y_label, 30), "middle", "axis", turned)
        )

    def _place(self, a: float, b: float) -> tuple[float, float]:
        u = _LEFT + (a - self._x[0]) / (self._x[1] - self._x[0]) * (_W - _LEFT - _RIGHT)
        v = _H - _BOTTOM - (b - self._y[0]) / (self._y[1] - self._y[0]) * (_H - _BOTTOM - _TOP)
        return round(float(u), 1), round(float(v), 1)

    def _path(self, x: FloatArray, y: FloatArray) -> str:
        places = (self._place(a, b) for a, b in zip(x, y, strict=True))
        return " ".join(f"{u:g},{v:g}" for u, v in places)

    def band(self, x: FloatArray, low: FloatArray, high: FloatArray) -> Chart:
        """The area between two lines, cut off at the frame."""
        low, high = np.clip(low, *self._y), np.clip(high, *self._y)
        path = self._path(np.concatenate([x, x[::-1]]), np.concatenate([high, low[::-1]]))
        self._parts.append(f'<polygon class="band" fill="#0072b2" fill-opacity=".18" points="{path}"/>')
        return self

    def line(self, x: FloatArray, y: FloatArray) -> Chart:
        """A line."""
        self._parts.append(
            f'<polyline class="line" fill="none" stroke="#0072b2" points="{self._path(x, y)}"/>'
        )
        return self

    def guide(self, x: Range, y: Range) -> Chart:
        """A straight line to compare with."""
        (a, b), (c, d) = self._place(x[0], y[0]), self._place(x[1], y[1])
        self._parts.append(f'<line class="guide" stroke="#888" x1="{a}" y1="{b}" x2="{c}" y2="{d}"/>')
        return self

    def specks(self, x: FloatArray, y: FloatArray) -> Chart:
        """Many small points, in one element."""
        places = (self._place(a, b) for a, b in zip(x, y, strict=True))
        path = "".join(f"M{u:g},{v:g}h0" for u, v in places)
        if path:
            self._parts.append(
                f'<path class="specks" fill="none" stroke="#444" stroke-width="5" stroke-linecap="round" '
                f'd="{path}"/>'
            )
        return self

    def dots(self, x: FloatArray, y: FloatArray, tips: Sequence[str]) -> Chart:
        """Points with a text each."""
        for a, b, text in zip(x, y, tips, strict=True):
            u, v = self._place(a, b)
            self._parts.append(f'<circle class="dot" fill="#0072b2" cx="{u}" cy="{v}" r="5"{_tip(text)}/>')
        return self

    def svg(self) -> str:
        """The picture."""
        return _svg(self._parts, self._title)


def shortened(name: str, length: int) -> str:
    """A name that fits; both its ends are kept, for names often differ in the last."""
    tail = length // 3
    return name if len(name) <= length else name[: length - tail - 1] + "…" + name[-tail:]


def dot_rows(
    values: FloatArray,
    names: Sequence[str],
    *,
    title: str,
    texts: Sequence[str],
    errors: FloatArray | None = None,
    zero: bool = False,
) -> str:
    """One line for each value: its name, a dot on a common scale, whiskers of two standard errors, its text.

    `zero` includes zero in the scale and marks it.
    """
    values = np.asarray(values, dtype=float)
    if len(values) == 0:
        return ""
    error = np.zeros(len(values)) if errors is None else np.nan_to_num(np.asarray(errors, dtype=float))
    ends = [values - 2 * error, values + 2 * error, *([np.zeros(1)] if zero else [])]
    (low, high), left, right = span(*ends), 148, 330
    height = _LINE * len(values) + 8

    def place(value: float) -> float:
        return round(left + (value - low) / (high - low) * (right - left), 1)

    parts = []
    if zero:
        at = place(0.0)
        parts.append(f'<line class="guide" stroke="#888" x1="{at}" y1="2" x2="{at}" y2="{height - 2}"/>')
    for i, (name, value) in enumerate(zip(names, values, strict=True)):
        v = 4 + _LINE * i + _LINE / 2
        parts.append(_text(left - 8, v + 4, shortened(name, 20), "end"))
        parts.append(f'<line class="grid" stroke="#ccc" x1="{left}" y1="{v}" x2="{right}" y2="{v}"/>')
        if error[i] > 0:
            a, b = place(value - 2 * error[i]), place(value + 2 * error[i])
            parts.append(
                f'<line class="whisker" stroke="#0072b2" stroke-width="2" '
                f'x1="{a}" y1="{v}" x2="{b}" y2="{v}"/>'
            )
        parts.append(
            f'<circle class="dot" fill="#0072b2" cx="{place(value)}" cy="{v}" r="6"'
            f"{_tip(f'{name}: {texts[i]}')}/>"
        )
        parts.append(_text(_W - 4, v + 4, texts[i], "end"))
    return _svg(parts, title, height)
