"""Rules for kernels of the inner product: DotProduct and ArcSine."""

from __future__ import annotations

import numpy as np
from sklearn.gaussian_process.kernels import DotProduct

from gleangp.kernels.arcsine import ArcSine
from gleangp.kernels.evaluate import Evaluation, is_free, of_number, onto, rule_for, side_by_side, turned


@rule_for(DotProduct)
def _(kernel, A, B):
    C, square = A if B is None else B, kernel.sigma_0**2
    free = is_free(kernel.sigma_0_bounds)

    def vjp(G, inputs=True):
        theta = of_number(G, 2.0 * square) if free else np.empty(0)  # of log sigma_0, hence the 2
        if not inputs:
            return theta, A, None
        if B is None:
            return theta, (G + turned(G)) @ A, None
        return theta, onto(G @ B, A), onto(turned(G) @ A, B)

    value = A @ turned(C)
    if np.any(square):
        value = value + square
    return Evaluation(value, vjp)


@rule_for(ArcSine)
def _(kernel, A, B):
    w, b = np.broadcast_arrays(kernel.weight_variance, kernel.bias_variance)
    parts = kernel.parts(A, B)

    def vjp(G, inputs=True):
        # dL/d inner, and dL/d first and second norm (the square root's argument, less one)
        W = (2.0 / np.pi) * G / np.sqrt(parts.gap())
        WN = W * parts.inner
        d_first = -0.5 * WN.sum(axis=-1) / (parts.first + 1.0)
        d_second = -0.5 * WN.sum(axis=-2) / (parts.second + 1.0)
        # inner and norms are all w (...) + b
        one = b / b
        d_bias = of_number(W, b) + of_number(d_first, b) + of_number(d_second, b)
        d_both = of_number(WN, one)
        d_both = d_both + of_number(d_first * parts.first, one) + of_number(d_second * parts.second, one)
        theta = side_by_side(  # alphabetical: bias first
            d_bias if is_free(kernel.bias_variance_bounds) else np.empty(0),
            d_both - d_bias if is_free(kernel.weight_variance_bounds) else np.empty(0),
        )
        if not inputs:
            return theta, A, None
        d_first, d_second = 2.0 * d_first[..., None], 2.0 * d_second[..., None]
        if B is None:
            return theta, w * ((W + turned(W)) @ A + (d_first + d_second) * A), None
        dA, dB = w * (W @ B + d_first * A), w * (turned(W) @ A + d_second * B)
        return theta, onto(dA, A), onto(dB, B)

    return Evaluation(parts.value(), vjp)
