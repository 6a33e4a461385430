"""`predict` and `update`: keys, intervals, unknown tasks, new rows; and what `inspect` says of a model."""

import json
from dataclasses import dataclass
from io import StringIO

import numpy as np
import pytest
from numpy.testing import assert_allclose

pd = pytest.importorskip("pandas")
pytest.importorskip("typer")
from rich.console import Console  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

from gleangp import HierarchicalGPRegressor, SparseGPClassifier, SparseGPRegressor, load, save  # noqa: E402
from gleangp.cli import _app  # noqa: E402
from gleangp.cli._describe import print_description  # noqa: E402
from gleangp.cli._encoding import TableEncoding  # noqa: E402
from gleangp.cli._table_model import TableModel  # noqa: E402
from gleangp.exceptions import LabelError, NewTaskWarning, TaskError  # noqa: E402


def call(*arguments, stdin=None):
    """Run a command; what it printed on standard output and error."""
    result = CliRunner().invoke(_app.app, [str(a) for a in arguments], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def make_frame(n=60, seed=0):
    """Three tasks of one input, with a key that has leading zeros."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"key": [f"{k:03d}" for k in range(n)], "t": np.resize(["a", "b", "c"], n)})
    frame["x"] = rng.uniform(0, 3, n)
    frame["y"] = 10 * np.sin(frame["x"]) + 5 * (frame["t"] == "b") + rng.standard_normal(n)
    frame["grade"] = np.where(frame["y"] > 6, "high", "low")
    return frame


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The table, a model of the numbers and a model of the classes."""
    folder = tmp_path_factory.mktemp("predict")
    table, numbers, classes = folder / "t.csv", folder / "numbers.glean", folder / "classes.glean"
    make_frame().to_csv(table, index=False)
    call("fit", table, "-y", "y", "-t", "t", "--drop", "grade", "--drop", "key", "-o", numbers, "--folds", 2)
    options = ("--drop", "y", "--drop", "key", "--folds", 0)
    call("fit", table, "-y", "grade", "-t", "t", *options, "-o", classes)
    return table, numbers, classes


@pytest.mark.parametrize("keep", ["key", "key, grade", "all"])
def test_keep(files, tmp_path, keep):
    """Kept columns stand before the predictions, as they were; a kept target keeps its name."""
    table, numbers, classes = files
    out = tmp_path / "o.csv"
    call("predict", numbers, table, "-o", out, "--keep", keep)
    found, frame = pd.read_csv(out, dtype={"key": str}), make_frame()
    assert found["key"].tolist() == frame["key"].tolist()
    before = {
        "key": ["t", "key"],
        "key, grade": ["t", "key", "grade"],
        "all": ["t", "key", "x", "y", "grade"],
    }
    name = "y_predicted" if keep == "all" else "y"
    assert list(found) == [*before[keep], name, "y_std", "y_std_new"]
    if keep == "all":
        assert_allclose(found["y"], frame["y"])
        assert np.corrcoef(found["y_predicted"], frame["y"])[0, 1] > 0.9
        call("predict", classes, table, "-o", out, "--keep", "grade", "--force")
        assert list(pd.read_csv(out)) == ["t", "grade", "grade_predicted", "p(high)", "p(low)"]


def test_keep_refuses(refused, files, tmp_path):
    """A column that is not there, or that the predictions have too, is one line with exit code 2."""
    table, numbers, _ = files
    line = refused(2, "predict", numbers, table, "--keep", "pupil")
    assert "--keep names the column 'pupil', but the table has: 'key', 't'" in line
    make_frame().assign(y_std=1).to_csv(tmp_path / "t.csv", index=False)
    line = refused(2, "predict", numbers, tmp_path / "t.csv", "--keep", "y_std")
    assert "the predictions have a column of that name" in line


def test_interval(refused, files, tmp_path):
    """Bounds are those of a new observation; a share is expected; classes have none."""
    table, numbers, classes = files
    out = tmp_path / "o.csv"
    call("predict", numbers, table, "-o", out, "--interval", 0.8)
    found = pd.read_csv(out)
    y = make_frame()["y"]
    assert 0.6 < ((found["y_lower"] < y) & (y < found["y_upper"])).mean() < 0.97
    assert "such as 0.9" in refused(2, "predict", numbers, table, "--interval", 90)
    assert "is for numbers" in refused(2, "predict", classes, table, "--interval", 0.9)


def test_interval_of_the_estimator():
    """An estimator with `predict_interval` gives the bounds itself."""

    class Known(SparseGPRegressor):
        """Bounds that no normal distribution has."""

        def predict_interval(self, X, coverage=0.95, tasks=None):
            """One below the coverage and two above it."""
            return np.column_stack([np.full(len(X), coverage - 1), np.full(len(X), coverage + 2)])

    frame = make_frame()
    model = Known(optimizer=None).fit(frame[["x"]], frame["y"])
    found = TableModel(model, TableEncoding("y", None), {}).predict(frame, interval=0.5)
    assert set(found["y_lower"]) == {-0.5}
    assert set(found["y_upper"]) == {2.5}


def test_unknown_tasks_are_counted(files, tmp_path):
    """Rows of unknown tasks, or of none, are predicted alike, counted and named; --strict refuses them."""
    _, numbers, classes = files
    frame = make_frame().assign(x=1.5)
    frame.loc[:9, "t"] = ["new", "other", *["new"] * 7, None]
    frame.to_csv(tmp_path / "t.csv", index=False)
    out, said = call("predict", numbers, tmp_path / "t.csv")
    (line,) = said.splitlines()
    assert "10 of 60 rows are of 3 tasks that the model does not know: '', 'new', 'other'." in line
    found = pd.read_csv(StringIO(out))
    assert found["y"][:10].nunique() == 1
    assert (found["y_std"][:10] > found["y_std"][10:].max()).all()
    _, said = call("predict", classes, tmp_path / "t.csv")
    assert "10 of 60 rows" in said
    with pytest.raises(TaskError, match="'t' has 1 rows without a task"):
        call("predict", numbers, tmp_path / "t.csv", "--strict")
    frame.fillna({"t": "new"}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(TaskError, match=r"does not know the task 'new' \(2 unknown in all\)"):
        call("predict", numbers, tmp_path / "t.csv", "--strict")


def test_warnings_of_the_encoding_are_said(files, monkeypatch):
    """What the encoding warns of is one line at the end; --strict makes it an error."""
    import warnings

    table, numbers, _ = files
    plain = TableModel.inputs

    def inputs(self, frame, **options):
        """As before, with a warning."""
        warnings.warn("2 cells of 'kind' were not seen in fit.", UserWarning, stacklevel=2)
        return plain(self, frame, **options)

    monkeypatch.setattr(TableModel, "inputs", inputs)
    assert call("predict", numbers, table)[1] == "gleangp: 2 cells of 'kind' were not seen in fit.\n"
    with pytest.raises(ValueError, match="2 cells of 'kind'"):
        call("predict", numbers, table, "--strict")


def test_update(files, tmp_path):
    """Rows of known tasks are absorbed and new tasks are added, in one step; the model file is replaced."""
    _, numbers, _ = files
    model, table = tmp_path / "m.glean", tmp_path / "more.csv"
    model.write_bytes(numbers.read_bytes())
    more = make_frame(40, seed=1).replace({"t": {"c": "d"}}).assign(x=lambda f: f["x"] + 3)
    more["y"] = np.where(more["t"] == "d", 40.0, 20.0)
    more.loc[0, "y"] = np.nan
    more.to_csv(table, index=False)
    with pytest.warns(NewTaskWarning):
        before = load(numbers).predict(more)["y"]
    out, said = call("update", model, table)
    assert f"absorbed 27 rows, added d: {model} now has 4 tasks" in out
    assert "1 of 27 rows have no target and are left out" in said
    after = load(model).predict(more)["y"]
    error = np.abs(after - more["y"].fillna(20.0)).mean()
    assert error < 0.5 * np.abs(before - more["y"].fillna(20.0)).mean()
    assert load(model).summary["rows_added"] == 40
    assert "60 rows (and 40 that were added since), 4 tasks" in " ".join(call("inspect", model)[0].split())


@pytest.mark.usefixtures("held_kernels")
def test_update_fails_whole(files, tmp_path):
    """A row that cannot be learnt leaves the model file as it was."""
    classes = files[2]
    model, table = tmp_path / "m.glean", tmp_path / "more.csv"
    model.write_bytes(classes.read_bytes())
    make_frame(9).assign(grade=["low"] * 8 + ["middle"]).to_csv(table, index=False)
    with pytest.raises(LabelError, match="middle"):
        call("update", model, table)
    assert model.read_bytes() == classes.read_bytes()
    frame = make_frame(30)
    frame.to_csv(table, index=False)
    call(
        "fit", table, "-y", "y", "-t", "t", "--drop", "grade", "-m", "hierarchical", "--folds", 0, "-o", model
    )
    with pytest.raises(ValueError, match="HierarchicalGPRegressor cannot absorb rows of tasks that it knows"):
        call("update", model, table)


def test_rows_without_the_target_column_are_refused(files, tmp_path):
    """Numbers and classes, known and new tasks: the error names the column."""
    table = tmp_path / "more.csv"
    make_frame(9).drop(columns=["y", "grade"]).assign(t="new").to_csv(table, index=False)
    for model, target in zip(files[1:], ("y", "grade"), strict=True):
        for command in ("update", "add-task"):
            with pytest.raises(LabelError, match=f"no column '{target}', which holds the target"):
                call(command, model, table)


@pytest.mark.usefixtures("held_kernels")
def test_update_without_tasks(tmp_path):
    """A model without tasks absorbs rows too."""
    table, model = tmp_path / "t.csv", tmp_path / "m.glean"
    make_frame()[["x", "y"]].to_csv(table, index=False)
    call("fit", table, "-y", "y", "--folds", 0, "-o", model)
    assert call("update", model, table)[0].startswith("absorbed 60 rows")
    assert load(model).known_tasks == []


def test_inspect_says_what_people_ask(files):
    """Sharing and its reason, noise in units, the score beside a baseline; the kernel with --verbose."""
    _, numbers, _ = files
    plain = " ".join(call("inspect", numbers)[0].split())
    for words in (
        "learnt from 60 rows, 3 tasks",
        "tasks share",
        "noise standard deviation",
        "(units of 'y')",
    ):
        assert words in plain
    assert "held-out RMSE" in plain
    assert "simple model" in plain
    assert "kernel_" not in plain
    assert "RBF(" not in plain
    verbose = " ".join(call("inspect", numbers, "--verbose")[0].split())
    assert "RBF(" in verbose or "Matern(" in verbose
    assert "log evidence" in verbose
    facts = json.loads(call("inspect", numbers, "--json")[0])
    low, middle, high = facts["noise_std"]
    assert 0.5 < low <= middle <= high < 2.0  # the noise was drawn with a deviation of one
    score = facts["summary"]["held_out"]
    assert 0 < score["std_error"] < score["rmse"]
    assert score["baseline"]["behind"] == pytest.approx(score["baseline"]["error"] - score["rmse"])


@pytest.mark.parametrize("task", [None, "t"])
def test_inspect_reads_models_of_frames(tmp_path, task):
    """Rows and noise are known of a model that was fitted in Python to categories and dates."""
    frame = make_frame().assign(day=pd.Timestamp("2024-01-30"), kind="a")
    frame["day"] += pd.to_timedelta(np.arange(len(frame)), unit="D")
    frame.loc[::2, "kind"] = "b"
    model = SparseGPRegressor(noise_variance=0.05, optimizer=None, task=task)
    if task is None:
        model.fit(frame[["x", "day", "kind"]], frame["y"], tasks=frame["t"])
    else:
        model.fit(frame[["t", "x", "day", "kind"]], frame["y"])
    save(model, tmp_path / "m.glean")
    facts = json.loads(call("inspect", tmp_path / "m.glean", "--json")[0])
    assert facts["summary"]["rows"] == len(frame)
    assert 0.3 < facts["noise_std"][1] < 2.0


@pytest.mark.parametrize("task", [None, "t"], ids=["argument", "column"])
@pytest.mark.parametrize("kind", [SparseGPRegressor, SparseGPClassifier, HierarchicalGPRegressor])
def test_inspect_reads_models_from_python(tmp_path, kind, task):
    """What `gleangp.save` wrote is described without the columns of a table."""
    frame = make_frame()
    y = frame["grade"] if kind is SparseGPClassifier else frame["y"]
    model = kind(optimizer=None, task=task)
    if kind is SparseGPRegressor:
        model.set_params(noise_variance=0.05)  # of targets with the deviation one
    if task is None:
        model.fit(frame[["x"]].to_numpy(), y, tasks=frame["t"])
    else:
        model.fit(frame[["t", "x"]], y)
    save(model, tmp_path / "m.glean")
    facts = json.loads(call("inspect", tmp_path / "m.glean", "--json")[0])
    assert facts["estimator"] == kind.__name__
    assert facts["tasks"] == ["a", "b", "c"]
    assert facts["inputs"] == (["column 0"] if task is None else ["x"])
    text = call("inspect", tmp_path / "m.glean")[0]
    assert "3 tasks" in text
    if kind is SparseGPRegressor:
        low, middle, high = facts["noise_std"]
        assert 0.5 < low <= middle <= high < 2.0
        assert "standard deviation" in text


@dataclass(frozen=True)
class Decided:
    """As a decision of a fit."""

    what: str
    chosen: str
    reason: str

    def __str__(self):
        return f"{self.what}: {self.chosen}. {self.reason}"


def test_inspect_uses_what_the_estimator_reports(monkeypatch):
    """`decisions_` and `variance_shares_` are printed where an estimator has them."""
    frame = make_frame()
    model = SparseGPRegressor(optimizer=None).fit(frame[["x"]].to_numpy(), frame["y"], tasks=frame["t"])
    model.decisions_ = [Decided("coupling", "function", "most evidence"), Decided("draws", "16", "few rows")]
    shares = {"common": 0.6, "task": 0.3, "noise": 0.1}
    monkeypatch.setattr(SparseGPRegressor, "variance_shares_", shares)
    shown = {}
    for verbose in (False, True):
        console = Console(width=200, file=StringIO())
        print_description(model, console, verbose=verbose)
        shown[verbose] = console.file.getvalue()
    assert "deviates from it by a function of its own (most evidence)" in shown[False]
    assert "common 60%, task 30%, noise 10%" in shown[False]
    assert "draws: 16. few rows" not in shown[False]
    assert "draws: 16. few rows" in shown[True]


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_suggest_writes_the_rows_to_label_next(files, tmp_path, kind):
    """The rows of the pool come in the order of the estimator's choice, with their place in the table."""
    path = files[1 if kind == "numbers" else 2]
    model = load(path)
    pool = make_frame(40, seed=5).drop(columns=["y", "grade"])
    pool.to_csv(tmp_path / "pool.csv", index=False)
    _, said = call("suggest", path, tmp_path / "pool.csv", "-n", 4, "-o", tmp_path / "out.csv")
    found = pd.read_csv(tmp_path / "out.csv", dtype={"key": str})
    X, tasks = model.inputs(pool), model.encoding.tasks(pool)
    assert (found["row"] - 1).tolist() == model.estimator.suggest(X, 4, tasks=tasks).tolist()
    assert found["key"].tolist() == pool["key"].iloc[found["row"] - 1].tolist()
    assert "labels are needed most in" in said
    assert "rows are of" not in said
    pool.assign(t="elsewhere").to_csv(tmp_path / "new.csv", index=False)
    _, said = call("suggest", path, tmp_path / "new.csv", "-n", 1, "-o", tmp_path / "one.csv")
    assert "40 of 40 rows are of one task that the model does not know: 'elsewhere'" in said
    assert "add_task" not in said  # the remedy is one of the command line
