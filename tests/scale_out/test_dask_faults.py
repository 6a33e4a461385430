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
from gleangp.dask import _sweeps, _tasks
from gleangp.exceptions import ClusterError
from gleangp.learning import task_store
from tests.scale_out.cluster import in_memory, local_cluster, make_huge, same_model, school_frame

pytestmark = pytest.mark.slow  # workers must start, die and start again

FEATURES = ["a", "b"]


def test_killed_workers_are_survived_with_the_same_result(monkeypatch):
    """One worker dies while points are chosen, another while the kernel is learnt: the fit is the same."""
    monkeypatch.setattr(task_store, "_CHUNK_ROWS", 50)
    frame = school_frame()
    model = SparseGPClassifier(coupling="kernel", n_active=30, n_rounds=1, selector="entropy", random_state=0)
    here = in_memory(model).fit(frame[FEATURES], frame["passed"], tasks=frame["school"])
    with local_cluster(n_workers=3) as client:
        first = list(client.run(os.getpid).values())
        killed = []

        def killing(method, at_call):
            calls = []

            def wrapped(*arguments):
                calls.append(1)
                if len(calls) == at_call:
                    killed.append(first.pop())
                    os.kill(killed[-1], signal.SIGKILL)
                return method(*arguments)

            return wrapped

        monkeypatch.setattr(_tasks.RemoteRuns, "extend", killing(_tasks.RemoteRuns.extend, 1))
        monkeypatch.setattr(_tasks.ClusterEvidence, "__call__", killing(_tasks.ClusterEvidence.__call__, 6))
        ddf = dd.from_pandas(frame[[*FEATURES, "school", "passed"]], npartitions=5, sort=False)
        there = gleangp.dask.fit(clone(model), ddf, "passed", "school", client=client)
    assert len(killed) == 2
    same_model(here, there)


def test_a_worker_killed_between_sweeps_over_one_huge_task(monkeypatch):
    """Sites that died with it are made again, sweep by sweep: the fit is the same, bit for bit."""
    make_huge(monkeypatch)
    frame = school_frame()
    model = SparseGPClassifier(n_active=20, n_rounds=1, random_state=0)
    ddf = dd.from_pandas(frame[[*FEATURES, "passed"]], npartitions=5, sort=False)
    with local_cluster(n_workers=3) as client:
        whole = gleangp.dask.fit(clone(model), ddf, "passed", client=client)
        calls, victims = [], list(client.run(os.getpid).values())
        sweep = _sweeps.RemoteSweeps.__call__

        def killing(self, *given):
            calls.append(1)
            if len(calls) == 4:
                os.kill(victims[0], signal.SIGKILL)
            return sweep(self, *given)

        monkeypatch.setattr(_sweeps.RemoteSweeps, "__call__", killing)
        again = gleangp.dask.fit(clone(model), ddf, "passed", client=client)
        assert victims[0] not in client.run(os.getpid).values()
    assert len(calls) > 4
    same_model(whole, again)


def hungry(part):
    """Takes more memory than its worker may have."""
    hoard = np.ones(120_000_000)
    time.sleep(20.0)
    return part.assign(a=hoard[: len(part)])


@pytest.mark.parametrize("at_call", [0, 2], ids=["before", "during"])
def test_a_closed_scheduler_is_an_error_that_says_so(monkeypatch, at_call):
    """Before the fit or in the middle of it: a ClusterError, and the estimator is as it was."""
    ddf = dd.from_pandas(school_frame()[[*FEATURES, "school", "passed"]], npartitions=3, sort=False)
    model = SparseGPClassifier(coupling="kernel", n_active=30, n_rounds=1, selector="entropy")
    before = dict(vars(model))
    with local_cluster() as client:
        calls, evidence = [], _tasks.ClusterEvidence.__call__

        def closing(self, *given):
            calls.append(1)
            if len(calls) == at_call:
                client.cluster.close()
            return evidence(self, *given)

        monkeypatch.setattr(_tasks.ClusterEvidence, "__call__", closing)
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
