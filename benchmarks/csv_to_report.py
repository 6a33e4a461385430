"""From a CSV to a report in one command: wall time, CPU time and peak memory of `gleangp fit --report`.

    python benchmarks/csv_to_report.py [rows] [tasks] [features]

Tasks are noisy functions of the inputs that share their character; a fifth of the inputs is irrelevant. The
command runs as a process of its own, so that its memory is its own. Prints one line of JSON.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np


def write_table(path: Path, n_rows: int, n_tasks: int, n_features: int) -> None:
    """A table of numbers with a task column."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_features))
    task = rng.integers(0, n_tasks, n_rows)
    slope = rng.normal(1.0, 0.3, n_tasks)[task]
    f = slope * np.sin(2 * X[:, 0]) + X[:, 1] * np.tanh(X[:, 2]) + rng.normal(0, 1, n_tasks)[task]
    y = f + 0.3 * rng.standard_normal(n_rows)
    header = ",".join(["task", *(f"x{i}" for i in range(n_features)), "y"])
    table = np.column_stack([task, X, y])
    formats = ["t%d"] + ["%.6g"] * (n_features + 1)
    np.savetxt(path, table, delimiter=",", header=header, comments="", fmt=formats)


def main(n_rows: int = 20_000, n_tasks: int = 200, n_features: int = 10) -> None:
    """Measure one command."""
    with tempfile.TemporaryDirectory() as folder:
        table, model, page = (Path(folder) / name for name in ("t.csv", "m.glean", "r.html"))
        write_table(table, n_rows, n_tasks, n_features)
        command = [sys.executable, "-m", "gleangp", "fit", table, "-y", "y", "-t", "task", "-o", model]
        command += ["--report", page, "--json"]
        start = time.perf_counter()
        out = subprocess.run(command, check=True, capture_output=True, text=True)
        wall = time.perf_counter() - start
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(
            json.dumps(
                {
                    "rows": n_rows,
                    "tasks": n_tasks,
                    "features": n_features,
                    "cores": os.cpu_count(),
                    "threads": os.environ.get("OPENBLAS_NUM_THREADS", "all"),
                    "wall_s": round(wall, 1),
                    "cpu_s": round(used.ru_utime + used.ru_stime, 1),
                    "peak_mb": round(used.ru_maxrss / 1024),
                    "held_out": json.loads(out.stdout)["summary"]["held_out"],
                    "model_mb": round(model.stat().st_size / 2**20, 1),
                    "report_kb": round(page.stat().st_size / 1024),
                }
            )
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
