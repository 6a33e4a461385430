"""Local-scaling graphs and Laplacians against their definitions."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from scipy.sparse.csgraph import laplacian
from scipy.spatial.distance import cdist

from gleangp.graph import condense_laplacian, local_scaling_graph


def slow_weights(X, K):
    """The weights by Zhang & Yeung 2009, section 3, entry by entry."""
    D = cdist(X, X)
    np.fill_diagonal(D, np.inf)
    near = np.argsort(D, axis=1)[:, :K]
    scale = np.array([D[i, near[i, -1]] for i in range(len(X))])
    W = np.zeros(D.shape)
    for i in range(len(X)):
        for j in range(len(X)):
            if j in near[i] or i in near[j]:
                W[i, j] = np.exp(-(D[i, j] ** 2) / (scale[i] * scale[j]))
    return W


@pytest.mark.parametrize(("n", "p", "K"), [(30, 2, 4), (12, 5, 11), (40, 1, 1)])
def test_local_scaling_matches_definition(n, p, K):
    """Weights equal the formula of the paper on the union graph."""
    X = np.random.default_rng(n).normal(size=(n, p))
    assert_allclose(local_scaling_graph(X, K).toarray(), slow_weights(X, K), atol=1e-12)


def test_few_rows_are_all_neighbours():
    """With fewer than K + 1 rows the graph is complete; one row has no neighbours."""
    X = np.random.default_rng(0).normal(size=(4, 2))
    assert_allclose(local_scaling_graph(X, 10).toarray(), slow_weights(X, 3), atol=1e-12)
    assert laplacian(local_scaling_graph(X[:1], 5), normed=True).toarray() == 0.0


def test_repeated_rows():
    """Rows that repeat are joined with weight 1 and nothing overflows, even if all rows are one."""
    X = np.repeat(np.random.default_rng(0).normal(size=(3, 2)), 4, axis=0)
    W = local_scaling_graph(X, 3).toarray()
    twins = np.kron(np.eye(3), np.ones((4, 4))) - np.eye(12)
    assert_array_equal(W[twins > 0], 1.0)
    assert_array_equal(local_scaling_graph(np.ones((4, 2)), 3).toarray(), 1.0 - np.eye(4))
    L = laplacian(local_scaling_graph(X, 5), normed=True).toarray()
    assert np.isfinite(L).all()
    assert np.linalg.eigvalsh(L).min() > -1e-12


def test_laplacian_measures_roughness():
    """f^T L f = 1/2 sum_ij w_ij (f_i / sqrt(d_i) - f_j / sqrt(d_j))^2."""
    rng = np.random.default_rng(1)
    W = local_scaling_graph(rng.normal(size=(25, 3)), 4)
    f = rng.normal(size=25)
    g = f / np.sqrt(W.toarray().sum(axis=1))
    rough = 0.5 * np.sum(W.toarray() * (g[:, None] - g[None]) ** 2)
    assert_allclose(f @ (laplacian(W, normed=True) @ f), rough, rtol=1e-12)


def test_condensed_laplacian_is_the_smoothest_extension():
    """f_D^T L_condensed f_D is the least roughness over all values of the other rows."""
    rng = np.random.default_rng(2)
    L = csr_array(laplacian(local_scaling_graph(rng.normal(size=(40, 2)), 5), normed=True))
    keep = rng.permutation(40)[:15]
    rest = np.setdiff1d(np.arange(40), keep)
    f = np.zeros(40)
    f[keep] = rng.normal(size=15)
    dense = L.toarray()
    f[rest] = -np.linalg.solve(dense[np.ix_(rest, rest)], dense[np.ix_(rest, keep)] @ f[keep])
    assert_allclose(f[keep] @ condense_laplacian(L, keep) @ f[keep], f @ (L @ f), rtol=1e-6)
    assert_allclose(condense_laplacian(L, np.arange(40)), dense, atol=1e-15)
