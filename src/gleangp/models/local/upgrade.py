"""Coupled models of files that version 0.1 wrote: their parts, and how they become a `LocalModel`."""

from dataclasses import field, make_dataclass
from typing import Any

import numpy as np

from gleangp.inference import evidence
from gleangp.inference.local import LocalPosterior
from gleangp.models.local.model import Draw, LocalModel
from gleangp.models.units import identity_map
from gleangp.noise import Gaussian


def _old(name: str, fields: str, **missing: Any) -> Any:
    """A class of old files with these fields, and values of those that a file may lack.

    Names end in what they must be: "*" an array of floats, "#" of whole numbers, "()" a tuple.
    """
    kinds = {"*": "FloatArray", "#": "IntArray", ")": "tuple"}
    given: list[Any] = [(word.rstrip("*#()"), kinds.get(word[-1], "Any")) for word in fields.split()]
    given += [(key, "Any", field(default=value)) for key, value in missing.items()]
    return make_dataclass(name, given, frozen=True, eq=False)


Knowledge = _old("Knowledge", "m* inner*")  # of the shared functions: v ~ N(m, P^-1), inner the factor of P
# The rows of one task with their sites; `known` only of tasks that were added later.
OwnRows = _old("OwnRows", "X* alpha* inverse* F weights* sites", known=None)
CoupledPosterior = _old("CoupledPosterior", "terms() Z* chols() known own() log_evidence log_z jitter")
CoupledParameters = _old("CoupledParameters", "base loadings() own()", learn_loadings=False, own_priors=())
Pareto = _old("Pareto", "", least=1.0, index=1.0)  # a prior of own variances


class CoupledModel(
    _old(  # type: ignore[misc]
        "CoupledModel",
        "parameters posterior choice active# active_task# gain* site_mean* site_precision* n_rows n_rounds "
        "converged last_change",
        selection_objective=None,
    )
):
    """Parameters and the posterior of all tasks."""

    def upgraded(self) -> LocalModel:
        """The same model as blocks, one for each task, and a basis; predictions are the same."""
        old, noise = self.posterior, self.parameters.base.noise
        # Rows that informed the basis come first.
        first = [t for t, own in enumerate(old.own) if own.known is None]
        tasks = first + [t for t, own in enumerate(old.own) if own.known is not None]
        rows, n_learnt = [old.own[t] for t in tasks], sum(len(old.own[t].X) for t in first)
        X, codes = np.vstack([own.X for own in rows]), np.repeat(tasks, [len(own.X) for own in rows])
        precision = np.concatenate([own.sites.precision for own in rows])
        sites = precision, np.concatenate([own.sites.mean for own in rows])
        common = evidence.Knowledge(old.known.m, old.known.inner)
        known: Any = False, n_learnt, len(codes), old.Z, common, {}, old.log_evidence, old.jitter
        posterior = LocalPosterior(old.terms, X, codes, *sites, *known)
        variances = np.full(len(old.own) + 1, noise.variance) if isinstance(noise, Gaussian) else np.zeros(0)
        draw, inputs = Draw(posterior, np.zeros(0), variances), identity_map(old.Z.shape[1])
        points = self.active, self.active_task, self.site_mean, self.site_precision
        end = self.n_rows, (), self.converged, self.last_change
        model = LocalModel(inputs, draw, (), noise, np.arange(n_learnt), *points, *end, choice=self.choice)
        for part in (common, posterior, draw, model):  # as if they had been read
            part._check_state()
        return model
