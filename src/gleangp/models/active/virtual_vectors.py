"""Virtual informative vectors: transformed copies of the active points compete for the active set.

Lawrence, Platt & Jordan 2005, section 6. Fit as usual; apply every invariance to the active points; select
again from points and copies, without learning the kernel again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.block import Block
from gleangp.invariances import apply_invariances
from gleangp.models.active.fit_blocks import choose_points, fit_blocks
from gleangp.models.active.model import SparseModel
from gleangp.models.active.settings import Settings
from gleangp.models.active.task_store import LocalTasks
from gleangp.models.defaults import HELD_OUT
from gleangp.progress import Stage, Steps

ORIGINAL = -1  # in place of the number of an invariance


def add_virtual_vectors(
    model: SparseModel, tasks: LocalTasks, invariances: list, settings: Settings, seed: int
) -> SparseModel:
    """The model with an active set chosen from points and transformed copies; kernel and noise stay.

    `tasks` is what the model was fitted on. In the result `active` has the row that a point came from,
    and `virtual` the number of the invariance that made it.
    """
    blocks: Any = tasks.all_blocks
    block_rows: Any = tasks.all_rows
    filled = [t for t in range(len(blocks)) if np.any(model.active_task == t)]
    pools = [_pool(model, t, blocks[t], block_rows[t], invariances) for t in filled]
    wider = [pool[0] for pool in pools]
    settings = replace(settings, n_active=min(settings.n_active, sum(len(b) for b in wider)), optimize=False)
    selection = choose_points(model.kernel, wider, settings, seed)
    stage = Stage("virtual points", len(wider), len(wider), len(selection.order))
    settings.progress(stage, 0, None)
    settings = replace(settings, task_done=Steps(settings.progress, stage))
    posteriors, sites, log_evidence = fit_blocks(model.kernel, wider, selection, settings)
    all_posteriors, all_sites = list(model.posteriors), list(model.sites)
    virtual = np.empty(len(selection.order), dtype=np.intp)
    for k, t in enumerate(filled):
        all_posteriors[t], all_sites[t] = posteriors[k], sites[k]
        virtual[selection.order == k] = pools[k][2][selection.active[k]]
    wider_model = replace(
        model,
        posteriors=tuple(all_posteriors),
        sites=tuple(all_sites),
        active=selection.rows([pool[1] for pool in pools]),
        active_task=np.array(filled, dtype=np.intp)[selection.order],
        gain=selection.gain,
        log_evidence=log_evidence,
        selection_objective=selection.objective,
        active_virtual=virtual,
    )
    return replace(wider_model, virtual_scores=_scores(wider_model, model, tasks, seed))


def _scores(wider: SparseModel, model: SparseModel, tasks: LocalTasks, seed: int) -> FloatArray | None:
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
    d = scores[0] - scores[1]
    error = np.std(d, ddof=1) / np.sqrt(len(d))
    return np.array([*(s.mean() for s in scores), d.mean() / error if error > 0.0 else 0.0])


def add_virtual_vectors_to_last(
    model: SparseModel, block: Block, invariances: list, settings: Settings, seed: int, other_evidence: float
) -> SparseModel:
    """The same for the task that was added last, of which `block` has the rows; the others stay.

    `other_evidence` is the log evidence of the others.
    """
    task = model.n_tasks - 1
    mine = model.active_task == task
    if not mine.any():
        return model
    numbers = model.n_rows - len(block) + np.arange(len(block))
    pool, sources, virtual = _pool(model, task, block, numbers, invariances)
    selector = getattr(settings.selector, "alone", settings.selector)
    settings = replace(settings, selector=selector, n_active=min(settings.n_active, len(pool)))
    selection = choose_points(model.kernel, [pool], settings, seed)
    posteriors, sites, log_evidence = fit_blocks(model.kernel, [pool], selection, settings)
    chosen = selection.active[0]
    return replace(
        model,
        posteriors=(*model.posteriors[:-1], posteriors[0]),
        sites=(*model.sites[:-1], sites[0]),
        active=np.append(model.active[~mine], sources[chosen]),
        active_task=np.append(model.active_task[~mine], np.full(len(chosen), task)),
        gain=np.append(model.gain[~mine], selection.gain),
        log_evidence=other_evidence + log_evidence,
        active_virtual=np.append(model.virtual[~mine], virtual[chosen]),
    )


def _pool(
    model: SparseModel, task: int, block: Block, rows: IntArray, invariances: list
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


def _learnt(model: SparseModel, block: Block) -> dict:
    """Values of noise parameters that the model has and that are not the rows' own."""
    own = block.noise.parameters
    names = [n for n, value in model.noise.parameters.items() if np.shape(value) == np.shape(own[n])]
    return {name: model.noise.parameters[name] for name in names}
