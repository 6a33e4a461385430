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

from functools import partial

import numpy as np
from scipy.special import gamma, kv
from sklearn.gaussian_process import kernels

from gleangp._typing import FloatArray
from gleangp.kernels.evaluate import (
    ZERO,
    Evaluation,
    Gradients,
    is_free,
    of_features,
    of_number,
    rule,
    rule_for,
    side_by_side,
)

# Squared norms up to which |a|^2 + |b|^2 - 2 a'b is used: its rounding error is then below 1e-9, in an
# exponent. Beyond (far-apart clusters, tiny length scales) differences are taken feature by feature.
_LARGEST_SQUARE = 2.0**20


@rule_for(kernels.Sum)
def _(kernel, A, B):
    left, right = rule(kernel.k1, A, B), rule(kernel.k2, A, B)

    def vjp(G, inputs=True):
        return _joined(left.vjp(G, inputs=inputs), right.vjp(G, inputs=inputs))

    whole = np.broadcast_shapes(np.shape(left.value), np.shape(right.value))
    for part, k in ((left, kernel.k1), (right, kernel.k2)):
        # No one else has the array of a sum or product, and a new one costs as much as the addition.
        if type(k) in (kernels.Sum, kernels.Product) and np.shape(part.value) == whole != ():
            return Evaluation(np.add(left.value, right.value, out=part.value), vjp)
    return Evaluation(left.value + right.value, vjp)


@rule_for(kernels.Product)
def _(kernel, A, B):
    left, right = rule(kernel.k1, A, B), rule(kernel.k2, A, B)

    def vjp(G, inputs=True):
        return _joined(_scaled_vjp(left, right.value, G, inputs), _scaled_vjp(right, left.value, G, inputs))

    return Evaluation(left.value * right.value, vjp)


def _scaled_vjp(K: Evaluation, factor: FloatArray, G: FloatArray, inputs: bool) -> Gradients:
    """Of K times a factor; where one of them is a number, no array is made for it."""
    if np.ndim(K.value) == 0 and np.shape(G) == np.shape(factor):
        return K.vjp(np.asarray(np.vdot(G, factor)), inputs=inputs)
    if np.ndim(factor) == 0:
        theta, dA, dB = K.vjp(G, inputs=inputs)
        return factor * theta, factor * dA, factor * dB
    return K.vjp(G * factor, inputs=inputs)


def _joined(left: Gradients, right: Gradients) -> Gradients:
    return side_by_side(left[0], right[0]), left[1] + right[1], left[2] + right[2]


@rule_for(kernels.Exponentiation)
def _(kernel, A, B):
    inner, exponent = rule(kernel.kernel, A, B), kernel.exponent

    def vjp(G, inputs=True):
        return inner.vjp(G * (exponent * inner.value ** (exponent - 1)), inputs=inputs)

    return Evaluation(inner.value**exponent, vjp)


@rule_for(kernels.ConstantKernel)
def _(kernel, A, B):
    def vjp(G, inputs=True):
        return of_number(G, kernel.constant_value, kernel.constant_value_bounds), ZERO, ZERO

    return Evaluation(np.asarray(kernel.constant_value, dtype=np.float64), vjp)


@rule_for(kernels.WhiteKernel)
def _(kernel, A, B):
    n = A.shape[-2]

    def vjp(G, inputs=True):
        diagonals = np.zeros((len(A), 1))
        if B is None:
            diagonals = np.einsum("...ii->...i", np.broadcast_to(G, (*A.shape[:-1], n)))
        return of_number(diagonals, kernel.noise_level, kernel.noise_level_bounds), ZERO, ZERO

    return Evaluation(kernel.noise_level * np.eye(n) if B is None else np.asarray(0.0), vjp)


