"""Noise models by quadrature: extreme variances and targets, limits, and predictions of observations."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import expit, log_ndtr, logsumexp, ndtr, softmax

from gleangp import io
from gleangp.exceptions import LabelError
from gleangp.noise import (
    Binomial,
    ContaminatedNormal,
    Gamma,
    Gaussian,
    Logit,
    NegativeBinomial,
    Noise,
    NullCategory,
    Ordered,
    Poisson,
    Probit,
    RobustProbit,
    noise_from_name,
)
from gleangp.noise.quadrature import _root

# Model -> targets, from the bulk to far out.
EXTREMES = [
    (Poisson(exposure=2.0), (0.0, 1.0, 7.0, 300.0, 1e5)),
    (NegativeBinomial(0.7, exposure=0.5), (0.0, 1.0, 7.0, 300.0, 1e5)),
    (NegativeBinomial(1e-5), (0.0, 3.0, 1e5)),
    (NegativeBinomial(30.0), (0.0, 3.0, 1e5)),
    (Binomial(trials=1e5), (0.0, 1.0, 5e4, 1e5)),
    (Binomial(trials=3.0), (0.0, 1.0, 3.0)),
    (Gamma(0.5), (1e-6, 1.0, 1e5)),
    (Gamma(40.0), (1e-6, 1.0, 1e5)),
    (Logit(), (-1.0, 1.0)),
    (RobustProbit(0.1), (-1.0, 1.0)),
    (RobustProbit(0.7), (-1.0, 1.0)),
    (ContaminatedNormal(0.1, 0.05, 10.0), (0.0, 1.0, -30.0, 60.0)),
    (ContaminatedNormal(3.0, 0.5, 2.0), (0.0, 1.0, -30.0, 60.0)),
    (ContaminatedNormal(0.5, 1e-4, 100.0), (0.0, 2.0, -30.0)),
]
VARIANCES = [1e-8, 1e-4, 0.05, 1.0, 10.0, 1e3]
MEANS = [-30.0, -3.0, 0.4, 5.0, 30.0]

# What a new observation of each can be simulated and predicted with.
PREDICTED = [
    Gaussian(0.3, bias=0.2),
    ContaminatedNormal(0.3, 0.1, 6.0, bias=-0.4),
    Poisson(bias=0.3, exposure=3.0),
    NegativeBinomial(0.4, exposure=5.0),
    Binomial(trials=12.0),
    Gamma(2.0, bias=0.1),
]

each_predicted = pytest.mark.parametrize("noise", PREDICTED, ids=repr)


def brute_force(noise, y, mean, var, n=20_001):
    """log_z, g, nu by a sum over a grid that is narrowed to where the integrand is."""
    sd = np.sqrt(var)
    low, high = min(-60.0, (-100.0 - mean) / sd), max(60.0, (100.0 - mean) / sd)
    for points in (n // 5,) * 6 + (n,):
        u, step = np.linspace(low, high, points, retstep=True)
        log_w = noise.log_prob(y, mean + sd * u) - 0.5 * (u**2 + np.log(2 * np.pi))
        inside = np.flatnonzero(log_w > log_w.max() - 50.0)
        low, high = u[max(inside[0] - 1, 0)], u[min(inside[-1] + 1, points - 1)]
    w = softmax(log_w)
    tilted_mean = w @ u
    return logsumexp(log_w) + np.log(step), tilted_mean / sd, (1.0 - w @ (u - tilted_mean) ** 2) / var


def second_difference(function, step):
    """Minus the second derivative at 0 of a function of a scalar."""
    return -(function(step) - 2.0 * function(0.0) + function(-step)) / step**2


@pytest.mark.parametrize(("noise", "ys"), EXTREMES, ids=repr)
@pytest.mark.parametrize("var", VARIANCES)
def test_extreme_variances_and_targets(noise, ys, var):
    """log_z, g and nu are those of a narrowed grid, for wide and narrow priors and targets far away."""
    with np.errstate(over="ignore"):
        for y in ys:
            for mean in MEANS:
                log_z, g, nu = noise.log_partition(y, mean, var)
                expected = brute_force(noise, y, mean, var)
                label = f"y={y}, mean={mean}"
                assert_allclose(log_z, expected[0], rtol=1e-9, atol=1e-8, err_msg=label)
                assert_allclose(g, expected[1], rtol=1e-8, atol=1e-9 / np.sqrt(var), err_msg=label)
                lost = np.finfo(float).eps * expected[1] ** 2 * var  # by rounding of a logarithm that large
                assert_allclose(nu, expected[2], rtol=1e-7, atol=(3e-8 + lost) / var, err_msg=label)


@pytest.mark.parametrize(("noise", "ys"), EXTREMES, ids=repr)
@pytest.mark.parametrize("var", [0.0, 1e-12, 1e-8])
def test_a_known_latent_value_gives_the_likelihood(noise, ys, var):
    """With hardly any variance log_z, g and nu are log p(y | f) and its derivatives, to all digits."""
    for y in ys:
        for mean in (-2.0, 0.3, 4.0):
            log_z, g, nu = noise.log_partition(y, mean, var)

            def log_prob(step, y=y, mean=mean):
                return noise.log_prob(y, mean + step)

            scale = 1.0 + abs(g) ** 2 + abs(nu)
            assert_allclose(log_z, log_prob(0.0), rtol=1e-12, atol=2.0 * var * scale + 1e-12)
            slope = (log_prob(1e-5) - log_prob(-1e-5)) / 2e-5
            assert_allclose(g, slope, rtol=1e-6 + 10 * var * scale, atol=1e-5)
            assert_allclose(nu, second_difference(log_prob, 1e-3), rtol=1e-4 + 10 * var * scale, atol=1e-3)


@pytest.mark.parametrize(("noise", "ys"), EXTREMES, ids=repr)
def test_never_nan(noise, ys):
    """Every mean and variance gives numbers, without a warning; a log-concave model has nu >= 0."""
    mean, var = (a.ravel() for a in np.meshgrid(np.r_[-800.0, MEANS, 200.0, 800.0], [0.0, *VARIANCES, 1e5]))
    for y in ys:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            log_z, g, nu = noise.log_partition(y, mean, var)
        for part in (log_z, g, nu, *noise.log_partition_grad(y, mean, var).values()):
            assert np.all(np.isfinite(part))
        if noise.log_concave:
            assert np.all(nu * var >= -1e-12)
            assert np.all(nu * var <= 1.0 + 1e-12)


def test_log_prob_is_that_of_scipy():
    """Each model is the distribution it is named after."""
    f = np.linspace(-3.0, 4.0, 15)
    y, positive = np.arange(15.0), np.linspace(0.01, 30.0, 15)
    mu = 2.5 * np.exp(f + 0.3)
    cases = [
        (Poisson(0.3, 2.5), y, stats.poisson(mu).logpmf(y)),
        (NegativeBinomial(0.4, 0.3, 2.5), y, stats.nbinom(2.5, 2.5 / (2.5 + mu)).logpmf(y)),
        (Binomial(0.3, 20.0), y, stats.binom(20, expit(f + 0.3)).logpmf(y)),
        (Gamma(1.7, 0.3), positive, stats.gamma(1.7, scale=np.exp(f + 0.3) / 1.7).logpdf(positive)),
        (
            ContaminatedNormal(0.6, 0.1, 5.0, 0.3),
            positive,
            np.log(
                0.9 * stats.norm(f + 0.3, 0.6).pdf(positive) + 0.1 * stats.norm(f + 0.3, 3.0).pdf(positive)
            ),
        ),
        (Gaussian(0.4, 0.3), positive, stats.norm(f + 0.3, np.sqrt(0.4)).logpdf(positive)),
        (Probit(0.3, 2.0), np.sign(f), log_ndtr(2.0 * np.sign(f) * (f + 0.3))),
        (Ordered(0.3, [2.0], 0.25), np.ones(15), np.log(ndtr(2.0 * (f + 0.3)) - ndtr(2.0 * (f - 1.7)))),
        (
            NullCategory(0.3, 0.2, 0.6, 1.0, 0.25),
            np.zeros(15),
            np.log(0.2 * ndtr(-2.0 * (f + 0.8)) + 0.6 * ndtr(2.0 * (f - 0.2))),
        ),
        (Logit(0.3), np.sign(f), np.log(expit(np.sign(f) * (f + 0.3)))),
        (RobustProbit(0.1, 0.3), np.sign(f), np.log(0.1 + 0.8 * ndtr(np.sign(f) * (f + 0.3)))),
    ]
    for noise, target, expected in cases:
        assert_allclose(noise.log_prob(target, f), expected, rtol=1e-10)


@each_predicted
def test_density_of_an_observation_adds_up(noise):
    """exp(log_density) sums or integrates to one, with the mean, the variance and cdf that are predicted."""
    mean, var = 0.4, 0.3
    if noise.support == "count":
        y, weight = np.arange(noise.trials + 1 if isinstance(noise, Binomial) else 20_000.0), 1.0
    elif noise.support == "positive":
        t, weight = np.linspace(-30.0, 12.0, 40_001, retstep=True)
        y, weight = np.exp(t), weight * np.exp(t)
    else:  # heavy tails: y = sinh(t)
        t, weight = np.linspace(-14.0, 14.0, 40_001, retstep=True)
        y, weight = np.sinh(t), weight * np.cosh(t)
    p = np.exp(noise.log_density(y, mean, var)) * weight
    assert_allclose(p.sum(), 1.0, rtol=1e-8)
    assert_allclose(p @ y, noise.predict_mean(mean, var), rtol=1e-7, atol=1e-12)
    assert_allclose(p @ (y - p @ y) ** 2, noise.predict_var(mean, var), rtol=1e-6)
    for at in np.searchsorted(p.cumsum(), [0.03, 0.5, 0.9]):
        below = p[: at + 1].sum() - (0.0 if noise.support == "count" else 0.5 * p[at])
        assert_allclose(noise.predict_cdf(y[at], mean, var), below, rtol=1e-4)


@pytest.mark.parametrize("noise", [Probit(0.3), Logit(0.3), RobustProbit(0.1, 0.2)], ids=repr)
def test_probabilities_of_both_classes_add_up(noise):
    """At any latent mean and variance."""
    mean, var = np.linspace(-9.0, 9.0, 19), np.geomspace(1e-3, 1e3, 19)
    assert_allclose(np.exp(noise.class_log_prob(mean, var)).sum(axis=0), 1.0, rtol=1e-9)


@pytest.mark.parametrize(
    "noise",
    [
        *PREDICTED,
        Poisson(exposure=1e4),
        ContaminatedNormal(0.01, 0.05, 100.0),
        ContaminatedNormal(1.0, 0.5, 2.0),
        Gamma(1e4),
        Binomial(trials=1e3),
    ],
    ids=repr,
)
@pytest.mark.parametrize("var", [1e-4, 0.3, 9.0])
def test_distribution_function(noise, var):
    """predict_cdf is the mean of cdf over f, also where one of noise and prior is much narrower."""
    u = np.linspace(-9.0, 9.0, 100_001)
    w = softmax(-0.5 * u**2)
    f = 0.4 + np.sqrt(var) * u
    centre, spread = noise.mean_given(0.4), np.sqrt(np.minimum(noise.var_given(0.4), 1.0))
    for y in (centre, centre + spread, np.ceil(3.0 * abs(centre)), 0.5 * centre):
        y = np.floor(y) if noise.support == "count" else y
        assert_allclose(noise.predict_cdf(y, 0.4, var), w @ noise.cdf(y, f), rtol=1e-8, atol=1e-9)


@each_predicted
@pytest.mark.parametrize("var", [0.0, 1e-3, 0.3, 4.0])
def test_quantiles(noise, var):
    """A quantile is the least value with that probability; for a known f it is that of the distribution."""
    mean = np.linspace(-1.0, 1.5, 4)
    for q in (0.001, 0.025, 0.5, 0.9, 0.999):
        y = noise.predict_quantile(mean, np.full(4, var), q)
        at = noise.predict_cdf(y, mean, var)
        if noise.support == "count":
            assert np.array_equal(y, np.round(y))
            below = noise.predict_cdf(y - 1.0, mean, var)
            assert np.all((at >= q - 1e-9) & (np.where(y > 0, below, 0.0) < q + 1e-9))
        else:
            assert_allclose(at, q, rtol=1e-8)
        if var == 0.0 and not isinstance(noise, ContaminatedNormal):  # SciPy has no mixture
            assert_allclose(y, frozen(noise, mean).ppf(q), rtol=1e-8, atol=1e-10)


def frozen(noise, f):
    """The distribution of y given f, by SciPy."""
    mu = noise.mean_given(f)
    if isinstance(noise, Gaussian):
        return stats.norm(mu, np.sqrt(noise.variance))
    if isinstance(noise, Poisson):
        return stats.poisson(mu)
    if isinstance(noise, NegativeBinomial):
        r = 1.0 / noise.dispersion
        return stats.nbinom(r, r / (r + mu))
    if isinstance(noise, Binomial):
        return stats.binom(int(noise.trials), mu / noise.trials)
    return stats.gamma(noise.shape, scale=mu / noise.shape)


@each_predicted
def test_simulated_observations(noise):
    """Draws have the predicted mean, variance and quantiles, within the error of the draws."""
    rng, n, mean, var = np.random.default_rng(0), 200_000, 0.3, 0.25
    y = noise.sample(mean + np.sqrt(var) * rng.standard_normal(n), rng)
    assert y.shape == (n,)
    assert y.dtype == np.float64
    spread = np.sqrt(noise.predict_var(mean, var))
    assert_allclose(y.mean(), noise.predict_mean(mean, var), atol=5.0 * spread / np.sqrt(n))
    assert_allclose(y.std(), spread, rtol=0.03)
    for q in (0.1, 0.5, 0.95):
        quantile = noise.predict_quantile(mean, var, q)
        error = 5.0 * np.sqrt(q * (1 - q) / n)
        assert np.mean(y <= quantile) >= q - error
        assert np.mean(y < quantile) <= q + error


def test_wide_predictions_of_counts():
    """Quantiles of counts up to 1e5, and of latent values that are hardly known."""
    noise, q = Poisson(exposure=1e5), np.array([0.025, 0.5, 0.975])
    for var in (1e-6, 0.04, 9.0):
        y = noise.predict_quantile(0.0, var, q)
        if var > 1e-3:  # the noise of the counts is small beside the rest
            assert_allclose(y, 1e5 * np.exp(np.sqrt(var) * stats.norm.ppf(q)), rtol=3e-3)
        else:
            assert_allclose(y, stats.norm(1e5, np.sqrt(1e5 + 1e10 * var)).ppf(q), rtol=1e-4)


def test_default_predictions_by_quadrature():
    """The moments that a model gets without formulas of its own are those of the formulas."""
    mean, var = np.array([-2.0, 0.3, 4.0]), np.array([0.1, 2.0, 500.0])
    for noise in (
        Binomial(0.2, trials=9.0),
        ContaminatedNormal(0.4, 0.1, 5.0),
    ):
        assert_allclose(Noise.predict_mean(noise, mean, var), noise.predict_mean(mean, var), rtol=1e-8)
        assert_allclose(Noise.predict_var(noise, mean, var), noise.predict_var(mean, var), rtol=1e-7)
        assert_allclose(Noise.var_of_mean(noise, mean, var), noise.var_of_mean(mean, var), rtol=1e-7)


@pytest.mark.parametrize("noise", [Poisson(exposure=3.0), NegativeBinomial(0.5), Gamma(2.0)], ids=repr)
def test_variance_of_the_mean_of_log_links(noise):
    """E[y | f] is log-normal: its variance is that of a sum over f where narrow, and of SciPy where wide."""
    narrow = np.array([0.01, 0.5, 2.0])
    assert_allclose(noise.var_of_mean(0.4, narrow), Noise.var_of_mean(noise, 0.4, narrow), rtol=1e-7)
    centre, wide = noise.mean_given(0.4), np.array([9.0, 16.0, 36.0])
    assert_allclose(noise.var_of_mean(0.4, wide), stats.lognorm(np.sqrt(wide), scale=centre).var(), rtol=1e-9)


def test_limits():
    """Models that contain simpler ones become them."""
    mean, var = np.array([-1.0, 0.5, 3.0, 3.5]), np.array([0.1, 1.0, 3.0, 0.5])
    y = np.array([0.0, 1.0, 4.0, 60.0])
    sign = np.array([-1.0, 1.0, -1.0, 1.0])
    pairs = [
        (NegativeBinomial(1e-11, exposure=2.0), Poisson(exposure=2.0), y),
        (ContaminatedNormal(0.7, 0.0), Gaussian(0.49), np.minimum(y, 5.0)),
        (ContaminatedNormal(0.35, 1.0, 2.0), Gaussian(0.49), np.minimum(y, 5.0)),
        (RobustProbit(0.0), Probit(), sign),
    ]
    for general, special, target in pairs:
        for got, expected in zip(
            general.log_partition(target, mean, var), special.log_partition(target, mean, var), strict=True
        ):
            assert_allclose(got, expected, rtol=1e-7)
        if general.support != "label":
            quantiles = (noise.predict_quantile(mean, var, 0.9) for noise in (general, special))
            assert_allclose(*quantiles, rtol=1e-7)
    one = Binomial(0.3, trials=1.0).log_partition((sign + 1.0) / 2.0, mean, var)
    for got, expected in zip(one, Logit(0.3).log_partition(sign, mean, var), strict=True):
        assert_allclose(got, expected, rtol=1e-9)
    far = RobustProbit(0.0).log_partition(1.0, -200.0, 0.5)
    assert_allclose(far, Probit().log_partition(1.0, -200.0, 0.5), rtol=1e-12)


def test_margin_is_the_normal_quantile():
    """The margin of two-class models has the sign of the likelier class and is Probit's where they agree."""
    mean, var = np.linspace(-60.0, 60.0, 25), 0.7
    assert_allclose(RobustProbit(0.0).margin(mean, var), Probit().margin(mean, var), rtol=1e-8, atol=1e-12)
    logit = Logit().margin(mean, var)
    assert np.all(np.diff(logit) > 0.0)
    assert_allclose(logit, -logit[::-1], atol=1e-9)


