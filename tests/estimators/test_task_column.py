"""Tasks reach an estimator as a column, as an argument, by routing, and through a pipeline.

The models here are small on purpose: ridge regression (or a sign) on the inputs plus one offset per
task, so that every test can tell whether the right task arrived.
"""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from packaging.version import Version
from sklearn import config_context
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import StackingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import (
    GridSearchCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import check_is_fitted

from gleangp import TaskColumn
from gleangp.data.labels import check_regression_target, encode_classes
from gleangp.estimators._base import TaskClassifierMixin
from gleangp.estimators._observations import TaskRegressorMixin
from gleangp.exceptions import LabelError, TaskError


def design(X, codes, n_tasks):
    return np.hstack([X, np.eye(n_tasks)[codes]])


class ToyRegressor(TaskRegressorMixin, BaseEstimator):
    new_tasks = "error"

    def __init__(self, alpha=1e-3, *, task=None):
        self.alpha = alpha
        self.task = task

    def fit(self, X, y, tasks=None):
        X, codes = self._learn_inputs(X, tasks)
        y = check_regression_target(y, len(X))
        labeled = ~np.isnan(y)
        self.n_tasks_ = 1 if self.tasks_ is None else len(self.tasks_)
        D = design(X, codes, self.n_tasks_)[labeled]
        gram = D.T @ D + self.alpha * np.eye(D.shape[1])
        self.coef_ = np.linalg.solve(gram, D.T @ y[labeled])
        return self

    def predict(self, X, tasks=None, return_std=False):
        check_is_fitted(self)
        X, codes = self._encode_inputs(X, tasks)
        mean = design(X, codes, self.n_tasks_) @ self.coef_
        return (mean, np.full(len(X), 0.5)) if return_std else mean


class ToyClassifier(TaskClassifierMixin, BaseEstimator):
    new_tasks = "error"

    def __init__(self, *, task=None, unlabeled=None):
        self.task = task
        self.unlabeled = unlabeled

    def fit(self, X, y, tasks=None):
        X, codes = self._learn_inputs(X, tasks)
        self.classes_, y_codes = encode_classes(y, len(X), self.unlabeled)
        labeled = y_codes >= 0
        self.n_tasks_ = 1 if self.tasks_ is None else len(self.tasks_)
        D = design(X, codes, self.n_tasks_)[labeled]
        signs = 2 * np.eye(len(self.classes_))[y_codes[labeled]] - 1
        self.coef_ = np.linalg.solve(D.T @ D + 1e-3 * np.eye(D.shape[1]), D.T @ signs)
        return self

    def decision_function(self, X, tasks=None):
        check_is_fitted(self)
        X, codes = self._encode_inputs(X, tasks)
        f = design(X, codes, self.n_tasks_) @ self.coef_
        return f[:, 1] if len(self.classes_) == 2 else f

    def predict_proba(self, X, tasks=None):
        f = self.decision_function(X, tasks=tasks)
        f = np.column_stack([-f, f]) if f.ndim == 1 else f
        p = np.exp(2 * (f - f.max(axis=1, keepdims=True)))
        return p / p.sum(axis=1, keepdims=True)

    def predict(self, X, tasks=None):
        winner = self.predict_proba(X, tasks=tasks).argmax(axis=1)
        return self.classes_[winner]


RNG = np.random.default_rng(0)
N = 120
WHO = RNG.choice(["ann", "bob", "cid"], N)
INPUTS = RNG.normal(size=(N, 2))
OFFSET = np.select([WHO == "ann", WHO == "bob"], [-3.0, 0.0], 3.0)
Y = INPUTS @ [1.0, -0.5] + OFFSET
LABELS = np.where(Y > OFFSET.mean(), "pos", "neg")
X_PANDAS = pd.DataFrame({"a": 10 * INPUTS[:, 0] + 5, "who": WHO, "b": INPUTS[:, 1]})
X_POLARS = pl.DataFrame({name: X_PANDAS[name].to_numpy() for name in X_PANDAS})
CODES = np.unique(WHO, return_inverse=True)[1]
X_ARRAY = np.column_stack([X_PANDAS["a"], CODES, X_PANDAS["b"]])
FORMS = {
    "pandas": (X_PANDAS, "who"),
    "polars": (X_POLARS, "who"),
    "array": (X_ARRAY, 1),
    "list": (X_PANDAS.to_numpy().tolist(), 1),
}


def pipeline(model):
    return make_pipeline(StandardScaler(), model)


@pytest.fixture(params=[False, True], ids=["routing off", "routing on"])
def routing(request):
    with config_context(enable_metadata_routing=request.param):
        yield request.param


# -- the mixin -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (ToyRegressor(), {}),
        (ToyClassifier(), {}),
        (
            ToyClassifier(unlabeled=-7),
            {"check_classifiers_classes": "its labels are strings, which -7 cannot equal"},
        ),
    ],
)
def test_scikit_learn_checks(model, expected):
    """Estimators made with the mixin pass scikit-learn's checks."""
    results = check_estimator(model, expected_failed_checks=expected, on_fail=None, on_skip=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert failed == {}
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == set(expected)


@pytest.mark.parametrize("form", FORMS)
def test_column_equals_argument(form):
    """A task column of any container gives what tasks= gives."""
    X, task = FORMS[form]
    by_argument = ToyRegressor().fit(X_ARRAY[:, [0, 2]], Y, tasks=WHO)
    by_column = ToyRegressor(task=task).fit(X, Y)
    assert_allclose(by_column.predict(X), by_argument.predict(X_ARRAY[:, [0, 2]], tasks=WHO))
    assert_allclose(by_column.score(X, Y), by_argument.score(X_ARRAY[:, [0, 2]], Y, tasks=WHO))
    assert by_column.score(X, Y) > 0.999
    assert by_column.n_features_in_ == 3
    assert by_argument.n_features_in_ == 2
    assert by_column.tasks_.tolist() == ([0, 1, 2] if form == "array" else ["ann", "bob", "cid"])


def test_feature_names_include_the_task_column():
    """Names are checked as scikit-learn does it, with the task column in place."""
    model = ToyRegressor(task="who").fit(X_PANDAS, Y)
    assert model.feature_names_in_.tolist() == ["a", "who", "b"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(X_PANDAS[["who", "a", "b"]])
    with pytest.raises(ValueError, match=r"feature names|features"):
        model.predict(X_PANDAS[["a", "who"]])


def test_no_tasks_is_one_task():
    """Without tasks there is one, without a name."""
    model = ToyRegressor().fit(INPUTS, Y)
    assert model.tasks_ is None
    assert model.predict(INPUTS).shape == (N,)
    with pytest.raises(TaskError, match="was fitted without tasks"):
        model.predict(INPUTS, tasks=WHO)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.fit(INPUTS, Y, tasks=WHO).predict(INPUTS), "was fitted with tasks"),
        (lambda m: m.fit(INPUTS, Y, tasks=WHO).predict(INPUTS, tasks=["dan"] * N), "'dan'.*'ann'"),
        (lambda m: m.fit(INPUTS, Y, tasks=WHO[:-1]), "119 entries, but X has 120 rows"),
        (lambda m: m.fit(INPUTS, Y, tasks=WHO).predict(INPUTS, tasks=WHO[:1]), "1 entries"),
        (lambda m: m.set_params(task="who").fit(X_PANDAS, Y, tasks=WHO), "given twice"),
        (lambda m: m.set_params(task="which").fit(X_PANDAS, Y), "no column named task='which'"),
        (lambda m: m.set_params(task="who").fit(INPUTS, Y), "without column names"),
        (lambda m: m.set_params(task=1).fit(X_ARRAY[:, [1]], Y), "task=1 is not a column"),
    ],
)
def test_task_errors(call, message):
    """Conflicting, missing and unknown tasks are errors."""
    with pytest.raises(TaskError, match=message):
        call(ToyRegressor())


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (X_PANDAS, np.full(N, np.nan), "y is NaN in all rows"),
        (X_PANDAS.assign(a=np.nan), Y, "column 'a' is empty"),
        (X_PANDAS.assign(who=None), Y, "120 missing entries"),
        (X_PANDAS.rename(columns={"who": "which"}), Y, "no column named task='who'"),
    ],
    ids=["targets", "inputs", "tasks", "column"],
)
def test_failed_fit_changes_nothing(fitted, X, y, message):
    """After a fit that raised, the estimator is what it was before."""
    model = ToyRegressor(task="who")
    if fitted:
        model.fit(X_PANDAS.assign(extra=1.0), Y)
    before = dict(vars(model))
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is before[name] for name in before)


