"""gleangp.dask on a cluster of separate processes gives what a fit in memory gives, or says why not."""

import dask.dataframe as dd
import numpy as np
import pytest
from distributed import get_client
from joblib import parallel_config
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import gleangp.dask
from gleangp import (
    EntropySelector,
    HierarchicalGPRegressor,
    SparseGPClassifier,
    SparseGPOrdinal,
    SparseGPRegressor,
)
from gleangp.dask._rows import join_names
from gleangp.exceptions import ClusterError, LabelError, TaskError
from gleangp.learning import task_store
from tests.scale_out.cluster import in_memory, local_cluster, same_model, school_frame

FEATURES = ["a", "b"]


@pytest.fixture(scope="module")
def client():
    with local_cluster() as client:
        yield client


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """So few rows would be one chunk, and one worker would have them all."""
    monkeypatch.setattr(task_store, "_CHUNK_ROWS", 50)


@pytest.fixture(scope="module")
def frame():
    return school_frame()


@pytest.mark.parametrize(
    ("estimator", "target"),
    [
        (SparseGPRegressor(), "score"),
        (SparseGPRegressor(n_active=40, n_rounds=2), "score"),
        (SparseGPRegressor(n_active=30, posterior="active", selector="entropy", n_rounds=1), "score"),
        (SparseGPRegressor(n_active=30, selector="random", n_rounds=1, normalize_y=False), "score"),
        (SparseGPClassifier(n_active=30, n_rounds=1), "passed"),
        (SparseGPClassifier(n_active=20, n_rounds=1, optimizer=None), "grade"),
        (SparseGPOrdinal(n_active=20, n_rounds=1, posterior="active", selector="information"), "grade"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value).replace("\n", " "),
)
def test_same_as_in_memory(client, frame, estimator, target):
    """The same active points, kernel, sites and evidence, bit for bit; tasks lie across partitions."""
    estimator = clone(estimator).set_params(random_state=0)
    here = in_memory(estimator)
    here.fit(frame[FEATURES], frame[target], tasks=frame["school"])
    ddf = dd.from_pandas(frame[[*FEATURES, "school", target]], npartitions=5, sort=False)
    there = gleangp.dask.fit(estimator, ddf, target=target, task="school")
    assert there is estimator
    same_model(here, there)


def test_saved_after_a_fit_and_after_an_interrupted_one(client, frame, tmp_path):
    """Nothing of the callbacks stays on the estimator, whose hooks are torn down once for each fit."""
    ddf = dd.from_pandas(frame[[*FEATURES, "school", "score"]], npartitions=3, sort=False)
    model = SparseGPRegressor(coupling="kernel", n_active=20, n_rounds=1, random_state=0)
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
    here = in_memory(there)
    here.fit(frame[columns], frame["score"])
    ddf = dd.from_pandas(frame, npartitions=3, sort=False)
    gleangp.dask.fit(there, ddf[[*columns, "score"]], target="score")
    same_model(here, there)
    mean, std = here.predict(frame[columns], return_std=True)
    predicted = gleangp.dask.predict(there, ddf, return_std=True).compute()
    assert_allclose(predicted["prediction"], mean, rtol=1e-10)
    assert_allclose(predicted["std"], std, rtol=1e-10)
    assert_array_equal(predicted.index, frame.index)
    assert list(gleangp.dask.predict(there, ddf).dtypes) == [np.float64]


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
    with pytest.raises(ValueError, match="no columns \\['b'\\]"):
        gleangp.dask.predict(model, ddf[["a", "school"]], "school")
    with pytest.raises(ValueError, match="Use return_std"):
        gleangp.dask.predict(model, ddf, "school", return_cov=True)


def test_one_task_and_empty_partitions(client, frame):
    """Without a task column all rows are one task; partitions may be empty or without a single target."""
    rows = frame[[*FEATURES, "score"]].copy()
    rows.loc[rows.index[:60], "score"] = np.nan
    there = SparseGPRegressor(n_active=30, optimizer=None, random_state=0)
    here = in_memory(there)
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
    with pytest.raises(LabelError, match="no row has a target"):
        gleangp.dask.fit(model, dd.from_pandas(nothing, npartitions=2), "score")


def test_types_that_differ_between_partitions_are_refused():
    """Numbers are not made strings in silence; whole numbers of any width are alike."""
    assert_array_equal(join_names([np.array([3, 1]), None, np.array([2], np.int8)], "tasks"), [1, 2, 3])
    with pytest.raises(TaskError, match="different types"):
        join_names([np.array([1]), np.array(["one"])], "tasks")


@pytest.mark.parametrize(
    ("estimator", "options", "error", "message"),
    [
        (SparseGPRegressor(coupling="function"), {}, ValueError, "coupling='function'"),
        (SparseGPRegressor(selector="graph"), {}, ValueError, "GraphSelector"),
        (SparseGPRegressor(selector=EntropySelector(n_swaps=2)), {}, ValueError, "without swaps"),
        (SparseGPRegressor(noise_variance=np.ones(240)), {}, ValueError, "per row"),
        (HierarchicalGPRegressor(), {}, TypeError, "HierarchicalGPRegressor"),
        (SparseGPRegressor(), {"target": "none"}, LabelError, "names 0 columns"),
        (SparseGPRegressor(task="school"), {"task": "a"}, TaskError, "Give one of them"),
        (SparseGPRegressor(n_active=-1), {}, ValueError, "n_active"),
    ],
    ids=lambda value: None,
)
def test_what_needs_memory_is_refused(client, frame, estimator, options, error, message):
    """Before any row is read."""
    ddf = dd.from_pandas(frame[[*FEATURES, "school", "score"]], npartitions=2)
    with pytest.raises(error, match=message):
        gleangp.dask.fit(estimator, ddf, **{"target": "score", "task": "school", **options})


def test_unlabelled_rows_of_a_classifier_are_refused(client, frame):
    """They need all rows in memory."""
    rows = frame[[*FEATURES, "passed"]].copy()
    rows.loc[rows.index[3], "passed"] = "?"
    with pytest.raises(LabelError, match="1 rows have no label"):
        gleangp.dask.fit(SparseGPClassifier(unlabeled="?"), dd.from_pandas(rows, npartitions=2), "passed")


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
