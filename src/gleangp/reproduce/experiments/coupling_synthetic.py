"""Tasks of known relation: independent, related, and related with outlier tasks among them."""

import numpy as np

from gleangp import SparseGPRegressor
from gleangp.reproduce.experiment import Column, Context, Experiment, Quick
from gleangp.reproduce.experiments._coupling import couplings
from gleangp.reproduce.experiments._estimators import Split
from gleangp.reproduce.figures import draw_table

INDEPENDENT, RELATED, OUTLIERS = "independent", "related", "with outliers"
_TASKS, _OUTLIERS, _LABELS, _TEST, _NOISE = 10, 3, 15, 40, 0.2


def problem(context: Context) -> Split:
    """Ten tasks of 15 labels in three dimensions; test targets are the true functions of these ten."""
    rng, size = context.rng(), _LABELS + _TEST
    X, tasks = rng.normal(size=(_TASKS * size, 3)), np.repeat(np.arange(_TASKS), size)
    f = _functions(rng, X, tasks, 0.0 if context.setting == INDEPENDENT else 0.9)
    if context.setting == OUTLIERS:
        more, others = rng.normal(size=(_OUTLIERS * size, 3)), np.repeat(np.arange(_OUTLIERS), size)
        f = np.concatenate([f, 2.0 * _functions(rng, more, others, 0.0)])
        X, tasks = np.vstack([X, more]), np.concatenate([tasks, _TASKS + others])
    train = np.arange(len(X)) % size < _LABELS
    test = ~train & (tasks < _TASKS)
    y = f + _NOISE * rng.normal(size=len(f))
    return Split(X[train], y[train], X[test], f[test], tasks[train], tasks[test])


def _functions(rng: np.random.Generator, X: np.ndarray, tasks: np.ndarray, share: float) -> np.ndarray:
    """Draws with `RBF` covariance (length scale 1.5), a share of whose variance is common to all tasks."""
    K = np.exp(-0.5 * np.sum((X[:, None] - X) ** 2, axis=2) / 1.5**2) + 1e-8 * np.eye(len(X))
    f = np.sqrt(share) * (np.linalg.cholesky(K) @ rng.normal(size=len(X)))
    for task in np.unique(tasks):
        rows = np.flatnonzero(tasks == task)
        f[rows] += np.sqrt(1.0 - share) * (
            np.linalg.cholesky(K[np.ix_(rows, rows)]) @ rng.normal(size=len(rows))
        )
    return f


def _rmse(split: Split, prediction: np.ndarray, probability=None) -> dict[str, float]:
    return {"RMSE": float(np.sqrt(np.mean((prediction - split.y_test) ** 2)))}


EXPERIMENT = Experiment(
    name="coupling-synthetic",
    source="not in a paper",
    shows="Ten tasks of 15 labels that share nothing, 0.9 of their variance, or that beside outlier tasks.",
    problem=problem,
    settings=(INDEPENDENT, RELATED, OUTLIERS),
    setting_name="tasks",
    methods=couplings(
        SparseGPRegressor,
        _rmse,
        **{"kernel": "kernel", "function": "function", "coregion, rank 1": "coregion"},
    ),
    columns=(Column("RMSE", -1, 3),),
    n_runs=10,
    quick=Quick(methods=("default", "kernel")),
    draw=lambda results: {"independent": draw_table(results, "RMSE", INDEPENDENT)},
    notes=(
        "RMSE is that of the ten tasks against their true functions; outliers are unrelated and of twice "
        "the amplitude.",
    ),
)
