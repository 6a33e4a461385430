"""scikit-learn's callbacks: every estimator tells them of its stages and steps, and stops when asked to."""

import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gleangp import (
    HierarchicalGPRegressor,
    SharedLatentGPClassifier,
    SharedLatentGPRegressor,
    SparseGPClassifier,
    SparseGPOrdinal,
    SparseGPRegressor,
    TaskColumn,
    load,
    save,
)
from tests.two_fits import assert_same_answers

RNG = np.random.default_rng(0)
N = 60
X = RNG.normal(size=(N, 2))
F = np.sin(2 * X[:, 0]) + 0.1 * RNG.standard_normal(N)
TASKS = np.arange(N) % 3
CLASSES = np.digitize(F, [-0.4, 0.4])
WITH_TASK = np.column_stack([X, TASKS])

ESTIMATORS = [
    (SparseGPRegressor(random_state=0), F),
    (SparseGPRegressor(n_active=10, random_state=0), F),
    (SparseGPRegressor(n_active=10, posterior="active", random_state=0), F),
    (SparseGPClassifier(n_rounds=1, n_active=20, random_state=0), CLASSES > 1),
    (SparseGPClassifier(n_rounds=1, n_active=20, random_state=0), CLASSES),
    (SparseGPOrdinal(n_rounds=1, n_active=20, random_state=0), CLASSES),
    (HierarchicalGPRegressor(n_rounds=2), F),
    (SharedLatentGPRegressor(1, max_iter=5, hidden_units=3, random_state=0), F),
    (SharedLatentGPRegressor(1, max_iter=5, n_init=2, n_active=10, hidden_units=3, random_state=0), F),
    (SharedLatentGPClassifier(1, max_iter=5, hidden_units=3, random_state=0), CLASSES > 1),
]
IDS = [f"{type(m).__name__}-{k}" for k, (m, _) in enumerate(ESTIMATORS)]

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


class Recorder:
    """Keeps what it is told, and asks to stop from the given number of steps on."""

    def __init__(self, stop_after=np.inf):
        self.begun, self.ended, self.stop_after, self.torn_down = [], [], stop_after, 0
        self.objectives, self.stages = [], []

    def setup(self, estimator, context):
        self.torn_down = 0

    def teardown(self, estimator, context):
        self.torn_down += 1

    def on_fit_task_begin(self, estimator, context):
        self.begun.append(context.task_name)

    def on_fit_task_end(self, estimator, context, *, X, y):
        assert len(X) == len(y) == N
        self.ended.append(context.task_name)
        if hasattr(context, "stage"):
            self.stages.append(context.stage)
            self.objectives.append(context.objective)
        return self.ended.count("step") >= self.stop_after


@dataclass
class Case:
    """An estimator with its targets, fitted without and with a callback that stops nothing."""

    model: BaseEstimator
    y: np.ndarray
    plain: BaseEstimator
    heard: BaseEstimator
    seen: Recorder


LONG = ("SparseGPRegressor-1", "SparseGPClassifier-4", "SharedLatentGPRegressor-8")
EACH = [
    pytest.param(pair, marks=pytest.mark.slow if name in LONG else (), id=name)
    for name, pair in zip(IDS, ESTIMATORS, strict=True)
]


@pytest.fixture(scope="module", params=EACH)
def case(request):
    """Fitted once for all tests of the module."""
    model, y = request.param
    seen = Recorder()
    plain = clone(model).fit(X, y, TASKS)
    return Case(model, y, plain, clone(model).set_callbacks(seen).fit(X, y, TASKS), seen)


def test_callbacks_see_every_stage_and_change_nothing(case):
    """Whatever begins ends; steps have an objective; the fitted model is the same."""
    seen = case.seen
    assert_same_answers(case.heard.predict(X, TASKS), case.plain.predict(X, TASKS))
    assert sorted(seen.begun) == sorted(seen.ended)
    assert seen.begun[0] == seen.ended[-1] == "fit"
    assert seen.ended.count("step") > 3
    assert any(np.isfinite(value) for value in seen.objectives if value is not None)
    assert {stage.n_tasks for stage in seen.stages} <= {1, 2, 3}  # a part of the rows may lack a task
    assert seen.torn_down == 1
    assert "_callback_fit_ctx" not in vars(case.heard)


