"""`save` and `load`: fitted models in one file that any machine can read and that runs nothing.

The file is a zip of `model.json` and `arrays/<number>.npy`, of which large ones are compressed. The reader
trusts nothing. What a file unpacks to is at most twenty times as large as the file. Sizes are compared with
what is there before anything is allocated, names must be those the writer gives, and arrays are of plain
numbers, booleans or text. The size of the file bounds the number of lists and objects of the JSON, which are
counted before it is parsed, because each takes far more memory than text.

The manifest's key "sha256" is the hash of everything else, so that an edited file is told from a saved one.
It protects against mistakes, not against forgers, who can write a hash too.
"""

import hashlib
import io
import json
import math
import os
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import sklearn
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from gleangp._version import __version__
from gleangp.exceptions import ModelFileError, warn_user
from gleangp.io.atomic import replacing
from gleangp.io.classes import PLAIN_KINDS, TRANSFORMERS, Decoder, Encoder, check_extent, name_of

_FORMAT = "gleangp-model"
_FORMAT_VERSION = 2  # raised when an older library could no longer read the file; 2 has a hash
_MANIFEST = "model.json"
_HASH = "sha256"
_ARRAY_NAME = re.compile(r"arrays/(0|[1-9][0-9]{0,8})\.npy")
_LONGEST_AXIS = 2**31
_LARGE = 10_000  # bytes from which an array is compressed
_MOST_UNPACKED = 20  # bytes for each byte of a file
_BYTES_OF_NODE = 16  # of the file, for each node of its trees; models have 20 and more
_FREE_NODES = 4096  # that a file of any size may have
# A string of a JSON text, found in linear time also if it has no end, or where a list or object begins.
_STRING_OR_NODE = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[{\[]', re.DOTALL)
_DATE = (1980, 1, 1, 0, 0, 0)  # of every member: equal models give equal files


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to a file.

    Parameters
    ----------
    model : estimator
        An estimator of gleangp, or a `TaskColumn` or `Pipeline` of such an estimator and of scikit-learn's
        `ColumnTransformer`, `StandardScaler`, `MinMaxScaler`, `OneHotEncoder`, `OrdinalEncoder` and
        `SimpleImputer`.
    path : str or path
        Where to; a file that is there is replaced in one step. Of a symbolic link the target is replaced.
        A folder, device or pipe is an `OSError`. ".glean" is the customary suffix.

    See Also
    --------
    load : The way back.

    Notes
    -----
    The file is a zip of JSON and `.npy`; equal models give equal bytes. It holds no code, so kernels must be
    scikit-learn's or gleangp's own, and invariances those of `translations` and `rotations`. Pickle and
    joblib work with every estimator. Files with transformers of scikit-learn are best read with the version
    that wrote them; `load` warns of another.

    A hidden temporary file lies beside the target while it is written. SIGTERM and SIGHUP remove it (unless
    the program handles them itself, or saves in another thread than the main one). What a killed process
    left is removed at the next save to the same path.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from gleangp import SparseGPRegressor, load, save
    >>> X = np.linspace(0, 6, 30)[:, None]
    >>> model = SparseGPRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> path = Path(tempfile.mkdtemp()) / "sine.glean"
    >>> save(model, path)
    >>> bool((load(path).predict(X) == model.predict(X)).all())
    True
    """
    if not isinstance(model, BaseEstimator) or name_of(model) is None:
        advice = "For other objects use pickle or joblib."
        raise ModelFileError(f"cannot save {model!r}: not an estimator of gleangp. {advice}")
    encoder = Encoder()
    tree = encoder.encode(model, type(model).__name__)
    versions = {"format_version": _FORMAT_VERSION, "gleangp": __version__, "sklearn": sklearn.__version__}
    manifest = {"format": _FORMAT, **versions, "model": tree, "objects": encoder.objects}
    with replacing(path) as temporary, open(temporary, "wb") as file:
        _write(file, manifest, encoder.arrays)
        check_extent(encoder.objects, _most_nodes(file.tell()))


def load(path: str | os.PathLike[str] | BinaryIO) -> Any:
    """Read an estimator from a file that `save` wrote.

    Parameters
    ----------
    path : str, path or binary file
        Where from.

    Returns
    -------
    estimator
        As it was when it was saved.

    Raises
    ------
    ModelFileError
        If the file is damaged or edited, of a newer format, or no model file at all.

    Notes
    -----
    Safe for files from others: nothing in the file is run, and its size bounds those of arrays and the
    number of objects. A hash of the content tells an edited file from a saved one. Shapes that must agree and
    numbers that must be finite or positive are checked, whatever the hash is.

    Examples
    --------
    >>> import io
    >>> from gleangp import load
    >>> load(io.BytesIO(b"something else"))
    Traceback (most recent call last):
    gleangp.exceptions.ModelFileError: cannot read this file as a model: File is not a zip file
    """
    if isinstance(path, str | os.PathLike):
        with open(path, "rb") as file:
            return _load(file, f"{Path(path).name!r}")
    return _load(path, "this file")


def _load(file: BinaryIO, name: str) -> Any:
    try:
        manifest, arrays = _read(file)
        check_extent(manifest.get("objects"), _most_nodes(file.seek(0, os.SEEK_END)))
        model = Decoder(manifest["objects"], arrays).decode(manifest.get("model"))
        if not isinstance(model, BaseEstimator):
            raise ModelFileError(f"it holds a {type(model).__name__}, not an estimator.")
        foreign = sorted(TRANSFORMERS & {o["class"] for o in manifest["objects"]})
        if foreign:
            _predict_one_row(model)
    except Exception as error:  # whatever a damaged file can provoke is one kind of error to the user
        reason = str(error) or type(error).__name__
        raise ModelFileError(f"cannot read {name} as a model: {reason}") from error
    if foreign and manifest.get("sklearn") != sklearn.__version__:
        warn_user(
            f"{name} was written with scikit-learn {manifest.get('sklearn')!s:.20}, and this is "
            f"{sklearn.__version__}. Its {', '.join(foreign)} may fail or give other results. Fit it again.",
            UserWarning,
        )
    return model


def _predict_one_row(model: Any) -> None:
    """Predict a row that a pipeline, or a `TaskColumn` of one, can take; raises if that cannot be.

    So it is seen whether transformers of scikit-learn are whole: they do not check their state themselves.
    """
    inner = getattr(model, "estimator_", None) if hasattr(model, "estimator") else model
    if inner is None or not isinstance(inner, Pipeline) or not hasattr(inner[-1], "tasks_"):
        return  # not fitted, or no pipeline
    check_is_fitted(inner)
    headings = getattr(model, "feature_names_in_", None)
    names = list(range(model.n_features_in_)) if headings is None else list(headings)
    if inner is not model:
        names.remove(model.task if isinstance(model.task, str) else names[model.task])
    cells = _cells(inner, len(names))
    row: Any = np.array([cells], dtype=object)
    if headings is not None:
        import pandas as pd

        row = pd.DataFrame([cells], columns=names)
    elif not any(isinstance(cell, str) for cell in cells):
        row = row.astype(np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if inner is not model:  # what TaskColumn asks for before it predicts
            check_is_fitted(model)
            inner.get_metadata_routing()
        given = {} if inner[-1].tasks_ is None else {"tasks": inner[-1].tasks_[:1]}
        answer = inner[-1].predict(inner[:-1].transform(row) if len(inner) > 1 else row, **given)
    if np.shape(answer) != (1,) or (np.asarray(answer).dtype.kind == "f" and not np.isfinite(answer).all()):
        raise ValueError("it does not predict a number for one row.")


def _cells(step: Any, n_columns: int) -> list[Any]:
    """Cells that a transformer can take: the first of the categories, what an imputer fills in, else zero."""
    if isinstance(step, Pipeline):
        return _cells(step.steps[0][1], n_columns)
    if hasattr(step, "transformers_"):
        cells: list[Any] = [0.0] * n_columns
        for name, part, _ in step.transformers_:
            at = step._transformer_to_input_indices.get(name, [])
            for i, cell in zip(at, _cells(part, len(at)), strict=True):
                cells[i] = cell
        return cells
    if hasattr(step, "categories_"):
        return [categories[0] for categories in step.categories_]
    return list(step.statistics_) if hasattr(step, "statistics_") else [0.0] * n_columns


def content_hash(manifest: dict[str, Any], arrays: list[bytes]) -> str:
    """SHA-256 of the manifest without its hash, as JSON without spaces, and of the arrays' files in order."""
    digest = hashlib.sha256(_json({key: value for key, value in manifest.items() if key != _HASH}))
    for part in arrays:
        digest.update(part)
    return digest.hexdigest()


def _json(manifest: dict[str, Any]) -> bytes:
    return json.dumps(manifest, allow_nan=False, separators=(",", ":")).encode()


def _write(file: BinaryIO, manifest: dict[str, Any], arrays: list[np.ndarray]) -> None:
    """Write the zip; arrays are numbered from 0."""
    parts = []
    for array in arrays:
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, np.asarray(array), version=(1, 0), allow_pickle=False)
        parts.append(buffer.getvalue())
    text = _json({**manifest, _HASH: content_hash(manifest, parts)})
    for large in (_LARGE, math.inf):
        file.seek(0)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(zipfile.ZipInfo(_MANIFEST, _DATE), text)
            for number, part in enumerate(parts):
                how = zipfile.ZIP_DEFLATED if len(part) >= large else zipfile.ZIP_STORED
                archive.writestr(zipfile.ZipInfo(f"arrays/{number}.npy", _DATE), part, how, 1)
        if len(text) + sum(map(len, parts)) <= _MOST_UNPACKED * file.tell():
            break  # else the reader would refuse it: write it again without compression
    _check_nodes(text, file.tell())


def _most_nodes(size: int) -> int:
    """How many nodes the trees of a file of some bytes may have."""
    return _FREE_NODES + size // _BYTES_OF_NODE


def _check_nodes(text: bytes, size: int) -> None:
    most = _most_nodes(size)
    if sum(found[0] in (b"{", b"[") for found in _STRING_OR_NODE.finditer(text)) > most:
        found = f"its JSON has more than {most} lists and objects"
        raise ModelFileError(f"{found}, which is too many for a file of {size} bytes.")


def _read(file: BinaryIO) -> tuple[dict[str, Any], list[np.ndarray]]:
    """The manifest, and the arrays in the order of their numbers; raises if they are not what was saved."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    with zipfile.ZipFile(file) as archive:
        members = _checked_members(archive, size)
        text = archive.read(members.pop(_MANIFEST))
        _check_nodes(text, size)
        manifest = json.loads(text.decode(), parse_constant=_refuse_constant)
        names = [f"arrays/{number}.npy" for number in range(len(members))]
        if not members.keys() <= set(names):
            raise ModelFileError("an array is missing: numbers have gaps.")
        parts = [archive.read(members[name]) for name in names]
    arrays = [_array(part) for part in parts]
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise ModelFileError("it is not a gleangp model.")
    version = manifest.get("format_version")
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= _FORMAT_VERSION:
        raise ModelFileError(
            f"its format is version {version!r}, written by gleangp {manifest.get('gleangp')!r}; this is "
            f"gleangp {__version__}, which reads versions 1 to {_FORMAT_VERSION}. Install a newer gleangp."
        )
    found = content_hash(manifest, parts)
    if manifest.get(_HASH, None if version > 1 else found) != found:
        raise ModelFileError("its content is not what was saved: the file was edited or damaged.")
    return manifest, arrays


def _refuse_constant(name: str) -> None:
    raise ModelFileError(f"its JSON has the number {name}, which JSON does not have.")


def _checked_members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename
        if name != _MANIFEST and not _ARRAY_NAME.fullmatch(name):
            raise ModelFileError(f"it has a member {name!r}, which no model file has.")
        if name in members:
            raise ModelFileError(f"it has the member {name!r} twice.")
        stored = info.compress_type == zipfile.ZIP_STORED and info.compress_size == info.file_size
        if not stored and (info.compress_type != zipfile.ZIP_DEFLATED or name == _MANIFEST):
            raise ModelFileError(f"its member {name!r} is compressed in a way that no model file is.")
        members[name] = info
    if _MANIFEST not in members:
        raise ModelFileError(f"it has no member {_MANIFEST!r}.")
    if sum(info.compress_size for info in members.values()) > size:
        raise ModelFileError("its members declare more bytes than the file has.")
    if sum(info.file_size for info in members.values()) > _MOST_UNPACKED * size:
        raise ModelFileError(f"it would unpack to more than {_MOST_UNPACKED} times its size.")
    return members


def _array(data: bytes) -> np.ndarray:
    """The array of a `.npy` file, without asking NumPy to allocate what the header says."""
    buffer = io.BytesIO(data)
    if np.lib.format.read_magic(buffer) != (1, 0):
        raise ModelFileError("an array has another version of the .npy format than 1.0.")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(buffer)
    if dtype.kind not in PLAIN_KINDS or dtype.itemsize == 0:
        raise ModelFileError(f"an array has the type {dtype}; numbers, booleans or text are expected.")
    if any(not 0 <= axis <= _LONGEST_AXIS for axis in shape):
        raise ModelFileError(f"an array has the shape {shape}.")
    start = buffer.tell()
    if math.prod(shape) * dtype.itemsize != len(data) - start:
        raise ModelFileError(f"an array declares the shape {shape}, but has {len(data) - start} bytes.")
    flat = np.frombuffer(data, dtype=dtype, offset=start)
    return flat.reshape(shape, order="F" if fortran else "C").copy(order="K")
