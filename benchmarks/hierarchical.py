"""How HierarchicalGPRegressor scales: number of tasks, unlabelled rows, labels; new tasks; coverage.

    python -m benchmarks.hierarchical [--quick]

Times are seconds of processor time, one thread.
"""

from __future__ import annotations

from itertools import islice

import numpy as np
from sklearn.gaussian_process.kernels import RBF

from benchmarks.common import cpu_seconds, parser_of, rmse, shared_folder, versions
from benchmarks.tournament.scores import gleangp, score
from benchmarks.tournament.tables import all_tables
from gleangp import HierarchicalGPRegressor

CHOSEN_ON = ("sleepstudy", "dietox", "BodyWeight", "CO2", "Theoph")  # settings were chosen on these tables


def make_tasks(n_tasks, n, rng, noise=0.1):
    """Tasks with length scales of their own, drawn from Gaussian processes in one dimension."""
    X = rng.uniform(0, 6, size=(n_tasks, n, 1))
    length = np.exp(0.4 * rng.normal(size=n_tasks))
    draw = rng.normal(size=(n_tasks, n))
    f = np.empty((n_tasks, n))
    for t in range(n_tasks):
        chol = np.linalg.cholesky(RBF(length[t])(X[t]) + 1e-8 * np.eye(n))
        f[t] = chol @ draw[t]
    return X, f + noise * rng.normal(size=f.shape), f


def number_of_tasks(sizes, rng):
    """Fit time with ten labels per task."""
    for n_tasks in sizes:
        X, y, _ = make_tasks(n_tasks, 10, rng)
        tasks = np.repeat(np.arange(n_tasks), 10)
        model = HierarchicalGPRegressor()
        _, seconds = cpu_seconds(lambda: model.fit(X.reshape(-1, 1), y.ravel(), tasks=tasks))  # noqa: B023
        print(
            f"{n_tasks:5d} tasks of 10 labels: {seconds:7.2f} s, {1e3 * seconds / n_tasks:.2f} ms per task, "
            f"{model.n_rounds_} rounds",
            flush=True,
        )
    _, seconds = cpu_seconds(lambda: model.add_task(X[0], y[0], task=-1))
    print(f"      add_task, 10 labels, to {n_tasks} tasks: {1e3 * seconds:.0f} ms", flush=True)


def unlabelled_rows(sizes, rng):
    """Fit time of two tasks with 20 labels and many unlabelled rows, 5 features."""
    for n in sizes:
        X = rng.normal(size=(2 * (n + 20), 5))
        f = np.sin(X[:, 0]) + X[:, 1]
        y = np.where(np.arange(len(X)) % (n + 20) < 20, f, np.nan)
        tasks = np.repeat([0, 1], n + 20)
        model = HierarchicalGPRegressor(random_state=0)
        _, seconds = cpu_seconds(lambda: model.fit(X, y, tasks=tasks))  # noqa: B023
        rest = np.isnan(y)
        error = rmse(model.predict(X[rest], tasks=tasks[rest]), f[rest])
        print(f"{n:5d} unlabelled rows per task: {seconds:6.1f} s, error {error:.3f}", flush=True)


def coverage(n_labels, n_repeats, rng):
    """Share of test labels within the central 90 % with and without the uncertainty of theta."""
    for n in n_labels:
        counts = {False: [], True: []}
        for _ in range(n_repeats):
            X, y, _ = make_tasks(15, n + 40, rng)
            tasks = np.arange(15)
            for averaged in counts:
                model = HierarchicalGPRegressor(theta_uncertainty=averaged)
                model.fit(X[:, :n].reshape(-1, 1), y[:, :n].ravel(), tasks=np.repeat(tasks, n))
                mean, std = model.predict(
                    X[:, n:].reshape(-1, 1), tasks=np.repeat(tasks, 40), return_std=True, include_noise=True
                )
                z = np.abs(y[:, n:].ravel() - mean) / std
                log_density = -0.5 * z**2 - np.log(std) - 0.5 * np.log(2 * np.pi)
                counts[averaged].append((np.mean(z < 1.645), np.mean(log_density)))
        for averaged, found in counts.items():
            mean, spread = np.mean(found, axis=0), np.std(found, axis=0)
            name = "averaged over theta" if averaged else "most probable theta"
            print(
                f"{n:3d} labels, {name}: 90 % interval covers {100 * mean[0]:.1f} ± {100 * spread[0]:.1f} %, "
                f"log density {mean[1]:.3f} ± {spread[1]:.3f}",
                flush=True,
            )


def real_tables(seeds, most=None):
    """Coverage of 95 % intervals on the grouped tables of the tournament, a cell being table and protocol."""
    cells = {}
    for table in islice(all_tables(shared_folder("tournament", "GLEANGP_TOURNAMENT")), most):
        if table.kind != "reg" or not table.grouped:
            continue
        for protocol, _, role in table.splits(seeds):
            answer = gleangp(table, role, lambda kind: HierarchicalGPRegressor(random_state=0))
            cells.setdefault((table.name, protocol), []).append(score(table, role, answer)["cov"])
    for name, chosen in (("chosen on", True), ("set aside", False)):
        found = np.array([np.mean(c) for (table, _), c in cells.items() if (table in CHOSEN_ON) == chosen])
        if len(found):
            print(
                f"real tables, {name}: {len(found)} cells, 95 % intervals cover {found.mean():.3f}, "
                f"below 0.9 in {np.sum(found < 0.9)}",
                flush=True,
            )


def main(arguments=None):
    """Run all of them."""
    quick = parser_of(__doc__).parse_args(arguments).quick
    print(versions())
    rng = np.random.default_rng(0)
    number_of_tasks([100] if quick else [100, 1000, 5000], rng)
    coverage([5] if quick else [3, 5, 20], 2 if quick else 10, rng)
    real_tables(1 if quick else 3, 2 if quick else None)
    unlabelled_rows([500] if quick else [500, 1000, 2000, 5000], rng)


if __name__ == "__main__":
    main()
