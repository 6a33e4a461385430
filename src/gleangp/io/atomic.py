"""Writing a file in one step: the old one or the new one is there, never half of it.

A temporary file lies beside the target and is locked while it is written. SIGTERM and SIGHUP remove it. A
process that is killed leaves it behind without its lock, and the next writer of the same target removes it.
"""

import glob
import os
import secrets
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType

try:
    import fcntl
except ImportError:  # Windows: no locks, and files that were left behind stay
    fcntl = None  # type: ignore[assignment]

_SUFFIX = ".gleangp-tmp"
_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
_unfinished: dict[Path, int] = {}  # temporary file -> process that writes it


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside `path`, which takes its place when the block ends without an error.

    The same folder means the same file system, so that the exchange is one rename. A symbolic link is
    followed: its target is replaced and the link stays. Anything but a regular file is refused.
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {str(path)!r}: {str(target.parent)!r} is not a folder.")
    if os.path.lexists(target) and not target.is_file():
        kinds = "it is a folder, a device, a pipe or a link to itself"
        raise OSError(f"cannot write {str(path)!r}: {kinds}. Give the path of a new or regular file.")
    _remove_stale(target)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}{_SUFFIX}")
    with _removed_by_signals(temporary):
        try:
            with _created_and_locked(temporary):
                yield temporary
                with open(temporary, "rb+") as written:
                    os.fsync(written.fileno())
                temporary.chmod(_mode_of(target))
                os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def _created_and_locked(path: Path) -> Iterator[None]:
    """A new file, locked within the block so that others see that it is not stale."""
    locked = False
    while not locked:
        with open(path, "xb", opener=partial(os.open, mode=0o600)) as file:
            if fcntl is None:
                file.close()  # Windows does not rename an open file
            else:
                with suppress(OSError):  # without locks nobody can lock it, so nobody removes it
                    fcntl.flock(file, fcntl.LOCK_EX)
            locked = path.exists()  # else it was taken for a stale one before
            if locked:
                yield


def _remove_stale(target: Path) -> None:
    """Remove temporary files of `target` whose writers are gone."""
    if fcntl is None:
        return
    for path in target.parent.glob(f".{glob.escape(target.name)}.????????{_SUFFIX}"):
        with suppress(OSError):  # locked by its writer, removed meanwhile, or another user's
            handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(handle)


@contextmanager
def _removed_by_signals(temporary: Path) -> Iterator[None]:
    """Within the block, a signal that ends the process removes the file first.

    Handlers of the program stay: what they raise removes the file as any error does. Only the main thread can
    set handlers.
    """
    _unfinished[temporary] = os.getpid()
    ours = []
    try:
        if threading.current_thread() is threading.main_thread():
            ours = [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
        for number in ours:
            signal.signal(number, _end)
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
        del _unfinished[temporary]


def _end(number: int, frame: FrameType | None) -> None:
    """Remove what this process was writing, then end by the signal as without a handler."""
    for path, process in list(_unfinished.items()):
        if process == os.getpid():  # not in a process that was forked meanwhile
            path.unlink(missing_ok=True)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _mode_of(target: Path) -> int:
    """Permissions of the file that is replaced, or those a new file would have (a temporary one has 0600)."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
