"""Plots that several experiments share, in colours that everyone can tell apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gleangp.plots._base import COLORS, MARKERS, color_of
from gleangp.reproduce.runner import Results
from gleangp.reproduce.summary import Cell, cells, series

_GREY = "#7a7f87"  # reads on white and on black


def new_figure(n_columns: int = 1, width: float = 5.6, height: float = 4.0, **more: Any) -> tuple[Any, Any]:
    """A figure that no window manager knows of, and its axes as a list."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * n_columns, height), layout="constrained")
    axes = figure.subplots(1, n_columns, squeeze=False, **more)[0]
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, list(axes)


def draw_curves(
    ax: Any,
    results: Results,
    methods: Sequence[str],
    column: str,
    settings: Sequence[str],
    x: Sequence[float],
    *,
    labels: Mapping[str, str] | None = None,
) -> None:
    """Mean over runs with error bars of one standard deviation, against a number for each setting."""
    for i, method in enumerate(methods):
        mean, spread = series(results, method, column, settings)
        if np.isnan(mean).all():
            continue
        again = i >= len(COLORS)  # colours come round: dashes, and markers that are open, in the legend too
        ax.errorbar(
            x, mean, spread, marker=MARKERS[i % len(MARKERS)], ms=5, lw=1.5, capsize=2,
            ls="--" if again else "-", mfc="white" if again else None,
            color=color_of(i), label=(labels or {}).get(method, method),
        )  # fmt: skip


def draw_table(results: Results, column: str, title: str = "") -> Any:
    """A figure with one line a method: our mean and standard deviation, and the paper's beside it."""
    found = [c for c in cells(results) if c.column == column and c.setting == results.records[0].setting]
    figure, (ax,) = new_figure(width=7.0, height=1.2 + 0.28 * len(found))
    default = results.experiment.default
    for line, cell in enumerate(found):
        ours = default is not None and cell.method == default.name
        spread = 0.0 if np.isnan(cell.spread) else cell.spread
        color = color_of(1) if ours else color_of(0)
        ax.errorbar(cell.mean, line, xerr=spread, fmt="o", ms=5, capsize=2, color=color)
        if cell.printed is not None:
            ax.errorbar(
                cell.printed.mean, line + 0.25, xerr=cell.printed.spread or 0.0, fmt="D", ms=4.5, capsize=2,
                color=_GREY,
            )  # fmt: skip
    _leave_out_the_hopeless(ax, found)
    ax.set_yticks(range(len(found)), [c.method for c in found], fontsize=8)
    ax.invert_yaxis()
    ax.set_xlabel(column)
    ax.grid(axis="x", lw=0.4)
    ax.errorbar([], [], fmt="o", color=color_of(0), label="here")
    ax.errorbar([], [], fmt="o", color=color_of(1), label="our default")
    if any(c.printed for c in found):
        ax.errorbar([], [], fmt="D", color=_GREY, label="paper")
    figure.legend(fontsize=8, loc="outside lower right", ncols=3)
    if title:
        ax.set_title(title, fontsize=10)
    return figure


def logarithmic(ax: Any, *, vertical: bool = False) -> None:
    """A horizontal (or vertical) axis on a logarithmic scale, with plain numbers on it."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis = ax.yaxis if vertical else ax.xaxis
    (ax.set_yscale if vertical else ax.set_xscale)("log")
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))


def _leave_out_the_hopeless(ax: Any, found: Sequence[Cell]) -> None:
    """A method three times as far out as the median would squeeze all others: say its number instead."""
    means = np.array([c.mean for c in found])
    far = means > 3.0 * np.median(means)
    if not far.any() or np.median(means) <= 0.0:
        return
    near = [c for c, is_far in zip(found, far, strict=True) if not is_far]
    tops = [c.mean + (0.0 if np.isnan(c.spread) else c.spread) for c in near]
    tops += [c.printed.mean + (c.printed.spread or 0.0) for c in near if c.printed is not None]
    bottoms = [c.mean - (0.0 if np.isnan(c.spread) else c.spread) for c in near]
    bottoms += [c.printed.mean - (c.printed.spread or 0.0) for c in near if c.printed is not None]
    margin = 0.08 * (max(tops) - min(bottoms))
    ax.set_xlim(min(bottoms) - margin, max(tops) + margin)
    for line in np.flatnonzero(far):
        ax.text(max(tops) + margin, line, f"{means[line]:.3g} →", ha="right", va="center", fontsize=8)
