"""Projection on a basis: limits in which it is exact, and its gradients by differences."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from gleangp.inference.block import Block
from gleangp.inference.filtering import filter_in_order
from gleangp.inference.posterior import posterior_from_sites
from gleangp.inference.projected import fit_projection, projected_evidence
from gleangp.noise import Gaussian, NullCategory, Ordered, Probit
from tests.unit.gp_twins import KERNELS, gaussian_log_evidence, make_block
from tests.unit.sequential_ep import propagate

X_NEW = np.random.default_rng(9).normal(size=(12, 2))
# Rough enough for K_dd to be far from singular: the nugget of 1e-8 is then not seen.
ROUGH = {
    "matern": ConstantKernel(1.3) * Matern([0.3, 0.6], nu=0.5),
    "matern and white": ConstantKernel(1.3) * Matern(0.4, nu=0.5) + WhiteKernel(0.2),
}
NOISES = {
    "gaussian": Gaussian(0.2, bias=0.1),
    "gaussian per row": Gaussian(np.linspace(0.05, 1.0, 40)),
    "probit": Probit(bias=0.2, slope=1.5),
}


def block_with(noise, n=40):
    block = make_block(Probit() if isinstance(noise, Probit) else Gaussian(1.0), n)
    return Block(block.X, block.y, noise)


@pytest.mark.parametrize("kernel", ROUGH)
def test_whole_basis_is_the_exact_gaussian_process(kernel):
    """All rows in the basis, Gaussian noise: evidence and predictions are exact."""
    kernel, block = ROUGH[kernel], block_with(NOISES["gaussian"])
    exact, theta_grad, d_variance = gaussian_log_evidence(kernel, block.X, block.y - 0.1, 0.2)
    posterior, found = fit_projection(kernel, block, block.X), projected_evidence(kernel, block, block.X)
    assert_allclose(found.value, exact, rtol=1e-6)
    dense = posterior_from_sites(kernel, block.X, filter_in_order(kernel, block))
    for ours, theirs in zip(posterior.predict(kernel, X_NEW), dense.predict(kernel, X_NEW), strict=True):
        assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)
    assert_allclose(found.theta, theta_grad, rtol=1e-4, atol=1e-5)
    assert_allclose(np.sum(found.d_noise), np.sum(d_variance), rtol=1e-4)


@pytest.mark.parametrize("kernel", ROUGH)
def test_whole_basis_is_full_expectation_propagation(kernel):
    """All rows in the basis, probit noise: EP over all rows."""
    kernel, block = ROUGH[kernel], block_with(NOISES["probit"])
    full = propagate(kernel, block, filter_in_order(kernel, block), tol=1e-12)
    posterior = fit_projection(kernel, block, block.X)
    evidence = projected_evidence(kernel, block, block.X).value
    assert_allclose(evidence, full.log_evidence, rtol=1e-5)
    dense = posterior_from_sites(kernel, block.X, full.sites)
    for ours, theirs in zip(posterior.predict(kernel, X_NEW), dense.predict(kernel, X_NEW), strict=True):
        assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("n_basis", [1, 3, 10, 39])
@pytest.mark.parametrize("kernel", KERNELS)
def test_bound(kernel, n_basis):
    """For Gaussian noise the evidence is a lower bound that a larger basis tightens."""
    kernel, block = KERNELS[kernel], block_with(Gaussian(0.2))
    exact = gaussian_log_evidence(kernel, block.X, block.y, 0.2)[0]
    values = [projected_evidence(kernel, block, block.X[:d]).value for d in (n_basis, n_basis + 1)]
    assert values[0] <= values[1] + 1e-6
    assert values[1] <= exact + 1e-5


@pytest.mark.parametrize("n_basis", [1, 7])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("kernel", [*KERNELS, *ROUGH])
def test_gradients(kernel, noise, n_basis):
    """Gradients in theta and in the variance of the noise are those of central differences."""
    kernel = {**KERNELS, **ROUGH}[kernel]
    noise = NOISES[noise]
    block, Z = block_with(noise), make_block(Gaussian(1.0), n_basis, 5).X
    start = projected_evidence(kernel, block, Z).sites if noise.precision_depends_on_mean else None

    def value(theta, **parameters):
        moved = clone(kernel)
        moved.theta = theta
        there = replace(block, noise=replace(noise, **parameters))
        sites = start
        for _ in range(4 if start is not None else 1):  # sites settle to their last digits
            evidence = projected_evidence(moved, there, Z, sites)
            sites = evidence.sites
        return evidence

    settled = value(kernel.theta)
    h = 1e-4
    for k in range(kernel.n_dims):
        step = h * np.eye(kernel.n_dims)[k]
        slope = (value(kernel.theta + step).value - value(kernel.theta - step).value) / (2 * h)
        assert_allclose(settled.theta[k], slope, rtol=2e-4, atol=2e-4)
    if isinstance(noise, Gaussian) and np.ndim(noise.variance) == 0:
        ends = [value(kernel.theta, variance=noise.variance + s * h).value for s in (1, -1)]
        assert_allclose(np.sum(settled.d_noise), (ends[0] - ends[1]) / (2 * h), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("kernel", [*KERNELS, *ROUGH])
def test_columns_that_share_their_noise(kernel):
    """Evidence and gradients of two columns are the sums of those of each."""
    kernel, block = {**KERNELS, **ROUGH}[kernel], block_with(Gaussian(0.2))
    Z, Y = block.X[:7], np.column_stack([block.y, np.cos(block.y)])
    both = projected_evidence(kernel, replace(block, y=Y), Z)
    parts = [projected_evidence(kernel, replace(block, y=y), Z) for y in Y.T]
    for name in ("value", "theta", "d_noise", "d_rows", "d_basis"):
        total = sum(getattr(part, name) for part in parts)
        assert_allclose(getattr(both, name), total, rtol=1e-8, atol=1e-9)
    weights = fit_projection(kernel, replace(block, y=Y), Z).weights
    each = [fit_projection(kernel, replace(block, y=y), Z).weights for y in Y.T]
    assert_allclose(weights, np.column_stack(each), rtol=1e-8)


def test_rows_that_no_basis_point_reaches():
    """Far rows keep their prior, and nothing divides by their zero variance."""
    for noise in (Gaussian(0.1), Probit()):
        X = np.array([[0.0], [0.1], [1e3]])
        block = Block(X, np.array([1.0, 1.0, -1.0]), noise)
        posterior, found = fit_projection(RBF(), block, X[:1]), projected_evidence(RBF(), block, X[:1])
        mean, var = posterior.predict(RBF(), X)
        assert np.isfinite(found.value)
        assert mean[0] > 0.3
        assert mean[2] == 0.0
        assert_allclose(var[2], 1.0)


def test_repeated_basis_points():
    """A basis with repeated points is the basis without them."""
    for noise in (Gaussian(0.2), Probit()):
        block = block_with(noise)
        bases = block.X[:5], np.vstack([block.X[:5], block.X[:5]])
        once, twice = (projected_evidence(KERNELS["rbf"], block, Z).value for Z in bases)
        assert_allclose(twice, once, rtol=1e-5)
        once, twice = (fit_projection(KERNELS["rbf"], block, Z) for Z in bases)
        assert_allclose(
            twice.predict(KERNELS["rbf"], X_NEW)[0],
            once.predict(KERNELS["rbf"], X_NEW)[0],
            atol=1e-5,
        )


@pytest.mark.parametrize(
    "noise",
    [
        NullCategory(bias=0.0, gamma_minus=0.3, gamma_plus=0.3, width=1.0, variance=0.1),
        Ordered(bias=0.0, widths=[1.0, 1.0], variance=0.5),
    ],
    ids=lambda noise: type(noise).__name__,
)
def test_other_noise_models(noise):
    """The projection asks of a noise model only its log_partition: any will do."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 2))
    y = (
        np.sign(X[:, 0]) * (rng.random(50) < 0.6)
        if isinstance(noise, NullCategory)
        else (np.digitize(X[:, 0], [-0.5, 0.0, 0.5]).astype(float))
    )
    posterior = fit_projection(KERNELS["ard"], Block(X, y, noise), X[:15])
    found = projected_evidence(KERNELS["ard"], Block(X, y, noise), X[:15])
    mean, _ = posterior.predict(KERNELS["ard"], X)
    assert np.isfinite(found.value)
    assert np.all(found.sites.precision >= 0.0)
    assert np.corrcoef(mean, X[:, 0])[0, 1] > 0.7
