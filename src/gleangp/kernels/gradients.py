"""Values and contracted gradients of kernels, without an (n, n, q) array.

An objective L of a kernel matrix K needs dL/dtheta = sum_ij dL/dK_ij dK_ij/dtheta. scikit-learn
gives dK/dtheta as an array of q matrices; here every kernel instead says how to contract a given
dL/dK (a vector-Jacobian product, "vjp"), which for the kernels we know costs one matrix product.
theta is scikit-learn's: logarithms, in its order, those with bounds "fixed" left out.

`linearize` is the one operation a kernel's rule has to implement; the other functions are views
of it. A kernel without a rule gets the fallbacks below: right for whatever follows
scikit-learn's conventions, at their cost.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch, wraps

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from gleangp._typing import FloatArray
from gleangp.kernels.differences import cross_input_vjp, diag_input_vjp
from gleangp.kernels.white import has_white
from gleangp.numerics.linalg import mirror_upper

_BLOCK = 64  # rows at a time where only the diagonal of a square block is wanted


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
    spare : bool, default=False
        For rules: no vjp uses `value`, so that a sum or a factor may be formed in its place (`own_value`).
    both_vjps : callable or None, default=None
        For rules: dL/dtheta, dL/dX and sum_ij dL/dvalue_ij value_ij (None where it would take work of its
        own) from the upper triangle of a symmetric dL/dvalue, where they share work.
    """

    value: FloatArray
    theta_vjp: Callable[[FloatArray], FloatArray]
    input_vjp: Callable[[FloatArray], FloatArray]
    spare: bool = False
    both_vjps: Callable[[FloatArray], tuple[FloatArray, FloatArray, float | None]] | None = None

    def __post_init__(self):
        self.value.setflags(write=False)

    def own_value(self) -> FloatArray:
        """The value as an array to write into: itself where no vjp needs it, which must not be read then."""
        if not self.spare:
            return self.value.copy()
        self.value.setflags(write=True)
        return self.value

    def symmetric_vjps(self, dL_dK: FloatArray) -> tuple[FloatArray, FloatArray]:
        """dL/dtheta (q,) and dL/dX (n, p), both arguments moving, from a symmetric dL/dvalue (n, n).

        Its entries below the diagonal are not read.
        """
        return self.contract(dL_dK)[:2]

    def contract(self, dL_dK: FloatArray) -> tuple[FloatArray, FloatArray, float | None]:
        """As `both_vjps`, for any kernel."""
        if self.both_vjps is not None:
            return self.both_vjps(dL_dK)
        whole = mirror_upper(dL_dK.copy())
        return self.theta_vjp(whole), self.input_vjp(whole), None


@singledispatch
def linearize(kernel: Kernel, X: FloatArray, Z: FloatArray | None = None) -> Linearization:
    """Evaluate a kernel matrix and keep what its derivatives need.

    Parameters
    ----------
    kernel : Kernel
        Any scikit-learn kernel. Register a rule for your own class with
        ``@linearize.register``, or, less work, one on `kernel_vjp` and `kernel_input_vjp`.
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
    return _linearize_unknown(kernel, X, Z)


@singledispatch
def kernel_vjp(kernel: Kernel, X: FloatArray, dL_dK: FloatArray) -> FloatArray:
    """Gradient with respect to theta of a function of K(X).

    Parameters
    ----------
    kernel : Kernel
        Any scikit-learn kernel. A rule that a user registers here for a class of their own is
        honoured by `linearize`, also when the kernel is a part of sums and products.
    X : ndarray of shape (n, p)
        Both arguments of the kernel.
    dL_dK : ndarray of shape (n, n)
        Gradient with respect to K(X), white variance included.

    Returns
    -------
    ndarray of shape (q,)
        dL/dtheta.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from gleangp.kernels import kernel_vjp
    >>> X, dL_dK = np.array([[0.0], [1.0]]), np.array([[1.0, 2.0], [2.0, 3.0]])
    >>> slow = np.einsum("ij,ijq->q", dL_dK, RBF()(X, eval_gradient=True)[1])
    >>> np.allclose(kernel_vjp(RBF(), X, dL_dK), slow)
    True
    """
    return linearize(kernel, X).theta_vjp(dL_dK)


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


@singledispatch
def kernel_input_vjp(kernel: Kernel, X: FloatArray, Z: FloatArray, dL_dK: FloatArray) -> FloatArray:
    """Gradient with respect to X of a function of K(X, Z), Z held.

    Parameters
    ----------
    kernel : Kernel
        Any scikit-learn kernel. A rule registered here for a user's class is honoured by
        `linearize`.
    X, Z : ndarray of shape (n, p) and (m, p)
        The arguments of the kernel. Where they are one matrix that moves as a whole, use
        ``linearize(kernel, X).input_vjp(dL_dK)``.
    dL_dK : ndarray of shape (n, m)
        Gradient with respect to K(X, Z).

    Returns
    -------
    ndarray of shape (n, p)
        dL/dX. Zero is returned where the kernel has a kink (`Matern` with nu = 1/2 at equal rows).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import DotProduct
    >>> from gleangp.kernels import kernel_input_vjp
    >>> Z = np.array([[1.0, 2.0], [3.0, 5.0]])
    >>> kernel_input_vjp(DotProduct(), np.zeros((1, 2)), Z, np.array([[1.0, 10.0]]))
    array([[31., 52.]])
    """
    return linearize(kernel, X, Z).input_vjp(dL_dK)


@singledispatch
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

    def theta_vjp(dL_ddiag):
        gradient = np.zeros(kernel.n_dims)
        for start in range(0, len(X), _BLOCK):
            rows = slice(start, start + _BLOCK)
            gradient += kernel_vjp(kernel, X[rows], np.diag(dL_ddiag[rows]))
        return gradient

    def input_vjp(dL_ddiag):
        return diag_input_vjp(kernel, X, dL_ddiag)

    return Linearization(kernel.diag(X).view(), theta_vjp, input_vjp)


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
    >>> from sklearn.gaussian_process.kernels import RBF, WhiteKernel
    >>> from gleangp.kernels import kernel_diag_vjp
    >>> kernel_diag_vjp(2.0 * RBF() + WhiteKernel(0.5), np.zeros((3, 1)), np.ones(3))
    array([6. , 0. , 1.5])
    """
    return linearize_diag(kernel, X).theta_vjp(dL_ddiag)


