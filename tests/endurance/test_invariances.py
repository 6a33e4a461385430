"""All estimators: how rows are stored does not matter at all, their order and units as they should."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from gleangp import HierarchicalGPRegressor, SparseGPClassifier, SparseGPOrdinal, SparseGPRegressor
from gleangp.exceptions import LabelError
from tests.endurance.every_estimator import CASES, Case, every, make_rows

few = settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
seeds = st.integers(0, 2**32 - 1)
quiet = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore:.*singular in floating point:RuntimeWarning"
)

STORED = {
    "Fortran order": np.asfortranarray,
    "every second": lambda a: np.repeat(a, 2, axis=0)[::2],
    "backwards": lambda a: a[::-1].copy()[::-1],
    "read-only": lambda a: _frozen(a),
    "objects": lambda a: a.astype(object),
    "list": lambda a: a.tolist(),
    "frame": lambda a: pd.DataFrame(a).to_numpy(),
    "big-endian": lambda a: a.astype(">f8"),
}


def _frozen(a):
    a = a.copy()
    a.flags.writeable = False
    return a


@every()
@quiet
@few
@given(seed=seeds, stored=st.sampled_from(sorted(STORED)))
def test_how_inputs_are_stored(case, seed, stored):
    """The same numbers in another memory layout give bit for bit the same predictions; inputs stay."""
    X, y, codes, _ = make_rows(24, seed)
    target = case.target(y)
    before = X.copy()
    one = case.new().fit(X, target, codes)
    two = case.new().fit(STORED[stored](X), target, codes)
    assert_array_equal(X, before)
    assert_array_equal(case.outputs(two, X[:6], codes[:6]), case.outputs(one, X[:6], codes[:6]))


@every()
@quiet
@few
@given(seed=seeds)
def test_single_precision(case, seed):
    """float32 inputs are the float64 numbers they stand for."""
    X, y, codes, _ = make_rows(24, seed)
    rounded, target = X.astype(np.float32), case.target(y)
    one = case.new().fit(rounded.astype(np.float64), target, codes)
    two = case.new().fit(rounded, target, codes)
    assert_array_equal(case.outputs(two, rounded, codes), case.outputs(one, rounded.astype(float), codes))


@every()
@quiet
@few
@given(seed=seeds)
def test_names_of_tasks(case, seed):
    """Names that sort as the numbers do change nothing."""
    X, y, codes, _ = make_rows(24, seed)
    names, target = np.array(["ash", "elm", "oak"]), case.target(y)
    one = case.new().fit(X, target, codes)
    two = case.new().fit(X, target, names[codes])
    assert_array_equal(case.outputs(two, X, names[codes]), case.outputs(one, X, codes))


@every()
@quiet
@few
@given(seed=seeds)
def test_one_row_tasks_and_repeated_rows(case, seed):
    """Tasks of one row beside others, and rows that occur twice with other targets: finite predictions.

    Latent spaces learn a mapping to the labels of each task, and refuse tasks without anything to learn from.
    """
    X, y, codes, rng = make_rows(24, seed)
    codes = np.append(codes, [3, 4])
    X = np.vstack([X, X[:2]])
    y = np.append(y, y[:2] + rng.normal(size=2))
    if "latent" in case.name:
        with pytest.raises(LabelError, match=r"leave (it|the task) out"):
            case.new().fit(X, case.target(y), codes)
        return
    model = case.new().fit(X, case.target(y), codes)
    said = case.outputs(model, X, codes)
    assert np.isfinite(said).all()
    if case.kind != "numbers":
        assert_allclose(said.sum(axis=1), 1.0)


@every([case for case in CASES if "latent" not in case.name])
@quiet
@few
@given(seed=seeds, log_unit=st.integers(-6, 6))
def test_one_unit_of_the_inputs(case, seed, log_unit):
    """All features in another unit, the same for all: nothing changes."""
    X, y, codes, _ = make_rows(30, seed)
    target, unit = case.target(y), 10.0**log_unit
    said = case.outputs(case.new().fit(X * unit, target, codes), X * unit, codes)
    plain = case.outputs(case.new().fit(X, target, codes), X, codes)
    assert_allclose(said, plain, atol=1e-6)


@every()
@quiet
@few
@given(seed=seeds, log_units=st.lists(st.integers(-6, 6), min_size=2, max_size=2))
def test_units_of_the_inputs(case, seed, log_units):
    """Features in units of their own: finite predictions that tell as much about the training rows.

    Features that happen to have the same limits share a unit, so that learning starts a little elsewhere.
    Ten points may then be ten others: where they alone speak, errors are as large, at other rows.
    """
    X, y, codes, _ = make_rows(30, seed)
    target = case.target(y)
    unit = 10.0 ** np.array(log_units)
    said = case.outputs(case.new().fit(X * unit, target, codes), X * unit, codes)
    assert np.isfinite(said).all()
    if case.kind == "numbers" and "latent" not in case.name:
        plain = case.outputs(case.new().fit(X, target, codes), X, codes)
        spread = np.std(y)
        if case.name in ("active only", "coupled"):
            errors = [np.sqrt(np.mean((out[:, 0] - y) ** 2)) for out in (said, plain)]
            assert abs(errors[0] - errors[1]) < 0.5 * spread
        else:
            assert_allclose(said[:, 0], plain[:, 0], atol=0.35 * spread)


@every()
@quiet
@few
@given(seed=seeds, log_unit=st.integers(-8, 8), shift=st.integers(-100, 100))
def test_units_of_the_target(case, seed, log_unit, shift):
    """Targets in other units give predictions in those units; classes do not notice."""
    X, y, codes, _ = make_rows(24, seed)
    unit = 10.0**log_unit
    one = case.outputs(case.new().fit(X, case.target(y), codes), X, codes)
    two = case.outputs(case.new().fit(X, case.target(unit * (y + shift)), codes), X, codes)
    if case.kind == "numbers":
        two = (two - [unit * shift, 0.0]) / unit
    assert_allclose(two, one, rtol=1e-2, atol=2e-2)


CHOOSING = [
    *CASES,
    Case("active classes", SparseGPClassifier(n_active=8, posterior="active", n_rounds=1), "two classes"),
    Case("active grades", SparseGPOrdinal(n_active=8, posterior="active", n_rounds=1), "grades"),
    Case("few labels", HierarchicalGPRegressor(n_active=4, n_rounds=2), "numbers"),
    Case("drawn", SparseGPRegressor(n_active=8, selector="random", posterior="active"), "numbers"),
]


@every(CHOOSING)
@quiet
@few
@given(seed=seeds)
def test_order_of_rows(case, seed):
    """The order of rows does not matter, also where points are chosen or drawn."""
    X, y, codes, rng = make_rows(24, seed)
    target, shuffled = case.target(y), rng.permutation(len(X))
    one = case.new().fit(X, target, codes)
    two = case.new().fit(X[shuffled], target[shuffled], codes[shuffled])
    assert_allclose(case.outputs(two, X, codes), case.outputs(one, X, codes), atol=1e-6)


@quiet
@few
@given(seed=seeds)
def test_order_of_rows_without_labels(seed):
    """Nor does it with unlabelled rows; active points are the same rows."""
    X, y, codes, rng = make_rows(24, seed)
    target, shuffled = np.where(np.arange(24) % 3, np.sign(y), 0), rng.permutation(24)
    model = SparseGPClassifier(unlabeled=0, n_active=9, n_rounds=1, random_state=0)
    one = clone(model).fit(X, target, codes)
    two = clone(model).fit(X[shuffled], target[shuffled], codes[shuffled])
    assert_allclose(two.predict_proba(X, codes), one.predict_proba(X, codes), atol=1e-6)
    assert_array_equal(shuffled[two.active_], one.active_)
