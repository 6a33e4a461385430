"""The way of a call through the package, drawn from a trace: `docs/explanation/journeys.md`.

    python -m benchmarks.journeys [--write]

Each journey runs once before it is traced, so that imports and first uses do not count. `--write` replaces
the table on the page; without it the table is printed.
"""

from __future__ import annotations

import argparse
import sys
import threading
import warnings
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import numpy as np

import gleangp
from gleangp import SparseGPClassifier, SparseGPRegressor

PACKAGE = Path(gleangp.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "journeys.md"
LAYERS = ("estimators", "models", "inference", "selection", "kernels", "noise", "data")

DEEPEST = ("inference/evidence.py", "inference/local.py")
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")  # a part of the function they are in
MARK = "<!-- what follows is written by benchmarks.journeys -->\n"


class Trace:
    """Functions of the package that are called, and how deep."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, str]] = set()
        self.way: list[str] = []

    def __call__(self, frame, event: str, argument: object) -> None:
        """As `sys.setprofile` calls it."""
        code = frame.f_code
        if event != "call" or code.co_name in COMPREHENSIONS or not code.co_filename.startswith(str(PACKAGE)):
            return
        where = str(Path(code.co_filename).relative_to(PACKAGE))
        self.functions.add((where, code.co_qualname))
        if where in DEEPEST and not self.way and code.co_name != "__getstate__":  # of a copy
            self.way = path_of(frame)

    @property
    def files(self) -> set[str]:
        """Files visited."""
        return {where for where, _ in self.functions}


def path_of(frame) -> list[str]:
    """The files from the outermost call of the package down to this one."""
    path: list[str] = []
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(str(PACKAGE)):
            where = str(Path(name).relative_to(PACKAGE))
            if where.split("/")[0] in LAYERS and (not path or path[-1] != where):
                path.append(where)
        frame = frame.f_back
    return path[::-1]


def traced(call: Callable[[], object]) -> Trace:
    """What a call visits, after it ran once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call()
        trace = Trace()
        threading.setprofile(trace)
        sys.setprofile(trace)
        try:
            call()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return trace


def journeys() -> dict[str, Callable[[], object]]:
    """Name -> a call."""
    rng = np.random.default_rng(0)
    tasks = np.repeat(np.arange(10), 12)
    X = rng.uniform(-2, 2, size=(120, 2))
    y = np.sin(2 * X[:, 0]) + 0.3 * (tasks % 3) + 0.1 * rng.normal(size=120)
    labels = (y > 0.2).astype(int)
    few = np.where(rng.random(120) < 0.5, labels, -1)
    X_large = rng.uniform(-2, 2, size=(4000, 2))
    y_large = np.sin(2 * X_large[:, 0]) + 0.1 * rng.normal(size=4000)
    model = SparseGPRegressor(random_state=0).fit(X, y, tasks=tasks)

    return {
        "`fit`, ten small tasks": lambda: SparseGPRegressor(random_state=0).fit(X, y, tasks=tasks),
        "`fit`, one large table": lambda: SparseGPRegressor(random_state=0).fit(X_large, y_large),
        "`fit`, labels": lambda: SparseGPClassifier(random_state=0).fit(X, labels, tasks=tasks),
        "`fit`, rows without a label": lambda: SparseGPClassifier(unlabeled=-1, random_state=0).fit(X, few),
        "`predict`": lambda: model.predict(X, tasks=tasks, return_std=True),
        "`add_task`": lambda: deepcopy(model).add_task(X[:4], y[:4], task=10),
    }


def found_ways() -> str:
    """A table of all journeys, and the steps of each."""
    lines, ways = ["| journey | files | functions |", "|---|---|---|"], []
    for name, call in journeys().items():
        trace = traced(call)
        lines.append(f"| {name} | {len(trace.files)} | {len(trace.functions)} |")
        if trace.way:
            steps = [f"{k}. `{where}`" for k, where in enumerate(trace.way, 1)]
            ways += ["", f"The way in of {name}:", "", *steps]
    return "\n".join([*lines, *ways, ""])


def main() -> None:
    """Print what was found, or write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"replace the table of {PAGE.name}")
    write = parser.parse_args().write
    found = found_ways()
    if write:
        head = PAGE.read_text(encoding="utf-8").split(MARK)[0]
        PAGE.write_text(head + MARK + found, encoding="utf-8")
    else:
        print(found)


if __name__ == "__main__":
    main()
