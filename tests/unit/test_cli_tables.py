"""The commands on tables, run in process: what they write, and how they refuse."""

import io
import json
import re

import numpy as np
import pytest
from numpy.testing import assert_allclose

pd = pytest.importorskip("pandas")
pytest.importorskip("typer")

from gleangp import load  # noqa: E402
from gleangp.cli._encoding import TableEncoding, learn_encoding  # noqa: E402
from gleangp.cli._models import PerTask, TaskAverage, rivals  # noqa: E402
from gleangp.cli._problem import Problem  # noqa: E402
from gleangp.cli._tables import read_chunks, read_table, table_writer  # noqa: E402
from gleangp.data.tables import encode_columns  # noqa: E402
from gleangp.exceptions import ModelFileError, TaskError  # noqa: E402
from gleangp.report.held_out import task_folds  # noqa: E402
from tests.unit.test_cli_predict import call  # noqa: E402


@pytest.fixture(scope="module")
def frame():
    """Five schools, two numbers, a category, a boolean; a score and a grade to predict."""
    rng = np.random.default_rng(0)
    n = 100
    frame = pd.DataFrame(
        {
            "school": np.tile(["01", "02", "03", "04", "<script>"], 20),
            "hours": rng.uniform(0, 6, n),
            "age": rng.integers(10, 15, n),
            "kind": rng.choice(["day", "night"], n),
            "tutor": rng.choice([True, False], n),
        }
    )
    frame["score"] = np.sin(frame["hours"]) + (frame["kind"] == "day") + 0.1 * rng.standard_normal(n)
    frame["grade"] = np.where(frame["score"] > 0.5, "pass", "fail")
    return frame


@pytest.fixture(scope="module")
def fitted(frame, tmp_path_factory, quick_rivals):
    """A model file of the scores, with a report beside it, and what fit printed."""
    folder = tmp_path_factory.mktemp("cli")
    frame.to_csv(folder / "train.csv", index=False)
    model = folder / "model.glean"
    out = call(
        "fit", folder / "train.csv", "--target", "score", "--task", "school", "--drop", "grade",
        "-o", model, "--json", "--folds", "2", "--report", folder / "report.html",
    )[0]  # fmt: skip
    return model, json.loads(out)


def test_a_word_among_numbers_is_said(frame, tmp_path):
    """A column of numbers with a word is categories; `fit` names the cell, once."""
    words = frame.assign(age=frame["age"].astype(str).where(frame.index != 7, "?"))
    words.to_csv(tmp_path / "t.csv", index=False)
    fit = (
        "fit",
        tmp_path / "t.csv",
        "-y",
        "score",
        "--drop",
        "grade",
        "--folds",
        0,
        "-o",
        tmp_path / "m.glean",
    )
    said = call(*fit)[1]
    assert said.count("column 'age' has '?' in row 7, and most other values are numbers") == 1


def test_fit_and_predict(fitted, frame, tmp_path):
    """Held-out and predicted errors are near the noise; text tasks keep their zeros."""
    model, facts = fitted
    assert facts["tasks"] == ["01", "02", "03", "04", "<script>"]
    assert facts["inputs"] == ["hours", "age", "kind", "tutor"]
    assert facts["summary"]["held_out"]["rmse"] < 0.4
    for scales in re.findall(r"length_scale=\[(.*?)\]", facts["kernel"]):  # a category has one
        assert scales.split(", ")[2] == scales.split(", ")[3]
    for suffix in ("csv", "parquet"):  # how the others are written and read is asked below
        new, out = tmp_path / f"new.{suffix}", tmp_path / f"out.{suffix}"
        with table_writer(str(new)) as write:
            write(frame.drop(columns=["score", "grade"])[::-1])
        call("predict", model, new, "-o", out)
        predicted = read_table(str(out), ("school",))
        assert list(predicted) == ["school", "score", "score_std", "score_std_new"]
        assert predicted["school"].tolist() == frame["school"].tolist()[::-1]
        error = predicted["score"].to_numpy() - frame["score"].to_numpy()[::-1]
        assert np.sqrt(np.mean(error**2)) < 0.2
        assert (predicted["score_std"] > 0).all()
    estimator = load(model).estimator
    X = load(model).inputs(frame)[::-1]
    expected = estimator.predict(X, tasks=frame["school"][::-1], return_std=True, include_noise=True)[1]
    assert_allclose(predicted["score_std_new"], expected, rtol=1e-6)
    assert (predicted["score_std_new"] > predicted["score_std"]).all()


