"""Coupled tasks on the School data."""

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import RidgeCV

from gleangp import SparseGPRegressor

DATA = Path(os.environ.get("GLEANGP_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.mark.slow
@pytest.mark.realdata
def test_schools_borrow_from_each_other():
    """With 2 % of the pupils labeled, schools that share a function predict about as well as one ridge
    regression over all of them, and schools that share a kernel alone predict next to nothing."""
    file = DATA / "school" / "school.csv.gz"
    if not file.exists():
        pytest.skip(f"no {file.name} in the data folder (GLEANGP_DATA)")
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(file)
    names = ["year", "school_gender", "school_denomination", "gender", "vr_band", "ethnic_group"]
    X = pandas.get_dummies(frame[names].astype(str)).join(frame[["fsm_percent", "vr1_percent"]])
    X = ((X - X.mean()) / X.std()).to_numpy(float)
    y, tasks = frame["exam_score"].to_numpy(float), frame["school"].to_numpy()
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
