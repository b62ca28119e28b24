"""Locks on the `.lock` file of a log directory. Apache Kafka's own lock is one of them.

    the whole file, exclusive    a broker (Kafka's too), a repair, a publication
    the first byte, shared       a check, which changes nothing; any number may run at once
    a later byte, exclusive      one partition is open; other processes may open the others

A check and an open partition exclude each other: each takes its own byte and then tests the other's.

The locks belong to the open file description, so they also exclude other parts of the same process, and closing another
handle of `.lock` does not release them. Where the system has no such locks, they belong to the process, as Kafka's do.
The system releases them when the process ends.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import platform
import struct
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from stratalog.errors import DataDirError
from stratalog.util import REAL_FILESYSTEM, File, FileSystem

LOCK: Final = ".lock"

#: Locks of the open file description where they exist (Linux), else of the process.
_SET: Final[int] = getattr(fcntl, "F_OFD_SETLK", fcntl.F_SETLK)
_GET: Final[int] = getattr(fcntl, "F_OFD_GETLK", fcntl.F_GETLK)
#: `struct flock` of Linux: type, whence, start, length, process; and of the BSDs: start, length, process, type, whence.
_IS_TYPE_FIRST: Final = platform.system() == "Linux"
_FLOCK: Final = struct.Struct("@hhqqi4x" if _IS_TYPE_FIRST else "@qqihh")
_CHECKS: Final = 0
_PARTITIONS: Final = 1


class DirLock:
    """A lock that is held. Closing it twice is harmless."""

    def __init__(self, file: File) -> None:
        self._file = file

    @property
    def closed(self) -> bool:
        return self._file.closed

    def close(self) -> None:
        """Release the lock, also in copies that a fork has made."""
        if not self._file.closed:
            try:
                _set(self._file, fcntl.F_UNLCK, 0, 0)
            finally:
                self._file.close()

    def __enter__(self) -> DirLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def hold(directory: Path, fs: FileSystem = REAL_FILESYSTEM) -> DirLock | None:
    """Lock a log directory exclusively.

    Return None if another process uses it. Raises OSError if it is not writable.
    """
    return _held(fs.open(directory / LOCK, create=True), fcntl.F_WRLCK, 0, 0)


def hold_for_check(directory: Path, fs: FileSystem = REAL_FILESYSTEM) -> DirLock | None:
    """Lock a log directory against changes.

    Return None if a process changes it. FileNotFoundError without a lock file.
    """
    lock = _held(fs.open(directory / LOCK), fcntl.F_RDLCK, _CHECKS, 1)
    return _unless_held(lock, _PARTITIONS, 0)


@contextmanager
def hold_all(
    directories: Iterable[Path], fs: FileSystem = REAL_FILESYSTEM, *, for_check: bool = False, creates: bool = True
) -> Iterator[None]:
    """Hold log directories within the block, exclusively or (`for_check`) together with other checks.

    A check makes no lock file, nor does a caller without `creates`. Raises DataDirError if a broker uses a directory.
    """
    with ExitStack() as stack:
        for directory in dict.fromkeys(path.resolve() for path in directories):
            if (for_check or not creates) and not fs.exists(directory / LOCK):
                continue
            lock = hold_for_check(directory, fs) if for_check else hold(directory, fs)
            if lock is None:
                or_copy = ", or check a copy" if for_check else ""
                raise DataDirError(
                    f"{directory} is in use by a broker (its {LOCK} file is locked); stop the broker first{or_copy}"
                )
            stack.enter_context(lock)
        yield


def hold_partition(directory: Path, name: str, fs: FileSystem = REAL_FILESYSTEM) -> DirLock | None:
    """Lock the partition directory `name` of a log directory, whether it exists or not.

    Return None if another process holds it or the whole directory.
    """
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    byte = _PARTITIONS + int.from_bytes(digest, "big") % (1 << 62)
    lock = _held(fs.open(directory / LOCK, create=True), fcntl.F_WRLCK, byte, 1)
    return _unless_held(lock, _CHECKS, 1)


def is_held(directory: Path, fs: FileSystem = REAL_FILESYSTEM) -> bool:
    """Return whether a process holds a log directory or a part of it."""
    if not fs.exists(directory / LOCK):
        return False
    with fs.open(directory / LOCK) as file:
        return _is_held(file, 0, 0)


def _held(file: File, kind: int, start: int, length: int) -> DirLock | None:
    try:
        _set(file, kind, start, length)
    except OSError as error:
        file.close()
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return None
        raise
    except BaseException:
        file.close()
        raise
    return DirLock(file)


def _unless_held(lock: DirLock | None, start: int, length: int) -> DirLock | None:
    if lock is not None and _is_held(lock._file, start, length):
        lock.close()
        return None
    return lock


def _set(file: File, kind: int, start: int, length: int) -> None:
    _control(file, _SET, fcntl.F_SETLK, kind, start, length)


def _is_held(file: File, start: int, length: int) -> bool:
    """Return whether another open file holds a lock on the range."""
    found = _control(file, _GET, fcntl.F_GETLK, fcntl.F_WRLCK, start, length)
    return int(_FLOCK.unpack(found)[0 if _IS_TYPE_FIRST else 3]) != fcntl.F_UNLCK


def _control(file: File, command: int, of_process: int, kind: int, start: int, length: int) -> bytes:
    """Call `fcntl` with a lock structure. A `length` of 0 reaches to the end of any file."""
    fields = (kind, 0, start, length, 0) if _IS_TYPE_FIRST else (start, length, 0, kind, 0)
    wanted = _FLOCK.pack(*fields)
    try:
        return fcntl.fcntl(file.fileno(), command, wanted)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return fcntl.fcntl(file.fileno(), of_process, wanted)
