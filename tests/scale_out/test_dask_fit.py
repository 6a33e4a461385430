"""gleangp.dask on a cluster of separate processes gives what a fit in memory gives, bit for bit."""

from functools import partial

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import get_client
from joblib import parallel_config
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.linear_model import Ridge

import gleangp.dask
from gleangp import HierarchicalGPRegressor, SparseGPClassifier, SparseGPOrdinal, SparseGPRegressor
from gleangp.exceptions import ClusterError, LabelError, TaskError
from tests.scale_out.cluster import local_cluster, make_large, same_model, school_frame

FEATURES = ["a", "b"]
slow = partial(pytest.param, marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def client():
    with local_cluster() as client:
        yield client


@pytest.fixture(autouse=True)
def large(monkeypatch):
    """Workers compute the blocks of few rows too."""
    make_large(monkeypatch)


@pytest.fixture
def parts(monkeypatch):
    """One entry for each part that workers computed."""
    calls, submit = [], gleangp.dask.submit

    def counted(client, function, *given):
        if function is gleangp.dask._map_part:
            calls.append(1)
        return submit(client, function, *given)

    monkeypatch.setattr(gleangp.dask, "submit", counted)
    return calls


@pytest.fixture(scope="module")
def frame():
    return school_frame()


@pytest.mark.parametrize(
    ("estimator", "target"),
    [
        slow(SparseGPRegressor(), "score"),
        (SparseGPRegressor(n_active=30, coupling="coregion", optimizer=None), "score"),
        slow(SparseGPRegressor(n_active=30, noise="outliers", optimizer=None), "score"),
        slow(SparseGPRegressor(n_active=30, selector="random", optimizer=None, normalize_y=False), "score"),
        (SparseGPRegressor(n_active=30, optimizer=None, noise_variance=np.linspace(0.1, 0.2, 240)), "score"),
        (SparseGPClassifier(n_active=30, optimizer=None), "passed"),
        slow(SparseGPClassifier(n_active=30, optimizer=None, coupling="kernel"), "grade"),
        slow(SparseGPOrdinal(n_active=30, optimizer=None), "grade"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value).replace("\n", " "),
)
def test_same_as_in_memory(client, frame, parts, estimator, target):
    """The same active points, kernel, sites and predictions, bit for bit; tasks lie across partitions."""
    estimator = clone(estimator).set_params(random_state=0)
    here = clone(estimator).fit(frame[FEATURES], frame[target], tasks=frame["school"])
    ddf = dd.from_pandas(frame[[*FEATURES, "school", target]], npartitions=5, sort=False)
    assert not parts
    there = gleangp.dask.fit(estimator, ddf, target=target, task="school")
    assert there is estimator
    assert sum(parts) >= 1
    same_model(here, there)
    same = (m.predict(frame[FEATURES], tasks=frame["school"]) for m in (here, there))
    assert_array_equal(*same)


@pytest.mark.parametrize(
    "estimator", [SparseGPRegressor, pytest.param(SparseGPClassifier, marks=pytest.mark.slow)]
)
def test_one_large_task_and_small_ones(client, parts, estimator):
    """A task of several blocks, with a basis of its own, among others: workers have many parts of it."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.normal(size=(1500, 2)), columns=FEATURES)
    frame["school"] = np.where(np.arange(1500) < 1200, 0, np.arange(1500) % 7)
    frame["score"] = np.sin(3.0 * frame["a"]) + 0.2 * frame["school"] + 0.1 * rng.normal(size=1500)
    if estimator is SparseGPClassifier:
        frame["score"] = frame["score"] > 0.3
    here, there = (estimator(n_active=50, optimizer=None, random_state=0) for _ in range(2))
    here.fit(frame[FEATURES], frame["score"], tasks=frame["school"])
    gleangp.dask.fit(there, dd.from_pandas(frame, npartitions=3), "score", "school")
    assert sum(parts) > 8
    same_model(here, there)
    assert_array_equal(*(m.predict(frame[FEATURES], tasks=frame["school"]) for m in (here, there)))


def test_categories_dates_and_weights(client, frame):
    """Columns of a table become what they become in memory; a column can give the weight of each row."""
    rows = frame[[*FEATURES, "score"]].assign(
        kind=np.where(frame["a"] > 0, "day", "night"),
        since=pd.date_range("2024-01-01", periods=len(frame)),
        weight=np.linspace(0.5, 2.0, len(frame)),
    )
    rows["kind"] = rows["kind"].astype("category")
    rows.loc[rows.index[5], "b"] = np.nan
    inputs = [*FEATURES, "kind", "since"]
    here, there = (SparseGPRegressor(n_active=30, optimizer=None, random_state=0) for _ in range(2))
    here.fit(rows[inputs], rows["score"], sample_weight=rows["weight"])
    gleangp.dask.fit(there, dd.from_pandas(rows, npartitions=4), "score", sample_weight="weight")
    same_model(here, there)
    assert there.columns_ == here.columns_


@pytest.mark.parametrize(
    ("estimator", "target"),
    [
        (SparseGPRegressor(n_active=30, posterior="active", n_rounds=1, random_state=0), "score"),
        (HierarchicalGPRegressor(optimizer=None, random_state=0), "score"),
        pytest.param(
            SparseGPClassifier(n_active=20, optimizer=None, unlabeled="?", random_state=0),
            "passed",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["active", "hierarchical", "unlabelled rows"],
)
def test_other_models_fit_on_the_client(client, frame, parts, estimator, target):
    """Their rows are gathered; workers compute blocks of the default engine alone."""
    frame = frame[[*FEATURES, "school", target]].copy()
    if target == "passed":
        frame.loc[frame.index[::3], "passed"] = "?"
    here = clone(estimator).fit(frame[FEATURES], frame[target], tasks=frame["school"])
    there = gleangp.dask.fit(estimator, dd.from_pandas(frame, npartitions=3), target, "school")
    assert not parts or target == "passed"
    assert_array_equal(
        there.predict(frame[FEATURES], frame["school"]), here.predict(frame[FEATURES], frame["school"])
    )


def test_saved_after_a_fit_and_after_an_interrupted_one(client, frame, tmp_path):
    """Nothing of the callbacks stays on the estimator, whose hooks are torn down once for each fit."""
    ddf = dd.from_pandas(frame[[*FEATURES, "school", "score"]], npartitions=3, sort=False)
    model = SparseGPRegressor(n_active=20, optimizer=None, random_state=0)
    gleangp.dask.fit(model, ddf, "score", "school", client=client)
    gleangp.save(model, tmp_path / "m.glean")
    loaded = gleangp.load(tmp_path / "m.glean")
    same_model(model, loaded)

    class Interrupts:
        torn_down = 0

        def setup(self, estimator, context):
            pass

        def teardown(self, estimator, context):
            self.torn_down += 1

        def on_fit_task_begin(self, estimator, context):
            raise KeyboardInterrupt

        def on_fit_task_end(self, estimator, context):
            return False

    callback = Interrupts()
    model.set_callbacks(callback)
    with pytest.raises(KeyboardInterrupt):
        gleangp.dask.fit(model, ddf, "score", "school", client=client)
    assert callback.torn_down == 1
    gleangp.save(model, tmp_path / "m.glean")
    same_model(loaded, gleangp.load(tmp_path / "m.glean"))


def test_own_task_column_and_predictions(client, frame):
    """A task column of the estimator's own is one of its features; predictions come row by row."""
    columns = [*FEATURES, "school"]
    there = SparseGPRegressor(task="school", optimizer=None, n_active=40, random_state=0)
    here = clone(there)
    here.fit(frame[columns], frame["score"])
    ddf = dd.from_pandas(frame, npartitions=3, sort=False)
    gleangp.dask.fit(there, ddf[[*columns, "score"]], target="score")
    same_model(here, there)
    mean, std = here.predict(frame[columns], return_std=True)
    predicted = gleangp.dask.predict(there, ddf, return_std=True, client=client).compute()
    assert_allclose(predicted["prediction"], mean, rtol=1e-10)
    assert_allclose(predicted["std"], std, rtol=1e-10)
    assert_array_equal(predicted.index, frame.index)
    assert list(gleangp.dask.predict(there, ddf).dtypes) == [np.float64]


def test_methods_with_several_values_per_row(client, frame):
    """One column for each of them."""
    X, grade = frame[FEATURES], np.digitize(frame["score"], frame["score"].quantile([0.3, 0.6]))
    ddf = dd.from_pandas(frame, npartitions=3, sort=False)
    options = {"optimizer": None, "n_active": 20, "random_state": 0}
    numbers = SparseGPRegressor(**options).fit(X, frame["score"])
    classes, grades = (M(**options).fit(X, grade) for M in (SparseGPClassifier, SparseGPOrdinal))
    for model, method, more, columns in (
        (numbers, "predict_interval", {}, ["low", "high"]),
        (numbers, "predict_quantiles", {"quantiles": [0.1, 0.9]}, ["0.1", "0.9"]),
        (classes, "decision_function", {}, ["0", "1", "2"]),
        (grades, "predict_latent", {}, ["mean", "var"]),
    ):
        found = gleangp.dask.predict(model, ddf, method=method, **more).compute()
        expected = getattr(model, method)(X, **more)
        assert list(found.columns) == columns
        wide = np.column_stack(expected) if isinstance(expected, tuple) else expected
        assert_allclose(found, wide, rtol=1e-8, atol=1e-10)


def test_probabilities_by_partition(client, frame):
    """One column per class, and labels in their own type."""
    model = SparseGPClassifier(optimizer=None, n_active=20, random_state=0)
    model.fit(frame[FEATURES], frame["passed"], tasks=frame["school"])
    ddf = dd.from_pandas(frame, npartitions=3, sort=False)
    by_partition = gleangp.dask.predict(model, ddf, "school", method="predict_proba").compute()
    assert list(by_partition.columns) == ["no", "yes"]
    assert_allclose(by_partition, model.predict_proba(frame[FEATURES], tasks=frame["school"]), rtol=1e-10)
    labels = gleangp.dask.predict(model, ddf, "school").compute()["prediction"]
    assert_array_equal(labels, model.predict(frame[FEATURES], tasks=frame["school"]))
    with pytest.raises(ValueError, match="method='predict_interval' is no method of SparseGPClassifier"):
        gleangp.dask.predict(model, ddf, "school", method="predict_interval")
    with pytest.raises(ValueError, match="no columns \\['b'\\]"):
        gleangp.dask.predict(model, ddf[["a", "school"]], "school")
    with pytest.raises(ValueError, match="Use return_std"):
        gleangp.dask.predict(model, ddf, "school", return_cov=True)


def test_one_task_and_empty_partitions(client, frame):
    """Without a task column all rows are one task; partitions may be empty or without a single target."""
    rows = frame[[*FEATURES, "score"]].copy()
    rows.loc[rows.index[:60], "score"] = np.nan
    there = SparseGPRegressor(n_active=30, optimizer=None, random_state=0)
    here = clone(there)
    here.fit(rows[FEATURES], rows["score"])
    ddf = dd.from_pandas(rows, npartitions=4, sort=False)
    holes = dd.concat([ddf.partitions[0], ddf.partitions[1].query("a > 100"), ddf.partitions[1:]])
    assert holes.npartitions == 5
    gleangp.dask.fit(there, holes, target="score")
    same_model(here, there)


def test_bad_rows_are_refused_with_their_partitions(client, frame):
    """All partitions are heard before the error; the estimator stays as it was."""
    rows = frame[[*FEATURES, "school", "score"]].copy()
    rows.loc[rows.index[70], "a"] = np.inf
    rows.loc[rows.index[200], "school"] = None
    model = SparseGPRegressor()
    heard = r"(?s)2 of 4 partitions.*partition 1.*infinity.*partition 3.*missing"
    with pytest.raises(LabelError, match=heard):
        gleangp.dask.fit(model, dd.from_pandas(rows, npartitions=4, sort=False), "score", "school")
    assert vars(model) == vars(SparseGPRegressor())
    nothing = frame[[*FEATURES, "score"]].assign(score=np.nan)
    with pytest.raises(LabelError, match="y is NaN in all rows"):
        gleangp.dask.fit(model, dd.from_pandas(nothing, npartitions=2), "score")


def test_types_that_differ_between_partitions_are_refused(client):
    """Numbers are not made strings in silence."""
    rows = pd.DataFrame({"a": np.arange(4.0), "school": [1, 2, "one", "two"], "score": np.arange(4.0)})
    ddf = dd.from_map(lambda k: rows.iloc[2 * k : 2 * k + 2].infer_objects(), [0, 1], meta=rows.iloc[:0])
    with pytest.raises(TaskError, match="mixes types"):
        gleangp.dask.fit(SparseGPRegressor(), ddf, "score", "school")


@pytest.mark.parametrize(
    ("estimator", "options", "error", "message"),
    [
        (Ridge(), {}, TypeError, "Ridge"),
        (SparseGPClassifier(), {"exposure": "a"}, TypeError, "takes no 'exposure'"),
        (SparseGPRegressor(), {"exposure": "c"}, LabelError, "exposure='c' names 0 columns"),
        (SparseGPRegressor(), {"target": "none"}, LabelError, "names 0 columns"),
        (SparseGPRegressor(task="school"), {"task": "a"}, TaskError, "Give one of them"),
        (SparseGPRegressor(n_active=-1), {}, ValueError, "n_active"),
    ],
    ids=lambda value: None,
)
def test_what_cannot_be_fitted_is_refused(client, frame, estimator, options, error, message):
    """Before any row is read."""
    ddf = dd.from_pandas(frame[[*FEATURES, "school", "score"]], npartitions=2)
    with pytest.raises(error, match=message):
        gleangp.dask.fit(estimator, ddf, **{"target": "score", "task": "school", **options})


def test_no_client():
    """Said before anything else."""
    try:
        get_client()
    except ValueError:
        with pytest.raises(ClusterError, match="no Dask client"):
            gleangp.dask.fit(SparseGPRegressor(), None, "y")


@pytest.mark.parametrize(
    ("estimator", "target"),
    [
        (SparseGPRegressor(n_active=40, optimizer=None, selector="entropy"), "score"),
        (SparseGPClassifier(n_active=20, optimizer=None), "grade"),
    ],
    ids=["tasks", "classes"],
)
def test_joblib_runs_on_the_cluster(client, frame, estimator, target):
    """n_jobs with joblib's Dask backend gives the same as one process; no code changes."""
    data = (frame[FEATURES], frame[target], frame["school"])
    alone = clone(estimator).set_params(random_state=0).fit(*data)
    spread = clone(estimator).set_params(random_state=0, n_jobs=2)
    with parallel_config(backend="dask"):
        spread.fit(*data)
    assert_array_equal(spread.active_, alone.active_)
    assert_allclose(spread.log_evidence_, alone.log_evidence_, rtol=1e-12)
    assert_array_equal(
        spread.predict(frame[FEATURES], frame["school"]), alone.predict(frame[FEATURES], frame["school"])
    )
