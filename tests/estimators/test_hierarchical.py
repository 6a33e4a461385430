"""`HierarchicalGPRegressor`: scikit-learn's checks, its limits, its promises, bad input."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import KFold, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from gleangp import DifferenceOrder, HierarchicalGPRegressor, Order, load, save
from gleangp.exceptions import ConstraintError, KernelError, LabelError, TaskError
from gleangp.models.defaults import HIERARCHY
from gleangp.models.hierarchical.learn import mean_uncertainty
from gleangp.models.hierarchical.task import RowsOfTasks, task_posterior
from tests.estimators.learning_checks import checks_of_what_learns
from tests.two_fits import assert_same_answers

C = ConstantKernel


@parametrize_with_checks([HierarchicalGPRegressor(optimizer=None)])
def test_estimator_checks(estimator, check):
    """scikit-learn's checks pass."""
    check(estimator)


@pytest.mark.slow
@checks_of_what_learns(HierarchicalGPRegressor())
def test_estimator_checks_of_what_learns(estimator, check):
    """They pass with learning too."""
    check(estimator)


def make_tasks(n_tasks=6, n=12, seed=0, noise=0.1, length=1.0):
    """Tasks drawn from one Gaussian process in one dimension."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 6, size=(n_tasks * n, 1))
    tasks = np.repeat(np.arange(n_tasks), n)
    f = np.empty(len(X))
    for t in range(n_tasks):
        rows = tasks == t
        f[rows] = rng.multivariate_normal(np.zeros(n), RBF(length)(X[rows]) + 1e-10 * np.eye(n))
    return X, f + noise * rng.normal(size=len(X)), tasks, f


def unlabel(y, tasks, keep, seed=0):
    """All but `keep` targets of each task set to NaN."""
    rng = np.random.default_rng(seed)
    y = y.copy()
    for t in np.unique(tasks):
        rows = np.flatnonzero(tasks == t)
        y[rng.permutation(rows)[keep:]] = np.nan
    return y


def test_fixed_kernel_is_the_exact_process():
    """With nothing learnt, every task is scikit-learn's Gaussian process on its own rows."""
    X, y, tasks, _ = make_tasks()
    kernel = C(1.3) * RBF(0.8)
    model = HierarchicalGPRegressor(
        kernel, optimizer=None, noise_variance=0.05, normalize_X=False, normalize_y=False
    ).fit(X, y, tasks=tasks)
    new = np.linspace(0, 6, 9)[:, None]
    for t in range(6):
        exact = GaussianProcessRegressor(kernel, alpha=0.05, optimizer=None).fit(X[tasks == t], y[tasks == t])
        mean, std = model.predict(new, tasks=np.full(9, t), return_std=True)
        exact_mean, exact_std = exact.predict(new, return_std=True)
        assert_allclose(mean, exact_mean, atol=1e-9)
        assert_allclose(std, exact_std, atol=1e-8)


@pytest.mark.slow
def test_white_kernel_is_noise_of_the_task():
    """A WhiteKernel gives each task its own noise, and there is no other to speak of."""
    X, y, tasks, _ = make_tasks()
    y = y + np.where(tasks == 0, 0.5, 0.0) * np.random.default_rng(0).normal(size=len(y))
    model = HierarchicalGPRegressor(C(1.0) * RBF(1.0) + WhiteKernel(0.1)).fit(X, y, tasks=tasks)
    assert model.noise_variance_ == pytest.approx(1e-6)
    levels = [model.kernels_[t].k2.noise_level for t in range(6)]
    assert levels[0] > 2 * max(levels[1:])


def test_noise_of_each_task():
    """Noise 100 times apart is found, also of a new task; intervals of both ends cover as they should."""
    rng = np.random.default_rng(0)
    deviation = np.geomspace(0.01, 1.0, 12)
    X, tasks = rng.uniform(0, 6, size=(12 * 30, 1)), np.repeat(np.arange(12), 30)
    y = np.sin(X[:, 0] + tasks) + deviation[tasks] * rng.normal(size=len(X))
    train = np.arange(len(X)) % 30 < 15
    model = HierarchicalGPRegressor().fit(X[train], y[train], tasks=tasks[train])
    learnt = np.sqrt([model.noise_variances_[t] for t in range(12)]) * model._units.scale
    assert np.corrcoef(np.log(learnt), np.log(deviation))[0, 1] > 0.9
    low, high = model.predict_interval(X[~train], tasks=tasks[~train]).T
    inside = (low <= y[~train]) & (y[~train] <= high)
    for third in (slice(0, 60), slice(60, 120), slice(120, 180)):  # quiet tasks first
        assert 0.88 <= inside[third].mean() <= 1.0
    for task, wanted in ((100, 0.02), (101, 0.7)):
        new = np.sin(X[:20, 0]) + wanted * rng.normal(size=20)
        model.add_task(X[:20], new, task)
    assert model.noise_variances_[101] > 20 * model.noise_variances_[100]


def test_given_prior_or_noise_is_shared_noise():
    """With `prior_cov` or `noise_variance` given, all tasks have one noise, as in the paper."""
    X, y, tasks, _ = make_tasks()
    y = y + np.where(tasks == 0, 0.5, 0.0) * np.random.default_rng(0).normal(size=len(y))
    for given in ({"prior_cov": 0.1}, {"noise_variance": 0.05}):
        model = HierarchicalGPRegressor(**given).fit(X, y, tasks=tasks).add_task(X[:5], y[:5], 9)
        assert_allclose(list(model.noise_variances_.values()), model.noise_variance_, rtol=0.1)
    own = HierarchicalGPRegressor().fit(X, y, tasks=tasks).noise_variances_
    assert own[0] > 2 * max(own[t] for t in range(1, 6))


