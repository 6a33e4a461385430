"""One huge task in memory and in parts on two Dask workers: time, memory, and how far predictions differ.

    python benchmarks/huge_task.py [n d [KIND ...]]        default 250 000 rows x 5, 300 active points
    python benchmarks/huge_task.py fit FILE KIND PLACE d   one of the fits, printed as JSON

Numbers (regression), two classes, three classes and ordered categories of the same rows, read from Parquet.
Every fit is in a process of its own. CPU seconds are those of all processes (client, scheduler, workers),
without their start. Set OPENBLAS_NUM_THREADS=1.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np

FEATURES = [f"x{j}" for j in range(5)]
KINDS = ("numbers", "two classes", "three classes", "ordered")
N_NEW = 2000  # rows kept for prediction


def make_frame(n_rows, seed=0):
    """Rows of one function, and what each kind of target makes of it."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, len(FEATURES)))
    f = np.sin(1.5 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] + 0.2 * rng.normal(size=n_rows)
    three = np.digitize(f, [-0.6, 0.6])
    columns = dict(zip(KINDS, (f, f > 0, three, three), strict=True))
    return pd.DataFrame(X, columns=FEATURES).assign(**columns)


def estimator_of(kind, n_active):
    """What learns such targets."""
    from gleangp import SparseGPClassifier, SparseGPOrdinal, SparseGPRegressor

    names = {"numbers": SparseGPRegressor, "ordered": SparseGPOrdinal}
    return names.get(kind, SparseGPClassifier)(n_active=n_active, random_state=0)


def peak_memory():
    """Of this process, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def import_all():
    """What a worker needs for its first task."""
    import gleangp.dask  # noqa: F401


def fit(path, kind, place, n_active):
    """One fit; prints its cost and what it predicts."""
    import dask.dataframe as dd
    import pandas as pd
    from distributed import Client, LocalCluster

    import gleangp.dask

    model = estimator_of(kind, n_active)

    def measured(function):
        wall, cpu = time.perf_counter(), time.process_time()
        function()
        return time.perf_counter() - wall, time.process_time() - cpu

    def fit_here():
        frame = pd.read_parquet(path)
        model.fit(frame[FEATURES], frame[kind])

    if place == "memory":
        wall, cpu = measured(fit_here)
        peak = peak_memory()
    else:
        options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "host": "127.0.0.1"}
        with LocalCluster(**options) as cluster, Client(cluster) as client:
            client.run(import_all)
            before = sum(client.run(time.process_time).values())
            ddf = dd.read_parquet(path)[[*FEATURES, kind]]
            wall, cpu = measured(lambda: gleangp.dask.fit(model, ddf, kind))
            cpu += sum(client.run(time.process_time).values()) - before
            peak = max(client.run(peak_memory).values())
    new = make_frame(N_NEW, seed=1)
    if kind == "numbers":
        predicted = model.predict(new[FEATURES])
        loss = float(np.sqrt(np.mean((predicted - new[kind]) ** 2)))
    else:
        predicted = model.predict_proba(new[FEATURES])
        truth = np.searchsorted(model.classes_, new[kind])
        loss = float(-np.mean(np.log(predicted[np.arange(N_NEW), truth])))
    active = np.hstack(model.active_)
    report = {"wall": wall, "cpu": cpu, "peak": peak, "loss": loss, "evidence": float(model.log_evidence_)}
    print(json.dumps({**report, "active": active.tolist(), "predicted": np.ravel(predicted).tolist()}))


def report(n_rows=250_000, n_active=300, *kinds):
    """The table."""
    import dask.dataframe as dd

    print(f"{n_rows} rows x {len(FEATURES)}, {n_active} active points; load {os.getloadavg()[0]:.1f}\n")
    print("| targets | where | wall s | CPU s | peak GB of the largest process | RMSE or NLPD |")
    print("|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.parquet")
        dd.from_pandas(make_frame(n_rows), npartitions=8).to_parquet(path)
        for kind in kinds or KINDS:
            runs = {}
            for place in ("memory", "two workers"):
                call = [sys.executable, __file__, "fit", path, kind, place, str(n_active)]
                out = subprocess.run(call, check=True, capture_output=True, text=True).stdout
                runs[place] = r = json.loads(out.splitlines()[-1])
                cost = f"{r['wall']:.1f} | {r['cpu']:.1f} | {r['peak']:.2f} | {r['loss']:.5f}"
                print(f"| {kind} | {place} | {cost} |", flush=True)
            here, there = runs.values()
            differ = np.max(np.abs(np.subtract(here["predicted"], there["predicted"])))
            evidence = abs(there["evidence"] / here["evidence"] - 1)
            same = here["active"] == there["active"]
            told = f"same points: {same}, predictions differ by {differ:.1e}, evidence by {evidence:.1e}"
            print(f"  {kind}: {told}", flush=True)


if __name__ == "__main__":
    arguments = [int(a) if a.isdigit() else a for a in sys.argv[1:]]
    if arguments[:1] == ["fit"]:
        fit(*arguments[1:])
    else:
        report(*arguments)
