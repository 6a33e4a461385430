"""Helpers of the benchmarks on tiny data."""

import numpy as np
import pandas as pd
import pytest
from benchmarks import common, default_checks, large_tables, magma, noise, small_tables, suggest
from benchmarks.tournament import page, rivals
from benchmarks.tournament.scores import Answer, count_scores, gleangp, score
from benchmarks.tournament.summary import cells_of, mean_ranks, rows_of
from benchmarks.tournament.tables import FEW, TEST, TRAIN, Table, make_roles
from scipy.stats import norm, poisson


@pytest.fixture(scope="module")
def table():
    """Eight groups of six rows, one number and one category."""
    rng = np.random.default_rng(0)
    g, x = np.repeat([f"g{i}" for i in range(8)], 6), rng.normal(size=48)
    y = x + rng.normal(size=8).repeat(6) + 0.1 * rng.normal(size=48)
    frame = pd.DataFrame({"g": g, "y": y, "x": x, "c": np.tile(["a", "b"], 24)})
    return Table("tiny", "reg", frame, ["x"], ["c"], "x", ["x"], make_roles("tiny", g, 1))


def test_scores_of_normal_predictions():
    """RMSE, density and coverage as they are defined."""
    y, mean, std = np.array([0.0, 1.0, 5.0]), np.zeros(3), np.full(3, 2.0)
    found = common.regression_scores(y, mean, std)
    assert found["rmse"] == pytest.approx(np.sqrt(26 / 3))
    assert found["nlpd"] == pytest.approx(-norm(mean, std).logpdf(y).mean())
    assert found["cov"] == pytest.approx(2 / 3)


def test_smooth_functions_have_unit_variance():
    """The mean square over many draws at one point is one."""
    values = [common.smooth_function(np.random.default_rng(i), 2)(np.ones((1, 2)))[0] for i in range(300)]
    assert np.var(values) == pytest.approx(1.0, abs=0.25)


def test_splits_follow_their_protocols_and_never_change(table):
    """Shares per group, new groups with few rows; the hash gives the same split on every machine."""
    groups, roles = table.groups, table.roles
    for protocol, count in (("known20", 2), ("known50", 3)):
        role = roles[f"{protocol}_0"].to_numpy()
        sizes = {tuple(np.bincount(role[groups == g], minlength=4)) for g in set(groups)}
        assert sizes == {(0, count, 0, 6 - count)}
    role = roles["new_0"].to_numpy()
    new = {g for g in set(groups) if (role[groups == g] != TRAIN).any()}
    assert all(sorted(role[groups == g]) == [FEW] * 3 + [TEST] * 3 for g in new)
    assert sorted(new) == ["g0", "g7"]


def test_encoding_and_splits_of_a_table(table):
    """One column per category; as many splits as there are seeds."""
    assert table.X.shape == (48, 3)
    assert [(protocol, seed) for protocol, seed, _ in table.splits(1)] == [
        ("known20", 0),
        ("known50", 0),
        ("new", 0),
    ]


def test_deviance_and_log_score_of_counts():
    """The deviance of a perfect mean is zero; near-Poisson moments give the Poisson log score."""
    y = np.array([1.0, 4.0])
    assert count_scores(y, y, None) == {"pdev": pytest.approx(0.0)}
    mean = np.array([2.0, 3.0])
    expected = -poisson(mean).logpmf(y).mean()
    assert count_scores(y, mean, np.sqrt(mean))["nlpd"] == pytest.approx(expected, abs=1e-3)


def test_log_loss_of_classes(table):
    """Probabilities in the order of the sorted classes."""
    frame = table.frame.assign(y=np.tile([0, 1], 24))
    classes = Table("classes", "bin", frame, ["x"], [], "x", [], table.roles)
    role = table.roles["known50_0"].to_numpy()
    proba = np.tile([0.25, 0.75], (np.sum(role == TEST), 1))
    y = classes.y[role == TEST]
    expected = -np.mean(np.log(np.where(y == 1, 0.75, 0.25)))
    assert score(classes, role, Answer(0.0, proba=proba))["logloss"] == pytest.approx(expected)


