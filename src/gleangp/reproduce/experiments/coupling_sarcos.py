"""Tasks that share little: seven torques of a robot arm."""

import numpy as np
from sklearn.preprocessing import StandardScaler

from gleangp import CoregionCoupling, SparseGPRegressor
from gleangp.datasets import load_sarcos
from gleangp.reproduce.experiment import Column, Context, Experiment, Quick
from gleangp.reproduce.experiments._coupling import (
    BOOSTING,
    Alone,
    boosting,
    couplings,
    draw_by_labels,
    explained_variance,
    make_ridge,
    plain_gps,
)
from gleangp.reproduce.experiments._estimators import Split, estimator_method

LABELS = ("20", "100", "500")
_N_TEST = 1000


def problem(context: Context) -> Split:
    """Rows drawn for each torque alone: some labelled, 1000 others test; outputs in units of the file."""
    X, Y = (StandardScaler().fit_transform(part) for part in load_sarcos(return_X_y=True))
    n, rng = int(context.setting), context.rng()
    parts = [rng.permutation(len(X))[: n + _N_TEST] for _ in range(Y.shape[1])]
    old, new = (np.concatenate([p[part] for p in parts]) for part in (slice(n), slice(n, None)))
    tasks, tasks_test = (np.repeat(np.arange(Y.shape[1]), size) for size in (n, _N_TEST))
    return Split(X[old], Y[old, tasks], X[new], Y[new, tasks_test], tasks, tasks_test)


EXPERIMENT = Experiment(
    name="coupling-sarcos",
    source="not in a paper",
    shows="Seven torques as tasks that share inputs and little else: 20, 100 and 500 labels of each.",
    problem=problem,
    settings=LABELS,
    setting_name="labels",
    methods=(
        *couplings(
            SparseGPRegressor,
            explained_variance,
            **{
                "kernel": "kernel",
                "function": "function",
                "coregion, rank 1": "coregion",
                "coregion, rank 2": CoregionCoupling(rank=2),
            },
        ),
        estimator_method("ridge per task", lambda: Alone(make_ridge), explained_variance),
        boosting("boosting + task", BOOSTING, explained_variance),
        *plain_gps(SparseGPRegressor, explained_variance),
    ),
    columns=(Column("explained variance", 1, 3),),
    n_runs=10,
    quick=Quick(settings=("20",), methods=("default", "kernel", "ridge per task")),
    draw=draw_by_labels(LABELS, "explained variance", "labels per task"),
    notes=(
        "From the 4449 rows of the published test file. Outputs are standardised over the file, so that all "
        "torques count alike.",
    ),
)
