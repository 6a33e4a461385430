"""What every worker does around its library's calls: read a workload, time the fit, write what came out.

A worker is a file of three functions at most, one for each kind of workload, and a text for each that says
with which settings; it is run as

    python worker_<peer>.py workload.npz results.json predictions.npz

in the environment of its peer, so this file needs nothing but NumPy. The functions take `quick`, with
which they are first called on a few rows: what a library does once in a process is not part of a fit.
Predictions are scored by the caller (`score.py`), the same way for all.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from importlib.metadata import PackageNotFoundError, version

import numpy as np


def work(packages: list[str], fitters: dict, settings: dict[str, str]) -> None:
    """Run the workload named on the command line.

    Parameters
    ----------
    packages : list of str
        Distributions whose versions are written down.
    fitters : dict
        Kind of workload -> function(arrays, quick) that fits and gives what predicts: for "regression" a
        function X -> mean and variance of a new target; for "classification" X -> probability of class 1; for
        "tasks" an object with `predict(X, t)` and `add_task(X, y)`, which gives such a function of X.
    settings : dict
        Kind of workload -> what to say about how it is fitted.
    """
    source, results, predictions = sys.argv[1:]
    with np.load(source) as file:
        arrays = dict(file)
    kind = str(arrays["kind"])
    fit = fitters[kind]
    fit(_few(arrays), quick=True)
    before = _peak_megabytes()
    model, timing = _timed(lambda: fit(arrays, quick=False))
    timing["peak_mb"], timing["peak_mb_before"] = _peak_megabytes(), before
    if kind == "tasks":
        out, predicting = _timed(lambda: model.predict(arrays["X_test"], arrays["t_test"]))
        found = {"mean": out[0], "var": out[1], **_new_tasks(model, arrays, timing)}
    else:
        predict = model
        out, predicting = _timed(lambda: predict(arrays["X_test"]))
        found = {"p": out} if kind == "classification" else {"mean": out[0], "var": out[1]}
    timing["predict_cpu_s"] = predicting["cpu_s"]
    np.savez(predictions, **found)
    versions = {name: _version(name) for name in packages}
    with open(results, "w") as file:
        json.dump({**timing, "settings": settings[kind], "versions": versions}, file)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # run from a source tree
        return sys.modules[name].__version__


def _few(arrays):
    """A small problem of the same kind: 80 rows, or three tasks."""
    rows = arrays["t"] < 3 if "t" in arrays else np.arange(len(arrays["y"])) < 80
    return {**arrays, **{name: arrays[name][rows] for name in ("X", "y", "t") if name in arrays}}


def _new_tasks(model, arrays, timing):
    """Tasks that come later, with few rows; the median of their seconds goes into `timing`."""
    means, variances, seconds = [], [], []
    for X, y, X_test in zip(arrays["X_new"], arrays["y_new"], arrays["X_new_test"], strict=True):
        predict, timed = _timed(lambda X=X, y=y: model.add_task(X, y))
        (mean, var), more = _timed(lambda predict=predict, X_test=X_test: predict(X_test))
        seconds.append((timed["cpu_s"], timed["cpu_s"] + more["cpu_s"]))
        means.append(mean)
        variances.append(var)
    add, add_and_predict = np.median(seconds, axis=0)
    timing["add_task_ms"], timing["add_task_and_predict_ms"] = 1e3 * add, 1e3 * add_and_predict
    return {"new_mean": np.array(means), "new_var": np.array(variances)}


def _timed(call):
    """Result of a call, with CPU seconds of all its threads and seconds on the clock."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = call()
    return result, {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}


def _peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