def test_a_fit_that_is_asked_to_stop_ends_early_and_predicts(case):
    """From the first step on every stage ends at once; what is left is a whole model, not converged."""
    little = Recorder(stop_after=1)
    stopped = clone(case.model).set_callbacks(little).fit(X, case.y, TASKS)
    predicted = stopped.predict(X, TASKS)
    assert len(predicted) == N
    if predicted.dtype.kind == "f":
        assert np.isfinite(predicted).all()
    n_models = 3 if isinstance(case.model, SparseGPClassifier) and len(np.unique(case.y)) == 3 else 1
    assert little.ended.count("step") <= 2 * n_models < case.seen.ended.count("step")
    assert little.torn_down == 1


def test_stopping_one_stage_goes_on_with_the_next():
    """A True at a step ends that stage alone: the optimiser's best point so far, then the next stage."""

    class Impatient(Recorder):
        def on_fit_task_end(self, estimator, context, *, X, y):
            super().on_fit_task_end(estimator, context, X=X, y=y)
            return context.task_name == "step"

    seen = Impatient()
    model = SparseGPRegressor(n_active=10, posterior="active", n_rounds=3, random_state=0)
    model.set_callbacks(seen).fit(X, F)
    assert [name for name in seen.ended if name.startswith("round")] == ["round 1", "round 2", "round 3"]


def test_a_stopped_fit_warns_that_it_did_not_converge():
    """The user hears that the evidence still changed."""
    model = SparseGPRegressor(random_state=0).set_callbacks(Recorder(stop_after=1))
    with pytest.warns(ConvergenceWarning, match="stopped learning while"):
        model.fit(X, F)


def test_a_failed_fit_tears_down_and_leaves_the_estimator_as_it_was():
    """A callback that raises ends the fit; teardown is still called, and no half-fitted state is left."""

    class Broken(Recorder):
        def on_fit_task_begin(self, estimator, context):
            raise RuntimeError("callback failed")

    broken = Broken()
    model = SparseGPRegressor(random_state=0).set_callbacks(broken)
    with pytest.raises(RuntimeError, match="callback failed"):
        model.fit(X, F)
    assert broken.torn_down == 1
    assert set(vars(model)) == {*model.get_params(), "_skl_callbacks"}


def test_scikit_learns_own_callbacks_attach(capsys):
    """A bar through a grid search, a pipeline and a task column down to our steps; a log of scores."""
    callback = pytest.importorskip("sklearn.callback", reason="since scikit-learn 1.9")
    model = SparseGPRegressor(n_active=10, coupling="kernel", random_state=0)
    inner = TaskColumn(make_pipeline(StandardScaler(), model), task=2)
    search = GridSearchCV(inner, {"estimator__sparsegpregressor__n_rounds": [1]}, cv=2)
    search.set_callbacks(callback.ProgressBar(max_propagation_depth=None)).fit(WITH_TASK, F)
    out = capsys.readouterr().out
    assert "TaskColumn" in out
    assert "SparseGPRegressor - fit" in out
    assert "SparseGPRegressor - posterior" in out
    monitor = callback.ScoringMonitor(scoring="r2")
    model = (
        SparseGPRegressor(task=2, coupling="kernel", random_state=0).set_callbacks(monitor).fit(WITH_TASK, F)
    )
    assert monitor.get_logs().data[-1]["r2"] == model.score(WITH_TASK, F)


def test_classes_in_other_processes(capsys):
    """With n_jobs the binary problems are told of when they are done; the model is the same."""
    model = SparseGPClassifier(n_rounds=1, n_active=20, random_state=0)
    seen = Recorder()
    parallel = clone(model).set_params(n_jobs=2).set_callbacks(seen).fit(X, CLASSES)
    assert seen.ended == ["class", "class", "class", "fit"]
    assert_array_equal(parallel.predict(X), clone(model).fit(X, CLASSES).predict(X))


def test_every_estimator_has_a_model_file(case, tmp_path):
    """Saved and loaded, it predicts the same."""
    save(case.plain, tmp_path / "m.glean")
    assert_array_equal(load(tmp_path / "m.glean").predict(X, TASKS), case.plain.predict(X, TASKS))


def test_callbacks_stay_out_of_model_files(tmp_path):
    """A model file has no callbacks; a pickle has them, as for scikit-learn's estimators."""
    model = SparseGPRegressor(random_state=0).set_callbacks(Recorder()).fit(X, F)
    save(model, tmp_path / "m.glean")
    loaded = load(tmp_path / "m.glean")
    assert not hasattr(loaded, "_skl_callbacks")
    assert_array_equal(loaded.predict(X), model.predict(X))
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