@pytest.mark.parametrize(
    ("noise", "y", "message"),
    [
        (Poisson(), [1.0, -2.0], r"y is -2 in row 1\. Poisson noise needs counts"),
        (Poisson(), [1.5, 2.0], r"y is 1\.5 in row 0\. Poisson noise needs counts"),
        (Poisson(), [1.0, np.nan], r"y is nan in row 1"),
        (NegativeBinomial(), [0.0, np.inf], r"y is inf in row 1"),
        (NegativeBinomial(), [0.0, 0.1], r"y is 0\.1 in row 1.*\"gaussian\""),
        (Poisson(exposure=np.array([1.0, 0.0])), [1.0, 1.0], r"exposure is 0 in row 1.*positive"),
        (NegativeBinomial(exposure=-1.0), [1.0, 1.0], r"exposure is -1 in row 0"),
        (Poisson(exposure=np.ones(3)), [1.0, 1.0], r"exposure has shape \(3,\) and y has 2 rows"),
        (Binomial(trials=np.array([3.0, 4.0])), [3.0, 5.0], r"y is 5 in row 1\. .*4 trials"),
        (Binomial(trials=2.5), [1.0, 2.0], r"trials is 2\.5 in row 0"),
        (Binomial(trials=0.0), [0.0, 0.0], r"trials is 0 in row 0"),
        (Gamma(), [1.0, 0.0], r"y is 0 in row 1\. Gamma noise needs positive"),
        (Gamma(), [-3.0, 1.0], r"y is -3 in row 0"),
        (ContaminatedNormal(), [2.0, np.nan], r"y is nan in row 1"),
        (Gaussian(), [np.inf, 1.0], r"y is inf in row 0"),
    ],
)
def test_bad_targets(noise, y, message):
    """A target that the model cannot have: one error with the value, the row and the remedy."""
    with pytest.raises(LabelError, match=message):
        noise.check_target(np.array(y))


