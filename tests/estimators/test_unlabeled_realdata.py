"""The authors' crescents: LPJ05 Figure 5."""

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from gleangp import SparseGPClassifier

DATA = Path(os.environ.get("GLEANGP_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.mark.slow
@pytest.mark.realdata
@pytest.mark.parametrize("settings", [{}, {"posterior": "active", "n_active": 100}], ids=["default", "paper"])
def test_the_boundary_runs_through_the_gap(settings):
    """No truth is known, but a boundary in the gap parts few neighbours, and the null category is empty."""
    file = DATA / "crescent" / "crescent_semisup.csv"
    if not file.exists():
        pytest.skip(f"no {file.name} in the data folder (GLEANGP_DATA)")
    table = np.loadtxt(file, delimiter=",", skiprows=1)
    X, y = table[:, :2], table[:, 2].astype(int)
    near = NearestNeighbors(n_neighbors=6).fit(X).kneighbors(X)[1][:, 1:]

    def parted(found):
        return np.mean(found[:, None] != found[near])

    alone = SparseGPClassifier(random_state=0).fit(X[y != 0], y[y != 0]).predict(X)
    model = SparseGPClassifier(unlabeled=0, random_state=0, **settings).fit(X, y)
    found = model.predict(X)
    assert (found[y != 0] == y[y != 0]).all()
    assert parted(found) <= 0.002
    assert parted(found) < 0.5 * parted(alone)
    in_null = np.mean(np.abs(model.decision_function(X)) < 0.5)
    assert in_null < 0.01
