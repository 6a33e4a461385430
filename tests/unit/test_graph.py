"""Neighbours, the weights of Zhu & Sun 2013 (eq. 14) and their objective (eq. 10)."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist

from gleangp.exceptions import GraphError
from gleangp.graph import (
    connectivity,
    exponential_graph,
    mean_nearest_distance,
    nearest_neighbours,
)


def dense_weights(X, n_neighbors, scale):
    """Eq. 14 on the union of the neighbour relations, from the whole distance matrix."""
    D = cdist(X, X)
    m_x = np.mean([np.min(d[d > 0]) for d in D])
    np.fill_diagonal(D, np.inf)
    near = np.zeros(D.shape, dtype=bool)
    np.put_along_axis(near, np.argsort(D, axis=1, kind="stable")[:, :n_neighbors], True, axis=1)
    near |= near.T
    return np.where(near, np.exp(-np.where(near, D, 0.0) / (scale * m_x)), 0.0)


@pytest.mark.parametrize("p", [1, 3, 25])
@pytest.mark.parametrize("scale", [0.5, 1.0, 10.0])
def test_weights_match_the_dense_definition(p, scale):
    """The sparse graph is eq. 14 on the union of the neighbour relations."""
    X = np.random.default_rng(p).normal(size=(70, p)) * 7.0 + 100.0
    W = exponential_graph(X, n_neighbors=6, scale=scale)
    assert_allclose(W.toarray(), dense_weights(X, 6, scale), rtol=1e-12)


def test_weights_do_not_depend_on_units():
    """Distances count in units of m_x, so that scaling all inputs changes nothing."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    assert_allclose(exponential_graph(1e-9 * X).toarray(), exponential_graph(X).toarray(), rtol=1e-9)


def test_duplicates_are_passed_over_in_the_scale():
    """m_x is the distance to the nearest distinct row, also where all neighbours are duplicates."""
    X = np.repeat(np.array([[0.0], [1.0], [4.0]]), [9, 2, 3], axis=0)
    m_x = mean_nearest_distance(X, nearest_neighbours(X, 2)[1])
    assert m_x == pytest.approx((9 * 1 + 2 * 1 + 3 * 3) / 14)
    W = exponential_graph(X, n_neighbors=2)
    assert W.max() == 1.0
    assert_array_equal(W.diagonal(), 0.0)


def test_far_edges_stay_edges():
    """A weight too small for a float is still an edge of the graph."""
    X = np.array([[0.0], [1.0], [2.0], [1e6]])
    W = exponential_graph(X, n_neighbors=1, scale=1e-3)
    assert W.nnz == 6
    assert W.data.min() > 0.0


def test_connectivity_is_the_mean_strongest_link():
    """Eq. 10, from a dense matrix, for random choices and both ends."""
    rng = np.random.default_rng(1)
    W = exponential_graph(rng.normal(size=(50, 2)), n_neighbors=5, scale=2.0)
    for d in (1, 7, 49):
        kept = rng.permutation(50)[:d]
        out = np.setdiff1d(np.arange(50), kept)
        assert connectivity(W, kept) == pytest.approx(W.toarray()[np.ix_(out, kept)].max(axis=1).mean())
    assert connectivity(W, np.arange(50)) == 1.0
    assert connectivity(W, np.zeros(0, dtype=int)) == 0.0
    assert connectivity(csr_array((3, 3)), np.array([0])) == 0.0


@pytest.mark.parametrize(
    ("X", "options", "message"),
    [
        (np.arange(5.0)[:, None], {}, r"5 rows cannot have n_neighbors=10 .* at most 4"),
        (np.zeros((1, 2)), {"n_neighbors": 1}, r"1 rows cannot have n_neighbors=1 .* One row"),
        (np.ones((12, 2)), {}, r"all 12 rows are the same point"),
        (np.arange(5.0)[:, None], {"n_neighbors": 0}, r"n_neighbors=0; every row needs"),
        (np.arange(20.0)[:, None], {"scale": 0.0}, r"scale=0.0; .* must be positive"),
        (np.arange(20.0)[:, None], {"scale": np.nan}, r"scale=nan; .* must be positive"),
    ],
)
def test_what_is_not_a_graph(X, options, message):
    """Too few rows, identical rows and impossible settings are refused, with the number."""
    with pytest.raises(GraphError, match=message):
        exponential_graph(X, **options)


def test_units_do_not_matter():
    """Neighbours of very small numbers, whose squares are zero, are those of the same rows in other units."""
    X = np.random.default_rng(0).normal(size=(30, 2))
    W = exponential_graph(X, 4)
    for unit in (2.0**-600, 2.0**300):
        assert_array_equal(exponential_graph(unit * X, 4).toarray(), W.toarray())
    with pytest.raises(GraphError, match="same point"):
        exponential_graph(np.column_stack([np.ones(9), 1e-200 * X[:9, 0]]), 3)
