"""Tables in files: CSV, TSV, Parquet and Feather, whole or in chunks, from a path or a stream.

`-` is standard input or output, read and written as CSV. Files are written beside their place and moved
there when they are complete.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api.types import is_numeric_dtype

from gleangp.cli._usage import UsageError
from gleangp.io import replacing

_SEPARATORS = {".csv": ",", ".txt": ",", ".tsv": "\t", ".tab": "\t"}
_COMPRESSIONS = {".gz", ".bz2", ".xz", ".zst"}
CHUNK_ROWS = 20_000
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how cells begin that a spreadsheet runs


def _kind(path: str) -> str:
    """`csv`, `parquet` or `feather`, by the suffix."""
    suffixes = [s.lower() for s in Path(path).suffixes]
    last = suffixes[-2:-1] if suffixes and suffixes[-1] in _COMPRESSIONS else suffixes[-1:]
    suffix = last[0] if last else ""
    if path == "-" or suffix in _SEPARATORS:
        return "csv"
    if suffix in (".parquet", ".pq"):
        return "parquet"
    if suffix in (".feather", ".arrow"):
        return "feather"
    raise ValueError(
        f"cannot tell the format of {path!r} from its name. Use .csv, .tsv, .parquet or .feather, or - for "
        "CSV on standard input or output."
    )


def _separator(path: str) -> str:
    return next((_SEPARATORS[s.lower()] for s in Path(path).suffixes if s.lower() in _SEPARATORS), ",")


def _dialect(path: str) -> tuple[str, str]:
    """Separator and decimal mark of a text table.

    The suffix says the separator. Where the header has more semicolons or tabs, or blanks alone, the file was
    written elsewhere: spreadsheets of half of Europe write semicolons, and decimal commas with them.
    """
    usual = _separator(path)
    try:
        with pd.io.common.get_handle(path, "r", encoding="utf-8", compression="infer") as handle:
            head = [handle.handle.readline() for _ in range(20)]
    except UnicodeDecodeError:
        return usual, "."
    header = head[0].strip()
    found = max((usual, ",", ";", "\t"), key=header.count)  # the first of the most frequent
    if header.count(found) == 0 and " " in header:
        return r"\s+", "."
    commas = found == ";" and any(re.search(r"(^|;)-?\d+,\d+(;|$)", line.strip()) for line in head[1:])
    return found, "," if commas else "."


def read_table(path: str, text: tuple[str, ...] = ()) -> pd.DataFrame:
    """The whole table; columns named in `text` as text, so that a task called 01 keeps its zero."""
    chunks = [chunk for chunk in read_chunks(path, None, text) if len(chunk)]
    if not chunks:
        raise no_rows(path)
    return pd.concat(chunks, ignore_index=True)


def no_rows(path: str) -> UsageError:
    """The error for a table without rows."""
    return UsageError(f"the table {path!r} has no rows, but at least one is needed.")


def read_chunks(
    path: str, rows: int | None = CHUNK_ROWS, text: tuple[str, ...] = ()
) -> Iterator[pd.DataFrame]:
    """The table in parts of some rows (Feather: as it was written)."""
    kind = _kind(path)
    if path != "-" and not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path!r}.")
    if kind == "csv":
        yield from _csv_chunks(path, rows, text)
    elif kind == "parquet":
        from pyarrow import parquet

        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(rows or max(1, file.metadata.num_rows)):
                yield batch.to_pandas()
    else:
        import pyarrow as pa

        with pa.memory_map(path) as source, pa.ipc.open_file(source) as file:
            batches = (file.get_batch(k) for k in range(file.num_record_batches))
            if rows is None:
                yield file.read_all().to_pandas()
            else:
                yield from (batch.to_pandas() for batch in batches)


def _csv_chunks(path: str, rows: int | None, text: tuple[str, ...]) -> Iterator[pd.DataFrame]:
    source: Any = sys.stdin if path == "-" else path
    types = dict.fromkeys(text, str)
    separator, decimal = (",", ".") if path == "-" else _dialect(path)
    try:
        # Only empty cells and these words are missing: pandas would also take "None" or "null" for that.
        frame = pd.read_csv(
            source,
            sep=separator,
            decimal=decimal,
            chunksize=rows,
            dtype=types,
            keep_default_na=False,
            na_values=["", "NA", "NaN", "nan"],
        )
        yield from ([frame] if rows is None else frame)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
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
        else:
            writer = _ArrowWriter(str(temporary), kind)
            try:
                yield writer
            finally:
                writer.close()


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


class CsvWriter:
    """Appends frames, the header once; text that a spreadsheet would run is escaped."""

    def __init__(self, stream: Any, separator: str) -> None:
        self._stream = stream
        self._separator = separator
        self._started = False

    def __call__(self, frame: pd.DataFrame) -> None:
        text = {c: frame[c].map(_inert) for c in frame.columns if not is_numeric_dtype(frame[c])}
        frame = frame.assign(**text).rename(columns=_inert)
        frame.to_csv(
            self._stream,
            sep=self._separator,
            index=False,
            header=not self._started,
            lineterminator="\n",
            float_format="%.10g",
        )
        self._started = True
