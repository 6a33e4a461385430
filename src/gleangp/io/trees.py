"""Objects as JSON: plain values as they are, everything else as a tag with what it needs.

`docs/model_file.md` lists the tags.

Objects are kept in one list in which each refers to earlier ones only: an object that is shared is stored
once and shared again after loading, and no cycle can be written down. What works on a tree of objects, as a
kernel does, visits a shared one each time, so `check_extent` bounds the size of the tree, not of the list.

Keys are None, text or numbers of at most 64 bits, as names of tasks are: of other values any number can have
equal hashes, which makes a dict slow.
"""

from __future__ import annotations

import math
from collections import UserList
from typing import Any

import numpy as np

from gleangp.exceptions import ModelFileError
from gleangp.io.classes import import_homes, put_together, take_apart

PLAIN_KINDS = "biufU"  # of arrays and NumPy's scalars
_SCALAR_TYPES = {t for t in np.sctypeDict.values() if np.dtype(t).kind in PLAIN_KINDS}
_DEEPEST = 60  # levels of nesting; models have about ten
_DEEPEST_OBJECTS = 200  # that refer to each other; a sum of k kernels has k
_NOT_STORABLE = (
    ": model files hold gleangp's estimators, its and scikit-learn's kernels, and of scikit-learn Pipeline, "
    "ColumnTransformer, StandardScaler, MinMaxScaler, OneHotEncoder, OrdinalEncoder and SimpleImputer, and "
    "no code. Else use pickle or joblib."
)


class Encoder:
    """Collects the objects and arrays of a model."""

    def __init__(self) -> None:
        self.objects: list[dict[str, Any]] = []
        self.arrays: list[np.ndarray] = []
        self._numbers: dict[int, dict[str, int]] = {}  # id -> reference
        self._alive: list[Any] = []  # ids stay unique while these are referred to

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
        if isinstance(value, list):
            return [self.encode(item, f"{where}[{i}]") for i, item in enumerate(value)]
        if type(value) is tuple:
            return {"tuple": [self.encode(item, f"{where}[{i}]") for i, item in enumerate(value)]}
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
        return self._shared(value, where)

    def _shared(self, value: Any, where: str) -> dict[str, Any]:
        """What is stored once, however often it is referred to."""
        if id(value) in self._numbers:
            return self._numbers[id(value)]
        if isinstance(value, np.ndarray):
            if value.dtype.kind == "O":
                return {"objects": [list(value.shape), [self.encode(v, where) for v in value.ravel()]]}
            if value.dtype.kind not in PLAIN_KINDS:
                raise ModelFileError(f"cannot save {where}: an array of {value.dtype}.")
            reference = {"array": len(self.arrays)}
            self.arrays.append(value)
        else:
            parts = take_apart(value)
            if parts is None:
                advice = _NOT_STORABLE
                if isinstance(value, np.random.Generator | np.random.RandomState):
                    advice = ". Set an int or None, for example set_params(random_state=None)."
                kind = f"{type(value).__module__}.{type(value).__qualname__}"
                raise ModelFileError(f"cannot save {where}, a {kind}{advice}")
            name, state = parts
            encoded = {key: self.encode(item, f"{where}.{key}") for key, item in state.items()}
            reference = {"object": len(self.objects)}
            self.objects.append({"class": name, "state": encoded})
        self._numbers[id(value)] = reference
        self._alive.append(value)
        return reference


class Decoder:
    """Builds the objects of a model again."""

    def __init__(self, objects: Any, arrays: list[np.ndarray]) -> None:
        self._arrays = arrays
        self._objects: list[Any] = []
        for description in objects:
            whole = isinstance(description, dict) and set(description) == {"class", "state"}
            if not whole or (type(description["class"]), type(description["state"])) != (str, dict):
                raise ModelFileError("an object in it has no class or no state.")
        import_homes(description["class"] for description in objects)
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
                return self._arrays[_index(number, len(self._arrays))]
            case {"object": number}:
                return self._objects[_index(number, len(self._objects))]
        raise ModelFileError(f"a value in it has the unknown tag {next(iter(tree))!r}, or not what it needs.")

    def _key(self, tree: Any, depth: int) -> Any:
        key = self.decode(tree, depth)
        if not _is_key(key):
            raise ModelFileError(
                f"a key in it is a {type(key).__name__}, not None, text or a number of 64 bits."
            )
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
        return extents[_index(tree["object"], len(extents))]
    if not isinstance(tree, dict | list):
        return 0, 0
    parts = [_extent(part, extents) for part in (tree.values() if isinstance(tree, dict) else tree)]
    return sum(size for size, _ in parts), max((levels for _, levels in parts), default=0)


def _is_key(key: Any) -> bool:
    if isinstance(key, int):
        return abs(key) < 2**63
    return key is None or isinstance(key, str | float | np.generic)


def _index(number: Any, count: int) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < count:
        raise ModelFileError(f"it refers to part {number!r} of {count}.")
    return number
