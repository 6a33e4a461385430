"""Questions to a fitted model: left-out predictions, who helps whom, which rows to label next."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from gleangp import SparseGPClassifier, SparseGPOrdinal, SparseGPRegressor, load, save
from gleangp.exceptions import NewTaskWarning, TaskError
from gleangp.models.local.answers import (
    _some_rows,
    choose_informative,
    leave_one_out,
    left_out_scores,
    noise_of_labels,
    without_each_task,
)
from gleangp.noise import Ordered, Poisson, Probit
from gleangp.noise.classes import class_log_probabilities

GOLDEN = Path(__file__).parents[1] / "golden"
KERNEL = ConstantKernel(1.0) * RBF(1.0)
FIXED = {"optimizer": None, "noise_variance": 0.1, "normalize_y": False}


def siblings(seed=0, n_tasks=8, n=7):
    """Tasks that are one wave with offsets; the last is noise."""
    rng = np.random.default_rng(seed)
    tasks, X = np.repeat(np.arange(n_tasks), n), rng.uniform(0, 6, (n_tasks * n, 1))
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=n_tasks)[tasks] + 0.1 * rng.normal(size=len(X))
    last = tasks == n_tasks - 1
    y[last] = 2.0 * rng.normal(size=n)
    return X, y, tasks


@pytest.mark.parametrize("few", [{}, {"n_active": 12}], ids=["one block", "blocks and basis"])
def test_leave_one_out_is_a_fit_without_the_row(few):
    """Left-out predictions equal those of a fit without the row; with a basis, nearly: it is chosen again."""
    X, y, tasks = siblings()
    options = {**FIXED, **few, "coupling": "function", "random_state": 0}
    mean, std = SparseGPRegressor(KERNEL, **options).fit(X, y, tasks=tasks).leave_one_out()
    for i in (0, 20, 55):
        rest = np.arange(len(X)) != i
        without = SparseGPRegressor(KERNEL, **options).fit(X[rest], y[rest], tasks=tasks[rest])
        expected = without.predict(X[[i]], tasks=tasks[[i]], return_std=True, include_noise=True)
        atol = 0.05 if few else 1e-10
        assert_allclose([mean[[i]], std[[i]]], expected, atol=atol)


@pytest.mark.parametrize("noise", ["outliers", "poisson", "negative_binomial", "binomial", "gamma"])
def test_leave_one_out_with_other_noise_is_nearly_a_fit_without_the_row(noise):
    """Sites of the other rows stay, so a left-out prediction differs a little from that of another fit."""
    X, f, _ = siblings()
    rng, rows = np.random.default_rng(1), known_fields(noise, len(X))
    y = {
        "outliers": f,
        "gamma": np.exp(f),
        "binomial": rng.binomial(9, 1.0 / (1.0 + np.exp(-f))),
    }.get(noise, rng.poisson(5.0 * np.exp(0.5 * f)))
    options = {"noise": noise, "optimizer": None, "normalize_y": False}
    mean, std = SparseGPRegressor(KERNEL, **options).fit(X, y, **rows).leave_one_out()
    for i in (0, 20, 55):
        rest = np.arange(len(X)) != i
        without = SparseGPRegressor(KERNEL, **options)
        without.fit(X[rest], y[rest], **{name: values[rest] for name, values in rows.items()})
        of_row = {name: values[[i]] for name, values in rows.items()}
        expected = without.predict(X[[i]], return_std=True, include_noise=True, **of_row)
        assert_allclose([mean[[i]], std[[i]]], expected, rtol=0.05, atol=0.05)


def known_fields(noise, n_rows):
    """What is known of every row of such noise."""
    if noise == "binomial":
        return {"trials": np.full(n_rows, 9.0)}
    if noise in ("poisson", "negative_binomial"):
        return {"exposure": np.linspace(1.0, 4.0, n_rows)}
    return {}


def test_rows_come_back_in_the_order_of_fit():
    """Left-out predictions belong to the rows as they were given; a row without a target has none."""
    X, y, tasks = siblings()
    y[5] = np.nan
    model = SparseGPRegressor(KERNEL, coupling="function", **FIXED).fit(X, y, tasks=tasks)
    mean, std = model.leave_one_out()
    assert np.isnan(mean[5])
    order = np.random.default_rng(1).permutation(len(X))
    again = SparseGPRegressor(KERNEL, coupling="function", **FIXED)
    moved = again.fit(X[order], y[order], tasks=tasks[order]).leave_one_out()
    assert_allclose(moved[0], mean[order], atol=1e-9)
    assert_allclose(moved[1], std[order], atol=1e-9)


def test_transfer_report_finds_the_task_that_is_unlike_the_others():
    """Tasks of one wave gain from each other; the one of noise does not."""
    X, y, tasks = siblings()
    model = SparseGPRegressor(random_state=0).fit(X, y, tasks=tasks)
    report = model.transfer_report()
    assert [line.task for line in report] == list(range(8))
    assert min(line.gain for line in report[:7]) > 0.0
    assert report[7].gain < min(line.gain for line in report[:7])
    assert all(7 not in line.leans_on for line in report[:7])
    # The model has learnt not to rely on it. By chance, about one of the 24 pairs is two standard errors off.
    assert sum(len(line.better_without) for line in report) <= 3
    assert all(7 not in line.better_without for line in report)
    assert_allclose([line.with_others - line.alone for line in report], [line.gain for line in report])


@pytest.mark.parametrize("sizes", [[6, 9, 4], [1, 5, 3]], ids=["several rows", "one row"])
def test_what_a_task_contributes_is_a_fit_without_it(sizes):
    """The gain and the move in closed form are those of fits without the task and the row."""
    rng = np.random.default_rng(3)
    tasks = np.repeat(np.arange(3), sizes)
    X, y = rng.uniform(0, 6, (len(tasks), 1)), rng.normal(size=len(tasks))
    options = {**FIXED, "coupling": "function", "random_state": 0}
    model = SparseGPRegressor(KERNEL, **options).fit(X, y, tasks=tasks)._model
    posterior = model.best.posterior
    tasks, gained, moved = without_each_task(model, np.arange(len(X)))
    assert tasks.tolist() == [0, 1, 2]
    at = posterior.codes, posterior.codes
    C = sum(t.between(*at) * t.kernel(posterior.X) for t in posterior.terms)
    C += np.diag(1.0 / posterior.precision)

    def left_out(row, known):
        weights = np.linalg.solve(C[np.ix_(known, known)], C[known, row])
        mean, var = weights @ posterior.site_mean[known], C[row, row] - weights @ C[known, row]
        return mean, norm.logpdf(posterior.site_mean[row], mean, np.sqrt(var))

    for row, of_row in enumerate(posterior.codes):
        for task in range(3):
            rest = np.arange(len(X)) != row
            with_it = left_out(row, rest)
            without = left_out(row, rest & (posterior.codes != task))
            own = of_row == task
            assert_allclose(moved[row, task], 0.0 if own else abs(with_it[0] - without[0]), atol=1e-10)
            assert_allclose(gained[row, task], 0.0 if own else with_it[1] - without[1], atol=1e-10)


def classes_of_siblings(n_classes=2):
    """Eight tasks with labels of one boundary, and one with labels at random."""
    rng = np.random.default_rng(1)
    tasks = np.repeat(np.arange(9), 12)
    X = rng.uniform(-2, 2, (len(tasks), 1))
    y = np.digitize(X[:, 0] + 0.2 * rng.normal(size=len(X)), [0.0, 1.0][: n_classes - 1])
    return X, np.where(tasks == 8, rng.integers(n_classes, size=len(X)), y), tasks


@pytest.mark.parametrize("n_classes", [2, 3])
def test_transfer_report_of_classes(n_classes):
    """Tasks of one boundary gain from each other, the one of random labels least."""
    X, y, tasks = classes_of_siblings(n_classes)
    model = SparseGPClassifier(random_state=0).fit(X, y, tasks=tasks)
    report = model.transfer_report()
    assert [line.task for line in report] == list(range(9))
    assert np.mean([line.gain for line in report[:8]]) > 0.0
    assert report[8].with_others < min(line.with_others for line in report[:8])
    assert max(line.with_others for line in report) < 0.0  # log probabilities


@pytest.mark.parametrize("noise", ["probit", "logit"])
@pytest.mark.parametrize("seed", [0, 1])
def test_classes_that_overlap_have_the_shares_of_their_rows(noise, seed, tmp_path):
    """Odds of detectors, as if independent, are far too certain there: left-out labels show that."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (1200, 1))
    true = np.exp(np.column_stack([X[:, 0], np.cos(2.0 * X[:, 0]), -X[:, 0]]))
    true /= true.sum(axis=1, keepdims=True)
    y = (rng.uniform(size=(1200, 1)) > np.cumsum(true, axis=1)).sum(axis=1)
    model = SparseGPClassifier(noise=noise, random_state=0).fit(X[:200], y[:200])
    found = model.predict_proba(X[200:])
    assert np.sum(true[200:] * np.log(true[200:] / found), axis=1).mean() < 0.06
    assert found.max(axis=1).mean() == pytest.approx(true[200:].max(axis=1).mean(), abs=0.06)
    save(model, tmp_path / "model.glean")
    assert_allclose(load(tmp_path / "model.glean").predict_proba(X[200:]), found, rtol=1e-12)


