"""What a run leaves behind: runs.csv, summary.json, results.md, plots as PNG and SVG, and one page."""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gleangp._version import __version__
from gleangp.io import replacing
from gleangp.reproduce.markdown import render_markdown
from gleangp.reproduce.page import render
from gleangp.reproduce.runner import Results
from gleangp.reproduce.summary import Cell, cells, comparisons


@dataclass(frozen=True)
class Surroundings:
    """Where and when it was measured."""

    date: str
    versions: dict[str, str]


def surroundings() -> Surroundings:
    """Of this process."""
    versions = {"gleangp": __version__, "python": platform.python_version()}
    for package in ("numpy", "scipy", "scikit-learn"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "unknown"
    return Surroundings(datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"), versions)


def write_results(
    results: list[Results], output: Path, pictures: dict[str, dict[str, str]] | None = None
) -> Path:
    """Write everything; the path of the page comes back.

    `pictures` remembers what was drawn: experiments that are in it already are not drawn again.
    """
    output.mkdir(parents=True, exist_ok=True)
    around = surroundings()
    pictures = {} if pictures is None else pictures
    for r in results:
        if r.experiment.name not in pictures:
            pictures[r.experiment.name] = _plots(r, output / "plots")
    _write(output / "runs.csv", _runs(results))
    found = [_summary(r) for r in results]
    summary = {"date": around.date, "versions": around.versions, "experiments": found}
    _write(output / "summary.json", json.dumps(summary, indent=1, allow_nan=False) + "\n")
    _write(output / "results.md", render_markdown(results))
    page = output / "index.html"
    _write(page, render(results, pictures, around.date, around.versions))
    return page


def _write(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _runs(results: list[Results]) -> str:
    """One line for each run and measure."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ("experiment", "setting", "method", "run", "seed", "measure", "value", "seconds", "processor_seconds")
    )
    for found in results:
        for r in found.records:
            for column, value in r.values.items():
                writer.writerow((
                    found.experiment.name, r.setting, r.method, r.run, found.seed, column,
                    f"{value:.9g}", f"{r.seconds:.4f}", f"{r.processor_seconds:.4f}",
                ))  # fmt: skip
    return text.getvalue()


def _summary(results: Results) -> dict[str, Any]:
    experiment = results.experiment
    default = experiment.default
    return {
        "name": experiment.name,
        "source": experiment.source,
        "shows": experiment.shows,
        "runs": results.n_runs,
        "seed": results.seed,
        "quick": results.quick,
        "options": results.options,
        "methods": {m.name: {"role": m.role, "settings": m.settings} for m in experiment.methods},
        "cells": [_cell(c) for c in cells(results)],
        "comparisons": [
            {
                "setting": c.ours.setting,
                "method": c.ours.method,
                "column": c.ours.column,
                "paper": c.printed.mean,
                "paper_spread": c.printed.spread,
                "ours": c.ours.mean,
                "verdict": c.ours.verdict,
                "default_method": None if default is None else default.name,
                "default": None if c.default is None else _finite(c.default.mean),
                "default_verdict": c.default_verdict or None,
            }
            for c in comparisons(results)
        ],
        "failures": results.failures,
        "notes": list(experiment.notes),
    }


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "setting": cell.setting,
        "method": cell.method,
        "column": cell.column,
        "n": cell.n,
        "mean": _finite(cell.mean),
        "standard_deviation": _finite(cell.spread),
        "processor_seconds": cell.seconds,
        "verdict": cell.verdict or None,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _plots(results: Results, folder: Path) -> dict[str, str]:
    """Save the figures of an experiment; name -> SVG for the page."""
    if results.experiment.draw is None or not results.records:
        return {}
    from matplotlib import rc_context

    folder.mkdir(parents=True, exist_ok=True)
    out = {}
    style = {"svg.hashsalt": results.experiment.name, "svg.fonttype": "path", "legend.frameon": False}
    with rc_context(style):  # type: ignore[arg-type]
        for name, figure in results.experiment.draw(results).items():
            stem = f"{results.experiment.name}-{name}"
            with replacing(folder / f"{stem}.png") as temporary:
                figure.savefig(temporary, format="png", dpi=130)
            with replacing(folder / f"{stem}.svg") as temporary:
                figure.savefig(temporary, format="svg", metadata={"Date": None})
            bare = io.StringIO()
            figure.savefig(bare, format="svg", transparent=True, metadata={"Date": None})
            out[name] = bare.getvalue()
    return out
