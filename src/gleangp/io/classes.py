"""The classes that a model file may name, and how each is taken apart and put together.

A file names classes by the short names below or by public names of gleangp, so it cannot make Python
import or call anything else. Three kinds, told apart by what the class is:

* kernels are their constructor's parameters;
* frozen dataclasses are their fields;
* estimators are their constructor's parameters and what `fit` has set.

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
    "gleangp.noise.gaussian": "Gaussian",
    "gleangp.noise.null_category": "NullCategory",
    "gleangp.noise.ordered": "Ordered",
    "gleangp.noise.probit": "Probit",
    "gleangp.inference.data_dependent": "DataDependentPosterior",
    "gleangp.inference.conditioning": "Knowledge",
    "gleangp.inference.coupled": "Term",
    "gleangp.inference.coupled_posterior": "CoupledPosterior OwnRows",
    "gleangp.inference.filtering": "Sites",
    "gleangp.inference.posterior": "TaskPosterior",
    "gleangp.learning.back_constraint": "Perceptron",
    "gleangp.learning.hierarchical_model": "FittedTask HierarchicalModel",
    "gleangp.learning.latent_model": "Blend LatentModel",
    "gleangp.learning.latent_terms": "Mapping",
    "gleangp.learning.observations": "Observations",
    "gleangp.inference.row_ep": "RowSites",
    "gleangp.learning.coupled_model": "CoupledModel",
    "gleangp.learning.couplings": "Choice CoupledParameters",
    "gleangp.learning.parameters": "Parameters",
    "gleangp.learning.priors": "Gamma LogNormal Normal Pareto",
    "gleangp.learning.sparse_model": "SparseModel",
    "gleangp.estimators._targets": "TargetUnits",
    "gleangp.cli._encoding": "ColumnEncoding TableEncoding",
    "gleangp.cli._table_model": "TableModel",
}
KNOWN = {name: module for module, names in _MODULES.items() for name in names.split()}

_FITTED_NAME = re.compile(r"_?[A-Za-z][A-Za-z0-9_]{0,99}")
_FIELD_TYPES: dict[str, Any] = {"bool": bool, "float": (float, int), "int": int, "str": str}


@cache
def find_class(name: str) -> type:
    """The class of a listed or public name."""
    cls = None
    if name in KNOWN:
        cls = getattr(import_module(KNOWN[name]), name)
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
    name = type(value).__name__
    return (name in KNOWN or name in _package().__all__) and type(value) is find_class(name)


def take_apart(value: Any) -> tuple[str, dict[str, Any]] | None:
    """Name and state of an object of a listed class; None for anything else."""
    if not is_known(value):
        return None
    name = type(value).__name__
    if dataclasses.is_dataclass(value):
        return name, {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    parameters: dict[str, Any] = value.get_params(deep=False)
    if isinstance(value, Kernel):
        return name, parameters
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
    value = _construct(cls, state["parameters"])
    for key, item in state["fitted"].items():
        plain = _FITTED_NAME.fullmatch(key) and (key.startswith("_") or key.endswith("_"))
        if not plain or hasattr(cls, key):
            raise ModelFileError(f"{cls.__name__} has no fitted attribute {key!r}.")
        setattr(value, key, item)
    return value
