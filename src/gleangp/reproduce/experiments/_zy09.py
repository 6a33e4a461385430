"""What the two tables of Zhang & Yeung 2009 share: splits, pairs, methods, measures.

Where the paper is silent: pairs are orders without margin, at least one row of each unlabelled; "100
pairs" is read as 100 over all tasks, and more per task are given too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel
from sklearn.linear_model import RidgeCV

from gleangp import HierarchicalGPRegressor, Order, SparseGPRegressor
from gleangp.models.default_kernel import units_of_features
from gleangp.reproduce.experiment import Column, Context, Experiment, Method, Outcome
from gleangp.reproduce.figures import draw_table
from gleangp.reproduce.runner import Results

LABELLED, UNLABELLED, TEST = 0, 1, 2
COLUMNS = (
    Column("transductive nMSE", -1, 3),
    Column("inductive nMSE", -1, 3),
    Column("transductive nMSE, pooled", -1, 3),
    Column("inductive nMSE, pooled", -1, 3),
)
Predict = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Roles:
    """Rows of all tasks and what each is for."""

    X: np.ndarray
    y: np.ndarray
    tasks: np.ndarray
    role: np.ndarray


def order_pairs(split: Roles, rng: np.random.Generator, *, in_all: int = 0, per_task: int = 0) -> Order:
    """True orders of pairs of training rows of one task, at least one of them unlabelled."""
    train = np.flatnonzero(split.role < TEST)
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


def scores(split: Roles, predict: Predict) -> Outcome:
    """nMSE on unlabelled and on test rows: averaged over tasks as in the paper, and pooled."""
    values = {}
    for name, role in (("transductive", UNLABELLED), ("inductive", TEST)):
        rows = np.flatnonzero(split.role == role)
        y, tasks = split.y[rows], split.tasks[rows]
        squares = (predict(split.X[rows], tasks) - y) ** 2
        each = [
            np.mean(squares[tasks == t]) / np.var(y[tasks == t])
            for t in np.unique(tasks)
            if np.var(y[tasks == t]) > 1e-12
        ]
        values[f"{name} nMSE"] = float(np.mean(each))
        values[f"{name} nMSE, pooled"] = float(np.mean(squares) / np.var(y))
    return Outcome(values)


def hierarchical(
    name: str,
    role: str = "other",
    *,
    pairs: dict[str, int] | None = None,
    rbf: bool = False,
    n_runs: int | None = None,
    **params: Any,
) -> Method:
    """`HierarchicalGPRegressor` on the labelled and unlabelled rows."""

    def run(split: Roles, context: Context) -> Outcome:
        train = split.role < TEST
        y = np.where(split.role == LABELLED, split.y, np.nan)[train]
        kernel = ConstantKernel() * RBF(np.sqrt(split.X.shape[1])) if rbf else None
        model = HierarchicalGPRegressor(kernel, random_state=context.run, **params)
        constraints = None if pairs is None else [order_pairs(split, context.rng(1), **pairs)]
        model.fit(split.X[train], y, tasks=split.tasks[train], constraints=constraints)
        return scores(split, model.predict)

    kernel = "RBF" if rbf else "default kernel"
    return Method(name, run, role, f"HierarchicalGPRegressor, {kernel}, {params}, pairs {pairs}", n_runs)


def coupled(name: str, role: str, **params: Any) -> Method:
    """`SparseGPRegressor` on the labelled rows; it has no use for the others."""

    def run(split: Roles, context: Context) -> Outcome:
        rows = split.role == LABELLED
        model = SparseGPRegressor(random_state=context.run, **params)
        model.fit(split.X[rows], split.y[rows], tasks=split.tasks[rows])
        return scores(split, lambda X, tasks: model.predict(X, tasks=tasks))

    return Method(name, run, role, repr(SparseGPRegressor(**params)))


def baseline(
    name: str, make: Callable[[int], Any], *, pooled: bool, own_units: bool, role: str = "other"
) -> Method:
    """A scikit-learn regressor on rows in units of their spread, one for each task or one for all."""

    def run(split: Roles, context: Context) -> Outcome:
        return scores(split, _fit_baseline(split, make, pooled=pooled, own_units=own_units))

    return Method(name, run, role, f"{'all tasks' if pooled else 'one a task'}: {make(100)!r}")


def _fit_baseline(split: Roles, make: Callable[[int], Any], *, pooled: bool, own_units: bool) -> Predict:
    train, labelled = split.role < TEST, split.role == LABELLED
    center, spread = split.X[train].mean(axis=0), split.X[train].std(axis=0)
    spread = units_of_features(split.X[train], spread)
    units = {}
    for task in np.unique(split.tasks):
        y = split.y[labelled & (split.tasks == task)] if own_units else split.y[labelled]
        units[task] = (y.mean(), y.std() if y.std() > 1e-9 else 1.0)
    offset = np.array([units[t][0] for t in split.tasks])
    scale = np.array([units[t][1] for t in split.tasks])
    models = {}
    for task in [None] if pooled else list(units):
        rows = labelled if task is None else labelled & (split.tasks == task)
        target = ((split.y - offset) / scale)[rows]
        models[task] = make(target.size).fit((split.X[rows] - center) / spread, target)

    def predict(X: np.ndarray, tasks: np.ndarray) -> np.ndarray:
        mean = np.empty(len(X))
        for task, (low, unit) in units.items():
            at = tasks == task
            if at.any():
                model = models[None if pooled else task]
                mean[at] = low + unit * model.predict((X[at] - center) / spread)
        return mean

    return predict


class Zero:
    """Predicts zero in standardised units: the mean."""

    def __repr__(self) -> str:
        return "the mean"

    def fit(self, X: np.ndarray, y: np.ndarray) -> Zero:
        """Do nothing."""
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Zeros."""
        return np.zeros(len(X))


