"""Finds the reference numbers: JSON files with what the papers' own programs compute.

The folder is named by the environment variable GLEANGP_REFERENCE; by default it is looked for
beside the repository. Its README.md says where the numbers come from and what their
conventions are.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).resolve().parents[2]


def folder() -> Path:
    """The folder of reference numbers, which need not exist."""
    named = os.environ.get("GLEANGP_REFERENCE")
    return Path(named) if named else _ROOT.parent / "shared" / "reference"


def load(name: str) -> dict[str, Any]:
    """The content of a reference file such as "kernels.json"; skips the test where it is absent."""
    path = folder() / name
    if not path.is_file():
        pytest.skip(f"no reference numbers: {path} not found (set GLEANGP_REFERENCE to their folder)")
    with path.open(encoding="utf-8") as file:
        return json.load(file)


def entry_names(name: str) -> list[str]:
    """Names of the entries of a file, to parametrize tests with; empty where it is absent.

    A test parametrized with nothing is skipped by pytest, so collection needs no reference folder.
    """
    path = folder() / name
    if not path.is_file():
        return []
    with path.open(encoding="utf-8") as file:
        return list(json.load(file))


def entry_names_with(name: str, output: str) -> list[str]:
    """Names of the entries of a file whose outputs include the one named; empty where it is absent."""
    return [entry for entry in entry_names(name) if output in load(name)[entry]["outputs"]]
