"""The latent-space objective and its parts: gradients by finite differences, limits, and twins."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from gleangp.inference.block import Block
from gleangp.inference.posterior import filter_in_order
from gleangp.kernels.evaluate import MovingKernel
from gleangp.models.latent.space import (
    LatentObjective,
    Weighted,
    fit_shared_kernel,
    observe,
    start_perceptron,
    start_positions,
)
from gleangp.models.latent.terms import (
    CollapsedTerm,
    GaussianTerm,
    SignsTerm,
    row_objective,
    search_positions,
)
from gleangp.models.parameters import Parameters
from gleangp.models.priors import LogNormal
from gleangp.noise import Probit
from tests.differences import central
from tests.unit.sequential_ep import propagate

SMOOTH = ConstantKernel(1.3) * RBF([0.9, 1.4]) + ConstantKernel(0.4)
NOISY = SMOOTH + WhiteKernel(0.2)
ROUGH = ConstantKernel(0.8) * Matern(1.1, nu=2.5) + WhiteKernel(0.1)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def positions(rng):
    return rng.normal(size=(14, 2))


def at_theta(kernel, theta):
    return kernel.clone_with_theta(theta)


def check_gradients(term, kernel, positions, tolerance):
    """Compare the gradients in theta and in the positions with those of the value; gives the latter."""
    _, theta_grad, X_grad = term(kernel, positions)
    by_theta = central(lambda t: term(at_theta(kernel, t), positions)[0], kernel.theta)
    assert_allclose(theta_grad, by_theta, rtol=tolerance, atol=tolerance)
    by_X = central(lambda X: term(kernel, X)[0], positions)
    assert_allclose(X_grad, by_X, rtol=tolerance, atol=tolerance)
    return X_grad


def label_terms(rng, n=14):
    rows = np.array([0, 3, 4, 5, 8, 9, 12, 13])
    signs = np.where(rng.normal(size=(len(rows), 2)) > 0, 1.0, -1.0)
    signs[0], signs[1] = 1.0, -1.0
    return {
        "observations": (GaussianTerm(rng.normal(size=(n, 3)), np.arange(n)), NOISY),
        "least squares": (GaussianTerm(signs, rows), ROUGH),
        "probit": (SignsTerm(signs, rows, rows), SMOOTH),
    }


@pytest.mark.parametrize("name", ["observations", "least squares", "probit"])
def test_term_gradients(name, rng, positions):
    """Gradients in theta and in all positions are those of the value; rows of other tasks have none."""
    term, kernel = label_terms(rng)[name]
    # expectation propagation ends when its evidence has settled to 1e-10
    X_grad = check_gradients(term, kernel, positions, 2e-4 if name == "probit" else 1e-7)
    others = np.setdiff1d(np.arange(len(positions)), term.rows)
    assert (X_grad[others] == 0.0).all()


def test_gaussian_term_is_the_joint_density(rng, positions):
    """Minus log N(vec T | 0, I x K): eq. 4 of the paper, from the definition."""
    T = rng.normal(size=(14, 3))
    value, _, _ = GaussianTerm(T, np.arange(14))(NOISY, positions)
    K = np.kron(np.eye(3), NOISY(positions))
    t = T.T.ravel()
    expected = 0.5 * (t @ np.linalg.solve(K, t) + np.linalg.slogdet(2 * np.pi * K)[1])
    assert_allclose(value, expected, rtol=1e-12)


def test_propagation_over_all_rows_agrees_with_site_by_site(rng, positions):
    """Moving all sites at once ends where revisiting them one by one does."""
    signs = np.where(positions[:, 0] + 0.5 * rng.normal(size=14) > 0, 1.0, -1.0)
    block = Block(positions, signs, Probit())
    term = SignsTerm(signs[:, None], np.arange(14), np.arange(14))
    slow = propagate(SMOOTH, block, filter_in_order(SMOOTH, block))
    assert slow.converged
    assert_allclose(-term(SMOOTH, positions)[0], slow.log_evidence, rtol=1e-5)
    K, X = SMOOTH(positions), rng.normal(size=(5, 2))
    mean = SMOOTH(X, positions) @ np.linalg.solve(K + np.diag(1.0 / slow.sites.precision), slow.sites.mean)
    assert_allclose(term.fit_map(SMOOTH, positions).predict(X)[0][:, 0], mean, rtol=1e-4, atol=1e-5)


def test_dense_propagation_survives_certain_labels():
    """Labels far on their own side have sites of nearly no precision, and nothing overflows."""
    X = np.linspace(-4.0, 4.0, 30)[:, None]
    kernel = ConstantKernel(1e3) * RBF(2.0)
    term = SignsTerm(np.sign(X), np.arange(30), np.arange(30))
    for found in term(kernel, X):
        assert np.isfinite(found).all()
    mean, var = term.fit_map(kernel, X).predict(X)
    assert np.isfinite(var).all()
    assert np.array_equal(np.sign(mean), np.sign(X))


def objective(rng, *layout):
    """Three mappings, one of which has a weight and one a prior."""
    terms = label_terms(rng)
    priors = {"k1__k1__constant_value": LogNormal(1.0, 2.0), "k1__k2__length_scale": LogNormal(1.0, 0.7)}
    parts = [
        Weighted(terms["observations"][0], Parameters(NOISY, None)),
        Weighted(terms["least squares"][0], Parameters(ROUGH, None), 3.0),
        Weighted(terms["least squares"][0], Parameters(NOISY, None, (), priors)),
    ]
    return LatentObjective(*layout, parts)


@pytest.mark.parametrize("constrained", [True, False])
def test_objective_gradient(constrained, rng, positions):
    """Value and gradient agree in every entry: weights or positions, and the theta of all mappings."""
    inputs = rng.normal(size=(14, 4))
    perceptron = start_perceptron(inputs, positions, 3, rng) if constrained else None
    function = objective(rng, positions, perceptron, inputs, 0.7)
    z = function.slots.start
    value, gradient = function(z)
    assert np.isfinite(value)
    assert len(gradient) == len(z) == len(function.slots.bounds)
    assert_allclose(gradient, central(lambda x: function(x)[0], z), rtol=1e-6, atol=1e-6)


def test_back_constraint_interpolates_its_start(rng):
    """With more hidden units than rows the output layer reaches the positions it is given."""
    inputs, wanted = rng.normal(size=(12, 3)), rng.normal(size=(12, 2))
    perceptron = start_perceptron(inputs, wanted, 200, rng)
    assert_allclose(perceptron(inputs), wanted, atol=0.05)
    again = perceptron.unpack(perceptron.pack())
    assert_allclose(again(inputs), perceptron(inputs), rtol=1e-14)


def test_start_positions_tell_labels_apart(rng):
    """The first positions are discriminants of the labels, then leading components, all of unit variance."""
    inputs = rng.normal(size=(60, 5)) * [3.0, 1.0, 1.0, 1.0, 1.0]
    z = np.sign(inputs[:, 3:4])
    X = start_positions(inputs, [GaussianTerm(z, np.arange(60))], 2)
    assert_allclose(X.std(axis=0), 1.0)
    assert abs(np.corrcoef(X[:, 0], z[:, 0])[0, 1]) > 0.7
    assert abs(np.corrcoef(X[:, 1], inputs[:, 0])[0, 1]) > 0.99
    many = [GaussianTerm(np.sign(inputs[:, k : k + 1]), np.arange(60)) for k in range(5)]
    assert start_positions(inputs, many, 3).shape == (60, 3)
    assert start_positions(inputs, [], 2).shape == (60, 2)


def test_observations_round_trip(rng):
    """With all components kept features come back; the left-out variance is what is missing otherwise."""
    X = rng.normal(size=(40, 6)) @ rng.normal(size=(6, 6)) + 5.0
    X[:, 2] = 3.0  # a constant feature
    whole = observe(X, 20)
    assert whole.components.shape[1] == 5
    assert_allclose(whole.restore(whole.scores(X)), X, atol=1e-10)
    assert_allclose(whole.left_out, 0.0, atol=1e-10)
    part = observe(X, 2)
    missing = np.mean((part.restore(part.scores(X)) - X) ** 2, axis=0)
    assert_allclose(part.left_out, missing, atol=1e-10)
    assert_allclose(part.scores(X)[:, 0].std(), part.leading, rtol=1e-10)
    wide = observe(X.T, 3)  # fewer rows than features
    assert_allclose(wide.components.T @ wide.components, np.eye(3), atol=1e-12)


def test_search_gradient(rng, positions):
    """Each row's own gradient is that of its own value."""
    T = np.column_stack([np.sin(positions[:, 0]), positions[:, 1], rng.normal(size=14)])
    mapping = GaussianTerm(T, np.arange(14)).fit_map(NOISY, positions)
    X = rng.normal(size=(3, 2))
    _, gradient = row_objective(mapping, T[:3], X)
    by_X = central(lambda x: row_objective(mapping, T[:3], x)[0].sum(), X)
    assert_allclose(gradient, by_X, rtol=1e-6, atol=1e-7)


