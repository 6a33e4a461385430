"""The classes that a model file may name, and how each is taken apart and put together.

A file names classes by the short names below or by public names of gleangp, so it cannot make Python
import or call anything else. Three kinds, told apart by what the class is:

* kernels are their constructor's parameters;
* frozen dataclasses are their fields;
* estimators, also those transformers of scikit-learn that are listed, are their constructor's parameters and
  what `fit` has set.

A class may have a method `_check_state`; it is called when a file was read and raises where shapes or
types do not fit together.
"""

from __future__ import annotations

import dataclasses
import re
from functools import cache
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.gaussian_process.kernels import Kernel

from gleangp._compat import CALLBACKS
from gleangp.exceptions import ModelFileError

# Every public estimator, selector and kernel of gleangp may be named too. A new noise model or dataclass of
# fitted state is added here.
_MODULES = {
    "sklearn.gaussian_process.kernels": (
        "CompoundKernel ConstantKernel DotProduct ExpSineSquared Exponentiation Matern PairwiseKernel "
        "Product RBF RationalQuadratic Sum WhiteKernel"
    ),
    "gleangp.noise.binomial": "Binomial",
    "gleangp.noise.gamma": "GammaNoise=Gamma",
    # What a TaskColumn may hold. The last two are made by SimpleImputer and ColumnTransformer.
    "sklearn.compose": "ColumnTransformer",
    "sklearn.pipeline": "Pipeline",
    "sklearn.impute": "SimpleImputer MissingIndicator",
    "sklearn.preprocessing": "MinMaxScaler OneHotEncoder OrdinalEncoder StandardScaler FunctionTransformer",
    "gleangp.noise.contaminated": "ContaminatedNormal",
    "gleangp.noise.gaussian": "Gaussian",
    "gleangp.noise.logit": "Logit",
    "gleangp.noise.negative_binomial": "NegativeBinomial",
    "gleangp.noise.null_category": "NullCategory",
    "gleangp.noise.ordered": "Ordered",
    "gleangp.noise.poisson": "Poisson",
    "gleangp.noise.probit": "Probit",
    "gleangp.noise.robust_probit": "RobustProbit",
    "gleangp.inference.data_dependent": "DataDependentPosterior",
    "gleangp.inference.evidence": "BasisKnowledge=Knowledge GroupKnowledge",
    "gleangp.inference.local": "LocalPosterior",
    "gleangp.inference.prior": "Term",
    "gleangp.inference.filtering": "Sites",
    "gleangp.inference.posterior": "TaskPosterior",
    "gleangp.models.latent.back_constraint": "Perceptron",
    "gleangp.models.hierarchical.model": "FittedTask HierarchicalModel",
    "gleangp.models.latent.model": "Blend LatentModel",
    "gleangp.models.latent.terms": "Mapping",
    "gleangp.models.latent.observations": "Observations",
    "gleangp.inference.propagate": "RowSites",
    "gleangp.models.choice": "Choice",
    "gleangp.models.parameters": "Parameters",
    "gleangp.models.priors": "Exponential Gamma HalfCauchy HalfNormal LogNormal Normal Pareto Tied",
    "gleangp.models.active.model": "SparseModel",
    "gleangp.models.decisions": "Decision",
    "gleangp.models.inputs": "InputMap",
    "gleangp.models.local.model": "Draw LocalModel",
    "gleangp.models.local.upgrade": "CoupledModel CoupledParameters CoupledPosterior Knowledge OwnRows",
    "gleangp.estimators._targets": "TargetUnits",
    "gleangp.data.tables": "ColumnEncoding",
    "gleangp.cli._encoding": "TableEncoding",
    "gleangp.cli._table_model": "TableModel",
}
# Name in a file -> module and name there. They differ where two modules have a class of one name.
KNOWN = {
    entry.split("=")[0]: (module, entry.split("=")[-1])
    for module, entries in _MODULES.items()
    for entry in entries.split()
}
_NAMES = {home: name for name, home in KNOWN.items()}

_FITTED_NAME = re.compile(r"_?[A-Za-z][A-Za-z0-9_]{0,99}")
_FIELD_TYPES: dict[str, Any] = {"bool": bool, "float": (float, int), "int": int, "str": str}


@cache
def find_class(name: str) -> type:
    """The class of a listed or public name."""
    cls = None
    if name in KNOWN:
        module, attribute = KNOWN[name]
        cls = getattr(import_module(module), attribute)
    elif name in _package().__all__:
        cls = getattr(_package(), name)
    if not isinstance(cls, type) or not (
        issubclass(cls, Kernel | BaseEstimator) or dataclasses.is_dataclass(cls)
    ):
        raise ModelFileError(f"it names {name!r}, which is not a part of a model that this version knows.")
    return cls


