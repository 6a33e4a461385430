"""Kernels: every rule against the slow, obvious twin on one list of kernels.

The twins are scikit-learn's `eval_gradient` and central differences of the matrix itself.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    CompoundKernel,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Hyperparameter,
    Kernel,
    Matern,
    PairwiseKernel,
    RationalQuadratic,
    StationaryKernelMixin,
    WhiteKernel,
)

from gleangp.kernels import (
    ArcSine,
    ScaledInputs,
    has_white,
    kernel_columns,
    kernel_input_vjp,
    kernel_vjp,
    signal_diag,
    white_diag,
)
from gleangp.kernels.evaluate import evaluate, evaluate_diag
from tests.differences import central

ARD = [0.7, 1.9, 1.2]


class Cauchy(StationaryKernelMixin, Kernel):
    """1 / (1 + gamma |x - z|^2): what a third party might write."""

    def __init__(self, gamma=1.0, gamma_bounds=(1e-3, 1e3)):
        self.gamma = gamma
        self.gamma_bounds = gamma_bounds

    @property
    def hyperparameter_gamma(self):
        return Hyperparameter("gamma", "numeric", self.gamma_bounds)

    def __call__(self, X, Y=None, eval_gradient=False):
        square = ((X[:, None] - (X if Y is None else Y)[None]) ** 2).sum(axis=-1)
        K = 1.0 / (1.0 + self.gamma * square)
        return (K, (-self.gamma * square * K**2)[..., None]) if eval_gradient else K

    def diag(self, X):
        return np.ones(len(X))


class Steeper(RBF):
    """A subclass of a known kernel that computes something else."""

    def __call__(self, X, Y=None, eval_gradient=False):
        if not eval_gradient:
            return super().__call__(X, Y) ** 2
        K, gradient = super().__call__(X, Y, eval_gradient=True)
        return K**2, 2.0 * K[..., None] * gradient


KERNELS = [
    ConstantKernel(1.7),
    ConstantKernel(1.7, "fixed"),
    WhiteKernel(0.3),
    WhiteKernel(0.3, "fixed"),
    RBF(0.8),
    RBF([0.8]),
    RBF(ARD),
    RBF(ARD, np.array([[1e-2, 1e2], [1e-1, 1e1], [1e-3, 1e3]])),
    RBF(ARD, "fixed"),
    *(Matern(0.9, nu=nu) for nu in (0.5, 1.5, 2.5, np.inf, 0.8, 3.2)),
    *(Matern(ARD, nu=nu) for nu in (0.5, 1.5, 2.5, np.inf, 0.8, 3.2)),
    Matern(ARD, "fixed", nu=1.5),
    RationalQuadratic(0.9, 1.4),
    RationalQuadratic(0.9, 1.4, alpha_bounds="fixed"),
    RationalQuadratic(0.9, 1.4, length_scale_bounds="fixed"),
    ExpSineSquared(1.1, 2.3),
    ExpSineSquared(1.1, 2.3, length_scale_bounds="fixed"),
    ExpSineSquared(1.1, 2.3, periodicity_bounds="fixed"),
    DotProduct(0.6),
    DotProduct(0.0, "fixed"),
    ArcSine(1.3, 0.4),
    ArcSine(1.3, 0.4, weight_variance_bounds="fixed"),
    ArcSine(1.3, 0.4, bias_variance_bounds="fixed"),
    ArcSine(1.3, 0.4, "fixed", "fixed"),
    2.0 * RBF(ARD) + WhiteKernel(0.3),
    WhiteKernel(0.3) + RBF(0.7) * 2.0,
    ConstantKernel(2.0, "fixed") * RBF(ARD, "fixed") + WhiteKernel(0.3, "fixed"),
    2.0 * RBF(0.8) + 0.5 * Matern(ARD, nu=2.5) + ConstantKernel(0.1) + WhiteKernel(0.2),
    (RBF(0.8) + DotProduct(0.5)) * (ArcSine() + RationalQuadratic(2.0, 0.7)),
    1.5 * (0.4 * DotProduct(0.0, "fixed") + 0.9) ** 2,
    (RBF(1.3) + 0.5) ** 1.5,
    3.0 * WhiteKernel(0.4),
    (ConstantKernel(2.0) + WhiteKernel(0.4)) * RBF(ARD),
    DotProduct(0.5) * WhiteKernel(0.4) + RBF(),
    (DotProduct(0.8) + WhiteKernel(0.4)) ** 2,
    ScaledInputs(RBF(1.0, "fixed"), ARD),
    ScaledInputs(RBF(1.2), 0.7),
    ScaledInputs(2.0 * ArcSine(0.9, 1.4) + 0.3 * DotProduct(0.5) + WhiteKernel(0.1), ARD),
    ScaledInputs(Matern(1.2, nu=2.5), ARD, "fixed"),
    0.5 * ScaledInputs((DotProduct(0.8) + WhiteKernel(0.4)) * RBF(), ARD) + ConstantKernel(0.3),
    ScaledInputs(Cauchy(0.6) + 0.4, ARD),
    ScaledInputs(0.3 * DotProduct(0.5) + RBF(1.2, "fixed"), ARD, center=[0.5, -1.0, 2.0]),
    0.4 * ScaledInputs(DotProduct(0.0, "fixed"), 0.7, "fixed", center=1.5) + RBF(ARD),
    PairwiseKernel(0.4, metric="rbf"),
    Cauchy(0.6),
    2.0 * Cauchy(0.6) * RBF(ARD) + WhiteKernel(0.1),
    Steeper(0.8),
]
# scikit-learn's own gradient of these is a forward difference with step 1e-10
ROUGH = (PairwiseKernel,)


def rough(kernel):
    return isinstance(kernel, ROUGH) or getattr(kernel, "nu", 0.5) in (0.8, 3.2)


@pytest.fixture
def data():
    rng = np.random.default_rng(3)
    n, m, p = 9, 5, 3
    return rng.normal(size=(n, p)), rng.normal(size=(m, p)), rng


def by_theta(kernel, evaluate, weights):
    return central(lambda t: np.sum(weights * evaluate(kernel.clone_with_theta(t))), kernel.theta)


def scale_of(gradient):
    return max(1.0, np.abs(gradient).max(initial=0.0))


def moved(K, dL_dK, X):
    """dL/dX of a kernel matrix whose arguments are both X."""
    return np.broadcast_to(K.vjp(dL_dK)[1], X.shape)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_values_are_those_of_the_kernel(kernel, data):
    """value is kernel(X), kernel(X, Z) or kernel.diag(X); columns and splits agree with them."""
    X, Z, _ = data
    assert_allclose(evaluate(kernel, X).value, kernel(X), rtol=1e-12, atol=1e-14)
    assert_allclose(evaluate(kernel, X, Z).value, kernel(X, Z), rtol=1e-12, atol=1e-14)
    assert_allclose(evaluate(kernel, X, B=Z).value, kernel(X, Z), rtol=1e-12, atol=1e-14)
    assert_allclose(kernel_columns(kernel, X, Z), kernel(X, Z), rtol=1e-12, atol=1e-14)
    assert_allclose(evaluate_diag(kernel, X).value, kernel.diag(X), rtol=1e-13)
    assert_allclose(signal_diag(kernel, X), np.diagonal(kernel(X, X)), rtol=1e-12, atol=1e-14)
    assert_allclose(white_diag(kernel, X), kernel.diag(X) - signal_diag(kernel, X), atol=1e-15)
    assert has_white(kernel) == bool(np.any(white_diag(kernel, X)))


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_theta_gradient_of_the_square_block(kernel, data):
    """The contraction is the sum over entries of dL/dK times scikit-learn's own gradient."""
    X, _, rng = data
    dL_dK = rng.normal(size=(len(X), len(X)))  # not symmetric
    slow = np.einsum("ij,ijq->q", dL_dK, kernel(X, eval_gradient=True)[1])
    rtol = 1e-4 if rough(kernel) else 1e-7
    assert_allclose(kernel_vjp(kernel, X, dL_dK), slow, rtol=rtol, atol=rtol * scale_of(slow))
    fast = evaluate(kernel, X).vjp(dL_dK)[0]
    differences = by_theta(kernel, lambda k: k(X), dL_dK)
    rtol = 1e-4 if isinstance(kernel, ROUGH) else 1e-7
    assert_allclose(fast, differences, rtol=rtol, atol=rtol * scale_of(slow))


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_theta_gradient_of_the_cross_block(kernel, data):
    """The same for K(X, Z), where white variance has no part."""
    X, Z, rng = data
    dL_dK = rng.normal(size=(len(X), len(Z)))
    slow = by_theta(kernel, lambda k: k(X, Z), dL_dK)
    rtol = 1e-4 if isinstance(kernel, ROUGH) else 1e-7
    fast = evaluate(kernel, X, Z).vjp(dL_dK)[0]
    assert_allclose(fast, slow, rtol=rtol, atol=rtol * scale_of(slow))


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_theta_gradient_of_the_diagonal(kernel, data):
    """The same for kernel.diag(X), where it has."""
    X, _, rng = data
    dL_ddiag = rng.normal(size=len(X))
    slow = by_theta(kernel, lambda k: k.diag(X), dL_ddiag)
    rtol = 1e-4 if isinstance(kernel, ROUGH) else 1e-7
    fast = evaluate_diag(kernel, X).vjp(dL_ddiag)[0]
    assert_allclose(fast, slow, rtol=rtol, atol=rtol * scale_of(slow))


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_input_gradients(kernel, data):
    """Moving X changes K(X, Z) with Z held, K(X) with both, and the diagonal with both."""
    X, Z, rng = data
    cross = rng.normal(size=(len(X), len(Z)))
    slow = central(lambda moved: np.sum(cross * kernel(moved, Z)), X)
    tolerance = {"rtol": 1e-6, "atol": 1e-7 * scale_of(slow)}
    assert_allclose(kernel_input_vjp(kernel, X, Z, cross), slow, **tolerance)

    square = rng.normal(size=(len(X), len(X)))
    slow = central(lambda moved: np.sum(square * kernel(moved)), X)
    tolerance = {"rtol": 1e-6, "atol": 1e-7 * scale_of(slow)}
    assert_allclose(moved(evaluate(kernel, X), square, X), slow, **tolerance)

    weights = rng.normal(size=len(X))
    slow = central(lambda moved: np.sum(weights * kernel.diag(moved)), X)
    tolerance = {"rtol": 1e-6, "atol": 1e-7 * scale_of(slow)}
    assert_allclose(evaluate_diag(kernel, X).vjp(weights)[1], slow, **tolerance)
    # a diagonal weight matrix picks the same numbers out of the square block
    picked = moved(evaluate(kernel, X), np.diag(weights), X)
    assert_allclose(picked, slow, **tolerance)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_one_row_and_equal_rows(kernel, data):
    """One row works; equal rows have the covariance of a row with itself, less white variance."""
    X, _, rng = data
    lone = evaluate(kernel, X[:1])
    assert_allclose(lone.value, kernel(X[:1]), rtol=1e-13)
    assert lone.vjp(np.ones((1, 1)))[0].shape == kernel.theta.shape
    assert moved(lone, np.ones((1, 1)), X[:1]).shape == (1, 3)
    twice = np.vstack((X, X))
    K = evaluate(kernel, twice)
    signal = np.tile(signal_diag(kernel, X), 2)
    atol = 1e-12 if getattr(kernel, "nu", 0) != 0.5 else 1e-7
    assert_allclose(np.diagonal(K.value, len(X)), signal[: len(X)], rtol=1e-12, atol=atol)
    dL_dK = rng.normal(size=K.value.shape)
    slow = np.einsum("ij,ijq->q", dL_dK, kernel(twice, eval_gradient=True)[1])
    rtol = 1e-4 if rough(kernel) else 1e-7
    assert_allclose(K.vjp(dL_dK)[0], slow, rtol=rtol, atol=rtol * scale_of(slow))
    assert np.isfinite(K.vjp(dL_dK)[1]).all()