def test_classes_that_are_clusters_are_certain():
    """Where few rows are between the classes, every detector is evidence of its own."""
    rng = np.random.default_rng(0)
    y = np.arange(600) % 3
    X = 4.0 * np.eye(3)[y] + rng.normal(size=(600, 3))
    found = SparseGPClassifier(random_state=0).fit(X[:60], y[:60]).predict_proba(X[60:])
    assert -np.log(found[np.arange(540), y[60:]]).mean() < 0.06


def test_power_of_the_other_detectors_makes_left_out_labels_most_probable():
    """It is the best one of a grid, for the probabilities that the models give left-out rows."""
    X, y, tasks = classes_of_siblings(3)
    model = SparseGPClassifier(random_state=0).fit(X, y, tasks=tasks)
    rows = model._models[0].row_numbers
    found = []
    for m in model._models:
        each = []
        for q in (draw.posterior for draw in m.all_draws):
            mean, var = leave_one_out(q)
            each.append(m.noise.class_log_prob(mean, var - 1.0 / q.precision))
        found.append(np.log(np.mean(np.exp(each), axis=0)))
    grid = np.linspace(0.0, 1.0, 101)
    scores = [class_log_probabilities(found, t)[np.arange(len(y)), y[rows]].sum() for t in grid]
    assert model._independence == pytest.approx(grid[np.argmax(scores)], abs=0.006)