def test_predict_in_chunks_is_the_same(fitted, frame, tmp_path, monkeypatch):
    """Chunks of thirty rows give what one chunk gives, up to rounding; standard input and output work."""
    model, _ = fitted
    text = frame.to_csv(index=False)
    whole = call("predict", model, "-", stdin=text)[0]
    from gleangp.cli import _tables, _work

    monkeypatch.setattr(
        _work, "read_chunks", lambda path, text, encoding: _tables.read_chunks(path, 30, text, encoding)
    )
    parts = call("predict", model, "-", stdin=text)[0]
    assert parts.count("\n") == whole.count("\n") == 101
    one, other = (pd.read_csv(io.StringIO(printed), dtype={"school": str}) for printed in (whole, parts))
    # Matrix products of other shapes round otherwise, which can show in the last of ten digits.
    pd.testing.assert_frame_equal(one, other, rtol=1e-8)


def test_classification(frame, tmp_path):
    """Text targets are classes; probabilities sum to one; unlabeled rows are learnt from if that helps."""
    table, model, out = tmp_path / "t.csv", tmp_path / "m.glean", tmp_path / "o.csv"
    part = frame.drop(columns="score").copy()
    part.loc[:4, "grade"] = "?"
    part.to_csv(table, index=False)
    options = ("-t", "school", "--unlabeled", "?", "--json", "--folds", 2)
    facts = json.loads(call("fit", table, "-y", "grade", "-o", model, *options)[0])
    assert facts["classes"] == ["fail", "pass"]
    errors = facts["summary"]["unlabelled_rows"]
    assert set(errors) == {"learnt from", "left out"}
    assert facts["summary"]["held_out"]["error"] == min(errors.values())
    assert facts["summary"]["held_out"]["rows"] == 95
    assert facts["summary"]["held_out"]["error"] < facts["summary"]["held_out"]["error_of_most_frequent"]
    call("predict", model, table, "-o", out)
    predicted = pd.read_csv(out)
    np.testing.assert_allclose(predicted["p(fail)"] + predicted["p(pass)"], 1.0, rtol=1e-6)
    assert (predicted["grade"] == frame["grade"]).mean() > 0.9
    assert "fail, pass" in call("inspect", model)[0]


def test_new_tasks(fitted, frame, tmp_path):
    """Unknown tasks are predicted from the prior, refused with the known ones by --strict, or taught."""
    model, _ = fitted
    few = frame[:8].assign(school="new")
    table, out = tmp_path / "few.csv", tmp_path / "out.csv"
    few.to_csv(table, index=False)
    with pytest.raises(TaskError, match=r"does not know the task 'new'.*'01', '02'"):
        call("predict", model, table, "-o", out, "--strict")
    assert not out.exists()
    assert list(tmp_path.iterdir()) == [table]
    call("predict", model, table, "-o", out)
    before = pd.read_csv(out)
    call("add-task", model, table, "-o", tmp_path / "more.glean")
    call("predict", tmp_path / "more.glean", table, "-o", out, "--force")
    after = pd.read_csv(out)
    assert (after["score_std"] < before["score_std"]).all()
    assert np.abs(after["score"] - few["score"]).mean() < np.abs(before["score"] - few["score"]).mean()
    with pytest.raises(TaskError, match="knows the task 'new' already"):
        call("add-task", tmp_path / "more.glean", table)


@pytest.mark.usefixtures("quick_rivals")
@pytest.mark.parametrize("name", ["hierarchical", pytest.param("latent", marks=pytest.mark.slow)])
def test_other_models(frame, tmp_path, name):
    """The other models learn, are kept with their encoding, and predict with a deviation."""
    table, model = tmp_path / "t.csv", tmp_path / "m.glean"
    frame.drop(columns="grade").to_csv(table, index=False)
    out = call("fit", table, "-y", "score", "-t", "school", "-m", name, "-o", model, "--folds", 0, "--json")[
        0
    ]
    assert name[:6].lower() in json.loads(out)["estimator"].lower()
    call("predict", model, table, "-o", tmp_path / "o.csv")
    predicted = pd.read_csv(tmp_path / "o.csv")
    assert np.corrcoef(predicted["score"], frame["score"])[0, 1] > 0.8
    assert (predicted["score_std"] > 0).all()
    call("inspect", model)
    call("fit", table, "-y", "score", "-m", name, "-o", model, "--folds", 0, "--report", tmp_path / "r.html")
    assert "How good it is" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_model_names(frame, tmp_path):
    """A model that is not there, or not for classes, is refused with those that are."""
    table = tmp_path / "t.csv"
    frame.to_csv(table, index=False)
    with pytest.raises(ValueError, match=r"'deep' is not known; use one of sparse, coupled, hier"):
        call("fit", table, "-y", "score", "-m", "deep", "-o", tmp_path / "m.glean")
    with pytest.raises(ValueError, match=r"for numbers, and the target holds classes"):
        call("fit", table, "-y", "grade", "-m", "hierarchical", "-o", tmp_path / "m.glean")