@rule_for(kernels.DotProduct)
def _(kernel, A, B):
    square = kernel.sigma_0**2

    def vjp(G, inputs=True):
        # of log sigma_0, hence the 2
        theta = of_number(G, 2.0 * square, kernel.sigma_0_bounds)
        if B is None:
            return theta, (G + G.swapaxes(-1, -2)) @ A, ZERO
        return theta, G @ B, G.swapaxes(-1, -2) @ A

    value = A @ np.swapaxes(A if B is None else B, -1, -2)
    return Evaluation(value + square if np.any(square) else value, vjp)


@rule_for(kernels.RBF)
@rule_for(kernels.Matern)
def _(kernel, A, B):
    nu = getattr(kernel, "nu", np.inf)
    if nu == np.inf:
        return _stationary(kernel, A, B, _gaussian)
    shape = _half_integer if nu in (0.5, 1.5, 2.5) else _matern
    return _stationary(kernel, A, B, partial(shape, nu), rough=nu not in (1.5, 2.5))


@rule_for(kernels.RationalQuadratic)
def _(kernel, A, B):
    """(1 + d2 / (2 alpha))^-alpha."""
    alpha, base = kernel.alpha, np.empty(0)

    def shape(d2):
        nonlocal base
        base = 1.0 + d2 / (2.0 * alpha)
        K = base**-alpha
        return K, lambda: -0.5 * K / base

    value, inner_vjp = _stationary(kernel, A, B, shape)

    def vjp(G, inputs=True):
        theta, dA, dB = inner_vjp(G, inputs=inputs)
        slope = value * ((base - 1.0) / base - np.log(base))
        return side_by_side(of_number(G * slope, alpha, kernel.alpha_bounds), theta), dA, dB  # alphabetical

    return Evaluation(value, vjp)


@rule_for(kernels.ExpSineSquared)
def _(kernel, A, B):
    """exp(-2 sin^2(angle) / length^2), angle = pi sqrt(d2) / periodicity."""
    inverse_square = kernel.length_scale**-2.0 * np.ones_like(kernel.periodicity)
    distance = np.sqrt(_by_differences(A, A if B is None else B))
    angle = (np.pi / kernel.periodicity) * distance
    sine, cosine = np.sin(angle), np.cos(angle)
    value = np.exp((-2.0 * inverse_square) * sine**2)

    def vjp(G, inputs=True):
        W = 4.0 * G * value * sine
        theta = side_by_side(
            of_number(W * sine, inverse_square, kernel.length_scale_bounds),
            of_number(W * cosine * angle, inverse_square, kernel.periodicity_bounds),
        )
        # phi' = -(sin cos angle / d) 2 K / (length^2 d), and 0 where rows are equal
        M = (-0.5 * inverse_square * np.pi / kernel.periodicity) * W * cosine * _inverse(distance)
        return theta, *_contract(M, A, B, inverse_square)[1:]

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

    def vjp(G, inputs=True):
        a, b = A / length, None if B is None else B / length
        theta, da, db = _contract(G * slope(), a, b, length)
        theta = -theta if is_free(kernel.length_scale_bounds) else np.empty(0)
        return theta, da / length, db / length

    return Evaluation(value, vjp)


def _square_distances(A, B, length, rough):
    """d2_ij = |a_i|^2 + |b_j|^2 - 2 a_i b_j of scaled rows a and b, by a matrix product."""
    if length.ndim == 3:  # of every matrix its own
        A, B, length = A / length, None if B is None else B / length, np.ones(())
    sets = (A,) if B is None else (A, B)
    C, weights = sets[-1], np.broadcast_to(length**-2.0, A.shape[-1:])
    squares = [np.einsum("...ik,...ik,k->...i", V, V, weights)[..., None] for V in sets]
    if rough or max(part.max(initial=0.0) for part in squares) > _LARGEST_SQUARE:
        return _by_differences(A / length, C / length)
    left = (-2.0 * weights) * A
    if A.shape[-2] <= A.shape[-1]:  # few rows: a pass over d2 costs less than one over C
        d2 = left @ C.swapaxes(-1, -2)
        d2 += squares[0]
        d2 += squares[-1].swapaxes(-1, -2)
    else:  # one product of [-2 a, |a|^2, 1] and [c, 1, |c|^2]
        left = np.concatenate([left, squares[0], np.ones_like(squares[0])], axis=-1)
        d2 = left @ np.swapaxes(np.concatenate([C, np.ones_like(squares[-1]), squares[-1]], axis=-1), -1, -2)
    np.maximum(d2, 0.0, out=d2)
    if B is None:
        np.einsum("...ii->...i", d2)[...] = 0.0
    return d2


