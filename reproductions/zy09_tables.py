"""Tables 1 and 2 of Zhang & Yeung 2009 (semi-supervised multi-task regression), with baselines.

Run from the root of the repository::

    python reproductions/zy09_tables.py --quick                 # one split of each, minutes
    python reproductions/zy09_tables.py --tables sarcos --splits 10

The data folder is that of the environment variable GLEANGP_DATA or of `--data`. Every line gives mean and
standard deviation over splits of the transductive (unlabelled rows) and inductive (test rows) normalised
mean squared error: averaged over tasks as in the paper, and pooled over all rows of all tasks.

Departures of the data: SARCOS is drawn from the 4449 rows of the published test file, so tasks share
about 45 % of their rows. Where the paper is silent: pairs are orders without margin, at least one row of
each unlabelled; "100 pairs" is read as 100 over all tasks, and 100 per task is given too; School labels
are drawn within each school, at least one.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel
from sklearn.linear_model import RidgeCV

from gleangp import HierarchicalGPRegressor, Order

FIRST_SEED = 100
PAPER = {
    ("sarcos", "SSTR"): (1.0228, 1.0270),
    ("sarcos", "SMTR"): (0.4149, 0.4368),
    ("sarcos", "SSMTR"): (0.3810, 0.3905),
    ("sarcos", "SSMTRPI, 100 pairs"): (0.3500, 0.3486),
    ("school", "SSTR"): (1.2914, 1.3240),
    ("school", "SMTR"): (1.1151, 1.1535),
    ("school", "SSMTR"): (1.0506, 1.0612),
    ("school", "SSMTRPI, 100 pairs"): (0.9817, 0.9824),
}


@dataclass(frozen=True)
class Split:
    """Rows of all tasks and what each is for."""

    X: np.ndarray
    y: np.ndarray
    tasks: np.ndarray
    role: np.ndarray  # 0 labelled, 1 unlabelled, 2 test


def data_folder() -> Path:
    """GLEANGP_DATA, or the folder beside the repository."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("GLEANGP_DATA", default))


def load_sarcos(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (4449, 21) and torques (4449, 7)."""
    table = np.genfromtxt(folder / "sarcos" / "sarcos_test.csv.gz", delimiter=",", skip_header=1)
    return table[:, :21], table[:, 21:]


def load_school(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One-hot inputs, exam scores and schools of 15 362 students."""
    with gzip.open(folder / "school" / "school.csv.gz", "rt") as file:
        head, *rows = list(csv.reader(file))
    columns = []
    for j in range(2, len(head)):
        values = np.array([row[j] for row in rows])
        if head[j] in ("fsm_percent", "vr1_percent"):
            columns.append(values.astype(float)[:, None])
        else:
            columns.append((values[:, None] == np.unique(values)).astype(float))
    y = np.array([float(row[1]) for row in rows])
    return np.hstack(columns), y, np.array([int(row[0]) for row in rows])


def sarcos_split(X: np.ndarray, Y: np.ndarray, seed: int) -> Split:
    """Seven tasks of 2000 rows drawn independently: 1 % labelled, 10 % unlabelled, the rest test."""
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(len(X))[:2000] for _ in range(Y.shape[1])]
    role = np.repeat([0, 1, 2], [20, 200, 1780])
    return Split(
        X[np.concatenate(rows)],
        np.concatenate([Y[r, j] for j, r in enumerate(rows)]),
        np.repeat(np.arange(Y.shape[1]), 2000),
        np.tile(role, Y.shape[1]),
    )


def school_split(X: np.ndarray, y: np.ndarray, schools: np.ndarray, seed: int) -> Split:
    """2 % labelled within every school, at least one; 20 % unlabelled; the rest test."""
    rng = np.random.default_rng(seed)
    role = np.full(len(y), 2)
    for school in np.unique(schools):
        rows = rng.permutation(np.flatnonzero(schools == school))
        n_labelled, n_unlabelled = max(1, round(0.02 * len(rows))), round(0.2 * len(rows))
        role[rows[:n_labelled]] = 0
        role[rows[n_labelled : n_labelled + n_unlabelled]] = 1
    return Split(X, y, schools, role)


