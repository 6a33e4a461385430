"""Kernel values of many small tasks at once, of every pair of rows once, while a search moves the kernel.

A search evaluates one kernel on the same rows dozens of times. Squared differences and products of pairs do
not change meanwhile, so a rule keeps them, and an evaluation is an exponential of half the entries of the
matrices between two products with a few long rows. For kernels of few features that are made of the parts
below; `linearize_stack` serves the others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Kernel,
    Product,
    Sum,
    WhiteKernel,
)

from gleangp._typing import FloatArray, IntArray
from gleangp.kernels.gradients import is_free, rule_for
from gleangp.kernels.scaled_inputs import ScaledInputs
from gleangp.kernels.stacked import is_linear

_MOST_FEATURES = 8  # with a length scale each: as many squares of every pair are kept
_MOST_SCALED = 100_000  # squares of all features and pairs, where scales are shared: they stay in the cache


class Pairs:
    """Pairs (i, j >= i) of the n rows of each of T tasks, in the order of the rows of an upper triangle."""

    def __init__(self, X: FloatArray):
        T, n, _ = X.shape
        self.X = X
        self.first, self.second = np.triu_indices(n)
        self.is_row = self.first == self.second  # (m,): the pair of a row with itself
        self.shape = (T, len(self.first))

    def at(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Rows of the pairs, (T, m, ...) each, of an array (T, n, ...)."""
        return X[:, self.first], X[:, self.second]

    @property
    def entries(self) -> IntArray:
        """(m,) where the pairs stand in a matrix (n, n) that is flattened."""
        return self.first * self.X.shape[1] + self.second


# Gives the values (T, m) at the present parameters, which may be overwritten, and what turns their
# sensitivities (T, m) into those of theta, which must be called before the rule is used again.
PairRule = Callable[[Any], tuple[FloatArray, Callable[[FloatArray], FloatArray]]]


@singledispatch
def pair_rule(kernel: Kernel, pairs: Pairs) -> PairRule | None:
    """The rule by which to evaluate a kernel on pairs, for a search in which its fixed parts stay.

    Parameters
    ----------
    kernel : Kernel
        Any scikit-learn kernel.
    pairs : Pairs
        Pairs of rows.

    Returns
    -------
    PairRule or None
        To be called with the kernel as it was moved; None if the kernel has no rule.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> rule = pair_rule(2.0 * RBF(), Pairs(np.arange(6.0).reshape(3, 2, 1)))
    >>> value, theta_vjp = rule(3.0 * RBF())
    >>> value.shape
    (3, 3)
    """
    return None


@rule_for(pair_rule, RBF)
def _(kernel, pairs):
    rule = _amplified_rbf(kernel, pairs)
    return None if rule is None else lambda moved: rule(moved, 1.0, False)


def _amplified_rbf(kernel: RBF, pairs: Pairs):
    """c * RBF with one length scale or one per feature; c is folded into the exponential."""
    several, p = np.size(kernel.length_scale) > 1, pairs.X.shape[2]
    if several and p > _MOST_FEATURES:
        return None
    squares = np.zeros((p if several else 1, pairs.shape[0] * pairs.shape[1]))
    for k in range(p):
        first, second = pairs.at(pairs.X[:, :, k])
        squares[k if several else 0] += ((first - second) ** 2).reshape(-1)
    free_scale = is_free(kernel.length_scale_bounds)
    K, W = np.empty(pairs.shape), np.empty(pairs.shape)

    def rule(moved, amplitude, free_amplitude):
        precision = np.atleast_1d(moved.length_scale) ** -2.0
        np.dot(-0.5 * precision, squares, out=K.reshape(-1))
        np.exp(K, out=K)
        np.multiply(K, amplitude, out=K)

        def theta_vjp(dL_dK):
            np.multiply(dL_dK, K, out=W)
            amplitude_part = [W.sum()] if free_amplitude else []
            scale_part = precision * (squares @ W.reshape(-1)) if free_scale else []
            return np.array([*amplitude_part, *scale_part])

        return K, theta_vjp

    return rule


@rule_for(pair_rule, ConstantKernel)
def _(kernel, pairs):
    free = is_free(kernel.constant_value_bounds)

    def rule(moved):
        c = moved.constant_value
        return np.full((1, 1), c), lambda G: np.array([c * G.sum()] if free else [])

    return rule


@rule_for(pair_rule, WhiteKernel)
def _(kernel, pairs):
    free = is_free(kernel.noise_level_bounds)

    def rule(moved):
        s = moved.noise_level
        return s * pairs.is_row[None], lambda G: np.array([s * G[:, pairs.is_row].sum()] if free else [])

    return rule


@rule_for(pair_rule, Sum)
def _(kernel, pairs):
    rules = [pair_rule(kernel.k1, pairs), pair_rule(kernel.k2, pairs)]
    if None in rules:
        return None
    total = np.empty(pairs.shape)

    def rule(moved):
        (value, theta_vjp), (other, other_vjp) = rules[0](moved.k1), rules[1](moved.k2)
        return np.add(value, other, out=total), lambda G: np.concatenate([theta_vjp(G), other_vjp(G)])

    return rule


@rule_for(pair_rule, Product)
def _(kernel, pairs):
    if type(kernel.k1) is not ConstantKernel:
        return None
    free = is_free(kernel.k1.constant_value_bounds)
    if type(kernel.k2) is RBF:
        inner = _amplified_rbf(kernel.k2, pairs)
        return None if inner is None else lambda moved: inner(moved.k2, moved.k1.constant_value, free)
    return _amplified_slopes(kernel, pairs, free) if is_linear(kernel.k2) else None


