"""Tasks of a Dask cluster that may be done again when a worker dies, and errors that are clear."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

from distributed import Client, Future, get_client
from distributed.scheduler import KilledWorker

from gleangp.exceptions import ClusterError, GleanError


def current_client(client: Client | None) -> Client:
    """The client, or else the current one."""
    if client is not None:
        return client
    try:
        return get_client()
    except ValueError as error:
        raise ClusterError(
            "there is no Dask client. Start one, for example distributed.Client(), or give client=."
        ) from error


def submit(client: Client, function: Callable, *arguments: Any) -> Future:
    """A task whose arguments the scheduler keeps, so that it can be done again."""
    with warnings.catch_warnings():
        # Data that are scattered to workers would die with them, so they travel with the task.
        warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)
        return client.submit(function, *arguments, pure=False)


def send(client: Client, value: Any) -> Future:
    """A value that workers fetch once, from each other."""
    return submit(client, _hand_on, value)


def _hand_on(value: Any) -> Any:
    return value


def gather(client: Client, futures: list[Future]) -> list[Any]:
    """Their results, or an error with what to do."""
    try:
        return client.gather(futures)
    except KilledWorker as error:
        raise ClusterError(
            "workers died again and again over the same part of the data, which happens when one is out of "
            f"memory. Give workers more memory, or ask for fewer active points. Dask reports: {error}"
        ) from error
    except MemoryError as error:
        raise ClusterError(
            "a worker could not get the memory it needs. Give workers more of it, or ask for fewer active "
            "points."
        ) from error


@contextmanager
def connected(client: Client) -> Iterator[None]:
    """Whatever Dask raises because the scheduler is gone is one kind of error."""
    try:
        yield
    except GleanError:
        raise
    except Exception as error:
        if client.status == "running" and not isinstance(error, CancelledError):
            raise
        raise ClusterError(
            "the connection to the Dask scheduler was lost, or the fit was cancelled there. Start the "
            f"cluster and its client again, then fit. Dask reports: {str(error) or type(error).__name__}"
        ) from error
