"""Classes that exclude each other on unlabelled rows: `inference.exclusive`."""

import itertools

import numpy as np
from numpy.testing import assert_allclose
from scipy.special import ndtr
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from gleangp.inference.block import Block, lay_out
from gleangp.inference.exclusive import exactly_one, settle_exclusive
from gleangp.inference.prior import BlockPrior, Term
from gleangp.inference.propagate import labelled_first, marginals_of, sweep_rows
from gleangp.noise import NullCategory

NOISES = [NullCategory(b, 0.6, g, variance=0.05) for b, g in ((-0.3, 0.6), (0.2, 0.5), (0.0, 0.7))]


def sides(mean, var, noise):
    """Probabilities below and above the null category."""
    scale = np.sqrt(var + noise.variance)
    centre = mean + noise.bias
    return ndtr(-(centre + 0.5 * noise.width) / scale), ndtr((centre - 0.5 * noise.width) / scale)


def enumerate_sides(mean, var, fixed=None):
    """Sum over all ways of being above or below with exactly one above; `fixed`: (class, side)."""
    total = 0.0
    for above in itertools.product((0, 1), repeat=3):
        if sum(above) != 1 or (fixed is not None and above[fixed[0]] != fixed[1]):
            continue
        terms = [sides(m, v, n)[a] for m, v, n, a in zip(mean, var, NOISES, above, strict=True)]
        if fixed is not None:
            terms[fixed[0]] = 1.0
        total += NOISES[above.index(1)].gamma_plus * np.prod(terms)
    return total


def test_what_the_others_say_is_a_sum_over_their_sides():
    """A / B and log Z equal brute force over which class has the row."""
    mean, var = np.array([0.4, -1.5, 0.1]), np.array([0.8, 0.3, 2.0])
    logs = np.array([n.log_sides(m, v) for n, m, v in zip(NOISES, mean, var, strict=True)])
    log_minus, log_plus = logs[:, :1], logs[:, 1:]
    odds, _, log_z = exactly_one(np.log([[n.gamma_plus] for n in NOISES]), log_minus, log_plus)
    for c in range(3):
        expected = enumerate_sides(mean, var, (c, 1)) / enumerate_sides(mean, var, (c, 0))
        assert_allclose(np.exp(odds[c, 0]), expected, rtol=1e-12)
    assert_allclose(log_z[0], np.log(enumerate_sides(mean, var)))


def prior_of(kernel, X):
    """The exact prior of one class."""
    terms = [Term(kernel, np.ones((1, 1)), np.zeros(1))]
    codes = np.zeros(len(X), dtype=int)
    return marginals_of(BlockPrior(terms, X, lay_out(codes, [np.arange(len(X))]), X[:0]))


def test_evidence_of_one_row_is_exact():
    """Of a single unlabelled row the parts sum to the log of the probability of exactly one class."""
    x, variances = np.zeros((1, 1)), (1.0, 2.0, 0.5)
    priors = [prior_of(ConstantKernel(v) * RBF(), x) for v in variances]
    found = settle_exclusive(priors, [Block(x, np.zeros(1), n) for n in NOISES], [None] * 3)
    expected = np.log(enumerate_sides(np.zeros(3), variances))
    assert_allclose(sum(evidence for _, evidence in found), expected, rtol=1e-6)


def test_without_unlabelled_rows_classes_are_apart():
    """All rows labelled: marginals are those of the classes alone, and the evidence counts labels once."""
    rng = np.random.default_rng(0)
    X, classes = rng.normal(size=(20, 2)), np.arange(20) % 3
    priors = [prior_of(ConstantKernel(v) * RBF(1.5), X) for v in (1.0, 2.0, 0.5)]
    blocks = [Block(X, np.where(classes == c, 1.0, -1.0), n) for c, n in enumerate(NOISES)]
    found = settle_exclusive(priors, blocks, [None] * 3)
    for prior, block, together in zip(priors, blocks, found, strict=True):
        alone = sweep_rows(block, prior)
        assert_allclose(together[0].marginals.mean, alone.marginals.mean, rtol=1e-4, atol=1e-4)
        assert_allclose(together[0].marginals.var, alone.marginals.var, rtol=1e-4, atol=1e-4)
        once = alone.evidence - np.sum(block.y < 0) * np.log1p(-block.noise.gamma_minus)
        assert_allclose(together[1], once, rtol=1e-5)


def test_rows_that_no_class_wants_find_one():
    """Arms with labels at the near end only: alone, no class reaches the far end; together one does."""
    rng = np.random.default_rng(1)
    n = 40
    angle = np.repeat([0.5, 2.6, 4.7], n)
    along = np.tile(np.linspace(1.0, 4.0, n), 3)
    X = along[:, None] * np.column_stack([np.cos(angle), np.sin(angle)]) + 0.1 * rng.normal(size=(3 * n, 2))
    classes = np.repeat([0, 1, 2], n)
    labelled = np.tile(np.arange(n) < 2, 3)
    prior = prior_of(ConstantKernel(4.0) * RBF(0.4), X)
    noise = NullCategory(-1.0, 0.95, 0.95, variance=0.01)
    blocks = [Block(X, np.where(labelled, np.where(classes == c, 1.0, -1.0), 0.0), noise) for c in range(3)]
    found = settle_exclusive([prior] * 3, blocks, [None] * 3)
    together = np.array([swept.marginals.mean - 1.0 for swept, _ in found])
    alone = np.array([sweep_rows(b, prior).marginals.mean - 1.0 for b in blocks])
    assert np.mean((alone > 0).sum(axis=0) == 1) < 0.5
    assert np.mean((together > 0).sum(axis=0) == 1) > 0.97
    assert np.mean(together.argmax(axis=0) != classes) < 0.02


def test_labelled_rows_settle_without_the_others():
    """The sites to start from are the same, whether the silent rows are in the way or not."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = np.where(np.arange(40) < 12, np.where(X[:, 0] > 0, 1.0, -1.0), 0.0)
    terms = [Term(RBF(1.0), np.ones((1, 1)), np.zeros(1))]

    def marginals(rows):
        layout = lay_out(np.zeros(len(rows), dtype=int), [np.arange(len(rows))])
        return marginals_of(BlockPrior(terms, X[rows], layout, X[:0]))

    block = Block(X, y, NullCategory(0.0, 0.7, 0.7, variance=0.01))
    whole = marginals(np.arange(40))
    slow, fast = labelled_first(block, whole, y != 0.0), labelled_first(block, whole, y != 0.0, marginals)
    assert_allclose(fast.precision, slow.precision, rtol=1e-6)
    assert_allclose(fast.shift, slow.shift, rtol=1e-6)
