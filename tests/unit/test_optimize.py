"""The optimiser: bounds, restarts, and points where the objective does not exist."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gleangp.exceptions import NotPositiveDefiniteError
from gleangp.numerics.optimize import minimize

WIDE = np.array([[-10.0, 10.0], [-10.0, 10.0]])


def bowl(theta):
    """Least at (1, -2), value 3."""
    shift = theta - np.array([1.0, -2.0])
    return float(shift @ shift + 3.0), 2.0 * shift


def test_minimum_inside_and_at_bounds():
    """The minimum where it is inside, the nearest bound where not."""
    inside = minimize(bowl, np.zeros(2), WIDE)
    assert inside.converged
    assert_allclose(inside.theta, [1.0, -2.0], atol=1e-5)
    assert_allclose(inside.value, 3.0, rtol=1e-9)
    cut = minimize(bowl, np.zeros(2), np.array([[2.0, 5.0], [-1.0, 4.0]]))
    assert_allclose(cut.theta, [2.0, -1.0])


def test_start_outside_the_bounds_is_clipped():
    """The objective is never asked outside the bounds."""
    bounds = np.array([[0.0, 0.5], [-3.0, 0.0]])
    asked = []

    def watched(theta):
        asked.append(theta.copy())
        return bowl(theta)

    minimize(watched, np.array([9.0, 9.0]), bounds, n_restarts=5, rng=np.random.default_rng(0))
    asked = np.array(asked)
    assert np.all(asked >= bounds[:, 0] - 1e-12)
    assert np.all(asked <= bounds[:, 1] + 1e-12)


def test_restarts_stay_near_and_inside_the_bounds():
    """Restarts are drawn in the log-bounds, at most three from the first start; seeds repeat."""
    starts = []

    def flat(theta):
        starts.append(theta.copy())
        return 0.0, np.zeros_like(theta)

    bounds = np.array([[-11.5, 11.5], [-1.0, 0.5]])
    for _ in range(2):
        minimize(flat, np.zeros(2), bounds, n_restarts=40, rng=np.random.default_rng(1))
    first, second = np.array(starts[:41]), np.array(starts[41:])
    assert_allclose(first, second)
    assert np.all(np.abs(first[:, 0]) <= 3.0)
    assert np.abs(first[1:, 0]).max() > 2.0
    assert first[:, 1].min() >= -1.0
    assert first[:, 1].max() <= 0.5
    assert len(np.unique(first[:, 1])) == 41  # drawn inside, not clipped to a bound


def test_restarts_find_the_better_of_two_minima():
    """The best of all starts is returned, and a generator is asked for."""

    def two_wells(theta):
        (x,) = theta
        return float((x * x - 4.0) ** 2 + x), np.array([4.0 * x * (x * x - 4.0) + 1.0])

    bounds = np.array([[-5.0, 5.0]])
    alone = minimize(two_wells, np.array([2.5]), bounds)
    best = minimize(two_wells, np.array([2.5]), bounds, n_restarts=10, rng=np.random.default_rng(0))
    assert alone.theta[0] > 0 > best.theta[0]
    assert best.value < alone.value


@pytest.mark.parametrize("how", ["raise", "nan", "infinite gradient"])
def test_infeasible_points_are_walked_around(how):
    """Where the objective does not exist the line search turns back."""

    def half(theta):
        if theta[0] < 0.0:
            if how == "raise":
                raise NotPositiveDefiniteError("no factor there")
            return (np.nan if how == "nan" else 0.0), np.full(1, np.inf)
        return float(np.exp(theta[0]) - 3.0 * theta[0] ** 0.5), np.array(
            [np.exp(theta[0]) - 1.5 * max(theta[0], 1e-12) ** -0.5]
        )

    optimum = minimize(half, np.array([8.0]), np.array([[-10.0, 10.0]]), tol=1e-12)
    assert optimum.theta[0] >= 0.0
    assert_allclose(half(optimum.theta)[1], 0.0, atol=1e-3)


def test_no_feasible_point():
    """The reason is passed on."""

    def never(theta):
        raise NotPositiveDefiniteError("a 3 x 3 covariance matrix is not positive definite")

    with pytest.raises(NotPositiveDefiniteError, match=r"no finite value at the start \[0.*a 3 x 3 cov"):
        minimize(never, np.zeros(2), WIDE)
    with pytest.raises(NotPositiveDefiniteError, match="it overflows"):
        minimize(lambda theta: (np.inf, theta), np.zeros(2), WIDE)


def test_nothing_to_optimise():
    """No parameters: the value, evaluated once."""
    optimum = minimize(lambda theta: (7.0, theta), np.zeros(0), np.zeros((0, 2)))
    assert optimum.value == 7.0
    assert optimum.converged


def test_not_converged_is_said():
    """Too few iterations are reported, with the best point seen."""

    def valley(theta):
        x, y = theta
        value = (1 - x) ** 2 + 100 * (y - x * x) ** 2
        return float(value), np.array([2 * (x - 1) - 400 * x * (y - x * x), 200 * (y - x * x)])

    few = minimize(valley, np.array([-1.2, 1.0]), WIDE, max_iter=2)
    assert not few.converged
    assert few.value < valley(np.array([-1.2, 1.0]))[0]
    assert minimize(valley, np.array([-1.2, 1.0]), WIDE, max_iter=500, tol=1e-12).converged


def test_a_search_that_is_asked_to_stop_returns_its_best_point():
    """After the iteration at which the report says True no other is made, and no restart is tried."""
    calls = []

    def report(iteration, value):
        calls.append(value)
        return iteration == 2

    def valley(t):  # Rosenbrock
        slope = np.array([-400 * t[0] * (t[1] - t[0] ** 2) - 2 * (1 - t[0]), 200 * (t[1] - t[0] ** 2)])
        return float((1 - t[0]) ** 2 + 100 * (t[1] - t[0] ** 2) ** 2), slope

    start, bounds = np.array([-1.5, 2.0]), np.array([[-5.0, 5.0]] * 2)
    rng = np.random.default_rng(0)
    found = minimize(valley, start, bounds, n_restarts=3, rng=rng, report=report)
    assert len(calls) == 2
    assert not found.converged
    assert found.n_iterations == 2
    assert found.value == valley(found.theta)[0] == min(calls) < valley(start)[0]


def test_scale_makes_the_search_independent_of_the_number_of_rows():
    """A thousand times the objective with a thousand times the scale takes the same steps."""

    def objective(times):
        def value(z):
            seen[times].append(z.copy())
            return times * float(np.sum((z - 0.5) ** 4 + z**2)), times * (4.0 * (z - 0.5) ** 3 + 2.0 * z)

        return value

    seen = {1.0: [], 1024.0: []}
    bounds = np.tile([-5.0, 5.0], (3, 1))
    start = np.array([3.0, -2.0, 1.0])
    found = [minimize(objective(times), start, bounds, scale=times) for times in seen]
    np.testing.assert_array_equal(seen[1.0], seen[1024.0])
    assert found[1].value == 1024.0 * found[0].value


def test_reported_values_are_not_divided_by_the_scale():
    """Progress is told the objective itself."""
    reported = []
    bowl = lambda z: (100.0 * float(z @ z) + 7.0, 200.0 * z)  # noqa: E731
    minimize(
        bowl, np.ones(2), np.tile([-2.0, 2.0], (2, 1)), scale=100.0, report=lambda i, v: reported.append(v)
    )
    np.testing.assert_allclose(reported[-1], 7.0, atol=1e-3)
