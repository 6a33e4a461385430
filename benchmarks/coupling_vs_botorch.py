"""Coupled tasks against BoTorch's `MultiTaskGP`: 30 correlated tasks of 60 rows, one thread.

    python -m venv peer && peer/bin/pip install botorch . && peer/bin/python benchmarks/coupling_vs_botorch.py

Tasks share 0.8 of the variance of their functions (RBF, three inputs; noise 0.2). Prints the error against
the true functions, the negative log density of new observations, and CPU seconds of fit and prediction.
"""

import argparse
import os
import time
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from gleangp import SparseGPRegressor

NOISE = 0.2


def correlated_tasks(n_tasks, n_rows, n_test, share, seed):
    """(X, y, task) to learn from, and (X, f, task) with the true functions."""
    rng = np.random.default_rng(seed)
    size = n_rows + n_test
    X, tasks = rng.normal(size=(n_tasks * size, 3)), np.repeat(np.arange(n_tasks), size)
    # 2000 random cosines are a draw of the RBF process with length scale 1.5.
    frequencies, phases = rng.normal(size=(3, 2000)) / 1.5, rng.uniform(0, 2 * np.pi, 2000)
    waves = np.sqrt(2 / 2000) * np.cos(X @ frequencies + phases)
    f = np.sqrt(share) * (waves @ rng.normal(size=2000))
    for t in range(n_tasks):
        rows = tasks == t
        f[rows] += np.sqrt(1 - share) * (waves[rows] @ rng.normal(size=2000))
    y = f + NOISE * rng.normal(size=len(f))
    train = np.arange(len(X)) % size < n_rows
    return (X[train], y[train], tasks[train]), (X[~train], f[~train], tasks[~train])


def ours(train, X_new, tasks_new):
    """gleangp, as it comes."""
    X, y, tasks = train
    model = SparseGPRegressor(random_state=0).fit(X, y, tasks=tasks)
    mean, std = model.predict(X_new, tasks=tasks_new, return_std=True, include_noise=True)
    return mean, std, f"gleangp ({model.coupling_})"


def botorch(rank, max_iter):
    """`MultiTaskGP` with its default priors and transforms, fitted by its own fitting function."""

    def run(train, X_new, tasks_new):
        import torch
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import MultiTaskGP
        from gpytorch.mlls import ExactMarginalLogLikelihood

        torch.set_num_threads(1)
        X, y, tasks = train
        centre, scale = y.mean(), y.std()

        def rows(A, t):
            return torch.tensor(np.column_stack([A, t]), dtype=torch.float64)

        targets = torch.tensor((y - centre)[:, None] / scale, dtype=torch.float64)
        model = MultiTaskGP(rows(X, tasks), targets, task_feature=-1, rank=rank, outcome_transform=None)
        options = {} if max_iter is None else {"optimizer_kwargs": {"options": {"maxiter": max_iter}}}
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model), **options)
        with torch.no_grad():
            parts = [
                model.posterior(rows(X_new[i : i + 500], tasks_new[i : i + 500]), observation_noise=True)
                for i in range(0, len(X_new), 500)
            ]
            mean = np.concatenate([p.mean[:, 0].numpy() for p in parts])
            var = np.concatenate([p.variance[:, 0].numpy() for p in parts])
        name = "BoTorch MultiTaskGP" + ("" if rank is None else f", rank {rank}")
        return centre + scale * mean, scale * np.sqrt(var), name

    return run


def main():
    """Every method on the same tasks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=30)
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--ranks", type=int, nargs="*", default=[1], help="of MultiTaskGP; 0: its default")
    parser.add_argument("--max-iter", type=int, help="of MultiTaskGP's optimiser; default: its own")
    arguments = parser.parse_args()
    methods = [ours, *(botorch(rank or None, arguments.max_iter) for rank in arguments.ranks)]
    ours(*_warm_up())
    for seed in range(arguments.seeds):
        train, (X_new, f_new, tasks_new) = correlated_tasks(arguments.tasks, arguments.rows, 100, 0.8, seed)
        observed = f_new + NOISE * np.random.default_rng(seed + 1000).normal(size=len(f_new))
        for method in methods:
            start = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                mean, std, name = method(train, X_new, tasks_new)
            seconds = time.process_time() - start
            error = np.sqrt(np.mean((mean - f_new) ** 2))
            surprise = np.mean(0.5 * np.log(2 * np.pi * std**2) + 0.5 * ((observed - mean) / std) ** 2)
            measured = f"RMSE {error:.4f}  NLPD {surprise:.4f}  {seconds:7.2f} CPU s"
            print(f"seed {seed} {name:32s} {measured}", flush=True)


def _warm_up():
    (X, y, tasks), (X_new, _, tasks_new) = correlated_tasks(3, 10, 2, 0.8, 0)
    return (X, y, tasks), X_new, tasks_new


if __name__ == "__main__":
    main()
