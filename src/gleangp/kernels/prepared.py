"""Columns of one kernel matrix, asked for a few at a time.

Selection asks for K(X[rows], X) hundreds of times with the same X. What depends on X alone (scaled
inputs, squared norms) is worked out once by `prepare_columns`. Parts of a sum that need nothing but
inner products of the rows (RBF with one length scale, DotProduct) share them: with many features
the products are most of the work.
"""

from collections.abc import Callable
from functools import singledispatch

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Kernel, Product, Sum

from gleangp._typing import FloatArray, IntArray
from gleangp.kernels.gradients import kernel_columns, rule_for
from gleangp.kernels.stationary import LARGEST_SQUARE, prepare_square_distances

Columns = Callable[[IntArray], FloatArray]
OfProducts = Callable[[IntArray, FloatArray], FloatArray]  # rows and their inner products to their columns


@singledispatch
def prepare_columns(kernel: Kernel, X: FloatArray) -> Columns:
    """A function that gives K(X[rows], X) without white variance.

    Parameters
    ----------
    kernel : Kernel
        Any scikit-learn kernel; one without a rule is evaluated by `kernel_columns`.
    X : ndarray of shape (n, p)
        The rows.

    Returns
    -------
    callable
        From row numbers (m,) to a new array (m, n).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> columns = prepare_columns(2.0 * RBF(), np.array([[0.0], [1.0], [2.0]]))
    >>> columns(np.array([1])).round(3)
    array([[1.213, 2.   , 1.213]])
    """
    return lambda rows: kernel_columns(kernel, X[rows], X)


@rule_for(prepare_columns, RBF)
def _(kernel, X):
    half_square_distances = prepare_square_distances(kernel, X)
    if half_square_distances is None:  # too far apart for matrix products
        return lambda rows: kernel_columns(kernel, X[rows], X)
    return lambda rows: half_square_distances(rows, np.exp)


@rule_for(prepare_columns, Sum)
def _(kernel, X):
    parts = _terms(kernel)
    constant = sum(k.constant_value for k in parts if type(k) is ConstantKernel)
    parts = [k for k in parts if type(k) is not ConstantKernel]
    if not parts:
        return lambda rows: kernel_columns(kernel, X[rows], X)
    shared = _share_products(parts, X)
    columns = [prepare_columns(k, X) for k in parts] if shared is None else [shared]

    def added(rows):
        K = columns[0](rows)
        for more in columns[1:]:
            K += more(rows)
        if constant:
            K += constant
        return K

    return added


@rule_for(prepare_columns, Product)
def _(kernel, X):
    parts = [kernel.k1, kernel.k2]
    factors = [k.constant_value for k in parts if type(k) is ConstantKernel]
    columns = [prepare_columns(k, X) for k in parts if type(k) is not ConstantKernel]
    if not columns:
        return lambda rows: kernel_columns(kernel, X[rows], X)

    def multiplied(rows):
        K = columns[0](rows)
        for more in columns[1:]:
            K *= more(rows)
        for factor in factors:
            K *= factor
        return K

    return multiplied


def _terms(kernel: Kernel) -> list[Kernel]:
    """The terms of a sum, sums within it taken apart."""
    return [*_terms(kernel.k1), *_terms(kernel.k2)] if type(kernel) is Sum else [kernel]


def _share_products(parts: list[Kernel], X: FloatArray) -> Columns | None:
    """The sum of several kernels of the same inner products; None where they have others."""
    known = [_factor_and_kernel(k) for k in parts]
    if len(parts) < 2 or any(type(k) not in _OF_PRODUCTS or np.size(_scale(k)) > 1 for _, k in known):
        return None
    # From the mean of the rows: distances do not mind, and rounding errors of products do.
    origin = np.mean(X, axis=0)
    centred = X - origin
    half_norms = 0.5 * np.einsum("ik,ik->i", centred, centred)
    made = [_OF_PRODUCTS[type(k)](k, factor, centred, origin, half_norms) for factor, k in known]
    if any(of_products is None for of_products in made):
        return None

    def columns(rows):
        products = centred[rows] @ centred.T
        K = made[0](rows, products)
        for more in made[1:]:
            K += more(rows, products)
        return K

    return columns


def _factor_and_kernel(kernel: Kernel) -> tuple[float, Kernel]:
    """A kernel as a constant times another one."""
    factor = 1.0
    while type(kernel) is Product and ConstantKernel in (type(kernel.k1), type(kernel.k2)):
        constant, kernel = (
            (kernel.k1, kernel.k2) if type(kernel.k1) is ConstantKernel else (kernel.k2, kernel.k1)
        )
        factor *= constant.constant_value
    return factor, kernel


def _scale(kernel: Kernel) -> FloatArray | float:
    return kernel.length_scale if type(kernel) is RBF else 1.0


def _rbf_of_products(kernel, factor, centred, origin, half_norms) -> OfProducts | None:
    """factor exp(x_i'x_j - |x_i|^2 / 2 - |x_j|^2 / 2), in length scales; None if too far apart for that."""
    inverse = 1.0 / float(np.ravel(kernel.length_scale)[0]) ** 2
    if inverse * half_norms.max(initial=0.0) > 0.5 * LARGEST_SQUARE:
        return None

    def of_products(rows, products):
        K = products - half_norms
        K -= half_norms[rows, None]
        K *= inverse
        K[np.arange(len(rows)), rows] = 0.0
        np.minimum(K, 0.0, out=K)
        np.exp(K, out=K)
        K *= factor
        return K

    return of_products


def _dot_of_products(kernel, factor, centred, origin, half_norms) -> OfProducts:
    """factor (sigma_0^2 + x_i'x_j), from products around the mean."""
    along = factor * (centred @ origin)
    constant = factor * (kernel.sigma_0**2 + origin @ origin)

    def of_products(rows, products):
        K = factor * products
        K += along
        K += along[rows, None] + constant
        return K

    return of_products


_OF_PRODUCTS = {RBF: _rbf_of_products, DotProduct: _dot_of_products}
