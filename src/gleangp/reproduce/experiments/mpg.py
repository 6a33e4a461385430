"""Zhu & Sun 2013, Table 3: Auto MPG."""

from gleangp.datasets import load_auto_mpg
from gleangp.reproduce.experiment import Column
from gleangp.reproduce.experiments._zs13 import one_task_table

EXPERIMENT = one_task_table(
    "mpg", "ZS13 Table 3", load_auto_mpg, (200, 100), 100,
    columns=(Column("MARE %", -1, 1),),
    paper={"IVM": (13.2, 1.5), "MPGR": (14.8, 1.0)},
    title="Auto MPG",
    notes=("The six rows without horsepower are left out; the paper does not say.",),
)  # fmt: skip
