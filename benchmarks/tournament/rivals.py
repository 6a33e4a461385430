"""The rivals: each is run if it is installed; else its stored scores are used.

`lme4` = y ~ all + (1 + x | g); `lme4_ns` = the same with natural splines; `mgcv_re` = smooths with random
intercept and slope; `mgcv_fs` = with a smooth of each group (fails where groups have few rows); `gpb_lin`,
`gpb_lin_slope`, `gpb_tree` = GPBoost; `lgbm` = LightGBM with the group as a category; `ridge`, `ridgeslope` =
ridge (classes: logistic) regression with one column per group, and with slopes. Every rival learns from the
training rows and the few rows of new groups. Trees are not tuned. For counts, methods without a count model
see log1p of the target.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.linalg
from benchmarks.common import cpu_seconds
from benchmarks.tournament.scores import Answer
from benchmarks.tournament.tables import FEW, TEST, TRAIN, Table
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import OneHotEncoder, StandardScaler

SCALES = np.logspace(-3, 4, 15)


def learn_and_test(role: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers."""
    return np.flatnonzero((role == TRAIN) | (role == FEW)), np.flatnonzero(role == TEST)


def as_answer(table: Table, found: np.ndarray, cpu: float, std: np.ndarray | None = None) -> Answer:
    """Predictions on the scale of the model, as those of observations."""
    if table.kind in ("bin", "ord"):
        return Answer(cpu, proba=found if found.ndim == 2 else np.column_stack([1 - found, found]))
    return Answer(cpu, found, std)


def to_model_scale(table: Table) -> np.ndarray:
    """Targets for methods that know no counts."""
    return np.log1p(table.y) if table.kind == "count" else table.y


def ridge(table: Table, role: np.ndarray, slopes: bool = False) -> Answer:
    """Linear model with one column per group; the penalty by cross-validation."""
    train, test = learn_and_test(role)
    X = StandardScaler().fit(table.X[train]).transform(table.X)
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(table.groups[train, None])
    one_hot = encoder.transform(table.groups[:, None])
    parts = [X, one_hot]
    if slopes and table.slope:
        parts.append(one_hot * X[:, [table.numbers.index(table.slope)]])
    Z, y = np.hstack(parts), to_model_scale(table)
    if table.kind in ("bin", "ord"):
        logistic = LogisticRegression(max_iter=500)
        model = GridSearchCV(logistic, {"C": np.logspace(-4, 4, 7)}, scoring="neg_log_loss", cv=3)
        _, cpu = cpu_seconds(lambda: model.fit(Z[train], y[train]))
        proba = np.zeros((len(test), len(np.unique(table.y))))
        proba[:, np.searchsorted(np.unique(table.y), model.classes_)] = model.predict_proba(Z[test])
        return as_answer(table, proba, cpu)
    model, cpu = cpu_seconds(lambda: RidgeCV(SCALES).fit(Z[train], y[train]))
    found = model.predict(Z[test])
    return as_answer(table, np.expm1(found) if table.kind == "count" else found, cpu)


def ridgeslope(table: Table, role: np.ndarray) -> Answer:
    """With a slope of every group."""
    return ridge(table, role, slopes=True)


def lgbm(table: Table, role: np.ndarray) -> Answer:
    """LightGBM with the group as a category; its leaves of 20 rows are too large for tables like these."""
    import lightgbm

    train, test = learn_and_test(role)
    X = np.column_stack([table.X, pd.factorize(table.groups)[0]])
    objective = {"reg": "regression", "count": "poisson", "bin": "binary", "ord": "multiclass"}[table.kind]
    options = {"objective": objective, "n_jobs": 1, "verbose": -1, "random_state": 0}
    options |= {"min_child_samples": 3, "min_data_per_group": 3, "cat_smooth": 1.0, "learning_rate": 0.05}
    kind = lightgbm.LGBMRegressor if table.kind in ("reg", "count") else lightgbm.LGBMClassifier
    model = kind(**options)
    _, cpu = cpu_seconds(lambda: model.fit(X[train], table.y[train], categorical_feature=[X.shape[1] - 1]))
    predict = model.predict if table.kind in ("reg", "count") else model.predict_proba
    return as_answer(table, np.asarray(predict(X[test])), cpu)


def independent_columns(A: np.ndarray) -> np.ndarray:
    """Columns that span all of them: one column per category is one too many beside an intercept."""
    _, triangle, order = scipy.linalg.qr(A, mode="economic", pivoting=True)
    size = np.abs(np.diag(triangle))
    return np.sort(order[: len(size)][size > 1e-8 * size[0]])


