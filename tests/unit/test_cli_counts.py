"""Counts on the command line: noise, exposure and trials; mixed models of counts as rivals."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

pd = pytest.importorskip("pandas")
pytest.importorskip("typer")

import gleangp  # noqa: E402
from gleangp.cli._counts import CountMixedModel, looks_like_counts  # noqa: E402
from tests.unit.test_cli_predict import call  # noqa: E402


def make_counts(n_tasks=5, n=20, dispersion=0.3, seed=0):
    """Counts of tasks with levels of their own, observed for different times."""
    rng = np.random.default_rng(seed)
    tasks = np.repeat(np.arange(n_tasks), n)
    x, days = rng.uniform(-1, 1, n_tasks * n), rng.uniform(0.5, 4.0, n_tasks * n)
    rate = np.exp(0.5 + x + 0.5 * rng.standard_normal(n_tasks)[tasks])
    mean = days * rate * rng.gamma(1 / dispersion, dispersion, len(x))
    return pd.DataFrame({"site": [f"s{t}" for t in tasks], "x": x, "days": days, "seen": rng.poisson(mean)})


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table of counts."""
    path = tmp_path_factory.mktemp("counts") / "counts.csv"
    make_counts().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def fitted(table, quick_rivals):
    """A model of counts with an exposure."""
    model = table.with_name("counts.glean")
    options = ["--noise", "negative_binomial", "--exposure", "days", "--folds", "2"]
    page = str(model) + ".html"
    call("fit", table, "-y", "seen", "-t", "site", "-o", model, "--report", page, *options)
    return model


@pytest.mark.usefixtures("held_kernels")
def test_counts_are_suggested(table, tmp_path):
    """`fit` says that whole numbers from 0 may be counts, and not once the noise was chosen."""
    given = ["fit", str(table), "-y", "seen", "-t", "site", "--folds", "0", "-o"]
    assert "If they are counts, use --noise negative_binomial" in call(*given, str(tmp_path / "a.glean"))[1]
    chosen = call(*given, str(tmp_path / "b.glean"), "--noise", "gaussian")[1]
    assert "counts" not in chosen


def test_exposure_is_used_by_every_command(fitted, table, tmp_path):
    """Means grow with the exposure; a table without that column is predicted for 1, which is said."""
    frame = make_counts()
    twice = tmp_path / "twice.csv"
    frame.assign(days=2 * frame["days"]).to_csv(twice, index=False)
    means = []
    for path in (table, twice):
        call("predict", str(fitted), str(path), "-o", str(tmp_path / "p.csv"), "--interval", "0.9", "--force")
        means.append(pd.read_csv(tmp_path / "p.csv"))
    assert_allclose(means[1]["seen"], 2 * means[0]["seen"], rtol=1e-6)
    inside = (frame["seen"] >= means[0]["seen_lower"]) & (frame["seen"] <= means[0]["seen_upper"])
    assert inside.mean() > 0.85
    assert (means[0]["seen_std_new"] ** 2 >= means[0]["seen"]).all()
    frame.drop(columns="days").to_csv(twice, index=False)
    said = call("predict", str(fitted), str(twice), "-o", str(tmp_path / "q.csv"))[1]
    assert "no column 'days': rows are predicted for the exposure 1" in said
    unit = pd.read_csv(tmp_path / "q.csv")["seen"]
    assert_allclose(unit * frame["days"], means[0]["seen"], rtol=1e-6)
    with pytest.raises(gleangp.exceptions.InputError, match="no column 'days'"):
        call("predict", str(fitted), str(twice), "--strict")
    new = frame[:6].assign(site="new")
    new.to_csv(twice, index=False)
    call("update", str(fitted), str(twice), "-o", str(tmp_path / "more.glean"))
    assert "new" in gleangp.load(tmp_path / "more.glean").known_tasks


def test_terminal_and_report_agree(fitted):
    """What was learnt of the noise is printed; report and terminal have one held-out error."""
    facts = json.loads(call("inspect", str(fitted), "--json")[0])
    assert facts["noise"].startswith("negative binomial, dispersion 0.")
    assert "noise_std" not in facts
    assert set(facts["variance_shares"]) == {"common", "task"}
    assert "days" in fitted.with_name("counts.glean.html").read_text()
    held = facts["summary"]["held_out"]
    assert f"{held['deviance']:.4g}" in fitted.with_name("counts.glean.html").read_text()


@pytest.mark.slow
def test_compare_has_mixed_models_of_counts(table):
    """Counts are ranked by their Poisson deviance, and models of counts are ahead of those of numbers."""
    printed = call("compare", str(table), "-y", "seen", "-t", "site", "--folds", "2", "--json")[0]
    found = json.loads(printed)
    assert found["measure"] == "Poisson deviance"
    names = list(found["models"])
    assert any(name.startswith("Poisson mixed model") for name in names)
    assert any(name.startswith("gleangp --noise negative_binomial") for name in [*names, *found["same"]])
    assert "mean of the task" not in found["not_worse"]