def test_report(fitted):
    """`--report` writes the HTML beside the model."""
    text = fitted[0].with_name("report.html").read_text(encoding="utf-8")
    assert "categories: day, " in text
    assert "&lt;script&gt;" in text
    assert text.count("<script") == 1


def test_model_file_in_python(fitted, frame):
    """The file of the command line loads in Python and predicts frames."""
    model, _ = fitted
    predicted = load(model).predict(frame)
    assert np.sqrt(np.mean((predicted["score"] - frame["score"]) ** 2)) < 0.2


def test_inspect_refuses_others(tmp_path):
    """A file that is no model is a ModelFileError."""
    path = tmp_path / "x.glean"
    path.write_bytes(b"no")
    with pytest.raises(ModelFileError, match=r"'x\.glean' as a model"):
        call("inspect", path)


@pytest.mark.usefixtures("held_kernels")
def test_missing_values(frame, tmp_path):
    """Missing inputs are refused with the way out; with --impute they are filled, also when predicting."""
    table, model = tmp_path / "t.csv", tmp_path / "m.glean"
    gaps = frame.copy()
    gaps.loc[3, "hours"] = np.nan
    gaps.loc[4, "kind"] = None
    gaps.to_csv(table, index=False)
    arguments = ("fit", table, "-y", "score", "-t", "school", "--drop", "grade", "-o", model, "--folds", 0)
    with pytest.raises(ValueError, match=r"'hours' has 1 missing values. Fill them with --impute"):
        call(*arguments)
    facts = json.loads(call(*arguments, "--impute", "--json")[0])
    assert facts["inputs"] == ["hours", "age", "kind", "tutor"]
    out = call("predict", model, table)[0]
    assert "nan" not in out.lower()


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, ["-y", "nothing"], r"--target names the column 'nothing'.*'school', 'hours'"),
        ({}, ["-y", "score", "--drop", "x"], r"names the column 'x'"),
        ({"code": [f"r{i}" for i in range(100)]}, ["-y", "score"], r"text with 100 different values"),
        ({"void": [None] * 100}, ["-y", "score"], r"'void' is empty.*--drop void"),
        ({"hours": np.inf}, ["-y", "score"], r"'hours' has infinite values"),
        ({"score": [None] * 100}, ["-y", "score", "--regress"], r"no row has a target"),
        ({"grade": [None] * 100}, ["-y", "grade"], r"no row has a target"),
    ],
    ids=["target", "drop", "identifier", "empty", "infinite", "no target", "no label"],
)
def test_bad_tables(frame, tmp_path, change, options, message):
    """Each kind of unusable table is refused with what to do, and no model is written."""
    table = tmp_path / "t.csv"
    frame.assign(**change).to_csv(table, index=False)
    with pytest.raises(ValueError, match=message):
        call("fit", table, *options, "-t", "school", "-o", tmp_path / "m.glean")
    assert list(tmp_path.iterdir()) == [table]


def test_unknown_values_when_predicting(fitted, frame, tmp_path):
    """A new category or a missing column is refused with what was expected."""
    model, _ = fitted
    table = tmp_path / "t.csv"
    frame.assign(kind="dusk").to_csv(table, index=False)
    with pytest.raises(ValueError, match=r"'kind' has the value 'dusk'.*Known: 'day', 'night'"):
        call("predict", model, table, "--strict")
    frame.drop(columns="age").to_csv(table, index=False)
    with pytest.raises(ValueError, match=r"no column 'age'"):
        call("predict", model, table)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        call("predict", model, tmp_path / "gone.csv")
    with pytest.raises(ValueError, match="cannot tell the format"):
        call("predict", model, table, "-o", tmp_path / "out.xyz")


