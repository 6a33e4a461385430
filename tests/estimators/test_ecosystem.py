"""The sparse estimators inside scikit-learn's own machinery, with tasks in a column of the frame.

The kernel is fixed in most tests: what is tested is that rows, tasks and parameters arrive.
"""

import pickle

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    cross_val_predict,
    cross_validate,
)

from gleangp import (
    EntropySelector,
    ResidualSelector,
    SparseGPClassifier,
    SparseGPRegressor,
)
from tests.two_fits import assert_same_answers

N = 90
KERNEL = ConstantKernel(1.0) * RBF(1.0)
FOLDS = KFold(3, shuffle=True, random_state=0)


@pytest.fixture(params=[SparseGPRegressor, SparseGPClassifier])
def Model(request):
    """Each of the two."""
    return request.param


@pytest.fixture
def frame():
    """Inputs and tasks of `table`."""
    return table()[0]


@pytest.fixture
def y(Model):
    """Its numbers, or two classes."""
    return targets(Model, table()[1])


def table():
    """Three schools whose pupils' results depend on `a` with another sign or shift in each."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "a": rng.normal(size=N),
            "school": np.array(["ash", "elm", "oak"])[np.arange(N) % 3],
            "b": rng.normal(size=N),
        }
    )
    slope = frame["school"].map({"ash": 1.0, "elm": -1.0, "oak": 0.3})
    y = np.sin(2 * slope * frame["a"]) + 0.1 * rng.normal(size=N)
    return frame, y.to_numpy()


def targets(Model, y):
    return y if Model is SparseGPRegressor else np.where(y > 0, "pass", "fail")


def fixed(Model, **more):
    """Nothing is learnt, so tasks share the kernel alone: how alike their functions are is not known."""
    return Model(KERNEL, coupling="kernel", optimizer=None, random_state=0, **more)


def test_cross_validate_with_named_scorers(Model, frame, y):
    """Named scorers see the tasks in the column, so no score is NaN, and tasks are learnt apart."""
    scoring = ["r2", "neg_mean_squared_error"] if Model is SparseGPRegressor else ["accuracy", "roc_auc"]
    scores = cross_validate(
        fixed(Model, task="school"), frame, y, cv=FOLDS, scoring=scoring, error_score="raise"
    )
    pooled = cross_validate(fixed(Model), frame[["a", "b"]], y, cv=FOLDS, scoring=scoring)
    for name in scoring:
        assert np.isfinite(scores[f"test_{name}"]).all()
        assert scores[f"test_{name}"].mean() > pooled[f"test_{name}"].mean() + 0.05


def test_cross_val_predict(Model, frame, y):
    """Predictions out of fold are those of models fitted by hand."""
    out = cross_val_predict(fixed(Model, task="school"), frame, y, cv=FOLDS)
    for train, test in FOLDS.split(frame):
        by_hand = fixed(Model, task="school").fit(frame.iloc[train], y[train])
        assert_same_answers(out[test], by_hand.predict(frame.iloc[test]))


def test_grid_search_over_estimator_and_selector(Model, frame, y):
    """Nested parameters of kernel and selector are searched, and the best model predicts."""
    model = fixed(Model, task="school", n_active=40)
    model.set_params(selector=ResidualSelector())
    grid = {"selector__weight": ["variance", "gain"], "kernel__k2__length_scale": [0.01, 1.0]}
    search = GridSearchCV(model, grid, cv=FOLDS, error_score="raise").fit(frame, y)
    assert search.best_params_["kernel__k2__length_scale"] == 1.0
    assert search.score(frame, y) > 0.7
    assert search.cv_results_["mean_test_score"].shape == (4,)
    assert not np.isnan(search.cv_results_["mean_test_score"]).any()


def test_grid_search_over_selectors():
    """Selectors are interchangeable values of one parameter, by name or as objects."""
    frame, y = table()
    choices = ["entropy", "information", "residual", "random", EntropySelector()]
    search = GridSearchCV(
        fixed(SparseGPRegressor, task="school", n_active=30, posterior="active"),
        {"selector": choices},
        cv=FOLDS,
        error_score="raise",
    ).fit(frame, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    named, as_object = search.cv_results_["mean_test_score"][[0, -1]]
    assert named == as_object


def test_routed_tasks(Model, frame, y):
    """Where scikit-learn routes, tasks= gives the scores of the task column."""
    by_column = cross_validate(fixed(Model, task="school"), frame, y, cv=FOLDS)["test_score"]
    with config_context(enable_metadata_routing=True):
        routed = cross_validate(
            fixed(Model),
            frame[["a", "b"]],
            y,
            cv=FOLDS,
            params={"tasks": frame["school"].to_numpy()},
            error_score="raise",
        )["test_score"]
        search = GridSearchCV(fixed(Model), {"n_active": [20, 40]}, cv=FOLDS, error_score="raise")
        search.fit(frame[["a", "b"]], y, tasks=frame["school"].to_numpy())
    assert_allclose(routed, by_column, rtol=1e-12)
    assert search.best_estimator_.tasks_.tolist() == ["ash", "elm", "oak"]


def test_frames_and_arrays_are_the_same(Model, frame, y):
    """pandas and polars frames, arrays with a task column and the argument tasks= are one model."""
    expected = fixed(Model, task="school").fit(frame, y).predict(frame)
    polars = pl.from_pandas(frame)
    inputs, tasks = frame[["a", "b"]].to_numpy(), frame["school"].to_numpy()
    array = np.column_stack([inputs.astype(object), tasks])
    results = [
        fixed(Model, task="school").fit(polars, y).predict(polars),
        fixed(Model, task=2).fit(array, y).predict(array),
        fixed(Model, task=-1).fit(array, y).predict(array),
        fixed(Model).fit(inputs, y, tasks).predict(inputs, tasks),
        fixed(Model)
        .fit(pl.DataFrame({"a": inputs[:, 0], "b": inputs[:, 1]}), y, pl.Series(tasks))
        .predict(frame[["a", "b"]], pd.Series(tasks)),
    ]
    for result in results:
        assert_array_equal(result, expected)
    named = fixed(Model, task="school").fit(frame, y)
    assert named.feature_names_in_.tolist() == ["a", "school", "b"]
    assert named.n_features_in_ == 3


def test_add_task_with_and_without_the_column(Model, frame, y):
    """The rows of a new task may come as a frame with the task column or without it."""
    old, new = frame["school"] != "oak", frame["school"] == "oak"
    with_column = fixed(Model, task="school").fit(frame[old], y[old]).add_task(frame[new], y[new], "oak")
    without = fixed(Model, task="school").fit(frame[old], y[old])
    without.add_task(frame.loc[new, ["a", "b"]], y[new], "oak")
    assert_same_answers(with_column.predict(frame), without.predict(frame))
    assert with_column.tasks_.tolist() == ["ash", "elm", "oak"]


def test_clone_pickle_joblib(Model, frame, y, tmp_path):
    """A clone is unfitted with the same parameters; a pickled or dumped model predicts the same bits."""
    model = fixed(Model, task="school", selector=EntropySelector(), n_active=30).fit(frame, y)
    copy = clone(model)
    assert not hasattr(copy, "kernel_")
    assert copy.get_params()["n_active"] == 30
    expected = model.predict(frame)
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict(frame), expected)
    joblib.dump(model, tmp_path / "model.joblib")
    assert_array_equal(joblib.load(tmp_path / "model.joblib").predict(frame), expected)


def test_kinds_of_random_state(Model, frame, y):
    """A RandomState chooses the points of its seed; equal generators choose equal points."""

    def active(state):
        return fixed(Model, task="school", n_active=30).set_params(random_state=state).fit(frame, y).active_

    assert_array_equal(active(np.random.RandomState(3)), active(3))
    assert_array_equal(active(np.random.default_rng(3)), active(np.random.default_rng(3)))


def test_classes_in_parallel():
    """With more than two classes, two processes give what one gives; probabilities sum to one."""
    frame, y = table()
    y = np.digitize(y, [-0.5, 0.5])
    models = [fixed(SparseGPClassifier, task="school", n_jobs=n).fit(frame, y) for n in (None, 2)]
    p = models[0].predict_proba(frame)
    assert_allclose(models[1].predict_proba(frame), p, rtol=1e-12)
    assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    assert np.all(p > 0)
    assert_array_equal(models[0].predict(frame), models[0].classes_[p.argmax(axis=1)])
    assert models[0].score(frame, y) > 0.75
    assert models[0].decision_function(frame).shape == (N, 3)


def test_tasks_come_and_grow_with_several_classes():
    """add_task, also without rows or with one class, and partial_fit, with more than two classes."""
    frame, y = table()
    y = np.digitize(y, [-0.5, 0.5])
    old, new = frame["school"] != "oak", frame["school"] == "oak"
    model = fixed(SparseGPClassifier, task="school", n_active=40).fit(frame[old], y[old])
    before = model.predict_proba(frame[old])
    model.add_task(frame[new], y[new], "oak").add_task(None, None, "yew")
    model.add_task(frame.loc[new, ["a", "b"]].iloc[:4], [1] * 4, "fir")
    assert_array_equal(model.predict_proba(frame[old]), before)
    assert model.score(frame[new], y[new]) > 0.7
    assert np.all(model.predict(frame[new].iloc[:4].assign(school="fir")) == 1)
    prior = model.predict_proba(frame.assign(school="yew"))
    assert_allclose(prior, np.tile(prior[0], (N, 1)), rtol=1e-9)
    score = model.score(frame[old], y[old])
    model.partial_fit(frame[old], y[old])
    assert model.score(frame[old], y[old]) >= score - 0.05
    assert all(len(a) == len(g) for a, g in zip(model.active_, model.active_gain_, strict=True))


def test_binary_probabilities_and_decisions_agree():
    """The decision is positive exactly where the second class is the more probable one."""
    frame, y = table()
    y = targets(SparseGPClassifier, y)
    model = fixed(SparseGPClassifier, task="school").fit(frame, y)
    p, decision = model.predict_proba(frame), model.decision_function(frame)
    assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    assert_array_equal(decision > 0, p[:, 1] > 0.5)
    assert_array_equal(model.predict(frame), model.classes_[(decision > 0).astype(int)])


def test_verbose_says_what_happens(capsys):
    """Every stage is reported with its evidence."""
    frame, y = table()
    SparseGPRegressor(task="school", coupling="kernel", verbose=1).fit(frame, y)
    assert "[SparseGPRegressor] start 1: log evidence" in capsys.readouterr().out


def test_sample_y():
    """Functions drawn have the posterior's mean and covariance; rows of two tasks are independent."""
    frame, y = table()
    model = fixed(SparseGPRegressor, task="school").fit(frame, y)
    new = pd.DataFrame({"a": [0.5, 0.6, 0.5, 3.0], "school": ["ash", "ash", "elm", "oak"], "b": [0.0] * 4})
    mean, cov = model.predict(new, return_cov=True)
    draws = model.sample_y(new, n_samples=20_000, random_state=0)
    assert draws.shape == (4, 20_000)
    deviation = np.sqrt(np.diag(cov))
    assert_allclose(draws.mean(axis=1), mean, atol=4 * deviation.max() / np.sqrt(20_000))
    assert_allclose(np.cov(draws), cov, atol=0.05 * deviation.max() ** 2)
    assert np.all(cov[:2, 2:] == 0.0)
    assert cov[0, 1] > 0.0
    assert_array_equal(model.sample_y(new, 3, random_state=1), model.sample_y(new, 3, random_state=1))


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_sample_y_in_any_units(scale):
    """Functions drawn are in the units of the targets, many close rows included."""
    frame, y = table()
    model = fixed(SparseGPRegressor, task="school").fit(frame, scale * y)
    new = pd.DataFrame({"a": np.linspace(-1, 1, 200), "school": "ash", "b": 0.0})
    draws = model.sample_y(new, 5)
    mean, std = model.predict(new, return_std=True)
    assert np.all(np.abs(draws - mean[:, None]) < 6 * std[:, None])
    assert np.max(np.abs(np.diff(draws, axis=0))) < 0.2 * scale


def test_std_with_noise():
    """include_noise adds the noise variance, in the user's units."""
    frame, y = table()
    model = SparseGPRegressor(KERNEL, noise_variance=0.3, optimizer=None, task="school").fit(frame, 50 * y)
    _, std = model.predict(frame, return_std=True)
    _, wide = model.predict(frame, return_std=True, include_noise=True)
    scale = model._units.scale[0]
    assert_allclose(wide**2 - std**2, 0.3 * scale**2, rtol=1e-9)
    _, cov = model.predict(frame, return_cov=True, include_noise=True)
    assert_allclose(np.sqrt(np.diag(cov)), wide, rtol=1e-9)
