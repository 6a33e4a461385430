"""Imports point down the layers of docs/design.md, section 6."""

from pathlib import Path

from tests.processes import python

LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def test_layers():
    """import-linter's contract in pyproject.toml is kept."""
    printed = python("-c", LINT, "--no-cache", "--no-logo", cwd=Path(__file__).parents[2])
    assert "1 kept, 0 broken" in printed
