"""Zhu & Sun 2013, Table 1: Haberman's survival data."""

from gleangp.datasets import load_haberman
from gleangp.reproduce.experiment import Column, Context, Experiment, Printed, Quick
from gleangp.reproduce.experiments._estimators import Split
from gleangp.reproduce.experiments._zs13 import NOTES, error_rate, one_task_methods, split_rows
from gleangp.reproduce.figures import draw_table


def problem(context: Context) -> Split:
    """200 rows to learn from, 106 to test."""
    X, y = load_haberman(return_X_y=True)
    return split_rows(X, y, 200, 106, context.rng())


EXPERIMENT = Experiment(
    name="haberman",
    source="ZS13 Table 1",
    shows="IVM and MPGR keep 100 of 200 rows; two classes.",
    problem=problem,
    methods=one_task_methods(100, error_rate, classes=True),
    columns=(Column("error %", -1, 1), Column("AUC", 1, 3)),
    n_runs=10,
    test_share=106 / 200,
    paper={("", "IVM", "error %"): Printed(29.5, 2.2), ("", "MPGR", "error %"): Printed(27.1, 4.4)},
    quick=Quick(n_runs=2),
    draw=lambda results: {"errors": draw_table(results, "error %", "Haberman")},
    notes=(*NOTES, "Always answering “survives” errs in 26.5 %: AUC is more informative here."),
)