@each_predicted
def test_good_targets(noise):
    """What a model draws is a target it accepts."""
    noise.check_target(noise.sample(np.zeros(50), np.random.default_rng(0)))


def test_names():
    """Every name gives its model; another is refused with the list."""
    names = ("gaussian", "outliers", "poisson", "negative_binomial", "binomial", "gamma", "probit", "logit")
    kinds = (Gaussian, ContaminatedNormal, Poisson, NegativeBinomial, Binomial, Gamma, Probit, Logit)
    assert tuple(type(noise_from_name(name)) for name in names) == kinds
    assert noise_from_name("robust") == RobustProbit()
    with pytest.raises(ValueError, match=r"no noise model 'gauss'.*'outliers'"):
        noise_from_name("gauss")


@each_predicted
def test_known_to_model_files(noise):
    """A model file can name every noise model, per-row fields included."""
    per_row = replace(noise, bias=np.array([0.1, 0.2]))
    name, state = io.classes.take_apart(per_row)
    assert io.classes.put_together(name, state) == per_row


@each_predicted
def test_priors_are_of_parameters(noise):
    """Every parameter but the bias has a weak prior."""
    assert set(noise.priors) == set(noise.transforms) - {"bias"}
    assert all(median > 0.0 and spread >= 1.0 for median, spread in noise.priors.values())


