"""Rules for kernels of the distance: RBF, Matern, RationalQuadratic, ExpSineSquared.

With u = x / length_scale every kernel here has, for a weight matrix Phi of its own,

    dK_ij/dlog l_k = Phi_ij (u_ik - v_jk)**2    and    dK_ij/dx_ik = -Phi_ij (u_ik - v_jk) / l_k,

and contracting either with dL/dK is one matrix product (`_square_differences`, `_differences`).
"""

import math

import numpy as np
from scipy.spatial.distance import cdist, pdist, squareform
from scipy.special import gamma, kv
from sklearn.gaussian_process.kernels import RBF, ExpSineSquared, Matern, RationalQuadratic

from gleangp.kernels.gradients import (
    Linearization,
    is_free,
    kernel_columns,
    linearize,
    linearize_diag,
    rule_for,
)

# Squared norms up to which |u|**2 + |v|**2 - 2 u'v is used: its rounding error is then below 1e-9,
# in an exponent. Beyond (far-apart clusters, tiny length scales) differences are taken one by one.
_LARGEST_SQUARE = 2.0**20
_BLOCK = 2**15  # entries worked on at a time: 256 kB, which stay in the cache


@rule_for(linearize, RBF)
def _(kernel, X, Z=None):
    scale = _length_scale(kernel, X)
    U, V = _scaled(X, Z, scale)
    if scale.ndim:
        K = _half_square_distances(U, V, finish=np.exp)
        return _anisotropic(kernel, scale, U, V, K, lambda: K)
    exponent = _half_square_distances(U, V)
    K = np.exp(exponent)
    return _isotropic(kernel, scale, U, V, K, lambda: K, lambda: exponent)


@rule_for(kernel_columns, RBF)
def _(kernel, X, Z):
    U, V = _scaled(X, Z, _length_scale(kernel, X))
    return _half_square_distances(U, V, finish=np.exp)


@rule_for(linearize, Matern)
def _(kernel, X, Z=None):
    scale = _length_scale(kernel, X)
    U, V = _scaled(X, Z, scale)
    distance = _distances(U, V)
    K = _matern_value(kernel.nu, distance)

    def weight():
        return _matern_weight(kernel.nu, distance, K)

    if scale.ndim:
        return _anisotropic(kernel, scale, U, V, K, weight)
    return _isotropic(kernel, scale, U, V, K, weight, lambda: -0.5 * distance**2)


@rule_for(kernel_columns, Matern)
def _(kernel, X, Z):
    return _matern_value(kernel.nu, _distances(*_scaled(X, Z, _length_scale(kernel, X))))


@rule_for(linearize, RationalQuadratic)
def _(kernel, X, Z=None):
    alpha, scale = kernel.alpha, _length_scale(kernel, X)
    U, V = _scaled(X, Z, scale)
    exponent = _half_square_distances(U, V)
    log_base = np.log1p(exponent / -alpha)
    K = np.exp(-alpha * log_base)

    def weight():
        return np.exp((-alpha - 1.0) * log_base)

    length = _isotropic(kernel, scale, U, V, K, weight, lambda: exponent)

    def theta_vjp(dL_dK):
        if not is_free(kernel.alpha_bounds):
            return length.theta_vjp(dL_dK)
        slope = -alpha * log_base * K - exponent * weight()
        return np.concatenate(([_total(dL_dK, slope)], length.theta_vjp(dL_dK)))

    return Linearization(K, theta_vjp, length.input_vjp)


@rule_for(kernel_columns, RationalQuadratic)
def _(kernel, X, Z):
    K = _half_square_distances(*_scaled(X, Z, _length_scale(kernel, X)))
    K /= -kernel.alpha
    np.log1p(K, out=K)
    K *= -kernel.alpha
    return np.exp(K, out=K)


