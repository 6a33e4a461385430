"""Swaps: an active set is improved, against a twin that forms every posterior from scratch."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from gleangp import EntropySelector, SparseGPClassifier, SparseGPRegressor, TaskRelevance
from gleangp.inference.block import Block
from gleangp.noise import Gaussian, Probit

KERNELS = {
    "rbf": ConstantKernel(1.5) * RBF(0.6),
    "rbf and white": RBF([0.5, 1.5]) + WhiteKernel(0.1),
}
NOISES = {"gaussian": Gaussian(0.1), "probit": Probit(bias=0.2)}


def tasks(noise, sizes, seed=0):
    rng = np.random.default_rng(seed)
    blocks = []
    for n in sizes:
        X = rng.normal(size=(n, 2))
        y = np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=n)
        blocks.append(Block(X, np.sign(y) if isinstance(noise, Probit) else y, noise))
    return blocks


def dense_posterior(kernel, block, active, site_mean, site_precision):
    """Marginals of all rows under the sites, from the definition."""
    K = kernel(block.X)
    C = K[np.ix_(active, active)] + np.diag(1.0 / np.array(site_precision))
    gain = np.linalg.solve(C, K[active]).T if active else np.zeros((len(K), 0))
    return gain @ np.array(site_mean), np.diagonal(K) - np.einsum("nd,dn->n", gain, K[active])


def gains_of(block, rows, mean, var):
    """-1/2 log(1 - nu var) of some rows (LPJ05 eq. 19)."""
    _, _, nu = block.noise.log_partition(block.y[rows], mean[rows], var[rows])
    return -0.5 * np.log(1.0 - nu * var[rows])


def state(kernel, blocks, entries, task):
    """Marginals of a task under the sites of the entries that are its own."""
    mine = [e for e in entries if e[0] == task]
    columns = ([e[k] for e in mine] for k in (1, 3, 4))
    return dense_posterior(kernel, blocks[task], *columns)


def find_swap(kernel, blocks, entries):
    """Entries after the first swap that pays, tried from the least missed point on; or None."""
    missed = []
    for e in entries:
        mean, var = state(kernel, blocks, [o for o in entries if o is not e], e[0])
        missed.append(gains_of(blocks[e[0]], [e[1]], mean, var)[0])
    for out in np.argsort(missed, kind="stable"):
        others = entries[:out] + entries[out + 1 :]
        best = [None, None, -np.inf]
        for task, block in enumerate(blocks):
            mean, var = state(kernel, blocks, others, task)
            inside = [e[1] for e in entries if e[0] == task]
            for row in np.setdiff1d(np.arange(len(block)), inside):
                gain = gains_of(block, [row], mean, var)[0]
                if gain > best[2]:
                    _, g, nu = block.noise.log_partition(block.y[row], mean[row], var[row])
                    best = [task, row, gain, mean[row] + g / nu, nu / (1.0 - nu * var[row])]
        if best[2] > missed[out] + 1e-9:
            return [*others, best]
    return None


def swap_twin(kernel, blocks, selection, n_swaps):
    """The same swaps with every posterior formed anew: (task, row, gain, site) in order."""
    seen = [0] * len(blocks)
    entries = []
    for task, gain in zip(selection.order, selection.gain, strict=True):
        k = seen[task]
        seen[task] += 1
        sites = selection.sites[task]
        entries.append([task, selection.active[task][k], gain, sites.mean[k], sites.precision[k]])

    n_done = 0
    for _ in range(n_swaps):
        swapped = find_swap(kernel, blocks, entries)
        if swapped is None:
            break
        entries = swapped
        n_done += 1
    return entries, n_done


@pytest.mark.parametrize("sizes", [[50], [15, 30, 22]])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_swaps_are_those_of_the_twin(kernel, noise, sizes):
    """Points, order, gains and sites after the swaps are those of the slow twin."""
    kernel, noise = KERNELS[kernel], NOISES[noise]
    blocks = tasks(noise, sizes)
    rng = np.random.default_rng(0)
    greedy = EntropySelector().select(kernel, blocks, 14, rng=rng)
    swapped = EntropySelector(n_swaps=5).select(kernel, blocks, 14, rng=rng)
    entries, n_done = swap_twin(kernel, blocks, greedy, 5)
    assert n_done > 0
    assert_array_equal(swapped.order, [e[0] for e in entries])
    assert_allclose(swapped.gain, [e[2] for e in entries], rtol=1e-8, atol=1e-12)
    for task in range(len(blocks)):
        mine = [e for e in entries if e[0] == task]
        assert_array_equal(swapped.active[task], [e[1] for e in mine])
        assert_allclose(swapped.sites[task].mean, [e[3] for e in mine], rtol=1e-7, atol=1e-9)
        assert_allclose(swapped.sites[task].precision, [e[4] for e in mine], rtol=1e-7)


def total_information(kernel, blocks, selection, variance):
    """Mutual information of the active points and the function: 1/2 log |I + K / variance|, nats."""
    total = 0.0
    for block, active in zip(blocks, selection.active, strict=True):
        K = kernel(block.X[active])
        total += 0.5 * np.linalg.slogdet(np.eye(len(K)) + K / variance)[1]
    return total


@pytest.mark.parametrize("sizes", [[60], [20, 40]])
def test_swaps_raise_the_information(sizes):
    """For Gaussian noise every swap adds information; the number of points stays."""
    kernel, noise = KERNELS["rbf"], NOISES["gaussian"]
    blocks = tasks(noise, sizes)
    last = -np.inf
    for n_swaps in range(5):
        selection = EntropySelector(n_swaps=n_swaps).select(kernel, blocks, 15, rng=np.random.default_rng(0))
        assert sum(len(a) for a in selection.active) == 15
        information = total_information(kernel, blocks, selection, noise.variance)
        assert information >= last
        last = information
    greedy = EntropySelector().select(kernel, blocks, 15, rng=np.random.default_rng(0))
    assert last > total_information(kernel, blocks, greedy, noise.variance)


def test_no_swaps_is_plain_greedy():
    """With none allowed, or nothing outside to swap in, the greedy choice stays."""
    kernel, noise = KERNELS["rbf"], NOISES["probit"]
    blocks = tasks(noise, [20])
    for n_active, n_swaps in ((8, 0), (20, 5)):
        greedy = EntropySelector().select(kernel, blocks, n_active, rng=np.random.default_rng(0))
        swapped = EntropySelector(n_swaps=n_swaps).select(
            kernel, blocks, n_active, rng=np.random.default_rng(0)
        )
        assert_array_equal(swapped.active[0], greedy.active[0])
        assert_allclose(swapped.gain, greedy.gain, rtol=1e-12)
        assert_allclose(swapped.sites[0].mean, greedy.sites[0].mean, rtol=1e-12)


def test_repeated_points_are_swapped_out():
    """A point that another one repeats is the first to go."""
    X = np.array([[0.0], [0.0], [3.0], [6.0]])
    block = Block(X, np.zeros(4), Gaussian(0.1))
    swapped = EntropySelector(n_swaps=3).select(RBF(), [block], 3, rng=np.random.default_rng(0))
    assert set(X[swapped.active[0], 0]) == {0.0, 3.0, 6.0}


@pytest.mark.parametrize("n_swaps", [-1, 2.5, "all"])
def test_number_of_swaps(n_swaps):
    """A whole number that is not negative."""
    with pytest.raises(ValueError, match="n_swaps="):
        EntropySelector(n_swaps=n_swaps).select(
            RBF(), tasks(Gaussian(0.1), [9]), 3, rng=np.random.default_rng(0)
        )


def test_inside_another_selector():
    """A rule that makes every pick itself cannot be followed by swaps: said, not ignored."""
    blocks = tasks(Gaussian(0.1), [9, 9])
    with pytest.raises(ValueError, match="n_swaps=2: a choice that is made point by point"):
        TaskRelevance(EntropySelector(n_swaps=2)).select(RBF(), blocks, 4, rng=np.random.default_rng(0))


def test_in_an_estimator():
    """The estimators take it like any other selector."""
    (block,) = tasks(Gaussian(0.1), [80])
    for Model, y in ((SparseGPRegressor, block.y), (SparseGPClassifier, block.y > 0)):
        model = Model(
            KERNELS["rbf"],
            optimizer=None,
            posterior="active",
            n_active=20,
            selector=EntropySelector(n_swaps=4),
        ).fit(block.X, y)
        assert len(np.unique(model.active_)) == 20
        assert np.all(model.active_gain_ > 0)
        assert model.score(block.X, y) > 0.7
