"""Structure-aware mutants of model files: each is refused, or predicts finite numbers.

    python -m tests.endurance.mutants --count 20000 [--seed 0]

A mutant is a saved model with one to three changes in its tree of objects, its arrays or their headers. Most
get the right hash of their content, as a forger would write it, so that the checks of the state are tested
and not the hash alone. The seed of a mutant that loads and then misbehaves is printed.
"""

from __future__ import annotations

import io
import json
import tempfile
import warnings
import zipfile
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from gleangp import (
    HierarchicalGPRegressor,
    Order,
    SharedLatentGPClassifier,
    SharedLatentGPRegressor,
    SparseGPClassifier,
    SparseGPOrdinal,
    SparseGPRegressor,
    TaskColumn,
    load,
    save,
)
from gleangp.cli._encoding import TableEncoding
from gleangp.cli._table_model import TableModel
from gleangp.exceptions import ModelFileError
from gleangp.io.files import content_hash
from tests.endurance.every_estimator import make_rows, outputs
from tests.endurance.seeds import command, run_seeds, say, text_of

_LATENT = {"n_components": 1, "max_iter": 10, "hidden_units": 3, "random_state": 0}
_FEW = {"n_rounds": 1, "random_state": 0}
_KERNEL = ConstantKernel() * Matern([1.0, 2.0], nu=1.5) + DotProduct() + WhiteKernel(0.1)
_NUMBERS = [0, -1, 1, 2, 10**6, 10**30, 0.0, -1.0, 0.5, 1e-300, 1e-30, 1e30, 1e300, -1e300]
_VALUES = [None, True, "x", "", [], {}, {"tuple": []}, {"dict": []}, {"float": "nan"}, {"float": "-inf"}]


@dataclass(frozen=True)
class Saved:
    """The parts of a model file."""

    name: str
    manifest: dict[str, Any]
    arrays: list[bytes]

    def written(self) -> bytes:
        """The file."""
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("model.json", json.dumps(self.manifest))
            for number, part in enumerate(self.arrays):
                archive.writestr(f"arrays/{number}.npy", part)
        return out.getvalue()


@cache
def models() -> dict[str, Any]:
    """Small fitted models of every kind."""
    X, y, codes, _ = make_rows(24, 0)
    grades, signs = np.digitize(y, [-0.4, 0.4]), y > 0
    some = np.where(np.arange(24) % 4 == 0, np.nan, y)
    frame = pd.DataFrame({"a": X[:, 0], "kind": np.where(X[:, 1] > 0, "day", "night"), "school": codes})
    out = {
        "default": SparseGPRegressor(random_state=0).fit(X, y, codes),
        "one task": SparseGPRegressor(random_state=0).fit(X, y),
        "kernel": SparseGPRegressor(_KERNEL, coupling="kernel", **_FEW).fit(X, y, codes),
        "coregion": SparseGPRegressor(coupling="coregion", n_active=8, **_FEW).fit(X, y, codes),
        "poisson": SparseGPRegressor(noise="poisson", **_FEW).fit(X, np.floor(np.exp(y)), codes),
        "active": SparseGPRegressor(posterior="active", n_active=9, **_FEW).fit(X, y, codes),
        "classifier": SparseGPClassifier(**_FEW).fit(X, signs, codes),
        "three classes": SparseGPClassifier(posterior="active", n_active=9, **_FEW).fit(X, grades, codes),
        "null": SparseGPClassifier(unlabeled=-1, **_FEW).fit(X, np.where(np.arange(24) % 3, signs, -1)),
        "ordinal": SparseGPOrdinal(**_FEW).fit(X, grades, codes),
        "hierarchy": HierarchicalGPRegressor(theta_uncertainty=True, **_FEW).fit(
            X, some, codes, constraints=[Order(0, np.flatnonzero(codes == codes[0])[1])]
        ),
        "common": HierarchicalGPRegressor(mean="common", **_FEW).fit(X, y, codes),
        "latent": SharedLatentGPRegressor(**_LATENT).fit(X, y, codes),
        "searched": SharedLatentGPRegressor(back_constraint=None, transfer="latent", **_LATENT).fit(X, y),
        "latent classes": SharedLatentGPClassifier(n_active=8, **_LATENT).fit(X, signs, codes),
        "probit": SharedLatentGPClassifier(label_noise="probit", **_LATENT).fit(X, grades),
        "frame": SparseGPRegressor(task="school", **_FEW).fit(frame, y),
    }
    out["added"] = SparseGPRegressor(n_active=8, **_FEW).fit(X, y, codes).add_task(X[:4], y[:4], 7)
    columns = make_column_transformer((StandardScaler(), ["a"]), (OneHotEncoder(), ["kind"]))
    out["pipeline"] = TaskColumn(
        make_pipeline(columns, SparseGPRegressor(RBF(), optimizer=None)), task="school"
    ).fit(frame, y)
    inner = SparseGPRegressor(**_FEW).fit(frame.drop(columns="school"), y, frame["school"].astype(str))
    out["table"] = TableModel(inner, TableEncoding("score", "school"), {})
    return out