@pytest.mark.parametrize(
    "kernel",
    [RBF(0.8), 2.0 * RBF(ARD), RationalQuadratic(0.9, 1.4), Matern(ARD, nu=1.5), Matern(nu=0.5)],
    ids=repr,
)
def test_inputs_far_from_the_origin(kernel, data):
    """An offset of 1e6 length scales costs no digits beyond those the inputs have lost."""
    X, Z, rng = data
    X, Z = X + 1e6, Z + 1e6
    assert_allclose(evaluate(kernel, X).value, kernel(X), atol=1e-9)
    assert_allclose(kernel_columns(kernel, X, Z), kernel(X, Z), atol=1e-9)
    dL_dK = rng.normal(size=(len(X), len(X)))
    slow = np.einsum("ij,ijq->q", dL_dK, kernel(X, eval_gradient=True)[1])
    assert_allclose(kernel_vjp(kernel, X, dL_dK), slow, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("kernel", [RBF(0.01), 2.0 * RBF([0.01, 0.02, 0.03])], ids=repr)
def test_clusters_far_apart(kernel, data):
    """No common origin suits two clusters 1e8 length scales apart; differences still do."""
    X, _, rng = data
    X = np.vstack((0.01 * X - 1e4, 0.01 * X + 1e4))
    assert_allclose(evaluate(kernel, X).value, kernel(X), atol=1e-9)
    assert_allclose(kernel_columns(kernel, X, X[:4]), kernel(X, X[:4]), atol=1e-9)
    dL_dK = rng.normal(size=(len(X), len(X)))
    slow = np.einsum("ij,ijq->q", dL_dK, kernel(X, eval_gradient=True)[1])
    assert_allclose(kernel_vjp(kernel, X, dL_dK), slow, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("kernel", [RBF(ARD), RBF(0.7), RationalQuadratic()], ids=repr)
def test_many_rows_are_worked_through_in_blocks(kernel):
    """Parts of a matrix join without a seam, it is symmetric and its diagonal is one."""
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(401, 3)), rng.normal(size=(307, 3))
    K = evaluate(kernel, X).value
    assert_allclose(K, kernel(X), rtol=1e-10)
    assert_allclose(K, K.T, rtol=1e-12)
    assert_array_equal(np.diagonal(K), 1.0)
    assert_allclose(kernel_columns(kernel, X, Z), kernel(X, Z), rtol=1e-10)


def test_columns_belong_to_the_caller(data):
    """They can be written into, also those of a constant."""
    X, Z, _ = data
    for kernel in (RBF(), 2.0 * RBF() + WhiteKernel(), ConstantKernel(), Cauchy()):
        columns = kernel_columns(kernel, X, Z)
        columns[0, 0] = -3.0
        assert kernel_columns(kernel, X, Z)[0, 0] != -3.0


def test_sums_leave_their_parts_right(data):
    """A sum built in a part's memory gives the same value and gradient however it is nested."""
    X, _, rng = data
    a, b, c, w = 2.0 * RBF(ARD), RBF(0.5) * Matern(), DotProduct(), WhiteKernel(0.2)
    dL_dK = rng.normal(size=(len(X), len(X)))
    for kernel in (a + b + c + w, a + (b + (c + w)), w + (a + b) + c, (a + w) + (b + w) * 3.0):
        K = evaluate(kernel, X)
        assert_allclose(K.value, kernel(X), rtol=1e-12)
        slow = np.einsum("ij,ijq->q", dL_dK, kernel(X, eval_gradient=True)[1])
        assert_allclose(K.vjp(dL_dK)[0], slow, rtol=1e-9)
        assert_allclose(K.vjp(dL_dK)[0], slow, rtol=1e-9)  # and again


def test_compound_kernel(data):
    """Several kernels side by side: what is read of them is the variance of each."""
    X, _, _ = data
    kernel = CompoundKernel([2.0 * RBF(0.7) + WhiteKernel(0.1), Matern(nu=2.5)])
    assert has_white(kernel)
    assert_allclose(signal_diag(kernel, X), np.ones((len(X), 2)) * [2.0, 1.0])


def test_rule_of_a_user_is_honoured(data):
    """A rule registered for a user's kernel is used inside sums, products and cross blocks."""
    X, Z, rng = data
    calls = []

    class Mine(Cauchy):
        pass

    @kernel_vjp.register
    def _(kernel: Mine, X, dL_dK):
        calls.append("theta")
        return np.array([np.sum(dL_dK * kernel(X, eval_gradient=True)[1][..., 0])])

    @kernel_input_vjp.register
    def _(kernel: Mine, X, Z, dL_dK):
        calls.append("input")
        W = -2.0 * kernel.gamma * dL_dK * kernel(X, Z) ** 2
        return W.sum(axis=1)[:, None] * X - W @ Z

    mine, theirs = 2.0 * Mine(0.6) + RBF(ARD), 2.0 * Cauchy(0.6) + RBF(ARD)
    square, cross = rng.normal(size=(len(X), len(X))), rng.normal(size=(len(X), len(Z)))
    assert_allclose(kernel_vjp(mine, X, square), kernel_vjp(theirs, X, square))
    assert_allclose(
        evaluate(mine, X, Z).vjp(cross, inputs=False)[0],
        evaluate(theirs, X, Z).vjp(cross, inputs=False)[0],
        rtol=1e-10,
    )
    assert calls == ["theta", "theta"]
    for K, slow in (
        (evaluate(mine, X), evaluate(theirs, X)),
        (evaluate(Mine(0.6), X), evaluate(Cauchy(0.6), X)),
    ):
        assert_allclose(K.vjp(square)[1], slow.vjp(square)[1], rtol=1e-6, atol=1e-8)
    fast = kernel_input_vjp(mine, X, Z, cross)
    assert_allclose(fast, kernel_input_vjp(theirs, X, Z, cross), rtol=1e-6, atol=1e-8)
    assert calls.count("input") >= 3


def test_white_inside_a_wrapper_we_do_not_know(data):
    """White variance is found among the parameters of an unknown kernel and split by definition."""
    X, _, rng = data

    class Wrapper(Kernel):
        def __init__(self, inner):
            self.inner = inner

        def __call__(self, X, Y=None, eval_gradient=False):
            return 2.0 * self.inner(X, Y)

        def diag(self, X):
            return 2.0 * self.inner.diag(X)

        def is_stationary(self):
            return True

    kernel = Wrapper(DotProduct(0.5) * (RBF() + WhiteKernel(0.3)))
    assert has_white(kernel)
    assert_allclose(signal_diag(kernel, X), np.diagonal(kernel(X, X)))
    assert_allclose(white_diag(kernel, X), 0.6 * (0.25 + (X**2).sum(axis=1)))
    weights = rng.normal(size=(len(X), len(X)))
    slow = central(lambda moved: np.sum(weights * kernel(moved)), X)
    assert_allclose(evaluate(kernel, X).vjp(weights)[1], slow, rtol=1e-6, atol=1e-7)
    assert evaluate(kernel, X).vjp(weights)[0].shape == (0,)


@pytest.mark.parametrize("size", [1e-8, 1.0, 1e4, 1e8, 1e70])
def test_arcsine_of_equal_rows_of_any_size(size):
    """The sine never leaves [-1, 1] and gradients stay finite, also where they round to zero."""
    X = size * np.array([[1.0, -2.0], [1.0, -2.0], [-1.0, 2.0], [1.0, -2.0 + 1e-9]])
    kernel = ArcSine(2.0, 1e-5)
    K = evaluate(kernel, X)
    assert np.abs(K.value).max() <= 1.0
    assert_allclose(K.value, kernel(X))
    assert_allclose(np.diagonal(K.value), kernel.diag(X), rtol=1e-7)
    assert np.isfinite(kernel(X, eval_gradient=True)[1]).all()
    assert np.isfinite(K.vjp(np.ones((4, 4)))[0]).all()
    assert np.isfinite(K.vjp(np.ones((4, 4)))[1]).all()


def test_scaled_inputs_of_an_rbf_is_the_anisotropic_rbf(data):
    """Scales are inverse length scales, with gradients of opposite sign."""
    X, Z, rng = data
    scaled = ScaledInputs(RBF(1.0, "fixed"), 1.0 / np.array(ARD))
    assert_allclose(scaled(X, Z), RBF(ARD)(X, Z))
    dL_dK = rng.normal(size=(len(X), len(X)))
    assert_allclose(kernel_vjp(scaled, X, dL_dK), -kernel_vjp(RBF(ARD), X, dL_dK))


@pytest.mark.parametrize(
    "kernel",
    [
        ArcSine(3.0, 2.0),
        ArcSine(bias_variance_bounds="fixed"),
        ScaledInputs(ArcSine() + DotProduct(), [1.0, 0.5, 2.0]),
        ScaledInputs(RBF(), np.array([1.0, 0.5, 2.0]), (1e-2, 1e2)),
        ScaledInputs(RBF(), 0.5),
        ScaledInputs(DotProduct(), [1.0, 0.5, 2.0], center=[0.0, 1.0, 2.0]),
        ScaledInputs(RBF(1.0, "fixed"), 0.5, "fixed"),
    ],
    ids=repr,
)
def test_new_kernels_follow_the_protocol(kernel, data):
    """clone, ==, theta, bounds, hyperparameters and parameters fit together as in scikit-learn."""
    X, _, _ = data
    assert clone(kernel) == kernel
    assert clone(kernel) is not kernel
    moved = kernel.clone_with_theta(kernel.theta + 0.1)
    assert_allclose(moved.theta, kernel.theta + 0.1)
    assert (moved == kernel) == (kernel.n_dims == 0)
    assert kernel != RBF()
    assert kernel.bounds.shape == ((kernel.n_dims, 2) if kernel.n_dims else (0,))
    free = [h for h in kernel.hyperparameters if not h.fixed]
    assert sum(h.n_elements for h in free) == kernel.n_dims
    if free:
        values = np.hstack([kernel.get_params()[h.name] for h in free])
        assert_allclose(np.log(values), kernel.theta)
        assert_allclose(np.log(np.vstack([h.bounds for h in free])), kernel.bounds)
    assert kernel.requires_vector_input
    with pytest.raises(ValueError, match="when Y is None"):
        kernel(X, X, eval_gradient=True)
    with pytest.raises(ValueError, match="theta"):
        kernel.theta = np.append(kernel.theta, 0.0)


def test_new_kernels_know_whether_they_are_stationary():
    """ScaledInputs passes the question on, ArcSine says no."""
    assert not ArcSine().is_stationary()
    assert ScaledInputs(RBF()).is_stationary()
    assert not ScaledInputs(DotProduct()).is_stationary()


def test_representation_and_nested_parameters():
    """Kernels print what they are; the inner kernel's parameters are reached by name."""
    kernel = ScaledInputs(ArcSine(2.0, 3.0), [0.5, 1.0])
    text = "ScaledInputs(ArcSine(weight_variance=2, bias_variance=3), scales=[0.5, 1])"
    assert repr(kernel) == text
    assert repr(ScaledInputs(RBF(), 0.5)) == "ScaledInputs(RBF(length_scale=1), scales=0.5)"
    assert repr(ScaledInputs(RBF(), 0.5, center=[1.0, 2.0])).endswith("scales=0.5, center=[1, 2])")
    kernel.set_params(kernel__weight_variance=5.0, scales=2.0)
    assert_allclose(kernel.theta, np.log([3.0, 5.0, 2.0]))


def test_centred_inputs_move_the_origin_of_a_dot_product(data):
    """A centre is where lines cross zero: as if inputs were moved by it; a stationary kernel is the same."""
    X, Z, _ = data
    center = np.array([0.5, -1.0, 2.0])
    linear = ScaledInputs(DotProduct(0.3), 0.7, center=center)
    assert_allclose(linear(X, Z), DotProduct(0.3)(0.7 * (X - center), 0.7 * (Z - center)))
    assert_allclose(ScaledInputs(RBF(), ARD, center=center)(X, Z), ScaledInputs(RBF(), ARD)(X, Z))
    assert linear != ScaledInputs(DotProduct(0.3), 0.7)
    with pytest.raises(ValueError, match=r"center of shape \(2,\), but X has 3 features"):
        ScaledInputs(DotProduct(), center=[1.0, 2.0])(X)


def test_wrong_number_of_scales(data):
    """A mismatch between scales, or length scales, and features is said with both numbers."""
    X, _, _ = data
    kernel = ScaledInputs(RBF(), [1.0, 2.0])
    for call in (kernel, kernel.diag, lambda X: evaluate(kernel, X)):
        with pytest.raises(ValueError, match=r"shape \(2,\), but X has 3 features"):
            call(X)
    with pytest.raises(ValueError, match=r"shape \(2,\), but X has 3 features"):
        evaluate(RBF([1.0, 2.0]), X)


@pytest.mark.parametrize(
    "kernel",
    [
        2.0 * ArcSine(),
        ScaledInputs(1.0 * ArcSine() + 0.1 * DotProduct(), [1.0, 1.0, 1.0]),
        ScaledInputs(RBF(1.0, "fixed"), 1.0),
    ],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore:The optimal value found")
def test_new_kernels_train_in_scikit_learn(kernel):
    """GaussianProcessRegressor raises the marginal likelihood and predicts with them."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 3))
    y = np.tanh(2.0 * X[:, 0]) + 0.3 * X[:, 1]
    model = GaussianProcessRegressor(kernel, alpha=1e-3, normalize_y=True).fit(X[:30], y[:30])
    start = model.log_marginal_likelihood(kernel.theta)
    assert model.log_marginal_likelihood_value_ > start + 1.0
    assert model.score(X[30:], y[30:]) > 0.8


@pytest.mark.parametrize(
    "kernel",
    [
        0.7 * RBF(4.0) + 0.3 * DotProduct(0.5) + 1.4,
        RBF(np.linspace(1.0, 6.0, 12)) + 0.1 * DotProduct(),
        RBF(3.0) * DotProduct(1.0) + Matern(2.0),
        DotProduct(1.0) * 0.0 + 2.0,
        ConstantKernel(2.0) + ConstantKernel(0.5),
    ],
    ids=repr,
)
def test_columns_of_many_features(kernel):
    """K(X[rows], X) is that of the kernel, far from the origin too; white variance is left out."""
    X, rows = np.random.default_rng(0).normal(size=(40, 12)) + 30.0, np.array([3, 17, 17, 0])
    for given in (kernel, kernel + WhiteKernel(0.3)):
        assert_allclose(kernel_columns(given, X[rows], X), kernel(X)[rows], rtol=1e-9, atol=1e-12)
