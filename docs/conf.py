"""Sphinx configuration. `sphinx-build -W docs build/docs` from the root; needs the extra `docs`."""

import os
import sys
from importlib.util import find_spec
from inspect import isclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "docs")]
os.environ.setdefault("MPLBACKEND", "Agg")

from page_results import shows_results, with_results  # noqa: E402 the path above comes first
from public_names import public_methods, public_names  # noqa: E402
from sphinx.util.logging import getLogger  # noqa: E402

from gleangp import __version__  # noqa: E402

project = "gleangp"
author = "gleangp developers"
version = release = __version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["build", "_build", "data", "Thumbs.db", "sg_execution_times.rst"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
autosummary_generate = True
autosummary_context = {
    "public_methods": {
        name: public_methods(value) for name, value in public_names().items() if isclass(value)
    }
}
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"  # types are in the docstrings
numpydoc_show_class_members = False
numpydoc_validation_checks = set()

sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"plot_",
    "download_all_examples": False,
    "show_signature": False,
    "thumbnail_size": (560, 360),
    "abort_on_example_error": True,
}

html_theme = "pydata_sphinx_theme" if find_spec("pydata_sphinx_theme") else "alabaster"
html_title = "gleangp"
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_sidebars = {"index": [], "tutorial": []}  # nothing lies below them
html_theme_options = (
    {"show_toc_level": 2, "header_links_before_dropdown": 4, "navbar_align": "left"}
    if html_theme == "pydata_sphinx_theme"
    else {}
)


def warn_of_gaps(app, env):
    """A public name without a place on the site is a warning, and so an error of the build."""
    there = env.domaindata["py"]["objects"]
    for name in public_names():
        if name not in there:
            getLogger(__name__).warning("%s is public, but not on the site: list it in api.rst", name)


def show_results(app, page, source):
    """Put what the blocks of a page print and draw below them, if the page says so in its first line."""
    if shows_results(source[0]):
        source[0] = with_results(source[0], page)


def setup(app):
    """Run pages when they are read; look for gaps once all pages have been read."""
    app.connect("source-read", show_results)
    app.connect("env-check-consistency", warn_of_gaps)
