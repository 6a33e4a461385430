"""The zip of a model file: `model.json` and `arrays/<number>.npy`, of which large ones are compressed.

The reader trusts nothing. What a file unpacks to is at most twenty times as large as the file. Sizes are
compared with what is there before anything is allocated, names must be those the writer gives, and arrays
are of plain numbers, booleans or text. The lists and objects of the JSON
are counted before it is parsed, because each takes far more memory than text. The size of the file bounds
their number (`most_nodes`).

The manifest's key "sha256" is the hash of everything else, so that an edited file is told from a saved one.
It protects against mistakes, not against forgers, who can write a hash too.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import zipfile
from itertools import islice
from typing import Any, BinaryIO

import numpy as np

from gleangp.exceptions import ModelFileError

_MANIFEST = "model.json"
HASH = "sha256"
_ARRAY_NAME = re.compile(r"arrays/(0|[1-9][0-9]{0,8})\.npy")
_PLAIN_KINDS = "biufU"
_LONGEST_AXIS = 2**31
_LARGE = 10_000  # bytes from which an array is compressed
_MOST_UNPACKED = 20  # bytes for each byte of a file
_BYTES_OF_NODE = 16  # of the file, for each node of its trees; models have 20 and more
_FREE_NODES = 4096  # that a file of any size may have
# Up to the next list or object of a JSON text, or its end; what is in quotes is skipped, in linear time.
_TO_NODE = re.compile(rb'(?:[^"{\[]++|"(?:[^"\\]++|\\.)*+"?)*+(?:[{\[]|\Z)', re.DOTALL)
_DATE = (1980, 1, 1, 0, 0, 0)  # of every member: equal models give equal files


def write_container(file: BinaryIO, manifest: dict[str, Any], arrays: list[np.ndarray]) -> None:
    """Write the zip; arrays are numbered from 0."""
    parts = [_npy(array) for array in arrays]
    text = _json({**manifest, HASH: content_hash(manifest, parts)})
    _write(file, text, parts, _LARGE)
    if len(text) + sum(map(len, parts)) > _MOST_UNPACKED * file.tell():  # the reader would refuse it
        file.seek(0)
        _write(file, text, parts, math.inf)
    _check_nodes(text, file.tell())


def _write(file: BinaryIO, text: bytes, parts: list[bytes], large: float) -> None:
    """Write the zip, with arrays of `large` bytes or more compressed."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(_MANIFEST, _DATE), text)
        for number, part in enumerate(parts):
            how = zipfile.ZIP_DEFLATED if len(part) >= large else zipfile.ZIP_STORED
            archive.writestr(zipfile.ZipInfo(f"arrays/{number}.npy", _DATE), part, how, 1)


def content_hash(manifest: dict[str, Any], arrays: list[bytes]) -> str:
    """SHA-256 of the manifest without its hash, as JSON without spaces, and of the arrays' files in order."""
    digest = hashlib.sha256(_json({key: value for key, value in manifest.items() if key != HASH}))
    for part in arrays:
        digest.update(part)
    return digest.hexdigest()


def _json(manifest: dict[str, Any]) -> bytes:
    return json.dumps(manifest, allow_nan=False, separators=(",", ":")).encode()


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(array), version=(1, 0), allow_pickle=False)
    return buffer.getvalue()


def most_nodes(size: int) -> int:
    """How many nodes the trees of a file of some bytes may have."""
    return _FREE_NODES + size // _BYTES_OF_NODE


def _check_nodes(text: bytes, size: int) -> None:
    most = most_nodes(size)
    if sum(1 for _ in islice(_TO_NODE.finditer(text), most + 3)) > most + 2:  # at most two at the end
        raise ModelFileError(
            f"its JSON has more than {most} lists and objects, which is too many for a file of {size} bytes."
        )


def read_container(file: BinaryIO) -> tuple[Any, list[np.ndarray], str]:
    """The manifest, the arrays in the order of their numbers, and the hash of what the file holds."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    with zipfile.ZipFile(file) as archive:
        members = _checked_members(archive, size)
        text = archive.read(members.pop(_MANIFEST))
        _check_nodes(text, size)
        manifest = json.loads(text.decode(), parse_constant=_no_constant)
        if len(members) != sum(f"arrays/{number}.npy" in members for number in range(len(members))):
            raise ModelFileError("an array is missing: numbers have gaps.")
        parts = [archive.read(members[f"arrays/{i}.npy"]) for i in range(len(members))]
    found = content_hash(manifest, parts) if isinstance(manifest, dict) else ""
    return manifest, [_array(part) for part in parts], found


def _checked_members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        if info.filename != _MANIFEST and not _ARRAY_NAME.fullmatch(info.filename):
            raise ModelFileError(f"it has a member {info.filename!r}, which no model file has.")
        if info.filename in members:
            raise ModelFileError(f"it has the member {info.filename!r} twice.")
        stored = info.compress_type == zipfile.ZIP_STORED and info.compress_size == info.file_size
        if not stored and (info.compress_type != zipfile.ZIP_DEFLATED or info.filename == _MANIFEST):
            raise ModelFileError(
                f"its member {info.filename!r} is compressed in a way that no model file is."
            )
        members[info.filename] = info
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
    if dtype.kind not in _PLAIN_KINDS or dtype.itemsize == 0 or dtype.hasobject or dtype.subdtype:
        raise ModelFileError(f"an array has the type {dtype}; numbers, booleans or text are expected.")
    if any(not 0 <= axis <= _LONGEST_AXIS for axis in shape):
        raise ModelFileError(f"an array has the shape {shape}.")
    start = buffer.tell()
    if math.prod(shape) * dtype.itemsize != len(data) - start:
        raise ModelFileError(f"an array declares the shape {shape}, but has {len(data) - start} bytes.")
    flat = np.frombuffer(data, dtype=dtype, offset=start)
    return flat.reshape(shape, order="F" if fortran else "C").copy(order="K")


def _no_constant(name: str) -> float:
    raise ModelFileError(f"its JSON has the number {name}, which JSON does not have.")
