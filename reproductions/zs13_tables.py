"""Tables 1 to 5 of Zhu & Sun 2013, "Single-task and multitask sparse Gaussian processes", measured again.

    python reproductions/zs13_tables.py [--quick] [--tables 1 4] [--splits 10] [--data FOLDER]

Every cell is the mean and standard deviation over random splits, with the processor time of one fit
and prediction, next to the paper's number. Beside the paper's methods stand what they must be judged by:
random points of the same number, the same selector per task without the regulariser, all points, linear
models, and this library's default. Inputs are standardised on the training rows. Nothing is tuned:
`scale` and `weight` are shown at fixed values instead of chosen by cross-validation.

The folder of the data is named by --data or by the environment variable GLEANGP_DATA.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

from gleangp import (
    EntropySelector,
    GraphSelector,
    RandomSelector,
    SparseGPClassifier,
    SparseGPRegressor,
    TaskRelevance,
)

SPARSE = {"classes": SparseGPClassifier, "numbers": SparseGPRegressor}
LINEAR = {
    "classes": lambda: LogisticRegression(max_iter=1000),
    "numbers": lambda: RidgeCV(alphas=np.logspace(-3, 3, 13)),
}
NOTHING = {"classes": DummyClassifier, "numbers": DummyRegressor}
DEFAULT = "this library's default"
COVERAGE = GraphSelector(scale=5.0, objective="coverage")


@dataclass
class Split:
    """Training and test rows of one random split; tasks are None for a single task."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    tasks: np.ndarray | None = None
    tasks_test: np.ndarray | None = None


@dataclass
class Table:
    """One table of the paper: the data, what is kept, and the paper's numbers."""

    title: str
    kind: str  # "classes" or "numbers"
    n_keep: int  # over all tasks
    split: object  # (folder, rng) -> Split
    metrics: object  # (Split, prediction, probability or None) -> {name: value}
    paper: dict[str, str]
    better: dict[str, int] = field(default_factory=dict)  # metric that is judged -> sign of "better"


def read(folder, name):
    return pd.read_csv(Path(folder) / name)


def one_task(frame, target, n_train, n_test, rng):
    """Rows of one task, split at random and standardised."""
    rows = rng.permutation(len(frame))[: n_train + n_test]
    X, y = frame.drop(columns=target).to_numpy(float), frame[target].to_numpy()
    train, test = rows[:n_train], rows[n_train:]
    scaler = StandardScaler().fit(X[train])
    return Split(scaler.transform(X[train]), y[train], scaler.transform(X[test]), y[test])


def haberman(folder, rng):
    return one_task(read(folder, "haberman/haberman.csv"), "survival_status", 200, 106, rng)


def iris(folder, rng):
    return one_task(read(folder, "iris/iris.csv"), "species", 100, 50, rng)


def auto_mpg(folder, rng):
    frame = read(folder, "auto_mpg/auto_mpg.csv").drop(columns="car_name").dropna()
    return one_task(frame, "mpg", 200, 100, rng)


def landmine(folder, rng):
    """19 tasks, 320 and 80 rows of each."""
    frame = read(folder, "landmine/landmine.csv.gz")
    frame = frame[frame["in19"] == 1].drop(columns="in19")
    parts = [
        (rows[:320], rows[320:400])
        for rows in (rng.permutation(g.index.to_numpy()) for _, g in frame.groupby("task"))
    ]
    train, test = (frame.loc[np.concatenate(p)] for p in zip(*parts, strict=True))
    inputs = [f"x{i}" for i in range(9)]
    scaler = StandardScaler().fit(train[inputs])
    X, X_test = (scaler.transform(f[inputs]) for f in (train, test))
    labels = [f[["label", "task"]].to_numpy() for f in (train, test)]
    return Split(X, labels[0][:, 0], X_test, labels[1][:, 0], labels[0][:, 1], labels[1][:, 1])


SLUMP = ("slump_cm", "flow_cm", "strength_28d_mpa")


def concrete_slump(folder, rng):
    """Three outputs of the same 103 rows, as three tasks."""
    frame = read(folder, "concrete_slump/concrete_slump.csv").drop(columns="no")
    rows = rng.permutation(len(frame))
    X, Y = frame.drop(columns=list(SLUMP)).to_numpy(float), frame[list(SLUMP)].to_numpy(float)
    train, test = rows[:80], rows[80:]
    scaler = StandardScaler().fit(X[train])

    def stacked(part):
        tasks = np.repeat(SLUMP, len(part))
        return np.tile(scaler.transform(X[part]), (3, 1)), Y[part].T.ravel(), tasks

    X_train, y_train, tasks_train = stacked(train)
    X_test, y_test, tasks_test = stacked(test)
    return Split(X_train, y_train, X_test, y_test, tasks_train, tasks_test)


