"""Independent jobs over joblib: tasks of a selection, classes of a classifier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps

from joblib import Parallel, delayed, effective_n_jobs
from threadpoolctl import threadpool_limits


def one_thread(function: Callable) -> Callable:
    """The function with one BLAS thread inside: small blocks on several threads are slower, not faster."""

    @wraps(function)
    def limited(*arguments, **options):
        with threadpool_limits(1):
            return function(*arguments, **options)

    return limited


def in_parallel(function: Callable, arguments: Sequence[tuple], n_jobs: int | None) -> list:
    """`[function(*a) for a in arguments]` over joblib, in a few chunks per worker.

    One BLAS thread inside each job.
    """
    if n_jobs in (None, 1) or len(arguments) < 2:
        return [function(*a) for a in arguments]
    n_chunks = min(len(arguments), 4 * effective_n_jobs(n_jobs))
    chunks = [arguments[k::n_chunks] for k in range(n_chunks)]
    results = Parallel(n_jobs=n_jobs)(delayed(_run_chunk)(function, (chunk,)) for chunk in chunks)
    out = [None] * len(arguments)
    for k, part in enumerate(results):
        out[k::n_chunks] = part
    return out


@one_thread
def _run_chunk(function: Callable, boxed: tuple[Sequence[tuple]]) -> list:
    # The arguments travel inside a tuple: Dask's joblib backend scatters bare arrays without a
    # replica, and they would die with their worker.
    return [function(*arguments) for arguments in boxed[0]]
