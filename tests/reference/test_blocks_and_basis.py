"""The engine of blocks and a basis against dense twins: limits, evidence, gradients, predictions."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from gleangp.inference import joint, local
from gleangp.inference.block import lay_out
from gleangp.inference.evidence import (
    condition,
    evidence_gradient,
    gaussian_evidence,
    row_inverse,
    row_variance,
)
from gleangp.inference.local import LocalPosterior
from gleangp.inference.prior import Basis, BlockPrior, Term, covariance
from gleangp.models.local.answers import left_out

N, P, M = 40, 2, 4
_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(N, P))
CODES = np.sort(np.where(np.arange(N) < 18, 0, _RNG.integers(0, M, N)))
Y = _RNG.normal(size=N)
VARIANCE = 0.3 * np.exp(0.3 * _RNG.normal(size=N))
THETA = np.array([0.1, 0.2, -0.3, -1.0]), np.array([-0.5, 0.4])
LOADINGS = _RNG.normal(1.0, 0.2, (M, 1)), _RNG.normal(size=(M, 2))
OWN = np.abs(_RNG.normal(size=M)), np.abs(_RNG.normal(size=M))
Z = X[_RNG.choice(N, 6, replace=False)] + 0.01
OWN_Z = _RNG.normal(size=(5, P))
NONE = np.zeros((0, P))
TASKS = [np.flatnonzero(CODES == t) for t in range(M)]
FIRST = TASKS[0]
LAYOUTS = {
    "one block": ([np.arange(N)], NONE, {}),
    "tasks": (TASKS, Z, {}),
    "no basis": (TASKS, NONE, {}),
    "a large task": ([FIRST[::2], FIRST[1::2], *TASKS[1:]], Z, {0: OWN_Z}),
}


def terms(theta=THETA, loadings=LOADINGS, own=OWN):
    """Two terms: one with a common function, one that is a mixture of two."""
    first = (ConstantKernel(1.0) * Matern([1.0, 1.0], nu=2.5) + ConstantKernel(0.3)).clone_with_theta(
        theta[0]
    )
    second = (ConstantKernel(0.5) * RBF(1.0)).clone_with_theta(theta[1])
    return [Term(first, loadings[0], own[0]), Term(second, loadings[1], own[1])]


def prior_of(name, X=X, Z=None, own_Z=None, **parts):
    """The prior of a layout, some of its parts replaced."""
    blocks, basis, own = LAYOUTS[name]
    own = {task: points if own_Z is None else own_Z for task, points in own.items()}
    return BlockPrior(terms(**parts), X, lay_out(CODES, blocks, own), basis if Z is None else Z)


def evidence_of(name, variance=VARIANCE, **parts):
    """Log evidence of Gaussian noise."""
    q = condition(prior_of(name, **parts), 1.0 / variance, Y / variance)
    return gaussian_evidence(q, 1.0 / variance)


def dense_covariance(name):
    """K within blocks; between blocks what the bases carry."""
    exact = sum(t.between(CODES, CODES) * t.kernel(X) for t in terms())
    blocks, basis, own = LAYOUTS[name]
    block_of = np.empty(N, dtype=int)
    for k, rows in enumerate(blocks):
        block_of[rows] = k
    carried = np.zeros((N, N))
    for term in terms():
        if len(basis):
            Phi = Basis(term.kernel, basis).features(X)[1]
            shared = term.loadings @ term.loadings.T
            carried += shared[np.ix_(CODES, CODES)] * (Phi @ Phi.T)
        for task, points in own.items():
            Phi = Basis(term.kernel, points).features(X)[1]
            same = (CODES[:, None] == task) & (CODES[None, :] == task)
            carried += same * term.own[task] * (Phi @ Phi.T)
    return np.where(block_of[:, None] == block_of[None, :], exact, carried)


@pytest.mark.parametrize("name", LAYOUTS)
def test_evidence_is_that_of_the_dense_covariance(name):
    """log N(y | 0, F F^T + blockdiag(H) + noise), formed in full."""
    C = dense_covariance(name) + np.diag(VARIANCE)
    assert_allclose(evidence_of(name), multivariate_normal.logpdf(Y, np.zeros(N), C), rtol=1e-9)


@pytest.mark.parametrize("name", LAYOUTS)
def test_posterior_of_the_rows_is_the_dense_one(name):
    """Mean and variance of f at the rows, also where a site carries no information."""
    precision = 1.0 / VARIANCE
    precision[::7] = 0.0
    prior = prior_of(name)
    q = condition(prior, precision, precision * Y, also=row_variance)
    K, seen = dense_covariance(name), precision > 0.0
    inverse = np.linalg.inv(K[np.ix_(seen, seen)] + np.diag(VARIANCE[seen]))
    assert_allclose(q.mean, K[:, seen] @ inverse @ Y[seen], rtol=1e-7, atol=1e-9)
    var = np.diag(K - K[:, seen] @ inverse @ K[seen])
    assert_allclose(q.also, var, rtol=1e-6, atol=1e-9)


def test_limits():
    """Everything in the basis is the dense model; no basis is independent blocks; rows alone are FITC."""
    dense = evidence_of("one block")
    assert_allclose(evidence_of("tasks", Z=X), dense, rtol=1e-7)
    assert_allclose(evidence_of("a large task", Z=X, own_Z=X), dense, rtol=1e-7)
    apart = 0.0
    for task, rows in enumerate(TASKS):
        K = sum(t.within[task] * t.kernel(X[rows]) for t in terms())
        C = K + np.diag(VARIANCE[rows])
        apart += multivariate_normal.logpdf(Y[rows], np.zeros(len(rows)), C)
    assert_allclose(evidence_of("no basis"), apart, rtol=1e-9)
    kernel = ConstantKernel(2.0) * RBF(0.8)
    common = [Term(kernel, np.ones((1, 1)), np.zeros(1))]
    codes = np.zeros(N, dtype=int)
    prior = BlockPrior(common, X, lay_out(codes, [np.array([i]) for i in range(N)]), Z)
    q = condition(prior, 1.0 / VARIANCE, Y / VARIANCE)
    Phi = Basis(kernel, Z).features(X)[1]
    fitc = Phi @ Phi.T
    fitc[np.diag_indices(N)] = 2.0 + VARIANCE
    expected = multivariate_normal.logpdf(Y, np.zeros(N), fitc)
    assert_allclose(gaussian_evidence(q, 1.0 / VARIANCE), expected, rtol=1e-9)


def _moved(values, place, step):
    changed = [np.array(v, dtype=float) for v in values]
    changed[place[0]][place[1]] += step
    return tuple(changed)


@pytest.mark.parametrize("name", LAYOUTS)
def test_gradient_matches_central_differences(name):
    """In kernel parameters, loadings, own weights, noise, inputs and basis points."""
    prior = prior_of(name)
    q = condition(prior, 1.0 / VARIANCE, Y / VARIANCE, also=row_inverse)
    found, step = evidence_gradient(prior, q), 1e-6

    def difference(argument, values, place):
        up, down = _moved(values, place, step), _moved(values, place, -step)
        if argument in ("variance", "X", "Z", "own_Z"):
            up, down = up[0], down[0]
        return (evidence_of(name, **{argument: up}) - evidence_of(name, **{argument: down})) / (2.0 * step)

    def check(got, argument, values, place):
        assert_allclose(got, difference(argument, values, place), rtol=1e-5, atol=1e-6)

    for k, theta in enumerate(THETA):
        for i in range(len(theta)):
            check(found.theta[k][i], "theta", THETA, (k, i))
    for k in range(2):
        for t in range(M):
            check(found.own[k][t], "own", OWN, (k, t))
            check(found.loadings[k][t, -1], "loadings", LOADINGS, (k, (t, -1)))
    for i in range(0, N, 7):
        check(found.noise_variance[i], "variance", (VARIANCE,), (0, i))
        check(found.X[i, 1], "X", (X,), (0, (i, 1)))
    assert_allclose(0.5 * (q.alpha**2 - q.also), found.noise_variance, rtol=1e-9)
    if len(LAYOUTS[name][1]):
        check(found.Z[2, 0], "Z", (Z,), (0, (2, 0)))
    if LAYOUTS[name][2]:
        check(found.own_Z[0][1, 1], "own_Z", (OWN_Z,), (0, (1, 1)))


def posterior_for(name, together):
    """The posterior of a layout."""
    prior = prior_of(name)
    precision = 1.0 / VARIANCE
    q = condition(prior, precision, precision * Y, rows=False)
    own = {g.task: (g.Z, q.groups[k]) for k, g in enumerate(prior.layout.groups) if g.task is not None}
    return LocalPosterior(
        tuple(terms()), X, CODES, precision, Y, together, N, 17 if own else N, prior.Z, q.common, own, 0.0
    )


def test_predictions_are_exact_with_one_block():
    """Mean, variance and joint covariance of new rows of all tasks are those of the dense model."""
    rng = np.random.default_rng(3)
    new, codes = rng.normal(size=(9, P)), rng.integers(0, M, 9)
    posterior = posterior_for("one block", together=True)
    K = dense_covariance("one block") + np.diag(VARIANCE)
    cross = sum(t.between(codes, CODES) * t.kernel(new, X) for t in terms())
    prior = sum(t.between(codes, codes) * t.kernel(new) for t in terms())
    mean, cov = cross @ np.linalg.solve(K, Y), prior - cross @ np.linalg.solve(K, cross.T)
    got_mean, got_var, _ = posterior.predict(new, codes)
    assert_allclose(got_mean, mean, rtol=1e-8, atol=1e-10)
    assert_allclose(got_var, np.diag(cov), rtol=1e-8, atol=1e-10)
    joint_mean, joint = posterior.predict_cov(new, codes)
    assert_allclose(joint_mean, mean, rtol=1e-8, atol=1e-10)
    assert_allclose(joint, cov, rtol=1e-7, atol=1e-9)


def test_predictions_with_tasks_as_blocks():
    """A new row belongs to the block of its task: the dense twin has it there."""
    rng = np.random.default_rng(4)
    new, codes = rng.normal(size=(7, P)), rng.integers(0, M, 7)
    posterior = posterior_for("tasks", together=False)
    inputs, all_codes = np.vstack([X, new]), np.append(CODES, codes)
    exact = sum(t.between(all_codes, all_codes) * t.kernel(inputs) for t in terms())
    carried = np.zeros_like(exact)
    for term in terms():
        Phi = Basis(term.kernel, Z).features(inputs)[1]
        carried += (term.loadings @ term.loadings.T)[np.ix_(all_codes, all_codes)] * (Phi @ Phi.T)
    K = np.where(all_codes[:, None] == all_codes[None, :], exact, carried)
    C = K[:N, :N] + np.diag(VARIANCE)
    mean = K[N:, :N] @ np.linalg.solve(C, Y)
    cov = K[N:, N:] - K[N:, :N] @ np.linalg.solve(C, K[:N, N:])
    got_mean, got_var, _ = posterior.predict(new, codes)
    assert_allclose(got_mean, mean, rtol=1e-7, atol=1e-9)
    assert_allclose(got_var, np.diag(cov), rtol=1e-7, atol=1e-9)
    assert_allclose(posterior.predict_cov(new, codes)[1], cov, rtol=1e-6, atol=1e-8)


def posterior_of_full_basis():
    """Of a layout in which the first task has two blocks, and every row is a basis point."""
    blocks = [FIRST[::2], FIRST[1::2], *TASKS[1:]]
    prior = BlockPrior(terms(), X, lay_out(CODES, blocks, {0: X[FIRST]}), X)
    precision = 1.0 / VARIANCE
    common = condition(prior, precision, precision * Y, rows=False).common
    own = {0: (X[FIRST], None)}  # what is known of it follows from the rows
    return LocalPosterior(tuple(terms()), X, CODES, precision, Y, False, N, 17, prior.Z, common, own, 0.0)


def test_nearest_rows_with_all_rows_are_the_block():
    """A task with several blocks: with as many neighbours as it has rows, and a full basis, it is exact."""
    rng = np.random.default_rng(5)
    new, posterior = rng.normal(size=(6, P)), posterior_of_full_basis()
    codes = np.zeros(6, dtype=int)
    exact = posterior_for("one block", together=True)
    for got, expected in zip(posterior.predict(new, codes), exact.predict(new, codes), strict=True):
        assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_left_out_rows_are_those_of_the_exact_process():
    """With every row in the basis, leaving out a row is the closed form (Rasmussen & Williams, eq. 5.12)."""
    inverse = np.linalg.inv(dense_covariance("one block") + np.diag(VARIANCE))
    some, precision = FIRST[::3], np.diag(inverse)
    residual, var, _ = left_out(posterior_of_full_basis(), some, [1.0])
    assert_allclose(residual, (inverse @ Y / precision)[some], rtol=1e-4, atol=1e-6)
    assert_allclose(var, 1.0 / precision[some], rtol=1e-4)


def test_variances_follow_the_misfit_of_the_neighbourhood():
    """Variances, covariances and the noise have the factor of the definition, by a dense solve."""
    new, codes = np.random.default_rng(6).normal(size=(5, P)), np.zeros(5, dtype=int)
    plain = posterior_for("a large task", together=False)
    posterior = replace(plain, spread=0.7, usual_rows=3.0)
    F, (expected, _) = plain.features(X[FIRST], 0), plain.knowledge(0)
    H = dense_covariance("one block")[np.ix_(FIRST, FIRST)] - F @ F.T + np.diag(VARIANCE[FIRST])
    r = Y[FIRST] - F @ expected
    factor = 0.7 * (3.0 + r @ np.linalg.solve(H, r)) / (3.0 + len(FIRST))
    mean, var, factors = posterior.predict(new, codes)
    assert_allclose(factors, factor, rtol=1e-8)
    assert_allclose(var, factor * plain.predict(new, codes)[1], rtol=1e-8)
    assert_allclose(mean, plain.predict(new, codes)[0], rtol=1e-8)
    assert_allclose(
        posterior.predict_cov(new, codes)[1], factor * plain.predict_cov(new, codes)[1], rtol=1e-8
    )
    small = posterior.predict(new, np.full(5, 2))
    assert_allclose(small, plain.predict(new, np.full(5, 2)), rtol=1e-8)  # one block has no neighbourhoods


def test_a_joint_covariance_takes_one_product_for_tasks_with_the_same_neighbours(monkeypatch):
    """Not one for each pair of tasks, of which there can be many."""
    calls = []

    def counted(*args):
        calls.append(args)
        return covariance(*args)

    for module in (local, joint):
        monkeypatch.setattr(module, "covariance", counted)
    new, codes = np.random.default_rng(7).normal(size=(9, P)), np.arange(9) % M
    posterior_for("one block", together=True).predict_cov(new, codes)
    assert len(calls) == 3  # of the rows learnt from, with the new ones, and of these


def test_a_joint_covariance_in_parts_has_few_neighbours_at_a_time(monkeypatch):
    """Rows of a large task are cut until their neighbours fit; what the basis explains joins the parts."""
    rows = np.concatenate([FIRST[::2], TASKS[2][:3]])  # basis points: there is nothing that it leaves
    new, codes = X[rows], CODES[rows]
    posterior, sizes, solve = posterior_of_full_basis(), [], LocalPosterior._solve

    def measured(self, near, task, *, cache):
        sizes.append(near.shape)
        return solve(self, near, task, cache=cache)

    monkeypatch.setattr(LocalPosterior, "_solve", measured)
    monkeypatch.setattr(local, "N_NEAREST", 4)
    monkeypatch.setattr(joint, "CHUNK_ENTRIES", 9**2)
    _, cov = posterior.predict_cov(new, codes)
    assert len(sizes) > 3
    assert max(k for _, k in sizes) <= max(9, np.sum(CODES == 2))
    exact = posterior_for("one block", together=True).predict_cov(new, codes)[1]
    assert_allclose(cov, exact, rtol=1e-5, atol=1e-6)


def test_means_alone_take_one_product_with_a_vector(monkeypatch):
    """Products of the inverse factor with the covariance of every new row are for variances."""
    new, codes = np.random.default_rng(9).normal(size=(9, P)), np.arange(9) % M
    posterior = posterior_for("one block", together=True)
    expected = posterior.predict(new, codes)[0]
    monkeypatch.setattr(local.Solved, "whitened", None)
    assert_allclose(posterior.predict(new, codes, with_var=False)[0], expected, rtol=1e-12)


@pytest.mark.parametrize("with_var", [True, False])
def test_small_tasks_of_one_size_are_one_stack(monkeypatch, with_var):
    """Predictions of many tasks are those of each alone, in as many products as there are sizes."""
    of_row, precision = np.append(np.arange(36) % M, [0, 1, 0, 1]), 1.0 / VARIANCE  # 11, 11, 9 and 9 rows
    prior = BlockPrior(terms(), X, lay_out(of_row, [np.flatnonzero(of_row == t) for t in range(M)]), Z)
    common = condition(prior, precision, precision * Y, rows=False).common
    posterior = LocalPosterior(tuple(terms()), X, of_row, precision, Y, False, N, 30, Z, common, {}, 0.0)
    calls, solve = [], LocalPosterior._solve
    new = np.random.default_rng(10).normal(size=(3 * M, P))
    codes = np.tile(np.arange(M), 3)
    alone = [posterior.predict(new[codes == t], codes[codes == t], with_var=with_var) for t in range(M)]

    def counted(self, near, task, *, cache):
        calls.append(near.shape)
        return solve(self, near, task, cache=cache)

    monkeypatch.setattr(LocalPosterior, "_solve", counted)
    together = posterior.predict(new, codes, with_var=with_var)
    assert sorted(calls) == [(2, 9), (2, 11)]
    for task, found in enumerate(alone):
        for part, expected in zip(together[:2], found[:2], strict=True):
            if len(part):
                assert_allclose(part[codes == task], expected, rtol=1e-10)
