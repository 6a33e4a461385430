"""Where a data file is: the user's folder, the cache, or the network, in this order."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gleangp.datasets._known import FILES
from gleangp.exceptions import DatasetError


def data_folder() -> Path | None:
    """The folder named by GLEANGP_DATA, if the variable is set."""
    named = os.environ.get("GLEANGP_DATA")
    return Path(named).expanduser() if named else None


def cache_folder() -> Path:
    """The folder for downloaded data: GLEANGP_CACHE, or `gleangp` in the platform's cache folder.

    Returns
    -------
    pathlib.Path
        It need not exist.

    Examples
    --------
    >>> from gleangp.datasets import cache_folder
    >>> cache_folder().name  # doctest: +SKIP
    'gleangp'
    """
    named = os.environ.get("GLEANGP_CACHE")
    if named:
        return Path(named).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "gleangp"


def locate(name: str) -> Path:
    """The path of a known file, such as "haberman/haberman.csv"; downloaded if nothing else is left.

    A file of the cache is checked each time and downloaded again if it is not what it should be. The
    user's own folder is not checked.
    """
    folder = data_folder()
    if folder is not None and (folder / name).is_file():
        return folder / name
    from gleangp.datasets._download import download, is_expected

    target = cache_folder() / name
    cached = target.is_file()
    if cached and is_expected(FILES[name], target):
        return target
    try:
        download(FILES[name], target)
    except Exception as error:
        raise DatasetError(_what_to_do(name, error, damaged=cached)) from error
    return target


def _what_to_do(name: str, error: Exception, *, damaged: bool) -> str:
    folder = data_folder()
    looked = [str(f / name) for f in (folder, cache_folder()) if f is not None]
    origin = FILES[name].origin
    come_from = f" Its origin is {origin.where}." if origin is not None else ""
    put = f"the folder GLEANGP_DATA ({folder})" if folder else "a folder named by GLEANGP_DATA"
    state = "is damaged in the cache" if damaged else "is not there"
    return (
        f"the data file {name!r} {state} (looked for {' and '.join(looked)}), and it could not be "
        f"downloaded: {error}{come_from} Put it as {name!r} into {put}, or as {looked[-1]!r}."
    )
