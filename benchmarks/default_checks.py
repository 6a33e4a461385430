"""Simulations that a default must pass: irrelevant columns, unequal noise, new tasks, what tasks share, cost.

    python -m benchmarks.default_checks [--quick] [part ...]

Parts: irrelevant, noise, new_tasks, coupling, cost. Every row has its goal and what was measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from benchmarks.common import Row, cpu_seconds, rmse, show_parts, smooth_function
from gleangp import SparseGPRegressor


@dataclass
class Tasks:
    """Rows to learn from, and test rows with the true function."""

    X: np.ndarray
    y: np.ndarray
    t: np.ndarray
    X_test: np.ndarray
    f_test: np.ndarray
    t_test: np.ndarray

    def error(self, model) -> float:
        """RMSE to the true functions."""
        return rmse(model.predict(self.X_test, tasks=self.t_test), self.f_test)


def simulate(functions: list, n_rows: int, rng, p: int = 1, noise: float = 0.1, n_test: int = 40) -> Tasks:
    """Rows of each function, uniform on [-2, 2]^p."""
    parts = []
    for task, f in enumerate(functions):
        X = rng.uniform(-2, 2, size=(n_rows + n_test, p))
        parts.append((X, f(X), np.full(len(X), task)))
    train = [np.concatenate([part[i][:n_rows] for part in parts]) for i in range(3)]
    test = [np.concatenate([part[i][n_rows:] for part in parts]) for i in range(3)]
    return Tasks(train[0], train[1] + noise * rng.normal(size=len(train[1])), train[2], *test)


def family(name: str, n_tasks: int, rng, p: int = 1) -> list:
    """Functions of related tasks: how they are related has a name."""
    shared, other = smooth_function(rng, p), smooth_function(rng, p)
    own = [smooth_function(rng, p) for _ in range(n_tasks)]
    offsets, signs = rng.normal(size=n_tasks), rng.choice([-1.0, 1.0], n_tasks)
    makers = {
        "common": lambda t: lambda X: shared(X) + 0.2 * own[t](X),
        "offsets": lambda t: lambda X: shared(X) + offsets[t],
        "slopes": lambda t: lambda X: shared(X) + offsets[t] * X[:, 0],
        "independent": lambda t: own[t],
        "mirrored": lambda t: lambda X: signs[t] * shared(X),
        "groups": lambda t: (shared, other)[t % 2],
    }
    return [makers[name](t) for t in range(n_tasks)]


def with_irrelevant(X: np.ndarray, k: int, rng) -> np.ndarray:
    """X beside k columns without meaning, every second one of zeros and ones."""
    more = rng.normal(size=(len(X), k))
    more[:, ::2] = rng.integers(0, 2, size=more[:, ::2].shape)
    return np.hstack([X, more])


def irrelevant(quick: bool) -> Iterator[Row]:
    """RMSE with one to eight irrelevant columns over that without, 60 to 1000 rows."""
    ratios = []
    for seed in range(4 if quick else 50):
        rng = np.random.default_rng(seed)
        k, n_tasks = 1 + seed % 8, 6
        n_rows = (60, 120, 300, 1000)[seed % (2 if quick else 4)] // n_tasks
        data = simulate(family("common", n_tasks, rng), n_rows, rng)
        plain = data.error(SparseGPRegressor(random_state=0).fit(data.X, data.y, tasks=data.t))
        data.X, data.X_test = (with_irrelevant(X, k, rng) for X in (data.X, data.X_test))
        ratios.append(data.error(SparseGPRegressor(random_state=0).fit(data.X, data.y, tasks=data.t)) / plain)
    ruined = sum(ratio > 2.5 for ratio in ratios)
    yield Row(
        f"one to eight irrelevant columns, 60 to 1000 rows, {len(ratios)} draws: worst ratio to the fit "
        "without them (mean), fits ruined (2.5 times)",
        f"{max(ratios):.2f} ({np.mean(ratios):.2f}), {ruined}",
        "1.3, none",
        max(ratios) <= 1.3 and not ruined,
    )


def noise(quick: bool) -> Iterator[Row]:
    """Coverage of the quietest and the noisiest six of 30 tasks; deviations of the noise 100 times apart."""
    found, n_tasks = [], 30
    for seed in range(1 if quick else 10):
        rng = np.random.default_rng(seed)
        data = simulate(family("common", n_tasks, rng), 20, rng, noise=0.0)
        spread = rng.permutation(np.geomspace(0.02, 2.0, n_tasks))
        y = data.y + spread[data.t] * rng.normal(size=len(data.y))
        y_test = data.f_test + spread[data.t_test] * rng.normal(size=len(data.f_test))
        model = SparseGPRegressor(random_state=0).fit(data.X, y, tasks=data.t)
        low, high = model.predict_interval(data.X_test, tasks=data.t_test).T
        inside = (low <= y_test) & (y_test <= high)
        place = np.argsort(np.argsort(spread))[data.t_test]
        found.append([inside[place < 6].mean(), inside[place >= n_tasks - 6].mean(), inside.mean()])
    quiet, loud, every = np.mean(found, axis=0)
    yield Row(
        "noise 100 times apart, 20 labels: coverage of 95 % intervals, quietest / noisiest six (all)",
        f"{quiet:.3f} / {loud:.3f} ({every:.3f})",
        "0.93 to 0.97 both",
        bool(0.93 <= min(quiet, loud) and max(quiet, loud) <= 0.97),
    )


def new_tasks(quick: bool) -> Iterator[Row]:
    """`add_task` with one to twenty rows against the best pure strategy of every cell."""
    sizes = (1, 5, 20) if quick else (1, 2, 5, 10, 20)
    errors: dict[tuple, list] = {}
    for seed in range(1 if quick else 10):
        rng = np.random.default_rng(seed)
        functions = family("common", 13, rng)
        source = simulate(functions[:12], 25, rng)
        like, unrelated = functions[12], smooth_function(rng, 1)
        kinds = {
            "like": like,
            "mirrored": lambda X, f=like: -f(X),
            "shifted": lambda X, f=like: f(X) + 4.0,
            "unrelated": unrelated,
        }
        models = {
            name: SparseGPRegressor(coupling=name, random_state=0).fit(source.X, source.y, tasks=source.t)
            for name in ("auto", "kernel")
        }
        for kind, f in kinds.items():
            task = simulate([f], max(sizes), rng, n_test=100)
            for n in sizes:
                errors.setdefault((kind, n), []).append(new_task_errors(models, source, task, n))
    means = {cell: np.mean(found, axis=0) for cell, found in errors.items()}
    ratios = {cell: found[0] / found[1:4].min() for cell, found in means.items()}
    refits = {cell: found[0] / found[4] for cell, found in means.items()}
    cell = max(ratios, key=ratios.get)
    mean, worst = np.mean(list(ratios.values())), ratios[cell]
    yield Row(
        "add_task with 1 to 20 rows, like / mirrored / shifted / unrelated: RMSE over the best pure "
        "strategy, mean and worst",
        f"{mean:.2f}, {worst:.2f} ({cell[0]}, {cell[1]} rows)",
        "1.03, 1.45",
        bool(mean <= 1.03 and worst <= 1.45),
    )
    for kind in dict.fromkeys(kind for kind, _ in ratios):
        text = ", ".join(
            f"{n}: {ratio:.2f} ({refits[name, n]:.2f})" for (name, n), ratio in ratios.items() if name == kind
        )
        yield Row(f"– {kind}, by number of rows (over a fit of all tasks again)", text)


def new_task_errors(models: dict, source: Tasks, task: Tasks, n: int) -> np.ndarray:
    """RMSE of add_task; of the pure strategies; of a fit of all tasks again.

    Pure strategies: full transfer (the task is like those of the fit), the kernel alone, no transfer.
    """
    X, y, new = task.X[:n], task.y[:n], np.full(n, 12)
    like = deepcopy(models["auto"]).add_task(None, None, task=12).partial_fit(X, y, tasks=new)
    added, kernel = (deepcopy(models[name]).add_task(X, y, task=12) for name in ("auto", "kernel"))
    again = SparseGPRegressor(coupling="function", random_state=0).fit(
        np.vstack([source.X, X]), np.r_[source.y, y], tasks=np.r_[source.t, new]
    )
    where = np.full(len(task.X_test), 12)
    answers = [model.predict(task.X_test, tasks=where) for model in (added, like, kernel, again)]
    alone = SparseGPRegressor(random_state=0).fit(X, y).predict(task.X_test) if n > 1 else np.full(100, y[0])
    answers.insert(3, alone)
    return np.array([rmse(answer, task.f_test) for answer in answers])


def coupling(quick: bool) -> Iterator[Row]:
    """How often the default is more than 20 % behind the best coupling in hindsight."""
    names = ("common", "offsets", "slopes", "independent", "mirrored", "groups")
    regrets: dict[str, list] = {name: [] for name in names}
    for seed in range(len(names) if quick else 200):
        rng, name = np.random.default_rng(seed), names[seed % len(names)]
        p, n_tasks = int(rng.integers(1, 3)), int(rng.choice([4, 10]))
        data = simulate(family(name, n_tasks, rng, p), int(rng.choice([5, 10, 20])), rng, p)
        data.X, data.X_test = (with_irrelevant(X, seed % 2, rng) for X in (data.X, data.X_test))
        errors = {}
        for choice in ("auto", "kernel", "function", "coregion"):
            model = SparseGPRegressor(coupling=choice, random_state=0).fit(data.X, data.y, tasks=data.t)
            errors[choice] = data.error(model)
        regrets[name].append(errors["auto"] / min(errors.values()))
    every = np.concatenate(list(regrets.values()))
    wrong = int(np.sum(every > 1.2))
    text = f"{wrong} of {len(every)} (worst {every.max():.2f})"
    yield Row("wrong choice of coupling by more than 20 % RMSE, simulated problems", text, "0", wrong == 0)
    for name, found in regrets.items():
        yield Row(f"– {name}: mean and worst ratio to the best", f"{np.mean(found):.3f}, {max(found):.2f}")


def cost(quick: bool) -> Iterator[Row]:
    """CPU seconds of the default on 30 tasks of 60 rows and on 1000 tasks of 100."""
    for n_tasks, n_rows, goal in ((30, 60, 0.2),) if quick else ((30, 60, 0.2), (1000, 100, 18.0)):
        rng = np.random.default_rng(0)
        data = simulate(family("common", n_tasks, rng, 2), n_rows, rng, 2)
        model = SparseGPRegressor(random_state=0)
        SparseGPRegressor(random_state=0).fit(data.X[:60], data.y[:60])  # imports
        _, seconds = cpu_seconds(lambda: model.fit(data.X, data.y, tasks=data.t))  # noqa: B023
        text = f"{seconds:.2f} (RMSE {data.error(model):.3f})"
        yield Row(f"CPU seconds, {n_tasks} x {n_rows} rows", text, f"≤ {goal:g} with draws", seconds <= goal)


PARTS = {part.__name__: part for part in (irrelevant, noise, new_tasks, coupling, cost)}


def rows(quick: bool = False) -> Iterator[Row]:
    """Rows of all parts."""
    for part in PARTS.values():
        yield from part(quick)


if __name__ == "__main__":
    show_parts(__doc__, PARTS)
