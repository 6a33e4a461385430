"""Many small greedy selections made together: against the plain loop, run by run."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF, DotProduct

from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.inference.block import Block
from gleangp.noise import Gaussian, NullCategory, Probit
from gleangp.selection.criteria import EntropyReduction, InformationGain
from gleangp.selection.greedy import GreedyRun
from gleangp.selection.lockstep import extend_together, is_small
from tests.unit.gp_twins import KERNELS, NOISES, make_block

SIZES = (25, 8, 17, 1, 8)


def new_runs(kernel, noise, criterion=EntropyReduction):
    blocks = [make_block(noise, n, seed) for seed, n in enumerate(SIZES)]
    return [GreedyRun(kernel, b.X, [(b.y, b.noise)], criterion()) for b in blocks]


def assert_same(run, other, **tolerance):
    """Same picks, keys, sites and state."""
    assert_array_equal(run.picks, other.picks)
    assert_allclose(run.keys, other.keys, **tolerance)
    assert_allclose(run.head[0], other.head[0], **tolerance)
    assert run.head[1] == other.head[1]
    assert_array_equal(run.is_active, other.is_active)
    f, twin = run.filters[0], other.filters[0]
    assert f.size == twin.size
    assert_allclose(f.rows[: f.size], twin.rows[: twin.size], **tolerance)
    assert_allclose(f.mean, twin.mean, **tolerance)
    assert_allclose(f.var, twin.var, **tolerance)
    assert_allclose(f.sites().precision, twin.sites().precision, **tolerance)
    assert f.sites().n_silent == twin.sites().n_silent


@pytest.mark.parametrize("criterion", [EntropyReduction, InformationGain])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_together_as_alone(kernel, noise, criterion):
    """Different sizes, different numbers of picks, taken further in a second go: the plain loop's runs."""
    runs = new_runs(KERNELS[kernel], NOISES[noise], criterion)
    twins = new_runs(KERNELS[kernel], NOISES[noise], criterion)
    for wanted in [(6, 6, 3, 1, 2), (6, 8, 12, 1, 40)]:
        extend_together(runs, wanted)
        for run, twin, n in zip(runs, twins, wanted, strict=True):
            twin.extend(n - len(twin.picks))
            assert_same(run, twin, rtol=1e-9, atol=1e-9)


def test_plain_steps_before_and_after():
    """Unlabelled rows: what a run saw of them before it marched with others is not used after it."""
    rng, kernel = np.random.default_rng(0), KERNELS["rbf"]
    X = rng.normal(size=(60, 2))
    y = np.where(rng.random(60) < 0.3, np.sign(X[:, 0]), 0.0)
    outputs = [(y, NullCategory(0.1, 0.7, 0.8, width=0.5))]
    run, twin = (GreedyRun(kernel, X, outputs, EntropyReduction()) for _ in range(2))
    run.extend(3)
    assert run.head[1] not in run.picks  # has looked at all rows
    extend_together([run], [9])
    run.extend(20)
    twin.extend(29)
    assert_same(run, twin, rtol=1e-9, atol=1e-9)


def test_company_changes_no_bit():
    """A run among others, and the same run by itself, agree to the last bit."""
    kernel = KERNELS["ard"]
    together, alone = new_runs(kernel, Probit()), new_runs(kernel, Probit())
    extend_together(together, [12] * len(SIZES))
    for run in alone:
        extend_together([run], [5])
        extend_together([run], [12])
    for run, twin in zip(together, alone, strict=True):
        assert_same(run, twin, rtol=0, atol=0)


def test_runs_of_different_noise_go_apart():
    """Runs that share neither noise nor kernel are still each its own."""
    mixed = [new_runs(KERNELS["ard"], noise)[k] for k, noise in enumerate((Gaussian(0.1), Probit(bias=0.3)))]
    twins = [new_runs(KERNELS["ard"], noise)[k] for k, noise in enumerate((Gaussian(0.1), Probit(bias=0.3)))]
    extend_together(mixed, [5, 5])
    for run, twin in zip(mixed, twins, strict=True):
        assert_same(run, twin.extend(5), rtol=1e-9, atol=1e-9)


def test_what_is_small():
    """Large blocks and noise that differs from row to row are left to the plain loop."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 2)), rng.normal(size=300)
    assert not is_small(GreedyRun(RBF(), X, [(y, Gaussian(0.1))], EntropyReduction()))
    assert is_small(GreedyRun(RBF(), X[:50], [(y[:50], Gaussian(0.1))], EntropyReduction()))
    rows = Gaussian(np.full(50, 0.1))
    assert not is_small(GreedyRun(RBF(), X[:50], [(y[:50], rows)], EntropyReduction()))


def test_a_kernel_that_is_no_covariance():
    """Variances far below zero are named, as in the plain loop."""

    class Wrong(DotProduct):
        def __call__(self, X, Y=None, eval_gradient=False):
            return 1e3 * super().__call__(X, Y, eval_gradient)

    block = Block(np.arange(1.0, 7.0)[:, None], np.zeros(6), Gaussian(0.1))
    runs = [GreedyRun(Wrong(), block.X, [(block.y, block.noise)], EntropyReduction()) for _ in range(3)]
    with pytest.raises(NotPositiveDefiniteError, match="6 rows is not positive definite"):
        extend_together(runs, [4, 4, 4])