def gpboost_model(table: Table, train: np.ndarray, slope: bool):
    """Random effects of the groups; targets in standard units, because the optimiser is not scale free."""
    import gpboost

    likelihood = {"reg": "gaussian", "count": "negative_binomial", "bin": "bernoulli_logit"}[table.kind]
    effects = {"group_data": table.groups[train, None], "likelihood": likelihood}
    if slope and table.slope:
        column = table.numbers.index(table.slope)
        effects.update(group_rand_coef_data=table.X[train][:, [column]], ind_effect_group_rand_coef=[1])
    return gpboost.GPModel(**effects)


def gpb_lin(table: Table, role: np.ndarray, slope: bool = False, trees: bool = False) -> Answer:
    """GPBoost: fixed effects linear or boosted trees, random effects of the groups."""
    import gpboost

    train, test = learn_and_test(role)
    X = StandardScaler().fit(table.X[train]).transform(table.X)
    y, centre, scale = table.y.astype(float), 0.0, 1.0
    if table.kind == "reg":
        centre, scale = y[train].mean(), y[train].std()
    target = (y[train] - centre) / scale
    new_groups = {"group_data_pred": table.groups[test, None], "predict_var": True}
    if slope and table.slope:
        new_groups["group_rand_coef_data_pred"] = table.X[test][:, [table.numbers.index(table.slope)]]
    model = gpboost_model(table, train, slope)
    if trees:
        options = {"learning_rate": 0.05, "max_depth": 3, "min_data_in_leaf": 10, "verbose": -1, "seed": 0}
        data = gpboost.Dataset(X[train], target, free_raw_data=False)
        booster, cpu = cpu_seconds(lambda: gpboost.train(options, data, gp_model=model, num_boost_round=100))
        found = booster.predict(X[test], pred_latent=False, **new_groups)
        mean, var = found["response_mean"], found["response_var"]
    else:
        A = np.column_stack([np.ones(len(X)), X])
        A = A[:, independent_columns(A[train])]
        _, cpu = cpu_seconds(lambda: model.fit(y=target, X=A[train]))
        found = model.predict(X_pred=A[test], predict_response=True, **new_groups)
        mean, var = found["mu"], found["var"]
    std = scale * np.sqrt(np.maximum(np.asarray(var), 1e-12))
    return as_answer(table, np.asarray(mean) * scale + centre, cpu, std)


def gpb_lin_slope(table: Table, role: np.ndarray) -> Answer:
    """With random slopes."""
    return gpb_lin(table, role, slope=True)


def gpb_tree(table: Table, role: np.ndarray) -> Answer:
    """With trees."""
    return gpb_lin(table, role, trees=True)


def python_rivals(table: Table) -> dict[str, Callable[[Table, np.ndarray], Answer]]:
    """Those that are installed and fit the table."""
    if not table.grouped:
        return {}
    found = {"ridge": ridge, "ridgeslope": ridgeslope}
    if importlib.util.find_spec("lightgbm"):
        found["lgbm"] = lgbm
    if importlib.util.find_spec("gpboost") and table.kind != "ord":
        found.update(gpb_lin=gpb_lin, gpb_lin_slope=gpb_lin_slope, gpb_tree=gpb_tree)
    return found


def r_answers(table: Table, columns: list[str]) -> Iterator[tuple[str, str, Answer]]:
    """Split, method and answer of lme4 and mgcv, if `Rscript` is installed: one process for all splits."""
    if not table.grouped or table.kind == "ord" or not columns or shutil.which("Rscript") is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        table.frame.to_csv(Path(folder) / "table.csv", index=False)
        table.roles[columns].to_csv(Path(folder) / "roles.csv", index=False)
        lists = [[table.slope] if table.slope else [], table.numbers, table.categories, table.smooth]
        words = [",".join(names) or "-" for names in lists]
        script = str(Path(__file__).with_name("rivals.R"))
        run = subprocess.run(["Rscript", script, folder, table.kind, *words], capture_output=True, text=True)
        print(run.stdout, end="", flush=True)  # what failed
        if run.returncode:
            print(f"lme4 and mgcv failed on {table.name}: {run.stderr[-300:]}", flush=True)
            return
        answers = pd.read_csv(Path(folder) / "answers.csv")
    for (split, method), rows in answers.groupby(["split", "method"], sort=False):
        std = None if rows["std"].isna().all() else rows["std"].to_numpy()
        yield split, method, as_answer(table, rows["mean"].to_numpy(), float(rows["cpu"].iloc[0]), std)


def stored_scores(*files: Path) -> pd.DataFrame:
    """Scores of rivals on the same splits from earlier runs."""
    parts = [pd.read_csv(file) for file in files if file.is_file()]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["data", "method"])
