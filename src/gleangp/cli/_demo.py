"""`gleangp demo`: what sharing a kernel between tasks buys, on generated data.

Twelve tasks are functions drawn from one Gaussian process. Six inputs are recorded and only the first
matters, which few rows of one task can hardly tell but all tasks together can. One model is fitted to
all tasks together. Then new tasks arrive with a few labels each. "Alone" is scikit-learn's exact
Gaussian process of one task's rows, with one length scale per input: of the single-task models that
were tried here it is the best or close to it, and restarts of its optimiser change nothing.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from threadpoolctl import threadpool_limits

from gleangp import SparseGPRegressor
from gleangp._typing import FloatArray

N_TASKS, ROWS_PER_TASK, TEST_ROWS = 12, 30, 150
N_NEW_TASKS, FEW_ROWS = 20, (3, 5, 10, 20)
HEADLINE_ROWS = 5
N_INPUTS, WIDTH = 6, 6.0
NOISE_STD = 0.2
TRUE_KERNEL = ConstantKernel(1.0) + RBF(2.0)  # of the first input


@dataclass(frozen=True, slots=True, eq=False)
class GeneratedTask:
    """Rows to learn from, and rows without noise to measure with."""

    X: FloatArray
    y: FloatArray
    X_test: FloatArray
    f_test: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class DemoResult:
    """What the table and the picture show. Errors are root mean squares against the true function."""

    together: FloatArray  # (tasks,) one model of all tasks
    alone: FloatArray  # (tasks,) a Gaussian process per task
    seconds_together: float
    seconds_alone: float
    new_together: FloatArray  # (new tasks, sizes) by add_task
    new_alone: FloatArray  # (new tasks, sizes) a Gaussian process of the few rows alone
    seconds_add_task: float  # per new task with HEADLINE_ROWS rows
    seconds_new_alone: float
    model: SparseGPRegressor  # of all tasks
    example: GeneratedTask  # the new task of the picture, whose gain is the median
    example_name: int  # of it in the model

    def as_dict(self) -> dict[str, Any]:
        """Numbers for machines."""
        return {
            "tasks": {"together": self.together.tolist(), "alone": self.alone.tolist()},
            "seconds": {"together": self.seconds_together, "alone": self.seconds_alone},
            "new_tasks": {
                "rows": list(FEW_ROWS),
                "add_task": self.new_together.mean(axis=0).tolist(),
                "alone": self.new_alone.mean(axis=0).tolist(),
                "wins_with_5_rows": self.n_wins,
                "n": N_NEW_TASKS,
            },
        }

    @property
    def n_wins(self) -> int:
        """New tasks in which add_task with five rows is the better one."""
        column = FEW_ROWS.index(HEADLINE_ROWS)
        return int(np.sum(self.new_together[:, column] < self.new_alone[:, column]))


def generate_task(rng: np.random.Generator, n_rows: int) -> GeneratedTask:
    """One function of the process, seen with noise in random places."""
    X = rng.uniform(0.0, WIDTH, (n_rows + TEST_ROWS, N_INPUTS))
    chol = np.linalg.cholesky(TRUE_KERNEL(X[:, :1]) + 1e-9 * np.eye(len(X)))
    f = chol @ rng.standard_normal(len(X))
    y = f[:n_rows] + NOISE_STD * rng.standard_normal(n_rows)
    return GeneratedTask(X[:n_rows], y, X[n_rows:], f[n_rows:])


def learn_and_transfer(seed: int, advance: Callable[[str], None] = lambda what: None) -> DemoResult:
    """Everything the demo measures; `advance` is told of each step."""
    rng = np.random.default_rng(seed)
    tasks = [generate_task(rng, ROWS_PER_TASK) for _ in range(N_TASKS)]
    new_tasks = [generate_task(rng, max(FEW_ROWS)) for _ in range(N_NEW_TASKS)]

    start = time.perf_counter()
    model = fit_together(tasks)
    seconds_together = time.perf_counter() - start
    together = np.array([_error(model, task, code) for code, task in enumerate(tasks)])
    advance("all tasks together")

    alone, seconds_alone = np.empty(N_TASKS), 0.0
    for code, task in enumerate(tasks):
        alone[code], seconds = error_alone(task, ROWS_PER_TASK)
        seconds_alone += seconds
        advance("each task alone")

    shape = (N_NEW_TASKS, len(FEW_ROWS))
    new_together, new_alone, seconds_new = np.empty(shape), np.empty(shape), np.zeros((2, *shape))
    for i, task in enumerate(new_tasks):
        for j, n_rows in enumerate(FEW_ROWS):
            name = _name(i, j)
            start = time.perf_counter()
            model.add_task(task.X[:n_rows], task.y[:n_rows], task=name)
            seconds_new[0, i, j] = time.perf_counter() - start
            new_together[i, j] = _error(model, task, name)
            new_alone[i, j], seconds_new[1, i, j] = error_alone(task, n_rows)
        advance("new tasks")

    column = FEW_ROWS.index(HEADLINE_ROWS)
    gain = new_alone[:, column] - new_together[:, column]
    median = int(np.argsort(gain)[len(gain) // 2])
    seconds = seconds_new[:, :, column].mean(axis=1)
    return DemoResult(
        together,
        alone,
        seconds_together,
        seconds_alone,
        new_together,
        new_alone,
        float(seconds[0]),
        float(seconds[1]),
        model,
        new_tasks[median],
        _name(median, column),
    )


def _name(new_task: int, size: int) -> int:
    """The name in the model of a new task learnt from `FEW_ROWS[size]` rows."""
    return N_TASKS + new_task * len(FEW_ROWS) + size


def fit_together(tasks: list[GeneratedTask]) -> SparseGPRegressor:
    """One model of all tasks, which are called 0, 1, ..."""
    X = np.vstack([task.X for task in tasks])
    y = np.concatenate([task.y for task in tasks])
    codes = np.repeat(np.arange(len(tasks)), [len(task.y) for task in tasks])
    return SparseGPRegressor(random_state=0).fit(X, y, tasks=codes)


def fit_alone(task: GeneratedTask, n_rows: int) -> GaussianProcessRegressor:
    """scikit-learn's Gaussian process of the first rows of one task."""
    kernel = ConstantKernel() * RBF(np.full(N_INPUTS, WIDTH / 2), (1e-2, 1e3)) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, normalize_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # length scales at their bounds: as it should be
        return model.fit(task.X[:n_rows], task.y[:n_rows])


