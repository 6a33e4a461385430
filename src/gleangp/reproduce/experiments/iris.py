"""Zhu & Sun 2013, Table 2: Iris."""

from gleangp.datasets import load_iris
from gleangp.reproduce.experiment import Column
from gleangp.reproduce.experiments._zs13 import one_task_table

EXPERIMENT = one_task_table(
    "iris", "ZS13 Table 2", load_iris, (100, 50), 55,
    columns=(Column("error %", -1, 1),),
    paper={"IVM": (5.0, 2.1), "MPGR": (4.2, 1.8)},
    title="Iris",
    classes=3,
)  # fmt: skip
