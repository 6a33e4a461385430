"""Tables as they come: every one passes fit, predict, report and compare, or fails with one clear line."""

import gzip
import json
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("typer")

from gleangp.cli._problem import read_problem  # noqa: E402
from tests.unit.test_cli_predict import call  # noqa: E402


def base(n=24, n_tasks=2, seed=0):
    """Two tasks of one number; the target is a line in it with an offset for each task."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"t": np.resize([f"g{k}" for k in range(n_tasks)], n), "x": rng.uniform(0, 3, n)})
    offsets = rng.standard_normal(n_tasks)
    frame["y"] = 2 * frame["x"] + offsets[np.resize(np.arange(n_tasks), n)] + 0.1 * rng.standard_normal(n)
    return frame


@dataclass
class Foreign:
    """A table, how it is written, and what happens."""

    frame: object = None
    suffix: str = ".csv"
    options: tuple = ()
    write: object = None  # (frame, path); None: by the suffix
    error: str | None = None  # what the one line of an error has in it
    said: str | None = None  # what a line beside the result has in it
    code: int = 1
    names: dict = field(default_factory=lambda: {"target": "y", "task": "t"})

    def arguments(self):
        """Options of fit and compare."""
        task = [] if self.names["task"] is None else ["--task", self.names["task"]]
        return ["--target", self.names["target"], *task, *self.options]

    def file(self, folder):
        """Write it."""
        path = folder / f"table{self.suffix}"
        if self.write is not None:
            self.write(self.frame, path)
        elif self.suffix == ".parquet":
            self.frame.to_parquet(path, index=False)
        elif self.suffix == ".xlsx":
            self.frame.to_excel(path, index=False)
        else:
            self.frame.to_csv(path, index=False)
        return path


def text(content):
    """Writes this text, whatever the frame is."""
    return lambda frame, path: path.write_bytes(content.encode() if isinstance(content, str) else content)


def with_gaps():
    """One number in six is missing."""
    frame = base()
    frame.loc[::6, "x"] = np.nan
    return frame


def many_tasks_of_one_row():
    """As many tasks as rows."""
    return base().assign(t=[f"g{k}" for k in range(24)])


def large(n):
    """Rows of one function, without tasks."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 2)).round(4)
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": np.sin(X[:, 0]) + 0.1 * rng.normal(size=n)})


def semicolons(frame, path):
    """As a German spreadsheet writes it."""
    frame.to_csv(path, index=False, sep=";", decimal=",")


def unicode(frame, path):
    """Names with accents and other scripts, in another encoding than UTF-8."""
    frame.rename(columns={"x": "größe"}).to_csv(path, index=False, encoding="cp1252")


def zipped(frame, path):
    """CSV that is compressed."""
    path.write_bytes(gzip.compress(frame.to_csv(index=False).encode()))


DAYS = pd.date_range("2024-03-01", periods=24).strftime("%Y-%m-%d")
NO_TASK = {"target": "y", "task": None}
TABLES = {
    "missing": Foreign(with_gaps(), error="column 'x' has 4 missing values. Fill them with --impute"),
    "missing, filled": Foreign(with_gaps(), options=("--impute",)),
    "dates": Foreign(base().assign(day=DAYS)),
    "almost empty": Foreign(base().assign(z=[5.0, *[None] * 23]), options=("--impute",)),
    "dates and a word": Foreign(base().assign(when=[*DAYS[:23], "unknown"])),
    "words only": Foreign(base().drop(columns="x").assign(k=np.resize(list("uvw"), 24))),
    "unicode": Foreign(base(), write=unicode, options=("--encoding", "cp1252")),
    "unicode, not said": Foreign(base(), write=unicode, error="--encoding"),
    "semicolons": Foreign(base(), write=semicolons),
    "BOM": Foreign(base(), write=lambda f, p: f.to_csv(p, index=False, encoding="utf-8-sig")),
    "gz": Foreign(base(), suffix=".csv.gz", write=zipped),
    "parquet": Foreign(base(), suffix=".parquet"),
    "xlsx": Foreign(base(), suffix=".xlsx"),
    "duplicated header": Foreign(
        base(), write=lambda f, p: f.assign(z=f["y"] ** 2).to_csv(p, index=False, header=["t", "x", "y", "x"])
    ),
    "three rows": Foreign(base(3, 2), options=("--folds", "5")),
    "id column": Foreign(base().assign(rownames=range(1, 25)), said="left out 'rownames'"),
    "constant": Foreign(base().assign(c=7.0), said="left out 'c': the same in every row"),
    "constant target": Foreign(base().assign(y=7.0)),
    "booleans": Foreign(base().assign(b=np.resize(["yes", "no"], 24), c=np.resize([True, False, False], 24))),
    "huge integers": Foreign(base().assign(big=2**60 + 2**40 * np.resize([3, 1, 2, 7], 24))),
    "<0.1": Foreign(base().assign(d=np.resize(["<0.1", "0.4", "1.2"], 24)), error="column 'd' has '<0.1'"),
    "empty": Foreign(write=text(""), error="no rows", code=2),
    "header only": Foreign(write=text("t,x,y\n"), error="no rows", code=2),
    "one row per task": Foreign(many_tasks_of_one_row()),
    "5000 x 3": Foreign(large(5000), names=NO_TASK),
    "300 000 rows": Foreign(large(300_000), suffix=".parquet", names=NO_TASK),
}
HOPELESS = ("constant target", "one row per task", "three rows", "words only", "dates and a word")
SAME_CONTENT = ("semicolons", "BOM", "gz", "parquet", "xlsx")  # of `base`; once read, nothing differs
HUGE = "300 000 rows"
CONTENT = [name for name, table in TABLES.items() if table.error is None and name not in SAME_CONTENT]


