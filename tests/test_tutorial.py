"""The tutorial's Python blocks run, in order, and give what the text promises."""

import re
from pathlib import Path

import numpy as np
import pytest

TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial.md"


def test_tutorial_runs():
    """The new task is near its function, the loaded model is the same, and the scores are good."""
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    blocks = re.findall(
        r"^```python\n(.*?)^```", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    scope: dict = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"tutorial.md, python block {number + 1}", "exec"), scope)
    assert len(blocks) == 7
    assert abs(scope["mean"][0] - np.sin(5.0)) < 0.25
    assert scope["scores"].min() > 0.8
    same = scope["same"].predict([[1.0]], tasks=["west"])
    np.testing.assert_array_equal(same, scope["model"].predict([[1.0]], tasks=["west"]))
    assert scope["display"].label == "north"
