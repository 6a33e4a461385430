"""Commands never destroy an input, and replace the files of others only with `--force`."""

import os

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("typer")

from gleangp import load  # noqa: E402
from gleangp.cli._usage import check_outputs  # noqa: E402
from tests.unit.test_cli_predict import call  # noqa: E402

pytestmark = pytest.mark.usefixtures("held_kernels")


@pytest.fixture
def table(tmp_path):
    """A small table with two tasks."""
    x = np.linspace(0, 3, 20)
    frame = pd.DataFrame({"x": x, "y": np.sin(x), "t": np.tile(["a", "b"], 10)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


@pytest.fixture
def model(table):
    """A model of it."""
    path = table.parent / "m.glean"
    call("fit", table, "--target", "y", "--task", "t", "-o", path, "--folds", 0)
    return path


def names_of(path, kind):
    """The same file by another name."""
    other = path.parent / f"{kind}{path.suffix}"
    if kind == "same":
        return path
    if kind == "dots":
        return path.parent / "." / ".." / path.parent.name / path.name
    (other.symlink_to if kind == "symbolic" else other.hardlink_to)(path)
    return other


@pytest.mark.parametrize("kind", ["same", "dots", "symbolic", "hard"])
@pytest.mark.parametrize("force", [[], ["--force"]], ids=["plain", "force"])
def test_inputs_are_never_replaced(refused, table, model, kind, force):
    """The table and the model stay, by whatever name the output has them."""
    before = table.read_bytes(), model.read_bytes()
    output = names_of(table, kind)
    fit = ("fit", table, "--target", "y", "--folds", 0)
    assert "is the input" in refused(2, *fit, "-o", output, *force)
    assert "is the input" in refused(2, *fit, "-o", model, "--report", output, *force)
    assert "is the input" in refused(2, "predict", model, table, "-o", output, *force)
    assert "is the input" in refused(2, "add-task", model, table, "-o", output, *force)
    output = names_of(model, kind)
    assert "is the input" in refused(2, "predict", model, table, "-o", output, *force)
    assert (table.read_bytes(), model.read_bytes()) == before


def test_constraints_are_an_input(refused, table):
    """A table of pairs is not replaced by the model."""
    pairs = table.parent / "pairs.csv"
    pairs.write_text("higher,lower\n2,0\n")
    options = ("--target", "y", "--model", "hierarchical", "--constraints", pairs)
    assert "is the input" in refused(2, "fit", table, *options, "-o", pairs)


def test_two_outputs_are_two_files(refused, table):
    """Model and report cannot have one name."""
    both = table.parent / "new"
    line = refused(2, "fit", table, "--target", "y", "-o", both, "--report", both)
    assert "name the same file" in line
    assert not both.exists()


def test_files_of_others_need_force(refused, table, model):
    """Text of the user is replaced with --force alone."""
    notes = table.parent / "notes.csv"
    notes.write_text("mine")
    commands = [
        ("fit", table, "--target", "y", "--folds", 0, "-o", notes),
        ("fit", table, "--target", "y", "--folds", 0, "-o", model, "--report", notes),
        ("predict", model, table, "-o", notes),
        ("add-task", model, table, "-o", notes),
        ("demo", "-o", notes),
    ]
    for command in commands:
        assert "needs --force" in refused(2, *command)
        assert notes.read_text() == "mine"
    call("predict", model, table, "-o", notes, "--force")
    assert notes.read_text().startswith("t,y,")


@pytest.mark.usefixtures("quick_rivals")
def test_own_files_are_replaced(table):
    """A second fit replaces the model and the report of the first without a question."""
    model, report = table.parent / "m.glean", table.parent / "r.html"
    first = ("fit", table, "--target", "y", "--drop", "t", "-o", model, "--folds", 0)
    call(*first, "--report", report)
    call(*first, "--seed", 1)
    assert load(model).estimator.random_state == 1
    check_outputs({"--report": report}, (table,), force=False)


def test_folders_of_others_need_force(refused, tmp_path):
    """`reproduce` does not write over a file that an earlier run did not write."""
    (tmp_path / "runs.csv").write_text("mine")
    options = ("iris", "--runs", 1, "--method", "linear model", "-o", tmp_path)
    assert "'runs.csv'" in refused(2, "reproduce", *options)
    assert os.listdir(tmp_path) == ["runs.csv"]
    call("reproduce", *options, "--force")
    call("reproduce", *options)
    assert (tmp_path / "runs.csv").read_text() != "mine"
