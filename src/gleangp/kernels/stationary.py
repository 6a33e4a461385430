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
from gleangp.numerics.linalg import symmetric_products

# Squared norms up to which |u|**2 + |v|**2 - 2 u'v is used: its rounding error is then below 1e-9,
# in an exponent. Beyond (far-apart clusters, tiny length scales) differences are taken one by one.
LARGEST_SQUARE = 2.0**20
# Differences are also the faster way where a matrix product has little to gain: few numbers in all
# (call overhead), few features, or few rows on one side.
_FEW_PRODUCTS, _FEW_FEATURES, _FEW_ROWS = 2**17, 4, 8
_BLOCK = 2**15  # entries worked on at a time: 256 kB, which stay in the cache
_STRIP = 48  # rows and columns of a symmetric matrix that are written at a time
_HALF_STRIP = 128  # rows of its upper triangle


@rule_for(linearize, RBF)
def _(kernel, X, Z=None):
    scale = _length_scale(kernel, X)
    U, V = _scaled(X, Z, scale)
    K = _half_square_distances(U, V, finish=np.exp)
    return _radial(kernel, scale, U, V, K, lambda: K)


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
    return _radial(kernel, scale, U, V, K, lambda: _matern_weight(kernel.nu, distance, K))


@rule_for(kernel_columns, Matern)
def _(kernel, X, Z):
    return _matern_value(kernel.nu, _distances(*_scaled(X, Z, _length_scale(kernel, X))))


@rule_for(linearize, RationalQuadratic)
def _(kernel, X, Z=None):
    alpha, scale = kernel.alpha, _length_scale(kernel, X)
    U, V = _scaled(X, Z, scale)
    exponent = _half_square_distances(U, V)
    log_base = np.log(1.0 - exponent / alpha)
    K = np.exp(-alpha * log_base)

    def weight():
        return np.exp((-alpha - 1.0) * log_base)

    length = _radial(kernel, scale, U, V, K, weight)

    def theta_vjp(dL_dK):
        if not is_free(kernel.alpha_bounds):
            return length.theta_vjp(dL_dK)
        slope = -alpha * log_base * K - exponent * weight()
        return np.concatenate(([np.vdot(dL_dK, slope)], length.theta_vjp(dL_dK)))

    return Linearization(K, theta_vjp, length.input_vjp)


@rule_for(kernel_columns, RationalQuadratic)
def _(kernel, X, Z):
    K = _half_square_distances(*_scaled(X, Z, _length_scale(kernel, X)))
    K /= -kernel.alpha
    K += 1.0
    np.log(K, out=K)
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
            gradient.append(4.0 * inverse_square * np.vdot(W, sine**2))
        if is_free(kernel.periodicity_bounds):
            gradient.append(4.0 * inverse_square * np.vdot(W, angle * np.cos(angle) * sine))
        return np.array(gradient)

    def input_vjp(dL_dK):
        # dk/dx = -Phi (x - z), Phi = 4 (pi / period) sin cos k / (l**2 d), and 0 where x = z
        weight = np.cos(angle) * sine * K
        weight *= 4.0 * inverse_square * np.pi / kernel.periodicity
        weight *= _inverse(distance)
        return _differences(dL_dK * weight, U, V)

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


def _radial(kernel, scale, U, V, K, weight):
    """The linearization of a kernel whose Phi is `weight()`."""

    def theta_vjp(dL_dK):
        if not is_free(kernel.length_scale_bounds):
            return np.empty(0)
        gradient = _square_differences(dL_dK, weight(), U, V)
        return gradient if scale.ndim else gradient.sum(keepdims=True)

    def input_vjp(dL_dK):
        return _differences(dL_dK * weight(), U, V) / scale

    def both_vjps(dL_dK):
        Phi = weight()
        squares, differences, total = _symmetric_differences(dL_dK, Phi, U)
        if not is_free(kernel.length_scale_bounds):
            squares = np.empty(0)
        elif not scale.ndim:
            squares = squares.sum(keepdims=True)
        return squares, differences / scale, total if Phi is K else None

    near = V is U and np.max(np.abs(U), initial=0.0) ** 2 <= LARGEST_SQUARE
    return Linearization(K, theta_vjp, input_vjp, both_vjps=both_vjps if near else None)


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
    """Inputs in length scales; the second is the first where Z is None."""
    U = X / scale
    return U, U if Z is None else Z / scale


def _centred(U, V):
    """Both from the mean of U. Differences do not mind; rounding errors of products do."""
    origin = np.full(len(U), 1.0 / max(1, len(U))) @ U
    centred = U - origin
    return centred, centred if V is U else V - origin


def _half_square_distances(U, V, finish=None):
    """-1/2 ||u_i - v_j||**2; exactly symmetric, with a diagonal of exact zeros, if V is U.

    `finish` is a ufunc applied in place while a block of rows is still in the cache.
    """
    (n, p), m = U.shape, len(V)
    few = n * m * p <= _FEW_PRODUCTS or p <= _FEW_FEATURES or min(n, m) <= _FEW_ROWS
    exponent = None if few else _products_of_rows(U, V, finish)
    if exponent is None and V is U and n > 1:
        exponent = _differences_of_rows(U, finish)
    elif exponent is None:
        exponent = cdist(U, V, "sqeuclidean", out=np.empty((n, m)))
        exponent *= -0.5
        if finish is not None:
            finish(exponent, out=exponent)
    return exponent


