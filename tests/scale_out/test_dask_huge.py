"""One huge task lies in parts on all workers of a cluster; the model is that of a fit in memory."""

import gc
import time

import dask.dataframe as dd
import numpy as np
import pytest
from distributed import wait
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

import gleangp.dask
from gleangp import SparseGPClassifier, SparseGPOrdinal, SparseGPRegressor
from gleangp.dask._groups import Group
from gleangp.dask._huge import HugeTask
from gleangp.dask._partitions import Piece
from gleangp.dask._sweeps import RemoteSweeps
from tests.scale_out.cluster import in_memory, local_cluster, make_huge, same_to_rounding, school_frame

FEATURES = ["a", "b"]


@pytest.fixture(scope="module")
def client():
    with local_cluster() as client:
        yield client


@pytest.fixture(scope="module")
def frame():
    return school_frame()


def fit_in_both_places(frame, estimator, target):
    there = clone(estimator).set_params(random_state=0)
    here = in_memory(there)
    here.fit(frame[FEATURES], frame[target])
    ddf = dd.from_pandas(frame[[*FEATURES, target]], npartitions=4, sort=False)
    return here, gleangp.dask.fit(there, ddf, target)


@pytest.mark.parametrize(
    ("estimator", "target"),
    [
        (SparseGPRegressor(selector="residual", move_basis=False), "score"),
        (SparseGPRegressor(selector="entropy", move_basis=False), "score"),
        (SparseGPRegressor(selector="random", move_basis=False), "score"),
        (SparseGPClassifier(), "passed"),
        (SparseGPClassifier(selector="entropy", kernel=RBF() + WhiteKernel(0.1)), "passed"),
        (SparseGPClassifier(selector="random"), "passed"),
        (SparseGPClassifier(posterior="active", kernel=RBF() + WhiteKernel(0.1)), "passed"),
        (SparseGPOrdinal(), "grade"),
        (SparseGPOrdinal(posterior="active", selector="information", sites="ep"), "grade"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value).replace("\n", " "),
)
def test_the_model_is_that_of_a_fit_in_memory(client, frame, estimator, target, monkeypatch):
    """Two rounds of selection from parts on workers: the same points as in memory, the model to rounding."""
    make_huge(monkeypatch)
    fits, fit = [], HugeTask.fit
    monkeypatch.setattr(HugeTask, "fit", lambda self, *given: fits.append(self) or fit(self, *given))
    here, there = fit_in_both_places(frame, estimator.set_params(n_active=20, n_rounds=1), target)
    same_to_rounding(here, there, frame[FEATURES])
    assert fits[-1].n_parts > 2
    assert fits[-1].noise == there.noise_


def test_every_class_against_the_rest(client, frame, monkeypatch):
    """With three classes each has its own points and its own model; labels are strings."""
    make_huge(monkeypatch)
    frame = frame.assign(mark=np.array(["poor", "fair", "good"])[frame["grade"]])
    here, there = fit_in_both_places(frame, SparseGPClassifier(n_active=20, n_rounds=1), "mark")
    assert there.classes_.tolist() == ["fair", "good", "poor"]
    for k in range(3):
        np.testing.assert_array_equal(there.active_[k], here.active_[k])
        np.testing.assert_allclose(there.site_precision_[k], here.site_precision_[k], rtol=1e-5)
    np.testing.assert_allclose(there.kernel_.theta, here.kernel_.theta, rtol=1e-6)
    np.testing.assert_allclose(there.log_evidence_, here.log_evidence_, rtol=1e-8)
    probabilities = (m.predict_proba(frame[FEATURES]) for m in (here, there))
    np.testing.assert_allclose(*probabilities, rtol=1e-5)


def test_a_column_that_names_one_task(client, frame, monkeypatch):
    """Is one task as well."""
    make_huge(monkeypatch)
    rows = frame.assign(school="only")[[*FEATURES, "school", "passed"]]
    there = SparseGPClassifier(n_active=20, optimizer=None, random_state=0)
    here = in_memory(there)
    here.fit(rows[FEATURES], rows["passed"], tasks=rows["school"])
    gleangp.dask.fit(there, dd.from_pandas(rows, npartitions=3, sort=False), "passed", "school")
    assert there.tasks_.tolist() == ["only"]
    np.testing.assert_array_equal(there.active_, here.active_)
    np.testing.assert_allclose(there.log_evidence_, here.log_evidence_, rtol=1e-8)


def test_a_basis_that_must_move_is_refused(client, frame, monkeypatch):
    """It would have to see all rows at once."""
    make_huge(monkeypatch)
    ddf = dd.from_pandas(frame[[*FEATURES, "score"]], npartitions=3, sort=False)
    with pytest.raises(ValueError, match="move_basis=True: a task of 225 rows"):
        gleangp.dask.fit(SparseGPRegressor(n_active=20, move_basis=True), ddf, "score")


def most_rows(dask_worker):
    """Of the rows of one group, and of all distinct ones, on a worker."""
    kept = [value for value in dask_worker.data.values() if isinstance(value, Group | Piece)]
    numbers = [np.concatenate(v.numbers) if isinstance(v, Group) else v.number for v in kept]
    return len(np.unique(np.concatenate(numbers))) if numbers else 0


def rows_of_workers(client, expected):
    """Distinct rows on every worker; what nobody needs any more is given ten seconds to go."""
    gc.collect()
    end = time.monotonic() + 10.0
    while True:
        shares = sorted(client.run(most_rows).values())
        if sum(shares) == expected or time.monotonic() > end:
            return shares
        time.sleep(0.05)


async def switch_stealing(on, dask_scheduler=None):
    stealing = dask_scheduler.extensions["stealing"]
    await (stealing.start() if on else stealing.stop())


@pytest.fixture
def no_stealing(client):
    """Rows so few may be copied to an idle worker with their work; many are too dear to move."""
    client.run_on_scheduler(switch_stealing, False)
    yield
    client.run_on_scheduler(switch_stealing, True)


@pytest.mark.usefixtures("no_stealing")
def test_no_worker_has_all_rows(client, frame, monkeypatch):
    """While the posterior is formed every worker has its share of the rows, and all are somewhere."""
    make_huge(monkeypatch)
    assert sum(rows_of_workers(client, 0)) == 0  # nothing is left of other fits
    shares, fit = [], HugeTask.fit

    def watched(self, *given):
        out = fit(self, *given)
        shares.append(rows_of_workers(client, len(frame)))
        return out

    monkeypatch.setattr(HugeTask, "fit", watched)
    ddf = dd.from_pandas(frame[[*FEATURES, "passed"]], npartitions=4, sort=False)
    gleangp.dask.fit(SparseGPClassifier(n_active=20, optimizer=None, random_state=0), ddf, "passed")
    assert len(shares) == 1
    assert sum(shares[0]) == len(frame)
    assert shares[0][0] > 0.3 * len(frame)


@pytest.mark.usefixtures("no_stealing")
def test_sweeps_wait_for_a_busy_worker(client, frame, monkeypatch):
    """No rows are copied to a worker that has time and what the client sent, but other rows."""
    make_huge(monkeypatch)
    expected, found, sweep = [], [], RemoteSweeps.__call__

    def sweep_beside_other_work(self, *given):
        wait(self.moving)
        other = client.submit(time.sleep, 0.3, workers=self.parts.places[:1], pure=False)
        out = sweep(self, *given)
        wait([*self.moving, other])
        expected.append([(place,) for place in self.parts.places])
        found.append([client.who_has(sites)[sites.key] for sites in self.moving])
        return out

    monkeypatch.setattr(RemoteSweeps, "__call__", sweep_beside_other_work)
    ddf = dd.from_pandas(frame[[*FEATURES, "passed"]], npartitions=4, sort=False)
    gleangp.dask.fit(SparseGPClassifier(n_active=20, optimizer=None, random_state=0), ddf, "passed")
    assert len(found) > 1
    assert found == expected