@pytest.mark.slow
def test_playing_a_table_beats_the_mean_and_makes_rows_and_a_page(table, tmp_path):
    """gleangp and ridge on the three protocols; ranks, rows with goals, the page and its chart."""
    lines = []
    for protocol, seed, role in table.splits(1):
        for name, method in (("gleangp", gleangp), ("ridge", rivals.ridge), ("slopes", rivals.ridgeslope)):
            found = score(table, role, method(table, role))
            assert found["rmse"] < 0.8 * table.y[role == TEST].std()
            key = {"data": "tiny", "kind": "reg", "protocol": protocol, "seed": seed, "method": name}
            lines.append({**key, "cpu": 0.1, "development": False, **found})
    cells = cells_of(pd.DataFrame(lines))
    assert len(cells) == 3
    ranks = mean_ranks(cells)
    assert set(ranks.index) == {"gleangp", "ridge", "slopes"}
    assert ranks.sum() == pytest.approx(6.0)
    rows = rows_of(cells)
    assert rows[0].what.startswith("grouped regression, further tables (3 of 3 cells)")
    page.write_page(cells, rows, tmp_path / "page.md", "tiny")
    text = (tmp_path / "page.md").read_text()
    assert "| tiny | known20 |" in text
    assert (tmp_path / "page.png").stat().st_size > 1000


def test_columns_that_span_the_others_are_kept():
    """A copy and a constant beside an intercept add nothing."""
    x = np.arange(5.0)
    A = np.column_stack([np.ones(5), x, 2 * x, np.full(5, 3.0)])
    kept = rivals.independent_columns(A)
    assert len(kept) == np.linalg.matrix_rank(A[:, kept]) == 2


def test_simulated_tasks_are_related_as_named():
    """Mirrored tasks differ in sign, offsets by a constant; irrelevant columns stand beside the others."""
    rng, X = np.random.default_rng(0), np.linspace(-2, 2, 9)[:, None]
    a, b = (np.abs(f(X)) for f in default_checks.family("mirrored", 2, rng))
    np.testing.assert_allclose(a, b)
    first, second = (f(X) for f in default_checks.family("offsets", 2, rng))
    assert np.ptp(first - second) < 1e-12
    wide = default_checks.with_irrelevant(X, 3, rng)
    np.testing.assert_array_equal(wide[:, :1], X)
    assert set(wide[:, 1]) <= {0.0, 1.0}
    data = noise.several_tasks(rng, 3)
    assert data.X.shape == (60, 1)
    assert np.bincount(data.t_test).tolist() == [40, 40, 40]


