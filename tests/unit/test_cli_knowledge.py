"""What the command line learns from beside labels: rows without one, order of categories and of rows."""

import json

import numpy as np
import pytest
from sklearn.datasets import make_moons

pd = pytest.importorskip("pandas")
pytest.importorskip("typer")

from gleangp import load  # noqa: E402
from gleangp.cli._constraints import constraints_at, read_constraints  # noqa: E402
from gleangp.exceptions import ConstraintError, LabelError  # noqa: E402
from tests.unit.test_cli_predict import call  # noqa: E402


@pytest.fixture(scope="module")
def pupils():
    """Three schools; a score, of which half is not known, and a grade in three steps."""
    rng = np.random.default_rng(0)
    n = 60
    frame = pd.DataFrame({"pupil": [f"p{i}" for i in range(n)], "school": ["a", "b", "c"] * 20})
    frame["hours"] = rng.uniform(0, 6, n)
    score = np.sin(frame["hours"]) + (frame["school"] == "b") + 0.05 * rng.standard_normal(n)
    frame["grade"] = np.array(["low", "medium", "high"])[np.digitize(score, [0.0, 0.8])]
    frame["score"] = score.round(3).astype(object)
    return frame


def fit(folder, frame, *options):
    """The facts of a model of the frame, and its file."""
    table, model = folder / "t.csv", folder / "m.glean"
    frame.to_csv(table, index=False)
    return json.loads(call("fit", table, "-o", model, "--json", "--folds", 2, *options)[0]), model


@pytest.mark.slow
def test_unlabelled_rows_teach_the_hierarchy(pupils, tmp_path):
    """Rows whose target is the named value, or missing, stay as unlabelled rows and are not held out."""
    frame = pupils.drop(columns=["grade", "pupil"]).copy()
    frame.loc[:9, "score"], frame.loc[10:14, "score"] = -1, None
    options = ("-y", "score", "-t", "school", "--unlabeled", -1)
    facts, model = fit(tmp_path, frame, *options, "-m", "hierarchical")
    assert facts["summary"]["rows"] == 60
    assert facts["summary"]["rows_without_target"] == 15
    assert facts["summary"]["held_out"]["rows"] == 45
    assert sum(alpha > 0 for alpha in load(model).estimator.alpha_.values()) > 0
    sparse, _ = fit(tmp_path, frame, *options, "--folds", 0)
    assert sparse["summary"]["rows"] == 45  # without a graph they have nothing to say


def test_unlabelled_rows_can_come_with_a_new_task(pupils, tmp_path):
    """add-task takes unlabelled rows of a model that was fitted with some, whether it uses them or not."""
    frame = pupils.drop(columns=["score", "pupil"]).replace({"grade": {"medium": "low"}})
    frame.loc[:9, "grade"] = "?"
    table, model = tmp_path / "t.csv", tmp_path / "m.glean"
    frame.to_csv(table, index=False)
    call("fit", table, "-y", "grade", "-t", "school", "--unlabeled", "?", "--folds", 0, "-o", model)
    assert "unlabelled rows" in [made.what for made in load(model).estimator.decisions_]
    few = frame.head(20).assign(school="new")
    few.to_csv(tmp_path / "few.csv", index=False)
    call("add-task", model, tmp_path / "few.csv")
    assert load(model).known_tasks == ["a", "b", "c", "new"]


@pytest.mark.slow
def test_unlabelled_rows_help_where_classes_are_clusters(tmp_path):
    """Four labels on two crescents: the null category is chosen by its held-out error, and is right."""
    X, truth = make_moons(150, noise=0.08, random_state=0)
    frame = pd.DataFrame(X, columns=["x", "y"]).assign(moon=np.array(["upper", "lower"])[truth])
    rng = np.random.default_rng(0)
    kept = np.concatenate([rng.choice(np.flatnonzero(truth == c), 6, replace=False) for c in (0, 1)])
    frame["moon"] = np.where(np.isin(np.arange(150), kept), frame["moon"], "?")
    facts, model = fit(tmp_path, frame, "-y", "moon", "--unlabeled", "?")
    call("predict", model, tmp_path / "t.csv", "-o", tmp_path / "o.csv")
    right = pd.read_csv(tmp_path / "o.csv")["moon"] == np.array(["upper", "lower"])[truth]
    assert facts["summary"]["rows_without_target"] == 138
    assert right.mean() > 0.9


