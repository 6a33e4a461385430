"""The default model of several tasks against a plain implementation: log posterior, gradient, predictions.

The twin writes the covariance of all rows out, solves dense systems, and for noise that is not Gaussian
runs expectation propagation over one row at a time, with sums over a grid.
"""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.stats import multivariate_normal

from gleangp.inference.block import lay_out
from gleangp.inference.propagate import propagate_dense
from gleangp.models.defaults import LEARNING, LINKED_PRIORS, PRIORS
from gleangp.models.local.data import Data, exact_copies
from gleangp.models.local.fit import _posterior
from gleangp.models.local.learn import Form, Learnt, plan_search
from gleangp.models.objective import Likelihood, Rows
from gleangp.noise import (
    Binomial,
    ContaminatedNormal,
    Gamma,
    Gaussian,
    Logit,
    NegativeBinomial,
    Ordered,
    Poisson,
    Probit,
    RobustProbit,
)
from gleangp.numerics.optimize import Optimum
from tests.differences import central

RNG = np.random.default_rng(3)
N, TASKS = 14, 3
CODES = np.array([0] * 6 + [1] * 5 + [2] * 3)
X = np.column_stack([RNG.gamma(1.0, size=N), RNG.normal(size=N), RNG.integers(2, size=N)])
SIGNS = RNG.choice([-1.0, 1.0], N)
COUNTS = RNG.poisson(2.0, N).astype(float)
ONE_WILD = np.sin(X[:, 0]) + 0.2 * RNG.normal(size=N) + np.where(np.arange(N) == 4, 4.0, 0.0)
# Noise -> targets, and the parameters that are learnt.
OTHERS = {
    "probit": (Probit(bias=0.2), SIGNS, ("bias",)),
    "logit": (Logit(), SIGNS, ("bias",)),
    "robust": (RobustProbit(0.1), SIGNS, ("flip",)),
    "poisson": (Poisson(exposure=np.linspace(0.5, 2.0, N)), COUNTS, ("bias",)),
    "negative_binomial": (NegativeBinomial(0.4), COUNTS, ("dispersion", "bias")),
    "binomial": (Binomial(trials=np.full(N, 9.0)), COUNTS, ("bias",)),
    "gamma": (Gamma(3.0), COUNTS + 0.3, ("shape", "bias")),
    "outliers": (ContaminatedNormal(0.3, 0.1, 8.0), ONE_WILD, ("scale", "share")),
    "ordered": (Ordered(widths=[0.8, 0.9], variance=0.2), RNG.integers(4, size=N) * 1.0, ("bias",)),
}


# Those of which every task has its own noise.
OF_TASKS = {
    "outliers of tasks": (ContaminatedNormal(0.3, 0.1, 8.0), ONE_WILD, ("scale", "share", "reach")),
    "gamma of tasks": (Gamma(3.0), COUNTS + 0.3, ("shape", "bias")),
}
OTHERS |= OF_TASKS


def propagated(name, tol):
    """The likelihood of one of the others."""
    noise, _, learn = OTHERS[name]
    return Likelihood(noise, learn, sizes=np.bincount(CODES) if name in OF_TASKS else (), tol=tol)


def problem(likelihood, y, noise, widths=PRIORS):
    """The log posterior of all rows as one block, and parameters that are not where a search starts."""
    search = plan_search(X, TASKS, likelihood, widths=widths)
    objective = search.objective(LEARNING.starts[0], Form(2.5))
    objective = objective.on(Rows(X, y, noise, lay_out(CODES, [np.arange(N)]), X[:0], np.arange(N)))
    z = objective.slots.start + 0.3 * np.random.default_rng(5).normal(size=objective.slots.size)
    return search, objective, np.clip(z, *objective.slots.bounds.T)


def warped(rows, slots, z):
    """Standardised inputs: two skewed columns through Kumaraswamy's function, an indicator less its mean."""
    out, a, b = np.empty(rows.shape), *np.exp(z[slots.where["warp"]].reshape(2, -1))
    for c in range(2):
        low, high = X[:, c].min(), X[:, c].max()
        v, of_rows = (
            1 - (1 - (((x - low) / (high - low) + 0.02) / 1.04) ** a[c]) ** b[c]
            for x in (X[:, c], rows[:, c])
        )
        out[:, c] = (of_rows - v.mean()) / v.std()
    out[:, 2] = rows[:, 2] - X[:, 2].mean()
    return out


