"""Zhang & Yeung 2009, Table 2: exam scores of students."""

import numpy as np

from gleangp.datasets import load_school
from gleangp.reproduce.experiment import Context, Quick, printed
from gleangp.reproduce.experiments._zy09 import Roles, coupled, hierarchical, methods, table


def school_generator(context: Context) -> np.random.Generator:
    """Of a run; with seed 0 these are the splits of an earlier trial."""
    return np.random.default_rng(1000 + context.run + 10_000 * context.seed)


def problem(context: Context) -> Roles:
    """2 % labelled within every school, at least one; 20 % unlabelled; the rest test."""
    X, y, schools = load_school(return_X_y=True)
    kept = schools <= context.options["n_schools"]
    X, y, schools = X[kept], y[kept], schools[kept]
    rng = school_generator(context)
    role = np.full(len(y), 2)
    for school in np.unique(schools):
        rows = rng.permutation(np.flatnonzero(schools == school))
        n_labelled, n_unlabelled = max(1, round(0.02 * len(rows))), round(0.2 * len(rows))
        role[rows[:n_labelled]] = 0
        role[rows[n_labelled : n_labelled + n_unlabelled]] = 1
    return Roles(X, y, schools, role)


FEW = 2  # runs of pairs that are not the paper's: minutes each

EXPERIMENT = table(
    name="school",
    source="ZY09 Table 2",
    shows="139 schools as tasks, two labels each: a common prior, unlabelled rows, pairwise orders.",
    problem=problem,
    methods=methods(
        coupled("default", "default"),
        hierarchical("SSMTR, default kernel"),
        hierarchical("SMTR, default kernel, mean='common'", n_neighbors=None, mean="common"),
        hierarchical("SSMTR, default kernel, mean='common'", mean="common"),
        hierarchical("SSMTRPI, 100 pairs a task", pairs={"per_task": 100}, rbf=True, n_runs=FEW),
        own_units=False,
        pairs_per_task=20,
        mean_name="one constant",
        runs_of_pairs=FEW,
    ),
    paper=printed(
        ("transductive nMSE", "inductive nMSE"),
        SSTR=(1.2914, 0.3146, 1.3240, 0.3274),
        SMTR=(1.1151, 0.3025, 1.1535, 0.3128),
        SSMTR=(1.0506, 0.2804, 1.0612, 0.2813),
        SSMTRPI=(0.9817, 0.2809, 0.9824, 0.2832),
    ),
    options={"n_schools": 139},
    quick=Quick(
        methods=("default", "SMTR", "SMTR, default kernel", "one constant", "ridge pooled"),
        options={"n_schools": 20},
    ),
    notes=(
        "The model of the paper shares kernel parameters and no function values; with two labels a school "
        "that carries little. What we recommend for tasks of one meaning and few labels is "
        "SparseGPRegressor: it finds coupling='function' here, a common function and an own one for each "
        "task. It sees neither unlabelled rows nor pairs.",
        "Labels are drawn within each school, at least one. Task averages of about 22 unlabelled rows are "
        "ratios of noisy numbers, so the pooled measure is given too.",
    ),
)
