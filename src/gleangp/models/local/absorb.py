"""New rows of known tasks, under parameters that stay as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.inference.evidence import condition, gaussian_evidence
from gleangp.inference.local import LocalPosterior
from gleangp.inference.prior import BlockPrior, lay_out
from gleangp.models.local.data import Data, blocks_of_tasks, targets_of
from gleangp.models.local.model import Draw, LocalModel
from gleangp.models.local.new_task import log_normal, propagate_dense, with_rows


def absorb(model: LocalModel, X: FloatArray, y: FloatArray, codes: IntArray, noise: Any) -> LocalModel:
    """The model after new rows of known tasks; sites of the rows before stay.

    The new rows are blocks of their own: nothing else is computed again.
    """

    def after(draw: Draw) -> Draw:
        of_rows = noise if model.gaussian or not draw.noise.size else noise.with_variance(draw.noise[codes])
        W = model.inputs(X, draw.warp)
        return _absorbed(draw, W, y, codes, of_rows, model.gaussian, with_evidence=draw is model.best)

    draws, best = tuple(map(after, model.draws)), after(model.best)
    targets = model.targets
    if targets is not None:
        new, learnt = targets_of(y, noise), _learnt(model.best.posterior, codes)
        targets = {name: np.append(values, new[name][learnt]) for name, values in targets.items()}
    return replace(model, best=best, draws=draws, n_rows=model.n_rows + len(y), targets=targets)


def _learnt(posterior: LocalPosterior, codes: IntArray) -> np.ndarray:
    """(n,) whether rows of these tasks inform the basis variables: tasks added later do not."""
    return np.array([posterior._informed(int(task)) for task in codes], dtype=bool)


def _absorbed(draw: Draw, W, y, codes, noise, gaussian: bool, *, with_evidence: bool) -> Draw:
    """The draw after new rows; the evidence is that of the best one alone."""
    posterior = draw.posterior
    learnt = _learnt(posterior, codes)
    if gaussian:
        precision, site_mean, evidence = 1.0 / (draw.noise[codes] * noise), y, 0.0
        dense = np.full(len(y), posterior.together) | ~learnt
        if with_evidence and dense.any():
            mean, cov = posterior.predict_cov(W[dense], codes[dense])
            cov = cov + np.diag(1.0 / precision[dense])
            evidence = float(log_normal(y[dense], mean[None], cov[None])[0])
    else:
        mean, cov = posterior.predict_cov(W, codes)
        sites, [evidence] = propagate_dense(mean[None], cov[None], y, noise)
        precision, site_mean = sites.precision[0], sites.mean[0]
    if posterior.together:
        return replace(draw, posterior=_reordered(posterior, W, codes, precision, site_mean, evidence))
    common = posterior.common
    if learnt.any():
        rows = np.flatnonzero(learnt)
        data = Data(W[rows], y[rows], codes[rows], len(posterior.terms[0].own), np.ones(len(rows)))
        blocks = blocks_of_tasks(data, data.X, posterior.block_size)
        prior = BlockPrior(posterior.terms, data.X, lay_out(data.codes, blocks), posterior.Z)
        q = condition(prior, precision[rows], (precision * site_mean)[rows], common, rows=False)
        common = q.common
        evidence += gaussian_evidence(q, precision[rows]) if gaussian else 0.0
    after = _reordered(posterior, W, codes, precision, site_mean, evidence)
    # New rows inform the common variables alone.
    own = {t: (Z, posterior.group(t) if t in codes else known) for t, (Z, known) in posterior.own.items()}
    return replace(draw, posterior=replace(after, common=common, own=own))


def _reordered(posterior: LocalPosterior, W, codes, precision, site_mean, evidence) -> LocalPosterior:
    """The posterior with the new rows of tasks that were learnt before those of tasks added later."""
    after = with_rows(posterior, W, codes, precision, site_mean, evidence)
    first = _learnt(posterior, np.arange(len(posterior.terms[0].own)))[after.codes]
    order = np.argsort(~first, kind="stable")
    return replace(
        after,
        X=after.X[order],
        codes=after.codes[order],
        precision=after.precision[order],
        site_mean=after.site_mean[order],
        n_learnt=int(first.sum()),
    )
