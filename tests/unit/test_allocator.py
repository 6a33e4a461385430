"""A process with fixed allocator thresholds, as Dask's workers have them, reuses memory while it works."""

import ctypes
import os
import subprocess
import sys

import pytest

COUNT_FAULTS = """
import resource
import threading
import numpy as np
from gleangp.numerics.parallel import freed_memory_kept


def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(200):
        np.ones(100_000)  # 0.8 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def main():
    outside = faults()
    with freed_memory_kept():
        print(outside, faults())


{call}
"""
PAGES = 200 * 800_000 // 4096  # of 200 arrays, each mapped afresh
GLIBC = sys.platform.startswith("linux") and hasattr(ctypes.CDLL(None), "gnu_get_libc_version")
pytestmark = pytest.mark.skipif(not GLIBC, reason="thresholds are glibc's")


def count_faults(call, **environment):
    """Page faults of 200 arrays, before and after."""
    command = [sys.executable, "-c", COUNT_FAULTS.format(call=call)]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    return [int(n) for n in subprocess.check_output(command, env=inherited | environment).split()]


@pytest.mark.parametrize("call", ["main()", "t = threading.Thread(target=main); t.start(); t.join()"])
def test_freed_memory_is_reused(call):
    """Under a fixed threshold every page of every array is a fault; afterwards hardly any.

    Tasks of Dask run in a thread, which allocates from a part of memory of its own.
    """
    outside, after = count_faults(call, MALLOC_TRIM_THRESHOLD_="65536")
    assert outside > 0.9 * PAGES
    assert after < 0.1 * PAGES


def test_freed_memory_is_kept():
    """Pages that arrays of some megabytes had are used again, also where all of them are freed at once."""
    pages = """
import resource
import numpy as np
from gleangp.numerics.parallel import freed_memory_kept

with freed_memory_kept():
    [np.ones(500_000) for _ in range(40)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(3):
        [np.ones(500_000) for _ in range(40)]
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    assert int(subprocess.check_output([sys.executable, "-c", pages], env=inherited)) < 3000  # of 120 000


def test_thresholds_of_the_user_stay():
    """With both thresholds in the environment nothing is changed."""
    own = {"MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_MMAP_THRESHOLD_": "100000"}
    assert min(count_faults("main()", **own)) > 0.9 * PAGES
