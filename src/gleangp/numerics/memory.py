"""How much memory is used at a time, and that what is freed is used again.

Matrices between many rows are worked on in parts (`row_chunks`).

glibc hands large arrays back to the system, which clears their pages before it hands them out again: a kernel
matrix of some hundreds of rows then costs as much to fetch as to fill. It keeps arrays up to the size of the
largest one that was ever freed, so a search first frees a large one (`keep_freed_memory`).

Dask starts its workers with `MALLOC_TRIM_THRESHOLD_=65536`, so that idle workers are small. In glibc a
threshold that is set stops all of them from adapting: every array of more than 128 kB is then mapped afresh,
and unmapped when it is freed, at the price of a page fault per 4 kB. On blocks of 1000 rows that was two
fifths of a worker's CPU time.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Iterator
from functools import cache

import numpy as np

# Numbers of parameters of mallopt (malloc.h), and what glibc lets the first grow to on 64 bits.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_MMAP_THRESHOLD = 32 * 1024**2

CHUNK_ENTRIES = 4_000_000  # of a cross-covariance at a time: 32 MB


def row_chunks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Parts of the rows of a matrix that is too large to be held at once."""
    step = max(1, CHUNK_ENTRIES // max(1, n_columns))
    for start in range(0, n_rows, step):
        yield slice(start, start + step)


def keep_freed_memory() -> None:
    """Free an array that was never touched, of the largest size that glibc learns from."""
    np.empty(_LARGEST_MMAP_THRESHOLD - 4 * mmap.PAGESIZE, dtype=np.uint8)


@cache
def reuse_freed_memory() -> None:
    """From now on, thresholds as glibc would adapt them itself: an idle worker keeps at most 64 MB.

    Nothing happens where they do adapt (no threshold in the environment), where the user set the one of maps
    as well, or without glibc.
    """
    fixed = "MALLOC_TRIM_THRESHOLD_" in os.environ and "MALLOC_MMAP_THRESHOLD_" not in os.environ
    if fixed and sys.platform.startswith("linux"):
        libc = ctypes.CDLL(None)
        if hasattr(libc, "gnu_get_libc_version"):
            libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
            libc.mallopt(_M_TRIM_THRESHOLD, 2 * _LARGEST_MMAP_THRESHOLD)
