"""Tables in files: CSV, TSV, Parquet, Feather, Excel and JSON, whole or in chunks, from a path or a stream.

`-` is standard input or output, read and written as CSV. Files are written beside their place and moved
there when they are complete.
"""

from __future__ import annotations

import codecs
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api.types import is_numeric_dtype

from gleangp.cli._usage import UsageError
from gleangp.io import replacing

_SEPARATORS = {".csv": ",", ".txt": ",", ".tsv": "\t", ".tab": "\t"}
_KINDS = {
    **dict.fromkeys(_SEPARATORS, "csv"),
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "feather",
    ".arrow": "feather",
    ".xlsx": "excel",
    ".json": "json",
    ".jsonl": "json lines",
}
_COMPRESSIONS = {".gz", ".bz2", ".xz", ".zst"}
# Only empty cells and these words are missing: pandas would also take "None" or "null" for that.
_MISSING: dict[str, Any] = {"keep_default_na": False, "na_values": ["", "NA", "NaN", "nan"]}
CHUNK_ROWS = 20_000
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how cells begin that a spreadsheet runs


def _kind(path: str) -> str:
    """What a file holds, by the suffix."""
    suffixes = [s.lower() for s in Path(path).suffixes]
    last = suffixes[-2:-1] if suffixes and suffixes[-1] in _COMPRESSIONS else suffixes[-1:]
    suffix = last[0] if last else ""
    if path == "-":
        return "csv"
    if suffix not in _KINDS:
        raise ValueError(
            f"cannot tell the format of {path!r} from its name. Use .csv, .tsv, .parquet, .feather, .xlsx or "
            ".json, or - for CSV on standard input or output."
        )
    return _KINDS[suffix]


def _separator(path: str) -> str:
    return next((_SEPARATORS[s.lower()] for s in Path(path).suffixes if s.lower() in _SEPARATORS), ",")


def _dialect(path: str, encoding: str) -> tuple[str, str]:
    """Separator and decimal mark of a text table.

    The suffix says the separator. Where the header has more semicolons or tabs, or blanks alone, the file was
    written elsewhere: spreadsheets of half of Europe write semicolons, and decimal commas with them.
    """
    usual = _separator(path)
    try:
        with pd.io.common.get_handle(path, "r", encoding=encoding, compression="infer") as handle:
            head = [handle.handle.readline() for _ in range(20)]
    except UnicodeError:
        return usual, "."
    header = head[0].strip()
    found = max((usual, ",", ";", "\t"), key=header.count)  # the first of the most frequent
    if header.count(found) == 0 and " " in header:
        return r"\s+", "."
    commas = found == ";" and any(re.search(r"(^|;)-?\d+,\d+(;|$)", line.strip()) for line in head[1:])
    return found, "," if commas else "."


def read_table(path: str, text: tuple[str, ...] = (), encoding: str = "utf-8") -> pd.DataFrame:
    """The whole table; columns named in `text` as text, so that a task called 01 keeps its zero."""
    chunks = list(read_chunks(path, None, text, encoding))
    if not chunks:
        raise no_rows(path)
    return pd.concat(chunks, ignore_index=True)


def no_rows(path: str) -> UsageError:
    """The error for a table without rows."""
    return UsageError(f"the table {path!r} has no rows, but at least one is needed.")


def read_chunks(
    path: str, rows: int | None = CHUNK_ROWS, text: tuple[str, ...] = (), encoding: str = "utf-8"
) -> Iterator[pd.DataFrame]:
    """The table in parts of some rows (Feather: as it was written; Excel and JSON: read as a whole).

    No part is empty.
    """
    yield from (part for part in _read_parts(path, rows, text, encoding) if len(part))


def _read_parts(path: str, rows: int | None, text: tuple[str, ...], encoding: str) -> Iterator[pd.DataFrame]:
    kind = _kind(path)
    if path != "-" and not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path!r}.")
    if kind == "csv":
        yield from _csv_chunks(path, rows, text, encoding)
    elif kind == "parquet":
        from pyarrow import parquet

        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(rows or max(1, file.metadata.num_rows)):
                yield batch.to_pandas()
    elif kind == "feather":
        import pyarrow as pa

        with pa.memory_map(path) as source, pa.ipc.open_file(source) as file:
            batches = (file.get_batch(k) for k in range(file.num_record_batches))
            if rows is None:
                yield file.read_all().to_pandas()
            else:
                yield from (batch.to_pandas() for batch in batches)
    else:
        frame = _read_whole(path, kind, text, encoding).rename(columns=str)
        step = rows or max(1, len(frame))
        yield from (frame[start : start + step] for start in range(0, len(frame), step))


def columns_of(path: str, encoding: str = "utf-8") -> list[str]:
    """The headings of a CSV file; none for other files, whose cells have types, and for standard input."""
    if path == "-" or _kind(path) != "csv" or not Path(path).is_file():
        return []
    return list(next(_csv_chunks(path, 1, (), encoding), pd.DataFrame()).columns)


