"""Input gradients of kernels by central differences: for those that give no other.

Row i of K(X, Z) depends on row i of X alone, so moving one feature of all rows at once gives that
feature's derivative for every row: 2 p evaluations, whatever the number of rows.
"""

import numpy as np

_STEP = np.cbrt(np.finfo(float).eps)  # balances truncation (step**2) and rounding (eps / step)


def cross_input_vjp(kernel, X, Z, dL_dK):
    """dL/dX (n, p) from dL/dK(X, Z) (n, m), Z held."""
    return _contract(lambda moved: kernel(moved, Z), X, _spread(np.vstack((X, Z))), dL_dK)


def diag_input_vjp(kernel, X, dL_ddiag):
    """dL/dX (n, p) from dL/ddiag (n,): both arguments of k(x, x) move."""
    return _contract(kernel.diag, X, _spread(X), dL_ddiag)


def _contract(evaluate, X, spread, weights):
    gradient = np.empty(X.shape)
    for k, step in enumerate(_STEP * spread):
        up, down = X.copy(), X.copy()
        up[:, k] += step
        down[:, k] -= step
        change = (evaluate(up) - evaluate(down)) * weights
        # the step as rounded, which differs from the one asked for where |x| is large
        gradient[:, k] = change.reshape(len(X), -1).sum(axis=1) / (up[:, k] - down[:, k])
    return gradient


def _spread(rows):
    """The scale on which each feature varies; its size, or one, where it does not vary."""
    spread = np.ptp(rows, axis=0)
    constant = spread == 0.0
    spread[constant] = np.maximum(np.abs(rows[0, constant]), 1.0)
    return spread
