"""Graph Laplacians: f^T L f is how rough a function is on a graph."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array, diags_array

from gleangp._typing import FloatArray


def normalized_laplacian(weights: csr_array) -> csr_array:
    """L = 1 - D^-1/2 W D^-1/2 with D the degrees; a row without neighbours is not penalised.

    Parameters
    ----------
    weights : scipy.sparse.csr_array of shape (n, n)
        Symmetric, not negative, zero diagonal.

    Returns
    -------
    scipy.sparse.csr_array of shape (n, n)
        Positive semi-definite, eigenvalues in [0, 2].

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
