"""The score test for covariance between tasks against its definition, and under independence."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from gleangp.inference.block import Block
from gleangp.inference.coupled import CoupledPrior, Term, settle, stack_rows
from gleangp.inference.relatedness import relatedness
from gleangp.noise import Gaussian, Probit

SIZES = [4, 7, 1, 6]
KERNEL = ConstantKernel(0.8) * RBF(0.7) + ConstantKernel(0.2)
VARIANCE = 0.1


def make(seed=0, sizes=SIZES):
    """Inputs, task of each row, and the covariances within tasks and between them."""
    rng = np.random.default_rng(seed)
    X, task = rng.normal(size=(sum(sizes), 2)), np.repeat(np.arange(len(sizes)), sizes)
    K, same = KERNEL(X), task[:, None] == task[None, :]
    return X, task, K * same + VARIANCE * np.eye(len(X)), K * ~same, rng


def related(X, task, y, noise):
    """The test of gleangp."""
    blocks = [Block(X[task == t], y[task == t], noise) for t in np.unique(task)]
    n_tasks = len(blocks)
    terms = [Term(KERNEL, np.zeros((n_tasks, 0)), np.ones(n_tasks))]
    prior = CoupledPrior(terms, stack_rows(blocks, np.arange(n_tasks)), X[:0], gradients=False)
    return relatedness(prior, settle(prior).q)


def test_common_is_the_slope_of_the_evidence_over_its_deviation():
    """d log N(y | 0, C + rho K_between) / d rho at 0, over the root of its Fisher information."""
    X, task, C, between, rng = make()
    y = rng.multivariate_normal(np.zeros(len(X)), C + 0.5 * between)

    def evidence(rho):
        return multivariate_normal.logpdf(y, np.zeros(len(y)), C + rho * between)

    slope = (evidence(1e-4) - evidence(-1e-4)) / 2e-4
    information = 0.5 * np.trace(np.linalg.solve(C, between) @ np.linalg.solve(C, between))
    assert_allclose(related(X, task, y, Gaussian(VARIANCE)).common, slope / np.sqrt(information), rtol=1e-6)


def test_pairs_follow_their_definition():
    """The sum over pairs of slope^2 / variance, less its mean and over its deviation."""
    X, task, C, between, rng = make(1)
    y = rng.normal(size=len(X))
    alpha, terms = np.linalg.solve(C, y), []
    for s in range(len(SIZES)):
        for t in range(s):
            rows_s, rows_t = np.flatnonzero(task == s), np.flatnonzero(task == t)
            K = between[np.ix_(rows_s, rows_t)]
            C_s, C_t = C[np.ix_(rows_s, rows_s)], C[np.ix_(rows_t, rows_t)]
            variance = np.trace(np.linalg.solve(C_s, K) @ np.linalg.solve(C_t, K.T))
            terms.append((alpha[rows_s] @ K @ alpha[rows_t]) ** 2 / variance)
    expected = (np.sum(terms) - len(terms)) / np.sqrt(2.0 * len(terms))
    assert_allclose(related(X, task, y, Gaussian(VARIANCE)).pairs, expected, rtol=1e-8)


def test_unit_deviation_for_independent_tasks_and_far_beyond_for_common_ones():
    """Mean 0 and deviation 1 where tasks share nothing; tens of deviations where they share everything."""
    X, task, C, between, rng = make(2, [8] * 10)
    noise = Gaussian(VARIANCE)
    independent = rng.multivariate_normal(np.zeros(len(X)), C, size=200)
    tests = [related(X, task, y, noise) for y in independent]
    common, pairs = [r.common for r in tests], [r.pairs for r in tests]
    assert abs(np.mean(common)) < 4.0 / np.sqrt(200)
    assert np.std(common) == pytest.approx(1.0, abs=0.2)
    assert abs(np.mean(pairs)) < 4.0 * np.std(pairs) / np.sqrt(200)
    same = rng.multivariate_normal(np.zeros(len(X)), C + between)
    assert related(X, task, same, noise).common > 5.0
    sign = np.where(task % 2, 1.0, -1.0)  # half of the tasks upside down: no common function, but pairs
    assert related(X, task, sign * same, noise).common < 2.5
    assert related(X, task, sign * same, noise).pairs > 5.0


def test_other_noise_and_rows_without_covariance():
    """Sites stand for targets with other noise; inputs infinitely far apart have nothing to say."""
    X, task, C, between, rng = make(3, [6] * 8)
    f = rng.multivariate_normal(np.zeros(len(X)), 20.0 * (C + between))
    assert related(X, task, np.sign(f), Probit()).common > 2.0
    far = X + 1e6 * task[:, None]
    blocks = [Block(far[task == t], f[task == t], Gaussian(VARIANCE)) for t in range(8)]
    terms = [Term(RBF(0.7), np.zeros((8, 0)), np.ones(8))]
    prior = CoupledPrior(terms, stack_rows(blocks, np.arange(8)), X[:0], gradients=False)
    result = relatedness(prior, settle(prior).q)
    assert (result.common, result.pairs) == (0.0, 0.0)
