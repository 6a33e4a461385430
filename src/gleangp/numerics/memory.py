"""How much memory is used at a time, and that what is freed is used again.

Matrices between many rows are worked on in parts (`row_chunks`).

glibc hands large arrays back to the system, which clears their pages before it hands them out again: a kernel
matrix of some hundreds of rows then costs as much to fetch as to fill. A search asks for the same arrays at
every step, so what it frees stays with the process until it ends (`freed_memory_kept`).

Dask starts its workers with `MALLOC_TRIM_THRESHOLD_=65536`, so that idle workers are small. In glibc a
threshold that is set stops all of them from adapting: every array of more than 128 kB is then mapped afresh,
and unmapped when it is freed, at the price of a page fault per 4 kB. On blocks of 1000 rows that was two
fifths of a worker's CPU time.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

# Numbers of parameters of mallopt (malloc.h), and what glibc lets the first grow to on 64 bits.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_MMAP_THRESHOLD = 32 * 1024**2
_MOST_KEPT = 1024**3  # bytes that are free, while a search runs
_OF_THE_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")  # in the environment
_n_keepers = 0  # searches that run now

CHUNK_ENTRIES = 4_000_000  # of a cross-covariance at a time: 32 MB


def row_chunks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Parts of the rows of a matrix that is too large to be held at once."""
    step = max(1, CHUNK_ENTRIES // max(1, n_columns))
    for start in range(0, n_rows, step):
        yield slice(start, start + step)


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Within, up to 1 GB that was freed stays with the process; nothing happens where the user set limits."""
    global _n_keepers
    libc = None if any(name in os.environ for name in _OF_THE_USER) else _glibc()
    if libc is None:
        yield
        return
    _n_keepers += 1
    libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
    libc.mallopt(_M_TRIM_THRESHOLD, _MOST_KEPT)
    try:
        yield
    finally:
        _n_keepers -= 1
        if not _n_keepers:
            libc.mallopt(_M_TRIM_THRESHOLD, 2 * _LARGEST_MMAP_THRESHOLD)


@cache
def _glibc() -> ctypes.CDLL | None:
    """The C library, if it is one with these thresholds."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") else None


@cache
def reuse_freed_memory() -> None:
    """From now on, thresholds as glibc would adapt them itself: an idle worker keeps at most 64 MB.

    Nothing happens where they do adapt (no threshold in the environment), where the user set the one of maps
    as well, or without glibc.
    """
    fixed, libc = [name in os.environ for name in _OF_THE_USER] == [True, False], _glibc()
    if fixed and libc is not None:
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        libc.mallopt(_M_TRIM_THRESHOLD, 2 * _LARGEST_MMAP_THRESHOLD)
