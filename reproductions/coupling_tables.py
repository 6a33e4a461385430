"""Which coupling do tasks need? School, SARCOS, Landmine, independent tasks, outlier tasks.

    python reproductions/coupling_tables.py [--quick] [--tables school sarcos ...] [--splits 10]

Reads the data folder named by GLEANGP_DATA (default ../shared/data beside the repository). Every method
sees the same splits. Prints one table per data set, mean and standard deviation over splits, and appends
them to --out.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import rankdata
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV

from gleangp import CoregionCoupling, SparseGPClassifier, SparseGPRegressor

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("GLEANGP_DATA", ROOT.parent / "shared" / "data"))
ALPHAS = np.logspace(-1, 4, 16)
ONLY = {"methods": None, "settings": None}  # restrictions from the command line


# ---------------------------------------------------------------- data
def school():
    """Inputs (one-hot, standardised), scores, schools from 0."""
    frame = pd.read_csv(DATA / "school" / "school.csv.gz")
    names = ["year", "school_gender", "school_denomination", "gender", "vr_band", "ethnic_group"]
    X = pd.get_dummies(frame[names].astype(str)).join(frame[["fsm_percent", "vr1_percent"]])
    X = X.to_numpy(float)
    X = (X - X.mean(0)) / X.std(0)
    return X, frame["exam_score"].to_numpy(float), frame["school"].to_numpy() - 1


def sarcos():
    """Inputs and the seven torques, standardised."""
    table = pd.read_csv(DATA / "sarcos" / "sarcos_test.csv.gz").to_numpy(float)
    table = (table - table.mean(0)) / table.std(0)
    return table[:, :21], table[:, 21:]


def landmine():
    """The 19 tasks named in ZS13: inputs, mine or not, task."""
    frame = pd.read_csv(DATA / "landmine" / "landmine.csv.gz")
    frame = frame[frame["in19"] == 1]
    X = frame[[f"x{i}" for i in range(9)]].to_numpy(float)
    tasks = np.unique(frame["task"], return_inverse=True)[1]
    return (X - X.mean(0)) / X.std(0), frame["label"].to_numpy(int), tasks


def school_split(tasks, share, rng):
    """Labelled rows: a share of every school, at least one."""
    train = np.zeros(len(tasks), dtype=bool)
    for t in np.unique(tasks):
        rows = np.flatnonzero(tasks == t)
        train[rng.choice(rows, max(1, round(share * len(rows))), replace=False)] = True
    return train


# ---------------------------------------------------------------- methods: (X, y, tasks, X_new, tasks_new)
def coupled(coupling, **options):
    """Our estimator."""

    def run(X, y, tasks, X_new, tasks_new):
        model = SparseGPRegressor(coupling=coupling, random_state=0, **options).fit(X, y, tasks=tasks)
        if coupling == "auto":
            run.chosen.append(model.coupling_.name)
        return model.predict(X_new, tasks=tasks_new)

    run.chosen = []
    return run


def pooled_gp(X, y, tasks, X_new, tasks_new):
    """One Gaussian process that ignores the tasks."""
    return SparseGPRegressor(n_active=min(len(X), 500), random_state=0).fit(X, y).predict(X_new)


def pooled_gp_one_hot(X, y, tasks, X_new, tasks_new):
    """One Gaussian process with the task as a one-hot input."""
    code = np.eye(max(tasks.max(), tasks_new.max()) + 1)
    model = SparseGPRegressor(n_active=min(len(X), 500), random_state=0).fit(np.hstack([X, code[tasks]]), y)
    return model.predict(np.hstack([X_new, code[tasks_new]]))


def ridge(X, y, tasks, X_new, tasks_new):
    """Ridge regression without tasks."""
    return RidgeCV(ALPHAS).fit(X, y).predict(X_new)


def ridge_offsets(X, y, tasks, X_new, tasks_new):
    """Ridge regression with an offset per task."""
    code = 3.0 * np.eye(max(tasks.max(), tasks_new.max()) + 1)
    return RidgeCV(ALPHAS).fit(np.hstack([X, code[tasks]]), y).predict(np.hstack([X_new, code[tasks_new]]))


def ridge_per_task(X, y, tasks, X_new, tasks_new):
    """A ridge regression for each task."""
    out = np.full(len(X_new), y.mean())
    for t in np.unique(tasks_new):
        rows = tasks == t
        if rows.sum() > 2:
            out[tasks_new == t] = RidgeCV(ALPHAS).fit(X[rows], y[rows]).predict(X_new[tasks_new == t])
    return out


def gp_per_task(X, y, tasks, X_new, tasks_new):
    """A Gaussian process for each task, with its own parameters."""
    out = np.full(len(X_new), y.mean())
    for t in np.unique(tasks_new):
        rows = tasks == t
        if rows.sum() > 2:
            model = SparseGPRegressor(random_state=0).fit(X[rows], y[rows])
            out[tasks_new == t] = model.predict(X_new[tasks_new == t])
    return out


def boosting(X, y, tasks, X_new, tasks_new):
    """Pooled gradient boosting with the task as a feature."""
    model = HistGradientBoostingRegressor(random_state=0, learning_rate=0.05, min_samples_leaf=10)
    return model.fit(np.column_stack([X, tasks]), y).predict(np.column_stack([X_new, tasks_new]))


def mixed_model(X, y, tasks, X_new, tasks_new):
    """A linear mixed model with random offsets (statsmodels)."""
    import statsmodels.api as sm

    # One-hot codings are linearly dependent: the fixed effects are those of the leading directions.
    mean = X.mean(0)
    V = np.linalg.svd(X - mean, full_matrices=False)
    V = V[2][V[1] > 1e-8 * V[1][0]].T
    design, new = (np.column_stack([np.ones(len(A)), (A - mean) @ V]) for A in (X, X_new))
    fit = sm.MixedLM(y, design, groups=tasks).fit()
    effects = {t: float(np.asarray(e)[0]) for t, e in fit.random_effects.items()}
    return new @ fit.fe_params + np.array([effects.get(t, 0.0) for t in tasks_new])


# ---------------------------------------------------------------- tables
def explained(y, predicted):
    """1 - nMSE over all test rows."""
    return 1.0 - np.mean((y - predicted) ** 2) / np.var(y)


def table_school(n_splits, quick):
    """Explained variance with 2, 10 and 75 % of the rows labelled."""
    X, y, tasks = school()
    methods = {
        "kernel": coupled("kernel"),
        "function": coupled("function"),
        "auto": coupled("auto"),
        "ridge": ridge,
        "ridge + offsets": ridge_offsets,
        "boosting": boosting,
        "pooled GP": pooled_gp,
        "mixed model": mixed_model,
    }
    rows = []
    for share in (0.02, 0.1) if quick else (0.02, 0.1, 0.75):
        for split in range(n_splits):
            train = school_split(tasks, share, np.random.default_rng(split))
            rows += _scores(f"{share:.0%}", methods, explained, X, y, tasks, train)
    return rows, methods


def table_sarcos(n_splits, quick):
    """Explained variance of seven torques with 20, 100 and 500 labels each; 1000 other rows are tested."""
    X, Y = sarcos()
    methods = {
        "kernel": coupled("kernel"),
        "function": coupled("function"),
        "coregion rank 1": coupled("coregion"),
        "coregion rank 2": coupled(CoregionCoupling(rank=2)),
        "auto": coupled("auto"),
        "ridge per task": ridge_per_task,
        "GP per task": gp_per_task,
        "boosting": boosting,
        "pooled GP + one-hot": pooled_gp_one_hot,
    }
    rows = []
    for n in (20, 100) if quick else (20, 100, 500):
        for split in range(n_splits):
            rng = np.random.default_rng(split)
            parts = [rng.permutation(len(X))[: n + 1000] for _ in range(7)]
            X_all = np.vstack([X[p] for p in parts])
            y_all = np.concatenate([Y[p, t] for t, p in enumerate(parts)])
            tasks = np.repeat(np.arange(7), n + 1000)
            train = np.tile(np.arange(n + 1000) < n, 7)
            rows += _scores(str(n), methods, explained, X_all, y_all, tasks, train)
    return rows, methods


def table_landmine(n_splits, quick):
    """Area under the curve, mean over 19 tasks, with labels per task from 20 to 160."""
    X, y, tasks = landmine()
    methods = {
        "kernel": _classifier("kernel"),
        "function": _classifier("function"),
        "auto": _classifier("auto"),
        "pooled GP": lambda X, y, t, X_new, t_new: _positive(
            SparseGPClassifier(random_state=0).fit(X, y), X_new
        ),
        "logistic": lambda X, y, t, X_new, t_new: _positive(
            LogisticRegression(max_iter=500).fit(X, y), X_new
        ),
        "GP per task": _gp_classifiers,
        "boosting": lambda X, y, t, X_new, t_new: _positive(
            HistGradientBoostingClassifier(random_state=0, learning_rate=0.05).fit(
                np.column_stack([X, t]), y
            ),
            np.column_stack([X_new, t_new]),
        ),
    }
    rows = []
    for n in (20, 40) if quick else (20, 40, 80, 160):
        for split in range(n_splits):
            rng = np.random.default_rng(split)
            train = np.zeros(len(y), dtype=bool)
            for t in range(19):
                train[rng.choice(np.flatnonzero(tasks == t), n, replace=False)] = True
            new = tasks[~train]
            rows += _scores(str(n), methods, lambda a, p, new=new: mean_auc(a, p, new), X, y, tasks, train)
    return rows, methods


def table_independent(n_splits, quick):
    """RMSE on ten tasks that share the kernel and nothing else."""
    return _synthetic(n_splits, lambda rng, X, t: _draws(rng, X, t, 0.0)), {}


def table_outliers(n_splits, quick):
    """RMSE of ten related tasks (share 0.9 of their variance) beside none and three unrelated ones."""
    rows = _synthetic(n_splits, lambda rng, X, t: _draws(rng, X, t, 0.9), label="none")
    rows += _synthetic(n_splits, lambda rng, X, t: _draws(rng, X, t, 0.9), label="three", n_outliers=3)
    return rows, {}


# ---------------------------------------------------------------- helpers
def _classifier(coupling):
    def run(X, y, tasks, X_new, tasks_new):
        model = SparseGPClassifier(coupling=coupling, random_state=0).fit(X, y, tasks=tasks)
        return model.predict_proba(X_new, tasks=tasks_new)[:, 1]

    return run


def _positive(model, X):
    return model.predict_proba(X)[:, 1]


def _gp_classifiers(X, y, tasks, X_new, tasks_new):
    out = np.empty(len(X_new))
    for t in np.unique(tasks_new):
        rows = tasks == t
        here = tasks_new == t
        if len(np.unique(y[rows])) == 2:
            out[here] = _positive(SparseGPClassifier(random_state=0).fit(X[rows], y[rows]), X_new[here])
        else:
            out[here] = y[rows][0]
    return out


def mean_auc(y, score, tasks):
    """Mean over tasks of the probability that a positive row scores above a negative one."""
    values = []
    for t in np.unique(tasks):
        a, s = y[tasks == t] == 1, rankdata(score[tasks == t])
        n, m = a.sum(), (~a).sum()
        if n and m:
            values.append((s[a].sum() - n * (n + 1) / 2) / (n * m))
    return float(np.mean(values))


def _draws(rng, X, tasks, shared):
    """Functions with RBF covariance in three dimensions, of which a share of the variance is common."""
    K = np.exp(-0.5 * np.sum((X[:, None] - X) ** 2, axis=2) / 1.5**2)
    chol = np.linalg.cholesky(K + 1e-8 * np.eye(len(X)))
    f = np.sqrt(shared) * (chol @ rng.normal(size=len(X)))
    for t in np.unique(tasks):
        rows = np.flatnonzero(tasks == t)
        own = np.linalg.cholesky(K[np.ix_(rows, rows)] + 1e-8 * np.eye(len(rows)))
        f[rows] += np.sqrt(1.0 - shared) * (own @ rng.normal(size=len(rows)))
    return f


def _synthetic(n_splits, draw, label="", n_outliers=0, n=15, n_test=40):
    rows = []
    for split in range(n_splits):
        rng = np.random.default_rng(split)
        size = n + n_test
        X, tasks = rng.normal(size=(10 * size, 3)), np.repeat(np.arange(10), size)
        f = draw(rng, X, tasks)
        if n_outliers:
            more, X_more = (
                np.repeat(10 + np.arange(n_outliers), size),
                rng.normal(size=(n_outliers * size, 3)),
            )
            f_more = 2.0 * _draws(rng, X_more, more, 0.0)
            X, tasks, f = np.vstack([X, X_more]), np.concatenate([tasks, more]), np.concatenate([f, f_more])
        y = f + 0.2 * rng.normal(size=len(f))
        train = np.arange(len(X)) % size < n
        test = ~train & (tasks < 10)
        for name in ("kernel", "function", "coregion", "auto"):
            start = time.process_time()
            model = SparseGPRegressor(coupling=name, random_state=0).fit(
                X[train], y[train], tasks=tasks[train]
            )
            error = np.sqrt(np.mean((model.predict(X[test], tasks=tasks[test]) - f[test]) ** 2))
            chosen = model.coupling_.name
            rows.append((label, name, split, error, time.process_time() - start, chosen))
            print(*rows[-1], flush=True)
    return rows


def wanted(kind, name):
    """Whether the command line leaves this row or column in."""
    return ONLY[kind] is None or name in ONLY[kind]


def _scores(setting, methods, score, X, y, tasks, train):
    if not wanted("settings", setting):
        return []
    return [
        _score(setting, name, method, score, X, y, tasks, train)
        for name, method in methods.items()
        if wanted("methods", name)
    ]


def _score(setting, name, method, score, X, y, tasks, train):
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predicted = method(X[train], y[train], tasks[train], X[~train], tasks[~train])
    row = (setting, name, 0, score(y[~train], predicted), time.process_time() - start, "")
    print(*row[:2], f"{row[3]:.4f} {row[4]:.1f}s", flush=True)
    return row


def as_markdown(rows):
    """Mean, standard deviation and CPU seconds: methods down, settings across."""
    frame = pd.DataFrame(rows, columns=["setting", "method", "split", "score", "seconds", "chosen"])
    settings, lines = list(dict.fromkeys(frame["setting"])), []
    lines.append("| method | " + " | ".join(settings) + " | CPU s |")
    lines.append("|---" * (len(settings) + 2) + "|")
    for method in dict.fromkeys(frame["method"]):
        cells = []
        for setting in settings:
            part = frame[(frame["method"] == method) & (frame["setting"] == setting)]["score"]
            cells.append(f"{part.mean():.4f} ± {part.std():.4f}" if len(part) else "")
        seconds = frame[frame["method"] == method].groupby("setting", sort=False)["seconds"].mean()
        cells.append(" / ".join(f"{s:.1f}" for s in seconds))
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


TABLES = {
    "school": table_school,
    "sarcos": table_sarcos,
    "landmine": table_landmine,
    "independent": table_independent,
    "outliers": table_outliers,
}


def main():
    """Run the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two splits, the smaller settings")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--methods", nargs="*", default=None, help="only these rows of the tables")
    parser.add_argument(
        "--settings", nargs="*", default=None, help="only these columns, e.g. 2%% 10%% or 20 100"
    )
    parser.add_argument("--tables", nargs="*", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    n_splits = 2 if arguments.quick else arguments.splits
    ONLY.update(methods=arguments.methods, settings=arguments.settings)
    for name in arguments.tables:
        rows, methods = TABLES[name](n_splits, arguments.quick)
        if not rows:
            continue
        chosen = getattr(methods.get("auto"), "chosen", None) or [
            r[5] for r in rows if r[1] == "auto" and r[5]
        ]
        counts = ", ".join(f"{c} {chosen.count(c)}" for c in dict.fromkeys(chosen))
        title = f"## {name}\n\n{TABLES[name].__doc__}\n\n"
        text = title + f"{as_markdown(rows)}\n\nauto chose: {counts or 'not recorded'}\n"
        print(text, flush=True)
        if arguments.out:
            with open(arguments.out, "a", encoding="utf-8") as file:
                file.write(text + "\n")


if __name__ == "__main__":
    main()
