"""The prior of every model: rows in blocks, and a basis that carries the covariance between blocks.

A model is a list of terms, each a kernel k with loadings L (M, R) and own weights kappa (M,):

    f_t(x) = sum over terms of  sum_r L[t, r] g_r(x) + sqrt(kappa[t]) own_t(x),    g_r, own_t ~ GP(0, k).

Rows lie in blocks b. With basis points Z, Phi = chol(K_zz)^-1 K_zn, and the features F (n, D) that stack the
loadings times Phi over r and terms,

    f = F u + r,    u ~ N(0, I),    r_b ~ N(0, H_b) independent,    H_b = K_bb - F_b F_b^T:

the partially independent conditional of Snelson & Ghahramani 2007. Within a block the covariance is exact.
One block is the exact Gaussian process; no basis means independent blocks; blocks of one row are FITC.

A task with several blocks has a basis of its own for the functions that no other task shares. Its features
belong to its blocks alone, which `Group` keeps together: `evidence` eliminates them group by group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gleangp._state import check_arrays
from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Layout, Stack
from gleangp.kernels import white_diag
from gleangp.kernels.evaluate import Evaluation, evaluate
from gleangp.numerics.linalg import cholesky, solve_lower

NUGGET = 1e-8  # of the mean prior variance at the basis: float64 kernels are accurate to little more
_KEPT_ENTRIES = 20_000_000  # of all matrices and features (160 MB); above that they are computed again


@dataclass(frozen=True, eq=False)
class Term:
    """One kernel, and how the tasks share it."""

    kernel: Any
    loadings: FloatArray  # (M, R); R = 0: no function is shared
    own: FloatArray  # (M,) kappa >= 0

    def _check_state(self) -> None:
        check_arrays(self, loadings="M R", own="M >=0")

    @property
    def within(self) -> FloatArray:
        """(M,) weight of the kernel inside each task: kappa + |L|^2."""
        return self.own + np.einsum("tr,tr->t", self.loadings, self.loadings)

    def between(self, codes: IntArray, others: IntArray) -> FloatArray:
        """Weights (..., n, m) of the kernel between rows of tasks `codes` (..., n) and `others` (..., m)."""
        same = codes[..., :, None] == others[..., None, :]
        weights = self.loadings[codes] @ self.loadings[others].swapaxes(-1, -2)
        return weights + np.where(same, self.own[codes][..., :, None], 0.0)


def covariance(
    terms: Sequence[Term], A: FloatArray, codes: IntArray, B: FloatArray, others: IntArray
) -> FloatArray:
    """Prior covariance between rows A (..., n, p) and B (..., m, p) of the tasks given."""
    total = np.zeros((*A.shape[:-1], B.shape[-2]))
    for term in terms:
        weights = term.between(codes, others)
        if weights.any():
            total += weights * evaluate(term.kernel, A, B).value
    return total


def white_variance(terms: Sequence[Term], X: FloatArray, codes: IntArray) -> FloatArray:
    """(n,) white variance of the kernels at rows X (n, p), which belongs to each row alone."""
    return np.sum([t.within[codes] * white_diag(t.kernel, X) for t in terms], axis=0)


class Basis:
    """Basis points of one kernel: chol(K_zz), and what gradients need of it."""

    def __init__(self, kernel: Any, Z: FloatArray):
        self.kernel, self.Z = kernel, Z
        self.K = evaluate(kernel, Z, Z)  # two arguments: white variance is not a part of the function
        C = np.array(self.K.value, order="F")
        C.flat[:: len(C) + 1] += NUGGET * np.mean(np.diagonal(C))
        self.chol, self.jitter = cholesky(C)

    def features(self, X: FloatArray) -> tuple[Evaluation, FloatArray]:
        """K(X, Z), and Phi^T (n, d)."""
        K = evaluate(self.kernel, X, self.Z)
        return K, solve_lower(self.chol, K.value.T).T

    def gradients(self, inside: FloatArray) -> tuple[FloatArray, FloatArray]:
        """dE/dtheta and dE/dZ through K_zz, from `inside` = dE/dPhi Phi^T (d, d).

        By invariance under rotations of the basis: K_zz enters through its factor alone, and
        dE/dK_zz = -1/2 chol^-T sym(inside) chol^-1.
        """
        half = solve_lower(self.chol, np.ascontiguousarray(0.5 * (inside + inside.T)), transposed=True)
        d_K = -0.5 * solve_lower(self.chol, np.ascontiguousarray(half.T), transposed=True)
        d_K = 0.5 * (d_K + d_K.T)
        d_K.flat[:: len(d_K) + 1] += NUGGET * np.mean(np.diagonal(d_K))  # the nugget moves too
        theta, dA, dB = self.K.vjp(d_K)
        return theta, np.broadcast_to(dA + dB, self.Z.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Features of one term on one basis: weights of every task times Phi."""

    term: int
    basis: Basis
    task: int | None = None  # whose own functions it carries; None: the functions that tasks share

    def weights(self, terms: Sequence[Term]) -> FloatArray:
        """(M, R) loadings, or (M, 1) roots of the own weights."""
        term = terms[self.term]
        return term.loadings if self.task is None else np.sqrt(term.own)[:, None]


