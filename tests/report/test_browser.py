"""The report in a real browser: Chromium as the system has it, driven by playwright."""

import csv

import numpy as np
import pytest

from gleangp import SparseGPRegressor, report

pytestmark = pytest.mark.slow  # the page itself is tested without a browser too
EVIL = "<script>window.harmed = true</script>"
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def url(tmp_path_factory, quick_rivals):
    """The report of seven tasks, one of them named like code and one at length."""
    rng = np.random.default_rng(0)
    tasks = np.array(["beech", "ash", EVIL, "long name " * 8, "oak", "elm", "=1+2"] * 12)
    X = rng.uniform(0, 6, (len(tasks), 2))
    y = np.sin(X[:, 0]) + (tasks == "ash") + 0.1 * rng.standard_normal(len(tasks))
    model = SparseGPRegressor(n_active=40, random_state=0).fit(X, y, tasks=tasks)
    path = tmp_path_factory.mktemp("report") / "r.html"
    report.write(model, X, y, tasks, path, feature_names=["hours", "nothing"], target_name=EVIL)
    return path.as_uri()


@pytest.fixture
def open_page(open_url, url):
    """Opens the report."""
    return lambda **options: open_url(url, **options)


def column(page, number):
    """Texts of a column of the table of tasks, from the top."""
    return page.locator(f"#tasks tbody td:nth-child({number})").all_inner_texts()


def test_renders_without_a_complaint(open_page):
    """Headings, cards and charts are there with a size; nothing is logged and nothing is fetched."""
    page = open_page()
    headings = page.locator("h2").all_inner_texts()
    assert headings == [
        "In short",
        "How good it is",
        "Tasks",
        "Inputs",
        "Who helps whom",
        "What is unusual",
        "What was learnt",
        "Data",
    ]
    boxes = [svg.bounding_box() for svg in page.locator("svg:visible").all()]
    assert len(boxes) == 3 + 6 + 3  # quality, tasks, inputs
    assert all(box["width"] > 200 and box["height"] > 50 for box in boxes)
    assert page.problems == []


def test_sorts(open_page):
    """A heading sorts its column down, again up; numbers as numbers; assistive technology is told."""
    page = open_page()
    errors = page.locator("#tasks th:nth-child(4)")
    errors.locator("button").click()
    assert errors.get_attribute("aria-sort") == "descending"
    values = [float(v) for v in column(page, 4)]
    assert values == sorted(values, reverse=True)
    errors.locator("button").click()
    assert errors.get_attribute("aria-sort") == "ascending"
    assert [float(v) for v in column(page, 4)] == sorted(values)
    page.click("#tasks th:nth-child(1) button")
    names = column(page, 1)
    assert names == sorted(names, key=str.lower, reverse=True)
    assert errors.get_attribute("aria-sort") is None
    assert page.problems == []


def test_tooltips_follow_pointer_and_finger(open_page):
    """Over a point its task and errors appear, inside the window; beside it they go; a tap shows them too."""
    page = open_page()
    tip = page.locator("#tip")
    assert not tip.is_visible()
    marks = page.locator("[data-tip]").all()
    assert len(marks) > 10
    for mark in marks[::2]:
        mark.scroll_into_view_if_needed()
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        mark.hover(force=True)  # points may lie on each other
        if not mark.evaluate("m => m.matches(':hover')"):
            continue
        assert tip.inner_text().split() == mark.get_attribute("data-tip").split()
        box = tip.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= page.viewport_size["width"]
    page.locator("h1").hover()
    assert not tip.is_visible()
    phone = open_page(viewport=PHONE, has_touch=True, is_mobile=True)
    phone.locator("circle.dot").last.tap()
    assert "nothing" in phone.locator("#tip").inner_text()


