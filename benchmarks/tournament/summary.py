"""From scores of splits to cells (table x protocol), and from cells to the rows with goals."""

from __future__ import annotations

import numpy as np
import pandas as pd
from benchmarks.common import Row
from benchmarks.tournament.scores import MAIN

OURS = "gleangp"


def cells_of(scores: pd.DataFrame) -> pd.DataFrame:
    """One row per table and protocol: our score, the best of the rivals in hindsight, and all methods' means.

    A method counts where it has a score on at least three of our splits (or all); the means are over the
    splits that all of them have.
    """
    cells = []
    for (data, kind, protocol), cell in scores.groupby(["data", "kind", "protocol"], sort=False):
        wanted = cell.loc[cell["method"] == OURS, "seed"].unique()
        cell = cell[cell["seed"].isin(wanted)]
        cell = cell.assign(score=cell[MAIN[kind]])
        table = cell.pivot_table(index="seed", columns="method", values="score", dropna=False)
        enough = table.notna().sum() >= min(3, len(wanted))
        table = table.loc[:, enough].dropna()
        key = {"data": data, "kind": kind, "protocol": protocol, "development": cell["development"].any()}
        if OURS not in table or table.shape[1] < 2 or len(table) == 0:
            cells.append({**key, "ratio": np.nan})
            continue
        cell = cell[cell["seed"].isin(table.index)]
        mean = table.mean()
        nlpd = cell.pivot_table(index="seed", columns="method", values="nlpd").dropna(axis=1).mean()
        others, other_nlpds = mean.drop(OURS), nlpd.drop(OURS, errors="ignore")
        mine = cell[cell["method"] == OURS].reindex(columns=["cov", "cov_lo", "cov_lo_exact", "cpu"]).mean()
        cells.append(
            {
                **key,
                "score": mean[OURS],
                "best": others.idxmin(),
                "best_score": others.min(),
                "ratio": mean[OURS] / others.min(),
                "rank": mean.rank()[OURS],
                "of": len(mean),
                "nlpd": nlpd.get(OURS, np.nan),
                "nlpd_behind": nlpd.get(OURS, np.nan) - other_nlpds.min() if len(other_nlpds) else np.nan,
                **mine,
                "scores": mean.to_dict(),
                "nlpds": nlpd.to_dict(),
            }
        )
    return pd.DataFrame(cells)


def mean_ranks(cells: pd.DataFrame, column: str = "scores") -> pd.Series:
    """Mean rank of the methods that have a score in nine of ten cells, over the cells all of them have."""
    methods = pd.DataFrame(list(cells[column].dropna()))
    common = methods.loc[:, methods.notna().mean() >= 0.9].dropna()
    return common.rank(axis=1).mean().sort_values()


def rows_of(cells: pd.DataFrame) -> list[Row]:
    """The measured numbers beside their goals, for the development tables and the further ones."""
    rows = []
    columns = ["cov", "cov_lo", "cov_lo_exact", "cpu", "scores", "nlpds"]
    cells = cells.reindex(columns=[*cells.columns.union(columns)])
    single = cells["protocol"].str.startswith("single")
    for title, part in (("development", cells["development"]), ("further tables", ~cells["development"])):
        rows += grouped_rows(title, cells[part & ~single & (cells["kind"] == "reg")])
        classes = cells[part & ~single & cells["kind"].isin(["bin", "ord"])].dropna(subset=["ratio"])
        if len(classes):
            rank, worst = mean_ranks(classes).get(OURS, np.nan), classes["ratio"].max()
            text = f"{rank:.2f}; worst cell {worst:.3f}"
            holds = bool(rank <= 1.5 and worst <= 1.02)
            rows.append(Row(f"classes and categories, {title}: mean rank", text, "≤ 1.5; ≤ 1.02", holds))
        counts = cells[part & (cells["kind"] == "count")].dropna(subset=["ratio"])
        if len(counts):
            worst, behind = counts["ratio"].max(), counts["nlpd_behind"].max()
            text = f"{worst:.3f}; {behind:+.3f}"
            what = f"counts, {title}: worst Poisson deviance to the best, worst log score behind the best"
            rows.append(Row(what, text, "≤ 1.03; ≤ 0", bool(worst <= 1.03 and behind <= 0)))
    tables = cells[single].dropna(subset=["ratio"])
    if len(tables):
        rank = mean_ranks(tables).get(OURS, np.nan)
        rows.append(Row("single tables: mean rank", f"{rank:.2f}", "≤ 1.7", bool(rank <= 1.7)))
    failed = int(cells["ratio"].isna().sum())
    rows.append(Row("cells without a result", f"{failed} of {len(cells)}", "0", failed == 0))
    if cells["cpu"].notna().any():
        text = f"{cells['cpu'].median():.2f} (mean {cells['cpu'].mean():.2f})"
        rows.append(Row("CPU seconds of a fit, median over cells", text, "≤ 0.30 with draws"))
    return rows


def grouped_rows(title: str, all_cells: pd.DataFrame) -> list[Row]:
    """Rows of grouped regression."""
    cells = all_cells.dropna(subset=["ratio"])
    if len(cells) == 0:
        return []
    name = f"grouped regression, {title} ({len(cells)} of {len(all_cells)} cells)"
    ranks = [mean_ranks(cells, column).get(OURS, np.nan) for column in ("scores", "nlpds")]
    methods = len(mean_ranks(cells))
    behind, nlpd_behind = np.mean(cells["ratio"] > 1.05), np.mean(cells["nlpd_behind"] > 0.1)
    cover, low, exact = (cells[column].mean() for column in ("cov", "cov_lo", "cov_lo_exact"))
    return [
        Row(
            f"{name}: mean rank by RMSE and by NLPD of {methods} methods",
            f"{ranks[0]:.2f} and {ranks[1]:.2f}",
            "≤ 2.0 and ≤ 2.0",
            bool(max(ranks) <= 2.0),
        ),
        Row(f"{title}: more than 5 % behind the best", f"{behind:.0%}", "≤ 10 %", bool(behind <= 0.1)),
        Row(f"{title}: NLPD more than 0.1 behind", f"{nlpd_behind:.0%}", "≤ 10 %", bool(nlpd_behind <= 0.1)),
        Row(
            f"{title}: coverage of 95 % intervals, all rows; tenth percentile of groups (of exact intervals)",
            f"{cover:.3f}; {low:.2f} ({exact:.2f})",
            "0.94 to 0.96; ≥ 0.87",
            bool(0.94 <= cover <= 0.96 and low >= 0.87),
        ),
    ]