def test_exposure_is_not_learnt():
    """Fields known per row are not parameters, and follow the rows."""
    noise = Poisson(exposure=np.array([1.0, 2.0, 3.0]))
    assert set(noise.parameters) == {"bias"}
    assert np.array_equal(noise.at([2, 0]).exposure, [3.0, 1.0])
    y, mean, var = np.array([0.0, 2.0, 5.0]), np.zeros(3), np.ones(3)
    offset = Poisson(bias=np.log([1.0, 2.0, 3.0]))
    assert_allclose(noise.log_partition(y, mean, var), offset.log_partition(y, mean, var), rtol=1e-9)


def test_moments_of_what_is_no_number():
    """The search for the mode ends, and the moments are NaN."""
    assert np.isnan(Poisson().log_partition(1.0, np.nan, 1.0)[0])


@pytest.mark.parametrize("noise", [Poisson(), NegativeBinomial(0.5), Gamma(2.0)], ids=repr)
def test_means_far_out_are_finite(noise):
    """A trend that is followed very far gives large numbers, not infinite ones."""
    for mean, var in ((1e5, 1.0), (0.0, 1e5), (1e90, 1e90)):
        assert np.isfinite(noise.predict_mean(mean, var))
        assert np.isfinite(noise.predict_var(mean, var))