def test_failed_fit_of_a_new_estimator_sets_nothing():
    """The number of features is not left behind by inputs that turn out to be bad."""
    model = ToyRegressor()
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full((3, 2), np.nan), np.zeros(3))
    assert vars(model) == {"alpha": 1e-3, "task": None}


def test_score_counts_labeled_rows_only():
    """Rows without a label do not count, weights stay with their rows."""
    y = np.where(np.arange(N) % 2, Y, np.nan)
    model = ToyRegressor(task="who").fit(X_PANDAS, y)
    rows = np.arange(N) % 2 == 1
    weight = np.arange(1.0, N + 1)
    assert_allclose(
        model.score(X_PANDAS, y, sample_weight=weight),
        model.score(X_PANDAS[rows], Y[rows], sample_weight=weight[rows]),
    )
    labels = np.where(rows, LABELS, "?")
    model = ToyClassifier(task="who", unlabeled="?").fit(X_PANDAS, labels)
    assert model.classes_.tolist() == ["neg", "pos"]
    assert model.score(X_PANDAS, labels) == model.score(X_PANDAS[rows], LABELS[rows]) > 0.9
    with pytest.raises(LabelError, match="no labeled row"):
        model.score(X_PANDAS, ["?"] * N)


def test_requests_only_where_the_method_has_the_parameter():
    """`tasks` is requested by default wherever it can be passed, and nowhere else."""
    for model in (ToyRegressor(), ToyClassifier()):
        requests = model.get_metadata_routing()
        for method in ("fit", "predict", "score"):
            assert getattr(requests, method).requests["tasks"] is True
    assert requests.predict_proba.requests == requests.decision_function.requests == {"tasks": True}
    assert ToyRegressor().get_metadata_routing().decision_function.requests == {}
    assert ToyRegressor().get_metadata_routing().score.requests["sample_weight"] is None