def fitted_to(kind):
    """A model with fixed kernel of eight tasks of one wave and one of noise, in two parts; its targets."""
    X, labels, tasks = classes_of_siblings()
    rng, first = np.random.default_rng(5), np.arange(len(X)) % 4 > 0
    options = {"kernel": KERNEL, "coupling": "function", "optimizer": None}
    known = {}
    if kind == "classes":
        model, y, coded = SparseGPClassifier(**options), labels, 2.0 * labels - 1.0
    elif kind == "categories":
        y = coded = np.digitize(X[:, 0] + 0.3 * rng.normal(size=len(X)), [-1.0, 0.0, 1.0])
        model = SparseGPOrdinal(**options)
    else:
        known = {"exposure": rng.uniform(0.5, 5.0, len(X))}
        y = coded = rng.poisson(known["exposure"] * np.exp(X[:, 0])).astype(float)
        model = SparseGPRegressor(**options, noise="negative_binomial")
    for part in (first, ~first):
        model.partial_fit(X[part], y[part], tasks[part], **{name: v[part] for name, v in known.items()})
    order = np.concatenate(
        [np.flatnonzero(first)[model._fitted_models[0].row_numbers], *later(~first, tasks)]
    )
    return model, coded[order], {name: values[order] for name, values in known.items()}


def later(part, tasks):
    """Rows that are absorbed, task by task."""
    return [np.flatnonzero(part & (tasks == t)) for t in np.unique(tasks)]


@pytest.mark.parametrize("kind", ["classes", "categories", "counts"])
def test_left_out_targets_are_scored_at_their_cavities(kind, tmp_path):
    """Scores are log partition functions at the cavities of a dense twin, also of a model that was saved."""
    model, y, known = fitted_to(kind)
    save(model, tmp_path / "m.glean")
    fitted = load(tmp_path / "m.glean")._fitted_models[0]
    posterior, noise = fitted.best.posterior, replace(fitted.noise, **known)
    at = posterior.codes, posterior.codes
    K = sum(t.between(*at) * t.kernel(posterior.X) for t in posterior.terms)
    cov = np.linalg.inv(np.linalg.inv(K + 1e-9 * np.eye(len(K))) + np.diag(posterior.precision))
    mean, var = cov @ (posterior.precision * posterior.site_mean), np.diagonal(cov)
    cavity_var = 1.0 / (1.0 / var - posterior.precision)
    cavity_mean = cavity_var * (mean / var - posterior.precision * posterior.site_mean)
    expected = noise.log_partition(y, cavity_mean, cavity_var)[0]
    left_out, spread = leave_one_out(posterior)
    found = left_out_scores(fitted, np.arange(len(y)), posterior.site_mean - left_out, 1.0 / spread)
    assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    report = model.transfer_report()
    means = [expected[posterior.codes == task].mean() for task in range(9)]
    assert_allclose([line.with_others for line in report], means, rtol=1e-3)
    assert [line.n_rows for line in report] == [12] * 9


