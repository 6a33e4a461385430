"""The default posterior of the sparse estimators: intervals, densities, weights, noise models, odd inputs."""

import pickle
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from gleangp import SparseGPClassifier, SparseGPRegressor, load, save
from gleangp.exceptions import LabelError, NotPositiveDefiniteError
from gleangp.models.defaults import LEARNING
from gleangp.models.local import fit as local_fit
from gleangp.models.local import learn
from gleangp.noise import NullCategory, Ordered, Probit, RobustProbit
from tests.two_fits import assert_same_answers

KERNEL = ConstantKernel(1.5) * RBF([1.0, 2.0])
NOISES = ["gaussian", "outliers", "poisson", "negative_binomial", "binomial", "gamma"]

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def waves(n, seed=0, noise=0.2):
    """Rows with two inputs, and a smooth function of them with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + noise * rng.standard_normal(n)


def counts(noise, n=60, seed=0):
    """Targets in the support of a noise model."""
    X, f = waves(n, seed, 0.0)
    rng = np.random.default_rng(seed + 1)
    return X, {
        "gaussian": lambda: f + 0.2 * rng.standard_normal(n),
        "outliers": lambda: f + 0.2 * rng.standard_t(2, n),
        "poisson": lambda: rng.poisson(np.exp(f)),
        "negative_binomial": lambda: rng.negative_binomial(3, 3 / (3 + np.exp(f))),
        "binomial": lambda: rng.binomial(1, 1 / (1 + np.exp(-f))),
        "gamma": lambda: rng.gamma(3.0, np.exp(f) / 3.0),
    }[noise]().astype(float)


@pytest.mark.slow
@pytest.mark.parametrize("n_tasks", [1, 4])
def test_intervals_cover_as_they_say(n_tasks):
    """The share of new observations in their intervals, over data sets, within three standard errors."""
    inside = {0.5: [], 0.9: []}
    for seed in range(8):
        X, y = waves(240, seed, 0.3)
        tasks = np.arange(240) % n_tasks
        y = y + 0.5 * tasks
        model = SparseGPRegressor(random_state=0).fit(X[:120], y[:120], tasks[:120])
        for coverage, shares in inside.items():
            low, high = model.predict_interval(X[120:], coverage, tasks=tasks[120:]).T
            shares.append(np.mean((low <= y[120:]) & (y[120:] <= high)))
    # Rows of one data set share a fitted model, so data sets are the units of the standard error.
    for coverage, shares in inside.items():
        error = np.std(shares, ddof=1) / np.sqrt(len(shares))
        assert abs(np.mean(shares) - coverage) < 3 * error


@pytest.mark.parametrize("noise", NOISES)
def test_every_noise_model_fits_and_predicts(noise):
    """Finite means, deviations and densities; quantiles that rise; draws in the support."""
    X, y = counts(noise)
    model = SparseGPRegressor(noise=noise, random_state=0).fit(X[:40], y[:40])
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0.0).all()
    quantiles = model.predict_quantiles(X, [0.05, 0.25, 0.5, 0.75, 0.95])
    assert (np.diff(quantiles, axis=1) >= 0.0).all()
    assert np.isfinite(quantiles).all()
    assert np.isfinite(model.log_density(X[40:], y[40:]))
    draws = model.sample_y(X[:5], 20, observations=True)
    assert np.isfinite(draws).all()
    if noise not in ("gaussian", "outliers"):
        assert (draws >= 0.0).all()
    assert_allclose(pickle.loads(pickle.dumps(model)).predict(X), mean)


def test_draws_of_counts_have_their_exposure():
    """Draws of ten times the exposure have ten times the mean, row by row."""
    X, y = counts("poisson")
    model = SparseGPRegressor(noise="poisson", random_state=0).fit(X, y)
    exposure = np.where(np.arange(len(X)) % 2, 10.0, 1.0)
    drawn = model.sample_y(X, 2000, observations=True, exposure=exposure)
    assert_allclose(drawn.mean(axis=1), model.predict(X, exposure=exposure), rtol=0.15, atol=0.15)


def test_log_density_is_that_of_a_normal_observation():
    """Mean log density by SciPy, from mean and deviation; rows without a target do not count."""
    X, y = waves(90)
    model = SparseGPRegressor(random_state=0).fit(X[:60], y[:60])
    mean, std = model.predict(X[60:], return_std=True, include_noise=True)
    expected = norm.logpdf(y[60:], mean, std)
    assert_allclose(model.log_density(X[60:], y[60:]), expected.mean(), rtol=1e-10)
    gaps = np.where(np.arange(30) < 10, np.nan, y[60:])
    assert_allclose(model.log_density(X[60:], gaps), expected[10:].mean(), rtol=1e-10)
    assert_allclose(model.predict_quantiles(X[60:], 0.3)[:, 0], norm.ppf(0.3, mean, std), rtol=1e-10)


def test_a_row_of_weight_two_is_the_row_twice():
    """With a known noise variance, the two are the same model."""
    X, y = waves(40)
    options = {"noise_variance": 0.05, "optimizer": None, "normalize_y": False}
    weight = np.where(np.arange(40) < 15, 2.0, 1.0)
    weighted = SparseGPRegressor(KERNEL, **options).fit(X, y, sample_weight=weight)
    twice = SparseGPRegressor(KERNEL, **options).fit(np.vstack([X, X[:15]]), np.append(y, y[:15]))
    new = waves(20, 5)[0]
    assert_allclose(weighted.predict(new), twice.predict(new), atol=1e-9)
    assert_allclose(
        weighted.predict(new, return_std=True)[1], twice.predict(new, return_std=True)[1], atol=1e-9
    )
    assert (
        np.abs(weighted.predict(new) - SparseGPRegressor(KERNEL, **options).fit(X, y).predict(new)).max()
        > 1e-4
    )


def test_a_row_of_weight_zero_is_left_out():
    """Whatever its target is."""
    X, y = waves(40)
    weight = (np.arange(40) < 30).astype(float)
    weighted = SparseGPRegressor(random_state=0).fit(X, np.where(weight > 0.0, y, 1e6), sample_weight=weight)
    assert_allclose(weighted.predict(X), SparseGPRegressor(random_state=0).fit(X[:30], y[:30]).predict(X))
    with pytest.raises(LabelError, match=r"sample_weight .* zero for some"):
        weighted.fit(X, y, sample_weight=np.zeros(40))


@pytest.mark.parametrize("noise", ["poisson", pytest.param("negative_binomial", marks=pytest.mark.slow)])
def test_exposure_multiplies_the_count(noise):
    """Twice the exposure, twice the expected count; an exposure in fit divides the rate."""
    X, y = counts(noise)
    model = SparseGPRegressor(noise=noise, random_state=0).fit(X, y)
    one = model.predict(X)
    two = model.predict(X, exposure=np.full(len(X), 2.0))
    assert_allclose(two, 2.0 * one, rtol=1e-6)
    low, high = model.predict_interval(X, exposure=np.full(len(X), 50.0)).T
    assert (high > model.predict_interval(X)[:, 1]).all()
    assert (low < high).all()
    longer = SparseGPRegressor(noise=noise, random_state=0).fit(X, y, exposure=np.full(len(X), 2.0))
    assert_allclose(longer.predict(X), model.predict(X) / 2.0, rtol=0.02)


@pytest.mark.parametrize(
    ("noise", "wrong", "said"),
    [
        ("poisson", -1.0, "y is -1 in row 2. Poisson noise needs counts"),
        ("negative_binomial", 1.5, "y is 1.5 in row 2. Negative-binomial noise needs counts"),
        ("binomial", 5.0, "y is 5 in row 2. It cannot be above its 1 trials"),
        ("gamma", 0.0, "y is 0 in row 2. Gamma noise needs positive targets"),
    ],
)
def test_targets_that_do_not_fit_the_noise(noise, wrong, said):
    """One error each that names the row, wherever targets come in; rows without a target count."""
    X, y = counts(noise, 30)
    model = SparseGPRegressor(noise=noise, optimizer=None).fit(X, y, tasks=np.arange(30) % 2)
    new = [np.nan, 1.0, wrong]
    for call in (
        lambda: SparseGPRegressor(noise=noise).fit(X[:3], new),
        lambda: model.add_task(X[:3], new, task=2),
        lambda: model.partial_fit(X[:3], new, tasks=[0, 1, 0]),
        lambda: model.log_density(X[:3], new, tasks=[0, 1, 0]),
    ):
        with pytest.raises(LabelError, match=said):
            call()


@pytest.mark.parametrize("noise", [Probit(), RobustProbit(), NullCategory(), Ordered(widths=[1.0])])
def test_noise_of_labels_is_not_for_numbers(noise):
    """One error that names the estimators for labels."""
    X, y = waves(10)
    with pytest.raises(ValueError, match=rf"{type(noise).__name__} object.* SparseGPClassifier"):
        SparseGPRegressor(noise=noise).fit(X, y)


def test_the_order_of_rows_does_not_matter():
    """Nor does it where the coupling is chosen; tests/endurance has all estimators."""
    X, y = waves(36)
    tasks, order = np.arange(36) % 3, np.random.default_rng(1).permutation(36)
    one = SparseGPRegressor(random_state=0).fit(X, y, tasks)
    other = SparseGPRegressor(random_state=0).fit(X[order], y[order], tasks[order])
    for a, b in zip(*(m.predict(X, tasks, return_std=True) for m in (one, other)), strict=True):
        assert_allclose(a, b, atol=1e-6)


def test_few_rows_are_the_exact_process():
    """With all rows in one block it is scikit-learn's exact regressor."""
    X, y = waves(150)
    exact = GaussianProcessRegressor(KERNEL, alpha=0.05, optimizer=None).fit(X, y)
    ours = SparseGPRegressor(KERNEL, noise_variance=0.05, optimizer=None, normalize_y=False).fit(X, y)
    new = waves(40, 3)[0]
    for a, b in zip(ours.predict(new, return_std=True), exact.predict(new, return_std=True), strict=True):
        assert_allclose(a, b, atol=1e-8)
    assert_allclose(ours.predict(new, return_cov=True)[1], exact.predict(new, return_cov=True)[1], atol=1e-8)
    assert_allclose(ours.log_evidence_, exact.log_marginal_likelihood_value_, rtol=1e-9)


