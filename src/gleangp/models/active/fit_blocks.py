"""What is done with the blocks of given tasks in one process: choose points, form the evidence, fit.

Tasks that share a kernel alone do not interact, so any part of them can be dealt with anywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gleangp.inference.active_ep import propagate
from gleangp.inference.block import Block
from gleangp.inference.filtering import Sites, filter_in_order
from gleangp.inference.posterior import TaskPosterior, log_evidence_of_sites, posterior_from_sites
from gleangp.models.active.evidence import ActiveGaussianEvidence, ActiveSiteEvidence
from gleangp.models.active.settings import Settings
from gleangp.selection.base import Selection
from gleangp.selection.everything import keep_everything
from gleangp.selection.two_rounds import needs_two_rounds, select_in_two_rounds


def choose_points(kernel, blocks: list[Block], settings: Settings, seed: int) -> Selection:
    """The selector's choice; where every row is kept and noise is Gaussian there is none to make."""
    n_rows = sum(len(b) for b in blocks)
    if all(keeps_all(b.noise, n_rows, settings) for b in blocks):
        return keep_everything(kernel, [b.whole() for b in blocks])
    selector, rng = settings.selector, np.random.default_rng(seed)
    alone = len(blocks) == 1 and getattr(selector, "task_by_task", False)
    if alone and needs_two_rounds(n_rows, settings.n_active):
        return select_in_two_rounds(
            selector, kernel, blocks[0], settings.n_active, rng=rng, n_jobs=settings.n_jobs
        )
    whole = [b.whole() for b in blocks]
    return selector.select(kernel, whole, settings.n_active, rng=rng, n_jobs=settings.n_jobs)


def keeps_all(noise, n_rows: int, settings: Settings) -> bool:
    """Whether all rows become active with Gaussian noise of one variance.

    The order of inclusion is then that of a pivoted Cholesky.
    """
    return (
        settings.n_active >= n_rows and not noise.precision_depends_on_mean and np.ndim(noise.variance) == 0
    )


def evidence_of_blocks(kernel, blocks: list[Block], selection: Any, settings: Settings, exact: bool):
    """The objective of a round for given active points; None if `exact`: these are all rows."""
    if exact:
        return ActiveGaussianEvidence(blocks)
    kept = [b.at(a) for b, a in zip(blocks, selection.active, strict=True)]
    if not blocks[0].noise.precision_depends_on_mean:
        return ActiveGaussianEvidence(kept)
    sites = [_active_sites(kernel, k, selection, t, settings)[0] for t, k in enumerate(kept)]
    return ActiveSiteEvidence([k.X for k in kept], sites)


def fit_blocks(
    kernel,
    blocks: list[Block],
    selection: Selection,
    settings: Settings,
) -> tuple[list[TaskPosterior], list[Sites], float]:
    """Posterior and sites of every task for given active points, and the log evidence."""
    posteriors, all_sites, log_evidence = [], [], 0.0
    all_kept = [b.at(a) for b, a in zip(blocks, selection.active, strict=True)]
    for t, kept in enumerate(all_kept):
        sites, value = _active_sites(kernel, kept, selection, t, settings)
        posterior = posterior_from_sites(kernel, kept.X, sites)
        if value is None:
            value = log_evidence_of_sites(posterior, sites)
        posteriors.append(posterior)
        all_sites.append(sites)
        log_evidence += value
        settings.task_done()
    return posteriors, all_sites, log_evidence


def _active_sites(kernel, kept: Block, selection: Selection, task: int, settings: Settings):
    """Sites of a task's active points, and their log evidence where finding them gave it."""
    if len(kept) == 0:
        return Sites(np.zeros(0), np.zeros(0)), 0.0
    if not kept.noise.precision_depends_on_mean:
        variance = np.broadcast_to(kept.noise.variance, kept.y.shape)
        sites = Sites(kept.y - kept.noise.bias, 1.0 / variance)
    else:
        sites = selection.sites[task] if selection.sites is not None else filter_in_order(kernel, kept)
        if settings.propagate:
            propagated = propagate(kernel, kept, sites)
            return propagated.sites, propagated.log_evidence
    return sites, None