def test_trials(tmp_path):
    """Counts out of a number of trials."""
    rng = np.random.default_rng(0)
    trials = rng.integers(5, 30, 80)
    x = rng.uniform(-1, 1, 80)
    frame = pd.DataFrame({"x": x, "n": trials, "hits": rng.binomial(trials, 1 / (1 + np.exp(-2 * x)))})
    table, model = tmp_path / "t.csv", tmp_path / "m.glean"
    frame.to_csv(table, index=False)
    call("fit", table, "-y", "hits", "-o", model, "--noise", "binomial", "--trials", "n", "--folds", 2)
    call("predict", model, table, "-o", tmp_path / "p.csv")
    assert np.corrcoef(pd.read_csv(tmp_path / "p.csv")["hits"], trials / (1 + np.exp(-2 * x)))[0, 1] > 0.97


def test_wrong_options_are_one_line(refused, table, tmp_path):
    """Exposure without counts, a column that is not there, an exposure of zero, noise of another kind."""
    given = ["fit", table, "-y", "seen", "-t", "site", "-o", tmp_path / "m.glean"]

    def said(code, *more, table=table):
        return refused(code, "fit", table, *given[2:], *more)

    assert "--exposure days is for counts: add --noise poisson" in said(2, "--exposure", "days")
    counts = ["--noise", "poisson", "--exposure"]
    assert "--exposure names the column 'hours'" in said(1, *counts, "hours")
    zero = tmp_path / "zero.csv"
    make_counts().assign(days=0).to_csv(zero, index=False)
    assert "'days' has 0 in row 0, where a positive" in said(1, *counts, "days", table=zero)
    assert "no noise model 'cauchy'. Use one of ['gaussian'" in said(2, "--noise", "cauchy")
    assert "no use for 'noise'" in said(1, "--model", "hierarchical", "--noise", "poisson")


@pytest.mark.parametrize("dispersion", [0.0, 0.5])
def test_mixed_models_of_counts_find_what_was_drawn(dispersion):
    """Slope, deviation of tasks and dispersion of many tasks."""
    rng = np.random.default_rng(0)
    tasks = np.repeat(np.arange(200), 10)
    x, exposure = rng.normal(size=2000), rng.uniform(0.5, 2.0, 2000)
    mean = exposure * np.exp(0.3 + 0.5 * x + 0.7 * rng.normal(size=200)[tasks])
    more = rng.gamma(1 / dispersion, dispersion, 2000) if dispersion else 1.0
    y = rng.poisson(mean * more).astype(float)
    X = np.column_stack([x, exposure])
    model = CountMixedModel(dispersion > 0, exposure=True, n_knots=0).fit(X, y, tasks)
    assert model.coef_[1] / model.scale_[0] == pytest.approx(0.5, abs=0.05)
    assert model.deviation_ == pytest.approx(0.7, abs=0.1)
    assert model.dispersion_ == pytest.approx(dispersion, abs=0.07)
    new = model.predict(np.array([[0.0, 1.0]]), np.array([-1]))
    assert np.log(new[0]) == pytest.approx(0.3, abs=0.15)


def test_laplace_is_near_the_likelihood():
    """The deviation of the tasks is the one that quadrature finds."""
    from scipy.optimize import minimize
    from scipy.stats import poisson

    rng = np.random.default_rng(1)
    tasks = np.repeat(np.arange(40), 8)
    y = rng.poisson(np.exp(1.0 + 0.6 * rng.normal(size=40)[tasks])).astype(float)
    model = CountMixedModel(n_knots=0).fit(np.zeros((320, 1)), y, tasks)
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)

    def deviance(theta):
        logs = poisson.logpmf(y[:, None], np.exp(theta[0] + np.exp(theta[1]) * nodes))
        by_task = np.array([logs[tasks == t].sum(axis=0) for t in range(40)])
        return -np.log(np.exp(by_task) @ weights).sum()

    found = minimize(deviance, [1.0, -0.5], method="Nelder-Mead").x
    assert model.deviation_ == pytest.approx(np.exp(found[1]), rel=0.02)
    assert model.coef_[0] == pytest.approx(found[0], abs=0.03)


def test_which_numbers_look_like_counts():
    """Whole numbers from 0 with few values; no classes, ratings or measurements."""
    assert looks_like_counts(np.array([0.0, 3, 1, 0, 2, 1, 0, 1, np.nan]))
    assert not looks_like_counts(np.array([0.0, 1, 1, 0]))
    assert not looks_like_counts(np.array([1.0, 2, 3, 4, 5] * 3))
    assert not looks_like_counts(np.array([0.0, 0.5, 1, 2] * 3))
    assert not looks_like_counts(np.arange(20.0))
    assert not looks_like_counts(np.array(["a", "b"]))
