"""What commands check before they work, and how they print what comes from a table."""

from __future__ import annotations

import os
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path

# How files begin that gleangp writes: models, reports, the picture of the demo.
_OURS = (
    b'model.json{"format":"gleangp-model"',
    b'<meta name="generator" content="gleangp',
    b"Software\0gleangp",
)


class UsageError(ValueError):
    """The command was not given what it needs; exit code 2."""


def check_outputs(
    outputs: dict[str, str | os.PathLike[str] | None],
    inputs: tuple[str | os.PathLike[str] | None, ...],
    *,
    force: bool,
) -> None:
    """Raise if writing would destroy an input, another output, or a file that gleangp did not write.

    Parameters
    ----------
    outputs : dict
        Option -> path; None and "-" are no files.
    inputs : tuple
        Paths that are read.
    force : bool
        Whether other files may be replaced; never an input.
    """
    written = {
        option: Path(path) for option, path in outputs.items() if path is not None and str(path) != "-"
    }
    for option, path in written.items():
        for given in inputs:
            if given is not None and _same_file(path, Path(given)):
                raise UsageError(f"{option} {path} is the input {given}. Choose another name for the output.")
    for (one, path), (other, second) in combinations(written.items(), 2):
        if _same_file(path, second):
            raise UsageError(f"{one} and {other} name the same file, {second}. Choose two names.")
    for option, path in written.items():
        if not force and path.is_file() and not _is_ours(path):
            raise UsageError(
                f"{option} {path} exists already. Choose another name; replacing it needs --force."
            )


def check_folder(folder: Path, names: tuple[str, ...], *, force: bool) -> None:
    """Raise if a folder of results has files of these names that earlier results did not put there."""
    if force or (folder / "records").is_dir():
        return
    there = [name for name in names if os.path.lexists(folder / name)]
    if there:
        raise UsageError(
            f"--output {folder} has a file {there[0]!r} and no results of gleangp. Choose another "
            "folder; replacing the file needs --force."
        )


def check_jobs(jobs: int | None) -> None:
    """Raise if there would be no process."""
    if jobs == 0:
        raise UsageError("--jobs 0: at least one process is needed (-1: one for each core).")


def check_folds(folds: int | None) -> None:
    """Raise if no row could be learnt from."""
    if folds == 1:
        raise UsageError("--folds 1: a held-out score needs at least two folds (0: no score).")


def check_interval(coverage: float | None) -> None:
    """Raise if the coverage of an interval is no share."""
    if coverage is not None and not 0.0 < coverage < 1.0:
        raise UsageError(f"--interval {coverage:g}: a share between 0 and 1 is expected, such as 0.9.")


def printable(text: str) -> str:
    r"""Text for a terminal: control characters as escapes, such as ``\x1b``."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def note(text: str) -> None:
    """One line on standard error: something that the user should see beside the result."""
    print(f"gleangp: {printable(text)}", file=sys.stderr)


def first_names(names: list[str], most: int = 5) -> str:
    """Names in quotation marks, the first few of many."""
    return ", ".join(map(repr, names[:most])) + (", ..." if len(names) > most else "")


def _same_file(a: Path, b: Path) -> bool:
    """By any path, symbolic link or hard link."""
    if a.exists() and b.exists():
        return os.path.samefile(a, b)
    return os.path.realpath(a) == os.path.realpath(b)


def _is_ours(path: Path) -> bool:
    with open(path, "rb") as file:
        head = file.read(1000)
    return any(mark in head for mark in _OURS)


def about_unknown(tasks: Counter[str], n_rows: int, remedy: str = "") -> str:
    """What is said of rows whose tasks a model does not know; `tasks` counts the rows of each."""
    names = sorted(tasks)
    what = "one task" if len(names) == 1 else f"{len(names)} tasks"
    return (
        f"{tasks.total()} of {n_rows} rows are of {what} that the model does not know: {first_names(names)}. "
        f"They are predicted from what the known tasks share. Teach the model with `gleangp update`{remedy}."
    )
