"""`compare`: the mixed model, paired differences, and what is called better."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

pd = pytest.importorskip("pandas")
pytest.importorskip("typer")

from sklearn.tree import DecisionTreeRegressor  # noqa: E402

from gleangp.cli import _compare, _models  # noqa: E402
from gleangp.cli._compare import _advice, _predict_the_same  # noqa: E402
from gleangp.cli._mixed_model import MixedModel, _curves  # noqa: E402
from gleangp.cli._models import Pooled, TaskAverage  # noqa: E402
from gleangp.report.held_out import Score  # noqa: E402
from tests.unit.test_cli_predict import call, make_frame  # noqa: E402


def scored(predicted, y, numeric=True):
    """A held-out score of these predictions."""
    predicted, y = np.asarray(predicted), np.asarray(y)
    at = np.arange(len(y)), np.zeros(len(y), dtype=int)
    score = Score(*at, predicted, None, np.nan, np.nan, {}, np.zeros(len(y)), "")
    return score.by("numbers" if numeric else "labels", y)


def make_slopes(n_tasks=40, n_rows=8, seed=0):
    """Lines with intercepts of deviation 3 and slopes of deviation 2 around 5 + 1.5 x; noise of 0.5."""
    rng = np.random.default_rng(seed)
    tasks = np.repeat(np.arange(n_tasks), n_rows)
    x = rng.uniform(-1, 1, n_tasks * n_rows)
    offsets, slopes = 3 * rng.standard_normal(n_tasks), 2 * rng.standard_normal(n_tasks)
    y = 5 + offsets[tasks] + (1.5 + slopes[tasks]) * x + 0.5 * rng.standard_normal(len(x))
    return x[:, None], y, tasks


def test_mixed_model_agrees_with_statsmodels():
    """Variances and predictions of restricted maximum likelihood are those of statsmodels."""
    api = pytest.importorskip("statsmodels.formula.api")
    X, y, tasks = make_slopes()
    ours = MixedModel(n_knots=0).fit(X, y, tasks)
    frame = pd.DataFrame({"x": X[:, 0], "y": y, "t": tasks})
    theirs = api.mixedlm("y ~ x", frame, groups=frame["t"], re_formula="~x").fit(reml=True)
    assert_allclose(ours.noise_variance_, theirs.scale, rtol=1e-3)
    assert_allclose(ours.predict(X, tasks), theirs.fittedvalues, atol=1e-3)
    half = np.diag([1.0, 1.0 / ours.scale_[0]]) - np.eye(2, k=1) * ours.center_[0] / ours.scale_[0]
    cov = half @ ours.factor_ @ ours.factor_.T @ half.T * ours.noise_variance_
    assert_allclose(cov, theirs.cov_re, rtol=1e-2, atol=1e-2)


def test_mixed_model_learns_lines_of_tasks():
    """Deviations are near those drawn; a task that was not seen has the common line."""
    X, y, tasks = make_slopes(n_tasks=200)
    model = MixedModel(n_knots=0).fit(X, y, tasks)
    assert model.noise_variance_ == pytest.approx(0.25, rel=0.15)
    line = model.predict(np.array([[0.0], [1.0]]), np.array([-1, 999]))
    assert_allclose(line, [5.0, 6.5], atol=0.6)


def test_mixed_model_bends():
    """The common curve is followed where a line cannot, also with columns that depend on each other."""
    rng = np.random.default_rng(0)
    tasks = np.repeat(np.arange(10), 30)
    x = rng.uniform(0, 3, 300)
    y = np.sin(2 * x) + 0.3 * rng.standard_normal(10)[tasks] + 0.05 * rng.standard_normal(300)
    X = np.column_stack([x, np.ones(300), x > 1.5, x <= 1.5, tasks])
    errors = [np.std(MixedModel(k).fit(X, y, tasks).predict(X, tasks) - y) for k in (0, 5)]
    assert errors[1] < 0.15 < errors[0]


def test_splines_are_linear_outside():
    """Natural splines have no curvature beyond the knots, and some between them."""
    knots = np.array([0.0, 0.3, 0.7, 1.0])
    for place, straight in ((-2.0, True), (0.5, False), (2.0, True)):
        at = place + np.array([-0.1, 0.0, 0.1])
        bend = np.abs(np.diff(_curves(at, knots), 2, axis=0)).max()
        assert (bend < 1e-12) == straight


def test_differences_are_paired():
    """Errors that two models share cancel in the standard error of their difference."""
    rng = np.random.default_rng(0)
    y = rng.standard_normal(4000)
    common = rng.standard_normal(4000)
    a, b = scored(y + common, y), scored(y + common + 0.1 * rng.standard_normal(4000), y)
    gap, spread = b.behind(a)
    assert gap == pytest.approx(b.error - a.error)
    assert spread < 0.3 * np.hypot(a.std_error, b.std_error)
    draws = [np.sqrt(np.mean(rng.choice(a.loss, 4000))) for _ in range(300)]
    assert a.std_error == pytest.approx(np.std(draws), rel=0.15)  # as the bootstrap has it
    words = scored(np.where(rng.random(4000) < 0.3, "x", "y"), np.full(4000, "y"), numeric=False)
    assert words.std_error == pytest.approx(np.sqrt(words.error * (1 - words.error) / 4000), rel=1e-3)
    assert np.isnan(scored([1.0], [2.0]).std_error)


def test_nothing_within_one_standard_error_is_better():
    """A clear winner is named with its lead; else the simplest of those that are as good."""
    clear = {"mean": (2.0, 0.5), "trees, boosted": (1.0, 0.4), "ours: the best": (0.0, 0.0)}
    advice = _advice(clear, "ours: the best", ["ours: the best"], {"ours: the best"})
    assert advice.startswith("Best: 'ours', ahead of 'trees, boosted' by 1 ± 0.4.")
    advice = _advice(clear, "ours: the best", ["trees, boosted", "ours: the best"], set())
    assert "No clear winner: 'trees, boosted', 'ours'" in advice
    assert advice.endswith("The simplest of them is 'trees, boosted'.")


def test_equal_predictions_are_recognised():
    """A difference that is small beside the error is none."""
    rng = np.random.default_rng(0)
    y = rng.standard_normal(50)
    a = scored(y + 1, y)
    assert _predict_the_same(a, scored(y + 1.001, y))
    assert not _predict_the_same(a, scored(y + 1.1, y))
    labels = np.resize(["a", "b"], 1000)
    other = np.where(np.arange(1000) < 2, "c", labels)
    wrong = np.roll(labels, 1)
    assert _predict_the_same(scored(labels, wrong, False), scored(other, wrong, False))
    assert not _predict_the_same(scored(["a", "b"], ["a", "a"], False), scored(["b", "a"], ["a", "a"], False))


def test_one_row_per_task_cannot_be_compared(refused, tmp_path):
    """Nothing can be held out: one line."""
    frame = make_frame(9)[["x", "y"]].assign(t=list("abcdefghi"))
    frame.to_csv(tmp_path / "t.csv", index=False)
    line = refused(1, "compare", tmp_path / "t.csv", "-y", "y", "-t", "t")
    assert "every task has one row only" in line


@pytest.mark.slow
def test_compare_names_known_rivals(tmp_path):
    """Mixed model, boosting, one model per task, a pooled one, the mean; with paired differences."""
    frame = make_frame(60).drop(columns=["grade", "key"])
    frame.loc[0, "y"] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    out, said = call("compare", tmp_path / "t.csv", "-y", "y", "-t", "t", "--folds", 2, "--json")
    assert "1 of 60 rows have no target" in said
    found = json.loads(out)
    names = [*found["models"], *found["same"]]
    for words in (
        "mean of",
        "linear model",
        "mixed model",
        "as category",
        "tasks ignored",
        "each task alone",
    ):
        assert any(words in name for name in names), words
    errors = {name: row["error"] for name, row in found["models"].items()}
    errors.update({name: errors[twin] for name, twin in found["same"].items()})
    assert errors[found["best"]] == min(errors.values())
    assert errors["mean of the task"] > errors["gleangp --model sparse: tasks share what helps"]
    assert found["best"] in found["not_worse"]
    for name, row in found["models"].items():
        assert row["behind"] == pytest.approx(row["error"] - found["models"][found["best"]]["error"])
        assert (name in found["not_worse"]) == (row["behind"] <= row["behind_std_error"])


def test_compare_prints_a_table_and_its_advice(tmp_path, monkeypatch):
    """Errors, what others are behind by, models that predict the same, and what to use."""
    mean, tree = TaskAverage(), Pooled(DecisionTreeRegressor(random_state=0))
    monkeypatch.setattr(_compare, "rivals", lambda problem, seed: {"mean": mean, "again": mean})
    monkeypatch.setattr(_compare, "our_models", lambda problem, seed: {"ours: a tree": (tree, problem)})
    make_frame(30).to_csv(tmp_path / "t.csv", index=False)
    drop = ("--drop", "grade", "--drop", "key")
    text = call("compare", tmp_path / "t.csv", "-y", "y", "-t", "t", *drop, "--folds", 2)[0]
    assert "30 rows, 3 tasks: held-out RMSE" in text
    assert "behind" in text
    assert "Almost the same predictions as 'mean': 'again'." in text
    assert "No clear winner" in text or "Best: " in text


def test_large_tables_have_no_model_for_each_task(tmp_path, monkeypatch):
    """One model for each task would take minutes; it is left out, and a line names it."""
    names, mean, every = [], TaskAverage(), _compare.rivals

    def some(problem, seed):
        names.extend(every(problem, seed=seed))
        return {"mean": mean}

    monkeypatch.setattr(_compare, "rivals", some)
    monkeypatch.setattr(_compare, "our_models", lambda problem, seed: {"ours: mean": (mean, problem)})
    monkeypatch.setattr(_models, "_MOST_ROWS_OF_OWN_MODELS", 29)
    make_frame(30).to_csv(tmp_path / "t.csv", index=False)
    drop = ("--drop", "grade", "--drop", "key")
    _, said = call("compare", tmp_path / "t.csv", "-y", "y", "-t", "t", *drop, "--folds", 2)
    assert "GP for each task alone: left out with more than 29 rows." in said
    assert "GP of all rows, tasks ignored" in names
    assert "GP for each task alone" not in names
