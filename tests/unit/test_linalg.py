"""Factors, solves, and what is said when a matrix has no factor."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.numerics.linalg import (
    cholesky,
    deviation,
    inverse_from_cholesky,
    log_determinant,
    solve_cholesky,
    solve_lower,
)


def matrix(n=7, seed=0):
    A = np.random.default_rng(seed).normal(size=(n, n))
    return A @ A.T + 0.5 * np.eye(n)


@pytest.mark.parametrize("order", ["C", "F"])
def test_cholesky_of_a_good_matrix(order):
    """No jitter; lower triangle only is read; the input is left alone."""
    M = np.array(matrix(), order=order)
    spoiled = np.array(np.tril(M) + np.triu(np.full_like(M, 99.0), 1), order=order)
    before = spoiled.copy()
    chol, jitter = cholesky(spoiled)
    assert jitter == 0.0
    assert_allclose(chol @ chol.T, M, rtol=1e-12)
    assert_array_equal(np.triu(chol, 1), 0.0)
    assert_array_equal(spoiled, before)


def test_cholesky_of_a_singular_matrix():
    """The least jitter that serves is added and reported; the factor is that of the shifted matrix."""
    M = np.ones((5, 5)) - 1e-13 * np.eye(5)
    chol, jitter = cholesky(M)
    assert 0.0 < jitter <= 1e-10
    assert_allclose(chol @ chol.T, M + jitter * np.eye(5), rtol=1e-12)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.diag([1.0, -1.0]), "smallest eigenvalue is -1 and its mean diagonal 0"),
        (np.array([[1.0, 2.0], [2.0, 1.0]]), "smallest eigenvalue is -1 "),
        (np.array([[np.nan, 0.0], [0.0, 1.0]]), "1 entries that are not finite"),
        (np.array([[np.inf, 0.0], [0.0, 1.0]]), "1 entries that are not finite"),
    ],
)
def test_cholesky_refuses(bad, message):
    """What is wrong with the matrix is said with numbers."""
    with pytest.raises(NotPositiveDefiniteError, match=message):
        cholesky(bad)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kind", ["vector", "rows", "columns", "strided"])
def test_solve_lower(kind, transposed):
    """Right-hand sides of any shape and layout; the input is left alone."""
    chol, _ = cholesky(matrix())
    rhs = np.random.default_rng(1).normal(size=(7, 8))
    rhs = {"vector": rhs[:, 0], "rows": rhs, "columns": np.asfortranarray(rhs), "strided": rhs[:, ::2]}[kind]
    before = rhs.copy()
    expected = np.linalg.solve(chol.T if transposed else chol, rhs)
    assert_allclose(solve_lower(chol, rhs, transposed=transposed), expected, rtol=1e-10)
    assert_array_equal(rhs, before)


def test_solve_read_only_and_empty():
    """Read-only arrays, as joblib passes them, are fine; so are no points at all."""
    chol, _ = cholesky(matrix())
    rhs = np.ones((7, 3))
    chol.flags.writeable = rhs.flags.writeable = False
    assert_allclose(chol @ solve_lower(chol, rhs), rhs, rtol=1e-12)
    assert solve_lower(np.zeros((0, 0)), np.zeros((0, 4))).shape == (0, 4)
    assert solve_lower(np.zeros((0, 0)), np.zeros(0)).shape == (0,)


def test_inverse_determinant_and_solve():
    """The usual identities."""
    M = matrix()
    chol, _ = cholesky(M)
    inverse = inverse_from_cholesky(chol)
    assert_allclose(inverse, np.linalg.inv(M), rtol=1e-8, atol=1e-10)
    assert_array_equal(inverse, inverse.T)
    assert_allclose(log_determinant(chol), np.linalg.slogdet(M)[1], rtol=1e-12)
    rhs = np.arange(7.0)
    assert_allclose(M @ solve_cholesky(chol, rhs), rhs, rtol=1e-10, atol=1e-12)


def test_deviation_of_numbers_whose_squares_overflow():
    """Along the first axis."""
    assert_allclose(deviation(np.array([[0.0, 1.0], [2e200, 3.0]])), [1e200, 1.0])
