"""Rules for kernels made of kernels, and for the two that are a single number.

Sums pass dL/dK on; products pass it on times the other factor. A constant factor, the amplitude in
front of nearly every kernel, scales what its partner returns instead, and white variance touches
the diagonal only. New matrices are few, because at some hundreds of rows fetching memory for one
costs as much as filling it.
"""

import numpy as np
from sklearn.gaussian_process.kernels import (
    CompoundKernel,
    ConstantKernel,
    Exponentiation,
    Product,
    Sum,
    WhiteKernel,
)

from gleangp.kernels.gradients import (
    Linearization,
    is_free,
    kernel_columns,
    linearize,
    linearize_diag,
    rule_for,
)
from gleangp.kernels.scaled_inputs import ScaledInputs
from gleangp.numerics.linalg import mirror_upper, symmetric_products


@rule_for(linearize, ConstantKernel)
def _(kernel, X, Z=None):
    shape = (len(X), len(X if Z is None else Z))
    return _constant(kernel, X, shape)


@rule_for(linearize_diag, ConstantKernel)
def _(kernel, X):
    return _constant(kernel, X, (len(X),))


@rule_for(linearize, WhiteKernel)
def _(kernel, X, Z=None):
    value = np.zeros((len(X), len(X if Z is None else Z)))
    if Z is None:
        _diagonal(value)[:] = kernel.noise_level
    return Linearization(value, *_white_vjps(kernel, X, Z), spare=True)


@rule_for(linearize_diag, WhiteKernel)
def _(kernel, X):
    def theta_vjp(dL_ddiag):
        free = is_free(kernel.noise_level_bounds)
        return np.array([kernel.noise_level * dL_ddiag.sum()] if free else [])

    value = np.full(len(X), float(kernel.noise_level))
    return Linearization(value, theta_vjp, lambda dL_ddiag: np.zeros(X.shape))


@rule_for(linearize, Sum)
def _(kernel, X, Z=None):
    first = linearize(kernel.k1, X, Z)
    if type(kernel.k2) is not WhiteKernel:
        return _sum(first, linearize(kernel.k2, X, Z))
    value = first.own_value()
    if Z is None:
        _diagonal(value)[:] += kernel.k2.noise_level
    white_theta, white_input = _white_vjps(kernel.k2, X, Z)
    vjps = _sum_vjps((first.theta_vjp, first.input_vjp), (white_theta, white_input))

    def both_vjps(dL_dK):
        toward_theta, toward_inputs, _ = first.contract(dL_dK)
        return np.concatenate((toward_theta, white_theta(dL_dK))), toward_inputs, None

    return Linearization(value, *vjps, spare=True, both_vjps=both_vjps)


@rule_for(linearize_diag, Sum)
def _(kernel, X):
    return _sum(linearize_diag(kernel.k1, X), linearize_diag(kernel.k2, X))


@rule_for(linearize, Product)
def _(kernel, X, Z=None):
    if type(kernel.k1) is ConstantKernel:
        return _amplified(kernel.k1, linearize(kernel.k2, X, Z), constant_first=True)
    if type(kernel.k2) is ConstantKernel:
        return _amplified(kernel.k2, linearize(kernel.k1, X, Z), constant_first=False)
    return _product(linearize(kernel.k1, X, Z), linearize(kernel.k2, X, Z))


@rule_for(linearize_diag, Product)
def _(kernel, X):
    return _product(linearize_diag(kernel.k1, X), linearize_diag(kernel.k2, X))


@rule_for(linearize, Exponentiation)
def _(kernel, X, Z=None):
    return _power(linearize(kernel.kernel, X, Z), kernel.exponent)


@rule_for(linearize_diag, Exponentiation)
def _(kernel, X):
    return _power(linearize_diag(kernel.kernel, X), kernel.exponent)


@rule_for(linearize, CompoundKernel)
def _(kernel, X, Z=None):
    return _compound([linearize(part, X, Z) for part in kernel.kernels])