def _package() -> Any:
    """gleangp itself, whose public names are at home in layers above this one."""
    return import_module("gleangp")


def is_known(value: Any) -> bool:
    """Whether the class of a value may be named in a file."""
    name = _name(value)
    return (name in KNOWN or name in _package().__all__) and type(value) is find_class(name)


def _name(value: Any) -> str:
    """What a file calls the class of a value."""
    cls = type(value)
    return _NAMES.get((cls.__module__, cls.__name__), cls.__name__)


def is_from_sklearn(name: str) -> bool:
    """Whether a class is an estimator of scikit-learn, whose fitted state differs between its versions."""
    cls = find_class(name)
    return cls.__module__.startswith("sklearn.") and issubclass(cls, BaseEstimator)


def take_apart(value: Any) -> tuple[str, dict[str, Any]] | None:
    """Name and state of an object of a listed class; None for anything else."""
    if not is_known(value):
        return None
    name = _name(value)
    if dataclasses.is_dataclass(value):
        return name, {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    parameters: dict[str, Any] = value.get_params(deep=False)
    if isinstance(value, Kernel):
        return name, parameters
    _check_memory(name, parameters)
    fitted = {k: v for k, v in vars(value).items() if k not in parameters and k != CALLBACKS}
    return name, {"parameters": parameters, "fitted": fitted}


def put_together(name: str, state: dict[str, Any]) -> Any:
    """The object of a listed class; constructors of these classes do no more than store."""
    cls = find_class(name)
    if dataclasses.is_dataclass(cls):
        value = _dataclass(cls, state)
    elif issubclass(cls, Kernel):
        value = _construct(cls, state)
    else:
        value = _estimator(cls, state)
    check = getattr(value, "_check_state", None)
    if check is not None:
        check()
    return value


def _construct(cls: type, parameters: Any) -> Any:
    allowed = signature(cls).parameters
    unknown = [key for key in parameters if key not in allowed]
    if unknown:
        raise ModelFileError(f"{cls.__name__} has no parameter {unknown[0]!r}.")
    return cls(**parameters)


def _dataclass(cls: Any, state: dict[str, Any]) -> Any:
    fields = {f.name: f for f in dataclasses.fields(cls)}
    required = {k for k, f in fields.items() if f.default is f.default_factory is dataclasses.MISSING}
    if not required <= set(state) <= set(fields):
        raise ModelFileError(f"{cls.__name__} has the fields {sorted(fields)}, the file {sorted(state)}.")
    for key, value in state.items():
        if not _has_type(value, str(fields[key].type)):
            raise ModelFileError(
                f"{cls.__name__}.{key} should be {fields[key].type} and is {type(value).__name__}."
            )
    return cls(**state)


def _has_type(value: Any, annotation: str) -> bool:
    """Whether a value fits the annotation of its field, as far as that says something plain."""
    options = [part.strip() for part in annotation.split(" | ")]
    return any(_has_one_type(value, option) for option in options)


def _has_one_type(value: Any, annotation: str) -> bool:
    if annotation == "None":
        return value is None
    if annotation == "FloatArray":
        return isinstance(value, np.ndarray) and value.dtype == np.float64
    if annotation == "IntArray":
        return isinstance(value, np.ndarray) and value.dtype.kind == "i"
    if annotation.startswith("tuple["):
        return isinstance(value, tuple)
    if annotation in _FIELD_TYPES:
        is_bool = isinstance(value, bool | np.bool_)
        return (
            is_bool if annotation == "bool" else isinstance(value, _FIELD_TYPES[annotation]) and not is_bool
        )
    return True  # Any, a class of ours, ...: checked by whoever uses it


def _estimator(cls: Any, state: dict[str, Any]) -> Any:
    if set(state) != {"parameters", "fitted"}:
        raise ModelFileError(f"the state of {cls.__name__} has the parts {sorted(state)}.")
    _check_memory(cls.__name__, state["parameters"])
    value = _construct(cls, state["parameters"])
    for key, item in state["fitted"].items():
        plain = _FITTED_NAME.fullmatch(key) and (key.startswith("_") or key.endswith("_"))
        if not plain or hasattr(cls, key):
            raise ModelFileError(f"{cls.__name__} has no fitted attribute {key!r}.")
        setattr(value, key, item)
    return value


def _check_memory(name: str, parameters: dict[str, Any]) -> None:
    """Raise if a pipeline has a cache: fitting it would run what lies in that folder."""
    if parameters.get("memory") is not None:
        raise ModelFileError(f"{name} has memory={parameters['memory']!r}. Use memory=None in a model file.")
