"""`gleangp reproduce`: lists, runs, goes on, and fails in one line."""

import json

import pytest
from typer.testing import CliRunner

from gleangp.cli._app import app


def call(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


def test_list():
    """Without a name all experiments are listed with their source."""
    result = call()
    assert result.exit_code == 0
    for name in ("sines", "usps-invariance", "transfer-joint", "school"):
        assert name in result.stdout
    assert "LP04" in result.stdout


def test_run_and_resume(tmp_path):
    """One experiment without data: the page and the tables appear; a second call computes nothing."""
    options = ("--output", tmp_path, "--method", "MT-IVM")
    result = call("sines", "--runs", 1, *options)
    assert result.exit_code == 0, result.output
    assert str(tmp_path / "index.html") in result.stdout
    assert "1 computed, 0 found" in result.stderr
    again = call("sines", "--runs", 2, *options)
    assert "1 computed, 1 found" in again.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [e["name"] for e in summary["experiments"]] == ["sines"]
    assert summary["experiments"][0]["comparisons"][0]["verdict"] in ("within the spread", "differs")
    call("iris", "--runs", 1, "--output", tmp_path, "--method", "linear model")
    names = [e["name"] for e in json.loads((tmp_path / "summary.json").read_text())["experiments"]]
    assert names == ["sines", "iris"]  # the page shows what the folder holds


def test_wrong_names(tmp_path):
    """Unknown experiments and methods are errors that say what is known."""
    with pytest.raises(ValueError, match="no experiment 'sinus'"):
        CliRunner().invoke(app, ["reproduce", "sinus"], catch_exceptions=False)
    with pytest.raises(ValueError, match="has a method of"):
        CliRunner().invoke(
            app, ["reproduce", "sines", "--method", "x", "-o", str(tmp_path)], catch_exceptions=False
        )
