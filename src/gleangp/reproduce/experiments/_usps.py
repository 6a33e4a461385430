"""What the USPS tables of Lawrence, Platt & Jordan 2005 share: digits against the rest, learnt kernels.

Images are in the grey levels of the authors' toolbox.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Kernel

from gleangp import SparseGPClassifier
from gleangp.datasets import load_usps
from gleangp.reproduce.experiment import Column, Context, Outcome
from gleangp.reproduce.experiments._estimators import Split

OVERALL = "overall error %"
OPTIONS = {
    "digits": tuple(range(10)), "n_train": None, "n_test": None, "n_active": 800, "kernel_points": 500,
    "kernel_rounds": 8,
}  # fmt: skip
QUICK_OPTIONS = {
    "digits": (0, 1, 2), "n_train": 500, "n_test": 300, "n_active": 100, "kernel_points": 60,
    "kernel_rounds": 1,
}  # fmt: skip
COLUMNS = (Column(OVERALL, -1, 2), *(Column(f"digit {d} error %", -1, 2) for d in range(10)))


def load_images(context: Context) -> Split:
    """All of them; in the quick form some rows of some digits. A label of -1 is withheld."""
    found = load_usps(scaling="smooth")
    n, digits = found.n_train, context.options["digits"]
    parts = []
    for X, y, most in (
        (found.data[:n], found.target[:n], context.options["n_train"]),
        (found.data[n:], found.target[n:], context.options["n_test"]),
    ):
        rows = np.flatnonzero(np.isin(y, digits))
        if most is not None:
            rows = np.sort(np.random.default_rng(context.seed).permutation(rows)[:most])
        parts += [X[rows], y[rows]]
    return Split(*parts)


def paper_kernel() -> Kernel:
    """RBF and linear parts, and an offset."""
    linear = ConstantKernel(0.01, (1e-6, 1e2)) * DotProduct(0.0, "fixed")
    rbf = ConstantKernel(1.0, (1e-3, 1e3)) * RBF(8.0, (0.5, 100.0))
    return rbf + linear + ConstantKernel(1.0, (1e-5, 1e3))


def learn_kernels(context: Context) -> dict[str, list[float]]:
    """Of every digit against the rest, on all labels: theta of the paper's kernel, by digit."""
    data = load_images(context)
    out = {}
    for digit in context.options["digits"]:
        model = SparseGPClassifier(
            paper_kernel(),
            posterior="active",
            n_active=context.options["kernel_points"],
            n_rounds=context.options["kernel_rounds"],
            random_state=0,
        ).fit(data.X, np.where(data.y == digit, 1, -1))
        out[str(digit)] = model.kernel_.theta.tolist()
    return out


def given_kernel(context: Context, digit: int) -> Kernel:
    """A kernel that was learnt on all labels."""
    return paper_kernel().clone_with_theta(np.array(context.prepared[str(digit)]))


def held(kernel: Kernel) -> Kernel:
    """The kernel with nothing left to learn: what is learnt is then the noise alone."""
    return kernel.set_params(**{f"{h.name}_bounds": "fixed" for h in kernel.hyperparameters})


def one_against_rest(data: Split, context: Context, fit: Callable[[int, np.ndarray], Any]) -> Outcome:
    """Errors in %: of every binary problem, and of the digit with the largest decision value.

    `fit(digit, target)` gives a fitted model; target is 1, -1, or 0 where a label is withheld.
    """
    digits = list(context.options["digits"])
    decisions, values = [], {}
    for digit in digits:
        model = fit(digit, np.where(data.y < 0, 0, np.where(data.y == digit, 1, -1)))
        decisions.append(model.decision_function(data.X_test))
        wrong = np.where(decisions[-1] > 0, 1, -1) != np.where(data.y_test == digit, 1, -1)
        values[f"digit {digit} error %"] = 100.0 * float(np.mean(wrong))
    winner = np.array(digits)[np.argmax(decisions, axis=0)]
    return Outcome({OVERALL: 100.0 * float(np.mean(winner != data.y_test)), **values})


def all_digits(model: SparseGPClassifier, data: Split) -> Outcome:
    """Errors in %: overall, and of every digit against the rest, of a classifier of all digits."""
    found = model.predict(data.X_test)
    margins = model.decision_function(data.X_test)
    values = {OVERALL: 100.0 * float(np.mean(found != data.y_test))}
    if margins.ndim == 2:
        for j, digit in enumerate(model.classes_):
            wrong = (margins[:, j] > 0) != (data.y_test == digit)
            values[f"digit {digit} error %"] = 100.0 * float(np.mean(wrong))
    return Outcome(values)
