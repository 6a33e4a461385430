"""Zhu & Sun 2013, Table 3: Auto MPG."""

from gleangp.datasets import load_auto_mpg
from gleangp.reproduce.experiment import Column, Context, Experiment, Printed, Quick
from gleangp.reproduce.experiments._estimators import Split
from gleangp.reproduce.experiments._zs13 import NOTES, one_task_methods, relative_error, split_rows
from gleangp.reproduce.figures import draw_table


def problem(context: Context) -> Split:
    """200 rows to learn from, 100 to test, of the 392 complete ones."""
    X, y = load_auto_mpg(return_X_y=True)
    return split_rows(X, y, 200, 100, context.rng())


EXPERIMENT = Experiment(
    name="mpg",
    source="ZS13 Table 3",
    shows="IVM and MPGR keep 100 of 200 rows; regression.",
    problem=problem,
    methods=one_task_methods(100, relative_error, classes=False),
    columns=(Column("MARE %", -1, 1),),
    n_runs=10,
    test_share=100 / 200,
    paper={("", "IVM", "MARE %"): Printed(13.2, 1.5), ("", "MPGR", "MARE %"): Printed(14.8, 1.0)},
    quick=Quick(n_runs=2),
    draw=lambda results: {"errors": draw_table(results, "MARE %", "Auto MPG")},
    notes=(*NOTES, "The six rows without horsepower are left out; the paper does not say."),
)
