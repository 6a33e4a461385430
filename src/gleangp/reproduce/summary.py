"""Means, spreads, and the verdict on every number that a paper prints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gleangp.reproduce.experiment import Column, Experiment, Printed
from gleangp.reproduce.records import Record
from gleangp.reproduce.runner import Results

BETTER, WITHIN, WORSE, OTHER, UNKNOWN = "better", "within the spread", "worse", "differs", "no spread"


@dataclass(frozen=True)
class Cell:
    """One method in one setting by one measure."""

    setting: str
    method: str
    column: str
    n: int
    mean: float
    spread: float  # standard deviation over runs; nan of one run
    seconds: float  # mean time of a run, of the processor
    printed: Printed | None
    verdict: str  # empty where the paper prints nothing


@dataclass(frozen=True)
class Comparison:
    """A number of the paper, our number in the paper's setting, and that of our default."""

    printed: Printed
    ours: Cell
    default: Cell | None
    default_verdict: str


@dataclass(frozen=True)
class Lead:
    """How far our default is ahead of the best of all other methods, paired over runs."""

    setting: str
    column: str
    rival: str
    n: int
    mean: float  # positive: the default is better
    error: float  # standard error, as if runs were independent
    overlap_error: float | None  # with the overlap of the splits counted in; None where it is not known


def verdict(mean: float, spread: float, n: int, printed: Printed, better: int) -> str:
    """Compare a mean with a printed number.

    Within the spread: they differ by no more than the printed standard deviation, or by no more than
    ours where none is printed. Otherwise better or worse by the sign of the measure.

    Examples
    --------
    >>> verdict(4.0, 3.0, 10, Printed(5.0, 2.1), -1)
    'within the spread'
    >>> verdict(8.5, 0.6, 10, Printed(13.2, 1.5), -1)
    'better'
    """
    allowed = printed.spread if printed.spread is not None else spread
    difference = mean - printed.mean
    if not np.isfinite(mean):
        return WORSE
    if printed.spread is None and n < 2:
        return UNKNOWN
    # Rounding of the printed digits must not decide.
    if abs(difference) <= allowed + 1e-9 * abs(printed.mean):
        return WITHIN
    if better == 0:
        return OTHER
    return BETTER if difference * better > 0 else WORSE


def cells(results: Results) -> list[Cell]:
    """Every (setting, method, column) that was measured, in the order of the experiment."""
    experiment = results.experiment
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in results.records:
        groups.setdefault((record.setting, record.method), []).append(record)
    out = []
    for (setting, method), group in groups.items():
        for column in experiment.columns:
            values = [r.values[column.name] for r in group if column.name in r.values]
            if not values:
                continue
            seconds = float(np.mean([r.processor_seconds for r in group]))
            out.append(_cell(experiment, setting, method, column, values, seconds))
    return out


def cells_by_method(results: Results) -> tuple[list[str], dict[tuple[str, str], dict[str, Cell]]]:
    """Measures that were taken, and the cells of every (setting, method) by measure."""
    groups: dict[tuple[str, str], dict[str, Cell]] = {}
    for cell in cells(results):
        groups.setdefault((cell.setting, cell.method), {})[cell.column] = cell
    taken = [c.name for c in results.experiment.columns if any(c.name in g for g in groups.values())]
    return taken, groups


def _cell(
    experiment: Experiment, setting: str, method: str, column: Column, values: list[float], seconds: float
) -> Cell:
    mean = float(np.mean(values))
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
    printed = experiment.paper.get((setting, method, column.name))
    said = "" if printed is None else verdict(mean, spread, len(values), printed, column.better)
    return Cell(setting, method, column.name, len(values), mean, spread, seconds, printed, said)


def comparisons(results: Results) -> list[Comparison]:
    """One line for each printed number that was measured."""
    experiment = results.experiment
    found = {(c.setting, c.method, c.column): c for c in cells(results)}
    better = {c.name: c.better for c in experiment.columns}
    out = []
    for key, printed in experiment.paper.items():
        ours = found.get(key)
        if ours is None:
            continue
        default = None
        said = ""
        if experiment.default is not None:
            default = found.get((key[0], experiment.default.name, key[2]))
        if default is not None:
            said = verdict(default.mean, default.spread, default.n, printed, better[key[2]])
        out.append(Comparison(printed, ours, default, said))
    return out