def test_a_task_added_to_a_model_of_one_task_may_be_another_function():
    """Alike rows are taken as the same function, unlike rows as another."""
    X, y = waves(80)
    one = SparseGPRegressor(random_state=0).fit(X[:40], y[:40], ["a"] * 40)
    other = pickle.loads(pickle.dumps(one)).add_task(X[40:], -y[40:] + 3.0, "b")
    assert other.score(X[40:], -y[40:] + 3.0, ["b"] * 40) > 0.8
    alike = one.add_task(X[40:44], y[40:44], "b")
    assert alike.score(X[44:], y[44:], ["b"] * 36) > 0.8


def rng_rows(*shape):
    return np.random.default_rng(0).standard_normal(shape)


CATEGORIES = np.eye(4)[np.arange(40) % 4]
GAPS = np.concatenate([np.linspace(0, 1, 20), np.linspace(5, 6, 20)])[:, None]
CLUSTERS = np.vstack([rng_rows(20, 2), 1e6 + rng_rows(20, 2)])
ODD = {
    "more inputs than rows": rng_rows(12, 40),
    "categories alone": CATEGORIES,
    "gaps": GAPS,
    "clusters far apart": CLUSTERS,
    "one row": rng_rows(1, 2),
    "two rows": rng_rows(2, 2),
}  # constant, repeated, huge and tiny ones of all estimators: tests/endurance/test_ill_conditioned.py


