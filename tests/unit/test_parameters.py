"""One vector for all that is learnt, priors on it, units of targets, and defaults."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from gleangp import SparseGPClassifier, SparseGPRegressor
from gleangp.exceptions import KernelError
from gleangp.models.active.learn import ActiveEvidence
from gleangp.models.default_kernel import (
    class_priors,
    default_kernel,
    default_n_active,
    default_priors,
    noise_prior,
    null_category_kernel,
    task_priors,
)
from gleangp.models.parameters import Parameters
from gleangp.models.priors import Gamma, LogNormal, Normal
from gleangp.models.units import natural_units
from gleangp.models.units import standard_units as units_of_parts
from gleangp.noise import Gaussian, NullCategory, Probit
from tests.differences import central
from tests.unit.gp_twins import make_block

KERNEL = ConstantKernel(2.0) * RBF([0.5, 3.0]) + WhiteKernel(0.1, "fixed")


def test_pack_and_unpack():
    """Kernel first, then the free noise parameters on their own scales; fixed ones are left out."""
    noise = NullCategory(bias=0.4, gamma_minus=0.3, gamma_plus=0.2, width=1.5, variance=0.1)
    parameters = Parameters(KERNEL, noise, ("bias", "gamma_plus", "width"))
    start = parameters.slots.start
    assert_allclose(start[:3], np.log([2.0, 0.5, 3.0]))
    kernel, values = parameters.kernel_at(start), parameters.noise_values(start)
    assert_allclose(kernel.theta, KERNEL.theta)
    assert values == pytest.approx({"bias": 0.4, "gamma_plus": 0.2, "width": 1.5})
    bounds = parameters.slots.bounds
    assert bounds.shape == (6, 2)
    assert np.all(bounds[:, 0] < start)
    assert np.all(start < bounds[:, 1])
    moved = parameters.with_values(start + 0.1)
    assert moved.noise.bias == pytest.approx(0.5)
    assert moved.noise.gamma_minus == 0.3
    assert_allclose(moved.kernel.theta, KERNEL.theta + 0.1)
    assert_allclose(KERNEL.theta, np.log([2.0, 0.5, 3.0]))


@pytest.mark.parametrize("name", ["bias", "gamma_plus", "width"])
def test_noise_gradient(name):
    """Chain rule from natural units to the free scale, by central differences."""
    noise = NullCategory(bias=0.4, gamma_minus=0.3, gamma_plus=0.2, width=1.5, variance=0.1)
    parameters = Parameters(KERNEL, noise, (name,))
    z = parameters.slots.start
    y, mean, var = np.array([1.0, -1.0, 0.0]), np.array([0.3, 0.2, -0.5]), np.full(3, 0.7)

    def total(z):
        moved = parameters.with_values(z).noise
        return moved.log_partition(y, mean, var)[0].sum()

    ours = parameters.noise_gradient(z, noise.log_partition_grad(y, mean, var))
    assert_allclose(ours[0], central(total, z, 1e-6)[-1], rtol=1e-6)


@pytest.mark.parametrize(
    ("prior", "density"),
    [
        (Gamma(2.5, 1.5), lambda x: stats.gamma(2.5, scale=1 / 1.5).logpdf(x)),
        (Normal(-0.5, 0.7), stats.norm(-0.5, 0.7).logpdf),
        (LogNormal(2.0, 0.7), lambda x: stats.norm(np.log(2.0), 0.7).logpdf(np.log(x))),
    ],
    ids=["gamma", "normal", "log-normal"],
)
def test_prior_densities(prior, density):
    """Known densities, and slopes by central differences."""
    x = np.array([0.01, 0.5, 2.0, 30.0])
    value, slope = prior.log_prob(x)
    assert_allclose(value, density(x), rtol=1e-10)
    h = 1e-6 * x
    assert_allclose(slope, (density(x + h) - density(x - h)) / (2 * h), rtol=1e-5, atol=1e-8)


def test_log_prior_gradient():
    """The priors of kernel and noise parameters on their own scales, by central differences."""
    priors = {
        "k1__k2__length_scale": LogNormal(np.array([1.0, 2.0]), 0.5),
        "noise__variance": LogNormal(0.1, 2.0),
        "noise__gamma_plus": Gamma(2.0, 3.0),
        "noise__bias": Normal(0.5, 0.3),
    }
    noise = NullCategory(bias=0.4, gamma_minus=0.3, gamma_plus=0.2, width=1.5, variance=0.3)
    parameters = Parameters(KERNEL, noise, ("bias", "gamma_plus", "variance"), priors)
    z = parameters.slots.start + 0.3
    value, gradient = parameters.slots.log_prior(z)
    moved = parameters.with_values(z)
    expected = (
        priors["k1__k2__length_scale"].log_prob(moved.kernel.k1.k2.length_scale)[0].sum()
        + priors["noise__variance"].log_prob(moved.noise.variance)[0]
        + priors["noise__gamma_plus"].log_prob(moved.noise.gamma_plus)[0]
        + priors["noise__bias"].log_prob(moved.noise.bias)[0]
    )
    assert_allclose(value, expected, rtol=1e-12)
    by_differences = central(lambda z: parameters.slots.log_prior(z)[0], z, 1e-6)
    assert_allclose(gradient, by_differences, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("Model", [SparseGPRegressor, SparseGPClassifier])
def test_prior_for_a_parameter_that_is_not_there(Model):
    """A misspelt name is an error that lists the right ones."""
    block = make_block(Gaussian(0.1), 20)
    y = block.y if Model is SparseGPRegressor else block.y > 0
    with pytest.raises(KernelError, match=r"priors.*'lenght_scale'.*length_scale"):
        Model(RBF(), priors={"lenght_scale": LogNormal()}).fit(block.X, y)
    with pytest.raises(KernelError, match=r"priors.*'noise__varience'.*'k2__k2__length_scale'"):
        Model(priors={"noise__varience": LogNormal()}).fit(block.X, y)


def test_strong_prior_holds_the_noise():
    """A narrow prior of the noise variance keeps it there, with one task and with several."""
    block = make_block(Gaussian(0.1), 40)
    for tasks in (None, np.arange(40) % 2):
        model = SparseGPRegressor(priors={"noise__variance": LogNormal(0.5, 0.01)}, random_state=0)
        assert_allclose(model.fit(block.X, block.y, tasks).noise_.variance, 0.5, rtol=0.1)


@pytest.mark.parametrize("Model", [SparseGPRegressor, SparseGPClassifier])
def test_strong_priors_hold_the_parameters(Model):
    """A narrow prior keeps a length scale where it wants it."""
    block = make_block(Gaussian(0.1), 40)
    y = block.y if Model is SparseGPRegressor else block.y > 0
    model = Model(RBF(1.0), priors={"length_scale": LogNormal(0.2, 1e-3)}).fit(block.X, y)
    assert_allclose(model.kernel_.length_scale, 0.2, rtol=0.02)


@pytest.mark.parametrize("sizes", [[12], [7, 0, 11, 3], [6] * 5])
def test_evidence_over_tasks(sizes):
    """Every evidence is the sum over tasks, with gradients by central differences."""
    noise = Gaussian(0.3)
    blocks = [make_block(noise, n, seed) for seed, n in enumerate(sizes) if n]
    probit = [make_block(Probit(bias=0.1), n, seed) for seed, n in enumerate(sizes) if n]
    from gleangp.inference.posterior import filter_in_order

    kernel = ConstantKernel(2.0) * RBF([0.5, 1.0]) + ConstantKernel(0.4)
    sites = [filter_in_order(kernel, b) for b in probit]
    cases = [
        (ActiveEvidence(blocks), Parameters(kernel, noise, ("variance",))),
        (ActiveEvidence(probit, sites), Parameters(kernel, Probit())),
    ]
    for evidence, parameters in cases:
        z = parameters.slots.start

        def value(z, evidence=evidence, parameters=parameters):
            for _ in range(4):  # sites of other noise models settle from call to call
                result = evidence(parameters.kernel_at(z), parameters.noise_values(z))
            return result

        total, theta_grad, noise_grads = value(z)
        gradient = np.append(theta_grad, parameters.noise_gradient(z, noise_grads))
        by_differences = central(lambda z, value=value: value(z)[0], z, 1e-4)
        assert_allclose(gradient, by_differences, rtol=1e-3, atol=1e-3)
        assert np.isfinite(total)


LENGTH = "k1__k1__k2__kernel__length_scale"


def standard_units(y, blocks):
    return units_of_parts([y[rows] for rows in blocks])


def blocks_of(sizes):
    edges = np.cumsum([0, *sizes])
    return [np.arange(a, b) for a, b in pairwise(edges)]


def test_units_of_one_task():
    """Mean and standard deviation, over rows that have a target."""
    y = np.array([1.0, np.nan, 3.0, 5.0])
    units = standard_units(y, [np.array([0, 2, 3])])
    assert_allclose([units.mean[0], units.scale[0]], [3.0, np.std([1.0, 3.0, 5.0])])
    codes = np.zeros(4, dtype=int)
    assert_allclose(units.from_standard(units.to_standard(y, codes), codes), y)


def test_units_of_like_tasks_are_shared():
    """One centre; the scale is the spread within tasks, so offsets are left to the kernel."""
    y = np.array([0.0, 2.0, 10.0, 12.0])
    units = standard_units(y, blocks_of([2, 2]))
    assert units.shared
    assert_allclose(units.mean, 6.0)
    assert_allclose(units.scale, 1.0)
    more = units.with_task(np.array([100.0]))
    assert_allclose([more.mean[-1], more.scale[-1]], [6.0, 1.0])


def test_units_of_unlike_tasks_are_their_own():
    """Tasks in other units each get their own, and so does a task that is added."""
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.normal(size=20), 1e6 * rng.normal(size=20)])
    units = standard_units(y, blocks_of([20, 20, 0]))
    assert not units.shared
    assert_allclose(units.scale[:2], [np.std(y[:20]), np.std(y[20:])])
    standard = units.to_standard(y, np.repeat([0, 1], 20))
    assert_allclose(np.std(standard[:20]), np.std(standard[20:]))
    more = units.with_task(1e9 + np.array([1.0, 3.0]))
    assert_allclose([more.mean[-1], more.scale[-1]], [1e9 + 2.0, 1.0])
    for few in (np.array([5.0]), np.zeros(0), np.full(3, 5.0)):
        assert units.with_task(few).scale[-1] == np.median(units.scale)


def test_units_of_tasks_with_few_targets_are_shared():
    """Scales estimated from three targets differ tenfold by chance: that does not make units differ."""
    y = np.random.default_rng(0).normal(size=300)
    scales = np.std(y.reshape(100, 3), axis=1)
    assert scales.max() > 10 * scales.min()
    assert standard_units(y, blocks_of([3] * 100)).shared
    assert not standard_units(y * np.repeat(10.0 ** (np.arange(100) % 4), 3), blocks_of([3] * 100)).shared


def test_units_do_not_hang_on_the_draw_of_the_labels():
    """Torques whose scales differ tenfold are in their own units, whichever 20 labels of each are drawn."""
    torques = np.array([20.0, 14.0, 10.0, 12.5, 0.95, 1.6, 2.5])
    for seed in range(200):
        y = np.random.default_rng(seed).normal(size=(7, 20)) * torques[:, None]
        assert not standard_units(y.ravel(), blocks_of([20] * 7)).shared
        assert standard_units((y / torques[:, None]).ravel(), blocks_of([20] * 7)).shared


@pytest.mark.parametrize("value", [0.0, 3.0, 1e300, -1e-300])
def test_units_of_constant_targets(value):
    """Nothing is divided by zero."""
    units = standard_units(np.full(5, value), blocks_of([5]))
    assert_allclose([units.mean[0], units.scale[0]], [value, 1.0])
    assert_array_equal(natural_units(3).scale, 1.0)


def test_default_kernel():
    """One length scale per feature where rows allow it, at the spread of the feature; else one for all."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3)) * [1.0, 50.0, 0.0]
    kernel = default_kernel(X, offset=False)
    assert_allclose(kernel.k2.length_scale, np.sqrt(3) * np.append(np.std(X[:, :2], axis=0), 1.0))
    few = default_kernel(X[:10], offset=True)
    assert few.n_dims == 3  # variance, one length scale, offset
    priors = default_priors(few)
    assert set(priors) == {h.name for h in few.hyperparameters if not h.fixed}
    for h in kernel.hyperparameters:
        median = default_priors(kernel)[h.name].median
        assert_allclose(default_priors(kernel)[h.name].log_prob(median)[1], 0.0, atol=1e-12)
    assert set(noise_prior()) == {"noise__variance"}


