"""Tasks that share a function: exam scores of students in 139 schools."""

import numpy as np

from gleangp import HierarchicalGPRegressor, SparseGPRegressor
from gleangp.datasets import load_school
from gleangp.models.default_kernel import units_of_features
from gleangp.reproduce.experiment import Column, Context, Experiment, Quick
from gleangp.reproduce.experiments._coupling import (
    BOOSTING,
    WithTask,
    boosting,
    couplings,
    draw_by_labels,
    explained_variance,
    make_ridge,
    mixed_model,
    plain_gps,
)
from gleangp.reproduce.experiments._estimators import Split, estimator_method
from gleangp.reproduce.experiments.school import school_generator

SHARES = ("2 %", "10 %", "75 %")


def problem(context: Context) -> Split:
    """A share of every school's rows labelled, at least one; all others test. Labels of shares are nested."""
    X, y, schools = load_school(return_X_y=True)
    kept = schools <= context.options["n_schools"]
    X, y, schools = X[kept], y[kept], schools[kept]
    X = (X - X.mean(axis=0)) / (2.0 * units_of_features(X, X.std(axis=0)))
    share = float(context.setting.split()[0]) / 100.0
    rng, train = school_generator(context), np.zeros(len(y), dtype=bool)
    for school in np.unique(schools):
        rows = rng.permutation(np.flatnonzero(schools == school))
        train[rows[: max(1, round(share * len(rows)))]] = True
    return Split(X[train], y[train], X[~train], y[~train], schools[train], schools[~train])


def _common() -> HierarchicalGPRegressor:
    return HierarchicalGPRegressor(mean="common", random_state=0)


EXPERIMENT = Experiment(
    name="coupling-school",
    source="not in a paper",
    shows="139 schools as tasks that share a function: 2, 10 and 75 % of the students labelled.",
    problem=problem,
    settings=SHARES,
    setting_name="labelled",
    methods=(
        *couplings(SparseGPRegressor, explained_variance, kernel="kernel", function="function"),
        estimator_method("hierarchical, mean='common'", _common, explained_variance),
        estimator_method("ridge", make_ridge, explained_variance, pooled=True),
        estimator_method(
            "ridge + school offsets", lambda: WithTask(make_ridge(), indicators=True), explained_variance
        ),
        *mixed_model(explained_variance),
        boosting("boosting + school", BOOSTING, explained_variance),
        estimator_method(
            "GP, rows pooled", lambda: SparseGPRegressor(random_state=0), explained_variance, pooled=True
        ),
        *plain_gps(SparseGPRegressor, explained_variance, task="school"),
    ),
    columns=(Column("explained variance", 1, 3),),
    n_runs=10,
    options={"n_schools": 139},
    quick=Quick(
        settings=("2 %",),
        methods=("default", "kernel", "ridge", "ridge + school offsets"),
        options={"n_schools": 30},
    ),
    draw=draw_by_labels(SHARES, "explained variance", "students labelled"),
    notes=(
        "Labelled rows at 2 % are those of the experiment `school`; test rows are all others. Inputs are "
        "indicators of categories, as they are, and two percentages, by two standard deviations.",
        "The spread of the priors of length scales was chosen with these ten splits at 2 % in view.",
    ),
    version=2,
)