def parts_on(terms: Sequence[Term], Z: FloatArray, task: int | None = None) -> list[Part]:
    """The terms with features on a basis: that of the functions that tasks share, or that of one task."""
    if task is None:
        used = [k for k, term in enumerate(terms) if term.loadings.shape[1] and len(Z)]
    else:
        used = [k for k, term in enumerate(terms) if term.own[task] > 0.0]
    return [Part(k, Basis(terms[k].kernel, Z), task) for k in used]


def stacked_features(weights: FloatArray, Phi: FloatArray) -> FloatArray:
    """(..., R d) of rows with weights (..., R) and Phi^T (..., d)."""
    every = weights[..., None] * Phi[..., None, :]
    return every.reshape(*every.shape[:-2], every.shape[-2] * every.shape[-1])


Weights = tuple[FloatArray, FloatArray]  # dE/dloadings (M, R) and dE/down (M,), to add to


class BlockCovariance:
    """Covariance of one term within every block of a stack."""

    def __init__(self, term: Term, stack: Stack, X: FloatArray):
        self._term, self.stack, self._K = term, stack, evaluate(term.kernel, X)
        self._weight: FloatArray | None = term.within[stack.codes[:, 0]][:, None, None]  # of one task
        if stack.mixed and (term.own.any() or (term.loadings != term.loadings[0]).any()):
            self._weight = term.between(stack.codes, stack.codes)
        elif (self._weight == 1.0).all():
            self._weight = None  # a product with it is a pass over all entries

    @property
    def value(self) -> FloatArray:
        """(B, m, m)."""
        return self._K.value if self._weight is None else self._weight * self._K.value

    def gradients(self, G: FloatArray, weights: Weights | None) -> tuple[FloatArray, FloatArray]:
        """dE/dtheta and dE/dX (B, m, p) from G = dE/dH; adds those of the weights, if wanted."""
        theta, d_rows, _ = self._K.vjp(G if self._weight is None else self._weight * G)
        if weights is not None:
            (loadings, own), L = weights, self._term.loadings
            codes, tasks = self.stack.codes, self.stack.codes[:, 0]
            if self.stack.mixed:
                GK = G * self._K.value
                np.add.at(own, codes, np.sum(GK * (codes[:, :, None] == codes[:, None, :]), axis=2))
                np.add.at(loadings, codes, 2.0 * (GK @ L[codes]))
            else:
                total = np.einsum("bij,bij->b", G, self._K.value)
                np.add.at(own, tasks, total)
                np.add.at(loadings, tasks, 2.0 * L[tasks] * total[:, None])
        return theta, d_rows


class WithinTasks:
    """The same for a term that no tasks share, in one block of several tasks: it is zero between tasks.

    With many small tasks, the kernel of all pairs of rows would take most of the time of a fit.
    """

    def __init__(self, term: Term, stack: Stack, X: FloatArray):
        inputs = np.vstack([X[0], X[0, :1]])  # with a padded row
        self._parts = [BlockCovariance(term, part, inputs[part.rows]) for part in stack.by_task]
        self._shape = inputs.shape

    @property
    def value(self) -> FloatArray:
        """(1, m, m)."""
        H = np.zeros((1, self._shape[0], self._shape[0]))
        for part in self._parts:
            rows = part.stack.rows
            H[0, rows[:, :, None], rows[:, None, :]] = part.value
        return H[:, :-1, :-1]

    def gradients(self, G: FloatArray, weights: Weights | None) -> tuple[FloatArray, FloatArray]:
        """As `BlockCovariance.gradients`."""
        m, theta, d_rows = G.shape[1], np.zeros(1), np.zeros(self._shape)
        for part in self._parts:
            rows, real = np.minimum(part.stack.rows, m - 1), part.stack.rows < m
            of_part = G[0, rows[:, :, None], rows[:, None, :]]
            if not real.all():
                of_part *= real[:, :, None] & real[:, None, :]
            of_theta, d_input = part.gradients(of_part, weights)
            theta = theta + of_theta
            d_rows[part.stack.rows] += d_input
        return theta, d_rows[None, :m]


