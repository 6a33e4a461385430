"""All estimators in one list, small and quick, with the targets that suit them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from gleangp import (
    HierarchicalGPRegressor,
    SharedLatentGPClassifier,
    SharedLatentGPRegressor,
    SparseGPClassifier,
    SparseGPOrdinal,
    SparseGPRegressor,
)


@dataclass(frozen=True)
class Case:
    """An estimator, and which kind of target it learns."""

    name: str
    estimator: Any
    kind: str  # "numbers", "two classes" or "grades"
    options: dict = field(default_factory=dict)

    def new(self, **more):
        """A fresh estimator."""
        return clone(self.estimator).set_params(random_state=0, **more)

    def target(self, y):
        """The kind of target it learns, from numbers."""
        if self.kind == "numbers":
            return y
        if self.kind == "two classes":
            return y > np.median(y)
        return np.searchsorted(np.quantile(y, [0.33, 0.66]), y)

    def outputs(self, model, X, tasks=None):
        """Mean and deviation, or probabilities."""
        return outputs(model, X, tasks)


ALONE = {"coupling": "kernel", "n_rounds": 1}

CASES = [
    Case("regressor", SparseGPRegressor(coupling="kernel"), "numbers"),
    Case("few points", SparseGPRegressor(n_active=10, **ALONE), "numbers"),
    Case("active only", SparseGPRegressor(n_active=10, posterior="active", selector="entropy"), "numbers"),
    Case("classifier", SparseGPClassifier(n_active=12, **ALONE), "two classes"),
    Case("multi-class", SparseGPClassifier(n_active=8, posterior="active", n_rounds=1), "grades"),
    Case("ordinal", SparseGPOrdinal(n_active=12, **ALONE), "grades"),
    Case("hierarchy", HierarchicalGPRegressor(), "numbers"),
    Case("coupled", SparseGPRegressor(coupling="function", n_active=10, n_rounds=1), "numbers"),
    Case("latent regressor", SharedLatentGPRegressor(n_components=1, max_iter=15), "numbers"),
    Case("latent classifier", SharedLatentGPClassifier(n_components=1, max_iter=15), "two classes"),
]
# One of each kind; the others, which take longer or go the same way, are in the long form.
_QUICK = ("regressor", "active only", "classifier", "hierarchy")


def every(cases=CASES):
    """A test for every case; all but a few are marked slow."""
    marked = [pytest.param(c, marks=() if c.name in _QUICK else pytest.mark.slow, id=c.name) for c in cases]
    return pytest.mark.parametrize("case", marked)


def outputs(model, X, tasks=None):
    """Mean and deviation, or probabilities."""
    if hasattr(model, "predict_proba"):
        return model.predict_proba(X, tasks=tasks)
    return np.column_stack(model.predict(X, tasks=tasks, return_std=True))


def make_rows(n, seed, n_tasks=3, p=2):
    """Rows of tasks, each with several of them; inputs, numbers, task codes and the generator.

    All tasks have the median 0, so that each has rows of both of two classes.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    codes = rng.permutation(np.arange(n) % n_tasks)
    y = np.sin(2.0 * X[:, 0] + 0.4 * codes) + 0.2 * rng.normal(size=n)
    for task in range(n_tasks):
        y[codes == task] -= np.median(y[codes == task])
    return X, y, codes, rng
