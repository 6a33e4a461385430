"""Columns that are asked for a few at a time, against the kernel's own matrix."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern, WhiteKernel

from gleangp.kernels import prepare_columns

KERNELS = {
    "rbf": 2.0 * RBF(3.0),
    "rbf + linear + offset": 0.7 * RBF(4.0) + 0.3 * DotProduct(0.5) + 1.4,
    "two rbf": RBF(2.0) + 0.5 * RBF([5.0]) * 3.0,
    "two constants": (2.0 * (0.5 * RBF(2.0))) + DotProduct(0.0),
    "length scale per feature": RBF(np.linspace(1.0, 6.0, 12)) + 0.1 * DotProduct(),
    "a part of its own": RBF(3.0) + 0.1 * DotProduct() + Matern(2.0),
    "product of two": RBF(3.0) * DotProduct(1.0) + RBF(5.0),
    "constants alone": DotProduct(1.0) * 0.0 + 2.0,
}


@pytest.mark.parametrize("shift", [0.0, 30.0])
@pytest.mark.parametrize("name", KERNELS)
def test_columns_are_those_of_the_kernel(name, shift):
    """Whatever is shared between parts of a sum, K(X[rows], X) comes out; white variance does not."""
    kernel = KERNELS[name]
    X = np.random.default_rng(0).normal(size=(40, 12)) + shift
    rows = np.array([3, 17, 17, 0])
    expected = kernel(X)[rows]
    for given in (kernel, kernel + WhiteKernel(0.3)):
        assert_allclose(prepare_columns(given, X)(rows), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["rbf", "rbf + linear + offset"])
def test_far_clusters(name):
    """Rows a million length scales apart are not multiplied: near ones keep their digits."""
    kernel = KERNELS[name]
    X = np.random.default_rng(1).normal(size=(30, 12))
    X[::2] += 1e7
    columns = prepare_columns(kernel, X)(np.arange(30))
    assert_allclose(columns, kernel(X), rtol=1e-9, atol=1e-7)


def test_a_row_with_itself():
    """The variance of a row is exact, however the products round."""
    X = 1e3 + np.random.default_rng(2).normal(size=(20, 3))
    K = prepare_columns(RBF(1.0) + RBF(2.0), X)(np.arange(20))
    assert np.all(np.diagonal(K) == 2.0)