def error_alone(task: GeneratedTask, n_rows: int) -> tuple[float, float]:
    """Error of `fit_alone`, and the seconds that the fit took."""
    start = time.perf_counter()
    model = fit_alone(task, n_rows)
    seconds = time.perf_counter() - start
    return _rmse(model.predict(task.X_test), task.f_test), seconds


def _error(model: SparseGPRegressor, task: GeneratedTask, name: int) -> float:
    return _rmse(model.predict(task.X_test, tasks=np.full(len(task.X_test), name)), task.f_test)


def _rmse(predicted: FloatArray, true: FloatArray) -> float:
    return float(np.sqrt(np.mean((predicted - true) ** 2)))


def run_demo(output: Path, seed: int, *, as_json: bool) -> None:
    """Measure with a progress bar, print the table, save the picture."""
    if not output.parent.is_dir():
        raise FileNotFoundError(f"cannot save the picture: {str(output.parent)!r} is not a folder.")
    from gleangp.cli._demo_picture import save_picture  # before the work: is matplotlib there?

    start = time.perf_counter()
    bar = Progress(
        TextColumn("{task.description:<20}"),
        BarColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        step = bar.add_task("generating", total=1 + N_TASKS + N_NEW_TASKS)
        with threadpool_limits(1):  # matrices this small only lose by more
            result = learn_and_transfer(seed, lambda what: bar.update(step, advance=1, description=what))
    save_picture(result, output)
    if as_json:
        print(json.dumps({**result.as_dict(), "picture": str(output)}))
        return
    console = Console()
    console.print(_table(result))
    console.print(
        f"add_task with {HEADLINE_ROWS} rows was the better one in {result.n_wins} of {N_NEW_TASKS} "
        f"new tasks. Picture: {output} ({time.perf_counter() - start:.1f} s in all)",
        markup=False,  # the path is the user's
    )


def _table(result: DemoResult) -> Table:
    table = Table(
        title=f"{N_TASKS} tasks of {ROWS_PER_TASK} rows: error (RMSE against the true function)",
        caption="sharing: SparseGPRegressor of all tasks, add_task for new ones\n"
        "alone: scikit-learn's GaussianProcessRegressor of the task's rows",
    )
    table.add_column("task")
    for name in ("rows", "sharing", "alone", "alone / sharing"):
        table.add_column(name, justify="right")

    def line(name: str, rows: str, sharing: float, alone: float) -> None:
        table.add_row(name, rows, f"{sharing:.3f}", f"{alone:.3f}", f"{alone / sharing:.2f}")

    for code, (sharing, alone) in enumerate(zip(result.together, result.alone, strict=True)):
        line(str(code), str(ROWS_PER_TASK), sharing, alone)
    table.add_section()
    line("mean of tasks", str(ROWS_PER_TASK), result.together.mean(), result.alone.mean())
    table.add_row(
        "time, all tasks", "", f"{result.seconds_together:.2f} s", f"{result.seconds_alone:.2f} s", ""
    )
    table.add_section()
    for j, n_rows in enumerate(FEW_ROWS):
        sharing, alone = result.new_together[:, j].mean(), result.new_alone[:, j].mean()
        line(f"new tasks (mean of {N_NEW_TASKS})", str(n_rows), sharing, alone)
    table.add_row(
        f"time, {HEADLINE_ROWS} rows",
        "",
        f"{1e3 * result.seconds_add_task:.1f} ms",
        f"{1e3 * result.seconds_new_alone:.1f} ms",
        "",
    )
    return table
