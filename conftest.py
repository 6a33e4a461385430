"""Pictures in tests and doctests: drawn without a screen, closed after each test."""

import os
import sys

import pytest

os.environ.setdefault("MPLBACKEND", "Agg")


@pytest.fixture(autouse=True)
def close_figures():
    """Close what a test has drawn, so that hundreds of figures do not pile up."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
