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
from functools import cached_property
from typing import Any

import numpy as np

from gleangp._state import check_arrays
from gleangp._typing import BoolArray, FloatArray, IntArray
from gleangp.kernels.evaluate import Evaluation, evaluate
from gleangp.numerics.linalg import cholesky, solve_lower

NUGGET = 1e-8  # of the mean prior variance at the basis: float64 kernels are accurate to little more
_STACK_ENTRIES = 2_000_000  # of one array of matrices or features
_STACK_COST = 20_000  # entries of padded rows that cost as much as one more stack does
_LEAST_WIDTH = 100  # that a row counts for, whatever its block: it has features too
_KEPT_ENTRIES = 20_000_000  # of all matrices and features (160 MB); above that they are computed again


@dataclass(frozen=True, eq=False)
class Term:
    """One kernel, and how the tasks share it."""

    kernel: Any
    loadings: FloatArray  # (M, R); R = 0: no function is shared
    own: FloatArray  # (M,) kappa >= 0

    def _check_state(self) -> None:
        """Raise if the parts do not fit together (a damaged model file)."""
        check_arrays(self, loadings="M R", own="M >=0")

    @property
    def within(self) -> FloatArray:
        """(M,) weight of the kernel inside each task: kappa + |L|^2."""
        return self.own + np.einsum("tr,tr->t", self.loadings, self.loadings)

    def between(self) -> FloatArray:
        """(M, M) covariance of the tasks: L L^T + diag(kappa)."""
        return self.loadings @ self.loadings.T + np.diag(self.own)


@dataclass(frozen=True, eq=False)
class Stack:
    """Blocks of nearly equal size in one array; a padded row has the number n, one past the last."""

    rows: IntArray  # (B, m)
    codes: IntArray  # (B, m) task of each row
    mixed: bool  # whether a block has rows of several tasks

    @cached_property
    def by_task(self) -> list[Stack]:
        """The rows of every task of a single block, as numbers of its rows: blocks within the block."""
        codes = self.codes[0]
        order = np.argsort(codes, kind="stable")
        return _stack(codes, np.split(order, np.flatnonzero(np.diff(codes[order])) + 1))

    @cached_property
    def same(self) -> BoolArray:
        """(B, m, m) whether two rows of a block belong to one task."""
        return self.codes[:, :, None] == self.codes[:, None, :]

    @property
    def tasks(self) -> IntArray:
        """(B,) the task of each block, where blocks are not mixed."""
        return self.codes[:, 0]


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Stacks that share features. `task` has a basis `rows` of its own; None: only the common basis."""

    stacks: list[Stack]
    task: int | None = None
    Z: FloatArray | None = None  # (d, p)


@dataclass(frozen=True, eq=False)
class Layout:
    """How rows lie in blocks."""

    codes: IntArray  # (n,)
    groups: list[Group]

    def __len__(self) -> int:
        return len(self.codes)


def lay_out(
    codes: IntArray, blocks: Sequence[IntArray], own_bases: dict[int, FloatArray] | None = None
) -> Layout:
    """Put blocks of rows into stacks; `own_bases` are basis points (d, p) of tasks with several blocks."""
    own_bases = own_bases or {}
    parts: dict[int | None, list[IntArray]] = {None: []}
    for rows in blocks:
        if len(rows):
            task = int(codes[rows[0]])
            parts.setdefault(task if task in own_bases else None, []).append(rows)
    groups = []
    for of_task, members in parts.items():
        if members:
            Z = None if of_task is None else own_bases[of_task]
            groups.append(Group(_stack(codes, members), of_task, Z))
    return Layout(np.asarray(codes, dtype=np.intp), groups)


def _stack(codes: IntArray, blocks: list[IntArray]) -> list[Stack]:
    """Blocks of nearly equal size together: a padded row costs as much as another, a stack some rows."""
    by_size = sorted(range(len(blocks)), key=lambda b: len(blocks[b]))
    stacks: list[Stack] = []
    members: list[int] = []
    n_real = 0  # rows of the members
    for b in [*by_size, None]:
        size = 0 if b is None else len(blocks[b])
        padded = len(members) * size - n_real
        full = members and (
            b is None
            or (size > 1.15 * len(blocks[members[0]]) and padded * max(size, _LEAST_WIDTH) > _STACK_COST)
            or (len(members) + 1) * size * max(size, _LEAST_WIDTH) > _STACK_ENTRIES
        )
        if full:
            m = len(blocks[members[-1]])
            rows = np.full((len(members), m), len(codes))
            which = np.empty_like(rows)
            for k, member in enumerate(members):
                rows[k, : len(blocks[member])] = blocks[member]
                which[k] = codes[blocks[member][0]]
                which[k, : len(blocks[member])] = codes[blocks[member]]
            stacks.append(Stack(rows, which, bool((which != which[:, :1]).any())))
            members, n_real = [], 0
        if b is not None:
            members.append(b)
            n_real += size
    return stacks


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
        inside = 0.5 * (inside + inside.T)
        half = solve_lower(self.chol, np.ascontiguousarray(inside), transposed=True)
        d_K = -0.5 * solve_lower(self.chol, np.ascontiguousarray(half.T), transposed=True)
        d_K = 0.5 * (d_K + d_K.T)
        d_K.flat[:: len(d_K) + 1] += NUGGET * np.mean(np.diagonal(d_K))  # the nugget moves too
        theta, dA, dB = self.K.vjp(d_K)
        assert dB is not None
        return theta, np.broadcast_to(dA + dB, self.Z.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Features of one term on one basis: a weight of every task times Phi."""

    term: int
    basis: Basis
    weights: FloatArray  # (M,)
    loading: int | None  # column of the loadings; None: the task's own function