def error_rate(split, prediction, probability):
    values = {"error %": 100.0 * np.mean(prediction != split.y_test)}
    if probability is not None and probability.shape[1] == 2:
        values["AUC"] = task_auc(split, probability[:, 1])
    return values


def task_auc(split, score):
    """Area under the curve, averaged over the tasks whose test rows have both classes."""
    positive = split.y_test == np.max(split.y_test)
    tasks = np.zeros(len(score)) if split.tasks is None else split.tasks_test
    both = [t for t in np.unique(tasks) if 0 < positive[tasks == t].sum() < np.sum(tasks == t)]
    return float(np.mean([roc_auc_score(positive[tasks == t], score[tasks == t]) for t in both]))


def relative_error(split, prediction, _):
    """Mean absolute relative error, eq. 15."""
    return {"MARE %": 100.0 * np.mean(np.abs(prediction / split.y_test - 1.0))}


def slump_errors(split, prediction, _):
    """Eq. 15 per output, rows with a zero target left out; the paper's level is that of the last two."""
    values = {}
    for task in SLUMP:
        rows = (split.tasks_test == task) & (split.y_test != 0.0)
        values[task] = 100.0 * np.mean(np.abs(prediction[rows] / split.y_test[rows] - 1.0))
        rows = split.tasks_test == task
        residual = np.mean((prediction[rows] - split.y_test[rows]) ** 2)
        values[f"nMSE {task}"] = residual / np.var(split.y_test[rows])
    errors = [values.pop(task) for task in SLUMP]
    normalised = [values.pop(f"nMSE {task}") for task in SLUMP]
    return {
        "MARE % flow, strength": np.mean(errors[1:]),
        "MARE % all three": np.mean(errors),
        "mean nMSE": np.mean(normalised),
    }


TABLES = {
    1: Table(
        "Table 1: Haberman, 200 train, 100 kept", "classes", 100, haberman, error_rate,
        {"IVM": "29.5 ± 2.2", "MPGR t=1": "27.1 ± 4.4"}, {"error %": -1, "AUC": 1},
    ),
    2: Table(
        "Table 2: Iris, 100 train, 55 kept", "classes", 55, iris, error_rate,
        {"IVM": "5.0 ± 2.1", "MPGR t=1": "4.2 ± 1.8"}, {"error %": -1},
    ),
    3: Table(
        "Table 3: Auto MPG, 200 train, 100 kept", "numbers", 100, auto_mpg, relative_error,
        {"IVM": "13.2 ± 1.5", "MPGR t=1": "14.8 ± 1.0"}, {"MARE %": -1},
    ),
    4: Table(
        "Table 4: Landmine, 19 tasks, 320 train and 40 kept of each", "classes", 19 * 40, landmine,
        error_rate,
        {"MTIVM": "9.8 ± 5.0", "rMTIVM": "7.8 ± 2.7", "MTMPGR": "7.4 ± 2.8", "rMTMPGR": "5.8 ± 1.5"},
        {"error %": -1, "AUC": 1},
    ),
    5: Table(
        "Table 5: Concrete slump, 3 tasks, 80 train and 50 kept of each", "numbers", 3 * 50, concrete_slump,
        slump_errors,
        {"MTIVM": "15.3 ± 2.6", "rMTIVM": "14.7 ± 1.4", "MTMPGR": "17.1 ± 3.9", "rMTMPGR": "16.0 ± 3.4"},
        {"MARE % flow, strength": -1, "mean nMSE": -1},
    ),
}  # fmt: skip


def selectors_of(table, several_tasks):
    """Name -> selector; the names on the left of the paper's tables, then the controls."""
    if not several_tasks:
        graphs = {f"MPGR t={t}": GraphSelector(scale=float(t)) for t in (1, 5, 10)}
        more = {"coverage t=5": COVERAGE, "random points": RandomSelector()}
        return {"IVM": EntropySelector(), **graphs, **more}
    chosen = {"random points": RandomSelector()}
    for plain, base in (("IVM", EntropySelector()), ("MPGR", GraphSelector()), ("coverage", COVERAGE)):
        multi = "MT" + plain if plain != "coverage" else plain
        chosen[multi] = base
        chosen[f"{plain} per task (control)"] = TaskRelevance(base, weight=0.0)
        chosen[f"r{multi}"] = TaskRelevance(base)
        if plain != "coverage":
            chosen[f"r{multi} weight 1/2"] = TaskRelevance(base, weight=0.5)
            chosen[f"r{multi} weight 2"] = TaskRelevance(base, weight=2.0)
        chosen[f"r{multi}, posterior relevance"] = TaskRelevance(base, relevance="posterior")
    return chosen


