"""One kernel with many parameter vectors, on many small sets of rows at once.

A hierarchy of tasks gives every task its own theta (for one theta of all tasks see `evaluate`).
Evaluated one by one, five rows cost as much as a hundred: all of it is overhead. `prepare_stack` works
out what does not depend on theta (distances, inner products) for a stack of B sets of n rows, and
gives a function of the B thetas.

Kernels made of constants, `RBF`, `DotProduct`, fixed `ScaledInputs`, sums and products are evaluated
as a stack; any other is evaluated set by set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Kernel, Product, Sum

from gleangp._typing import FloatArray
from gleangp.kernels.evaluate import evaluate, is_free
from gleangp.kernels.scaled_inputs import ScaledInputs
from gleangp.kernels.stationary import by_differences
from gleangp.kernels.white import has_white


@dataclass(frozen=True, slots=True, eq=False)
class KernelStack:
    """Kernel matrices of B sets of rows, each at its own theta."""

    value: FloatArray  # (B, n, n), without white variance
    white: FloatArray | None  # (B, n), or None for a kernel without white variance
    theta_vjp: Callable[[FloatArray, FloatArray], FloatArray]
    """(dL/dvalue (B, n, n), dL/dwhite (B, n)) -> dL/dtheta (B, q)."""


StackFunction = Callable[[FloatArray], KernelStack]


def prepare_stack(kernel: Kernel, X: FloatArray) -> StackFunction:
    """A function of theta (B, q) that gives the `KernelStack` on X (B, n, p).

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> X = np.array([[[0.0], [1.0]], [[0.0], [2.0]]])
    >>> stack = prepare_stack(RBF(), X)(np.log([[1.0], [2.0]]))
    >>> stack.value[:, 0, 1].round(4)
    array([0.6065, 0.6065])
    """
    part = _prepare(kernel, X)
    if part is None:
        return _one_by_one(kernel, X)

    def at(theta):
        value, vjp = part(theta)
        value = np.broadcast_to(value, (len(X), X.shape[1], X.shape[1]))
        return KernelStack(value, None, lambda dL_dK, dL_dwhite: vjp(dL_dK))

    return at


def is_stackable(kernel: Kernel) -> bool:
    """Whether stacking pays: every part of the kernel has a rule here."""
    return _prepare(kernel, np.zeros((1, 1, 1))) is not None


def _prepare(kernel, X):
    rule = _RULES.get(type(kernel))  # by exact class: a subclass may compute something else
    return None if rule is None else rule(kernel, X)


def _constant(kernel, X):
    if not is_free(kernel.constant_value_bounds):
        return lambda theta: (np.full((len(X), 1, 1), float(kernel.constant_value)), _nothing)

    def at(theta):
        value = np.exp(theta[:, :1, None])
        return value, lambda dL_dK: value[:, :, 0] * dL_dK.sum(axis=(1, 2))[:, None]

    return at


def _rbf(kernel, X):
    if np.size(kernel.length_scale) > 1 or not is_free(kernel.length_scale_bounds):
        X = X / np.asarray(kernel.length_scale, dtype=float)
        if is_free(kernel.length_scale_bounds):
            return None
        fixed = np.exp(-0.5 * by_differences(X, X))
        return lambda theta: (fixed, _nothing)
    half_square = -0.5 * by_differences(X, X)

    def at(theta):
        exponent = half_square * np.exp(-2.0 * theta[:, :1, None])
        K = np.exp(exponent)
        return K, lambda dL_dK: -2.0 * np.einsum("bij,bij,bij->b", dL_dK, K, exponent)[:, None]

    return at


def _dot_product(kernel, X):
    inner = X @ X.swapaxes(1, 2)
    if not is_free(kernel.sigma_0_bounds):
        fixed = inner + kernel.sigma_0**2
        return lambda theta: (fixed, _nothing)

    def at(theta):
        offset = np.exp(2.0 * theta[:, :1, None])  # theta is log sigma_0
        return inner + offset, lambda dL_dK: 2.0 * offset[:, :, 0] * dL_dK.sum(axis=(1, 2))[:, None]

    return at


def _scaled_inputs(kernel, X):
    if is_free(kernel.scales_bounds):
        return None
    center, scales = (np.asarray(v, dtype=float) for v in (kernel.center, kernel.scales))
    return _prepare(kernel.kernel, (X - center) * scales)


def _sum(kernel, X):
    return _both(kernel, X, lambda first, second: first + second, lambda dL_dK, other: dL_dK)


def _product(kernel, X):
    return _both(kernel, X, lambda first, second: first * second, lambda dL_dK, other: dL_dK * other)


def _both(kernel, X, combine, pull):
    first, second = _prepare(kernel.k1, X), _prepare(kernel.k2, X)
    if first is None or second is None:
        return None
    split = kernel.k1.n_dims

    def at(theta):
        K1, vjp1 = first(theta[:, :split])
        K2, vjp2 = second(theta[:, split:])

        def vjp(dL_dK):
            return np.hstack([vjp1(pull(dL_dK, K2)), vjp2(pull(dL_dK, K1))])

        return combine(K1, K2), vjp

    return at


def _nothing(dL_dK):
    return np.zeros((len(dL_dK), 0))


_RULES = {
    ConstantKernel: _constant,
    DotProduct: _dot_product,
    Product: _product,
    RBF: _rbf,
    ScaledInputs: _scaled_inputs,
    Sum: _sum,
}


def _one_by_one(kernel, X) -> StackFunction:
    kernels = [clone(kernel) for _ in X]
    white = has_white(kernel)

    def at(theta):
        signal, whole = [], []
        for k, rows, t in zip(kernels, X, theta, strict=True):
            k.theta = t
            if white:  # the matrix of the function, and with the variance that belongs to each row
                signal.append(evaluate(k, rows, rows))
                whole.append(evaluate(k, rows))
            else:
                signal.append(evaluate(k, rows))
        value = np.stack([part.value for part in signal])
        if not white:
            return KernelStack(value, None, lambda dL_dK, dL_dwhite: _each(signal, dL_dK))
        diagonal = np.stack([np.diagonal(part.value) for part in whole])
        own = diagonal - np.diagonal(value, axis1=1, axis2=2)

        def theta_vjp(dL_dK, dL_dwhite):
            onto_diagonal = dL_dwhite[:, :, None] * np.eye(X.shape[1])
            return _each(signal, dL_dK - onto_diagonal) + _each(whole, onto_diagonal)

        return KernelStack(value, own, theta_vjp)

    return at


def _each(parts, dL_dK):
    return np.stack([part.vjp(dL, inputs=False)[0] for part, dL in zip(parts, dL_dK, strict=True)])
