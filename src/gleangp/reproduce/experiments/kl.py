"""Lawrence & Platt 2004, Figure 4: how well theta is learnt, against points and time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_solve, cholesky
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, WhiteKernel

from gleangp import EntropySelector, RandomSelector, SparseGPRegressor
from gleangp.plots._base import MARKERS, color_of
from gleangp.reproduce.experiment import Column, Context, Experiment, Method, Outcome, Quick
from gleangp.reproduce.experiments._estimators import Split
from gleangp.reproduce.figures import draw_curves, logarithmic, new_figure
from gleangp.reproduce.runner import Results
from gleangp.reproduce.summary import series

N_TASKS, N_INPUTS, TEST_ROWS, KL_ROWS = 4, 4, 125, 500
SIZES = tuple(range(400, 1001, 100))
TRUE = RBF(1.0)  # theta = (1, 1, 100, 0): variance 1, inverse squared length 1, noise 1 / 100, no offset
NOISE = 0.01


@dataclass(frozen=True, kw_only=True)
class Tasks(Split):
    """Rows to learn from, rows without noise to test with, inputs for the divergence."""

    X_kl: np.ndarray


def start() -> Kernel:
    """theta = (10, 10, 10, 10) as in the paper; bounds in logarithms -7 to 7, noise and offset wider."""
    low, high = np.exp([-7.0, 7.0])
    length = (np.exp(-3.5), np.exp(3.5))
    return (
        ConstantKernel(10.0, (low, high)) * RBF(10.0**-0.5, length)
        + ConstantKernel(10.0, (np.exp(-14.0), high))
        + WhiteKernel(0.1, (np.exp(-10.0), high))
    )


def inputs(n: int, rng: np.random.Generator) -> np.ndarray:
    """Two spherical clusters of variance 1/8 around (1, ..., 1) and (-1, ..., -1)."""
    side = np.where(np.arange(n) < n // 2, 1.0, -1.0)
    return side[:, None] + np.sqrt(0.125) * rng.standard_normal((n, N_INPUTS))


def problem(context: Context) -> Tasks:
    """Four functions of one Gaussian process, 2000 noisy rows of each."""
    rng = context.rng()
    n = context.options["n_rows"]
    X, y, X_test, f_test = [], [], [], []
    for _ in range(N_TASKS):
        both = np.vstack([inputs(n, rng), inputs(TEST_ROWS, rng)])
        chol = cholesky(TRUE(both) + 1e-9 * np.eye(len(both)), lower=True)
        f = chol @ rng.standard_normal(len(both))
        X.append(both[:n])
        y.append(f[:n] + np.sqrt(NOISE) * rng.standard_normal(n))
        X_test.append(both[n:])
        f_test.append(f[n:])
    names = np.arange(N_TASKS)
    return Tasks(
        np.vstack(X), np.concatenate(y), np.vstack(X_test), np.concatenate(f_test),
        np.repeat(names, n), np.repeat(names, TEST_ROWS), X_kl=inputs(KL_ROWS, rng),
    )  # fmt: skip


def divergence(X: np.ndarray, learnt: np.ndarray) -> float:
    """KL(N(0, C) || N(0, learnt)) in nats, C the true covariance of targets at X."""
    true = TRUE(X) + NOISE * np.eye(len(X))
    chol_true, chol = cholesky(true, lower=True), cholesky(learnt, lower=True)
    trace = np.trace(cho_solve((chol, True), true))
    logs = np.log(np.diag(chol)).sum() - np.log(np.diag(chol_true)).sum()
    return float(0.5 * (trace - len(X)) + logs)


def method(name: str, role: str, **parameters: Any) -> Method:
    """Learn theta with a number of active points; KL, prediction error and time of learning."""

    def make(n_active: int) -> SparseGPRegressor:
        return SparseGPRegressor(start(), n_active=n_active, normalize_y=False, random_state=0, **parameters)

    def run(data: Tasks, context: Context) -> Outcome:
        model = make(int(context.setting))
        before = time.process_time()
        model.fit(data.X, data.y, tasks=data.tasks)
        seconds = time.process_time() - before
        error = model.predict(data.X_test, tasks=data.tasks_test) - data.y_test
        return Outcome({
            "KL": divergence(data.X_kl, model.kernel_(data.X_kl)),
            "RMSE": float(np.sqrt(np.mean(error**2))),
            "learning seconds": seconds,
        })  # fmt: skip

    return Method(name, run, role, " ".join(repr(make(400)).replace("400", "d").split()))


METHODS = (
    method("default", "default"),
    method("MT-IVM", "paper", selector=EntropySelector(), posterior="active"),
    method("random sub-sampling", "paper", selector=RandomSelector(), posterior="active"),
)


def draw(results: Results) -> dict[str, Any]:
    """KL against time and against points, as in the paper; and the error of predictions."""
    settings = [s for s in map(str, SIZES) if any(r.setting == s for r in results.records)]
    x = [float(s) for s in settings]
    names = ["MT-IVM", "random sub-sampling", "default"]
    figure, (left, middle, right) = new_figure(3, width=4.2, height=3.6)
    for i, name in enumerate(names):
        seconds = series(results, name, "learning seconds", settings)[0]
        mean, spread = series(results, name, "KL", settings)
        left.errorbar(seconds, mean, spread, marker=MARKERS[i], ms=5, capsize=2, color=color_of(i))
    draw_curves(middle, results, names, "KL", settings, x)
    draw_curves(right, results, names, "RMSE", settings, x)
    for ax, label in ((left, "processor seconds of learning"), (middle, "points"), (right, "points")):
        ax.set_xlabel(label)
    for ax in (left, middle):
        ax.set_ylabel("KL divergence (nats)")
        ax.set_yscale("symlog", linthresh=1.0)
        ax.set_ylim(bottom=0.0)
    logarithmic(left)
    right.set_ylabel("RMSE of predictions")
    middle.legend(fontsize=8)
    return {"divergence": figure}


EXPERIMENT = Experiment(
    name="kl",
    source="LP04 Figure 4",
    shows="Divergence of the learnt from the true kernel, started at theta = 10: 4 tasks of 2000 rows.",
    problem=problem,
    methods=METHODS,
    columns=(Column("KL", -1, 2), Column("RMSE", -1, 4), Column("learning seconds", -1, 1)),
    n_runs=10,
    settings=tuple(map(str, SIZES)),
    setting_name="active points",
    same_problem=True,
    options={"n_rows": 2000},
    quick=Quick(n_runs=1, settings=("400",), options={"n_rows": 500}),
    draw=draw,
    notes=(
        "The paper prints a plot and no numbers: MT-IVM close to zero with few points, sub-sampling far from "
        "it. KL is that of 500 new inputs, in nats; RMSE that of predictions of the true function (of "
        "variance 1).",
        "Five rounds of selecting and learning as in the paper, by L-BFGS-B in place of scaled conjugate "
        "gradients. Sub-sampling draws from the rows of all tasks together, with the same number of points "
        "as MT-IVM; the paper also went to 2400. “active” predicts from the points alone.",
    ),
)
