"""Tasks with noise of their own: all answers use it, also where noise is not Gaussian."""

import copy

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gleangp import SparseGPRegressor, load, save
from gleangp.models.local.data import Data, rounding_variance
from gleangp.models.objective import Likelihood
from gleangp.noise import Gamma, Gaussian

RNG = np.random.default_rng(0)
N_TASKS, N_ROWS, QUIET, NOISY = 8, 12, 100, 101
TASKS = np.repeat(np.arange(N_TASKS), N_ROWS)
X = RNG.uniform(0, 6, (len(TASKS), 1))
LEVELS = np.geomspace(0.05, 0.8, N_TASKS)


def targets(kind):
    """Of all rows, with little noise in the first task and much in the last."""
    f, rng = np.sin(X[:, 0]), np.random.default_rng(1)
    if kind == "gamma":
        return np.exp(f) * rng.gamma(LEVELS[TASKS] ** -2.0) * LEVELS[TASKS] ** 2
    y = f + LEVELS[TASKS] * rng.normal(size=len(f))
    y[::29] += 6.0
    return y


@pytest.fixture(scope="module", params=[pytest.param("outliers", marks=pytest.mark.slow), "gamma"])
def fitted(request):
    """The noise, its targets, and a fitted model."""
    y = targets(request.param)
    return request.param, y, SparseGPRegressor(noise=request.param, random_state=0).fit(X, y, tasks=TASKS)


def widths(model, tasks, x=3.0):
    """Of the intervals at one place, relative to the mean for gamma noise."""
    low, high = model.predict_interval(np.full((len(tasks), 1), x), tasks=tasks).T
    return high - low


def test_intervals_follow_the_noise_of_the_task(fitted):
    """Those of the noisiest task are several times as wide, and more than noise of one size would allow."""
    _, _, model = fitted
    found = widths(model, np.arange(N_TASKS))
    assert found[-1] > 4.0 * found[0]
    assert np.corrcoef(np.log(found), np.log(LEVELS))[0, 1] > 0.9


def test_left_out_predictions_have_the_noise_of_the_task(fitted):
    """Deviations of the rows of each task, as the intervals have it; all but outliers are covered."""
    _, y, model = fitted
    mean, std = model.leave_one_out()
    by_task = np.array([np.median(std[TASKS == t]) for t in range(N_TASKS)])
    assert by_task[-1] > 3.0 * by_task[0]
    inside = np.abs(y - mean) < 1.96 * std
    inside = np.delete(inside, np.arange(0, len(y), 29))
    assert inside.mean() > 0.85


def test_density_is_that_of_the_noise_of_the_task(fitted):
    """The mean over rows of the log density under the noise model of each task."""
    _, y, model = fitted
    f = model._latent(X, TASKS)
    noise = model._model.noise_of_rows(X, TASKS)
    units = model._units
    expected = noise.log_density(units.to_standard(y, TASKS), f.mean, f.spread) - np.log(units.scale[TASKS])
    assert_allclose(model.log_density(X, y, tasks=TASKS), expected.mean(), rtol=1e-12)
    shared = model.noise_.log_density(units.to_standard(y, TASKS), f.mean, f.spread)
    assert np.mean(expected) > np.mean(shared - np.log(units.scale[TASKS]))


def test_new_tasks_and_new_rows(fitted, tmp_path):
    """A new task has the noise of one of the others, by its rows; new rows count by the noise of the task."""
    kind, y, model = fitted
    model = copy.deepcopy(model)
    for source, name in ((0, QUIET), (N_TASKS - 1, NOISY)):
        model.add_task(X[TASKS == source], y[TASKS == source], task=name)
    quiet, noisy = widths(model, np.array([QUIET, NOISY]))
    assert noisy > 2.0 * quiet
    before = model.predict([[3.0]] * 2, tasks=[0, N_TASKS - 1])
    far = 2.0 * before if kind == "gamma" else before + 0.3
    model.partial_fit([[3.0]] * 2, far, tasks=[0, N_TASKS - 1])
    moved = np.abs(np.log(model.predict([[3.0]] * 2, tasks=[0, N_TASKS - 1]) / before))
    assert (moved > 0.0).all()
    assert kind == "outliers" or moved[0] > moved[1]  # a row of a task with little noise counts for more
    save(model, tmp_path / "model.glean")
    again, every = load(tmp_path / "model.glean"), np.array([0, N_TASKS - 1, QUIET, NOISY])
    assert_allclose(widths(again, every), widths(model, every), rtol=1e-12)
    assert len(again.transfer_report()) == N_TASKS
    assert len(again.suggest(X[:5], tasks=TASKS[:5], n=2)) == 2


