"""Other formats and encodings of tables; columns and targets that are not what they seem."""

import json

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("typer")

from gleangp.cli import _tables  # noqa: E402
from gleangp.cli._problem import read_problem  # noqa: E402
from gleangp.cli._tables import read_chunks, read_table, table_writer  # noqa: E402
from tests.unit.test_cli_predict import call, make_frame  # noqa: E402

pytestmark = pytest.mark.usefixtures("held_kernels")


@pytest.mark.parametrize("suffix", ["xlsx", "json", "jsonl", "json.gz"])
def test_other_formats(tmp_path, suffix):
    """Text keeps its zeros, numbers their digits, gaps stay gaps; parts give the whole."""
    path = str(tmp_path / f"t.{suffix}")
    frame = pd.DataFrame({"key": ["01", "02", "=1+1"], "x": [0.5, np.nan, 1e-9], "n": [1, 2, 3]})
    with table_writer(path) as write:
        write(frame[:2])
        write(frame[2:])
    found = read_table(path, ("key",))
    assert found["key"].tolist()[:2] == ["01", "02"]
    assert found["key"][2] == ("'=1+1" if suffix == "xlsx" else "=1+1")  # a spreadsheet would run it
    np.testing.assert_array_equal(found["x"], frame["x"])
    assert found["n"].tolist() == [1, 2, 3]
    assert [len(part) for part in read_chunks(path, 2)] == [2, 1]


def test_excel_from_table_to_predictions(tmp_path):
    """fit and predict on .xlsx; columns whose headings are numbers have names too."""
    frame = make_frame()[["t", "x", "y"]].rename(columns={"x": 2020})
    frame.to_excel(tmp_path / "t.xlsx", index=False)
    call("fit", tmp_path / "t.xlsx", "-y", "y", "-t", "t", "--folds", 0, "-o", tmp_path / "m.glean")
    call("predict", tmp_path / "m.glean", tmp_path / "t.xlsx", "-o", tmp_path / "o.xlsx", "--keep", "2020")
    assert list(pd.read_excel(tmp_path / "o.xlsx")) == ["t", "2020", "y", "y_std", "y_std_new"]


def test_without_openpyxl(refused, tmp_path, monkeypatch):
    """The one line says what to install."""
    (tmp_path / "t.xlsx").write_bytes(b"")

    def gone(*arguments, **options):
        """As pandas without openpyxl."""
        raise ImportError("Missing optional dependency 'openpyxl'.")

    monkeypatch.setattr(pd, "read_excel", gone)
    line = refused(1, "compare", tmp_path / "t.xlsx", "-y", "y")
    assert "need a recent openpyxl. Install it with: pip install -U openpyxl" in line
    monkeypatch.setattr(_tables, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="openpyxl"), table_writer(str(tmp_path / "o.xlsx")):
        pass


@pytest.mark.parametrize("name", ["t.xlsx", "t.json"])
def test_files_that_are_something_else(refused, tmp_path, name):
    """A file that is not what its name promises is one line."""
    (tmp_path / name).write_bytes(b"no table")
    line = refused(1, "compare", tmp_path / name, "-y", "y")
    assert "cannot read" in line


