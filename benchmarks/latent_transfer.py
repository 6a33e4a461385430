"""Does a latent space learnt from source tasks help a new task with few labels?

    python benchmarks/latent_transfer.py [--sets digits manifold sensor usps] [--targets 0 1 2 ...]
                                         [--repeats 2] [--components 2] [--json FILE] [--plot FILE]

Prints the error of the target task by number of labels, for `SharedLatentGPClassifier` and its rivals, and
how far each is from the best rival of its cell. A cell is one target, one set of sources and one
number of labels, averaged over repeats. The best of three rivals has luck: the number of cells behind it is
printed beside the number that chance gives a method as good as all of them. Times are seconds of processor
time of `fit`, one thread.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import defaultdict
from dataclasses import dataclass
from functools import cache

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import WhiteKernel

from gleangp import SharedLatentGPClassifier, SparseGPClassifier
from gleangp.datasets import load_sarcos, load_usps
from gleangp.estimators._shared_latent import latent_kernel
from gleangp.models.default_kernel import default_priors
from gleangp.models.latent.space import fit_shared_kernel
from gleangp.models.latent.terms import GaussianTerm
from gleangp.models.parameters import Parameters

LABELS = (2, 5, 10, 20, 50)
TEST_ROWS = 200


@dataclass(frozen=True)
class Case:
    """Rows of the source tasks; rows of the target task to learn from (alternating classes) and to test."""

    X: np.ndarray
    y: np.ndarray
    tasks: np.ndarray
    X_pool: np.ndarray
    y_pool: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


@cache
def _images(name):
    return load_digits(return_X_y=True) if name == "digits" else load_usps(return_X_y=True)


def digit_case(name: str, target: int, n_sources: int, seed: int) -> Case:
    """Is it this digit? The sources ask the same of the next digits, with 40 + 40 rows each.

    No row is in two tasks. The other digits of a task, the target's among them, are its negatives, as in
    Urtasun, Quattoni & Darrell 2007.
    """
    X, digit = _images(name)
    rng = np.random.default_rng([seed, target, n_sources])
    left = np.ones(len(digit), dtype=bool)

    def draw(wanted, n):
        rows = np.empty(2 * n, dtype=int)
        for k, kind in enumerate((digit == wanted, digit != wanted)):
            rows[k::2] = rng.choice(np.flatnonzero(kind & left), n, replace=False)
        left[rows] = False
        return rows, (digit[rows] == wanted).astype(int)

    pool, y_pool = draw(target, max(LABELS) // 2)
    test, y_test = draw(target, TEST_ROWS // 2)
    names = [(target + 1 + k) % 10 for k in range(n_sources)]
    sources = [draw(other, 40) for other in names]
    rows, y = (np.concatenate(parts) for parts in zip(*sources, strict=True))
    return Case(X[rows], y, np.repeat(names, 80), X[pool], y_pool, X[test], y_test)


def manifold_case(n_sources: int, seed: int) -> Case:
    """Classes depend on a plane bent into ten features, which 50 others of the same size hide."""
    rng = np.random.default_rng([seed, n_sources, 7])
    bend, turn = 1.5 * rng.normal(size=(2, 10)), np.linalg.qr(rng.normal(size=(60, 60)))[0]
    phase = rng.uniform(0.0, 2.0 * np.pi, 10)

    def draw(n):
        Z = rng.normal(size=(n, 2))
        direction, offset, curve = rng.normal(size=2), 0.3 * rng.normal(), 0.5 * rng.normal()
        f = Z @ direction + curve * (Z[:, 0] * Z[:, 1]) + offset * np.linalg.norm(direction)
        y = (f > 0).astype(int)
        X = np.hstack([np.sqrt(2.0) * np.sin(0.5 * (Z @ bend) + phase), rng.normal(size=(n, 50))])
        return X @ turn, y

    sources = [draw(80) for _ in range(n_sources)]
    X, y = (np.concatenate(parts) for parts in zip(*sources, strict=True))
    tasks = np.repeat(np.arange(n_sources), 80)
    return _split_target(X, y, tasks, *draw(2000))


@cache
def _sarcos():
    return load_sarcos(return_X_y=True)


def sensor_case(joint: int, n_sources: int, seed: int) -> Case:
    """Is the torque of a joint of a robot arm above its median? The sources are other joints, other rows."""
    X, Y = _sarcos()
    rng = np.random.default_rng([seed, joint, n_sources, 9])
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    high = (Y > np.median(Y, axis=0)).astype(int)
    order = rng.permutation(len(X))
    others = [(joint + 1 + k) % Y.shape[1] for k in range(n_sources)]
    parts = [order[2000 + 80 * k : 2080 + 80 * k] for k in range(n_sources)]
    rows = np.concatenate(parts)
    y = np.concatenate([high[r, j] for r, j in zip(parts, others, strict=True)])
    target = order[:2000]
    return _split_target(X[rows], y, np.repeat(others, 80), X[target], high[target, joint])


def _split_target(X, y, tasks, X_target, y_target) -> Case:
    few, n_test = max(LABELS) // 2, TEST_ROWS // 2
    by_class = np.column_stack([np.flatnonzero(y_target == c)[: few + n_test] for c in (1, 0)])
    pool, test = by_class[:few].ravel(), by_class[few:].ravel()
    return Case(X, y, tasks, X_target[pool], y_target[pool], X_target[test], y_target[test])


def process_on(transform, case: Case):
    """A Gaussian process on features in the unit of the source rows; gives predictions from n labels."""
    F = transform(case.X)
    mean, unit = F.mean(axis=0), np.sqrt(0.5 * F.var(axis=0).sum())
    pool, test = ((transform(A) - mean) / unit for A in (case.X_pool, case.X_test))
    kernel = latent_kernel(2, ard=False) + WhiteKernel(0.1, (1e-4, 10.0))
    parameters = Parameters(kernel, None, (), default_priors(kernel))

    def predict(n):
        term = GaussianTerm(np.where(case.y_pool[:n, None] == 1, 1.0, -1.0), np.arange(n))
        own = fit_shared_kernel([(term, pool[:n])], parameters)
        return (term.fit_map(own, pool[:n]).predict(test)[0][:, 0] > 0).astype(int)

    return predict


def added_task(model, case: Case):
    """A model with tasks, to which the target is added with n labels."""
    model.fit(case.X, case.y, case.tasks)

    def predict(n):
        name = 1000 + n
        model.add_task(case.X_pool[:n], case.y_pool[:n], name)
        return model.predict(case.X_test, np.full(len(case.X_test), name))

    return predict


def methods(case: Case, q: int, seed: int):
    """Name -> function that fits to the sources; rivals first."""
    paper = {"transfer": "latent", "n_observed": 20, "weight_decay": 5.0, "tol": 1e-4}
    return {
        "features": lambda: process_on(lambda A: A, case),
        "multi-task": lambda: added_task(SparseGPClassifier(random_state=seed), case),
        f"PCA-{q}": lambda: process_on(PCA(q, random_state=0).fit(case.X).transform, case),
        "before (latent)": lambda: added_task(SharedLatentGPClassifier(q, random_state=seed, **paper), case),
        "after (blend)": lambda: added_task(SharedLatentGPClassifier(q, random_state=seed), case),
    }


RIVALS = 3
BEHIND = 2.0  # points of error


def cases(names, targets, repeats):
    """Set, number of sources, target and seed, and the rows of each."""
    for seed in range(repeats):
        for target in targets:
            for n_sources in (1, 4, 9):
                if "digits" in names:
                    yield "digits", n_sources, target, seed, digit_case("digits", target, n_sources, seed)
                if "manifold" in names:
                    draw = 100 * target + seed
                    yield "manifold", n_sources, 0, seed, manifold_case(n_sources, draw)
            if "sensor" in names and target < 7:
                yield "sensor", 4, target, seed, sensor_case(target, 4, seed)
            if "usps" in names:
                yield "usps", 4, target, seed, digit_case("usps", target, 4, seed)


def measure(case: Case, q: int, seed: int) -> dict:
    """Method -> errors by number of labels, and the time of its fit."""
    out = {}
    for name, prepare in methods(case, q, seed).items():
        begin = time.process_time()
        predict = prepare()
        seconds = time.process_time() - begin
        out[name] = [float(np.mean(predict(n) != case.y_test)) for n in LABELS], seconds
    return out


def print_table(found: dict) -> None:
    """Errors in percent by set, number of sources and method; then the distance to the best rival."""
    print("set       sources  runs  method           " + "".join(f"{n:>7d}" for n in LABELS) + "   seconds")
    for setting in sorted({key[:2] for key in found}):
        runs = [run for key in found if key[:2] == setting for run in found[key]]
        for name in runs[0]:
            errors = 100.0 * np.mean([run[name][0] for run in runs], axis=0)
            seconds = np.mean([run[name][1] for run in runs])
            print(
                f"{setting[0]:<10}{setting[1]:>7d}{len(runs):>6d}  {name:<17}"
                + "".join(f"{e:7.1f}" for e in errors) + f"{seconds:10.2f}"
            )  # fmt: skip
    print("\ndistance to the best rival, points of error: mean over cells, worst cell; by set and sources")
    for setting in sorted({key[:2] for key in found}):
        cells = [_mean_errors(found[key]) for key in found if key[:2] == setting]
        names = list(cells[0])
        for name in names[RIVALS:]:
            gaps = [100.0 * (c[name] - np.min([c[r] for r in names[:RIVALS]], axis=0)) for c in cells]
            means = [np.mean([c[r] for c in cells], axis=0) for r in names[:RIVALS]]
            of_means = 100.0 * (np.mean([c[name] for c in cells], axis=0) - np.min(means, axis=0))
            print(
                f"{setting[0]:<10}{setting[1]:>7d}  {name:<17} best of each cell {np.mean(gaps):+6.1f} "
                f"{np.max(gaps):+6.1f}   best on average, by labels "
                + "".join(f"{g:+7.1f}" for g in of_means)
            )
            runs = [found[key] for key in found if key[:2] == setting]
            print(
                f"{'':<36} more than {BEHIND:g} points behind the best of the cell: "
                f"{np.sum(np.array(gaps) > BEHIND)} of {np.size(gaps)} cells, by chance "
                f"{cells_by_chance(runs, [*names[:RIVALS], name]):.0f}"
            )


def cells_by_chance(cells: list, names: list[str]) -> float:
    """Cells in which one of several equal methods is more than `BEHIND` points behind the best of the others.

    The noise of a method is that of its difference from the rival that is best on average: what differs
    between the runs of a cell, pooled by number of labels.
    """
    if len(cells[0]) < 2:
        return np.nan
    errors = 100.0 * np.array([[[run[m][0] for m in names] for run in runs] for runs in cells])
    best = errors[:, :, :-1].mean(axis=(0, 1)).argmin(axis=0)  # errors: (cells, runs, methods, labels)
    difference = errors[:, :, -1] - np.take_along_axis(errors, best[None, None, None], axis=2)[:, :, 0]
    variance = 0.5 * difference.var(axis=1, ddof=1).mean(axis=0) / errors.shape[1]
    noise = np.random.default_rng(0).normal(size=(100_000, len(names), 1)) * np.sqrt(variance)
    behind = noise[:, -1] - noise[:, :-1].min(axis=1) > BEHIND
    return len(cells) * float(np.sum(behind.mean(axis=0)))


def draw(found: dict, file: str) -> None:
    """A panel for each set and number of sources."""
    from matplotlib.figure import Figure

    settings = sorted({key[:2] for key in found})
    figure = Figure(figsize=(11, 5.4), layout="constrained")
    axes = figure.subplots(2, -(-len(settings) // 2), sharex=True, sharey=True).ravel()
    for ax, setting in zip(axes, settings, strict=False):
        runs = [run for key in found if key[:2] == setting for run in found[key]]
        for k, (name, errors) in enumerate(_mean_errors(runs).items()):
            ax.plot(LABELS, 100.0 * errors, "o-" if k >= RIVALS else ".--", ms=4, lw=1.2, label=name)
        ax.set_title(f"{setting[0]}, {setting[1]} source{'s' if setting[1] > 1 else ''}", fontsize=9)
        ax.set_xscale("log")
        ax.set_xticks(LABELS, [str(n) for n in LABELS])
        ax.minorticks_off()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=5, fontsize=8)
    figure.supxlabel("labels of the new task", fontsize=9)
    figure.supylabel("error in percent", fontsize=9)
    figure.savefig(file, dpi=110)


def _mean_errors(runs: list) -> dict:
    return {name: np.mean([run[name][0] for run in runs], axis=0) for name in runs[0]}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=["digits", "manifold", "sensor", "usps"])
    parser.add_argument("--targets", nargs="+", type=int, default=list(range(10)))
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--components", type=int, default=2)
    parser.add_argument("--json", help="write all errors to this file")
    parser.add_argument("--plot", help="draw the errors to this file")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    found = defaultdict(list)
    for name, n_sources, target, seed, case in cases(arguments.sets, arguments.targets, arguments.repeats):
        found[name, n_sources, target].append(measure(case, arguments.components, seed))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump([[*key, runs] for key, runs in found.items()], file)
    print_table(found)
    if arguments.plot:
        draw(found, arguments.plot)


if __name__ == "__main__":
    main()
