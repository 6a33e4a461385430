"""Columns of one kernel matrix, asked for a few at a time.

Selection asks for K(X[rows], X) hundreds of times with the same X. What depends on X alone (scaled
inputs, squared norms) is worked out once by `prepare_columns`.
"""

from collections.abc import Callable
from functools import singledispatch

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, Product, Sum

from gleangp._typing import FloatArray, IntArray
from gleangp.kernels.gradients import kernel_columns, rule_for
from gleangp.kernels.stationary import prepare_square_distances

Columns = Callable[[IntArray], FloatArray]


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
    parts = [kernel.k1, kernel.k2]
    constant = sum(k.constant_value for k in parts if type(k) is ConstantKernel)
    columns = [prepare_columns(k, X) for k in parts if type(k) is not ConstantKernel]
    if not columns:
        return lambda rows: kernel_columns(kernel, X[rows], X)

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