def covariance(A, a, B, b, slots, z, scale=None):
    """m + linear + smooth, and within tasks offset, slopes and own function; `scale` of what is own."""
    V, W = warped(A, slots, z), warped(B, slots, z)
    value = {name: np.exp(z[part]) for name, part in slots.where.items()}

    def matern(lengths):
        r = np.sqrt(5.0) * np.sqrt((((V[:, None] - W[None]) / lengths) ** 2).sum(2))
        return (1.0 + r + r**2 / 3.0) * np.exp(-r)

    common = 2.0**2 + value["term0__k1__k2__k1__constant_value"] * V @ W.T
    common = common + value["term0__k2__k1__constant_value"] * matern(value["term0__k2__k2__length_scale"])
    own = value["term1__constant_value"] + value["term2__k1__k1__constant_value"] * V @ W.T
    own = own + value["term2__k2__k1__constant_value"] * matern(value["term2__k2__k2__length_scale"])
    scale = np.ones(TASKS) if scale is None else scale
    return common + np.where(a[:, None] == b[None], scale[a][:, None] * own, 0.0)


def noise_of_tasks(slots, z):
    """Factor of the variance of the noise of each task, and the scale of what is its own."""
    tau, rho, level = np.exp(z[slots.where["tau"]]), z[slots.where["rho"]], z[slots.where["z"]]
    return np.exp(tau * level), np.exp(rho * tau * level)


def correction_of_tasks(slots, z):
    """Of the Laplace approximation of the noise of each task."""
    tau2, rho = np.exp(2 * z[slots.where["tau"]]), z[slots.where["rho"]]
    return -0.5 * np.log1p(tau2 * (np.bincount(CODES) - 1 + rho**2) / 2).sum()


def covariance_of_targets(slots, z, factors):
    """With the noise of every row; and the scale of what is a task's own."""
    factor, scale = noise_of_tasks(slots, z)
    variance = np.exp(z[slots.where["noise__variance"]]) * factor
    return covariance(X, CODES, X, CODES, slots, z, scale) + np.diag(variance[CODES] * factors), scale


def gaussian():
    y = np.sin(X[:, 0]) + 0.3 * RNG.normal(size=N)
    factors = np.linspace(0.5, 1.5, N)
    likelihood = Likelihood(Gaussian(), ("variance",), sizes=np.bincount(CODES))
    return likelihood, y, factors


def test_gaussian_log_posterior():
    """Evidence of the dense covariance, less the Laplace correction of the noise, and the log prior."""
    likelihood, y, factors = gaussian()
    _, objective, z = problem(likelihood, y, Gaussian(factors))
    slots = objective.slots
    K, _ = covariance_of_targets(slots, z, factors)
    expected = multivariate_normal(np.zeros(N), K).logpdf(y) + correction_of_tasks(slots, z)
    assert_allclose(-objective(z)[0], expected + slots.log_prior(z)[0], rtol=1e-9)
    assert objective.value(z) == pytest.approx(objective(z)[0], rel=1e-12)


