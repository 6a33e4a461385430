"""Filtering rows in one by one, against dense updates; silent sites."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import WhiteKernel

from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.inference.block import Block
from gleangp.inference.posterior import (
    PRECISION_FLOOR,
    Filter,
    Sites,
    filter_in_order,
    posterior_from_sites,
    training_marginals,
    without_own_site,
)
from gleangp.noise import Gaussian, NullCategory, Probit
from gleangp.numerics import linalg
from tests.unit.gp_twins import KERNELS, NOISES, DensePosterior, make_block


def new_filter(kernel, block):
    return Filter(block.y, block.noise, kernel.diag(block.X))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_marginals_are_those_of_dense_updates(kernel, noise):
    """Means, variances and the implied covariance after some inclusions."""
    kernel, block = KERNELS[kernel], make_block(NOISES[noise], 20)
    state, twin = new_filter(kernel, block), DensePosterior(kernel, block)
    K = kernel(block.X)
    for row in (3, 17, 0, 9, 4):
        before = twin.mean[row], twin.cov[row, row]
        state.include(row, K[row])
        assert_allclose(state.moments[-1][:2], before, rtol=1e-8, atol=1e-12)
        twin.include(row)
    assert_allclose(state.mean, twin.mean, rtol=1e-8, atol=1e-10)
    assert_allclose(state.var, np.diagonal(twin.cov), rtol=1e-8, atol=1e-10)
    rows = state.rows[: state.size]
    assert_allclose(K - rows.T @ rows, twin.cov, atol=1e-9)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_sites_reproduce_the_filter(kernel, noise):
    """The posterior made from the sites alone has the filter's marginals at all rows."""
    kernel, block = KERNELS[kernel], make_block(NOISES[noise], 25)
    active = np.array([3, 17, 0, 9, 4, 21])
    state, K = new_filter(kernel, block), kernel(block.X)
    for row in active:
        state.include(row, K[row])
    posterior = posterior_from_sites(kernel, block.X[active], state.sites())
    mean, var = training_marginals(kernel, posterior, block.X, active)
    assert_allclose(mean, state.mean, rtol=1e-6, atol=1e-8)
    assert_allclose(var, state.var, rtol=1e-6, atol=1e-8)
    ordered = filter_in_order(kernel, block.at(active))
    assert_allclose(ordered.mean, state.sites().mean, rtol=1e-8)
    assert_allclose(ordered.precision, state.sites().precision, rtol=1e-8)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_row_without_its_own_site(kernel, noise, monkeypatch):
    """An active row without its own site has the marginal of the posterior of the others; other rows stay."""
    kernel, block = KERNELS[kernel], make_block(NOISES[noise], 25)
    active = np.array([3, 17, 0, 9, 4, 21])
    sites = filter_in_order(kernel, block.at(active))
    posterior = posterior_from_sites(kernel, block.X[active], sites)
    mean, var = without_own_site(kernel, posterior, block.X, active)
    whole = training_marginals(kernel, posterior, block.X, active)
    for i, row in enumerate(active):
        kept = np.delete(np.arange(len(active)), i)
        of_others = Sites(sites.mean[kept], sites.precision[kept])
        others = posterior_from_sites(kernel, block.X[active[kept]], of_others)
        expected = others.predict(kernel, block.X[[row]])
        assert_allclose([mean[row], var[row]], np.ravel(expected), rtol=1e-6, atol=1e-9)
    rest = np.setdiff1d(np.arange(len(block)), active)
    assert_allclose([mean[rest], var[rest]], [whole[0][rest], whole[1][rest]], rtol=1e-12)
    monkeypatch.setattr(linalg, "CHUNK_ENTRIES", 7 * len(active))  # seven rows at a time
    assert_allclose(without_own_site(kernel, posterior, block.X, active), [mean, var], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("variance", [1e-12, 1e-10, 1e-6, 1e-2, 1.0, 1e4])
def test_a_row_without_a_site_of_any_precision(variance):
    """From nearly exact sites to ones that say nothing: what the posterior of the other points predicts."""
    kernel, block = KERNELS["rbf"] + WhiteKernel(0.05), make_block(Gaussian(variance), 25)
    active = np.array([3, 17, 0, 9, 4, 21])
    sites = filter_in_order(kernel, block.at(active))
    posterior = posterior_from_sites(kernel, block.X[active], sites)
    mean, var = without_own_site(kernel, posterior, block.X, active)
    for row in active:
        kept = block.at(active[active != row])
        others = posterior_from_sites(kernel, kept.X, filter_in_order(kernel, kept))
        expected = others.predict(kernel, block.X[[row]])
        assert_allclose([mean[row], var[row]], np.ravel(expected), rtol=1e-6, atol=1e-9)


def test_gaussian_sites_are_the_targets():
    """For Gaussian noise a site is the target itself, with the noise's precision."""
    block = make_block(Gaussian(0.3, bias=0.5), 12)
    sites = filter_in_order(KERNELS["rbf"], block)
    assert_allclose(sites.mean, block.y - 0.5, rtol=1e-9, atol=1e-12)
    assert_allclose(sites.precision, 1 / 0.3, rtol=1e-9)


def test_underflowing_precision_of_a_log_concave_model():
    """A label that is certain already has a precision of zero: floored, never silent, all finite."""
    block = Block(np.zeros((2, 1)), np.array([1.0, 1.0]), Probit(bias=60.0))
    sites = filter_in_order(KERNELS["rbf"], block)
    assert sites.n_silent == 0
    assert_allclose(sites.precision, PRECISION_FLOOR, rtol=1e-9)
    assert np.all(np.isfinite(sites.mean))


def test_negative_precision_is_silenced_and_counted():
    """An unlabelled row in the middle of the null category pushes outwards: it says nothing instead."""
    noise = NullCategory(bias=0.0, gamma_minus=0.5, gamma_plus=0.5, width=1.0, variance=1e-3)
    block = Block(np.array([[0.0], [4.0]]), np.array([1.0, 0.0]), noise)
    kernel = KERNELS["rbf"]
    _, _, nu = noise.log_partition(0.0, 0.0, kernel.diag(block.X)[1])
    assert nu < 0
    sites = filter_in_order(kernel, block)
    assert sites.n_silent == 1
    assert_allclose(sites.precision[1], PRECISION_FLOOR, rtol=1e-6)
    mean, _ = training_marginals(
        kernel, posterior_from_sites(kernel, block.X, sites), block.X, np.array([0, 1])
    )
    assert abs(mean[1]) < 1e-6


def test_columns_that_do_not_fit_the_diagonal():
    """A row left with a negative variance is an error that names the kernel as the cause."""
    block = make_block(Gaussian(0.1), 5)
    state = Filter(block.y, block.noise, np.full(5, 0.5))
    with pytest.raises(NotPositiveDefiniteError, match="1 of them leave row"):
        state.include(0, np.full(5, 2.0))
