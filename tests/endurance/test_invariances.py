"""All estimators: how rows are stored does not matter at all, their order and units as they should."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from gleangp import HierarchicalGPRegressor, SparseGPClassifier, SparseGPOrdinal, SparseGPRegressor
from gleangp.exceptions import LabelError
from tests.endurance.every_estimator import CASES, Case, every, make_rows, outputs
from tests.two_fits import assert_same_answers

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore:.*singular in floating point:RuntimeWarning"
)

STORED = {
    "Fortran order": np.asfortranarray,
    "every second": lambda a: np.repeat(a, 2, axis=0)[::2],
    "backwards": lambda a: a[::-1].copy()[::-1],
    "read-only": lambda a: _frozen(a),
    "objects": lambda a: a.astype(object),
    "list": lambda a: a.tolist(),
    "frame": lambda a: pd.DataFrame(a).to_numpy().reshape(a.shape),
    "big-endian": lambda a: a.astype(">f8"),
}
X, Y, CODES, RNG = make_rows(24, 0)
X = X.astype(np.float32).astype(np.float64)  # so that single precision has the same numbers


def _frozen(a):
    a = a.copy()
    a.flags.writeable = False
    return a


@cache
def plain(name):
    """What the case of this name says of the rows it was fitted to; fitted once for all tests."""
    case = next(case for case in CHOOSING if case.name == name)
    return case.outputs(case.new().fit(X, case.target(Y), CODES), X, CODES)


def refitted(case, rows, target=None, codes=CODES):
    """The same of rows given in another way."""
    model = case.new().fit(rows, case.target(Y) if target is None else target, codes)
    return case.outputs(model, rows, codes)


@pytest.mark.parametrize("options", [{}, {"n_active": 15, "posterior": "active"}], ids=["local", "active"])
@pytest.mark.parametrize("Model", [SparseGPRegressor, SparseGPClassifier])
def test_every_way_to_store_rows(Model, options):
    """The same numbers in another memory layout give the same predictions; inputs stay."""
    model = Model(coupling="kernel", optimizer=None, random_state=0, **options)
    y = (Y if Model is SparseGPRegressor else np.sign(Y)).astype(np.float32).astype(float)
    before = X.copy(), y.copy()
    expected = outputs(clone(model).fit(X, y, CODES), X, CODES)
    for way in (*STORED.values(), lambda a: a.astype(np.float32)):
        found = clone(model).fit(way(X), way(y), CODES)
        assert_same_answers(outputs(found, way(X), CODES), expected)
        assert outputs(found, way(X), CODES).dtype == np.float64
        found.partial_fit(X, y, CODES)
    assert_array_equal(X, before[0])
    assert_array_equal(y, before[1])


@every()
def test_how_inputs_and_tasks_are_given(case):
    """So does learning, for every estimator: a second fit with the same seed is the same.

    Each has one of the ways. float32 inputs are the numbers they stand for, and names of tasks that sort as
    their numbers do change nothing.
    """
    way = list(STORED.values())[CASES.index(case) % len(STORED)]
    names, before = np.array(["ash", "elm", "oak"]), X.copy()
    assert_same_answers(refitted(case, way(X.astype(np.float32)), codes=names[CODES]), plain(case.name))
    assert_array_equal(X, before)


@every()
def test_one_row_tasks_and_repeated_rows(case):
    """Tasks of one row beside others, and rows that occur twice with other targets: finite predictions.

    Latent spaces learn a mapping to the labels of each task, and refuse tasks without anything to learn from.
    """
    codes = np.append(CODES, [3, 4])
    more = np.vstack([X, X[:2]])
    target = case.target(np.append(Y, Y[:2] + [0.7, -1.1]))
    if "latent" in case.name:
        with pytest.raises(LabelError, match=r"leave (it|the task) out"):
            case.new().fit(more, target, codes)
        return
    said = refitted(case, more, target, codes)
    assert np.isfinite(said).all()
    if case.kind != "numbers":
        assert_allclose(said.sum(axis=1), 1.0)


@every()
def test_units_of_the_inputs(case):
    """Features in units of their own: finite predictions that tell as much about the training rows.

    Features that happen to have the same limits share a unit, so that learning starts a little elsewhere.
    Ten points may then be ten others: where they alone speak, errors are as large, at other rows.
    """
    said = refitted(case, X * [1e-3, 1e6])
    assert np.isfinite(said).all()
    if case.kind == "numbers" and "latent" not in case.name:
        means, spread = (said[:, 0], plain(case.name)[:, 0]), np.std(Y)
        if case.name in ("active only", "coupled"):
            errors = [np.sqrt(np.mean((mean - Y) ** 2)) for mean in means]
            assert abs(errors[0] - errors[1]) < 0.5 * spread
        else:
            assert_allclose(*means, atol=0.35 * spread)


@every()
def test_units_of_the_target(case):
    """Targets in other units give predictions in those units; classes do not notice."""
    unit, shift = 1e-5, 70.0
    said = refitted(case, X, case.target(unit * (Y + shift)))
    if case.kind == "numbers":
        said = (said - [unit * shift, 0.0]) / unit
    assert_allclose(said, plain(case.name), rtol=1e-2, atol=2e-2)


CHOOSING = [
    *CASES,
    Case("active classes", SparseGPClassifier(n_active=8, posterior="active", n_rounds=1), "two classes"),
    Case("active grades", SparseGPOrdinal(n_active=8, posterior="active", n_rounds=1), "grades"),
    Case("few labels", HierarchicalGPRegressor(n_active=4, n_rounds=2), "numbers"),
    Case("drawn", SparseGPRegressor(n_active=8, selector="random", posterior="active"), "numbers"),
]


@every(CHOOSING)
def test_order_of_rows_and_one_unit_of_the_inputs(case):
    """The order of rows does not matter, also where points are chosen or drawn, nor does a common unit.

    Latent spaces do not standardise their inputs.
    """
    shuffled = RNG.permutation(len(X))
    unit = 1.0 if "latent" in case.name else 1e12 if CHOOSING.index(case) % 2 else 1e-12
    two = case.new().fit(unit * X[shuffled], case.target(Y)[shuffled], CODES[shuffled])
    assert_allclose(case.outputs(two, unit * X, CODES), plain(case.name), atol=1e-6)


def test_order_of_rows_without_labels():
    """Nor does it with unlabelled rows; active points are the same rows."""
    target, shuffled = np.where(np.arange(24) % 3, np.sign(Y), 0), RNG.permutation(24)
    model = SparseGPClassifier(unlabeled=0, n_active=9, n_rounds=1, random_state=0)
    one = clone(model).fit(X, target, CODES)
    two = clone(model).fit(X[shuffled], target[shuffled], CODES[shuffled])
    assert_allclose(two.predict_proba(X, CODES), one.predict_proba(X, CODES), atol=1e-6)
    assert_array_equal(shuffled[two.active_], one.active_)
