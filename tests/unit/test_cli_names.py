"""Names in tables are text, whatever they look like; input without sense is one line and exit code 2."""

import json

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("typer")

from gleangp import load, save  # noqa: E402
from tests.unit.test_cli_predict import call  # noqa: E402

pytestmark = pytest.mark.usefixtures("held_kernels")

NAMED = [("[/x]score", "[/x]class"), ("[/x]class", "[/x]score")]
TASKS = ["s1[/bold]", "s[red]0", "s\x1b[31m2\x07", "ü\u202e"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Names that are markup of rich, or control characters."""
    x = np.linspace(0, 3, 40)
    frame = pd.DataFrame(
        {"in[/]put": x, "kind": np.tile(["[b]", "\x1b]0;x\x07"], 20), "t": np.tile(TASKS, 10)}
    )
    frame["[/x]score"] = np.sin(x)
    frame["[/x]class"] = np.where(np.sin(x) > 0.5, "[/high]", "\x1b[0mlow")
    path = tmp_path_factory.mktemp("names") / "t.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def written(table, tmp_path_factory, held_kernels):
    """The bytes of a model file of the scores."""
    path = tmp_path_factory.mktemp("written") / "scores.glean"
    call("fit", table, "--target", "[/x]score", "--task", "t", "-o", path, "--folds", 0)
    return path.read_bytes()


@pytest.mark.parametrize(("target", "other"), NAMED)
def test_names_are_printed_as_they_are(table, tmp_path, target, other):
    """`fit`, `inspect` and `add-task` print markup as text and control characters as escapes."""
    model = tmp_path / "m.glean"
    fit = ("fit", table, "--target", target, "--task", "t", "--drop", other, "-o", model, "--folds", 2)
    printed = [call(*fit)[0], call("inspect", model)[0]]
    few = pd.read_csv(table)[:6].assign(t="[/new]\x1b[2J")
    few.to_csv(tmp_path / "few.csv", index=False)
    printed.append(call("add-task", model, tmp_path / "few.csv")[0])
    for text in printed:
        assert not [c for c in text if not c.isprintable() and c != "\n"]
    for text in printed[:2]:
        joined = text.replace("\n", "")
        for name in ("s1[/bold]", "s[red]0", r"s\x1b[31m2\x07", target):
            assert name in joined
    assert "[/new]\\x1b[2J" in printed[2]
    assert json.loads(call("inspect", model, "--json")[0])["tasks"] == [*sorted(TASKS), "[/new]\x1b[2J"]


def test_errors_have_no_control_characters(refused, table, tmp_path):
    """A column that is named in an error is escaped."""
    frame = pd.read_csv(table).rename(columns={"in[/]put": "in\x1b[31m"})
    frame.loc[3, "in\x1b[31m"] = np.nan
    frame.to_csv(tmp_path / "gap.csv", index=False)
    line = refused(1, "fit", tmp_path / "gap.csv", "--target", "[/x]score", "-o", "m.glean")
    assert r"--drop in\x1b[31m" in line
    assert "\x1b" not in line


def test_input_that_makes_no_sense(refused, table, tmp_path):
    """One clear line each, exit code 2, and no file."""
    out = tmp_path / "m.glean"
    fit = ("fit", table, "--target", "[/x]score", "-o", out)
    assert "both name the column" in refused(2, *fit, "--task", "[/x]score")
    assert "--jobs 0" in refused(2, *fit, "--jobs", 0)
    assert "--folds 1" in refused(2, *fit, "--folds", 1)
    compare = ("compare", table, "--target", "t")
    assert "both name the column" in refused(2, *compare, "--task", "t")
    assert "--folds 1" in refused(2, *compare, "--folds", 1)
    assert "--jobs 0" in refused(2, "reproduce", "sines", "-o", out, "--jobs", 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", ["csv", "parquet", "feather"])
def test_tables_without_rows(refused, table, written, tmp_path, suffix):
    """A header alone can be neither learnt from nor predicted."""
    empty, model = tmp_path / f"empty.{suffix}", tmp_path / "m.glean"
    model.write_bytes(written)
    frame = pd.read_csv(table)[:0]
    {"csv": lambda p: frame.to_csv(p, index=False), "parquet": frame.to_parquet, "feather": frame.to_feather}[
        suffix
    ](empty)
    fit = ("fit", empty, "--target", "[/x]score", "-o", tmp_path / "n.glean")
    for command in (
        fit,
        ("compare", empty, "--target", "[/x]score"),
        ("predict", model, empty, "-o", tmp_path / "out.csv"),
        ("predict", model, empty),
        ("add-task", model, empty),
    ):
        assert "has no rows" in refused(2, *command)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([empty.name, "m.glean"])
    assert model.read_bytes() == written


def test_a_model_file_from_a_stranger_is_printed_safely(written, tmp_path):
    """Control characters that are put into the summary of a model file do not reach the terminal."""
    model = tmp_path / "m.glean"
    model.write_bytes(written)
    loaded = load(model)
    loaded.summary["kind"] = "\x1b[31m[/red]"
    save(loaded, model)
    assert "\\x1b[31m[/red]" in call("inspect", model)[0]


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_formulas_are_escaped(tmp_path, suffix):
    """Task names, labels and headings that a spreadsheet would run get an apostrophe; numbers never."""
    names = ["=1+1", "+cmd|x", "-2+3", "@sum(a)", "-7", "+1.5e3", "\tx", "plain", "a=b"]
    x = np.linspace(0, 3, 45)
    label = np.where(x > 1.5, "=HYPERLINK(1)", "-3")
    frame = pd.DataFrame({"x": x, "@task": np.tile(names, 5), "=label": label})
    frame.to_csv(tmp_path / "t.csv", index=False)
    model, out = tmp_path / "m.glean", tmp_path / f"out.{suffix}"
    call("fit", tmp_path / "t.csv", "--target", "=label", "--task", "@task", "-o", model, "--folds", 0)
    call("predict", model, tmp_path / "t.csv", "-o", out)
    found = pd.read_csv(out, sep="," if suffix == "csv" else "\t", dtype=str, keep_default_na=False)
    assert list(found) == ["'@task", "'=label", "p(-3)", "p(=HYPERLINK(1))"]
    escaped = ["'=1+1", "'+cmd|x", "'-2+3", "'@sum(a)", "-7", "+1.5e3", "'\tx", "plain", "a=b"]
    assert found["'@task"].tolist() == escaped * 5
    assert set(found["'=label"]) == {"'=HYPERLINK(1)", "-3"}
    call("predict", model, tmp_path / "t.csv", "-o", tmp_path / "out.parquet")
    assert set(pd.read_parquet(tmp_path / "out.parquet")["@task"]) == set(
        names
    )  # no spreadsheet: as they are


def test_negative_numbers_are_written_as_they_are(tmp_path):
    """Predictions below zero have no apostrophe."""
    x = np.linspace(0, 3, 20)
    pd.DataFrame({"x": x, "y": -1.0 - x}).to_csv(tmp_path / "t.csv", index=False)
    call("fit", tmp_path / "t.csv", "--target", "y", "-o", tmp_path / "m.glean", "--folds", 0)
    call("predict", tmp_path / "m.glean", tmp_path / "t.csv", "-o", tmp_path / "out.csv")
    assert (pd.read_csv(tmp_path / "out.csv")["y"] < -0.5).all()
    assert "'" not in (tmp_path / "out.csv").read_text()
