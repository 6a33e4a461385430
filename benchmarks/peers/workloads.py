"""The problems on which gleangp and its peers are compared, as arrays.

Features are standardised for everybody, and so are regression targets. `truth` is what RMSE is measured
against: the function without noise where it is known, else the targets of the test rows. Real data are
those of `gleangp.datasets`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.core import regression_data, sibling_tasks

from gleangp.datasets import load_kin40k, load_landmine, load_protein, load_sarcos, load_school, load_usps


def ridge_functions(n: int, n_test: int = 2000) -> dict:
    """`benchmarks/core.py`'s regression: 8 features, noise a tenth of the spread."""
    X, f, y = regression_data(n + n_test)
    return regression(X[:n], y[:n], X[n:], y[n:], f[n:])


def kin40k() -> dict:
    """Forward kinematics of a robot arm: 10 000 rows, 8 features, hardly any noise; 10 000 test rows."""
    X, y = load_kin40k(return_X_y=True)
    train, test = slice(0, 10_000), slice(10_000, 20_000)
    return regression(X[train], y[train], X[test], y[test])


def protein() -> dict:
    """Protein structure: 9 features, much noise; 10 000 random rows train, 10 000 others test."""
    X, y = load_protein(return_X_y=True)
    train, test = two_parts(len(y), 10_000, 10_000)
    return regression(X[train], y[train], X[test], y[test])


def sarcos() -> dict:
    """First torque of a robot arm: 21 features; of the 4449 rows of the test file 3449 train, 1000 test."""
    X, Y = load_sarcos(return_X_y=True)
    train, test = two_parts(len(Y), 3449, 1000)
    return regression(X[train], Y[train, 0], X[test], Y[test, 0])


def twenty_features(n: int = 10_000, n_test: int = 5000) -> dict:
    """Two classes of 20 features, five of which matter."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n + n_test, 20))
    f = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + X[:, 3] - 0.5 * X[:, 4]
    y = (f + 0.2 * rng.normal(size=len(f)) > 0).astype(float)
    return classification(X[:n], y[:n], X[n:], y[n:])


def usps() -> dict:
    """Digits 3 and 5: 1214 images of 256 pixels train, 326 test. One length scale for all pixels."""
    found = load_usps()
    rows = np.flatnonzero(np.isin(found.target, (3, 5)))
    parts = np.split(rows, [np.searchsorted(rows, found.n_train)])
    arrays = [(found.data[part], (found.target[part] == 5).astype(float)) for part in parts]
    return {**classification(*arrays[0], *arrays[1]), "ard": False}


def school() -> dict:
    """Exam scores of students, schools pooled: 28 features, mostly indicators; 10 000 train, 5362 test."""
    X, y, _ = load_school(return_X_y=True)
    train, test = two_parts(len(y), 10_000, len(y) - 10_000)
    return regression(X[train], y[train], X[test], y[test])


def landmine() -> dict:
    """Mines in radar images, fields pooled: 9 features, 6 % mines; 6500 rows train, 3174 test."""
    X, y, _ = load_landmine(return_X_y=True)
    train, test = two_parts(len(y), 6500, len(y) - 6500)
    return classification(X[train], y[train].astype(float), X[test], y[test].astype(float))


def thirty_tasks() -> dict:
    """30 functions from one Gaussian process in two dimensions, 60 rows each; 20 new ones with 10 labels."""
    (X, y, t), (X_test, f_test, t_test) = sibling_tasks(30, 60, 100)
    (X_new, y_new, _), (X_new_test, f_new_test, _) = sibling_tasks(20, 10, 100, seed=2)
    rng = np.random.default_rng(1)
    y_test, y_new_test = (f + 0.1 * rng.normal(size=len(f)) for f in (f_test, f_new_test))
    return {
        "kind": "tasks",
        "ard": True,
        **{"X": X, "y": y, "t": t},
        **{"X_test": X_test, "y_test": y_test, "t_test": t_test, "truth": f_test},
        **{"X_new": X_new.reshape(20, 10, 2), "y_new": y_new.reshape(20, 10)},
        **{"X_new_test": X_new_test.reshape(20, 100, 2), "new_truth": f_new_test.reshape(20, 100)},
        "y_new_test": y_new_test.reshape(20, 100),
    }


WORKLOADS = {
    "ard2000": lambda: ridge_functions(2000),
    "ard8000": lambda: ridge_functions(8000),
    "kin40k": kin40k,
    "protein": protein,
    "sarcos": sarcos,
    "school": school,
    "landmine": landmine,
    "classes2000": lambda: twenty_features(2000),
    "classes10000": twenty_features,
    "usps35": usps,
    "tasks30x60": thirty_tasks,
}
TITLES = {
    "ard2000": "Regression, 2000 rows x 8 (made up, noise 0.1; RMSE against the function without noise)",
    "ard8000": "Regression, 8000 rows x 8 (the same function)",
    "kin40k": "kin40k, 10 000 rows x 8",
    "protein": "Protein, 10 000 rows x 9",
    "sarcos": "SARCOS, first torque, 3449 rows x 21",
    "school": "School, all schools pooled, 10 000 rows x 28",
    "landmine": "Landmine, all fields pooled, 6500 rows x 9",
    "classes2000": "Two classes, 2000 rows x 20, five features matter (made up)",
    "classes10000": "Two classes, 10 000 rows x 20, five features matter (made up)",
    "usps35": "USPS, 3 against 5, 1214 rows x 256",
    "tasks30x60": "30 tasks x 60 rows, shared kernel (made up; RMSE against the functions without noise)",
}


def two_parts(n: int, n_train: int, n_test: int):
    """Random rows to train and others to test."""
    order = np.random.default_rng(0).permutation(n)
    return order[:n_train], order[n_train : n_train + n_test]


def regression(X, y, X_test, y_test, truth=None) -> dict:
    """A regression problem, standardised on the training rows."""
    center, spread = y.mean(), y.std()
    truth = y_test if truth is None else truth
    targets = {"y": y, "y_test": y_test, "truth": truth}
    scaled = {name: (values - center) / spread for name, values in targets.items()}
    return {"kind": "regression", "ard": True, **standardise(X, X_test), **scaled}


def classification(X, y, X_test, y_test) -> dict:
    """A problem of two classes, 0 and 1."""
    return {"kind": "classification", "ard": True, **standardise(X, X_test), "y": y, "y_test": y_test}


def standardise(X, X_test) -> dict:
    """Features with mean 0 and spread 1 over the training rows; one that does not vary is 0."""
    spread = X.std(axis=0)
    spread[spread == 0.0] = 1.0
    return {"X": (X - X.mean(axis=0)) / spread, "X_test": (X_test - X.mean(axis=0)) / spread}
