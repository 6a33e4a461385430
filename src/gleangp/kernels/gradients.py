"""Views of `evaluate` for one matrix: value, gradient in theta, gradient in the inputs, each on its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from gleangp._typing import FloatArray
from gleangp.kernels.evaluate import evaluate, evaluate_diag


@dataclass(frozen=True, slots=True, eq=False)
class Linearization:
    """A kernel matrix (or diagonal) and its derivatives at one theta and one set of inputs.

    Attributes
    ----------
    value : ndarray
        The matrix (n, n) or (n, m), or the diagonal (n,). Read-only, because the derivatives
        use it: copy it before writing into it.
    theta_vjp : callable
        dL/dtheta (q,) from dL/dvalue, which need not be symmetric.
    input_vjp : callable
        dL/dX (n, p) from dL/dvalue. Where X is both arguments, both move.
    """

    value: FloatArray
    theta_vjp: Callable[[FloatArray], FloatArray]
    input_vjp: Callable[[FloatArray], FloatArray]


def linearize(kernel: Kernel, X: FloatArray, Z: FloatArray | None = None) -> Linearization:
    """Evaluate a kernel matrix and keep what its derivatives need.

    Parameters
    ----------
    kernel : Kernel
        Any scikit-learn kernel.
    X : ndarray of shape (n, p)
        First argument.
    Z : ndarray of shape (m, p), default=None
        Second argument; None means X itself, with the kernel's white variance on the diagonal.

    Returns
    -------
    Linearization
        ``.value``, ``.theta_vjp(dL_dK)`` and ``.input_vjp(dL_dK)``.

    Notes
    -----
    A kernel without a rule is evaluated by scikit-learn: its theta derivatives come from
    ``eval_gradient`` (O(n**2 q) memory; for K(X, Z) on the stacked rows of X and Z), its input
    derivatives from central differences (2 p evaluations, about 1e-9 relative).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF, WhiteKernel
    >>> from gleangp.kernels import linearize
    >>> K = linearize(2.0 * RBF(0.5) + WhiteKernel(0.1), np.array([[0.0], [1.0]]))
    >>> K.value.round(3)
    array([[2.1  , 0.271],
           [0.271, 2.1  ]])
    >>> K.theta_vjp(np.ones((2, 2))).round(3)  # log of amplitude, length scale and noise
    array([4.541, 2.165, 0.2  ])
    """
    return _views(evaluate(kernel, X, Z), X)


def linearize_diag(kernel: Kernel, X: FloatArray) -> Linearization:
    """Evaluate ``kernel.diag(X)`` and keep what its derivatives need.

    Parameters
    ----------
    kernel : Kernel
        Any scikit-learn kernel.
    X : ndarray of shape (n, p)
        The rows.

    Returns
    -------
    Linearization
        ``.value`` (n,) includes white variance; the vjps take dL/ddiag (n,).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import DotProduct
    >>> from gleangp.kernels import linearize_diag
    >>> diag = linearize_diag(DotProduct(1.0), np.array([[2.0], [3.0]]))
    >>> diag.value
    array([ 5., 10.])
    >>> diag.input_vjp(np.ones(2))
    array([[4.],
           [6.]])
    """
    return _views(evaluate_diag(kernel, X), X)


def kernel_cross_vjp(kernel: Kernel, X: FloatArray, Z: FloatArray, dL_dK: FloatArray) -> FloatArray:
    """Gradient with respect to theta of a function of K(X, Z).

    Parameters
    ----------
    kernel : Kernel
        Any scikit-learn kernel.
    X, Z : ndarray of shape (n, p) and (m, p)
        The arguments of the kernel.
    dL_dK : ndarray of shape (n, m)
        Gradient with respect to K(X, Z).

    Returns
    -------
    ndarray of shape (q,)
        dL/dtheta. White variance is no part of K(X, Z); its entry is zero.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import DotProduct, WhiteKernel
    >>> from gleangp.kernels import kernel_cross_vjp
    >>> kernel_cross_vjp(DotProduct(1.0) + WhiteKernel(), np.eye(2), np.eye(2), np.eye(2))
    array([4., 0.])
    """
    return linearize(kernel, X, Z).theta_vjp(dL_dK)


def kernel_diag_vjp(kernel: Kernel, X: FloatArray, dL_ddiag: FloatArray) -> FloatArray:
    """Gradient with respect to theta of a function of ``kernel.diag(X)``.

    Parameters
    ----------
    kernel : Kernel
        Any scikit-learn kernel.
    X : ndarray of shape (n, p)
        The rows.
    dL_ddiag : ndarray of shape (n,)
        Gradient with respect to the diagonal, white variance included.

    Returns
    -------
    ndarray of shape (q,)
        dL/dtheta.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import DotProduct, WhiteKernel
    >>> from gleangp.kernels import kernel_diag_vjp
    >>> kernel_diag_vjp(2.0 * DotProduct() + WhiteKernel(0.5), np.zeros((3, 1)), np.ones(3))
    array([ 6. , 12. ,  1.5])
    """
    return linearize_diag(kernel, X).theta_vjp(dL_ddiag)


def _views(K, X: FloatArray) -> Linearization:
    value = K.value.view()
    value.setflags(write=False)
    return Linearization(
        value,
        lambda G: K.vjp(G, inputs=False)[0],
        lambda G: np.array(np.broadcast_to(K.vjp(G)[1], X.shape)),
    )
