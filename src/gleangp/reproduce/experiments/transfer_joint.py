"""Urtasun, Quattoni & Darrell 2007, Figure 4: transfer from four source tasks."""

from gleangp.reproduce.experiment import Context, Quick
from gleangp.reproduce.experiments._uqd07 import QUICK_METHODS, SIZES, Transfer, curves, draw_transfer

ROWS = {"4 x (100 + 100)": 100, "4 x (200 + 200)": 200, "4 x (40 + 40)": 40}


def problem(context: Context) -> Transfer:
    """Sources "is it 1, 2, 4, 5"."""
    return draw_transfer((1, 2, 4, 5), ROWS[context.setting], context.rng())


EXPERIMENT = curves(
    name="transfer-joint",
    source="UQD07 Figure 4",
    shows="“Is it a 3?” from few examples, in the latent space of four other detection tasks.",
    problem=problem,
    settings=("4 x (100 + 100)", "4 x (200 + 200)"),
    setting_name="sources",
    options={"max_iter": 100, "sizes": SIZES},
    quick=Quick(
        settings=("4 x (40 + 40)",),
        methods=QUICK_METHODS,
        options={"max_iter": 20, "sizes": (5, 20)},
    ),
)