@pytest.mark.parametrize("n_tasks", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ODD)
def test_odd_inputs_give_finite_answers(name, n_tasks):
    """Means, deviations, intervals and probabilities are finite, at the rows and far from them."""
    X = ODD[name]
    n = len(X)
    y, tasks = np.sin(np.arange(n)) + 0.01 * rng_rows(n), np.arange(n) % n_tasks
    with np.errstate(all="raise", under="ignore"):
        model = SparseGPRegressor(random_state=0).fit(X, y, tasks)
        for rows in (X, X + 10.0 * np.abs(X).max()):
            mean, std = model.predict(rows, tasks, return_std=True)
            assert np.isfinite(mean).all()
            assert np.isfinite(std).all()
            assert np.isfinite(model.predict_interval(rows, tasks=tasks)).all()
        if n > 2:
            labels = np.arange(n) % 2
            p = SparseGPClassifier(random_state=0).fit(X, labels, tasks).predict_proba(X, tasks)
            assert np.isfinite(p).all()


@pytest.mark.slow
def test_tasks_with_one_row():
    """Single rows of many tasks, and one task of one row beside large ones, are predicted."""
    X, y = waves(60)
    lone = np.where(np.arange(60) == 7, 1, 0)
    for tasks in (np.arange(60), lone):
        model = SparseGPRegressor(random_state=0).fit(X, y, tasks)
        assert model.score(X, y, tasks) > 0.5
        assert np.isfinite(model.predict_interval(X, tasks=tasks)).all()


