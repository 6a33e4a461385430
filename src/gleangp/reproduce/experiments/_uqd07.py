"""What the figures of Urtasun, Quattoni & Darrell 2007 share: digits, tasks, the label regressor on features.

USPS digits 1 to 5; the target task is "is it a 3?", learnt from 5 to 100 examples of each class after a
latent space was learnt from source tasks. Every baseline process is the model's own label regressor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.gaussian_process.kernels import WhiteKernel

from gleangp import SharedLatentGPClassifier
from gleangp.datasets import load_usps
from gleangp.estimators._shared_latent import latent_kernel
from gleangp.models.default_kernel import default_priors
from gleangp.models.latent.space import fit_shared_kernel
from gleangp.models.latent.terms import GaussianTerm
from gleangp.models.parameters import Parameters
from gleangp.plots._base import MARKERS, color_of
from gleangp.reproduce.experiment import Column, Context, Experiment, Method, Outcome
from gleangp.reproduce.figures import new_figure
from gleangp.reproduce.runner import Results
from gleangp.reproduce.summary import values_of

TARGET, TEST_ROWS = 3, 300
PAPER: dict[str, Any] = {"transfer": "latent", "n_observed": 20, "weight_decay": 5.0, "tol": 1e-4}
SIZES = (5, 10, 20, 50, 100)
COLUMNS = (*(Column(f"error, {n} per class", -1, 3) for n in SIZES), Column("error, 5 to 50", -1, 3))
NOTES = (
    "The paper prints plots and no numbers; fits have at most 100 iterations, as there. Error on 300 + 300 "
    "rows.",
    "The negatives of every source contain 3's, so sources leak the target.",
)


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """The pooled digits 1 to 5."""
    X, y = load_usps(return_X_y=True)
    rows = (y >= 1) & (y <= 5)
    return X[rows], y[rows]


@dataclass(frozen=True)
class Transfer:
    """Source tasks, rows of the target task to learn from (alternating classes), and to test with."""

    X: np.ndarray
    sources: list[tuple[np.ndarray, np.ndarray]]
    names: list[str]
    pool: np.ndarray
    pool_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray

    @property
    def rows(self) -> np.ndarray:
        """Of all sources."""
        return np.concatenate([rows for rows, _ in self.sources])

    @property
    def labels(self) -> np.ndarray:
        """Of all sources."""
        return np.concatenate([labels for _, labels in self.sources])

    @property
    def tasks(self) -> np.ndarray:
        """Of all sources."""
        return np.repeat(self.names, [len(rows) for rows, _ in self.sources])


def draw_transfer(digits: tuple[int, ...], count: int, rng: np.random.Generator) -> Transfer:
    """Detection tasks that share no row: `count` rows of each class in every source."""
    X, y = load_digits()
    left = np.ones(len(y), dtype=bool)

    def task(digit: int, n: int) -> tuple[np.ndarray, np.ndarray]:
        rows = np.empty(2 * n, dtype=int)
        for offset, wanted in enumerate((y == digit, y != digit)):
            rows[offset::2] = rng.choice(np.flatnonzero(wanted & left), n, replace=False)
        left[rows] = False
        return rows, np.tile([1, 0], n)

    test, test_labels = task(TARGET, TEST_ROWS)
    pool, pool_labels = task(TARGET, max(SIZES))
    sources = [task(digit, count) for digit in digits]
    names = [f"is it {digit}" for digit in digits]
    return Transfer(X, sources, names, pool, pool_labels, test, test_labels)


def regressor_error(F: np.ndarray, z: np.ndarray, F_test: np.ndarray, z_test: np.ndarray) -> float:
    """Error of the model's label regressor on features, scaled to unit variance per two dimensions."""
    mean, scale = F.mean(axis=0), np.sqrt(F.var(axis=0).sum() / min(F.shape[1], 2))
    F, F_test = (F - mean) / scale, (F_test - mean) / scale
    kernel = latent_kernel(2, ard=False) + WhiteKernel(0.1, (1e-4, 10.0))
    term = GaussianTerm(np.where(z[:, None] == 1, 1.0, -1.0), np.arange(len(z)))
    parameters = Parameters(kernel, None, (), default_priors(kernel))
    learnt = fit_shared_kernel([(term, F)], parameters)
    predicted = term.fit_map(learnt, F).predict(F_test)[0][:, 0] > 0
    return float(np.mean(predicted != (z_test == 1)))


