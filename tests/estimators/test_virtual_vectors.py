"""Virtual informative vectors: transformed copies of active points compete for the active set."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from gleangp import SparseGPClassifier, SparseGPRegressor, translations
from gleangp.exceptions import InvarianceError

SHAPE = (6, 6)


def bars(n, rng, row=None):
    """Images with one horizontal (+1) or vertical (-1) bar at a random place, or at one place."""
    side = rng.choice([-1, 1], size=n)
    place = rng.integers(1, 5, size=n) if row is None else np.full(n, row)
    X = 0.1 * rng.standard_normal((n, *SHAPE))
    for k in range(n):
        line = (k, place[k]) if side[k] > 0 else (k, slice(None), place[k])
        X[line] += 1.0
    return X.reshape(n, -1), side


@pytest.fixture(scope="module")
def problem():
    """Bars that stand in the middle in training, and anywhere in the test."""
    rng = np.random.default_rng(0)
    return *bars(40, rng, row=3), *bars(200, rng)


KERNEL = ConstantKernel(2.0, "fixed") * RBF(3.0, "fixed")


@pytest.mark.parametrize("posterior", ["active", "local"])
def test_invariance_is_learnt(problem, posterior):
    """Bars moved by a pixel are recognised once their copies have been seen."""
    X, y, X_test, y_test = problem
    settings = dict(posterior=posterior, n_active=40, random_state=0, learn_noise=False)
    plain = SparseGPClassifier(KERNEL, **settings).fit(X, y)
    moved = SparseGPClassifier(KERNEL, invariances=translations(SHAPE), **settings).fit(X, y)
    assert moved.score(X_test, y_test) > plain.score(X_test, y_test) + 0.1
    assert moved.kernel_ == plain.kernel_
    assert (plain.active_virtual_ == -1).all()
    said = [made.chosen for made in moved.decisions_ if made.what == "posterior"]
    assert said == ([] if posterior == "active" else ["active"])


def test_active_points_know_where_they_come_from(problem):
    """Each is the named row under the named invariance, and no pair comes twice."""
    X, y, _, _ = problem
    moves = translations(SHAPE)
    model = SparseGPClassifier(
        KERNEL, posterior="active", n_active=30, invariances=moves, random_state=0
    ).fit(X, y)
    assert set(np.unique(model.active_virtual_)) <= {-1, 0, 1, 2, 3}
    assert len({*zip(model.active_.tolist(), model.active_virtual_.tolist(), strict=True)}) == 30
    points = model._models[0].posteriors[0].X
    background = X[np.unique(model.active_)]
    for point, row, which in zip(points, model.active_, model.active_virtual_, strict=True):
        if which < 0:
            assert_array_equal(point, X[row])
        else:
            inside = moves[which](X[row : row + 1])[0]
            same = point == inside
            assert same.sum() >= 30  # the uncovered edge takes the least value of all rows moved together
            assert (point[~same] <= background.max()).all()


def test_regression_tasks_and_one_callable():
    """An even function: reflection is an invariance; tasks keep their own points."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 3.0, size=(60, 1))
    tasks = np.repeat(["a", "b"], 30)
    y = np.cos(X[:, 0]) + np.where(tasks == "a", 0.0, 1.0)
    model = SparseGPRegressor(
        ConstantKernel(1.0) * RBF(1.0) + ConstantKernel(1.0),
        invariances=np.negative,
        n_active=30,
        random_state=0,
    ).fit(X, y, tasks=tasks)
    error = model.predict(-X, tasks=tasks) - y
    assert np.sqrt(np.mean(error**2)) < 0.05
    assert (model.active_virtual_ == 0).any()
    assert_array_equal(tasks[model.active_], model.tasks_[model._model.active_task])


def test_with_unlabeled_rows(problem):
    """Copies of unlabelled points are unlabelled."""
    X, y, X_test, y_test = problem
    some = np.where(np.arange(len(y)) < 10, y, 0)
    model = SparseGPClassifier(
        ConstantKernel(4.0, "fixed") * RBF(1.5, "fixed"),
        unlabeled=0,
        invariances=translations(SHAPE),
        n_active=40,
        random_state=0,
    ).fit(X, some)
    assert model.score(X_test, y_test) > 0.6
    assert np.isfinite(model.log_evidence_)


@pytest.mark.parametrize(
    ("invariances", "match"),
    [
        (lambda X: X[:, :-1], "must keep"),
        (lambda X: X * np.nan, "NaN or infinite"),
        ([3], "cannot be called"),
        (translations((5, 6)), "30 pixels"),
    ],
)
def test_bad_invariances_leave_the_estimator_unchanged(problem, invariances, match):
    """What an invariance does wrong is said, and the old fit stays."""
    X, y, X_test, _ = problem
    model = SparseGPClassifier(KERNEL, optimizer=None, random_state=0).fit(X, y)
    before = model.predict_proba(X_test)
    with pytest.raises(InvarianceError, match=match):
        model.set_params(invariances=invariances).fit(X, y)
    assert_array_equal(model.predict_proba(X_test), before)


def test_copies_that_do_harm_are_named():
    """Rows that are not active show that a reflection is wrong for an odd function, not for an even one."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, size=(200, 1))
    found = {}
    for name, y in (("even", np.cos(X[:, 0])), ("odd", np.sin(X[:, 0]))):
        model = SparseGPRegressor(
            ConstantKernel(1.0) * RBF(1.0), invariances=np.negative, n_active=20, random_state=0
        ).fit(X, y + 0.1 * rng.normal(size=200))
        (found[name],) = (d for d in model.decisions_ if d.what == "invariances")
    loss = {name: d.numbers["rows alone"] - d.numbers["copies"] for name, d in found.items()}
    assert loss["odd"] > 1.0
    assert abs(loss["even"]) < 0.1
    assert "predicted worse with them" in found["odd"].reason
