"""The Python blocks of the tutorial and of other pages run, in order, and give what the text promises."""

import re
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).parents[1] / "docs"


def run_page(name: str) -> tuple[dict, int]:
    """What the Python blocks of a page define, and how many there are."""
    text = (DOCS / name).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    scope: dict = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{name}, python block {number + 1}", "exec"), scope)
    return scope, len(blocks)


def test_tutorial_runs():
    """The new task is near its function, the loaded model is the same, and the scores are good."""
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    scope, n_blocks = run_page("tutorial.md")
    assert n_blocks == 7
    assert abs(scope["mean"][0] - np.sin(5.0)) < 0.25
    assert scope["scores"].min() > 0.8
    same = scope["same"].predict([[1.0]], tasks=["west"])
    np.testing.assert_array_equal(same, scope["model"].predict([[1.0]], tasks=["west"]))
    assert scope["display"].label == "north"


def test_tables_page_runs():
    """The frame is learnt as it is, new values are warnings, and the pipeline comes back from its file."""
    pytest.importorskip("pandas")
    scope, n_blocks = run_page("tables.md")
    assert n_blocks == 5
    assert [column.kind for column in scope["model"].columns_] == ["number", "category", "boolean", "date"]
    assert [column.n_missing for column in scope["model"].columns_] == [10, 0, 0, 0]
    assert scope["score"] > 0.9
    (warning,) = scope["caught"]
    assert "column 'soil' has the value 'peat'" in str(warning.message)
    assert "column 'mown' has 1 missing values" in str(warning.message)
    assert "column 'rain' has '<5' in row 0" in scope["refused"]
    same, piped = (scope[name].predict(scope["frame"]) for name in ("same", "piped"))
    np.testing.assert_array_equal(same, piped)


def test_cross_validation_page_runs():
    """Known schools are predicted well, new ones less well and with a larger deviation and a warning."""
    pytest.importorskip("pandas")
    scope, n_blocks = run_page("cross_validation.md")
    assert n_blocks == 3
    assert scope["known"].mean() > 0.9
    assert 0.0 < scope["new"].mean() < scope["known"].mean() - 0.1
    assert scope["std"][1] > 2 * scope["std"][0]
    assert [str(w.message)[:60] for w in scope["caught"]] == [
        "1 task was not seen by this SparseGPRegressor: 'a new school"
    ]