def order_pairs(split: Split, seed: int, *, in_all: int = 0, per_task: int = 0) -> Order:
    """True orders of pairs of training rows of one task, at least one of them unlabelled."""
    rng = np.random.default_rng(seed + 10_000)
    train = np.flatnonzero(split.role < 2)
    tasks = np.unique(split.tasks)
    wanted = np.repeat(tasks, per_task) if per_task else rng.choice(tasks, in_all)
    high, low = [], []
    for task in wanted:
        rows = np.flatnonzero(split.tasks[train] == task)
        while True:
            i, j = rng.choice(rows, 2, replace=False)
            if split.role[train[[i, j]]].any():
                break
        if split.y[train[i]] < split.y[train[j]]:
            i, j = j, i
        high.append(i)
        low.append(j)
    return Order(np.array(high), np.array(low))


def scores(split: Split, predict) -> dict[str, float]:
    """Transductive and inductive nMSE, task average and pooled; predict(X, tasks) -> mean."""
    out = {}
    for name, role in (("transductive", 1), ("inductive", 2)):
        rows = np.flatnonzero(split.role == role)
        y, tasks = split.y[rows], split.tasks[rows]
        squares = (predict(split.X[rows], tasks) - y) ** 2
        each = [
            np.mean(squares[tasks == t]) / np.var(y[tasks == t])
            for t in np.unique(tasks)
            if np.var(y[tasks == t]) > 1e-12
        ]
        out[name] = float(np.mean(each))
        out[name + " pooled"] = float(np.mean(squares) / np.var(y))
    return out


def hierarchical(split: Split, seed: int, *, pairs: dict | None = None, rbf: bool = False, **params):
    """`HierarchicalGPRegressor` on the labelled and unlabelled rows."""
    train = split.role < 2
    y = np.where(split.role == 0, split.y, np.nan)[train]
    kernel = ConstantKernel() * RBF(np.sqrt(split.X.shape[1])) if rbf else None
    model = HierarchicalGPRegressor(kernel, random_state=seed, **params)
    constraints = None if pairs is None else [order_pairs(split, seed, **pairs)]
    model.fit(split.X[train], y, tasks=split.tasks[train], constraints=constraints)
    return model.predict


def baseline(split: Split, seed: int, *, make, pooled: bool, own_units: bool):
    """A scikit-learn regressor on standardised rows, one for each task or one for all."""
    train, labelled = split.role < 2, split.role == 0
    center, spread = split.X[train].mean(axis=0), split.X[train].std(axis=0)
    spread[spread < 1e-12] = 1.0
    units = {}
    for task in np.unique(split.tasks):
        y = split.y[labelled & (split.tasks == task)] if own_units else split.y[labelled]
        units[task] = (y.mean(), y.std() if y.std() > 1e-9 else 1.0)
    models = {}
    for task in [None] if pooled else list(units):
        rows = labelled if task is None else labelled & (split.tasks == task)
        target = np.array(
            [
                (v - units[t][0]) / units[t][1]
                for v, t in zip(split.y[rows], split.tasks[rows], strict=True)
            ]
        )
        models[task] = make(target.size).fit((split.X[rows] - center) / spread, target)

    def predict(X, tasks):
        mean = np.empty(len(X))
        for task, (offset, scale) in units.items():
            at = tasks == task
            if at.any():
                model = models[None if pooled else task]
                mean[at] = offset + scale * model.predict((X[at] - center) / spread)
        return mean

    return predict


class Mean:
    """Predicts zero in standardised units."""

    def fit(self, X, y):
        """Do nothing."""
        return self

    def predict(self, X):
        """Zeros."""
        return np.zeros(len(X))


def make_ridge(n):
    """Ridge with its penalty by leave-one-out; with one or two rows there is none to choose."""
    return RidgeCV(np.logspace(-2, 4, 25)) if n > 2 else Mean()


def make_gp(n, linear=False):
    """scikit-learn's Gaussian process with learnt noise."""
    kernel = ConstantKernel() * RBF(4.0) + WhiteKernel(0.1)
    if linear:
        kernel = kernel + ConstantKernel(0.05) * DotProduct(0.0, "fixed")
    return GaussianProcessRegressor(kernel, random_state=0)


