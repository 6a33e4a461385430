"""What the tests on a Dask cluster share: a cluster of separate processes, and rows of several tasks."""

from contextlib import contextmanager

import numpy as np
import pandas as pd
from distributed import Client, LocalCluster
from sklearn.base import clone

from gleangp.dask import _huge
from gleangp.learning import shared_kernel, task_store
from gleangp.selection import two_rounds


@contextmanager
def local_cluster(n_workers: int = 2, **options):
    """A client of worker processes of one thread each, with nannies that start them again."""
    with (
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",  # tests in other processes have clusters too
            host="127.0.0.1",
            silence_logs=50,
            **options,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def school_frame(n_rows: int = 240, n_tasks: int = 8) -> pd.DataFrame:
    """Rows of tasks of different sizes in mixed order; numbers, two classes and three as targets."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(n_rows, 2)), columns=["a", "b"])
    task = np.minimum(rng.geometric(0.3, size=n_rows), n_tasks) - 1
    value = np.sin(2.0 * frame["a"]) + 0.3 * task * frame["b"] + 0.1 * rng.normal(size=n_rows)
    frame["school"] = [f"school {k}" for k in task]
    frame["score"] = value
    frame["passed"] = np.where(value > 0.3, "yes", "no")
    frame["grade"] = np.digitize(value, [-0.5, 0.8])
    frame.loc[frame.index[::17], "score"] = np.nan
    return frame


def make_huge(monkeypatch) -> None:
    """A hundred rows of one task count as very many, and lie in parts of fifty on the workers."""
    monkeypatch.setattr(task_store, "_CHUNK_ROWS", 20)
    monkeypatch.setattr(shared_kernel, "MOST_LEARNT_ON", 100)
    monkeypatch.setattr(shared_kernel, "_LARGE_PART", 100)
    monkeypatch.setattr(_huge, "MOST_LEARNT_ON", 100)
    monkeypatch.setattr(two_rounds, "MOST_ENTRIES", 1000)


def same_to_rounding(one, other, X) -> None:
    """The two estimators chose the same points, learnt the same, and predict the same."""
    for name, rtol in (("active_", 0.0), ("active_gain_", 1e-6), ("log_evidence_", 1e-8)):
        np.testing.assert_allclose(getattr(other, name), getattr(one, name), rtol=rtol, err_msg=name)
    np.testing.assert_allclose(other.kernel_.theta, one.kernel_.theta, rtol=1e-6)
    for name in ("site_mean_", "site_precision_"):
        np.testing.assert_allclose(getattr(other, name), getattr(one, name), rtol=1e-5, atol=1e-8)
    predict = "predict_proba" if hasattr(one, "predict_proba") else "predict"
    np.testing.assert_allclose(getattr(other, predict)(X), getattr(one, predict)(X), rtol=1e-5, atol=1e-7)


def same_model(one, other) -> None:
    """The two estimators are the same, bit for bit."""
    for name in ("active_", "active_gain_", "site_mean_", "site_precision_", "log_evidence_"):
        np.testing.assert_equal(getattr(other, name), getattr(one, name), err_msg=name)
    kernels = [m.kernel_.kernels if hasattr(m.kernel_, "kernels") else [m.kernel_] for m in (one, other)]
    for a, b in zip(*kernels, strict=True):
        np.testing.assert_array_equal(a.theta, b.theta)
    assert one.noise_ == other.noise_ or str(one.noise_) == str(other.noise_)
    np.testing.assert_array_equal(one.tasks_, other.tasks_)
    np.testing.assert_array_equal(one.feature_names_in_, other.feature_names_in_)


def in_memory(estimator):
    """What a fit on the cluster is compared with: tasks that share the kernel alone, through a basis."""
    posterior = "projected" if estimator.posterior == "local" else estimator.posterior
    return clone(estimator).set_params(coupling="kernel", posterior=posterior)
