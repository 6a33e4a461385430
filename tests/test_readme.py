"""The README's Python blocks run, in order, and their results are what the text says."""

import re
from pathlib import Path

import numpy as np
import pytest

README = Path(__file__).parents[1] / "README.md"


@pytest.fixture(scope="module")
def names():
    """What the blocks of the README define, run one after the other."""
    pytest.importorskip("pandas")
    blocks = re.findall(
        r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert len(blocks) == 5
    scope: dict = {}
    history = []
    for number, block in enumerate(blocks):
        exec(compile(block, f"README.md, python block {number + 1}", "exec"), scope)
        history.append(dict(scope))
    return history


def test_quick_start(names):
    """Intervals of two schools hold their true scores; shares of the variance sum to one."""
    scope = names[0]
    true = np.array([scope["offset"][s] for s in ("school 3", "school 7")]) + 2.0
    interval = scope["pupils"].predict_interval(scope["new_rows"], coverage=0.99)
    assert ((interval[:, 0] < true) & (true < interval[:, 1])).all()
    shares = scope["pupils"].variance_shares_
    np.testing.assert_allclose(shares["common"] + shares["task"] + shares["noise"], 1.0)


def test_new_task(names):
    """Five rows are enough for the new school."""
    np.testing.assert_allclose(names[1]["mean"], np.sqrt([2.0, 6.0]) + 2.0, atol=0.2)
    assert "a new school" in names[1]["pupils"].tasks_


def test_classes_and_counts(names):
    """The two moons are told apart; intervals of counts are whole numbers in order."""
    scope = names[3]
    assert scope["classifier"].score(scope["X"][300:], scope["y"][300:]) > 0.93
    interval = scope["counts"].predict_interval(scope["new_rows"])
    assert (interval == np.round(interval)).all()
    assert (interval[:, 0] <= interval[:, 1]).all()


def test_model_file(names):
    """The loaded model predicts the same numbers."""
    scope = names[4]
    loaded = scope["load"](scope["path"])
    np.testing.assert_array_equal(loaded.predict(scope["rows"]), names[1]["mean"])