def test_copies_count_as_one_row_with_less_noise():
    """Value and gradient with copies of rows: those of the distinct rows, each with its count as weight.

    They differ by what does not depend on the parameters. If one repeated row of a task differs, the task has
    no copies; those of other tasks, whose noise is their own, stay copies.
    """
    _, y, _ = gaussian()
    counts = np.array([3, 1, 2] + [1] * 5 + [2] + [1] * 5)
    rows = np.repeat(np.arange(N), counts)
    copies = exact_copies(Data(X[rows], y[rows], CODES[rows], TASKS, Gaussian()))
    assert_allclose(np.flatnonzero(copies), np.flatnonzero(np.diff(rows, prepend=-1) == 0))
    search, distinct, z = problem(gaussian()[0], y, Gaussian(1.0 / counts))
    search = replace(search, likelihood=replace(search.likelihood, copies=copies))
    everything = search.objective(LEARNING.starts[0], Form(2.5))
    layout = lay_out(CODES[rows], [np.arange(len(rows))])
    several = Rows(X[rows], y[rows], Gaussian(np.ones(len(rows))), layout, X[:0], np.arange(len(rows)))
    everything, other = everything.on(several), 0.9 * z
    assert_allclose(everything(z)[1], distinct(z)[1], rtol=1e-6, atol=1e-7)
    lost, expected = (f.value(other) - f.value(z) for f in (everything, distinct))
    assert lost == pytest.approx(expected, rel=1e-8)

    differs = y[rows] + (np.arange(len(rows)) == 1)
    of_others = exact_copies(Data(X[rows], differs, CODES[rows], TASKS, Gaussian()))
    assert_array_equal(of_others, copies & (CODES[rows] != CODES[rows[1]]))
    assert of_others.any()
    assert not exact_copies(Data(X[rows], differs, np.zeros(len(rows), dtype=int), 1, Gaussian())).any()


def sequential_propagation(K, y, noise):
    """Log evidence, precision and shift of the sites; one row at a time, sums over a grid."""
    precision, shift = np.zeros(N), np.zeros(N)
    normal = np.linspace(-9.0, 9.0, 2001)
    weights = np.exp(-0.5 * normal**2)
    for _ in range(300):
        before = precision.copy(), shift.copy()
        log_z = np.zeros(N)
        for i in range(N):
            cov = np.linalg.inv(np.linalg.inv(K) + np.diag(precision))
            mean = cov @ shift
            v = 1.0 / (1.0 / cov[i, i] - precision[i])
            m = v * (mean[i] / cov[i, i] - shift[i])
            f = m + np.sqrt(v) * normal
            with np.errstate(over="ignore"):
                log_p = noise.at(np.full(len(f), i)).log_prob(np.full(len(f), y[i]), f)
            p = weights * np.exp(log_p)
            log_z[i] = np.log(p.sum() / weights.sum())
            tilted = p @ f / p.sum()
            spread = p @ (f - tilted) ** 2 / p.sum()
            precision[i], shift[i] = 1.0 / spread - 1.0 / v, tilted / spread - m / v
        if np.allclose(before, (precision, shift), rtol=1e-10, atol=1e-12):
            break
    cov = np.linalg.inv(np.linalg.inv(K) + np.diag(precision))
    mean, var = cov @ shift, np.diagonal(cov)
    cavity_var = 1.0 / (1.0 / var - precision)
    cavity_mean = cavity_var * (mean / var - shift)
    site = np.log1p(precision * cavity_var) + (
        cavity_mean**2 / cavity_var - (cavity_mean / cavity_var + shift) ** 2 / (1.0 / cavity_var + precision)
    )
    total = log_z.sum() + 0.5 * site.sum() + 0.5 * mean @ shift
    total -= 0.5 * np.linalg.slogdet(np.eye(N) + K * precision)[1]
    return total, precision, shift


NEW_X, NEW_CODES = X[[2, 7, 12]] * [0.9, 1.0, 1.0] + [0.05, 0.0, 0.0], np.array([0, 1, 2])


def predicted(search, objective, z, y, noise):
    """Latent mean and variance of the new rows, by the model at given parameters."""
    learnt = Learnt(objective, Optimum(z, 0.0, True), N)
    data = Data(X, y, CODES, TASKS, noise)
    draw = _posterior(search, learnt, data, z, np.random.default_rng(0))[0]
    return draw.posterior.predict(search.inputs(NEW_X, draw.warp), NEW_CODES)[:2]


