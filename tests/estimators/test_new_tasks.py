"""Tasks that were not seen are predicted from what the known ones share, and nothing else changes."""

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gleangp import SharedLatentGPClassifier, SparseGPClassifier, SparseGPRegressor, TaskColumn, load, save
from gleangp.exceptions import NewTaskWarning, TaskError
from gleangp.inference import joint, local
from gleangp.inference.local import LocalPosterior
from gleangp.inference.propagate import propagate_dense
from gleangp.models.defaults import NEW_TASK
from gleangp.models.local.model import with_average_task
from gleangp.models.local.new_task import _like_all
from gleangp.noise import ContaminatedNormal, NegativeBinomial
from tests.endurance.every_estimator import CASES, every, make_rows

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def same_state(model, before):
    """Whether every attribute is the very object that it was."""
    return vars(model).keys() == before.keys() and all(vars(model)[k] is v for k, v in before.items())


@every()
def test_new_tasks_are_as_added_without_rows(case, tmp_path):
    """Marginal predictions of known and new rows equal those after add_task(None, None), saved or not."""
    X, y, codes, rng = make_rows(30, 1)
    model = case.new().fit(X, case.target(y), codes)
    new, tasks = rng.normal(size=(6, 2)), np.array([1, 7, 8, 7, 0, 9])
    added = copy.deepcopy(model)
    for task in (7, 8, 9):
        added.add_task(None, None, task)
    before = dict(vars(model))
    with pytest.warns(NewTaskWarning, match=r"3 tasks were not seen by this \w+: 7, 8, 9\. ") as record:
        found = case.outputs(model, new, tasks)
    assert len(record) == 1
    assert same_state(model, before)
    assert_allclose(found, case.outputs(added, new, tasks), rtol=1e-9)
    save(added, tmp_path / "added.glean")
    loaded = load(tmp_path / "added.glean")
    assert_array_equal(case.outputs(loaded, new, tasks), case.outputs(added, new, tasks))
    for method in {"predict", "score", "decision_function", "predict_latent"} & set(dir(model)):
        target = (case.target(y)[:6],) if method == "score" else ()
        with pytest.warns(NewTaskWarning) as record:
            found = getattr(model, method)(new, *target, tasks=tasks)
        assert len(record) == 1
        expected = getattr(added, method)(new, *target, tasks=tasks)
        if np.asarray(expected).dtype.kind == "f":
            assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
        else:
            assert_array_equal(found, expected)
    strict = model.set_params(new_tasks="error")
    with pytest.raises(TaskError, match=r"unknown tasks \(3\): 7, 8, 9\. Known tasks \(3\): 0, 1, 2"):
        case.outputs(strict, new, tasks)


@pytest.mark.parametrize("coupling", ["kernel", "function", "coregion"])
def test_joint_predictions_of_new_tasks(coupling):
    """Covariances and draws are those after add_task too, between two new tasks as well."""
    X, y, codes, rng = make_rows(45, 2)
    model = SparseGPRegressor(coupling=coupling, n_active=15, optimizer=None, random_state=0).fit(X, y, codes)
    added = copy.deepcopy(model).add_task(None, None, 7).add_task(None, None, 8)
    new, tasks = np.repeat(rng.normal(size=(2, 2)), 3, axis=0), np.array([7, 8, 0, 8, 7, 1])
    mean, cov = added.predict(new, tasks, return_cov=True)
    with pytest.warns(NewTaskWarning, match="2 tasks"):
        found = model.predict(new, tasks, return_cov=True)
    assert_allclose(found[0], mean, rtol=1e-9)
    assert_allclose(found[1], cov, rtol=1e-9, atol=1e-12)
    assert (abs(found[1][0, 1]) > 1e-6) == (coupling != "kernel")
    with pytest.warns(NewTaskWarning):
        draws = model.sample_y(new, 3, tasks, random_state=0)
    assert_allclose(draws, added.sample_y(new, 3, tasks, random_state=0), rtol=1e-6, atol=1e-8)
    assert model.tasks_.tolist() == [0, 1, 2]