def _read_whole(path: str, kind: str, text: tuple[str, ...], encoding: str) -> pd.DataFrame:
    try:
        if kind == "excel":
            return pd.read_excel(path, dtype=dict.fromkeys(text, str), **_MISSING)
        # Not by pandas, which searches text for numbers and dates.
        with pd.io.common.get_handle(path, "r", encoding=encoding, compression="infer") as handle:
            lines = [line for line in handle.handle if line.strip()]
        return pd.DataFrame(
            list(map(json.loads, lines)) if kind == "json lines" else json.loads("".join(lines))
        )
    except ImportError:
        raise _no_excel() from None
    except Exception as error:  # zip, XML, JSON and pandas have errors of their own
        raise ValueError(f"cannot read {path!r} as a table: {error}") from error


def _no_excel() -> ImportError:
    return ImportError(
        "tables in .xlsx files need a recent openpyxl. Install it with: pip install -U openpyxl"
    )


def _csv_chunks(path: str, rows: int | None, text: tuple[str, ...], encoding: str) -> Iterator[pd.DataFrame]:
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise UsageError(f"--encoding {encoding} is not known. Try utf-8, cp1252 or utf-16.") from None
    source: Any = sys.stdin.buffer if path == "-" else path
    separator, decimal = (",", ".") if path == "-" else _dialect(path, encoding)
    try:
        frame = pd.read_csv(
            source,
            sep=separator,
            decimal=decimal,
            chunksize=rows,
            dtype=dict.fromkeys(text, str),
            encoding=encoding,
            **_MISSING,
        )
        yield from ([frame] if rows is None else frame)
    except UnicodeError as error:
        raise ValueError(
            f"cannot read {path!r} as {encoding} text: {error}. Name its encoding, such as --encoding cp1252."
        ) from error
    except pd.errors.EmptyDataError:
        raise no_rows(path) from None
    except pd.errors.ParserError as error:
        raise ValueError(f"cannot read {path!r} as a table: {error}") from error


@contextmanager
def table_writer(path: str) -> Iterator[Any]:
    """A function that appends a frame; the file appears when the block ends without an error."""
    kind = _kind(path)
    if path == "-":
        yield CsvWriter(sys.stdout, ",")
        return
    with replacing(path) as temporary:
        if kind == "csv":
            compression: Any = "infer"
            with pd.io.common.get_handle(  # the temporary name has no suffix: compress by the final one
                temporary,
                "w",
                encoding="utf-8",
                compression=pd.io.common.infer_compression(path, compression),
            ) as handle:
                yield CsvWriter(handle.handle, _separator(path))
        elif kind in ("parquet", "feather"):
            writer = _ArrowWriter(str(temporary), kind)
            try:
                yield writer
            finally:
                writer.close()
        else:
            if kind == "excel" and find_spec("openpyxl") is None:
                raise _no_excel()
            frames: list[pd.DataFrame] = []
            yield frames.append
            frame = pd.concat(frames, ignore_index=True)
            if kind == "excel":
                with open(temporary, "wb") as file:
                    _inert_frame(frame).to_excel(file, index=False, engine="openpyxl")
            else:
                frame.to_json(
                    temporary,
                    orient="records",
                    lines=kind == "json lines",
                    force_ascii=False,
                    compression=pd.io.common.infer_compression(path, "infer"),
                )


class _ArrowWriter:
    """Appends frames to a Parquet or Feather file, whose columns are those of the first."""

    def __init__(self, path: str, kind: str) -> None:
        self._path, self._kind = path, kind
        self._writer: Any = None
        self._schema: Any = None

    def __call__(self, frame: pd.DataFrame) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        table = pa.Table.from_pandas(frame, schema=self._schema, preserve_index=False)
        if self._writer is None:
            self._schema = table.schema
            make = parquet.ParquetWriter if self._kind == "parquet" else pa.ipc.new_file
            self._writer = make(self._path, self._schema)
        self._writer.write_table(table)

    def close(self) -> None:
        """The file is complete."""
        if self._writer is not None:
            self._writer.close()


def _inert(cell: Any) -> Any:
    """Text that a spreadsheet would run as a formula, with an apostrophe before it; numbers as they are."""
    if not isinstance(cell, str) or not cell.startswith(_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def _inert_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Cells and headings, each made inert."""
    text = {c: frame[c].map(_inert) for c in frame.columns if not is_numeric_dtype(frame[c])}
    return frame.assign(**text).rename(columns=_inert)


class CsvWriter:
    """Appends frames, the header once; text that a spreadsheet would run is escaped."""

    def __init__(self, stream: Any, separator: str) -> None:
        self._stream = stream
        self._separator = separator
        self._started = False

    def __call__(self, frame: pd.DataFrame) -> None:
        _inert_frame(frame).to_csv(
            self._stream,
            sep=self._separator,
            index=False,
            header=not self._started,
            lineterminator="\n",
            float_format="%.10g",
        )
        self._started = True
