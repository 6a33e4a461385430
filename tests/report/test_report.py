"""The report: self-contained, escaped, and its numbers are those of the model."""

import base64
import hashlib
import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import kstest, poisson
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from gleangp import SparseGPClassifier, SparseGPOrdinal, SparseGPRegressor, report
from gleangp._version import __version__
from gleangp.exceptions import LabelError, TaskError
from gleangp.report import HeldOutRows
from gleangp.report.facts import Calibration, gather
from gleangp.report.held_out import increase, normal_scores, twin_of
from gleangp.report.inputs import read_inputs
from gleangp.report.page import advice, render
from gleangp.report.words import in_words

pytestmark = pytest.mark.usefixtures("quick_rivals")
EMPTY = ("meta", "link", "input", "line", "circle", "polyline", "polygon", "path")
EVIL = "<script>alert('x')</script>\"&"


class Tags(HTMLParser):
    """Checks that tags nest and collects what would load something."""

    def __init__(self):
        super().__init__()
        self.open, self.loads, self.scripts = [], [], 0

    def handle_starttag(self, tag, attrs):
        """Note the tag and what it points to."""
        self.scripts += tag == "script"
        self.loads += [v for k, v in attrs if k in ("src", "href") and not v.startswith(("data:", "#"))]
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        """Close the innermost tag."""
        if tag not in EMPTY:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def data():
    """Five tasks, one with a name that is code and one with two rows only."""
    rng = np.random.default_rng(0)
    tasks = np.array(["a", "b", "c", EVIL] * 20 + ["tiny"] * 2)
    X = rng.uniform(0, 6, (len(tasks), 2))
    y = np.sin(X[:, 0]) + (tasks == "b") + 0.1 * rng.standard_normal(len(tasks))
    return X, y, tasks


def parse(text):
    """The parsed page, of which every tag is closed."""
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    return tags


