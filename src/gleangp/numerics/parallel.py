"""Threads, processes and memory: how work is spread, and that memory which is freed is used again.

Several BLAS threads wait for each other, and spin while they do: on two busy cores 1000 rows and 200 active
points took 90 times the CPU time on two threads, and dense tasks of 4000 rows four times. So the work of
estimators, and every job of a parallel run, keeps to one (`on_one_thread`).

glibc hands large arrays back to the system, which clears their pages before it hands them out again: a kernel
matrix of some hundreds of rows then costs as much to fetch as to fill. A search asks for the same arrays at
every step, so what it frees stays with the process until it ends (`freed_memory_kept`).

Dask starts its workers with `MALLOC_TRIM_THRESHOLD_=65536`, so that idle workers are small. A threshold that
is set stops glibc from adapting the others: every array of more than 128 kB is then mapped afresh, which was
two fifths of a worker's CPU time on blocks of 1000 rows. What runs in a worker therefore sets both as well.
"""

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from threading import Lock
from typing import Any

from joblib import Parallel, delayed, effective_n_jobs
from threadpoolctl import ThreadpoolController

_limiting = Lock()  # held by the one call that limits threads and will restore them
_controller = cache(ThreadpoolController)  # which takes milliseconds
_libc = cache(ctypes.CDLL)  # a new one for every search would be left in cycles to the garbage collector


@contextmanager
def on_one_thread() -> Iterator[None]:
    """One BLAS thread until the end; may be nested, and entered from several Python threads.

    The number of threads belongs to the whole process, so only the outermost of calls that overlap changes it
    and restores it. One in another Python thread that outlasts it runs on with all threads.
    """
    if not _limiting.acquire(blocking=False):
        yield
        return
    try:
        with _controller().limit(limits=1, user_api="blas"):
            yield
    finally:
        _limiting.release()


def in_worker(function: Callable) -> Callable:
    """The function as a worker process runs it: one BLAS thread, and freed memory used again."""

    @wraps(function)
    def working(*arguments, **options):
        with freed_memory_kept(), on_one_thread():
            return function(*arguments, **options)

    return working


def in_parallel(function: Callable, arguments: Sequence[tuple], n_jobs: int | None) -> list:
    """`[function(*a) for a in arguments]` over joblib: a few batches per worker, each on one BLAS thread."""
    if n_jobs in (None, 1) or len(arguments) < 2:
        return [function(*a) for a in arguments]
    size = -(-len(arguments) // (4 * effective_n_jobs(n_jobs)))
    with on_one_thread():  # jobs that are threads of this process cannot limit it themselves
        return Parallel(n_jobs=n_jobs, batch_size=size)(delayed(_run)(function, (a,)) for a in arguments)


@in_worker
def _run(function: Callable, boxed: tuple[tuple]) -> Any:
    # The arguments travel inside a tuple: Dask's joblib backend scatters bare arrays without a replica, and
    # they would die with their worker.
    return function(*boxed[0])


_elsewhere: ContextVar[Any] = ContextVar("where blocks are computed", default=None)
where_blocks_are = _elsewhere.get  # what `blocks_elsewhere` was given; None: in this process


@contextmanager
def blocks_elsewhere(where: Any) -> Iterator[None]:
    """Until the end, fits have `where` compute the blocks of many rows (see `BlockPrior`)."""
    token = _elsewhere.set(where)
    try:
        yield
    finally:
        _elsewhere.reset(token)


# Numbers of parameters of mallopt (malloc.h), and what glibc lets the second grow to on 64 bits.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD = -1, -3, 32 * 1024**2
_KEPT, _KEPT_IN_SEARCH = 2 * _LARGEST_MMAP_THRESHOLD, 1024**3  # bytes that are free, at most
_n_searches = 0  # that run now


def _keep(n_bytes: int) -> None:
    """Let glibc keep up to so much freed memory; nothing happens with another C library."""
    libc = _libc(None) if sys.platform.startswith("linux") else None
    if libc is not None and hasattr(libc, "gnu_get_libc_version"):
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        libc.mallopt(_M_TRIM_THRESHOLD, n_bytes)


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Within, up to 1 GB that was freed stays with the process; afterwards up to 64 MB.

    Nothing happens where the user set the threshold of maps.
    """
    global _n_searches
    if "MALLOC_MMAP_THRESHOLD_" in os.environ:
        yield
        return
    _n_searches += 1
    _keep(_KEPT_IN_SEARCH)
    try:
        yield
    finally:
        _n_searches -= 1
        if not _n_searches:
            _keep(_KEPT)