def _differences_of_rows(U, finish):
    """The same from differences, for one set of rows: half of the numbers are worked on, then copied."""
    n = len(U)
    exponent, strip = np.empty((n, n)), np.empty(min(_STRIP, n) * n)
    for start in range(0, n, _STRIP):
        rows, right = slice(start, start + _STRIP), slice(start, None)
        shape = min(_STRIP, n - start), n - start
        block = cdist(U[rows], U[right], "sqeuclidean", out=strip[: shape[0] * shape[1]].reshape(shape))
        block *= -0.5
        if finish is not None:
            finish(block, out=block)
        exponent[rows, right] = block
        exponent[right, rows] = block.T
    return exponent


def _products_of_rows(U, V, finish):
    """The same by one matrix product, or None where that would be inaccurate."""
    square = V is U
    U, V = _centred(U, V)
    u = 0.5 * np.einsum("ik,ik->i", U, U)
    v = u if square else 0.5 * np.einsum("ik,ik->i", V, V)
    if max(u.max(), v.max()) > 0.5 * LARGEST_SQUARE:
        return None
    exponent = np.matmul(U, V.T, out=np.empty((len(U), len(V))))
    for rows in _row_blocks(exponent):
        block = exponent[rows]
        block -= u[rows, None] + v  # their sum first, so that the matrix is symmetric
        if square:
            block.reshape(-1)[rows.start :: len(V) + 1] = 0.0
        np.minimum(block, 0.0, out=block)
        if finish is not None:
            finish(block, out=block)
    return exponent


def prepare_square_distances(kernel, X):
    """(rows, finish) -> finish(-1/2 ||u_i - u_j||**2) for i in rows and all j, with X scaled once.

    None where the inputs are too far apart for matrix products.
    """
    U, _ = _scaled(X, None, _length_scale(kernel, X))
    U, _ = _centred(U, U)
    u = 0.5 * np.einsum("ik,ik->i", U, U)
    if u.max(initial=0.0) > 0.5 * LARGEST_SQUARE:
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


def _square_differences(dL_dK, weight, U, V):
    """sum_ij dL_dK_ij weight_ij (u_ik - v_jk)**2 for each feature k."""
    U, V = _centred(U, V)
    U2 = U * U
    V2 = U2 if V is U else V * V
    if U2.max(initial=0.0) > LARGEST_SQUARE or (V is not U and V2.max(initial=0.0) > LARGEST_SQUARE):
        W, features = dL_dK * weight, range(U.shape[1])
        return np.array([np.vdot(W, np.subtract.outer(U[:, k], V[:, k]) ** 2) for k in features])
    row_sums, column_sums, WV = np.empty(len(U)), np.zeros(len(V)), np.empty(U.shape)
    ones = np.ones(max(len(U), len(V)))  # sums as products: faster than reductions on small blocks
    for rows in _row_blocks(weight):  # a product as large as the matrix is never held
        W = dL_dK[rows] * weight[rows]
        np.matmul(W, ones[: len(V)], out=row_sums[rows])
        column_sums += ones[: len(W)] @ W
        np.matmul(W, V, out=WV[rows])
    return row_sums @ U2 + column_sums @ V2 - 2.0 * np.einsum("ik,ik->k", U, WV)


def _differences(W, U, V):
    """-sum_j W_ij (u_ik - v_jk), twofold where V is U and both arguments move."""
    square = V is U
    U, V = _centred(U, V)
    gradient = W @ V - np.add.reduce(W, axis=1)[:, None] * U
    if square:  # two thin products more cost less than the sum of W and its transpose
        gradient += W.T @ V - np.add.reduce(W, axis=0)[:, None] * U
    return gradient


def _symmetric_differences(dL_dK, weight, U):
    """`_square_differences` and `_differences` of one set of rows, and sum_ij dL_dK_ij weight_ij.

    Of dL_dK, which is symmetric, the upper triangle is read.
    """
    U, _ = _centred(U, U)
    n = len(U)
    W = np.empty((n, n))
    for start in range(0, n, _HALF_STRIP):
        strip = slice(start, start + _HALF_STRIP), slice(start, None)
        np.multiply(dL_dK[strip], weight[strip], out=W[strip])
    with_one = symmetric_products(W, np.vstack([U.T, np.ones(n)]))  # W U, and the sums of the rows of W
    WU = (with_one[:-1] - with_one[-1] * U.T).T
    return -2.0 * np.einsum("ik,ik->k", U, WU), 2.0 * WU, float(with_one[-1].sum())


def _row_blocks(matrix):
    n, m = matrix.shape
    step = max(1, _BLOCK // max(1, m))
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


def _inverse(distance):
    return np.divide(1.0, distance, out=np.zeros_like(distance), where=distance > 0.0)
