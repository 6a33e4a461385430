"""Transfer on real digits, as in Urtasun, Quattoni & Darrell 2007, section 4, at a small size."""

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.decomposition import PCA

from gleangp import SharedLatentGPClassifier, SparseGPClassifier
from gleangp.reproduce.experiments._uqd07 import PAPER

FOLDER = Path(os.environ.get("GLEANGP_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
USPS = FOLDER / "usps" / "usps.npz"


@pytest.mark.slow
@pytest.mark.realdata
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_transfer_beats_two_principal_components():
    """Sources 1, 2, 4, 5 of 60 + 60 rows, target 3: averaged over 5 to 20 examples per class."""
    if not USPS.is_file():
        pytest.skip(f"no digits: {USPS} not found (set GLEANGP_DATA to the data folder)")
    with np.load(USPS) as file:
        X, digit = file["X_train"].astype(float), file["y_train"]
    rng = np.random.default_rng(0)
    left = (digit >= 1) & (digit <= 5)

    def draw(wanted, n):
        rows = np.empty(2 * n, dtype=int)
        for k, kind in enumerate((digit == wanted, digit != wanted)):
            rows[k::2] = rng.choice(np.flatnonzero(kind & left), n, replace=False)
        left[rows] = False
        return rows, (digit[rows] == wanted).astype(int)

    test, z_test = draw(3, 150)
    pool, z_pool = draw(3, 20)
    sources = [draw(d, 60) for d in (1, 2, 4, 5)]
    rows, z = (np.concatenate(parts) for parts in zip(*sources, strict=True))
    tasks = np.repeat([1, 2, 4, 5], 120)
    model = SharedLatentGPClassifier(max_iter=60, random_state=0, **PAPER).fit(X[rows], z, tasks)
    pca = PCA(2, random_state=0).fit(X[rows])
    ours, theirs = [], []
    for k, size in enumerate((5, 10, 20)):
        few, z_few = pool[: 2 * size], z_pool[: 2 * size]
        model.add_task(X[few], z_few, 100 + k)
        ours.append(1.0 - model.score(X[test], z_test, np.full(len(test), 100 + k)))
        alone = SparseGPClassifier(random_state=0).fit(pca.transform(X[few]), z_few)
        theirs.append(1.0 - alone.score(pca.transform(X[test]), z_test))
    assert np.mean(ours) < np.mean(theirs)
    assert np.mean(ours) < 0.3
