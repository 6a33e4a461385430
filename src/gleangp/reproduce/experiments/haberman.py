"""Zhu & Sun 2013, Table 1: Haberman's survival data."""

from gleangp.datasets import load_haberman
from gleangp.reproduce.experiment import Column
from gleangp.reproduce.experiments._zs13 import one_task_table

EXPERIMENT = one_task_table(
    "haberman", "ZS13 Table 1", load_haberman, (200, 106), 100,
    columns=(Column("error %", -1, 1), Column("AUC", 1, 3)),
    paper={"IVM": (29.5, 2.2), "MPGR": (27.1, 4.4)},
    title="Haberman",
    classes=2,
    notes=("Always answering “survives” errs in 26.5 %: AUC is more informative here.",),
)  # fmt: skip
