"""The Python blocks of every page of the documentation run, in order, and give what the text promises."""

import contextlib
import importlib.util
import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES = sorted(
    page.relative_to(DOCS).as_posix()
    for page in DOCS.rglob("*.md")
    if BLOCK.search(page.read_text(encoding="utf-8"))
)


@cache
def run_page(name: str) -> dict:
    """What the Python blocks of a page define."""
    pytest.importorskip("pandas")
    text = (DOCS / name).read_text(encoding="utf-8")
    for module in ("sklearn.callback", "matplotlib"):
        if module in text:
            pytest.importorskip(module)
    scope: dict = {}
    with contextlib.chdir(DOCS / "data"):
        for number, block in enumerate(BLOCK.findall(text)):
            exec(compile(block, f"{name}, python block {number + 1}", "exec"), scope)
    if "plt" in scope:
        scope["plt"].close("all")
    return scope


# Pages that take longer than a second, and what else is asked of them, are run in the long form.
QUICK = {"howto/new_task.md", "howto/update_and_save.md", "model_file.md", "howto/watch_a_fit.md"}
EACH = [pytest.param(page, marks=() if page in QUICK else pytest.mark.slow) for page in PAGES]


@pytest.mark.parametrize("name", EACH)
def test_page_runs(name):
    """The blocks of the page run from top to bottom, without a warning."""
    assert run_page(name)


def test_pages_are_found():
    """Pages of all parts of the documentation are among those that run."""
    parts = {name.split("/")[0] for name in PAGES}
    assert {"tutorial.md", "howto", "extend", "methods", "noise", "model_file.md"} <= parts


@pytest.mark.slow
def test_tutorial():
    """Sharing beats one line for all, intervals hold, and the two slowest people do not drive."""
    scope = run_page("tutorial.md")
    assert -scope["ours"].mean() < 0.75 * -scope["line"].mean()
    assert 0.85 < scope["inside"].mean() < 0.97
    inside = (scope["low"] < scope["last"]["reaction"]) & (scope["last"]["reaction"] < scope["high"])
    assert inside.sum() >= 2
    assert {"s308", "s337"} <= set(scope["slow"]["subject"]) < set(scope["model"].tasks_)
    rows = scope["rows"]
    np.testing.assert_array_equal(scope["same"].predict(rows), scope["model"].predict(rows))


@pytest.fixture(scope="module")
def page_results():
    """The module of the site that shows results and writes notebooks."""
    spec = importlib.util.spec_from_file_location("page_results", DOCS / "page_results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_notebook_is_the_tutorial(page_results):
    """The notebook has the blocks of the page in order, no output, and no link that leads nowhere."""
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    kept = (DOCS / "tutorial.ipynb").read_text(encoding="utf-8")
    assert kept == page_results.notebook(text), "run `python docs/page_results.py`"
    book = json.loads(kept)
    code = ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]
    assert code == [block.strip() for block in BLOCK.findall(text)]
    assert not any(cell.get("outputs") for cell in book["cells"])
    assert ".md)" not in kept
    assert "{download}" not in kept


def test_results_are_shown(page_results, tmp_path, monkeypatch):
    """Output and pictures follow the block that made them; later blocks see earlier ones."""
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(page_results, "DOCS", tmp_path)
    (tmp_path / "data").mkdir()
    first = "a\n\n```python\nx = 1\n```\n\nb\n\n"
    second = "```python\nimport matplotlib.pyplot as plt\nplt.plot([x])\nprint(x + 1)\n```\n"
    shown = page_results.with_results(f"{first}{second}c\n", "part/page")
    before, output, rest = shown.partition("\n```text\n2\n```\n")
    assert before == first + second
    assert output
    picture = re.fullmatch(r"\n!\[[^]]*\]\(/(generated/pictures/part-page-\S+\.png)\)\nc\n", rest)
    assert (tmp_path / picture[1]).stat().st_size > 1000


@pytest.mark.parametrize("name", [page for page in PAGES if page.startswith("noise/")])
def test_pages_of_noise_models(name):
    """Each has a formula, a picture and a table; the site shows what its code prints and draws."""
    text = (DOCS / name).read_text(encoding="utf-8")
    assert text.startswith("<!-- results -->\n# ")
    assert "$p(y" in text or "$$" in text
    assert "plt.subplots(" in text
    assert "print(" in text
    (table,) = set(re.findall(r'read_csv\("(.*?)"\)', text))
    assert (DOCS / "data" / table).exists()
    assert f"<../data/{table}>" in text


@pytest.mark.slow
def test_noise_models_fit_their_tables():
    """Heavy tails and dispersion are found, intervals of counts hold, and robust noise bears wrong labels."""
    outliers, counts, labels = (
        run_page(f"noise/{name}.md") for name in ("outliers", "negative_binomial", "labels")
    )
    assert np.mean(outliers["scores"]["outliers"]) > np.mean(outliers["scores"]["gaussian"])
    assert counts["model"].noise_.dispersion > 0.01
    assert 0.85 < np.mean(counts["inside"]) < 0.98
    assert labels["losses"][1] < 0.6


@pytest.mark.slow
def test_tables():
    """The frame is learnt as it is, new values are warnings, and the pipeline comes back from its file."""
    scope = run_page("howto/tables.md")
    assert [column.kind for column in scope["model"].columns_] == ["number", "category", "boolean", "date"]
    assert [column.n_missing for column in scope["model"].columns_] == [10, 0, 0, 0]
    assert scope["score"] > 0.9
    (warning,) = scope["caught"]
    assert "column 'soil' has the value 'peat'" in str(warning.message)
    assert "column 'mown' has 1 missing values" in str(warning.message)
    assert "column 'rain' has '<5' in row 0" in scope["refused"]
    same, piped = (scope[name].predict(scope["frame"]) for name in ("same", "piped"))
    np.testing.assert_array_equal(same, piped)


