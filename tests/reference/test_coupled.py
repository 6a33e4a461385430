"""Coupled tasks against the dense multi-task Gaussian process, written from its definition."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, WhiteKernel

from gleangp.inference import coupled, coupled_posterior
from gleangp.inference.block import Block
from gleangp.inference.conditioning import condition, posterior_var
from gleangp.inference.coupled import CoupledPrior, Term, evidence_gradient, settle, stack_rows
from gleangp.inference.coupled_posterior import (
    add_block,
    fit_coupled,
    predict_coupled,
    predict_coupled_cov,
)
from gleangp.inference.row_ep import RowSites
from gleangp.noise import Gaussian, Probit

SIZES = (3, 6, 5, 0, 11)


def problem(rng, sizes=SIZES, noise=None, p=2):
    """Blocks of random rows, the last of them with larger targets."""
    noise = Gaussian(0.3) if noise is None else noise
    blocks = []
    for n in sizes:
        y = rng.normal(size=n)
        blocks.append(Block(rng.normal(size=(n, p)), np.sign(y) if isinstance(noise, Probit) else y, noise))
    return blocks


def function_terms(M):
    """A common function with W = 1, and an own one."""
    common = ConstantKernel(1.3) * RBF(0.9) + DotProduct(0.4)
    own = ConstantKernel(0.4) * RBF([0.7, 1.1]) + ConstantKernel(0.2)
    return [Term(common, np.ones((M, 1)), np.zeros(M)), Term(own, np.zeros((M, 0)), np.ones(M))]


def coregion_terms(M, rng):
    """A linear model of coregionalisation: ranks 2 and 1."""
    return [
        Term(RBF(0.8), rng.normal(size=(M, 2)), rng.uniform(0.1, 0.5, M)),
        Term(Matern(1.5, nu=1.5), rng.normal(size=(M, 1)), rng.uniform(0.1, 0.5, M)),
    ]


def dense_cov(terms, X, codes, X2=None, codes2=None):
    """cov(f_t(x), f_t'(x')) = sum of B[t, t'] k(x, x'), entry by entry of the definition."""
    X2, codes2 = (X, codes) if X2 is None else (X2, codes2)
    return sum(q.between()[np.ix_(codes, codes2)] * q.kernel(X, X2) for q in terms)


def all_rows(blocks):
    """X, y and task codes of all blocks."""
    codes = np.repeat(np.arange(len(blocks)), [len(b) for b in blocks])
    return np.vstack([b.X for b in blocks]), np.concatenate([b.y for b in blocks]), codes


def make(name, M, rng):
    """The terms of a coupling."""
    return function_terms(M) if name == "function" else coregion_terms(M, rng)


@pytest.mark.parametrize("name", ["function", "coregion"])
def test_all_rows_in_the_basis_is_the_dense_gp(name):
    """With every row in the basis, evidence, mean and covariance are those of the dense multi-task GP.

    Covariances between tasks go through the basis, so they are compared at its points.
    """
    rng = np.random.default_rng(0)
    blocks, terms = problem(rng), make(name, len(SIZES), rng)
    X, y, codes = all_rows(blocks)
    C = dense_cov(terms, X, codes) + 0.3 * np.eye(len(X))
    posterior = fit_coupled(terms, blocks, X)
    expected = multivariate_normal(np.zeros(len(y)), C).logpdf(y)
    assert_allclose(posterior.log_evidence, expected, rtol=1e-6)
    X_new = np.vstack([rng.normal(size=(12, 2)), X[:8]])
    new = np.arange(20) % len(SIZES)
    K_star = dense_cov(terms, X_new, new, X, codes)
    cov = dense_cov(terms, X_new, new) - K_star @ np.linalg.solve(C, K_star.T)
    mean, got = predict_coupled_cov(posterior, X_new, new)
    assert_allclose(mean, K_star @ np.linalg.solve(C, y), atol=1e-5)
    comparable = new[:, None] == new
    comparable[12:, 12:] = True
    assert_allclose(got[comparable], cov[comparable], atol=1e-5)
    for t in range(len(SIZES)):
        rows = new == t
        m, v = predict_coupled(posterior, t, X_new[rows])
        assert_allclose(m, mean[rows], atol=1e-10)
        assert_allclose(v, np.diagonal(got)[rows], atol=1e-10)


@pytest.mark.parametrize("name", ["function", "coregion"])
def test_small_basis_is_the_block_prior(name):
    """With few basis points: exact inside tasks, Nystroem between them, as one dense matrix."""
    rng = np.random.default_rng(1)
    blocks, terms = problem(rng), make(name, len(SIZES), rng)
    X, y, codes = all_rows(blocks)
    Z = X[::5]
    exact, low = dense_cov(terms, X, codes), np.zeros((len(X), len(X)))
    for q in terms:
        K_zn, K_zz = q.kernel(Z, X), q.kernel(Z)
        shared = q.loadings @ q.loadings.T
        low += shared[np.ix_(codes, codes)] * (K_zn.T @ np.linalg.solve(K_zz, K_zn))
    C = np.where(codes[:, None] == codes, exact, low) + 0.3 * np.eye(len(X))
    expected = multivariate_normal(np.zeros(len(y)), C).logpdf(y)
    assert_allclose(fit_coupled(terms, blocks, Z).log_evidence, expected, rtol=1e-6)


@pytest.mark.parametrize("noise", [Gaussian(0.3), Probit(0.2)], ids=repr)
@pytest.mark.parametrize("name", ["function", "coregion"])
def test_gradient_is_that_of_finite_differences(name, noise):
    """d evidence in kernel parameters, loadings, own weights and noise, by central differences."""
    rng = np.random.default_rng(2)
    M = len(SIZES)
    blocks, terms = problem(rng, noise=noise), make(name, M, rng)
    if name == "function":
        terms[1] = Term(terms[1].kernel + WhiteKernel(0.1), terms[1].loadings, terms[1].own)
    Z = all_rows(blocks)[0][::4]
    learnt = "variance" if isinstance(noise, Gaussian) else "bias"

    def at(z):
        parts, i = [], 0
        for q in terms:
            n = q.kernel.n_dims
            kernel = q.kernel.clone_with_theta(z[i : i + n])
            W = z[i + n : i + n + q.loadings.size].reshape(q.loadings.shape)
            i += n + q.loadings.size
            parts.append(Term(kernel, W, z[i : i + M]))
            i += M
        filled = [t for t in range(M) if SIZES[t]]
        model = type(noise)(**{**noise.parameters, learnt: z[-1]})
        rows = stack_rows([Block(blocks[t].X, blocks[t].y, model) for t in filled], np.array(filled))
        return CoupledPrior(parts, rows, Z)

    z = np.concatenate(
        [np.concatenate([q.kernel.theta, q.loadings.ravel(), q.own + 0.05]) for q in terms]
        + [[getattr(noise, learnt)]]
    )
    prior = at(z)
    settled = settle(prior, tol=1e-12)
    grad = evidence_gradient(prior, settled)
    got = np.concatenate(
        [
            np.concatenate([t, w.ravel(), o])
            for t, w, o in zip(grad.theta, grad.loadings, grad.own, strict=True)
        ]
        + [[np.sum(grad.noise[learnt])]]
    )
    step, expected = 1e-5, np.empty(len(z))
    for i in range(len(z)):
        e = np.zeros(len(z))
        e[i] = step
        up, down = (settle(at(z + s * e), tol=1e-12).evidence for s in (1, -1))
        expected[i] = (up - down) / (2 * step)
    assert_allclose(got, expected, atol=2e-5, rtol=1e-4)


def test_added_task_knows_what_a_new_fit_would():
    """A task added later predicts as if all tasks had been conditioned together; the others do not move."""
    rng = np.random.default_rng(3)
    blocks, terms = problem(rng), function_terms(len(SIZES))
    X = all_rows(blocks)[0]
    together = fit_coupled(terms, blocks, X)
    first = [Term(q.kernel, q.loadings[:-1], q.own[:-1]) for q in terms]
    before = fit_coupled(first, blocks[:-1], X)
    after = add_block(before, terms, blocks[-1])
    X_new = rng.normal(size=(7, 2))
    for got, expected in zip(
        predict_coupled(after, 4, X_new), predict_coupled(together, 4, X_new), strict=True
    ):
        assert_allclose(got, expected, atol=1e-8)
    assert_allclose(predict_coupled(after, 1, X_new), predict_coupled(before, 1, X_new), atol=0)
    assert_allclose(after.log_evidence, together.log_evidence, rtol=1e-8)


@pytest.mark.parametrize("noise", [Gaussian(0.3), Probit(0.2)], ids=repr)
def test_stacks_that_are_made_again_change_nothing(noise, monkeypatch):
    """Of many rows neither stacks nor features are kept: evidence, gradient and predictions are the same."""
    rng = np.random.default_rng(4)
    blocks, terms = problem(rng, noise=noise), coregion_terms(len(SIZES), rng)
    Z, X_new = all_rows(blocks)[0][::4], rng.normal(size=(5, 2))
    filled = [t for t in range(len(SIZES)) if SIZES[t]]

    def everything():
        prior = CoupledPrior(terms, stack_rows([blocks[t] for t in filled], np.array(filled)), Z)
        gradient = evidence_gradient(prior, settle(prior))
        posterior = fit_coupled(terms, blocks, Z)
        predicted = [predict_coupled(posterior, t, X_new) for t in range(len(SIZES))]
        return np.concatenate(gradient.theta), gradient.own[0], posterior.log_evidence, predicted

    kept = everything()
    monkeypatch.setattr(coupled, "_KEPT_ENTRIES", 0)
    monkeypatch.setattr(coupled, "_STACK_ROWS", 8)
    monkeypatch.setattr(coupled_posterior, "_KEPT_FEATURES", 0)
    for got, expected in zip(everything(), kept, strict=True):
        assert_allclose(got, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", ["function", "coregion"])
def test_variance_of_rows_whatever_their_sites_say(name):
    """Means and variances given sites are those of the dense posterior, from silent rows to sure ones."""
    rng = np.random.default_rng(3)
    blocks, terms = problem(rng), make(name, len(SIZES), rng)
    X, _, codes = all_rows(blocks)
    filled = [t for t, n in enumerate(SIZES) if n]
    prior = CoupledPrior(terms, stack_rows([blocks[t] for t in filled], np.array(filled)), X)
    precision = np.resize([0.0, 1e-13, 1e-8, 1e-6, 1e-3, 1.0, 1e4], len(X))
    shift = precision * rng.normal(size=len(X))
    q = condition(prior, RowSites(precision, shift))
    K = dense_cov(terms, X, codes)
    cov = np.linalg.solve(np.eye(len(X)) + K * precision, K)
    assert_allclose(q.mean, cov @ shift, rtol=1e-5, atol=1e-5)
    assert_allclose(posterior_var(prior, q), np.diagonal(cov), rtol=2e-5)
    silent = condition(prior, RowSites(np.zeros(len(X)), np.zeros(len(X))))
    assert_allclose(posterior_var(prior, silent), np.diagonal(K), rtol=2e-5)
