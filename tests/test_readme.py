"""The README's Python blocks run, in order, and their results are what the text says."""

import contextlib
import io
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
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, f"README.md, python block {number + 1}", "exec"), scope)
        history.append(scope | {"printed": printed.getvalue()})
    return history


def test_quick_start(names):
    """Intervals of two schools hold their true scores; shares of the variance sum to one."""
    scope = names[0]
    level = [np.mean((scope["score"] - np.sqrt(scope["hours"]))[scope["schools"] == s]) for s in (3, 7)]
    true = np.array(level) + 2.0
    interval = scope["pupils"].predict_interval(scope["new_rows"], coverage=0.99)
    assert ((interval[:, 0] < true) & (true < interval[:, 1])).all()
    shares = scope["pupils"].variance_shares_
    np.testing.assert_allclose(shares["common"] + shares["task"] + shares["noise"], 1.0)


def test_printed_output(names):
    """What the quick start prints stands below it, up to the digits that other machines may give."""
    (shown,) = re.findall(
        r"^```text\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    number = re.compile(r"\d+\.\d*")
    # NumPy fills up with spaces where a number has fewer digits than the others.
    printed, wanted = ("".join(number.sub("#", t).split()) for t in (names[0]["printed"], shown))
    assert printed == wanted
    found, expected = (np.array(number.findall(t), dtype=float) for t in (names[0]["printed"], shown))
    np.testing.assert_allclose(found, expected, atol=0.15)


def test_links_lead_to_files():
    """Links and pictures are files of the repository."""
    text = README.read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!http)([^)#]+)\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text)
    assert len(links) > 10
    for link in links:
        assert (README.parent / link).exists(), link


def test_first_code_comes_after_one_screen():
    """One sentence, one picture and one table come before the first block of code."""
    before = README.read_text(encoding="utf-8").split("```")[0].splitlines()
    assert 20 < len(before) < 40
    assert sum(line.startswith("|") for line in before) >= 9


def test_new_task(names):
    """Five rows are enough for the new school."""
    np.testing.assert_allclose(names[1]["mean"], np.sqrt([2.0, 6.0]) + 2.0, atol=0.2)
    assert 20 in names[1]["pupils"].tasks_


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