def test_search_ends_at_a_minimum_and_rows_are_independent(rng):
    """The gradient vanishes at the positions found, which do not depend on the other rows searched."""
    known = rng.uniform(-2, 2, size=(60, 2))
    T = np.column_stack([known[:, 0], known[:, 1], np.sin(2 * known[:, 0])])
    mapping = GaussianTerm(T, np.arange(60)).fit_map(NOISY, known)
    new = rng.uniform(-1.5, 1.5, size=(10, 2))
    scores = np.column_stack([new[:, 0], new[:, 1], np.sin(2 * new[:, 0])])
    found = search_positions(mapping, scores, T, known)
    value, gradient = row_objective(mapping, scores, found)
    assert np.abs(gradient).max() < 1e-3 * (1.0 + np.abs(value).max())
    assert_allclose(found, new, atol=0.5)
    alone = search_positions(mapping, scores[4:5], T, known)
    assert_allclose(alone[0], found[4], atol=1e-6)


def test_a_kernel_at_fixed_positions_improves_the_evidence(rng, positions):
    """The value falls and its gradient vanishes."""
    term = GaussianTerm(np.sign(positions[:, :1]), np.arange(14))
    start = Parameters(NOISY, None, (), {h.name: LogNormal(1.0, 2.0) for h in NOISY.hyperparameters})
    fitted = replace(start, kernel=fit_shared_kernel([(term, positions)], start))

    def penalised(parameters):
        value, gradient, _ = term(parameters.kernel, positions)
        log_prior, prior_gradient = start.slots.log_prior(parameters.slots.start)
        return value - log_prior, gradient - prior_gradient

    assert penalised(fitted)[0] < penalised(start)[0]
    assert np.abs(penalised(fitted)[1]).max() < 0.02