@pytest.mark.parametrize("name", OTHERS)
def test_other_noise(name):
    """Log posterior and predictions: expectation propagation under the dense covariance; the log prior."""
    noise, y, _ = OTHERS[name]
    search, objective, z = problem(propagated(name, 1e-10), y, noise, LINKED_PRIORS)
    slots, scale, correction = objective.slots, None, 0.0
    at = objective.likelihood.noise_model(slots, z)
    if name in OF_TASKS:
        factor, scale = noise_of_tasks(slots, z)
        factor, correction = factor[CODES], correction_of_tasks(slots, z)
        if isinstance(at, Gamma):
            at = replace(at, shape=at.shape / factor)
        else:  # what outliers are off more than other rows is the same in all tasks
            more = at.scale**2 * (at.reach**2 - 1.0)
            scales = at.scale * np.sqrt(factor)
            at = replace(at, scale=scales, reach=np.sqrt(scales**2 + more) / scales)
    K = covariance(X, CODES, X, CODES, slots, z, scale)
    evidence, precision, shift = sequential_propagation(K, y, at)
    evidence += correction
    assert_allclose(-objective(z)[0] - slots.log_prior(z)[0], evidence, rtol=1e-5)
    C = K + np.diag(1.0 / precision)
    across = covariance(NEW_X, NEW_CODES, X, CODES, slots, z, scale)
    within = covariance(NEW_X, NEW_CODES, NEW_X, NEW_CODES, slots, z, scale)
    mean, var = predicted(search, objective, z, y, noise)
    assert_allclose(mean, across @ np.linalg.solve(C, shift / precision), rtol=1e-3, atol=1e-4)
    assert_allclose(var, np.diagonal(within - across @ np.linalg.solve(C, across.T)), rtol=1e-3)


@pytest.mark.parametrize("name", ["gaussian", *OTHERS])
def test_gradient(name):
    """Of every parameter, by central differences."""
    if name == "gaussian":
        likelihood, y, noise = gaussian()
        _, objective, z = problem(likelihood, y, Gaussian(noise))
    else:
        noise, y, _ = OTHERS[name]
        _, objective, z = problem(propagated(name, 1e-12), y, noise, LINKED_PRIORS)
    by_differences = central(lambda z: objective(z)[0], z)
    assert_allclose(objective(z)[1], by_differences, rtol=2e-4, atol=2e-5)


WRONG = np.where(np.isin(np.arange(9), [2, 6]), -1.0, 1.0) * np.where(np.arange(9) < 5, -1.0, 1.0)
WILD = np.sin(np.linspace(-2, 2, 9)) + np.where(np.arange(9) == 3, 1.5, 0.0)


@pytest.mark.parametrize(
    ("noise", "y"),
    [(RobustProbit(0.1), WRONG), (ContaminatedNormal(0.3, 0.1, 10.0), WILD)],
    ids=["labels", "measurements"],
)
def test_wrong_rows_against_draws_of_the_prior(noise, y):
    """Evidence and posterior means where some rows would widen the posterior: they still move the mean."""
    x = np.linspace(-2, 2, 9)
    K = 4.0 * np.exp(-0.5 * (x[:, None] - x) ** 2) + 1e-8 * np.eye(9)
    sites, [evidence] = propagate_dense(np.zeros((1, 9)), K[None], y, noise)
    precision, shift = sites.precision[0], sites.shift[0]
    mean = np.linalg.solve(np.linalg.inv(K) + np.diag(precision), shift)
    f = np.random.default_rng(0).multivariate_normal(np.zeros(9), K, 200_000, method="cholesky")
    weights = np.exp(noise.log_prob(y, f).sum(axis=1))
    truth = weights @ f / weights.sum()
    hardly = precision < 1e-2 * np.median(precision)  # they explain none of the variance
    assert hardly.any()
    assert (shift[hardly] != 0.0).all()
    assert sites.n_silent == 0
    assert_allclose(evidence, np.log(weights.mean()), atol=0.2)
    assert_allclose(mean, truth, atol=0.06)


def test_predictions():
    """Mean and variance of known tasks at new rows, given the parameters."""
    likelihood, y, factors = gaussian()
    search, objective, z = problem(likelihood, y, Gaussian(factors))
    slots = objective.slots
    K, scale = covariance_of_targets(slots, z, factors)
    across = covariance(NEW_X, NEW_CODES, X, CODES, slots, z, scale)
    within = covariance(NEW_X, NEW_CODES, NEW_X, NEW_CODES, slots, z, scale)
    mean, var = predicted(search, objective, z, y, Gaussian(factors))
    assert_allclose(mean, across @ np.linalg.solve(K, y), rtol=1e-6, atol=1e-9)
    assert_allclose(var, np.diagonal(within - across @ np.linalg.solve(K, across.T)), rtol=1e-6)