Weights = tuple[FloatArray, FloatArray]  # dE/dloadings (M, R) and dE/down (M,), to add to


class WholeBlocks:
    """Covariance of one term between all rows of every block of a stack."""

    def __init__(self, term: Term, stack: Stack, X: FloatArray):
        self._term, self._stack, self._K = term, stack, evaluate(term.kernel, X)
        self._weight = term.within[stack.tasks][:, None, None]
        self._weighted = (self._weight != 1.0).any()
        if stack.mixed and (term.own.any() or (term.loadings != term.loadings[0]).any()):
            loadings = term.loadings[stack.codes]
            self._weight = loadings @ loadings.transpose(0, 2, 1)
            self._weight += np.where(stack.same, term.own[stack.codes][:, :, None], 0.0)
            self._weighted = True

    def add_to(self, H: FloatArray) -> None:
        """Add the covariance to H (B, m, m)."""
        H += self._weight * self._K.value if self._weighted else self._K.value

    def gradients(self, G: FloatArray, weights: Weights | None) -> tuple[FloatArray, FloatArray]:
        """dE/dtheta and dE/dX (B, m, p) from G = dE/dH; adds those of the weights, if wanted."""
        theta, d_rows, _ = self._K.vjp(self._weight * G if self._weighted else G)
        if weights is not None:
            (loadings, own), L, codes, tasks = (
                weights,
                self._term.loadings,
                self._stack.codes,
                self._stack.tasks,
            )
            if self._stack.mixed:
                GK = G * self._K.value
                np.add.at(own, codes, np.sum(GK * self._stack.same, axis=2))
                np.add.at(loadings, codes, 2.0 * (GK @ L[codes]))
            else:
                total = np.einsum("bij,bij->b", G, self._K.value)
                np.add.at(own, tasks, total)
                np.add.at(loadings, tasks, 2.0 * L[tasks] * total[:, None])
        return theta, d_rows


class WithinTasks:
    """Covariance of a term that no tasks share, in one block of several tasks: zero between tasks."""

    def __init__(self, term: Term, stack: Stack, X: FloatArray):
        self._term, self._shape = term, X.shape
        inputs = np.vstack([X[0], X[0, :1]])  # a padded row
        self._parts = [(part, evaluate(term.kernel, inputs[part.rows])) for part in stack.by_task]

    def add_to(self, H: FloatArray) -> None:
        """Add the covariance to H (1, m + 1, m + 1); padded rows end in what is one too many."""
        for part, K in self._parts:
            weight = self._term.own[part.tasks][:, None, None]
            H[0, part.rows[:, :, None], part.rows[:, None, :]] += weight * K.value

    def gradients(self, G: FloatArray, weights: Weights | None) -> tuple[FloatArray, FloatArray]:
        """As `WholeBlocks.gradients`."""
        _, m, p = self._shape
        theta, d_rows = np.zeros(1), np.zeros((m + 1, p))
        for part, K in self._parts:
            rows, real = np.minimum(part.rows, m - 1), part.rows < m
            of_part = G[0, rows[:, :, None], rows[:, None, :]]
            if not real.all():
                of_part *= real[:, :, None] & real[:, None, :]
            of_theta, d_input, _ = K.vjp(self._term.own[part.tasks][:, None, None] * of_part)
            theta = theta + of_theta
            d_rows[part.rows] += d_input
            if weights is not None:
                np.add.at(weights[1], part.tasks, np.einsum("bij,bij->b", of_part, K.value))
        return theta, d_rows[None, :m]


