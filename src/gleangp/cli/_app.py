"""The commands and their options. What a command does is imported when it runs: `--help` stays quick."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gleangp._version import __version__
from gleangp.cli._reproduce import reproduce
from gleangp.cli._usage import UsageError, check_folds, check_interval, check_jobs, check_outputs, printable

app = typer.Typer(
    name="gleangp",
    help="Gaussian processes for many related tasks, few labels and few points.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run() -> None:
    """Run the application; an error of the user's input is one line, unless `--debug` asks for more."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except (ValueError, OSError, ImportError) as error:  # GleanErrors about input are ValueErrors
        if "--debug" in sys.argv:
            raise
        message = " ".join(str(error).split())
        if isinstance(error, ModuleNotFoundError):
            message += "; optional parts come with: pip install 'gleangp[cli,plot,report]'"
        print(f"gleangp: error: {printable(message)}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UsageError) else 1)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Gaussian processes for many related tasks, few labels and few points."""


Target = Annotated[str, typer.Option("--target", "-y", help="Column to predict.")]
Task = Annotated[str | None, typer.Option("--task", "-t", help="Column that says which task a row is of.")]
Drop = Annotated[list[str] | None, typer.Option("--drop", help="Column to leave out; may be repeated.")]
Impute = Annotated[
    bool, typer.Option("--impute", help="Fill missing inputs: mean of numbers, none of the categories.")
]
KeepId = Annotated[
    bool, typer.Option("--keep-id", help="Learn also from columns that only name or count the rows.")
]
Classify = Annotated[
    bool | None,
    typer.Option(
        "--classify/--regress",
        "--classification/--regression",
        help="Classes or numbers. Left out: text is classes, and so are 0 and 1.",
        show_default=False,
    ),
]
Encoding = Annotated[str, typer.Option("--encoding", help="Encoding of text tables, such as cp1252.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also print the kernel and the log evidence.")]
Unlabeled = Annotated[
    str | None,
    typer.Option(
        "--unlabeled",
        help="Target value that means: no label. Such rows are learnt from where the model can: classes with "
        "`sparse`, anything with `hierarchical` or `latent`.",
    ),
]
Folds = Annotated[
    int | None,
    typer.Option(
        "--folds", min=0, help="Folds of the held-out score (0: none). Left out: 5, or one for large tables."
    ),
]
Noise = Annotated[
    str | None,
    typer.Option(
        "--noise",
        help="How the target varies: `gaussian` (default), `outliers` (some targets are wrong), `poisson`, "
        "`negative_binomial` (counts), `binomial` (see --trials), `gamma` (positive); for classes `probit`, "
        "`logit`, `robust` (wrong labels).",
    ),
]
Exposure = Annotated[
    str | None, typer.Option("--exposure", help="For counts: column with time, area or population.")
]
Trials = Annotated[
    str | None, typer.Option("--trials", help="For --noise binomial: column with the number of trials.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace output files that gleangp did not write.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of everything random.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
TableFile = Annotated[
    str, typer.Argument(help="CSV, TSV, Parquet, Feather, .xlsx or .json; - for CSV on standard input.")
]
ModelFile = Annotated[Path, typer.Argument(help="A file that `gleangp fit` wrote.")]
NewTable = Annotated[str, typer.Option("--output", "-o", help="Table to write; - for standard output.")]
NewModel = Annotated[
    Path | None, typer.Option("--output", "-o", help="Model file to write. Left out: replaces the model.")
]


@app.command()
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where to save the picture (PNG, PDF or SVG).")
    ] = Path("gleangp-demo.png"),
    seed: Annotated[int, typer.Option(help="Seed of the generated tasks.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON instead.")] = False,
    force: Force = False,
) -> None:
    """Learn twelve related tasks, transfer to new ones with five labels each; a table and a picture.

    The data are generated; nothing is downloaded. A few seconds.
    """
    check_outputs({"--output": output}, (), force=force)
    from gleangp.cli._demo import run_demo

    run_demo(output, seed, as_json=as_json)


# Longer than other functions: every option of the command is a parameter with its help.
@app.command()
def fit(
    table: TableFile,
    target: Target,
    output: Annotated[Path, typer.Option("--output", "-o", help="The model file to write.")],
    task: Task = None,
    drop: Drop = None,
    impute: Impute = False,
    classify: Classify = None,
    unlabeled: Unlabeled = None,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help="`sparse`: tasks share what helps. `coupled`: a common function. `hierarchical`: each has "
            "its own kernel under a common prior (numbers only). `latent`: tasks share few hidden inputs. "
            "`ordinal`: categories that have an order (see --order).",
        ),
    ] = "sparse",
    order: Annotated[
        str | None,
        typer.Option(
            "--order",
            help="For `ordinal`: the categories, lowest first, with commas between: `low,medium,high`. Left "
            "out: numbers by size.",
        ),
    ] = None,
    constraints: Annotated[
        str | None,
        typer.Option(
            "--constraints",
            help="For `hierarchical`: a table with the columns `higher`, `lower` and perhaps `margin`: the "
            "target of one row is above that of another. Or `i`, `j`, `k`, `l`: one difference is above "
            "another.",
        ),
    ] = None,
    row_id: Annotated[
        str | None,
        typer.Option("--id", help="Column that names the rows for --constraints. Left out: numbers from 0."),
    ] = None,
    noise: Noise = None,
    exposure: Exposure = None,
    trials: Trials = None,
    n_active: Annotated[int | None, typer.Option(min=1, help="Active points over all tasks.")] = None,
    folds: Folds = None,
    report: Annotated[Path | None, typer.Option(help="Also write an HTML report here.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes; -1: one for each core.")] = None,
    seed: Seed = 0,
    encoding: Encoding = "utf-8",
    keep_id: KeepId = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """Learn a model from a table, measure it on held-out rows, and save it.

    Example: `gleangp fit pupils.csv --target score --task school -o pupils.glean --report pupils.html`

    Ctrl-C ends the held-out score or the fit with the best found so far, and the model is written; a second
    Ctrl-C gives up, and nothing is.
    """
    check_outputs({"--output": output, "--report": report}, (table, constraints), force=force)
    check_jobs(jobs)
    check_folds(folds)
    from gleangp.cli._fit import FitOptions, fit_table
    from gleangp.cli._problem import read_problem

    if order is not None and model != "ordinal":
        raise typer.BadParameter("goes with --model ordinal.", param_hint="--order")
    problem = read_problem(
        table,
        target,
        task,
        drop=drop or [],
        impute=impute,
        classify=classify,
        unlabeled=unlabeled,
        order=order,
        ordinal=model == "ordinal",
        constraints=constraints,
        row_id=row_id,
        keep_id=keep_id,
        text_encoding=encoding,
        noise=noise,
        exposure=exposure,
        trials=trials,
    )
    fit_table(problem, output, FitOptions(model, n_active, folds, seed, jobs, report, as_json, verbose))