def _by_differences(a, c):
    """The same with all digits, one feature at a time: rows that repeat are at zero."""
    d2 = np.zeros((*np.broadcast_shapes(a.shape[:-2], c.shape[:-2]), a.shape[-2], c.shape[-2]))
    for k in range(a.shape[-1]):
        d2 += (a[..., :, None, k] - c[..., None, :, k]) ** 2
    return d2


def _contract(M, a, b, parameter):
    """`of_features` of sum_ij 2 M_ij (a_ik - b_jk)^2, dL/da and dL/db from M = dL/dd2 (..., n, m)."""
    square = b is None
    if square:
        M, b = M + M.swapaxes(-1, -2), a  # both arguments move: twice the sum over pairs
    # The sum of all squares is far cheaper than the largest of them.
    if any(np.vdot(v, v) > _LARGEST_SQUARE and np.max(v**2) > _LARGEST_SQUARE for v in (a, b)):
        columns = []  # with all digits, one feature at a time
        for k in range(a.shape[-1]):
            difference = a[..., :, None, k] - b[..., None, :, k]
            W = 2.0 * M * difference
            columns.append([(W * difference).sum(-1), W.sum(-1), -W.sum(-2)])
        products, da, db = (np.stack(part, axis=-1) for part in zip(*columns, strict=True))
        theta = of_features(products, parameter)
    else:
        da = 2.0 * (M.sum(-1)[..., None] * a - M @ b)
        if square:
            return of_features(a * da, parameter), da, ZERO
        db = 2.0 * (M.sum(-2)[..., None] * b - M.swapaxes(-1, -2) @ a)
        theta = of_features(a * da, parameter) + of_features(b * db, parameter)
    return (0.5 * theta, da, ZERO) if square else (theta, da, db)


def _gaussian(d2):
    """exp(-d2 / 2)."""
    K = np.exp(np.multiply(d2, -0.5, out=d2), out=d2)
    return K, lambda: -0.5 * K


def _half_integer(nu, d2):
    """exp(-r), (1 + r) exp(-r), (1 + r + r^2 / 3) exp(-r) for nu = 1/2, 3/2, 5/2: r = sqrt(2 nu d2)."""
    r = np.sqrt(np.multiply(d2, 2.0 * nu, out=d2), out=d2)
    decay = np.exp(-r)
    if nu == 0.5:
        return decay, lambda: -0.5 * decay * _inverse(r)
    if nu == 1.5:
        return (r + 1.0) * decay, lambda: -1.5 * decay
    return ((r / 3.0 + 1.0) * r + 1.0) * decay, lambda: (1.0 + r) * decay * (-5.0 / 6.0)


def _matern(nu, d2):
    """Any other smoothness: 2^(1 - nu) / gamma(nu) t^nu K_nu(t), t^2 = 2 nu d2.

    d(t^nu K_nu(t)) / dt = -t^nu K_{nu - 1}(t) (Abramowitz & Stegun 1964, 9.6.28). At zero the slope meets a
    difference of zero, so its value is of no account.
    """
    t = np.sqrt(2.0 * nu * d2)
    apart, factor = t > 0.0, 2.0 ** (1.0 - nu) / gamma(nu)
    K = np.ones_like(t)
    K[apart] = factor * t[apart] ** nu * kv(nu, t[apart])

    def slope():
        found = np.zeros_like(t)
        found[apart] = -nu * factor * t[apart] ** (nu - 1.0) * kv(nu - 1.0, t[apart])
        return found

    return K, slope


def _inverse(distance):
    return np.divide(1.0, distance, out=np.zeros_like(distance), where=distance > 0.0)
