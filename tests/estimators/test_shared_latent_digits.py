"""Transfer on real digits, as in Urtasun, Quattoni & Darrell 2007, section 4, at a small size."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from gleangp import SharedLatentGPClassifier, SparseGPClassifier
from gleangp.reproduce.experiments._uqd07 import PAPER, draw_transfer


@pytest.mark.slow
@pytest.mark.realdata
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_transfer_beats_two_principal_components():
    """Sources 1, 2, 4, 5 of 60 + 60 rows, target 3: averaged over 5 to 20 examples per class."""
    data = draw_transfer((1, 2, 4, 5), 60, np.random.default_rng(0))
    X, test, z_test = data.X, data.test, data.test_labels
    model = SharedLatentGPClassifier(max_iter=60, random_state=0, **PAPER)
    model.fit(X[data.rows], data.labels, data.tasks)
    pca = PCA(2, random_state=0).fit(X[data.rows])
    ours, theirs = [], []
    for size in (5, 10, 20):
        few, z_few = data.pool[: 2 * size], data.pool_labels[: 2 * size]
        model.add_task(X[few], z_few, f"target {size}")
        ours.append(1.0 - model.score(X[test], z_test, [f"target {size}"] * len(test)))
        alone = SparseGPClassifier(random_state=0).fit(pca.transform(X[few]), z_few)
        theirs.append(1.0 - alone.score(pca.transform(X[test]), z_test))
    assert np.mean(ours) < np.mean(theirs)
    assert np.mean(ours) < 0.3
