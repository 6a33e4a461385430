"""White variance: what is in ``kernel(X)`` and ``kernel.diag(X)`` but not in ``kernel(X, Z)``.

It belongs to a row, not to the function: two measurements at the same place do not share it. In a
product the split follows from the definition: with k1 = s1 + w1 and k2 = s2 + w2 on the diagonal,
K(X, Z) sees s1 s2 and everything else is white. `C * WhiteKernel()` is therefore all white, and
`(C + WhiteKernel()) * RBF()` is a function of variance C with white noise.
"""

from functools import singledispatch

import numpy as np
from sklearn.gaussian_process.kernels import CompoundKernel, Exponentiation, Kernel, Product, Sum, WhiteKernel

from gleangp._typing import FloatArray

DIAGONAL_ROWS = 64  # at a time where only the diagonal of a square block is wanted


@singledispatch
def has_white(kernel: Kernel) -> bool:
    """Whether any part of the kernel is white: ``kernel.diag(X)`` can differ from that of ``kernel(X, X)``.

    Kernels of other libraries are searched for a `WhiteKernel` among their parameters; one that is white in
    another way needs a registered rule.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> has_white(RBF() + WhiteKernel()), has_white(2.0 * RBF())
    (True, False)
    """
    parts = kernel.get_params(deep=False).values()
    return any(isinstance(part, Kernel) and has_white(part) for part in parts)


@has_white.register
def _(kernel: WhiteKernel) -> bool:
    return True


@has_white.register
def _(kernel: CompoundKernel) -> bool:
    return any(has_white(part) for part in kernel.kernels)


@singledispatch
def signal_diag(kernel: Kernel, X: FloatArray) -> FloatArray:
    """Variance (n,) of the function itself at each row: the diagonal of ``kernel(X, X)``.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> signal_diag(2.0 * RBF() + WhiteKernel(0.5), np.zeros((3, 1)))
    array([2., 2., 2.])
    """
    if not has_white(kernel):
        return kernel.diag(X)
    # a kernel that wraps a white one in a way we do not know: the definition, block by block
    blocks = [X[start : start + DIAGONAL_ROWS] for start in range(0, len(X), DIAGONAL_ROWS)]
    return np.concatenate([np.diagonal(kernel(rows, rows)) for rows in blocks])


@signal_diag.register
def _(kernel: WhiteKernel, X):
    return np.zeros(len(X))


@signal_diag.register
def _(kernel: Sum, X):
    return signal_diag(kernel.k1, X) + signal_diag(kernel.k2, X)


@signal_diag.register
def _(kernel: Product, X):
    return signal_diag(kernel.k1, X) * signal_diag(kernel.k2, X)


@signal_diag.register
def _(kernel: Exponentiation, X):
    return signal_diag(kernel.kernel, X) ** kernel.exponent


@signal_diag.register
def _(kernel: CompoundKernel, X):
    return np.column_stack([signal_diag(part, X) for part in kernel.kernels])


def white_diag(kernel: Kernel, X: FloatArray) -> FloatArray:
    """White variance (n,) of each row; exactly zero for kernels without white."""
    if not has_white(kernel):
        return np.zeros(len(X))
    return kernel.diag(X) - signal_diag(kernel, X)
