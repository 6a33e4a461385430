"""Greedy selection: the plain loop, and the speculative blocks, against a dense twin."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.inference.block import Block
from gleangp.noise import Gaussian, NullCategory, Probit
from gleangp.selection import greedy
from gleangp.selection.criteria import EntropyReduction, InformationGain
from gleangp.selection.greedy import GreedyRun
from tests.unit.gp_twins import KERNELS, NOISES, DensePosterior, greedy_twin, make_block

CRITERIA = {"entropy": EntropyReduction, "information": InformationGain}


@pytest.fixture
def eager_blocks(monkeypatch):
    """Speculate from the third pick on, with pools so small that many forecasts fail."""
    for name, value in {
        "_SPECULATE_FROM": 0,
        "_SPECULATE_FROM_PICKS": 2,
        "_LEAST_POOL": 12,
        "_MOST_POOL": 24,
        "_LEAST_PICKS": 2,
        "_MOST_PICKS": 8,
    }.items():
        monkeypatch.setattr(greedy, name, value)
    held = []
    block = GreedyRun._block

    def counting(self, count):
        held.append((count, block(self, count)))
        return held[-1][1]

    monkeypatch.setattr(GreedyRun, "_block", counting)
    return held


def new_run(kernel, block, criterion="entropy"):
    return GreedyRun(kernel, block.X, [(block.y, block.noise)], CRITERIA[criterion]())


def assert_greedy(run, kernel, block, criterion="entropy"):
    """Every pick was the best one of a dense posterior; equal rows come lowest first."""
    twin = DensePosterior(kernel, block)
    left = np.ones(len(block), dtype=bool)
    for row, gain in zip(run.picks, run.gains(), strict=True):
        gains = twin.entropy_gains() if criterion == "entropy" else twin.information_gains()
        best = gains[left].max()
        assert left[row]
        assert gains[row] >= best - 1e-9
        assert_allclose(gain, gains[row], rtol=1e-7, atol=1e-9)
        left[row] = False
        twin.include(row)
    assert_allclose(run.filters[0].mean, twin.mean, rtol=1e-7, atol=1e-8)
    assert_allclose(run.filters[0].var, np.diagonal(twin.cov), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_plain_loop(kernel, noise, criterion):
    """Picks, gains and final marginals are those of the dense twin."""
    kernel, block = KERNELS[kernel], make_block(NOISES[noise], 50)
    run = new_run(kernel, block, criterion).extend(25)
    assert_greedy(run, kernel, block, criterion)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("seed", [0, 1])
def test_speculative_blocks(eager_blocks, kernel, noise, seed):
    """Blocks of picks that were foretold and verified are the picks of the plain loop."""
    kernel, block = KERNELS[kernel], make_block(NOISES[noise], 300, seed)
    run = new_run(kernel, block).extend(80)
    assert_greedy(run, kernel, block)
    plain = new_run(kernel, block)
    for _ in range(80):
        plain._step()
    assert run.picks == plain.picks
    assert_allclose(run.gains(), plain.gains(), rtol=1e-9, atol=1e-11)
    assert_allclose(run.sites()[0].mean, plain.sites()[0].mean, rtol=1e-6, atol=1e-8)
    counts, held = np.array(eager_blocks).T
    assert held.sum() > 40  # blocks did most of the work,
    assert np.any(held == counts)  # some held to their end,


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("seed", range(3))
def test_speculative_blocks_of_null_category(eager_blocks, kernel, seed):
    """The same with unlabelled rows, whose precision may be negative and need not fall with the margin."""
    block = make_block(NOISES["probit"], 300, seed)
    y = np.where(np.random.default_rng(seed).random(300) < 0.8, 0.0, block.y)
    block = Block(block.X, y, NullCategory(0.1, 0.7, 0.8, width=0.5))
    run, plain = new_run(KERNELS[kernel], block).extend(80), new_run(KERNELS[kernel], block)
    for _ in range(80):
        plain._step()
    assert run.picks == plain.picks
    assert_allclose(run.gains(), plain.gains(), rtol=1e-7)
    assert sum(held for _, held in eager_blocks) > 40


def test_rows_that_begin_to_speak_are_foretold(monkeypatch, eager_blocks):
    """Silent rows that a neighbour makes speak are in the pool: fewer blocks are cut short than without."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 2))
    y = np.where(rng.random(1500) < 0.02, np.sign(X[:, 0]), 0.0)
    block = Block(X, y, NullCategory(0.0, 0.9, 0.9))
    kernel = 4.0 * KERNELS["rbf"]
    counts = {}
    for share in (0.25, 0.0):
        monkeypatch.setattr(greedy, "_HOPEFUL", share)
        eager_blocks.clear()
        picks = new_run(kernel, block).extend(150).picks
        counts[share] = len(eager_blocks), picks
    assert counts[0.25][1] == counts[0.0][1]
    assert counts[0.25][0] < 0.8 * counts[0.0][0]