def test_uncertainty_of_the_prior_mean():
    """Covariances of m and theta_i are those of the joint Gaussian of all of them; also with no spread."""
    rng = np.random.default_rng(0)
    M, q = 4, 3
    roots = rng.normal(size=(M, q, q))
    H = roots @ roots.swapaxes(1, 2)
    for S in (0.5 * np.eye(q) + 0.1, 1e-9 * np.eye(q)):
        prior = np.linalg.inv(S)
        joint = np.zeros((M + 1, q, M + 1, q))  # precision of m, theta_1, ...
        joint[0, :, 0] = M * prior + np.eye(q) / HIERARCHY.mean_spread**2
        for i in range(M):
            joint[i + 1, :, i + 1] = H[i] + prior
            joint[0, :, i + 1] = joint[i + 1, :, 0] = -prior
        expected = np.linalg.inv(joint.reshape((M + 1) * q, -1)).reshape(M + 1, q, M + 1, q)
        mean_cov, theta_cov = mean_uncertainty(H, np.linalg.inv(H + prior))
        assert_allclose(mean_cov, expected[0, :, 0], rtol=1e-5, atol=1e-7)
        for i in range(M):
            assert_allclose(theta_cov[i], expected[i + 1, :, i + 1], rtol=1e-5, atol=1e-7)


def test_a_new_task_of_constraints_alone():
    """As in `fit`, the order of its rows is enough to learn from; without one, a label is needed."""
    X, y, tasks, _ = make_tasks()
    model = HierarchicalGPRegressor().fit(X, y, tasks=tasks)
    new, unknown = np.linspace(X.min(), X.max(), 6)[:, None], np.full(6, np.nan)
    above = [Order(i + 1, i) for i in range(5)]
    found = model.add_task(new, unknown, 6, constraints=above).predict(new, tasks=[6] * 6)
    assert (np.diff(found) > 0.0).all()
    for none in (None, []):
        with pytest.raises(LabelError, match="y is NaN in all rows"):
            model.add_task(new, unknown, 7, constraints=none)


def test_intervals():
    """Quantiles are those of the normal with mean and deviation, noise included; bad levels are named."""
    X, y, tasks, _ = make_tasks(n_tasks=2)
    model = HierarchicalGPRegressor().fit(X, y, tasks=tasks)
    mean, std = model.predict(X, tasks=tasks, return_std=True, include_noise=True)
    assert_allclose(
        model.predict_interval(X, 0.9, tasks=tasks), norm.ppf([0.05, 0.95], mean[:, None], std[:, None])
    )
    expected = norm.logpdf(y[1:], mean[1:], std[1:]).mean()
    y[0] = np.nan
    assert_allclose(model.log_density(X, y, tasks=tasks), expected)
    with pytest.raises(ValueError, match=r"coverage=1\.5"):
        model.predict_interval(X, 1.5, tasks=tasks)
    with pytest.raises(ValueError, match="quantiles=0"):
        model.predict_quantiles(X, 0, tasks=tasks)


def test_no_prior_spread_is_a_shared_kernel():
    """prior_cov=0 gives all tasks one kernel, and a vanishing one the same in the limit."""
    X, y, tasks, _ = make_tasks()
    shared = HierarchicalGPRegressor(prior_cov=0.0).fit(X, y, tasks=tasks)
    nearly = HierarchicalGPRegressor(prior_cov=1e-8).fit(X, y, tasks=tasks)
    for t in range(6):
        assert_array_equal(shared.kernels_[t].theta, shared.prior_mean_)
        assert_allclose(nearly.kernels_[t].theta, shared.prior_mean_, atol=0.05)
    assert_allclose(nearly.log_evidence_, shared.log_evidence_, rtol=1e-4)
    assert_allclose(nearly.predict(X, tasks=tasks), shared.predict(X, tasks=tasks), atol=0.02)


@pytest.mark.parametrize("prior_cov", [1e4, 1e7])
def test_very_wide_prior_leaves_tasks_alone(prior_cov):
    """However large the number is, kernels stay within what their bounds allow: no overflow, no warning."""
    X, y, tasks, _ = make_tasks(n_tasks=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = HierarchicalGPRegressor(prior_cov=prior_cov).fit(X, y, tasks)
        widths = np.diff(model.predict_interval(X, tasks=tasks))
    usual = np.diff(HierarchicalGPRegressor(prior_cov=10.0).fit(X, y, tasks).predict_interval(X, tasks=tasks))
    assert np.median(widths) == pytest.approx(np.median(usual), rel=0.3)


def test_prior_of_a_kernel_without_parameters():
    """A prior of nothing is accepted."""
    X, y, tasks, _ = make_tasks(n_tasks=2)
    model = HierarchicalGPRegressor(C(1.0, "fixed") * RBF(1.0, "fixed"), prior_cov=1e6).fit(X, y, tasks)
    assert model.prior_cov_.shape == (0, 0)


@pytest.mark.parametrize("n_unlabelled", [0, 10])
@pytest.mark.parametrize("shuffled", [False, True])
def test_copies_of_rows_do_not_take_the_noise_away(n_unlabelled, shuffled):
    """A third of the rows is there twice, target included: the noise of their task stays; a new task too."""
    rng = np.random.default_rng(0)
    X, tasks = rng.normal(size=(60, 2)), np.tile(["a", "b", "c"], 20)
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=60)
    y[50 : 50 + n_unlabelled] = np.nan
    rows = rng.permutation(80) % 60 if shuffled else np.arange(80) % 60
    model = HierarchicalGPRegressor().fit(X[rows], y[rows], tasks[rows])
    again = np.flatnonzero(tasks == "a")[rng.permutation(28) % 20]
    model.add_task(X[again], y[again], "new")
    deviations = np.sqrt([*model.noise_variances_.values()]) * model._units.scale
    assert np.all((0.2 < deviations) & (deviations < 0.45))


