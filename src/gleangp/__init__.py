"""Gaussian processes for many related tasks, few labels and few points.

Public names are imported when they are first used, so that `import gleangp` is cheap. To add one:
its home in `_HOME`, the name in `__all__`, and the import for type checkers. The test of the public
names checks that the three agree. `gleangp.dask` is not in `__all__`: it needs the extra `dask`, and
`from gleangp import *` must work without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from gleangp._version import __version__

if TYPE_CHECKING:
    from gleangp import dask as dask  # not in __all__
    from gleangp import datasets, exceptions, noise, plots, report
    from gleangp.constraints import DifferenceOrder, Order
    from gleangp.data.outputs import stack_outputs, unstack_outputs
    from gleangp.estimators._hierarchical import HierarchicalGPRegressor
    from gleangp.estimators._ordinal import SparseGPOrdinal
    from gleangp.estimators._shared_latent_classifier import SharedLatentGPClassifier
    from gleangp.estimators._shared_latent_regressor import SharedLatentGPRegressor
    from gleangp.estimators._sparse_classifier import SparseGPClassifier
    from gleangp.estimators._sparse_regressor import SparseGPRegressor
    from gleangp.estimators._task_column import TaskColumn
    from gleangp.invariances import rotations, translations
    from gleangp.io import load, save
    from gleangp.kernels.arcsine import ArcSine
    from gleangp.kernels.scaled_inputs import ScaledInputs
    from gleangp.model_selection import TaskKFold
    from gleangp.models.couplings import CoregionCoupling, FunctionCoupling
    from gleangp.selection.descriptors import LabelRelevance, PosteriorRelevance
    from gleangp.selection.graph import GraphSelector
    from gleangp.selection.relevance import TaskRelevance
    from gleangp.selection.selectors import (
        EntropySelector,
        InformationGainSelector,
        RandomSelector,
        ResidualSelector,
    )

__all__ = [
    "ArcSine",
    "CoregionCoupling",
    "DifferenceOrder",
    "EntropySelector",
    "FunctionCoupling",
    "GraphSelector",
    "HierarchicalGPRegressor",
    "InformationGainSelector",
    "LabelRelevance",
    "Order",
    "PosteriorRelevance",
    "RandomSelector",
    "ResidualSelector",
    "ScaledInputs",
    "SharedLatentGPClassifier",
    "SharedLatentGPRegressor",
    "SparseGPClassifier",
    "SparseGPOrdinal",
    "SparseGPRegressor",
    "TaskColumn",
    "TaskKFold",
    "TaskRelevance",
    "__version__",
    "datasets",
    "exceptions",
    "load",
    "noise",
    "plots",
    "report",
    "rotations",
    "save",
    "stack_outputs",
    "translations",
    "unstack_outputs",
]

# Public name -> module that defines it; a module is its own home.
_HOME = {
    "ArcSine": "gleangp.kernels.arcsine",
    "CoregionCoupling": "gleangp.models.couplings",
    "DifferenceOrder": "gleangp.constraints",
    "EntropySelector": "gleangp.selection.selectors",
    "FunctionCoupling": "gleangp.models.couplings",
    "GraphSelector": "gleangp.selection.graph",
    "HierarchicalGPRegressor": "gleangp.estimators._hierarchical",
    "InformationGainSelector": "gleangp.selection.selectors",
    "LabelRelevance": "gleangp.selection.descriptors",
    "Order": "gleangp.constraints",
    "PosteriorRelevance": "gleangp.selection.descriptors",
    "RandomSelector": "gleangp.selection.selectors",
    "ResidualSelector": "gleangp.selection.selectors",
    "ScaledInputs": "gleangp.kernels.scaled_inputs",
    "SharedLatentGPClassifier": "gleangp.estimators._shared_latent_classifier",
    "SharedLatentGPRegressor": "gleangp.estimators._shared_latent_regressor",
    "SparseGPClassifier": "gleangp.estimators._sparse_classifier",
    "SparseGPOrdinal": "gleangp.estimators._ordinal",
    "SparseGPRegressor": "gleangp.estimators._sparse_regressor",
    "TaskColumn": "gleangp.estimators._task_column",
    "TaskKFold": "gleangp.model_selection",
    "TaskRelevance": "gleangp.selection.relevance",
    "dask": "gleangp.dask",
    "datasets": "gleangp.datasets",
    "exceptions": "gleangp.exceptions",
    "load": "gleangp.io",
    "noise": "gleangp.noise",
    "plots": "gleangp.plots",
    "report": "gleangp.report",
    "rotations": "gleangp.invariances",
    "save": "gleangp.io",
    "stack_outputs": "gleangp.data.outputs",
    "translations": "gleangp.invariances",
    "unstack_outputs": "gleangp.data.outputs",
}
# Of the layers above the estimators, not public: classes that model files contain.
STORED = {"TableModel": "gleangp.cli._table_model"}


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