@rule_for(linearize_diag, CompoundKernel)
def _(kernel, X):
    return _compound([linearize_diag(part, X) for part in kernel.kernels])


@rule_for(linearize, ScaledInputs)
def _(kernel, X, Z=None):
    U = kernel.scale_inputs(X)
    V = None if Z is None else kernel.scale_inputs(Z)
    inner = linearize(kernel.kernel, U, V)

    def toward_inputs(dL_dK):
        """sum over rows of u dL/du, per feature: the derivative towards log scales."""
        total = np.einsum("ik,ik->k", inner.input_vjp(dL_dK), U)
        if V is not None:  # the second argument is scaled too
            second = linearize(kernel.kernel, V, U).input_vjp(dL_dK.T)
            total += np.einsum("ik,ik->k", second, V)
        return total

    return _scaled(kernel, inner, toward_inputs)


@rule_for(linearize_diag, ScaledInputs)
def _(kernel, X):
    U = kernel.scale_inputs(X)
    inner = linearize_diag(kernel.kernel, U)
    return _scaled(kernel, inner, lambda g: np.einsum("ik,ik->k", inner.input_vjp(g), U))


@rule_for(kernel_columns, ConstantKernel)
def _(kernel, X, Z):
    return np.full((len(X), len(Z)), float(kernel.constant_value))


@rule_for(kernel_columns, WhiteKernel)
def _(kernel, X, Z):
    return np.zeros((len(X), len(Z)))


@rule_for(kernel_columns, Sum)
def _(kernel, X, Z):
    for part, other in ((kernel.k1, kernel.k2), (kernel.k2, kernel.k1)):
        if type(part) is WhiteKernel:
            return kernel_columns(other, X, Z)
    K = kernel_columns(kernel.k1, X, Z)
    if type(kernel.k2) is ConstantKernel:
        K += kernel.k2.constant_value
    else:
        K += kernel_columns(kernel.k2, X, Z)
    return K


@rule_for(kernel_columns, Product)
def _(kernel, X, Z):
    for part, other in ((kernel.k1, kernel.k2), (kernel.k2, kernel.k1)):
        if type(part) is ConstantKernel:
            K = kernel_columns(other, X, Z)
            K *= part.constant_value
            return K
    K = kernel_columns(kernel.k1, X, Z)
    K *= kernel_columns(kernel.k2, X, Z)
    return K


@rule_for(kernel_columns, Exponentiation)
def _(kernel, X, Z):
    return kernel_columns(kernel.kernel, X, Z) ** kernel.exponent


@rule_for(kernel_columns, CompoundKernel)
def _(kernel, X, Z):
    return np.dstack([kernel_columns(part, X, Z) for part in kernel.kernels])


@rule_for(kernel_columns, ScaledInputs)
def _(kernel, X, Z):
    U = kernel.scale_inputs(X)
    return kernel_columns(kernel.kernel, U, U if Z is X else kernel.scale_inputs(Z))


def _constant(kernel, X, shape):
    c = float(kernel.constant_value)

    def theta_vjp(dL_dK):
        return np.array([c * dL_dK.sum()] if is_free(kernel.constant_value_bounds) else [])

    def both_vjps(dL_dK):
        total = c * symmetric_products(dL_dK, np.ones((1, len(X)))).sum()
        free = is_free(kernel.constant_value_bounds)
        return np.array([total] if free else []), np.zeros(X.shape), total

    # one number seen through zero strides: values are read-only, so nobody can tell
    value = np.ndarray(shape, buffer=np.array(c), strides=(0,) * len(shape))
    square = len(shape) == 2 and shape[0] == shape[1]
    return Linearization(
        value, theta_vjp, lambda dL_dK: np.zeros(X.shape), both_vjps=both_vjps if square else None
    )


def _white_vjps(kernel, X, Z):
    def theta_vjp(dL_dK):
        if not is_free(kernel.noise_level_bounds):
            return np.empty(0)
        return np.array([kernel.noise_level * dL_dK.trace() if Z is None else 0.0])

    return theta_vjp, lambda dL_dK: np.zeros(X.shape)