def test_no_neighbours_is_supervised():
    """Without a graph, unlabelled rows change nothing: SSMTR is SMTR; without them there is no graph."""
    X, y, tasks, _ = make_tasks(n_tasks=3)
    part = unlabel(y, tasks, 6)
    labelled = ~np.isnan(part)
    supervised = HierarchicalGPRegressor(normalize_X=False)
    supervised.fit(X[labelled], y[labelled], tasks=tasks[labelled])
    ignoring = HierarchicalGPRegressor(normalize_X=False, n_neighbors=None).fit(X, part, tasks=tasks)
    using = HierarchicalGPRegressor(normalize_X=False).fit(X, part, tasks=tasks)
    assert_allclose(ignoring.predict(X, tasks=tasks), supervised.predict(X, tasks=tasks), rtol=1e-8)
    assert set(supervised.alpha_.values()) == {0.0}
    assert min(using.alpha_.values()) > 0.0
    assert np.max(np.abs(using.predict(X, tasks=tasks) - supervised.predict(X, tasks=tasks))) > 1e-3


def test_no_constraints_is_semi_supervised():
    """An empty list of constraints is no constraint, and one far away is nearly none."""
    X, y, tasks, _ = make_tasks(n_tasks=3)
    part = unlabel(y, tasks, 6)
    without = HierarchicalGPRegressor().fit(X, part, tasks=tasks)
    empty = HierarchicalGPRegressor().fit(X, part, tasks=tasks, constraints=[])
    assert_same_answers(empty.predict(X, tasks=tasks), without.predict(X, tasks=tasks))
    assert without.constraint_noise_ is None
    trivial = HierarchicalGPRegressor().fit(X, part, tasks=tasks, constraints=[Order(0, 1, margin=-50.0)])
    assert_allclose(trivial.predict(X, tasks=tasks), without.predict(X, tasks=tasks), atol=0.02)


def test_prior_is_learnt():
    """With many tasks, prior mean and spread of the length scale are near those tasks were drawn from."""
    rng = np.random.default_rng(0)
    n_tasks, n = 60, 15
    log_length = 0.2 + 0.4 * rng.normal(size=n_tasks)
    X = rng.uniform(0, 6, size=(n_tasks, n, 1))
    y = np.stack(
        [
            rng.multivariate_normal(np.zeros(n), RBF(np.exp(s))(x) + 0.01 * np.eye(n))
            for x, s in zip(X, log_length, strict=True)
        ]
    )
    model = HierarchicalGPRegressor(C(1.0, "fixed") * RBF(1.0), normalize_X=False, normalize_y=False)
    model.fit(X.reshape(-1, 1), y.ravel(), tasks=np.repeat(np.arange(n_tasks), n))
    assert_allclose(model.prior_mean_, 0.2, atol=0.15)
    assert_allclose(np.sqrt(model.prior_cov_[0, 0]), 0.4, atol=0.15)
    assert_allclose(model.noise_variance_, 0.01, rtol=0.5)
    learnt = np.array([model.kernels_[t].theta[0] for t in range(n_tasks)])
    assert np.corrcoef(learnt, log_length)[0, 1] > 0.8


def outlier_cost(seed, **params):
    """Error on 15 like tasks with an outlier task in the data, over the error without it."""
    n, n_test = 12, 40
    X, y, tasks, f = make_tasks(n_tasks=15, n=n + n_test, seed=seed)
    train = np.arange(len(X)) % (n + n_test) < n
    rng = np.random.default_rng(seed + 50)
    X_out = rng.uniform(0, 6, size=(100, 1))
    y_out = rng.multivariate_normal(np.zeros(100), RBF(0.05)(X_out) + 0.01 * np.eye(100))
    errors = []
    for more in (0, 100):
        model = HierarchicalGPRegressor(C() * RBF(), normalize_X=False, normalize_y=False, **params).fit(
            np.vstack([X[train], X_out[:more]]),
            np.concatenate([y[train], y_out[:more]]),
            tasks=np.concatenate([tasks[train], np.full(more, 15)]),
        )
        errors.append(np.mean((model.predict(X[~train], tasks=tasks[~train]) - f[~train]) ** 2) ** 0.5)
    return errors[1] / errors[0]


@pytest.mark.slow
def test_an_outlier_task_does_not_spoil_the_others():
    """A task with another kernel costs the others little; a shared kernel pays more.

    20 data sets: 1.030, with a deviation of 0.047.
    """
    learnt = np.mean([outlier_cost(seed) for seed in range(6)])
    shared = np.mean([outlier_cost(seed, prior_cov=0.0) for seed in range(3)])
    assert learnt < 1.03 + 3.0 * 0.047 / np.sqrt(6)
    assert shared > 1.3


def test_add_task():
    """A new task is learnt under the prior, from few rows, rows without targets, constraints, or none."""
    X, y, tasks, _ = make_tasks()
    model = HierarchicalGPRegressor(theta_uncertainty=False).fit(X, y, tasks=tasks)
    before = model.predict(X, tasks=tasks)
    rng = np.random.default_rng(9)
    new = np.sort(rng.uniform(0, 6, size=(10, 1)), axis=0)
    target = np.sin(new[:, 0])
    target[[2, 7]] = np.nan
    model.add_task(new, target, 77, constraints=[Order(2, 7)]).add_task(None, None, 78)
    assert model.tasks_.tolist() == [0, 1, 2, 3, 4, 5, 77, 78]
    assert_array_equal(model.predict(X, tasks=tasks), before)
    found = model.predict(new, tasks=np.full(10, 77))
    assert_allclose(found[[0, 1, 3, 4, 5, 6]], np.sin(new[[0, 1, 3, 4, 5, 6], 0]), atol=0.3)
    mean, std = model.predict(new, tasks=np.full(10, 78), return_std=True)
    assert_allclose(mean, model._units.mean[-1])
    prior_var = model.kernel_.diag((new - model._center) / model._spread)
    assert_allclose(std, np.sqrt(prior_var) * model._units.scale[-1])
    with pytest.raises(TaskError, match="77"):
        model.add_task(new, target, 77)
    with pytest.raises(ValueError, match="2 features"):
        model.add_task(np.ones((3, 2)), np.ones(3), 79)
    assert len(model.tasks_) == 8