def test_logit_of_enormous_variances():
    """Normal noise takes the place of quadrature where both agree; also where no number of nodes would do."""
    noise, y, mean = Logit(0.3), np.array([1.0, -1.0, 1.0]), np.array([0.0, 500.0, -2000.0])
    wide, narrow = np.full(3, 1.001e6), np.full(3, 0.999e6)
    for got, expected in zip(
        noise.log_partition(y, mean, wide), Noise.log_partition(noise, y, mean, wide), strict=True
    ):
        assert_allclose(got, expected, rtol=1e-7)
    both = noise.log_partition(y, mean, np.where([True, False, True], wide, narrow))
    for got, high, low in zip(
        both, noise.log_partition(y, mean, wide), noise.log_partition(y, mean, narrow), strict=True
    ):
        assert_allclose(got, np.where([True, False, True], high, low), rtol=1e-12)
    log_z, g, nu = noise.log_partition(1.0, 0.0, 1e40)
    assert_allclose(log_z, np.log(0.5))
    assert_allclose(g, np.sqrt(2.0 / np.pi) * 1e-20)
    assert_allclose(nu, 2.0 / np.pi * 1e-40)
    assert_allclose(noise.log_partition_grad(1.0, 0.0, 1e40)["bias"], g)


@pytest.mark.parametrize("n", [1, 5])
def test_roots_take_few_steps(n):
    """An end counts half when it stays again, not when the ends take turns: that would slow regula falsi."""
    target, calls = np.linspace(0.3, 3.0, n), []

    def excess(rows, t):
        calls.append(t)
        return np.sinh(t) - target[rows]

    assert_allclose(_root(excess, n), np.arcsinh(target), rtol=1e-10)
    assert len(calls) < 20
