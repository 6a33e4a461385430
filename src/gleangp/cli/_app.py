"""The commands and their options. What a command does is imported when it runs: `--help` stays quick."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gleangp._version import __version__

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
        print(f"gleangp: error: {message}", file=sys.stderr)
        sys.exit(1)


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


@app.command()
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where to save the picture (PNG, PDF or SVG).")
    ] = Path("gleangp-demo.png"),
    seed: Annotated[int, typer.Option(help="Seed of the generated tasks.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON instead.")] = False,
) -> None:
    """Learn twelve related tasks, transfer to new ones with five labels each; a table and a picture.

    The data are generated; nothing is downloaded. A few seconds.
    """
    from gleangp.cli._demo import run_demo

    run_demo(output, seed, as_json=as_json)
