"""Problems that floating point can hardly bear: an answer or a clear error, never NaN."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, PairwiseKernel

from gleangp import (
    HierarchicalGPRegressor,
    SparseGPClassifier,
    SparseGPOrdinal,
    SparseGPRegressor,
    load,
    save,
)
from gleangp.exceptions import GleanError, InputError, KernelError, LabelError
from tests.endurance.every_estimator import CASES, every, make_rows, outputs


def assert_finite_or_clear_error(case, model, X, target, codes=None, X_new=None):
    """Fit and predict; what comes is finite, or an error about the input that says what to do."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=ConvergenceWarning)
        warnings.filterwarnings("ignore", message=".*singular in floating point")
        try:
            model.fit(X, target, codes)
        except ValueError as error:
            if isinstance(error, GleanError) or "Give features that vary" in str(error):
                return None
            raise
        at = X[:50] if X_new is None else X_new
        said = case.outputs(model, at, None if codes is None else codes[: len(at)])
    assert np.isfinite(said).all()
    if case.kind == "numbers":
        assert (said[:, 1] >= 0).all()
    return said


KINDS = (SparseGPRegressor, SparseGPClassifier, SparseGPOrdinal)
SPARSE = [c for c in CASES if isinstance(c.estimator, KINDS)]


@every(SPARSE)
@pytest.mark.parametrize("log_condition", [8, 12, 16])
def test_condition_numbers(case, log_condition):
    """Kernel matrices with eigenvalues down to 10^-16 of the largest, held fixed."""
    n = 60
    X = np.linspace(0.0, 1.0, n)[:, None]
    length = {8: 0.15, 12: 0.3, 16: 3.0}[log_condition]
    kernel = ConstantKernel(1.0, "fixed") * RBF(length, "fixed")
    values = np.linalg.eigvalsh(kernel(X))
    assert values[0] < 10.0**-log_condition * values[-1] * 1e3
    y = np.sin(6.0 * X[:, 0])
    model = case.new(kernel=kernel)
    if case.kind == "numbers":
        model.set_params(noise_variance=1e-12)
    codes = np.arange(n) % 2 if case.name == "coupled" else None
    assert_finite_or_clear_error(case, model, X, case.target(y), codes)


@every()
def test_rows_repeated_by_the_thousand(case):
    """Three different rows, a thousand times each (fewer where cost is cubic)."""
    cubic = case not in SPARSE or case.name in ("regressor", "coupled")
    times = 60 if cubic else 1000 if case.kind == "numbers" else 150
    X = np.repeat([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]], times, axis=0)
    rng = np.random.default_rng(0)
    y = X[:, 0] + 0.1 * rng.normal(size=len(X))
    codes = rng.integers(2, size=len(X))
    assert_finite_or_clear_error(case, case.new(), X, case.target(y), codes)


@every(SPARSE)
@pytest.mark.parametrize("length_scale", [1e-8, 1e-5, 1e5, 1e12])
def test_length_scales_at_their_bounds(case, length_scale):
    """Every row a stranger to all others, or all rows the same."""
    X, y, codes, _ = make_rows(40, 0)
    kernel = ConstantKernel(1.0) * RBF(length_scale, (length_scale, 2.0 * length_scale))
    assert_finite_or_clear_error(case, case.new(kernel=kernel), X, case.target(y), codes)


@every()
@pytest.mark.parametrize(
    "trouble", ["constant feature", "constant inputs", "huge", "tiny", "far away", "collinear", "outlier"]
)
def test_awkward_inputs(case, trouble):
    """Inputs that carry nothing, or carry it in the last bits."""
    X, y, codes, _ = make_rows(36, 1)
    X = {
        "constant feature": X * [1.0, 0.0],
        "constant inputs": np.zeros_like(X),
        "huge": X * 1e100,
        "tiny": X * 1e-100,
        "far away": X + 1e9,
        "collinear": np.column_stack([X[:, 0], X[:, 0] * (1.0 + 1e-13)]),
        "outlier": np.vstack([[1e8, -1e8], X[1:]]),
    }[trouble]
    assert_finite_or_clear_error(case, case.new(), X, case.target(y), codes)


@every()
@pytest.mark.parametrize("trouble", ["huge", "tiny", "constant", "far away", "one outlier"])
def test_awkward_targets(case, trouble):
    """Numbers at the ends of the range, or that do not vary."""
    if case.kind != "numbers":
        pytest.skip("of numbers alone")
    X, y, codes, _ = make_rows(36, 2)
    y = {
        "huge": y * 1e120,
        "tiny": y * 1e-120,
        "constant": np.full_like(y, 0.1),
        "far away": y + 1e12,
        "one outlier": np.append(1e10, y[1:]),
    }[trouble]
    assert_finite_or_clear_error(case, case.new(), X, y, codes)