def test_expected_noise_of_a_task():
    """The mean of exp(tau u) under the posterior of u, from the residuals alone: by adaptive quadrature."""
    tau, rho, sizes = 0.8, 0.0, np.array([2, 5, 40])
    squares = np.array([0.05, 9.0, 60.0])  # of the residuals, with one degree of freedom less than rows
    modes, expected = [], []
    for nu, square in zip(sizes - 1, squares, strict=True):

        def density(u, nu=nu, square=square):
            return np.exp(-0.5 * (u**2 + nu * tau * u + square * np.exp(-tau * u)))

        grid = np.linspace(-6, 6, 200_001)
        modes.append(grid[np.argmax(density(grid))])
        parts = [quad(lambda u, k=k, p=density: p(u) * np.exp(k * tau * u), -12, 12)[0] for k in (0, 1)]
        expected.append(parts[1] / parts[0])
    likelihood = Likelihood(Gaussian(), ("variance",), sizes=sizes)
    slots = problem(Likelihood(Gaussian(), ("variance",), sizes=sizes), np.zeros(N), Gaussian())[1].slots
    z = np.zeros(slots.size)
    z[slots.where["tau"]], z[slots.where["rho"]], z[slots.where["z"]] = np.log(tau), rho, modes
    found = likelihood.predictive_variance(slots, z)
    assert_allclose(found[:-1], expected, rtol=1e-3)
    assert_allclose(found[-1], np.exp(tau**2 / 2))


@pytest.mark.slow
def test_tasks_of_two_rows_do_not_make_noise_levels_up():
    """Offsets and noise of one size for all tasks: the levels at the optimum hardly differ."""
    from gleangp import SparseGPRegressor

    for seed in range(3):
        rng = np.random.default_rng(seed)
        tasks = np.repeat(np.arange(100), 2)
        rows = rng.normal(size=(200, 1))
        y = np.sin(rows[:, 0]) + 0.5 * rng.normal(size=100)[tasks] + 0.3 * rng.normal(size=200)
        model = SparseGPRegressor(random_state=0).fit(rows, y, tasks=tasks)
        place, each = np.zeros((100, 1)), np.arange(100)
        whole = model.predict(place, tasks=each, return_std=True, include_noise=True)[1]
        function = model.predict(place, tasks=each, return_std=True)[1]
        noise = np.sqrt(whole**2 - function**2)
        assert noise.max() < 1.5 * noise.min()


def test_features_with_one_length_scale():
    """The log posterior of equal length scales, with one prior for each group; gradients add up."""
    likelihood, y, noise = gaussian()
    groups = np.array([0, 1, 1])
    _, free, _ = problem(likelihood, y, Gaussian(noise))
    search = plan_search(X, TASKS, likelihood, groups=groups)
    tied = search.objective(LEARNING.starts[0], Form(2.5))
    tied = tied.on(free.rows)
    z = tied.slots.start + 0.3 * np.random.default_rng(5).normal(size=tied.slots.size)
    z = np.clip(z, *tied.slots.bounds.T)
    parts = {name: z[part] for name, part in tied.slots.where.items()}
    repeated = {n: p[groups] if n.endswith("length_scale") else p for n, p in parts.items()}
    same = np.concatenate([repeated[name] for name in free.slots.where])
    (value, gradient), (of_free, by_free) = tied(z), free(same)
    evidence, of_free = (
        -v - o.slots.log_prior(at)[0] for v, o, at in ((value, tied, z), (of_free, free, same))
    )
    assert_allclose(evidence, of_free, rtol=1e-12)
    by_free, own_prior = by_free + free.slots.log_prior(same)[1], tied.slots.log_prior(z)[1]
    for name, part in tied.slots.where.items():
        expected = by_free[free.slots.where[name]]
        if name.endswith("length_scale"):
            expected = np.bincount(groups, expected)
        assert_allclose(gradient[part] + own_prior[part], expected, rtol=1e-9, atol=1e-12)
