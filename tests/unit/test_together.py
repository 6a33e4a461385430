"""The greedy choice over many small tasks from arrays: that of one run per task, merged."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.gaussian_process.kernels import RBF, DotProduct

from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.inference.block import Block
from gleangp.noise import Gaussian, Probit
from gleangp.selection.criteria import EntropyReduction, InformationGain
from gleangp.selection.selectors import EntropySelector, InformationGainSelector, _merged
from gleangp.selection.together import prior_of_tasks, select_together
from tests.unit.gp_twins import KERNELS, NOISES, make_block

SIZES = (25, 8, 17, 1, 8)
CRITERIA = {EntropyReduction: EntropySelector, InformationGain: InformationGainSelector}


@pytest.mark.parametrize("n_active", [1, 7, 30, sum(SIZES)])
@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_arrays_give_what_runs_give(kernel, noise, criterion, n_active):
    """Points, order, gains, sites and what the points say of all rows agree to the last bit."""
    kernel, blocks = KERNELS[kernel], [make_block(NOISES[noise], n, seed) for seed, n in enumerate(SIZES)]
    prior = prior_of_tasks(kernel, [b.X for b in blocks])
    together = select_together(criterion(), prior, blocks, n_active)
    merged = _merged(CRITERIA[criterion](), kernel, blocks, n_active, None, None)
    assert_array_equal(together.order, merged.order)
    assert_array_equal(together.gain, merged.gain)
    for t in range(len(SIZES)):
        assert_array_equal(together.active[t], merged.active[t])
        assert_array_equal(together.sites[t].mean, merged.sites[t].mean)
        assert_array_equal(together.sites[t].precision, merged.sites[t].precision)
        assert together.sites[t].n_silent == merged.sites[t].n_silent
    assert (together.seen is None) == (merged.seen is None) == (not blocks[0].noise.precision_depends_on_mean)
    for of_task, of_run in zip(together.seen or (), merged.seen or (), strict=True):
        assert_array_equal(of_task, of_run)


def test_one_task_that_has_it_all():
    """A task far richer than the others is taken further than the first share, and to its end."""
    rng = np.random.default_rng(0)
    rich = Block(rng.uniform(-50.0, 50.0, size=(40, 1)), np.zeros(40), Gaussian(0.1))
    poor = [Block(np.full((40, 1), 0.5), np.zeros(40), rich.noise) for _ in range(9)]
    selection = EntropySelector().select(RBF(0.5), [rich, *poor], 49, rng=None)
    assert [len(rows) for rows in selection.active] == [40, *[1] * 9]
    merged = _merged(EntropySelector(), RBF(0.5), [rich, *poor], 49, None, None)
    assert_array_equal(selection.order, merged.order)


def test_what_is_left_to_runs():
    """One task, large ones, very many, and noise that differs between tasks or rows."""
    X, y = np.arange(300.0)[:, None], np.ones(300)
    small = Block(X[:5], y[:5], Probit())
    cases = [
        [small],
        [small, Block(X, y, small.noise)],
        [Block(X[:250], y[:250], small.noise)] * 70,
        [small, Block(X[:5], y[:5], Probit(bias=0.5))],
        [Block(X[:5], y[:5], Probit(np.full(5, 0.5)))] * 2,
    ]
    for blocks in cases:
        prior = prior_of_tasks(RBF(), [b.X for b in blocks])
        assert select_together(EntropyReduction(), prior, blocks, 3) is None
    prior = prior_of_tasks(RBF(), [small.X, small.X])
    assert select_together(EntropyReduction(), prior, [small, small], 3) is not None


def test_again_with_other_noise():
    """A selector that has seen the kernel chooses as one that has not, whatever the noise."""
    kernel = KERNELS["ard"]
    for selector in (EntropySelector(), InformationGainSelector(), EntropySelector(n_swaps=2)):
        blocks = [make_block(Probit(), n, seed) for seed, n in enumerate(SIZES)]
        ready = selector.under(kernel, blocks)
        for noise in (Probit(), Probit(bias=0.8, slope=3.0)):
            blocks = [Block(b.X, b.y, noise) for b in blocks]
            again = ready.select(kernel, blocks, 12, rng=None)
            fresh = selector.select(kernel, blocks, 12, rng=None)
            assert_array_equal(again.order, fresh.order)
            assert_array_equal(np.concatenate(again.active), np.concatenate(fresh.active))
            assert_array_equal(again.gain, fresh.gain)


def test_a_kernel_that_is_no_covariance():
    """Variances far below zero are named, as in the plain loop."""

    class Wrong(DotProduct):
        def __call__(self, X, Y=None, eval_gradient=False):
            return 1e3 * super().__call__(X, Y, eval_gradient)

    block = Block(np.arange(1.0, 7.0)[:, None], np.zeros(6), Gaussian(0.1))
    with pytest.raises(NotPositiveDefiniteError, match="6 rows is not positive definite: 1 of them"):
        EntropySelector().select(Wrong(), [block, block], 4, rng=None)
