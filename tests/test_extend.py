"""The examples of the pages on extensions and noise models do what the pages promise."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import logsumexp

from tests.test_pages import run_page


@pytest.fixture
def scope(request):
    """What the blocks of the page define that the test names."""
    return run_page(f"extend/{request.param}.md")


def page(name):
    """Run a test with the names of a page."""
    return pytest.mark.parametrize("scope", [name], indirect=True)


@page("kernel")
def test_the_kernel_learns_and_its_rule_is_its_gradient(scope):
    """The registered contraction equals that of the kernel's own gradient; the fit finds the function."""
    kernel, X = scope["LongMemory"](0.7), scope["X"][:20]
    dL_dK = np.random.default_rng(1).normal(size=(20, 20))
    expected = np.einsum("ij,ijq->q", dL_dK, kernel(X, eval_gradient=True)[1])
    assert_allclose(scope["kernel_vjp"](kernel, X, dL_dK), expected, rtol=1e-10)
    step = 1e-6
    up, down = (scope["LongMemory"](0.7 * np.exp(s))(X) for s in (step, -step))
    assert_allclose(kernel(X, eval_gradient=True)[1][:, :, 0], (up - down) / (2 * step), atol=1e-8)
    assert np.sqrt(np.mean((scope["model"].predict(scope["X"]) - scope["f"]) ** 2)) < 0.1


@page("noise_model")
@pytest.mark.parametrize("y", [-9.0, 0.3])
@pytest.mark.parametrize(("mean", "var"), [(0.4, 1.7), (-6.0, 0.5), (6.0, 2.0)])
def test_the_noise_model_is_what_it_says(scope, y, mean, var):
    """log Z, its slopes and its parameter's slope agree with sums over a fine grid and differences."""
    noise = scope["Logistic"](0.4)
    u, width = np.linspace(-40, 40, 40_001, retstep=True)
    log_w = noise.log_prob(y, mean + np.sqrt(var) * u) - 0.5 * (u**2 + np.log(2 * np.pi))
    log_z, g, nu = noise.log_partition(y, mean, var)
    assert_allclose(log_z, logsumexp(log_w) + np.log(width), rtol=1e-8)
    h = 1e-5
    slope = (noise.log_partition(y, mean + h, var)[0] - noise.log_partition(y, mean - h, var)[0]) / (2 * h)
    by_var = (noise.log_partition(y, mean, var + h)[0] - noise.log_partition(y, mean, var - h)[0]) / (2 * h)
    assert_allclose(g, slope, rtol=1e-6, atol=1e-9)
    assert_allclose(nu, g**2 - 2 * by_var, rtol=1e-4, atol=1e-7)
    other = [scope["Logistic"](0.4 + s).log_partition(y, mean, var)[0] for s in (h, -h)]
    by_scale = noise.log_partition_grad(y, mean, var)["scale"]
    assert_allclose(by_scale, (other[0] - other[1]) / (2 * h), rtol=1e-6)


@page("noise_model")
def test_the_noise_model_learns_and_predicts(scope):
    """The function and the scale of the noise are found; quantiles hold the probability between them."""
    assert scope["error"] < 0.15
    y, (low, high) = scope["y"], scope["interval"].T
    assert 0.14 < scope["model"].noise_.scale * np.std(y) < 0.28  # it is in standard units
    assert 0.84 < np.mean((low < y) & (y < high)) < 0.96
    ends = np.array([scope["low"], scope["high"]])
    assert_allclose(scope["noise"].predict_cdf(ends, 0.0, 0.5), [0.025, 0.975], rtol=1e-8)


def test_the_page_on_noise_models():
    """Ten times the exposure gives ten times the counts."""
    names = run_page("noise.md")
    assert_allclose(names["expected"], np.exp(0.4) * np.array([1.0, 10.0]))
    assert np.array_equal(names["high"], np.round(names["high"]))
    assert np.all(names["low"] < names["expected"])
    assert np.all(names["expected"] < names["high"])
    assert np.all(names["score"] < 0.0)


@page("selector")
def test_the_selector_spreads_its_points(scope):
    """Twelve rows that leave no large gap."""
    chosen = np.sort(scope["X"][scope["model"].active_, 0])
    assert len(chosen) == 12
    assert np.diff(chosen).max() < 1.0


@page("dataset")
def test_the_loader_gives_what_was_written(scope):
    """Data, target and tasks are the columns of the table; the fingerprint depends on them alone."""
    plants, columns = scope["plants"], scope["columns"]
    assert_allclose(plants.data[:, 0], columns["water"])
    assert_allclose(plants.target, columns["height"])
    assert plants.tasks.tolist() == columns["field"].tolist()
    assert scope["content"] == scope["fingerprint"](columns, ("field", "water", "height"))


@page("experiment")
def test_the_experiment_runs_and_is_judged(scope):
    """Three runs of two methods; the printed number is beside ours, with a verdict."""
    results = scope["results"]
    assert len(results.records) == 6
    assert results.failures == []
    assert "| straight line | RMSE | 0.600 ± 0.100 |" in scope["text"]
