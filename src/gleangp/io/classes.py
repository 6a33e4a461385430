"""Objects as JSON and back, and the classes that a model file may name.

A file names classes that were registered, or public names of gleangp, so it cannot make Python import or call
anything else. The layers above register their classes where they are used: the noise models in `noise`, the
fitted state of an estimator beside the estimator. Kernels are stored as their constructor's parameters,
frozen dataclasses as their fields, estimators (also the listed transformers of scikit-learn) as their
parameters and what `fit` has set. A method `_check_state` of a class is called when a file was read; it
raises where parts do not fit together. An object of a class that earlier versions had becomes what its method
`upgraded` returns.

Plain values are stored as they are, others as a tag with what it needs (`docs/model_file.md`). Objects are in
one list in which each refers to earlier ones only: a shared object is stored once and shared again after
loading, and no cycle can be written down. What works on a tree of objects, as a kernel does, visits a shared
one each time, so `check_extent` bounds the size of the tree, not of the list.

Keys are None, text or numbers of at most 64 bits, as names of tasks are: of other values any number can have
equal hashes, which makes a dict slow.
"""

import dataclasses
import math
import re
from collections import UserList
from collections.abc import Callable
from importlib import import_module
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

PLAIN_KINDS = "biufU"  # of arrays and NumPy's scalars
_SCALAR_TYPES = {t for t in np.sctypeDict.values() if np.dtype(t).kind in PLAIN_KINDS}
_DEEPEST = 60  # levels of nesting; models have about ten
_DEEPEST_OBJECTS = 200  # that refer to each other; a sum of k kernels has k
_NOT_STORABLE = (
    ": model files hold gleangp's estimators, its and scikit-learn's kernels, the invariances of "
    "`translations` and `rotations`, and of scikit-learn Pipeline, "
    "ColumnTransformer, StandardScaler, MinMaxScaler, OneHotEncoder, OrdinalEncoder and SimpleImputer, and "
    "no code. Else use pickle or joblib."
)
_FITTED_NAME = re.compile(r"_?[A-Za-z][A-Za-z0-9_]{0,99}")
_FIELD_TYPES: dict[str, Callable[[Any], bool]] = {
    "None": lambda value: value is None,
    "FloatArray": lambda value: isinstance(value, np.ndarray) and value.dtype == np.float64,
    "IntArray": lambda value: isinstance(value, np.ndarray) and value.dtype.kind == "i",
    "dict": lambda value: isinstance(value, dict),
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


def find_class(name: str) -> type:
    """The class of a registered, listed or public name."""
    cls = _CLASSES.get(name)
    if cls is None and name in _HOMES:
        cls = getattr(import_module(_HOMES[name]), name)
    elif cls is None and name in gleangp.__all__:
        cls = getattr(gleangp, name)
    usable = isinstance(cls, type) and issubclass(cls, Kernel | BaseEstimator)
    if cls is None or not (usable or dataclasses.is_dataclass(cls)):
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
    else:
        if not issubclass(cls, Kernel):
            _check_fields(cls, state)
        value = cls(**state)
    if hasattr(value, "_check_state"):
        value._check_state()
    return value.upgraded() if hasattr(value, "upgraded") else value


def _check_fields(cls: Any, state: dict[str, Any]) -> None:
    """Raise if a field of a dataclass has a value of another type; its constructor checks their names."""
    for field in dataclasses.fields(cls):
        value, kinds = state.get(field.name), str(field.type).split(" | ")
        if field.name in state and not any(_is_a(value, kind.strip(), cls) for kind in kinds):
            expected = f"should be {field.type} and is {type(value).__name__}"
            raise ModelFileError(f"{cls.__name__}.{field.name} {expected}.")


def _is_a(value: Any, kind: str, cls: type) -> bool:
    """Whether a value is what an annotation of a class says; what it says of `Any` is for others to check."""
    name, _, inner = kind.partition("[")
    if name == "tuple" and inner.endswith(", ...]"):
        return isinstance(value, tuple) and all(_is_a(item, inner[:-6], cls) for item in value)
    if name in _FIELD_TYPES:
        return _FIELD_TYPES[name](value)
    ours = getattr(import_module(cls.__module__), name, None)
    return not isinstance(ours, type) or ours not in _NAMES or isinstance(value, ours)


def _estimator(cls: Any, state: dict[str, Any]) -> Any:
    if set(state) != {"parameters", "fitted"}:
        raise ModelFileError(f"the state of {cls.__name__} has the parts {sorted(state)}.")
    former = getattr(cls, "_former_parameters", ())  # which older files have, and which have no effect
    parameters = {key: given for key, given in state["parameters"].items() if key not in former}
    _check_memory(cls.__name__, parameters)
    value = cls(**parameters)
    for key, item in state["fitted"].items():
        if key in getattr(cls, "_former_attributes", ()):  # which are computed now
            continue
        plain = _FITTED_NAME.fullmatch(key) and (key.startswith("_") or key.endswith("_"))
        if not plain or hasattr(cls, key):
            raise ModelFileError(f"{cls.__name__} has no fitted attribute {key!r}.")
        setattr(value, key, item)
    return value


def _check_memory(name: str, parameters: dict[str, Any]) -> None:
    """Raise if a pipeline has a cache: fitting it would run what lies in that folder."""
    if parameters.get("memory") is not None:
        raise ModelFileError(f"{name} has memory={parameters['memory']!r}. Use memory=None in a model file.")


class Encoder:
    """Collects the objects and arrays of a model."""

    def __init__(self) -> None:
        self.objects: list[dict[str, Any]] = []
        self.arrays: list[np.ndarray] = []
        # id -> reference, and the value itself: ids stay unique while it is referred to
        self._known: dict[int, tuple[dict[str, int], Any]] = {}

    def encode(self, value: Any, where: str) -> Any:
        """The value as JSON; `where` says which part of the model it is, for errors."""
        if value is None or isinstance(value, bool | int):
            return value
        if isinstance(value, str):
            return str(value)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"float": repr(float(value))}
        if isinstance(value, UserList):  # columns of a ColumnTransformer, before scikit-learn 1.9
            value = value.data
        if isinstance(value, list) or type(value) is tuple:
            items = [self.encode(item, f"{where}[{i}]") for i, item in enumerate(value)]
            return items if isinstance(value, list) else {"tuple": items}
        if isinstance(value, dict):
            for key in value:
                if not _is_key(key):
                    found = f"the key {key!r} is not None, text or a number of 64 bits."
                    raise ModelFileError(f"cannot save {where}: {found}")
            pairs = [[self.encode(k, where), self.encode(v, f"{where}[{k!r}]")] for k, v in value.items()]
            return {"dict": pairs}
        if isinstance(value, np.generic) and value.dtype.kind in PLAIN_KINDS:
            return {"scalar": [value.dtype.str, self.encode(value.item(), where)]}
        if isinstance(value, slice):
            return {"slice": [self.encode(v, where) for v in (value.start, value.stop, value.step)]}
        if isinstance(value, np.dtype) and value.kind in PLAIN_KINDS + "O":
            return {"dtype": value.str}
        if isinstance(value, type) and value in _SCALAR_TYPES:
            return {"type": np.dtype(value).str}
        if isinstance(value, np.ndarray) and value.dtype.kind == "O":
            return {"objects": [list(value.shape), [self.encode(v, where) for v in value.ravel()]]}
        if id(value) not in self._known:
            self._known[id(value)] = self._stored(value, where), value
        return self._known[id(value)][0]

    def _stored(self, value: Any, where: str) -> dict[str, int]:
        """A reference to what is stored once, however often it is referred to."""
        if isinstance(value, np.ndarray):
            if value.dtype.kind not in PLAIN_KINDS:
                raise ModelFileError(f"cannot save {where}: an array of {value.dtype}.")
            self.arrays.append(value)
            return {"array": len(self.arrays) - 1}
        parts = take_apart(value)
        if parts is None:
            advice = _NOT_STORABLE
            if isinstance(value, np.random.Generator | np.random.RandomState):
                advice = ". Set an int or None, for example set_params(random_state=None)."
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            raise ModelFileError(f"cannot save {where}, a {kind}{advice}")
        state = {key: self.encode(item, f"{where}.{key}") for key, item in parts[1].items()}
        self.objects.append({"class": parts[0], "state": state})
        return {"object": len(self.objects) - 1}


