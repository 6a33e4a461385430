"""Coupled tasks on the School data."""

import numpy as np
import pytest
from sklearn.linear_model import RidgeCV

from gleangp import SparseGPRegressor
from gleangp.datasets import load_school


@pytest.mark.slow
@pytest.mark.realdata
def test_schools_borrow_from_each_other():
    """With 2 % of the pupils labeled, schools that share a function predict about as well as one ridge
    regression over all of them, and schools that share a kernel alone predict next to nothing."""
    X, y, tasks = load_school(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    rng, train = np.random.default_rng(0), np.zeros(len(y), dtype=bool)
    for t in np.unique(tasks):
        rows = np.flatnonzero(tasks == t)
        train[rng.choice(rows, max(1, round(0.02 * len(rows))), replace=False)] = True

    def explained(predicted):
        return 1 - np.mean((y[~train] - predicted) ** 2) / np.var(y[~train])

    scores = {}
    for coupling in ("kernel", "function"):
        model = SparseGPRegressor(coupling=coupling, random_state=0)
        model.fit(X[train], y[train], tasks=tasks[train])
        scores[coupling] = explained(model.predict(X[~train], tasks=tasks[~train]))
    ridge = explained(RidgeCV(np.logspace(-1, 4, 16)).fit(X[train], y[train]).predict(X[~train]))
    assert scores["function"] > ridge - 0.02
    assert scores["kernel"] < 0.15