def test_one_split_of_a_table_is_scored_in_the_units_that_are_asked_for():
    """In units of the target the RMSE is larger by its deviation."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y, test = 100 * X[:, 0], np.arange(60) % 6 == 0
    method = lambda X, y, X_test: (np.zeros(len(X_test)), np.ones(len(X_test)))  # noqa: E731
    plain, scaled = (large_tables.one_split(X, y, test, method, units) for units in (False, True))
    assert scaled["rmse"] == pytest.approx(plain["rmse"] * y[~test].std())
    assert scaled["cov"] == plain["cov"]


def test_methods_of_a_table_are_measured_although_one_fails(tmp_path, monkeypatch):
    """A failure takes one line; methods that are not wanted take none."""
    rng = np.random.default_rng(0)
    X, tests = rng.normal(size=(60, 2)), np.arange(60) % 6 == np.arange(2)[:, None]
    np.savez(tmp_path / "yacht.npz", X=X, y=X[:, 0] + 0.1 * rng.normal(size=60), test=tests)
    monkeypatch.setattr(large_tables, "data_folder", lambda part: tmp_path)
    fails = lambda X, y, X_test: 1 / 0  # noqa: E731
    found = {"fails": (fails, 2), "exact": (large_tables.exact, 2), "other": (fails, 2)}
    monkeypatch.setattr(large_tables, "methods", lambda large: found)
    failed, measured = large_tables.rows(["yacht"], ["fail", "exact"], None, False)
    assert failed == "| yacht (50 x 2) | fails | ZeroDivisionError: division by zero |  |  |  | 2 |"
    assert float(measured.split("|")[3].split("±")[0]) < 0.2


def test_a_fit_that_takes_too_long_is_ended():
    """It is reported as such; results and errors of others come through."""

    def endless():
        while True:
            pass

    assert large_tables.within(60, lambda: 2) == 2
    with pytest.raises(ZeroDivisionError):
        large_tables.within(60, lambda: 1 / 0)
    with pytest.raises(TimeoutError, match="within 1 CPU s"):
        large_tables.within(1, endless)


def test_individual_of_magma_is_predicted():
    """Individuals with the same curve: the last ten points of the first are near it."""
    rng, time = np.random.default_rng(0), np.linspace(0, 10, 30)
    values = [np.sin(time) + 0.1 * i + 0.05 * rng.normal(size=30) for i in range(1, 5)]
    tables = [{"individual": i, "time": time, "value": value} for i, value in enumerate(values, 1)]
    scores, cpu = magma.predict_individual(pd.concat(map(pd.DataFrame, tables)), 20)
    assert scores["rmse"] < 0.1
    assert cpu > 0


def test_rows_with_goals_make_a_table():
    """A row without a goal has empty cells."""
    rows = [common.Row("a", "1", "2", True), common.Row("b", "3")]
    assert common.markdown(rows)[2:] == ["| a | 1 | 2 | yes |", "| b | 3 |  |  |"]


@pytest.mark.parametrize("classify", [False, True])
def test_ways_to_choose_rows(classify):
    """Every way chooses new rows of the pool, from a start that has all tasks and classes."""
    rng = np.random.default_rng(0)
    X, tasks = rng.uniform(-1, 1, (36, 1)), np.tile(["a", "b", "c"], 12)
    y = np.where(X[:, 0] > 0, "up", "down") if classify else X[:, 0] + 0.1 * rng.normal(size=36)
    pool = suggest.Pool(X, y, tasks, classify)
    start = suggest.first_rows(pool, np.arange(36), 4)
    assert set(tasks[start]) == {"a", "b", "c"}
    model = pool.model(start)
    rest = np.setdiff1d(np.arange(36), start)
    for way in suggest.WAYS.values():
        chosen = way(pool, model, rest, 3, rng)
        assert len(set(chosen) & set(rest)) == 3
    assert pool.error(model, rest) > 0.0
    assert suggest.needed(np.array([5, 10, 15]), np.array([3.0, 2.0, 1.0]), 2.5) == 10.0
    assert suggest.needed(np.array([5]), np.array([3.0]), 2.5) == np.inf


def test_small_tables_are_scored_against_simple_methods():
    """Every method gives means and deviations of the new rows; the table has a line for each of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    y = X @ [1.0, -2.0] + 0.1 * rng.normal(size=30)
    lines = []
    for name, method in small_tables.METHODS.items():
        mean, std = method(X[:20], y[:20], X[20:])
        assert mean.shape == std.shape == (10,)
        lines.append(
            {"table": "t", "method": name, "cpu": 1.0, **common.regression_scores(y[20:], mean, std)}
        )
    rows = small_tables.rows_of(pd.DataFrame(lines), "tiny")
    assert [row.what.split(": ")[1] for row in rows] == list(small_tables.METHODS)
    best = min(lines, key=lambda line: line["rmse"])["method"]
    assert next(r for r in rows if r.what.endswith(best)).measured.startswith("1.00")
