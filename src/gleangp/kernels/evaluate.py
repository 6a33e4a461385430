"""One evaluation of a kernel with its derivatives, on one matrix or on a stack of them.

`evaluate(kernel, A, B)` gives K(A, B) for rows A (..., n, p) and B (..., m, p), as many sets of both, and
`vjp(G)` contracts dL/dK = G with its derivatives: dL/dtheta summed over the stack, dL/dA and dL/dB.
theta is scikit-learn's: logarithms, in its order, those with bounds "fixed" left out. scikit-learn itself
gives dK/dtheta as q matrices; a contraction costs about one matrix product.

Every matrix of a stack may have a theta of its own: `MovingKernel.at` then makes the parameters arrays
(B, 1, 1) or (B, 1, p), which broadcast like the rows, and dL/dtheta is (B, q).

A kernel has one rule, which serves every model; `rules` holds those of scikit-learn. Any other kernel is
evaluated by scikit-learn's conventions, one matrix at a time, with the gradients that its class has
registered (`kernel_vjp`, `kernel_input_vjp`) or else its own `eval_gradient` and central differences.

White variance is what is in ``kernel(X)`` and ``kernel.diag(X)`` but not in ``kernel(X, Z)``. It belongs to a
row, not to the function: two measurements at the same place do not share it. `C * WhiteKernel()` is all
white, and `(C + WhiteKernel()) * RBF()` is a function of variance C with white noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process.kernels import Kernel, WhiteKernel

from gleangp._typing import FloatArray

STEP = np.cbrt(np.finfo(float).eps)  # balances truncation (step**2) and rounding (eps / step)

# dL/dtheta (q,) or (B, q), dL/dA and dL/dB; dL/dB is zero where B is A, and both arguments move with A.
# Without `inputs` the last two may be anything.
Gradients = tuple[FloatArray, FloatArray, FloatArray]
ZERO = np.zeros(1)  # the gradient where there is none


class Evaluation(NamedTuple):
    """Kernel matrices and how to contract their derivatives."""

    value: FloatArray  # (..., n, m); a constant has no axes until a caller gives it some
    vjp: Callable[..., Gradients]  # of G (..., n, m), and inputs=False if dL/dtheta is all that is wanted


def evaluate(kernel: Kernel, A: FloatArray, B: FloatArray | None = None) -> Evaluation:
    """K(A, B) of any scikit-learn kernel, or K(A, A) with white variance on the diagonal where B is None.

    A (..., n, p) and B (..., m, p) are sets of rows, or stacks of them.
    """
    value, vjp = rule(kernel, A, B)
    shape = (*A.shape[:-1], (A if B is None else B).shape[-2])
    return Evaluation(np.broadcast_to(value, shape) if np.shape(value) != shape else value, vjp)


def evaluate_diag(kernel: Kernel, X: FloatArray, white: bool = True) -> Evaluation:
    """k(x, x) (n,) of each row of X (n, p), with white variance or without it: a row is a stack of one."""
    rows = X[:, None, :]
    value, vjp = rule(kernel, rows, None if white else rows)

    def diag_vjp(g: FloatArray, inputs: bool = True) -> Gradients:
        theta, first, second = vjp(g[:, None, None], inputs=inputs)
        return theta, np.broadcast_to(first + second, rows.shape)[:, 0], ZERO

    return Evaluation(np.broadcast_to(value, (len(X), 1, 1))[:, 0, 0], diag_vjp)


def evaluate_apart(
    kernel: Kernel, X: FloatArray
) -> tuple[FloatArray, FloatArray | None, Callable[[FloatArray, FloatArray], FloatArray]]:
    """K(X, X) (B, n, n) of a stack without white variance, that apart (B, n) or None if there is none.

    Last comes the function from dL/dK and dL/dwhite to dL/dtheta.
    """
    if not has_white(kernel):
        K = evaluate(kernel, X)
        return K.value, None, lambda G, g: K.vjp(G, inputs=False)[0]
    function, whole = evaluate(kernel, X, X), evaluate(kernel, X)

    def vjp(G: FloatArray, g: FloatArray) -> FloatArray:
        on_diagonal = g[:, :, None] * np.eye(X.shape[1])
        return function.vjp(G - on_diagonal, inputs=False)[0] + whole.vjp(on_diagonal, inputs=False)[0]

    white = np.einsum("bii->bi", whole.value) - np.einsum("bii->bi", function.value)
    return function.value, white, vjp


def kernel_columns(kernel: Kernel, X: FloatArray, Z: FloatArray) -> FloatArray:
    """K(X, Z) (n, m) without white variance: a new array, free to be overwritten."""
    if len(X) == 0 or len(Z) == 0:  # which not every kernel takes
        return np.zeros((len(X), len(Z)))
    value = rule(kernel, X, Z).value
    return value if np.shape(value) == (len(X), len(Z)) else np.full((len(X), len(Z)), value)


@singledispatch
def kernel_vjp(kernel: Kernel, X: FloatArray, dL_dK: FloatArray) -> FloatArray:
    """dL/dtheta (q,) of a function of K(X), from dL/dK (n, n), white variance included.

    A rule that a user registers here for a class of their own is used by every model, also inside sums and
    products.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> X, dL_dK = np.array([[0.0], [1.0]]), np.array([[1.0, 2.0], [2.0, 3.0]])
    >>> slow = np.einsum("ij,ijq->q", dL_dK, RBF()(X, eval_gradient=True)[1])
    >>> np.allclose(kernel_vjp(RBF(), X, dL_dK), slow)
    True
    """
    return rule(kernel, X, None).vjp(dL_dK, inputs=False)[0]


@singledispatch
def kernel_input_vjp(kernel: Kernel, X: FloatArray, Z: FloatArray, dL_dK: FloatArray) -> FloatArray:
    """dL/dX (n, p) of a function of K(X, Z), from dL/dK (n, m), Z held.

    Zero where the kernel has a kink (`Matern` with nu = 1/2 at equal rows). A rule registered here for a
    user's class is used by every model.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import DotProduct
    >>> Z = np.array([[1.0, 2.0], [3.0, 5.0]])
    >>> kernel_input_vjp(DotProduct(), np.zeros((1, 2)), Z, np.array([[1.0, 10.0]]))
    array([[31., 52.]])
    """
    return np.broadcast_to(rule(kernel, X, Z).vjp(dL_dK)[1], X.shape)


def _whites(kernel: Kernel) -> Iterator[WhiteKernel]:
    """The white kernels inside a kernel, however they are wrapped."""
    if isinstance(kernel, WhiteKernel):
        yield kernel
    for value in vars(kernel).values():
        for part in value if isinstance(value, list | tuple) else [value]:
            if isinstance(part, Kernel):
                yield from _whites(part)


def has_white(kernel: Kernel) -> bool:
    """Whether any part of the kernel is white: ``kernel.diag(X)`` can differ from that of ``kernel(X, X)``.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> has_white(RBF() + WhiteKernel()), has_white(2.0 * RBF())
    (True, False)
    """
    return next(_whites(kernel), None) is not None


def signal_diag(kernel: Kernel, X: FloatArray) -> FloatArray:
    """Variance (n,) of the function itself at each row: the diagonal of ``kernel(X, X)``.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> signal_diag(2.0 * RBF() + WhiteKernel(0.5), np.zeros((3, 1)))
    array([2., 2., 2.])
    """
    if has_white(kernel):
        kernel = deepcopy(kernel)
        for white in _whites(kernel):
            white.noise_level = 0.0
    return kernel.diag(X)


def white_diag(kernel: Kernel, X: FloatArray) -> FloatArray:
    """White variance (n,) of each row; exactly zero for kernels without white."""
    return kernel.diag(X) - signal_diag(kernel, X) if has_white(kernel) else np.zeros(len(X))


class MovingKernel:
    """A private copy of a kernel that is moved from theta to theta; use it before it is moved again.

    scikit-learn sets theta by reflection, at every level of a nested kernel again, which costs as much as a
    small covariance matrix. Here the free parameters are looked up once.
    """

    def __init__(self, kernel: Any):
        self.kernel = clone(kernel)
        self.layout: list[tuple[str, int]] = []  # name and number of elements, in the order of theta
        self._slots: list[tuple[Any, str, int | slice]] = []
        self.n_dims = 0
        for h in self.kernel.hyperparameters:
            if not h.fixed:
                *path, name = h.name.split("__")
                owner = self.kernel
                for step in path:
                    owner = getattr(owner, step)
                at, end = self.n_dims, self.n_dims + h.n_elements
                self._slots.append((owner, name, slice(at, end) if np.ndim(getattr(owner, name)) else at))
                self.layout.append((h.name, h.n_elements))
                self.n_dims = end

    def at(self, theta: FloatArray) -> Any:
        """The kernel with that theta (q,), or with one for each matrix of a stack (B, q).

        In the second case it is for `evaluate` alone: its parameters are arrays (B, 1, 1) or (B, 1, p).
        """
        values = np.exp(theta)
        for owner, name, where in self._slots:
            part = values[..., where]
            if theta.ndim == 2:
                setattr(owner, name, part.reshape(len(theta), 1, -1))
            else:
                setattr(owner, name, part if isinstance(where, slice) else float(part))
        return self.kernel


def length_scales(kernel: Any, n_features: int) -> FloatArray:
    """(p,) the shortest length scale of every input over the parts of a kernel; 1 where it has none."""
    values = kernel.get_params().items()
    found = [np.broadcast_to(v, n_features) for name, v in values if name.split("__")[-1] == "length_scale"]
    return np.min(found, axis=0) if found else np.ones(n_features)


_rules: dict[type, Callable[..., Evaluation]] = {}  # by the class of a kernel


def rule_for(kernel_class: type) -> Callable[[Any], Any]:
    """Register the rule of `kernel_class`: a function of kernel, A and B that gives an `Evaluation`."""

    def register(own_rule):
        _rules[kernel_class] = own_rule
        return own_rule

    return register


def rule(kernel: Kernel, A: FloatArray, B: FloatArray | None) -> Evaluation:
    """By the rule of its class, or of the nearest class above whose ``__call__`` and ``diag`` it inherits."""
    cls: Any = type(kernel)
    known: Any = next((parent for parent in cls.__mro__ if parent in _rules), cls)
    inherits = cls.__call__ is known.__call__ and cls.diag is known.diag
    return (_rules.get(known, unknown) if inherits else unknown)(kernel, A, B)


def is_free(bounds) -> bool:
    """Whether a hyperparameter with these bounds is in theta. A `Hyperparameter` would tell, but slowly."""
    return not (isinstance(bounds, str) and bounds == "fixed")


def of_features(product: FloatArray, parameter: FloatArray) -> FloatArray:
    """Entries of dL/dtheta: (..., n, p) summed over rows, matrices that share it, and features that do."""
    sums = product.sum(-2) if np.ndim(parameter) == 3 else product.reshape(-1, product.shape[-1]).sum(0)
    return sums.sum(-1, keepdims=True) if np.shape(parameter)[-1:] in ((), (1,)) else sums


def of_number(M: FloatArray, factor: FloatArray | float, bounds: Any) -> FloatArray:
    """An entry of dL/dtheta: the factor times the sum of M, or that of each matrix for factors (B, 1, 1).

    Nothing if `bounds` are "fixed".
    """
    if not is_free(bounds):
        return np.empty(0)
    if np.ndim(factor) == 0:
        return np.array([factor * M.sum()])
    return np.asarray(factor)[:, :, 0] * M.reshape(len(M), -1).sum(axis=1)[:, None]


def side_by_side(*thetas: FloatArray) -> FloatArray:
    """Gradients of several kernels as one; those without free parameters have no stack either."""
    filled = [theta for theta in thetas if theta.shape[-1]]
    return np.concatenate(filled, axis=-1) if filled else np.empty(0)


def unknown(kernel: Kernel, A: FloatArray, B: FloatArray | None) -> Evaluation:
    """By scikit-learn's conventions, one matrix at a time."""
    own = {name: value for name, value in kernel.get_params().items() if np.ndim(value) == 3}
    flat_A, lead, parts = A.reshape(-1, *A.shape[-2:]), A.shape[:-2], []
    flat_B = [None] * len(flat_A) if B is None else B.reshape(-1, *B.shape[-2:])
    for b in range(len(flat_A)):
        values = {k: v[b, 0] if v.shape[-1] > 1 else float(v[b, 0, 0]) for k, v in own.items()}
        of_matrix = clone(kernel).set_params(**values) if own else kernel
        parts.append(_one_matrix(of_matrix, flat_A[b], flat_B[b]))
    shape = parts[0].value.shape

    def vjp(G, inputs=True):
        G = np.broadcast_to(G, (*lead, *shape)).reshape(-1, *shape)
        each = [part.vjp(g, inputs=inputs) for part, g in zip(parts, G, strict=True)]
        thetas, dA, dB = zip(*each, strict=True)
        theta = np.array(thetas) if own else np.sum(thetas, axis=0)
        if not inputs:
            return theta, ZERO, ZERO
        return theta, np.array(dA).reshape(A.shape), ZERO if B is None else np.array(dB).reshape(B.shape)

    return Evaluation(np.array([part.value for part in parts]).reshape(*lead, *shape), vjp)