def test_regression_report(data, tmp_path):
    """One file that loads nothing, with every task in its table and no tag from the data."""
    X, y, tasks = data
    model = SparseGPRegressor(optimizer=None, random_state=0).fit(X, y, tasks=tasks)
    path = tmp_path / "r.html"
    report.write(model, X, y, tasks, path, feature_names=["hours", EVIL], target_name=EVIL)
    text = path.read_text(encoding="utf-8")
    tags = parse(text)
    assert tags.scripts == 1
    assert tags.loads == []
    assert not re.search(r"https?:", text)
    assert "alert('x')" not in re.sub(r"&#x27;|&quot;", "", text)
    table = text[text.index('<table id="tasks"') : text.index('data-csv="tasks"')]
    assert table.count("<tr>") == 1 + 5
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("n_classes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_classification_report(data, tmp_path, n_classes):
    """Classes work, with and without tasks."""
    X, y, tasks = data
    labels = np.digitize(y, [0.3, 1.0][: n_classes - 1])
    for given in (tasks, None):
        options = {} if given is None else {"tasks": given}
        model = SparseGPClassifier(n_active=20, optimizer=None, random_state=0).fit(X, labels, **options)
        report.write(model, X, labels, given, tmp_path / "c.html")
        tags = parse((tmp_path / "c.html").read_text(encoding="utf-8"))
        assert (tags.scripts, tags.loads) == (1, [])


@pytest.mark.parametrize("task", ["school", 1], ids=["of a frame", "of an array"])
def test_tasks_in_a_column(data, tmp_path, task):
    """The page is that of the same model with `tasks=`, and the model stays as it was."""
    pd = pytest.importorskip("pandas")
    X, y, tasks = data
    pages, path = [], tmp_path / "r.html"
    rows = pd.DataFrame({"hours": X[:, 0], "school": tasks, "age": X[:, 1]})
    if task == "school":
        apart = rows[["hours", "age"]]
    else:
        rows, apart = rows.to_numpy(object), X
    for column, given, of_rows in ((task, rows, None), (None, apart, tasks)):
        model = SparseGPRegressor(task=column, optimizer=None, random_state=0).fit(given, y, of_rows)
        report.write(model, given, y, of_rows, path)
        model.predict(given, of_rows)
        pages.append(re.sub(r"\d\d:\d\d", "", path.read_text(encoding="utf-8")))
    assert pages[0] == pages[1]
    with pytest.raises(TaskError, match="given twice"):
        report.write(SparseGPRegressor(task=task, optimizer=None).fit(rows, y), rows, y, tasks, path)


def test_several_outputs_are_refused(data, tmp_path):
    """The error says how to make tasks of them."""
    X, y, _ = data
    Y = np.column_stack([y, -y])
    with pytest.raises(LabelError, match=r"y has shape \(82, 2\).*stack_outputs"):
        report.write(SparseGPRegressor(optimizer=None).fit(X, Y), X, Y, None, tmp_path / "r.html")


@pytest.fixture(scope="module")
def model(data):
    """Of the five tasks, with a kernel that is near the learnt one."""
    X, y, tasks = data
    fixed = {"optimizer": None, "noise_variance": 0.02}
    model = SparseGPRegressor(RBF([1.5, 30.0]), coupling="function", random_state=0, **fixed)
    return model.fit(X, y, tasks=tasks)


@pytest.fixture(scope="module")
def facts(data, model, quick_rivals):
    """Of that model."""
    X, y, tasks = data
    return gather(model, X, y, tasks, feature_names=["hours", "nothing"], target_name="y")


def test_facts(data, facts):
    """Every row is held out once; the model beats simpler ones; active points are the model's."""
    X, y, _ = data
    assert sorted(facts.held.rows) == list(range(len(X)))
    error = np.sqrt(np.mean((y[facts.held.rows] - facts.held.predicted) ** 2))
    assert facts.held.error == pytest.approx(error)
    assert [r.name for r in facts.rivals] == [
        "mean of the task",
        "same kind of model, tasks ignored",
        "one model for each task alone",
    ]
    assert all(r.is_worse for r in facts.rivals)
    assert [t.rows for t in facts.tasks] == [20, 20, 20, 20, 2]
    assert sum(t.held_out for t in facts.tasks) == len(X)
    assert facts.n_active == sum(t.active for t in facts.tasks)


def test_importance_is_of_inputs_that_matter(facts):
    """Permuting an input without effect does not change the error beyond its standard error."""
    first, second = facts.inputs
    assert (first.name, second.name) == ("hours", "nothing")
    assert first.importance > 10 * first.std_error
    assert abs(second.importance) < 3 * second.std_error
    assert np.ptp(first.mean) > 10 * np.ptp(second.mean)


def test_curves_are_the_model_at_the_medians(data, model, facts):
    """The curve of a task is what the model predicts there; dots are data without the other inputs' part."""
    X, y, tasks = data
    code = [t.name for t in facts.tasks].index("b")
    curve = facts.curves[code]
    rows = tasks == "b"
    middle = np.median(X[rows, 1])
    grid = np.column_stack([curve.x, np.full(len(curve.x), middle)])
    np.testing.assert_allclose(curve.mean, model.predict(grid, tasks=["b"] * len(grid)))
    np.testing.assert_allclose(curve.band, model.predict_interval(grid, tasks=["b"] * len(grid)))
    assert curve.others == f"nothing = {middle:.3g}"
    moved = np.column_stack([X[rows, 0], np.full(rows.sum(), middle)])
    change = model.predict(moved, tasks=tasks[rows]) - model.predict(X[rows], tasks=tasks[rows])
    np.testing.assert_allclose(np.sort(curve.data_y), np.sort(y[rows] + change))


def test_categories_are_one_input(data):
    """A category of a frame is permuted as one, and its effect has the categories' names."""
    pd = pytest.importorskip("pandas")
    X, y, tasks = data
    kind = np.arange(len(X)) % 3
    both = pd.DataFrame({"hours": X[:, 0], "kind": np.array(list("xyz"))[kind]})
    model = SparseGPRegressor(optimizer=None, random_state=0).fit(both, y + 2 * (kind == 1), tasks=tasks)
    found = gather(model, both, y + 2 * (kind == 1), tasks)
    (effect,) = (e for e in found.inputs if e.name == "kind")
    assert effect.column.categories == ("x", "y", "z")
    assert effect.mean[1] - effect.mean[0] == pytest.approx(2, abs=0.4)
    assert effect.importance > 2 * effect.std_error
    most = np.bincount(kind[tasks == found.tasks[0].name]).argmax()
    assert found.curves[0].others == f"kind = {'xyz'[most]}"


def test_given_folds_are_used(data, model):
    """With predictions of held-out rows given, no other model is fitted, and their error is on the page."""
    X, y, tasks = data
    rows = np.arange(0, 80, 7)
    held = HeldOutRows(rows, np.zeros(len(rows), int), y[rows] + 1, np.full(len(rows), 0.1), 1.0, np.nan, {})
    found = gather(model, X, y, tasks, held_out=held)
    assert found.held is held
    assert all(r.is_better for r in found.rivals if "task" in r.name and r.name != "mean of the task")
    page = render(found)
    assert "Error on 12 rows that were held out (RMSE): <span class='good'>1</span>." in page
    assert "Stated and observed shares differ by more than chance." in page
    assert "12 rows are beyond three standard deviations" in page


def test_simpler_models_of_the_caller(data, model):
    """Their predictions are compared on the same rows; one that is better is advised."""
    X, y, tasks = data
    rows = np.arange(0, 80, 7)
    held = HeldOutRows(rows, np.zeros(len(rows), int), y[rows] + 1, np.full(len(rows), 0.1), 1.0, np.nan, {})
    found = gather(model, X, y, tasks, held_out=held, simpler={"a line": y[rows] + 0.1})
    (line,) = (r for r in found.rivals if r.name == "a line")
    assert (line.error, line.ours, line.rows) == (pytest.approx(0.1), pytest.approx(1.0), len(rows))
    assert "Better on the same rows: a line. It is simpler: use it." in advice(found)
    found = gather(model, X, y, tasks, held_out=held, simpler={"a line": held.predicted})
    assert any("Not distinguishable from it on the same rows: a line" in said for said in advice(found))


@pytest.mark.slow
def test_effects_that_change_no_label():
    """An input that moves the probability of a class, never beyond one half, matters."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 2))
    y = rng.random(300) < 0.2 + 0.18 * X[:, 0]
    model = SparseGPClassifier(random_state=0).fit(X, y)
    found = gather(model, X, y, None, feature_names=["some", "none"])
    some, none = sorted(found.inputs, key=lambda e: e.name, reverse=True)
    assert some.importance > 2 * some.std_error
    assert not none.importance > 2 * none.std_error
    assert found.held.error == pytest.approx(y.mean())  # every label is predicted to be the frequent one


def test_confidence_of_all_rows_together():
    """Labels that are right less often than is stated, in every bin within its own band, are named."""
    stated, half = np.full(8, 0.5), 2 * np.sqrt(0.25 / 10)
    shares = Calibration(stated, stated - 0.2, stated - half, stated + half, (0.5, 0.3, np.sqrt(0.25 / 80)))
    assert shares.misses
    assert not replace(shares, overall=(0.5, 0.45, np.sqrt(0.25 / 80))).misses


def test_scores_of_counts_are_normal():
    """Small counts of the model itself have as many rows in every interval as is stated."""

    class Known:
        noise, noise_ = "poisson", SimpleNamespace(support="count")

        def predict_cdf(self, X, y):
            return poisson.cdf(y, 0.7)

    y = np.random.default_rng(0).poisson(0.7, 4000).astype(float)
    rows, mean = np.arange(4000), np.full(4000, 0.7)
    held = HeldOutRows(rows, rows * 0, mean, np.sqrt(mean), np.nan, np.nan, {0: Known()})
    scores = normal_scores(held, read_inputs(mean[:, None], None, None), y, None)
    assert kstest(scores, "norm").pvalue > 0.01


def test_paired_differences():
    """The growth of an error, and its standard error, are those of many repetitions."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(400):
        common = rng.standard_normal(200)
        found.append(increase(common**2, (common + 0.2 * rng.standard_normal(200)) ** 2, "numbers"))
    differences, std_errors = np.transpose(found)
    assert np.mean(std_errors) == pytest.approx(np.std(differences), rel=0.15)
    assert increase(np.zeros(4), np.array([1.0, 0, 1, 0]), "labels")[0] == 0.5


@pytest.mark.slow
def test_what_is_unusual():
    """A task that differs and a row that does not fit are named."""
    rng = np.random.default_rng(0)
    tasks = np.repeat([f"t{i}" for i in range(8)], 15)
    X = rng.uniform(0, 6, (len(tasks), 1))
    y = np.sin(X[:, 0]) + 8 * (tasks == "t3") + 0.1 * rng.standard_normal(len(tasks))
    y[50] += 5
    model = SparseGPRegressor(random_state=0).fit(X, y, tasks=tasks)
    found = gather(model, X, y, tasks)
    assert [t.name for t, odd in zip(found.tasks, found.distances.unusual, strict=True) if odd] == ["t3"]
    assert found.odd[0].row == 50
    page = render(found)
    assert "Tasks that differ from the others: t3." in page
    assert '<td data-value="51">51</td>' in page


def test_advice_needs_two_standard_errors(data, facts):
    """Noise is not better than the average, and nothing is claimed; small tasks are named."""
    X, y, _ = data
    said = advice(facts)
    assert said[0].startswith("The model is better than the mean of the task: held-out error 0.")
    assert "Tasks with fewer than five rows gain most from more labels: tiny." in said
    noise = np.random.default_rng(1).standard_normal(len(y))
    model = SparseGPRegressor(RBF(), random_state=0).fit(X, noise)
    found = gather(model, X, noise, None)
    assert re.match("The model is (not distinguishable from|worse than) the mean", advice(found)[0])
    assert not any("that matter" in s for s in advice(found))
    assert ">Tasks</h2>" not in render(found)


def test_who_helps_whom(data):
    """The section is there where the model has `transfer_report`, and only there."""
    X, y, tasks = data

    class Reporting(SparseGPRegressor):
        def transfer_report(self):
            return [{"task": "a", "gain": 0.25, "leans_on": ["b", EVIL], "harm": {"c": 0.5}}]

    model = SparseGPRegressor(optimizer=None, posterior="active", random_state=0).fit(X, y, tasks=tasks)
    assert "Who helps whom" not in render(gather(model, X, y, tasks))
    model = SparseGPRegressor(optimizer=None, random_state=0).fit(X, y, tasks=tasks)
    page = render(gather(model, X, y, tasks))
    assert "leans on" in page
    assert "better without" in page
    model = Reporting(optimizer=None, random_state=0).fit(X, y, tasks=tasks)
    page = render(gather(model, X, y, tasks))
    parse(page)
    assert "Who helps whom" in page
    assert "leans on" in page
    assert "c (0.5)" in page


def test_source_date_and_version(data, tmp_path):
    """The page names its file, when it was written and by which version, and what was left out."""
    X, y, tasks = data
    model = SparseGPRegressor(optimizer=None, random_state=0).fit(X, y, tasks=tasks)
    left = {"column id": "counts the rows"}
    report.write(model, X, y, tasks, tmp_path / "r.html", source=EVIL, dropped=left)
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    parse(page)
    assert re.search(rf"{re.escape(html.escape(EVIL))}\. SparseGPRegressor, numbers", page)
    assert re.search(rf"gleangp {re.escape(__version__)} on 20\d\d-\d\d-\d\d", page)
    assert "counts the rows" in page


def test_kernel_in_words():
    """Parts of a sum are sentences; the shortest length scales are named first."""
    kernel = 4.0 * RBF([3.0, 0.5]) + ConstantKernel(9.0) + WhiteKernel(0.25) + Matern(2.0)
    first, offset, noise, rough = in_words(kernel, ["hours", "age"])
    assert first.startswith("A smooth function that changes fastest along age (0.5), hours (3)")
    assert "standard deviation is 2." in first
    assert "deviation 3" in offset
    assert "deviation 0.5" in noise
    assert "rough" in rough
    assert "about 2" in rough


def test_content_security_policy(facts):
    """The page allows its own script by its hash, and nothing from elsewhere."""
    page = render(facts)
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert page.index("Content-Security-Policy") < page.index("<style>") < page.index("<script>")


@pytest.mark.slow
def test_terminal_and_report_agree(data, tmp_path):
    """The error on the page is the one that `gleangp fit` prints, of the same rows."""
    pd = pytest.importorskip("pandas")
    pytest.importorskip("typer")
    from typer.testing import CliRunner

    from gleangp.cli._app import app

    X, y, tasks = data
    frame = pd.DataFrame({"": np.arange(len(X)), "hours": X[:, 0], "kind": np.where(X[:, 1] > 3, "u", "v")})
    frame.assign(y=y, task=tasks, junk=1).to_csv(tmp_path / "t.csv", index=False)
    options = ["--target", "y", "--task", "task", "--drop", "junk"]
    names = ["t.csv", *options, "--folds", "2", "-o", "m.glean", "--report", "r.html"]
    given = [str(tmp_path / n) if "." in n else n for n in names]
    result = CliRunner().invoke(app, ["fit", *given, "--json"])
    score = json.loads(result.stdout)["summary"]["held_out"]
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    words = f"Error on {score['rows']} rows that were held out (RMSE): <span class='good'>"
    assert f"{words}{score['rmse']:.4g}</span> ±" in page
    assert "t.csv. SparseGPRegressor" in page
    assert '<td class="words" data-value="left out with --drop">' in page
    assert '<td class="words" data-value="names of the rows">' in page
    assert '<td class="words" data-value="kind">kind</td>' in page


def test_numbers_with_gaps_are_numbers(data):
    """Missing cells of a frame are counted and are no values; one task needs no column."""
    pd = pytest.importorskip("pandas")
    X, y, _ = data
    gone = np.arange(len(X)) % 5 == 0
    both = pd.DataFrame({"hours": np.where(gone, np.nan, X[:, 0])})
    odd = np.where(np.arange(len(y)) == 7, y + 9.0, y)
    model = SparseGPRegressor(optimizer=None, random_state=0).fit(both, odd)
    found = gather(model, both, odd, None)
    (column,) = found.columns
    assert (column.n_missing, column.low, column.high) == (gone.sum(), both.min().item(), both.max().item())
    assert len(found.curves[0].data_x) == (~gone).sum()
    page = render(found)
    assert "categories:" not in page
    assert found.odd
    assert ">all rows</td>" not in page


def test_dates_are_dates_and_rows_are_those_of_the_file(tmp_path):
    """Effects and curves along a date show the season; a row that does not fit has its number in the file."""
    pd = pytest.importorskip("pandas")
    pytest.importorskip("typer")
    from typer.testing import CliRunner

    from gleangp.cli._app import app

    rng = np.random.default_rng(0)
    days = np.sort(rng.integers(0, 1100, 150))
    y = 3.0 * np.cos(2 * np.pi * days / 365.2425) + 0.2 * rng.standard_normal(150)
    y[[3, 60]] = np.nan
    y[101] += 8.0
    when = pd.Timestamp("2019-01-01") + pd.to_timedelta(days, unit="D")
    table = pd.DataFrame({"when": when.strftime("%Y-%m-%d"), "member": days % 2 == 0, "same": "x", "y": y})
    table.to_csv(tmp_path / "t.csv", index=False)
    given = [tmp_path / "t.csv", "--target", "y", "--folds", 3, "--seed", 1, "-o", tmp_path / "m.glean"]
    result = CliRunner().invoke(app, [str(a) for a in ["fit", *given, "--report", tmp_path / "r.html"]])
    assert result.exit_code == 0, result.output
    assert "left out 'same': the same in every row" in result.stderr
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    parse(page)
    assert re.search(r">2020-01</text>.*>when</text>", page)
    assert f">{when[0]:%Y-%m-%d}</td>" in page
    assert ">boolean</td>" in page
    assert "member = no" in page or "member = yes" in page
    assert 'data-value="the same in every row"' in page
    odd = page[page.index('id="rows-that-do-not-fit"') :]
    assert '<td data-value="102">' in odd[: odd.index("</table>")]
    least, most = re.search(r"Effect of when: average y between (\S+) and (\S+)\"", page).groups()
    assert float(least) < -2.0 < 2.0 < float(most)


def test_a_fold_without_a_category_learns_the_others():
    """Cut-points of a category without rows cannot be learnt; two categories have no order to learn."""
    model = SparseGPOrdinal(categories=[1, 2, 3, 4])
    assert twin_of(model, np.array([2, 4, 3, 2])).categories == [2, 3, 4]
    assert twin_of(model, np.array([2, 4, 2])) is None
    assert model.categories == [1, 2, 3, 4]
    assert twin_of(SparseGPClassifier(), np.array(["a", "a"])) is None
    assert twin_of(SparseGPClassifier(n_active=7), np.array(["a", "b"])).n_active == 7
