"""Gaussian processes for many related tasks, few labels and few points.

Public names are imported when they are first used, so that `import gleangp` is cheap. To add one: its home
in `_NAMES`, and the import for type checkers. The test of the public names checks that the two agree.
`gleangp.dask` is not in `__all__`: it needs the extra `dask`, and `from gleangp import *` must work without.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from gleangp._version import __version__ as __version__

if TYPE_CHECKING:
    from gleangp import dask as dask
    from gleangp import datasets as datasets
    from gleangp import exceptions as exceptions
    from gleangp import noise as noise
    from gleangp import plots as plots
    from gleangp import report as report
    from gleangp.constraints import DifferenceOrder as DifferenceOrder
    from gleangp.constraints import Order as Order
    from gleangp.data.tasks import stack_outputs as stack_outputs
    from gleangp.data.tasks import unstack_outputs as unstack_outputs
    from gleangp.estimators._hierarchical import HierarchicalGPRegressor as HierarchicalGPRegressor
    from gleangp.estimators._latent_estimators import SharedLatentGPClassifier as SharedLatentGPClassifier
    from gleangp.estimators._latent_estimators import SharedLatentGPRegressor as SharedLatentGPRegressor
    from gleangp.estimators._ordinal import SparseGPOrdinal as SparseGPOrdinal
    from gleangp.estimators._sparse_classifier import SparseGPClassifier as SparseGPClassifier
    from gleangp.estimators._sparse_regressor import SparseGPRegressor as SparseGPRegressor
    from gleangp.estimators._task_column import TaskColumn as TaskColumn
    from gleangp.invariances import rotations as rotations
    from gleangp.invariances import translations as translations
    from gleangp.io import load as load
    from gleangp.io import save as save
    from gleangp.kernels.arcsine import ArcSine as ArcSine
    from gleangp.kernels.scaled_inputs import ScaledInputs as ScaledInputs
    from gleangp.model_selection import TaskKFold as TaskKFold
    from gleangp.models.terms import CoregionCoupling as CoregionCoupling
    from gleangp.models.terms import FunctionCoupling as FunctionCoupling
    from gleangp.selection.relevance import LabelRelevance as LabelRelevance
    from gleangp.selection.relevance import PosteriorRelevance as PosteriorRelevance
    from gleangp.selection.relevance import TaskRelevance as TaskRelevance
    from gleangp.selection.selectors import EntropySelector as EntropySelector
    from gleangp.selection.selectors import GraphSelector as GraphSelector
    from gleangp.selection.selectors import InformationGainSelector as InformationGainSelector
    from gleangp.selection.selectors import RandomSelector as RandomSelector
    from gleangp.selection.selectors import ResidualSelector as ResidualSelector

# Module -> the public names that it defines
_NAMES = {
    "gleangp.constraints": "DifferenceOrder Order",
    "gleangp.data.tasks": "stack_outputs unstack_outputs",
    "gleangp.estimators._hierarchical": "HierarchicalGPRegressor",
    "gleangp.estimators._ordinal": "SparseGPOrdinal",
    "gleangp.estimators._latent_estimators": "SharedLatentGPClassifier SharedLatentGPRegressor",
    "gleangp.estimators._sparse_classifier": "SparseGPClassifier",
    "gleangp.estimators._sparse_regressor": "SparseGPRegressor",
    "gleangp.estimators._task_column": "TaskColumn",
    "gleangp.invariances": "rotations translations",
    "gleangp.io": "load save",
    "gleangp.kernels.arcsine": "ArcSine",
    "gleangp.kernels.scaled_inputs": "ScaledInputs",
    "gleangp.model_selection": "TaskKFold",
    "gleangp.models.terms": "CoregionCoupling FunctionCoupling",
    "gleangp.selection.relevance": "LabelRelevance PosteriorRelevance TaskRelevance",
    "gleangp.selection.selectors": (
        "EntropySelector GraphSelector InformationGainSelector RandomSelector ResidualSelector"
    ),
}
_MODULES = "dask datasets exceptions noise plots report"
# Public name -> module that defines it; a module is its own home.
_HOME = {name: home for home, names in _NAMES.items() for name in names.split()}
_HOME |= {name: f"gleangp.{name}" for name in _MODULES.split()}
# Of the layers above the estimators, not public: classes that model files contain.
STORED = {"TableModel": "gleangp.cli._table_model"}

__all__ = sorted({"__version__", *_HOME} - {"dask"})


def __getattr__(name: str) -> object:
    home = _HOME.get(name) or STORED.get(name)
    if home is None:
        raise AttributeError(f"module 'gleangp' has no attribute {name!r}")
    module = import_module(home)
    value = module if home == f"gleangp.{name}" else getattr(module, name)
    globals()[name] = value  # the next access does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
