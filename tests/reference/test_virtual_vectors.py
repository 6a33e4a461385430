"""Translated images against the authors' toolbox."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from gleangp import translations
from tests.reference.reference_data import entry_names, load

FILE = "virtual_vectors.json"


def test_reference_has_cases():
    """The file is not empty, so that the tests below test something."""
    assert load(FILE)


@pytest.mark.parametrize("case", entry_names(FILE))
def test_translations(case):
    """Every image, then it moved up, down, left and right; labels stay with their image."""
    entry = load(FILE)[case]
    X = np.array(entry["inputs"]["X"], dtype=float)
    side = round(X.shape[1] ** 0.5)
    moved = [one(X) for one in translations((side, side), order="F")]
    ours = np.stack([X, *moved], axis=1).reshape(-1, X.shape[1])
    assert_array_equal(ours, entry["outputs"]["X"])
    assert_array_equal(np.repeat(entry["inputs"]["y"], 1 + len(moved)), entry["outputs"]["y"])
