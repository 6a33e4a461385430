"""Figures 2, 3 and 4 of Urtasun, Quattoni & Darrell 2007, measured and drawn again.

    python reproductions/uqd07_figures.py [--quick] [--partitions 10] [--settings 4a 4b ...] [--data FOLDER]

USPS digits 1 to 5; the target task is "is it a 3?", learnt from 5 to 100 examples per class after the latent
space was learnt from source tasks: one of 300 + 300 rows (Figure 3) or four of 100 + 100 or 200 + 200
(Figure 4). Error on 300 + 300 test rows, mean and standard deviation over random partitions of the pooled
digits. Fits have at most 100 iterations, as in the paper. Beside the paper's two baselines (a model of the
target rows alone; a GP on two principal components of the source rows) stand two of today: a GP on the linear
discriminants of the source tasks, and a GP on all pixels. Every baseline GP is the model's own label
regressor on other features.

Errors go to uqd07_errors.csv in --out as they are measured; a second run goes on where the first ended.
The folder of the data is named by --data or by the environment variable GLEANGP_DATA.
"""

from __future__ import annotations

import argparse
import csv
import os
import warnings
from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import WhiteKernel

from gleangp import SharedLatentGPClassifier
from gleangp.estimators._defaults import default_priors
from gleangp.estimators._shared_latent import latent_kernel
from gleangp.learning.latent_space import Weighted, fit_kernel
from gleangp.learning.latent_terms import GaussianTerm
from gleangp.learning.parameters import Parameters

TARGET = 3
WITHOUT_SOURCES = ("single task", "GP on pixels")
SIZES = (5, 10, 20, 50, 100)
# setting -> digits of the sources, rows of each class
SETTINGS = {
    "3-from-1": ((1,), 300),
    "3-from-2": ((2,), 300),
    "3-from-3": ((3,), 300),
    "3-from-4": ((4,), 300),
    "3-from-5": ((5,), 300),
    "4a": ((1, 2, 4, 5), 100),
    "4b": ((1, 2, 4, 5), 200),
}
# method -> parameters of the latent space; q = 4 and probit labels are not in the paper
TRANSFER = {
    "transfer, q=2": {"n_components": 2, "label_noise": "gaussian"},
    "transfer, q=4": {"n_components": 4, "label_noise": "gaussian"},
    "transfer, q=2, probit": {"n_components": 2, "label_noise": "probit"},
}
COLUMNS = ("setting", "partition", "method", "per_class", "error")
COLOURS = {
    "transfer, q=2": "C3",
    "transfer, q=4": "C1",
    "transfer, q=2, probit": "C6",
    "single task": "k",
    "PCA 2-d + GP": "C2",
    "source discriminants + GP": "C0",
    "GP on pixels": "C7",
}


