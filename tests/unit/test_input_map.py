"""Inputs as the kernels see them (`models/units.py`)."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gleangp.models.units import map_inputs

SHAPES = [(0.0, 0.0), (0.5, 1.0), (-1.0, 0.3), (0.7, -1.0), (1.0, 1.0), (-0.5, 1.5)]


@pytest.mark.parametrize("shape", SHAPES)
def test_beyond_the_range_the_slope_is_that_at_its_end_or_the_mean_one(shape):
    """Whichever is less; the map is continuous, and a straight line on either side."""
    inputs = map_inputs(np.linspace(2.0, 4.0, 50)[:, None])

    def w(x):
        return inputs(np.array([[x]]), np.array(shape))[0, 0]

    step, mean = 1e-7, (w(4.0) - w(2.0)) / 2.0
    for end, out in ((2.0, -1.0), (4.0, 1.0)):
        at_end = (w(end) - w(end - out * step)) / (out * step)
        for far in (0.1, 1.0, 30.0):
            assert_allclose((w(end + out * far) - w(end)) / (out * far), min(at_end, mean), 1e-3, 1e-5)
