"""Noise models: every member of the contract against its definition."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import logsumexp, softmax

from gleangp.models.parameters import constrain, unconstrain
from gleangp.noise import (
    Binomial,
    ContaminatedNormal,
    Gamma,
    Gaussian,
    Logit,
    NegativeBinomial,
    NullCategory,
    Ordered,
    Poisson,
    Probit,
    RobustProbit,
)

SOFT_NULL = NullCategory(bias=0.2, gamma_minus=0.7, gamma_plus=0.4, width=1.2, variance=0.3)
# Model -> targets to try it with.
MODELS = {
    Gaussian: [(Gaussian(0.3), (-1.0, 2.5)), (Gaussian(2.0, bias=0.7), (0.4,))],
    Probit: [
        (Probit(), (-1.0, 1.0)),
        (Probit(bias=0.7, slope=0.4), (-1.0, 1.0)),
        (Probit(bias=-0.1, slope=3.0), (1.0,)),
    ],
    NullCategory: [
        (SOFT_NULL, (-1.0, 0.0, 1.0)),
        (NullCategory(width=0.5, variance=1.0), (-1.0, 0.0, 1.0)),
    ],
    Ordered: [
        (Ordered(bias=0.4, widths=[0.8, 1.2, 0.5], variance=0.3), (0.0, 1.0, 2.0, 3.0, 4.0)),
        (Ordered(widths=[], variance=2.0), (0.0, 1.0)),
        (Ordered(widths=[0.05]), (1.0,)),
    ],
    ContaminatedNormal: [
        (ContaminatedNormal(0.5, 0.1, 8.0, bias=0.3), (-1.0, 12.0)),
        (ContaminatedNormal(2.0, 0.5, 1.5), (0.4,)),
        (ContaminatedNormal(0.3, 0.05, 40.0), (1.0,)),
    ],
    Poisson: [(Poisson(), (0.0, 1.0, 30.0)), (Poisson(bias=0.7, exposure=3.0), (2.0,))],
    NegativeBinomial: [
        (NegativeBinomial(), (0.0, 1.0, 30.0)),
        (NegativeBinomial(0.1, bias=-0.4, exposure=3.0), (2.0,)),
    ],
    Binomial: [(Binomial(trials=4.0), (0.0, 1.0, 4.0)), (Binomial(0.4, trials=50.0), (20.0,))],
    Gamma: [(Gamma(), (0.01, 1.0, 30.0)), (Gamma(7.0, bias=0.4), (2.0,))],
    Logit: [(Logit(), (-1.0, 1.0)), (Logit(bias=0.4), (1.0,))],
    RobustProbit: [(RobustProbit(0.1), (-1.0, 1.0)), (RobustProbit(0.01, bias=0.4), (1.0,))],
}
CONTINUOUS = (Gaussian, ContaminatedNormal, Gamma)
COUNTS = (Poisson, NegativeBinomial, Binomial)
LABELS = (Probit, Logit, RobustProbit)
PAIRS = [(noise, y) for models in MODELS.values() for noise, ys in models for y in ys]
NOISES = [noise for models in MODELS.values() for noise, _ in models]
BULK = [(0.4, 1.7), (-1.3, 0.5), (3.0, 1e-3)]
TAILS = [(-8.0, 0.5), (12.0, 0.2), (-40.0, 2.0), (30.0, 1.0)]

each_pair = pytest.mark.parametrize(("noise", "y"), PAIRS, ids=repr)
each_model = pytest.mark.parametrize("noise", NOISES, ids=repr)


def targets(noise, n, rng):
    """n random targets in the coding of the model."""
    if isinstance(noise, COUNTS):
        return rng.integers(5, size=n).astype(float)
    if isinstance(noise, CONTINUOUS):
        return rng.exponential(size=n)
    if isinstance(noise, Ordered):
        return rng.integers(noise.n_categories, size=n).astype(float)
    return rng.choice([-1.0, 1.0] if isinstance(noise, LABELS) else [-1.0, 0.0, 1.0], size=n)


def data(noise, n=40, seed=0):
    """Random targets, means and variances, some of them in the tails."""
    rng = np.random.default_rng(seed)
    return targets(noise, n, rng), rng.normal(scale=3.0, size=n), rng.uniform(0.05, 4.0, size=n)


def perturbed(noise, name, entry, step):
    """The model with one parameter, or one entry of a vector of them, moved by a step."""
    value = np.array(noise.parameters[name], dtype=float)
    value[entry] += step
    return replace(noise, **{name: value if value.ndim else float(value)})


def difference(function, step=1e-5):
    """Central difference of a function of a scalar at 0."""
    return (function(step) - function(-step)) / (2 * step)


@each_pair
@pytest.mark.parametrize(("mean", "var"), BULK + TAILS)
def test_log_partition_matches_brute_force(noise, y, mean, var):
    """log_z, g and nu agree with summing p(y | f) N(f | mean, var) over a fine grid."""
    u, step = np.linspace(-60.0, 60.0, 30_001, retstep=True)  # f = mean + sqrt(var) u
    log_w = noise.log_prob(y, mean + np.sqrt(var) * u) - 0.5 * (u**2 + np.log(2 * np.pi))
    w = softmax(log_w)
    tilted_mean = w @ u
    tilted_var = w @ (u - tilted_mean) ** 2
    log_z, g, nu = noise.log_partition(y, mean, var)
    assert_allclose(log_z, logsumexp(log_w) + np.log(step), rtol=1e-9, atol=1e-12)
    assert_allclose(g, tilted_mean / np.sqrt(var), rtol=1e-7, atol=1e-12 / np.sqrt(var))
    assert_allclose(nu, (1.0 - tilted_var) / var, rtol=1e-6, atol=1e-11 / var)
    assert_allclose(noise.precision(y, mean, var), nu, rtol=1e-11, atol=1e-300)


@each_pair
def test_probabilities_sum_to_one(noise, y):
    """Over all targets a discrete model adds up; only the null category loses mass, by design."""
    f = np.linspace(-6.0, 6.0, 25)
    if isinstance(noise, CONTINUOUS):
        pytest.skip("targets are continuous")
    every = range(noise.n_categories) if isinstance(noise, Ordered) else (-1.0, 0.0, 1.0)
    if isinstance(noise, LABELS):
        every = (-1.0, 1.0)
    if isinstance(noise, COUNTS):
        f = np.linspace(-6.0, 1.0, 8)
        every = range(int(noise.trials) + 1 if isinstance(noise, Binomial) else 500)
    total = sum(np.exp(noise.log_prob(value, f)) for value in every)
    if isinstance(noise, NullCategory):
        null = Ordered(noise.bias + noise.width / 2, [noise.width], noise.variance)
        total = total + np.exp(null.log_prob(1, f))
    assert_allclose(total, 1.0, rtol=1e-12)
    assert np.all(np.exp(noise.log_prob(y, f)) <= 1.0)


@each_model
def test_parameter_gradients(noise):
    """Gradients of log_z in every parameter are those of finite differences."""
    y, mean, var = data(noise)
    of_log_z = noise.log_partition_grad(y, mean, var)
    assert set(of_log_z) == set(noise.parameters) == set(noise.transforms)
    for name, value in noise.parameters.items():
        for entry in np.ndindex(np.shape(value)):
            column = (..., *entry)

            def log_z(step, name=name, entry=entry):
                return perturbed(noise, name, entry, step).log_partition(y, mean, var)[0]

            assert_allclose(of_log_z[name][column], difference(log_z), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("noise", [noise for noise in NOISES if noise.of_tasks], ids=repr)
def test_gradients_of_tasks(noise):
    """Gradients in shared parameters, and in the log variance of the task of every row, are those of
    differences; the variances of tasks are in proportion to the shared one.
    """
    y, mean, var = data(noise)
    ratio = np.linspace(0.3, 2.0, len(y))

    def log_z(shared, step=0.0):
        rows = shared.with_variance(ratio * np.exp(step) * shared.variance_of_task)
        return rows.log_partition(y, mean, var)[0]

    rows = noise.with_variance(ratio * noise.variance_of_task)
    by_name, by_log = rows.grad_of_shared(rows.log_partition_grad(y, mean, var), noise)
    assert_allclose(by_log, difference(lambda step: log_z(noise, step)), rtol=1e-6, atol=1e-8)
    for name in noise.parameters:
        expected = difference(lambda step, name=name: log_z(perturbed(noise, name, (), step)))
        assert_allclose(by_name[name], expected, rtol=1e-6, atol=1e-8)


@each_model
def test_parameters_rebuild_the_model(noise):
    """The parameters are the model, and survive the trip to the unbounded scale."""
    assert replace(noise, **noise.parameters) == noise
    for name, transform in noise.transforms.items():
        value = noise.parameters[name]
        assert_allclose(constrain(transform, unconstrain(transform, value)), value, rtol=1e-12)


@each_model
@pytest.mark.parametrize(
    "rows", [slice(3, 9), np.array([7, 0, 7]), np.arange(12) % 3 == 0], ids=["slice", "int", "mask"]
)
def test_at_restricts_every_result_to_those_rows(noise, rows):
    """Restricting the model and the data commutes with every function of the contract."""
    y, mean, var = data(noise, n=12)
    per_row = replace(noise, bias=np.linspace(-1.0, 1.0, 12))
    part = per_row.at(rows)
    here = y[rows], mean[rows], var[rows]
    assert_allclose(part.precision(*here), per_row.precision(y, mean, var)[rows], rtol=1e-14)
    for got, full in zip(part.log_partition(*here), per_row.log_partition(y, mean, var), strict=True):
        assert_allclose(got, full[rows], rtol=1e-9, atol=1e-14)
    full = per_row.log_partition_grad(y, mean, var)
    for parameter, got in part.log_partition_grad(*here).items():
        assert_allclose(got, full[parameter][rows], rtol=1e-9, atol=1e-14)


@each_model
def test_at_keeps_shared_fields(noise):
    """A model without per-row fields is the same for all rows, vectors of parameters included."""
    assert noise.at(np.array([0, 1])) is noise


@each_model
def test_scalars_broadcast(noise):
    """One target for many rows, or one row: results have the broadcast shape."""
    mean, var = np.linspace(-2.0, 2.0, 6).reshape(2, 3), np.array([0.1, 0.5, 2.0])
    many = noise.log_partition(1.0, mean, var)
    for i, j in np.ndindex(2, 3):
        one = noise.log_partition(1.0, mean[i, j], var[j])
        assert_allclose([a[i, j] for a in many], one, rtol=1e-12)


def test_many_rows_are_worked_through_in_blocks():
    """Blocks leave no seam, with shared and with per-row parameters."""
    n = 40_000
    noise = Probit(bias=0.3)
    y, mean, var = data(noise, n)
    for model in (noise, replace(noise, slope=np.linspace(0.5, 3.0, n))):
        assert_allclose(model.precision(y, mean, var), model.log_partition(y, mean, var)[2], rtol=1e-12)


@pytest.mark.parametrize("noise", [Probit(), Probit(slope=1e3), Ordered(variance=1e-6)], ids=repr)
def test_precision_stays_in_range_in_the_tails(noise):
    """0 <= nu (var + noise variance) <= 1, so that no site gets a negative precision."""
    mean = np.concatenate([-np.logspace(9, 0, 50), np.logspace(0, 9, 50)])
    variance = 1.0 / noise.slope**2 if isinstance(noise, Probit) else noise.variance
    for y in (0.0, 1.0, 2.0) if isinstance(noise, Ordered) else (-1.0, 1.0):
        for var in (1e-4, 1.0, 50.0):
            scaled = noise.precision(y, mean, var) * (var + variance)
            assert np.all((scaled >= 0.0) & (scaled <= 1.0 + 1e-15))


def test_unlabelled_row_that_spans_the_null_category_has_negative_precision():
    """The true nu is returned: negative in the middle, zero far away, never clipped."""
    step = NullCategory()
    assert not step.log_concave
    nu = step.precision(0.0, np.array([0.0, 0.3, 4.0, 1000.0]), 1.0)
    assert nu[0] < -0.5
    assert nu[1] < 0.0
    assert nu[2] > 0.0
    assert nu[3] == 0.0


def test_labelled_null_category_is_probit_with_a_margin():
    """Given a label, only the constant 1 - gamma and the margin of half a width differ."""
    mean, var = np.linspace(-5.0, 5.0, 11), 0.7
    for y, gamma in ((-1.0, SOFT_NULL.gamma_minus), (1.0, SOFT_NULL.gamma_plus)):
        probit = Probit(SOFT_NULL.bias - y * SOFT_NULL.width / 2, SOFT_NULL.variance**-0.5)
        log_z, g, nu = probit.log_partition(y, mean, var)
        got = SOFT_NULL.log_partition(y, mean, var)
        assert_allclose(got, (log_z + np.log1p(-gamma), g, nu), rtol=1e-12)


def test_step_null_category_is_the_limit_of_soft_ones():
    """A step with all its noise in the latent variance equals a soft model with part of it."""
    y, mean, var = data(SOFT_NULL)
    soft = replace(SOFT_NULL, variance=0.03)
    step = replace(SOFT_NULL, variance=2.0**-52)
    for got, expected in zip(
        step.log_partition(y, mean, var + 0.03), soft.log_partition(y, mean, var), strict=True
    ):
        assert_allclose(got, expected, rtol=1e-11, atol=1e-13)


def test_extreme_gammas():
    """A class that is always labelled contributes nothing to a missing label; no warnings."""
    noise = NullCategory(gamma_minus=0.0, gamma_plus=0.5, variance=1.0)
    plus = replace(noise, gamma_minus=0.5)
    mean, var = np.linspace(-3.0, 3.0, 7), 0.4
    got = noise.log_partition(0.0, mean, var)
    for a, b in zip(got, plus.log_partition(1.0, mean, var), strict=True):
        assert_allclose(a, b, rtol=1e-12)
    certain = NullCategory(gamma_minus=1.0, variance=1.0)
    assert certain.log_prob(-1.0, 0.0) == -np.inf


def test_ordered_with_two_categories_is_probit():
    """Without inner categories the ordered model is the probit model."""
    mean, var = np.linspace(-20.0, 20.0, 21), 0.7
    ordered, probit = Ordered(0.3, [], 4.0), Probit(0.3, 0.5)
    for category, y in ((0, -1.0), (1, 1.0)):
        for got, expected in zip(
            ordered.log_partition(category, mean, var),
            probit.log_partition(y, mean, var),
            strict=True,
        ):
            assert_allclose(got, expected, rtol=1e-11)


def test_probabilities_of_two_classes_by_quadrature_sum_to_one():
    """Also at means and variances where the integral of each is right to 1e-7 only."""
    mean, var = np.linspace(-200.0, 200.0, 81)[:, np.newaxis], np.logspace(-3.0, 8.0, 45)
    log_no, log_yes = Logit().class_log_prob(mean, var)
    assert_allclose(np.exp(log_no) + np.exp(log_yes), 1.0, atol=1e-12)


def test_equality_and_pickling():
    """Models with equal fields are equal, arrays included, and come back from a pickle."""
    for noise in (*NOISES, Probit(slope=np.array([1.0, 2.0]))):
        assert pickle.loads(pickle.dumps(noise)) == noise
    assert Probit() != Probit(bias=1.0)
    assert Probit() != Gaussian()
    assert Ordered(widths=[1.0]) != Ordered(widths=[1.0, 2.0])


def test_outliers_within_the_noise_have_no_reach_in_less_of_it():
    """A search that tries such parameters leaves them, as they have no finite value, without a warning."""
    narrow = ContaminatedNormal(scale=0.3, reach=0.5).with_variance(np.array([0.09, 1e-4]))
    assert_allclose(narrow.reach[0], 0.5)
    assert np.isnan(narrow.reach[1])


def test_small_positive_targets_have_their_own_typical_mean():
    """Half an event stands for no event at all; ten targets of 0.001 are not half an event."""
    assert Gamma().typical_bias(np.full(10, 1e-3)) == pytest.approx(np.log(1e-3))
    assert Poisson().typical_bias(np.zeros(10)) == pytest.approx(np.log(0.05))
