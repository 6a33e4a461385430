"""Learning: rounds, restarts, bounds, warnings, and what sharing a kernel is worth."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, WhiteKernel

from gleangp import ScaledInputs, SparseGPClassifier, SparseGPRegressor
from gleangp.inference.block import Block
from gleangp.inference.posterior import filter_in_order
from gleangp.models.active.learn import ActiveEvidence, Learner, Settings, TaskBlocks
from gleangp.models.parameters import Parameters
from gleangp.noise import Gaussian, Probit
from gleangp.selection.selectors import EntropySelector, RandomSelector
from tests.unit.gp_twins import gaussian_log_evidence, make_block
from tests.unit.sequential_ep import propagate

KERNEL = ConstantKernel(1.0) * RBF([1.0, 1.0])


def learn(kernel, blocks, n_active, learn_noise=(), **settings):
    """The fit, and the best objective of every round."""
    rounds = {}

    def progress(stage, step, value):
        if stage.name.startswith("round") and step:
            rounds[stage.name] = max(value, rounds.get(stage.name, -np.inf))
        return False

    settings = Settings(EntropySelector(), n_active, progress=progress, **settings)
    parameters = Parameters(kernel, blocks[0].noise, learn_noise)
    learner = Learner(TaskBlocks(blocks), settings, np.random.default_rng(0))
    return learner.learn(parameters), list(rounds.values())


@pytest.mark.parametrize("noise", [Gaussian(0.1), Probit()], ids=repr)
def test_learning_raises_the_evidence(noise):
    """The evidence after learning is above that of the start; the best round is the one kept."""
    blocks = [make_block(noise, 40, seed) for seed in (0, 1)]
    fit, values = learn(KERNEL, blocks, 30)
    settings = Settings(EntropySelector(), 30)
    chosen = EntropySelector().select(KERNEL, blocks, 30, rng=np.random.default_rng(0))
    start = TaskBlocks(blocks).fit(KERNEL, chosen, settings)[2]
    assert max(values) > start
    assert fit.n_rounds == len(values) <= 5
    again, _ = learn(fit.parameters.kernel, blocks, 30, optimize=False)
    evidences = [
        TaskBlocks(blocks).at(f.parameters).fit(f.parameters.kernel, f.selection, settings)[2]
        for f in (again, fit)
    ]
    assert_allclose(*evidences, rtol=1e-4)
    assert_allclose(again.parameters.kernel.theta, fit.parameters.kernel.theta, rtol=1e-12)


@pytest.mark.parametrize(("noise", "free"), [(Gaussian(0.1), ()), (Probit(), ("bias",))], ids=repr)
def test_the_best_round_is_the_one_that_explains_all_rows_best(noise, free):
    """The sum of log Z of all rows, each judged by the others' points, never falls with more rounds."""
    gains = []
    for seed in range(4):
        blocks = [make_block(noise, 60, seed), make_block(noise, 50, seed + 10)]
        found = []
        for n_rounds in (1, 2, 3, 4):
            settings = {"n_rounds": n_rounds, "tol": 1e-9}
            fit, _ = learn(KERNEL, blocks, 20, free, **settings)
            tasks = TaskBlocks([Block(b.X, b.y, fit.parameters.noise) for b in blocks])
            at_end = fit.parameters.kernel, fit.selection
            posteriors = tasks.fit(*at_end, Settings(EntropySelector(), 20))[0]
            sum_log_z = tasks.noise_objective(*at_end, posteriors)
            found.append(sum_log_z(None, {})[0])
        assert all(later >= earlier - 1e-6 for earlier, later in pairwise(found))
        gains.append(found[-1] - found[0])
    assert max(gains) > 0.1  # rounds are worth something


def test_nothing_free_is_nothing_learnt():
    """Without an optimiser, or with everything fixed, parameters stay and no round is counted."""
    fixed = ConstantKernel(1.0, "fixed") * RBF(1.0, "fixed")
    blocks = [make_block(Gaussian(0.1), 20)]
    for kernel, optimize in ((KERNEL, False), (fixed, True)):
        fit, values = learn(kernel, blocks, 10, optimize=optimize)
        assert fit.n_rounds == 0
        assert values == []
        assert fit.converged
        assert_array_equal(fit.parameters.kernel.theta, kernel.theta)


def test_bounds_are_kept():
    """Learnt parameters are inside the kernel's bounds, and noise inside its own."""
    tight = ConstantKernel(1.0, (0.9, 1.1)) * RBF(1.0, (0.5, 0.6))
    block = make_block(Gaussian(0.1), 60)
    model = SparseGPRegressor(tight).fit(block.X, block.y)
    assert 0.9 - 1e-9 <= model.kernel_.k1.constant_value <= 1.1 + 1e-9
    assert 0.5 - 1e-9 <= model.kernel_.k2.length_scale <= 0.6 + 1e-9
    assert 1e-6 <= model.noise_.variance <= 1e3


def test_restarts_are_never_worse():
    """The best of several starts is at least as good as the first; the seed decides the others."""
    block = make_block(Gaussian(0.1), 40)
    start = ConstantKernel(1.0) * RBF(80.0)
    alone = SparseGPRegressor(start, random_state=0, priors={}).fit(block.X, block.y)
    more = [
        SparseGPRegressor(start, random_state=0, priors={}, n_restarts=4).fit(block.X, block.y)
        for _ in range(2)
    ]
    assert more[0].log_evidence_ >= alone.log_evidence_ - 1e-6
    assert_array_equal(more[0].kernel_.theta, more[1].kernel_.theta)


