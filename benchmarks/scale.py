"""Scale and growth: wall, CPU and peak memory of large fits, how cost grows, how near the machine's limits.

    python benchmarks/scale.py machine            memory bandwidth and GEMM rate, hot loops as a share of them
    python benchmarks/scale.py tasks [M n]        shared kernel, default 10 000 tasks x 100 rows
    python benchmarks/scale.py rows [n]           one task, default 1 000 000 rows, 500 active points
    python benchmarks/scale.py storage [n p]      one task in a float32 or float64 file, default 1e6 rows x 50
    python benchmarks/scale.py threads [M n]      small tasks with and without a limit on BLAS threads
    python benchmarks/scale.py growth [file.png]  exponents in rows, tasks, active points and features

Every command prints one Markdown table. A fit runs in a process of its own, so that its peak memory is its
own. Set OPENBLAS_NUM_THREADS=1 for numbers of one thread.
"""

import json
import os
import resource
import subprocess
import sys
import time
from functools import partial

import numpy as np


def make_tasks(n_tasks, n_rows, p=4, seed=0):
    """Tasks that share a kernel: sines along directions of their own, noise of a tenth."""
    rng = np.random.default_rng(seed)
    n = n_tasks * n_rows
    X = rng.normal(size=(n, p))
    codes = np.repeat(np.arange(n_tasks), n_rows)
    direction = rng.normal(size=(n_tasks, p)) / np.sqrt(p)
    y = np.sin(1.5 * np.einsum("np,np->n", X, direction[codes])) + 0.1 * rng.normal(size=n)
    return X, y, codes


