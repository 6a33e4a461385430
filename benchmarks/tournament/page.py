"""One page with the numbers, and one chart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from benchmarks.common import Row, markdown, versions
from benchmarks.tournament import rivals
from benchmarks.tournament.summary import OURS, mean_ranks

INTRODUCTION = """# Tournament

Defaults of gleangp on real grouped tables, against what people use today, on the same splits. Nothing was set
by hand. The score is RMSE, the mean Poisson deviance of counts, or the log loss of classes. "Best" is the
best of all rivals in hindsight, so a ratio near 1 is as good as it gets.
"""


def draw(cells: pd.DataFrame, path: Path) -> None:
    """Mean ranks of the methods, and the ratio to the best rival in every cell."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    done = cells.dropna(subset=["ratio"]).sort_values("ratio", ascending=False)
    grouped = done[(done["kind"] == "reg") & ~done["protocol"].str.startswith("single")]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, max(4, 0.16 * len(done))), layout="constrained")
    if len(grouped):
        for column, name, shift in (("scores", "by RMSE", 0.2), ("nlpds", "by NLPD", -0.2)):
            ranks = mean_ranks(grouped, column)
            if column == "scores":
                order = {method: len(ranks) - i for i, method in enumerate(ranks.index)}
            places = [order.get(method, 0) + shift for method in ranks.index]
            left.barh(places, ranks, height=0.38, label=name)
        left.set_yticks(list(order.values()), list(order))
        left.get_yticklabels()[list(order).index(OURS)].set_fontweight("bold")
        left.legend()
    left.set(xlabel="mean rank (1 is best)", title="Grouped regression")
    places = np.arange(len(done))
    colours = np.where(done["development"], "black", "C2")
    right.scatter(done["ratio"], places, c=colours, s=18)
    right.set_yticks(places, [f"{d} {p}" for d, p in zip(done["data"], done["protocol"], strict=True)])
    right.tick_params(axis="y", labelsize=6)
    right.axvline(1.0, color="0.5", lw=0.8)
    right.axvline(1.05, color="0.5", lw=0.8, ls=":")
    right.set(xlabel="score of gleangp / best rival", title="Every cell (green: further tables)")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def ranks_text(cells: pd.DataFrame) -> list[str]:
    """Mean ranks of all methods, one line per group of cells and measure."""
    lines = []
    done = cells.dropna(subset=["ratio"])
    single = done["protocol"].str.startswith("single")
    grouped = done[(done["kind"] == "reg") & ~single]
    for name, some in (
        ("grouped regression, development", grouped[grouped["development"]]),
        ("grouped regression, further tables", grouped[~grouped["development"]]),
        ("counts", done[done["kind"] == "count"]),
        ("classes and categories", done[done["kind"].isin(["bin", "ord"])]),
        ("single tables", done[single]),
    ):
        for column, measure in (("scores", "score"), ("nlpds", "NLPD")) if len(some) else ():
            ranks = ", ".join(f"{method} {rank:.2f}" for method, rank in mean_ranks(some, column).items())
            lines.append(f"- {name}, mean rank by {measure} over {len(some)} cells: {ranks}")
    return lines


def cells_text(cells: pd.DataFrame) -> list[str]:
    """Every cell as a line of a table."""
    names = "table,protocol,gleangp,best rival,its score,ratio,rank,NLPD behind,coverage,CPU s".split(",")
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for c in cells.dropna(subset=["ratio"]).itertuples():
        line = (
            f"| {c.data} | {c.protocol} | {c.score:.4g} | {c.best} | {c.best_score:.4g} | {c.ratio:.3f} | "
            f"{c.rank:.0f} of {c.of:.0f} | {c.nlpd_behind:+.3f} | {c.cov:.3f} | {c.cpu:.2f} |"
        )
        lines.append(line.replace("+nan", "").replace(" nan", ""))
    return lines


def write_page(cells: pd.DataFrame, rows: list[Row], path: Path, how: str) -> None:
    """The page and its chart beside it."""
    chart = path.with_suffix(".png")
    draw(cells, chart)
    tables = {kind: sorted(set(cells.loc[cells["development"] == kind, "data"])) for kind in (True, False)}
    about = " ".join(rivals.__doc__.split("\n\n", 1)[1].split())
    sections = [
        INTRODUCTION,
        f"{how}. {versions('lightgbm', 'gpboost')}.\n",
        f"Development tables, on which settings may be chosen: {', '.join(tables[True]) or 'none'}. "
        f"Further tables, for confirmation: {', '.join(tables[False]) or 'none'}.\n",
        *markdown(rows),
        f"\n![Mean ranks, and the ratio to the best rival in every cell]({chart.name})\n",
        *ranks_text(cells),
        "\n## Rivals\n",
        about,
        "\n## Every cell\n",
        *cells_text(cells),
    ]
    path.write_text("\n".join(sections) + "\n")