@cache
def saved() -> list[Saved]:
    """The models above as parts of files, and the kept files of earlier versions."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, model in models().items():
            save(model, Path(folder) / f"{name}.glean")
        kept = (Path(__file__).parents[1] / "golden").glob("*_v1.glean")
        paths = sorted(Path(folder).glob("*.glean")) + sorted(kept)
        return [_parts(path) for path in paths]


def _parts(path: Path) -> Saved:
    with zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("model.json"))
        count = len(archive.namelist()) - 1
        return Saved(path.stem, manifest, [archive.read(f"arrays/{i}.npy") for i in range(count)])


def _places(tree: Any, place: tuple = ()) -> list[tuple]:
    """The place of every part of a tree."""
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [place, *(found for key, part in parts for found in _places(part, (*place, key)))]


def _change_tree(manifest: Any, n_arrays: int, rng: np.random.Generator) -> str:
    """Change one part of the manifest in place; says which."""
    places = _places(manifest)[1:]
    *above, key = place = places[rng.integers(len(places))]
    parent = manifest
    for step in above:
        parent = parent[step]
    old, kind = parent[key], rng.integers(8)
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, list):
        parent.insert(key, json.loads(json.dumps(old)))
    elif kind == 2:
        n_objects = len(manifest["objects"]) if isinstance(manifest.get("objects"), list) else 1
        what = [{"array": int(rng.integers(max(1, n_arrays)))}, {"object": int(rng.integers(n_objects))}]
        parent[key] = what[rng.integers(2)]
    elif kind == 3 and isinstance(parent, list) and len(parent) > 1:
        other = int(rng.integers(len(parent)))
        parent[key], parent[other] = parent[other], parent[key]
    elif kind == 4 and key == "class":
        other = manifest["objects"][rng.integers(len(manifest["objects"]))]
        parent[key] = other["class"] if isinstance(other, dict) and "class" in other else other
    elif isinstance(old, int | float) and kind != 7:
        parent[key] = _NUMBERS[rng.integers(len(_NUMBERS))]
    else:
        parent[key] = [*_VALUES, *_NUMBERS][rng.integers(len(_VALUES) + len(_NUMBERS))]
    return f"{place}: {str(old)[:40]} -> {str(parent[key])[:40] if kind else 'deleted'}"


def _change_array(arrays: list[bytes], rng: np.random.Generator) -> str:
    """Change one array in place; says which."""
    number = int(rng.integers(len(arrays)))
    try:
        array = np.atleast_1d(np.load(io.BytesIO(arrays[number])))
    except Exception:  # its header was changed before
        return f"array {number} again"
    kind = rng.integers(8)
    if kind <= 2 and array.size and array.dtype.kind in "fiu":
        special = [np.nan, np.inf, -np.inf, 0.0, -1.0, 1e-300, 1e300, -1e300, 1e99, -array.flat[0]]
        if array.dtype.kind != "f":
            special = [0, 1, 2**31, *([-1] if array.dtype.kind == "i" else [])]
        array.flat[int(rng.integers(array.size))] = special[rng.integers(len(special))]
    elif kind == 3:
        array = array[:-1] if rng.random() < 0.5 else np.concatenate([array, array[:1]])
    elif kind == 4:
        array = array.T if array.ndim > 1 and rng.random() < 0.5 else array.reshape(-1, 1)
    elif kind == 5:
        array = array[::-1].copy() if rng.random() < 0.5 else np.zeros_like(array)
    elif kind == 6 and array.dtype.kind != "U":
        array = array.astype(["i8", "f4", "?", "f8"][rng.integers(4)])
    elif array.dtype.kind == "f":
        array = array * [-1.0, 1e-200, 1e50][rng.integers(3)]
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version=(1, 0), allow_pickle=False)
    arrays[number] = buffer.getvalue()
    if rng.random() < 0.1:  # its header says something else than its data
        header = bytearray(arrays[number])
        at = int(rng.integers(10, min(len(header), 80)))
        header[at] = int(rng.integers(32, 127))
        arrays[number] = bytes(header)
    return f"array {number}, change {kind}"


def mutant(seed: int) -> tuple[str, bytes, str]:
    """Name of the model, the changed file, and what was changed."""
    rng = np.random.default_rng(seed)
    files = saved()
    original = files[rng.integers(len(files))]
    manifest, arrays = json.loads(json.dumps(original.manifest)), list(original.arrays)
    said = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(1 + rng.integers(3)):
            change_array = arrays and rng.random() < 0.4
            said.append(
                _change_array(arrays, rng) if change_array else _change_tree(manifest, len(arrays), rng)
            )
    if rng.random() < 0.95 and "sha256" in manifest:
        manifest["sha256"] = content_hash(manifest, arrays)
    return original.name, Saved("", manifest, arrays).written(), "; ".join(said)


def answers(model: Any) -> np.ndarray:
    """What a loaded model predicts for rows of all of its tasks; None of a model that is not fitted."""
    X, _, codes, _ = make_rows(6, 1)
    frame = pd.DataFrame({"a": X[:, 0], "kind": "day", "school": codes})
    if isinstance(model, TableModel):
        names = [c.name for c in model.columns]
        if "hours" in names:
            frame = pd.DataFrame({"hours": [1.0, 2.0], "kind": ["day", "night"], "school": ["s0", "s1"]})
        frame = frame.set_axis([*names, model.encoding.task or "t"][: frame.shape[1]], axis=1)
        table = model.predict(frame)
        return table.select_dtypes("number").to_numpy(dtype=float)
    if isinstance(model, TaskColumn):
        return np.column_stack(model.predict(frame, return_std=True))
    if not hasattr(model, "n_features_in_"):
        return np.zeros((0, 2))
    tasks = None
    if getattr(model, "columns_", None) is not None:
        rows: Any = frame
    else:
        names = [] if model.tasks_ is None else model.tasks_
        rows = np.random.default_rng(0).normal(size=(max(6, len(names)), model.n_features_in_))
        tasks = None if model.tasks_ is None else np.resize(names, len(rows))
    model.predict(rows, tasks)
    return outputs(model, rows, tasks)


def one_mutant(seed: int) -> tuple[str, str]:
    """How a mutant ended: "refused", "finite", or what it did instead; and what it was."""
    name, data, what = mutant(seed)
    what = f"{name}: {what}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = load(io.BytesIO(data))
        except ModelFileError as error:
            return "refused", f"{what}: {error}"
        try:
            said = answers(model)
        except Exception as error:
            return "raised", f"{what}: {text_of(error)}"
    if not np.isfinite(said).all():
        return "not finite", what
    numbers = said.shape[1] == 2 and not hasattr(model, "predict_proba")
    if (said[:, 1] < 0).any() if numbers else not hasattr(model, "encoding") and (said < 0).any():
        return "negative", what
    return "finite", what


def mutants(count: int, seed: int = 0, report: Any = None) -> Counter:
    """How so many mutants ended; `report` is called with every one that misbehaves."""
    return run_seeds(one_mutant, count, seed, report)


if __name__ == "__main__":
    command(__doc__, mutants, 20_000, report=say)