class Decoder:
    """Builds the objects of a model again."""

    def __init__(self, objects: list[Any], arrays: list[np.ndarray]) -> None:
        self._arrays = arrays
        self._objects: list[Any] = []
        for description in objects:
            whole = isinstance(description, dict) and set(description) == {"class", "state"}
            if not whole or (type(description["class"]), type(description["state"])) != (str, dict):
                raise ModelFileError("an object in it has no class or no state.")
        public = {*gleangp.__all__, *gleangp.STORED}
        for name in sorted(public & {description["class"] for description in objects}):
            getattr(gleangp, name)  # its module registers the classes of its state
        for description in objects:
            state = {key: self.decode(item) for key, item in description["state"].items()}
            self._objects.append(put_together(description["class"], state))

    def decode(self, tree: Any, depth: int = 0) -> Any:
        """The value of a JSON tree."""
        if depth > _DEEPEST:
            raise ModelFileError(f"it is nested deeper than {_DEEPEST} levels.")
        if isinstance(tree, dict) and len(tree) != 1:
            raise ModelFileError(f"a value in it has the tags {sorted(tree)[:5]}; one is expected.")
        below = depth + 1
        match tree:
            case None | bool() | int() | float() | str():
                return tree
            case list():
                return [self.decode(item, below) for item in tree]
            case {"tuple": items}:
                return tuple(self.decode(item, below) for item in items)
            case {"dict": pairs}:
                return {self._key(k, below): self.decode(v, below) for k, v in pairs}
            case {"float": "nan" | "inf" | "-inf" as name}:
                return float(name)
            case {"float": content}:
                raise ModelFileError(f"a number in it is {content!r}.")
            case {"scalar": [kind, value]}:
                return _plain_dtype(kind, PLAIN_KINDS).type(self.decode(value))
            case {"slice": [start, stop, step]}:
                return slice(*(self.decode(item, below) for item in (start, stop, step)))
            case {"dtype": name}:
                return _plain_dtype(name, PLAIN_KINDS + "O")
            case {"type": name}:
                return _plain_dtype(name, PLAIN_KINDS).type
            case {"objects": [shape, items]}:
                if math.prod(shape) != len(items):
                    raise ModelFileError(f"an array of {len(items)} values has the shape {shape}.")
                flat = np.empty(len(items), dtype=object)
                flat[:] = [self.decode(item, below) for item in items]
                return flat.reshape(shape)
            case {"array": number}:
                return _part(self._arrays, number)
            case {"object": number}:
                return _part(self._objects, number)
        raise ModelFileError(f"a value in it has the unknown tag {next(iter(tree))!r}, or not what it needs.")

    def _key(self, tree: Any, depth: int) -> Any:
        key = self.decode(tree, depth)
        if not _is_key(key):
            found = f"a key in it is a {type(key).__name__}"
            raise ModelFileError(f"{found}, not None, text or a number of 64 bits.")
        return key