def sparse_terms(rng, basis):
    rows = np.array([0, 3, 4, 5, 8, 9, 12, 13])
    signs = np.where(rng.normal(size=(len(rows), 2)) > 0, 1.0, -1.0)
    everywhere = np.arange(14)
    T = rng.normal(size=(14, 3))
    return {
        "observations": (CollapsedTerm(T, everywhere, basis), GaussianTerm(T, everywhere), NOISY),
        "least squares": (CollapsedTerm(signs, rows, basis), GaussianTerm(signs, rows), ROUGH),
        "probit": (SignsTerm(signs, rows, basis), None, SMOOTH),
    }


@pytest.mark.parametrize("name", ["observations", "least squares", "probit"])
def test_sparse_term_gradients(name, rng, positions):
    """Basis points move with the positions: the gradient counts them as rows and as basis."""
    term, _, kernel = sparse_terms(rng, np.array([1, 4, 7, 9, 12]))[name]
    check_gradients(term, kernel, positions, 1e-3 if name == "probit" else 1e-6)


@pytest.mark.parametrize("name", ["observations", "least squares"])
def test_sparse_term_with_all_rows_is_the_dense_one(name, rng, positions):
    """With every row in the basis: value, gradients, and predictions, up to the nugget."""
    sparse, dense, kernel = sparse_terms(rng, np.arange(14))[name]
    for ours, theirs in zip(sparse(kernel, positions), dense(kernel, positions), strict=True):
        assert_allclose(ours, theirs, rtol=2e-4, atol=2e-4)
    X = rng.normal(size=(6, 2))
    for ours, theirs in zip(
        sparse.fit_map(kernel, positions).predict(X), dense.fit_map(kernel, positions).predict(X), strict=True
    ):
        assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["observations", "least squares"])
def test_sparse_term_is_a_bound_that_grows_with_the_basis(name, rng, positions):
    """The collapsed bound never exceeds the evidence, and a larger basis never lowers it."""
    targets = sparse_terms(rng, np.arange(14))[name][0]
    kernel = NOISY
    dense = GaussianTerm(targets.targets, targets.rows)(kernel, positions)[0]
    values = [
        CollapsedTerm(targets.targets, targets.rows, np.arange(d))(kernel, positions)[0]
        for d in (1, 3, 6, 10, 14)
    ]
    assert np.all(np.diff(values) <= 1e-4)
    assert values[-1] >= dense - 1e-3


@pytest.mark.parametrize("kernel", [NOISY, ROUGH, SMOOTH, ConstantKernel(2.0, "fixed") * RBF(0.5)], ids=str)
def test_moving_kernel_is_at_theta(kernel, rng, positions):
    """Moved by its attributes, a kernel is what scikit-learn makes of the same theta; the original stays."""
    before = kernel.theta.copy()
    moving = MovingKernel(kernel)
    for _ in range(2):
        theta = before + 0.3 * rng.normal(size=before.shape)
        moved = moving.at(theta)
        assert_allclose(moved.theta, theta, rtol=1e-12, atol=1e-14)
        assert_allclose(moved(positions), kernel.clone_with_theta(theta)(positions), rtol=1e-12)
    assert_array_equal(kernel.theta, before)