@rule_for(linearize, ExpSineSquared)
def _(kernel, X, Z=None):
    inverse_square = kernel.length_scale**-2
    U, V = _scaled(X, Z, np.float64(1.0))
    distance = _distances(U, V)
    angle = (np.pi / kernel.periodicity) * distance
    sine = np.sin(angle)
    K = np.exp((-2.0 * inverse_square) * sine**2)

    def theta_vjp(dL_dK):
        W = dL_dK * K
        gradient = []
        if is_free(kernel.length_scale_bounds):
            gradient.append(4.0 * inverse_square * _total(W, sine**2))
        if is_free(kernel.periodicity_bounds):
            gradient.append(4.0 * inverse_square * _total(W, angle * np.cos(angle) * sine))
        return np.array(gradient)

    def input_vjp(dL_dK):
        # dk/dx = -Phi (x - z), Phi = 4 (pi / period) sin cos k / (l**2 d), and 0 where x = z
        weight = np.cos(angle) * sine * K
        weight *= 4.0 * inverse_square * np.pi / kernel.periodicity
        weight *= _inverse(distance)
        return _differences(dL_dK * weight, U, V, Z is None)

    return Linearization(K, theta_vjp, input_vjp)


@rule_for(linearize_diag, RBF)
@rule_for(linearize_diag, Matern)
@rule_for(linearize_diag, RationalQuadratic)
@rule_for(linearize_diag, ExpSineSquared)
def _(kernel, X):
    n_free = kernel.n_dims
    return Linearization(
        np.ones(len(X)), lambda dL_ddiag: np.zeros(n_free), lambda dL_ddiag: np.zeros(X.shape)
    )


def _isotropic(kernel, scale, U, V, K, weight, exponent):
    """One length scale; `exponent()` is -1/2 the scaled squared distance."""
    if not is_free(kernel.length_scale_bounds):
        return _anisotropic(kernel, scale, U, V, K, weight)

    def theta_vjp(dL_dK):
        return np.array([-2.0 * _total(dL_dK * weight(), exponent())])

    def input_vjp(dL_dK):
        return _differences(dL_dK * weight(), U, V, V is U) / scale

    return Linearization(K, theta_vjp, input_vjp)


def _anisotropic(kernel, scale, U, V, K, weight):
    """One length scale per feature, or a fixed one; `weight()` is Phi."""

    def theta_vjp(dL_dK):
        if not is_free(kernel.length_scale_bounds):
            return np.empty(0)
        return _square_differences(dL_dK * weight(), U, V)

    def input_vjp(dL_dK):
        return _differences(dL_dK * weight(), U, V, V is U) / scale

    return Linearization(K, theta_vjp, input_vjp)


def _length_scale(kernel, X):
    """The length scale as an array: 0-d, or (p,) where scikit-learn calls it anisotropic."""
    scale = np.asarray(kernel.length_scale, dtype=float)
    if scale.size == 1:
        return scale.reshape(())
    if scale.shape != X.shape[1:]:
        raise ValueError(
            f"{kernel!r} has length scales of shape {scale.shape}, but X has {X.shape[1]} "
            "features. Give one length scale, or one per feature."
        )
    return scale


def _scaled(X, Z, scale):
    """Inputs in length scales, from the mean of X; the second is the first where Z is None.

    Distances do not depend on the origin, but the rounding error of their squares does.
    """
    origin = np.add.reduce(X, axis=0) / max(len(X), 1)
    U = (X - origin) / scale
    return U, U if Z is None else (Z - origin) / scale