@singledispatch
def kernel_columns(kernel: Kernel, X: FloatArray, Z: FloatArray) -> FloatArray:
    """K(X, Z) without white variance, by matrix products where that is accurate.

    Parameters
    ----------
    kernel : Kernel
        Any scikit-learn kernel.
    X, Z : ndarray of shape (n, p) and (m, p)
        The arguments of the kernel.

    Returns
    -------
    ndarray of shape (n, m)
        A new array, free to be overwritten.

    Notes
    -----
    Squared distances of `RBF` and `RationalQuadratic` are one matrix product on centred inputs.
    Kernels of the distance itself (`Matern`, `ExpSineSquared`) use differences, because the root
    of a rounded square has half the digits.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF, WhiteKernel
    >>> from gleangp.kernels import kernel_columns
    >>> kernel_columns(3.0 * RBF() + WhiteKernel(), np.zeros((2, 1)), np.zeros((1, 1)))
    array([[3.],
           [3.]])
    """
    if len(X) == 0 or len(Z) == 0:  # which not every kernel takes
        return np.zeros((len(X), len(Z)))
    return kernel(X, Z)


def rule_for(function, kernel_class):
    """Register a rule for `kernel_class`, kept off subclasses that compute something else.

    A third-party class may derive from a kernel and redefine ``__call__`` or ``diag`` (as
    scikit-learn's own `Matern` does with `RBF`): the parent's rule would be silently wrong.
    """

    def register(rule):
        @function.register(kernel_class)
        @wraps(rule)
        def guarded(kernel, *args, **options):
            cls = type(kernel)
            if cls is not kernel_class and (
                cls.__call__ is not kernel_class.__call__ or cls.diag is not kernel_class.diag
            ):
                return function.dispatch(object)(kernel, *args, **options)
            return rule(kernel, *args, **options)

        return rule

    return register


def is_free(bounds) -> bool:
    """Whether a hyperparameter with these bounds is in theta.

    The same as ``not kernel.hyperparameter_name.fixed`` without making a `Hyperparameter`, which
    would cost as much as the matrix product of a small problem.
    """
    return not (isinstance(bounds, str) and bounds == "fixed")


def _linearize_unknown(kernel, X, Z):
    def theta_vjp(dL_dK):
        if kernel.n_dims == 0:
            return np.empty(0)
        if Z is None:
            return _square_vjp(kernel, X, dL_dK)
        # K(X, Z) is an off-diagonal block of K([X; Z]), where there is no white variance. Both
        # blocks share the weight, for rules that count on a symmetric dL/dK.
        n, m = dL_dK.shape
        stacked = np.zeros((n + m, n + m))
        stacked[:n, n:] = 0.5 * dL_dK
        stacked[n:, :n] = 0.5 * dL_dK.T
        return _square_vjp(kernel, np.vstack((X, Z)), stacked)

    def input_vjp(dL_dK):
        if Z is not None:
            return _first_argument_vjp(kernel, X, Z, dL_dK)
        both = dL_dK + dL_dK.T  # kernels are symmetric, so either argument's derivative serves
        if not has_white(kernel) and _user_rule(kernel_input_vjp, kernel) is not None:
            return _first_argument_vjp(kernel, X, X, both)
        np.fill_diagonal(both, 0.0)
        gradient = _first_argument_vjp(kernel, X, X, both)
        gradient += diag_input_vjp(kernel, X, np.diagonal(dL_dK))
        return gradient

    value = kernel(X) if Z is None else kernel(X, Z)
    return Linearization(value.view(), theta_vjp, input_vjp)


def _square_vjp(kernel, X, dL_dK):
    rule = _user_rule(kernel_vjp, kernel)
    if rule is not None:
        return rule(kernel, X, dL_dK)
    gradient = kernel(X, eval_gradient=True)[1]
    return dL_dK.reshape(-1) @ gradient.reshape(dL_dK.size, -1)


def _first_argument_vjp(kernel, X, Z, dL_dK):
    rule = _user_rule(kernel_input_vjp, kernel)
    if rule is not None:
        return rule(kernel, X, Z, dL_dK)
    return cross_input_vjp(kernel, X, Z, dL_dK)


def _user_rule(function, kernel):
    """The rule somebody registered for this kernel's class, or None."""
    rule = function.dispatch(type(kernel))
    return None if rule is function.dispatch(object) else rule