def test_scores_of_measurements_are_in_their_units():
    """A left-out score is the log density of the measurement, as `log_density` has it."""
    X, y, tasks = siblings()
    report = SparseGPRegressor(random_state=0).fit(X, y, tasks=tasks).transfer_report()
    scaled = SparseGPRegressor(random_state=0).fit(X, 1000.0 * y, tasks=tasks).transfer_report()
    shifts = [a.with_others - b.with_others for a, b in zip(report, scaled, strict=True)]
    assert_allclose(shifts, np.log(1000.0), rtol=1e-3)


def test_a_file_without_targets_is_explained():
    """A classifier of an earlier version predicts, but cannot tell who helps whom."""
    model = load(GOLDEN / "default_classifier_v2.glean")
    with pytest.raises(ValueError, match="Fit again"):
        model.transfer_report()


def test_tasks_that_harm_each_other_are_named():
    """Where parameters couple opposite waves, only the opposite ones are named as better left out."""
    rng = np.random.default_rng(0)
    tasks = np.repeat(np.arange(12), 15)
    X, opposite = rng.uniform(0, 6, (180, 1)), np.arange(12) >= 9
    y = np.where(opposite, -1.0, 1.0)[tasks] * np.sin(X[:, 0]) + 0.1 * rng.normal(size=180)
    report = SparseGPRegressor(KERNEL, coupling="function", **FIXED).fit(X, y, tasks=tasks).transfer_report()
    harmed = [line for line in report if line.better_without]
    assert len(harmed) >= 6
    assert all(opposite[line.task] != opposite[other] for line in harmed for other in line.better_without)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [([4, 0, 3], [4, 0, 3]), ([2] * 8, [2, 0, 2, 0, 2, 0, 0, 2]), ([90, 30, 3], [6, 6, 3])],
    ids=["all", "some tasks", "some of a task"],
)
def test_names_come_from_whole_tasks_or_many_rows_of_each(sizes, expected):
    """Rows are left out evenly, and not all but one row of a task."""
    most = {7: 20, 16: 9, 123: 20}[sum(sizes)]
    codes = np.repeat(np.arange(len(sizes)), sizes)
    kept = _some_rows(codes, most, least=4)
    assert np.bincount(codes[kept], minlength=len(sizes)).tolist() == expected
    assert (np.diff(kept) > 0).all()


def test_suggestions_do_not_repeat_each_other():
    """Of two equal rows far from the data one is chosen, then a row elsewhere."""
    X, y, _ = siblings()
    model = SparseGPRegressor(KERNEL, **FIXED).fit(X, y)
    pool = np.array([[3.0], [20.0], [20.0], [-15.0]])
    assert model.suggest(pool, n=2).tolist() in ([1, 3], [3, 1])


def test_greedy_choice_is_the_best_single_row():
    """The first row is the one whose label reduces the summed variance most."""
    rng = np.random.default_rng(2)
    A = rng.normal(size=(6, 6))
    cov, noise = A @ A.T, rng.uniform(0.5, 1.0, 6)
    reductions = []
    for i in range(6):
        after = cov - np.outer(cov[:, i], cov[i]) / (cov[i, i] + noise[i])
        reductions.append(np.trace(cov) - np.trace(after))
    chosen = choose_informative(cov[None], noise[None], 2)
    assert chosen[0] == np.argmax(reductions)
    assert len(set(chosen)) == 2
    information = np.log(np.linalg.det(np.eye(6) + cov / noise))
    chosen = choose_informative(cov[None], noise[None], 6, of_classes=True)
    assert chosen[0] == np.argmax(np.diag(cov) / noise)
    two = np.linalg.slogdet(np.eye(2) + cov[np.ix_(chosen[:2], chosen[:2])] / noise[chosen[:2]])[1]
    gains = [two]  # no other second row brings more
    for other in chosen[2:]:
        pair = [chosen[0], other]
        gains.append(np.linalg.slogdet(np.eye(2) + cov[np.ix_(pair, pair)] / noise[pair])[1])
    assert max(gains) == two < information