def test_not_converged_is_warned_about():
    """The warning has the last change and says what to do."""
    block = make_block(Gaussian(0.1), 120)
    kernel = ConstantKernel(1.0) * RBF([3.0, 3.0])
    model = SparseGPClassifier(kernel, n_active=50, n_rounds=2, posterior="active", learn_noise=False)
    with pytest.warns(ConvergenceWarning, match=r"stopped learning while .* changed by .*n_rounds"):
        model.fit(block.X, block.y > 0)


def test_jitter_is_warned_about():
    """A singular covariance is made regular by a jitter that is reported with its size."""
    block = make_block(Gaussian(0.1), 60)
    options = {"noise_variance": 1e-18, "optimizer": None, "normalize_y": False}
    with pytest.warns(RuntimeWarning, match="singular in floating point; .* was added to its diagonal"):
        SparseGPRegressor(RBF(1e3), **options).fit(block.X, block.y)


@pytest.mark.parametrize("sites", ["adf", "ep"])
def test_sites_of_the_classifier(sites):
    """ADF sites are those of filtering in order; EP sites are those it settles at, with its evidence."""
    block = make_block(Probit(), 30)
    model = SparseGPClassifier(
        KERNEL, n_active=12, posterior="active", sites=sites, optimizer=None, selector="entropy"
    ).fit(block.X, block.y)
    kept = Block(block.X, block.y, model.noise_).at(model.active_)
    expected = filter_in_order(KERNEL, kept)
    if sites == "ep":
        settled = propagate(KERNEL, kept, expected)
        expected = settled.sites
        assert_allclose(model.log_evidence_, settled.log_evidence, rtol=1e-8)
    assert_allclose(model.site_mean_, expected.mean, rtol=1e-6)
    assert_allclose(model.site_precision_, expected.precision, rtol=1e-6)


@pytest.mark.parametrize(
    "kernel",
    [
        KERNEL,
        KERNEL + WhiteKernel(0.2),
        ConstantKernel(0.5) * Matern(0.7, nu=1.5) + ConstantKernel(0.3),
        ConstantKernel(0.5) * DotProduct(0.4) + RBF(0.5),
        ScaledInputs(RBF(0.7) * DotProduct(0.4) + WhiteKernel(0.2), [0.5, 1.5]),
        ConstantKernel(0.5) * ScaledInputs(RBF([0.7, 0.9]), 0.8),
    ],
    ids=repr,
)
@pytest.mark.parametrize("per_row", [False, True])
def test_stacked_tasks_are_the_tasks_one_by_one(kernel, per_row):
    """Padding many small tasks to one array changes neither evidence nor gradients."""
    rng = np.random.default_rng(0)
    blocks = []
    for seed, n in enumerate([5, 9, 1, 7, 6, 5, 12, 2]):
        noise = Gaussian(rng.uniform(0.1, 1.0, n) if per_row else 0.3, bias=0.1)
        blocks.append(Block(*(lambda b: (b.X, b.y))(make_block(Gaussian(0.1), n, seed)), noise))
    value, theta_grad, grads = ActiveEvidence(blocks)(kernel, {})
    parts = [gaussian_log_evidence(kernel, b.X, b.y - 0.1, b.noise.variance) for b in blocks]
    assert_allclose(value, sum(p[0] for p in parts), rtol=1e-9)
    assert_allclose(theta_grad, np.sum([p[1] for p in parts], axis=0), rtol=1e-7, atol=1e-9)
    assert_allclose(np.sum(grads["variance"]), sum(p[2].sum() for p in parts), rtol=1e-8)


def many_tasks(n_tasks, n, seed=0):
    """Functions of one Gaussian process, with length scale 0.7 and noise 0.1 squared."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, size=(n_tasks * n, 1))
    codes = np.repeat(np.arange(n_tasks), n)
    f = np.empty(len(X))
    for t in range(n_tasks):
        K = RBF(0.7)(X[codes == t]) + 1e-9 * np.eye(n)
        f[codes == t] = np.linalg.cholesky(K) @ rng.normal(size=n)
    return X, f, f + 0.1 * rng.normal(size=len(f)), codes


@pytest.mark.slow
def test_a_shared_kernel_is_learnt_from_many_small_tasks():
    """Twenty tasks of ten rows tell the length scale and noise that one of them cannot."""
    X, f, y, codes = many_tasks(20, 40)
    seen = np.tile(np.arange(40) < 10, 20)
    start = ConstantKernel(1.0) * RBF(3.0)
    shared = SparseGPRegressor(start, coupling="kernel", normalize_y=False).fit(X[seen], y[seen], codes[seen])
    assert_allclose(shared.kernel_.k2.length_scale, 0.7, rtol=0.25)
    assert_allclose(np.sqrt(shared.noise_.variance), 0.1, rtol=0.6)
    error = np.mean((shared.predict(X[~seen], codes[~seen]) - f[~seen]) ** 2)
    own = []
    for t in range(20):
        mine = codes == t
        alone = SparseGPRegressor(start, normalize_y=False).fit(X[seen & mine], y[seen & mine])
        own.append((alone.predict(X[~seen & mine]) - f[~seen & mine]) ** 2)
    assert error < 0.9 * np.mean(own)


def test_random_selector_is_uniform():
    """Every row has the same chance, whichever task it is of."""
    blocks = [make_block(Gaussian(0.1), n, n) for n in (4, 12)]
    counts = np.zeros(16)
    for seed in range(800):
        selection = RandomSelector().select(KERNEL, blocks, 5, rng=np.random.default_rng(seed))
        counts[selection.active[0]] += 1
        counts[4 + selection.active[1]] += 1
    expected = 800 * 5 / 16
    assert np.all(np.abs(counts - expected) < 4.5 * np.sqrt(expected))