def test_readable_on_a_phone(open_page):
    """At 390 pixels the page does not scroll sideways, and text in charts is at least nine pixels high."""
    page = open_page(viewport=PHONE, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    heights = page.evaluate(
        "[...document.querySelectorAll('svg text')].map(t => { const m = t.getScreenCTM();"
        " return Math.hypot(m.a, m.b) * parseFloat(getComputedStyle(t).fontSize); })"
    )
    assert min(heights) >= 9
    assert page.evaluate("parseFloat(getComputedStyle(document.querySelector('td')).fontSize)") >= 12


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_in_light_and_dark(open_page, scheme):
    """Text of every colour used stands out from the page by 4.5 to 1, as WCAG 2 asks for."""
    page = open_page(color_scheme=scheme)
    colors = page.evaluate(
        "['body', '.soft', '.good', '.card span', 'td']"
        ".map(s => getComputedStyle(document.querySelector(s)).color)"
    )
    colors.append(page.evaluate("getComputedStyle(document.querySelector('.tick')).fill"))
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (luminance(paper) > 0.5) == (scheme == "light")
    for color in colors:
        high, low = sorted([luminance(color), luminance(paper)], reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, (color, paper)


def luminance(color):
    """Relative luminance of `rgb(r, g, b)`, as WCAG 2 defines it."""
    parts = np.array([float(c) / 255 for c in color[color.index("(") + 1 : -1].split(",")[:3]])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_names_that_are_code_are_text(open_page):
    """A task, a feature and a target called <script> are shown as such and do not run."""
    page = open_page()
    assert page.evaluate("window.harmed") is None
    assert page.evaluate("document.scripts.length") == 1
    assert EVIL in column(page, 1)
    assert page.locator("h1").inner_text() == EVIL
    assert page.title() == f"gleangp: {EVIL}"


def test_tasks_are_found(open_page):
    """The worst task is first, then the best on demand; a search leaves those whose name has the letters."""
    page = open_page()
    figures = page.locator("#curves figure:visible")
    errors = [float(f.get_attribute("data-error")) for f in figures.all()]
    assert errors == sorted(errors, reverse=True)
    page.select_option("#order", "best")
    errors = [float(f.get_attribute("data-error")) for f in figures.all()]
    assert errors == sorted(errors)
    page.fill("#find", "ELM")
    assert figures.count() == 1
    assert figures.first.get_attribute("data-name") == "elm"
    assert page.locator("#found").inner_text() == "1 of 1 tasks shown"
    page.fill("#find", "no such task")
    assert figures.count() == 0
    assert page.problems == []


def test_tables_download(open_page):
    """Every table has a button that saves it as CSV, as it is sorted, with names that are code as text."""
    page = open_page()
    assert page.locator("table").count() == page.locator("button[data-csv]").count() >= 5
    page.click("#tasks th:nth-child(4) button")
    with page.expect_download() as waiting:
        page.click("button[data-csv=tasks]")
    assert waiting.value.suggested_filename == "tasks.csv"
    with open(waiting.value.path(), newline="") as file:
        lines = list(csv.reader(file))
    assert lines[0][:4] == ["task", "rows", "held out", "error"]
    assert len(lines) == 1 + 7
    errors = [float(line[3]) for line in lines[1:]]
    assert errors == sorted(errors, reverse=True)
    assert {EVIL, "'=1+2"} <= {line[0] for line in lines}
    assert page.problems == []


def test_screen_readers(open_page):
    """Charts and tables have names, headings belong to their columns, controls have labels."""
    page = open_page()
    assert page.evaluate("[...document.querySelectorAll('svg')].every(s => s.getAttribute('aria-label'))")
    assert page.evaluate(
        "[...document.querySelectorAll('table')].every("
        "t => document.getElementById(t.getAttribute('aria-labelledby')).innerText)"
    )
    assert page.evaluate("[...document.querySelectorAll('th')].every(h => h.scope === 'col')")
    assert page.evaluate("[...document.querySelectorAll('input,select')].every(i => i.labels.length === 1)")
    assert page.evaluate("document.documentElement.lang") == "en"
    page.locator("#tasks th button").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("#tasks th").first.get_attribute("aria-sort") == "descending"
