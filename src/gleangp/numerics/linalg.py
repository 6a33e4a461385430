"""Dense linear algebra of Gaussian processes: Cholesky factors that report what they needed.

A factor is always lower triangular, `chol @ chol.T == matrix`. Jitter is added only when LAPACK refuses the
matrix, it is returned with the factor, and callers store or report it.
"""

from collections.abc import Iterator
from contextlib import suppress

import numpy as np
from scipy.linalg import blas, lapack, solve_triangular
from sklearn.utils import gen_batches

from gleangp._typing import FloatArray
from gleangp.exceptions import NotPositiveDefiniteError

_ADVICE = "Check the scale of the inputs and the bounds of the kernel's parameters."
CHUNK_ENTRIES = 4_000_000  # of a cross-covariance at a time: 32 MB
_NEARLY_SINGULAR = 1e10  # prior variance over noise from which rounding can leave no factor
_HALVED_ROWS = 100  # from which a triangular matrix is inverted by halves
_FEW_ROWS = 12  # of a block, below which one product of a whole stack beats triangular ones in turn

# Relative to the mean diagonal. The first is below what float64 kernels are accurate to, the last
# is where the answer would no longer be about the matrix that was asked for.
_JITTERS = (1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4)


def cholesky(matrix: FloatArray) -> tuple[FloatArray, float]:
    """Lower Cholesky factor, and the jitter that had to be added to every diagonal entry for it, or 0.0.

    Only the lower triangle of the matrix (n, n) is read. If 1e-4 of the mean diagonal is not enough, it is an
    error that gives the smallest eigenvalue.
    """
    n = len(matrix)
    if n == 0:
        return np.zeros((0, 0)), 0.0
    chol, info = lapack.dpotrf(matrix, lower=1, clean=1, overwrite_a=0)
    # NaN passes through LAPACK without complaint, and so does infinity; both reach the diagonal.
    if info == 0 and np.isfinite(chol.diagonal().sum()):
        return chol, 0.0
    if not np.isfinite(matrix).all():
        found = f"{np.count_nonzero(~np.isfinite(matrix))} entries that are not finite"
        raise NotPositiveDefiniteError(f"a {n} x {n} covariance matrix has {found}. {_ADVICE}")
    scale = float(np.mean(np.diag(matrix)))
    for jitter in [relative * scale for relative in _JITTERS if scale > 0.0]:
        shifted = np.array(matrix, order="F")
        shifted.flat[:: n + 1] += jitter
        chol, info = lapack.dpotrf(shifted, lower=1, clean=1, overwrite_a=1)
        if info == 0:
            return chol, jitter
    raise NotPositiveDefiniteError(
        f"a {n} x {n} covariance matrix is not positive definite: its smallest eigenvalue is "
        f"{np.linalg.eigvalsh(matrix)[0]:.3g} and its mean diagonal {scale:.3g}. Use a kernel that is "
        "a covariance function, or add a WhiteKernel or a larger noise variance."
    )


def solve_lower(chol: FloatArray, rhs: FloatArray, *, transposed: bool = False) -> FloatArray:
    """`chol^-1 rhs`, or `chol^-T rhs`; an empty factor gives an empty answer."""
    if len(chol) == 0:
        return np.zeros_like(rhs)
    if rhs.ndim == 2 and rhs.flags.c_contiguous:
        # Solved from the right on the transpose, which is what BLAS sees of rows stored one by one: no
        # copy into columns, and the answer is stored by rows again.
        return blas.dtrsm(1.0, chol, rhs.T, side=1, lower=1, trans_a=0 if transposed else 1).T
    return solve_triangular(chol, rhs, lower=True, trans=1 if transposed else 0, check_finite=False)


def solve_cholesky(chol: FloatArray, rhs: FloatArray) -> FloatArray:
    """`(chol chol^T)^-1 rhs`."""
    return solve_lower(chol, solve_lower(chol, rhs), transposed=True)


def solve_general(matrix: FloatArray, rhs: FloatArray) -> FloatArray:
    """`matrix^-1 rhs` for any square matrix, or a stack of them.

    Where there is no answer (parameters so far out that entries overflow) this is the error that the
    optimiser takes for an infeasible point.
    """
    if np.isfinite(matrix).all():
        with suppress(np.linalg.LinAlgError):
            return np.asarray(np.linalg.solve(matrix, rhs), dtype=np.float64)
    size = f"{matrix.shape[-1]} x {matrix.shape[-1]}"
    raise NotPositiveDefiniteError(f"a {size} system of equations is singular or not finite. {_ADVICE}")


def inverse_from_cholesky(chol: FloatArray) -> FloatArray:
    """`(chol chol^T)^-1` in full: needed where a gradient contracts every entry of it."""
    if len(chol) == 0:
        return chol
    lower, _ = lapack.dpotri(chol, lower=1)  # the part above the diagonal stays zero
    return lower.T + np.tril(lower, -1)


