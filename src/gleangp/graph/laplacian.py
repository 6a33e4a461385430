"""Graph Laplacians: f^T L f is how rough a function is on a graph."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array, diags_array

from gleangp._typing import FloatArray, IntArray

# Added to L_EE: a part of the graph that holds no kept row would make it singular.
_RIDGE = 1e-9


def normalized_laplacian(weights: csr_array) -> csr_array:
    """L = 1 - D^-1/2 W D^-1/2 with D the degrees; a row without neighbours is not penalised.

    The weights W (n, n) are symmetric, not negative, and zero on the diagonal. L is positive semi-definite
    with eigenvalues in [0, 2].

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> normalized_laplacian(csr_array([[0.0, 2.0], [2.0, 0.0]])).toarray()
    array([[ 1., -1.],
           [-1.,  1.]])
    """
    degree: FloatArray = np.asarray(weights.sum(axis=1)).ravel()
    joined = degree > 0.0
    root = np.zeros_like(degree)
    root[joined] = degree[joined] ** -0.5
    scaled = diags_array(root) @ weights @ diags_array(root)
    return csr_array(diags_array(joined.astype(np.float64)) - scaled)


def condense_laplacian(laplacian: csr_array, keep: IntArray) -> FloatArray:
    """Schur complement (d, d) of the Laplacian on the rows `keep` (d,): a large graph on few of its rows.

    Eliminating rows E leaves L_DD - L_DE L_EE^-1 L_ED, and f_D^T (...) f_D is the minimum over f_E of
    f^T L f: the roughness of the smoothest function on the whole graph that takes the values f_D. All rows
    still shape it, but a model with the graph as prior then works with matrices of size |D|.

    O((n - d)^3) once, dense: five thousand rows take seconds. Exact, and cheap, if all rows are kept.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> path = csr_array([[1.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]])
    >>> condense_laplacian(path, np.array([0, 2])).round(6)
    array([[ 0.5, -0.5],
           [-0.5,  0.5]])
    """
    gone = np.setdiff1d(np.arange(laplacian.shape[0]), keep)
    kept = laplacian[keep]
    condensed = kept[:, keep].toarray()
    if len(gone):
        inside = laplacian[gone][:, gone].toarray()
        inside.flat[:: len(gone) + 1] += _RIDGE
        across = kept[:, gone].toarray()
        condensed -= across @ cho_solve(cho_factor(inside, lower=True, overwrite_a=True), across.T)
    return 0.5 * (condensed + condensed.T)
