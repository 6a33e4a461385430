"""Greedy selection against a dense twin."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.inference.block import Block
from gleangp.noise import Gaussian
from gleangp.selection.runs import GreedyRun, entropy_reduction, information_gain
from tests.unit.gp_twins import KERNELS, NOISES, DensePosterior, greedy_twin, make_block

CRITERIA = {"entropy": entropy_reduction, "information": information_gain}


def new_run(kernel, block, criterion="entropy"):
    return GreedyRun(kernel, block, CRITERIA[criterion])


def assert_greedy(run, kernel, block, criterion="entropy"):
    """Every pick was the best one of a dense posterior; equal rows come lowest first."""
    twin = DensePosterior(kernel, block)
    left = np.ones(len(block), dtype=bool)
    for row, gain in zip(run.picks, run.gains, strict=True):
        gains = twin.entropy_gains() if criterion == "entropy" else twin.information_gains()
        best = gains[left].max()
        assert left[row]
        assert gains[row] >= best - 1e-9
        assert_allclose(gain, gains[row], rtol=1e-7, atol=1e-9)
        left[row] = False
        twin.include(row)
    assert_allclose(run.filter.mean, twin.mean, rtol=1e-7, atol=1e-8)
    assert_allclose(run.filter.var, np.diagonal(twin.cov), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_plain_loop(kernel, noise, criterion):
    """Picks, gains and final marginals are those of the dense twin."""
    kernel, block = KERNELS[kernel], make_block(NOISES[noise], 50)
    run = new_run(kernel, block, criterion).extend(25)
    assert_greedy(run, kernel, block, criterion)


@pytest.mark.parametrize("noise", ["gaussian", "probit"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_repeated_rows(kernel, noise):
    """Repeated rows tie all the time."""
    kernel, block = KERNELS[kernel], make_block(NOISES[noise], 200, n_distinct=40)
    run = new_run(kernel, block).extend(120)
    assert_greedy(run, kernel, block)
    assert len(set(run.picks)) == 120


@pytest.mark.parametrize("noise", ["gaussian", "probit"])
def test_until_no_row_is_left(noise):
    """All rows can be taken, and no more than there are."""
    kernel, block = KERNELS["rbf"], make_block(NOISES[noise], 90)
    run = new_run(kernel, block).extend(1000)
    assert sorted(run.picks) == list(range(90))
    assert_greedy(run, kernel, block)
    assert run.weight == -np.inf


def test_ties_go_to_the_lowest_row():
    """With a stationary kernel all rows tie at first; equal rows come in their order."""
    X = np.repeat(np.array([[0.0], [5.0], [10.0]]), 3, axis=0)
    run = new_run(KERNELS["rbf"], Block(X, np.zeros(9), Gaussian(0.1))).extend(9)
    assert run.picks == [0, 3, 6, 1, 4, 7, 2, 5, 8]


def test_take():
    """A row of the caller's choice is booked as a pick, with the gain it had."""
    kernel, block = KERNELS["rbf"], make_block(Gaussian(0.1), 20)
    run = new_run(kernel, block)
    twin = DensePosterior(kernel, block)
    for row in (7, 3, 11):
        expected = twin.entropy_gains()[row]
        run.take(row)
        assert_allclose(run.gains[-1], expected, rtol=1e-9)
        twin.include(row)
    assert run.picks == [7, 3, 11]
    assert_allclose(run.scores()[[7, 3, 11]], -np.inf)


def test_double_loop_twin_is_the_single_one():
    """The twin of the merge reduces to the plain loop for one task."""
    kernel, block = KERNELS["ard"], make_block(NOISES["probit"], 30)
    rows = [row for _, row, _ in greedy_twin(kernel, [block], 12)]
    assert rows == new_run(kernel, block).extend(12).picks


def test_not_a_covariance():
    """Rows that are left with a negative variance name the kernel as the cause."""
    X = np.arange(6.0)[:, None]
    run = new_run(KERNELS["rbf"], Block(X, X[:, 0], Gaussian(0.1)))
    run.filter.var[:] = 0.2  # a diagonal that does not fit the columns
    with pytest.raises(NotPositiveDefiniteError, match=r"leave row \d a variance of -"):
        run.extend(6)