@dataclass(frozen=True, slots=True, eq=False)
class BuiltStack:
    """Covariances and features of a stack, with what gradients need."""

    stack: Stack
    H: FloatArray  # (B, m, m)
    F: FloatArray  # (B, m, D)
    covariances: list[BlockCovariance | WithinTasks]  # per term
    crosses: list[tuple[Part, Evaluation, FloatArray]]  # per part: K(X, Z) and Phi (B * m, d)
    last: list[Any] = field(default_factory=list)  # what `evidence` found under the last sites


class BlockPrior:
    """Covariance of all rows under given terms and bases.

    X (n, p) are inputs as the kernels see them, Z (d, p) common basis points. `elsewhere` makes a `map` of
    this prior that other processes compute; it is used where stacks would take too much memory to be kept
    here. Without `gradients` what these need is not kept, which takes several times the memory of the rest.
    """

    def __init__(
        self,
        terms: Sequence[Term],
        X: FloatArray,
        layout: Layout,
        Z: FloatArray,
        elsewhere: Any = None,
        *,
        gradients: bool = True,
    ):
        self.terms, self.X, self.layout, self.Z, self._gradients = list(terms), X, layout, Z, gradients
        self.common = parts_on(self.terms, Z)
        self.parts: list[list[Part]] = []  # the features of every group, in their order
        for group in layout.groups:
            own = [] if group.Z is None else parts_on(self.terms, group.Z, group.task)
            self.parts.append(self.common + own)
        D = max((self.n_features(g) for g in range(len(self.parts))), default=0)
        widest = max((s.rows.shape[1] for g in layout.groups for s in g.stacks), default=0)
        self.keeps = len(X) * (widest + D) <= _KEPT_ENTRIES
        self._kept: dict[tuple[int, int], BuiltStack] = {}
        self._elsewhere = None if elsewhere is None or self.keeps else elsewhere(self)

    def n_features(self, group: int | None = None) -> int:
        """Features of the blocks of a group; None: those that all blocks share."""
        parts = self.common if group is None else self.parts[group]
        return sum(len(part.basis.Z) * part.weights(self.terms).shape[1] for part in parts)

    @property
    def jitter(self) -> float:
        """Largest jitter that the factor of a basis needed."""
        return max((part.basis.jitter for parts in self.parts for part in parts), default=0.0)

    def stacks(self, group: int) -> Iterable[BuiltStack]:
        """The stacks of a group; computed again on every pass where they would take too much memory."""
        for k, stack in enumerate(self.layout.groups[group].stacks):
            built = self._kept.get((group, k))
            if built is None:
                built = self._build(stack, self.parts[group])
                if self.keeps:
                    self._kept[group, k] = built
            yield built

    def map(
        self,
        function: Callable[..., Any],
        by_row: Sequence[np.ndarray],
        shared: tuple[Any, ...] = (),
        by_group: Sequence[Any] | None = None,
    ) -> Iterator[tuple[int, IntArray, Any]]:
        """A function of every stack in turn: its group, its rows, and the result.

        The function gets the built stack, what `by_group` has for its group, the entries (B, m) of its rows
        in the arrays `by_row` (n + 1,), whose last entry is for padded rows, and what is shared by all.
        """
        by_group = [None] * len(self.parts) if by_group is None else by_group
        if self._elsewhere is not None:
            yield from self._elsewhere(function, by_row, shared, by_group)
            return
        for g, of_group in enumerate(by_group):
            for built in self.stacks(g):
                rows = built.stack.rows
                yield g, rows, function(built, of_group, *(values[rows] for values in by_row), *shared)

    def _build(self, stack: Stack, parts: list[Part]) -> BuiltStack:
        B, m = stack.rows.shape
        X = self.X[np.minimum(stack.rows, len(self.X) - 1)]
        H, F, covariances, crosses = np.zeros((B, m, m)), [np.zeros((B, m, 0))], [], []
        for term in self.terms:
            of_one_task = stack.mixed and B == 1 and term.loadings.shape[1] == 0
            covariance = (WithinTasks if of_one_task else BlockCovariance)(term, stack, X)
            H += covariance.value
            covariances += [covariance] if self._gradients else []
        for part in parts:
            K, Phi = part.basis.features(X.reshape(B * m, -1))
            crosses += [(part, K, Phi)] if self._gradients else []
            F.append(stacked_features(part.weights(self.terms)[stack.codes], Phi.reshape(B, m, -1)))
        F_all = np.concatenate(F, axis=2)
        if F_all.shape[2]:
            H -= F_all @ F_all.transpose(0, 2, 1)
        return BuiltStack(stack, H, F_all, covariances, crosses)