def _amplified_slopes(kernel: Product, pairs: Pairs, free: bool) -> PairRule:
    """c * dot product of inputs whose scales are fixed: the products are known once and for all."""
    U = kernel.k2.scale_inputs(pairs.X)
    products = (U @ U.transpose(0, 2, 1)).reshape(len(U), -1)[:, pairs.entries]
    value = np.empty(pairs.shape)

    def rule(moved):
        c = moved.k1.constant_value
        theta_vjp = (lambda G: np.array([c * np.vdot(G, products)])) if free else (lambda G: np.empty(0))
        return np.multiply(c, products, out=value), theta_vjp

    return rule


@rule_for(pair_rule, ScaledInputs)
def _(kernel, pairs):
    if pairs.X.shape[2] * pairs.shape[0] * pairs.shape[1] > _MOST_SCALED:
        return None
    inner = _under_scales(kernel.kernel, _Features(pairs, kernel.center))
    if inner is None:
        return None
    free, single = is_free(kernel.scales_bounds), np.ndim(kernel.scales) == 0

    def rule(moved):
        relevance = np.broadcast_to(moved.scales, pairs.X.shape[2]) ** 2.0
        value, vjp = inner(moved.kernel, relevance)

        def theta_vjp(dL_dK):
            toward_theta, toward_relevance = vjp(dL_dK)
            toward_scales = 2.0 * toward_relevance * relevance  # in their logarithms
            if not free:
                return toward_theta
            return np.append(toward_theta, toward_scales.sum() if single else toward_scales)

        return value, theta_vjp

    return rule


class _Features:
    """Squared differences and products of every feature, (p, T m), and of which pairs."""

    def __init__(self, pairs: Pairs, center):
        self.pairs = pairs
        first, second = pairs.at(pairs.X - center)
        p = first.shape[2]
        self.squares = np.ascontiguousarray(((first - second) ** 2).reshape(-1, p).T)
        self.products = np.ascontiguousarray((first * second).reshape(-1, p).T)


# As a PairRule, at given relevances (p,) of the features; sensitivities are those of theta and of these.
_ScaledRule = Callable[[Any, FloatArray], tuple[FloatArray, Callable[[FloatArray], tuple[Any, Any]]]]


def _under_scales(kernel: Kernel, features: _Features) -> _ScaledRule | None:
    """The rule of a kernel that sees inputs whose scales are learnt, by its parts; None if one has none."""
    if type(kernel) is Sum:
        return _scaled_sum(kernel, features)
    if type(kernel) is Product and type(kernel.k1) is ConstantKernel:
        return _scaled_amplitude(kernel, features)
    if type(kernel) is RBF:
        return _scaled_rbf(kernel, features)
    if type(kernel) is DotProduct:
        return _scaled_slopes(kernel, features)
    if type(kernel) in (ConstantKernel, WhiteKernel):  # which do not look at inputs
        plain, nothing = pair_rule(kernel, features.pairs), np.zeros(len(features.squares))

        def rule(moved, relevance):
            value, theta_vjp = plain(moved)
            return value, lambda G: (theta_vjp(G), nothing)

        return rule
    return None


def _scaled_sum(kernel: Sum, features: _Features) -> _ScaledRule | None:
    rules = [_under_scales(kernel.k1, features), _under_scales(kernel.k2, features)]
    if None in rules:
        return None

    def rule(moved, relevance):
        (value, vjp), (other, other_vjp) = rules[0](moved.k1, relevance), rules[1](moved.k2, relevance)

        def both(G):
            (theta, toward), (other_theta, other_toward) = vjp(G), other_vjp(G)
            return np.concatenate([theta, other_theta]), toward + other_toward

        return value + other, both

    return rule


def _scaled_amplitude(kernel: Product, features: _Features) -> _ScaledRule | None:
    inner, free = _under_scales(kernel.k2, features), is_free(kernel.k1.constant_value_bounds)
    if inner is None:
        return None

    def rule(moved, relevance):
        c, (K, inner_vjp) = moved.k1.constant_value, inner(moved.k2, relevance)
        value = c * K

        def vjp(G):
            theta, toward = inner_vjp(c * G)
            return np.concatenate([[np.vdot(G, value)], theta]) if free else theta, toward

        return value, vjp

    return rule


def _scaled_rbf(kernel: RBF, features: _Features) -> _ScaledRule:
    free, several, shape = is_free(kernel.length_scale_bounds), kernel.anisotropic, features.pairs.shape

    def rule(moved, relevance):
        precision = np.asarray(moved.length_scale, dtype=np.float64) ** -2.0
        K = np.exp((-0.5 * relevance * precision) @ features.squares).reshape(shape)

        def vjp(G):
            per_feature = precision * (features.squares @ (G * K).reshape(-1))
            toward_scale = per_feature * relevance
            theta = np.atleast_1d(toward_scale if several else toward_scale.sum()) if free else np.empty(0)
            return theta, -0.5 * per_feature

        return K, vjp

    return rule


def _scaled_slopes(kernel: DotProduct, features: _Features) -> _ScaledRule:
    free, shape = is_free(kernel.sigma_0_bounds), features.pairs.shape

    def rule(moved, relevance):
        square = moved.sigma_0**2
        value = (relevance @ features.products).reshape(shape) + square

        def vjp(G):
            theta = np.array([2.0 * square * G.sum()]) if free else np.empty(0)
            return theta, features.products @ G.reshape(-1)

        return value, vjp

    return rule
