"""Several classes learnt one against the rest, whose unlabelled rows belong to exactly one of them.

Kernel and noise of every class are learnt on its own; `exclude_each_other` then forms the posteriors of all
classes together (`inference.exclusive`), on the bases that they have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gleangp._typing import IntArray
from gleangp.inference.block import Block
from gleangp.inference.exclusive import ExclusiveClass, settle_exclusive
from gleangp.inference.filtering import Sites
from gleangp.learning.sparse_model import SparseModel


def exclude_each_other(
    models: Sequence[SparseModel],
    blocks: dict[int, list[Block]],
    rows: dict[int, IntArray],
    other_evidence: Sequence[float],
) -> tuple[list[SparseModel], dict[int, list[Block]]]:
    """The models of all classes with posteriors that share the unlabelled rows of some tasks.

    `blocks[t]` are the rows of task t as each class sees them, `rows[t]` their numbers in the training set,
    ascending, and `other_evidence` what each class has for the tasks that are not among them. The blocks
    come back with what the other classes say of their rows.
    """
    models = [replace(m, log_evidence=e) for m, e in zip(models, other_evidence, strict=True)]
    heard = dict(blocks)
    for task, own in blocks.items():
        if len(own[0]) == 0:
            continue
        own = [replace(b, noise=m.noise) for b, m in zip(own, models, strict=True)]
        bases = [m.posteriors[task].X for m in models]
        settled = settle_exclusive([m.kernel for m in models], own, bases)
        heard[task] = [s.block for s in settled]
        models = [_with_task(m, task, s, rows[task]) for m, s in zip(models, settled, strict=True)]
    return models, heard


def _with_task(model: SparseModel, task: int, settled: ExclusiveClass, rows: IntArray) -> SparseModel:
    posteriors, sites = list(model.posteriors), list(model.sites)
    active = np.searchsorted(rows, model.active[model.active_task == task])
    kept = settled.sites.at(active)
    posteriors[task] = settled.posterior
    sites[task] = Sites(kept.mean, kept.precision, settled.sites.n_silent)
    return replace(
        model,
        posteriors=tuple(posteriors),
        sites=tuple(sites),
        log_evidence=model.log_evidence + settled.evidence,
    )