@pytest.mark.parametrize("estimator", [SparseGPRegressor, SparseGPClassifier])
def test_tasks_predicted_together_or_one_by_one(estimator):
    """Rows of all tasks at once, added and unknown ones among them, are predicted as each task by itself."""
    X, y = waves(48)
    tasks = np.repeat(np.arange(8), 6)
    y = y + 0.5 * tasks
    y = y if estimator is SparseGPRegressor else np.where(y > np.median(y), "up", "down")
    model = estimator(random_state=0).fit(X, y, tasks)
    model.add_task(X[:4] + 0.1, y[[0, 1, 46, 47]], 8).add_task(None, None, 9)
    shuffled = np.random.default_rng(0).permutation(np.tile(np.arange(10), 5))
    rows = waves(50, seed=1)[0]

    def answers(where):
        if estimator is SparseGPClassifier:
            return model.predict_proba(rows[where], shuffled[where])
        return np.column_stack(model.predict(rows[where], shuffled[where], return_std=True))

    together = answers(np.arange(50))
    for task in range(10):
        of_task = shuffled == task
        assert_allclose(together[of_task], answers(of_task), rtol=1e-8)


@pytest.mark.slow
def test_two_thousand_tasks():
    """Three rows of each of 2000 tasks: what they share is learnt."""
    rng = np.random.default_rng(0)
    tasks = np.repeat(np.arange(2000), 3)
    X = rng.uniform(-2, 2, size=(6000, 1))
    y = np.sin(2 * X[:, 0]) + rng.standard_normal(2000)[tasks] + 0.2 * rng.standard_normal(6000)
    model = SparseGPRegressor(random_state=0).fit(X, y, tasks)
    assert model.score(X, y, tasks) > 0.9
    assert np.isfinite(model.predict(X[:10], tasks[:10], return_std=True)[1]).all()


SLOWLY = [pytest.param(name, marks=pytest.mark.slow) for name in ("auto", "function")]


@pytest.mark.parametrize("coupling", [*SLOWLY, "coregion"])
def test_tasks_without_noise_are_interpolated(coupling):
    """Draws of the hyperparameters stay where the data allow, also where the posterior is very sharp."""
    times = np.linspace(0, 6, 30)
    X, tasks = np.tile(times, 3)[:, None], np.repeat([0, 1, 2], 30)
    y = np.sin(X[:, 0]) + 0.1 * tasks
    model = SparseGPRegressor(coupling=coupling, random_state=0).fit(X, y, tasks=tasks)
    mean, std = model.predict([[1.05], [2.05]], tasks=[0, 2], return_std=True)
    assert_allclose(mean, np.sin([1.05, 2.05]) + [0.0, 0.2], atol=0.01)
    assert (std < 0.02).all()


