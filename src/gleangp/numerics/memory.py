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
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

import numpy as np

# Numbers of parameters of mallopt (malloc.h), and what glibc starts with or lets them grow to on 64 bits.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_FIRST_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD = 128 * 1024, 32 * 1024**2

CHUNK_ENTRIES = 4_000_000  # of a cross-covariance at a time: 32 MB

_count = Lock()  # held while the number of calls that reuse memory changes
_n_reusing = 0


def row_chunks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Parts of the rows of a matrix that is too large to be held at once."""
    step = max(1, CHUNK_ENTRIES // max(1, n_columns))
    for start in range(0, n_rows, step):
        yield slice(start, start + step)


def keep_freed_memory() -> None:
    """Free an array that was never touched, of the largest size that glibc learns from."""
    np.empty(_LARGEST_MMAP_THRESHOLD - 4 * mmap.PAGESIZE, dtype=np.uint8)


@contextmanager
def reuse_freed_memory() -> Iterator[None]:
    """Thresholds as glibc would adapt them itself, until the end of the last of calls that overlap.

    Nothing happens where they do adapt (no threshold in the environment), where the user set the one of maps
    as well, or without glibc.
    """
    libc, trim_threshold = _glibc(), _fixed_trim_threshold()
    if libc is None or trim_threshold is None:
        yield
        return
    global _n_reusing
    with _count:
        _n_reusing += 1
        if _n_reusing == 1:
            _set_thresholds(libc, _LARGEST_MMAP_THRESHOLD, 2 * _LARGEST_MMAP_THRESHOLD)
    try:
        yield
    finally:
        with _count:
            _n_reusing -= 1
            if _n_reusing == 0:
                _set_thresholds(libc, _FIRST_MMAP_THRESHOLD, trim_threshold)
                libc.malloc_trim(0)


def _set_thresholds(libc: Any, of_maps: int, of_trim: int) -> None:
    libc.mallopt(_M_MMAP_THRESHOLD, of_maps)
    libc.mallopt(_M_TRIM_THRESHOLD, of_trim)


@cache
def _fixed_trim_threshold() -> int | None:
    """What the process was started with; None if thresholds adapt, or are the user's own."""
    value = os.environ.get("MALLOC_TRIM_THRESHOLD_", "")
    return int(value) if value.isdecimal() and "MALLOC_MMAP_THRESHOLD_" not in os.environ else None


@cache
def _glibc() -> Any:
    """The C library of the process if it is glibc, else None."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return libc if all(hasattr(libc, f) for f in ("gnu_get_libc_version", "mallopt", "malloc_trim")) else None