def make_boosting(n):
    """scikit-learn's gradient boosting, with smaller leaves where rows are few."""
    return HistGradientBoostingRegressor(random_state=0, min_samples_leaf=5 if n < 400 else 20)


def methods(table: str) -> dict:
    """Name -> function of a split and a seed that gives predict(X, tasks)."""
    own = table == "sarcos"
    pairs = {"per_task": 100 if own else 20}
    many = f"SSMTRPI, {pairs['per_task']} pairs per task"

    def ours(**kw):
        return lambda split, seed: hierarchical(split, seed, **kw)

    def plain(make, pooled):
        return lambda split, seed: baseline(split, seed, make=make, pooled=pooled, own_units=own)

    return {
        "one constant" if not own else "mean of the task": plain(lambda n: Mean(), False),
        "ridge per task": plain(make_ridge, False),
        "ridge pooled": plain(make_ridge, True),
        "boosting pooled": plain(make_boosting, True),
        "GP pooled": plain(make_gp, True),
        "SSTR": plain(make_gp, False),
        "GP per task, linear + RBF": plain(lambda n: make_gp(n, linear=True), False),
        "SMTR": ours(n_neighbors=None, rbf=True),
        "SMTR, default kernel": ours(n_neighbors=None),
        "one kernel for all, default kernel": ours(n_neighbors=None, prior_cov=0.0),
        "SSMTR": ours(rbf=True),
        "SSMTR, default kernel": ours(),
        "SSMTRPI, 100 pairs": ours(pairs={"in_all": 100}, rbf=True),
        "SSMTRPI, 100 pairs, default kernel": ours(pairs={"in_all": 100}),
        many: ours(pairs=pairs, rbf=True),
    }


def run(table: str, n_splits: int, folder: Path, names=None, out: Path | None = None) -> list[dict]:
    """All methods on all splits; each result is also appended to `out` as a line of JSON."""
    data = load_sarcos(folder) if table == "sarcos" else load_school(folder)
    results = []
    for seed in range(FIRST_SEED, FIRST_SEED + n_splits):
        split = sarcos_split(*data, seed) if table == "sarcos" else school_split(*data, seed)
        for name, method in methods(table).items():
            if names and name not in names:
                continue
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # scikit-learn's baselines on a handful of rows
                predict = method(split, seed)
                seconds = time.perf_counter() - start
                found = scores(split, predict)
            results.append({"table": table, "method": name, "seed": seed, "seconds": seconds, **found})
            if out is not None:
                with out.open("a") as file:
                    file.write(json.dumps(results[-1]) + "\n")
    return results


def format_table(results: list[dict]) -> str:
    """One line per method: the paper's numbers, ours with spread, and the time of a fit."""
    lines = [
        "| method | paper | task average | pooled | splits | s per fit |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name in dict.fromkeys(r["method"] for r in results):
        mine = [r for r in results if r["method"] == name]
        paper = PAPER.get((mine[0]["table"], name))
        cells = []
        for kind in ("", " pooled"):
            parts = []
            for which in ("transductive", "inductive"):
                values = np.array([r[which + kind] for r in mine])
                parts.append(f"{values.mean():.3f} ± {values.std():.3f}")
            cells.append(" / ".join(parts))
        printed = "–" if paper is None else f"{paper[0]:.3f} / {paper[1]:.3f}"
        seconds = np.median([r["seconds"] for r in mine])
        lines.append(f"| {name} | {printed} | {cells[0]} | {cells[1]} | {len(mine)} | {seconds:.2g} |")
    return "\n".join(lines)


def main(arguments=None) -> None:
    """Run the tables asked for and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=["sarcos", "school"], choices=["sarcos", "school"])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="one split, without the slowest methods")
    parser.add_argument("--methods", nargs="+", help="only these, by their names in the table")
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument("--out", type=Path, help="append every result as a line of JSON")
    options = parser.parse_args(arguments)
    if not options.data.is_dir():
        sys.exit(f"no data folder {options.data}; set GLEANGP_DATA or --data.")
    for table in options.tables:
        names = options.methods
        if options.quick and names is None:
            names = [n for n in methods(table) if "PI" not in n]
        results = run(table, 1 if options.quick else options.splits, options.data, names, options.out)
        print(f"\n{table}\n{format_table(results)}", flush=True)


if __name__ == "__main__":
    main()
