"""The command line: `gleangp --help`."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line. What it needs (typer, rich) comes with the extra `cli`."""
    try:
        from gleangp.cli._app import run
    except ModuleNotFoundError as error:
        if error.name not in ("rich", "typer"):
            raise
        sys.exit(f"gleangp: the command line needs {error.name}. Install it with: pip install 'gleangp[cli]'")
    run()
