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


def test_regression(names):
    """Near data the mean is the function and the deviation small; far away, large.

    A straight line goes on beyond the data, so the average there is within the uncertainty, no more.
    """
    mean, std = names[0]["mean"], names[0]["std"]
    assert abs(mean[0] - np.sin(2.0)) < 0.05
    assert abs(mean[1] - names[0]["y"].mean()) < 2 * std[1]
    assert std[0] < 0.05
    assert std[1] > 10 * std[0]
    assert len(names[0]["model"].active_) == 30


def test_classification(names):
    """The two moons are told apart; probabilities sum to one."""
    scope = names[1]
    assert scope["classifier"].score(scope["X"][300:], scope["y"][300:]) > 0.93
    np.testing.assert_allclose(scope["classifier"].predict_proba(scope["X"][300:]).sum(axis=1), 1.0)


def test_many_tasks(names):
    """Predictions of known schools are near their true curves."""
    scope = names[2]
    frame = scope["frame"]
    true = frame["school"].map(scope["offset"]) + np.sqrt(frame["hours"])
    assert np.sqrt(np.mean((scope["pupils"].predict(frame[["school", "hours"]]) - true) ** 2)) < 0.2


def test_new_task(names):
    """Five rows are enough for the new school."""
    np.testing.assert_allclose(names[3]["mean"], np.sqrt([2.0, 6.0]) + 2.0, atol=0.15)
    assert "a new school" in names[3]["pupils"].tasks_


def test_model_file(names):
    """The loaded model predicts the same numbers."""
    scope = names[4]
    loaded = scope["load"](scope["path"])
    np.testing.assert_array_equal(loaded.predict(scope["new_rows"]), names[3]["mean"])