def _sum(first, second):
    if second.spare:
        value = second.own_value()
        value += first.value
    else:
        value = first.own_value()
        value += second.value
    vjps = _sum_vjps((first.theta_vjp, first.input_vjp), (second.theta_vjp, second.input_vjp))

    def both_vjps(dL_dK):
        theta_1, input_1, _ = first.contract(dL_dK)
        theta_2, input_2, _ = second.contract(dL_dK)
        return np.concatenate((theta_1, theta_2)), input_1 + input_2, None

    return Linearization(value, *vjps, spare=True, both_vjps=both_vjps)


def _sum_vjps(first, second):
    def theta_vjp(dL_dK):
        return np.concatenate((first[0](dL_dK), second[0](dL_dK)))

    def input_vjp(dL_dK):
        return first[1](dL_dK) + second[1](dL_dK)

    return theta_vjp, input_vjp


def _product(first, second):
    def theta_vjp(dL_dK):
        toward_first = first.theta_vjp(dL_dK * second.value)
        return np.concatenate((toward_first, second.theta_vjp(dL_dK * first.value)))

    def input_vjp(dL_dK):
        gradient = first.input_vjp(dL_dK * second.value)
        gradient += second.input_vjp(dL_dK * first.value)
        return gradient

    return Linearization(first.value * second.value, theta_vjp, input_vjp, spare=True)


def _amplified(constant, inner, constant_first):
    c = float(constant.constant_value)

    free = is_free(constant.constant_value_bounds)

    def with_own(own, toward_inner):
        return np.concatenate(([own], toward_inner) if constant_first else (toward_inner, [own]))

    def theta_vjp(dL_dK):
        toward_inner = c * inner.theta_vjp(dL_dK)
        return with_own(c * np.vdot(dL_dK, inner.value), toward_inner) if free else toward_inner

    def input_vjp(dL_dK):
        return c * inner.input_vjp(dL_dK)

    def both_vjps(dL_dK):
        toward_theta, toward_inputs, total = inner.contract(dL_dK)
        if total is None and free:
            total = np.vdot(mirror_upper(dL_dK.copy()), inner.value)
        own = None if total is None else c * total
        toward_inner = c * toward_theta
        return with_own(own, toward_inner) if free else toward_inner, c * toward_inputs, own

    value = inner.value * c
    return Linearization(value, theta_vjp, input_vjp, spare=True, both_vjps=both_vjps)


def _power(inner, exponent):
    def pull(dL_dK):
        return dL_dK * (exponent * inner.value ** (exponent - 1))

    return Linearization(
        inner.value**exponent,
        lambda dL_dK: inner.theta_vjp(pull(dL_dK)),
        lambda dL_dK: inner.input_vjp(pull(dL_dK)),
        spare=True,
    )


def _compound(parts):
    """Several matrices side by side; dL/dK has the same trailing axis as the value."""

    def theta_vjp(dL_dK):
        return np.concatenate([p.theta_vjp(dL_dK[..., i]) for i, p in enumerate(parts)])

    def input_vjp(dL_dK):
        return sum(p.input_vjp(dL_dK[..., i]) for i, p in enumerate(parts))

    return Linearization(np.stack([p.value for p in parts], axis=-1), theta_vjp, input_vjp)


def _scaled(kernel, inner, toward_inputs):
    def theta_vjp(dL_dK):
        gradient = inner.theta_vjp(dL_dK)
        if not is_free(kernel.scales_bounds):
            return gradient
        toward_scales = toward_inputs(dL_dK)
        if not np.ndim(kernel.scales):
            toward_scales = [toward_scales.sum()]
        return np.concatenate((gradient, toward_scales))

    def input_vjp(dL_dK):
        return inner.input_vjp(dL_dK) * kernel.scales

    return Linearization(inner.value, theta_vjp, input_vjp)


def _diagonal(K):
    return K.reshape(-1)[:: len(K) + 1]
