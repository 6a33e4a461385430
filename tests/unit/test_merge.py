"""Selection across tasks is a merge: against Lawrence & Platt 2004, algorithm 2, as a double loop."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from gleangp import EntropySelector, RandomSelector, ResidualSelector
from gleangp.inference.block import Block
from gleangp.noise import Gaussian, Probit
from gleangp.selection.base import Run, merged
from gleangp.selection.runs import keep_everything
from tests.unit.gp_twins import KERNELS, NOISES, greedy_twin, make_block


def select(selector, kernel, blocks, n_active, **more):
    return selector.select(kernel, blocks, n_active, rng=np.random.default_rng(0), **more)


def assert_is_twin(selection, picks):
    tasks, rows, gains = zip(*picks, strict=True)
    assert_array_equal(selection.order, tasks)
    for task, active in enumerate(selection.active):
        mine = [row for t, row in zip(tasks, rows, strict=True) if t == task]
        assert_array_equal(active, mine)
    assert_allclose(selection.gain, gains, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_merge_is_algorithm_2(kernel, noise):
    """Tasks of different sizes: the merge makes the picks of the double loop."""
    blocks = [make_block(NOISES[noise], n, seed) for seed, n in enumerate((25, 8, 17, 1))]
    selection = select(EntropySelector(), KERNELS[kernel], blocks, 30)
    assert_is_twin(selection, greedy_twin(KERNELS[kernel], blocks, 30))


@pytest.mark.parametrize("noise", ["gaussian", "probit"])
def test_identical_tasks(noise):
    """Equal tasks tie at every step, and ties go to the lowest task."""
    block = make_block(NOISES[noise], 15)
    kernel = KERNELS["line and matern"]
    selection = select(EntropySelector(), kernel, [block] * 3, 24)
    assert_is_twin(selection, greedy_twin(kernel, [block] * 3, 24))
    assert_array_equal(selection.order[:3], [0, 1, 2])
    assert_array_equal(selection.active[0][:7], selection.active[2][:7])


@pytest.mark.parametrize("noise", ["gaussian", "probit"])
def test_tasks_of_different_weight(noise):
    """All points may come from one task, and all rows of all tasks can be taken."""
    near, far = make_block(NOISES[noise], 12), make_block(NOISES[noise], 12, 1)
    still = Block(1e-3 * near.X, near.y, near.noise)  # one point, many times: little to tell
    kernel = KERNELS["ard"]
    selection = select(EntropySelector(), kernel, [still, far], 8)
    assert len(selection.active[1]) > len(selection.active[0])
    everything = select(EntropySelector(), kernel, [still, far], 24)
    assert sorted(everything.active[0]) == sorted(everything.active[1]) == list(range(12))


class Scripted(Run):
    """A run whose weights are given."""

    def __init__(self, weights):
        super().__init__(len(weights))
        self.given = weights

    def worth(self):
        return np.full(len(self), self.given[len(self.picks)] if self.left.any() else 0.0)

    def include(self, row):
        pass


def test_head_against_head_is_not_a_sort():
    """A gain that rises later must wait behind its own predecessors."""
    selection = merged([Scripted([3.0, 1.0, 9.0]), Scripted([2.0, 2.0])], [None, None], 5)
    assert_array_equal(selection.order, [0, 1, 1, 0, 0])
    assert_array_equal([len(active) for active in selection.active], [3, 2])


def test_runs_are_extended_only_as_far_as_needed():
    """A task that never wins is not computed to its end."""
    poor, rich = Scripted([0.5] * 100), Scripted([1.0] * 100)
    selection = merged([poor, rich], [None, None], 20)
    assert_array_equal(selection.order, np.ones(20))
    assert (len(poor.picks), len(rich.picks)) == (0, 20)


@pytest.mark.parametrize("n_active", [1, 7, 20])
def test_random_and_residual_budgets(n_active):
    """Every selector returns exactly the budget, without repetition, at most all rows of a task."""
    blocks = [make_block(Gaussian(0.1), n, n) for n in (3, 12, 5)]
    for selector in (RandomSelector(), ResidualSelector(), ResidualSelector("gain"), EntropySelector()):
        selection = select(selector, KERNELS["white"], blocks, n_active)
        assert len(selection.order) == len(selection.gain) == n_active
        assert np.all(selection.gain > 0)
        for task, active in enumerate(selection.active):
            assert len(active) == np.sum(selection.order == task)
            assert len(set(active)) == len(active)
            assert np.all(active < len(blocks[task]))


@pytest.mark.parametrize("kernel", KERNELS)
def test_keeping_everything_is_the_greedy_order(kernel):
    """With Gaussian noise and all rows kept, pivoted Cholesky gives the greedy order and gains."""
    blocks = [make_block(Gaussian(0.1), n, n) for n in (9, 30, 14)]
    greedy = select(EntropySelector(), KERNELS[kernel], blocks, 53)
    pivoted = keep_everything(KERNELS[kernel], blocks)
    assert_allclose(pivoted.gain, greedy.gain, rtol=1e-7, atol=1e-9)
    firm = np.min(np.abs(np.diff(np.sort(greedy.gain)))) > 1e-9
    if firm:
        assert_array_equal(pivoted.order, greedy.order)
        for ours, theirs in zip(pivoted.active, greedy.active, strict=True):
            assert_array_equal(ours, theirs)


def test_keeping_everything_with_repeated_rows():
    """Singular covariances are no obstacle: every row is kept, later repeats tell less."""
    block = make_block(Gaussian(1e-10), 20, n_distinct=5)
    selection = keep_everything(KERNELS["rbf"], [block])
    assert sorted(selection.active[0]) == list(range(20))
    assert len(np.unique(block.X[selection.active[0][:5]], axis=0)) == 5
    assert np.all(np.isfinite(selection.gain))


def test_budget_is_used_when_everything_is_explained():
    """Tasks whose rows are explained by a few of them still give all rows, when all are asked for."""
    rng = np.random.default_rng(0)
    blocks = [Block(rng.normal(size=(n, 1)), np.ones(n), Probit()) for n in (9, 12, 5)]
    kernel = ConstantKernel(4.0) * RBF(50.0)
    chosen = ResidualSelector(weight="variance").select(kernel, blocks, 26, rng=rng)
    assert [sorted(a.tolist()) for a in chosen.active] == [list(range(n)) for n in (9, 12, 5)]