def test_constraints_move_the_function_their_way():
    """Constraints that contradict a flat prior raise the difference they speak of."""
    X = np.linspace(0, 5, 11)[:, None]
    y = np.full(11, np.nan)
    y[[0, 10]] = [0.0, 0.1]
    settings = {"n_neighbors": None, "noise_variance": 0.01, "normalize_y": False}
    kernel = C(1.0, "fixed") * RBF(0.5, "fixed")
    plain = HierarchicalGPRegressor(kernel, **settings).fit(X, y)
    pair = HierarchicalGPRegressor(kernel, **settings).fit(X, y, constraints=[Order(6, 4, margin=1.0)])
    four = HierarchicalGPRegressor(kernel, **settings).fit(X, y, constraints=DifferenceOrder(6, 4, 0, 10))
    gap = [np.diff(m.predict(X[[4, 6]]))[0] for m in (plain, pair, four)]
    assert abs(gap[0]) < 0.1
    assert gap[1] > 0.5
    assert gap[2] > gap[0]
    _, plain_std = plain.predict(X[[6]], return_std=True)
    _, pair_std = pair.predict(X[[6]], return_std=True)
    assert pair_std < plain_std


@pytest.mark.slow
def test_contradictory_constraints_converge():
    """f_i >= f_j and f_j >= f_i, many times over, is noise: the two end up alike."""
    X, y, tasks, _ = make_tasks(n_tasks=1)
    part = unlabel(y, tasks, 6)
    i, j = np.flatnonzero(np.isnan(part))[:2]
    many = Order(np.repeat([i, j], 200), np.repeat([j, i], 200))
    model = HierarchicalGPRegressor().fit(X, part, constraints=[many])
    mean = model.predict(X)
    assert np.isfinite(mean).all()
    assert abs(mean[i] - mean[j]) < 0.35 * np.std(y)


def test_constraints_help():
    """True pairs among unlabelled rows lower the error on the unlabelled rows."""
    X, y, tasks, f = make_tasks(n_tasks=3, n=30, seed=2)
    part = unlabel(y, tasks, 5)
    rng = np.random.default_rng(0)
    pairs = np.array([rng.permutation(np.flatnonzero(tasks == t))[:2] for t in range(3) for _ in range(20)])
    high = np.where(f[pairs[:, 0]] > f[pairs[:, 1]], pairs[:, 0], pairs[:, 1])
    low = pairs.sum(axis=1) - high
    hidden = np.isnan(part)
    error = []
    for constraints in (None, [Order(high, low)]):
        model = HierarchicalGPRegressor(prior_cov=0.1).fit(X, part, tasks=tasks, constraints=constraints)
        error.append(np.mean((model.predict(X, tasks=tasks) - f)[hidden] ** 2))
    assert error[1] < 0.6 * error[0]


def test_landmarks_carry_a_large_graph():
    """A condensed graph predicts nearly as the whole one, and is the whole one if all rows are kept."""
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 3, size=300)
    X = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.02 * rng.normal(size=(300, 2))
    y = np.where(np.arange(300) < 8, angle, np.nan)
    predictions = {
        k: HierarchicalGPRegressor(n_landmarks=k, random_state=0).fit(X, y).predict(X)
        for k in (100, 292, 500)
    }
    assert_array_equal(predictions[292], predictions[500])
    spread = np.std(predictions[500])
    assert np.sqrt(np.mean((predictions[100] - predictions[500]) ** 2)) < 0.1 * spread


def test_data_dependent_posterior_is_equation_six():
    """Mean and variance at new rows are those of the joint prior with the zero-padded Laplacian."""
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(20, 2)), rng.normal(size=(4, 2))
    y = np.where(np.arange(20) < 6, np.sin(X[:, 0]), np.nan)
    kernel, noise, alpha = C(1.2) * RBF(0.9), 0.05, 0.8
    rows = RowsOfTasks(X, y, [np.arange(20)], [None], None, None, 4, 500, None)
    [task], _ = rows.choose([kernel], noise, rng)
    mean, var = task_posterior(kernel, task, noise, alpha, 0.0).predict(kernel, new)
    both = np.vstack([task.X, new])
    L = np.zeros((24, 24))
    L[:20, :20] = task.laplacian.toarray()
    joint = np.linalg.inv(np.linalg.inv(kernel(both) + 1e-10 * np.eye(24)) + alpha * L)
    gain = np.linalg.solve(joint[:6, :6] + noise * np.eye(6), joint[:6, 20:])
    assert_allclose(mean, gain.T @ task.y, atol=1e-5)
    assert_allclose(var, np.diag(joint[20:, 20:] - joint[20:, :6] @ gain), atol=1e-5)


@pytest.mark.slow
def test_theta_uncertainty_widens_where_labels_are_few():
    """Averaging over theta widens the error bars, more with 5 labels than with 40, and coverage rises."""
    covered, width = {}, {}
    for n in (5, 40):
        X, y, tasks, _ = make_tasks(n_tasks=10, n=n + 20, seed=4)
        train = np.concatenate([np.flatnonzero(tasks == t)[:n] for t in range(10)])
        test = np.setdiff1d(np.arange(len(X)), train)
        for averaged in (False, True):
            model = HierarchicalGPRegressor(theta_uncertainty=averaged)
            model.fit(X[train], y[train], tasks=tasks[train])
            mean, std = model.predict(X[test], tasks=tasks[test], return_std=True, include_noise=True)
            covered[n, averaged] = np.mean(np.abs(y[test] - mean) < 1.645 * std)
            width[n, averaged] = np.mean(std)
    assert width[5, True] / width[5, False] > width[40, True] / width[40, False] > 1.0
    assert covered[5, True] >= covered[5, False]