def test_default_kernel_of_several_tasks():
    """A linear part around the centre of the data; the more features, the closer one length scale is held."""
    X = np.random.default_rng(0).normal(size=(60, 25)) * 3.0 + 100.0
    kernel = default_kernel(X, offset=True, linear=True)
    assert kernel.n_dims == 4  # variance, one length scale, offset, slopes
    centred = default_kernel(X - X.mean(axis=0), offset=True, linear=True)
    assert_allclose(kernel(X), centred(X - X.mean(axis=0)), rtol=1e-8)
    slopes = kernel(X) - default_kernel(X, offset=True)(X)
    assert np.linalg.matrix_rank(slopes) == 25
    assert_allclose(np.trace(slopes) / 60, kernel.k2.k1.constant_value)  # of rows as they come
    spreads = [task_priors(kernel, p)[LENGTH].spread for p in (1, 4, 25, 100)]
    assert_allclose(spreads, [1.0, 0.5, 0.25, 0.25])


def test_features_in_one_unit_have_one_spread():
    """Pixels count by how much they vary, other features alike; also where some are constant or cut off."""
    rng = np.random.default_rng(0)
    pixels = 1.0 * rng.integers(0, 17, size=(60, 9)) * (rng.random((60, 9)) < np.linspace(0.1, 1.0, 9))
    pixels[:2] = [[0.0], [16.0]]
    pixels[:, 3], pixels[:, 8] = 0.0, np.minimum(pixels[:, 8], 12.0)
    pixels[:, 7] *= 0.95  # smoothed: near the limit, not at it
    varying = np.delete(pixels, 3, axis=1)
    common = np.sqrt(np.mean(varying.var(axis=0)))
    shape = default_kernel(pixels, offset=False).k2
    assert_allclose(shape.scales, 1.0 / common)
    assert_allclose(null_category_kernel(pixels).k2.scales, 1.0 / common)
    lengths = default_kernel(np.tile(pixels, (2, 1)), offset=False).k2.length_scale
    assert_allclose(lengths, 3.0 * common)
    others = np.column_stack([varying, varying * 10.0, varying * 0.5])  # a third at most reaches both ends
    assert_allclose(default_kernel(others, offset=False).k2.scales, 1.0 / others.std(axis=0))
    pair = np.column_stack([np.linspace(0.0, 10.0, 12), np.linspace(2.0, 3.0, 12)])
    assert_allclose(default_kernel(pair, offset=False).k2.scales, 1.0 / pair.std(axis=0))


