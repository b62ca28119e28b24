"""Nobody may serve a directory while it is checked: its `.lock` is held meanwhile, as a broker holds it."""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from stratalog.engine.data_dir import LOCK, is_served
from stratalog.errors import UsageError
from stratalog.util.filesystem import File, FileSystem


@contextmanager
def held(directories: Sequence[Path], fs: FileSystem, *, exclusively: bool) -> Iterator[None]:
    """Hold the locks of log directories. UsageError if a broker, of whichever kind, has one of them.

    A check shares its lock with other checks and makes no file; `exclusively` is for repair.
    """
    with ExitStack() as stack:
        for directory in dict.fromkeys(path.resolve() for path in directories):
            lock = _lock(directory, fs, exclusively=exclusively)
            if lock is not None:
                stack.enter_context(lock)
        yield


def _lock(directory: Path, fs: FileSystem, *, exclusively: bool) -> File | None:
    path = directory / LOCK
    if not fs.exists(path):
        if not exclusively:
            return None
    elif _is_served(directory, fs):
        raise _in_use(directory)
    lock = fs.open(path, create=True) if exclusively else fs.open(path)
    try:
        fcntl.lockf(lock.fileno(), (fcntl.LOCK_EX if exclusively else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise _in_use(directory) from None
        raise
    return lock


def _is_served(directory: Path, fs: FileSystem) -> bool:
    """Asked first because a lock does not exclude its own process, in which a broker may run too."""
    try:
        return is_served(directory, fs)
    except PermissionError:
        return False  # not ours to write; the shared lock tells


def _in_use(directory: Path) -> UsageError:
    return UsageError(
        f"{directory} is in use by a broker (its {LOCK} file is held); stop that one first, or check a copy"
    )
