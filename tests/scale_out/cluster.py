"""What the tests on a Dask cluster share: a cluster of separate processes, and rows of several tasks."""

from contextlib import contextmanager

import numpy as np
import pandas as pd
from distributed import Client, LocalCluster

import gleangp.dask
from gleangp.inference import block, prior


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


def make_large(monkeypatch) -> None:
    """Few rows count as too many to keep their blocks, which lie in many stacks and parts."""
    monkeypatch.setattr(prior, "_KEPT_ENTRIES", 0)
    monkeypatch.setattr(block, "_STACK_ENTRIES", 20_000)
    monkeypatch.setattr(gleangp.dask, "_PART_ROWS", 150)
    monkeypatch.setattr(gleangp.dask, "_AT_ONCE", 3)


def same_model(one, other) -> None:
    """The two estimators are the same, bit for bit; the evidence up to the last digit of its sum."""
    for name in ("active_", "active_gain_", "site_mean_", "site_precision_"):
        np.testing.assert_equal(getattr(other, name), getattr(one, name), err_msg=name)
    np.testing.assert_allclose(other.log_evidence_, one.log_evidence_, rtol=1e-14)
    kernels = [m.kernel_.kernels if hasattr(m.kernel_, "kernels") else [m.kernel_] for m in (one, other)]
    for a, b in zip(*kernels, strict=True):
        np.testing.assert_array_equal(a.theta, b.theta)
    assert one.noise_ == other.noise_ or str(one.noise_) == str(other.noise_)
    np.testing.assert_array_equal(one.tasks_, other.tasks_)
    np.testing.assert_array_equal(one.feature_names_in_, other.feature_names_in_)
