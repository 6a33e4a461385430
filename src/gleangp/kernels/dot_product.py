"""Rules for kernels of the inner product: DotProduct and ArcSine."""

from __future__ import annotations

import numpy as np
from sklearn.gaussian_process.kernels import DotProduct

from gleangp.kernels.arcsine import ArcSine
from gleangp.kernels.evaluate import Evaluation, is_free, onto, rule_for, turned


@rule_for(DotProduct)
def _(kernel, A, B):
    C, square = A if B is None else B, kernel.sigma_0**2
    free = is_free(kernel.sigma_0_bounds)

    def vjp(G, inputs=True):
        theta = np.array([2.0 * square * G.sum()]) if free else np.empty(0)  # of log sigma_0, hence the 2
        if not inputs:
            return theta, A, None
        if B is None:
            return theta, (G + turned(G)) @ A, None
        return theta, onto(G @ B, A), onto(turned(G) @ A, B)

    return Evaluation(A @ turned(C) + square, vjp)


@rule_for(ArcSine)
def _(kernel, A, B):
    w, b = kernel.weight_variance, kernel.bias_variance
    parts = kernel.parts(A, B)

    def vjp(G, inputs=True):
        # dL/d inner, and dL/d first and second norm (the square root's argument, less one)
        W = (2.0 / np.pi) * G / np.sqrt(parts.gap())
        WN = W * parts.inner
        d_first = -0.5 * WN.sum(axis=-1) / (parts.first + 1.0)
        d_second = -0.5 * WN.sum(axis=-2) / (parts.second + 1.0)
        # inner and norms are all w (...) + b
        d_bias = b * (W.sum() + d_first.sum() + d_second.sum())
        d_both = WN.sum() + np.sum(d_first * parts.first) + np.sum(d_second * parts.second)
        theta = []  # alphabetical: bias first
        if is_free(kernel.bias_variance_bounds):
            theta.append(d_bias)
        if is_free(kernel.weight_variance_bounds):
            theta.append(d_both - d_bias)
        if not inputs:
            return np.array(theta), A, None
        d_first, d_second = 2.0 * d_first[..., None], 2.0 * d_second[..., None]
        if B is None:
            return np.array(theta), w * ((W + turned(W)) @ A + (d_first + d_second) * A), None
        dA, dB = w * (W @ B + d_first * A), w * (turned(W) @ A + d_second * B)
        return np.array(theta), onto(dA, A), onto(dB, B)

    return Evaluation(parts.value(), vjp)
