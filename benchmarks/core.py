"""Speed of the core against plain loops and scikit-learn, as ratios measured in one run.

Every line says what was timed on both sides (CPU seconds of one thread), the ratio, the ratio that was asked
for, and the accuracy next to it. Run all, or name some:

    python -m benchmarks.core
    python -m benchmarks.core tasks regression

Both sides use one thread.
"""

from __future__ import annotations

import argparse
import math
import resource
import subprocess
import sys
import time
import warnings

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.metrics import log_loss

from benchmarks.common import cpu_seconds, rmse
from gleangp import SparseGPClassifier, SparseGPRegressor


def line(name, ours, theirs, wanted, note):
    """One row of the table."""
    ratio = theirs / ours
    verdict = "holds" if ratio >= wanted else "MISSED"
    wish = f"(>= {wanted:g}x {verdict})"
    print(f"{name:<46} {ours:8.2f} {theirs:9.2f} {ratio:7.1f}x  {wish:<18} {note}", flush=True)


def sibling_tasks(n_tasks, n_rows, n_test, seed=0):
    """Functions drawn from one Gaussian process in two dimensions, with noise 0.1."""
    rng = np.random.default_rng(seed)
    parts = []
    for task in range(n_tasks):
        X = rng.uniform(-2.5, 2.5, size=(n_rows + n_test, 2))
        K = RBF(1.0)(X) + 1e-8 * np.eye(len(X))
        f = np.linalg.cholesky(K) @ rng.normal(size=len(X))
        parts.append((X, f, f + 0.1 * rng.normal(size=len(X)), np.full(len(X), task)))
    train = [np.concatenate([p[i][:n_rows] for p in parts]) for i in (0, 2, 3)]
    test = [np.concatenate([p[i][n_rows:] for p in parts]) for i in (0, 1, 3)]
    return train, test


def tasks():
    """A shared kernel over 30 tasks of 60 rows against a loop over scikit-learn's regressor."""
    (X, y, t), (X_test, f_test, t_test) = sibling_tasks(30, 60, 100)
    kernel = ConstantKernel() * RBF([1.0, 1.0])

    def loop():
        out = np.empty(len(f_test))
        for task in range(30):
            gp = GaussianProcessRegressor(kernel + WhiteKernel(0.1), normalize_y=True)
            out[t_test == task] = gp.fit(X[t == task], y[t == task]).predict(X_test[t_test == task])
        return out

    shared = SparseGPRegressor(kernel, coupling="kernel", random_state=0)
    clone(shared).fit(X[:60], y[:60], tasks=t[:60])  # imports
    model, ours = cpu_seconds(lambda: shared.fit(X, y, tasks=t))
    expected, theirs = cpu_seconds(loop)
    errors = [rmse(model.predict(X_test, tasks=t_test), f_test), rmse(expected, f_test)]
    line("shared kernel, 30 tasks x 60 rows", ours, theirs, 4, "RMSE {:.3f} / {:.3f}".format(*errors))


def many_tasks():
    """1000 tasks of 50 rows: seconds, and memory linear in rows."""
    (X, y, t), (X_test, f_test, t_test) = sibling_tasks(1000, 50, 20)
    for coupling in ("kernel", "auto"):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        kernel = ConstantKernel() * RBF([1.0, 1.0])
        model = SparseGPRegressor(kernel, coupling=coupling, random_state=0).fit(X, y, tasks=t)
        seconds = time.perf_counter() - start
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        error = rmse(model.predict(X_test, tasks=t_test), f_test)
        note = f"{seconds:.1f} s wall, peak memory +{grown:.0f} MB, RMSE {error:.3f}, {model.coupling_}"
        print(f"1000 tasks x 50 rows, coupling={coupling!r}: {note}", flush=True)


def regression_data(n, seed=0):
    """Eight inputs, three ridge functions and a product; noise a tenth of the spread."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 8))
    f = np.sin(1.5 * X @ rng.normal(size=(8, 3)) / math.sqrt(8)).sum(axis=1) + 0.5 * X[:, 0] * X[:, 1]
    f /= f.std()
    return X, f, f + 0.1 * rng.normal(size=n)


def regression():
    """ARD regression with 200 active points of 2000 rows against scikit-learn's exact regressor."""
    X, f, y = regression_data(4000)
    kernel = ConstantKernel() * RBF(np.ones(8))
    exact, theirs = cpu_seconds(
        lambda: GaussianProcessRegressor(kernel + WhiteKernel(0.1), normalize_y=True).fit(X[:2000], y[:2000])
    )
    reference = rmse(exact.predict(X[2000:]), f[2000:])
    for n_active in (200, None):
        model, ours = cpu_seconds(
            lambda: SparseGPRegressor(kernel, n_active=n_active, random_state=0).fit(X[:2000], y[:2000])  # noqa: B023
        )
        mine = rmse(model.predict(X[2000:]), f[2000:])
        note = f"RMSE {mine:.3f} / {reference:.3f} = {mine / reference:.2f} (<= 1.4 wanted)"
        line(f"ARD regression N=2000, n_active={n_active}", ours, theirs, 20, note)


def classification():
    """Binary classification of 2000 rows against scikit-learn's classifier."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 5))
    f = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2]
    y = (f + 0.2 * rng.normal(size=len(f)) > 0).astype(int)
    kernel = ConstantKernel() * RBF(np.ones(5))
    model, ours = cpu_seconds(lambda: SparseGPClassifier(kernel, random_state=0).fit(X[:2000], y[:2000]))
    other, theirs = cpu_seconds(lambda: GaussianProcessClassifier(kernel).fit(X[:2000], y[:2000]))
    p, q = model.predict_proba(X[2000:]), other.predict_proba(X[2000:])
    errors = [100 * np.mean(a.argmax(axis=1) != y[2000:]) for a in (p, q)]
    note = (
        f"error {errors[0]:.1f} % / {errors[1]:.1f} %, "
        f"log loss {log_loss(y[2000:], p):.3f} / {log_loss(y[2000:], q):.3f}"
    )
    line("classification N=2000", ours, theirs, 10, note)


def startup():
    """What importing costs beyond scikit-learn's Gaussian processes, and the first small fit."""
    base = "import time; a = time.perf_counter(); import sklearn.gaussian_process; b = time.perf_counter();"
    code = (
        "import gleangp; i = time.perf_counter();"
        "from gleangp import SparseGPRegressor, SparseGPClassifier; c = time.perf_counter();"
        "import numpy as np; X = np.linspace(0, 1, 40)[:, None];"
        "SparseGPRegressor().fit(X, np.sin(6 * X[:, 0])); d = time.perf_counter();"
        "print(b - a, i - b, c - i, d - c)"
    )
    runs = [subprocess.check_output([sys.executable, "-c", base + code], text=True) for _ in range(3)]
    best = np.min([[float(v) for v in run.split()] for run in runs], axis=0)
    print(
        f"import sklearn.gaussian_process {best[0]:.2f} s; gleangp +{best[1]:.3f} s (<= 0.2 wanted); "
        f"its estimators +{best[2]:.2f} s; first small fit {best[3]:.2f} s",
        flush=True,
    )


PARTS = {part.__name__: part for part in (startup, tasks, many_tasks, regression, classification)}


def main():
    """Run the parts that were named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=f"any of {', '.join(PARTS)}; default all")
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}; known are {', '.join(PARTS)}")
    print(f"{'':<46} {'ours':>8} {'theirs':>9} {'ratio':>8}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for name in arguments.parts or PARTS:
            PARTS[name]()


if __name__ == "__main__":
    main()
