"""Rules of scikit-learn's kernels: those made of kernels, and those of the distance.

Sums pass dL/dK on; products pass it on times the other factor. A number stays a number: an amplitude, the
factor in front of nearly every kernel, costs no matrix of its own.

A kernel of the distance is a function phi of the squared distance d2 of scaled inputs a = A / length. With
M = G * phi',

    dL/da_i = 2 sum_j M_ij (a_i - b_j) = 2 ((M 1) a - M b)_i,
    dL/dlog length_k = -2 sum_ij M_ij (a_ik - b_jk)^2 = -sum_i a_ik dL/da_ik - sum_j b_jk dL/db_jk:

one matrix product gives the derivatives in the inputs and in all length scales.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import gamma, kv
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Exponentiation,
    ExpSineSquared,
    Matern,
    Product,
    RationalQuadratic,
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
    onto_parameter,
    per_feature,
    rule,
    rule_for,
    side_by_side,
    turned,
)

_CACHED = 2**15  # numbers: 256 kB stay in the cache of one core from one operation to the next
# Squared norms up to which |a|^2 + |b|^2 - 2 a'b is used: its rounding error is then below 1e-9, in an
# exponent. Beyond (far-apart clusters, tiny length scales) differences are taken feature by feature.
_LARGEST_SQUARE = 2.0**20


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


@rule_for(RBF)
def _(kernel, A, B):
    return _stationary(kernel, A, B, _gaussian)


@rule_for(Matern)
def _(kernel, A, B):
    shape = {0.5: _exponential, 1.5: _matern_32, 2.5: _matern_52, np.inf: _gaussian}.get(kernel.nu)
    if shape is None:
        return _stationary(kernel, A, B, lambda d2: _matern(kernel.nu, d2), rough=True)
    return _stationary(kernel, A, B, shape, rough=kernel.nu == 0.5)


@rule_for(RationalQuadratic)
def _(kernel, A, B):
    alpha = kernel.alpha
    base: Any = None

    def shape(d2):
        nonlocal base
        base = 1.0 + d2 / (2.0 * alpha)
        K = base**-alpha
        return K, lambda: -0.5 * K / base

    value, inner_vjp = _stationary(kernel, A, B, shape)

    def vjp(G, inputs=True):
        theta, dA, dB = inner_vjp(G, inputs=inputs)
        if is_free(kernel.alpha_bounds):  # alphabetical: alpha first
            slope = value * ((base - 1.0) / base - np.log(base))
            theta = side_by_side(of_number(G * slope, alpha), theta)
        return theta, dA, dB

    return Evaluation(value, vjp)


@rule_for(ExpSineSquared)
def _(kernel, A, B):
    """exp(-2 sin^2(angle) / length^2), angle = pi sqrt(d2) / periodicity."""
    inverse_square = kernel.length_scale**-2.0 * np.ones_like(kernel.periodicity)
    d2 = by_differences(A, A if B is None else B)
    distance = np.sqrt(d2)
    angle = (np.pi / kernel.periodicity) * distance
    sine, cosine = np.sin(angle), np.cos(angle)
    value = np.exp((-2.0 * inverse_square) * sine**2)

    def vjp(G, inputs=True):
        W = 4.0 * G * value * sine
        theta = side_by_side(
            of_number(W * sine, inverse_square) if is_free(kernel.length_scale_bounds) else np.empty(0),
            of_number(W * cosine * angle, inverse_square)
            if is_free(kernel.periodicity_bounds)
            else np.empty(0),
        )
        if not inputs:
            return theta, A, None
        # phi' = -(sin cos angle / d) 2 K / (length^2 d), and 0 where rows are equal
        M = (-0.5 * inverse_square * np.pi / kernel.periodicity) * W * cosine * _inverse(distance)
        _, dA, dB = _contract(M, A, B, inverse_square)
        return theta, dA, dB

    return Evaluation(value, vjp)


def _stationary(kernel, A, B, shape, rough=False) -> Evaluation:
    """`shape` gives phi(d2), and a function that gives phi'(d2); `rough` if phi has a kink at zero.

    The root of a rounded square has half the digits, which a kink shows and a smooth phi does not.
    """
    length = np.asarray(kernel.length_scale, dtype=np.float64)
    if length.ndim == 1 and length.size not in (1, A.shape[-1]):
        raise ValueError(
            f"{type(kernel).__name__} has length scales of shape {length.shape}, but X has {A.shape[-1]} "
            "features. Give one number, or one per feature."
        )
    value, slope = shape(_square_distances(A, B, length, rough))
    free = is_free(kernel.length_scale_bounds)

    def vjp(G, inputs=True):
        a, b = A / length, None if B is None else B / length
        by_feature, da, db = _contract(G * slope(), a, b, length)
        theta = -onto_parameter(by_feature, length) if free else np.empty(0)
        return theta, da / length, None if db is None else db / length

    return Evaluation(value, vjp)


def _square_distances(A, B, length, rough):
    """d2_ij = |a_i|^2 + |b_j|^2 - 2 a_i b_j of scaled rows a and b, by a matrix product."""
    if length.ndim == 3:  # of every matrix its own
        A, B, length = A / length, None if B is None else B / length, np.ones(())
    C = A if B is None else B
    weights = np.broadcast_to(length**-2.0, A.shape[-1:])
    square_a, square_c = (np.einsum("...ik,...ik,k->...i", V, V, weights)[..., None] for V in (A, C))
    if rough or max(square_a.max(initial=0.0), square_c.max(initial=0.0)) > _LARGEST_SQUARE:
        return by_differences(A / length, C / length)
    left = (-2.0 * weights) * A
    if A.shape[-2] <= A.shape[-1]:  # few rows: a pass over d2 costs less than one over C
        d2 = left @ turned(C)
        d2 += square_a
        d2 += turned(square_c)
    else:  # one product of [-2 a, |a|^2, 1] and [c, 1, |c|^2]
        left = np.concatenate([left, square_a, np.ones_like(square_a)], axis=-1)
        d2 = left @ turned(np.concatenate([C, np.ones_like(square_c), square_c], axis=-1))
    np.maximum(d2, 0.0, out=d2)
    if B is None:
        np.einsum("...ii->...i", d2)[...] = 0.0
    return d2


def by_differences(a, c):
    """The same with all digits, one feature at a time: rows that repeat are at zero."""
    d2 = np.zeros((*np.broadcast_shapes(a.shape[:-2], c.shape[:-2]), a.shape[-2], c.shape[-2]))
    for k in range(a.shape[-1]):
        d2 += (a[..., :, None, k] - c[..., None, :, k]) ** 2
    return d2


def _contract(M, a, b, parameter):
    """sum_ij 2 M_ij (a_ik - b_jk)^2 for each feature k, dL/da and dL/db from M = dL/dd2 (..., n, m).

    The sums are over the stack, or of each matrix where it has a parameter of its own.
    """
    square = b is None
    if square:
        M, b = M + turned(M), a  # both arguments move: twice the sum over pairs
    if max(np.max(np.abs(v), initial=0.0) for v in (a, b)) ** 2 > _LARGEST_SQUARE:
        by_feature, da, db = _contract_differences(M, a, b, parameter)
    else:
        da = 2.0 * (M.sum(-1)[..., None] * a - M @ b)
        db = da if square else 2.0 * (M.sum(-2)[..., None] * b - turned(M) @ a)
        by_feature = sum(per_feature(v * dv, parameter) for v, dv in ((a, da), (b, db)))
    if square:
        return 0.5 * by_feature, da, None
    return by_feature, onto(da, a), onto(db, b)


def _contract_differences(M, a, b, parameter):
    """The same with all digits, one feature at a time."""
    by_feature, da, db = [], [], []
    for k in range(a.shape[-1]):
        difference = a[..., :, None, k] - b[..., None, :, k]
        W = 2.0 * M * difference
        da.append(W.sum(-1))
        db.append(-W.sum(-2))
        by_feature.append(per_feature((W * difference).sum(-1)[..., None], parameter))
    return np.concatenate(by_feature, axis=-1), np.stack(da, axis=-1), np.stack(db, axis=-1)


def _gaussian(d2):
    for (K,) in _parts(d2):
        K *= -0.5
        np.exp(K, out=K)
    return d2, lambda: -0.5 * d2


def _exponential(d2):
    r, K = d2, np.empty_like(d2)
    for r_part, K_part in _parts(r, K):
        np.sqrt(r_part, out=r_part)
        np.negative(r_part, out=K_part)
        np.exp(K_part, out=K_part)
    return K, lambda: -0.5 * K * _inverse(r)


def _matern_32(d2):
    decay, K = np.empty_like(d2), np.empty_like(d2)
    for r, e, K_part in _parts(d2, decay, K):
        _root_and_decay(r, e, 3.0)
        np.add(r, 1.0, out=K_part)
        K_part *= e
    return K, lambda: -1.5 * decay


def _matern_52(d2):
    decay, K = np.empty_like(d2), np.empty_like(d2)
    for r, e, K_part in _parts(d2, decay, K):  # (1 + r + r^2 / 3) exp(-r)
        _root_and_decay(r, e, 5.0)
        np.divide(r, 3.0, out=K_part)
        K_part += 1.0
        K_part *= r
        K_part += 1.0
        K_part *= e

    def slope():
        found = 1.0 + d2  # r by now
        found *= decay
        found *= -5.0 / 6.0
        return found

    return K, slope


def _matern(nu, d2):
    """Any other smoothness: 2^(1 - nu) / gamma(nu) t^nu K_nu(t), t^2 = 2 nu d2.

    d(t^nu K_nu(t)) / dt = -t^nu K_{nu - 1}(t) (Abramowitz & Stegun 1964, 9.6.28). At zero the slope meets a
    difference of zero, so its value is of no account.
    """
    t = np.sqrt(2.0 * nu * d2)
    apart = t > 0.0
    factor = 2.0 ** (1.0 - nu) / gamma(nu)
    K = np.ones_like(t)
    K[apart] = factor * t[apart] ** nu * kv(nu, t[apart])

    def slope():
        found = np.zeros_like(t)
        found[apart] = -nu * factor * t[apart] ** (nu - 1.0) * kv(nu - 1.0, t[apart])
        return found

    return K, slope


def _root_and_decay(r, decay, factor):
    """r = sqrt(factor d2) in place of d2, and exp(-r)."""
    r *= factor
    np.sqrt(r, out=r)
    np.negative(r, out=decay)
    np.exp(decay, out=decay)


def _parts(*arrays):
    """Parts of arrays of one shape that stay in the cache from one operation to the next."""
    flat = [a.reshape(-1) for a in arrays]
    for start in range(0, flat[0].size, _CACHED):
        yield tuple(a[start : start + _CACHED] for a in flat)


def _inverse(distance):
    return np.divide(1.0, distance, out=np.zeros_like(distance), where=distance > 0.0)