@pytest.mark.slow
def test_cross_validation():
    """Known schools are predicted well, new ones less well and with a larger deviation and a warning."""
    scope = run_page("howto/cross_validation.md")
    assert scope["known"].mean() > 0.9
    assert 0.0 < scope["new"].mean() < scope["known"].mean() - 0.1
    assert scope["std"][1] > 2 * scope["std"][0]
    assert [str(w.message)[:60] for w in scope["caught"]] == [
        "1 task was not seen by this SparseGPRegressor: 'a new school"
    ]


@pytest.mark.slow
def test_mixed_effects():
    """The slopes are those of the data, shrunk; an unknown person is less certain than a known one."""
    scope = run_page("howto/mixed_effects.md")
    assert {scope["slopes"].idxmax(), scope["slopes"].idxmin()} <= {"s308", "s337", "s335"}
    low, high = scope["model"].predict_interval(scope["rows"]).T
    known = scope["model"].predict_interval(scope["rows"].assign(subject="s309"))
    assert np.all(high - low > known[:, 1] - known[:, 0])


@pytest.mark.slow
def test_intervals():
    """About 95 % of the rows lie in 1.96 deviations of their prediction from the others."""
    scope = run_page("howto/intervals.md")
    assert 0.9 < np.mean(np.abs(scope["y"] - scope["mean"]) < 1.96 * scope["std"]) < 0.99


@pytest.mark.slow
def test_counts():
    """Expected counts are in proportion to the exposure; ends of intervals are whole."""
    scope = run_page("howto/counts.md")
    long, short = scope["model"].predict(scope["X"].iloc[[0, 0]], exposure=[4.0, 1 / 7])
    np.testing.assert_allclose(long / short, 28.0)
    ends = scope["sick"].predict_interval(scope["row"], trials=[30])
    np.testing.assert_array_equal(ends, np.round(ends))


def test_new_task():
    """Three rows place the new patient; without rows, and before more rows, the deviation is larger."""
    scope = run_page("howto/new_task.md")
    hours = np.array([1.0, 6.0, 10.0])
    np.testing.assert_allclose(scope["mean"], 7.0 * np.exp(-0.2 * hours), atol=0.6)
    assert np.all(scope["std_0"] > scope["std"])
    assert scope["std_more"][2] < scope["std"][2]


@pytest.mark.slow
def test_unlabelled_rows():
    """Rows without a label reduce the error of both examples."""
    scope = run_page("howto/unlabelled_rows.md")
    truth = scope["truth"]
    moons = scope["make_moons"](200, noise=0.06, random_state=0)[0]
    assert scope["both"].score(moons, truth) > scope["alone"].score(moons, truth)
    assert scope["errors"]["all rows"] < 0.6 * scope["errors"]["labelled rows"]


@pytest.mark.slow
def test_order_constraints():
    """Thirty pairs reduce the error, and three wrong ones do not undo that."""
    scope = run_page("howto/order_constraints.md")
    assert scope["error"] < 0.7 * scope["error_plain"]
    wrong = scope["robust"].predict(scope["X"]) - scope["truth"]
    assert np.sqrt(np.mean(wrong**2)) < scope["error_plain"]


@pytest.mark.slow
def test_images():
    """Copies help with moved images; rotated images have the shape of the original."""
    scope = run_page("howto/images.md")
    moved, y = scope["moved"], scope["moved_y"]
    assert scope["virtual"].score(moved, y) > scope["plain"].score(moved, y) + 0.05
    assert np.any(scope["virtual"].active_virtual_ >= 0)
    assert [image.shape for image in scope["turned"]] == [(8, 8), (8, 8)]
    assert np.any(scope["bright"].active_virtual_ == 0)


def test_update_and_save():
    """The loaded model is the same; after an update the deviation at the new rows is smaller."""
    scope = run_page("howto/update_and_save.md")
    assert scope["after"][0] < 0.5 * scope["before"][0]
    loaded = scope["load"](scope["path"])
    X, tasks = scope["X"][:5], scope["tasks"][:5]
    np.testing.assert_array_equal(loaded.predict(X, tasks), scope["model"].predict(X, tasks))


@pytest.mark.slow
def test_large_tables():
    """A memory map is read where it lies, and the fit finds the function."""
    scope = run_page("howto/large_tables.md")
    X = np.array([[2.0, 5.0], [8.0, 5.0]])
    np.testing.assert_allclose(scope["model"].predict(X), np.sin(X[:, 0]), atol=0.1)


@pytest.mark.slow
def test_coming_from():
    """All calls predict the known school near its curve."""
    scope = run_page("howto/coming_from.md")
    expected = scope["level"][3 * 15] + 2.0
    for name in ("pupils", "intercepts", "mixed", "grouped"):
        assert abs(scope[name].predict(scope["new_rows"])[0] - expected) < 0.3
    assert scope["correlation"].shape == (12, 12)


def test_model_file():
    """The manifest has the keys and the version that the page names."""
    manifest = run_page("model_file.md")["manifest"]
    assert set(manifest) == {"format", "format_version", "gleangp", "sklearn", "objects", "model", "sha256"}
    assert manifest["format_version"] == 2
