"""Does a latent space learnt from source tasks help a new task with few labels?

    python -m benchmarks.latent_transfer [--sets digits manifold sensor usps] [--targets 0 1 2 ...]
                                         [--seeds 0 1] [--deals 1] [--without "before (latent)"]
                                         [--components 2] [--json FILE] [--plot FILE]

Prints the tables of docs/methods/shared_latent.md: the error of the target task by number of labels, for
`SharedLatentGPClassifier` and its rivals, and how far it is from the best rival on average. A cell is one
target, one set of sources and one number of labels. The best of three rivals in hindsight has luck. So the
rival of a cell is chosen on half of the seeds and compared with on the other half. Many labels of the
target are drawn for one fit by `--deals`, since a fit costs most of the time. Times are seconds of processor
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
from itertools import count

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


def deal_again(case: Case, rng: np.random.Generator) -> Case:
    """The rows of the target task, dealt to the pool and the test anew."""
    X, y = np.concatenate([case.X_pool, case.X_test]), np.concatenate([case.y_pool, case.y_test])
    order = rng.permutation(len(y))
    return _split_target(case.X, case.y, case.tasks, X[order], y[order])


def process_on(transform, case: Case):
    """A Gaussian process on features in the unit of the source rows; gives its way to learn the target."""
    F = transform(case.X)
    mean, unit = F.mean(axis=0), np.sqrt(0.5 * F.var(axis=0).sum())
    kernel = latent_kernel(2, ard=False) + WhiteKernel(0.1, (1e-4, 10.0))
    parameters = Parameters(kernel, None, (), default_priors(kernel))

    def predict(X, y, X_test):
        pool, test = ((transform(A) - mean) / unit for A in (X, X_test))
        term = GaussianTerm(np.where(y[:, None] == 1, 1.0, -1.0), np.arange(len(y)))
        own = fit_shared_kernel([(term, pool)], parameters)
        return (term.fit_map(own, pool).predict(test)[0][:, 0] > 0).astype(int)

    return predict


def added_task(model, case: Case):
    """A model of the source tasks, to which the target is added."""
    model.fit(case.X, case.y, case.tasks)
    names = count(1000)

    def predict(X, y, X_test):
        name = next(names)
        model.add_task(X, y, name)
        return model.predict(X_test, np.full(len(X_test), name))

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
UNSEEN = 5  # settings were chosen with the targets before this one


def cases(names, sources, targets, seeds):
    """Set, number of sources, target and seed, and the rows of each."""
    for seed in seeds:
        for target in targets:
            for n_sources in sources:
                if "digits" in names:
                    yield "digits", n_sources, target, seed, digit_case("digits", target, n_sources, seed)
                if "manifold" in names:
                    draw = 100 * target + seed
                    yield "manifold", n_sources, target, seed, manifold_case(n_sources, draw)
            if 4 not in sources:
                continue
            if "sensor" in names and target < 7:
                yield "sensor", 4, target, seed, sensor_case(target, 4, seed)
            if "usps" in names:
                yield "usps", 4, target, seed, digit_case("usps", target, 4, seed)


def measure(case: Case, q: int, seed: int, n_deals: int, left_out: list[str]) -> dict:
    """Method -> errors by number of labels, means of several deals, and the time of its fit."""
    rng, out = np.random.default_rng([seed, 11]), {}
    dealt = [case, *(deal_again(case, rng) for _ in range(n_deals - 1))]
    for name, prepare in methods(case, q, seed).items():
        if name in left_out:
            continue
        begin = time.process_time()
        predict = prepare()
        seconds = time.process_time() - begin
        wrong = [[predict(d.X_pool[:n], d.y_pool[:n], d.X_test) != d.y_test for n in LABELS] for d in dealt]
        out[name] = np.mean(wrong, axis=(0, 2)).tolist(), seconds
    return out


def print_table(found: dict) -> None:
    """Errors in percent by set, number of sources and method; then the distance to the best rival."""
    head = ["set", "sources", "method", *map(str, LABELS), "seconds"]
    print(as_row([*head, f"targets from {UNSEEN}: 2", *map(str, LABELS[1:])]))
    print(as_row(["---"] * (len(head) + len(LABELS))))
    settings = sorted({key[:2] for key in found})
    for setting in settings:
        runs, unseen = runs_of(found, setting), runs_of(found, setting, UNSEEN)
        later = mean_errors(unseen)
        for name, errors in mean_errors(runs).items():
            seconds = np.mean([run[name][1] for run in runs])
            numbers = [*errors, seconds, *later.get(name, [])]
            print(as_row([*setting, name, *(f"{x:.1f}" for x in numbers)]))
    print("\nmean error of all numbers of labels, and points above the best rival, by labels\n")
    print(as_row(["set", "sources", "before", "after", "best rival", *map(str, LABELS), "time, of before"]))
    print(as_row(["---"] * (6 + len(LABELS))))
    for setting in settings:
        print_summary(setting, runs_of(found, setting))
        unseen = runs_of(found, setting, UNSEEN)
        if unseen:
            print_summary((f"{setting[0]}, targets from {UNSEEN}", setting[1]), unseen)
    print("\nsingle cells, where the rival was chosen on other seeds\n")
    for setting in settings:
        targets = sorted(key for key in found if key[:2] == setting)
        runs = [found[t] for t in targets]
        if setting[0] == "manifold":  # a draw of a plane has no target
            targets, runs = targets[:1], [[run for own in runs for run in own]]
        *rivals, ours = runs[0][0]
        names = [*rivals[:RIVALS], ours]
        errors = 100.0 * np.array([[[run[m][0] for m in names] for run in own] for own in runs])
        if errors.shape[1] > 1 and len(names) > RIVALS:
            print(*setting, end=" ")
            print_cells([t[2] for t in targets], errors, names[:-1])


def runs_of(found: dict, setting: tuple, first: int = 0) -> list:
    """All runs of a set and number of sources, of this target and those after it."""
    return [run for key in sorted(found) if key[:2] == setting and key[2] >= first for run in found[key]]


def mean_errors(runs: list) -> dict:
    """Method -> mean errors in percent, by number of labels."""
    return {n: 100.0 * np.mean([run[n][0] for run in runs], axis=0) for n in runs[0]} if runs else {}


def as_row(cells: list) -> str:
    """A row of a table in Markdown."""
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def print_summary(setting: tuple, runs: list) -> None:
    """Means before and after, the rival that is best on average, and the gap to the best one by labels."""
    mean = mean_errors(runs)
    *rivals, ours = mean
    best = min(rivals[:RIVALS], key=lambda name: mean[name].mean())
    gaps = mean[ours] - np.min([mean[name] for name in rivals[:RIVALS]], axis=0)
    before, ratio = "", ""
    if len(rivals) > RIVALS:
        seconds = {name: np.sum([run[name][1] for run in runs]) for name in (rivals[-1], ours)}
        before, ratio = f"{mean[rivals[-1]].mean():.1f}", f"{seconds[ours] / seconds[rivals[-1]]:.2f}"
    print(
        as_row(
            [*setting, before, f"{mean[ours].mean():.1f}", f"{mean[best].mean():.1f} ({best})"]
            + [f"{gap:+.1f}" for gap in gaps] + [ratio]
        )
    )  # fmt: skip


def print_cells(targets: list[int], errors: np.ndarray, rivals: list[str]) -> None:
    """Cells that are behind their rival, which was chosen on the other half of the seeds.

    The standard error of a cell is pooled over targets: a few seeds give no good one.
    """
    halves = [errors[:, h::2].mean(axis=1) for h in (0, 1)]  # (targets, methods, labels)
    behind = []
    for own, other in (halves, halves[::-1]):
        best = other[:, :-1].argmin(axis=1)[:, None]
        behind.append(own[:, -1] - np.take_along_axis(own, best, axis=1)[:, 0])
    behind = np.mean(behind, axis=0)
    by_rival = errors[:, :, -1:] - errors[:, :, :-1]
    mean = by_rival.mean(axis=1)
    deviation = np.sqrt(by_rival.var(axis=1, ddof=1).mean(axis=0) / errors.shape[1])
    nearest = deviation[mean.mean(axis=0).argmax(axis=0), np.arange(len(LABELS))]
    clear = behind > BEHIND + 2.0 * nearest
    print(
        f"sources: {np.sum(behind > BEHIND)} of {behind.size} cells more than {BEHIND:g} points behind, "
        f"{np.sum(clear)} by more than two standard errors ("
        + ", ".join(f"{e:.1f}" for e in nearest) + " by labels)"
    )  # fmt: skip
    for t, k in np.argwhere(behind > BEHIND):
        text = ", ".join(f"{r} {mean[t, j, k]:+.1f} ± {deviation[j, k]:.1f}" for j, r in enumerate(rivals))
        mark = "  clearly" if clear[t, k] else ""
        print(f"{'':<21}target {targets[t]}, {LABELS[k]} labels: {behind[t, k]:+.1f}; against {text}{mark}")


def draw(found: dict, file: str) -> None:
    """A panel for each set and number of sources."""
    from matplotlib.figure import Figure

    settings = sorted({key[:2] for key in found})
    figure = Figure(figsize=(11, 5.4), layout="constrained")
    axes = figure.subplots(2, -(-len(settings) // 2), sharex=True, sharey=True).ravel()
    for ax, setting in zip(axes, settings, strict=False):
        for k, (name, errors) in enumerate(mean_errors(runs_of(found, setting)).items()):
            ax.plot(LABELS, errors, "o-" if k >= RIVALS else ".--", ms=4, lw=1.2, label=name)
        ax.set_title(f"{setting[0]}, {setting[1]} source{'s' if setting[1] > 1 else ''}", fontsize=9)
        ax.set_xscale("log")
        ax.set_xticks(LABELS, [str(n) for n in LABELS])
        ax.minorticks_off()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=5, fontsize=8)
    figure.supxlabel("labels of the new task", fontsize=9)
    figure.supylabel("error in percent", fontsize=9)
    figure.savefig(file, dpi=110)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=["digits", "manifold", "sensor", "usps"])
    parser.add_argument("--sources", nargs="+", type=int, default=[1, 4, 9], help="of digits and manifold")
    parser.add_argument("--targets", nargs="+", type=int, default=list(range(10)))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--deals", type=int, default=1, help="draws of the target's labels for each fit")
    parser.add_argument("--without", nargs="*", default=[], help="methods to leave out")
    parser.add_argument("--components", type=int, default=2)
    parser.add_argument("--json", help="write all errors to this file")
    parser.add_argument("--plot", help="draw the errors to this file")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    found = defaultdict(list)
    chosen = arguments.sets, arguments.sources, arguments.targets, arguments.seeds
    for name, n_sources, target, seed, case in cases(*chosen):
        found[name, n_sources, target].append(
            measure(case, arguments.components, seed, arguments.deals, arguments.without)
        )
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump([[*key, runs] for key, runs in found.items()], file)
    print_table(found)
    if arguments.plot:
        draw(found, arguments.plot)


if __name__ == "__main__":
    main()