def models_of(table, several_tasks):
    """(section, name, function that makes the model, whether it takes tasks); the default is first."""
    sparse = SPARSE[table.kind]
    out = [("", DEFAULT, lambda: sparse(random_state=0), True)]
    for posterior in ("active", "projected"):
        for name, selector in selectors_of(table, several_tasks).items():
            out.append((
                posterior, name,
                lambda s=selector, p=posterior: sparse(
                    coupling="kernel", selector=s, n_active=table.n_keep, posterior=p, random_state=0
                ),
                True,
            ))  # fmt: skip
    everything = {"coupling": "kernel", "n_active": 1.0, "random_state": 0}
    out.append(("projected", "all points", lambda: sparse(**everything), True))
    linear, nothing = LINEAR[table.kind], NOTHING[table.kind]
    if several_tasks:
        out.append(("other", "linear model per task", lambda: PerTask(linear), True))
        out.append(("other", "majority or mean per task", lambda: PerTask(nothing), True))
    if not several_tasks or table.kind == "classes":
        out.append(("other", "linear model, rows pooled", linear, False))
    return out


class PerTask:
    """One model for each task, on its own."""

    def __init__(self, make):
        self.make = make

    def fit(self, X, y, tasks):
        """Fit each task's rows."""
        self.models = {t: self.make().fit(X[tasks == t], y[tasks == t]) for t in np.unique(tasks)}
        return self

    def predict(self, X, tasks):
        """Predict each task's rows."""
        return self._gather("predict", X, tasks)

    def predict_proba(self, X, tasks):
        """Probabilities of each task's rows."""
        return self._gather("predict_proba", X, tasks)

    def _gather(self, method, X, tasks):
        parts = {t: getattr(m, method)(X[tasks == t]) for t, m in self.models.items()}
        out = np.empty((len(X), *next(iter(parts.values())).shape[1:]), next(iter(parts.values())).dtype)
        for t, part in parts.items():
            out[tasks == t] = part
        return out


def measure(table, split):
    """(section, name) -> metrics and processor time, for every model of the table."""
    results = {}
    for section, name, make, takes_tasks in models_of(table, split.tasks is not None):
        with_tasks = takes_tasks and split.tasks is not None
        fit_more = {"tasks": split.tasks} if with_tasks else {}
        predict_more = {"tasks": split.tasks_test} if with_tasks else {}
        start = time.process_time()
        model = make().fit(split.X, split.y, **fit_more)
        prediction = model.predict(split.X_test, **predict_more)
        seconds = time.process_time() - start
        probability = model.predict_proba(split.X_test, **predict_more) if table.kind == "classes" else None
        results[section, name] = {**table.metrics(split, prediction, probability), "seconds": seconds}
    return results


def report(table, results):
    """A Markdown table, and how the default compares with the best of the others."""
    names = list(results[0])
    metrics = list(results[0][names[0]])
    columns = {key: {m: np.array([r[key][m] for r in results]) for m in metrics} for key in names}
    print(f"\n### {table.title} ({len(results)} splits)\n")
    print("| posterior | method | paper | " + " | ".join(metrics) + " |")
    print("| --- " * (3 + len(metrics)) + "|")
    for section, name in names:
        cells = [_cell(columns[section, name][m], m) for m in metrics]
        paper = table.paper.get(name, "") if section == "active" else ""
        print(f"| {section} | {name} | {paper} | " + " | ".join(cells) + " |")
    default = columns["", DEFAULT]
    for metric, sign in table.better.items():
        for title, keys in (
            ("the baselines", [key for key in names if is_baseline(*key)]),
            ("everything else", names[1:]),
        ):
            best = max(keys, key=lambda key: sign * columns[key][metric].mean())
            gain = sign * (default[metric] - columns[best][metric])
            error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.nan
            print(
                f"\n{metric}: the default against the best of {title} ({best[1]}, {best[0]}): "
                f"{gain.mean():+.3g} ± {error:.2g} (standard error; positive is better)."
            )


def is_baseline(section, name):
    """Random points, all points, a selector per task without the regulariser, and other models."""
    return section == "other" or name in ("random points", "all points") or name.endswith("(control)")


def _cell(values, metric):
    if metric == "seconds":
        return f"{values.mean():.2f}"
    digits = 3 if np.abs(values).max() < 5 and "%" not in metric else 1
    return f"{values.mean():.{digits}f} ± {values.std(ddof=1) if len(values) > 1 else 0.0:.{digits}f}"


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two splits")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--tables", type=int, nargs="+", default=sorted(TABLES), choices=sorted(TABLES))
    parser.add_argument("--data", default=os.environ.get("GLEANGP_DATA", "../shared/data"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    for number in arguments.tables:
        table = TABLES[number]
        results = []
        for seed in range(2 if arguments.quick else arguments.splits):
            split = table.split(arguments.data, np.random.default_rng([number, seed]))
            results.append(measure(table, split))
        report(table, results)


if __name__ == "__main__":
    main()
