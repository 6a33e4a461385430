"""Rules for kernels made of kernels, for the two that are a single number, and for the inner product.

Sums pass dL/dK on; products pass it on times the other factor. A number stays a number: an amplitude, the
factor in front of nearly every kernel, costs no matrix of its own.
"""

from __future__ import annotations

import numpy as np
from sklearn.gaussian_process.kernels import (
    ConstantKernel,
    DotProduct,
    Exponentiation,
    Product,
    Sum,
    WhiteKernel,
)

from gleangp._typing import FloatArray
from gleangp.kernels.evaluate import (
    Evaluation,
    Gradients,
    is_free,
    of_number,
    onto,
    rule,
    rule_for,
    side_by_side,
    turned,
)


@rule_for(Sum)
def _(kernel, A, B):
    left, right = rule(kernel.k1, A, B), rule(kernel.k2, A, B)

    def vjp(G, inputs=True):
        return _joined(left.vjp(G, inputs=inputs), right.vjp(G, inputs=inputs), inputs)

    for part, k in ((left, kernel.k1), (right, kernel.k2)):
        # No one else has the array of a sum or product, and a new one costs as much as the addition.
        whole = np.broadcast_shapes(np.shape(left.value), np.shape(right.value))
        if type(k) in (Sum, Product) and np.shape(part.value) == whole != ():
            return Evaluation(np.add(left.value, right.value, out=part.value), vjp)
    return Evaluation(left.value + right.value, vjp)


@rule_for(Product)
def _(kernel, A, B):
    left, right = rule(kernel.k1, A, B), rule(kernel.k2, A, B)

    def vjp(G, inputs=True):
        first, second = _scaled_vjp(left, right.value, G, inputs), _scaled_vjp(right, left.value, G, inputs)
        return _joined(first, second, inputs)

    return Evaluation(left.value * right.value, vjp)


@rule_for(Exponentiation)
def _(kernel, A, B):
    inner, exponent = rule(kernel.kernel, A, B), kernel.exponent

    def vjp(G, inputs=True):
        return inner.vjp(G * (exponent * inner.value ** (exponent - 1)), inputs=inputs)

    return Evaluation(inner.value**exponent, vjp)


@rule_for(ConstantKernel)
def _(kernel, A, B):
    free = is_free(kernel.constant_value_bounds)

    def vjp(G, inputs=True):
        theta = of_number(G, kernel.constant_value) if free else np.empty(0)
        return theta, *_no_input_gradient(B)

    return Evaluation(np.asarray(kernel.constant_value, dtype=np.float64), vjp)


@rule_for(WhiteKernel)
def _(kernel, A, B):
    n, free = A.shape[-2], is_free(kernel.noise_level_bounds)

    def vjp(G, inputs=True):
        if not free:
            return np.empty(0), *_no_input_gradient(B)
        diagonals = np.zeros((len(A), 1))
        if B is None:
            diagonals = np.einsum("...ii->...i", np.broadcast_to(G, (*A.shape[:-1], n)))
        return of_number(diagonals, kernel.noise_level), *_no_input_gradient(B)

    return Evaluation(kernel.noise_level * np.eye(n) if B is None else np.asarray(0.0), vjp)


@rule_for(DotProduct)
def _(kernel, A, B):
    C, square = A if B is None else B, kernel.sigma_0**2
    free = is_free(kernel.sigma_0_bounds)

    def vjp(G, inputs=True):
        theta = of_number(G, 2.0 * square) if free else np.empty(0)  # of log sigma_0, hence the 2
        if not inputs:
            return theta, A, None
        if B is None:
            return theta, (G + turned(G)) @ A, None
        return theta, onto(G @ B, A), onto(turned(G) @ A, B)

    value = A @ turned(C)
    if np.any(square):
        value = value + square
    return Evaluation(value, vjp)


def _scaled_vjp(K: Evaluation, factor: FloatArray, G: FloatArray, inputs: bool) -> Gradients:
    """Of K times a factor; where one of them is a number, no array is made for it."""
    if np.ndim(K.value) == 0 and np.shape(G) == np.shape(factor):
        return K.vjp(np.asarray(np.vdot(G, factor)), inputs=inputs)
    if np.ndim(factor) == 0:
        theta, dA, dB = K.vjp(G, inputs=inputs)
        return factor * theta, factor * dA, None if dB is None else factor * dB
    return K.vjp(G * factor, inputs=inputs)


def _joined(left: Gradients, right: Gradients, inputs: bool) -> Gradients:
    theta = side_by_side(left[0], right[0])
    if not inputs:
        return theta, left[1], None
    dB = None if left[2] is None or right[2] is None else left[2] + right[2]
    return theta, left[1] + right[1], dB


def _no_input_gradient(B):
    return np.zeros(1), None if B is None else np.zeros(1)