def _half_square_distances(U, V, finish=None):
    """-1/2 ||u_i - v_j||**2, by one matrix product; exactly zero on the diagonal if V is U.

    `finish` is a ufunc applied in place while a block of rows is still in the cache.
    """
    u = 0.5 * np.einsum("ik,ik->i", U, U)
    v = u if V is U else 0.5 * np.einsum("ik,ik->i", V, V)
    largest = u.max(initial=0.0) if V is U else max(u.max(initial=0.0), v.max(initial=0.0))
    if largest > 0.5 * _LARGEST_SQUARE:
        exponent = cdist(U, V, "sqeuclidean")
        exponent *= -0.5
        return exponent if finish is None else finish(exponent, out=exponent)
    exponent = U @ V.T
    step = max(1, _BLOCK // max(1, len(V)))
    for start in range(0, len(U), step):
        block = exponent[start : start + step]
        block -= u[start : start + step, None] + v  # their sum first: exactly symmetric
        if V is U:
            block.reshape(-1)[start :: len(V) + 1] = 0.0
        np.minimum(block, 0.0, out=block)
        if finish is not None:
            finish(block, out=block)
    return exponent


def prepare_square_distances(kernel, X):
    """(rows, finish) -> finish(-1/2 ||u_i - u_j||**2) for i in rows and all j, with X scaled once.

    None where the inputs are too far apart for `_half_square_distances` to use matrix products.
    """
    U, _ = _scaled(X, None, _length_scale(kernel, X))
    u = 0.5 * np.einsum("ik,ik->i", U, U)
    if u.max(initial=0.0) > 0.5 * _LARGEST_SQUARE:
        return None

    def some_rows(rows, finish):
        exponent = U[rows] @ U.T
        for i, row in zip(rows, exponent, strict=True):
            row -= u + u[i]
            row[i] = 0.0
            np.minimum(row, 0.0, out=row)
            finish(row, out=row)
        return exponent

    return some_rows


def _distances(U, V):
    """||u_i - v_j|| from differences: the root of a rounded square has half the digits."""
    return squareform(pdist(U), checks=False) if V is U else cdist(U, V)


def _matern_value(nu, r):
    """Matern covariance at scaled distances r (Rasmussen & Williams 2006, eqs. 4.14, 4.16)."""
    if nu == 0.5:
        return np.exp(-r)
    if nu == np.inf:
        return np.exp(-0.5 * r**2)
    t = math.sqrt(2.0 * nu) * r
    if nu == 1.5:
        return (1.0 + t) * np.exp(-t)
    if nu == 2.5:
        return (1.0 + t * (1.0 + t / 3.0)) * np.exp(-t)
    K = np.ones_like(t)
    apart = t > 0.0
    t = t[apart]
    K[apart] = 2.0 ** (1.0 - nu) / gamma(nu) * t**nu * kv(nu, t)
    return K


def _matern_weight(nu, r, K):
    """Phi = -K'(r) / r. Where r = 0 it meets a zero difference, so its value is of no account."""
    if nu == 0.5:
        return K * _inverse(r)
    if nu == np.inf:
        return K
    t = math.sqrt(2.0 * nu) * r
    if nu == 1.5:
        return 3.0 * np.exp(-t)
    if nu == 2.5:
        return (5.0 / 3.0) * (1.0 + t) * np.exp(-t)
    weight = np.zeros_like(t)
    apart = t > 0.0
    t = t[apart]
    # d(t**nu K_nu(t))/dt = -t**nu K_{nu-1}(t), Abramowitz & Stegun 1964, 9.6.28
    weight[apart] = 2.0 * nu * 2.0 ** (1.0 - nu) / gamma(nu) * t ** (nu - 1.0) * kv(nu - 1.0, t)
    return weight


def _square_differences(W, U, V):
    """sum_ij W_ij (u_ik - v_jk)**2 for each feature k."""
    U2 = U * U
    V2 = U2 if V is U else V * V
    largest = U2.max(initial=0.0) if V is U else max(U2.max(initial=0.0), V2.max(initial=0.0))
    if largest > _LARGEST_SQUARE:
        features = range(U.shape[1])
        return np.array([_total(W, np.subtract.outer(U[:, k], V[:, k]) ** 2) for k in features])
    squares = np.add.reduce(W, axis=1) @ U2 + np.add.reduce(W, axis=0) @ V2
    return squares - 2.0 * np.einsum("ik,ik->k", U, W @ V)


def _differences(W, U, V, both_move):
    """-sum_j W_ij (u_ik - v_jk); with `both_move`, U is V and its rows are both arguments."""
    if both_move:
        W = W + W.T
    return W @ V - np.add.reduce(W, axis=1)[:, None] * U


def _inverse(distance):
    return np.divide(1.0, distance, out=np.zeros_like(distance), where=distance > 0.0)


def _total(A, B):
    """sum_ij A_ij B_ij."""
    return np.vdot(A, B)
