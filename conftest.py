"""What all tests and doctests share: one BLAS thread, and pictures without a screen.

Problems of tests are small, and threads that wait for each other are slower than one. The variables reach the
processes that tests start; the limit reaches libraries that are loaded already.
"""

import os
import sys

for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

threadpool_limits(1)


@pytest.fixture(autouse=True)
def close_figures():
    """Close what a test has drawn, so that hundreds of figures do not pile up."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
