"""Downloads: into a temporary file, checked, and only then moved to where loaders look.

GLEANGP_DATA_URL may name a mirror that serves files laid out as in a data folder; these are checked by their
SHA-256. Otherwise a file is fetched from where it is published and converted, and what it says is checked.
"""

from __future__ import annotations

import hashlib
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

from gleangp.datasets._known import DataFile, OpenML
from gleangp.datasets._tables import Table, fingerprint, read_table, write_table
from gleangp.exceptions import DatasetError
from gleangp.io import replacing

TIMEOUT = 30.0  # seconds without an answer


def download(file: DataFile, target: Path) -> None:
    """Fetch a file and put it in its place; after any failure the place is as it was."""
    mirror = os.environ.get("GLEANGP_DATA_URL")
    if mirror is None and file.origin is None:
        raise DatasetError("no public address of it is known.")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        if mirror is not None:
            url = f"{mirror.rstrip('/')}/{file.path}"
            fetched = _fetch(url, Path(folder), f"sha256:{file.sha256}")
            with replacing(target) as temporary:
                temporary.write_bytes(fetched.read_bytes())
            return
        assert file.origin is not None
        if isinstance(file.origin, OpenML):
            table = file.origin.convert(_openml(file.origin.data_id))
        else:
            table = file.origin.convert(_fetch(file.origin.url, Path(folder), None))
    with replacing(target) as temporary:
        write_table(table, temporary, suffix=target.suffix)
        _check_content(file, read_table(temporary))


def is_expected(file: DataFile, path: Path) -> bool:
    """Whether a file holds the data that it should: the same bytes, or what a conversion must contain."""
    if hashlib.sha256(path.read_bytes()).hexdigest() == file.sha256:
        return True
    try:
        return bool(file.checked) and fingerprint(read_table(path), file.checked) == file.content
    except Exception:  # whatever a damaged file can provoke
        return False


def _check_content(file: DataFile, table: Table) -> None:
    found = fingerprint(table, file.checked)
    if found != file.content:
        raise DatasetError(
            f"what was downloaded is not the data that was expected (fingerprint {found[:12]}..., "
            f"expected {file.content[:12]}...); it was thrown away."
        )


def _fetch(url: str, folder: Path, known_hash: str | None) -> Path:
    """A file over HTTP; pooch checks the hash, and a body shorter than announced is an error."""
    try:
        import pooch
    except ModuleNotFoundError as error:
        raise DatasetError("downloads need pooch. Install it with: pip install 'gleangp[data]'.") from error
    pooch.get_logger().setLevel("ERROR")
    getter = pooch.HTTPDownloader(timeout=TIMEOUT)
    return Path(pooch.retrieve(url, known_hash, fname="file", path=folder, downloader=getter))


def _openml(data_id: int) -> Any:
    """Data frame of a set of OpenML: inputs, then the target."""
    from sklearn.datasets import fetch_openml

    from gleangp.datasets._places import cache_folder

    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)  # fetch_openml has no parameter for it
    try:
        home = str(cache_folder() / "openml")
        return fetch_openml(
            data_id=data_id, as_frame=True, parser="liac-arff", data_home=home, n_retries=1
        ).frame
    finally:
        socket.setdefaulttimeout(before)