def _plain_dtype(name: Any, kinds: str) -> np.dtype[Any]:
    """The dtype of a name, if it is of these kinds."""
    dtype = np.dtype(str(name))
    if dtype.kind not in kinds or dtype.itemsize > 4 * 10_000 or dtype.shape:
        raise ModelFileError(f"a number in it has the type {name!r}.")
    return dtype


def check_extent(objects: Any, most: int) -> None:
    """Raise if objects, with shared ones counted each time, are more than `most` or refer too deep."""
    if not isinstance(objects, list):
        raise ModelFileError("its list of objects is not a list.")
    extents: list[tuple[int, int]] = []  # objects below each one, and levels of them
    for description in objects:
        size, levels = _extent(description, extents)
        if size > most or levels >= _DEEPEST_OBJECTS:
            found = f"an object in it consists of {size} objects in {levels + 1} levels"
            raise ModelFileError(f"{found}; at most {most} in {_DEEPEST_OBJECTS} are expected.")
        extents.append((size + 1, levels + 1))


def _extent(tree: Any, extents: list[tuple[int, int]]) -> tuple[int, int]:
    """Number of objects that a JSON tree refers to, and how deep they go."""
    if isinstance(tree, dict) and len(tree) == 1 and "object" in tree:
        return _part(extents, tree["object"])
    if not isinstance(tree, dict | list):
        return 0, 0
    parts = [_extent(part, extents) for part in (tree.values() if isinstance(tree, dict) else tree)]
    return sum(size for size, _ in parts), max((levels for _, levels in parts), default=0)


def _is_key(key: Any) -> bool:
    if isinstance(key, int):
        return abs(key) < 2**63
    return key is None or isinstance(key, str | float | np.generic)


def _part(parts: list[Any], number: Any) -> Any:
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(parts):
        raise ModelFileError(f"it refers to part {number!r} of {len(parts)}.")
    return parts[number]
