"""What the benchmarks share: versions and date, scores, simulated functions, rows with a goal."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from benchmarks.peers.score import gaussian_nlpd, rmse

ROOT = Path(__file__).parents[1]


@dataclass
class Row:
    """One measured number beside its goal; `holds` is None where there is none to compare with."""

    what: str
    measured: str
    goal: str = ""
    holds: bool | None = None


def cpu_seconds(function: Callable[[], Any]) -> tuple[Any, float]:
    """Result of a call and the CPU seconds it took."""
    start = time.process_time()
    result = function()
    return result, time.process_time() - start


def regression_scores(y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> dict[str, float]:
    """RMSE, NLPD and coverage of 95 % intervals of normal predictions of observations."""
    return {
        "rmse": rmse(y, mean),
        "nlpd": gaussian_nlpd(y, mean, std**2),
        "cov": float(np.mean(np.abs(y - mean) < norm.ppf(0.975) * std)),
    }


def with_error(values: Iterable[float], digits: int = 3) -> str:
    """Mean and its standard error, if there are several values."""
    values = np.asarray(list(values), float)
    if len(values) < 2:
        return f"{values.mean():.{digits}g}"
    return f"{values.mean():.{digits}g} ± {values.std(ddof=1) / np.sqrt(len(values)):.2g}"


def smooth_function(rng: np.random.Generator, p: int, length: float = 1.0) -> Callable:
    """A draw of the RBF process on p inputs (500 random cosines), variance 1."""
    frequencies, phases = rng.normal(size=(p, 500)) / length, rng.uniform(0, 2 * np.pi, 500)
    weights = rng.normal(size=500) * np.sqrt(2 / 500)
    return lambda X: np.cos(np.asarray(X) @ frequencies + phases) @ weights


def versions(*packages: str) -> str:
    """Date, Python and the versions of those packages that are installed."""
    found = []
    for name in ("gleangp", "numpy", "scipy", "scikit-learn", *packages):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return f"{datetime.date.today()}, Python {platform.python_version()}, " + ", ".join(found)


def parser_of(doc: str) -> argparse.ArgumentParser:
    """A parser with the option that every benchmark has."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few repeats of small cases, for a first look")
    return parser


def markdown(rows: Iterable[Row]) -> list[str]:
    """Rows as the lines of a table."""
    words = {None: "", True: "yes", False: "no"}
    lines = ["| what | measured | goal | holds |", "|---|---|---|---|"]
    return lines + [f"| {r.what} | {r.measured} | {r.goal} | {words[r.holds]} |" for r in rows]


def show(rows: Iterable[Row], *packages: str) -> list[Row]:
    """Print versions, then each row as soon as it is measured."""
    print(f"{versions(*packages)}\n\n" + "\n".join(markdown([])), flush=True)
    done = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for row in rows:
            print(markdown([row])[-1], flush=True)
            done.append(row)
    return done


def show_parts(doc: str, parts: dict[str, Callable[[bool], Iterable[Row]]]) -> None:
    """The command line of a benchmark in parts: those that are named, or all."""
    parser = parser_of(doc)
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(parts))
    given = parser.parse_args()
    if unknown := set(given.parts) - set(parts):
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}; known are {', '.join(parts)}")
    show(row for name in given.parts or parts for row in parts[name](given.quick))


def shared_folder(name: str, variable: str, given: Path | None = None) -> Path | None:
    """Folder of data that is not part of the project: as given, of the environment, or beside the project."""
    places = [given, os.environ.get(variable), ROOT.parent / "shared" / name]
    return next((Path(place) for place in places if place and Path(place).is_dir()), None)


def data_folder(part: str) -> Path:
    """Folder `part` of the data that the variable GLEANGP_DATA names."""
    folder = shared_folder("data", "GLEANGP_DATA")
    if folder is None or not (folder / part).is_dir():
        raise SystemExit(f"No folder {part!r} of data. Set GLEANGP_DATA to the folder that holds it.")
    return folder / part
