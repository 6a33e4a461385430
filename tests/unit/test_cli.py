"""The command line: quick help, the demo, errors in one line."""

import json

import pytest

import gleangp

pytest.importorskip("typer")
from tests.processes import python
from tests.unit.test_cli_predict import call


def test_help_does_not_load_numerics(tmp_path):
    """`gleangp --help` imports nothing heavy, and so answers at once; no experiment either."""
    code = """
import atexit, sys
heavy = {"numpy", "sklearn", "scipy", "pandas", "matplotlib", "gleangp.reproduce"}
atexit.register(lambda: print(sorted(heavy & set(sys.modules))))
from gleangp.cli import main
main()
"""
    printed = python("-c", code, "--help", cwd=tmp_path)
    assert "demo" in printed
    assert "reproduce" in printed
    assert printed.endswith("[]")


def test_version(tmp_path):
    """`--version` prints it and nothing else."""
    assert python("-m", "gleangp", "--version", cwd=tmp_path) == gleangp.__version__


@pytest.mark.slow
def test_demo(tmp_path, monkeypatch):
    """Sharing beats a Gaussian process per task, in old tasks and in new ones with five rows."""
    pytest.importorskip("matplotlib")
    from gleangp.cli import _demo, _demo_picture

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_demo, "N_TASKS", 6)
    for module in (_demo, _demo_picture):  # as `gleangp demo`, with fewer tasks: `.ci/run` runs all of it
        monkeypatch.setattr(module, "N_NEW_TASKS", 4)
        monkeypatch.setattr(module, "FEW_ROWS", (5, 10))
    result = json.loads(call("demo", "--json")[0])
    tasks, new = result["tasks"], result["new_tasks"]
    assert sum(tasks["together"]) < sum(tasks["alone"])
    column = new["rows"].index(5)
    assert new["add_task"][column] < new["alone"][column]
    picture = tmp_path / "gleangp-demo.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000
    printed = call("demo")[0]  # a picture of its own is replaced without --force
    assert "add_task with 5 rows was the better one" in printed


def test_error_is_one_line(refused, tmp_path):
    """What the user can mend is told in one line, without a traceback."""
    missing = tmp_path / "no" / "such" / "folder" / "picture.png"
    assert "is not a folder" in refused(1, "demo", "-o", missing)
