"""Virtual informative vectors: transformed copies of the active points compete for the active set.

Lawrence, Platt & Jordan 2005, section 6. Fit as usual; apply every invariance to the active points; select
again from points and copies, without learning the kernel again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.invariances import apply_invariances
from gleangp.models.active.tasks import Settings, TaskBlocks
from gleangp.models.decisions import in_standard_errors
from gleangp.models.defaults import HELD_OUT
from gleangp.progress import Stage
from gleangp.selection.base import in_order

if TYPE_CHECKING:
    from gleangp.models.active.model import SparseModel

ORIGINAL = -1  # in place of the number of an invariance


def add_virtual_vectors(
    model: SparseModel,
    tasks: TaskBlocks,
    numbers: list[int],
    settings: Settings,
    seed: int,
    other_evidence: float = 0.0,
) -> SparseModel:
    """The model with active points of some tasks chosen from points and transformed copies.

    Kernel, noise and the points of other tasks stay. `tasks` has the rows of the tasks with these numbers. In
    the result `active` has the row that a point came from, and `virtual` the number of the invariance that
    made it; `other_evidence` is the log evidence of the other tasks.
    """
    pools = [
        _pool(model, t, block, rows, settings.invariances)
        for t, block, rows in zip(numbers, tasks.all_blocks, tasks.all_rows or [], strict=True)
        if np.any(model.active_task == t)
    ]
    numbers = [t for t in numbers if np.any(model.active_task == t)]
    if not pools:
        return model
    wider = TaskBlocks([pool[0] for pool in pools], [pool[1] for pool in pools])
    selector = settings.selector if len(pools) > 1 else getattr(settings.selector, "alone", settings.selector)
    n_active = min(settings.n_active, sum(wider.sizes))
    settings = replace(settings, selector=selector, n_active=n_active, optimize=False)
    selection = wider.choose(model.kernel, settings, seed)
    stage = Stage("virtual points", len(pools), len(pools), len(selection.order))
    settings.progress(stage, 0, None)
    made_by = in_order(selection.order, [pool[2][a] for pool, a in zip(pools, selection.active, strict=True)])
    others = model.virtual[~np.isin(model.active_task, numbers)]
    fit = wider.fit(model.kernel, selection, settings)
    settings.progress(stage, len(pools), None)
    return replace(
        model.with_points(wider, numbers, selection, fit),
        log_evidence=other_evidence + fit[2],
        selection_objective=selection.objective,
        active_virtual=np.append(others, made_by),
    )


def virtual_scores(wider: SparseModel, model: SparseModel, tasks: TaskBlocks, seed: int) -> FloatArray | None:
    """What `virtual_scores` is, from rows that neither model has seen as an active point."""
    seen = np.union1d(wider.active, model.active)
    left = [np.flatnonzero(~np.isin(rows, seen)) for rows in tasks.all_rows or []]
    pairs = [(t, row) for t, rows in enumerate(left) for row in rows]
    if len(pairs) < HELD_OUT.least_rows:
        return None
    chosen = np.random.default_rng(seed).permutation(len(pairs))[: HELD_OUT.most_rows]
    codes, rows = np.array(pairs, dtype=np.intp)[chosen].T
    scores = []
    for one in (wider, model):
        found = np.zeros(len(rows))
        for t in np.unique(codes):
            block, at = tasks.all_blocks[t], codes == t
            noise = replace(block.noise, **_learnt(one, block))
            part = Block(block.X, block.y, noise).at(rows[at])
            mean, var = one.predict(part.X, codes[at])
            found[at] = part.noise.log_partition(part.y, mean, var)[0]
        scores.append(found)
    return np.array([*(s.mean() for s in scores), in_standard_errors(scores[0] - scores[1])])


def _pool(
    model: SparseModel, task: int, block: Block, rows: IntArray, invariances: Sequence[Any]
) -> tuple[Block, IntArray, IntArray]:
    """What may become active in a task: a block, the row each came from, and which invariance made it."""
    position = np.empty(int(rows.max()) + 1, dtype=np.intp)
    position[rows] = np.arange(len(rows))
    active = position[model.active[model.active_task == task]]
    copies = apply_invariances(invariances, block.X[active])
    source = np.concatenate([active, np.tile(active, len(copies))])
    virtual = np.concatenate([np.full(len(active), ORIGINAL), np.repeat(np.arange(len(copies)), len(active))])
    X: FloatArray = np.vstack([block.X[active], *copies])
    noise = replace(block.noise, **_learnt(model, block))
    pool = replace(Block(block.X, block.y, noise).at(source), X=X)
    return pool, rows[source], virtual


def _learnt(model: SparseModel, block: Block) -> dict[str, Any]:
    """Values of noise parameters that the model has and that are not the rows' own."""
    own = block.noise.parameters
    names = [n for n, value in model.noise.parameters.items() if np.shape(value) == np.shape(own[n])]
    return {name: model.noise.parameters[name] for name in names}
