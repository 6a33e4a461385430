"""The report in a real browser, where one is installed (playwright with Chromium)."""

import numpy as np
import pytest

from gleangp import SparseGPRegressor, report

playwright = pytest.importorskip("playwright.sync_api")


@pytest.fixture
def page(tmp_path):
    """A page of Chromium with the report of four tasks, and the errors it logs."""
    rng = np.random.default_rng(0)
    tasks = np.array(["b", "a", "<script>", "long " * 20] * 10)
    X = rng.uniform(0, 6, (40, 2))
    y = np.sin(X[:, 0])
    model = SparseGPRegressor(random_state=0).fit(X, y, tasks=tasks)
    report.write(model, X, y, tasks, tmp_path / "r.html")
    with playwright.sync_playwright() as driver:
        try:
            browser = driver.chromium.launch()
        except playwright.Error as error:
            pytest.skip(f"Chromium cannot be started: {str(error).splitlines()[0]}")
        page = browser.new_page(viewport={"width": 375, "height": 700})
        page.errors = []
        page.on(
            "console", lambda message: page.errors.append(message.text) if message.type == "error" else None
        )
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.goto((tmp_path / "r.html").as_uri())
        yield page
        browser.close()


def test_sorts_and_fits_a_phone(page):
    """Headings sort, nothing is logged, and the page is not wider than a phone."""
    page.click("th:first-child button")
    names = page.locator("#tasks tbody td:first-child").all_inner_texts()
    assert names == sorted(names, key=str.lower, reverse=True)
    assert page.errors == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