@every()
def test_numbers_beyond_all_units(case):
    """Numbers whose products are not finite are refused with what to do; rows far away are predicted."""
    X, y, codes, _ = make_rows(36, 2)
    with pytest.raises(InputError, match=r"X has the number .*e\+1\d\d\..*use another unit"):
        case.new().fit(X * 1e150, case.target(y), codes)
    if case.kind == "numbers":
        with pytest.raises(LabelError, match=r"y has the number .*use another unit"):
            case.new().fit(X, y * 1e154, codes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = case.new().fit(X, case.target(y), codes)
    with pytest.raises(InputError, match="use another unit"):
        case.outputs(model, np.full((1, 2), 1e300), codes[:1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        assert np.isfinite(case.outputs(model, np.full((1, 2), 1e90), codes[:1])).all()


@pytest.mark.parametrize("selector", ["entropy", "random", "information"])
def test_kernels_that_take_no_empty_arrays(selector):
    """Two active points in three tasks leave one without any."""
    X, y, codes, _ = make_rows(30, 0)
    model = SparseGPRegressor(
        PairwiseKernel(metric="rbf"),
        coupling="kernel",
        posterior="active",
        n_active=2,
        selector=selector,
        optimizer=None,
        random_state=0,
    ).fit(X, y, codes)
    assert np.isfinite(model.predict(X, codes, return_std=True)).all()


@pytest.mark.parametrize("kernel", [DotProduct(), Matern(1.0, nu=0.5), ConstantKernel() * DotProduct() ** 3])
@pytest.mark.parametrize("n_active", [None, 5, 40])
def test_kernels_of_low_rank(kernel, n_active):
    """More active points than the kernel has dimensions."""
    X, y, codes, _ = make_rows(60, 3)
    case = SPARSE[0]
    model = case.new(kernel=kernel, n_active=n_active)
    said = assert_finite_or_clear_error(case, model, X, y, codes)
    assert said is not None


def test_hierarchy_of_equal_rows():
    """A task whose rows are all equal beside tasks that vary."""
    X, y, codes, _ = make_rows(30, 4)
    X[codes == 1] = 0.5
    case = next(c for c in CASES if isinstance(c.estimator, HierarchicalGPRegressor))
    assert assert_finite_or_clear_error(case, case.new(), X, y, codes) is not None


ENORMOUS = [  # variances of the kernel that is not optimised, with sites of expectation propagation
    (SparseGPRegressor(noise="student", coupling="kernel", normalize_y=False), "numbers", 1e16),
    pytest.param(
        *(SparseGPRegressor(noise="negative_binomial", coupling="function"), "counts", 1e28),
        marks=pytest.mark.slow,
    ),
    (SparseGPOrdinal(), "counts", 1e36),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("model", "kind", "unit"), ENORMOUS, ids=lambda value: str(value)[:30])
def test_sites_under_enormous_variances(model, kind, unit):
    """A row whose variance is nothing but its site's has a finite one, and the model a finite answer."""
    X, y, codes, _ = make_rows(22, 0)
    target = np.digitize(y, [-0.4, 0.4]) if kind == "counts" else 1e9 + y
    X[:, -1] *= unit
    model.set_params(kernel=DotProduct() + RBF(), optimizer=None, random_state=0).fit(X, target, codes)
    assert np.isfinite(outputs(model, X, codes)).all()


@pytest.mark.filterwarnings("ignore")
def test_sites_that_leave_the_numbers():
    """Where no step of expectation propagation is finite, the error names the variance."""
    X, y, codes, _ = make_rows(22, 0)
    model = SparseGPRegressor(DotProduct() + RBF(), noise="poisson", coupling="kernel", optimizer=None)
    with pytest.raises(KernelError, match=r"a row has the variance .*other units"):
        model.fit(X * [1.0, 1e14], np.digitize(y, [-0.4, 0.4]), codes)


@pytest.mark.filterwarnings("ignore")
def test_saved_jitter_of_enormous_variances(tmp_path):
    """The jitter of a matrix is in its units, however large: the model loads again."""
    X, y, codes, _ = make_rows(25, 0, p=1)
    model = SparseGPRegressor(
        DotProduct() + RBF(), coupling="kernel", posterior="active", n_rounds=1, random_state=0
    )
    model.fit(1e93 * X, y, codes)
    save(model, tmp_path / "m.glean")
    again = load(tmp_path / "m.glean")
    assert np.array_equal(outputs(again, X, codes), outputs(model, X, codes))