def test_routed_tasks_without_request_calls():
    """With routing switched on, tasks go through a pipeline."""
    model = pipeline(ToyRegressor())
    X = X_PANDAS[["a", "b"]]
    with config_context(enable_metadata_routing=True):
        assert model.fit(X, Y, tasks=WHO).predict(X, tasks=WHO).shape == (N,)
        assert model.score(X, Y, tasks=WHO) > 0.99


@pytest.mark.skipif(
    Version(sklearn.__version__) < Version("1.8"),
    reason="before scikit-learn 1.8, cross-validation passes nothing to the own score of a pipeline",
)
def test_routed_tasks_reach_the_score_of_a_pipeline():
    """With routing switched on, cross-validation and a search score a pipeline with the tasks."""
    model = pipeline(ToyRegressor())
    X = X_PANDAS[["a", "b"]]
    with config_context(enable_metadata_routing=True):
        assert cross_validate(model, X, Y, params={"tasks": WHO})["test_score"].min() > 0.99
        search = GridSearchCV(model, {"toyregressor__alpha": [1e-3, 1e3]}).fit(X, Y, tasks=WHO)
    assert search.best_params_ == {"toyregressor__alpha": 1e-3}


# -- TaskColumn ----------------------------------------------------------------------------------
@pytest.mark.parametrize("form", FORMS)
def test_pipeline_gets_tasks(routing, form):
    """The scaler sees the inputs, the model the tasks, whether routing is on or off."""
    X, task = FORMS[form]
    model = TaskColumn(pipeline(ToyRegressor()), task=task).fit(X, Y)
    scaled = StandardScaler().fit_transform(X_ARRAY[:, [0, 2]])
    expected = ToyRegressor().fit(scaled, Y, tasks=WHO).predict(scaled, tasks=WHO)
    assert_allclose(model.predict(X), expected)
    assert model.score(X, Y) > 0.999
    assert model.n_features_in_ == 3
    assert model.estimator_.n_features_in_ == 2
    assert hasattr(model, "feature_names_in_") == (form in {"pandas", "polars"})
    mean, std = model.predict(X, return_std=True)
    assert_allclose(mean, expected)
    assert_array_equal(std, np.full(N, 0.5))


def test_bare_estimator():
    """Without a pipeline it does what the estimator's own task= does."""
    wrapped = TaskColumn(ToyRegressor(), "who").fit(X_PANDAS, Y)
    assert_allclose(wrapped.predict(X_PANDAS), ToyRegressor(task="who").fit(X_PANDAS, Y).predict(X_PANDAS))


def test_column_transformer_inside(routing):
    """Encoders that choose columns by name see the frame without the task column."""
    columns = make_column_transformer((StandardScaler(), ["a"]), ("passthrough", ["b"]))
    model = TaskColumn(make_pipeline(columns, ToyRegressor()), "who").fit(X_PANDAS, Y)
    assert model.score(X_PANDAS, Y) > 0.999


def test_classifier(routing):
    """Classes, probabilities and decisions are those of the wrapped classifier."""
    model = TaskColumn(pipeline(ToyClassifier()), "who")
    assert not hasattr(model, "classes_")
    model.fit(X_PANDAS, LABELS)
    assert model.classes_.tolist() == ["neg", "pos"]
    assert_allclose(model.predict_proba(X_PANDAS).sum(axis=1), 1.0)
    assert_array_equal(model.decision_function(X_PANDAS) > 0, model.predict(X_PANDAS) == "pos")
    assert model.score(X_PANDAS, LABELS) > 0.9


OWN_OR_WRAPPED = [
    (ToyRegressor(task="who"), ToyClassifier(task="who"), "alpha"),
    (
        TaskColumn(pipeline(ToyRegressor()), "who"),
        TaskColumn(pipeline(ToyClassifier()), "who"),
        "estimator__toyregressor__alpha",
    ),
]