def test_ordinal_with_its_order(pupils, tmp_path):
    """Categories keep the order given; text without one is refused; an order elsewhere is refused."""
    frame = pupils.drop(columns=["score", "pupil"])
    options = ("-y", "grade", "-t", "school", "-m", "ordinal")
    facts, model = fit(tmp_path, frame, *options, "--order", "low, medium,high")
    assert facts["classes"] == ["low", "medium", "high"]
    assert facts["summary"]["kind"] == "ordered categories"
    assert facts["summary"]["held_out"]["error"] < facts["summary"]["held_out"]["error_of_most_frequent"]
    call("predict", model, tmp_path / "t.csv", "-o", tmp_path / "o.csv")
    predicted = pd.read_csv(tmp_path / "o.csv")
    assert list(predicted)[2:] == ["p(low)", "p(medium)", "p(high)"]
    assert (predicted["grade"] == frame["grade"]).mean() > 0.8
    with pytest.raises(LabelError, match="Give their order with --order"):
        fit(tmp_path, frame, *options)
    with pytest.raises(AssertionError, match="goes with --model ordinal"):
        fit(tmp_path, frame, "-y", "grade", "--order", "low,medium,high")


def test_ordinal_numbers_are_ordered_by_size(pupils, tmp_path):
    """2 comes before 10, although not as text."""
    numbers = {"low": "2", "medium": "9", "high": "10"}
    frame = pupils.drop(columns=["score", "pupil"]).replace({"grade": numbers})
    facts, _ = fit(tmp_path, frame, "-y", "grade", "-t", "school", "-m", "ordinal", "--folds", 0)
    assert facts["classes"] == ["2", "9", "10"]


def test_constraints_move_predictions(pupils, tmp_path):
    """With two labels a school, pairs that say who is higher correct the predictions of the others."""
    frame = pupils.drop(columns="grade").copy()
    truth = frame["score"].astype(float)
    frame["score"] = [v if k < 12 else None for k, v in enumerate(truth)]
    rng = np.random.default_rng(1)
    pairs = []
    for _ in range(60):
        i, j = rng.choice(np.flatnonzero(frame["school"] == rng.choice(["a", "b", "c"])), 2, replace=False)
        i, j = (i, j) if truth[i] > truth[j] else (j, i)
        pairs.append((frame["pupil"][i], frame["pupil"][j]))
    pd.DataFrame(pairs, columns=["higher", "lower"]).to_csv(tmp_path / "pairs.csv", index=False)
    options = ("-y", "score", "-t", "school", "-m", "hierarchical", "--id", "pupil")
    errors = []
    for more in ((), ("--constraints", tmp_path / "pairs.csv")):
        facts, model = fit(tmp_path, frame, *options, *more, "--folds", 0)
        assert facts["inputs"] == ["hours"]
        call("predict", model, tmp_path / "t.csv", "-o", tmp_path / "o.csv", "--force")
        errors.append(np.sqrt(np.mean((pd.read_csv(tmp_path / "o.csv")["score"] - truth) ** 2)))
    assert errors[1] < 0.8 * errors[0]
    with pytest.raises(ValueError, match="--constraints are for --model hierarchical"):
        fit(tmp_path, frame, "-y", "score", "--id", "pupil", "--constraints", tmp_path / "pairs.csv")


@pytest.mark.parametrize(
    ("text", "names", "message"),
    [
        ("a,b\n1,2\n", None, "expected are 'higher'"),
        ("higher,lower\nx,1\n", None, "should hold row numbers"),
        ("higher,lower\n,1\n", None, "missing values"),
        ("higher,lower\nx,q\n", np.array(["x", "y"]), "names the row 'q'"),
        ("higher,lower,margin\n1,2,much\n", None, "should hold numbers"),
        ("higher,lower,margin\n1,2,\n", None, "missing or infinite"),
    ],
)
def test_bad_tables_of_pairs(tmp_path, text, names, message):
    """What is wrong is said, with what was expected."""
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(ConstraintError, match=message):
        read_constraints(str(tmp_path / "p.csv"), names, 3)


def test_constraints_of_some_rows(tmp_path):
    """Those about rows that are left out go; the others are renumbered; differences have four rows."""
    (tmp_path / "p.csv").write_text("higher,lower,margin\n0,2,0.5\n1,2,1\n3,1,0\n")
    kept = constraints_at(read_constraints(str(tmp_path / "p.csv"), None, 4), np.array([1, 2, 3]), 4)
    assert (kept.i.tolist(), kept.j.tolist(), kept.margin.tolist()) == ([0, 2], [1, 0], [1.0, 0.0])
    (tmp_path / "d.csv").write_text("i,j,k,l\n0,1,2,3\n")
    constraint = read_constraints(str(tmp_path / "d.csv"), None, 4)
    assert constraints_at(constraint, np.array([0, 1, 2]), 4) is None
    assert constraints_at(constraint, np.arange(4), 4).l.tolist() == [3]
    (tmp_path / "d.csv").write_text("i,j,k,l\n0,1,2,9\n")
    with pytest.raises(ConstraintError, match="row 9, but the table has the rows 0 to 3"):
        constraints_at(read_constraints(str(tmp_path / "d.csv"), None, 4), np.arange(4), 4)
