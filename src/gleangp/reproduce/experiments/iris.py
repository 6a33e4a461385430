"""Zhu & Sun 2013, Table 2: Iris."""

from gleangp.datasets import load_iris
from gleangp.reproduce.experiment import Column, Context, Experiment, Printed, Quick
from gleangp.reproduce.experiments._estimators import Split
from gleangp.reproduce.experiments._zs13 import NOTES, error_rate, one_task_methods, split_rows
from gleangp.reproduce.figures import draw_table


def problem(context: Context) -> Split:
    """100 rows to learn from, 50 to test."""
    X, y = load_iris(return_X_y=True)
    return split_rows(X, y, 100, 50, context.rng())


EXPERIMENT = Experiment(
    name="iris",
    source="ZS13 Table 2",
    shows="IVM and MPGR keep 55 of 100 rows; three classes.",
    problem=problem,
    methods=one_task_methods(55, error_rate, classes=True),
    columns=(Column("error %", -1, 1),),
    n_runs=10,
    test_share=50 / 100,
    paper={("", "IVM", "error %"): Printed(5.0, 2.1), ("", "MPGR", "error %"): Printed(4.2, 1.8)},
    quick=Quick(n_runs=2),
    draw=lambda results: {"errors": draw_table(results, "error %", "Iris")},
    notes=NOTES,
)