def test_joint_predictions_of_tasks_that_were_added_with_rows():
    """One covariance matrix of known and of added tasks: it has no negative eigenvalue.

    Its blocks of single tasks are those that the tasks have alone. Rows of an added task leave less of it in
    common with the others.
    """
    X, y, codes, rng = make_rows(60, 2, n_tasks=5)
    model = SparseGPRegressor(kernel=RBF(2.0), noise_variance=1e-3, optimizer=None, random_state=0)
    known = codes < 3
    model.fit(X[known], y[known], codes[known])
    new, tasks = rng.normal(size=(60, 2)), np.arange(60) % 5
    of_known = model.predict(new[tasks < 3], tasks[tasks < 3], return_cov=True)[1]
    before = (
        copy.deepcopy(model)
        .add_task(None, None, 3)
        .predict(new[tasks < 4], tasks[tasks < 4], return_cov=True)[1]
    )
    for task in (3, 4):
        model.add_task(X[codes == task], y[codes == task], task)
    mean, cov = model.predict(new, tasks, return_cov=True)
    assert np.linalg.eigvalsh(cov)[0] > -1e-9
    assert_allclose(cov[np.ix_(tasks < 3, tasks < 3)], of_known, atol=1e-9)
    for task in range(5):
        rows = tasks == task
        alone = model.predict(new[rows], tasks[rows], return_cov=True)
        assert_allclose(mean[rows], alone[0], atol=1e-9)
        assert_allclose(cov[np.ix_(rows, rows)], alone[1], atol=1e-9)
    four = tasks[tasks < 4]
    between = [
        np.linalg.norm(c[np.ix_(four == 3, four < 3)]) for c in (before, cov[np.ix_(tasks < 4, tasks < 4)])
    ]
    assert between[1] < 0.5 * between[0]


