"""Kernel matrices of many small tasks at once.

A fit over hundreds of tasks of a few dozen rows spends its time in Python, not in arithmetic. Here the
rows of T tasks stand in one array (T, n, p), and one call gives all T matrices and contracts all
their derivatives. Only kernels built of the parts below can be stacked; the others are evaluated
task by task.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch

import numpy as np
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Kernel,
    Product,
    Sum,
    WhiteKernel,
)

from gleangp._typing import FloatArray
from gleangp.kernels.gradients import is_free, linearize, rule_for
from gleangp.kernels.scaled_inputs import ScaledInputs

# Beyond this squared norm (in length scales) the matrix product loses digits; see `stationary`.
_LARGEST_SQUARE = 2.0**20
_MOST_ENTRIES = 1_000_000  # of the matrices of several tasks at once


@dataclass(frozen=True, slots=True, eq=False)
class StackLinearization:
    """Matrices of all tasks (white included), and derivatives from dL/dK of all tasks.

    dL/dK need not be symmetric: it may be folded onto one triangle.
    """

    value: FloatArray  # broadcasts to (T, n, n)
    theta_vjp: Callable[[FloatArray], FloatArray]  # (T, n, n) -> (q,)
    input_vjp: Callable[[FloatArray], FloatArray | float]  # (T, n, n) -> (T, n, p) or zero, both arguments
    spare: bool = False  # the derivatives do not read `value`: who asked for it may overwrite it


@singledispatch
def linearize_stack(kernel: Kernel, X: FloatArray) -> StackLinearization | None:
    """K(X_t) of every task and its derivative, or None where the kernel has no rule for it.

    Parameters
    ----------
    kernel : Kernel
        Any scikit-learn kernel.
    X : ndarray of shape (T, n, p)
        Rows of T tasks of equal size.

    Returns
    -------
    StackLinearization or None
        With ``.value`` and ``.theta_vjp``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> X = np.arange(6.0).reshape(3, 2, 1)
    >>> linearize_stack(2.0 * RBF(), X).value.shape
    (3, 2, 2)
    """
    return None


@rule_for(linearize_stack, RBF)
def _(kernel, X):
    return _amplified_rbf(kernel, X, None)


def _amplified_rbf(kernel: RBF, X: FloatArray, amplitude: ConstantKernel | None) -> StackLinearization | None:
    """c * RBF, or the RBF alone: passes over the matrices are what it costs, so each is made once."""
    scale = np.asarray(kernel.length_scale, dtype=float)
    U = (X - X.mean(axis=(0, 1))) / scale
    norms = np.einsum("tik,tik->ti", U, U)
    if norms.max(initial=0.0) > _LARGEST_SQUARE:
        return None
    # -1/2 |u - v|^2 = u.v - 1/2 |u|^2 - 1/2 |v|^2, as one product
    halves, ones = -0.5 * norms[:, :, None], np.ones((*norms.shape, 1))
    left, right = np.concatenate([U, halves, ones], axis=2), np.concatenate([U, ones, halves], axis=2)
    exponent = left @ right.transpose(0, 2, 1)
    np.minimum(exponent, 0.0, out=exponent)
    several = scale.size > 1
    K = np.exp(exponent, out=exponent if several else None)
    if amplitude is not None:
        K *= amplitude.constant_value
    free_amplitude = amplitude is not None and is_free(amplitude.constant_value_bounds)
    free_scale = is_free(kernel.length_scale_bounds)

    def toward_inputs(W, rows):
        """dL/dU (T, n, p) from W = dL/dK K and its sums over the second argument."""
        around = W @ U
        around += W.transpose(0, 2, 1) @ U
        return around - (rows + W.sum(axis=1))[:, :, None] * U

    def theta_vjp(dL_dK):
        W, parts = dL_dK * K, []
        rows = W.sum(axis=2)
        if free_amplitude:
            parts.append([rows.sum()])
        if free_scale:
            moved = toward_inputs(W, rows) * U if several else 2.0 * W * exponent
            parts.append(-(moved.sum(axis=(0, 1)) if several else np.atleast_1d(moved.sum())))
        return np.concatenate(parts) if parts else np.empty(0)

    def input_vjp(dL_dK):
        W = dL_dK * K
        return toward_inputs(W, W.sum(axis=2)) / scale

    return StackLinearization(K, theta_vjp, input_vjp)


@rule_for(linearize_stack, ConstantKernel)
def _(kernel, X):
    c = kernel.constant_value
    free = is_free(kernel.constant_value_bounds)
    value = np.full((1, 1, 1), c)
    return StackLinearization(value, (lambda G: np.array([c * G.sum()])) if free else _nothing, _stays)


@rule_for(linearize_stack, WhiteKernel)
def _(kernel, X):
    s = kernel.noise_level
    free = is_free(kernel.noise_level_bounds)
    value = s * np.eye(X.shape[1])[None]
    theta_vjp = (lambda G: np.array([s * np.einsum("tii->", G)])) if free else _nothing
    return StackLinearization(value, theta_vjp, _stays)


@rule_for(linearize_stack, DotProduct)
def _(kernel, X):
    square = kernel.sigma_0**2
    free = is_free(kernel.sigma_0_bounds)
    value = X @ X.transpose(0, 2, 1) + square
    theta_vjp = (lambda G: np.array([2.0 * square * G.sum()])) if free else _nothing
    return StackLinearization(value, theta_vjp, lambda G: (G + G.transpose(0, 2, 1)) @ X)


@rule_for(linearize_stack, Sum)
def _(kernel, X):
    k1, k2 = linearize_stack(kernel.k1, X), linearize_stack(kernel.k2, X)
    if k1 is None or k2 is None:
        return None
    value = _added(k1, k2) if k1.value.size >= k2.value.size else _added(k2, k1)
    return StackLinearization(
        value,
        lambda G: np.concatenate([k1.theta_vjp(G), k2.theta_vjp(G)]),
        lambda G: k1.input_vjp(G) + k2.input_vjp(G),
        spare=True,
    )


def _added(larger: StackLinearization, other: StackLinearization) -> FloatArray:
    """The sum of two values, in the place of one that is spare: fresh memory costs more than the sum."""
    if larger.spare:
        return np.add(larger.value, other.value, out=larger.value)
    if other.spare and other.value.shape == larger.value.shape:
        return np.add(larger.value, other.value, out=other.value)
    return larger.value + other.value


@rule_for(linearize_stack, Product)
def _(kernel, X):
    if type(kernel.k1) is ConstantKernel and type(kernel.k2) is RBF:
        return _amplified_rbf(kernel.k2, X, kernel.k1)
    if type(kernel.k1) is ConstantKernel and is_linear(kernel.k2):
        return _amplified_slopes(kernel.k2, X, kernel.k1)
    k1, k2 = linearize_stack(kernel.k1, X), linearize_stack(kernel.k2, X)
    if k1 is None or k2 is None:
        return None
    return StackLinearization(
        k1.value * k2.value,
        lambda G: np.concatenate([k1.theta_vjp(G * k2.value), k2.theta_vjp(G * k1.value)]),
        lambda G: k1.input_vjp(G * k2.value) + k2.input_vjp(G * k1.value),
    )


@rule_for(linearize_stack, ScaledInputs)
def _(kernel, X):
    scales = np.asarray(kernel.scales, dtype=float)
    U = kernel.scale_inputs(X)
    inner = linearize_stack(kernel.kernel, U)
    if inner is None:
        return None

    def theta_vjp(dL_dK):
        toward_scales = np.sum(inner.input_vjp(dL_dK) * U, axis=(0, 1))  # dL/dlog scale = dL/dU U
        return np.append(inner.theta_vjp(dL_dK), toward_scales if scales.ndim else toward_scales.sum())

    theta_vjp = theta_vjp if is_free(kernel.scales_bounds) else inner.theta_vjp
    return StackLinearization(inner.value, theta_vjp, lambda G: inner.input_vjp(G) * scales)


def is_linear(kernel: Kernel) -> bool:
    """Whether it is a dot product of scaled inputs, without anything to learn."""
    if type(kernel) is not ScaledInputs or type(kernel.kernel) is not DotProduct:
        return False
    inner = kernel.kernel
    return inner.sigma_0 == 0.0 and not is_free(inner.sigma_0_bounds) and not is_free(kernel.scales_bounds)


def _amplified_slopes(kernel: ScaledInputs, X: FloatArray, amplitude: ConstantKernel) -> StackLinearization:
    """c * dot product: K = U U^T, so its derivatives need U alone."""
    root = np.sqrt(amplitude.constant_value)
    U, scales = root * kernel.scale_inputs(X), np.asarray(kernel.scales, dtype=float)

    def theta_vjp(dL_dK):
        return np.array([np.vdot(dL_dK @ U, U)])

    return StackLinearization(
        U @ U.transpose(0, 2, 1),
        theta_vjp if is_free(amplitude.constant_value_bounds) else _nothing,
        lambda G: (G @ U + G.transpose(0, 2, 1) @ U) * (root * scales),
        spare=True,
    )


def _nothing(dL_dK):
    return np.empty(0)


def _stays(dL_dK):
    return 0.0


def covariances_of_tasks(kernel: Kernel, inputs: list[FloatArray]) -> list[FloatArray] | list[None]:
    """K(X_t), white included, of several small tasks; None for each where they are better made in turn.

    Parameters
    ----------
    kernel : Kernel
        Any scikit-learn kernel.
    inputs : list of ndarray of shape (n_t, p)
        Rows of the tasks.

    Returns
    -------
    list
        The matrices, views of one array; or None for each.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> [K.shape for K in covariances_of_tasks(RBF(), [np.zeros((2, 1)), np.zeros((3, 1))])]
    [(2, 2), (3, 3)]
    """
    sizes = [len(rows) for rows in inputs]
    n, T = max(sizes), len(sizes)
    if T > 1 and T * n**2 <= _MOST_ENTRIES:
        X = np.zeros((T, n, inputs[0].shape[1]))
        for of_task, rows in zip(X, inputs, strict=True):
            of_task[: len(rows)] = rows
        K = linearize_stack(kernel, X)
        if K is not None:
            value = np.broadcast_to(K.value, (T, n, n))
            return [value[t, :m, :m] for t, m in enumerate(sizes)]
    return [None] * T


def linearize_tasks(kernel: Kernel, X: FloatArray) -> StackLinearization:
    """As `linearize_stack`, for any kernel: without a rule for stacks, task by task.

    Parameters
    ----------
    kernel : Kernel
        Any scikit-learn kernel.
    X : ndarray of shape (T, n, p)
        Rows of T tasks of equal size.

    Returns
    -------
    StackLinearization
        With ``.value`` and ``.theta_vjp``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import Matern
    >>> linearize_tasks(Matern(nu=1.5), np.arange(6.0).reshape(3, 2, 1)).value.shape
    (3, 2, 2)
    """
    stacked = linearize_stack(kernel, X)
    if stacked is not None:
        return stacked
    parts = [linearize(kernel, rows) for rows in X]

    def theta_vjp(dL_dK):
        return sum((k.theta_vjp(G) for k, G in zip(parts, dL_dK, strict=True)), np.zeros(kernel.n_dims))

    def input_vjp(dL_dK):
        return np.array([k.input_vjp(G) for k, G in zip(parts, dL_dK, strict=True)])

    return StackLinearization(np.array([k.value for k in parts]), theta_vjp, input_vjp)
