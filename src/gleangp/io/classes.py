"""The classes that a model file may name, and how each is taken apart and put together.

A file names classes that were registered, or public names of gleangp, so it cannot make Python import or call
anything else. The layers above register their classes where they are used: the noise models in `noise`, the
fitted state of an estimator beside the estimator. Three kinds, told apart by what the class is:

* kernels are their constructor's parameters;
* frozen dataclasses are their fields;
* estimators, also those transformers of scikit-learn that are listed, are their constructor's parameters and
  what `fit` has set.

A method `_check_state` of a class is called when a file was read; it raises where parts do not fit together.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.gaussian_process.kernels import Kernel

from gleangp._compat import CALLBACKS
from gleangp.exceptions import ModelFileError

# Of scikit-learn: kernels, and what a TaskColumn may hold. SimpleImputer and ColumnTransformer make
# MissingIndicator and FunctionTransformer.
_SKLEARN = {
    "sklearn.gaussian_process.kernels": (
        "CompoundKernel ConstantKernel DotProduct ExpSineSquared Exponentiation Matern PairwiseKernel "
        "Product RBF RationalQuadratic Sum WhiteKernel"
    ),
    "sklearn.compose": "ColumnTransformer",
    "sklearn.pipeline": "Pipeline",
    "sklearn.impute": "SimpleImputer MissingIndicator",
    "sklearn.preprocessing": "MinMaxScaler OneHotEncoder OrdinalEncoder StandardScaler FunctionTransformer",
}
_HOMES = {name: module for module, names in _SKLEARN.items() for name in names.split()}
TRANSFORMERS = {name for name, module in _HOMES.items() if not module.endswith("kernels")}
_CLASSES: dict[str, type] = {}  # name in a file -> class
_NAMES: dict[type, str] = {}

# Public names are imported from the layers above when they are first used.
gleangp: Any = import_module("gleangp")

_FITTED_NAME = re.compile(r"_?[A-Za-z][A-Za-z0-9_]{0,99}")
_FIELD_TYPES: dict[str, Callable[[Any], bool]] = {
    "None": lambda value: value is None,
    "FloatArray": lambda value: isinstance(value, np.ndarray) and value.dtype == np.float64,
    "IntArray": lambda value: isinstance(value, np.ndarray) and value.dtype.kind == "i",
    "tuple": lambda value: isinstance(value, tuple),
    "bool": lambda value: isinstance(value, bool | np.bool_),
    "float": lambda value: isinstance(value, float | int) and not isinstance(value, bool),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "str": lambda value: isinstance(value, str),
}


def register(*classes: type, **renamed: type) -> None:
    """Let model files contain objects of these classes, under their own names or under other ones."""
    for name, cls in [*((cls.__name__, cls) for cls in classes), *renamed.items()]:
        known = _CLASSES.setdefault(name, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"two classes for model files have the name {name!r}: give one another name.")
        _CLASSES[name] = cls  # the newer one, if a module is loaded again
        _NAMES[cls] = name


def import_homes(names: Iterable[str]) -> None:
    """Import the public classes among these names, whose modules register the classes of their state."""
    for name in sorted({*gleangp.__all__, *gleangp.STORED} & set(names)):
        getattr(gleangp, name)


def find_class(name: str) -> type:
    """The class of a registered, listed or public name."""
    cls = _CLASSES.get(name)
    if cls is None and name in _HOMES:
        cls = getattr(import_module(_HOMES[name]), name)
    elif cls is None and name in gleangp.__all__:
        cls = getattr(gleangp, name)
    if not isinstance(cls, type) or not (
        issubclass(cls, Kernel | BaseEstimator) or dataclasses.is_dataclass(cls)
    ):
        raise ModelFileError(f"it names {name!r}, which is not a part of a model that this version knows.")
    return cls


def name_of(value: Any) -> str | None:
    """What a file calls the class of a value; None if it may not be named."""
    cls = type(value)
    name = _NAMES.get(cls, cls.__name__)
    listed = name in _HOMES or name in gleangp.__all__
    return name if cls in _NAMES or (listed and cls is find_class(name)) else None


def take_apart(value: Any) -> tuple[str, dict[str, Any]] | None:
    """Name and state of an object of a listed class; None for anything else."""
    name = name_of(value)
    if name is None:
        return None
    if dataclasses.is_dataclass(value) and not isinstance(value, BaseEstimator):
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
    if issubclass(cls, BaseEstimator):
        value = _estimator(cls, state)
    elif issubclass(cls, Kernel):
        value = _construct(cls, state)
    else:
        value = _dataclass(cls, state)
    if hasattr(value, "_check_state"):
        value._check_state()
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
        kinds = [part.strip().split("[")[0] for part in str(fields[key].type).split(" | ")]
        # Any, a class of ours, ...: checked by whoever uses it.
        if not any(kind not in _FIELD_TYPES or _FIELD_TYPES[kind](value) for kind in kinds):
            raise ModelFileError(
                f"{cls.__name__}.{key} should be {fields[key].type} and is {type(value).__name__}."
            )
    return cls(**state)


def _estimator(cls: Any, state: dict[str, Any]) -> Any:
    if set(state) != {"parameters", "fitted"}:
        raise ModelFileError(f"the state of {cls.__name__} has the parts {sorted(state)}.")
    former = getattr(cls, "_former_parameters", ())  # which older files have, and which have no effect
    parameters = {key: given for key, given in state["parameters"].items() if key not in former}
    _check_memory(cls.__name__, parameters)
    value = _construct(cls, parameters)
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
