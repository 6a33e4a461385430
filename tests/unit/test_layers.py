"""Imports point down the layers of docs/design.md, section 6."""

import os
import subprocess
import sys
from pathlib import Path

import gleangp

ROOT = Path(__file__).parents[2]
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def test_layers():
    """import-linter's contract in pyproject.toml is kept."""
    done = subprocess.run(
        [sys.executable, "-c", LINT, "--no-cache", "--no-logo"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(Path(gleangp.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 kept, 0 broken" in done.stdout
