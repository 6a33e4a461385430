"""Tables as a mapping from column to array: reading, writing, and a fingerprint of what they say."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np

Table = dict[str, np.ndarray]


def read_table(path: Path) -> Table:
    """Columns of a CSV (also compressed) or of an .npz file; numbers are float64, an empty cell is NaN."""
    raw = path.read_bytes()
    if raw[:2] == b"PK":
        with np.load(io.BytesIO(raw), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8")
    head, *rows = csv.reader(io.StringIO(text))
    return {name: _column(values) for name, values in zip(head, zip(*rows, strict=True), strict=True)}


def write_table(table: Table, path: Path, *, suffix: str) -> None:
    """Write what `read_table` reads, in the form of the suffix (.csv, .gz or .npz)."""
    if suffix == ".npz":
        with path.open("wb") as file:
            np.savez_compressed(file, **table)  # type: ignore[arg-type]
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*(map(_cell, column) for column in table.values()), strict=True))
    raw = text.getvalue().encode("utf-8")
    path.write_bytes(gzip.compress(raw, mtime=0) if suffix == ".gz" else raw)


def fingerprint(table: Table, columns: Iterable[str]) -> str:
    """SHA-256 of the columns: text as it is, numbers to six decimals."""
    digest = hashlib.sha256()
    for name in columns:
        values = np.asarray(table[name])
        digest.update(f"{name} {values.shape}\n".encode())
        if values.dtype.kind in "OUS":
            digest.update("\n".join(map(str, values)).encode())
        else:
            digest.update((np.round(values.astype(np.float64), 6) + 0.0).astype("<f8").tobytes())
    return digest.hexdigest()


def _column(values: tuple[str, ...]) -> np.ndarray:
    try:
        return np.array([float(v) if v else np.nan for v in values])
    except ValueError:
        return np.array(values)


def _cell(value: object) -> str:
    if isinstance(value, str):
        return str(value)
    number = float(value)  # type: ignore[arg-type]
    if np.isnan(number):
        return ""
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
