"""The reference documentation has every public name."""

import re
from pathlib import Path

import gleangp
from gleangp import plots

API = (Path(__file__).parents[2] / "docs" / "api.rst").read_text(encoding="utf-8")
MODULES = {"datasets", "dask", "exceptions", "noise", "plots", "report"}  # have sections of their own


def test_api_page_is_complete():
    """Names of the package and of the pictures are listed, and nothing else is."""
    listed = set(re.findall(r"^   ([A-Za-z_.]+)$", API, re.MULTILINE))
    expected = {name for name in gleangp.__all__ if name not in MODULES and not name.startswith("__")}
    assert expected - listed == set()
    assert {f"plots.{name}" for name in plots.__all__} - listed == set()
    for name in listed:
        part = gleangp
        for piece in name.split("."):
            part = getattr(part, piece)