@app.command()
def predict(
    model: ModelFile,
    table: TableFile,
    output: NewTable = "-",
    keep: Annotated[
        str | None,
        typer.Option("--keep", help="Columns of the table to write too, with commas between them, or `all`."),
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option("--interval", help="Also write bounds of a new target that hold it so often: 0.9."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse tables with unknown tasks, categories or gaps.")
    ] = False,
    encoding: Encoding = "utf-8",
    force: Force = False,
) -> None:
    """Predict the rows of a table: mean and standard deviation, or class and probabilities.

    Example: `gleangp predict pupils.glean new.csv -o predictions.csv --keep pupil --interval 0.9`

    Files larger than memory are fine. Rows of unknown tasks are predicted from what the known tasks share.
    """
    check_outputs({"--output": output}, (model, table), force=force)
    check_interval(interval)
    from gleangp.cli._work import predict_table

    kept = () if keep is None else tuple(name.strip() for name in keep.split(","))
    predict_table(model, table, output, keep=kept, interval=interval, strict=strict, encoding=encoding)


@app.command()
def update(
    model: ModelFile,
    table: TableFile,
    output: NewModel = None,
    encoding: Encoding = "utf-8",
    force: Force = False,
) -> None:
    """Absorb new rows, of tasks that a model knows and of new ones, without fitting it again.

    Example: `gleangp update pupils.glean this-year.csv`. Kernel and noise stay as they are.
    """
    check_outputs({"--output": output}, (table,), force=force)
    from gleangp.cli._work import learn_rows

    learn_rows(model, table, output or model, known=True, encoding=encoding)


@app.command()
def add_task(
    model: ModelFile,
    table: TableFile,
    output: NewModel = None,
    encoding: Encoding = "utf-8",
    force: Force = False,
) -> None:
    """Teach a model new tasks from a few rows each, without fitting it again.

    Example: `gleangp add-task pupils.glean newcomers.csv`
    """
    check_outputs({"--output": output}, (table,), force=force)
    from gleangp.cli._work import learn_rows

    learn_rows(model, table, output or model, known=False, encoding=encoding)


@app.command()
def suggest(
    model: ModelFile,
    table: TableFile,
    n: Annotated[int, typer.Option("--number", "-n", min=1, help="How many rows to choose.")] = 10,
    output: NewTable = "-",
    encoding: Encoding = "utf-8",
    force: Force = False,
) -> None:
    """Choose the rows of a table whose labels would help most, and the tasks that need labels.

    Example: `gleangp suggest pupils.glean candidates.csv -n 20 -o ask-these.csv`
    """
    check_outputs({"--output": output}, (model, table), force=force)
    from gleangp.cli._work import suggest_rows

    suggest_rows(model, table, output, n, encoding)


@app.command()
def inspect(model: ModelFile, verbose: Verbose = False, as_json: AsJson = False) -> None:
    """Say what is in a model file, also one that `gleangp.save` wrote.

    Example: `gleangp inspect pupils.glean`
    """
    import json

    from rich.console import Console

    from gleangp import load
    from gleangp.cli._describe import describe, print_description

    loaded = load(model)
    if as_json:
        print(json.dumps(describe(loaded)))
    else:
        print_description(loaded, Console(), verbose=verbose)


@app.command()
def compare(
    table: TableFile,
    target: Target,
    task: Task = None,
    drop: Drop = None,
    impute: Impute = False,
    classify: Classify = None,
    unlabeled: Unlabeled = None,
    noise: Noise = None,
    exposure: Exposure = None,
    trials: Trials = None,
    folds: Folds = None,
    seed: Seed = 0,
    encoding: Encoding = "utf-8",
    keep_id: KeepId = False,
    as_json: AsJson = False,
) -> None:
    """Cross-validate our models and simpler ones on a table, and say which to use.

    Example: `gleangp compare pupils.csv --target score --task school`
    """
    check_folds(folds)
    from gleangp.cli._compare import compare_table
    from gleangp.cli._problem import read_problem

    problem = read_problem(
        table,
        target,
        task,
        drop=drop or [],
        impute=impute,
        classify=classify,
        unlabeled=unlabeled,
        keep_id=keep_id,
        text_encoding=encoding,
        noise=noise,
        exposure=exposure,
        trials=trials,
    )
    compare_table(problem, folds=folds or None, seed=seed, as_json=as_json)


@app.command()
def serve(
    model: ModelFile,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: a free one.")] = 8000,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Others than loopback can be reached by other people.")
    ] = "127.0.0.1",
) -> None:
    """Open a model to a browser on this machine: pick a task, move inputs, upload a table.

    Example: `gleangp serve pupils.glean`. The page has a JSON endpoint; see the documentation.
    """
    from gleangp.cli._work import load_table_model
    from gleangp.serve.server import run as run_server

    run_server(load_table_model(model), model.name, host, port)


app.command()(reproduce)
