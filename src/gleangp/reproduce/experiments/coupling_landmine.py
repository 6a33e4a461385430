"""Tasks that are nearly one: mines in 19 fields."""

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from gleangp import SparseGPClassifier
from gleangp.datasets import load_landmine
from gleangp.reproduce.experiment import Column, Context, Experiment, Quick
from gleangp.reproduce.experiments._coupling import (
    Alone,
    boosting,
    couplings,
    draw_by_labels,
    mean_auc,
)
from gleangp.reproduce.experiments._estimators import Split, estimator_method

LABELS = ("20", "40", "80", "160")


def problem(context: Context) -> Split:
    """Labelled rows of each field; all others test. Labels of the settings are nested."""
    X, y, tasks = load_landmine(return_X_y=True)
    kept = np.isin(tasks, np.unique(tasks)[: context.options["n_tasks"]])
    X, y, tasks = StandardScaler().fit_transform(X[kept]), y[kept], tasks[kept]
    rng, train = context.rng(), np.zeros(len(y), dtype=bool)
    for task in np.unique(tasks):
        train[rng.permutation(np.flatnonzero(tasks == task))[: int(context.setting)]] = True
    return Split(X[train], y[train], X[~train], y[~train], tasks[train], tasks[~train])


_BOOSTING = HistGradientBoostingClassifier(random_state=0, learning_rate=0.05)
EXPERIMENT = Experiment(
    name="coupling-landmine",
    source="not in a paper",
    shows="19 minefields as tasks that are nearly one: 20 to 160 labels of each, 6 % of them mines.",
    problem=problem,
    settings=LABELS,
    setting_name="labels",
    methods=(
        *couplings(SparseGPClassifier, mean_auc, kernel="kernel", function="function"),
        estimator_method(
            "GP, rows pooled", lambda: SparseGPClassifier(random_state=0), mean_auc, pooled=True
        ),
        estimator_method(
            "logistic, rows pooled", lambda: LogisticRegression(max_iter=500), mean_auc, pooled=True
        ),
        estimator_method("GP per task", lambda: Alone(lambda: SparseGPClassifier(random_state=0)), mean_auc),
        boosting("boosting + task", _BOOSTING, mean_auc),
    ),
    columns=(Column("AUC", 1, 3),),
    n_runs=10,
    options={"n_tasks": 19},
    quick=Quick(settings=("20",), methods=("default", "logistic, rows pooled"), options={"n_tasks": 6}),
    draw=draw_by_labels(LABELS, "AUC", "labels per task"),
    notes=(
        "AUC is averaged over tasks. A task whose labels are all clutter is predicted by the share of mines "
        "where each task is on its own.",
    ),
)