@dataclass(frozen=True, slots=True, eq=False)
class BuiltStack:
    """Covariances and features of a stack, with what gradients need."""

    stack: Stack
    H: FloatArray  # (B, m, m)
    F: FloatArray  # (B, m, D)
    covariances: list[WholeBlocks | WithinTasks]  # per term
    crosses: list[tuple[Part, Evaluation, FloatArray]]  # per part: K(X, Z) and Phi (B * m, d)
    last: list[Any] = field(default_factory=list)  # what `evidence` found under the last sites


class BlockPrior:
    """Covariance of all rows under given terms and bases.

    Parameters
    ----------
    terms : sequence of Term
        The model.
    X : ndarray of shape (n, p)
        Inputs, as the kernels see them.
    layout : Layout
        Blocks.
    Z : ndarray of shape (d, p)
        Common basis points; d = 0 for none.
    elsewhere : callable, default=None
        From this prior to its `map`, computed by other processes; used where stacks would take too much
        memory to be kept here. None: all is computed here.
    gradients : bool, default=True
        Whether gradients will be asked for; what they need takes several times the memory of the rest.
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
        self._gradients = gradients
        self.terms, self.X, self.layout, self.Z = list(terms), X, layout, Z
        self.common: list[Part] = []
        self._own: list[list[Part]] = []
        for k, term in enumerate(self.terms):
            if term.loadings.shape[1] and len(Z):
                basis = Basis(term.kernel, Z)
                self.common += [Part(k, basis, column, r) for r, column in enumerate(term.loadings.T)]
        for group in layout.groups:
            parts = []
            if group.task is not None and group.Z is not None:
                for k, term in enumerate(self.terms):
                    if term.own[group.task] > 0.0:
                        parts.append(Part(k, Basis(term.kernel, group.Z), np.sqrt(term.own), None))
            self._own.append(parts)
        D = self.n_common + max((self.n_own(g) for g in range(len(layout.groups))), default=0)
        widest = max((s.rows.shape[1] for g in layout.groups for s in g.stacks), default=0)
        self.keeps = len(layout) * (widest + D) <= _KEPT_ENTRIES
        self._kept: dict[tuple[int, int], BuiltStack] = {}
        self._elsewhere = None if elsewhere is None or self.keeps else elsewhere(self)

    @property
    def n_common(self) -> int:
        """Features that all blocks share."""
        return sum(len(part.basis.Z) for part in self.common)

    def n_own(self, group: int) -> int:
        """Features that the blocks of one group share."""
        return sum(len(part.basis.Z) for part in self._own[group])

    def parts(self, group: int) -> list[Part]:
        """The features of a group, in their order."""
        return self.common + self._own[group]

    @property
    def jitter(self) -> float:
        """Largest jitter that the factor of a basis needed."""
        bases = [part.basis for g in range(len(self._own)) for part in self.parts(g)]
        return max((basis.jitter for basis in bases), default=0.0)

    def stacks(self, group: int) -> Iterable[BuiltStack]:
        """The stacks of a group; computed again on every pass where they would take too much memory."""
        for k, stack in enumerate(self.layout.groups[group].stacks):
            built = self._kept.get((group, k))
            if built is None:
                built = self._build(stack, self.parts(group))
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
        if by_group is None:
            by_group = [None] * len(self.layout.groups)
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
        several = stack.mixed and B == 1
        padded = np.zeros((B, m + several, m + several))
        H, covariances = padded[:, :m, :m], []
        for term in self.terms:
            covariance: Any
            if several and term.loadings.shape[1] == 0:
                covariance = WithinTasks(term, stack, X)
                covariance.add_to(padded)
            else:
                covariance = WholeBlocks(term, stack, X)
                covariance.add_to(H)
            covariances += [covariance] if self._gradients else []
        F, crosses, known = [np.zeros((B, m, 0))], [], {}
        for part in parts:
            if id(part.basis) not in known:
                known[id(part.basis)] = part.basis.features(X.reshape(B * m, -1))
            K, Phi = known[id(part.basis)]
            crosses += [(part, K, Phi)] if self._gradients else []
            F.append(part.weights[stack.codes][:, :, None] * Phi.reshape(B, m, -1))
        F_all = np.ascontiguousarray(np.concatenate(F, axis=2) if len(F) != 2 else F[1])
        if F_all.shape[2]:
            H -= F_all @ F_all.transpose(0, 2, 1)
        return BuiltStack(stack, H, F_all, covariances, crosses)