def test_indicators_keep_their_unit():
    """A rare category counts no more than a frequent one, however it was standardised; distances stay."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.random((80, 3)) < (0.5, 0.1, 0.03), 7.0 * rng.normal(size=80), np.ones(80)])
    X[0, :3], X[1, :3] = 1.0, 0.0
    scales = default_kernel(X[:40], offset=False).k2.scales
    assert_allclose(scales[:3], scales[0])
    assert_allclose(scales[0] / scales[3], 2.0 * X[:40, 3].std())
    assert_allclose(np.sum((scales * X[:40].std(axis=0)) ** 2), 4.0)
    moved = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0.0, X.std(axis=0), 1.0)
    again = default_kernel(moved[:40], offset=False).k2.scales
    assert_allclose(again[:4] * moved[:40, :4].std(axis=0), scales[:4] * X[:40, :4].std(axis=0))
    bits = 1.0 * (rng.random((40, 8)) < np.linspace(0.05, 0.3, 8))
    bits[0], bits[1] = 1.0, 0.0
    assert_allclose(default_kernel(bits, offset=False).k2.scales, 1.0 / np.sqrt(bits.var(axis=0).mean()))


def test_priors_of_classes_leave_the_variance_free_with_one_length_scale():
    """The variance may move twice as far where it has one length scale beside it, not where it has many."""
    X = np.random.default_rng(0).normal(size=(100, 3))
    for rows, spread in ((10, 2.0), (100, 1.0)):
        kernel = default_kernel(X[:rows], offset=True)
        found = {name: prior.spread for name, prior in class_priors(kernel).items()}
        assert found == {
            name: spread if name.endswith("constant_value") else 1.0 for name in default_priors(kernel)
        }


def test_default_number_of_active_points():
    """All rows of small tasks; never more than rows; never less than 200 of large ones."""
    assert default_n_active([50], 1000) == 50
    assert default_n_active([50, 0, 70], 1000) == 120
    assert default_n_active([5000], 1000) == 1000
    assert default_n_active([10**7], 1000) == 200
