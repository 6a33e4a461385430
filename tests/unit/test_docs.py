"""The reference documentation has every public name and method, with an example."""

import importlib.util
import inspect
import re
import shutil
from pathlib import Path

import pytest

import gleangp

DOCS = Path(__file__).parents[2] / "docs"
API = (DOCS / "api.rst").read_text(encoding="utf-8")
spec = importlib.util.spec_from_file_location("public_names", DOCS / "public_names.py")
pages = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pages)

NAMES = pages.public_names()
CLASSES = {name: value for name, value in NAMES.items() if inspect.isclass(value)}
ABSTRACT = {"gleangp.noise.Noise", "gleangp.noise.NoiseModel"}  # base classes
METHODS = [(name, method) for name, value in CLASSES.items() for method in pages.public_methods(value)]


def test_api_page_is_complete():
    """Public names of the package and of its modules are listed, and all that is listed can be imported."""
    listed = {f"gleangp.{name}" for name in re.findall(r"^   ([A-Za-z_.0-9]+)$", API, re.MULTILINE)}
    methods = {f"{name}.{method}" for name in CLASSES for method in pages.public_methods(CLASSES[name])}
    assert set(NAMES) - methods - listed == set()
    for name in listed:
        part = gleangp
        for piece in name.split(".")[1:]:
            part = getattr(part, piece)


@pytest.mark.parametrize("name", NAMES)
def test_names_have_a_docstring(name):
    """Every public function, class and method has a docstring; functions and classes have an example."""
    doc = inspect.getdoc(NAMES[name]) or ""
    assert doc
    is_method = name.rpartition(".")[0] in CLASSES
    assert is_method or name in ABSTRACT or ">>> " in doc


@pytest.mark.parametrize(("name", "method"), METHODS)
def test_methods_have_an_example(name, method):
    """An example of the method, of its class or of a base class of that calls it."""
    homes = [home for home in CLASSES[name].__mro__ if home.__module__.startswith("gleangp")]
    docs = [inspect.getdoc(part) or "" for part in (getattr(CLASSES[name], method), *homes)]
    assert re.search(rf"^\s*(>>>|\.\.\.) .*\.{method}\(", "\n".join(docs), re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_described(name):
    """Shared descriptions are put in, and parameters have one each, those of functions in their order."""
    doc = inspect.getdoc(NAMES[name])
    assert not re.search(r"^ *\{[\w*, ]+\}$", doc, re.MULTILINE)
    section = re.search(r"^Parameters\n-+\n(.*?)(?=\n\n|\Z)", doc, re.MULTILINE | re.DOTALL)
    if section is None:
        return
    listed = re.findall(r"^([*\w][*\w, ]*?)(?: : |$)", section[1], re.MULTILINE)
    described = [part.strip("* ") for entry in listed for part in entry.split(",")]
    expected = [p for p in inspect.signature(NAMES[name]).parameters if p != "self"]
    in_order = list if inspect.isroutine(NAMES[name]) else sorted  # constructors take keywords
    assert in_order(described) == in_order(expected)


@pytest.mark.slow
def test_reference_has_every_name(tmp_path):
    """The built site has an entry for each public name and method, and no warning."""
    application = pytest.importorskip("sphinx.application")
    source = tmp_path / "docs"
    source.mkdir()
    shutil.copytree(DOCS / "_templates", source / "_templates")
    (source / "index.rst").write_text(API.replace(":doc:`noise`", "the page on noise"), encoding="utf-8")
    settings = {"extensions": ["numpydoc", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]}
    settings |= {"html_theme": "alabaster", "html_theme_options": {}, "source_suffix": ".rst"}
    site = application.Sphinx(
        source, DOCS, tmp_path / "html", tmp_path / "trees", "html", settings, warningiserror=True
    )
    site.build()
    assert set(NAMES) - set(site.env.domaindata["py"]["objects"]) == set()


@pytest.mark.parametrize("path", sorted((DOCS / "decisions").glob("0*.md")), ids=lambda p: p.stem)
def test_decisions_have_a_status(path):
    """A decision is accepted or names its successor, and the files that it names are there."""
    text = path.read_text(encoding="utf-8")
    status = re.search(
        r"^Status: (accepted|superseded by \[(\d{3})\]\((\2-[\w-]+\.md)\))[.,; ]", text, re.MULTILINE
    )
    assert status, "write `Status: accepted.` or `Status: superseded by [NNN](NNN-title.md).`"
    assert status[3] is None or (path.parent / status[3]).exists()
    if status[3] is None:
        for name in re.findall(r"`([a-z_/]+\.py)`", text):
            assert (DOCS.parent / "src" / "gleangp" / name.removeprefix("gleangp/")).exists(), name


def test_promises_are_shown_by_tests_that_are_there():
    """Every promise names a test, and each of them is there."""
    text = (DOCS / "explanation" / "promises.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and "tests/" in line]
    promises = [
        line for line in text.split("## What is not promised")[0].splitlines() if line.startswith("| ")
    ]
    assert len(rows) == len(promises) - promises.count("| promise | shown by |") > 20
    for row in rows:
        path = None
        for name in re.findall(r"`([^`]*)`", row.split(" | ")[1]):
            path, _, function = name.rpartition("::") if "::" in name else (path, "", name)
            if name.startswith("tests/") and "::" not in name:
                path, function = name, ""
            source = (DOCS.parent / path).read_text(encoding="utf-8")
            assert not function or f"def {function}(" in source, name