def _outcome(error_of: Callable[[int], float], context: Context) -> Outcome:
    errors = {n: error_of(n) for n in context.options["sizes"]}
    few = [error for n, error in errors.items() if n <= 50]
    values = {f"error, {n} per class": error for n, error in errors.items()}
    return Outcome({**values, "error, 5 to 50": float(np.mean(few))})


def transfer_method(name: str, role: str, **parameters: Any) -> Method:
    """Learn the latent space on the sources, add the target task from few rows."""

    def run(data: Transfer, context: Context) -> Outcome:
        model = SharedLatentGPClassifier(
            max_iter=context.options["max_iter"], random_state=context.run, **parameters
        ).fit(data.X[data.rows], data.labels, data.tasks)

        def error(n: int) -> float:
            task = f"target {n}"
            model.add_task(data.X[data.pool[: 2 * n]], data.pool_labels[: 2 * n], task)
            tasks = np.repeat(task, len(data.test))
            return 1.0 - model.score(data.X[data.test], data.test_labels, tasks)

        return _outcome(error, context)

    return Method(name, run, role, repr(SharedLatentGPClassifier(**parameters)))


def single_task(data: Transfer, context: Context) -> Outcome:
    """The same model of the target's rows alone."""

    def error(n: int) -> float:
        few = data.pool[: 2 * n]
        model = SharedLatentGPClassifier(
            2, label_noise="gaussian", max_iter=context.options["max_iter"], random_state=context.run, **PAPER
        ).fit(data.X[few], data.pool_labels[: 2 * n])
        return 1.0 - model.score(data.X[data.test], data.test_labels)

    return _outcome(error, context)


def _on_features(features: Callable[[Transfer], Callable[[np.ndarray], np.ndarray]]) -> Any:
    def run(data: Transfer, context: Context) -> Outcome:
        transform = features(data)
        F, F_test = transform(data.X[data.pool]), transform(data.X[data.test])
        labels = data.pool_labels

        def error(n: int) -> float:
            return regressor_error(F[: 2 * n], labels[: 2 * n], F_test, data.test_labels)

        return _outcome(error, context)

    return run


def _components(data: Transfer) -> Callable[[np.ndarray], np.ndarray]:
    return PCA(2, random_state=0).fit(data.X[data.rows]).transform


def _discriminants(data: Transfer) -> Callable[[np.ndarray], np.ndarray]:
    found = [
        LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(data.X[rows], labels)
        for rows, labels in data.sources
    ]
    return lambda A: np.column_stack([f.decision_function(A) for f in found])


METHODS = (
    transfer_method("default", "default"),
    transfer_method("transfer", "paper", n_components=2, label_noise="gaussian", **PAPER),
    Method("single task", single_task, "paper", "the same model of the target's rows alone, q = 2"),
    Method("PCA", _on_features(_components), "paper", "GP on two principal components of the sources"),
    transfer_method("transfer, q = 4", "other", n_components=4, label_noise="gaussian", **PAPER),
    Method("source discriminants", _on_features(_discriminants), "other", "GP on their linear discriminants"),
    Method("pixels", _on_features(lambda data: lambda A: A), "other", "GP on all 256 pixels"),
)


def draw_panels(results: Results) -> dict[str, Any]:
    """Error against examples per class, one panel for each setting."""
    settings = list(dict.fromkeys(r.setting for r in results.records))
    figure, axes = new_figure(len(settings), width=3.4, height=3.4, sharey=True)
    sizes = results.options["sizes"]
    for ax, setting in zip(axes, settings, strict=True):
        for i, method in enumerate(m.name for m in results.experiment.methods):
            runs = [values_of(results, method, f"error, {n} per class", setting) for n in sizes]
            if not len(runs[0]):
                continue
            spread = [v.std(ddof=1) if len(v) > 1 else 0.0 for v in runs]
            ax.errorbar(
                sizes, [v.mean() for v in runs], spread, marker=MARKERS[i], ms=4, lw=1.2, capsize=2,
                color=color_of(i), label=method,
            )  # fmt: skip
        ax.set_title(setting, fontsize=9)
        ax.set_xscale("log")
        ax.set_xticks(sizes, [str(n) for n in sizes])
        ax.minorticks_off()
        ax.set_xlabel("examples per class")
    axes[0].set_ylabel("error of the target task")
    axes[0].legend(fontsize=7)
    return {"errors": figure}


curves = partial(Experiment, methods=METHODS, columns=COLUMNS, n_runs=10, draw=draw_panels, notes=NOTES)
QUICK_METHODS = ("default", "transfer", "PCA", "pixels")