def _one_matrix(kernel: Kernel, A: FloatArray, B: FloatArray | None) -> Evaluation:
    value = kernel(A) if B is None else kernel(A, B)
    # Rules that somebody registered for this kernel's class, or None.
    rules = [(f.dispatch(type(kernel)), f.dispatch(object)) for f in (kernel_vjp, kernel_input_vjp)]
    own_theta, own_input = (found if found is not default else None for found, default in rules)

    def of_theta(X, G):
        if kernel.n_dims == 0:
            return np.empty(0)
        if own_theta is not None:
            return own_theta(kernel, X, G)
        return G.reshape(-1) @ kernel(X, eval_gradient=True)[1].reshape(G.size, -1)

    def of_first(X, Z, G):
        if own_input is not None:
            return own_input(kernel, X, Z, G)
        return _by_differences(lambda moved: kernel(moved, Z), X, np.vstack((X, Z)), G)

    def vjp(G, inputs=True):
        G = np.broadcast_to(G, value.shape)
        if B is not None:
            # K(A, B) is an off-diagonal block of K([A; B]), where there is no white variance. Both
            # blocks share the weight, for rules that count on a symmetric dL/dK.
            n, m = G.shape
            joint = np.block([[np.zeros((n, n)), 0.5 * G], [0.5 * G.T, np.zeros((m, m))]])
            theta = of_theta(np.vstack((A, B)), joint)
            return theta, *((of_first(A, B, G), of_first(B, A, G.T)) if inputs else (ZERO, ZERO))
        theta = of_theta(A, G)
        if not inputs:
            return theta, ZERO, ZERO
        both = G + G.T  # kernels are symmetric, so either argument's derivative serves
        if own_input is not None and not has_white(kernel):
            return theta, of_first(A, A, both), ZERO
        np.fill_diagonal(both, 0.0)
        return theta, of_first(A, A, both) + _by_differences(kernel.diag, A, A, np.diagonal(G)), ZERO

    return Evaluation(value, vjp)


def _by_differences(value, X, rows, weights):
    """Gradient (n, p) of the weighted sum of value(X) (n, ...), of which row i depends on row i of X alone.

    By central differences, of one feature of all rows at once. The step is in proportion to how much a
    feature varies over `rows`, or to its size.
    """
    spread, gradient = np.ptp(rows, axis=0), np.empty(X.shape)
    constant = spread == 0.0
    spread[constant] = np.maximum(np.abs(rows[0, constant]), 1.0)
    for k, step in enumerate(STEP * spread):
        up, down = X.copy(), X.copy()
        up[:, k] += step
        down[:, k] -= step
        change = (value(up) - value(down)) * weights
        # the step as rounded, which differs from the one asked for where |x| is large
        gradient[:, k] = change.reshape(len(X), -1).sum(axis=1) / (up[:, k] - down[:, k])
    return gradient
