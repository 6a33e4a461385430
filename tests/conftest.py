"""What tests of several folders share: how hypothesis draws, quick reports, and Chromium for pages."""

import os
import shutil
from functools import partial
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("tests", derandomize=True, deadline=None)  # every run tries the same examples
settings.load_profile("tests")


def pytest_configure(config):
    """Files go to workers in their order: by default those of few, long tests would come last."""
    config.option.loadscopereorder = False


@pytest.fixture(autouse=True)
def real_data(request):
    """Tests marked `realdata` have the folder of real data, which loaders read, or are skipped."""
    if request.node.get_closest_marker("realdata") is None:
        return None
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("GLEANGP_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no data folder {folder}: set GLEANGP_DATA")
    request.getfixturevalue("monkeypatch").setenv("GLEANGP_DATA", str(folder))
    return folder


@pytest.fixture(scope="module")
def quick_rivals():
    """Simpler models in reports do not learn their kernels, which would be twenty fits for each report.

    The example of `report.write` has them as they are.
    """
    from gleangp.report import rivals

    fresh = rivals._fresh

    def quick(model):
        rival = fresh(model)
        names = [name for name in rival.get_params() if name.split("__")[-1] == "optimizer"]
        return rival.set_params(**dict.fromkeys(names))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rivals, "_fresh", quick)
        yield


@pytest.fixture
def held_kernels(monkeypatch):
    """The command line holds kernels and noise where they start; for tests of tables and files."""
    from gleangp.cli import _models

    for name, kinds in _models._ESTIMATORS.items():
        if name != "latent":  # which has no other way to place its rows
            held = tuple(kind and partial(kind, optimizer=None) for kind in kinds)
            monkeypatch.setitem(_models._ESTIMATORS, name, held)


@pytest.fixture
def refused(monkeypatch, capsys):
    """`refused(code, *arguments)`: the one line of a command that ends with this exit code."""
    from gleangp.cli import _app

    def refused(code, *arguments):
        monkeypatch.setattr("sys.argv", ["gleangp", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            _app.run()
        said = capsys.readouterr()
        assert end.value.code == code, said.err
        assert code == 1 or said.out == ""
        (line,) = said.err.splitlines()
        assert line.startswith("gleangp: error: ")
        return line

    return refused


def find_chromium():
    """Where the system keeps it; GLEANGP_CHROMIUM names another place."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return os.environ.get("GLEANGP_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


@pytest.fixture(scope="session")
def browser():
    """Chromium without a window."""
    reason = "playwright comes with the extra `browser`"
    playwright = pytest.importorskip("playwright.sync_api", reason=reason)
    path = find_chromium()
    if path is None:
        pytest.skip("no Chromium on this machine (apt-get install chromium), and GLEANGP_CHROMIUM is not set")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])  # CI runs as root
        yield browser
        browser.close()


@pytest.fixture
def open_url(browser):
    """Opens a page; what it logs, or asks of another place than its own, is kept in `page.problems`."""
    contexts = []

    def open_url(url, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.problems = []
        page.on("console", lambda m: page.problems.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        home = url if url.startswith("http") else "file:"
        own = (home, "data:", "blob:")
        page.on("request", lambda r: None if r.url.startswith(own) else page.problems.append(r.url))
        page.goto(url)
        return page

    yield open_url
    for context in contexts:
        context.close()