def test_what_cannot_be_answered_is_explained():
    """Without tasks there is no transfer; other noise and other posteriors are named."""
    X, y, _ = siblings()
    model = SparseGPRegressor(KERNEL, **FIXED).fit(X, y)
    with pytest.raises(TaskError, match="without tasks"):
        model.transfer_report()
    with pytest.raises(ValueError, match="n=0"):
        model.suggest(X, n=0)
    active = SparseGPRegressor(KERNEL, posterior="active", **FIXED).fit(X, y)
    with pytest.raises(ValueError, match="posterior='local'"):
        active.leave_one_out()
    assert not hasattr(SparseGPClassifier(), "leave_one_out")


@pytest.mark.parametrize("n_classes", [2, 3])
def test_rows_near_the_boundary_are_suggested_for_classes(n_classes):
    """Rows far inside a class are certain; repeated rows are not suggested twice."""
    X = np.linspace(0.0, n_classes, 20 * n_classes)[:, None]
    X = X[np.abs(X[:, 0] - np.rint(X[:, 0])) > 0.2]
    model = SparseGPClassifier(random_state=0).fit(X, np.floor(X[:, 0]).astype(int))
    pool = np.array([[0.5], [1.0], [1.0], [n_classes - 0.5]])
    first, second = model.suggest(pool, n=2)
    assert first in (1, 2)
    assert model.predict_proba(pool[[first]]).max() < model.predict_proba(pool[[0]]).max()
    assert second in ((1, 2) if n_classes == 2 else (0, 1, 2, 3))


def test_a_label_has_the_noise_that_its_site_would_have():
    """Without variance: a probit label of probability one half has the precision 2 / pi, a count its rate."""
    none = np.full((1, 1), 1e-12)
    assert_allclose(noise_of_labels(Probit(0.0), np.zeros(1), none), np.pi / 2.0, rtol=1e-6)
    assert_allclose(noise_of_labels(Poisson(exposure=np.ones(7)), np.full(1, 3.0), none), np.exp(-3.0))
    mean, cov = np.array([-1.0, 0.3]), np.diag([0.5, 2.0])
    two = noise_of_labels(Ordered(widths=[]), mean, cov)
    assert_allclose(two, noise_of_labels(Probit(), mean, cov), rtol=1e-9)


@pytest.mark.parametrize("kind", ["categories", "counts"])
def test_rows_are_suggested_for_categories_and_counts(kind):
    """Rows are chosen once, and a task without rows needs labels before one with many."""
    model, *_ = fitted_to(kind)
    model.add_task(None, None, 99)
    pool = np.tile(np.linspace(-2.0, 2.0, 9), 2)[:, None]
    tasks = np.repeat([0, 99], 9)
    chosen = model.suggest(pool, n=6, tasks=tasks)
    assert len(set(chosen)) == 6
    assert np.mean(tasks[chosen[:3]] == 99) > 0.5


def test_questions_about_new_tasks_leave_the_model_as_it_is():
    """A task that was not seen is a new one each time it is asked about."""
    X, y, tasks = siblings()
    model = SparseGPRegressor(KERNEL, coupling="function", **FIXED).fit(X, y, tasks=tasks)
    new = np.full(3, 77)
    with pytest.warns(NewTaskWarning):
        model.predict_interval(X[:3], tasks=new)
    with pytest.warns(NewTaskWarning):
        model.suggest(X[:3], tasks=new)
    assert 77 not in model.tasks_


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True, None, "3", np.nan])
def test_wrong_numbers_are_named(wrong):
    """Of draws and suggestions a whole number is expected, with probabilities one between 0 and 1."""
    X = np.linspace(0.0, 6.0, 8)[:, None]
    model = SparseGPRegressor(optimizer=None).fit(X, np.sin(X[:, 0]))
    with pytest.raises(ValueError, match=rf"^n_samples={wrong!r}; a whole number from 1 on"):
        model.sample_y(X, wrong)
    with pytest.raises(ValueError, match=rf"^n={wrong!r}; a whole number from 1 on"):
        model.suggest(X, wrong)
    with pytest.raises(ValueError, match=rf"^quantiles={wrong!r}; one probability between 0 and 1, .* list"):
        model.predict_quantiles(X, wrong)
    with pytest.raises(ValueError, match=rf"^coverage={wrong!r}; one probability between 0 and 1"):
        model.predict_interval(X, wrong)
    for several in ([], [[0.1, 0.9]], [0.1, wrong]):
        with pytest.raises(ValueError, match=r"^quantiles=.* one probability between 0 and 1"):
            model.predict_quantiles(X, several)
    with pytest.raises(ValueError, match=r"^coverage=.*0\.9.*; one probability"):
        model.predict_interval(X, [0.5, 0.9])
