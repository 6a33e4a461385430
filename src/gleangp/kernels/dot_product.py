"""Rules for kernels of the inner product: DotProduct and ArcSine."""

import numpy as np
from sklearn.gaussian_process.kernels import DotProduct

from gleangp.kernels.arcsine import ArcSine
from gleangp.kernels.gradients import (
    Linearization,
    is_free,
    kernel_columns,
    linearize,
    linearize_diag,
    rule_for,
)


@rule_for(linearize, DotProduct)
def _(kernel, X, Z=None):
    bias = kernel.sigma_0**2

    def theta_vjp(dL_dK):  # theta is log sigma_0, hence the 2
        return np.array([2.0 * bias * dL_dK.sum()] if is_free(kernel.sigma_0_bounds) else [])

    def input_vjp(dL_dK):
        return (dL_dK + dL_dK.T) @ X if Z is None else dL_dK @ Z

    return Linearization(kernel_columns(kernel, X, X if Z is None else Z), theta_vjp, input_vjp)


@rule_for(kernel_columns, DotProduct)
def _(kernel, X, Z):
    K = X @ Z.T
    K += kernel.sigma_0**2
    return K


@rule_for(linearize_diag, DotProduct)
def _(kernel, X):
    bias = kernel.sigma_0**2

    def theta_vjp(dL_ddiag):
        return np.array([2.0 * bias * dL_ddiag.sum()] if is_free(kernel.sigma_0_bounds) else [])

    return Linearization(kernel.diag(X), theta_vjp, lambda dL_ddiag: (2.0 * dL_ddiag)[:, None] * X)


@rule_for(linearize, ArcSine)
def _(kernel, X, Z=None):
    w, b = kernel.weight_variance, kernel.bias_variance
    parts = kernel.parts(X, Z)

    def pull(dL_dK):
        """dL/d inner, and dL/d first and second norm (the square root's argument, less one)."""
        A = dL_dK * (2.0 / np.pi)
        A /= np.sqrt(parts.gap())
        AN = A * parts.inner
        d_first = -0.5 * AN.sum(axis=1) / (parts.first + 1.0)
        d_second = -0.5 * AN.sum(axis=0) / (parts.second + 1.0)
        return A, AN, d_first, d_second

    def theta_vjp(dL_dK):
        A, AN, d_first, d_second = pull(dL_dK)
        # inner and norms are all w (...) + b
        d_bias = b * (A.sum() + d_first.sum() + d_second.sum())
        d_both = AN.sum() + d_first @ parts.first + d_second @ parts.second
        gradient = []  # alphabetical: bias first
        if is_free(kernel.bias_variance_bounds):
            gradient.append(d_bias)
        if is_free(kernel.weight_variance_bounds):
            gradient.append(d_both - d_bias)
        return np.array(gradient)

    def input_vjp(dL_dK):
        A, _, d_first, d_second = pull(dL_dK)
        if Z is not None:
            return w * (A @ Z + 2.0 * d_first[:, None] * X)
        return w * ((A + A.T) @ X + 2.0 * (d_first + d_second)[:, None] * X)

    return Linearization(parts.value(), theta_vjp, input_vjp)


@rule_for(linearize_diag, ArcSine)
def _(kernel, X):
    w, b = kernel.weight_variance, kernel.bias_variance
    norm = kernel.norms(X)
    # k = (2/pi) asin(1 - 1/(norm + 1)), so dk/dnorm is this
    slope = (2.0 / np.pi) / ((norm + 1.0) * np.sqrt(2.0 * norm + 1.0))

    def theta_vjp(dL_ddiag):
        gradient = []
        if is_free(kernel.bias_variance_bounds):
            gradient.append(b * (dL_ddiag @ slope))
        if is_free(kernel.weight_variance_bounds):
            gradient.append(dL_ddiag @ (slope * (norm - b)))
        return np.array(gradient)

    def input_vjp(dL_ddiag):
        return (2.0 * w * dL_ddiag * slope)[:, None] * X

    return Linearization(kernel.diag(X), theta_vjp, input_vjp)
