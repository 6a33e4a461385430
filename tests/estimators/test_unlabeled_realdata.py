"""The authors' crescents: LPJ05 Figure 5."""

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from gleangp import SparseGPClassifier
from gleangp.datasets import load_crescent


@pytest.mark.slow
@pytest.mark.realdata
@pytest.mark.parametrize("settings", [{}, {"posterior": "active", "n_active": 100}], ids=["default", "paper"])
def test_the_boundary_runs_through_the_gap(settings):
    """No truth is known, but a boundary in the gap parts few neighbours, and the null category is empty."""
    X, y = load_crescent(return_X_y=True)
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