def log_determinant(chol: FloatArray) -> float:
    """`log |chol chol^T|`."""
    return 2.0 * float(np.log(np.diagonal(chol)).sum())


def inverse_factors(M: FloatArray) -> tuple[FloatArray, float, float]:
    """L^-1 of the lower factor of every I + M of a stack, in place of M; the sum of log |I + M|; the jitter.

    Where rows have next to no noise, rounding can leave a matrix without a factor. It then gets the least
    jitter that gives it one, as a share of its mean diagonal; the largest is returned.
    """
    if M.size == 0:  # LAPACK complains of matrices without rows
        return M, 0.0, 0.0
    diagonal, jitter = np.einsum("bii->bi", M), 0.0  # a view, with the largest entry of every covariance
    diagonal += 1.0
    if M.shape[1] < min(_FEW_ROWS, len(M)):
        with suppress(np.linalg.LinAlgError):  # else one by one, so that each gets the jitter it needs
            return M, _invert_small(M), jitter
    for matrix, largest in zip(M, diagonal.max(axis=1), strict=True):
        kept = matrix.copy() if largest > _NEARLY_SINGULAR else None
        # A symmetric matrix is its own transpose: LAPACK's columns are our rows.
        chol, info = lapack.dpotrf(matrix.T, lower=0, clean=1, overwrite_a=1)
        if info:
            if kept is None:
                found = f"the covariance of a block of {M.shape[1]} rows is not positive definite"
                advice = "Use a kernel that is a covariance function, or a larger noise variance."
                raise NotPositiveDefiniteError(f"{found}. {advice}")
            matrix[...], added = cholesky(kept)
            jitter, chol = max(jitter, added / float(np.mean(np.diagonal(kept)))), matrix.T
        _invert_upper(chol)
    return M, -2.0 * float(np.log(diagonal).sum()), jitter


def _invert_small(M: FloatArray) -> float:
    """L^-1 of the lower factors of a large stack of small matrices, in place of M; the sum of log |M|.

    Row i of L X = I gives row i of X from those above, of all matrices at once.
    """
    L = np.linalg.cholesky(M)
    diagonal = np.einsum("bii->bi", L)
    for i in range(M.shape[1]):
        M[:, i, :i] = -(L[:, i, None, :i] @ M[:, :i, :i])[:, 0] / diagonal[:, i, None]
        M[:, i, i] = 1.0 / diagonal[:, i]
        M[:, i, i + 1 :] = 0.0
    return 2.0 * float(np.log(diagonal).sum())


def _invert_upper(U: FloatArray) -> None:
    """U^-1 in place of the upper triangular U, by halves: OpenBLAS takes twice as long from 200 rows."""
    half = len(U) // 2
    if len(U) >= _HALVED_ROWS:
        left, right, corner = U[:half, :half], U[half:, half:], U[:half, half:]
        _invert_upper(left)
        _invert_upper(right)
        corner[...] = blas.dtrmm(1.0, right, blas.dtrmm(-1.0, left, corner), side=1)
    elif U.flags.f_contiguous:
        lapack.dtrtri(U, lower=0, overwrite_c=1)
    else:
        U[...] = lapack.dtrtri(U, lower=0)[0]


def triangular_times(half: FloatArray, B: FloatArray, *, transposed: bool = False) -> FloatArray:
    """L^-1 B, or L^-T B, of every block, in place of B (B, m, D)."""
    if B.size == 0:
        return B
    B = np.ascontiguousarray(B)  # BLAS writes into a view of it
    if half.shape[1] < _FEW_ROWS:
        return (half.transpose(0, 2, 1) if transposed else half) @ B
    for lower, right in zip(half, B, strict=True):
        # LAPACK sees both transposed: B^T L^-T, or B^T L^-1.
        blas.dtrmm(1.0, lower.T, right.T, side=1, lower=0, trans_a=int(transposed), overwrite_b=1)
    return B


def inverse_of(half: FloatArray, r: FloatArray) -> FloatArray:
    """D_b^-1 = R L^-T L^-1 R of every block of a stack."""
    scaled = half * r[:, None, :]
    return scaled.transpose(0, 2, 1) @ scaled


def row_chunks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Parts of the rows of a matrix that is too large to be held at once."""
    return gen_batches(n_rows, max(1, CHUNK_ENTRIES // max(1, n_columns)))


def deviation(values: FloatArray) -> FloatArray:
    """Standard deviation along the first axis, of values whose squares may overflow."""
    exponent = np.frexp(np.max(np.abs(values), axis=0))[1]
    return np.ldexp(np.std(np.ldexp(values, -exponent), axis=0), exponent)
