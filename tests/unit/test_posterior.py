"""Posteriors from sites: prediction, removal of points, evidence; and EP over the active points."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal
from sklearn.base import clone

from gleangp.inference.block import Block
from gleangp.inference.posterior import (
    Sites,
    filter_in_order,
    posterior_from_sites,
    prior_only,
)
from gleangp.noise import Gaussian, Probit
from gleangp.numerics import linalg
from tests.differences import central
from tests.unit.gp_twins import KERNELS, gaussian_log_evidence, make_block, site_log_evidence
from tests.unit.sequential_ep import propagate

X_NEW = np.random.default_rng(9).normal(size=(12, 2))


def some_sites(n, seed=0):
    rng = np.random.default_rng(seed)
    return Sites(rng.normal(size=n), rng.uniform(0.1, 20.0, n))


def dense_prediction(kernel, X, sites, X_new):
    """Mean and covariance from the textbook formula; white noise on the new rows' own diagonal."""
    joint = kernel(np.vstack([X, X_new]))
    d = len(X)
    C = joint[:d, :d] + np.diag(1 / sites.precision)
    gain = np.linalg.solve(C, joint[:d, d:]).T
    return gain @ sites.mean, joint[d:, d:] - gain @ joint[:d, d:]


@pytest.mark.parametrize("kernel", KERNELS)
def test_prediction(kernel, monkeypatch):
    """Mean, variance and covariance are those of the textbook formula, in chunks too."""
    kernel, sites = KERNELS[kernel], some_sites(9)
    X = make_block(Gaussian(1.0), 9).X
    posterior = posterior_from_sites(kernel, X, sites)
    mean, cov = dense_prediction(kernel, X, sites, X_NEW)
    assert_allclose(posterior.predict(kernel, X_NEW, joint=True)[0], mean, rtol=1e-9, atol=1e-12)
    assert_allclose(posterior.predict(kernel, X_NEW, joint=True)[1], cov, rtol=1e-9, atol=1e-12)
    for chunk in (4_000_000, 18):
        monkeypatch.setattr(linalg, "CHUNK_ENTRIES", chunk)
        ours = posterior.predict(kernel, X_NEW)
        assert_allclose(ours[0], mean, rtol=1e-9, atol=1e-12)
        assert_allclose(ours[1], np.diagonal(cov), rtol=1e-9, atol=1e-12)
        assert_allclose(posterior.predict(kernel, X_NEW, with_var=False)[0], mean, rtol=1e-9, atol=1e-12)


def test_prior():
    """Without points the prediction is the prior."""
    kernel = KERNELS["white"]
    mean, var = prior_only(2).predict(kernel, X_NEW)
    assert_array_equal(mean, 0.0)
    assert_array_equal(prior_only(2).predict(kernel, X_NEW, with_var=False)[0], 0.0)
    assert_allclose(var, kernel.diag(X_NEW))
    assert_allclose(prior_only(2).predict(kernel, X_NEW, joint=True)[1], kernel(X_NEW))
    assert len(posterior_from_sites(kernel, np.zeros((0, 2)), Sites(np.zeros(0), np.zeros(0))).X) == 0


@pytest.mark.parametrize("kernel", KERNELS)
def test_evidence_and_gradients(kernel):
    """Log densities of a multivariate normal, and their gradients by central differences."""
    kernel, sites = KERNELS[kernel], some_sites(8)
    X = make_block(Gaussian(1.0), 8).X
    variance = 1 / sites.precision

    def density(theta, variance):
        moved = clone(kernel)
        moved.theta = theta
        return multivariate_normal(np.zeros(8), moved(X) + np.diag(variance)).logpdf(sites.mean)

    value, gradient = site_log_evidence(kernel, X, sites)
    again, also_gradient, d_variance = gaussian_log_evidence(kernel, X, sites.mean, variance)
    assert_allclose(value, density(kernel.theta, variance), rtol=1e-9)
    assert_allclose(again, value, rtol=1e-12)
    assert_allclose(also_gradient, gradient, rtol=1e-9, atol=1e-12)
    by_theta = central(lambda theta: density(theta, variance), kernel.theta)
    assert_allclose(gradient, by_theta, rtol=1e-5, atol=1e-6)
    by_variance = central(lambda variance: density(kernel.theta, variance), variance)
    assert_allclose(d_variance, by_variance, rtol=1e-5, atol=1e-6)


def test_propagation_of_gaussian_noise_changes_nothing():
    """Gaussian sites are exact after filtering, and the EP evidence is the exact one."""
    kernel, block = KERNELS["white"], make_block(Gaussian(0.2), 15)
    sites = filter_in_order(kernel, block)
    settled = propagate(kernel, block, sites)
    assert settled.n_sweeps == 1
    assert settled.converged
    assert_allclose(settled.sites.mean, sites.mean, rtol=1e-8)
    exact = gaussian_log_evidence(kernel, block.X, block.y, 0.2)[0]
    assert_allclose(settled.log_evidence, exact, rtol=1e-8)


@pytest.mark.parametrize("order", [np.arange(14), np.arange(14)[::-1]])
def test_propagation_forgets_the_order(order):
    """The fixed point does not depend on the order in which the rows were filtered in."""
    kernel, block = KERNELS["ard"], make_block(Probit(bias=0.2), 14)
    straight = propagate(kernel, block, filter_in_order(kernel, block), tol=1e-12)
    other = block.at(order)
    settled = propagate(kernel, other, filter_in_order(kernel, other), tol=1e-12)
    assert_allclose(settled.sites.precision, straight.sites.precision[order], rtol=1e-6)
    assert_allclose(settled.log_evidence, straight.log_evidence, rtol=1e-9)


def test_propagated_evidence_is_close_to_the_truth():
    """EP against the exact evidence of three probit rows, by summing over a grid."""
    kernel = KERNELS["rbf"]
    X, y = np.array([[0.0, 0.0], [0.3, 0.1], [1.0, 0.5]]), np.array([1.0, -1.0, 1.0])
    block = Block(X, y, Probit())
    points, weights = np.polynomial.hermite_e.hermegauss(60)
    grid = np.stack(np.meshgrid(points, points, points, indexing="ij"), axis=-1).reshape(-1, 3)
    mass = np.prod(np.stack(np.meshgrid(weights, weights, weights, indexing="ij"), -1), -1).ravel()
    f = grid @ np.linalg.cholesky(kernel(X)).T
    log_p = block.noise.log_prob(y, f).sum(axis=1)
    exact = np.log(np.exp(log_p) @ mass / mass.sum())
    settled = propagate(kernel, block, filter_in_order(kernel, block))
    assert_allclose(settled.log_evidence, exact, atol=2e-3)


def test_too_few_sweeps_are_said():
    """Sites that still move are not called settled."""
    kernel, block = KERNELS["ard"], make_block(Probit(), 20)
    assert not propagate(kernel, block, filter_in_order(kernel, block), max_sweeps=1).converged
