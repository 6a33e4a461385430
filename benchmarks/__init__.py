"""Benchmarks: `python -m benchmarks.NAME` from the root of the project. All of them use one thread."""

import os

# Thread pools read these when NumPy is imported, so they are set before any benchmark is.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