def test_large_tasks_take_the_most_probable_theta():
    """Unless asked, predictions average over theta in small tasks alone."""
    rng = np.random.default_rng(0)
    X, tasks = rng.uniform(0, 6, size=(160, 1)), np.repeat(["large", "small"], [140, 20])
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=160)
    given = {"n_rounds": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        default, every = (
            HierarchicalGPRegressor(theta_uncertainty=value, **given).fit(X, y, tasks=tasks)
            for value in (None, True)
        )
    assert [len(t.nodes) for t in default._model.tasks] == [1, len(every._model.tasks[0].nodes)]
    assert_same_answers(default.predict(X[140:], tasks[140:]), every.predict(X[140:], tasks[140:]))


def test_covariance_and_samples_agree_with_deviations():
    """The diagonal of the covariance is the squared deviation; samples have these moments."""
    X, y, tasks, _ = make_tasks(n_tasks=2)
    part = unlabel(y, tasks, 6)
    model = HierarchicalGPRegressor(theta_uncertainty=True)
    model.fit(X, part, tasks=tasks, constraints=[Order(0, 1)])
    mean, std = model.predict(X, tasks=tasks, return_std=True)
    again, cov = model.predict(X, tasks=tasks, return_cov=True)
    assert_allclose(again, mean, rtol=1e-9)
    assert_allclose(np.sqrt(np.diag(cov)), std, rtol=1e-6)
    assert_array_equal(cov[:12, 12:], 0.0)
    samples = model.sample_y(X, 4000, tasks=tasks)
    assert_allclose(samples.mean(axis=1), mean, atol=0.08)


def test_rescaled_targets():
    """Targets in other units, and tasks in units that differ by a million, are predicted in their own."""
    X, y, tasks, _ = make_tasks(n_tasks=4)
    model = HierarchicalGPRegressor().fit(X, y, tasks=tasks)
    scaled = HierarchicalGPRegressor().fit(X, 1e4 * y - 3e5, tasks=tasks)
    assert_allclose(scaled.predict(X, tasks=tasks), 1e4 * model.predict(X, tasks=tasks) - 3e5, rtol=1e-3)
    factor = 10.0 ** np.array([-6, 0, 2, 6])[tasks]
    wild = HierarchicalGPRegressor().fit(X, factor * y, tasks=tasks)
    error = (wild.predict(X, tasks=tasks) / factor - y) / np.std(y)
    assert np.sqrt(np.mean(error**2)) < 0.2


def test_offsets_between_tasks():
    """Tasks with one kernel and far different offsets are predicted as well as without the offsets."""
    X, y, tasks, _ = make_tasks(n_tasks=8, n=12)
    offset = 5.0 * np.random.default_rng(0).normal(size=8)[tasks]
    grid = np.linspace(0.5, 5.5, 12)[:, None]
    plain = HierarchicalGPRegressor().fit(X, y, tasks=tasks)
    moved = HierarchicalGPRegressor().fit(X, y + offset, tasks=tasks)
    for t in range(8):
        at = np.full(12, t)
        difference = moved.predict(grid, tasks=at) - plain.predict(grid, tasks=at) - offset[tasks == t][0]
        assert np.sqrt(np.mean(difference**2)) < 0.4 * np.std(y)


@pytest.mark.slow
def test_duplicates_single_rows_and_constant_targets():
    """Repeated rows, a task of one row, a constant task: finite answers, no warnings."""
    X, y, tasks, _ = make_tasks(n_tasks=4)
    X = np.vstack([X, X[:12], X[:12], [[3.0]], np.linspace(0, 6, 5)[:, None]])
    y = np.concatenate([y, y[:12], np.full(12, np.nan), [1.5], np.full(5, 2.0)])
    tasks = np.concatenate([tasks, np.zeros(24, dtype=int), [4], np.full(5, 5)])
    model = HierarchicalGPRegressor().fit(X, y, tasks=tasks)
    mean, std = model.predict(X, tasks=tasks, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    assert_allclose(model.predict([[2.5]], tasks=[5]), 2.0, atol=0.4)


def test_task_without_labels():
    """It is predicted from the prior, with a warning that says so."""
    X, y, tasks, _ = make_tasks(n_tasks=3)
    y[tasks == 2] = np.nan
    with pytest.warns(UserWarning, match="task 2 has no labelled row"):
        model = HierarchicalGPRegressor().fit(X, y, tasks=tasks)
    assert_array_equal(model.kernels_[2].theta, model.prior_mean_)
    assert len(np.unique(model.predict(X[:5], tasks=np.full(5, 2)))) == 1
    with warnings.catch_warnings():  # constraints alone say something
        warnings.simplefilter("error")
        i, j = np.flatnonzero(tasks == 2)[:2]
        ranked = HierarchicalGPRegressor().fit(X, y, tasks=tasks, constraints=[Order(i, j, margin=1.0)])
    high, low = ranked.predict(X[[i, j]], tasks=[2, 2])
    assert high > low


BAD = [
    ({"y": np.full(72, np.nan)}, LabelError, "NaN in all rows"),
    ({"constraints": [Order(0, 70)]}, ConstraintError, r"rows \[0, 70\], which are of different tasks"),
    ({"constraints": [Order(0, 72)]}, ConstraintError, "names row 72, but X has the rows 0 to 71"),
    ({"constraints": [Order(-1, 2)]}, ConstraintError, "names row -1"),
    ({"constraints": [Order(0, 1, margin=1e9)]}, ConstraintError, "more than is possible within the range"),
    ({"constraints": [Order(0, 1, margin=np.nan)]}, ConstraintError, "a margin of Order is nan"),
    ({"constraints": [Order([0, 1], [2, 3], margin=[0.0, np.inf])]}, ConstraintError, "is inf"),
    ({"constraints": [Order([0, 1], [2, 3, 4])]}, ConstraintError, r"lengths \[2, 3, 1\]"),
    ({"constraints": [Order(3, 3)]}, ConstraintError, "has no effect"),
    (
        {"constraints": [Order(0, 1), Order([1, 2], [2, 3], [0.0, 1e9])]},
        ConstraintError,
        r"constraint 2 \(from 0\) asks for 1e\+09 more than is possible",
    ),
    ({"constraints": [DifferenceOrder(1, 2, 1, 2)]}, ConstraintError, "has no effect"),
    ({"constraints": [Order(0.5, 2)]}, ConstraintError, "i of Order is 0.5"),
    ({"constraints": [(0, 1)]}, ConstraintError, r"a constraint is \(0, 1\)"),
    ({"constraints": 3}, ConstraintError, "constraints are 3"),
    ({"params": {"prior_cov": np.eye(2)}}, KernelError, "has 4 free parameters"),
    ({"params": {"prior_cov": -np.eye(4)}}, KernelError, "no eigenvalue negative"),
    ({"params": {"noise_variance": -1.0}}, ValueError, "noise_variance"),
]


@pytest.mark.parametrize(("change", "error", "match"), BAD, ids=[m for _, _, m in BAD])
def test_bad_input_is_named_and_leaves_the_model_as_it_was(change, error, match):
    """Each mistake has its message, and a model fitted before still predicts the same."""
    X, y, tasks, _ = make_tasks()
    model = HierarchicalGPRegressor(optimizer=None).fit(X, y, tasks=tasks)
    before = model.predict(X, tasks=tasks)
    state = vars(model).copy()
    with pytest.raises(error, match=match):
        model.set_params(optimizer=None, **change.get("params", {})).fit(
            X, change.get("y", y), tasks=tasks, constraints=change.get("constraints")
        )
    params = set(model.get_params())
    assert {k: v for k, v in vars(model).items() if k not in params} == {
        k: v for k, v in state.items() if k not in params
    }
    assert_array_equal(model.predict(X, tasks=tasks), before)


def test_unknown_task_and_column():
    """Tasks by a column of a frame, cross-validated; a task that was not seen is an error."""
    X, y, tasks, _ = make_tasks()
    frame = pd.DataFrame({"x": X[:, 0], "school": np.array(list("abcdef"))[tasks]})
    model = HierarchicalGPRegressor(task="school", optimizer=None).fit(frame, y)
    assert set(model.kernels_) == set("abcdef")
    by_argument = HierarchicalGPRegressor(optimizer=None).fit(X, y, tasks=frame["school"])
    assert_allclose(model.predict(frame), by_argument.predict(X, tasks=frame["school"]))
    scores = cross_val_score(clone(model), frame, y, cv=KFold(3, shuffle=True, random_state=0))
    assert np.isfinite(scores).all()
    with pytest.raises(TaskError, match="zz"):
        clone(model).set_params(new_tasks="error").fit(frame, y).predict(
            pd.DataFrame({"x": [1.0], "school": ["zz"]})
        )
    copy = pickle.loads(pickle.dumps(model))
    assert_array_equal(copy.predict(frame), model.predict(frame))


def test_threads_change_nothing():
    """n_jobs=2 gives what one thread gives."""
    X, y, tasks, _ = make_tasks(n_tasks=3)
    part = unlabel(y, tasks, 6)
    kernel = C(1.0, "fixed") * RBF([1.0])
    pairs = [Order([0, 12, 24], [1, 13, 25])]
    fits = [
        HierarchicalGPRegressor(kernel, prior_cov=0.0, n_jobs=k).fit(X, part, tasks=tasks, constraints=pairs)
        for k in (None, 2)
    ]
    assert_allclose(fits[0].predict(X, tasks=tasks), fits[1].predict(X, tasks=tasks), rtol=1e-6)


def test_all_active_is_dense():
    """Where every labelled row is kept, the model is the dense one."""
    X, y, tasks, _ = make_tasks(n_tasks=2)
    dense = HierarchicalGPRegressor(n_active=10_000).fit(X, y, tasks=tasks)
    for n_active in (12, 1.0, None):
        kept = HierarchicalGPRegressor(n_active=n_active).fit(X, y, tasks=tasks)
        assert_allclose(kept.predict(X, tasks=tasks), dense.predict(X, tasks=tasks), rtol=1e-9)
        assert_array_equal(np.sort(kept.active_), np.arange(len(X)))


def test_labels_of_large_tasks():
    """All of up to 1000 labels of a task are kept; of more, 500 that all contribute through."""
    rng = np.random.default_rng(0)
    tasks = np.repeat([0, 1], [700, 1100])
    X = rng.uniform(0, 6, (1800, 1))
    model = HierarchicalGPRegressor(RBF(), optimizer=None, mean=None).fit(X, np.sin(X[:, 0]), tasks=tasks)
    assert np.bincount(tasks[model.active_]).tolist() == [700, 500]


@pytest.mark.slow
def test_projected_tasks_are_near_dense():
    """Thirty of 90 rows carry smooth tasks: nearly the dense predictions, and the rows kept are labelled."""
    X, y, tasks, _ = make_tasks(n_tasks=2, n=90)
    y[::7] = np.nan
    kwargs = {"n_neighbors": None, "random_state": 0, "prior_cov": 0.1}
    dense = HierarchicalGPRegressor(**kwargs).fit(X, y, tasks=tasks)
    sparse = HierarchicalGPRegressor(n_active=30, **kwargs).fit(X, y, tasks=tasks)
    assert np.bincount(tasks[sparse.active_]).tolist() == [30, 30]
    assert not np.isnan(y[sparse.active_]).any()
    gap = sparse.predict(X, tasks=tasks) - dense.predict(X, tasks=tasks)
    assert np.sqrt(np.mean(gap**2)) < 0.02
    assert_allclose(sparse.noise_variance_, dense.noise_variance_, rtol=0.1)


@pytest.mark.parametrize("n_neighbors", [5, None])
def test_active_rows_with_graph_and_constraints(n_neighbors):
    """With a graph or constraints too, labels can be set aside; constraints on such rows stay."""
    X, y, tasks, f = make_tasks(n_tasks=2, n=40)
    y[[5, 45]] = np.nan
    high, low = (0, 1) if f[0] > f[1] else (1, 0)
    model = HierarchicalGPRegressor(n_active=15, n_neighbors=n_neighbors, prior_cov=0.1, random_state=0)
    model.fit(X, y, tasks=tasks, constraints=[Order(high, low)])
    assert np.bincount(tasks[model.active_]).tolist() == [15, 15]
    assert np.sqrt(np.mean((model.predict(X, tasks=tasks) - f) ** 2)) < 0.3


@pytest.mark.slow
def test_thousands_of_labels_and_of_unlabelled_rows():
    """A task of 3000 labels, and one of 20 labels and 1500 unlabelled rows, fit together."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, size=(4520, 1))
    tasks = np.repeat(["many", "few"], [3000, 1520])
    f = np.sin(2 * X[:, 0])
    y = f + 0.1 * rng.normal(size=4520)
    y[3020:] = np.nan
    model = HierarchicalGPRegressor(n_active=40, n_landmarks=60, prior_cov=0.1, random_state=0)
    model.fit(X, y, tasks=tasks)
    error = np.abs(model.predict(X, tasks=tasks) - f)
    assert np.mean(error[:3000]) < 0.02
    assert np.mean(error[3000:]) < 0.15


@pytest.mark.slow
def test_saved_and_loaded(tmp_path):
    """A model file gives the same predictions and attributes, for all kinds of tasks."""
    X, y, tasks, _ = make_tasks(n_tasks=3, n=20)
    y[1:12] = np.nan
    model = HierarchicalGPRegressor(theta_uncertainty=True, n_active=15, prior_cov=0.1, random_state=0)
    model.fit(X, y, tasks=tasks, constraints=[Order(22, 23)])
    save(model, tmp_path / "model.glean")
    again = load(tmp_path / "model.glean")
    before, after = (m.predict(X, tasks=tasks, return_std=True) for m in (model, again))
    assert_array_equal(before, after)
    assert again.kernels_ == model.kernels_
    assert again.alpha_ == model.alpha_


def _common_wave(n_tasks=5, n=14):
    rng = np.random.default_rng(0)
    X, tasks = rng.uniform(-3, 3, (n_tasks * n, 1)), np.repeat(np.arange(n_tasks), n)
    slope = rng.normal(size=n_tasks)[tasks]
    y = 3 * np.sin(X[:, 0]) + 0.3 * slope * X[:, 0] + 0.1 * rng.normal(size=len(X))
    return X, y, tasks


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*labels that are held out")  # the constraints are made up
def test_deviations_from_a_common_mean():
    """`mean="common"` is the common function plus the model of what it leaves, also under constraints."""
    X, y, tasks = _common_wave()
    missing = np.array([2, 20])
    y[missing] = np.nan
    raw = {"normalize_X": False, "normalize_y": False, "random_state": 0}
    order = [Order(0, 1, 0.3), DifferenceOrder(3, 4, 5, 6)]
    model = HierarchicalGPRegressor(mean="common", **raw).fit(X, y, tasks=tasks, constraints=order)
    common = model.common_.predict(X, tasks=np.full(len(X), -1))
    rest = y - common
    left = [Order(0, 1, 0.3 - common[0] + common[1])]
    by_hand = HierarchicalGPRegressor(**raw).fit(X, rest, tasks=tasks, constraints=left)
    with_order = HierarchicalGPRegressor(mean="common", **raw).fit(X, y, tasks=tasks, constraints=order[:1])
    assert_allclose(with_order.predict(X, tasks=tasks), common + by_hand.predict(X, tasks=tasks), atol=1e-5)
    assert_allclose(
        with_order.predict(X, tasks=tasks, return_std=True)[1],
        by_hand.predict(X, tasks=tasks, return_std=True)[1],
        atol=1e-5,
    )
    assert np.isfinite(model.predict(X, tasks=tasks)).all()


@pytest.mark.slow
def test_common_mean_is_for_tasks_without_labels_too(tmp_path):
    """A new task follows the others; without a common mean it does not. The model survives a file."""
    X, y, tasks = _common_wave()
    grid = np.linspace(-2.5, 2.5, 7)[:, None]
    errors = {}
    for mean in ("common", None):
        model = HierarchicalGPRegressor(mean=mean, random_state=0).fit(X, y, tasks=tasks)
        model.add_task(None, None, 9)
        errors[mean] = np.sqrt(np.mean((model.predict(grid, tasks=[9] * 7) - 3 * np.sin(grid[:, 0])) ** 2))
        save(model, tmp_path / "m.glean")
        again = load(tmp_path / "m.glean").predict(grid, tasks=[9] * 7)
        assert_allclose(again, model.predict(grid, tasks=[9] * 7), rtol=1e-10)
    assert errors["common"] < 0.5 < errors[None]


def test_common_mean_of_one_task_is_none():
    """With one task there is nothing in common."""
    X, y, _ = _common_wave(n_tasks=1)
    one = HierarchicalGPRegressor(mean="common", random_state=0).fit(X, y)
    assert one.common_ is None
    assert_allclose(one.predict(X), HierarchicalGPRegressor(random_state=0).fit(X, y).predict(X))


def test_without_a_common_part_the_common_mean_is_no_mean():
    """Tasks that are mirror images have nothing in common: `mean="common"` changes nothing for them."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (15, 2))
    f = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=15)
    rows, y, tasks = np.vstack([X, X]), np.concatenate([f, -f]), np.repeat(["up", "down"], 15)
    y[[4, 19]] = np.nan  # and unlabelled rows, one of each
    plain = HierarchicalGPRegressor(random_state=0).fit(rows, y, tasks=tasks)
    common = HierarchicalGPRegressor(mean="common", random_state=0).fit(rows, y, tasks=tasks)
    new, new_tasks = np.tile(rng.uniform(-2, 2, (10, 2)), (2, 1)), np.repeat(["up", "down"], 10)
    function = common.common_.predict(new, tasks=np.full(20, -1))
    assert np.abs(function).max() < 1e-8
    expected, std = plain.predict(new, tasks=new_tasks, return_std=True)
    got, got_std = common.predict(new, tasks=new_tasks, return_std=True)
    assert np.std(expected) > 0.5
    assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    assert_allclose(got_std, std, rtol=1e-4, atol=1e-5)


def _steps(sign):
    """Rows of a sine, a third without a label, and the order of far values, right or reversed."""
    x = np.linspace(0, 6, 25)[:, None]
    f = np.sin(x[:, 0])
    y = f + 0.05 * np.random.default_rng(0).normal(size=25)
    y[1::3] = np.nan
    pairs = [(i, j) for i in range(25) for j in range(25) if sign * (f[i] - f[j]) > 0.5]
    return x, y, [Order(i, j) for i, j in pairs]


@pytest.mark.slow
def test_wrong_constraints_are_named():
    """Held-out labels are predicted worse with constraints that do not hold, and no worse with right ones."""
    X, y, right = _steps(1)
    model = HierarchicalGPRegressor(n_neighbors=None, random_state=0).fit(X, y, constraints=right)
    (made,) = model.decisions_
    assert (made.what, made.chosen) == ("constraints", "used")
    assert made.numbers["constraints"] > made.numbers["none"] - 0.05
    X, y, wrong = _steps(-1)
    with pytest.warns(UserWarning, match="lower density with the constraints .* check them"):
        model = HierarchicalGPRegressor(n_neighbors=None, random_state=0).fit(X, y, constraints=wrong)
    assert model.decisions_[0].numbers["none"] > model.decisions_[0].numbers["constraints"]


def test_a_task_unlike_the_others_leaves_their_prior(tmp_path):
    """With labels enough, a new task whose labels fit another kernel has it; decisions are saved."""
    rng = np.random.default_rng(0)
    x = np.linspace(0, 6, 40)[:, None]
    tasks = np.repeat(np.arange(8), 40)
    y = np.concatenate([np.sin(x[:, 0] + k) + 0.05 * rng.normal(size=40) for k in range(8)])
    model = HierarchicalGPRegressor(prior_cov=None, random_state=0).fit(np.tile(x, (8, 1)), y, tasks=tasks)
    assert model.decisions_ == []
    # As if the others had left no doubt about their kernel.
    certain = 1e-4 * np.eye(len(model._model.prior_cov))
    model._model = replace(model._model, prior_cov=certain, mean_cov=None)
    few = np.arange(0, 40, 8)
    model.add_task(x[few], np.sin(x[few, 0]), 8)
    assert model.decisions_ == []  # too few labels to hold some out
    fast = np.sin(4 * x[:, 0]) + 0.05 * rng.normal(size=40)
    model.add_task(x, fast, 9)
    made = model.decisions_[-1]
    assert (made.what, made.chosen) == ("task 9", "alone")
    assert made.numbers["alone"] > made.numbers["prior of the others"]
    assert np.abs(model.kernels_[9].theta - model.kernel_.theta).max() > 0.5
    save(model, tmp_path / "m.glean")
    assert load(tmp_path / "m.glean").decisions_ == model.decisions_


def test_unlabelled_rows_are_compared_with_none():
    """Both numbers are there, per task that is added too."""
    X, y, _ = _steps(1)
    tasks = np.repeat(["a", "b"], 25)
    model = HierarchicalGPRegressor(random_state=0).fit(np.vstack([X, X]), np.tile(y, 2), tasks=tasks)
    (made,) = model.decisions_
    assert (made.what, set(made.numbers)) == ("unlabelled rows", {"all rows", "labelled rows alone"})
    model.add_task(X, y, "c")
    assert [d.what for d in model.decisions_[1:]] == ["task 'c': unlabelled rows", "task 'c'"]


def test_tasks_with_equal_targets_keep_some_noise():
    """A task whose targets are all equal, at inputs that repeat, has a finite fit beside the others."""
    rng = np.random.default_rng(0)
    X = np.repeat(np.arange(3.0), 4)[:, None]
    noisy = [np.sin(X[:, 0]) + 0.3 * rng.normal(size=12) for _ in range(5)]
    y, tasks = np.concatenate([*noisy, np.ones(12), np.zeros(12)]), np.repeat(np.arange(7), 12)
    model = HierarchicalGPRegressor(random_state=0).fit(np.tile(X, (7, 1)), y, tasks=tasks)
    mean, std = model.predict(np.tile(X, (7, 1)), return_std=True, tasks=tasks)
    assert np.isfinite(mean).all()
    assert (std >= 0.0).all()
    assert_allclose(mean[60:72], 1.0, atol=0.05)
    assert min(model.noise_variances_.values()) > 0.0


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_order_of_rows_does_not_matter_at_all():
    """Means of the inputs are over sorted rows: another rounding of them would lead a search elsewhere."""
    rng = np.random.default_rng(0)
    X, tasks, rows = rng.normal(size=(30, 2)) + 1e6, np.repeat([0, 1, 2], 10), rng.permutation(30)
    y = np.where(tasks == 2, 1.0, np.sin(2.0 * X[:, 0]))
    one = HierarchicalGPRegressor(n_rounds=2).fit(X, y, tasks)
    two = HierarchicalGPRegressor(n_rounds=2).fit(X[rows], y[rows], tasks[rows])
    assert_array_equal(two.predict(X, tasks), one.predict(X, tasks))


def test_a_search_that_needs_more_steps_goes_on_where_the_prior_is_given(monkeypatch):
    """Then rounds are searches from where the last one ended; there is no warning about the prior."""
    monkeypatch.setattr("gleangp.models.hierarchical.learn._MOST_STEPS", 10)
    rng = np.random.default_rng(0)
    X, tasks = rng.normal(size=(90, 2)), np.repeat(np.arange(6), 15)
    y = np.sin(2.0 * X[:, 0]) + 0.3 * (tasks == 0) + 0.2 * rng.normal(size=90)
    model = HierarchicalGPRegressor(prior_cov=100.0).fit(X, y, tasks)
    assert model.n_rounds_ > 1
    with pytest.warns(ConvergenceWarning, match="1 rounds before the search for the parameters of the tasks"):
        HierarchicalGPRegressor(prior_cov=100.0, n_rounds=1).fit(X, y, tasks)
