"""What each mapping from the latent space contributes to the objective: minus its log evidence.

A term is called with the mapping's kernel and the positions of all rows; it gives the value and its
gradients in theta (t,) and in the positions (N, q), zero in rows of other tasks. `fit_map` gives the fitted
mapping, which is what predicts.

`GaussianTerm` has columns of targets that share one covariance, the noise being the kernel's white
variance (Urtasun, Quattoni & Darrell 2007, eqs. 1 and 3). The others go through a basis: the latent positions
of some informative rows, through which all rows contribute, at a cost linear in the rows. As rows of the
training set, basis points move with the latent space. With every row in the basis the terms are exact:
`GaussianTerm` for numbers, and expectation propagation for signs (what Urtasun, Quattoni & Darrell 2007 leave
as future work).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from gleangp._state import check_arrays, check_factor, check_kernel
from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.inference.evidence import LOG_TWO_PI, evidence_gradient
from gleangp.inference.posterior import factors_take, fitc_prior, on_basis
from gleangp.inference.prior import Basis
from gleangp.inference.propagate import marginals_of, sweep_rows
from gleangp.kernels import kernel_columns
from gleangp.kernels.evaluate import evaluate, evaluate_diag
from gleangp.models.defaults import LATENT_SPACE
from gleangp.noise import Gaussian, Probit
from gleangp.numerics.linalg import (
    cholesky,
    inverse_from_cholesky,
    log_determinant,
    row_chunks,
    solve_cholesky,
    solve_lower,
)
from gleangp.selection.selectors import ResidualSelector

_NEAREST = 3  # training rows whose positions are tried as starts of a search
_SUFFICIENT = 1e-4  # share of the predicted decrease that a step must give (Armijo)
_SHORTEST = 5e-4  # share of a step below which none is tried
_MOST_STEPS, _TOLERANCE = 50, 1e-8  # of a row; the gain, relative to the value, after which it stops


@dataclass(frozen=True, slots=True, eq=False)
class Mapping:
    """A fitted mapping from latent positions to the columns of its targets.

    mean = offset + k(x)' weights, var = k(x, x) - |chol^-1 k(x)|^2 + |inner^-1 chol^-1 k(x)|^2, where
    columns may share their factors.
    """

    kernel: Any
    points: FloatArray  # (d, q)
    weights: FloatArray  # (d, S)
    factors: tuple[tuple[FloatArray, FloatArray | None], ...]  # (chol, inner) of each column, or one for all
    jitter: float  # added to the diagonal of what a factor factorises
    offset: float = 0.0  # prior mean of every column

    def _check_state(self) -> None:
        sizes = check_arrays(self, points="d q", weights="d S derived", offset="", jitter=">=0")
        d, n_factors = sizes["d"], len(self.factors)
        if n_factors not in ((1, sizes["S"]) if d else (0, 1, sizes["S"])) or sizes["S"] == 0:
            raise ValueError(f"Mapping has {n_factors} factors for {sizes['S']} columns.")
        for chol, inner in self.factors:
            for factor in (chol,) if inner is None else (chol, inner):
                if np.shape(factor) != (d, d) or not np.isfinite(factor).all():
                    raise ValueError(f"Mapping has a factor that is not finite and of size {d}.")
                check_factor("a factor of Mapping", factor)
        check_kernel("Mapping.kernel", self.kernel, sizes["q"])

    def predict(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance (n, S); the variance has the kernel's white noise in it."""
        mean, var = np.empty((len(X), self.weights.shape[1])), np.empty((len(X), self.weights.shape[1]))
        prior = self.kernel.diag(X)
        if len(self.points) == 0:  # a task without rows
            return np.full_like(mean, self.offset), np.repeat(prior[:, None], mean.shape[1], axis=1)
        for part in row_chunks(len(X), len(self.points)):
            K = kernel_columns(self.kernel, self.points, X[part])
            mean[part] = self.offset + K.T @ self.weights
            reductions = [factors_take(K, *factor) for factor in self.factors]
            var[part] = prior[part, None] - np.column_stack(reductions)
        return mean, np.maximum(var, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class GaussianTerm:
    """Targets with Gaussian noise; exact."""

    targets: FloatArray
    rows: IntArray

    def __call__(self, kernel, positions):
        """UQD07 eq. 4, with the constant."""
        n, n_columns = self.targets.shape
        K = evaluate(kernel, positions[self.rows])
        chol, _ = cholesky(K.value.T)  # symmetric, and stored the way LAPACK reads it
        weights = solve_cholesky(chol, self.targets)
        log_det = log_determinant(chol) + n * LOG_TWO_PI
        value = 0.5 * (n_columns * log_det + np.vdot(self.targets, weights))
        dL_dK = 0.5 * (n_columns * inverse_from_cholesky(chol) - weights @ weights.T)
        theta_gradient, input_gradient, _ = K.vjp(dL_dK)
        gradient = np.zeros_like(positions)
        gradient[self.rows] = input_gradient
        return float(value), theta_gradient, gradient

    def fit_map(self, kernel, positions):
        """UQD07 eq. 8 for every column, all with one factor."""
        X = positions[self.rows]
        chol, jitter = cholesky(kernel(X))
        return Mapping(kernel, X, solve_cholesky(chol, self.targets), ((chol, None),), jitter)


def choose_basis(kernel, positions: FloatArray, n_active: int, rng: np.random.Generator) -> IntArray:
    """Rows whose positions explain those of the others: sampled by what is still unexplained."""
    block = Block(positions, np.zeros(len(positions)), Gaussian(1.0))
    return ResidualSelector(weight="variance").select(kernel, [block], n_active, rng=rng).active[0]


@dataclass(frozen=True, slots=True, eq=False)
class SignsTerm:
    """Columns of signs with probit noise, through the basis.

    `warm` keeps the sites from call to call. They start the next propagation, and do not change its end.
    """

    targets: FloatArray  # (n, S)
    rows: IntArray  # (n,)
    basis: IntArray  # (d,) rows of the training set
    warm: dict = field(default_factory=dict)

    def __call__(self, kernel, positions):
        value, theta_gradient, gradient = 0.0, np.zeros(len(kernel.theta)), np.zeros_like(positions)
        prior, swept = self._swept(kernel, positions)
        for found in swept:
            slope = evidence_gradient(prior, found.marginals.state, [False])
            value -= found.evidence
            theta_gradient = theta_gradient - slope.theta[0]
            gradient[self.rows] -= slope.X
            gradient[self.basis] -= slope.Z
        return value, theta_gradient, gradient

    def fit_map(self, kernel, positions):
        """A pair of factors for each column."""
        prior, swept = self._swept(kernel, positions)
        found = [on_basis(prior, s.marginals.state.common) for s in swept]
        weights = np.column_stack([p.weights for p in found])
        return Mapping(kernel, found[0].X, weights, tuple((p.chol, p.inner) for p in found), found[0].jitter)

    def _swept(self, kernel, positions):
        """The prior of the rows, and the sites of every column."""
        X, swept = positions[self.rows], []
        prior = fitc_prior(kernel, X, positions[self.basis])
        for c, signs in enumerate(np.ascontiguousarray(self.targets.T)):
            swept.append(sweep_rows(Block(X, signs, Probit()), marginals_of(prior), self.warm.get(c)))
            self.warm[c] = swept[-1].sites
        return prior, swept


@dataclass(frozen=True, slots=True, eq=False)
class CollapsedTerm:
    """Columns of numbers whose noise is the kernel's white variance, through the basis, O(n d^2).

    The collapsed bound of Titsias 2009, eq. 9. With Phi = chol(K_dd)^-1 K_dn, B the inverse variances of the
    noise and unexplained = k_nn - |phi_n|^2,

        P = I + Phi B Phi^T,   m = P^-1 Phi B Y,   E = Y - Phi^T m,
        bound = -1/2 [S (n log 2 pi - log |B| + log |P| + sum_n B_n unexplained_n) + tr Y^T B E],
        d/dPhi = m (B E)^T + S (1 - P^-1) Phi B,   d/dk_nn = -S B / 2,
        d/dnoise_n = B_n / 2 [B_n (|E_n|^2 + S (unexplained_n + phi_n^T P^-1 phi_n)) - S].
    """

    targets: FloatArray  # (n, S)
    rows: IntArray  # (n,)
    basis: IntArray  # (d,) rows of the training set

    def __call__(self, kernel, positions):
        X, Y, (n, S) = positions[self.rows], self.targets, self.targets.shape
        basis, K, Phi, B, inner, m = self._solved(kernel, positions)
        signal, whole = evaluate_diag(kernel, X, white=False), evaluate_diag(kernel, X)
        unexplained = np.maximum(signal.value - np.einsum("dn,dn->n", Phi, Phi), 0.0)
        error = Y - Phi.T @ m
        constant = n * LOG_TWO_PI - np.sum(np.log(B)) + log_determinant(inner)
        value = 0.5 * (S * (constant + B @ unexplained) + np.sum((Y * error).T @ B))
        scaled = Phi * B
        d_Phi = m @ (error.T * B) + S * (scaled - solve_cholesky(inner, scaled))
        explained = np.einsum("dn,dn->n", Phi, inverse_from_cholesky(inner) @ Phi)
        square = np.einsum("ns,ns->n", error, error)
        d_noise = 0.5 * B * (B * (square + S * (unexplained + explained)) - S)
        of_basis, d_basis = basis.gradients(d_Phi @ Phi.T)
        of_cross, d_rows, d_cross = K.vjp(solve_lower(basis.chol, d_Phi, transposed=True).T)
        of_signal, d_signal, _ = signal.vjp(-0.5 * S * B - d_noise)
        of_whole, d_whole, _ = whole.vjp(d_noise)
        gradient = np.zeros_like(positions)
        gradient[self.rows] -= d_rows + d_signal + d_whole
        gradient[self.basis] -= d_basis + d_cross
        return float(value), -(of_basis + of_cross + of_signal + of_whole), gradient

    def fit_map(self, kernel, positions):
        """One pair of factors for all columns."""
        basis, _, _, _, inner, m = self._solved(kernel, positions)
        weights = solve_lower(basis.chol, m, transposed=True)
        return Mapping(kernel, basis.Z, weights, ((basis.chol, inner),), basis.jitter)

    def _solved(self, kernel, positions):
        """Basis, K(X, Z), Phi (d, n), B (n,), the factor of P, and m (d, S)."""
        X, basis = positions[self.rows], Basis(kernel, positions[self.basis])
        K, features = basis.features(X)
        Phi, B = features.T, 1.0 / (kernel.diag(X) - evaluate_diag(kernel, X, white=False).value)
        scaled = Phi * np.sqrt(B)
        P = scaled @ scaled.T
        P.flat[:: len(P) + 1] += 1.0
        inner, _ = cholesky(P)
        return basis, K, Phi, B, inner, solve_cholesky(inner, (Phi * B) @ self.targets)


Term = GaussianTerm | SignsTerm | CollapsedTerm


def make_term(targets: FloatArray, rows: IntArray, basis: IntArray | None, *, probit: bool = False) -> Term:
    """The term of numbers (n, S), or of signs with probit noise: dense, or through a basis."""
    if probit:
        return SignsTerm(targets, rows, rows if basis is None else basis)
    return GaussianTerm(targets, rows) if basis is None else CollapsedTerm(targets, rows, basis)


def search_positions(
    mapping: Mapping, scores: FloatArray, known_scores: FloatArray, known_positions: FloatArray
) -> FloatArray:
    """Positions (m, q) of rows with the given scores (m, k), from training rows with known positions.

    For every row -log p(y | x) + 0.005 |x|^2 is minimised over its own position x, where p(y | x) is the
    prediction of the map to the observations: a short search from the best of the nearest training rows. All
    rows are searched at once and none sees another: each has its own quasi-Newton matrix (q x q) and step.
    """
    out = np.empty((len(scores), known_positions.shape[1]))
    for rows in row_chunks(len(scores), len(known_scores)):
        some = scores[rows]
        near = np.argsort(cdist(some, known_scores), axis=1, kind="stable")[:, :_NEAREST]
        values = [row_objective(mapping, some, known_positions[column])[0] for column in near.T]
        best = near[np.arange(len(some)), np.argmin(values, axis=0)]
        out[rows] = _descend(mapping, some, known_positions[best].copy())
    return out


def row_objective(mapping: Mapping, scores: FloatArray, X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Minus log p(y | x) up to a constant, plus the pull, per row (m,); and its gradient (m, q)."""
    n_scores = scores.shape[1]
    chol, inner = mapping.factors[0]
    K = evaluate(mapping.kernel, X, mapping.points)
    diag = evaluate_diag(mapping.kernel, X)
    v = solve_lower(chol, K.value.T)
    w = v if inner is None else v - solve_cholesky(inner, v)
    var = diag.value - np.einsum("dm,dm->m", v, w)
    error = scores - K.value @ mapping.weights
    square = np.einsum("mk,mk->m", error, error)
    value = 0.5 * (n_scores * np.log(var) + square / var + LATENT_SPACE.pull * np.einsum("mq,mq->m", X, X))
    d_var = 0.5 * (n_scores - square / var) / var
    dL_dK = -(error / var[:, None]) @ mapping.weights.T
    dL_dK -= 2.0 * d_var[:, None] * solve_lower(chol, w, transposed=True).T
    return value, K.vjp(dL_dK)[1] + diag.vjp(d_var)[1] + LATENT_SPACE.pull * X


def _descend(mapping: Mapping, scores: FloatArray, X: FloatArray) -> FloatArray:
    """BFGS in every row on its own (Nocedal & Wright 2006, eq. 6.17); steps that do not help are halved."""
    value, gradient = row_objective(mapping, scores, X)
    H = np.tile(np.eye(X.shape[1]), (len(X), 1, 1))
    H /= np.maximum(1.0, np.linalg.norm(gradient, axis=1))[:, None, None]  # a first step of at most one
    going, length, n_steps = np.arange(len(X)), np.ones(len(X)), np.zeros(len(X))
    while len(going):
        before = gradient[going]
        moved = -length[going, None] * np.einsum("mij,mj->mi", H[going], before)
        after, slope = row_objective(mapping, scores[going], X[going] + moved)
        gain = value[going] - after
        fine = gain >= -_SUFFICIENT * np.einsum("mi,mi->m", moved, before)
        ends = np.where(fine, gain <= _TOLERANCE * (1.0 + np.abs(after)), length[going] < _SHORTEST)
        length[going] *= 0.5
        rows, s, change = going[fine], moved[fine], (slope - before)[fine]
        curvature = np.einsum("mi,mi->m", s, change)
        usable = curvature > 1e-12 * np.linalg.norm(s, axis=1) * np.linalg.norm(change, axis=1)
        rho = np.divide(1.0, curvature, out=np.zeros_like(curvature), where=usable)[:, None, None]
        V = np.eye(X.shape[1]) - rho * np.einsum("mi,mj->mij", s, change)
        updated = V @ H[rows] @ V.transpose(0, 2, 1) + rho * np.einsum("mi,mj->mij", s, s)
        H[rows] = np.where(usable[:, None, None], updated, H[rows])
        X[rows] += s
        value[rows], gradient[rows], length[rows] = after[fine], slope[fine], 1.0
        n_steps[rows] += 1
        going = going[~ends & (n_steps[going] < _MOST_STEPS)]
    return X