def make_ridge(n: int) -> Any:
    """Ridge with its penalty by leave-one-out; with one or two rows there is none to choose."""
    return RidgeCV(np.logspace(-2, 4, 25)) if n > 2 else Zero()


def make_gp(n: int) -> Any:
    """scikit-learn's Gaussian process with learnt noise."""
    return GaussianProcessRegressor(ConstantKernel() * RBF(4.0) + WhiteKernel(0.1), random_state=0)


def make_linear_gp(n: int) -> Any:
    """The same with a linear part."""
    linear = ConstantKernel(0.05) * DotProduct(0.0, "fixed")
    kernel = ConstantKernel() * RBF(4.0) + WhiteKernel(0.1) + linear
    return GaussianProcessRegressor(kernel, random_state=0)


def make_boosting(n: int) -> Any:
    """scikit-learn's gradient boosting, with smaller leaves where rows are few."""
    return HistGradientBoostingRegressor(random_state=0, min_samples_leaf=5 if n < 400 else 20)


def methods(
    *default: Method, own_units: bool, pairs_per_task: int, mean_name: str, runs_of_pairs: int | None = None
) -> tuple[Method, ...]:
    """Our default, the paper's four methods, more pairs, and what they must be judged by."""
    few, many = {"in_all": 100}, {"per_task": pairs_per_task}
    more = f"SSMTRPI, {pairs_per_task} pairs a task"
    return (
        *default,
        baseline("SSTR", make_gp, pooled=False, own_units=own_units, role="paper"),
        hierarchical("SMTR", "paper", n_neighbors=None, rbf=True),
        hierarchical("SSMTR", "paper", rbf=True),
        hierarchical("SSMTRPI", "paper", pairs=few, rbf=True),
        hierarchical("SMTR, default kernel", n_neighbors=None),
        hierarchical("one kernel for all tasks, default kernel", n_neighbors=None, prior_cov=0.0),
        hierarchical("SSMTRPI, default kernel", pairs=few, n_runs=runs_of_pairs),
        hierarchical(more, pairs=many, rbf=True, n_runs=runs_of_pairs),
        baseline(mean_name, lambda n: Zero(), pooled=False, own_units=own_units),
        baseline("ridge per task", make_ridge, pooled=False, own_units=own_units),
        baseline("ridge pooled", make_ridge, pooled=True, own_units=own_units),
        baseline("boosting pooled", make_boosting, pooled=True, own_units=own_units),
        baseline("GP pooled", make_gp, pooled=True, own_units=own_units),
        baseline("GP per task, linear + RBF", make_linear_gp, pooled=False, own_units=own_units),
    )


def draw_both(results: Results) -> dict[str, Any]:
    """Both measures of the paper."""
    return {
        "transductive": draw_table(results, "transductive nMSE"),
        "inductive": draw_table(results, "inductive nMSE"),
    }


table = partial(Experiment, columns=COLUMNS, n_runs=10, draw=draw_both, version=3)