def test_variance_of_a_task():
    """It is the parameter to the power that is declared; one task has no parameter of its own."""
    noise = Gamma(4.0)
    assert noise.variance_of_task == 0.25
    assert noise.with_variance(np.array([1.0, 0.25])).shape.tolist() == [1.0, 4.0]
    assert not Likelihood(noise, ("shape",), sizes=np.array([5])).varies
    assert Likelihood(noise, ("shape",), sizes=np.array([5, 5])).varies


def test_a_task_of_zeros_alone_has_the_noise_of_rounding():
    """Counts of events, all zero in two tasks: a new count of one there is unlikely, but not impossible."""
    rng = np.random.default_rng(2)
    tasks = np.repeat(np.arange(12), 12)
    y = rng.poisson(np.where(tasks < 2, 0.0, 2.0)).astype(float)
    x = rng.uniform(size=(len(y), 1))
    model = SparseGPRegressor(random_state=0).fit(x, y, tasks=tasks)
    at = np.full((2, 1), 0.5)
    low, high = model.predict_interval(at, tasks=[0, 1]).T
    assert np.all(high - low > 1.95 * 1.96 / np.sqrt(12.0))
    assert model.log_density(at, [1.0, 1.0], tasks=[0, 1]) > -20.0


def test_errors_of_rounding():
    """w^2 / 12 with the gap to the nearest other target, on average; zero for targets of one row alone."""
    y, codes = np.array([0.0, 0.0, 0.0, 0.5, 1.7, 4.0, 4.0]), np.array([0, 0, 1, 1, 2, 3, 3])
    data = Data(np.zeros((7, 1)), y, codes, 5, Gaussian())
    assert_allclose(rounding_variance(data), np.array([0.25, 0.125, 0.0, 2.3**2, 0.0]) / 12.0)
    assert_allclose(rounding_variance(data.at(np.array([0, 1, 2]))), 0.0)  # one target alone has no unit


@pytest.mark.parametrize("case", ["copies", "known noise"])
def test_what_is_not_rounded_has_no_noise_of_rounding(case):
    """Copies of rows repeat their targets; known noise is as it was given."""
    rng = np.random.default_rng(0)
    x, tasks = np.linspace(0.0, 3.0, 24)[:, None], np.arange(24) % 3
    y, given = np.sin(x[:, 0]) + 0.1 * tasks + 1e-3 * rng.normal(size=24), {}
    if case == "copies":
        x, y, tasks = np.repeat(x, 2, axis=0), np.repeat(y, 2), np.repeat(tasks, 2)
    else:
        y, given = np.round(y), {"noise_variance": 1e-4}
    model = SparseGPRegressor(random_state=0, **given).fit(x, y, tasks=tasks)
    assert np.all(model._noise_of_tasks() < 0.011)


def test_outputs_are_rounded_each_in_its_unit():
    """A yes or no beside a measurement: the gap is that between no and yes."""
    x = np.column_stack([np.linspace(0.0, 3.0, 24), np.arange(24) % 2])
    noise = (
        SparseGPRegressor(random_state=0)
        .fit(x, np.column_stack([np.sin(x[:, 0]), x[:, 1]]))
        ._noise_of_tasks()
    )
    assert noise[0] < 0.01
    assert noise[1] == pytest.approx(np.sqrt(1.0 / 12.0), rel=1e-3)
