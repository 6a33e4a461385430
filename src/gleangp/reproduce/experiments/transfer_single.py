"""Urtasun, Quattoni & Darrell 2007, Figure 3: transfer from one source task."""

from gleangp.reproduce.experiment import Context, Quick
from gleangp.reproduce.experiments._uqd07 import QUICK_METHODS, SIZES, Transfer, curves, draw_transfer


def problem(context: Context) -> Transfer:
    """One source of 300 + 300 rows."""
    return draw_transfer((int(context.setting[-1]),), context.options["rows"], context.rng())


EXPERIMENT = curves(
    name="transfer-single",
    source="UQD07 Figure 3",
    shows="“Is it a 3?” from few examples, in the latent space of one other detection task.",
    problem=problem,
    settings=tuple(f"source {digit}" for digit in (1, 2, 3, 4, 5)),
    setting_name="source",
    options={"rows": 300, "max_iter": 100, "sizes": SIZES},
    quick=Quick(
        settings=("source 2",),
        methods=QUICK_METHODS,
        options={"rows": 60, "max_iter": 20, "sizes": (5, 20)},
    ),
)