def leads(results: Results) -> list[Lead]:
    """The default against the best other method, by every measure that has a better side.

    Random splits of one set of rows share most of them, so the standard error over runs is too small. The
    second one widens 1 / n to 1 / n + test rows / training rows (Nadeau & Bengio 2003).
    """
    e = results.experiment
    if e.default is None:
        return []
    out = []
    for setting in e.settings:
        for column in e.columns:
            ours = _by_run(results, e.default.name, column.name, setting)
            rivals = {m.name: _by_run(results, m.name, column.name, setting) for m in e.methods}
            rivals = {
                name: theirs
                for name, theirs in rivals.items()
                if name != e.default.name and len(ours.keys() & theirs.keys()) > 1
            }
            if column.better == 0 or not rivals:
                continue
            rival = max(rivals, key=lambda name: column.better * np.mean(list(rivals[name].values())))
            runs = sorted(ours.keys() & rivals[rival].keys())
            gain = column.better * np.array([ours[r] - rivals[rival][r] for r in runs])
            spread, n = float(gain.std(ddof=1)), len(runs)
            overlap = None if e.test_share is None else spread * float(np.sqrt(1 / n + e.test_share))
            mean, error = float(gain.mean()), float(spread / np.sqrt(n))
            out.append(Lead(setting, column.name, rival, n, mean, error, overlap))
    return out


def _by_run(results: Results, method: str, column: str, setting: str) -> dict[int, float]:
    return {
        r.run: r.values[column]
        for r in results.records
        if (r.setting, r.method) == (setting, method) and np.isfinite(r.values.get(column, np.nan))
    }


def format_lead(lead: Lead, digits: int) -> str:
    """A lead in one sentence."""
    errors = f"± {lead.error:.{digits}f} over runs"
    if lead.overlap_error is not None:
        errors += f", ± {lead.overlap_error:.{digits}f} with the overlap of splits"
    side = "ahead of" if lead.mean >= 0 else "behind"
    where = f" ({lead.setting})" if lead.setting else ""
    distance = f"{abs(lead.mean):.{digits}f}"
    return f"{lead.column}{where}: the default is {distance} {side} the best other, {lead.rival} ({errors})."


def format_cell(cell: Cell, digits: int) -> str:
    """Mean and standard deviation, for readers."""
    if not np.isfinite(cell.mean):
        return "–"
    spread = f" ± {cell.spread:.{digits}f}" if np.isfinite(cell.spread) else ""
    return f"{cell.mean:.{digits}f}{spread}"


def format_seconds(seconds: float) -> str:
    """Two digits, written out: 97, 0.25, 210."""
    return f"{seconds:.0f}" if seconds >= 10.0 else f"{seconds:.2g}"


def format_printed(printed: Printed, digits: int) -> str:
    """A number of the paper, for readers."""
    spread = "" if printed.spread is None else f" ± {printed.spread:.{digits}f}"
    return f"{printed.mean:.{digits}f}{spread}"


def series(results: Results, method: str, column: str, settings: Iterable[str]) -> np.ndarray:
    """Mean and standard deviation over runs at each setting, (2, settings); nan where nothing is."""
    out = np.full((2, len(list(settings))), np.nan)
    for j, setting in enumerate(settings):
        values = values_of(results, method, column, setting)
        if len(values):
            out[:, j] = values.mean(), values.std(ddof=1) if len(values) > 1 else 0.0
    return out


def values_of(results: Results, method: str, column: str, setting: str = "") -> np.ndarray:
    """All runs of one method."""
    return np.array(
        [
            r.values[column]
            for r in results.records
            if (r.setting, r.method) == (setting, method) and column in r.values
        ]
    )


def shown(results: Results, method: str, setting: str = "", run: int = 0) -> dict[str, Any]:
    """What a method kept for the plots, of one run."""
    for r in results.records:
        if (r.setting, r.method, r.run) == (setting, method, run):
            return r.shown
    return {}
