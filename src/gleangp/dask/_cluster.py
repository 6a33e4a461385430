"""Work on a Dask cluster: tasks that are done again when a worker dies, clear errors, blocks of rows.

`BlocksOnCluster` is `BlockPrior.map`, with every stack computed by some worker. A part of the stacks travels
once, with the inputs of its rows. Each pass sends the sites of the rows, and gets back sums over blocks or
numbers for each row. The client adds them up in the order of the stacks, as in memory, so the result is the
same.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from distributed import Client, Future
from distributed.scheduler import KilledWorker

from gleangp._typing import FloatArray, IntArray
from gleangp.exceptions import ClusterError, GleanError
from gleangp.inference.block import Layout, Stack
from gleangp.inference.prior import BlockPrior, Term
from gleangp.numerics.parallel import in_worker

_PART_ROWS = 5000  # of consecutive stacks that one worker computes at a time
_AT_ONCE = 16  # parts whose results come to the client together


def submit(client: Client, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """A task whose arguments the scheduler keeps, so that it can be done again."""
    with warnings.catch_warnings():
        # Data that are scattered to workers would die with them, so they travel with the task.
        warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)
        return client.submit(function, *arguments, pure=False)


def send(client: Client, value: Any) -> Future[Any]:
    """A value that workers fetch once, from each other."""
    return submit(client, _hand_on, value)


def _hand_on(value: Any) -> Any:
    return value


def gather(client: Client, futures: list[Future[Any]]) -> list[Any]:
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
            "a worker could not get the memory it needs. Give workers more, or ask for fewer active points."
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


class Part(NamedTuple):
    """Some consecutive stacks."""

    stacks: list[tuple[int, Stack]]  # with their groups
    rows: IntArray  # (k + 1,) their rows, and the number of a padded one
    content: Future[Any]  # inputs and layout of these rows


class BlocksOnCluster:
    """The `map` of one prior, with the inputs of its rows on the cluster."""

    def __init__(self, client: Client, prior: BlockPrior):
        self._client = client
        self._model = send(client, (prior.terms, prior.Z))
        stacks = [(g, stack) for g, group in enumerate(prior.layout.groups) for stack in group.stacks]
        ends = np.cumsum([stack.rows.size for _, stack in stacks])
        numbered = zip(((ends - 1) // _PART_ROWS).tolist(), stacks, strict=True)
        self._parts = [
            self._send_part(prior, [stack for _, stack in members])
            for _, members in groupby(numbered, key=itemgetter(0))
        ]

    def __call__(
        self,
        function: Callable[..., Any],
        by_row: Sequence[FloatArray],
        shared: tuple[Any, ...],
        by_group: Sequence[Any],
    ) -> Iterator[tuple[int, IntArray, Any]]:
        """As `BlockPrior.map`."""
        of_all = send(self._client, (function, shared))
        of_group = [None if given is None else send(self._client, given) for given in by_group]
        futures: list[Any] = []
        for part in self._parts:
            arrays = [values[part.rows] for values in by_row]
            of_groups = [of_group[g] for g in dict.fromkeys(g for g, _ in part.stacks)]
            given = self._model, part.content, of_all, arrays, of_groups
            futures.append(submit(self._client, _map_part, *given))
        for start in range(0, len(futures), _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            for part, results in zip(self._parts[some], gather(self._client, futures[some]), strict=True):
                for (g, stack), result in zip(part.stacks, results, strict=True):
                    yield g, stack.rows, result
            futures[some] = [None] * len(futures[some])  # workers need not keep them

    def _send_part(self, prior: BlockPrior, stacks: list[tuple[int, Stack]]) -> Part:
        """Stacks whose rows are numbered among themselves, and the inputs of these rows."""
        n = len(prior.layout)
        every = np.concatenate([stack.rows[stack.rows < n] for _, stack in stacks])
        place = np.full(n + 1, len(every))  # also that of a padded row
        place[every] = np.arange(len(every))
        groups = [
            replace(prior.layout.groups[g], stacks=[replace(s, rows=place[s.rows]) for _, s in members])
            for g, members in groupby(stacks, key=itemgetter(0))
        ]
        layout = Layout(prior.layout.codes[every], groups)
        return Part(stacks, np.append(every, n), send(self._client, (prior.X[every], layout)))


@in_worker
def _map_part(
    model: tuple[list[Term], FloatArray],
    content: tuple[FloatArray, Layout],
    of_all: tuple[Callable[..., Any], tuple[Any, ...]],
    by_row: list[FloatArray],
    by_group: list[Any],
) -> list[Any]:
    """The function of every stack of a part."""
    (terms, Z), (X, layout), (function, shared) = model, content, of_all
    prior = BlockPrior(terms, X, layout, Z)
    return [result for _, _, result in prior.map(function, by_row, shared, by_group)]
