"""The classes of which the fitted state of sparse estimators consists, registered for model files."""

from gleangp.inference.evidence import GroupKnowledge, Knowledge
from gleangp.inference.filtering import Sites
from gleangp.inference.local import LocalPosterior
from gleangp.inference.posterior import TaskPosterior
from gleangp.inference.prior import Term
from gleangp.inference.propagate import RowSites
from gleangp.io.classes import register
from gleangp.models import priors
from gleangp.models.active.model import SparseModel
from gleangp.models.choice import Choice
from gleangp.models.decisions import Decision
from gleangp.models.inputs import InputMap
from gleangp.models.local import upgrade
from gleangp.models.local.model import Draw, LocalModel
from gleangp.models.parameters import Parameters

register(Choice, Decision, Parameters)
register(priors.Exponential, priors.Gamma, priors.HalfCauchy, priors.HalfNormal)
register(priors.LogNormal, priors.Normal, priors.Pareto, priors.Tied)
# posterior="local" and "active"
register(Draw, GroupKnowledge, InputMap, LocalModel, LocalPosterior, RowSites, Term, BasisKnowledge=Knowledge)
register(SparseModel, Sites, TaskPosterior)
# Coupled models of version 0.1
register(upgrade.CoupledModel, upgrade.CoupledParameters, upgrade.CoupledPosterior)
register(upgrade.Knowledge, upgrade.OwnRows)
