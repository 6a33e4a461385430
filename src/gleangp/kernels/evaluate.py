"""One evaluation of a kernel with its derivatives, on one matrix or on a stack of them.

`evaluate(kernel, A, B)` gives K(A, B) for rows A (..., n, p) and B (..., m, p) whose leading axes
broadcast, and `vjp(G)` contracts dL/dK = G with its derivatives: dL/dtheta summed over the stack, dL/dA and
dL/dB. theta is scikit-learn's: logarithms, in its order, those with bounds "fixed" left out.

A stationary kernel is a function phi of the squared distance of scaled inputs a = A / length. With
M = G * phi',

    dL/da = 2 ((M 1) a - M b),    dL/dlog length_j = -sum_i a_ij dL/da_ij - sum_k b_kj dL/db_kj:

one matrix product gives the derivatives in the inputs and in all length scales.

Kernels without a rule here are evaluated one matrix at a time by `linearize`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Kernel,
    Matern,
    Product,
    RationalQuadratic,
    Sum,
    WhiteKernel,
)

from gleangp._typing import FloatArray
from gleangp.kernels.gradients import linearize, rule_for
from gleangp.kernels.scaled_inputs import ScaledInputs

_CACHED = 2**15  # numbers: 256 kB stay in the cache of one core from one operation to the next

# dL/dtheta (q,), dL/dA and dL/dB; dL/dB is None where B is A, and both arguments move with A.
Gradients = tuple[FloatArray, FloatArray, FloatArray | None]


class Evaluation(NamedTuple):
    """Kernel matrices and how to contract their derivatives."""

    value: FloatArray  # (..., n, m); a constant has no axes until a caller gives it some
    vjp: Callable[[FloatArray], Gradients]


def evaluate(kernel: Kernel, A: FloatArray, B: FloatArray | None = None) -> Evaluation:
    """K(A, B), or K(A, A) with white variance on the diagonal where B is None.

    Parameters
    ----------
    kernel : Kernel
        Any scikit-learn kernel.
    A : ndarray of shape (..., n, p)
        First argument: one set of rows, or a stack of them.
    B : ndarray of shape (..., m, p), default=None
        Second argument.

    Returns
    -------
    Evaluation
        `value` and `vjp`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> K = evaluate(2.0 * RBF(0.5), np.zeros((3, 4, 1)))
    >>> K.value.shape, float(K.vjp(np.ones((3, 4, 4)))[0][0])  # in the logarithm of the variance
    ((3, 4, 4), 96.0)
    """
    value, vjp = _rule(kernel, A, B)
    shape = (*A.shape[:-1], (A if B is None else B).shape[-2])
    return Evaluation(np.broadcast_to(value, shape) if np.shape(value) != shape else value, vjp)


@singledispatch
def _rule(kernel: Kernel, A: FloatArray, B: FloatArray | None) -> Evaluation:
    """Any other kernel, one matrix at a time."""
    if A.ndim == 2 and (B is None or B.ndim == 2):
        K = linearize(kernel, A, B)

        def vjp(G):
            dB = None if B is None else linearize(kernel, B, A).input_vjp(G.T)
            return K.theta_vjp(G), K.input_vjp(G), dB

        return Evaluation(K.value, vjp)
    lead = A.shape[:-2] if B is None else np.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    flat_A = np.broadcast_to(A, (*lead, *A.shape[-2:])).reshape(-1, *A.shape[-2:])
    flat_B = [None] * len(flat_A)
    if B is not None:
        flat_B = list(np.broadcast_to(B, (*lead, *B.shape[-2:])).reshape(-1, *B.shape[-2:]))
    parts = [_rule(kernel, a, b) for a, b in zip(flat_A, flat_B, strict=True)]

    def stacked_vjp(G):
        G = np.broadcast_to(G, (*lead, *parts[0].value.shape)).reshape(len(parts), *parts[0].value.shape)
        theta, dA, dB = zip(*(part.vjp(g) for part, g in zip(parts, G, strict=True)), strict=True)
        back = None if B is None else _onto(np.array(dB).reshape(*lead, *B.shape[-2:]), B)
        return np.sum(theta, axis=0), _onto(np.array(dA).reshape(*lead, *A.shape[-2:]), A), back

    return Evaluation(
        np.array([part.value for part in parts]).reshape(*lead, *parts[0].value.shape), stacked_vjp
    )


@rule_for(_rule, Sum)
def _(kernel, A, B):
    left, right = _rule(kernel.k1, A, B), _rule(kernel.k2, A, B)

    def vjp(G):
        return _joined(left.vjp(G), right.vjp(G))

    return Evaluation(left.value + right.value, vjp)


@rule_for(_rule, Product)
def _(kernel, A, B):
    left, right = _rule(kernel.k1, A, B), _rule(kernel.k2, A, B)

    def vjp(G):
        return _joined(_scaled_vjp(left, right.value, G), _scaled_vjp(right, left.value, G))

    return Evaluation(left.value * right.value, vjp)


def _scaled_vjp(K: Evaluation, factor: FloatArray, G: FloatArray) -> Gradients:
    """Of K times a factor; where one of them is a number, no array is made for it."""
    if np.ndim(K.value) == 0 and np.shape(G) == np.shape(factor):
        return K.vjp(np.asarray(np.vdot(G, factor)))
    if np.ndim(factor) == 0:
        theta, dA, dB = K.vjp(G)
        return factor * theta, factor * dA, None if dB is None else factor * dB
    return K.vjp(G * factor)


@rule_for(_rule, ConstantKernel)
def _(kernel, A, B):
    free = not kernel.hyperparameter_constant_value.fixed

    def vjp(G):
        theta = np.array([kernel.constant_value * G.sum()]) if free else np.empty(0)
        return theta, *_no_input_gradient(A, B)

    return Evaluation(np.asarray(kernel.constant_value, dtype=np.float64), vjp)


@rule_for(_rule, WhiteKernel)
def _(kernel, A, B):
    n = A.shape[-2]
    value = kernel.noise_level * np.eye(n) if B is None else np.zeros((n, B.shape[-2]))
    free = not kernel.hyperparameter_noise_level.fixed

    def vjp(G):
        theta = np.empty(0)
        if free:
            diagonal = np.einsum("...ii->...i", np.broadcast_to(G, (*A.shape[:-1], n))) if B is None else 0.0
            theta = np.array([kernel.noise_level * np.sum(diagonal)])
        return theta, *_no_input_gradient(A, B)

    return Evaluation(value, vjp)


@rule_for(_rule, DotProduct)
def _(kernel, A, B):
    C, square = A if B is None else B, kernel.sigma_0**2
    free = not kernel.hyperparameter_sigma_0.fixed

    def vjp(G):
        theta = np.array([2.0 * square * G.sum()]) if free else np.empty(0)
        if B is None:
            return theta, (G + _turned(G)) @ A, None
        return theta, _onto(G @ B, A), _onto(_turned(G) @ A, B)

    return Evaluation(A @ _turned(C) + square, vjp)


@rule_for(_rule, ScaledInputs)
def _(kernel, A, B):
    scales, center = np.asarray(kernel.scales), np.asarray(kernel.center)
    a, b = (A - center) * scales, None if B is None else (B - center) * scales
    inner = _rule(kernel.kernel, a, b)
    free = not kernel.hyperparameter_scales.fixed

    def vjp(G):
        theta, da, db = inner.vjp(G)
        if free:
            by_scale = _per_feature(a * da) + (0.0 if b is None else _per_feature(b * db))
            theta = np.append(theta, by_scale if scales.ndim else by_scale.sum())
        return theta, da * scales, None if db is None else db * scales

    return Evaluation(inner.value, vjp)


@rule_for(_rule, RBF)
def _(kernel, A, B):
    return _stationary(kernel, A, B, _gaussian)


@rule_for(_rule, Matern)
def _(kernel, A, B):
    shape = {0.5: _exponential, 1.5: _matern_32, 2.5: _matern_52, np.inf: _gaussian}.get(kernel.nu)
    if shape is None:
        return _rule.dispatch(object)(kernel, A, B)
    return _stationary(kernel, A, B, shape)


@rule_for(_rule, RationalQuadratic)
def _(kernel, A, B):
    alpha = kernel.alpha
    base = None

    def shape(d2):
        nonlocal base
        base = 1.0 + d2 / (2.0 * alpha)
        K = base**-alpha
        return K, lambda: -0.5 * K / base

    value, inner_vjp = _stationary(kernel, A, B, shape)
    free = [h.name for h in kernel.hyperparameters if not h.fixed]

    def vjp(G):
        length, dA, dB = inner_vjp(G)
        of_alpha = np.sum(G * value * alpha * ((base - 1.0) / base - np.log(base)))
        by_name = {"alpha": of_alpha, "length_scale": length}
        theta = [np.atleast_1d(by_name[name]) for name in free]
        return np.concatenate([np.empty(0), *theta]), dA, dB

    return Evaluation(value, vjp)


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
    return K, lambda: np.divide(-0.5 * K, r, out=np.zeros_like(r), where=r > 0.0)


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


def _stationary(kernel, A, B, shape) -> Evaluation:
    """`shape` gives phi(d2), and a function that gives phi'(d2), from squared scaled distances.

    d2_ij = |a_i|^2 + |c_j|^2 - 2 a_i c_j is one product of [-2 a, |a|^2, 1] and [c, 1, |c|^2].
    """
    length = np.asarray(kernel.length_scale, dtype=np.float64)
    a, b = A / length, None if B is None else B / length
    c = a if b is None else b
    square_a, square_c = ((v * v).sum(axis=-1, keepdims=True) for v in (a, c))
    left = np.concatenate([-2.0 * a, square_a, np.ones_like(square_a)], axis=-1)
    d2 = left @ _turned(np.concatenate([c, np.ones_like(square_c), square_c], axis=-1))
    np.maximum(d2, 0.0, out=d2)
    if b is None:
        np.einsum("...ii->...i", d2)[...] = 0.0
    value, slope = shape(d2)
    free = not kernel.hyperparameter_length_scale.fixed

    def vjp(G):
        M = G * slope()
        if b is None:
            M = M + _turned(M)
            da, db = 2.0 * (M.sum(-1)[..., None] * a - M @ a), None
            by_feature = _per_feature(a * da)
        else:
            da = _onto(2.0 * (M.sum(-1)[..., None] * a - M @ b), a)
            db = _onto(2.0 * (M.sum(-2)[..., None] * b - _turned(M) @ a), b)
            by_feature = _per_feature(a * da) + _per_feature(b * db)
        theta = np.empty(0)
        if free:
            theta = -by_feature if length.ndim else np.array([-by_feature.sum()])
        return theta, da / length, None if db is None else db / length

    return Evaluation(value, vjp)


def _joined(left: Gradients, right: Gradients) -> Gradients:
    dB = None if left[2] is None or right[2] is None else left[2] + right[2]
    return np.concatenate([left[0], right[0]]), left[1] + right[1], dB


def _no_input_gradient(A, B):
    return np.zeros(1), None if B is None else np.zeros(1)


def _turned(M):
    return np.swapaxes(M, -1, -2)


def _per_feature(M):
    return M.reshape(-1, M.shape[-1]).sum(0)


def _onto(gradient: FloatArray, rows: FloatArray) -> FloatArray:
    """The gradient summed over the leading axes along which the rows were broadcast."""
    extra = gradient.ndim - rows.ndim
    if extra > 0:
        gradient = gradient.sum(axis=tuple(range(extra)))
    axes = tuple(k for k in range(rows.ndim - 2) if rows.shape[k] == 1 and gradient.shape[k] != 1)
    return gradient.sum(axis=axes, keepdims=True) if axes else gradient