def test_task_folds():
    """Every task of at least two rows is in every fold's training part; single rows are never held out."""
    tasks = np.array(["a"] * 7 + ["b"] + ["c"] * 2)
    fold = task_folds(tasks, 10, 3, np.random.default_rng(0))
    assert fold[7] == -1
    for number in range(3):
        assert set(tasks[fold != number]) == {"a", "b", "c"}
    assert sorted(np.bincount(fold[:7])) == [2, 2, 3]


def test_rivals_learn_what_they_should():
    """Averages are those of the task; models per task see their own rows only."""
    X = np.arange(8.0)[:, None]
    y = np.where(np.arange(8) < 4, 1.0, X[:, 0])
    tasks = np.repeat(["a", "b"], 4)
    average = TaskAverage().fit(X, y, tasks=tasks)
    np.testing.assert_allclose(average.predict(X[:1], tasks=["b"]), y[4:].mean())
    most = TaskAverage(classify=True).fit(X, np.array(list("xxyxyyxy")), tasks=tasks)
    assert most.predict(X[:2], tasks=["a", "b"]).tolist() == ["x", "y"]
    problem = Problem(TableEncoding("y", "t"), X, y, np.ones(8, dtype=bool), tasks, classify=False)
    linear = rivals(problem, seed=0)["linear model + task offset"].estimator.estimator
    alone = PerTask(linear).fit(X, y, tasks=tasks)
    np.testing.assert_allclose(
        alone.predict(np.array([[6.0], [6.0]]), tasks=["a", "b"]), [1.0, 6.0], atol=0.05
    )


def test_encoding_of_words():
    """yes and no are a boolean; numbers in text are categories and not guessed at."""
    frame = pd.DataFrame({"y": [1.0, 2.0], "b": ["yes", "no"], "c": ["1", "x"]})
    encoding = learn_encoding(frame, "y", None, drop=[], impute=False)
    assert [c.kind for c in encoding.columns] == ["boolean", "category"]
    np.testing.assert_array_equal(encode_columns(encoding.columns, frame), [[1, 1, 0], [0, 0, 1]])


@pytest.mark.parametrize(
    "text",
    [
        'a;b;"c, d"\n1,5;x;0\n-2,25;y;0\n',
        "a;b\n1.5;x\n-2.25;y\n",
        "a b\n1.5 x\n-2.25   y\n",
        "a\tb\n1.5\tx\n-2.25\ty\n",
    ],
    ids=["decimal comma", "semicolon", "blanks", "tabs"],
)
def test_other_separators_are_recognised(tmp_path, text):
    """A .csv whose header has no comma is read by what it has instead."""
    (tmp_path / "t.csv").write_text(text)
    frame = read_table(str(tmp_path / "t.csv"))
    assert frame["a"].tolist() == [1.5, -2.25]
    assert frame["b"].tolist() == ["x", "y"]


def test_a_column_that_counts_rows_is_no_input():
    """Without a heading and different in every row: an index that R or pandas wrote."""
    frame = pd.DataFrame({"Unnamed: 0": [1, 2, 3], "x": [0.1, 0.2, 0.3], "y": [1.0, 2.0, 3.0]})
    given = {"target": "y", "task": None, "drop": [], "impute": False}
    assert [c.name for c in learn_encoding(frame, **given).columns] == ["x"]
    frame["Unnamed: 0"] = [1, 1, 2]
    assert [c.name for c in learn_encoding(frame, **given).columns] == ["Unnamed: 0", "x"]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "csv.gz", "parquet", "feather"])
def test_tables_are_written_and_read_in_parts(tmp_path, suffix):
    """Frames that are appended one by one come back as one table, and again in parts."""
    path = str(tmp_path / f"t.{suffix}")
    with table_writer(path) as write:
        for start in (0, 3, 6):
            write(pd.DataFrame({"n": range(start, start + 3), "word": [f"w{start}", None, "x"]}))
    assert read_table(path)["n"].tolist() == list(range(9))
    parts = list(read_chunks(path, 3))
    assert [len(part) for part in parts] == [3, 3, 3]
    assert parts[2]["word"].tolist()[0] == "w6"

    def killed_while_writing():
        with table_writer(path) as write:
            write(pd.DataFrame({"n": [99], "word": ["y"]}))
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        killed_while_writing()
    assert read_table(path)["n"].tolist() == list(range(9))
    assert list(tmp_path.iterdir()) == [tmp_path / f"t.{suffix}"]
