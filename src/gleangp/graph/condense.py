"""A large graph on few of its rows.

Eliminating rows E from a Laplacian leaves the Schur complement

    L_DD - L_DE L_EE^-1 L_ED,      f_D^T (...) f_D = min over f_E of f^T L f:

the roughness of the smoothest function on the whole graph that takes the values f_D. All rows still
shape it, but a model with the graph as prior then works with matrices of size |D|.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array

from gleangp._typing import FloatArray, IntArray

# Added to L_EE: a part of the graph that holds no kept row would make it singular.
_RIDGE = 1e-9


def condense_laplacian(laplacian: csr_array, keep: IntArray) -> FloatArray:
    """Schur complement (d, d) of the Laplacian on the rows `keep` (d,).

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
