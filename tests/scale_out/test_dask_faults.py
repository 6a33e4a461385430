"""Workers that die in the middle of a fit."""

import os
import signal
import time

import dask
import dask.dataframe as dd
import numpy as np
import pytest
from sklearn.base import clone

import gleangp.dask
from gleangp import SparseGPClassifier, SparseGPRegressor
from gleangp.exceptions import ClusterError
from tests.scale_out.cluster import local_cluster, make_large, same_model, school_frame

pytestmark = pytest.mark.slow  # workers must start, die and start again

FEATURES = ["a", "b"]


@pytest.fixture(autouse=True)
def large(monkeypatch):
    """Workers compute the blocks of few rows too."""
    make_large(monkeypatch)


def before_call(monkeypatch, number, act):
    """Do something before a pass over the blocks; the list grows with every pass."""
    calls, original = [], gleangp.dask.BlocksOnCluster.__call__

    def acting(self, *given):
        calls.append(1)
        if len(calls) in number:
            act()
        return original(self, *given)

    monkeypatch.setattr(gleangp.dask.BlocksOnCluster, "__call__", acting)
    return calls


def test_killed_workers_are_survived_with_the_same_result(monkeypatch):
    """Two workers die between sweeps over the blocks: the fit is the same, and so are predictions."""
    frame = school_frame()
    model = SparseGPClassifier(n_active=30, optimizer=None, random_state=0)
    here = clone(model).fit(frame[FEATURES], frame["passed"], tasks=frame["school"])
    with local_cluster(n_workers=3) as client:
        first = list(client.run(os.getpid).values())
        calls = before_call(monkeypatch, (2, 7), lambda: os.kill(first.pop(), signal.SIGKILL))
        ddf = dd.from_pandas(frame[[*FEATURES, "school", "passed"]], npartitions=5, sort=False)
        there = gleangp.dask.fit(clone(model), ddf, "passed", "school", client=client)
        predicted = gleangp.dask.predict(there, ddf, "school", method="predict_proba")
        os.kill(first.pop(), signal.SIGKILL)
        by_partition = predicted.compute()
    assert len(calls) > 7
    assert not first
    same_model(here, there)
    expected = here.predict_proba(frame[FEATURES], tasks=frame["school"])
    np.testing.assert_allclose(by_partition, expected, rtol=1e-10)


def hungry(part):
    """Takes more memory than its worker may have."""
    hoard = np.ones(120_000_000)
    time.sleep(20.0)
    return part.assign(a=hoard[: len(part)])


@pytest.mark.parametrize("at_call", [0, 2], ids=["before", "during"])
def test_a_closed_scheduler_is_an_error_that_says_so(monkeypatch, at_call):
    """Before the fit or in the middle of it: a ClusterError, and the estimator is as it was."""
    ddf = dd.from_pandas(school_frame()[[*FEATURES, "school", "passed"]], npartitions=3, sort=False)
    model = SparseGPClassifier(n_active=30, optimizer=None)
    before = dict(vars(model))
    with local_cluster() as client:
        calls = before_call(monkeypatch, (at_call,), lambda: client.cluster.close())
        if at_call == 0:
            client.cluster.close()
        with pytest.raises(ClusterError, match="connection to the Dask scheduler was lost"):
            gleangp.dask.fit(model, ddf, "passed", "school", client=client)
    assert len(calls) == at_call
    assert vars(model) == before


def test_a_worker_out_of_memory_is_an_error_that_says_so():
    """Dask kills the worker, tries as often as it is told to, and gives up; the estimator stays as it was."""
    frame = school_frame()[[*FEATURES, "score"]]
    model = SparseGPRegressor()
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        local_cluster(n_workers=1, memory_limit="600MiB") as client,
    ):
        ddf = dd.from_pandas(frame, npartitions=1).map_partitions(hungry, meta=frame.iloc[:0])
        with pytest.raises(ClusterError, match="out of memory"):
            gleangp.dask.fit(model, ddf, "score", client=client)
    assert vars(model) == vars(SparseGPRegressor())