def predicted(table, model, path, folder):
    """Predictions of all rows of a table, every one a number."""
    encoding = table.options if "--encoding" in table.options else ()
    call("predict", model, path, "-o", folder / "p.csv", *encoding)
    found = pd.read_csv(folder / "p.csv")
    assert len(found) == len(table.frame)
    assert np.isfinite(found[["y", "y_std", "y_std_new"]]).all().all()
    return found


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if table.error is not None])
@pytest.mark.parametrize("command", ["fit", "compare"])
def test_refused(refused, command, name, tmp_path):
    """One line says what is wrong, and nothing is written."""
    table = TABLES[name]
    path, model = table.file(tmp_path), tmp_path / "m.glean"
    output = ["-o", model] if command == "fit" else []
    given = [command, path, *table.arguments(), *output]
    assert table.error in refused(table.code, *given)
    assert not model.exists()


@pytest.mark.usefixtures("held_kernels")
def test_written_in_another_way(tmp_path):
    """What fit learns from, and what predict says of it, are those of the plain table."""
    path, model = Foreign(base()).file(tmp_path), tmp_path / "m.glean"
    call("fit", path, "-y", "y", "-t", "t", "-o", model, "--folds", 0)
    plain = {"drop": [], "impute": False, "classify": None, "unlabeled": None}
    expected, said = read_problem(str(path), "y", "t", **plain), call("predict", model, path)[0]
    for number, name in enumerate(SAME_CONTENT):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = TABLES[name].file(folder)
        found = read_problem(str(path), "y", "t", **plain)
        pd.testing.assert_frame_equal(found.X, expected.X, rtol=1e-12)
        np.testing.assert_allclose(found.y, expected.y, rtol=1e-12, err_msg=name)
        assert found.tasks.tolist() == expected.tasks.tolist(), name
        assert call("predict", model, path)[0] == said, name


@pytest.mark.usefixtures("held_kernels")
@pytest.mark.parametrize("name", [name for name in CONTENT if name not in ("5000 x 3", HUGE)])
def test_fit_and_predict(name, tmp_path):
    """A model and predictions of every row, whatever is in the table."""
    table = TABLES[name]
    path, model = table.file(tmp_path), tmp_path / "m.glean"
    options = [o for o in table.arguments() if o not in ("--folds", "5")]
    printed, said = call("fit", path, *options, "-o", model, "--folds", 0, "--json")
    assert table.said is None or table.said in said
    assert json.loads(printed)["summary"]["rows"] == len(table.frame)
    found = predicted(table, model, path, tmp_path)
    if name not in HOPELESS:
        assert np.corrcoef(found["y"], table.frame["y"])[0, 1] > 0.9


@pytest.mark.slow
@pytest.mark.usefixtures("quick_rivals")
@pytest.mark.parametrize("name", CONTENT)
def test_fit_report_and_predict(name, tmp_path):
    """The same with kernels that are learnt, a held-out score and a report."""
    table = TABLES[name]
    path, model, page = table.file(tmp_path), tmp_path / "m.glean", tmp_path / "r.html"
    folds = ["--folds", 2] if len(table.frame) < 1000 and "--folds" not in table.options else []
    printed, said = call("fit", path, *table.arguments(), "-o", model, *folds, "--report", page, "--json")
    assert table.said is None or table.said in said
    facts = json.loads(printed)
    assert facts["summary"]["rows"] == len(table.frame)
    assert page.read_text().startswith("<!doctype html>")
    if name == HUGE:  # all of its rows would take minutes
        table = replace(table, frame=table.frame[:10_000])
        table.file(tmp_path)
    predicted(table, model, path, tmp_path)
    if "held_out" in facts["summary"] and name not in HOPELESS:
        assert facts["summary"]["held_out"]["r2"] > 0.8


@pytest.mark.usefixtures("held_kernels")
def test_ranges_are_of_known_cells(tmp_path):
    """The median that the served page starts from is not that of filled cells."""
    frame = base()
    frame.loc[4:, "x"] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = ["--target", "y", "--task", "t", "--impute", "--folds", 0, "-o", tmp_path / "m.glean"]
    found = json.loads(call("fit", tmp_path / "t.csv", *options, "--json")[0])["summary"]["ranges"]["x"]
    np.testing.assert_allclose(found, np.quantile(frame["x"][:4], [0.0, 0.5, 1.0]))


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTENT)
def test_compare(refused, name, tmp_path):
    """Errors of all models."""
    table = TABLES[name]
    folds = [] if name in ("5000 x 3", HUGE) else ["--folds", 2]
    given = ["compare", table.file(tmp_path), *table.arguments(), *folds, "--json"]
    if name == "one row per task":
        assert "every task has one row only" in refused(1, *given)
        return
    found = json.loads(call(*given)[0])
    assert found["best"] in found["not_worse"]
    assert any(model.startswith("gleangp") for model in {**found["models"], **found["same"]})
