"""Residual sampling: the law of randomly pivoted Cholesky, by enumeration of a tiny problem."""

from itertools import permutations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import chi2
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, PairwiseKernel

from gleangp import ResidualSelector
from gleangp.inference.block import Block
from gleangp.noise import Gaussian, Probit
from gleangp.selection.runs import GreedyRun, PivotedRun, entropy_reduction
from tests.unit.gp_twins import DensePosterior, make_block

X = np.array([[0.0], [0.4], [1.5], [4.0]])
KERNEL = ConstantKernel(1.3) * RBF(1.0)
N_DRAWS = 1500


def law_of_pivots(K, length):
    """Probability of every ordered sequence: pivots in proportion to the residual diagonal."""
    law = {}
    for sequence in permutations(range(len(K)), length):
        residual, p = K.copy(), 1.0
        for i in sequence:
            p *= residual[i, i] / np.trace(residual)
            residual = residual - np.outer(residual[:, i], residual[i]) / residual[i, i]
        law[sequence] = p
    return law


def assert_law(draws, law):
    """Pearson's statistic of the counts is below its 99.9 % quantile."""
    assert_allclose(sum(law.values()), 1.0, rtol=1e-9)
    counts = {sequence: 0 for sequence in law}
    for draw in draws:
        counts[draw] += 1
    statistic = sum((counts[s] - N_DRAWS * p) ** 2 / (N_DRAWS * p) for s, p in law.items())
    assert statistic < chi2.ppf(0.999, len(law) - 1)


def test_law_one_proposal_at_a_time():
    """Few rows: proposals are drawn one by one."""
    rng = np.random.default_rng(0)
    draws = [tuple(PivotedRun(KERNEL, X, rng).extend(3).picks[:3]) for _ in range(N_DRAWS)]
    assert_law(draws, law_of_pivots(KERNEL(X), 3))


def test_law_with_blocks_of_proposals():
    """Blocks of proposals, thinned by rejection, leave the law unchanged."""
    rng = np.random.default_rng(1)
    draws = []
    for _ in range(N_DRAWS):
        run = PivotedRun(KERNEL, X, rng)
        while len(run.picks) < 3:
            run._propose(6)
        draws.append(tuple(run.picks[:3]))
    assert_law(draws, law_of_pivots(KERNEL(X), 3))


def test_law_of_sampling_by_gain():
    """With another noise model, rows are drawn in proportion to their entropy gain."""
    block = Block(X, np.array([1.0, -1.0, 1.0, 1.0]), Probit())
    law = {}
    for first, second in permutations(range(4), 2):
        twin = DensePosterior(KERNEL, block)
        gains = twin.entropy_gains()
        p = gains[first] / gains.sum()
        twin.include(first)
        gains = twin.entropy_gains()
        gains[first] = 0.0
        law[first, second] = p * gains[second] / gains.sum()
    rng = np.random.default_rng(2)
    draws = []
    for _ in range(N_DRAWS):
        run = GreedyRun(KERNEL, block, entropy_reduction, rng)
        draws.append(tuple(run.extend(2).picks))
    assert_law(draws, law)


def test_residuals_are_those_of_cholesky():
    """Keys and residuals are the trace and the pivot of the residual covariance."""
    block = make_block(Gaussian(0.1), 60)
    run = PivotedRun(KERNEL, block.X, np.random.default_rng(0)).extend(20)
    residual = KERNEL(block.X)
    for row, key, pivot in zip(run.picks, run.weights, run.gains, strict=True):
        assert_allclose(key, np.trace(residual), rtol=1e-9)
        assert_allclose(pivot, residual[row, row], rtol=1e-7, atol=1e-10)
        residual -= np.outer(residual[:, row], residual[row]) / residual[row, row]
    left = np.setdiff1d(np.arange(60), run.picks)
    assert_allclose(run.residual[left], np.diagonal(residual)[left], rtol=1e-6, atol=1e-9)
    assert np.all(run.residual[run.picks] == 0.0)


def test_repeated_rows_are_taken_last():
    """Rows that repeat others are explained: the distinct ones come first, then the budget is filled."""
    block = make_block(Gaussian(0.1), 50, n_distinct=8)
    n_distinct = len(np.unique(block.X, axis=0))
    run = PivotedRun(RBF(0.01), block.X, np.random.default_rng(0)).extend(50)
    assert sorted(run.picks) == list(range(50))
    first = block.X[run.picks[:n_distinct]]
    assert len(np.unique(first, axis=0)) == n_distinct
    assert run.extend(5).picks == run.picks
    assert len(run.picks) == 50
    assert run.weight == -np.inf


def test_forced_rows():
    """A forced row leaves the residual of the sampled one."""
    rng = np.random.default_rng(0)
    sampled = PivotedRun(KERNEL, X, rng).extend(2)
    forced = PivotedRun(KERNEL, X, rng)
    for row in sampled.picks:
        forced.take(row)
    assert_allclose(forced.residual, sampled.residual, atol=1e-12)
    assert forced.gains == pytest.approx(sampled.gains)


def test_weight_across_tasks():
    """A task's chance is its share of what is unexplained: a task without variation gets one point."""
    moving = Block(20 * np.random.default_rng(0).normal(size=(40, 1)), np.zeros(40), Gaussian(0.1))
    still = Block(np.zeros((40, 1)), np.zeros(40), Gaussian(0.1))
    selection = ResidualSelector().select(KERNEL, [still, moving], 20, rng=np.random.default_rng(0))
    assert len(selection.active[0]) == 1
    assert len(selection.active[1]) == 19


def test_unknown_weight():
    """The message lists the known ones."""
    with pytest.raises(ValueError, match="weight='size' is not known; use 'auto', 'variance' or 'gain'"):
        ResidualSelector("size").select(
            KERNEL, [make_block(Gaussian(0.1), 9)], 3, rng=np.random.default_rng(0)
        )


def test_a_matrix_that_denies_its_diagonal():
    """Far from the origin rounding leaves rows of the kernel's matrix without variance: drawing ends."""
    far = 1e11 + np.random.default_rng(0).normal(size=(24, 3))
    kernel = PairwiseKernel(metric="rbf")
    assert kernel(far[:1], far)[0, 0] == 0.0
    assert kernel.diag(far[:1])[0] == 1.0
    assert sorted(PivotedRun(kernel, far, np.random.default_rng(0)).extend(24).picks) == list(range(24))
