"""How tests compare two fits of the same rows: up to rounding, which may differ from one fit to the next."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal


def assert_same_answers(these, those):
    """Labels are equal; numbers are, up to rounding: how BLAS adds up can depend on where an array lies."""
    if np.asarray(those).dtype.kind == "f":
        assert_allclose(these, those, rtol=1e-7, atol=1e-9)
    else:
        assert_array_equal(these, those)