@pytest.mark.slow
def test_new_rows_of_large_tasks_inform_what_they_share(tmp_path):
    """Tasks with a basis of their own follow the common variables; no covariance of both is kept for each."""
    rng = np.random.default_rng(0)
    X, tasks = rng.uniform(-2, 2, (1800, 2)), np.repeat([0, 1], 900)
    y = np.sin(2 * X[:, 0]) + 0.3 * tasks * X[:, 1] + 0.1 * rng.normal(size=1800)
    model = SparseGPRegressor(coupling="function", n_active=30, optimizer=None, random_state=0)
    model.fit(X[::2], y[::2], tasks=tasks[::2]).partial_fit(X[1::2], y[1::2], tasks=tasks[1::2])
    posterior = model._model.best.posterior
    assert set(posterior.own) == {0, 1}
    for task, (_, own) in posterior.own.items():
        mean, cov = posterior.knowledge(task)
        assert_allclose(mean[:30], posterior.common.mean)
        assert_allclose(np.linalg.inv(cov)[30:, 30:], own.factor @ own.factor.T, rtol=1e-6, atol=1e-8)
        assert own.back.size + own.factor.size < cov.size
    error = model.predict(X, tasks=tasks) - y
    assert np.sqrt(np.mean(error**2)) < 0.15
    save(model, tmp_path / "model.glean")
    assert_array_equal(load(tmp_path / "model.glean").predict(X, tasks=tasks), model.predict(X, tasks=tasks))