def test_one_new_task_and_many():
    """One is said in the singular; thousands cost no more than one, and ten of them are named."""
    X, y, codes, rng = make_rows(30, 0)
    model = SparseGPRegressor(coupling="kernel", n_rounds=1, random_state=0).fit(X, y, codes)
    with pytest.warns(NewTaskWarning, match=r"^1 task was not seen by this SparseGPRegressor: 5\."):
        model.predict(X[:1], [5])
    new = rng.normal(size=(20_000, 2))
    with pytest.warns(NewTaskWarning, match="^20000 tasks were .*109 and 19990 more"):
        mean, std = model.predict(new, np.arange(100, 20_100), return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()


def test_a_generator_is_not_drawn_from():
    """Predictions of new tasks leave the random state of the estimator alone."""
    X, y, codes, _ = make_rows(30, 0)
    random_state = np.random.RandomState(0)
    model = SparseGPRegressor(coupling="kernel", n_rounds=1, random_state=random_state).fit(X, y, codes)
    before = pickle.dumps(random_state)
    with pytest.warns(NewTaskWarning):
        model.predict(X[:2], [5, 6])
    assert pickle.dumps(random_state) == before
    assert model.random_state is random_state


def test_noise_that_is_known_per_row_is_not_needed():
    """A new task without rows has no noise of its own to know."""
    X, y, codes, _ = make_rows(30, 0)
    model = SparseGPRegressor(coupling="kernel", noise_variance=np.full(30, 0.1), n_rounds=1).fit(X, y, codes)
    with pytest.warns(NewTaskWarning):
        assert np.isfinite(model.predict(X[:2], [5, 6])).all()


def test_other_types_are_still_errors():
    """The name of a task of another type is a mistake, not a new task."""
    X, y, codes, _ = make_rows(30, 0)
    model = SparseGPRegressor(coupling="kernel", n_rounds=1).fit(X, y, codes)
    with pytest.raises(TaskError, match="another type"):
        model.predict(X[:2], ["a", "b"])


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_latent_classifier_has_every_class_for_a_new_task(n_classes):
    """Nothing is known of its labels: all classes are as probable."""
    X, _, codes, _ = make_rows(30, 0)
    labels = np.arange(30) % n_classes
    model = SharedLatentGPClassifier(n_components=1, max_iter=10, hidden_units=3, random_state=0)
    model.fit(X, labels, codes)
    with pytest.warns(NewTaskWarning):
        assert_allclose(model.predict_proba(X[:2], [5, 6]), 1.0 / n_classes)


def by_task(n_tasks=6, n_rows=12):
    """A frame sorted by task, its numbers, and which side of zero they are on."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.uniform(0, 6, n_tasks * n_rows), "who": np.repeat(list("abcdef"), n_rows)})
    y = np.sin(frame["x"]) + 0.1 * rng.normal(size=len(frame))
    return frame, y, y > 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::gleangp.exceptions.NewTaskWarning")
def test_scores_of_held_out_tasks_are_finite_and_good():
    """KFold and GroupKFold on a table sorted by task, a grid search, a pipeline."""
    frame, y, labels = by_task()
    model = SparseGPRegressor(coupling="function", task="who", n_rounds=1, random_state=0)
    for cv, groups in ((3, None), (GroupKFold(3), frame["who"])):
        scores = cross_val_score(model, frame, y, groups=groups, cv=cv, error_score="raise")
        assert (scores > 0.9).all()
    search = GridSearchCV(model, {"n_active": [20]}, cv=GroupKFold(3), error_score="raise")
    assert search.fit(frame, y, groups=frame["who"]).best_score_ > 0.9
    inner = make_pipeline(StandardScaler(), clone(model).set_params(task=None))
    scores = cross_val_score(
        TaskColumn(inner, task="who"), frame, y, groups=frame["who"], cv=GroupKFold(3), error_score="raise"
    )
    assert (scores > 0.9).all()
    classes = SparseGPClassifier(coupling="function", task="who", n_rounds=1, random_state=0)
    groups = frame["who"]
    scores = cross_val_score(classes, frame, labels, groups=groups, scoring="neg_log_loss", cv=GroupKFold(3))
    assert (scores > -0.5).all()


@pytest.mark.parametrize(
    ("noise", "y"),
    [
        (NegativeBinomial(0.2, exposure=np.array([1.0, 2.0, 3.0])), [0.0, 4.0, 9.0]),
        (ContaminatedNormal(0.5, 0.05, 10.0), [0.0, 0.4, 7.0]),
    ],
)
def test_variants_of_a_new_task_are_propagated_as_if_alone(noise, y):
    """Sites and log evidence of each prior are those of its own run; the evidence is near an exact one."""
    rng, y = np.random.default_rng(0), np.array(y)
    roots, means = rng.normal(size=(8, 3, 3)), rng.normal(size=(8, 3))
    covs = roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(3)
    sites, evidences = propagate_dense(means, covs, y, noise)
    for k in range(8):
        own, [evidence] = propagate_dense(means[[k]], covs[[k]], y, noise)
        assert_allclose(sites.precision[k], own.precision[0], rtol=1e-3)
        assert_allclose(evidences[k], evidence, atol=1e-3)
        f = rng.multivariate_normal(means[k], covs[k], 50_000)
        exact = np.log(np.mean(np.exp(noise.log_prob(y, f).sum(axis=1))))
        assert_allclose(evidences[k], exact, atol=0.3)


@pytest.mark.parametrize("n_tasks", [3, 12])
def test_odds_of_a_new_task_that_is_unlike_the_others(n_tasks):
    """With M tasks, a larger own function and sharing no function have odds of 1 to M each."""
    rng = np.random.default_rng(0)
    tasks = np.repeat(np.arange(n_tasks), 6)
    X = rng.uniform(size=(len(tasks), 1))
    model = SparseGPRegressor(optimizer=None).fit(X, np.sin(5.0 * X[:, 0]), tasks=tasks)
    draw = model._model.best
    alike = tuple(with_average_task(term, draw.posterior.n_tasks_learnt) for term in draw.posterior.terms)
    several = _like_all(draw, alike, X[:2], np.full(2, n_tasks), noisier=False)
    first = slice(len(several.log_prior) // min(n_tasks, NEW_TASK.n_levels))  # with the noise of one task
    prior, function = np.exp(several.log_prior[first]), several.own[first, -1]
    alone = ~several.loadings[first].any(axis=1)
    like = ~alone & np.isclose(function, function[~alone].min())
    assert_allclose(prior[~alone & ~like].sum(), prior[like].sum() / n_tasks)
    assert_allclose(prior[alone].sum(), prior[like].sum() / n_tasks)


def test_noise_of_a_new_task_of_counts():
    """The tasks of the fit share the dispersion; unsteady counts of a new one raise its own, and no other."""
    rng = np.random.default_rng(0)
    tasks = np.repeat(np.arange(20), 8)
    X = rng.uniform(size=(len(tasks), 1))
    rate = np.exp(2.0 + 0.4 * rng.normal(size=20)[tasks])
    model = SparseGPRegressor(noise="negative_binomial", random_state=0).fit(
        X, rng.poisson(rate), tasks=tasks
    )
    dispersion = model.noise_.dispersion
    draw = model._model.best
    assert_allclose(draw.noise, dispersion)
    alike = tuple(with_average_task(term, draw.posterior.n_tasks_learnt) for term in draw.posterior.terms)
    several = _like_all(draw, alike, X[:2], np.full(2, 20), noisier=True)
    by_factor = several.log_prior.reshape(len(NEW_TASK.noise_factors), -1)
    assert_allclose(by_factor - by_factor[0], -np.outer(NEW_TASK.noise_factors, np.ones(by_factor.shape[1])))
    model.add_task(X[:4], [8, 7, 8, 7], 20).add_task(X[:4], [0, 0, 0, 30], 21)
    steady, unsteady, other = model._model.best.noise[20:]
    assert_allclose([steady, other], dispersion)
    assert unsteady > 2.0 * dispersion
    widths = np.diff(model.predict_interval(np.full((2, 1), 0.5), tasks=[20, 21]), axis=1)
    assert widths[1, 0] > widths[0, 0]


def test_known_tasks_give_no_warning():
    """Only new tasks are worth one."""
    X, y, codes, _ = make_rows(30, 0)
    model = SparseGPRegressor(coupling="kernel", n_rounds=1).fit(X, y, codes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(X, codes)


def test_every_case_takes_new_tasks():
    """The parameter has the same default everywhere."""
    assert {case.estimator.new_tasks for case in CASES} == {"prior"}


def test_rows_of_several_tasks_are_absorbed_at_once(monkeypatch):
    """As task by task, but with one covariance given the rows before, not one for each task."""
    rng = np.random.default_rng(0)
    X, tasks = rng.uniform(0, 6, (68, 1)), np.arange(68) % 4
    y = np.sin(X[:, 0]) + tasks + 0.1 * rng.normal(size=68)
    old, new = slice(0, 60), slice(60, 68)
    at_once = SparseGPRegressor(random_state=0).fit(X[old], y[old], tasks=tasks[old])
    one_by_one, calls, predict_cov = copy.deepcopy(at_once), [], LocalPosterior.predict_cov
    for task in range(4):
        rows = 60 + np.flatnonzero(tasks[new] == task)
        one_by_one.partial_fit(X[rows], y[rows], tasks=tasks[rows])

    def counted(self, X, codes):
        calls.append(len(X))
        return predict_cov(self, X, codes)

    monkeypatch.setattr(LocalPosterior, "predict_cov", counted)
    at_once.partial_fit(X[new], y[new], tasks=tasks[new])
    assert calls == [8]
    assert_allclose(at_once.log_evidence_, one_by_one.log_evidence_, rtol=1e-9)
    got, expected = (m.predict(X, tasks=tasks, return_std=True) for m in (at_once, one_by_one))
    assert_allclose(got, expected, rtol=1e-8)


def test_joint_covariance_of_a_large_added_task(monkeypatch):
    """In parts with few neighbours: no negative eigenvalue, and variances as of single rows."""
    rng = np.random.default_rng(0)
    X, tasks = rng.uniform(0.0, 10.0, size=(2100, 2)), np.arange(2100) % 3
    y = np.sin(X[:, 0]) + 0.3 * tasks + 0.1 * rng.normal(size=2100)
    settings = {"kernel": RBF(1.0), "noise_variance": 0.01, "optimizer": None, "n_active": 60}
    model = SparseGPRegressor(random_state=0, **settings).fit(X, y, tasks=tasks)
    model.add_task(X[:20], y[:20], task=9).partial_fit(X[20:520], y[20:520], tasks=[9] * 500)
    monkeypatch.setattr(local, "N_NEAREST", 10)
    monkeypatch.setattr(joint, "CHUNK_ENTRIES", 60**2)
    new, codes = rng.uniform(0.0, 10.0, size=(60, 2)), [9] * 60
    _, cov = model.predict(new, tasks=codes, return_cov=True)
    assert np.linalg.eigvalsh(cov)[0] > -1e-9
    correlation = cov / np.sqrt(np.outer(np.diag(cov), np.diag(cov)))
    assert np.abs(correlation - np.eye(60)).max() < 1.0
    few = model.predict(new, tasks=codes, return_std=True)[1]
    assert np.all(np.sqrt(np.diag(cov)) < 1.01 * few)  # which has the ten nearest rows alone
