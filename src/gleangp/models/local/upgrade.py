"""Coupled models of files that version 0.1 wrote: their parts, and how they become a `LocalModel`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gleangp._typing import FloatArray, IntArray
from gleangp.inference import evidence
from gleangp.inference.local import LocalPosterior
from gleangp.inference.prior import Term
from gleangp.models.inputs import identity_map
from gleangp.models.local.model import Draw, LocalModel
from gleangp.noise import Gaussian


@dataclass(frozen=True, slots=True, eq=False)
class Knowledge:
    """Of the shared functions: v ~ N(m, P^-1)."""

    m: FloatArray  # (D,)
    inner: FloatArray  # (D, D) lower factor of P


@dataclass(frozen=True, slots=True, eq=False)
class OwnRows:
    """The rows of one task, with their sites."""

    X: FloatArray
    alpha: FloatArray
    inverse: FloatArray
    F: FloatArray | None
    weights: FloatArray
    sites: Any
    known: Knowledge | None = None  # only of tasks that were added later


@dataclass(frozen=True, eq=False)
class CoupledPosterior:
    """The posterior of all tasks."""

    terms: tuple[Term, ...]
    Z: FloatArray
    chols: tuple[FloatArray | None, ...]
    known: Knowledge
    own: tuple[OwnRows, ...]
    log_evidence: float
    log_z: float
    jitter: float


@dataclass(frozen=True, eq=False)
class CoupledParameters:
    """Kernel, noise, and how tasks share the kernel's terms."""

    base: Any
    loadings: tuple[FloatArray, ...]
    own: tuple[FloatArray, ...]
    learn_loadings: bool = False
    own_priors: tuple[Any, ...] = ()


@dataclass(frozen=True, eq=False)
class CoupledModel:
    """Parameters and the posterior of all tasks."""

    parameters: CoupledParameters
    posterior: CoupledPosterior
    choice: Any
    active: IntArray
    active_task: IntArray
    gain: FloatArray
    site_mean: FloatArray
    site_precision: FloatArray
    n_rows: int
    n_rounds: int
    converged: bool
    last_change: float
    selection_objective: float | None = None

    def upgraded(self) -> LocalModel:
        """The same model as blocks, one for each task, and a basis; predictions are the same."""
        old, noise = self.posterior, self.parameters.base.noise
        # Rows that informed the basis come first.
        first = [t for t, own in enumerate(old.own) if own.known is None]
        tasks = first + [t for t, own in enumerate(old.own) if own.known is not None]
        rows = [old.own[t] for t in tasks]
        codes = np.repeat(tasks, [len(own.X) for own in rows])
        precision = np.concatenate([own.sites.precision for own in rows])
        posterior = LocalPosterior(
            old.terms,
            np.vstack([own.X for own in rows]),
            codes,
            precision,
            np.concatenate([own.sites.mean for own in rows]),
            False,
            sum(len(old.own[t].X) for t in first),
            len(codes),
            old.Z,
            evidence.Knowledge(old.known.m, old.known.inner),
            {},
            old.log_evidence,
            old.jitter,
        )
        variances = np.full(len(old.own) + 1, noise.variance) if isinstance(noise, Gaussian) else np.zeros(0)
        draw = Draw(posterior, np.zeros(0), variances)
        model = LocalModel(
            identity_map(old.Z.shape[1]),
            draw,
            (),
            noise,
            np.arange(sum(len(old.own[t].X) for t in first)),
            self.active,
            self.active_task,
            self.site_mean,
            self.site_precision,
            self.n_rows,
            (),
            self.converged,
            self.last_change,
            choice=self.choice,
        )
        for part in (posterior.common, posterior, draw, model):  # as if they had been read
            part._check_state()
        return model
