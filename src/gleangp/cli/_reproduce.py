"""`gleangp reproduce`: lists the experiments, or runs them with a progress bar."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gleangp.cli._usage import check_folder, check_jobs

if TYPE_CHECKING:
    from gleangp.reproduce.runner import Results

Names = Annotated[list[str] | None, typer.Argument(help="Experiments, or `all`. Left out: list them.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="Folder for results; it keeps single results.")]
Runs = Annotated[int | None, typer.Option(min=1, help="Runs. Left out: the paper's number.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
Jobs = Annotated[int, typer.Option(help="Processes; -1: one for each core.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files in the folder that are not ours.")]
IsQuick = Annotated[bool, typer.Option("--quick", help="A reduced form of each, about a minute.")]
Methods = Annotated[list[str] | None, typer.Option("--method", help="Only this method; may be repeated.")]
Settings = Annotated[list[str] | None, typer.Option("--setting", help="Only this setting; may be repeated.")]


# Longer than other functions: every option of the command is a parameter.
def reproduce(
    names: Names = None,
    output: Output = Path("gleangp-reproduction"),
    runs: Runs = None,
    seed: Seed = 0,
    jobs: Jobs = 1,
    quick: IsQuick = False,
    method: Methods = None,
    setting: Settings = None,
    force: Force = False,
) -> None:
    """Measure the tables and figures of the papers again; a page puts our numbers beside the printed ones.

    A run that was interrupted goes on where it stopped. Data is looked for in the folder GLEANGP_DATA, then
    in the cache, then downloaded. Example: `gleangp reproduce haberman iris --quick`
    """
    from gleangp.reproduce.catalogue import load_experiment, names_of_experiments

    if not names:
        _list_experiments()
        return
    check_jobs(jobs)
    check_folder(output, ("runs.csv", "summary.json", "results.md", "index.html"), force=force)
    known = names_of_experiments()
    wanted = list(dict.fromkeys(known if "all" in names else names))
    experiments = [load_experiment(name) for name in wanted]

    import matplotlib  # noqa: F401  before the work: is it there?
    from rich.console import Console

    from gleangp.reproduce.output import write_results
    from gleangp.reproduce.runner import Plan, collect, run_experiment, units_of

    methods, settings = (tuple(given) if given else None for given in (method, setting))
    plan = Plan(output, n_runs=runs, seed=seed, n_jobs=jobs, quick=quick, methods=methods, settings=settings)
    total = sum(len(units_of(e, plan)) for e in experiments)
    if total == 0:
        raise ValueError(
            f"no experiment of {wanted} has a method of {list(methods or ())} "
            f"and a setting of {list(settings or ())}; the page of a run shows their names."
        )
    # What earlier runs left in the folder stays on the page.
    kept = [name for name in known if name not in wanted and (output / "records" / name).is_dir()]
    results: dict[str, Results] = {name: collect(load_experiment(name), plan) for name in kept}
    pictures: dict[str, dict[str, str]] = {}
    console = Console(stderr=True)
    with _bar(console) as bar:
        step = bar.add_task("", total=total)
        for experiment in experiments:
            found = run_experiment(
                experiment, plan, lambda what: bar.update(step, advance=1, description=what)
            )
            results[experiment.name] = found
            shown = [results[name] for name in known if name in results and results[name].records]
            write_results(shown, output, pictures)  # what there is so far can be looked at
            console.print(_one_line(found), highlight=False)
    print(output / "index.html")
    if any(r.failures for r in results.values()):
        raise typer.Exit(1)


def _bar(console: Any) -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    parts = BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}")
    return Progress(*parts, console=console, transient=True)


def _one_line(found: Results) -> str:
    from gleangp.reproduce.summary import BETTER, WITHIN, WORSE, comparisons

    said = [c.default_verdict if c.default is not None else c.ours.verdict for c in comparisons(found)]
    counts = ", ".join(f"{said.count(kind)} {kind}" for kind in (BETTER, WITHIN, WORSE) if kind in said)
    old = len(found.records) - found.n_computed
    failed = f", {len(found.failures)} FAILED" if found.failures else ""
    verdicts = f"; against the paper: {counts}" if counts else ""
    return f"{found.experiment.name}: {found.n_computed} computed, {old} found{failed}{verdicts}"


def _list_experiments() -> None:
    from rich.console import Console
    from rich.table import Table

    from gleangp.reproduce.catalogue import load_experiment, names_of_experiments

    table = Table("name", "source", "runs", "shows")
    for name in names_of_experiments():
        e = load_experiment(name)
        table.add_row(name, e.source, str(e.n_runs), e.shows)
    Console().print(table)