def test_weights_of_absorbed_rows():
    """Rows of weight w that are absorbed count as in a fit of all rows; those of weight zero do not."""
    rng = np.random.default_rng(3)
    X = rng.uniform(0, 6, (40, 1))
    y, weight = np.sin(X[:, 0]) + 0.1 * rng.normal(size=40), rng.choice([0.0, 0.5, 1.0, 3.0], 40)
    weight[:20] = 1.0
    fixed = {"kernel": RBF(1.0), "optimizer": None, "noise_variance": 0.1, "normalize_y": False}
    parts = SparseGPRegressor(**fixed).fit(X[:20], y[:20])
    parts.partial_fit(X[20:], y[20:], sample_weight=weight[20:])
    whole = SparseGPRegressor(**fixed).fit(X, y, sample_weight=weight)
    grid = np.linspace(0, 6, 9)[:, None]
    for a, b in zip(parts.predict(grid, return_std=True), whole.predict(grid, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    active = SparseGPRegressor(posterior="active", **fixed).fit(X[:20], y[:20])
    with pytest.raises(ValueError, match="sample_weight= needs posterior='local'"):
        active.partial_fit(X[20:], y[20:], sample_weight=weight[20:])


@pytest.mark.parametrize("estimator", [SparseGPRegressor, SparseGPClassifier])
def test_the_projected_posterior_is_the_local_one(estimator):
    """A warning says what to use; predictions are those of the default."""
    X = np.linspace(0.0, 3.0, 30)[:, None]
    y = np.sin(X[:, 0]) if estimator is SparseGPRegressor else X[:, 0] > 1.4
    with pytest.warns(FutureWarning, match="Use posterior='local', or 'active'"):
        old = estimator(posterior="projected", optimizer=None).fit(X, y)
    assert_same_answers(old.predict(X), estimator(optimizer=None).fit(X, y).predict(X))


@pytest.mark.slow
def test_tasks_whose_size_and_noise_grow_together():
    """Counts of small and large tasks, as measured numbers: a large task is not taken for a noisy one."""
    ratios = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        tasks, X = np.repeat(np.arange(40), 6), rng.uniform(-1, 1, (240, 2))
        truth = np.exp(0.3 + 0.8 * X[:, 0] + 1.5 * rng.normal(size=40)[tasks])
        y, train = rng.poisson(truth).astype(float), np.tile(np.arange(6) < 4, 40)
        model = SparseGPRegressor(random_state=0).fit(X[train], y[train], tasks=tasks[train])
        mean = np.array([y[train & (tasks == t)].mean() for t in range(40)])[tasks]
        errors = [model.predict(X[~train], tasks=tasks[~train]) - truth[~train], (mean - truth)[~train]]
        ratios.append(np.sqrt(np.mean(errors[0] ** 2) / np.mean(errors[1] ** 2)))
    assert np.mean(ratios) < 0.9


@pytest.mark.slow
def test_few_rows_and_many_columns_are_not_overconfident():
    """A line in eight columns and 24 rows: intervals of new rows cover; which form it is stays uncertain."""
    inside = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = rng.lognormal(size=(124, 8))
        y = X @ rng.normal(size=8) + rng.standard_normal(124)
        model = SparseGPRegressor(random_state=0).fit(X[:24], y[:24])
        low, high = model.predict_interval(X[24:], coverage=0.95).T
        inside.append(np.mean((low <= y[24:]) & (y[24:] <= high)))
    assert np.mean(inside) > 0.95 - 3.0 * np.std(inside) / np.sqrt(len(inside)) - 0.02
    decided = {decision.what: decision for decision in model.decisions_}
    assert sum(decided["smoothness"].numbers.values()) == pytest.approx(1.0)
    assert set(decided["warping"].numbers) == {"warped", "as they are"}


@pytest.mark.parametrize(("noise", "least"), [("gaussian", 0.99), ("outliers", 0.8)])
def test_an_input_that_needs_warping_is_warped(noise, least):
    """A sine of the logarithm, in forty rows: a kernel of one length scale needs the warping.

    Without it rows at small inputs can also be outliers.
    """
    rng = np.random.default_rng(0)
    x = np.exp(rng.uniform(-4, 4, 40))
    y = np.sin(2 * np.log(x)) + 0.05 * rng.standard_normal(40)
    model = SparseGPRegressor(noise=noise, random_state=0).fit(x[:, None], y)
    decided = {d.what: d for d in model.decisions_}
    assert decided["warping"].chosen == "warped"
    assert decided["warping"].numbers["warped"] > least
    assert decided["draws"].chosen == "16"


def test_draws_do_not_depend_on_rounding():
    """Targets in another unit differ in their last digits; the draws of the hyperparameters are the same.

    Copies of a column have length scales between which the data do not decide: in some directions the
    posterior has the same curvature.
    """
    rng = np.random.default_rng(0)
    x, codes = rng.uniform(0.0, 6.0, 40), np.arange(40) % 5
    y = np.sin(x) + rng.normal(size=5)[codes] + 0.3 * rng.normal(size=40)
    X, found = np.column_stack([x, x, x]), []
    for unit in (1.0, 1.0 / 3.0, 1000.0 / 7.0):
        model = SparseGPRegressor(random_state=0).fit(X, unit * y, codes)
        found.append(model.predict_quantiles(X, [0.05, 0.5, 0.95], codes) / unit)
    assert_allclose(found[1:], [found[0]] * 2, atol=1e-6)


@pytest.mark.parametrize("n_tasks", [1, 5])
def test_units_of_the_weights(n_tasks):
    """Numbers of people as weights give the predictions of their shares; a row of weight one is noisier."""
    rng = np.random.default_rng(0)
    x, codes, weight = rng.uniform(0.0, 6.0, 50), np.arange(50) % n_tasks, rng.uniform(0.3, 3.0, 50)
    y = np.sin(x) + 0.3 * codes + 0.3 * rng.normal(size=50) / np.sqrt(weight)
    y[codes == 1] = np.round(y[codes == 1])  # noise of rounding
    tasks, found = codes if n_tasks > 1 else None, []
    for unit in (1.0, 1e6, 1e-6):
        model = SparseGPRegressor(random_state=0).fit(x[:, None], y, tasks, sample_weight=unit * weight)
        model.partial_fit([[3.0]], [0.2], None if tasks is None else [0], sample_weight=[unit])
        latent = model.predict(x[:, None], tasks, return_std=True)
        noise = model._noise_of_tasks() / np.sqrt(unit)
        found.append(
            np.concatenate([*latent, noise, *model.leave_one_out(), [*model.variance_shares_.values()]])
        )
    assert_allclose(found[1:], [found[0]] * 2, rtol=1e-6, atol=1e-7)


def test_shares_of_variance_with_noise_that_is_known_per_row():
    """The share of the noise is that of its variance in the rows, however it is given."""
    X, y = np.linspace(0.0, 6.0, 40)[:, None], np.sin(np.linspace(0.0, 6.0, 40))
    alone = SparseGPRegressor(noise_variance=0.04, random_state=0).fit(X, y).variance_shares_
    of_rows = SparseGPRegressor(noise_variance=np.full(40, 0.04), random_state=0).fit(X, y).variance_shares_
    assert of_rows == pytest.approx(alone)
    assert 0.02 < alone["noise"] < 0.06


@pytest.mark.parametrize("labels", [False, True])
def test_the_order_of_columns_and_of_tasks_does_not_matter(labels):
    """Nor does it for the draws of the hyperparameters, of which each column and task has some."""
    rng = np.random.default_rng(0)
    X, codes, order = rng.normal(size=(40, 3)), np.arange(40) % 4, [2, 0, 1]
    y = np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1] + rng.normal(size=4)[codes] + 0.1 * rng.normal(size=40)
    Model, target = (SparseGPClassifier, y > 0.0) if labels else (SparseGPRegressor, y)
    found = []
    for columns, names in ((slice(None), "abcd"), (order, "abcd"), (slice(None), "cadb")):
        tasks = np.array(list(names))[codes]
        model = Model(random_state=0).fit(X[:, columns], target, tasks)
        answer = model.predict_proba if labels else partial(model.predict_quantiles, quantiles=[0.1, 0.9])
        found.append(answer(X[:, columns], tasks=tasks))
    assert model.decisions_[-1].what == "draws"
    assert_allclose(found[1:], [found[0]] * 2, atol=1e-6)


@pytest.mark.parametrize("noise", ["poisson", "negative_binomial", "binomial", "gamma"])
def test_probabilities_beside_the_support(noise):
    """P(Y <= y) is zero below zero, and that of the whole number below between two counts."""
    X, y = counts(noise, 30)
    given = {"trials": np.full(30, 20.0)} if noise == "binomial" else {}
    model = SparseGPRegressor(ConstantKernel() * RBF(), noise=noise, optimizer=None).fit(X, y, **given)
    some = {name: values[:6] for name, values in given.items()}
    p = model.predict_cdf(X[[3] * 6], [-2.0, -0.5, 1.0, 1.5, 2.0, np.nan], **some)
    assert_array_equal(p[:2], 0.0)
    assert np.isnan(p[5])
    assert (p[3] > p[2]) if noise == "gamma" else (p[3] == p[2])
    assert 0.0 < p[2] <= p[3] < p[4] < 1.0


def test_rows_with_a_wrong_label_are_not_silent():
    """They move the mean, so `n_silent_` does not count them."""
    X = np.linspace(0.0, 6.0, 60)[:, None]
    y = np.sin(X[:, 0]) > 0.0
    y[[5, 20, 40]] ^= True
    assert SparseGPClassifier(noise="robust", random_state=0).fit(X, y).n_silent_ == 0


@pytest.mark.parametrize(
    ("n_rows", "failing"), [(60, range(3, 99)), (LEARNING.n_together + 10, [3, *range(6, 99)])]
)
def test_searches_without_a_value_leave_what_was_learnt(monkeypatch, n_rows, failing):
    """Many outliers: propagation need not settle under another kernel or on the rows of a later stage.

    With many rows, the third search is that of the other kernel, which then has the two starts too.
    """
    climb, calls = learn.minimize, []

    def some_fail(*args, **how):
        calls.append(how)
        if len(calls) in failing:
            raise NotPositiveDefiniteError("the objective has no finite value at the start")
        return climb(*args, **how)

    monkeypatch.setattr(learn, "minimize", some_fail)
    X, y = waves(n_rows)
    model = SparseGPRegressor(noise="outliers", random_state=0).fit(X, y)
    assert len(calls) > 3
    assert np.corrcoef(model.predict(X), waves(n_rows, noise=0.0)[1])[0, 1] > 0.95
    assert ("smoothness" in [d.what for d in model.decisions_]) == (n_rows > 60)


@pytest.mark.slow
def test_intervals_of_a_large_table_follow_its_noise():
    """Noise that grows along an input: intervals cover as often where it is small and where it is large."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (6000, 3))
    f, noise = np.sin(2.0 * X[:, 0]) * X[:, 1], np.exp(X[:, 2] - 2.0)
    y = f + noise * rng.normal(size=6000)
    model = SparseGPRegressor(random_state=0).fit(X[:3000], y[:3000])
    low, high = model.predict_interval(X[3000:]).T
    covered = (low < y[3000:]) & (y[3000:] < high)
    assert 0.93 < covered.mean() < 0.97
    loud = X[3000:, 2] > 0.0
    assert min(covered[loud].mean(), covered[~loud].mean()) > 0.9
    assert np.median((high - low)[loud]) > 2.0 * np.median((high - low)[~loud])
    [made] = [d for d in model.decisions_ if d.what == "spread"]
    assert made.numbers["rows"] == 1500.0
    mean, std = model.leave_one_out()
    assert 0.94 < np.mean(np.abs(y[:3000] - mean) < 1.96 * std) < 0.96
    # What was given is not changed: with held parameters, and with known noise.
    for options in ({"optimizer": None}, {"noise_variance": 0.1}):
        held = SparseGPRegressor(random_state=0, **options).fit(X[:3000], y[:3000])
        assert not [d for d in held.decisions_ if d.what == "spread"]


def test_parameters_that_do_not_fit_all_rows_are_learnt_again(monkeypatch):
    """Sizes of firms, over orders of magnitude and nearly free of noise, learnt on neighbourhoods.

    On all rows together the parameters learnt on neighbourhoods have far less evidence. Learning then goes on
    under the prior of predictions, and new rows are more probable.
    """
    rng, tasks = np.random.default_rng(0), np.repeat(np.arange(50), 8)
    rng.normal(size=(400, 3))  # a draw on which the parameters of neighbourhoods lose far more than 15 nats
    size = np.exp(1.5 * rng.normal(size=50))[tasks]
    X = np.column_stack([size[:, None] * np.exp(0.3 * rng.normal(size=(400, 2))), rng.normal(size=400)])
    y, train = size * np.exp(0.1 * rng.normal(size=400)), np.arange(400) % 5 != 0

    def fitted():
        return SparseGPRegressor(random_state=0).fit(X[train], y[train], tasks=tasks[train])

    def density(model):
        return model.log_density(X[~train], y[~train], tasks=tasks[~train])

    again = fitted()
    monkeypatch.setattr(local_fit, "lost_evidence", lambda *args: False)
    once = fitted()
    (decision,) = [d for d in again.decisions_ if d.what == "learning"]
    assert decision.numbers["log evidence before"] == pytest.approx(once.log_evidence_)
    assert decision.numbers["after"] == pytest.approx(again.log_evidence_)
    assert again.log_evidence_ > once.log_evidence_ + 15.0
    assert density(again) > density(once)
    assert all(d.what != "learning" for d in once.decisions_)


def test_few_points_of_few_rows_are_learnt_once():
    """Few basis points carry less between tasks than all rows of a block do; that is what was asked for."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(120, 2))
    y = np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1]) + 0.01 * rng.normal(size=120)
    tasks = np.repeat(np.arange(6), 20)
    few, every = (SparseGPRegressor(n_active=n, random_state=0).fit(X, y, tasks=tasks) for n in (10, None))
    assert few.log_evidence_ < every.log_evidence_ - 15.0
    assert all(d.what != "learning" for d in few.decisions_)


@pytest.mark.parametrize("seed", [1, 2])
def test_copies_of_rows_do_not_take_the_noise_away(seed):
    """A quarter of the rows is there twice, target included: the noise is that of the distinct rows."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 6, (60, 2))
    y = np.sin(X[:, 0]) + X[:, 1] / 6 + 0.3 * rng.normal(size=60)
    rows = np.r_[:60, :15]
    model = SparseGPRegressor(random_state=0).fit(X[rows], y[rows])
    function, whole = (
        model.predict(X[:1], return_std=True, include_noise=noise)[1] for noise in (False, True)
    )
    assert 0.2 < np.sqrt(whole**2 - function**2) < 0.45