def test_encoding(refused, tmp_path):
    """A table of another encoding is read with --encoding; the error names the option."""
    frame = make_frame().replace({"t": {"a": "Zürich"}}).drop(columns=["grade", "key"])
    frame.to_csv(tmp_path / "t.csv", index=False, encoding="cp1252", sep=";", decimal=",")
    arguments = ("fit", tmp_path / "t.csv", "-y", "y", "-t", "t", "--folds", 0, "-o", tmp_path / "m.glean")
    assert "such as --encoding cp1252" in refused(1, *arguments)
    assert "is not known" in refused(2, *arguments, "--encoding", "klingon")
    facts = json.loads(call(*arguments, "--encoding", "cp1252", "--json")[0])
    assert facts["tasks"] == ["Zürich", "b", "c"]
    out, said = call("predict", tmp_path / "m.glean", tmp_path / "t.csv", "--encoding", "cp1252")
    assert said == ""
    assert out.count("Zürich") == 20


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("rownames", [f"r{k}" for k in range(60)]),
        ("ID", np.arange(60) * 7 % 61),
        ("index", range(5, 65)),
        ("number", range(1, 61)),
        ("counter", range(60)),
    ],
)
def test_columns_that_name_rows(tmp_path, capsys, name, values):
    """They are left out, aloud; --keep-id learns from those that are numbers."""
    frame = make_frame()[["x", "y"]].assign(**{name: values})
    frame.to_csv(tmp_path / "t.csv", index=False)
    plain = {"drop": [], "impute": False, "classify": None, "unlabeled": None}
    found = read_problem(str(tmp_path / "t.csv"), "y", None, **plain)
    assert list(found.X) == ["x"]
    (line,) = capsys.readouterr().err.splitlines()
    assert f"left out {name!r}" in line
    assert "--keep-id" in line
    if name != "rownames":
        kept = read_problem(str(tmp_path / "t.csv"), "y", None, **plain, keep_id=True)
        assert list(kept.X) == ["x", name]


@pytest.mark.parametrize(
    "columns",
    [
        {"id": np.resize([1, 2, 3], 60)},  # a group
        {"year": range(1960, 2020)},
        {"index": np.linspace(1.5, 2.5, 60)},  # of prices, say
        {"step": range(0, 120, 2)},
    ],
    ids=["group", "year", "decimals", "steps"],
)
def test_columns_that_do_not(tmp_path, capsys, columns):
    """What only looks like a name of the rows stays; and so does the only input there is."""
    make_frame()[["x", "y"]].assign(**columns).to_csv(tmp_path / "t.csv", index=False)
    plain = {"drop": [], "impute": False, "classify": None, "unlabeled": None}
    found = read_problem(str(tmp_path / "t.csv"), "y", None, **plain)
    assert list(found.X) == ["x", *columns]
    pd.DataFrame({"time": range(60), "y": make_frame()["y"]}).to_csv(tmp_path / "t.csv", index=False)
    assert list(read_problem(str(tmp_path / "t.csv"), "y", None, **plain).X) == ["time"]
    assert capsys.readouterr().err == ""


def test_zero_and_one_are_classes(tmp_path):
    """Said aloud; --regression takes them as numbers; other small integers are numbers."""
    table, model = tmp_path / "t.csv", tmp_path / "m.glean"
    frame = make_frame()[["x", "t"]].assign(y=(make_frame()["grade"] == "high").astype(int))
    frame.to_csv(table, index=False)
    arguments = ("fit", table, "-y", "y", "-t", "t", "--folds", 0, "-o", model, "--json")
    out, said = call(*arguments)
    assert json.loads(out)["classes"] == ["0", "1"]
    assert "taken as classes. If not, use --regression." in said
    out, said = call(*arguments, "--regression")
    assert "classes" not in json.loads(out)
    assert said == ""
    frame.assign(y=frame["y"] + 1).to_csv(table, index=False)
    plain = {"drop": [], "impute": False, "classify": None, "unlabeled": None}
    assert not read_problem(str(table), "y", "t", **plain).classify


@pytest.mark.parametrize("target", ["y", "grade"])
def test_rows_without_a_target_are_counted(tmp_path, target):
    """Numbers and classes alike: left out, aloud."""
    frame = make_frame()[["x", "t", target]]
    frame.loc[:6, target] = None
    frame.to_csv(tmp_path / "t.csv", index=False)
    arguments = ("-y", target, "-t", "t")
    out, said = call(
        "fit", tmp_path / "t.csv", *arguments, "--folds", 0, "-o", tmp_path / "m.glean", "--json"
    )
    assert "7 of 60 rows have no target and are left out." in said
    assert json.loads(out)["summary"]["rows"] == 53
