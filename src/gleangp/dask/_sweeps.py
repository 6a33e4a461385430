"""Expectation propagation over the rows of one task in parts: sites stay with their rows on the workers.

The client forms the coefficients of the basis from sums over all parts and decides on the step; workers move
the sites (`inference.summed_ep`, as in memory). The sites after a sweep are a Dask future made from those
before it, so that those a dead worker had are made again, sweep by sweep, from the partitions on. What the
client sent for a sweep is a task of its own: the scheduler keeps it once, and not once for every group.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import numpy as np
from distributed import Future

from gleangp._typing import FloatArray
from gleangp.dask._groups import Group, first_of, second_of
from gleangp.dask._tasks import ClusterTasks, gather, submit
from gleangp.inference.row_ep import RowSites
from gleangp.inference.sliced_projection import SlicedRows
from gleangp.inference.summed_ep import Moving, SweepSums, sweep_slices
from gleangp.parallel import in_worker


class RemoteSweeps:
    """`sweep_slices` over all parts; `moving` has the sites of every group, with its worker."""

    def __init__(self, parts: ClusterTasks, kernel: Any, Z: FloatArray, chol: FloatArray):
        self.parts = parts
        self.basis = submit(parts.client, hand_on, (kernel, Z, chol))
        self.moving: list[Future] = [submit(parts.client, start_sites, group) for group in parts.groups]

    def __call__(self, step: float, inner: FloatArray, mean: FloatArray) -> SweepSums:
        client, noise = self.parts.client, self.parts.noise
        posterior = submit(client, hand_on, (inner, mean))
        pairs = [
            submit(client, sweep_parts, group, moving, noise, self.basis, posterior, step, place=place)
            for group, moving, place in zip(self.parts.groups, self.moving, self.parts.places, strict=True)
        ]
        self.moving = [submit(client, second_of, pair) for pair in pairs]
        return reduce(add, gather(client, [submit(client, first_of, pair) for pair in pairs]))


def hand_on(sent: Any) -> Any:
    """What the client sent, as a result that workers fetch from each other."""
    return sent


def start_sites(group: Group) -> list[Moving]:
    """Sites that say nothing yet, of every part of a group."""
    return [Moving.from_rest(RowSites(np.zeros(len(y)), np.zeros(len(y)))) for y in group.y]


@in_worker
def sweep_parts(
    group: Group,
    moving: list[Moving],
    noise: Any,
    basis: tuple[Any, FloatArray, FloatArray],
    posterior: tuple[FloatArray, FloatArray],
    step: float,
) -> tuple[SweepSums, list[Moving]]:
    """One sweep over the parts of a group: sums for the client, sites to go on from."""
    swept = [
        sweep_slices(SlicedRows(basis[0], block, *basis[1:]), block, sites, step, *posterior)
        for block, sites in zip(group.blocks(noise), moving, strict=True)
    ]
    return reduce(add, (sums for sums, _ in swept)), [sites for _, sites in swept]