def test_blocks_that_fail(eager_blocks):
    """Where the pool does not foretell the picks, blocks are cut short, and the picks are still right."""
    kernel, block = KERNELS["white"], make_block(NOISES["steep probit"], 400, 3)
    run = new_run(kernel, block).extend(100)
    assert_greedy(run, kernel, block)
    counts, held = np.array(eager_blocks).T
    assert np.any(held < counts)


@pytest.mark.parametrize("noise", ["gaussian", "probit"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_blocks_with_repeated_rows(eager_blocks, kernel, noise):
    """Repeated rows tie all the time; blocks handle ties as the plain loop does."""
    kernel, block = KERNELS[kernel], make_block(NOISES[noise], 200, n_distinct=40)
    run = new_run(kernel, block).extend(120)
    assert_greedy(run, kernel, block)
    assert len(set(run.picks)) == 120


@pytest.mark.parametrize("noise", ["gaussian", "probit"])
def test_blocks_until_no_row_is_left(eager_blocks, noise):
    """All rows can be taken, and no more than there are."""
    kernel, block = KERNELS["rbf"], make_block(NOISES[noise], 90)
    run = new_run(kernel, block).extend(1000)
    assert sorted(run.picks) == list(range(90))
    assert_greedy(run, kernel, block)
    assert run.head[0] == -np.inf


def test_several_outputs_in_blocks(eager_blocks):
    """With several outputs the gains are summed, in blocks too."""
    kernel = KERNELS["ard"]
    blocks = [make_block(NOISES["probit"], 150, seed) for seed in (0, 1)]
    X = blocks[0].X
    outputs = [(b.y, b.noise) for b in blocks]
    run = GreedyRun(kernel, X, outputs, EntropyReduction()).extend(60)
    twins = [DensePosterior(kernel, Block(X, b.y, b.noise)) for b in blocks]
    left = np.ones(len(X), dtype=bool)
    for row, gain in zip(run.picks, run.gains(), strict=True):
        gains = twins[0].entropy_gains() + twins[1].entropy_gains()
        assert gains[row] >= gains[left].max() - 1e-9
        assert_allclose(gain, gains[row], rtol=1e-7)
        left[row] = False
        for twin in twins:
            twin.include(row)


def test_ties_go_to_the_lowest_row():
    """With a stationary kernel all rows tie at first; equal rows come in their order."""
    X = np.repeat(np.array([[0.0], [5.0], [10.0]]), 3, axis=0)
    run = new_run(KERNELS["rbf"], Block(X, np.zeros(9), Gaussian(0.1))).extend(9)
    assert run.picks == [0, 3, 6, 1, 4, 7, 2, 5, 8]


def test_extend_in_parts_and_across_processes():
    """A run that is stopped, pickled and taken up again makes the same picks."""
    kernel, block = KERNELS["white"], make_block(Probit(), 60)
    whole = new_run(kernel, block).extend(30)
    part = new_run(kernel, block).extend(7)
    part = pickle.loads(pickle.dumps(part)).extend(23)
    assert part.picks == whole.picks
    assert_array_equal(part.keys, whole.keys)
    assert part.head == whole.head


def test_force():
    """A forced row is booked as a pick, with the gain it had."""
    kernel, block = KERNELS["rbf"], make_block(Gaussian(0.1), 20)
    run = new_run(kernel, block)
    twin = DensePosterior(kernel, block)
    for row in (7, 3, 11):
        expected = twin.entropy_gains()[row]
        run.force(row)
        assert_allclose(run.gains()[-1], expected, rtol=1e-9)
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
    run.filters[0].var[:] = 0.2  # a diagonal that does not fit the columns
    with pytest.raises(NotPositiveDefiniteError, match=r"leave row \d a variance of -"):
        run.extend(6)
