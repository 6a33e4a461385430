"""How long graph selection takes: the graph, the greedy part, and what the regulariser adds.

    python benchmarks/graph_selection.py [--rows 100000] [--keep 1000]

Prints the processor time of the best of three runs for each part: a busy machine does not show in it.
"""

import argparse
import time

import numpy as np
from sklearn.gaussian_process.kernels import RBF

from gleangp import EntropySelector, GraphSelector, TaskRelevance
from gleangp.graph import exponential_graph
from gleangp.inference.block import Block
from gleangp.noise import Probit
from gleangp.selection.runs import GraphRun


def best_of(repeats, function):
    """Least processor time of a call, and what the last one returned."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        result = function()
        times.append(time.process_time() - start)
    return min(times), result


def one_large_task(n_rows, n_keep):
    """Graph construction against the greedy part, on a Gaussian cloud in three dimensions."""
    X = np.random.default_rng(0).normal(size=(n_rows, 3))
    seconds, W = best_of(1, lambda: exponential_graph(X, 10))
    print(f"{n_rows} rows, 10 neighbours: graph {seconds:.2f} s ({W.nnz} entries)")
    for objective in ("degree", "coverage"):
        seconds, _ = best_of(3, lambda objective=objective: GraphRun(W, objective).extend(n_keep))
        print(f"  {objective:9s} greedy, keep {n_keep}: {seconds:.3f} s")


def many_tasks(n_tasks=20, n_rows=400, n_keep=40, p=9):
    """Selection with and without the regulariser; the ratio is the paper's (section 5.2: below 3)."""
    rng = np.random.default_rng(1)
    blocks = []
    for _ in range(n_tasks):
        X = rng.normal(size=(n_rows, p))
        y = np.where(X[:, 0] + rng.normal(size=n_rows) > 1.5, 1.0, -1.0)
        blocks.append(Block(X, y, Probit()))
    print(f"{n_tasks} tasks x {n_rows} rows, keep {n_keep} of each")
    first = np.nan
    for name, plain in (
        ("entropy", EntropySelector()),
        ("degree", GraphSelector()),
        ("coverage", GraphSelector(objective="coverage")),
    ):
        selectors = {
            "plain": plain,
            "in turns, weight 0": TaskRelevance(plain, weight=0.0),
            "labels": TaskRelevance(plain),
            "posterior": TaskRelevance(plain, relevance="posterior"),
        }
        for label, selector in selectors.items():
            seconds, _ = best_of(
                3,
                lambda selector=selector: selector.select(
                    RBF(3.0), blocks, n_tasks * n_keep, rng=np.random.default_rng(0)
                ),
            )
            first = seconds if label == "plain" else first
            print(f"  {name:9s} {label:18s} {seconds:.3f} s   x{seconds / first:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--keep", type=int, default=1000)
    arguments = parser.parse_args()
    one_large_task(arguments.rows, arguments.keep)
    many_tasks()
