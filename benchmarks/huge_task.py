"""Many rows in memory, and with their blocks on two Dask workers: time, memory, and whether they agree.

    python benchmarks/huge_task.py [n [KIND ...]]          default 300 000 rows x 8
    python benchmarks/huge_task.py fit FILE KIND PLACE     one of the fits, printed as JSON

Numbers (regression), numbers of 300 tasks, two classes and ordered categories of the same rows, read from
Parquet. Every fit is in a process of its own. CPU seconds are those of all processes (client, scheduler,
workers), without their start. Set OPENBLAS_NUM_THREADS=1.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np

FEATURES = [f"x{j}" for j in range(8)]
KINDS = ("numbers", "tasks", "two classes", "ordered")
N_NEW = 2000  # rows kept for prediction


def make_frame(n_rows, seed=0):
    """Rows of one function, and what each kind of target makes of it."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, len(FEATURES)))
    f = np.sin(1.5 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] + 0.2 * rng.normal(size=n_rows)
    task = np.arange(n_rows) % 300
    columns = dict(zip(KINDS, (f, f + 0.01 * task, f > 0, np.digitize(f, [-0.6, 0.6])), strict=True))
    return pd.DataFrame(X, columns=FEATURES).assign(task=task, **columns)


def estimator_of(kind):
    """What learns such targets."""
    from gleangp import SparseGPClassifier, SparseGPOrdinal, SparseGPRegressor

    names = {"two classes": SparseGPClassifier, "ordered": SparseGPOrdinal}
    return names.get(kind, SparseGPRegressor)(task="task" if kind == "tasks" else None, random_state=0)


def peak_memory():
    """Of this process, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def import_all():
    """What a worker needs for its first task."""
    import gleangp.dask  # noqa: F401


def fit(path, kind, place):
    """One fit; prints its cost and what it predicts."""
    import dask.dataframe as dd
    import pandas as pd
    from distributed import Client, LocalCluster

    import gleangp.dask

    model = estimator_of(kind)
    inputs = [*FEATURES, "task"] if kind == "tasks" else FEATURES

    def measured(function):
        wall, cpu = time.perf_counter(), time.process_time()
        function()
        return time.perf_counter() - wall, time.process_time() - cpu

    def fit_here():
        frame = pd.read_parquet(path)
        model.fit(frame[inputs], frame[kind])

    peak_of_worker = 0.0
    if place == "memory":
        wall, cpu = measured(fit_here)
    else:
        options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "host": "127.0.0.1"}
        with LocalCluster(**options) as cluster, Client(cluster) as client:
            client.run(import_all)
            before = sum(client.run(time.process_time).values())
            ddf = dd.read_parquet(path)[[*inputs, kind]]
            wall, cpu = measured(lambda: gleangp.dask.fit(model, ddf, kind))
            cpu += sum(client.run(time.process_time).values()) - before
            peak_of_worker = max(client.run(peak_memory).values())
    peak = peak_memory()
    new = make_frame(N_NEW, seed=1)
    if kind in ("numbers", "tasks"):
        predicted = model.predict(new[inputs])
        loss = float(np.sqrt(np.mean((predicted - new[kind]) ** 2)))
    else:
        predicted = model.predict_proba(new[inputs])
        truth = np.searchsorted(model.classes_, new[kind])
        loss = float(-np.mean(np.log(predicted[np.arange(N_NEW), truth])))
    report = {"wall": wall, "cpu": cpu, "peak": peak, "worker": peak_of_worker, "loss": loss}
    print(json.dumps({**report, "predicted": np.ravel(predicted).tolist()}))


def report(n_rows=300_000, *kinds):
    """The table."""
    import dask.dataframe as dd

    print(f"{n_rows} rows x {len(FEATURES)}; load {os.getloadavg()[0]:.1f}\n")
    print("| targets | where | wall s | CPU s | peak GB: client, worker | RMSE or NLPD |")
    print("|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.parquet")
        dd.from_pandas(make_frame(n_rows), npartitions=8).to_parquet(path)
        for kind in kinds or KINDS:
            runs = {}
            for place in ("memory", "two workers"):
                call = [sys.executable, __file__, "fit", path, kind, place]
                out = subprocess.run(call, check=True, capture_output=True, text=True).stdout
                runs[place] = r = json.loads(out.splitlines()[-1])
                peaks = f"{r['peak']:.2f}, {r['worker']:.2f}"
                cost = f"{r['wall']:.1f} | {r['cpu']:.1f} | {peaks} | {r['loss']:.5f}"
                print(f"| {kind} | {place} | {cost} |", flush=True)
            here, there = runs.values()
            print(f"  {kind}: the same bits: {here['predicted'] == there['predicted']}", flush=True)


if __name__ == "__main__":
    arguments = [int(a) if a.isdigit() else a for a in sys.argv[1:]]
    if arguments[:1] == ["fit"]:
        fit(*arguments[1:])
    else:
        report(*arguments)
