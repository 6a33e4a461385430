"""One task on a basis: limits in which it is exact, and gradients by differences."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from gleangp.inference.posterior import filter_in_order, fit_on_basis, fitc_prior, posterior_from_sites
from gleangp.inference.propagate import marginals_of, sweep_rows
from gleangp.models.hierarchical.evidence import TaskOnBasis
from gleangp.models.hierarchical.task import TaskRows
from gleangp.noise import Gaussian, NullCategory, Ordered, Probit
from tests.differences import central
from tests.unit.gp_twins import KERNELS, gaussian_log_evidence, make_block
from tests.unit.sequential_ep import propagate

X_NEW = np.random.default_rng(9).normal(size=(12, 2))
# Rough enough for K_dd to be far from singular: the nugget of 1e-8 is then not seen.
ROUGH = {
    "matern": ConstantKernel(1.3) * Matern([0.3, 0.6], nu=0.5),
    "matern and white": ConstantKernel(1.3) * Matern(0.4, nu=0.5) + WhiteKernel(0.2),
}


def evidence(kernel, block, Z):
    """Log evidence of a task of the hierarchy, and its gradients in theta and the log of the noise."""
    term = TaskOnBasis(kernel, [TaskRows(block.X, block.y, basis=Z)])

    def at(theta, log_noise):
        found = term(theta[None], np.array([log_noise]), np.zeros(1), 0.0)
        return found.value[0], np.append(found.d_theta[0], found.d_log_noise)

    return at


@pytest.mark.parametrize("kernel", ROUGH)
@pytest.mark.parametrize("noise", [Gaussian(0.2, bias=0.1), Probit(bias=0.2)], ids=["gaussian", "probit"])
def test_whole_basis_is_exact(kernel, noise):
    """All rows in the basis: predictions and evidence of the dense process, and of propagation over all."""
    kernel, block = ROUGH[kernel], make_block(noise, 40)
    sites = filter_in_order(kernel, block)
    if noise.precision_depends_on_mean:
        full = propagate(kernel, block, sites, tol=1e-12)
        sites, found = full.sites, sweep_rows(block, marginals_of(fitc_prior(kernel, block.X, block.X)))
        assert_allclose(found.evidence, full.log_evidence, rtol=1e-5)
    else:
        exact = gaussian_log_evidence(kernel, block.X, block.y, 0.2)[0]
        found = evidence(kernel, block, block.X)(kernel.theta, np.log(0.2))
        assert_allclose(found[0], exact, rtol=1e-6)
    dense = posterior_from_sites(kernel, block.X, sites)
    posterior = fit_on_basis(kernel, block, block.X)
    for ours, theirs in zip(posterior.predict(kernel, X_NEW), dense.predict(kernel, X_NEW), strict=True):
        assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kernel", [*KERNELS, *ROUGH])
def test_evidence_of_a_task_is_that_of_the_definition(kernel):
    """log N(y | 0, Q + diag(K - Q) + noise) with Q = K_nd K_dd^-1 K_dn; gradients by central differences."""
    kernel, block = {**KERNELS, **ROUGH}[kernel], make_block(Gaussian(0.2), 40)
    at, theta, log_noise = evidence(kernel, block, block.X[:7]), kernel.theta, np.log(0.2)
    value, gradient = at(theta, log_noise)
    K_dn = kernel(block.X[:7], block.X)
    Q = K_dn.T @ np.linalg.solve(kernel(block.X[:7], block.X[:7]), K_dn)
    C = Q + np.diag(kernel.diag(block.X) - np.diagonal(Q) + 0.2)
    expected = -0.5 * (
        block.y @ np.linalg.solve(C, block.y) + np.linalg.slogdet(C)[1] + 40 * np.log(2 * np.pi)
    )
    assert_allclose(value, expected, rtol=1e-5)
    by_differences = central(lambda z: at(z[:-1], z[-1])[0], np.append(theta, log_noise))
    assert_allclose(gradient, by_differences, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("noise", [Gaussian(0.1), Probit(), Ordered(1.0, np.array([1.0])), NullCategory()])
def test_any_noise(noise):
    """The joint covariance has the predicted variances, which are below those of the prior."""
    kernel, block = KERNELS["white"], make_block(noise, 30)
    if isinstance(noise, Ordered):
        block.y[:] = np.digitize(block.X[:, 0], [-1.0, 1.0])
    posterior = fit_on_basis(kernel, block, block.X[:8])
    mean, cov = posterior.predict(kernel, X_NEW, joint=True)
    ours = posterior.predict(kernel, X_NEW)
    assert_allclose(ours[0], mean, rtol=1e-9, atol=1e-12)
    assert_allclose(ours[1], np.diagonal(cov), rtol=1e-8)
    assert np.linalg.eigvalsh(cov)[0] > 0
    assert np.all(ours[1] <= kernel.diag(X_NEW))