@pytest.mark.parametrize(
    ("model", "classifier", "alpha"), OWN_OR_WRAPPED, ids=["own column", "around a pipeline"]
)
def test_model_selection(routing, model, classifier, alpha):
    """Named scorers, predictions, grids, calibration and stacking all get the tasks."""
    assert cross_val_score(model, X_PANDAS, Y).min() > 0.99
    scoring = {"scoring": "neg_mean_squared_error", "error_score": "raise"}
    assert cross_validate(model, X_PANDAS, Y, **scoring)["test_score"].min() > -0.01
    assert_allclose(cross_val_predict(model, X_PANDAS, Y), Y, atol=0.1)
    search = GridSearchCV(model, {alpha: [1e-3, 1e3]}, error_score="raise").fit(X_PANDAS, Y)
    assert search.best_params_ == {alpha: 1e-3}
    stack = StackingRegressor([("m", model)], final_estimator=Ridge()).fit(X_PANDAS, Y)
    assert stack.score(X_PANDAS, Y) > 0.99
    calibrated = CalibratedClassifierCV(classifier, cv=3).fit(X_PANDAS, LABELS)
    assert calibrated.score(X_PANDAS, LABELS) > 0.9
    proba = cross_val_predict(classifier, X_PANDAS, LABELS, method="predict_proba")
    assert_allclose(proba.sum(axis=1), 1.0)
    assert np.mean((proba[:, 1] > 0.5) == (LABELS == "pos")) > 0.9


def test_parameters_tags_clone_and_pickle():
    """It looks like what it wraps to scikit-learn, and copies without its fitted state."""
    regressor = TaskColumn(pipeline(ToyRegressor()), "who")
    classifier = TaskColumn(pipeline(ToyClassifier()), "who")
    assert is_regressor(regressor)
    assert is_classifier(classifier)
    assert not hasattr(regressor, "predict_proba")
    assert hasattr(classifier, "predict_proba")
    assert regressor.get_params()["estimator__toyregressor__alpha"] == 1e-3
    regressor.set_params(estimator__toyregressor__alpha=0.5).fit(X_PANDAS, Y)
    copy = clone(regressor)
    assert copy.get_params()["estimator__toyregressor__alpha"] == 0.5
    assert not hasattr(copy, "estimator_")
    thawed = pickle.loads(pickle.dumps(regressor))
    assert_array_equal(thawed.predict(X_PANDAS), regressor.predict(X_PANDAS))
    assert "TaskColumn" in regressor._repr_html_()


def test_sample_weight_reaches_score():
    """Other metadata is handed on to the wrapped estimator."""
    model = TaskColumn(ToyRegressor(alpha=5.0), "who").fit(X_PANDAS, Y)
    weight = np.arange(N) < N // 2
    assert_allclose(
        model.score(X_PANDAS, Y, sample_weight=weight), model.score(X_PANDAS[: N // 2], Y[: N // 2])
    )


@pytest.mark.parametrize(
    ("model", "X", "kwargs", "message"),
    [
        (TaskColumn(ToyRegressor(), "who"), X_PANDAS, {"tasks": WHO}, "given twice"),
        (TaskColumn(ToyRegressor(task="a"), "who"), X_PANDAS, {}, "given twice"),
        (TaskColumn(ToyRegressor(), "which"), X_PANDAS, {}, "no column named task='which'"),
        (TaskColumn(pipeline(Ridge()), "who"), X_PANDAS, {}, r"Pipeline.fit has no use for tasks"),
        (TaskColumn(Ridge(), "who"), X_PANDAS, {}, r"Ridge.fit has no use for tasks"),
    ],
)
def test_task_column_errors(model, X, kwargs, message):
    """Conflicts and estimators without tasks are errors that leave nothing behind."""
    with pytest.raises(TaskError, match=message):
        model.fit(X, Y, **kwargs)
    assert set(vars(model)) == {"estimator", "task"}


def test_predict_errors():
    """Before fit, with other columns, and where the wrapped estimator hides the tasks."""
    model = TaskColumn(pipeline(ToyRegressor()), "who")
    with pytest.raises(NotFittedError):
        model.predict(X_PANDAS)
    model.fit(X_PANDAS, Y)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(X_PANDAS[["who", "a", "b"]])
    with pytest.raises(TaskError, match="unknown tasks"):
        model.predict(X_PANDAS.assign(who="dan"))
    hidden = TaskColumn(GridSearchCV(ToyRegressor(), {"alpha": [1.0]}), "who").fit(X_PANDAS, Y)
    with pytest.raises(TaskError, match=r"GridSearchCV.predict .*put TaskColumn inside"):
        hidden.predict(X_PANDAS)