def load_digits(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The pooled digits 1 to 5."""
    with np.load(folder / "usps" / "usps.npz") as file:
        X = np.vstack([file["X_train"], file["X_test"]]).astype(float)
        y = np.concatenate([file["y_train"], file["y_test"]]).astype(int)
    rows = (y >= 1) & (y <= 5)
    return X[rows], y[rows]


class Draw:
    """Draws detection tasks without repeating a row."""

    def __init__(self, y: np.ndarray, rng: np.random.Generator):
        self.y, self.rng, self.left = y, rng, np.ones(len(y), dtype=bool)

    def task(self, digit: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """`count` rows of the digit and as many of the others, alternating, with labels 1 and 0."""
        rows = np.empty(2 * count, dtype=int)
        for offset, wanted in enumerate((self.y == digit, self.y != digit)):
            rows[offset::2] = self.rng.choice(np.flatnonzero(wanted & self.left), count, replace=False)
        self.left[rows] = False
        return rows, np.tile([1, 0], count)


def gp_error(F, z, F_test, z_test) -> float:
    """Error of the model's label regressor on features, scaled to unit total variance per two dimensions."""
    mean, scale = F.mean(axis=0), np.sqrt(F.var(axis=0).sum() / min(F.shape[1], 2))
    F, F_test = (F - mean) / scale, (F_test - mean) / scale
    kernel = latent_kernel(2, ard=False) + WhiteKernel(0.1, (1e-4, 10.0))
    term = GaussianTerm(np.where(z[:, None] == 1, 1.0, -1.0), np.arange(len(z)))
    part = fit_kernel(Weighted(term, Parameters(kernel, None, (), default_priors(kernel))), F)
    predicted = term.fit_map(part.parameters.kernel, F).predict_mean(F_test)[:, 0] > 0
    return float(np.mean(predicted != (z_test == 1)))


def discriminants(X, sources) -> list[LinearDiscriminantAnalysis]:
    """One shrinkage discriminant per source task."""
    return [
        LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(X[rows], z) for rows, z in sources
    ]


def measure(setting: str, partition: int, X, y, sizes, methods, max_iter: int):
    """Errors of all methods in one partition: yields (method, examples per class, error)."""
    digits, count = SETTINGS[setting]
    draw = Draw(y, np.random.default_rng([2007, partition]))
    test, z_test = draw.task(TARGET, 300)
    pool, z_pool = draw.task(TARGET, max(SIZES))
    sources = [draw.task(digit, count) for digit in digits]
    rows = np.concatenate([r for r, _ in sources])
    labels = np.concatenate([z for _, z in sources])
    tasks = np.repeat([f"is it {d}" for d in digits], 2 * count)
    shared = {"max_iter": max_iter, "random_state": partition}

    for method, parameters in TRANSFER.items():
        if method in methods:
            model = SharedLatentGPClassifier(**parameters, **shared).fit(X[rows], labels, tasks)
            for size in sizes:
                name = f"target {size}"
                model.add_task(X[pool[: 2 * size]], z_pool[: 2 * size], name)
                score = model.score(X[test], z_test, np.repeat(name, len(test)))
                yield method, size, 1.0 - score

    pca = PCA(2, random_state=0).fit(X[rows])
    found = discriminants(X, sources)
    features = {
        "PCA 2-d + GP": pca.transform,
        "source discriminants + GP": lambda A: np.column_stack([f.decision_function(A) for f in found]),
        "GP on pixels": lambda A: A,
    }
    for size in sizes:
        few, z = pool[: 2 * size], z_pool[: 2 * size]
        for method, transform in features.items():
            if method in methods:
                yield method, size, gp_error(transform(X[few]), z, transform(X[test]), z_test)
        if "single task" in methods:
            alone = SharedLatentGPClassifier(2, label_noise="gaussian", **shared).fit(X[few], z)
            yield "single task", size, 1.0 - alone.score(X[test], z_test)


def run(arguments, X, y, path: Path) -> None:
    """Measure what the file does not have yet."""
    done = {(r["setting"], int(r["partition"])) for r in read_errors(path)}
    sizes = (5, 20) if arguments.quick else SIZES
    for partition in range(arguments.first, arguments.first + arguments.partitions):
        for setting in arguments.settings:
            if (setting, partition) in done:
                continue
            rows = [
                (setting, partition, method, size, f"{error:.5f}")
                for method, size, error in measure(
                    setting, partition, X, y, sizes, arguments.methods, arguments.max_iter
                )
            ]
            new = not path.exists()
            with path.open("a", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                if new:
                    writer.writerow(COLUMNS)
                writer.writerows(rows)
            print(f"partition {partition}, setting {setting}: {len(rows)} errors", flush=True)


def read_errors(path: Path) -> list[dict[str, str]]:
    """All rows of the file of errors, which need not exist."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def summarise(rows) -> dict:
    """(setting, method, per_class) -> errors over partitions."""
    out: dict = {}
    for r in rows:
        out.setdefault((r["setting"], r["method"], int(r["per_class"])), []).append(float(r["error"]))
    return out


def print_tables(errors: dict) -> None:
    """One table per setting, in Markdown."""
    sizes = sorted({size for _, _, size in errors})
    for setting in [s for s in SETTINGS if any(key[0] == s for key in errors)]:
        methods = [m for m in COLOURS if any(key[:2] == (setting, m) for key in errors)]
        counts = sorted({len(v) for key, v in errors.items() if key[0] == setting})
        print(f"\n### {setting} ({' to '.join(map(str, counts))} partitions)\n")
        print("| examples per class | " + " | ".join(map(str, sizes)) + " | mean, 5 to 50 |")
        print("|---" * (len(sizes) + 2) + "|")
        for method in methods:
            cells = [errors.get((setting, method, size), [np.nan]) for size in sizes]
            few = np.mean([np.mean(c) for c, size in zip(cells, sizes, strict=True) if size <= 50])
            shown = [f"{np.mean(c):.3f} ± {np.std(c):.3f}" for c in cells]
            print(f"| {method} | " + " | ".join(shown) + f" | {few:.3f} |")


def draw_curves(errors: dict, path: Path) -> None:
    """Error against examples per class, a panel for each setting, with standard errors."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    settings = [s for s in SETTINGS if any(key[0] == s for key in errors)]
    columns = min(4, len(settings))
    lines = -(-len(settings) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(4.2 * columns, 3.6 * lines), squeeze=False, sharey=True, layout="constrained"
    )
    handles: dict = {}
    for ax, setting in zip(axes.flat, settings, strict=False):
        for method, colour in COLOURS.items():
            holder = setting
            if method in WITHOUT_SOURCES and not any(key[:2] == (setting, method) for key in errors):
                holder = "4a"  # where it was measured: the target rows are the same
            sizes = sorted(size for s, m, size in errors if (s, m) == (holder, method))
            if sizes:
                values = [errors[holder, method, size] for size in sizes]
                spread = [np.std(v) / np.sqrt(len(v)) for v in values]
                ax.errorbar(sizes, [np.mean(v) for v in values], spread, color=colour, label=method, lw=1.3)
        digits, count = SETTINGS[setting]
        ax.set(xscale="log", xlabel="target examples per class")
        handles.update(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
        ax.set_title(f"from {', '.join(map(str, digits))} ({count} + {count} rows each)", fontsize=10)
        ax.set_xticks(SIZES, map(str, SIZES))
        ax.minorticks_off()
    for ax in axes.flat[len(settings) :]:
        ax.set_axis_off()
    for ax in axes[:, 0]:
        ax.set_ylabel("error on 300 + 300 rows")
    axes[0, 0].set_ylim(0.0, None)
    ncols = min(4, 2 * columns)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=ncols, fontsize=9)
    figure.savefig(path, dpi=110)


def draw_spaces(X, y, path: Path, max_iter: int) -> None:
    """Figure 2: 3's against 5's by PCA, with free positions, with back-constraints; test rows in black."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rng = np.random.default_rng(2)
    rows = np.concatenate([rng.choice(np.flatnonzero(y == d), 150, replace=False) for d in (3, 5)])
    train = np.sort(rng.permutation(300)[:200])
    test = np.setdiff1d(np.arange(300), train)
    X, z = X[rows], (y[rows] == 3).astype(int)
    pca = PCA(2, random_state=0).fit(X[train])
    shared = {"max_iter": max_iter, "random_state": 0, "label_noise": "gaussian"}
    free = SharedLatentGPClassifier(back_constraint=None, **shared).fit(X[train], z[train])
    constrained = SharedLatentGPClassifier(**shared).fit(X[train], z[train])
    spaces = {
        "PCA": (pca.transform(X[train]), pca.transform(X[test])),
        "discriminative, free positions": (free.embedding_, free.transform(X[test])),
        "discriminative, back-constraints": (constrained.embedding_, constrained.transform(X[test])),
    }
    figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
    for ax, (name, (old, new)) in zip(axes, spaces.items(), strict=True):
        error = gp_error(old, z[train], new, z[test])
        print(f"Figure 2, {name}: test error {error:.3f}")
        for label, colour in ((1, "C3"), (0, "C2")):
            ax.scatter(*old[z[train] == label].T, s=12, c=colour, label="35"[1 - label])
        ax.scatter(*new.T, s=10, c="k", marker="x", lw=0.8, label="test")
        ax.set_title(f"{name} (error {error:.3f})", fontsize=10)
    axes[0].legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure, print the tables, draw the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one partition, few iterations, four sources")
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="number of the first partition")
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--methods", nargs="+", default=list(COLOURS), choices=list(COLOURS))
    parser.add_argument("--max-iter", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--data", type=Path, default=os.environ.get("GLEANGP_DATA", "../shared/data"))
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.partitions, arguments.settings, arguments.max_iter = 1, ["4a"], 20
    warnings.simplefilter("ignore", ConvergenceWarning)  # the paper's 100 iterations end before convergence
    X, y = load_digits(Path(arguments.data))
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / ("uqd07_quick.csv" if arguments.quick else "uqd07_errors.csv")
    run(arguments, X, y, path)
    errors = summarise(read_errors(path))
    print_tables(errors)
    draw_curves(errors, arguments.out / "uqd07_figures_3_and_4.png")
    draw_spaces(X, y, arguments.out / "uqd07_figure_2.png", arguments.max_iter)


if __name__ == "__main__":
    main()