def measured(function):
    """Wall and CPU seconds of a call, peak memory of the process in GB, and what it returned."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = function()
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return time.perf_counter() - wall, time.process_time() - cpu, usage, result


def alone(command, *arguments, environment=None):
    """What another process of this script reports."""
    call = [sys.executable, __file__, command, *map(str, arguments)]
    out = subprocess.run(call, check=True, capture_output=True, text=True, env=environment).stdout
    return json.loads(out.splitlines()[-1])


def fit_tasks(n_tasks, n_rows, n_active, n_jobs):
    """One fit of many tasks; printed as JSON."""
    from gleangp import SparseGPRegressor

    X, y, codes = make_tasks(n_tasks, n_rows)
    options = {"coupling": "kernel", "n_active": n_active or None, "n_jobs": n_jobs or None}
    model = SparseGPRegressor(**options, random_state=0)
    wall, cpu, peak, _ = measured(lambda: model.fit(X, y, tasks=codes))
    some = np.arange(0, len(X), max(1, len(X) // 20_000))
    rmse = float(np.sqrt(np.mean((model.predict(X[some], tasks=codes[some]) - y[some]) ** 2)))
    print(json.dumps({"wall": wall, "cpu": cpu, "peak": peak, "rmse": rmse, "points": len(model.active_)}))


def fit_rows(n_rows, n_active, p, n_jobs):
    """One fit of one task; printed as JSON."""
    from gleangp import SparseGPRegressor

    X, y, _ = make_tasks(1, n_rows + 2000, p)
    model = SparseGPRegressor(n_active=n_active, n_jobs=n_jobs or None, random_state=0)
    wall, cpu, peak, _ = measured(lambda: model.fit(X[2000:], y[2000:]))
    rmse = float(np.sqrt(np.mean((model.predict(X[:2000]) - y[:2000]) ** 2)))
    print(json.dumps({"wall": wall, "cpu": cpu, "peak": peak, "rmse": rmse, "points": len(model.active_)}))


def print_row(what, r):
    print(f"| {what} | {r['wall']:.1f} | {r['cpu']:.1f} | {r['peak']:.2f} | {r['rmse']:.4f} |", flush=True)


def table_head(*more):
    names = ["what", "wall s", "CPU s", "peak GB", "RMSE", *more]
    print("| " + " | ".join(names) + " |\n|" + "---|" * len(names), flush=True)


def report_tasks(n_tasks=10_000, n_rows=100):
    table_head()
    for n_jobs in (0, 2):
        label = f"{n_tasks} tasks x {n_rows} rows, all active, n_jobs={n_jobs or None}"
        print_row(label, alone("fit-tasks", n_tasks, n_rows, 0, n_jobs))


def report_rows(n_rows=1_000_000):
    table_head()
    print_row(f"{n_rows} rows x 4, 500 active", alone("fit-rows", n_rows, 500, 4, 0))


def report_storage(n_rows=1_000_000, p=50):
    """The same rows in a file of float32 and of float64, fitted from a memory map and from memory."""
    import tempfile

    print("| inputs | MB | wall s | CPU s | peak MB of the fit | RMSE |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "X.npy")
        for dtype, mapped in (("float32", 1), ("float64", 1), ("float64", 0)):
            alone("make-rows", path, n_rows, p, dtype)
            r = alone("fit-file", path, mapped)
            name = f"{dtype}, {'a memory map' if mapped else 'in memory'}"
            size = n_rows * p * np.dtype(dtype).itemsize / 1e6
            row = f"{size:.0f} | {r['wall']:.1f} | {r['cpu']:.1f} | {1e3 * r['peak']:.0f} | {r['rmse']:.4f}"
            print(f"| {name} | {row} |", flush=True)


def make_rows_in_file(path, n_rows, p, dtype):
    """Inputs in a file, targets in another beside it."""
    X, y, _ = make_tasks(1, n_rows, p)
    np.save(path, X.astype(dtype))
    np.save(path.replace("X.npy", "y.npy"), y)
    print(json.dumps({}))


def fit_file(path, mapped):
    """One fit from a file; the peak is what the fit adds to what was there before it."""
    from gleangp import SparseGPRegressor

    X, y = np.load(path, mmap_mode="r" if mapped else None), np.load(path.replace("X.npy", "y.npy"))
    model = SparseGPRegressor(n_active=200, random_state=0)
    model.fit(np.array(X[:500], dtype=float), y[:500])  # what is loaded once is not the fit's
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    wall, cpu, peak, _ = measured(lambda: model.fit(X[2000:], y[2000:]))
    rmse = float(np.sqrt(np.mean((model.predict(X[:2000]) - y[:2000]) ** 2)))
    print(json.dumps({"wall": wall, "cpu": cpu, "peak": peak - before, "rmse": rmse}))


def report_threads(n_tasks=100, n_rows=100):
    """The same fit of small tasks as gleangp limits threads, with one from outside, and with all of them."""
    table_head()
    plain = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")}
    one = {**plain, "OPENBLAS_NUM_THREADS": "1"}
    size = f"{n_tasks} tasks x {n_rows} rows"
    cases = {"unset": ("fit-tasks", plain), "1": ("fit-tasks", one), "unset, no limit": ("fit-free", plain)}
    for name, (command, environment) in cases.items():
        result = alone(command, n_tasks, n_rows, 0, 0, environment=environment)
        print_row(f"{size}, OPENBLAS_NUM_THREADS {name}", result)


def fit_without_limit(*arguments):
    """As `fit_tasks`, with all BLAS threads."""
    import gleangp.numerics.parallel

    gleangp.numerics.parallel._limiting.acquire()  # as if another call limited them
    fit_tasks(*arguments)


def report_machine():
    """The two limits, and the two hot loops as a share of them."""
    from sklearn.gaussian_process.kernels import RBF

    from gleangp.inference.block import Block
    from gleangp.inference.evidence import condition, evidence_gradient
    from gleangp.inference.posterior import fitc_prior
    from gleangp.models.active.learn import ActiveEvidence
    from gleangp.noise import Gaussian
    from gleangp.selection.runs import GreedyRun, entropy_reduction

    def best(function, repeats=5):
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
        return min(times)

    A = np.random.default_rng(0).normal(size=(2000, 2000))
    gemm = 2 * 2000**3 / best(lambda: A @ A)
    M = np.ones((400, 50_000))
    v = np.ones(400)
    bandwidth = M.nbytes / best(lambda: v @ M)
    print(f"GEMM {gemm / 1e9:.1f} GFLOP/s, reading {bandwidth / 1e9:.1f} GB/s (one thread)\n")
    print("| loop | seconds | at the limit | ratio |\n|---|---|---|---|")
    for n, d in ((10_000, 500), (100_000, 200)):
        X, y, _ = make_tasks(1, n)
        run = partial(GreedyRun, RBF(1.0), Block(X, y, Gaussian(0.01)), entropy_reduction)
        seconds = best(lambda run=run, d=d: run().extend(d), 2)
        limit = 8.0 * n * d * d / 2 / bandwidth  # every pick reads the factor so far
        row = f"greedy selection, {d} of {n} rows | {seconds:.2f} | {limit:.2f} | {seconds / limit:.2f}"
        print(f"| {row} |", flush=True)
    X, y, _ = make_tasks(1, 20_000)

    def on_basis():
        prior, precision = fitc_prior(RBF(1.0), X, X[:300]), np.full(len(X), 100.0)
        evidence_gradient(prior, condition(prior, precision, precision * y))

    seconds = best(on_basis, 3)
    limit = (2 * 2 * 20_000 * 300**2 + 2 * 20_000 * 300**2) / gemm  # a solve, a Gram matrix, a product
    row = f"evidence and gradient, 300 of 20 000 rows | {seconds:.2f} | {limit:.2f} | {seconds / limit:.2f}"
    print(f"| {row} |")
    exact = ActiveEvidence([Block(X[:2000], y[:2000], Gaussian(0.01))])
    seconds = best(lambda: exact(RBF(1.0), {}), 3)
    limit = 2000**3 / gemm  # a factorisation and an inverse: n^3 / 3 and 2 n^3 / 3
    print(f"| exact evidence and gradient, 2000 rows | {seconds:.2f} | {limit:.2f} | {seconds / limit:.2f} |")


ROWS = (1000, 4000, 16_000, 64_000, 256_000, 1_000_000)
POINTS = (50, 200, 500, 1000, 2000)
GROWTH = {
    "rows (200 active points)": ("fit-rows", [(n, 200, 4, 0) for n in ROWS], 0, 1),
    "tasks (of 50 rows)": ("fit-tasks", [(M, 50, 0, 0) for M in (10, 40, 160, 640, 2560, 10_000)], 0, 1),
    "active points (20 000 rows)": ("fit-rows", [(20_000, d, 4, 0) for d in POINTS], 1, 2),
    "features (4000 rows, 200 points)": ("fit-rows", [(4000, 200, p, 0) for p in (2, 8, 32, 128, 500)], 2, 1),
}


def report_growth(picture=None):
    """CPU seconds against size, with the exponent of the last three sizes and that of the theory."""
    curves = {}
    print("| grows with | sizes | CPU s | exponent, last three | theory |\n|---|---|---|---|---|")
    for name, (command, runs, varied, theory) in GROWTH.items():
        sizes = [run[varied] for run in runs]
        seconds = [alone(command, *run)["cpu"] for run in runs]
        slope = np.polyfit(np.log(sizes[-3:]), np.log(seconds[-3:]), 1)[0]
        listed = ", ".join(f"{s:.2f}" for s in seconds)
        print(f"| {name} | {sizes} | {listed} | {slope:.2f} | at most {theory} |", flush=True)
        curves[name] = (sizes, seconds, slope, theory)
    if picture:
        draw_growth(curves, picture)


def draw_growth(curves, picture):
    """One panel per curve, with the slope of the theory as a dashed line through the last point."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(curves), figsize=(3.6 * len(curves), 3.4), layout="constrained")
    for ax, (name, (sizes, seconds, slope, theory)) in zip(axes, curves.items(), strict=True):
        sizes = np.array(sizes, dtype=float)
        ax.loglog(sizes, seconds, "o-", label=f"measured, exponent {slope:.2f} at the end")
        line = seconds[-1] * (sizes / sizes[-1]) ** theory
        ax.loglog(sizes, line, "--", color="0.5", label=f"slope {theory}")
        ax.set(xlabel=name, ylim=(min(seconds) / 3, 3 * max(seconds)))
        ax.legend(fontsize=8, loc="upper left", frameon=False)
    axes[0].set_ylabel("CPU seconds of a fit")
    figure.savefig(picture, dpi=110)


COMMANDS = {
    "machine": report_machine,
    "tasks": report_tasks,
    "rows": report_rows,
    "threads": report_threads,
    "storage": report_storage,
    "growth": report_growth,
    "fit-tasks": fit_tasks,
    "fit-free": fit_without_limit,
    "make-rows": make_rows_in_file,
    "fit-file": fit_file,
    "fit-rows": fit_rows,
}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(__doc__)
    COMMANDS[sys.argv[1]](*(int(a) if a.isdigit() else a for a in sys.argv[2:]))
